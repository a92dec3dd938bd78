// Loops over sparse rows: products with panels, moments, sums of squares.
//
// Compiled once for each instruction set, which the macro ISA names.
//
// (GCC lowers generic vectors before it applies target_clones, so a clone would run baseline code.)
#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

namespace shiftsvd {
namespace {

// W columns of a row of a panel, as vectors of at most one register; W is a power of two.
//
// GCC stores wider vectors in memory: 16 columns took 7.9 ns an entry with AVX2 instead of 1.7
// (benchmarks/claims/kernels.py).
template <class T, int W>
struct Lanes {
  static constexpr int bytes = W * int(sizeof(T)) < register_bytes ? W * int(sizeof(T)) : register_bytes;
  static constexpr int lanes = bytes / sizeof(T);
  static constexpr int count = W / lanes;
  typedef T Vector __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias));
  Vector v[count];

  static Lanes zero() {
    Lanes x;
    for (int r = 0; r < count; r++) x.v[r] = Vector{};
    return x;
  }
  static Lanes load(const T *p) {
    Lanes x;
    for (int r = 0; r < count; r++) x.v[r] = *reinterpret_cast<const Vector *>(p + r * lanes);
    return x;
  }
  void store(T *p) const {
    for (int r = 0; r < count; r++) *reinterpret_cast<Vector *>(p + r * lanes) = v[r];
  }
  static void fetch(const T *p) {
    for (int at = 0; at < W; at += 64 / int(sizeof(T))) __builtin_prefetch(p + at);
  }
  void add(T a, const T *p) {
    for (int r = 0; r < count; r++) v[r] += a * *reinterpret_cast<const Vector *>(p + r * lanes);
  }
  void add(const Lanes &other) {
    for (int r = 0; r < count; r++) v[r] += other.v[r];
  }
  void scale(T a) {
    for (int r = 0; r < count; r++) v[r] *= a;
  }
  void add_to(T a, T *p) const {
    for (int r = 0; r < count; r++) *reinterpret_cast<Vector *>(p + r * lanes) += a * v[r];
  }
  // Loads the first `width` columns of a row; the others are 0.
  static Lanes load(const T *p, std::int64_t width) {
    if (width == W) return load(p);
    T row[W] = {};
    std::copy_n(p, width, row);
    return load(row);
  }
  void store(T *p, std::int64_t width) const {
    if (width == W) return store(p);
    T row[W];
    store(row);
    std::copy_n(row, width, p);
  }
};

// Rows of the panel are prefetched for the entry `ahead` of the current one if the panel exceeds `second_cache` bytes.
constexpr std::int64_t ahead = 24, second_cache = std::int64_t(1) << 19;

// y = sum_k x_k V[j_k] with prefetching; at least `ahead` entries must follow those of the row.
template <int W, class D, class T, class I>
inline Lanes<T, W> row_times_fetching(const D *x, const I *j, std::int64_t n, const T *V) {
  Lanes<T, W> y = Lanes<T, W>::zero(), z = y;
  std::int64_t k = 0;
  for (; k + 1 < n; k += 2) {
    Lanes<T, W>::fetch(V + std::size_t(j[k + ahead]) * W);
    Lanes<T, W>::fetch(V + std::size_t(j[k + 1 + ahead]) * W);
    y.add(T(x[k]), V + std::size_t(j[k]) * W);
    z.add(T(x[k + 1]), V + std::size_t(j[k + 1]) * W);
  }
  if (k < n) {
    Lanes<T, W>::fetch(V + std::size_t(j[k + ahead]) * W);
    y.add(T(x[k]), V + std::size_t(j[k]) * W);
  }
  y.add(z);
  return y;
}

// y += sum_k x_k V[j_k], as two sums, because each addition waits four cycles for the one before.
template <int W, class D, class T, class I>
inline Lanes<T, W> row_times(const D *x, const I *j, std::int64_t n, const T *V, Lanes<T, W> y) {
  Lanes<T, W> z = Lanes<T, W>::zero();
  std::int64_t k = 0;
  for (; k + 1 < n; k += 2) {
    y.add(T(x[k]), V + std::size_t(j[k]) * W);
    z.add(T(x[k + 1]), V + std::size_t(j[k + 1]) * W);
  }
  if (k < n) y.add(T(x[k]), V + std::size_t(j[k]) * W);
  y.add(z);
  return y;
}

// Z[j_k] += x_k y
template <int W, class D, class T, class I>
inline void row_outer(const D *x, const I *j, std::int64_t n, const Lanes<T, W> &y, T *Z) {
  for (std::int64_t k = 0; k < n; k++) y.add_to(T(x[k]), Z + std::size_t(j[k]) * W);
}

// The last entry for which rows of a panel of n rows may be prefetched; 0 if the panel fits into the cache.
template <int W, class T, class D, class I>
std::int64_t last_to_fetch(Rows<D, I> X, std::int64_t n) {
  return n * W * std::int64_t(sizeof(T)) > second_cache ? X.indptr[X.hi] - ahead : 0;
}

// Row i of X times V; `last` is the result of `last_to_fetch`.
template <int W, class D, class T, class I>
inline Lanes<T, W> row_of(Rows<D, I> X, std::int64_t i, const T *V, std::int64_t last) {
  std::int64_t first = X.indptr[i], end = X.indptr[i + 1];
  if (end <= last) return row_times_fetching<W>(X.data + first, X.indices + first, end - first, V);
  return row_times<W>(X.data + first, X.indices + first, end - first, V, Lanes<T, W>::zero());
}

template <int W, class D, class T, class I>
void gather(Rows<D, I> X, const T *V, std::int64_t n, Panel<T> Y) {
  std::int64_t last = last_to_fetch<W, T>(X, n);
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    row_of<W>(X, i, V, last).store(Y.values + (i - X.lo) * Y.stride, Y.width);
  }
}

template <int W, class D, class T, class I>
void scatter(Rows<D, I> X, Panel<const T> Y, T *Z) {
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    std::int64_t first = X.indptr[i], n = X.indptr[i + 1] - X.indptr[i];
    Lanes<T, W> y = Lanes<T, W>::load(Y.values + (i - X.lo) * Y.stride, Y.width);
    row_outer<W>(X.data + first, X.indices + first, n, y, Z);
  }
}

// Returns y plus the product of a row with V, and adds x0^T y0, of the row before, to Z. Loads of V overlap with stores
// to Z, which is 5 to 10 % faster than one product after the other (benchmarks/claims/kernels.py).
template <int W, class D, class T, class I>
inline Lanes<T, W> row_times_and_outer(const D *x, const I *j, std::int64_t n, const T *V, Lanes<T, W> y, const D *x0,
                                       const I *j0, std::int64_t n0, const Lanes<T, W> &y0, T *Z) {
  Lanes<T, W> z = Lanes<T, W>::zero();
  std::int64_t k = 0, both = n < n0 ? n : n0;
  for (; k + 1 < both; k += 2) {
    y.add(T(x[k]), V + std::size_t(j[k]) * W);
    y0.add_to(T(x0[k]), Z + std::size_t(j0[k]) * W);
    z.add(T(x[k + 1]), V + std::size_t(j[k + 1]) * W);
    y0.add_to(T(x0[k + 1]), Z + std::size_t(j0[k + 1]) * W);
  }
  row_outer<W>(x0 + k, j0 + k, n0 - k, y0, Z);
  for (; k + 1 < n; k += 2) {
    y.add(T(x[k]), V + std::size_t(j[k]) * W);
    z.add(T(x[k + 1]), V + std::size_t(j[k + 1]) * W);
  }
  if (k < n) y.add(T(x[k]), V + std::size_t(j[k]) * W);
  y.add(z);
  return y;
}

template <int W, class D, class T, class I>
void gram(Rows<D, I> X, const T *V, Shift<T> S, T *Z) {
  Lanes<T, W> before = Lanes<T, W>::zero();
  std::int64_t first0 = 0, n0 = 0;
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    std::int64_t first = X.indptr[i], n = X.indptr[i + 1] - X.indptr[i];
    const double *left = S.left + (i - X.lo) * S.rank;
    Lanes<T, W> y = Lanes<T, W>::zero();
    for (std::int64_t s = 0; s < S.rank; s++) y.add(T(-left[s]), S.right + s * W);
    y = row_times_and_outer<W>(X.data + first, X.indices + first, n, V, y, X.data + first0, X.indices + first0, n0,
                               before, Z);
    if (S.weights) y.scale(T(S.weights[i - X.lo]));
    for (std::int64_t s = 0; s < S.rank; s++) y.add_to(T(left[s]), S.sums + s * W);
    before = y, first0 = first, n0 = n;
  }
  row_outer<W>(X.data + first0, X.indices + first0, n0, before, Z);
}

template <int W, class D, class T, class I>
void shifted(Rows<D, I> X, const T *V, std::int64_t n, Shift<T> S, Panel<T> Y) {
  std::int64_t last = last_to_fetch<W, T>(X, n);
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    const double *left = S.left + (i - X.lo) * S.rank;
    Lanes<T, W> y = row_of<W>(X, i, V, last);
    for (std::int64_t s = 0; s < S.rank; s++) y.add(T(-left[s]), S.right + s * W);
    if (S.weights) y.scale(T(S.weights[i - X.lo]));
    if (S.sums) {
      for (std::int64_t s = 0; s < S.rank; s++) y.add_to(T(left[s]), S.sums + s * W);
    }
    y.store(Y.values + (i - X.lo) * Y.stride, Y.width);
  }
}

// Calls f with the width as a compile-time constant, so that the columns stay in registers.
template <class T, class F>
void with_width(int width, F f) {
  switch (width) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 4: return f(std::integral_constant<int, 4>());
    case 8: return f(std::integral_constant<int, 8>());
    case 16: return f(std::integral_constant<int, 16>());
    default: return f(std::integral_constant<int, panel_bytes / sizeof(T)>());
  }
}

template <class D, class T, class I>
void any_gather(Rows<D, I> X, const T *V, std::int64_t n, int width, Panel<T> Y) {
  with_width<T>(width, [&](auto w) { gather<w()>(X, V, n, Y); });
}

template <class D, class T, class I>
void any_scatter(Rows<D, I> X, Panel<const T> W, int width, T *Z) {
  with_width<T>(width, [&](auto w) { scatter<w()>(X, W, Z); });
}

template <class D, class T, class I>
void any_gram(Rows<D, I> X, const T *V, int width, Shift<T> S, T *Z) {
  with_width<T>(width, [&](auto w) { gram<w()>(X, V, S, Z); });
}

template <class D, class T, class I>
void any_shifted(Rows<D, I> X, const T *V, std::int64_t n, int width, Shift<T> S, Panel<T> Y) {
  with_width<T>(width, [&](auto w) { shifted<w()>(X, V, n, S, Y); });
}

// First pass: the weighted sum of some entries, and the sums of the parts of their weights. The second pass,
// `Distances`, sums deviations from the mean.
//
// Chan et al. (1983), the corrected two-pass algorithm: the sum of deviations measures the rounding error of the mean,
// so that equal entries have variance 0.
struct Moment {
  double sum = 0, stored[weight_parts] = {};

  static double weight(const double *parts) {
    return parts[0] + (parts[1] + parts[2]);
  }
  void add(double x, const double *parts) {
    sum += weight(parts) * x;
    for (int p = 0; p < weight_parts; p++) stored[p] += parts[p];
  }
  double count() const {
    return weight(stored) > 0 ? weight(stored) : 1;
  }
  double mean() const {
    return sum / count();
  }
};

struct Distances {
  double sum = 0, squares = 0;

  void add(double off, double weight) {
    sum += weight * off;
    squares += weight * off * off;
  }
};

inline void store(const Moment &first, double mean, const Distances &off, std::int64_t at, Sums out) {
  double correction = off.sum / first.count(), squares = off.squares - off.sum * correction;
  out.mean[at] = mean;
  out.correction[at] = correction;
  out.squares[at] = squares > 0 ? squares : 0;
  for (int p = 0; p < weight_parts; p++) out.stored[at * weight_parts + p] = first.stored[p];
}

constexpr double one[weight_parts] = {1};

template <class D, class I>
void moments(Rows<D, I> X, std::int64_t n, const double *weights, Sums out) {
  std::vector<Moment> first(n);
  std::vector<Distances> second(n);
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    const double *w = weights ? weights + (i - X.lo) * weight_parts : one;
    for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) first[X.indices[k]].add(X.data[k], w);
  }
  for (std::int64_t j = 0; j < n; j++) out.mean[j] = first[j].mean();
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    double w = weights ? Moment::weight(weights + (i - X.lo) * weight_parts) : 1;
    for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
      second[X.indices[k]].add(X.data[k] - out.mean[X.indices[k]], w);
    }
  }
  for (std::int64_t j = 0; j < n; j++) store(first[j], out.mean[j], second[j], j, out);
}

template <class D, class I>
void row_moments(Rows<D, I> X, const double *weights, Sums out) {
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    Moment first;
    Distances second;
    for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
      first.add(X.data[k], weights ? weights + X.indices[k] * weight_parts : one);
    }
    double mean = first.mean();
    for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
      second.add(X.data[k] - mean, weights ? Moment::weight(weights + X.indices[k] * weight_parts) : 1);
    }
    store(first, mean, second, i - X.lo, out);
  }
}

template <class D, class I>
void column_squares(Rows<D, I> X, const double *weights, const double *left, const double *right, std::int64_t rank,
                    double *squares) {
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    double w = weights ? weights[i - X.lo] : 1;
    const double *l = left + (i - X.lo) * rank;
    for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
      double x = X.data[k], shift = 0;
      const double *r = right + X.indices[k] * rank;
      for (std::int64_t s = 0; s < rank; s++) shift += l[s] * r[s];
      squares[X.indices[k]] += w * x * (x - 2 * shift);
    }
  }
}

// Adds the entries of a row from `first` to `last`, times a, to one row of a dense matrix.
template <class D, class I>
inline void add_multiple(const Rows<D, I> &X, std::int64_t first, std::int64_t last, double a, double *row) {
  for (std::int64_t k = first; k <= last; k++) row[X.indices[k]] += a * double(X.data[k]);
}

// Rows of at least `long_row` entries are multiplied `outer_entries` entries at a time, which stay in the second-level
// cache, by columns: then a row of G stays in the first. For shorter rows it takes longer to sort the entries.
constexpr std::int64_t outer_entries = std::int64_t(1) << 16, long_row = 32;

// Adds the lower triangle of X^T diag(weights) X to G. Rows of X are sorted. Each entry of G is summed in their order.
template <class D, class I>
void outer(Rows<D, I> X, const double *weights, std::int64_t n, double *G) {
  struct Entry {
    std::int64_t row, place;
  };
  bool by_columns = X.indptr[X.hi] - X.indptr[X.lo] >= long_row * (X.hi - X.lo);
  std::vector<std::int64_t> ends(n + 1);
  std::vector<Entry> entries;
  auto add = [&](std::int64_t i, std::int64_t place) {
    double a = (weights ? weights[i - X.lo] : 1) * double(X.data[place]);
    add_multiple(X, X.indptr[i], place, a, G + std::size_t(X.indices[place]) * n);
  };
  for (std::int64_t lo = X.lo, hi; lo < X.hi; lo = hi) {
    const I *more = std::upper_bound(X.indptr + lo + 1, X.indptr + X.hi + 1, X.indptr[lo] + outer_entries);
    hi = by_columns ? std::max(lo + 1, more - X.indptr - 1) : X.hi;
    std::fill(ends.begin(), ends.end(), 0);
    for (std::int64_t k = X.indptr[lo]; by_columns && k < X.indptr[hi]; k++) ends[X.indices[k] + 1]++;
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    entries.resize(ends[n]);
    for (std::int64_t i = lo; i < hi; i++) {
      for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
        by_columns ? void(entries[ends[X.indices[k]]++] = {i, k}) : add(i, k);
      }
    }
    for (auto [i, place] : entries) add(i, place);
  }
}

template <class I>
bool sound(const I *indices, const I *indptr, std::int64_t lo, std::int64_t hi, std::int64_t n) {
  typedef typename std::make_unsigned<I>::type Unsigned;
  bool ascending = true;
  for (std::int64_t i = lo; i < hi; i++) ascending &= indptr[i] <= indptr[i + 1];
  if (!ascending) return false;
  Unsigned largest = 0;
  for (std::int64_t k = indptr[lo]; k < indptr[hi]; k++) {
    Unsigned j = indices[k];  // negative indices become large
    largest = j > largest ? j : largest;
  }
  return indptr[lo] == indptr[hi] || (n > 0 && largest <= Unsigned(n - 1));
}

template <class D, class I>
Inspection inspect(Rows<D, I> X) {
  Inspection seen;
  seen.least = std::numeric_limits<std::int64_t>::max(), seen.largest = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t i = X.lo; i < X.hi; i++) {
    std::int64_t before = std::numeric_limits<std::int64_t>::min();
    bool sorted = true;
    for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
      std::int64_t j = X.indices[k];
      sorted &= j > before;
      before = j;
      if (j < seen.least) seen.least = j;
      if (j > seen.largest) seen.largest = j;
      if (!std::isfinite(X.data[k])) std::isnan(X.data[k]) ? seen.nan++ : seen.infinite++;
    }
    seen.sorted &= sorted;
  }
  if (X.indptr[X.lo] == X.indptr[X.hi]) seen.least = 0, seen.largest = -1;
  return seen;
}

template <class T>
void subtract(const T *X, std::int64_t stride, std::int64_t rows, std::int64_t n, const double *L, const double *Rt,
              std::int64_t rank, T *out) {
  constexpr int chunk = 256;
  for (std::int64_t i = 0; i < rows; i++) {
    const T *x = X + i * stride;
    T *y = out + i * n;
    const double *l = L + i * rank;
    for (std::int64_t lo = 0; lo < n; lo += chunk) {
      int width = n - lo < chunk ? int(n - lo) : chunk;
      double sum[chunk];
      for (int j = 0; j < width; j++) sum[j] = x[lo + j];
      for (std::int64_t s = 0; s < rank; s++) {
        const double *r = Rt + s * n + lo;
        for (int j = 0; j < width; j++) sum[j] -= l[s] * r[j];
      }
      for (int j = 0; j < width; j++) y[lo + j] = T(sum[j]);
    }
  }
}

// Calls f with the rows i to i + 3 and their weights; rows beyond the last have the weight 0.
template <class T, class F>
void by_fours(const T *X, std::int64_t stride, std::int64_t lo, std::int64_t hi, const double *weights, F f) {
  for (std::int64_t i = lo; i < hi; i += 4) {
    const T *x[4];
    double w[4];
    for (std::int64_t r = 0; r < 4; r++) {
      bool inside = i + r < hi;
      x[r] = X + (inside ? i + r : i) * stride, w[r] = !inside ? 0 : weights ? weights[i + r] : 1;
    }
    f(x, w);
  }
}

template <class T>
void dense_moments(const T *X, std::int64_t stride, std::int64_t rows, std::int64_t n, const double *weights,
                   double total, double *mean, double *deviations, double *squares) {
  // Sums of so many rows are added up, so that rounding errors grow with the number of sums, not of rows.
  constexpr std::int64_t chunk = 64, at_once = 256;
  for (std::int64_t lo = 0; lo < n; lo += chunk) {
    std::int64_t width = std::min(chunk, n - lo);
    double *m = mean + lo, *d = deviations + lo, *s = squares + lo;
    std::fill(m, m + width, 0.0), std::fill(d, d + width, 0.0), std::fill(s, s + width, 0.0);
    for (std::int64_t first = 0; first < rows; first += at_once) {
      double sum[chunk] = {};
      by_fours(X + lo, stride, first, std::min(rows, first + at_once), weights, [&](auto &x, auto &w) {
        for (std::int64_t j = 0; j < width; j++) {
          sum[j] += (w[0] * x[0][j] + w[1] * x[1][j]) + (w[2] * x[2][j] + w[3] * x[3][j]);
        }
      });
      for (std::int64_t j = 0; j < width; j++) m[j] += sum[j];
    }
    for (std::int64_t j = 0; j < width; j++) m[j] /= total;
    for (std::int64_t first = 0; first < rows; first += at_once) {
      double sum[chunk] = {}, sum_of_squares[chunk] = {};
      by_fours(X + lo, stride, first, std::min(rows, first + at_once), weights, [&](auto &x, auto &w) {
        for (std::int64_t j = 0; j < width; j++) {
          double a = x[0][j] - m[j], b = x[1][j] - m[j], c = x[2][j] - m[j], e = x[3][j] - m[j];
          sum[j] += (w[0] * a + w[1] * b) + (w[2] * c + w[3] * e);
          sum_of_squares[j] += (w[0] * a * a + w[1] * b * b) + (w[2] * c * c + w[3] * e * e);
        }
      });
      for (std::int64_t j = 0; j < width; j++) d[j] += sum[j], s[j] += sum_of_squares[j];
    }
  }
}

}  // namespace

template <>
template <class T>
Subtract<T> Tables<ISA>::subtract() {
  return shiftsvd::subtract<T>;
}
template Subtract<float> Tables<ISA>::subtract();
template Subtract<double> Tables<ISA>::subtract();

template <>
template <class T>
DenseMoments<T> Tables<ISA>::dense_moments() {
  return shiftsvd::dense_moments<T>;
}
template DenseMoments<float> Tables<ISA>::dense_moments();
template DenseMoments<double> Tables<ISA>::dense_moments();

template <>
template <class D, class T, class I>
Products<D, T, I> Tables<ISA>::products() {
  return {any_gather<D, T, I>, any_scatter<D, T, I>, any_gram<D, T, I>, any_shifted<D, T, I>};
}

template <>
template <class D, class I>
Statistics<D, I> Tables<ISA>::statistics() {
  return {moments<D, I>, row_moments<D, I>, column_squares<D, I>, outer<D, I>, inspect<D, I>};
}

template <>
template <class I>
Sound<I> Tables<ISA>::sound() {
  return shiftsvd::sound<I>;
}

#define SHIFTSVD_FOR_INDEX(I)                                   \
  template Sound<I> Tables<ISA>::sound();                       \
  template Products<float, float, I> Tables<ISA>::products();   \
  template Products<float, double, I> Tables<ISA>::products();  \
  template Products<double, float, I> Tables<ISA>::products();  \
  template Products<double, double, I> Tables<ISA>::products(); \
  template Statistics<float, I> Tables<ISA>::statistics();      \
  template Statistics<double, I> Tables<ISA>::statistics();

SHIFTSVD_FOR_INDEX(std::int32_t)
SHIFTSVD_FOR_INDEX(std::int64_t)

}  // namespace shiftsvd
