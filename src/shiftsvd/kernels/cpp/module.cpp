// The Python module: chooses the instruction set at import, checks types, shapes and sparse indices, releases the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bitpack.hpp"
#include "keeper.hpp"
#include "panels.hpp"
#include "processor.hpp"
#include "rows.hpp"
#include "steps.hpp"

namespace nb = nanobind;

namespace shiftsvd {
namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Strided = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

enum class Isa { baseline, avx2, avx512 };

// The environment variable SHIFTSVD_ISA chooses a smaller instruction set, for tests and benchmarks.
Isa pick() {
#ifdef SHIFTSVD_X86
  const char *asked = std::getenv("SHIFTSVD_ISA");
  std::string limit = asked ? asked : "avx512";
  if (limit != "avx512" && limit != "avx2" && limit != "baseline") {
    throw std::invalid_argument("SHIFTSVD_ISA must be avx512, avx2 or baseline, got " + limit);
  }
  Processor can = processor();
  if (can.avx512 && limit == "avx512") return Isa::avx512;
  if (can.avx2 && limit != "baseline") return Isa::avx2;
#endif
  return Isa::baseline;
}

Isa isa = Isa::baseline;

// Returns the table of the chosen instruction set; `get` takes one of the tags of isa.hpp.
template <class F>
auto table(F get) {
#ifdef SHIFTSVD_X86
  if (isa == Isa::avx512) return get(Avx512());
  if (isa == Isa::avx2) return get(Avx2());
#endif
  return get(Baseline());
}

template <class D, class T, class I>
const Products<D, T, I> &products() {
  static const auto found = table([](auto set) { return Tables<decltype(set)>::template products<D, T, I>(); });
  return found;
}

template <class D, class I>
const Statistics<D, I> &statistics() {
  static const auto found = table([](auto set) { return Tables<decltype(set)>::template statistics<D, I>(); });
  return found;
}

template <class T>
Subtract<T> subtract() {
  static const auto found = table([](auto set) { return Tables<decltype(set)>::template subtract<T>(); });
  return found;
}

template <class T>
DenseMoments<T> dense_moments() {
  static const auto found = table([](auto set) { return Tables<decltype(set)>::template dense_moments<T>(); });
  return found;
}

template <class T>
const TallProducts<T> &tall_products() {
  static const auto found = table([](auto set) { return TallTables<decltype(set)>::template products<T>(); });
  return found;
}

const Bitpacking &bitpacking() {
  static const auto found = table([](auto set) { return BitpackingTables<decltype(set)>::functions(); });
  return found;
}

void require(bool sound, const char *rule) {
  if (!sound) throw std::invalid_argument(rule);
}

template <class D, class I>
Rows<D, I> range(const Vector<const D> &data, const Vector<const I> &indices, const Vector<const I> &indptr,
                 std::int64_t lo, std::int64_t hi) {
  require(0 <= lo && lo <= hi && std::size_t(hi) < indptr.shape(0), "rows out of range");
  require(0 <= indptr.data()[lo] && indptr.data()[lo] <= indptr.data()[hi], "indptr decreases");
  require(std::size_t(indptr.data()[hi]) <= indices.shape(0) && indices.shape(0) <= data.shape(0), "indptr too large");
  return {data.data(), indices.data(), indptr.data(), lo, hi};
}

constexpr const char *leads_out =
    "The index arrays of the CSR matrix were changed after as_operator and refer to entries outside of the matrix. "
    "Create the matrix and call as_operator again.";

// Throws if a kernel would read or write outside of its arrays. Call it without the GIL, because it reads all indices.
template <class D, class I>
void follow(const Rows<D, I> &X, std::int64_t n) {
  static const auto sound = table([](auto set) { return Tables<decltype(set)>::template sound<I>(); });
  require(sound(X.indices, X.indptr, X.lo, X.hi, n), leads_out);
}

bool power_of_two(std::int64_t width) {
  return width > 0 && (width & (width - 1)) == 0;
}

template <class T>
int width_of(std::int64_t width) {
  require(power_of_two(width) && width * std::int64_t(sizeof(T)) <= panel_bytes,
          "panels are 2^p columns, <= 128 bytes");
  return int(width);
}

const double *or_null(const std::optional<Vector<const double>> &weights, std::int64_t rows) {
  if (!weights) return nullptr;
  require(weights->shape(0) == std::size_t(rows), "one weight a row");
  return weights->data();
}

const double *or_null(const std::optional<Matrix<const double>> &weights, std::int64_t lines) {
  if (!weights) return nullptr;
  require(weights->shape(0) == std::size_t(lines) && weights->shape(1) == weight_parts, "parts of one weight a line");
  return weights->data();
}

Sums sums(const Matrix<double> &stored, const Vector<double> &mean, const Vector<double> &correction,
          const Vector<double> &squares) {
  require(mean.shape(0) == squares.shape(0) && mean.shape(0) == correction.shape(0),
          "mean, correction and squares have as many entries");
  require(stored.shape(0) == mean.shape(0) && stored.shape(1) == weight_parts, "stored has the parts of each weight");
  return {stored.data(), mean.data(), correction.data(), squares.data()};
}

template <class T>
Panel<T> columns(const Strided<T> &Y, std::int64_t rows, std::int64_t width) {
  std::int64_t used = Y.shape(1);
  require(Y.shape(0) == std::size_t(rows) && used <= width && (Y.stride(1) == 1 || used <= 1 || rows == 0),
          "panel of wrong shape");
  return {Y.data(), Y.stride(0), used};
}

template <class D, class T, class I>
void define_products(nb::module_ &m) {
  m.def(
      "gather",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         Matrix<const T> V, Strided<T> Y) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        int width = width_of<T>(V.shape(1));
        auto out = columns<T>(Y, hi - lo, width);
        nb::gil_scoped_release released;
        follow(X, V.shape(0));
        products<D, T, I>().gather(X, V.data(), V.shape(0), width, out);
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("V").noconvert(), nb::arg("Y").noconvert());
  m.def(
      "scatter",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         Strided<const T> W, Matrix<T> Z) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        int width = width_of<T>(Z.shape(1));
        auto in = columns<const T>(W, hi - lo, width);
        nb::gil_scoped_release released;
        follow(X, Z.shape(0));
        products<D, T, I>().scatter(X, in, width, Z.data());
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("W").noconvert(), nb::arg("Z").noconvert());
  m.def(
      "gram",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         Matrix<const T> V, std::optional<Vector<const double>> weights, Matrix<const double> L, Matrix<const T> C,
         Matrix<T> sums, Matrix<T> Z) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        int width = width_of<T>(V.shape(1));
        std::size_t w = width;
        require(Z.shape(0) == V.shape(0) && Z.shape(1) == w, "Z must have the shape of V");
        require(L.shape(0) == std::size_t(hi - lo) && L.shape(1) == C.shape(0), "L must have a row for each row");
        require(C.shape(1) == w && sums.shape(0) == C.shape(0) && sums.shape(1) == w, "C and sums are rank x width");
        Shift<T> S{L.data(), std::int64_t(L.shape(1)), C.data(), sums.data(), or_null(weights, hi - lo)};
        nb::gil_scoped_release released;
        follow(X, V.shape(0));
        products<D, T, I>().gram(X, V.data(), width, S, Z.data());
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("V").noconvert(), nb::arg("weights").none(), nb::arg("L").noconvert(),
      nb::arg("C").noconvert(), nb::arg("sums").noconvert(), nb::arg("Z").noconvert());
}

template <class T>
Tall<T> tall(const Strided<const T> &B) {
  Tall<T> panel{B.data(), std::int64_t(B.shape(0)), std::int64_t(B.shape(1)), B.stride(0), B.stride(1)};
  bool empty = !panel.rows || !panel.columns;
  require(empty || panel.down == 1 || panel.right == 1, "rows or columns of a panel must be contiguous");
  return panel;
}

void check_edges(const std::vector<std::int64_t> &edges, std::int64_t rows) {
  require(edges.size() > 1 && edges.front() == 0 && edges.back() == rows, "blocks must cover the rows");
  for (std::size_t b = 1; b < edges.size(); b++) require(edges[b - 1] <= edges[b], "blocks must ascend");
}

template <class T>
Groups groups_of(const std::vector<int> &widths, std::int64_t columns) {
  require(!widths.empty(), "a panel needs groups");
  Groups groups{widths, columns, 0};
  for (int width : widths) groups.padded += width_of<T>(width);
  require(columns <= groups.padded && (columns == 0 || groups.padded - widths.back() < columns), "groups must cover Y");
  return groups;
}

// A whole matrix, its shift, weights of its rows and scales of its columns, as Python passes them. With `across`, the
// adjoint, products use both.
template <class D, class T, class I>
class Given {
 public:
  // Entries, indices, indptr, and the edges of the blocks of rows.
  typedef std::tuple<Vector<const D>, Vector<const I>, Vector<const I>, std::vector<std::int64_t>> Stored;
  typedef std::optional<Vector<const double>> Scales;

  Given(const Stored &X, const std::optional<Stored> &across, const Scales &weights, const Scales &cols,
        const Matrix<const double> &L, const Matrix<const double> &R, const std::vector<int> &widths,
        std::int64_t columns)
      : groups_(groups_of<T>(widths, columns)), both_(across) {
    std::int64_t m = L.shape(0), n = R.shape(0);
    require(L.shape(1) == R.shape(1), "L must have the columns of R");
    A_ = whole(X, m, n, L, R, or_null(weights, m)), cols_ = or_null(cols, n);
    if (both_) across_ = whole(*across, n, m, R, L, nullptr);
  }

  std::int64_t n() const {
    return A_.n;
  }

  // Calls f(team, gram) with threads that share products, and others with so many pieces. Call it without the GIL.
  template <class F>
  void multiply(int threads, std::int64_t pieces, F f) const {
    static const auto sound = table([](auto set) { return Tables<decltype(set)>::template sound<I>(); });
    auto &kernels = products<D, T, I>();
    std::unique_ptr<Gram<T>> G;
    if (both_) {
      G = std::make_unique<GramOfBoth<D, T, I>>(kernels, sound, A_, across_, groups_);
    } else {
      G = std::make_unique<GramOfAll<D, T, I>>(kernels, tall_products<T>(), sound, A_, groups_, threads);
    }
    if (cols_) G = std::make_unique<GramOfScaled<T>>(std::move(G), cols_, A_.n, groups_.columns);
    Team team(sharing(threads, std::max(G->shares(), pieces)));
    require(f(team, *G), leads_out);
  }

 private:
  static Whole<D, I> whole(const Stored &X, std::int64_t rows, std::int64_t columns, const Matrix<const double> &left,
                           const Matrix<const double> &right, const double *weights) {
    auto &[data, indices, indptr, edges] = X;
    check_edges(edges, rows);
    std::int64_t rank = left.shape(1);
    return {range<D, I>(data, indices, indptr, 0, rows), columns, edges, left.data(), right.data(), rank, weights};
  }

  Groups groups_;
  bool both_;
  Whole<D, I> A_{}, across_{};
  const double *cols_ = nullptr;
};

template <class D, class T, class I>
void define_gram_of_all(nb::module_ &m) {
  typedef Given<D, T, I> Given;
  m.def(
      "gram_of_all",
      [](typename Given::Stored X, std::optional<typename Given::Stored> across, typename Given::Scales weights,
         typename Given::Scales cols, Matrix<const double> L, Matrix<const double> R, std::vector<int> widths,
         Strided<const T> V, Strided<T> Y, int threads) {
        Given given(X, across, weights, cols, L, R, widths, Y.shape(1));
        Tall<T> panel = tall(V);
        require(panel.rows == given.n() && V.shape(1) == Y.shape(1), "V is like Y");
        Panel<T> out = columns<T>(Y, given.n(), Y.shape(1));
        nb::gil_scoped_release released;
        given.multiply(threads, 0, [&](Team &team, Gram<T> &G) {
          return G.multiply(team, panel, {out.values, out.width, out.stride});
        });
      },
      nb::arg("X").noconvert(), nb::arg("across").none().noconvert(), nb::arg("weights").none(), nb::arg("cols").none(),
      nb::arg("L").noconvert(), nb::arg("R").noconvert(), nb::arg("widths"), nb::arg("V").noconvert(),
      nb::arg("Y").noconvert(), nb::arg("threads"));
}

template <class D, class T, class I>
void define_recur(nb::module_ &m) {
  m.def(
      "recur",
      [](typename Given<D, T, I>::Stored stored, std::int64_t steps, Matrix<T> before, Matrix<T> now, int threads) {
        auto &[data, indices, indptr, edges] = stored;
        std::int64_t n = now.shape(0);
        int width = width_of<T>(now.shape(1));
        require(before.shape(0) == now.shape(0) && before.shape(1) == now.shape(1), "panels have the same shape");
        check_edges(edges, n);
        auto X = range<D, I>(data, indices, indptr, 0, n);
        nb::gil_scoped_release released;
        follow(X, n);
        Team team(sharing(threads, std::int64_t(edges.size()) - 1));
        recur(team, products<D, T, I>(), X, edges, width, steps, before.data(), now.data());
      },
      nb::arg("X").noconvert(), nb::arg("steps"), nb::arg("before").noconvert(), nb::arg("now").noconvert(),
      nb::arg("threads"));
}

// See `Factorization.take_steps` in solvers/krylov.py.
template <class D, class T, class I>
void define_steps(nb::module_ &m) {
  typedef Given<D, T, I> Given;
  m.def(
      "take_steps",
      [](typename Given::Stored X, std::optional<typename Given::Stored> across, typename Given::Scales weights,
         typename Given::Scales cols, Matrix<const double> L, Matrix<const double> R, std::vector<int> widths,
         Strided<T> B, Matrix<double> H, Matrix<T> W, std::int64_t size, std::int64_t last, std::int64_t steps,
         double scale, double unit, double repeat_below, Matrix<double> squares, Matrix<double> below, int threads) {
        std::int64_t w = W.shape(1), end = size + (steps + 1) * w;
        Given given(X, across, weights, cols, L, R, widths, w);
        std::int64_t n = given.n();
        require(steps > 0 && 0 <= last && last <= size, "no step to take");
        require(std::int64_t(W.shape(0)) == n && w <= widest_panel, "W is like the next block");
        require(w * sizeof(T) % tall_products<T>().register_bytes == 0, "the columns of W must fill registers");
        require(std::int64_t(B.shape(0)) == n && (B.stride(0) == 1 || n <= 1), "the columns of B must be contiguous");
        require(end <= std::int64_t(B.shape(1)) && end <= n, "B must have room for the steps and a block");
        require(std::int64_t(H.shape(1)) >= end - w && H.shape(0) == H.shape(1), "H must have room for the steps");
        for (auto *square : {&squares, &below}) {
          require(std::int64_t(square->shape(0)) == w && std::int64_t(square->shape(1)) == w, "like W^T W");
        }
        Krylov<T> F{B.data(), n,     B.stride(1), H.data(),    std::int64_t(H.shape(1)), size, w,
                    last,     scale, unit,        repeat_below};
        Taken taken{};
        {
          nb::gil_scoped_release released;
          given.multiply(threads, pieces_of(n), [&](Team &team, Gram<T> &G) {
            Narrow<T> block{W.data(), w, w};
            taken = take_steps(team, G, tall_products<T>(), F, block, steps, squares.data(), below.data());
            return taken.safe;
          });
        }
        return nb::make_tuple(taken.steps, F.scale, taken.power, taken.regular);
      },
      nb::arg("X").noconvert(), nb::arg("across").none().noconvert(), nb::arg("weights").none(), nb::arg("cols").none(),
      nb::arg("L").noconvert(), nb::arg("R").noconvert(), nb::arg("widths"), nb::arg("B").noconvert(),
      nb::arg("H").noconvert(), nb::arg("W").noconvert(), nb::arg("size"), nb::arg("last"), nb::arg("steps"),
      nb::arg("scale"), nb::arg("unit"), nb::arg("repeat_below"), nb::arg("squares").noconvert(),
      nb::arg("below").noconvert(), nb::arg("threads"));
}

template <class D, class I>
void define_transpose(nb::module_ &m) {
  m.def(
      "transpose",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, Vector<D> data_across,
         Vector<I> indices_across, Vector<I> indptr_across, int threads) {
        std::int64_t rows = std::int64_t(indptr.shape(0)) - 1, n = std::int64_t(indptr_across.shape(0)) - 1;
        auto X = range<D, I>(data, indices, indptr, 0, rows);
        std::size_t entries = std::size_t(X.indptr[rows]);
        require(data_across.shape(0) == entries && indices_across.shape(0) == entries, "X^T has the entries of X");
        static const auto sound = table([](auto set) { return Tables<decltype(set)>::template sound<I>(); });
        nb::gil_scoped_release released;
        require(transpose<D, I>(sound, X, n, data_across.data(), indices_across.data(), indptr_across.data(), threads),
                leads_out);
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
      nb::arg("data_across").noconvert(), nb::arg("indices_across").noconvert(), nb::arg("indptr_across").noconvert(),
      nb::arg("threads"));
}

template <class T>
void define_add(nb::module_ &m) {
  m.def(
      "add",
      [](Vector<const T> part, Vector<double> total) {
        require(part.shape(0) == total.shape(0), "sums of different length");
        const T *x = part.data();
        double *sum = total.data();
        std::size_t n = part.shape(0);
        nb::gil_scoped_release released;
        for (std::size_t i = 0; i < n; i++) sum[i] += x[i];
      },
      nb::arg("part").noconvert(), nb::arg("total").noconvert());
}

template <class T>
void define_subtract(nb::module_ &m) {
  m.def(
      "subtract",
      [](Strided<const T> X, Matrix<const double> L, Matrix<const double> Rt, Matrix<T> out) {
        std::int64_t rows = X.shape(0), n = X.shape(1), rank = L.shape(1);
        require(X.stride(1) == 1 || n <= 1, "the rows of X must be contiguous");
        require(L.shape(0) == X.shape(0) && Rt.shape(0) == L.shape(1) && Rt.shape(1) == X.shape(1), "L R^T is like X");
        require(out.shape(0) == X.shape(0) && out.shape(1) == X.shape(1), "out is like X");
        nb::gil_scoped_release released;
        subtract<T>()(X.data(), X.stride(0), rows, n, L.data(), Rt.data(), rank, out.data());
      },
      nb::arg("X").noconvert(), nb::arg("L").noconvert(), nb::arg("Rt").noconvert(), nb::arg("out").noconvert());
}

template <class T>
void define_dense_moments(nb::module_ &m) {
  m.def(
      "dense_moments",
      [](Strided<const T> X, std::optional<Vector<const double>> weights, double total, Vector<double> mean,
         Vector<double> deviations, Vector<double> squares) {
        std::int64_t rows = X.shape(0), n = X.shape(1);
        require(X.stride(1) == 1 || n <= 1, "the rows of X must be contiguous");
        for (auto *sums : {&mean, &deviations, &squares}) require(sums->shape(0) == X.shape(1), "one sum a column");
        const double *w = or_null(weights, rows);
        nb::gil_scoped_release released;
        dense_moments<T>()(X.data(), X.stride(0), rows, n, w, total, mean.data(), deviations.data(), squares.data());
      },
      nb::arg("X").noconvert(), nb::arg("weights").none(), nb::arg("total"), nb::arg("mean").noconvert(),
      nb::arg("deviations").noconvert(), nb::arg("squares").noconvert());
}

template <class T, class S>
Narrow<S> narrow(const Strided<S> &W, const Tall<T> &B) {
  std::int64_t columns = W.shape(1), bytes = columns * sizeof(T);
  require(W.shape(0) == std::size_t(B.rows) && W.stride(1) == 1, "W must have a contiguous row for each of B");
  require(bytes % tall_products<T>().register_bytes == 0, "the columns of W must fill registers");
  return {W.data(), columns, W.stride(0)};
}

template <class T>
void define_tall(nb::module_ &m) {
  m.def(
      "inner",
      [](Strided<const T> B, Strided<const T> W, Matrix<double> out, int threads) {
        auto left = tall(B), right = tall(W);
        std::int64_t padded = out.shape(1);
        require(left.rows == right.rows, "B and W must have as many rows");
        require(out.shape(0) == B.shape(1) && right.columns <= padded, "out is like B^T W");
        require(padded * sizeof(T) % tall_products<T>().register_bytes == 0, "the columns of out must fill registers");
        nb::gil_scoped_release released;
        inner_of_all(tall_products<T>(), left, right, padded, out.data(), threads);
      },
      nb::arg("B").noconvert(), nb::arg("W").noconvert(), nb::arg("out").noconvert(), nb::arg("threads"));
  m.def(
      "subtract_product",
      [](Strided<const T> B, Matrix<const T> C, Strided<T> W, int threads) {
        auto left = tall(B);
        auto right = narrow(W, left);
        require(C.shape(0) == B.shape(1) && C.shape(1) == W.shape(1), "W is like B C");
        nb::gil_scoped_release released;
        subtract_from_all(tall_products<T>(), left, C.data(), right, threads);
      },
      nb::arg("B").noconvert(), nb::arg("C").noconvert(), nb::arg("W").noconvert(), nb::arg("threads"));
}

template <class T>
void define_projections(nb::module_ &m) {
  m.def(
      "project",
      [](Strided<const T> B, std::int64_t near, Strided<T> W, T factor, double repeat_below,
         std::optional<Strided<T>> Q, Matrix<double> coefficients, Matrix<double> squares, Matrix<double> below,
         double unit, double scale, int threads) {
        auto left = tall(B);
        auto right = narrow(W, left);
        require(0 <= near && near <= left.columns, "near must be a column of B");
        require(coefficients.shape(0) == B.shape(1) && coefficients.shape(1) == W.shape(1), "as many as of B^T W");
        require(squares.shape(0) == W.shape(1) && squares.shape(1) == W.shape(1), "squares are like W^T W");
        Next<T> next{nullptr, 0, below.data(), unit, scale};
        if (Q) {
          bool columns =
              Q->shape(0) == W.shape(0) && Q->shape(1) == W.shape(1) && (Q->stride(0) == 1 || left.rows <= 1);
          require(columns && right.columns <= widest_panel, "Q is like W, by contiguous columns");
          require(below.shape(0) == W.shape(1) && below.shape(1) == W.shape(1), "below is like W^T W");
          next.values = Q->data(), next.stride = Q->stride(1);
        }
        nb::gil_scoped_release released;
        Team team(sharing(threads, pieces_of(left.rows)));
        return project(team, tall_products<T>(), left, near, right, factor, repeat_below, coefficients.data(),
                       squares.data(), next);
      },
      nb::arg("B").noconvert(), nb::arg("near"), nb::arg("W").noconvert(), nb::arg("factor"), nb::arg("repeat_below"),
      nb::arg("Q").none(), nb::arg("coefficients").noconvert(), nb::arg("squares").noconvert(),
      nb::arg("below").noconvert(), nb::arg("unit"), nb::arg("scale"), nb::arg("threads"));
  m.def(
      "combine",
      [](Strided<const T> W, Matrix<const T> minus_Z, Strided<T> B, int threads) {
        std::int64_t rows = W.shape(0), columns = B.shape(1), padded = minus_Z.shape(1);
        require(W.stride(1) == 1 && std::int64_t(minus_Z.shape(0)) == std::int64_t(W.shape(1)), "Z must fit W");
        require(B.shape(0) == W.shape(0) && (B.stride(0) == 1 || rows <= 1) && columns <= padded, "B is like W Z");
        require(padded * sizeof(T) % tall_products<T>().register_bytes == 0, "the columns of Z must fill registers");
        Narrow<const T> left{W.data(), std::int64_t(W.shape(1)), W.stride(0)};
        nb::gil_scoped_release released;
        combine(tall_products<T>(), left, rows, minus_Z.data(), padded, columns, B.data(), B.stride(1), threads);
      },
      nb::arg("W").noconvert(), nb::arg("minus_Z").noconvert(), nb::arg("B").noconvert(), nb::arg("threads"));
}

template <class T>
void define_total(nb::module_ &m) {
  m.def(
      "total",
      [](std::vector<Vector<const T>> parts, std::optional<Vector<const double>> before, std::vector<int> widths,
         Matrix<const double> L, Matrix<const double> C, std::int64_t lo, Strided<T> Y) {
        std::int64_t rows = L.shape(0), hi = lo + std::int64_t(Y.shape(0)), columns = Y.shape(1), offset = 0, first = 0;
        require(0 <= lo && hi <= rows, "rows out of range");
        require(Y.stride(1) == 1 || columns <= 1, "the rows of Y must be contiguous");
        require(C.shape(0) == L.shape(1) && C.shape(1) == Y.shape(1), "L C must have the columns of Y");
        for (int width : widths) width_of<T>(width), first += width;
        require(columns <= first && (columns == 0 || first - widths.back() < columns), "groups must cover Y");
        std::vector<const T *> values;
        for (auto &part : parts) {
          require(part.shape(0) == std::size_t(rows * first), "parts of different size");
          values.push_back(part.data());
        }
        require(!before || before->shape(0) == std::size_t(rows * first), "sums of different length");
        Parts<T> S{values.data(), std::int64_t(values.size()), before ? before->data() : nullptr, rows, L.data(),
                   C.data(),      std::int64_t(L.shape(1))};
        nb::gil_scoped_release released;
        first = 0;
        for (int width : widths) {
          tall_products<T>().total(S, offset, width, first, lo, hi, {Y.data(), columns, Y.stride(0)});
          offset += rows * width, first += width;
        }
      },
      nb::arg("parts").noconvert(), nb::arg("before").none(), nb::arg("widths"), nb::arg("L").noconvert(),
      nb::arg("C").noconvert(), nb::arg("lo"), nb::arg("Y").noconvert());
}

template <class I>
void define_counts(nb::module_ &m) {
  m.def(
      "column_counts",
      [](Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         Vector<std::int64_t> counts) {
        auto X = range<I, I>(indices, indices, indptr, lo, hi);
        std::int64_t *count = counts.data();
        nb::gil_scoped_release released;
        follow(X, counts.shape(0));
        for (std::int64_t k = X.indptr[lo]; k < X.indptr[hi]; k++) count[X.indices[k]]++;
      },
      nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"), nb::arg("hi"),
      nb::arg("counts").noconvert());
}

template <class D, class I>
void define_statistics(nb::module_ &m) {
  m.def(
      "moments",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         std::optional<Matrix<const double>> weights, Matrix<double> stored, Vector<double> mean,
         Vector<double> correction, Vector<double> squares) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        auto out = sums(stored, mean, correction, squares);
        const double *w = or_null(weights, hi - lo);
        nb::gil_scoped_release released;
        follow(X, mean.shape(0));
        statistics<D, I>().moments(X, mean.shape(0), w, out);
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("weights").none(), nb::arg("stored").noconvert(), nb::arg("mean").noconvert(),
      nb::arg("correction").noconvert(), nb::arg("squares").noconvert());
  m.def(
      "row_moments",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         std::int64_t n, std::optional<Matrix<const double>> weights, Matrix<double> stored, Vector<double> mean,
         Vector<double> correction, Vector<double> squares) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        auto out = sums(stored, mean, correction, squares);
        require(mean.shape(0) == std::size_t(hi - lo), "mean has an entry for each row");
        const double *w = or_null(weights, n);
        nb::gil_scoped_release released;
        follow(X, n);
        statistics<D, I>().row_moments(X, w, out);
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("n"), nb::arg("weights").none(), nb::arg("stored").noconvert(),
      nb::arg("mean").noconvert(), nb::arg("correction").noconvert(), nb::arg("squares").noconvert());
  m.def(
      "column_squares",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         std::optional<Vector<const double>> weights, Matrix<const double> L, Matrix<const double> R,
         Vector<double> squares) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        require(L.shape(0) == std::size_t(hi - lo) && L.shape(1) == R.shape(1), "L must have a row for each row");
        require(R.shape(0) == squares.shape(0), "R must have a row for each column");
        const double *w = or_null(weights, hi - lo);
        nb::gil_scoped_release released;
        follow(X, squares.shape(0));
        statistics<D, I>().column_squares(X, w, L.data(), R.data(), L.shape(1), squares.data());
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("weights").none(), nb::arg("L").noconvert(), nb::arg("R").noconvert(),
      nb::arg("squares").noconvert());
  m.def(
      "outer",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi,
         std::optional<Vector<const double>> weights, Matrix<double> G) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        require(G.shape(0) == G.shape(1), "G must be square");
        const double *w = or_null(weights, hi - lo);
        nb::gil_scoped_release released;
        follow(X, G.shape(0));
        statistics<D, I>().outer(X, w, G.shape(0), G.data());
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"), nb::arg("weights").none(), nb::arg("G").noconvert());
  m.def(
      "inspect",
      [](Vector<const D> data, Vector<const I> indices, Vector<const I> indptr, std::int64_t lo, std::int64_t hi) {
        auto X = range<D, I>(data, indices, indptr, lo, hi);
        Inspection seen;
        {
          nb::gil_scoped_release released;
          seen = statistics<D, I>().inspect(X);
        }
        return nb::make_tuple(seen.nan, seen.infinite, seen.least, seen.largest, seen.sorted);
      },
      nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("lo"),
      nb::arg("hi"));
}

using Words = Vector<const std::uint32_t>;

// Chunks that hold `size` numbers from number `first` on. The edges come from a file.
Chunks chunks(const Words &words, const Vector<const std::int64_t> &edges, std::int64_t first, std::int64_t size,
              int most_bits) {
  std::int64_t count = std::int64_t(edges.shape(0)) - 1;
  const std::int64_t *edge = edges.data();
  require(count >= 0, "no edges");
  for (std::int64_t i = 0; i <= count; i++) {
    require(0 <= edge[i] && std::size_t(edge[i]) <= words.shape(0), "the edges of chunks must be within the words");
    std::int64_t step = i ? edge[i] - edge[i - 1] : 0;
    require(0 <= step && step % words_per_bit == 0 && step / words_per_bit <= most_bits,
            "a chunk has a wrong number of words");
  }
  require(0 <= first && first < chunk_numbers && first + size <= count * chunk_numbers,
          "the numbers to unpack must be within the chunks");
  return {words.data(), edge, count};
}

void define_bitpacking(nb::module_ &m) {
  m.def(
      "unpack_counts",
      [](Words words, Vector<const std::int64_t> edges, std::int64_t first, Vector<std::uint32_t> out) {
        nb::gil_scoped_release released;
        bitpacking().counts(chunks(words, edges, first, out.shape(0), 32), first, out.shape(0), out.data());
      },
      nb::arg("words").noconvert(), nb::arg("edges").noconvert(), nb::arg("first"), nb::arg("out").noconvert());
  m.def(
      "unpack_counts",
      [](Words words, Vector<const std::int64_t> edges, std::int64_t first, Vector<float> out) {
        nb::gil_scoped_release released;
        bitpacking().floats(chunks(words, edges, first, out.shape(0), 24), first, out.shape(0), out.data());
      },
      nb::arg("words").noconvert(), nb::arg("edges").noconvert(), nb::arg("first"), nb::arg("out").noconvert());
  m.def(
      "unpack_differences",
      [](Words words, Vector<const std::int64_t> edges, Words starts, std::int64_t first, Vector<std::uint32_t> out) {
        require(starts.shape(0) + 1 == edges.shape(0), "each chunk has a start");
        nb::gil_scoped_release released;
        auto X = chunks(words, edges, first, out.shape(0), 32);
        bitpacking().differences(X, starts.data(), first, out.shape(0), out.data());
      },
      nb::arg("words").noconvert(), nb::arg("edges").noconvert(), nb::arg("starts").noconvert(), nb::arg("first"),
      nb::arg("out").noconvert());
  m.def(
      "pack",
      [](Words numbers, Vector<std::uint32_t> words, Vector<std::int64_t> edges,
         std::optional<Vector<std::uint32_t>> starts) {
        std::size_t count = (numbers.shape(0) + chunk_numbers - 1) / chunk_numbers;
        require(edges.shape(0) == count + 1 && words.shape(0) >= count * chunk_numbers, "no room for the chunks");
        require(edges.data()[0] == 0 && (!starts || starts->shape(0) == count), "each chunk has an edge and a start");
        std::uint32_t *start = starts ? starts->data() : nullptr;
        nb::gil_scoped_release released;
        auto size = std::int64_t(numbers.shape(0));
        if (start) return bitpacking().pack_differences(numbers.data(), size, words.data(), edges.data(), start);
        return bitpacking().pack_counts(numbers.data(), size, words.data(), edges.data());
      },
      nb::arg("numbers").noconvert(), nb::arg("words").noconvert(), nb::arg("edges").noconvert(),
      nb::arg("starts").none());
}

}  // namespace
}  // namespace shiftsvd

NB_MODULE(_compiled, m) {
  using namespace shiftsvd;
  isa = pick();
  define_products<float, float, std::int32_t>(m);
  define_products<float, double, std::int32_t>(m);
  define_products<double, float, std::int32_t>(m);
  define_products<double, double, std::int32_t>(m);
  define_products<float, float, std::int64_t>(m);
  define_products<float, double, std::int64_t>(m);
  define_products<double, float, std::int64_t>(m);
  define_products<double, double, std::int64_t>(m);
  define_gram_of_all<float, float, std::int32_t>(m);
  define_steps<float, float, std::int32_t>(m);
  define_gram_of_all<float, float, std::int64_t>(m);
  define_steps<float, float, std::int64_t>(m);
  define_gram_of_all<float, double, std::int32_t>(m);
  define_steps<float, double, std::int32_t>(m);
  define_gram_of_all<float, double, std::int64_t>(m);
  define_steps<float, double, std::int64_t>(m);
  define_gram_of_all<double, float, std::int32_t>(m);
  define_steps<double, float, std::int32_t>(m);
  define_gram_of_all<double, float, std::int64_t>(m);
  define_steps<double, float, std::int64_t>(m);
  define_gram_of_all<double, double, std::int32_t>(m);
  define_steps<double, double, std::int32_t>(m);
  define_gram_of_all<double, double, std::int64_t>(m);
  define_steps<double, double, std::int64_t>(m);
  define_recur<double, double, std::int32_t>(m);
  define_recur<double, double, std::int64_t>(m);
  define_projections<float>(m);
  define_projections<double>(m);
  define_subtract<float>(m);
  define_subtract<double>(m);
  define_dense_moments<float>(m);
  define_dense_moments<double>(m);
  define_tall<float>(m);
  define_tall<double>(m);
  define_total<float>(m);
  define_total<double>(m);
  define_counts<std::int32_t>(m);
  define_counts<std::int64_t>(m);
  define_add<float>(m);
  define_add<double>(m);
  define_statistics<float, std::int32_t>(m);
  define_transpose<float, std::int32_t>(m);
  define_statistics<double, std::int32_t>(m);
  define_transpose<double, std::int32_t>(m);
  define_statistics<float, std::int64_t>(m);
  define_transpose<float, std::int64_t>(m);
  define_statistics<double, std::int64_t>(m);
  define_transpose<double, std::int64_t>(m);
  define_bitpacking(m);
  m.def("keep", &keep, nb::arg("limit"), nb::arg("line"));
  m.def("discard", &discard, nb::arg("folders"));
  const char *names[] = {"baseline", "AVX2", "AVX-512"};
  m.attr("instruction_set") = names[int(isa)];
  m.attr("panel_bytes") = panel_bytes;
  m.attr("register_bytes") = tall_products<float>().register_bytes;
}
