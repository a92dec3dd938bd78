"""Matrices that are read again for every product: what files and Dask arrays share, whoever reads their blocks."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.algebra import generic
from shiftsvd.backends.blocked import PIECE, Blocked, Rows
from shiftsvd.backends.dense import DenseRows, native_dtype
from shiftsvd.backends.source import wide_panels
from shiftsvd.backends.sparse import FULL, SparseRows
from shiftsvd.backends.validation import NotFinite, finite_dense, finite_sparse, inspected
from shiftsvd.events import read_part
from shiftsvd.kernels import best
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Mixer, Operator, Panel, field_of, panel_dtype
from shiftsvd.runs import checkpoints
from shiftsvd.runs.memory import parse_bytes

# Bytes of a Lanczos basis on the long side that are allowed of data that are smaller; and the share of a memory limit.
LONG, LONG_SHARE = 2**28, 4

Panels = tuple[Any, ...]  # what a read multiplies by; None for one that is not there
Merge = Callable[[Any, Any], Any]  # what the parts of two blocks are together


@generic.registered
class Reread(Blocked):
    """A matrix that is not in memory minus its shift: each read makes operators of its blocks, which multiply.

    What a block gives is named: a method of its operator, or one of `OURS`. A subclass says how the parts of all
    blocks are added, and how they are handed out one after another; everything else is made of those two. What
    is added is kept in the journal.
    """

    memo: dict[str, Any]  # of the stored matrix; whoever makes it may say what a read would tell
    memory_limit: int | str | None
    most_columns: ClassVar[int]  # of a panel, where the memory allows them

    @property
    @abstractmethod
    def data(self) -> Any: ...

    @property
    @abstractmethod
    def sparse(self) -> bool: ...

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...

    @abstractmethod
    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any: ...

    @abstractmethod
    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]: ...

    @abstractmethod
    def _block(self, rows: Rows) -> Operator: ...

    def __post_init__(self) -> None:
        parts = () if self.shift is None else (self.shift.L, self.shift.R)
        dtype = field_of(native_dtype(self.data.dtype), *parts)
        vars(self).update(shape=tuple(map(int, self.data.shape)), dtype=dtype)

    @property
    @abstractmethod
    def stored(self) -> int: ...

    @property
    def adjoint_bytes(self) -> int:
        return 0

    def worth_keeping(self, columns: int) -> bool:
        return True

    def known_costs(self) -> dict[str, Any]:
        """The numbers, and where they are if they are sparse: all of it is loaded for every read.

        Products round as those of matrices in memory: sparse ones are made in double.
        """
        return {
            "eps": float(np.finfo(np.float64 if self.sparse else self.dtype).eps),
            "stored": self.stored,
            "file_bytes": int(self.stored * (self.data.dtype.itemsize + 4 * self.sparse)),
            "panel_columns": wide_panels(self.shape, self.most_columns, self.memory_limit, self.adjoint_bytes),
            "adjoint_bytes": self.adjoint_bytes,
            "long_bytes": self._long_bytes() if self.shape[0] < self.shape[1] else 0,
        }

    def _long_bytes(self) -> int:
        most = max(int(self.stored * (self.data.dtype.itemsize + 4 * self.sparse)), LONG)
        return most if self.memory_limit is None else min(most, parse_bytes(self.memory_limit) // LONG_SHARE)

    @property
    def counts(self) -> Vector:
        if "counts" not in self.memo:
            bare = self._replace_shift(None)
            self.memo["counts"] = self.once("counts", (), lambda: {"counts": bare._total("counts")})["counts"]
        counts: Vector = self.memo["counts"]
        return counts

    @property
    def full(self) -> Vector:
        return np.append(self.counts[:-1] > FULL * self.shape[0], self.counts[-1] > 0)

    def matmat(self, V: Panel) -> Panel:
        return self._panel("matmat", V)

    def matmat_in_double(self, V: Panel) -> Panel:
        return self._panel("matmat_in_double", V)

    def _panel(self, what: str, V: Panel) -> Panel:
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))
        for lo, part in self._rows(what, V):
            Y[lo : lo + len(part)] = part
        return Y

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self._rows("matmat", V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.once("rmatmat", (W,), lambda: {"Z": self._total("rmatmat", own=(W,))})["Z"]

    def rmatmat_in_double(self, W: Panel) -> Panel:
        read = lambda: {"Z": self._total("rmatmat_in_double", own=(W,))}  # noqa: E731
        return self.once("rmatmat_in_double", (W,), read)["Z"]

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        read = lambda: {"Z": self._total("gram", (V,), (in_double(weights),))}  # noqa: E731
        return self.once("gram", (V, weights), read)["Z"]

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        read = lambda: {"G": self._total("gram_matrix", own=(in_double(weights),))}  # noqa: E731
        return self.once("gram_matrix", (weights,), read)["G"]

    def triangle(self, weights: Vector | None = None) -> Panel:
        return self.once("triangle", (weights,), lambda: {"R": generic.by_blocks(self, weights)})["R"]

    def adjoint_triangle(self, weights: Vector | None = None) -> Panel:
        return self.once("adjoint_triangle", (weights,), lambda: {"R": generic.by_blocks(self.H, weights)})["R"]

    def moments(self, weights: Vector | None = None) -> Moments:
        if self.shift is not None and self.sparse:
            return self.mean_alone(weights)

        def read() -> checkpoints.Record:
            found, counts = self._total("moments", own=(in_double(weights),), merge=merged)
            return {"count": np.array(found.count), "mean": found.mean, "M2": found.M2, "stored": counts}

        record = self.once("moments", (weights,), read)
        moments = Moments(float(record["count"]), record["mean"], record["M2"])
        if self.sparse:
            self.memo["counts"] = record["stored"]
        if weights is None and self.shift is None:
            self.memo["columns"] = moments
        return moments

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return self._block(rows).moments(weights)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        if self.shift is not None and self.sparse:
            return generic.row_means(self, weights)
        parts = [part for _, part in self._rows("row_moments", in_double(weights))]
        mean, M2 = (np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "M2"))
        return Moments(parts[0].count, mean, M2)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return generic.row_moments(self._block(rows), weights)

    def column_squares(self, weights: Vector | None = None) -> Vector:
        known = self.known_squares() if weights is None else None
        if known is not None:
            return known
        read = lambda: {"squares": self._total("column_squares", own=(in_double(weights),))}  # noqa: E731
        return self.once("squares", (weights,), read)["squares"]

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector:
        read = lambda: {"squares": self._total("squares_beyond", (V, W), (in_double(weights),))}  # noqa: E731
        return self.once("beyond", (V, W, weights), read)["squares"]

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        for lo, piece in generic.row_blocks(self._block(rows), max(1, PIECE // self.shape[1])):
            yield rows[0] + lo, piece

    def row_squares(self, weights: Vector | None = None) -> Vector:
        return self._joined("row_squares", in_double(weights))

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self._joined("exponents", axis)
        return np.asarray(self._total("exponents", (axis,), merge=np.maximum))

    def mix(self, Omega: Mixer) -> Panel:
        return self._joined("mix", Omega)

    def _joined(self, what: str, *panels: Any) -> Panel:
        return np.concatenate([part for _, part in self._rows(what, *panels)])

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        blocks = self.blocks()
        for block in blocks:
            A = self._block(block)
            read_part(1 / len(blocks))
            for first, part in generic.row_blocks(A, rows):
                yield block[0] + first, part

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        yield 0, np.concatenate([block for _, block in self.row_blocks(self.shape[0])]).conj().T

    @abstractmethod
    def _replace_shift(self, shift: LowRank | None) -> "Reread": ...


def rows_operator(X: Any, shift: LowRank | None, full: Vector | None, name: str, lo: int, room: int) -> Operator:
    """Rows from `lo` on of the matrix of this name, checked, with their shift, as an operator in memory.

    `full` is the mask of its full columns, if they are known; `room` the bytes that the operator may take for itself.
    """
    if not isinstance(X, csr_array):
        _check(finite_dense, X, name, lo)
        return DenseRows(X, shift)
    shifted_inside = shift is not None and full is not None and bool(full.any())
    columns = None if shift is None or full is None else full[:-1]
    return SparseRows(
        _sound(X, shifted_inside, name, lo), shift, memory_limit=room, full_columns=columns, is_block=True
    )


def _sound(X: csr_array, shifted_inside: bool, name: str, lo: int) -> csr_array:
    # Small integers are exact in single precision, where products are faster; shifted full lines would not be.
    small = X.dtype.kind in "iub" and X.dtype.itemsize <= 2 and not shifted_inside
    X.data = np.ascontiguousarray(X.data, np.float32 if small else native_dtype(X.dtype))
    kernels = best.inspect(X, (0, X.shape[0])) if X.data.dtype.char in "fd" else None
    least, largest = kernels[2:4] if kernels else _range(X.indices)
    if X.nnz and (least < 0 or largest >= X.shape[1]):
        raise ValueError(
            f"{name}: column indices of the rows from {lo} on must be in 0..{X.shape[1] - 1}, "
            f"got {least}..{largest}; the file is damaged"
        )
    finite, ordered_rows = (kernels[:2] == (0, 0), kernels[4]) if kernels else inspected(X, 1)
    if not finite:
        _check(finite_sparse, X, name, lo)
    X.has_canonical_format = ordered_rows
    if not ordered_rows:
        X.sum_duplicates()
    return X


def _check(check: Callable[[Any], None], X: Any, name: str, lo: int) -> None:
    try:
        check(X)
    except NotFinite as error:
        places, counts = error.found.rows
        where = f"{name}, rows {lo} to {lo + X.shape[0]}: "
        raise error.but(where=where, rows=np.stack([lo + places, counts])) from None


def _range(indices: Vector) -> tuple[int, int]:
    return (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)


def in_double(weights: Vector | None) -> Vector | None:
    return None if weights is None else np.asarray(weights, np.float64)


def block_part(what: str, A: Operator, *panels: Any) -> Any:
    return (OURS.get(what) or getattr(type(A), what))(A, *panels)


def _counts(A: Operator) -> Vector:
    if not isinstance(A, SparseRows):
        return np.zeros(A.shape[1] + 1, np.int64)
    columns = best.column_counts(A.X, (0, A.shape[0]))
    return np.append(columns, np.count_nonzero(np.diff(A.X.indptr) > FULL * A.shape[1]))


def _moments(A: Operator, weights: Vector | None) -> tuple[Moments, Vector]:
    return A.moments(weights), _counts(A)


def _digest(A: Operator) -> bytes:
    return told(A.X).encode()  # type: ignore[attr-defined]


def _least(A: Operator) -> float:
    numbers = A.X.data if isinstance(A, SparseRows) else A.X  # type: ignore[attr-defined]
    return float(numbers.min(initial=0))


OURS: dict[str, Callable[..., Any]] = generic.FUNCTIONS | {
    "counts": _counts,
    "moments": _moments,
    "digest": _digest,
    "least": _least,
}


def merged(a: tuple[Moments, Vector], b: tuple[Moments, Vector]) -> tuple[Moments, Vector]:
    return a[0].merge(b[0]), a[1] + b[1]
