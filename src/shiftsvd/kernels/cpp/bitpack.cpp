// Integers packed by bits, as BPCells stores them.
//
// Compiled once for each instruction set, which the macro ISA names.
//
// BP-128 of Lemire and Boytsov (2015, figure 6), in the variants of BPCells: number 4 j + l of a chunk is in the bits
// j B to (j + 1) B - 1 of lane l of the words, lowest bits first. BPCells stores the numbers themselves if a
// chunk needs 32 bits, in place of the numbers less one or the differences.
#include "bitpack.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

namespace shiftsvd {
namespace {

typedef std::uint32_t Lanes __attribute__((vector_size(16), aligned(4), may_alias));
typedef std::int32_t Signed __attribute__((vector_size(16), aligned(4), may_alias));
typedef float Floats __attribute__((vector_size(16), aligned(4), may_alias));
constexpr int lanes = 4, steps = int(chunk_numbers) / lanes, widest = 32;

inline Lanes load(const std::uint32_t *p) {
  return *reinterpret_cast<const Lanes *>(p);
}

inline void store(std::uint32_t *p, Lanes x) {
  *reinterpret_cast<Lanes *>(p) = x;
}

inline Lanes all(std::uint32_t x) {
  return Lanes{x, x, x, x};
}

// Before version 12, GCC has no __builtin_shufflevector, and Clang never had __builtin_shuffle.
#ifdef __clang__
#define SHIFTSVD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHIFTSVD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Lanes{__VA_ARGS__})
#endif

inline Lanes sums(Lanes x) {
  x += SHIFTSVD_SHUFFLE(Lanes{}, x, 0, 4, 5, 6);
  return x + SHIFTSVD_SHUFFLE(Lanes{}, x, 0, 1, 4, 5);
}

inline Lanes last(Lanes x) {
  return SHIFTSVD_SHUFFLE(x, x, 3, 3, 3, 3);
}

// Calls take(j, numbers 4 j to 4 j + 3) for j = 0, ..., 31.
template <int B, class Take>
inline void for_each(const std::uint32_t *words, Take take) {
#pragma GCC unroll 32
  for (int j = 0; j < steps; j++) {
    const int word = j * B / 32, shift = j * B % 32;
    Lanes x = B ? load(words + lanes * word) >> shift : Lanes{};
    if (shift + B > 32) x |= load(words + lanes * (word + 1)) << (32 - shift);
    if (B < 32) x &= all(B < 32 ? (std::uint32_t(1) << B % 32) - 1 : ~std::uint32_t(0));
    take(j, x);
  }
}

template <int B>
void unpack_counts(const std::uint32_t *words, std::uint32_t, std::uint32_t *out) {
  for_each<B>(words, [out](int j, Lanes x) { store(out + lanes * j, x + (B < widest)); });
}

template <int B>
void unpack_floats(const std::uint32_t *words, std::uint32_t, float *out) {
  for_each<B>(words, [out](int j, Lanes x) {
    *reinterpret_cast<Floats *>(out + lanes * j) = __builtin_convertvector(Signed(x + 1), Floats);
  });
}

template <int B>
void unpack_differences(const std::uint32_t *words, std::uint32_t start, std::uint32_t *out) {
  Lanes before = all(start);
  for_each<B>(words, [out, &before](int j, Lanes x) {
    before = B == widest ? x : sums((x >> 1) ^ -(x & 1)) + before;
    store(out + lanes * j, before);
    before = last(before);
  });
}

template <class T>
using Unpack = void (*)(const std::uint32_t *words, std::uint32_t start, T *out);

template <class T>
struct PerWidth {
  Unpack<T> at[widest + 1];
};

template <std::size_t... B>
constexpr PerWidth<std::uint32_t> counts_of(std::index_sequence<B...>) {
  return {{unpack_counts<int(B)>...}};
}

template <std::size_t... B>
constexpr PerWidth<float> floats_of(std::index_sequence<B...>) {
  return {{unpack_floats<int(B)>...}};
}

template <std::size_t... B>
constexpr PerWidth<std::uint32_t> differences_of(std::index_sequence<B...>) {
  return {{unpack_differences<int(B)>...}};
}

using Widths = std::make_index_sequence<widest + 1>;
constexpr auto of_counts = counts_of(Widths());
constexpr auto of_floats = floats_of(Widths());
constexpr auto of_differences = differences_of(Widths());

template <class T>
void unpack(const PerWidth<T> &functions, Chunks X, const std::uint32_t *starts, std::int64_t first, std::int64_t size,
            T *out) {
  for (std::int64_t i = 0; i < X.count; i++) {
    const std::int64_t width = (X.edges[i + 1] - X.edges[i]) / words_per_bit, begin = i * chunk_numbers - first;
    const std::uint32_t *words = X.words + X.edges[i], start = starts ? starts[i] : 0;
    if (begin >= 0 && begin + chunk_numbers <= size) {
      functions.at[width](words, start, out + begin);
      continue;
    }
    const std::int64_t lo = begin < 0 ? -begin : 0, hi = size - begin < chunk_numbers ? size - begin : chunk_numbers;
    T numbers[chunk_numbers];
    functions.at[width](words, start, numbers);
    if (lo < hi) std::memcpy(out + begin + lo, numbers + lo, std::size_t(hi - lo) * sizeof(T));
  }
}

void counts(Chunks X, std::int64_t first, std::int64_t size, std::uint32_t *out) {
  unpack(of_counts, X, nullptr, first, size, out);
}

void floats(Chunks X, std::int64_t first, std::int64_t size, float *out) {
  unpack(of_floats, X, nullptr, first, size, out);
}

void differences(Chunks X, const std::uint32_t *starts, std::int64_t first, std::int64_t size, std::uint32_t *out) {
  unpack(of_differences, X, starts, first, size, out);
}

template <int B>
void pack(const std::uint32_t *numbers, std::uint32_t *words) {
  Lanes word{};
#pragma GCC unroll 32
  for (int j = 0; j < steps; j++) {
    const int shift = j * B % 32;
    const Lanes x = load(numbers + lanes * j);
    word |= x << shift;
    if (shift + B >= 32) {
      store(words + lanes * (j * B / 32), word);
      word = shift + B > 32 ? x >> (32 - shift) : Lanes{};
    }
  }
}

using Pack = void (*)(const std::uint32_t *, std::uint32_t *);

struct Packs {
  Pack at[widest + 1];
};

template <std::size_t... B>
constexpr Packs packs_of(std::index_sequence<B...>) {
  return {{pack<int(B)>...}};
}

constexpr auto packs = packs_of(Widths());

void pack_chunk(const std::uint32_t *numbers, const std::uint32_t *encoded, std::uint32_t *words, std::int64_t *edges) {
  std::uint32_t bits = 0;
  int width = 0;
  for (int i = 0; i < chunk_numbers; i++) bits |= encoded[i];
  while (width < widest && bits >> width) width++;
  if (width) packs.at[width](width < widest ? encoded : numbers, words + edges[0]);
  edges[1] = edges[0] + words_per_bit * width;
}

void encode_counts(const std::uint32_t *numbers, std::uint32_t *encoded) {
  for (int i = 0; i < chunk_numbers; i++) encoded[i] = numbers[i] - 1;
}

void encode_differences(const std::uint32_t *numbers, std::uint32_t *encoded) {
  encoded[0] = 0;
  for (int i = 1; i < chunk_numbers; i++) {
    const std::uint32_t difference = numbers[i] - numbers[i - 1];
    encoded[i] = (difference << 1) ^ (std::uint32_t(0) - (difference >> 31));
  }
}

template <class Encode>
std::int64_t pack_all(const std::uint32_t *numbers, std::int64_t size, std::uint32_t *words, std::int64_t *edges,
                      std::uint32_t *starts, Encode encode) {
  for (std::int64_t left = size; left > 0; left -= chunk_numbers, numbers += chunk_numbers, edges++) {
    std::uint32_t padded[chunk_numbers], encoded[chunk_numbers];
    if (left < chunk_numbers) {  // BPCells repeats the last number
      for (int i = 0; i < chunk_numbers; i++) padded[i] = numbers[i < left ? i : left - 1];
    }
    const std::uint32_t *chunk = left < chunk_numbers ? padded : numbers;
    if (starts) *starts++ = chunk[0];
    encode(chunk, encoded);
    pack_chunk(chunk, encoded, words, edges);
  }
  return *edges;
}

std::int64_t pack_counts(const std::uint32_t *numbers, std::int64_t size, std::uint32_t *words, std::int64_t *edges) {
  return pack_all(numbers, size, words, edges, nullptr, encode_counts);
}

std::int64_t pack_differences(const std::uint32_t *numbers, std::int64_t size, std::uint32_t *words,
                              std::int64_t *edges, std::uint32_t *starts) {
  return pack_all(numbers, size, words, edges, starts, encode_differences);
}

}  // namespace

template <>
Bitpacking BitpackingTables<ISA>::functions() {
  return {counts, floats, differences, pack_counts, pack_differences};
}

}  // namespace shiftsvd
