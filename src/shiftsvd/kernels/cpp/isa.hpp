// The instruction sets that the kernels are compiled for.
#pragma once

namespace shiftsvd {

struct Baseline {};
struct Avx2 {};
struct Avx512 {};

#ifdef ISA  // in the sources that are compiled once for each instruction set
// Bytes of a vector register, and number of registers for sums; the others hold factors.
#if defined(__AVX512F__)
constexpr int register_bytes = 64, registers = 16;
#elif defined(__AVX2__)
constexpr int register_bytes = 32, registers = 12;
#else
constexpr int register_bytes = 16, registers = 8;
#endif
#endif

}  // namespace shiftsvd
