"""Sources of rows: the interface of files that are fitted without being loaded, and several files as one matrix."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.validation import numeric_array, sound_places, sound_structure
from shiftsvd.kernels.twin import CSR, csr_of, take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.panels import Vector
from shiftsvd.numerics.powers import part_of, times, times_sparse

# Bytes of rows of several files that are stacked at once.
AT_ONCE = 2**25


class RowSource(ABC):
    """Matrix in a file, whose rows several threads read in ranges."""

    # Files are not trusted: `backends.files.rows_operator` validates every block before it is multiplied.

    shape: tuple[int, int]
    dtype: np.dtype[Any]  # type of the numbers in the file
    sparse: bool  # `read` returns a csr_array if True, else a 2-D array
    name: str  # name in error messages, such as counts.h5ad:X
    fingerprint: str  # identifies the data by path, size and modification time
    unstackable = ""  # reason why files of other samples cannot be stacked below this one; empty if they can
    copies = 2  # copies of a block in memory while it is read: encoded and decoded
    rewrite = "Write it once in chunks of fewer rows with shiftsvd convert."  # remedy for chunks of too many rows
    largest_block = sys.maxsize  # bytes beyond which larger blocks are no faster to read
    is_copied = False  # whether it reads a temporary copy, so that changes of the file do not matter
    readers = 1  # threads that wait for the file while the others multiply; 0 if decoding takes all the time

    @cached_property
    def stored(self) -> int:  # numbers that one pass reads
        return self.shape[0] * self.shape[1]

    @property
    def chunk_rows(self) -> int:
        """Rows that the file compresses together."""
        return 1

    def decoding_bytes(self, readers: int) -> int:
        return 0

    def with_nan(self) -> "RowSource":
        """Return the same source with NaN for each missing entry, also if `read` imputes missing entries."""
        return self

    def check_unchanged(self) -> None:
        """Raise OSError if a file or folder was changed after it was opened, as far as the source can tell."""
        return

    @abstractmethod
    def edges(self, n_bytes: int) -> list[int]:
        """Return row numbers from 0 to m that cut the rows into ranges of about `n_bytes` bytes in memory.

        The cuts depend on the file and `n_bytes` alone. Cut a chunked file at the ends of its chunks, so that a pass
        reads each chunk once.
        """

    @abstractmethod
    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        """Read rows lo to hi into memory (no memory map), shape ``(hi - lo, n)``.

        Raise ValueError if the file is damaged or truncated; the message begins with `name`.
        """

    def place(self, row: int) -> tuple[str, int]:
        return self.name, row


def rows_of(source: RowSource, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
    X = source.read(lo, hi)
    if X.shape != (hi - lo, source.shape[1]):
        raise ValueError(
            f"{source.name}: rows {lo} to {hi} have shape {X.shape}. The file is damaged. Write the file again."
        )
    return X


def inside_rows_of(source: RowSource, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
    X = rows_of(source, lo, hi)
    # Check the indices of a damaged file here: SciPy uses indices without checking them.
    if isinstance(X, csr_array) and X.nnz and not (0 <= X.indices.min() and X.indices.max() < X.shape[1]):
        raise outside(X, source.name, lo)
    return X


def outside(X: CSR, name: str, lo: int) -> ValueError:
    return ValueError(
        f"{name}: column indices of the rows from {lo} on must be in 0..{X.shape[1] - 1}, "
        f"got {X.indices.min()}..{X.indices.max()}. The file is damaged. Write it again."
    )


class Changed(RowSource):
    """Source that transforms the rows of another source; `how` is part of the fingerprint."""

    def __init__(self, source: RowSource, how: str) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.sparse, self.stored, self.name = source.sparse, source.stored, source.name
        self.copies, self.largest_block, self.readers = source.copies, source.largest_block, source.readers
        self._how = how

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return f"{self.source.fingerprint} {self._how}".rstrip()  # `how` is empty if the rows are the same

    def decoding_bytes(self, readers: int) -> int:
        return self.source.decoding_bytes(readers)

    def edges(self, n_bytes: int) -> list[int]:
        return self.source.edges(n_bytes)

    def place(self, row: int) -> tuple[str, int]:
        return self.source.place(row)

    def check_unchanged(self) -> None:
        self.source.check_unchanged()


class Multiplied(Changed):
    """Source of ``diag(2^rows) X diag(2^cols)`` for a matrix X in a file."""

    def __init__(self, source: RowSource, rows: Vector | int, cols: Vector | int) -> None:
        super().__init__(source, f"times {told((rows, cols))}")
        self.rows, self.cols = rows, cols
        self.dtype = source.dtype if source.dtype.kind in "fc" else np.dtype(np.float64)

    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        X, rows = self.source.read(lo, hi), part_of(self.rows, slice(lo, hi))
        if X.shape != (hi - lo, self.shape[1]):
            return X
        out = times_sparse(X, rows, self.cols) if isinstance(X, csr_array) else times(X, rows, self.cols)
        return out.astype(self.dtype, copy=False)  # type: ignore[no-any-return]


class Conjugated(Changed):
    """The complex conjugate of a source."""

    def __init__(self, source: RowSource) -> None:
        super().__init__(source, "conjugated")

    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        return self.source.read(lo, hi).conj()


class Turned(Changed):
    """The transpose of a source as if it were stored: has its costs, and no rows to read."""

    def __init__(self, source: RowSource) -> None:
        super().__init__(source, "transposed")
        self.shape = source.shape[::-1]

    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        raise NotImplementedError


class InMemory(RowSource):
    """Source of a matrix in memory."""

    def __init__(self, X: Any, name: str = "the matrix") -> None:
        self.X, self.shape, self.dtype, self.name = X, X.shape, X.dtype, name
        self.sparse = isinstance(X, csr_array)
        self.stored = int(X.nnz) if self.sparse else X.shape[0] * X.shape[1]

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return told(self.X)

    def edges(self, n_bytes: int) -> list[int]:
        return [0, *(hi for _, hi in cut(self.shape[0], n_bytes * self.shape[0] // bytes_of(self)))]

    def read(self, lo: int, hi: int) -> Any:
        if not self.sparse:
            return self.X[lo:hi]
        X = take_rows(self.X, lo, hi)  # in a container of its own, whose flags and data may be replaced
        return csr_of(X.data, X.indices, X.indptr, X.shape)


class HeldRows(InMemory):
    """Source of a matrix whose format cannot be read in parts, to be stacked with matrices in files."""

    def __init__(self, matrix: Any, name: str) -> None:
        X = _sound_rows(matrix) if issparse(matrix) else numeric_array(matrix)
        super().__init__(X, name)

    @property
    def H(self) -> "HeldRows":
        return HeldRows(self.X.conj().T, self.name)


def _sound_rows(matrix: Any) -> CSR:
    if matrix.format in ("csr", "csc"):
        sound_structure(matrix)
    sound_places(matrix)
    X: CSR = csr_array(matrix)
    X.sum_duplicates()
    return X


class Stacked(RowSource):
    """Several sources as one: sparse if any of them is, with NumPy's result type of their types."""

    def __init__(self, parts: list[RowSource], how: str) -> None:
        self.parts, self._how = parts, how
        self.sparse, self.stored = any(part.sparse for part in parts), sum(part.stored for part in parts)
        self.dtype = np.result_type(*(part.dtype for part in parts))
        if self.sparse and self.dtype == np.float16:  # SciPy has no sparse matrices of half precision
            self.dtype = np.dtype(np.float32)
        self.name = f"{parts[0].name} and {len(parts) - 1} more"
        self.largest_block = max(part.largest_block for part in parts)
        self.readers = max(part.readers for part in parts)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return f"{self._how} {' | '.join(part.fingerprint for part in self.parts)}"

    def decoding_bytes(self, readers: int) -> int:
        return max(part.decoding_bytes(readers) for part in self.parts)

    @abstractmethod
    def _range(self, lo: int, hi: int) -> Any: ...

    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        ranges = list(pairwise([lo, *(edge for edge in self._edges if lo < edge < hi), hi]))
        if len(ranges) == 1:
            return self._range(lo, hi)  # type: ignore[no-any-return]
        parts = (self._range(*rows) for rows in ranges)
        if self.sparse:
            return below(parts, (hi - lo, self.shape[1]), self.stored)
        X = np.empty((hi - lo, self.shape[1]), self.dtype)
        for (first, last), part in zip(ranges, parts, strict=True):
            X[first - lo : last - lo] = part
        return X

    @cached_property
    def _edges(self) -> list[int]:
        return self.edges(AT_ONCE)

    def _rows(self, part: RowSource, lo: int, hi: int) -> Any:
        X = inside_rows_of(part, lo, hi)
        kind = csr_array if self.sparse else np.asarray
        return kind(X.astype(self.dtype, copy=False))


class OnTop(Stacked):
    """Sources with equal numbers of columns, stacked vertically; blocks do not cross files."""

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
    """Sources with equal numbers of rows, stacked horizontally."""

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


def below(blocks: Iterable[CSR], shape: tuple[int, int], most: int) -> csr_array:
    # Rows of several matrices in one, with room for `most` entries from the start: nothing is held twice.
    index = np.int64 if max(most, shape[1]) > np.iinfo(np.int32).max else np.int32
    indices, ends, used = np.empty(most, index), [np.zeros(1, np.int64)], 0
    data = np.empty(0)
    for X in blocks:
        data = np.empty(most, X.dtype) if len(ends) == 1 else data
        last = used + len(X.data)
        data[used:last], indices[used:last] = X.data, X.indices
        ends.append(used + X.indptr[1:].astype(np.int64))
        used = last
    return csr_array((data[:used], indices[:used], np.concatenate(ends).astype(index)), shape=shape, copy=False)
