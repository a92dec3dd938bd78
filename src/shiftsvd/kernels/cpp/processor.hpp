// Which instruction sets this processor, and the system on it, can run.
#pragma once

namespace shiftsvd {

struct Processor {
  bool avx2, avx512;
};

Processor processor();

}  // namespace shiftsvd
