// Detects the instruction sets that the processor and the operating system support, by cpuid and xgetbv.
//
// (__builtin_cpu_supports needs a runtime library that clang-cl does not link, and zig's library always returns false.)
#include "processor.hpp"

#ifdef SHIFTSVD_X86
#include <cpuid.h>

namespace shiftsvd {
namespace {

// Mask of the registers that the system saves when it switches threads: 2 and 4 for AVX, 0xe0 for AVX-512.
unsigned saved_registers() {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool has(unsigned found, unsigned bits) {
  return (found & bits) == bits;
}

}  // namespace

Processor processor() {
  unsigned eax, ebx, ecx, edx;
  constexpr unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has(ecx, osxsave | avx | fma)) return {false, false};
  constexpr unsigned avx2 = 1u << 5, f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {false, false};
  unsigned saved = saved_registers();
  bool narrow = has(ebx, avx2) && has(saved, 0x06);
  return {narrow, narrow && has(ebx, f | dq | bw | vl) && has(saved, 0xe6)};
}

}  // namespace shiftsvd

#else

namespace shiftsvd {

Processor processor() {
  return {false, false};
}

}  // namespace shiftsvd

#endif
