// The instruction sets that the kernels are compiled for.
#pragma once

namespace shiftsvd {

struct Baseline {};
struct Avx2 {};
struct Avx512 {};

#ifdef ISA  // in the sources that are compiled once for each of them
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif
#endif

}  // namespace shiftsvd
