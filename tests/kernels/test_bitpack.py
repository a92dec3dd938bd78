"""Packed integers: the compiled kernels and their twin give back what was packed, and never leave the words."""

from typing import Any

import numpy as np
import pytest

from shiftsvd.kernels import best, twin

KERNELS = list({id(each): each for each in (best, twin)}.values())


def unpacked(kernels: Any, packed: twin.Packed, first: int, out: np.ndarray) -> np.ndarray:
    if len(packed.starts):
        kernels.unpack_differences(packed.words, packed.edges, packed.starts, first, out)
    else:
        kernels.unpack_counts(packed.words, packed.edges, first, out)
    return out


@pytest.mark.parametrize("differences", [False, True])
@pytest.mark.parametrize("size", [1, 127, 128, 300])
def test_unpacking_gives_what_was_packed(size, differences):
    rng = np.random.default_rng(size)
    for bits in range(33):
        numbers = rng.integers(0, 2**bits, size, np.uint64).astype(np.uint32)
        one, other = best.pack(numbers, differences), twin.pack(numbers, differences)
        for part, its_twin in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, its_twin)
        for kernels in KERNELS:
            for first in range(0, min(size, 128), 41):
                out = unpacked(kernels, one, first, np.empty(size - first, np.uint32))
                np.testing.assert_array_equal(out, numbers[first:])


def test_counts_below_2_to_24_are_exact_as_floats():
    numbers = np.array([1, 2**24, 2**24 - 1, 5], np.uint32)
    packed = best.pack(numbers, False)
    for kernels in KERNELS:
        np.testing.assert_array_equal(unpacked(kernels, packed, 0, np.empty(4, np.float32)), numbers)
        with pytest.raises(ValueError, match="wrong number of words"):
            unpacked(kernels, best.pack(numbers + 2**24, False), 0, np.empty(4, np.float32))


# Edges of chunks of 40 words, the number of the first integer, and how many are asked for.
WRONG: dict[str, tuple[list[int], int, int]] = {
    "beyond the words": ([0, 44], 0, 128),
    "before the words": ([-4, 8], 0, 128),
    "far": ([0, 2**62], 0, 128),
    "far and back": ([0, 2**63 - 1, 8], 0, 128),
    "decreasing": ([8, 4], 0, 128),
    "of parts of a bit": ([0, 6], 0, 128),
    "too many bits": ([0, 132], 0, 128),
    "more integers than chunks": ([0, 40], 0, 129),
    "an integer before the chunks": ([0, 40], -1, 10),
    "after the first chunk": ([0, 20, 40], 128, 10),
    "no chunk": ([0], 0, 1),
}


@pytest.mark.parametrize("case", WRONG)
def test_chunks_that_lead_out_are_refused(case):
    edges, first, size = WRONG[case]
    words = np.zeros(40 if case != "too many bits" else 200, np.uint32)
    packed = twin.Packed(words, np.array(edges), np.empty(0, np.uint32))
    starts = np.zeros(len(edges) - 1, np.uint32)
    for kernels in KERNELS:
        for each in (packed, packed._replace(starts=starts)):
            with pytest.raises(ValueError):
                unpacked(kernels, each, first, np.empty(size, np.uint32))
