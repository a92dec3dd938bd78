// Products of a range of rows of a CSR matrix with panels: what each instruction set provides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.hpp"

namespace shiftsvd {

// Rows lo to hi of a CSR matrix. Indices are sound: they were checked before they came here.
template <class D, class I>
struct Rows {
  const D *data;
  const I *indices;
  const I *indptr;
  std::int64_t lo, hi;
};

// Columns of a row-major array: `width` of them are used, `stride` entries lie between rows.
template <class T>
struct Panel {
  T *values;
  std::int64_t stride;
  std::int64_t width;
};

// The widest panel of one call: 128 bytes a row, so that two panels of 2000 rows of doubles share 1 MiB of cache.
constexpr std::int64_t panel_bytes = 128;

// A low-rank shift L C of the rows lo to hi, C = R^H V being small; `weights` multiply the rows (null: ones).
template <class T>
struct Shift {
  const double *left;  // (hi - lo) x rank, row-major; null where there is no shift
  std::int64_t rank;
  const T *right;         // rank x width
  T *sums;                // rank x width: L^H diag(weights) (X V - L C) is added
  const double *weights;  // of the rows lo to hi
};

// What moments of columns and rows need, all in double.
struct Sums {
  double *mean;
  double *squares;
};

struct Inspection {
  std::int64_t nan = 0, infinite = 0;
  std::int64_t least = 0, largest = -1;
  bool sorted = true;  // strictly increasing within each row
};

// One table for each combination of data, panel and index types.
template <class D, class T, class I>
struct Products {
  // Y = X V
  void (*gather)(Rows<D, I>, const T *V, int width, Panel<T> Y);
  // Z += X^T W
  void (*scatter)(Rows<D, I>, Panel<const T> W, int width, T *Z);
  // Z += X^T diag(weights) (X V - L C)
  void (*gram)(Rows<D, I>, const T *V, int width, Shift<T>, T *Z);
};

template <class D, class I>
struct Statistics {
  // Mean of each column over the rows, absent entries being zeros, and the squared distances from it.
  void (*moments)(Rows<D, I>, std::int64_t n, const double *weights, double total, Sums);
  // The same of each row over n columns; `weights` belong to the columns.
  void (*row_moments)(Rows<D, I>, const double *weights, double total, Sums);
  // squares_j += sum_i w_i (x_ij^2 - 2 x_ij (L R^T)_ij) over the stored entries
  void (*column_squares)(Rows<D, I>, const double *weights, const double *left, const double *right, std::int64_t rank,
                         double *squares);
  // G += the lower triangle of X^T diag(weights) X
  void (*outer)(Rows<D, I>, const double *weights, std::int64_t n, double *G);
  Inspection (*inspect)(Rows<D, I>);
};

// out = X - L R^T for a block of dense rows, in double and rounded once; R^T is rank x n.
template <class T>
using Subtract = void (*)(const T *X, std::int64_t stride, std::int64_t rows, std::int64_t n, const double *L,
                          const double *Rt, std::int64_t rank, T *out);

template <class Isa>
struct Tables {
  template <class D, class T, class I>
  static Products<D, T, I> products();
  template <class D, class I>
  static Statistics<D, I> statistics();
  template <class T>
  static Subtract<T> subtract();
};

}  // namespace shiftsvd
