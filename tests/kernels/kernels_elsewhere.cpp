// The kernels beside plain loops, in a program of its own: for processors that no Python is at hand for.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "panels.hpp"
#include "rows.hpp"
#include "steps.hpp"

using namespace shiftsvd;

std::mt19937 random_bits(7);
std::atomic<int> failures{0}, checks{0};

double draw() {
  return std::uniform_real_distribution<double>(-1, 1)(random_bits);
}

template <class T>
std::vector<T> numbers(std::size_t count) {
  std::vector<T> out(count);
  for (T &x : out) x = T(draw());
  return out;
}

template <class T>
void agree(const char *what, const std::vector<T> &found, const std::vector<double> &want, double terms) {
  double bound = (sizeof(T) == 4 ? 6e-8 : 1.2e-16) * (terms + 8) * 4;
  for (std::size_t i = 0; i < want.size(); i++) {
    checks++;
    if (!(std::fabs(found[i] - want[i]) <= bound)) {
      if (failures++ < 10) std::printf("%s [%zu]: %.9g, not %.9g\n", what, i, double(found[i]), want[i]);
    }
  }
}

template <class D, class T, class I>
void sparse(int width) {
  const std::int64_t m = 23, n = 19, rank = 2;
  std::vector<D> data;
  std::vector<I> indices, indptr{0};
  std::vector<double> X(m * n);
  for (std::int64_t i = 0; i < m; i++) {
    for (std::int64_t j = 0; j < n; j++) {
      if (random_bits() % 3) continue;
      data.push_back(D(draw())), indices.push_back(I(j)), X[i * n + j] = data.back();
    }
    indptr.push_back(I(data.size()));
  }
  Rows<D, I> rows{data.data(), indices.data(), indptr.data(), 2, m - 1};
  std::int64_t count = rows.hi - rows.lo;
  auto V = numbers<T>(n * width), W = numbers<T>(count * width), C = numbers<T>(rank * width);
  auto left = numbers<double>(count * rank), weights = numbers<double>(count);
  std::vector<T> Y(count * width), Z(n * width), G(n * width), sums(rank * width);
  auto kernels = Tables<Baseline>::products<D, T, I>();
  kernels.gather(rows, V.data(), n, width, Panel<T>{Y.data(), width, width});
  kernels.scatter(rows, Panel<const T>{W.data(), width, width}, width, Z.data());
  kernels.gram(rows, V.data(), width, Shift<T>{left.data(), rank, C.data(), sums.data(), weights.data()}, G.data());
  std::vector<double> y(count * width), z(n * width), g(n * width), s(rank * width);
  for (std::int64_t i = 0; i < count; i++) {
    for (int c = 0; c < width; c++) {
      double sum = 0;
      for (std::int64_t j = 0; j < n; j++) sum += X[(rows.lo + i) * n + j] * V[j * width + c];
      y[i * width + c] = sum;
      for (std::int64_t r = 0; r < rank; r++) sum -= left[i * rank + r] * C[r * width + c];
      sum *= weights[i];
      for (std::int64_t r = 0; r < rank; r++) s[r * width + c] += left[i * rank + r] * sum;
      for (std::int64_t j = 0; j < n; j++) {
        z[j * width + c] += X[(rows.lo + i) * n + j] * W[i * width + c];
        g[j * width + c] += X[(rows.lo + i) * n + j] * sum;
      }
    }
  }
  agree("gather", Y, y, n), agree("scatter", Z, z, m), agree("gram", G, g, 4 * m * n),
      agree("sums", sums, s, 4 * m * n);
}

template <class T>
void tall(std::int64_t rows, std::int64_t columns, int registers, bool by_columns) {
  auto kernels = TallTables<Baseline>::products<T>();
  std::int64_t width = registers * kernels.register_bytes / std::int64_t(sizeof(T));
  auto B = numbers<T>(rows * columns), W = numbers<T>(rows * width), C = numbers<T>(columns * width);
  std::int64_t down = by_columns ? 1 : columns, right = by_columns ? rows : 1;
  Tall<T> left{B.data(), rows, columns, down, right};
  std::vector<double> found(columns * width), want(columns * width), less(W.begin(), W.end());
  kernels.inner(left, Narrow<const T>{W.data(), width, width}, found.data());
  for (std::int64_t i = 0; i < rows; i++) {
    for (std::int64_t j = 0; j < columns; j++) {
      for (std::int64_t c = 0; c < width; c++) {
        double b = B[i * down + j * right];
        want[j * width + c] += b * W[i * width + c];
        less[i * width + c] -= b * C[j * width + c];
      }
    }
  }
  agree("inner", std::vector<T>(found.begin(), found.end()), want, double(rows));
  kernels.subtract(left, C.data(), Narrow<T>{W.data(), width, width});
  agree("subtract", W, less, double(columns));
}

template <class T>
void sums(int width) {
  const std::int64_t rows = 31, count = 3, rank = 2, used = width > 2 ? width - 1 : width;
  std::vector<std::vector<T>> parts;
  std::vector<const T *> values;
  for (int b = 0; b < count; b++) parts.push_back(numbers<T>(rows * width));
  for (auto &part : parts) values.push_back(part.data());
  auto before = numbers<double>(rows * width), L = numbers<double>(rows * rank), C = numbers<double>(rank * used);
  std::vector<T> Y(rows * used);
  Parts<T> all{values.data(), count, before.data(), rows, L.data(), C.data(), rank};
  TallTables<Baseline>::products<T>().total(all, 0, width, 0, 0, rows, Narrow<T>{Y.data(), used, used});
  std::vector<double> want(rows * used);
  for (std::int64_t i = 0; i < rows; i++) {
    for (std::int64_t c = 0; c < used; c++) {
      double sum = before[i * width + c];
      for (auto &part : parts) sum += part[i * width + c];
      for (std::int64_t r = 0; r < rank; r++) sum -= L[i * rank + r] * C[r * used + c];
      want[i * used + c] = sum;
    }
  }
  agree("total", Y, want, 8);
}

// What threads share: as many blocks as need several rounds, and the same bits from any number of threads.
template <class T>
void shared(std::int64_t m, std::int64_t n, int threads) {
  typedef std::int32_t I;
  const std::int64_t rank = 1, blocks = 19, columns = 20;
  std::int64_t width = TallTables<Baseline>::products<T>().register_bytes / std::int64_t(sizeof(T));
  std::vector<float> data;
  std::vector<I> indices, indptr{0};
  for (std::int64_t i = 0; i < m; i++) {
    for (std::int64_t j = 0; j < n; j++) {
      if (random_bits() % 4 == 0) data.push_back(float(draw())), indices.push_back(I(j));
    }
    indptr.push_back(I(data.size()));
  }
  auto L = numbers<double>(m * rank), R = numbers<double>(n * rank);
  Whole<float, I> A{{data.data(), indices.data(), indptr.data(), 0, m}, n, {}, L.data(), R.data(), rank, nullptr};
  for (std::int64_t b = 0; b <= blocks; b++) A.edges.push_back(m * b / blocks);
  auto V = numbers<T>(n * 2 * width), B = numbers<T>(n * columns), W = numbers<T>(n * width);
  Groups groups{{int(width), int(width)}, 2 * width - 1, 2 * width};
  auto products = Tables<Baseline>::products<float, T, I>();
  auto tall = TallTables<Baseline>::products<T>();
  auto sound = Tables<Baseline>::sound<I>();
  for (T &b : B) b /= T(std::sqrt(double(n)));
  auto run = [&](int count) {
    std::vector<float> data_across(data.size());
    std::vector<I> indices_across(data.size()), indptr_across(n + 1);
    bool good = transpose(sound, A.X, n, data_across.data(), indices_across.data(), indptr_across.data(), count);
    Whole<float, I> across{{data_across.data(), indices_across.data(), indptr_across.data(), 0, n},
                           m,
                           {0, n / 3, n / 2, n},
                           R.data(),
                           L.data(),
                           rank,
                           nullptr};
    std::vector<double> out(data_across.begin(), data_across.end());
    auto keep = [&](const auto &values) { out.insert(out.end(), values.begin(), values.end()); };
    keep(indices_across), keep(indptr_across);
    Tall<T> panel{V.data(), n, groups.columns, groups.padded, 1};
    std::vector<T> Y(n * groups.columns), of_both(Y.size()), left(W), Q(n * width);
    Team team(count);
    GramOfAll<float, T, I> of_all(products, tall, sound, A, groups, count);
    GramOfBoth<float, T, I> from_both(products, sound, A, across, groups);
    good &= of_all.multiply(team, panel, {Y.data(), groups.columns, groups.columns});
    good &= from_both.multiply(team, panel, {of_both.data(), groups.columns, groups.columns});
    agree("both", of_both, std::vector<double>(Y.begin(), Y.end()), 4.0 * double(m * n));
    std::vector<double> coefficients(columns * width), squares(width * width), below(width * width);
    good &= project(team, tall, {B.data(), n, columns, 1, n}, 8, {left.data(), width, width}, T(0.5), 0.1,
                    coefficients.data(), squares.data(), {Q.data(), n, below.data(), 1e-7, 0});
    std::int64_t side = std::min(m, n);
    std::vector<I> ends(indptr.begin(), indptr.begin() + side + 1), inside(indices);
    for (I &j : inside) j %= side;
    std::vector<T> before(V.begin(), V.begin() + side * width), now(before);
    recur(team, products, {data.data(), inside.data(), ends.data(), 0, side}, {0, side / 3, side}, int(width), 3,
          before.data(), now.data());
    keep(Y), keep(of_both), keep(left), keep(coefficients), keep(squares), keep(below), keep(Q), keep(before),
        keep(now);
    if (!good) out.clear();
    return out;
  };
  auto want = run(1);
  std::vector<std::thread> callers;
  std::vector<std::vector<double>> found(3);
  for (auto &mine : found) callers.emplace_back([&] { mine = run(threads); });
  for (auto &caller : callers) caller.join();
  for (auto &mine : found) {
    checks++;
    if ((mine != want || want.empty()) && failures++ < 10) std::printf("other bits with %d threads\n", threads);
  }
}

int main() {
  for (int threads : {2, 3, 5}) {
    for (int round = 0; round < 5; round++) shared<float>(200, 1500, threads), shared<double>(60, 90, threads);
  }
  for (int width : {1, 2, 4, 8, 16, 32}) {
    sparse<float, float, std::int32_t>(width), sparse<float, float, std::int64_t>(width), sums<float>(width);
    if (width == 32) continue;
    sparse<float, double, std::int32_t>(width), sparse<double, double, std::int64_t>(width), sums<double>(width);
  }
  for (std::int64_t rows : {1, 5, 256, 700}) {
    for (std::int64_t columns : {1, 3, 16, 33}) {
      for (int registers : {1, 2, 5, 11}) {
        for (bool by_columns : {false, true}) {
          tall<float>(rows, columns, registers, by_columns), tall<double>(rows, columns, registers, by_columns);
        }
      }
    }
  }
  std::printf("%d of %d numbers differ\n", failures.load(), checks.load());
  return failures ? 1 : 0;
}
