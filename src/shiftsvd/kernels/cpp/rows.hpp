// Interface of the kernels for a range of rows of a CSR matrix, which are compiled for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.hpp"

namespace shiftsvd {

// Rows lo to hi of a CSR matrix. The module checks in every call that the indices are inside of the matrix.
template <class D, class I>
struct Rows {
  const D *data;
  const I *indices;
  const I *indptr;
  std::int64_t lo, hi;
};

// The first `width` columns of a row-major array with `stride` entries from row to row.
template <class T>
struct Panel {
  T *values;
  std::int64_t stride;
  std::int64_t width;
};

// Bytes of a row of the widest panel of one call: two such panels of 2,000 rows take half of 1 MiB of cache.
constexpr std::int64_t panel_bytes = 128;

// A low-rank shift L C of the rows lo to hi, with the small matrix C = R^H V; `weights` multiply the rows (null: ones).
template <class T>
struct Shift {
  const double *left;  // L, (hi - lo) x rank, row-major; null if there is no shift
  std::int64_t rank;
  const T *right;         // C, rank x width
  T *sums;                // rank x width; L^H diag(weights) (X V - L C) is added to it; may be null
  const double *weights;  // of the rows lo to hi
};

// Number of parts whose sum is a weight. Sums over rows of all parts except the last are exact.
constexpr int weight_parts = 3;

// For the stored entries of each column, or of each row: sums of the parts of their weights (weight_parts each), mean,
// correction of the mean for rounding, and weighted sum of squared deviations from the mean.
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
  // Y = diag(weights) (X V - L C); sums += L^H Y; V has n rows
  void (*shifted)(Rows<D, I>, const T *V, std::int64_t n, int width, Shift<T>, Panel<T> Y);
};

template <class D, class I>
struct Statistics {
  // Moments of the stored entries of each column; `weights` are parts for each row (null: ones).
  void (*moments)(Rows<D, I>, std::int64_t n, const double *weights, Sums);
  // Moments of the stored entries of each row; `weights` are parts for each column (null: ones).
  void (*row_moments)(Rows<D, I>, const double *weights, Sums);
  // squares_j += sum_i w_i (x_ij^2 - 2 x_ij (L R^T)_ij) over the stored entries
  void (*column_squares)(Rows<D, I>, const double *weights, const double *left, const double *right, std::int64_t rank,
                         double *squares);
  // G += the lower triangle of X^T diag(weights) X
  void (*outer)(Rows<D, I>, const double *weights, std::int64_t n, double *G);
  Inspection (*inspect)(Rows<D, I>);
};

// out = X - L R^T for a block of dense rows, computed in double precision and rounded once; R^T is rank x n.
template <class T>
using Subtract = void (*)(const T *X, std::int64_t stride, std::int64_t rows, std::int64_t n, const double *L,
                          const double *Rt, std::int64_t rank, T *out);

// Weighted column sums of a block of dense rows with this total weight (null: ones): the mean, and sums of deviations
// from it and of their squares.
template <class T>
using DenseMoments = void (*)(const T *X, std::int64_t stride, std::int64_t rows, std::int64_t n, const double *weights,
                              double total, double *mean, double *deviations, double *squares);

// Returns true if indptr[lo..hi] does not decrease and the indices of these rows are in 0..n-1. indptr[lo] and
// indptr[hi] must be valid. The arrays belong to the caller, who may have changed them since they were validated.
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
  template <class T>
  static DenseMoments<T> dense_moments();
  template <class I>
  static Sound<I> sound();
};

}  // namespace shiftsvd
