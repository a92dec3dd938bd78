"""What products with sparse rows cost: where rows are cut into blocks, and the memory that they take beside panels."""

from itertools import pairwise
from typing import Any

import numpy as np

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.full_lines import Entries
from shiftsvd.kernels.sums import HELD
from shiftsvd.kernels.twin import CSR
from shiftsvd.runs.memory import spare

# Entries of a block: enough to keep a thread busy for a few milliseconds.
ENTRIES = 2**19
# Entries of a block for each column, by which sums of panels take a tenth of the time of products.
SUMS = 64
# Bytes of one panel that stays in the cache of a core beside another.
PANEL_CACHE = 2**20
# Bytes of an accumulator on the columns: more of them are done a few columns of the panel at a time.
ACCUMULATOR = 2**24
# Bytes for each entry of a block whose full lines are shifted: it, its place, and those beside it.
SHIFTED = 64


def blocks_of(X: CSR) -> list[Rows]:
    m, n = X.shape
    # Eight at least, or four where sums, of which each block has one as long as a row, take more than products.
    entries = max(min(ENTRIES, X.nnz // 8), SUMS * n)
    entries = max(min(entries, X.nnz // 4), ENTRIES // 16)
    edges = np.searchsorted(X.indptr, np.arange(entries, X.nnz, entries)).tolist()
    return list(pairwise(sorted({0, m, *edges})))


def columns_at_once(n: int) -> int:
    return max(16, ACCUMULATOR // (8 * n))


def single_pays(dtype: np.dtype[Any], shape: tuple[int, int]) -> bool:
    return dtype.kind == "f" and (dtype.itemsize == 4 or 128 * min(shape) > PANEL_CACHE)


def pairs(X: CSR) -> float:
    return float(np.sum(np.diff(X.indptr).astype(np.float64) ** 2) / 2)


def bytes_of_blocks(inside: Entries, dtype: np.dtype[Any], blocks: list[Rows], n_threads: int) -> int:
    if inside.ready is not None:
        return 0
    largest = max(int(inside.X.indptr[hi] - inside.X.indptr[lo]) for lo, hi in blocks)
    return (n_threads + 1) * (dtype.itemsize if inside.full is None else SHIFTED) * largest


def bytes_the_other_way(inside: Entries) -> int:
    X = inside.X
    size = X.dtype.itemsize if inside.full is None else inside.dtype.itemsize
    return int(X.nnz * (size + 2 * X.indices.itemsize) + 8 * X.shape[1])


def bytes_of_sums(inside: Entries, n_threads: int) -> int:
    return (n_threads + 3 + HELD) * max(ACCUMULATOR, 16 * 8 * int(inside.X.shape[1]))


def is_copied(inside: Entries, n_threads: int, memory_limit: int | str | None) -> bool:
    size = bytes_the_other_way(inside)
    return spare(size, memory_limit) or size < bytes_of_sums(inside, n_threads)


def bytes_beside(inside: Entries, n_threads: int, memory_limit: int | str | None) -> int:
    if is_copied(inside, n_threads, memory_limit):
        return bytes_the_other_way(inside)
    return bytes_of_sums(inside, n_threads)
