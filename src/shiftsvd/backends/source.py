"""What a file must be able to do to be fitted without being loaded: hand out ranges of its rows."""

from abc import ABC, abstractmethod
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import part_of, times, times_sparse
from shiftsvd.runs.memory import parse_bytes

# Panels for data that are read again in each pass are at least this wide.
LEAST_COLUMNS = 32
# Where the memory does not allow these, at least so many: narrower blocks find next to nothing in a step.
FEWEST_COLUMNS = 8
# Columns that a run holds for each one of its panels: the basis, and copies of panels.
HELD = 40


class RowSource(ABC):
    """A matrix in a file, of which rows are read a range at a time, by several threads at once.

    What is read is not trusted: `backends.reread` checks every block before it multiplies.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the numbers in the file.
    sparse : bool
        Whether `read` gives a `csr_array` (else a 2-D array).
    stored : int
        How many numbers one pass reads: the stored entries of a sparse matrix, all of a dense one.
    name : str
        What an error message calls it, such as ``counts.h5ad:X``.
    fingerprint : str
        Tells these data from others: path, size, time of the last change.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    sparse: bool
    name: str
    fingerprint: str
    unstackable = ""  # why files of other samples cannot lie below this one; empty: they can
    copies = 2  # of a block in memory while it is read: as the file has it, and once more where it is decoded

    @cached_property
    def stored(self) -> int:
        return self.shape[0] * self.shape[1]

    def decoding_bytes(self, readers: int) -> int:
        return 0

    def with_nan(self) -> "RowSource":
        """The same rows, with NaN for each missing entry, also where `read` puts something else in its place."""
        return self

    @abstractmethod
    def edges(self, n_bytes: int) -> list[int]:
        """Ascending row numbers from 0 to m, cutting the rows into ranges of about so many bytes when read.

        They depend on the file and `n_bytes` alone. A file that is stored in chunks cuts where its chunks end, so
        that none is read twice in a pass.
        """

    @abstractmethod
    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        """Rows lo to hi, in memory (no memory map), of shape ``(hi - lo, n)``.

        Raises
        ------
        ValueError
            If the file is damaged or cut off; the message begins with `name`.
        """

    def place(self, row: int) -> tuple[str, int]:
        return self.name, row


def rows_of(source: RowSource, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
    X = source.read(lo, hi)
    if X.shape != (hi - lo, source.shape[1]):
        raise ValueError(f"{source.name}: rows {lo} to {hi} have shape {X.shape}; the file is damaged")
    return X


def inside_rows_of(source: RowSource, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
    X = rows_of(source, lo, hi)
    # SciPy does not look whether the indices of a damaged file stay inside before it counts by them.
    if isinstance(X, csr_array) and X.nnz and not (0 <= X.indices.min() and X.indices.max() < X.shape[1]):
        raise ValueError(
            f"{source.name}: column indices of the rows from {lo} on must be in 0..{X.shape[1] - 1}, "
            f"got {X.indices.min()}..{X.indices.max()}; the file is damaged"
        )
    return X


class Changed(RowSource):
    """A source whose rows are changed as they are read: as `source`, but for what its kinds say; `how` tells them."""

    def __init__(self, source: RowSource, how: str) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.sparse, self.stored, self.name = source.sparse, source.stored, source.name
        self.copies = source.copies
        self._how = how

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return f"{self.source.fingerprint} {self._how}"

    def decoding_bytes(self, readers: int) -> int:
        return self.source.decoding_bytes(readers)

    def edges(self, n_bytes: int) -> list[int]:
        return self.source.edges(n_bytes)

    def place(self, row: int) -> tuple[str, int]:
        return self.source.place(row)


class Multiplied(Changed):
    """``diag(2^rows) X diag(2^cols)`` of a matrix X in a file, multiplied as it is read."""

    def __init__(self, source: RowSource, rows: Vector | int, cols: Vector | int) -> None:
        powers = b"".join(np.asarray(e, np.int64).tobytes() for e in (rows, cols))
        super().__init__(source, f"times {sha256(powers).hexdigest()}")
        self.rows, self.cols = rows, cols
        self.dtype = source.dtype if source.dtype.kind in "fc" else np.dtype(np.float64)

    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        X, rows = self.source.read(lo, hi), part_of(self.rows, slice(lo, hi))
        if X.shape != (hi - lo, self.shape[1]):
            return X
        out = times_sparse(X, rows, self.cols) if isinstance(X, csr_array) else times(X, rows, self.cols)
        return out.astype(self.dtype, copy=False)  # type: ignore[no-any-return]


def wide_panels(
    shape: tuple[int, int], most: int, memory_limit: int | str | None, column_bytes: int = 0
) -> tuple[int, int]:
    """The fewest and the most columns of a panel, as long as the basis that they fill takes a part of the limit.

    Where a column takes `column_bytes` beside the basis, fewer than are quick: they take a quarter of the limit.
    """
    if memory_limit is None:
        return LEAST_COLUMNS, most
    limit = parse_bytes(memory_limit)
    room = int(np.clip(limit // (8 * HELD * min(shape)) // 16 * 16, LEAST_COLUMNS, most))
    if column_bytes:
        room = int(np.clip(limit // (4 * column_bytes), FEWEST_COLUMNS, room))
    return min(LEAST_COLUMNS, room), room
