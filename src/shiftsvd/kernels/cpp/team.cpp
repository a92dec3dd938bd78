#include "team.hpp"

#include <chrono>
#include <memory>
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

// Most barriers open within this time, and most tasks of a fit start within this time after the one before; waking a
// sleeping thread takes as long. With 30 microseconds a fit of 3,000 x 2,000 counts in two threads took 1.3 times as
// long. Endless spinning would take the core of a BLAS worker that spins as well.
constexpr std::chrono::microseconds patience(200);

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

template <class F>
bool spin_until(F happened) {
  auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (int i = 0; i < 64; i++) {
      if (happened()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

typedef std::function<void(const Member &)> Task;

// Threads that wait for the next task. They are never joined: they sleep until the process ends.
class Crew {
 public:
  int start(int wanted) {
    try {
      while (int(started_) < wanted) {
        std::thread([this, index = int(started_)] { work(index); }).detach();
        started_++;
      }
    } catch (const std::system_error &) {  // the system cannot start more
    }
    return started_ < wanted ? started_ : wanted;
  }

  void run(int threads, const Task &task) {
    Barrier barrier(threads);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      task_ = &task, barrier_ = &barrier, count_ = threads;
      busy_.store(threads - 1, std::memory_order_relaxed);
      number_.fetch_add(1, std::memory_order_release);
    }
    begun_.notify_all();
    task(Member{0, threads, barrier});
    auto over = [this] { return busy_.load(std::memory_order_acquire) == 0; };
    if (spin_until(over)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, over);
  }

 private:
  void work(int index) {
    unsigned seen = 0;
    while (true) {
      auto called = [&] { return number_.load(std::memory_order_acquire) != seen; };
      std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
      bool spun = spin_until(called);
      lock.lock();
      if (!spun) begun_.wait(lock, called);
      seen = number_.load(std::memory_order_relaxed);
      const Task *task = task_;
      Barrier *barrier = barrier_;
      int count = count_;
      lock.unlock();
      if (index + 1 >= count) continue;
      (*task)(Member{index + 1, count, *barrier});
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        lock.lock();
        ended_.notify_one();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const Task *task_ = nullptr;
  Barrier *barrier_ = nullptr;
  int count_ = 0, started_ = 0;
  std::atomic<int> busy_{0};
  std::atomic<unsigned> number_{0};
};

// Idle crews; there are as many crews as tasks ran at once. A child process starts with none, because fork does not
// copy threads.
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

void Barrier::wait() {
  if (threads_ == 1) return;
  unsigned before = phase_.load(std::memory_order_acquire);
  auto open = [&] { return phase_.load(std::memory_order_acquire) != before; };
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(mutex_);
    phase_.store(before + 1, std::memory_order_release);
    opened_.notify_all();
    return;
  }
  if (spin_until(open)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  opened_.wait(lock, open);
}

void together(int threads, const Task &task) {
  if (threads <= 1) {
    Barrier alone(1);
    task(Member{0, 1, alone});
    return;
  }
  Crews &all = crews();
  Crew *crew = all.take();
  crew->run(crew->start(threads - 1) + 1, task);
  all.give_back(crew);
}

}  // namespace shiftsvd
