"""One dense matrix in every container, operators that count or forbid, and what every operator must satisfy."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

import shiftsvd as ss
from shiftsvd.algebra import generic as base
from shiftsvd.algebra.costs import Costs
from shiftsvd.algebra.generic import as_low_rank, column_blocks, registered, row_blocks, row_moments
from shiftsvd.backends import dense as array
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.numerics import orth
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import Probe

EPS = float(np.finfo(np.float64).eps)
Array = np.ndarray


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows in every loop that is cut into blocks."""
    monkeypatch.setattr(array, "BLOCK", 48)
    monkeypatch.setattr(SparseRows, "blocks", lambda self: cut(self.shape[0], 3 if self.shape[0] < 99 else 80))
    monkeypatch.setattr(orth, "ROWS", 5)
    monkeypatch.setattr(base, "QR_ENTRIES", 32)


class Loads:
    """Counts how often a chunk is loaded."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, chunk: Array) -> Array:
        self.n += 1
        return chunk


# --- matrices -------------------------------------------------------------------------------------------------

KINDS = ("tall", "wide", "square", "row", "column", "single", "empty lines", "zero")
_SHAPES = {
    "tall": (23, 7),
    "wide": (7, 23),
    "square": (9, 9),
    "row": (1, 8),
    "column": (8, 1),
    "single": (1, 1),
    "empty lines": (12, 6),
    "zero": (6, 4),
}


def values(shape: tuple[int, int], dtype: Any = np.float64, seed: int = 0, density: float = 0.6) -> Array:
    """A matrix of the given dtype, about `density` of whose entries are not 0."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    there = rng.random(shape) < density
    if dtype.kind == "b":
        return there
    if dtype.kind in "iu":
        return (rng.integers(0 if dtype.kind == "u" else -9, 10, shape) * there).astype(dtype)
    X = rng.standard_normal(shape)
    X = X + 1j * rng.standard_normal(shape) if dtype.kind == "c" else X
    return (X * there).astype(dtype)


def matrix(kind: str, dtype: Any = np.float64, seed: int = 0) -> Array:
    """A matrix of one of the `KINDS`."""
    D = values(_SHAPES[kind], dtype, seed)
    if kind == "zero":
        D[:] = 0
    if kind == "empty lines":
        D[[0, 4, 5, 11]] = 0
        D[:, [0, 3]] = 0
    return D


def decaying(shape: tuple[int, int], decay: float = 0.6, dtype: Any = np.float64, seed: int = 0) -> Array:
    """A dense matrix with singular values 1, decay, decay^2, ..."""
    return with_values(shape, decay ** np.arange(min(shape), dtype=float), dtype, seed)


def with_values(shape: tuple[int, int], S: Array, dtype: Any = np.float64, seed: int = 0) -> Array:
    """A dense matrix with these singular values and random singular vectors."""
    U, V = (
        np.linalg.qr(values((side, len(S)), np.result_type(dtype, np.float64), seed + 7 * i, 1.0))[0]
        for i, side in enumerate(shape)
    )
    return ((U * S) @ V.conj().T).astype(dtype)


def in_double(D: Array) -> Array:
    """The values as float64 or complex128."""
    return D.astype(np.complex128 if D.dtype.kind == "c" else np.float64)


# --- containers -----------------------------------------------------------------------------------------------


def _strided(D: Array) -> Array:
    big = np.zeros((2 * D.shape[0], 3 * D.shape[1]), D.dtype)
    big[::2, ::3] = D
    return big[::2, ::3]


def _backwards(D: Array) -> Array:
    return D[::-1, ::-1].copy()[::-1, ::-1]


def _read_only(D: Array) -> Array:
    X = D.copy()
    X.flags.writeable = False
    return X


def _memmap(order: str) -> Callable[[Array], Array]:
    def make(D: Array) -> Array:
        with tempfile.TemporaryFile() as file:
            X = np.memmap(file, D.dtype, "w+", shape=D.shape, order=order)
        X[:] = D
        return X

    return make


def compressed(cls: Any = sparse.csr_array, index: Any = np.int32) -> Callable[[Array], Any]:
    """A maker of CSR or CSC with the given container and index type."""

    def make(D: Array) -> Any:
        X = cls(D)
        X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
        return X

    return make


def _unsorted(cls: Any) -> Callable[[Array], Any]:
    def make(D: Array) -> Any:
        X = cls(D)
        for lo, hi in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            X.indices[lo:hi] = X.indices[lo:hi][::-1].copy()
            X.data[lo:hi] = X.data[lo:hi][::-1].copy()
        return cls((X.data, X.indices, X.indptr), shape=X.shape)

    return make


def _duplicates(cls: Any) -> Callable[[Array], Any]:
    def make(D: Array) -> Any:
        X = cls(D)
        return cls((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)

    return make


def _explicit_zeros(cls: Any) -> Callable[[Array], Any]:
    def make(D: Array) -> Any:
        i, j = np.nonzero((D != 0) | (np.add.outer(np.arange(D.shape[0]), np.arange(D.shape[1])) % 2 == 0))
        X = cls(sparse.coo_array((D[i, j], (i, j)), shape=D.shape))
        assert X.nnz == len(i)
        return X

    return make


def _longer_than_used(D: Array) -> Any:
    X = sparse.csr_array(D)
    junk = np.full(4, 1, X.indices.dtype)
    X.indices, X.data = np.concatenate([X.indices, junk * 99]), np.concatenate([X.data, junk.astype(X.dtype)])
    return X


def _coo_duplicates(D: Array) -> Any:
    X = sparse.coo_array(D)
    i, j = (np.concatenate([c, c[::-1]]) for c in X.coords)
    return sparse.coo_array((np.concatenate([X.data / 2, X.data[::-1] / 2]), (i, j)), shape=D.shape)


def _mixed_frame(frame: Callable[[dict[str, Array]], Any], kinds: str) -> Callable[[Array], Any]:
    def make(D: Array) -> Any:
        return frame({f"c{j}": D[:, j].astype(kinds[j % len(kinds)]) for j in range(D.shape[1])})

    return make


def _half_sparse_frame(D: Array) -> Any:
    return pd.DataFrame(
        {j: pd.arrays.SparseArray(D[:, j], fill_value=0) if j % 2 else D[:, j] for j in range(D.shape[1])}
    )


class Held(RowSource):
    """A matrix in memory that is handed out a few rows at a time, and counts how often."""

    def __init__(self, X: Any, rows: int = 9) -> None:
        self.X, self.rows, self.n_reads = X, rows, 0
        self.shape, self.dtype, self.sparse = X.shape, X.dtype, sparse.issparse(X)
        self.stored = X.nnz if self.sparse else X.size
        self.name, self.fingerprint = "held", f"{X.shape} {X.sum()}"

    def edges(self, n_bytes: int) -> list[int]:
        return [*range(0, self.shape[0], self.rows), self.shape[0]]

    def read(self, lo: int, hi: int) -> Any:
        self.n_reads += 1
        return self.X[lo:hi].copy()


def streamed(kind: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """A maker of matrices that are read in blocks."""
    return lambda D: DiskRows(Held(kind(D)), n_threads=1)


class Duck:
    """An object with the four attributes that make a matrix, and nothing else."""

    def __init__(self, D: Array) -> None:
        self.D, self.shape, self.dtype = D, D.shape, D.dtype

    def matmat(self, V: Array) -> Array:
        return self.D @ V

    def rmatmat(self, W: Array) -> Array:
        return self.D.conj().T @ W


class Minimal(ss.Operator):
    """The least that an operator of one's own needs."""

    def __init__(self, D: Array) -> None:
        self.D, self.shape, self.dtype = D, D.shape, D.dtype

    def matmat(self, V: Array) -> Array:
        return self.D @ V

    def rmatmat(self, W: Array) -> Array:
        return self.D.conj().T @ W


@dataclass(frozen=True)
class Container:
    """A way to hold a matrix: the dtype of its numbers, and how it is made of a dense array of them."""

    dtype: Any
    make: Callable[[Array], Any]


def _containers() -> dict[str, Container]:
    f8, c16 = np.float64, np.complex128
    table = {
        "fortran": Container(f8, np.asfortranarray),
        "fortran complex": Container(c16, np.asfortranarray),
        "strided": Container(f8, _strided),
        "strided float32": Container(np.float32, _strided),
        "backwards": Container(f8, _backwards),
        "read-only": Container(f8, _read_only),
        "memmap": Container(f8, _memmap("C")),
        "memmap fortran float32": Container(np.float32, _memmap("F")),
        "memmap int16": Container(np.int16, _memmap("C")),
        "list": Container(f8, Array.tolist),
        "list of ints": Container(np.int64, Array.tolist),
        "objects": Container(f8, lambda D: D.astype(object)),
        "objects complex": Container(c16, lambda D: D.astype(object)),
        "objects int": Container(np.int64, lambda D: D.astype(object)),
        "coo": Container(f8, sparse.coo_array),
        "coo matrix": Container(f8, sparse.coo_matrix),
        "coo duplicates": Container(f8, _coo_duplicates),
        "lil": Container(f8, sparse.lil_array),
        "bsr": Container(f8, sparse.bsr_array),
        "dok": Container(f8, sparse.dok_array),
        "dia": Container(f8, sparse.dia_array),
        "dia complex": Container(c16, sparse.dia_array),
        "pandas": Container(f8, pd.DataFrame),
        "pandas mixed": Container(np.int8, _mixed_frame(pd.DataFrame, "fdbh")),
        "pandas nullable": Container(f8, lambda D: pd.DataFrame(D).astype("Float64")),
        "pandas nullable int": Container(np.int64, lambda D: pd.DataFrame(D).astype("Int64")),
        "pandas sparse": Container(f8, lambda D: pd.DataFrame.sparse.from_spmatrix(sparse.csr_array(D))),
        "pandas half sparse": Container(f8, _half_sparse_frame),
        "polars": Container(f8, lambda D: pl.DataFrame({f"c{j}": D[:, j] for j in range(D.shape[1])})),
        "polars mixed": Container(np.int8, _mixed_frame(pl.DataFrame, "fdbh")),
        "csr longer than used": Container(f8, _longer_than_used),
        "streamed csr": Container(f8, streamed(sparse.csr_array)),
        "streamed csr float32": Container(np.float32, streamed(sparse.csr_array)),
        "streamed csr complex": Container(c16, streamed(sparse.csr_array)),
        "streamed csr int8": Container(np.int8, streamed(sparse.csr_array)),
        "streamed csr unsorted": Container(f8, streamed(_unsorted(sparse.csr_array))),
        "streamed dense": Container(f8, streamed(np.ndarray.copy)),
        "streamed dense float32": Container(np.float32, streamed(np.ndarray.copy)),
        "streamed dense int16": Container(np.int16, streamed(np.ndarray.copy)),
    }
    reals = ["float32", "float64", "longdouble", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)), "bool"]
    for name in ["float16", *reals, "complex64", "complex128", "clongdouble", ">f8", ">c16", ">i4"]:
        table[f"array {name}"] = Container(np.dtype(name), np.ndarray.copy)
    for name in [*reals, "complex64", "complex128"]:
        table[f"csr {name}"] = Container(np.dtype(name), compressed())
        table[f"csc {name}"] = Container(np.dtype(name), compressed(sparse.csc_array))
    for cls in (sparse.csr_array, sparse.csc_array):
        fmt = cls.__name__[:3]
        table |= {
            f"{fmt} int64 indices": Container(f8, compressed(cls, np.int64)),
            f"{fmt} unsorted": Container(f8, _unsorted(cls)),
            f"{fmt} duplicates": Container(f8, _duplicates(cls)),
            f"{fmt} explicit zeros": Container(f8, _explicit_zeros(cls)),
            f"{fmt} unsorted complex": Container(c16, _unsorted(cls)),
        }
    table["csr matrix"] = Container(f8, compressed(sparse.csr_matrix))
    table["csc matrix"] = Container(f8, compressed(sparse.csc_matrix))
    for name, make in (("linear operator", aslinearoperator), ("duck", Duck), ("minimal", Minimal)):
        for dtype in ("float32", "float64", "complex64", "complex128"):
            table[f"{name} {dtype}"] = Container(np.dtype(dtype), make)
    table["linear operator int32"] = Container(np.int32, aslinearoperator)
    table["duck bool"] = Container(np.bool_, Duck)
    return table


CONTAINERS = _containers()
# One of each family and precision, for tests that need not see every spelling.
FEW = (
    "array float32",
    "array float64",
    "array complex64",
    "array complex128",
    "array int16",
    "array bool",
    "fortran",
    "csr float32",
    "csr float64",
    "csr complex128",
    "csr int32",
    "csc float64",
    "csc complex64",
    "duck float64",
    "minimal complex128",
    "linear operator float32",
    "memmap",
    "streamed csr float32",
    "streamed dense",
)


def content(X: Any) -> list[bytes]:
    """Every byte that a container holds."""
    if sparse.issparse(X):
        names = {
            "csr": "data indices indptr",
            "csc": "data indices indptr",
            "bsr": "data indices indptr",
            "coo": "data row col",
            "dia": "data offsets",
            "lil": "data rows",
        }
        if X.format == "dok":
            return [repr(sorted(X.items())).encode()]
        parts = [getattr(X, name) for name in names[X.format].split()]
        return [repr(p.tolist()).encode() if p.dtype == object else p.tobytes() for p in parts]
    if isinstance(X, Duck | Minimal):
        return [X.D.tobytes()]
    if isinstance(X, DiskRows):
        return content(X.source.X)
    if isinstance(X, pd.DataFrame | pl.DataFrame):
        return [np.asarray(X.to_numpy(), float).tobytes()]
    if hasattr(X, "matmat"):
        return [X.A.tobytes()]
    return [repr(X).encode()] if isinstance(X, list) else [X.tobytes()]


# --- operators that watch -------------------------------------------------------------------------------------


@registered
@dataclass(eq=False)
class Counting(ss.Operator):
    """An operator that counts how often the data are read."""

    A: Any
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.A = ss.as_operator(self.A)
        self.shape, self.dtype = self.A.shape, self.A.dtype

    @property
    def reads(self) -> int:
        return len(self.calls)

    def _read(self, name: str, *args: Any) -> Any:
        self.calls.append(name)
        return getattr(self.A, name)(*args)

    def matmat(self, V: Array) -> Array:
        return self._read("matmat", V)

    def rmatmat(self, W: Array) -> Array:
        return self._read("rmatmat", W)

    @property
    def costs(self) -> Costs:
        return Costs.of(self, gram_reads=1)

    def gram(self, V: Array, weights: Array | None = None) -> Array:
        return self._read("gram", V, weights)

    def row_blocks(self, rows: int) -> Any:
        return self._read("row_blocks", rows)

    def column_blocks(self, columns: int) -> Any:
        return self._read("column_blocks", columns)

    def mix(self, Omega: Any) -> Array:
        return self._read("mix", Omega)


# --- what every operator satisfies ----------------------------------------------------------------------------


def assert_close(got: Any, want: Any, bound: float, what: str = "") -> None:
    """The Frobenius distance is at most `bound`; shapes agree."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert np.isfinite(got).all(), f"{what}: not finite"
    distance = np.linalg.norm((got - want).ravel().astype(complex))
    assert distance <= bound, f"{what}: off by {distance:.2e}, more than {bound:.2e}"


def assert_is(A: ss.Operator, D: Array, size: float, seed: int = 0) -> None:
    """A is the matrix D in everything an operator can do.

    `size` is the sum of the norms of what A was computed from: every bound is 20 eps of it, times the panel.
    """
    assert A.shape == D.shape
    assert A.costs.eps <= np.finfo(A.dtype).eps
    for B, E in ((A, D), (A.H, D.conj().T)):
        _products(B, E, size, seed)
        _moments(B, E, size, seed + 1)
        _squares(B, E, size, seed + 2)
        _blocks(B, E, size)
    assert_close(A.H.H @ np.eye(D.shape[1]), D, 20 * A.costs.eps * max(size, 1) * D.shape[1], "A.H.H")


def panel(rows: int, columns: int, dtype: Any = np.float64, seed: int = 0) -> Array:
    return values((rows, columns), dtype, seed, density=1.0)


def _products(A: ss.Operator, D: Array, size: float, seed: int) -> None:
    (m, n), tol = D.shape, 20 * A.costs.eps * size
    for dtype in (np.float64, np.complex128):
        V, W = panel(n, 3, dtype, seed), panel(m, 2, dtype, seed + 1)
        v, w = np.linalg.norm(V), np.linalg.norm(W)
        assert_close(A.matmat(V), D @ V, tol * v, "matmat")
        assert_close(A @ V, D @ V, tol * v, "@ panel")
        assert_close(A @ V[:, 0], D @ V[:, 0], tol * v, "@ vector")
        assert_close(A.rmatmat(W), D.conj().T @ W, tol * w, "rmatmat")
        assert_close(A.H @ W, D.conj().T @ W, tol * w, "H")
        assert_close(A.gram(V), D.conj().T @ (D @ V), 3 * tol * size * v, "gram")
    ell = max(1, n // 2)
    Omega = ss.sketch.SRFT().draw(n, ell, np.random.default_rng(seed))
    found = ss.sketch.SRFT().apply(A, ell, np.random.default_rng(seed))
    assert_close(found, D @ Omega, tol * np.linalg.norm(Omega), "mix")


def _moments(A: ss.Operator, D: Array, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = D.shape
    for w, u in (
        (None, None),
        (rng.random(m), rng.random(n)),
        (rng.integers(0, 3, m) + (np.arange(m) == 0.0), rng.integers(0, 3, n) + (np.arange(n) == 0.0)),
    ):
        for moments, E, weights in ((A.moments(w), D, w), (row_moments(A, u), D.T, u)):
            weights = np.ones(len(E)) if weights is None else weights
            eps = A.costs.eps if moments.M2 is None else EPS
            mean = weights @ E / weights.sum()
            assert moments.count == pytest.approx(weights.sum(), rel=len(E) * EPS)
            assert_close(moments.mean, mean, 20 * eps * size, "mean")
            assert moments.mean.dtype in (np.float64, np.complex128)
            if moments.M2 is not None:
                M2 = weights @ np.abs(E - mean) ** 2
                assert_close(moments.M2, M2, 20 * EPS * size**2 * weights.max(), "M2")
                assert moments.M2.dtype == np.float64


def _squares(A: ss.Operator, D: Array, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = D.shape
    for w, u in ((np.ones(m), np.ones(n)), (rng.random(m), rng.random(n))):
        for found, want in ((A.column_squares(w), w @ np.abs(D) ** 2), (A.row_squares(u), np.abs(D) ** 2 @ u)):
            if found is not None:
                assert_close(found, want, 20 * EPS * size**2, "squares")
    for plain, weighted in (
        (A.column_squares(), A.column_squares(np.ones(m))),
        (A.row_squares(), A.row_squares(np.ones(n))),
    ):
        assert (plain is None) == (weighted is None)
        if plain is not None:
            assert_close(plain, weighted, 20 * EPS * size**2, "weights of one")
    norm = A.frobenius_norm()
    if norm is not None:
        assert isinstance(norm, float)
        assert_close(norm**2, np.linalg.norm(D) ** 2, 20 * EPS * size**2, "Frobenius norm")


def _blocks(A: ss.Operator, D: Array, size: float) -> None:
    for rows in (1, 4, 10**6):
        for found, E, eps in (
            (row_blocks(A, rows), D, _block_eps(A, rows=True)),
            (column_blocks(A, rows), D.conj().T, _block_eps(A, rows=False)),
        ):
            next_row, parts = 0, []
            for first, block in found:
                assert first == next_row
                assert block.dtype in (np.float64, np.complex128)
                next_row += len(block)
                parts.append(block)
            assert_close(np.vstack(parts), E, 20 * eps * size, "blocks")


def _block_eps(A: ss.Operator, rows: bool) -> float:
    """Blocks are made in double; where an operator knows none they are products with the identity."""
    if isinstance(A, ss.operators.Shifted) and as_low_rank(A.S) is None:
        return A.costs.eps
    if isinstance(A, ss.operators.Adjoint | ss.operators.Scaled | ss.operators.Shifted):
        return _block_eps(A.A, rows != isinstance(A, ss.operators.Adjoint))
    return EPS if rows or not isinstance(A, DenseRows) else A.costs.eps


# --- subspaces ------------------------------------------------------------------------------------------------


def assert_orthonormal(Q: Array, eps: float = EPS) -> None:
    """Q^H Q = I to rounding."""
    k = Q.shape[1]
    assert_close(Q.conj().T @ Q, np.eye(k), 50 * eps * np.sqrt(k * len(Q)), "Q^H Q - I")


def angle(P: Array, Q: Array) -> float:
    """Sine of the largest angle between the spans of two sets of orthonormal columns of equal number."""
    return float(np.linalg.norm(Q - P @ (P.conj().T @ Q), 2))


def assert_same_span(Y: Array, Z: Array, bound: float) -> None:
    """Both spans are one, to `bound`."""
    assert angle(np.linalg.qr(Y)[0], np.linalg.qr(Z)[0]) <= bound


# --- probes ---------------------------------------------------------------------------------------------------


def probe(
    basis: Basis,
    product: Callable[[Array], Array],
    columns: int,
    probability: float,
    noise: float,
    done: Callable[[float, float], bool],
) -> float:
    """A probe that goes on until ``done(level, top)``, or the space is at its end; gives the last level."""
    found = Probe(basis, columns, probability, noise)
    while True:
        found.take(product(found.block))
        if basis.width == 0 or done(found.level, found.top):
            break
    found.end()
    return found.level
