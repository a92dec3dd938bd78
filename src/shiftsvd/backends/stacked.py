"""Several matrices as one: sources of rows on top of each other, or side by side."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.source import RowSource, inside_rows_of
from shiftsvd.backends.validation import numeric_array, sound_places, sound_structure
from shiftsvd.numerics.digests import told

# Bytes of the rows that are put together at once where all of them are wanted.
AT_ONCE = 2**25


class HeldRows(RowSource):
    """A matrix in memory, of a format that cannot be read in parts, beside others that stay in their files."""

    def __init__(self, matrix: Any, name: str) -> None:
        self.name, self.sparse = name, bool(issparse(matrix))
        if not self.sparse:
            self.X: Any = numeric_array(matrix)
        else:
            if matrix.format in ("csr", "csc"):
                sound_structure(matrix)
            sound_places(matrix)
            self.X = csr_array(matrix)
            self.X.sum_duplicates()
        self.shape, self.dtype = self.X.shape, self.X.dtype
        self.stored = int(self.X.nnz if self.sparse else self.X.size)

    @property
    def H(self) -> "HeldRows":
        return HeldRows(self.X.conj().T, self.name)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return told(self.X)

    def edges(self, n_bytes: int) -> list[int]:
        rows = n_bytes * self.shape[0] // max(1, bytes_of(self))
        return [0, *(hi for _, hi in cut(self.shape[0], rows))]

    def read(self, lo: int, hi: int) -> Any:
        if not self.sparse:
            return self.X[lo:hi]
        first, last = self.X.indptr[lo], self.X.indptr[hi]
        arrays = self.X.data[first:last], self.X.indices[first:last], self.X.indptr[lo : hi + 1] - first
        return csr_array(arrays, shape=(hi - lo, self.shape[1]), copy=False)


class Stacked(RowSource):
    """Several sources as one; where some are sparse, all are read as sparse, and numbers as the type that holds all."""

    def __init__(self, parts: list[RowSource], how: str) -> None:
        self.parts, self._how = parts, how
        self.sparse, self.stored = any(part.sparse for part in parts), sum(part.stored for part in parts)
        self.dtype = np.result_type(*(part.dtype for part in parts))
        if self.sparse and self.dtype == np.float16:  # which SciPy's sparse matrices have not
            self.dtype = np.dtype(np.float32)
        self.name = f"{parts[0].name} and {len(parts) - 1} more"

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return f"{self._how} {' | '.join(part.fingerprint for part in self.parts)}"

    def decoding_bytes(self, readers: int) -> int:
        return max(part.decoding_bytes(readers) for part in self.parts)

    @abstractmethod
    def _range(self, lo: int, hi: int) -> Any: ...

    def read(self, lo: int, hi: int) -> Any:
        cuts = [lo, *(edge for edge in self._edges if lo < edge < hi), hi]
        ranges = list(pairwise(cuts))
        if len(ranges) == 1:
            return self._range(lo, hi)
        if self.sparse:
            return _below((self._range(*rows) for rows in ranges), (hi - lo, self.shape[1]), self.dtype, self.stored)
        X = np.empty((hi - lo, self.shape[1]), self.dtype)
        for first, last in ranges:
            X[first - lo : last - lo] = self._range(first, last)
        return X

    @cached_property
    def _edges(self) -> list[int]:
        return self.edges(AT_ONCE)

    def _rows(self, part: RowSource, lo: int, hi: int) -> Any:
        X = inside_rows_of(part, lo, hi)
        kind = csr_array if self.sparse else np.asarray
        return kind(X.astype(self.dtype, copy=False))


class OnTop(Stacked):
    """Sources of as many columns, one below another; blocks end where files do."""

    def __init__(self, parts: list[RowSource]) -> None:
        super().__init__(parts, "on top of each other:")
        self._firsts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape = int(self._firsts[-1]), parts[0].shape[1]

    def edges(self, n_bytes: int) -> list[int]:
        ends = ((first, part.edges(n_bytes)[1:]) for first, part in zip(self._firsts, self.parts, strict=False))
        return [0, *(int(first) + edge for first, edges in ends for edge in edges)]

    def place(self, row: int) -> tuple[str, int]:
        part, first = self._part(row)
        return part.place(row - first)

    def _range(self, lo: int, hi: int) -> Any:
        part, first = self._part(lo)
        return self._rows(part, lo - first, hi - first)

    def _part(self, row: int) -> tuple[RowSource, int]:
        i = int(np.searchsorted(self._firsts, row, "right")) - 1
        return self.parts[i], int(self._firsts[i])


class SideBySide(Stacked):
    """Sources of as many rows, one beside another."""

    def __init__(self, parts: list[RowSource]) -> None:
        super().__init__(parts, "side by side:")
        if self.sparse:  # SciPy goes by coordinates: the parts, their rows, columns and values, and the block
            self.copies = 5
        self.shape = parts[0].shape[0], sum(part.shape[1] for part in parts)

    def edges(self, n_bytes: int) -> list[int]:
        sizes = [bytes_of(part) for part in self.parts]
        shares = (max(1, n_bytes * size // (2 * sum(sizes))) for size in sizes)
        cuts = [np.array(part.edges(share)) for part, share in zip(self.parts, shares, strict=True)]
        edges = [0]
        while edges[-1] < self.shape[0]:
            after = ((int(np.searchsorted(cut, edges[-1], "right")), cut) for cut in cuts)
            edges.append(min(int(cut[min(i + 1, len(cut) - 1)]) for i, cut in after))
        return edges

    def _range(self, lo: int, hi: int) -> Any:
        parts = [self._rows(part, lo, hi) for part in self.parts]
        return csr_array(hstack(parts, format="csr")) if self.sparse else np.concatenate(parts, axis=1)


def bytes_of(source: RowSource) -> int:
    return max(1, source.stored * (source.dtype.itemsize + 4 * source.sparse))


def _below(blocks: Iterable[csr_array], shape: Rows, dtype: np.dtype[Any], most: int) -> csr_array:
    index = np.int64 if max(most, shape[1]) > np.iinfo(np.int32).max else np.int32
    data, indices, ends = np.empty(most, dtype), np.empty(most, index), [np.zeros(1, np.int64)]
    used = 0
    for X in blocks:
        n_entries = len(X.data)
        data[used : used + n_entries], indices[used : used + n_entries] = X.data, X.indices
        ends.append(used + X.indptr[1:].astype(np.int64))
        used += n_entries
    indptr = np.concatenate(ends).astype(index)
    return csr_array((data[:used], indices[:used], indptr), shape=shape, copy=False)
