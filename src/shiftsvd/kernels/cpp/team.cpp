#include "team.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#ifdef _WIN32
#include <process.h>
#define getpid _getpid
#else
#include <unistd.h>
#endif

namespace shiftsvd {
namespace {

// Helpers spin for this time after the last piece, and then sleep: the next computation of a fit begins within about a
// millisecond, and waking a helper takes as long. They offer their core to other threads after each round of spinning.
constexpr std::chrono::microseconds patience(1000);
constexpr int spins = 64;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

template <class F>
bool spin(F happened) {
  for (int i = 0; i < spins; i++) {
    if (happened()) return true;
    relax();
  }
  std::this_thread::yield();
  return false;
}

}  // namespace

// Threads that are never joined: they sleep until the process ends.
class Crew {
 public:
  int start(int wanted) {
    try {
      while (started_ < wanted) {
        std::thread([this, index = started_] { help(index); }).detach();
        started_++;
      }
    } catch (const std::system_error &) {  // the system cannot start more
    }
    helpers_.store(std::min(started_, wanted), std::memory_order_relaxed);
    return helpers_;
  }

  void run(std::int64_t pieces, void (*call)(const void *, std::int64_t), const void *work) {
    // A helper reads these before it takes a piece, and takes none if the ticket has changed since.
    call_.store(call, std::memory_order_relaxed);
    work_.store(work, std::memory_order_relaxed);
    pieces_.store(pieces, std::memory_order_relaxed);
    ended_.store(0, std::memory_order_relaxed);
    round_ = (round_ + 1) << 32 >> 32;
    ticket_.store(round_ << 32 | std::uint64_t(pieces), std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst)) {
      std::lock_guard<std::mutex> lock(mutex_);
      awake_.notify_all();
    }
    while (take()) {
    }
    while (!spin([&] { return ended_.load(std::memory_order_acquire) == pieces; })) {
    }
  }

 private:
  static std::uint64_t left(std::uint64_t ticket) {
    return ticket & 0xffffffff;
  }

  // Takes a piece, unless none is left.
  bool take() {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (left(ticket)) {
      auto call = call_.load(std::memory_order_relaxed);
      auto work = work_.load(std::memory_order_relaxed);
      std::int64_t pieces = pieces_.load(std::memory_order_relaxed);
      if (ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        call(work, pieces - std::int64_t(left(ticket)));
        ended_.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  void help(int index) {
    auto idle = std::chrono::steady_clock::now();
    auto called = [&] { return index < helpers_.load(std::memory_order_relaxed) && left(ticket_.load()); };
    while (true) {
      if (spin(called)) {
        while (take()) {
        }
        idle = std::chrono::steady_clock::now();
      } else if (std::chrono::steady_clock::now() - idle > patience) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleeping_.fetch_add(1, std::memory_order_seq_cst);
        awake_.wait(lock, called);
        sleeping_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable awake_;
  // The number of the computation, and how many of its pieces are left.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<void (*)(const void *, std::int64_t)> call_{nullptr};
  std::atomic<const void *> work_{nullptr};
  std::atomic<std::int64_t> pieces_{0}, ended_{0};
  std::atomic<int> helpers_{0}, sleeping_{0};
  std::uint64_t round_ = 0;
  int started_ = 0;
};

namespace {

// Idle crews; there are as many crews as computations ran at once. A child process starts with none, because fork does
// not copy threads.
class Crews {
 public:
  Crew *take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return new Crew();
    Crew *crew = idle_.back();
    idle_.pop_back();
    return crew;
  }
  void give_back(Crew *crew) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(crew);
  }
  const int process = int(getpid());

 private:
  std::mutex mutex_;
  std::vector<Crew *> idle_;
};

Crews &crews() {
  static std::atomic<Crews *> known{nullptr};
  Crews *mine = known.load();
  if (!mine || mine->process != int(getpid())) {
    Crews *made = new Crews();
    if (known.compare_exchange_strong(mine, made)) return *made;
    delete made;
    return *known.load();
  }
  return *mine;
}

}  // namespace

Team::Team(int threads) {
  if (threads <= 1) return;
  crew_ = crews().take();
  threads_ = crew_->start(threads - 1) + 1;
}

Team::~Team() {
  if (crew_) crews().give_back(crew_);
}

void Team::run(std::int64_t pieces, void (*call)(const void *, std::int64_t), const void *work) {
  if (crew_ && pieces > 1) return crew_->run(pieces, call, work);
  for (std::int64_t i = 0; i < pieces; i++) call(work, i);
}

}  // namespace shiftsvd
