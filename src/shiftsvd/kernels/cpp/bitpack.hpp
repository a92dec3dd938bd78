// Interface of the kernels for the bit-packed integers of BPCells, which are compiled for each instruction set.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace shiftsvd {

// Numbers of a chunk, which have the same number of bits; and the words of 32 bits of a chunk for each such bit.
constexpr std::int64_t chunk_numbers = 128, words_per_bit = 4;

// Chunk i is words[edges[i]] to words[edges[i + 1]]. The caller has checked that these are inside of the words, and
// have at most 32 bits for each number.
struct Chunks {
  const std::uint32_t *words;
  const std::int64_t *edges;
  std::int64_t count;
};

struct Bitpacking {
  // Writes `size` numbers from number `first` of the chunks on. A number is one more than its bits if these are fewer
  // than 32.
  void (*counts)(Chunks, std::int64_t first, std::int64_t size, std::uint32_t *out);
  // The same numbers as floats. The bits must be fewer than 25.
  void (*floats)(Chunks, std::int64_t first, std::int64_t size, float *out);
  // A number is the sum of the start of its chunk and of the differences up to it, whose signs are in the last bits. If
  // there are 32 bits, they are those of the number.
  void (*differences)(Chunks, const std::uint32_t *starts, std::int64_t first, std::int64_t size, std::uint32_t *out);
  // Packs numbers, of which the last one fills the last chunk, and returns the number of words. `edges` begins with 0.
  std::int64_t (*pack_counts)(const std::uint32_t *numbers, std::int64_t size, std::uint32_t *words,
                              std::int64_t *edges);
  std::int64_t (*pack_differences)(const std::uint32_t *numbers, std::int64_t size, std::uint32_t *words,
                                   std::int64_t *edges, std::uint32_t *starts);
};

template <class Isa>
struct BitpackingTables {
  static Bitpacking functions();
};

}  // namespace shiftsvd
