// The instruction sets that the kernels are compiled for.
#pragma once

namespace shiftsvd {

struct Baseline {};
struct Avx2 {};
struct Avx512 {};

}  // namespace shiftsvd
