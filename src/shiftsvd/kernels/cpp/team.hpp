// Threads that share one task: each runs the same function, and they wait for each other at barriers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace shiftsvd {

// `wait` spins for some microseconds, in which most barriers open, and then sleeps, because the other threads may have
// no core.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait();

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> phase_{0};
  std::mutex mutex_;
  std::condition_variable opened_;
};

// One of `count` threads that share a task.
struct Member {
  int index, count;
  Barrier &barrier;

  // Calls f(i) for this thread's share of 0..pieces-1, which is the same in each call.
  template <class F>
  void share(std::int64_t pieces, F f) const {
    for (std::int64_t i = index; i < pieces; i += count) f(i);
  }
};

// Runs `task` in `threads` threads, including the calling one, or in fewer if the system cannot start more. The task
// must not throw, and its results must not depend on the number of threads.
void together(int threads, const std::function<void(const Member &)> &task);

}  // namespace shiftsvd
