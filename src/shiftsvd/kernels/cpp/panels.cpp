// Products of tall panels with narrow ones, and sums of panels.
//
// Compiled once for each instruction set, which the macro ISA names.
//
// BLAS copies both factors before it multiplies, which takes as long as a product with 16 columns. These kernels read
// the tall factor in place, and multiply each of its entries by a row of the narrow factor in registers.
#include "panels.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace shiftsvd {
namespace {

// Bytes of a row of the narrow panel, and its rows, that are processed at once, so that they stay in the first-level
// cache.
constexpr int widest_bytes = 128;
constexpr std::int64_t most_rows = 256;

// Columns of the tall panel that are processed at once: contiguous columns are on different pages.
constexpr std::int64_t most_columns = 16;

// Bytes of a column that are fetched ahead: 256 rows of a column are too short for the processor to do that itself.
// Without, `subtract` takes 2.3 times as long where the basis exceeds the caches (31,668 x 288).
constexpr int cache_line = 64, ahead = 256;

// W columns of a row as registers.
template <class T, int W>
struct Row {
  static constexpr int bytes = register_bytes, lanes = bytes / int(sizeof(T)), count = W / lanes;
  // Columns of the tall panel whose sums fit into `registers`.
  static constexpr int tile = registers / count;
  typedef T Vector __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias));
  static Vector load(const T *p) {
    return *reinterpret_cast<const Vector *>(p);
  }
  static void store(T *p, Vector v) {
    *reinterpret_cast<Vector *>(p) = v;
  }
};

// Entry (i, j) of a tall panel, whose unit stride is known at compile time.
template <bool by_columns, class T>
inline T entry(const T *B, std::int64_t stride, std::int64_t i, std::int64_t j) {
  return by_columns ? B[j * stride + i] : B[i * stride + j];
}

template <int W, int C, bool by_columns, class T>
void inner_tile(const T *B, std::int64_t stride, std::int64_t rows, Narrow<const T> Y, double *out) {
  using R = Row<T, W>;
  typename R::Vector sum[C][R::count] = {};
  for (std::int64_t i = 0; i < rows; i++) {
    typename R::Vector y[R::count];
    for (int r = 0; r < R::count; r++) y[r] = R::load(Y.values + i * Y.stride + r * R::lanes);
    for (int j = 0; j < C; j++) {
      T b = entry<by_columns>(B, stride, i, j);
      for (int r = 0; r < R::count; r++) sum[j][r] += b * y[r];
    }
  }
  for (int j = 0; j < C; j++) {
    for (int r = 0; r < W; r++) out[j * Y.columns + r] += sum[j][r / R::lanes][r % R::lanes];
  }
}

// N rows at once, whose sums stay in registers for all columns of the tall panel.
template <int W, int N, bool by_columns, class T>
void subtract_tile(const T *B, std::int64_t stride, std::int64_t columns, const T *factor, Narrow<T> Y) {
  using R = Row<T, W>;
  typename R::Vector sum[N][R::count] = {};
  for (std::int64_t j = 0; j < columns; j++) {
    typename R::Vector c[R::count];
    for (int r = 0; r < R::count; r++) c[r] = R::load(factor + j * Y.columns + r * R::lanes);
    if (by_columns) {
      for (int i = 0; i < N; i += cache_line / int(sizeof(T))) {
        __builtin_prefetch(reinterpret_cast<const char *>(&B[j * stride + i]) + ahead);
      }
    }
    for (int i = 0; i < N; i++) {
      T b = entry<by_columns>(B, stride, i, j);
      for (int r = 0; r < R::count; r++) sum[i][r] += b * c[r];
    }
  }
  for (int i = 0; i < N; i++) {
    for (int r = 0; r < R::count; r++) {
      T *place = Y.values + i * Y.stride + r * R::lanes;
      R::store(place, R::load(place) - sum[i][r]);
    }
  }
}

// Calls f(size, first) for tiles of C columns, then of half as many for the rest, down to 1.
template <int C, class F>
void in_tiles(std::int64_t from, std::int64_t columns, F f) {
  for (; from + C <= columns; from += C) f(std::integral_constant<int, C>(), from);
  if constexpr (C > 1) in_tiles<C / 2>(from, columns, f);
}

// Calls f(width, first) for groups of W columns, then of half as many for the rest, down to one register.
template <class T, int W = widest_bytes / int(sizeof(T)), class F>
void in_groups(std::int64_t from, std::int64_t columns, F f) {
  for (; from + W <= columns; from += W) f(std::integral_constant<int, W>(), from);
  if constexpr (W > Row<T, W>::lanes) in_groups<T, W / 2>(from, columns, f);
}

// Calls f(first, count) for pieces of at most `most_rows` rows.
template <class F>
void in_rows(std::int64_t rows, F f) {
  for (std::int64_t lo = 0; lo < rows; lo += most_rows) f(lo, rows - lo < most_rows ? rows - lo : most_rows);
}

template <bool by_columns, class T>
void inner_in(Tall<T> B, Narrow<const T> W, double *out) {
  std::int64_t stride = by_columns ? B.right : B.down;
  in_rows(B.rows, [&](std::int64_t lo, std::int64_t rows) {
    in_groups<T>(0, W.columns, [&](auto w, std::int64_t first) {
      Narrow<const T> part{W.values + lo * W.stride + first, W.columns, W.stride};
      in_tiles<Row<T, w()>::tile>(0, B.columns, [&](auto c, std::int64_t j) {
        inner_tile<w(), c(), by_columns>(B.values + lo * B.down + j * B.right, stride, rows, part,
                                         out + j * W.columns + first);
      });
    });
  });
}

template <bool by_columns, class T>
void subtract_in(Tall<T> B, const T *C, Narrow<T> W) {
  std::int64_t stride = by_columns ? B.right : B.down;
  in_rows(B.rows, [&](std::int64_t lo, std::int64_t rows) {
    for (std::int64_t j = 0; j < B.columns; j += most_columns) {
      std::int64_t columns = B.columns - j < most_columns ? B.columns - j : most_columns;
      in_groups<T>(0, W.columns, [&](auto w, std::int64_t first) {
        in_tiles<Row<T, w()>::tile>(0, rows, [&](auto n, std::int64_t i) {
          Narrow<T> part{W.values + (lo + i) * W.stride + first, W.columns, W.stride};
          subtract_tile<w(), n(), by_columns>(B.values + (lo + i) * B.down + j * B.right, stride, columns,
                                              C + j * W.columns + first, part);
        });
      });
    }
  });
}

template <class T>
void inner(Tall<T> B, Narrow<const T> W, double *out) {
  B.down == 1 ? inner_in<true>(B, W, out) : inner_in<false>(B, W, out);
}

template <class T>
void subtract(Tall<T> B, const T *C, Narrow<T> W) {
  B.down == 1 ? subtract_in<true>(B, C, W) : subtract_in<false>(B, C, W);
}

template <int W, class T>
void total_of(Parts<T> S, std::int64_t offset, std::int64_t first, std::int64_t lo, std::int64_t hi, Narrow<T> Y) {
  std::int64_t width = Y.columns - first < W ? Y.columns - first : W;
  for (std::int64_t i = lo; i < hi; i++) {
    double sum[W] = {};
    if (S.before) std::memcpy(sum, S.before + offset + i * W, sizeof(sum));
    for (std::int64_t b = 0; b < S.count; b++) {
      const T *part = S.values[b] + offset + i * W;
      for (int r = 0; r < W; r++) sum[r] += part[r];
    }
    for (std::int64_t s = 0; s < S.rank; s++) {
      double left = S.left[i * S.rank + s];
      const double *right = S.right + s * Y.columns + first;
      for (std::int64_t r = 0; r < width; r++) sum[r] -= left * right[r];
    }
    T *out = Y.values + (i - lo) * Y.stride + first;
    for (std::int64_t r = 0; r < width; r++) out[r] = T(sum[r]);
  }
}

template <class T>
void total(Parts<T> S, std::int64_t offset, int width, std::int64_t first, std::int64_t lo, std::int64_t hi,
           Narrow<T> Y) {
  switch (width) {
    case 1: return total_of<1>(S, offset, first, lo, hi, Y);
    case 2: return total_of<2>(S, offset, first, lo, hi, Y);
    case 4: return total_of<4>(S, offset, first, lo, hi, Y);
    case 8: return total_of<8>(S, offset, first, lo, hi, Y);
    case 16: return total_of<16>(S, offset, first, lo, hi, Y);
    default: return total_of<widest_bytes / int(sizeof(T))>(S, offset, first, lo, hi, Y);
  }
}

}  // namespace

template <>
template <class T>
TallProducts<T> TallTables<ISA>::products() {
  return {inner<T>, subtract<T>, total<T>, register_bytes};
}
template TallProducts<float> TallTables<ISA>::products();
template TallProducts<double> TallTables<ISA>::products();

}  // namespace shiftsvd
