// Threads that share the pieces of a computation.
#pragma once

#include <cstdint>
#include <type_traits>

namespace shiftsvd {

class Crew;

// Threads that help the calling one. Only the calling thread follows the computation; the others take pieces. So a
// helper that wakes up late, or whose core is taken, delays nothing but the piece that it has begun.
class Team {
 public:
  // Of `threads` threads, including the calling one, or fewer if the system cannot start more.
  explicit Team(int threads);
  ~Team();
  Team(const Team &) = delete;

  int threads() const {
    return threads_;
  }

  // Calls f(i) for each i < pieces, in any thread, and returns after the last call. f must not throw, and the results
  // must not depend on the thread or on the order of the calls.
  template <class F>
  void each(std::int64_t pieces, F f) {
    run(pieces, [](const void *work, std::int64_t i) { (*static_cast<const F *>(work))(i); }, &f);
  }

 private:
  void run(std::int64_t pieces, void (*call)(const void *, std::int64_t), const void *work);

  Crew *crew_ = nullptr;
  int threads_ = 1;
};

}  // namespace shiftsvd
