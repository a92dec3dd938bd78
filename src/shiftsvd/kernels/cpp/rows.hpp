// Products of a range of rows of a CSR matrix with panels: what each instruction set provides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.hpp"

namespace shiftsvd {

// Rows lo to hi of a CSR matrix. Indices are sound: the module checks them in every call.
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
  T *sums;                // rank x width: L^H diag(weights) (X V - L C) is added; null where nobody needs it
  const double *weights;  // of the rows lo to hi
};

// A weight is the sum of so many parts, each of which can be added up without rounding but the last.
constexpr int weight_parts = 3;

// Of the stored entries of each column, or of each row: the parts of their weights added up (weight_parts for each),
// their mean, by how much that was rounded, and the weighted squares of their distances from the mean.
struct Sums {
  double *stored;
  double *mean;
  double *correction;
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
  // Y = X V; V has n rows
  void (*gather)(Rows<D, I>, const T *V, std::int64_t n, int width, Panel<T> Y);
  // Z += X^T W
  void (*scatter)(Rows<D, I>, Panel<const T> W, int width, T *Z);
  // Z += X^T diag(weights) (X V - L C)
  void (*gram)(Rows<D, I>, const T *V, int width, Shift<T>, T *Z);
  // Y = diag(weights) (X V - L C), and L^H Y is added to the sums; V has n rows
  void (*shifted)(Rows<D, I>, const T *V, std::int64_t n, int width, Shift<T>, Panel<T> Y);
};

template <class D, class I>
struct Statistics {
  // Moments of the stored entries of each column; `weights` are parts for each row (null: ones).
  void (*moments)(Rows<D, I>, std::int64_t n, const double *weights, Sums);
  // The same of each row; `weights` are parts for each column.
  void (*row_moments)(Rows<D, I>, const double *weights, Sums);
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

// Whether rows lo to hi follow each other and their indices are in 0..n-1, given that indptr[lo] and indptr[hi] are
// sound: the arrays belong to the caller, who may have changed them since they were checked.
template <class I>
using Sound = bool (*)(const I *indices, const I *indptr, std::int64_t lo, std::int64_t hi, std::int64_t n);

template <class Isa>
struct Tables {
  template <class D, class T, class I>
  static Products<D, T, I> products();
  template <class D, class I>
  static Statistics<D, I> statistics();
  template <class T>
  static Subtract<T> subtract();
  template <class I>
  static Sound<I> sound();
};

}  // namespace shiftsvd
