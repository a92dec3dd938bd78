// The two parts of a step of block Lanczos, each in one call without Python: the product of a panel with X^T diag(w) X,
// and the projection of this product against a basis.
//
// The pieces and the order of their sums depend only on the data, so results are bitwise equal for all numbers of
// threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "panels.hpp"
#include "rows.hpp"
#include "team.hpp"

namespace shiftsvd {

// Uninitialized memory that begins at a cache line.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : raw_(count * sizeof(T) + line), values_(aligned(raw_.get())) {}
  T *get() const {
    return values_;
  }

 private:
  static constexpr std::size_t line = 64;
  struct Raw {
    explicit Raw(std::size_t bytes) : bytes_(std::malloc(bytes)) {
      if (!bytes_) throw std::bad_alloc();
    }
    ~Raw() {
      std::free(bytes_);
    }
    Raw(const Raw &) = delete;
    char *get() const {
      return static_cast<char *>(bytes_);
    }
    void *bytes_;
  };
  static T *aligned(char *bytes) {
    return reinterpret_cast<T *>(bytes + (line - reinterpret_cast<std::uintptr_t>(bytes) % line) % line);
  }
  Raw raw_;
  T *values_;
};

// --- the product ----------------------------------------------------------------------------------------------------

// A panel of `columns` columns, cut into groups of 2^p columns that follow each other; `padded` columns in all.
struct Groups {
  std::vector<int> widths;
  std::int64_t columns, padded;
};

// A panel V and C = R^T V, both stored in groups of columns, as the kernels read them.
template <class T>
class Packed {
 public:
  Packed(Tall<T> V, const double *right, std::int64_t rank, const Groups &groups)
      : V_(V),
        right_(right),
        rank_(rank),
        groups_(groups),
        pieces_((V.rows + piece - 1) / piece),
        values_(V.rows * groups.padded),
        small_(rank * groups.padded),
        parts_(pieces_ * rank * groups.padded) {}

  // Fills the share of this thread. After a barrier, one thread must call `finish`.
  void fill(const Member &me) {
    me.share(pieces_, [&](std::int64_t i) {
      std::int64_t lo = i * piece, hi = std::min(V_.rows, lo + piece), first = 0;
      double *part = parts_.get() + i * rank_ * groups_.padded;
      std::fill(part, part + rank_ * groups_.padded, 0.0);
      for (int width : groups_.widths) {
        std::int64_t used = std::min<std::int64_t>(width, groups_.columns - first);
        T *out = values_.get() + first * V_.rows;
        copy(lo, hi, first, width, used, out);
        for (std::int64_t s = 0; s < rank_; s++) {
          double *sum = part + first * rank_ + s * width;
          for (std::int64_t r = lo; r < hi; r++) {
            double a = right_[r * rank_ + s];
            for (std::int64_t c = 0; c < width; c++) sum[c] += a * double(out[r * width + c]);
          }
        }
        first += width;
      }
    });
  }

  void finish() {
    std::int64_t size = rank_ * groups_.padded;
    for (std::int64_t at = 0; at < size; at++) {
      double sum = 0;
      for (std::int64_t i = 0; i < pieces_; i++) sum += parts_.get()[i * size + at];
      small_.get()[at] = T(sum);
    }
  }

  const T *values() const {
    return values_.get();
  }
  const T *small() const {
    return small_.get();
  }

 private:
  static constexpr std::int64_t piece = 1024, at_once = 64;

  void copy(std::int64_t lo, std::int64_t hi, std::int64_t first, int width, std::int64_t used, T *out) const {
    if (used < width) std::fill(out + lo * width, out + hi * width, T(0));
    for (std::int64_t a = lo; a < hi; a += at_once) {
      std::int64_t b = std::min(hi, a + at_once);
      if (V_.right == 1) {
        for (std::int64_t r = a; r < b; r++) {
          std::copy_n(V_.values + r * V_.down + first, used, out + r * width);
        }
      } else {
        for (std::int64_t c = 0; c < used; c++) {
          const T *from = V_.values + (first + c) * V_.right;
          for (std::int64_t r = a; r < b; r++) out[r * width + c] = from[r * V_.down];
        }
      }
    }
  }

  Tall<T> V_;
  const double *right_;
  std::int64_t rank_;
  const Groups &groups_;
  std::int64_t pieces_;
  Buffer<T> values_, small_;
  Buffer<double> parts_;
};

// A matrix minus the shift L R^T, by blocks of rows: block b has the rows edges[b] to edges[b + 1].
template <class D, class I>
struct Whole {
  Rows<D, I> X;
  std::int64_t n;  // columns
  std::vector<std::int64_t> edges;
  const double *left, *right;  // L and R, row-major
  std::int64_t rank;
  const double *weights;  // of the rows; null: ones
};

// panels_at_once: least number of blocks of a round, each with a panel of its own (more if there are more threads).
// Panels are summed in the order of the blocks, so the number of rounds changes no bit. range_entries: entries of a
// range of rows, which is multiplied by all groups of columns before the next range, because 4 MiB stay in cache.
// rounded_rows: rows of a sum that a thread rounds at once.
constexpr std::int64_t panels_at_once = 8, range_entries = std::int64_t(1) << 19, rounded_rows = 1024;

template <class D, class T, class I>
void gram_of_block(const Products<D, T, I> &kernels, const Whole<D, I> &A, std::int64_t block, const T *V, const T *C,
                   const Groups &groups, T *Z, T *sums) {
  std::int64_t hi = A.edges[block + 1];
  std::fill(Z, Z + A.n * groups.padded, T(0));
  std::fill(sums, sums + A.rank * groups.padded, T(0));
  for (std::int64_t lo = A.edges[block]; lo < hi;) {
    const I *ends = A.X.indptr + lo;
    bool short_block = A.X.indptr[hi] - *ends <= 2 * range_entries;
    const I *end = std::upper_bound(ends + 1, A.X.indptr + hi, I(*ends + range_entries));
    std::int64_t next = short_block ? hi : end - A.X.indptr, first = 0;
    for (int width : groups.widths) {
      Shift<T> S{A.left + lo * A.rank, A.rank, C + first * A.rank, sums + first * A.rank,
                 A.weights ? A.weights + lo : nullptr};
      kernels.gram({A.X.data, A.X.indices, A.X.indptr, lo, next}, V + first * A.n, width, S, Z + first * A.n);
      first += width;
    }
    lo = next;
  }
}

// Y = X^T diag(weights) (X V - L C) - R sums, with C = R^T V. Returns false if indices are outside of the matrix.
template <class D, class T, class I>
bool gram_of_all(const Products<D, T, I> &kernels, const TallProducts<T> &tall, Sound<I> sound, const Whole<D, I> &A,
                 Tall<T> V, const Groups &groups, Narrow<T> Y, int threads) {
  Packed<T> packed(V, A.right, A.rank, groups);
  std::int64_t blocks = std::int64_t(A.edges.size()) - 1;
  std::int64_t at_once = std::min(blocks, std::max(panels_at_once, std::int64_t(threads)));
  std::int64_t panel = A.n * groups.padded, small = A.rank * groups.padded;
  Buffer<T> Z(panel * at_once), sums(small * at_once);
  Buffer<double> before(blocks > at_once ? panel : 0);
  std::vector<double> total(A.rank * groups.columns);
  std::vector<const T *> parts(at_once);
  for (std::int64_t b = 0; b < at_once; b++) parts[b] = Z.get() + b * panel;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> safe{true};

  auto add_sums = [&](std::int64_t count) {
    for (std::int64_t b = 0; b < count; b++) {
      for (std::int64_t s = 0; s < A.rank; s++) {
        std::int64_t first = 0;
        for (int width : groups.widths) {
          const T *from = sums.get() + b * small + first * A.rank + s * width;
          for (std::int64_t c = 0; c < width && first + c < groups.columns; c++) {
            total[s * groups.columns + first + c] += from[c];
          }
          first += width;
        }
      }
    }
  };
  auto round_off = [&](std::int64_t count, bool any_before, std::int64_t lo, std::int64_t hi) {
    Parts<T> S{parts.data(), count, any_before ? before.get() : nullptr, A.n, A.right, total.data(), A.rank};
    std::int64_t offset = 0, first = 0;
    for (int width : groups.widths) {
      tall.total(S, offset, width, first, lo, hi, {Y.values + lo * Y.stride, groups.columns, Y.stride});
      offset += A.n * width, first += width;
    }
  };

  together(std::int64_t(threads) < blocks ? threads : int(blocks), [&](const Member &me) {
    packed.fill(me);
    me.barrier.wait();
    if (me.index == 0) packed.finish();
    me.barrier.wait();
    for (std::int64_t first = 0; first < blocks; first += at_once) {
      std::int64_t count = std::min(at_once, blocks - first), last = first + count;
      for (std::int64_t b; (b = next.fetch_add(1)) < last;) {
        // The caller has checked the first and last entry of indptr; those of a block must lie between them.
        const I *ends = A.X.indptr;
        bool good = ends[0] <= ends[A.edges[b]] && ends[A.edges[b + 1]] <= ends[A.X.hi] &&
                    sound(A.X.indices, ends, A.edges[b], A.edges[b + 1], A.n);
        if (!good) safe = false;
        if (good)
          gram_of_block(kernels, A, b, packed.values(), packed.small(), groups, Z.get() + (b - first) * panel,
                        sums.get() + (b - first) * small);
      }
      me.barrier.wait();
      if (me.index == 0) add_sums(count), next = last;
      me.barrier.wait();
      if (last == blocks) {
        me.share((A.n + rounded_rows - 1) / rounded_rows, [&](std::int64_t i) {
          round_off(count, first > 0, i * rounded_rows, std::min(A.n, (i + 1) * rounded_rows));
        });
      } else {
        me.share((panel + rounded_rows - 1) / rounded_rows, [&](std::int64_t i) {
          std::int64_t lo = i * rounded_rows, hi = std::min(panel, lo + rounded_rows);
          for (std::int64_t b = 0; b < count; b++) {
            for (std::int64_t at = lo; at < hi; at++) {
              before.get()[at] = (first == 0 && b == 0 ? 0.0 : before.get()[at]) + parts[b][at];
            }
          }
        });
        me.barrier.wait();
      }
    }
  });
  return safe;
}

// The same product from both orientations: `A` has the rows of X, `across` the columns. Each row of the result is one
// sum, so there are no partial panels to add, and the blocks of `across` only divide the work.
template <class D, class T, class I>
bool gram_of_both(const Products<D, T, I> &kernels, Sound<I> sound, const Whole<D, I> &A, const Whole<D, I> &across,
                  Tall<T> V, const Groups &groups, Narrow<T> Y, int threads) {
  Packed<T> packed(V, A.right, A.rank, groups);
  std::int64_t blocks = std::int64_t(A.edges.size()) - 1, pieces = std::int64_t(across.edges.size()) - 1, m = A.X.hi;
  std::int64_t widest = *std::max_element(groups.widths.begin(), groups.widths.end()), small = A.rank * widest;
  Buffer<T> middle(m * widest), sums(small * blocks), total(small);
  std::vector<std::atomic<std::int64_t>> next(2 * groups.widths.size());
  std::atomic<bool> safe{true};

  auto rows_of_block = [&](const Whole<D, I> &B, std::int64_t b) {
    Rows<D, I> rows{B.X.data, B.X.indices, B.X.indptr, B.edges[b], B.edges[b + 1]};
    bool good = rows.indptr[0] <= rows.indptr[rows.lo] && rows.indptr[rows.hi] <= rows.indptr[B.X.hi] &&
                sound(rows.indices, rows.indptr, rows.lo, rows.hi, B.n);
    if (!good) safe = false, rows.hi = rows.lo;
    return rows;
  };
  together(std::int64_t(threads) < blocks ? threads : int(blocks), [&](const Member &me) {
    packed.fill(me);
    me.barrier.wait();
    if (me.index == 0) packed.finish();
    me.barrier.wait();
    std::int64_t first = 0;
    for (std::size_t g = 0; g < groups.widths.size(); g++) {
      int width = groups.widths[g];
      for (std::int64_t b; (b = next[2 * g].fetch_add(1)) < blocks;) {
        Rows<D, I> rows = rows_of_block(A, b);
        T *own = sums.get() + b * small;
        std::fill(own, own + small, T(0));
        Shift<T> S{A.left + rows.lo * A.rank, A.rank, packed.small() + first * A.rank, own,
                   A.weights ? A.weights + rows.lo : nullptr};
        kernels.shifted(rows, packed.values() + first * A.n, A.n, width, S,
                        {middle.get() + rows.lo * width, width, width});
      }
      me.barrier.wait();
      if (me.index == 0) {
        for (std::int64_t at = 0; at < A.rank * width; at++) {
          double sum = 0;
          for (std::int64_t b = 0; b < blocks; b++) sum += sums.get()[b * small + at];
          total.get()[at] = T(sum);
        }
      }
      me.barrier.wait();
      for (std::int64_t b; (b = next[2 * g + 1].fetch_add(1)) < pieces;) {
        Rows<D, I> rows = rows_of_block(across, b);
        Shift<T> S{A.right + rows.lo * A.rank, A.rank, total.get(), nullptr, nullptr};
        std::int64_t used = std::min<std::int64_t>(width, groups.columns - first);
        kernels.shifted(rows, middle.get(), m, width, S, {Y.values + rows.lo * Y.stride + first, Y.stride, used});
      }
      first += width;
      if (g + 1 < groups.widths.size()) me.barrier.wait();
    }
  });
  return safe;
}

// --- the transpose --------------------------------------------------------------------------------------------------

// X^T with sorted rows, the same for all numbers of threads. Returns false if indices are outside of the matrix.
template <class D, class I>
bool transpose(Sound<I> sound, Rows<D, I> X, std::int64_t n, D *data, I *indices, I *indptr, int threads) {
  std::int64_t m = X.hi, nnz = X.indptr[m];
  // Each part counts the entries of every column: all counters together take at most four bytes for each entry.
  std::int64_t most = std::min<std::int64_t>({threads, m, nnz / (2 * std::max<std::int64_t>(n, 1))});
  std::int64_t parts = std::max<std::int64_t>(1, most);
  std::vector<std::int64_t> edges(parts + 1, m);
  Buffer<std::int64_t> counters(parts * n);
  auto next = [&](std::int64_t p) { return counters.get() + p * n; };
  std::atomic<bool> safe{X.indptr[0] == 0};
  edges[0] = 0;
  for (std::int64_t p = 1; p < parts; p++) {
    edges[p] = std::max(edges[p - 1], std::lower_bound(X.indptr, X.indptr + m, I(nnz / parts * p)) - X.indptr);
  }
  together(int(parts), [&](const Member &me) {
    auto mine = [&](auto f) { me.share(parts, f); };
    mine([&](std::int64_t p) {
      const I *ends = X.indptr;
      if (!(0 <= ends[edges[p]] && ends[edges[p + 1]] <= nnz && sound(X.indices, ends, edges[p], edges[p + 1], n))) {
        safe = false;
        return;
      }
      std::fill(next(p), next(p) + n, 0);
      for (std::int64_t k = ends[edges[p]]; k < ends[edges[p + 1]]; k++) next(p)[X.indices[k]]++;
    });
    me.barrier.wait();
    if (!safe) return;
    if (me.index == 0) {
      std::int64_t at = 0;
      for (std::int64_t j = 0; j < n; j++) {
        indptr[j] = I(at);
        for (std::int64_t p = 0; p < parts; p++) at += std::exchange(next(p)[j], at);
      }
      indptr[n] = I(at);
    }
    me.barrier.wait();
    mine([&](std::int64_t p) {
      for (std::int64_t i = edges[p]; i < edges[p + 1]; i++) {
        for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
          std::int64_t at = next(p)[X.indices[k]]++;
          data[at] = X.data[k], indices[at] = I(i);
        }
      }
    });
  });
  return safe;
}

// --- the projection -------------------------------------------------------------------------------------------------

// Least number of rows of a piece, whose part of the basis is read once for two products; and most pieces, because each
// has partial sums of its own.
constexpr std::int64_t least_piece = 512, most_pieces = 32;
// Most columns of a block that `project` makes orthonormal.
constexpr std::int64_t widest_panel = 64;

inline std::int64_t piece_rows(std::int64_t rows) {
  std::int64_t even = (rows + most_pieces - 1) / most_pieces;
  return std::max(least_piece, (even + 255) / 256 * 256);
}

template <class T>
Tall<T> rows_of(Tall<T> B, std::int64_t lo, std::int64_t rows, std::int64_t from = 0) {
  return {B.values + lo * B.down + from * B.right, rows, B.columns - from, B.down, B.right};
}

template <class T>
Narrow<T> rows_of(Narrow<T> W, std::int64_t lo) {
  return {W.values + lo * W.stride, W.columns, W.stride};
}

// out = B^T W
template <class T>
void inner_of_all(const TallProducts<T> &kernels, Tall<T> B, Narrow<const T> W, double *out, int threads) {
  std::int64_t rows = piece_rows(B.rows), pieces = (B.rows + rows - 1) / rows, size = B.columns * W.columns;
  Buffer<double> parts(pieces * size);
  together(std::int64_t(threads) < pieces ? threads : int(pieces), [&](const Member &me) {
    me.share(pieces, [&](std::int64_t i) {
      std::int64_t lo = i * rows;
      std::fill(parts.get() + i * size, parts.get() + (i + 1) * size, 0.0);
      kernels.inner(rows_of(B, lo, std::min(rows, B.rows - lo)), rows_of(W, lo), parts.get() + i * size);
    });
  });
  std::fill(out, out + size, 0.0);
  for (std::int64_t i = 0; i < pieces; i++) {
    for (std::int64_t at = 0; at < size; at++) out[at] += parts.get()[i * size + at];
  }
}

// W -= B C
template <class T>
void subtract_from_all(const TallProducts<T> &kernels, Tall<T> B, const T *C, Narrow<T> W, int threads) {
  std::int64_t rows = piece_rows(B.rows), pieces = (B.rows + rows - 1) / rows;
  together(std::int64_t(threads) < pieces ? threads : int(pieces), [&](const Member &me) {
    me.share(pieces, [&](std::int64_t i) {
      std::int64_t lo = i * rows;
      kernels.subtract(rows_of(B, lo, std::min(rows, B.rows - lo)), C, rows_of(W, lo));
    });
  });
}

// Cholesky factorization R^T R of the Gram matrix `squares` of a panel: its columns times R^-1 are orthonormal.
// Rounding errors depend on `shortest` and `condition`; if squares are not positive definite, `shortest` is 0.
struct Normal {
  std::vector<double> R, inverse;      // upper triangular, row-major
  double shortest = 0, condition = 0;  // bounds of the least singular value from below, of the condition from above

  Normal(const double *squares, std::int64_t w) : R(w * w), inverse(w * w) {
    for (std::int64_t i = 0; i < w; i++) {
      for (std::int64_t j = i; j < w; j++) {
        double sum = squares[i * w + j];
        for (std::int64_t q = 0; q < i; q++) sum -= R[q * w + i] * R[q * w + j];
        if (i == j && !(sum > 0)) return;
        R[i * w + j] = i == j ? std::sqrt(sum) : sum / R[i * w + i];
      }
    }
    for (std::int64_t j = 0; j < w; j++) {
      for (std::int64_t i = j; i >= 0; i--) {
        double sum = i == j;
        for (std::int64_t q = i + 1; q <= j; q++) sum -= R[i * w + q] * inverse[q * w + j];
        inverse[i * w + j] = sum / R[i * w + i];
      }
    }
    // The largest absolute row sum bounds the norm of the squares, and that of their inverse.
    double most = 0, most_inverse = 0;
    for (std::int64_t i = 0; i < w; i++) {
      double sum = 0, of_inverse = 0;
      for (std::int64_t j = 0; j < w; j++) {
        double entry = 0;
        for (std::int64_t q = std::max(i, j); q < w; q++) entry += inverse[i * w + q] * inverse[j * w + q];
        sum += std::abs(squares[i * w + j]), of_inverse += std::abs(entry);
      }
      most = std::max(most, sum), most_inverse = std::max(most_inverse, of_inverse);
    }
    shortest = 1 / std::sqrt(most_inverse), condition = std::sqrt(most * most_inverse);
  }
};

// Output of `project` for the next block of a basis.
template <class T>
struct Next {
  T *values;            // orthonormal columns Q, contiguous; null: do not make them
  std::int64_t stride;  // entries between columns
  double *below;        // Q^T W, w x w, with the projected W
  double unit;          // rounding unit of the basis
  double scale;         // largest norm of a product so far
};

// Largest condition numbers at which one Cholesky step, or two, make columns orthonormal to a few rounding units of
// single precision. Beyond the second, rounding errors of the squares hide short columns.
constexpr double well_conditioned = 10, resolved = 1e3;

// Projects W against the columns of B from `near` on, then against all columns of B, and once more if the second
// projection shortens a column to less than `twice` of its length. Sets `coefficients`, B.columns x W.columns, to the
// sum of those of the first two projections, and `squares` to W^T W. Then makes the columns of W orthonormal, in W and
// in `next`, and returns true; or returns false if some columns are too short: W is then the projected panel.
template <class T>
bool project(const TallProducts<T> &kernels, Tall<T> B, std::int64_t near, Narrow<T> W, T factor, double twice,
             double *coefficients, double *squares, Next<T> next, int threads) {
  std::int64_t rows = piece_rows(B.rows), pieces = (B.rows + rows - 1) / rows, w = W.columns;
  std::int64_t size = B.columns * w, square = w * w;
  Buffer<double> parts(pieces * size), of_squares(pieces * square), latest(size);
  Buffer<T> rounded(size), combined(square);
  bool again = false, regular = false, one_more = false;

  // Sums the coefficients of all pieces for the columns of B from `near_column` on; each thread sums some columns.
  auto add_up = [&](const Member &me, std::int64_t near_column) {
    me.share(B.columns - near_column, [&](std::int64_t j) {
      for (std::int64_t at = (near_column + j) * w; at < (near_column + j + 1) * w; at++) {
        double sum = 0;
        for (std::int64_t i = 0; i < pieces; i++) sum += parts.get()[i * size + at];
        latest.get()[at] = sum, rounded.get()[at] = T(sum);
      }
    });
  };
  auto for_pieces = [&](const Member &me, auto f) {
    me.share(pieces, [&](std::int64_t i) {
      std::int64_t lo = i * rows;
      f(i, lo, std::min(rows, B.rows - lo));
    });
  };
  auto inner = [&](std::int64_t i, std::int64_t lo, std::int64_t count, std::int64_t from) {
    double *out = parts.get() + i * size + from * w;
    std::fill(out, parts.get() + (i + 1) * size, 0.0);
    Narrow<T> part = rows_of(W, lo);
    kernels.inner(rows_of(B, lo, count, from), {part.values, part.columns, part.stride}, out);
  };
  auto subtract = [&](std::int64_t lo, std::int64_t count, std::int64_t from) {
    kernels.subtract(rows_of(B, lo, count, from), rounded.get() + from * w, rows_of(W, lo));
  };
  auto measure = [&](std::int64_t i, std::int64_t lo, std::int64_t count) {
    double *out = of_squares.get() + i * square;
    std::fill(out, out + square, 0.0);
    Narrow<T> part = rows_of(W, lo);
    kernels.inner({part.values, count, w, part.stride, 1}, {part.values, part.columns, part.stride}, out);
  };
  auto add_squares = [&](double *out) {
    for (std::int64_t at = 0; at < square; at++) {
      out[at] = 0;
      for (std::int64_t i = 0; i < pieces; i++) out[at] += of_squares.get()[i * square + at];
    }
  };
  // Calls `before` for each piece, projects all rows against all of B, and computes the squares of the result.
  auto project_all = [&](const Member &me, auto before) {
    for_pieces(me, [&](std::int64_t i, std::int64_t lo, std::int64_t count) {
      before(lo, count);
      inner(i, lo, count, 0);
    });
    me.barrier.wait();
    add_up(me, 0);
    me.barrier.wait();
    for_pieces(me, [&](std::int64_t i, std::int64_t lo, std::int64_t count) {
      subtract(lo, count, 0);
      measure(i, lo, count);
    });
    me.barrier.wait();
  };
  // Sets rows of W to W times `combined`, and, in the last step, those of `next`, too.
  auto combine_rows = [&](std::int64_t lo, std::int64_t count, bool last) {
    constexpr std::int64_t at_once = 128;
    T room[at_once * widest_panel];
    for (std::int64_t a = lo; a < lo + count; a += at_once) {
      std::int64_t here = std::min(at_once, lo + count - a);
      std::fill(room, room + here * w, T(0));
      Narrow<T> part = rows_of(W, a);
      kernels.subtract({part.values, here, w, part.stride, 1}, combined.get(), {room, w, w});
      for (std::int64_t r = 0; r < here; r++) std::copy_n(room + r * w, w, part.values + r * part.stride);
      for (std::int64_t c = 0; last && c < w; c++) {
        for (std::int64_t r = 0; r < here; r++) next.values[c * next.stride + a + r] = room[r * w + c];
      }
    }
  };
  auto combine_by = [&](const Normal &normal) {
    for (std::int64_t at = 0; at < square; at++) combined.get()[at] = T(-normal.inverse[at]);
  };
  auto judge = [&] {
    double longest = next.scale;
    for (std::int64_t c = 0; c < w; c++) {
      double sum = squares[c * w + c];
      for (std::int64_t j = 0; j < B.columns; j++) sum += coefficients[j * w + c] * coefficients[j * w + c];
      longest = std::max(longest, std::sqrt(sum));
    }
    Normal normal(squares, w);
    regular = normal.shortest > 4 * next.unit * longest && normal.condition < resolved;
    one_more = normal.condition > well_conditioned;
    if (!regular) return;
    combine_by(normal);
    std::copy(normal.R.begin(), normal.R.end(), next.below);
  };
  auto judge_again = [&] {
    std::vector<double> first(next.below, next.below + square), now(square);
    add_squares(now.data());
    Normal normal(now.data(), w);
    combine_by(normal);
    for (std::int64_t i = 0; i < w; i++) {
      for (std::int64_t j = 0; j < w; j++) {
        double sum = 0;
        for (std::int64_t q = i; q <= j; q++) sum += normal.R[i * w + q] * first[q * w + j];
        next.below[i * w + j] = sum;
      }
    }
  };

  together(std::int64_t(threads) < pieces ? threads : int(pieces), [&](const Member &me) {
    for_pieces(me, [&](std::int64_t i, std::int64_t lo, std::int64_t count) {
      if (factor != T(1)) {
        for (std::int64_t r = lo; r < lo + count; r++) {
          for (std::int64_t c = 0; c < w; c++) W.values[r * W.stride + c] *= factor;
        }
      }
      inner(i, lo, count, near);
    });
    me.barrier.wait();
    add_up(me, near);
    me.barrier.wait();
    if (me.index == 0) {
      std::fill(coefficients, coefficients + near * w, 0.0);
      std::copy(latest.get() + near * w, latest.get() + size, coefficients + near * w);
    }
    project_all(me, [&](std::int64_t lo, std::int64_t count) { subtract(lo, count, near); });
    if (me.index == 0) {
      add_squares(squares);
      for (std::int64_t at = 0; at < size; at++) coefficients[at] += latest.get()[at];
      for (std::int64_t c = 0; c < w; c++) {
        double left = squares[c * w + c], taken = 0;
        for (std::int64_t j = 0; j < B.columns; j++) taken += latest.get()[j * w + c] * latest.get()[j * w + c];
        again |= left < twice * twice * (left + taken);
      }
      if (!again && next.values) judge();
    }
    me.barrier.wait();
    if (again) {
      project_all(me, [](std::int64_t, std::int64_t) {});
      if (me.index == 0) {
        add_squares(squares);
        if (next.values) judge();
      }
      me.barrier.wait();
    }
    if (!regular) return;
    if (one_more) {
      project_all(me, [&](std::int64_t lo, std::int64_t count) { combine_rows(lo, count, false); });
      if (me.index == 0) judge_again();
      me.barrier.wait();
    }
    for_pieces(me, [&](std::int64_t, std::int64_t lo, std::int64_t count) { combine_rows(lo, count, true); });
  });
  return regular;
}

// B = W Z; the columns of B are contiguous. `minus_Z` has `padded` columns, which fill registers.
template <class T>
void combine(const TallProducts<T> &kernels, Narrow<const T> W, std::int64_t rows, const T *minus_Z,
             std::int64_t padded, std::int64_t columns, T *B, std::int64_t stride, int threads) {
  std::int64_t step = piece_rows(rows), pieces = (rows + step - 1) / step;
  constexpr std::int64_t at_once = 256;
  int count = std::int64_t(threads) < pieces ? threads : int(pieces);
  Buffer<T> rooms(count * at_once * padded);
  together(count, [&](const Member &me) {
    T *room = rooms.get() + me.index * at_once * padded;
    me.share(pieces, [&](std::int64_t i) {
      std::int64_t end = std::min(rows, (i + 1) * step);
      for (std::int64_t lo = i * step; lo < end; lo += at_once) {
        std::int64_t here = std::min(at_once, end - lo);
        std::fill(room, room + here * padded, T(0));
        kernels.subtract({W.values + lo * W.stride, here, W.columns, W.stride, 1}, minus_Z, {room, padded, padded});
        for (std::int64_t c = 0; c < columns; c++) {
          for (std::int64_t r = 0; r < here; r++) B[c * stride + lo + r] = room[r * padded + c];
        }
      }
    });
  });
}

}  // namespace shiftsvd
