// Interface of the products of tall panels with narrow ones, which are compiled for each instruction set.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace shiftsvd {

// A panel whose entry (i, j) is values[i * down + j * right]; `down` or `right` is 1.
template <class T>
struct Tall {
  const T *values;
  std::int64_t rows, columns, down, right;
};

// A row-major panel with as many rows as the tall one; its number of columns is a multiple of the lanes of a register.
template <class T>
struct Narrow {
  T *values;
  std::int64_t columns, stride;
};

// Terms of the sum `before` + values[0] + ... - L C: panels of one shape, each stored in groups of 2^p columns.
template <class T>
struct Parts {
  const T *const *values;
  std::int64_t count;
  const double *before;  // sum of earlier panels; null if there are none
  std::int64_t rows;
  const double *left, *right;  // L is rows x rank and C rank x columns, row-major
  std::int64_t rank;
};

template <class T>
struct TallProducts {
  // out += B^T W, row-major, B.columns x W.columns. Up to 256 rows are summed in T, these sums in double precision.
  void (*inner)(Tall<T> B, Narrow<const T> W, double *out);
  // W -= B C; C is B.columns x W.columns, row-major.
  void (*subtract)(Tall<T> B, const T *C, Narrow<T> W);
  // Computes one group of columns of the sum for rows lo to hi, in double precision and in the order of the parts. The
  // group has `width` columns and begins at `offset` of every part; `first` is its first column in Y and C.
  void (*total)(Parts<T>, std::int64_t offset, int width, std::int64_t first, std::int64_t lo, std::int64_t hi,
                Narrow<T> Y);
  int register_bytes;
};

template <class Isa>
struct TallTables {
  template <class T>
  static TallProducts<T> products();
};

}  // namespace shiftsvd
