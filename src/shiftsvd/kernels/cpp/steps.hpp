// Steps of block Lanczos in one call without Python: the product of a panel with X^T diag(w) X, the projection of this
// product against a basis, and several steps in a row.
//
// The pieces and the order of their sums depend only on the data, so results are bitwise equal for all numbers of
// threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

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
      ask_for_huge_pages(bytes);
    }
    ~Raw() {
      std::free(bytes_);
    }
    Raw(const Raw &) = delete;
    char *get() const {
      return static_cast<char *>(bytes_);
    }
    // As NumPy does: a product of 50 double precision columns with feedback takes 15 ms instead of 21 on one thread.
    void ask_for_huge_pages(std::size_t bytes) {
#ifdef MADV_HUGEPAGE
      constexpr std::size_t least = std::size_t(1) << 22, page = 4096;
      if (bytes < least) return;
      std::size_t offset = (page - reinterpret_cast<std::uintptr_t>(bytes_) % page) % page;
      madvise(get() + offset, (bytes - offset) / page * page, MADV_HUGEPAGE);
#endif
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
  Packed(std::int64_t rows, const double *right, std::int64_t rank, const Groups &groups)
      : rows_(rows),
        right_(right),
        rank_(rank),
        groups_(groups),
        pieces_((rows + piece - 1) / piece),
        values_(rows * groups.padded),
        small_(rank * groups.padded),
        parts_(pieces_ * rank * groups.padded) {}

  void set(Team &team, Tall<T> V) {
    team.each(pieces_, [&](std::int64_t i) {
      std::int64_t lo = i * piece, hi = std::min(rows_, lo + piece), first = 0;
      double *part = parts_.get() + i * rank_ * groups_.padded;
      std::fill(part, part + rank_ * groups_.padded, 0.0);
      for (int width : groups_.widths) {
        std::int64_t used = std::min<std::int64_t>(width, groups_.columns - first);
        T *out = values_.get() + first * rows_;
        copy(V, lo, hi, first, width, used, out);
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

  static void copy(Tall<T> V, std::int64_t lo, std::int64_t hi, std::int64_t first, int width, std::int64_t used,
                   T *out) {
    if (used < width) std::fill(out + lo * width, out + hi * width, T(0));
    for (std::int64_t a = lo; a < hi; a += at_once) {
      std::int64_t b = std::min(hi, a + at_once);
      if (V.right == 1) {
        for (std::int64_t r = a; r < b; r++) std::copy_n(V.values + r * V.down + first, used, out + r * width);
      } else {
        for (std::int64_t c = 0; c < used; c++) {
          const T *from = V.values + (first + c) * V.right;
          for (std::int64_t r = a; r < b; r++) out[r * width + c] = from[r * V.down];
        }
      }
    }
  }

  std::int64_t rows_;
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

// Products Y = X^T diag(weights) (X V - L C) - R sums, with C = R^T V, for panels V of the same number of columns.
template <class T>
struct Gram {
  virtual ~Gram() = default;
  // Returns false if indices are outside of the matrix.
  virtual bool multiply(Team &team, Tall<T> V, Narrow<T> Y) = 0;
  // Most threads that have a share of a product.
  virtual std::int64_t shares() const = 0;
};

// Each block of rows has a panel of its own, and these panels are added.
template <class D, class T, class I>
class GramOfAll final : public Gram<T> {
 public:
  GramOfAll(const Products<D, T, I> &kernels, const TallProducts<T> &tall, Sound<I> sound, const Whole<D, I> &A,
            const Groups &groups, int threads)
      : kernels_(kernels),
        tall_(tall),
        sound_(sound),
        A_(A),
        groups_(groups),
        packed_(A.n, A.right, A.rank, groups),
        blocks_(std::int64_t(A.edges.size()) - 1),
        at_once_(std::min(blocks_, std::max(panels_at_once, std::int64_t(threads)))),
        panel_(A.n * groups.padded),
        small_(A.rank * groups.padded),
        Z_(panel_ * at_once_),
        sums_(small_ * at_once_),
        before_(blocks_ > at_once_ ? panel_ : 0),
        total_(A.rank * groups.columns),
        parts_(at_once_) {
    for (std::int64_t b = 0; b < at_once_; b++) parts_[b] = Z_.get() + b * panel_;
  }

  std::int64_t shares() const override {
    return blocks_;
  }

  bool multiply(Team &team, Tall<T> V, Narrow<T> Y) override {
    std::atomic<bool> safe{true};
    std::fill(total_.begin(), total_.end(), 0.0);
    packed_.set(team, V);
    for (std::int64_t first = 0; first < blocks_; first += at_once_) {
      std::int64_t count = std::min(at_once_, blocks_ - first);
      team.each(count, [&](std::int64_t i) {
        std::int64_t b = first + i;
        // The caller has checked the first and last entry of indptr; those of a block must lie between them.
        const I *ends = A_.X.indptr;
        bool good = ends[0] <= ends[A_.edges[b]] && ends[A_.edges[b + 1]] <= ends[A_.X.hi] &&
                    sound_(A_.X.indices, ends, A_.edges[b], A_.edges[b + 1], A_.n);
        if (good) multiply_block(b, Z_.get() + i * panel_, sums_.get() + i * small_);
        if (!good) safe = false;
      });
      add_sums(count);
      bool last = first + count == blocks_;
      std::int64_t rows = last ? A_.n : panel_;
      team.each((rows + rounded_rows - 1) / rounded_rows, [&](std::int64_t i) {
        std::int64_t lo = i * rounded_rows, hi = std::min(rows, lo + rounded_rows);
        last ? round_off(count, first > 0, lo, hi, Y) : add_panels(count, first > 0, lo, hi);
      });
    }
    return safe;
  }

 private:
  void multiply_block(std::int64_t block, T *Z, T *sums) {
    std::int64_t hi = A_.edges[block + 1];
    std::fill(Z, Z + panel_, T(0));
    std::fill(sums, sums + small_, T(0));
    for (std::int64_t lo = A_.edges[block]; lo < hi;) {
      const I *ends = A_.X.indptr + lo;
      bool short_block = A_.X.indptr[hi] - *ends <= 2 * range_entries;
      const I *end = std::upper_bound(ends + 1, A_.X.indptr + hi, I(*ends + range_entries));
      std::int64_t next = short_block ? hi : end - A_.X.indptr, first = 0;
      for (int width : groups_.widths) {
        Shift<T> S{A_.left + lo * A_.rank, A_.rank, packed_.small() + first * A_.rank, sums + first * A_.rank,
                   A_.weights ? A_.weights + lo : nullptr};
        kernels_.gram({A_.X.data, A_.X.indices, A_.X.indptr, lo, next}, packed_.values() + first * A_.n, width, S,
                      Z + first * A_.n);
        first += width;
      }
      lo = next;
    }
  }

  void add_sums(std::int64_t count) {
    for (std::int64_t b = 0; b < count; b++) {
      for (std::int64_t s = 0; s < A_.rank; s++) {
        std::int64_t first = 0;
        for (int width : groups_.widths) {
          const T *from = sums_.get() + b * small_ + first * A_.rank + s * width;
          for (std::int64_t c = 0; c < width && first + c < groups_.columns; c++) {
            total_[s * groups_.columns + first + c] += from[c];
          }
          first += width;
        }
      }
    }
  }

  void add_panels(std::int64_t count, bool any_before, std::int64_t lo, std::int64_t hi) {
    for (std::int64_t b = 0; b < count; b++) {
      for (std::int64_t at = lo; at < hi; at++) {
        before_.get()[at] = (any_before || b > 0 ? before_.get()[at] : 0.0) + parts_[b][at];
      }
    }
  }

  void round_off(std::int64_t count, bool any_before, std::int64_t lo, std::int64_t hi, Narrow<T> Y) {
    Parts<T> S{parts_.data(), count, any_before ? before_.get() : nullptr, A_.n, A_.right, total_.data(), A_.rank};
    std::int64_t offset = 0, first = 0;
    for (int width : groups_.widths) {
      tall_.total(S, offset, width, first, lo, hi, {Y.values + lo * Y.stride, groups_.columns, Y.stride});
      offset += A_.n * width, first += width;
    }
  }

  const Products<D, T, I> &kernels_;
  const TallProducts<T> &tall_;
  Sound<I> sound_;
  const Whole<D, I> &A_;
  const Groups &groups_;
  Packed<T> packed_;
  std::int64_t blocks_, at_once_, panel_, small_;
  Buffer<T> Z_, sums_;
  Buffer<double> before_;
  std::vector<double> total_;
  std::vector<const T *> parts_;
};

// The same products from both orientations: `A` has the rows of X, `across` the columns. Each row of the result is one
// sum, so there are no partial panels to add, and the blocks of `across` only divide the work.
template <class D, class T, class I>
class GramOfBoth final : public Gram<T> {
 public:
  GramOfBoth(const Products<D, T, I> &kernels, Sound<I> sound, const Whole<D, I> &A, const Whole<D, I> &across,
             const Groups &groups)
      : kernels_(kernels),
        sound_(sound),
        A_(A),
        across_(across),
        groups_(groups),
        packed_(A.n, A.right, A.rank, groups),
        blocks_(std::int64_t(A.edges.size()) - 1),
        pieces_(std::int64_t(across.edges.size()) - 1),
        widest_(*std::max_element(groups.widths.begin(), groups.widths.end())),
        small_(A.rank * widest_),
        middle_(A.X.hi * widest_),
        sums_(small_ * blocks_),
        total_(small_) {}

  std::int64_t shares() const override {
    return blocks_;
  }

  bool multiply(Team &team, Tall<T> V, Narrow<T> Y) override {
    std::atomic<bool> safe{true};
    packed_.set(team, V);
    std::int64_t first = 0, m = A_.X.hi;
    for (int width : groups_.widths) {
      team.each(blocks_, [&](std::int64_t b) {
        Rows<D, I> rows = rows_of_block(A_, b, safe);
        T *own = sums_.get() + b * small_;
        std::fill(own, own + small_, T(0));
        Shift<T> S{A_.left + rows.lo * A_.rank, A_.rank, packed_.small() + first * A_.rank, own,
                   A_.weights ? A_.weights + rows.lo : nullptr};
        kernels_.shifted(rows, packed_.values() + first * A_.n, A_.n, width, S,
                         {middle_.get() + rows.lo * width, width, width});
      });
      for (std::int64_t at = 0; at < A_.rank * width; at++) {
        double sum = 0;
        for (std::int64_t b = 0; b < blocks_; b++) sum += sums_.get()[b * small_ + at];
        total_.get()[at] = T(sum);
      }
      team.each(pieces_, [&](std::int64_t b) {
        Rows<D, I> rows = rows_of_block(across_, b, safe);
        Shift<T> S{A_.right + rows.lo * A_.rank, A_.rank, total_.get(), nullptr, nullptr};
        std::int64_t used = std::min<std::int64_t>(width, groups_.columns - first);
        kernels_.shifted(rows, middle_.get(), m, width, S, {Y.values + rows.lo * Y.stride + first, Y.stride, used});
      });
      first += width;
    }
    return safe;
  }

 private:
  Rows<D, I> rows_of_block(const Whole<D, I> &B, std::int64_t b, std::atomic<bool> &safe) const {
    Rows<D, I> rows{B.X.data, B.X.indices, B.X.indptr, B.edges[b], B.edges[b + 1]};
    bool good = rows.indptr[0] <= rows.indptr[rows.lo] && rows.indptr[rows.hi] <= rows.indptr[B.X.hi] &&
                sound_(rows.indices, rows.indptr, rows.lo, rows.hi, B.n);
    if (!good) safe = false, rows.hi = rows.lo;
    return rows;
  }

  const Products<D, T, I> &kernels_;
  Sound<I> sound_;
  const Whole<D, I> &A_, &across_;
  const Groups &groups_;
  Packed<T> packed_;
  std::int64_t blocks_, pieces_, widest_, small_;
  Buffer<T> middle_, sums_, total_;
};

// Of `threads` threads, those that have a share of one of `pieces` pieces.
inline int sharing(int threads, std::int64_t pieces) {
  return std::int64_t(threads) < pieces ? threads : int(std::max<std::int64_t>(pieces, 1));
}

// --- a recurrence ---------------------------------------------------------------------------------------------------

// Replaces `before` by X now - before and swaps the two, `steps` times: then `now` is the last panel, and `before` the
// one before it. X is square; block b has the rows edges[b] to edges[b + 1]. The panels have `width` columns.
template <class D, class T, class I>
void recur(Team &team, const Products<D, T, I> &kernels, Rows<D, I> X, const std::vector<std::int64_t> &edges,
           int width, std::int64_t steps, T *before, T *now) {
  constexpr std::int64_t at_once = 128;  // rows whose products stay in the first-level cache
  for (std::int64_t step = 0; step < steps; step++) {
    team.each(std::int64_t(edges.size()) - 1, [&](std::int64_t b) {
      T product[at_once * panel_bytes / sizeof(T)];
      for (std::int64_t lo = edges[b]; lo < edges[b + 1]; lo += at_once) {
        std::int64_t hi = std::min(lo + at_once, edges[b + 1]), count = (hi - lo) * width;
        kernels.gather({X.data, X.indices, X.indptr, lo, hi}, now, X.hi, width, {product, width, width});
        T *out = before + lo * width;
        for (std::int64_t at = 0; at < count; at++) out[at] = product[at] - out[at];
      }
    });
    std::swap(before, now);
  }
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
  Team team(static_cast<int>(parts));
  team.each(parts, [&](std::int64_t p) {
    const I *ends = X.indptr;
    if (!(0 <= ends[edges[p]] && ends[edges[p + 1]] <= nnz && sound(X.indices, ends, edges[p], edges[p + 1], n))) {
      safe = false;
      return;
    }
    std::fill(next(p), next(p) + n, 0);
    for (std::int64_t k = ends[edges[p]]; k < ends[edges[p + 1]]; k++) next(p)[X.indices[k]]++;
  });
  if (!safe) return false;
  std::int64_t at = 0;
  for (std::int64_t j = 0; j < n; j++) {
    indptr[j] = I(at);
    for (std::int64_t p = 0; p < parts; p++) at += std::exchange(next(p)[j], at);
  }
  indptr[n] = I(at);
  team.each(parts, [&](std::int64_t p) {
    for (std::int64_t i = edges[p]; i < edges[p + 1]; i++) {
      for (std::int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k++) {
        std::int64_t at = next(p)[X.indices[k]]++;
        data[at] = X.data[k], indices[at] = I(i);
      }
    }
  });
  return true;
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

inline std::int64_t pieces_of(std::int64_t rows) {
  return (rows + piece_rows(rows) - 1) / piece_rows(rows);
}

template <class T>
Tall<T> rows_of(Tall<T> B, std::int64_t lo, std::int64_t rows, std::int64_t from = 0) {
  return {B.values + lo * B.down + from * B.right, rows, B.columns - from, B.down, B.right};
}

template <class T>
Narrow<T> rows_of(Narrow<T> W, std::int64_t lo) {
  return {W.values + lo * W.stride, W.columns, W.stride};
}

// out = B^T W, with `padded` columns, which fill registers; columns beyond those of W are 0.
template <class T>
void inner_of_all(const TallProducts<T> &kernels, Tall<T> B, Tall<T> W, std::int64_t padded, double *out, int threads) {
  std::int64_t rows = piece_rows(B.rows), pieces = pieces_of(B.rows), size = B.columns * padded;
  constexpr std::int64_t at_once = 256;  // as many rows as the kernel sums at once
  bool copied = W.right != 1 || W.columns != padded;
  Buffer<double> parts(pieces * size);
  Team team(sharing(threads, pieces));
  Buffer<T> rooms(copied ? pieces * at_once * padded : 0);
  team.each(pieces, [&](std::int64_t i) {
    std::int64_t lo = i * rows, hi = std::min(B.rows, lo + rows);
    double *part = parts.get() + i * size;
    std::fill(part, part + size, 0.0);
    if (!copied) return kernels.inner(rows_of(B, lo, hi - lo), {W.values + lo * W.down, padded, W.down}, part);
    T *room = rooms.get() + i * at_once * padded;
    std::fill(room, room + at_once * padded, T(0));
    for (std::int64_t a = lo; a < hi; a += at_once) {
      std::int64_t here = std::min(at_once, hi - a);
      for (std::int64_t r = 0; r < here; r++) {
        for (std::int64_t c = 0; c < W.columns; c++) {
          room[r * padded + c] = W.values[(a + r) * W.down + c * W.right];
        }
      }
      kernels.inner(rows_of(B, a, here), {room, padded, padded}, part);
    }
  });
  std::fill(out, out + size, 0.0);
  for (std::int64_t i = 0; i < pieces; i++) {
    for (std::int64_t at = 0; at < size; at++) out[at] += parts.get()[i * size + at];
  }
}

// W -= B C
template <class T>
void subtract_from_all(const TallProducts<T> &kernels, Tall<T> B, const T *C, Narrow<T> W, int threads) {
  std::int64_t rows = piece_rows(B.rows), pieces = pieces_of(B.rows);
  Team team(sharing(threads, pieces));
  team.each(pieces, [&](std::int64_t i) {
    std::int64_t lo = i * rows;
    kernels.subtract(rows_of(B, lo, std::min(rows, B.rows - lo)), C, rows_of(W, lo));
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
// projection shortens a column to less than `repeat_below` of its length. Sets `coefficients`, B.columns x W.columns,
// to the sum of those of the first two projections, and `squares` to W^T W. Then makes the columns of W orthonormal, in
// W and in `next`, and returns true; or returns false if some columns are too short: W is then the projected panel.
template <class T>
bool project(Team &team, const TallProducts<T> &kernels, Tall<T> B, std::int64_t near, Narrow<T> W, T factor,
             double repeat_below, double *coefficients, double *squares, Next<T> next) {
  std::int64_t rows = piece_rows(B.rows), pieces = pieces_of(B.rows), w = W.columns;
  std::int64_t size = B.columns * w, square = w * w;
  Buffer<double> parts(pieces * size), of_squares(pieces * square), latest(size);
  Buffer<T> rounded(size), combined(square);
  bool again = false, regular = false, one_more = false;

  // Sums the coefficients of all pieces for the columns of B from `near_column` on; each thread sums some columns.
  auto add_up = [&](std::int64_t near_column) {
    constexpr std::int64_t at_once = 16;
    team.each((B.columns - near_column + at_once - 1) / at_once, [&](std::int64_t i) {
      std::int64_t lo = near_column + i * at_once, hi = std::min(B.columns, lo + at_once);
      for (std::int64_t at = lo * w; at < hi * w; at++) {
        double sum = 0;
        for (std::int64_t piece = 0; piece < pieces; piece++) sum += parts.get()[piece * size + at];
        latest.get()[at] = sum, rounded.get()[at] = T(sum);
      }
    });
  };
  auto for_pieces = [&](auto f) {
    team.each(pieces, [&](std::int64_t i) {
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
  auto project_all = [&](auto before) {
    for_pieces([&](std::int64_t i, std::int64_t lo, std::int64_t count) {
      before(lo, count);
      inner(i, lo, count, 0);
    });
    add_up(0);
    for_pieces([&](std::int64_t i, std::int64_t lo, std::int64_t count) {
      subtract(lo, count, 0);
      measure(i, lo, count);
    });
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

  for_pieces([&](std::int64_t i, std::int64_t lo, std::int64_t count) {
    if (factor != T(1)) {
      for (std::int64_t r = lo; r < lo + count; r++) {
        for (std::int64_t c = 0; c < w; c++) W.values[r * W.stride + c] *= factor;
      }
    }
    inner(i, lo, count, near);
  });
  add_up(near);
  std::fill(coefficients, coefficients + near * w, 0.0);
  std::copy(latest.get() + near * w, latest.get() + size, coefficients + near * w);
  project_all([&](std::int64_t lo, std::int64_t count) { subtract(lo, count, near); });
  add_squares(squares);
  for (std::int64_t at = 0; at < size; at++) coefficients[at] += latest.get()[at];
  for (std::int64_t c = 0; c < w; c++) {
    double left = squares[c * w + c], taken = 0;
    for (std::int64_t j = 0; j < B.columns; j++) taken += latest.get()[j * w + c] * latest.get()[j * w + c];
    again |= left < repeat_below * repeat_below * (left + taken);
  }
  if (again) {
    project_all([](std::int64_t, std::int64_t) {});
    add_squares(squares);
  }
  if (next.values) judge();
  if (!regular) return false;
  if (one_more) {
    project_all([&](std::int64_t lo, std::int64_t count) { combine_rows(lo, count, false); });
    judge_again();
  }
  for_pieces([&](std::int64_t, std::int64_t lo, std::int64_t count) { combine_rows(lo, count, true); });
  return true;
}

// --- steps ----------------------------------------------------------------------------------------------------------

// Products of diag(columns) X^T diag(weights) X diag(columns).
template <class T>
class GramOfScaled final : public Gram<T> {
 public:
  GramOfScaled(std::unique_ptr<Gram<T>> inner, const double *columns, std::int64_t n, std::int64_t width)
      : inner_(std::move(inner)), columns_(columns), n_(n), width_(width), scaled_(n * width) {}

  std::int64_t shares() const override {
    return inner_->shares();
  }

  bool multiply(Team &team, Tall<T> V, Narrow<T> Y) override {
    in_pieces(team, [&](std::int64_t i) {
      for (std::int64_t c = 0; c < width_; c++) {
        scaled_.get()[i * width_ + c] = T(columns_[i] * V.values[i * V.down + c * V.right]);
      }
    });
    bool safe = inner_->multiply(team, {scaled_.get(), n_, width_, width_, 1}, Y);
    in_pieces(team, [&](std::int64_t i) {
      for (std::int64_t c = 0; c < width_; c++)
        Y.values[i * Y.stride + c] = T(columns_[i] * Y.values[i * Y.stride + c]);
    });
    return safe;
  }

 private:
  template <class F>
  void in_pieces(Team &team, F of_row) {
    team.each((n_ + rounded_rows - 1) / rounded_rows, [&](std::int64_t i) {
      for (std::int64_t r = i * rounded_rows; r < std::min(n_, (i + 1) * rounded_rows); r++) of_row(r);
    });
  }

  std::unique_ptr<Gram<T>> inner_;
  const double *columns_;
  std::int64_t n_, width_;
  Buffer<T> scaled_;
};

// A Krylov factorization: see `Factorization` in solvers/krylov.py; `unit` is the rounding unit of B, whose columns are
// contiguous.
template <class T>
struct Krylov {
  T *B;
  std::int64_t n, stride;
  double *H;
  std::int64_t H_stride, size, width, last;
  double scale, unit, repeat_below;
};

struct Taken {
  std::int64_t steps;
  double power;        // that divided the last product
  bool safe, regular;  // indices are inside of the matrix; the last projection left orthonormal columns
};

// Takes up to `steps` steps; the caller has checked that B has room for them. W is the next block by rows, before and
// after. Stops after a step whose product has columns that are too short: W is then the projected panel, `squares` its
// Gram matrix. Single precision products are divided by a power of two, `power`, as `below` and `squares` are.
template <class T>
Taken take_steps(Team &team, Gram<T> &G, const TallProducts<T> &kernels, Krylov<T> &F, Narrow<T> W, std::int64_t steps,
                 double *squares, double *below) {
  std::int64_t w = F.width;
  std::vector<double> coefficients((F.size + steps * w) * w);
  for (std::int64_t taken = 1;; taken++) {
    if (!G.multiply(team, {W.values, F.n, w, W.stride, 1}, W)) return {taken, 1, false, false};
    int exponent = 0;
    std::frexp(F.scale, &exponent);
    double power = std::is_same<T, float>::value ? std::ldexp(1.0, exponent) : 1.0;
    std::int64_t old = F.size, end = old + w;
    Next<T> next{F.B + end * F.stride, F.stride, below, F.unit, F.scale / power};
    bool regular = project(team, kernels, Tall<T>{F.B, F.n, end, 1, F.stride}, std::max<std::int64_t>(0, old - F.last),
                           W, T(1 / power), F.repeat_below, coefficients.data(), squares, next);
    for (std::int64_t c = 0; c < w; c++) {
      double sum = squares[c * w + c];
      for (std::int64_t j = 0; j < end; j++) sum += coefficients[j * w + c] * coefficients[j * w + c];
      F.scale = std::max(F.scale, power * std::sqrt(sum));
    }
    for (std::int64_t j = 0; j < end; j++) {
      for (std::int64_t c = 0; c < w; c++) {
        double entry = coefficients[j * w + c];
        if (j >= old) entry = (entry + coefficients[(old + c) * w + j - old]) / 2;
        F.H[j * F.H_stride + old + c] = F.H[(old + c) * F.H_stride + j] = entry * power;
      }
    }
    F.size = end, F.last = w;
    if (!regular || taken == steps) return {taken, power, true, regular};
  }
}

// B = W Z; the columns of B are contiguous. `minus_Z` has `padded` columns, which fill registers.
template <class T>
void combine(const TallProducts<T> &kernels, Narrow<const T> W, std::int64_t rows, const T *minus_Z,
             std::int64_t padded, std::int64_t columns, T *B, std::int64_t stride, int threads) {
  std::int64_t step = piece_rows(rows), pieces = pieces_of(rows);
  constexpr std::int64_t at_once = 256;
  Buffer<T> rooms(pieces * at_once * padded);
  Team team(sharing(threads, pieces));
  team.each(pieces, [&](std::int64_t i) {
    T *room = rooms.get() + i * at_once * padded;
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
}

}  // namespace shiftsvd
