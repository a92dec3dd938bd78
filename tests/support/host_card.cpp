// A card made of the host: the text of our CUDA kernels, run by fibers, behind the names of the CUDA driver.
//
// Every thread of a block is a fiber. They run one at a time, each up to its next barrier or shuffle, in an order that
// `turns` chooses: forwards, backwards, or at random, where warps also fall behind others. A barrier that is missing,
// or that only some threads reach, shows. CHUNKS is the path of the kernels.
#include <setjmp.h>
#include <ucontext.h>

#include <cstring>
#include <utility>

#define __global__
#define __device__
#define __shared__
#define __restrict__
#define __launch_bounds__(...)

struct Index3 {
  unsigned x = 0;
};
static Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

enum Turns { forwards, backwards, random_turns };
enum State { ready, at_barrier, at_shuffle, ended };

struct Fiber {
  State state = ready;
  bool begun = false, second = false;  // which of two places its next shuffle takes
  ucontext_t beginning;
  jmp_buf here;
};

alignas(16) char stacks[THREADS][1 << 14];
Fiber fibers[THREADS];
jmp_buf scheduler;
void (*body)(void **);
void **arguments;
double shuffled[2][THREADS];

__attribute__((noinline)) void suspend(State state) {
  Fiber &me = fibers[threadIdx.x];
  me.state = state;
  if (!_setjmp(me.here)) _longjmp(scheduler, 1);
}

void begin() {
  body(arguments);
  fibers[threadIdx.x].state = ended;
  _longjmp(scheduler, 1);
}

__attribute__((noinline)) void resume(unsigned t) {
  threadIdx.x = t;
  Fiber &fiber = fibers[t];
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.here, 1);
  fiber.begun = true;
  setcontext(&fiber.beginning);
}

// Whether all fibers of a range wait for the same, and then let them go on.
bool released(unsigned first, unsigned last, State state) {
  for (unsigned t = first; t < last; t++)
    if (fibers[t].state != state) return false;
  for (unsigned t = first; t < last; t++) fibers[t].state = ready;
  return true;
}

bool run_block(Turns turns, unsigned &random) {
  const unsigned count = blockDim.x;
  for (unsigned t = 0; t < count; t++) {
    fibers[t] = Fiber();
    getcontext(&fibers[t].beginning);
    fibers[t].beginning.uc_stack.ss_sp = stacks[t];
    fibers[t].beginning.uc_stack.ss_size = sizeof stacks[t];
    makecontext(&fibers[t].beginning, begin, 0);
  }
  for (;;) {
    bool moved = false;
    random = random * 1664525 + 1013904223;  // Numerical Recipes' generator: any will do
    const unsigned offset = turns == random_turns ? (random >> 8) % count : 0;
    for (unsigned i = 0; i < count; i++) {
      const unsigned t = turns == backwards ? count - 1 - i : (i + offset) % count;
      if (fibers[t].state != ready) continue;
      moved = true;
      const bool rests = turns == random_turns && random >> (16 + t / 32 % 16) & 1;  // a warp falls behind
      if (!rests) resume(t);
    }
    for (unsigned t = 0; t < count; t += 32) moved |= released(t, t + 32, at_shuffle);
    if (released(0, count, ended)) return true;
    moved |= released(0, count, at_barrier);
    if (!moved) return false;  // some wait for others that never come
  }
}

}  // namespace

// The barrier in the line `without` of the kernels' text is left out.
static int without = 0;
static void barrier(int line) {
  if (line != without) suspend(at_barrier);
}
#define __syncthreads() barrier(__LINE__)

// What the lanes of a warp have given; whole numbers below 2^53 are exact.
static const double *exchanged(double value) {
  Fiber &me = fibers[threadIdx.x];
  double *places = shuffled[me.second];
  me.second = !me.second;
  places[threadIdx.x] = value;
  suspend(at_shuffle);
  return places + threadIdx.x / 32 * 32;
}
template <class T>
static T __shfl_xor_sync(unsigned, T value, int apart) {
  return T(exchanged(double(value))[threadIdx.x % 32 ^ unsigned(apart)]);
}
template <class T>
static T __shfl_sync(unsigned, T value, int lane) {
  return T(exchanged(double(value))[lane]);
}
static bool __any_sync(unsigned, bool value) {
  const double *lanes = exchanged(value);
  for (int lane = 0; lane < 32; lane++)
    if (lanes[lane] != 0) return true;
  return false;
}
static void __syncwarp() {
  exchanged(0);
}

template <class T>
static T __ldcs(const T *p) {
  return *p;
}
static float __fmul_rn(float a, float b) {
  return a * b;
}
static float __fadd_rn(float a, float b) {
  return a + b;
}
static double __dmul_rn(double a, double b) {
  return a * b;
}
static double __dadd_rn(double a, double b) {
  return a + b;
}

#include CHUNKS

Lane shared[(99u << 10) / sizeof(Lane)];  // what a block can have on every card since 2020

extern "C" {
int contexts = 0;  // that are current, and were not put back
}

namespace {

template <class... A, std::size_t... I>
void spread(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
  kernel(*static_cast<A *>(given[I])...);
}

template <auto kernel>
struct Called;
template <class... A, void (*kernel)(A...)>
struct Called<kernel> {
  static void call(void **given) {
    spread(kernel, given, std::index_sequence_for<A...>());
  }
};

struct Function {
  const char *name;
  void (*call)(void **);
  unsigned granted;  // bytes of shared memory, more than 48 KiB if they were asked for
};
Function functions[] = {
    {"multiply", Called<multiply>::call, 48 << 10},
    {"powers", Called<powers>::call, 48 << 10},
    {"add_up", Called<add_up>::call, 48 << 10},
    {"order", Called<order>::call, 48 << 10},
};
void *const there = reinterpret_cast<void *>(64);  // the context
enum { success = 0, invalid_value = 1, invalid_context = 201, not_found = 500, launch_failed = 719 };

}  // namespace

extern "C" {

int turns = 0, filling = 0;
unsigned seed = 0;
void leave_out(int line) {
  without = line;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return success;
}
int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = there;
  return success;
}
int cuCtxPushCurrent_v2(void *context) {
  contexts += context == there;
  return context == there ? success : invalid_context;
}
int cuCtxPopCurrent_v2(void **) {
  return contexts-- > 0 ? success : invalid_context;
}
int cuModuleLoadData(void **module, const void *) {
  *module = functions;
  return contexts ? success : invalid_context;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  for (Function &f : functions)
    if (module == functions && !std::strcmp(f.name, name)) return *function = &f, success;
  return not_found;
}
int cuFuncSetAttribute(void *function, int what, int value) {
  if (what != 8 || unsigned(value) > sizeof shared) return invalid_value;
  static_cast<Function *>(function)->granted = unsigned(value);
  return success;
}
int cuGetErrorName(int error, const char **name) {
  *name = error == launch_failed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OF_THE_CALL";
  return success;
}
int cuLaunchKernel(void *function, unsigned blocks, unsigned gy, unsigned gz, unsigned threads, unsigned ty,
                   unsigned tz, unsigned bytes, void *, void **given, void **) {
  const Function &f = *static_cast<Function *>(function);
  if (!contexts) return invalid_context;
  if (!blocks || !threads || threads % 32 || threads > THREADS || gy * gz * ty * tz != 1) return invalid_value;
  if (bytes > f.granted || bytes > sizeof shared) return invalid_value;
  body = f.call, arguments = given, blockDim.x = threads, gridDim.x = blocks;
  unsigned random = seed;
  for (unsigned b = 0; b < blocks; b++) {
    blockIdx.x = turns == backwards ? blocks - 1 - b : b;
    std::memset(static_cast<void *>(shared), filling, sizeof shared);
    if (!run_block(Turns(turns), random)) return launch_failed;
  }
  return success;
}
}
