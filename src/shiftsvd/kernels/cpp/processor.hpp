// Detects the instruction sets that the processor and the operating system support.
#pragma once

namespace shiftsvd {

struct Processor {
  bool avx2, avx512;
};

Processor processor();

}  // namespace shiftsvd
