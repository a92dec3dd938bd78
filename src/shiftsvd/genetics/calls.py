"""One read of genotypes as whole numbers: how often each occurs, for every variant, and what every sample misses."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.genetics.several import Parts
from shiftsvd.io.formats.genotypes import Calls, Genotypes
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.runs.memory import Resources, parse_bytes

T = TypeVar("T")
Numbers = npt.NDArray[np.int64]

BLOCK: Final = 2**23  # genotypes of a block, a byte each; less where the limit is small
_LEAST, _SHARE = 2**18, 64  # of the limit: blocks in work are several, and what is made of one is larger


class CallCounts(NamedTuple):
    """How often variants have each genotype: counts of the first allele, 0 to 2, among those that are counted."""

    none: Numbers
    one: Numbers
    two: Numbers
    missing: Numbers  # among all samples

    @property
    def frequencies(self) -> npt.NDArray[np.float64]:
        known = self.none + self.one + self.two
        share: npt.NDArray[np.float64] = (self.one + 2 * self.two) / np.maximum(2 * known, 1)
        return share


def block_size(resources: Resources) -> int:
    if resources.memory_limit is None:
        return BLOCK
    return int(np.clip(parse_bytes(resources.memory_limit) // _SHARE, _LEAST, BLOCK))


def over_blocks(parts: Parts, of_block: Callable[[Calls], T], resources: Resources, expanded: int = 1) -> Iterator[T]:
    """What a function makes of the genotypes, block by block in the order of the variants; blocks end with files.

    A function that makes numbers of so many bytes (`expanded`) of each genotype has smaller blocks.
    """
    size = block_size(resources) // expanded
    rows = [(opened.matrix, lo, hi) for _, opened in parts for lo, hi in _ranges(opened.matrix, size)]

    def made(row: tuple[Genotypes, int, int]) -> T:
        source, lo, hi = row
        return of_block(source.calls(lo, hi))

    return ordered(made, rows, resources.n_threads or default_threads())


def _ranges(source: Genotypes, size: int) -> Iterator[tuple[int, int]]:
    return pairwise(source.edges(4 * size))  # which counts by numbers of four bytes


def calls_between(parts: Parts, lo: int, hi: int) -> Calls:
    blocks, first = [], 0
    for _, opened in parts:
        a, b = max(lo - first, 0), min(hi - first, opened.matrix.shape[0])
        if a < b:
            blocks.append(opened.matrix.calls(a, b))
        first += opened.matrix.shape[0]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def missing_by_sample(parts: Parts, resources: Resources) -> Numbers:
    found = over_blocks(parts, lambda G: np.count_nonzero(G < 0, axis=0), resources)
    total: Numbers = np.sum(list(found), axis=0, dtype=np.int64)
    return total


def call_counts(parts: Parts, founders: Mask, resources: Resources) -> CallCounts:
    def of_block(G: Calls) -> list[Numbers]:
        counted = G if founders.all() else G[:, founders]
        each = [np.count_nonzero(counted == value, axis=1) for value in range(3)]
        return [*each, np.count_nonzero(G < 0, axis=1)]

    blocks = list(over_blocks(parts, of_block, resources))
    return CallCounts(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
