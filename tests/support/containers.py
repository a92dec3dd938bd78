"""One dense matrix in every container."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import RowSource
from tests.support.matrices import Array
from tests.support.operators import Minimal


class Loads:
    """Counts how often a chunk is loaded."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, chunk: Array) -> Array:
        self.n += 1
        return chunk


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
    """A matrix in memory that is handed out a few rows at a time, and counts how often a block is read.

    A look at a few rows of a block, which is no part of a pass, is not counted.
    """

    def __init__(self, X: Any, rows: int = 9) -> None:
        self.X, self.rows, self.n_reads = X, rows, 0
        self.shape, self.dtype, self.sparse = X.shape, X.dtype, sparse.issparse(X)
        self.stored = X.nnz if self.sparse else X.size
        self.name, self.fingerprint = "held", f"{X.shape} {X.sum()}"

    def edges(self, n_bytes: int) -> list[int]:
        return [*range(0, self.shape[0], self.rows), self.shape[0]]

    def read(self, lo: int, hi: int) -> Any:
        self.n_reads += (lo, hi) in pairwise(self.edges(0))
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
