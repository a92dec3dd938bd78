// Products of tall panels with narrow ones: what each instruction set provides.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace shiftsvd {

// A panel of `rows` rows and `columns` columns; entry (i, j) lies at i * down + j * right, one of which is 1.
template <class T>
struct Tall {
  const T *values;
  std::int64_t rows, columns, down, right;
};

// A row-major panel of as many rows, whose columns fill registers.
template <class T>
struct Narrow {
  T *values;
  std::int64_t columns, stride;
};

// What is added up: panels of one shape, each in groups of 2^p columns that follow each other, less L C.
template <class T>
struct Parts {
  const T *const *values;
  std::int64_t count;
  const double *before;  // what has been added up so far; null where that is nothing
  std::int64_t rows;
  const double *left, *right;  // L is rows x rank and C rank x columns, row-major
  std::int64_t rank;
};

template <class T>
struct TallProducts {
  // out += B^T W, summed in T over some hundred rows and in double beyond; out is B.columns x W.columns, row-major.
  void (*inner)(Tall<T> B, Narrow<const T> W, double *out);
  // W -= B C; C is B.columns x W.columns, row-major.
  void (*subtract)(Tall<T> B, const T *C, Narrow<T> W);
  // One group of columns of the sum, for rows lo to hi of all of them; summed in double, in the order of the parts.
  // The group begins at `offset` of every part and is `width` wide; `first` is its first column in Y and C.
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
