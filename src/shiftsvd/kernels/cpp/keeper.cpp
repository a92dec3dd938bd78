#include "keeper.hpp"

#ifdef __linux__
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

namespace shiftsvd {
namespace {

// Upper bound of the growth of memory: the system maps pages at 2 to 10 GB/s (benchmarks/claims/bombs.py).
constexpr double bytes_a_second = 20e9;
constexpr double shortest = 0.001, longest = 0.02;  // seconds between two measurements

struct Kept {
  std::int64_t limit = -1;
  std::string line;
  int file = -1;
  std::mutex lock;
  std::vector<std::string> folders;
};

// Never freed: the watcher runs until the process has ended, also while static objects are destroyed.
Kept *const kept = new Kept;

// Bytes of resident memory that is neither shared nor mapped from a file: arrays, stacks and allocations of libraries.
// -1 if unknown.
std::int64_t anonymous(int file) {
  char text[128];
  ssize_t size = pread(file, text, sizeof text - 1, 0);
  if (size <= 0) return -1;
  text[size] = 0;
  long long all, resident, shared;
  if (std::sscanf(text, "%lld %lld %lld", &all, &resident, &shared) != 3) return -1;
  return (resident - shared) * sysconf(_SC_PAGESIZE);
}

void say(const std::string &text) {
  pollfd out = {STDERR_FILENO, POLLOUT, 0};
  for (std::size_t at = 0; at < text.size();) {
    if (poll(&out, 1, 100) <= 0) return;  // stop if the pipe is not read, because memory still grows
    ssize_t size = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (size <= 0) return;
    at += size;
  }
}

[[noreturn]] void end() {
  // A progress bar may have hidden the cursor in the middle of a line.
  if (isatty(STDERR_FILENO)) say("\r\x1b[2K\x1b[?25h");
  say(kept->line + "\n");
  std::lock_guard<std::mutex> held(kept->lock);
  std::error_code ignored;
  for (const auto &folder : kept->folders) std::filesystem::remove_all(folder, ignored);
  _exit(1);
}

void watch() {
  for (;;) {
    std::int64_t left = kept->limit - anonymous(kept->file);
    if (left < 0) end();
    double pause = std::clamp(left / bytes_a_second, shortest, longest);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

}  // namespace

bool keep(std::int64_t limit, const std::string &line) {
  int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::int64_t now = file < 0 ? -1 : anonymous(file);
  if (now < 0 || kept->file >= 0) {
    if (file >= 0) close(file);
    return kept->file >= 0;
  }
  kept->limit = now + limit;
  kept->line = line;
  kept->file = file;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // so that Python's threads receive all signals
  std::thread(watch).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

void discard(const std::vector<std::string> &folders) {
  std::lock_guard<std::mutex> held(kept->lock);
  kept->folders = folders;
}

}  // namespace shiftsvd

#else

namespace shiftsvd {

bool keep(std::int64_t, const std::string &) {
  return false;
}
void discard(const std::vector<std::string> &) {}

}  // namespace shiftsvd

#endif
