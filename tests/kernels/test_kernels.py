"""The compiled kernels: what SciPy computes, on every instruction set, for every block, and on sound matrices alone."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from shiftsvd import kernels
from shiftsvd.backends import sparse
from shiftsvd.kernels import twin
from shiftsvd.kernels.groups import LINE, Groups, grouped, spans, widths, zeros
from tests.support.closeness import assert_close
from tests.support.matrices import Array, values
from tests.support.operators import panel
from tests.support.sampling import pairs

_compiled = pytest.importorskip(
    "shiftsvd.kernels._compiled", reason="the compiled kernels were not built", exc_type=ImportError
)
from shiftsvd.kernels import compiled

WIDTHS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 50, 100)
INDICES = (np.int32, np.int64)
# (data, panel): all that the products are compiled for.
PRECISIONS = {"single": ("f4", "f4"), "mixed": ("f4", "f8"), "double": ("f8", "f8")}
quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
products = pytest.mark.parametrize("precision", PRECISIONS)
index_types = pytest.mark.parametrize("index", INDICES, ids=lambda index: index.__name__)
data_types = pytest.mark.parametrize("dtype", ["f4", "f8"])


# --- matrices -------------------------------------------------------------------------------------------------


def _huge_row() -> Array:
    D = np.zeros((40, 600))
    D[17] = values((600,), seed=1, density=0.9)
    return D


def _without(D: Array, rows: Any, columns: Any) -> Array:
    D[rows], D[:, columns] = 0, 0
    return D


# A dense matrix, and the ranges of its rows that are looked at.
STRUCTURES: dict[str, tuple[Array, list[tuple[int, int]]]] = {
    "plain": (values((37, 23), seed=2, density=0.4), [(0, 37), (0, 11), (9, 30), (36, 37)]),
    "empty rows": (_without(values((30, 12), seed=3), [0, 1, 7, 8, 9, 29], []), [(0, 30), (1, 9), (7, 10), (28, 30)]),
    "empty columns": (_without(values((30, 12), seed=4), [], [0, 5, 6, 11]), [(0, 30), (3, 28)]),
    "no entries": (np.zeros((9, 5)), [(0, 9), (3, 6)]),
    "one huge row": (_huge_row(), [(0, 40), (17, 18), (10, 17), (18, 40)]),
    "one full row": (_without(values((14, 9), seed=5, density=1.0), [*range(6), *range(7, 14)], []), [(0, 14), (6, 8)]),
    "full": (values((20, 15), seed=6, density=1.0), [(0, 20), (7, 8), (2, 19)]),
    "single column": (values((25, 1), seed=7), [(0, 25), (4, 21)]),
    "single row": (values((1, 25), seed=8), [(0, 1)]),
}
structures = pytest.mark.parametrize("structure", STRUCTURES)


def csr(D: Array, index: Any = np.int32) -> Any:
    """D in CSR with this type of indices; SciPy's constructor would narrow them."""
    X = csr_array(D)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def cases(structure: str, dtype: Any, index: Any) -> list[tuple[Any, tuple[int, int], Array]]:
    """(matrix, range of rows, those rows in double precision)."""
    D, ranges = STRUCTURES[structure]
    X = csr(D.astype(dtype), index)
    return [(X, (lo, hi), X.toarray().astype(float)[lo:hi]) for lo, hi in ranges]


def assert_no_padding(groups: Groups) -> None:
    """The columns that only fill a group are zeros."""
    for part, where in zip(groups.parts, groups.columns(), strict=True):
        assert not part[:, where.stop - where.start :].any()


def steps(D: Array) -> int:
    """Roundings of a sum over any row or column of D, twice: once for each of two computations of it."""
    there = D != 0
    return 2 * (4 + int(max(there.sum(axis=0).max(initial=0), there.sum(axis=1).max(initial=0))))


# --- the products ---------------------------------------------------------------------------------------------


@structures
@products
@index_types
def test_compiled_gather_is_the_twins(structure, precision, index):
    data, dtype = PRECISIONS[precision]
    for X, rows, D in cases(structure, data, index):
        for width in WIDTHS:
            V = panel(X.shape[1], width, dtype, seed=width)
            around = np.full((len(D) + 2, width + 5), np.nan, dtype)
            Y, Z = around[1:-1, 2 : width + 2], np.empty((len(D), width), dtype)
            compiled.gather(X, rows, compiled.panel(V, dtype), Y)
            twin.gather(X, rows, twin.panel(V, dtype), Z)
            bound = steps(D) * np.finfo(dtype).eps * np.linalg.norm(np.abs(D) @ np.abs(V))
            assert_close(Y, Z, bound, f"width {width}, rows {rows}")
            assert np.isnan(around).sum() == around.size - Y.size, "wrote outside of the panel"


@structures
@products
@index_types
def test_compiled_scatter_is_the_twins(structure, precision, index):
    data, dtype = PRECISIONS[precision]
    for X, rows, D in cases(structure, data, index):
        for width in WIDTHS:
            W = panel(len(D), width, dtype, seed=width)
            Z = compiled.scatter(X, rows, W, dtype)
            bound = steps(D) * np.finfo(dtype).eps * np.linalg.norm(np.abs(D).T @ np.abs(W))
            assert_close(Z.join(), twin.scatter(X, rows, W, dtype).join(), bound, f"width {width}, rows {rows}")
            assert Z.flat.dtype == dtype
            assert_no_padding(Z)


@pytest.mark.parametrize(
    ("structure", "precision", "index", "weighted", "rank"),
    pairs(STRUCTURES, PRECISIONS, INDICES, [False, True], [0, 1, 3]),
)
def test_compiled_gram_is_the_twins(structure, precision, index, weighted, rank):
    data, dtype = PRECISIONS[precision]
    for X, rows, D in cases(structure, data, index):
        w = np.random.default_rng(1).random(len(D)) if weighted else None
        L = panel(len(D), rank, seed=2)
        for width in WIDTHS:
            V, C = panel(X.shape[1], width, dtype, seed=width), panel(rank, width, dtype, seed=3)
            Z, sums = compiled.gram(X, rows, compiled.panel(V, dtype), w, L, compiled.panel(C, dtype))
            want = twin.gram(X, rows, twin.panel(V, dtype), w, L, twin.panel(C, dtype))
            Y = np.abs(D) @ np.abs(V) + np.abs(L) @ np.abs(C)
            eps = np.finfo(dtype).eps * (2 * steps(D) + 4 * rank + 8)
            assert_close(Z.join(), want[0].join(), eps * np.linalg.norm(np.abs(D).T @ Y), f"width {width}, rows {rows}")
            eps = eps + 2 * len(D) * np.finfo(dtype).eps
            assert_close(sums.join(), want[1].join(), eps * np.linalg.norm(np.abs(L).T @ Y), "L^T Y")
            assert_no_padding(Z)
            assert_no_padding(sums)


@st.composite
def ranges(draw: Any) -> tuple[Array, int, int, int, int]:
    """(dense matrix, first row, one past the last, width, entries that are read before the next range)."""
    m, n = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    D = values((m, n), seed=draw(st.integers(0, 2**20)), density=density)
    lo = draw(st.integers(0, m - 1))
    return D, lo, draw(st.integers(lo + 1, m)), draw(st.integers(1, 70)), draw(st.sampled_from([1, 3, 17, 2**19]))


@quick
@given(ranges(), st.sampled_from(sorted(PRECISIONS)), st.sampled_from(INDICES), st.integers(0, 3))
def test_both_kernels_are_the_dense_products(case, precision, index, rank):
    D, lo, hi, width, entries = case
    data, dtype = PRECISIONS[precision]
    X = csr(D.astype(data), index)
    D = X.toarray().astype(float)[lo:hi]
    V, W = panel(D.shape[1], width, dtype, seed=1), panel(len(D), width, dtype, seed=2)
    L, C, w = panel(len(D), rank, seed=3), panel(rank, width, dtype, seed=4), np.random.default_rng(5).random(len(D))
    A, Y = np.abs(D), np.abs(D) @ np.abs(V) + np.abs(L) @ np.abs(C)
    eps = np.finfo(dtype).eps * (2 * steps(D) + 2 * len(D) + 4 * rank + 8)
    for kernel in (compiled, twin):
        with mock.patch.object(compiled, "ENTRIES", entries):
            P = np.empty((len(D), width), dtype)
            kernel.gather(X, (lo, hi), kernel.panel(V, dtype), P)
            assert_close(P, D @ V, eps * np.linalg.norm(A @ np.abs(V)), "gather")
            Z = kernel.scatter(X, (lo, hi), W, dtype).join()
            assert_close(Z, D.T @ W, eps * np.linalg.norm(A.T @ np.abs(W)), "scatter")
            Z, sums = kernel.gram(X, (lo, hi), kernel.panel(V, dtype), w, L, kernel.panel(C, dtype))
            E = w[:, None] * (D @ V - L @ C)
            assert_close(Z.join(), D.T @ E, eps * np.linalg.norm(A.T @ Y), "gram")
            assert_close(sums.join(), L.T @ E, eps * np.linalg.norm(np.abs(L).T @ Y), "sums of gram")


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda W: W[:, ::-1],
        lambda W: W[::-1],
        lambda W: np.repeat(np.repeat(W, 2, 0), 3, 1)[::2, ::3],
        lambda W: np.lib.stride_tricks.as_strided(W, writeable=False),
    ],
    ids=["fortran", "columns backwards", "rows backwards", "strided", "read-only"],
)
def test_scatter_takes_a_panel_in_any_layout(layout):
    X, W = csr(values((30, 12), seed=1)), layout(panel(30, 21, seed=2))
    found, want = compiled.scatter(X, (0, 30), W, np.float64).join(), X.toarray().T @ W
    assert_close(found, want, steps(X.toarray()) * EPS * np.linalg.norm(X.toarray()) * np.linalg.norm(W))


# --- the statistics -------------------------------------------------------------------------------------------

EPS = float(np.finfo(np.float64).eps)


def weights_of(length: int) -> list[Array | None]:
    """None, of any size, with many zeros, and all zero."""
    rng = np.random.default_rng(length)
    return [None, rng.random(length), rng.integers(0, 2, length).astype(float), np.zeros(length)]


def assert_same_moments(got: tuple[Array, Array], want: tuple[Array, Array], D: Array, w: Array | None) -> None:
    """Means and squares of the columns of D agree to rounding."""
    w = np.ones(len(D)) if w is None else w
    size = np.linalg.norm(w @ np.abs(D)) / max(w.sum(), 1e-300)
    assert_close(got[0], want[0], steps(D) * EPS * size, "mean")
    assert_close(got[1], want[1], 4 * steps(D) * EPS * np.linalg.norm(w @ np.abs(D) ** 2), "squares")


@structures
@data_types
@index_types
def test_compiled_moments_are_the_twins(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(len(D)):
            total = float(len(D)) if w is None else float(w.sum())
            found = compiled.moments(X, rows, w, total)
            assert_same_moments(found, twin.moments(X, rows, w, total), D, w)
            if total > 0:
                u = np.ones(len(D)) if w is None else w
                mean = u @ D / total
                assert_same_moments(found, (mean, u @ (D - mean) ** 2), D, w)


@structures
@data_types
@index_types
def test_compiled_row_moments_are_the_twins(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(X.shape[1]):
            total = float(X.shape[1]) if w is None else float(w.sum())
            found = compiled.row_moments(X, rows, w, total)
            assert_same_moments(found, twin.row_moments(X, rows, w, total), D.T, w)
            if total > 0:
                u = np.ones(X.shape[1]) if w is None else w
                mean = D @ u / total
                assert_same_moments(found, (mean, (D - mean[:, None]) ** 2 @ u), D.T, w)


@data_types
def test_a_constant_column_has_no_variance(dtype):
    X = csr(np.full((1000, 3), [0.1, 3e5, -7e-3]).astype(dtype))
    assert not compiled.moments(X, (0, 1000), None, 1000.0)[1].any()
    assert not compiled.row_moments(csr(X.toarray().T.copy()), (0, 3), None, 1000.0)[1].any()


@structures
@index_types
def test_compiled_column_counts_are_the_twins(structure, index):
    for X, rows, D in cases(structure, "f8", index):
        found = compiled.column_counts(X, rows)
        np.testing.assert_array_equal(found, twin.column_counts(X, rows))
        np.testing.assert_array_equal(found, (D != 0).sum(axis=0))


@pytest.mark.parametrize(("structure", "dtype", "index", "rank"), pairs(STRUCTURES, ["f4", "f8"], INDICES, [0, 1, 3]))
def test_compiled_column_squares_are_the_twins(structure, dtype, index, rank):
    for X, rows, D in cases(structure, dtype, index):
        L, R = panel(len(D), rank, seed=1), panel(X.shape[1], rank, seed=2)
        for w in weights_of(len(D)):
            found = compiled.column_squares(X, rows, w, L, R)
            u = np.ones(len(D)) if w is None else w
            shift = np.abs(L) @ np.abs(R).T
            bound = EPS * (steps(D) + 2 * rank) * np.linalg.norm(u @ (D**2 + 2 * np.abs(D) * shift))
            assert_close(found, twin.column_squares(X, rows, w, L, R), bound, f"rows {rows}")
            assert_close(found, u @ (D**2 - 2 * D * (L @ R.T)), bound, f"rows {rows}")


@structures
@data_types
@index_types
def test_compiled_outer_is_the_twins(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(len(D)):
            found = compiled.outer(X, rows, w)
            u = np.ones(len(D)) if w is None else w
            bound = EPS * steps(D) * np.linalg.norm((u[:, None] * np.abs(D)).T @ np.abs(D))
            assert_close(found, twin.outer(X, rows, w), bound, f"rows {rows}")
            assert_close(found, np.tril((u[:, None] * D).T @ D), bound, f"rows {rows}")
            assert not np.triu(found, 1).any()


@structures
@data_types
@index_types
def test_compiled_inspect_is_the_twins_on_sound_matrices(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        there = np.flatnonzero(D.any(axis=0))
        ends = (int(there[0]), int(there[-1])) if len(there) else (0, -1)
        assert compiled.inspect(X, rows) == twin.inspect(X, rows) == (0, 0, *ends, True)


@quick
@given(
    st.lists(st.lists(st.integers(-3, 30), max_size=6), min_size=1, max_size=8),
    st.sampled_from(INDICES),
    st.integers(0, 2**20),
)
@example([[3, 5], [], [4]], np.int32, 0)
@example([[-2]], np.int64, 0)
def test_compiled_inspect_is_the_twins_on_any_indices(lines, index, seed):
    indices = np.array([j for line in lines for j in line], index)
    data = np.random.default_rng(seed).choice([1.0, 0.0, np.nan, np.inf, -np.inf], len(indices))
    X = csr_array((len(lines), 31))
    X.indices, X.data = indices, data
    X.indptr = np.cumsum([0, *map(len, lines)]).astype(index)
    n_inf = int(np.isinf(data).sum())
    ordered = all(np.all(np.diff(line) > 0) for line in lines)
    ends = (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
    want = (int(np.isnan(data).sum()), n_inf, *ends, ordered)
    assert twin.inspect(X, (0, len(lines))) == want
    assert compiled.inspect(X, (0, len(lines))) == want


@pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "SciPy"])
@pytest.mark.parametrize("rows", [(0, 0), (3, 3), (6, 6)], ids=str)
def test_a_range_without_rows_adds_nothing(kernel, rows):
    X, V, none = csr(values((6, 5), seed=1)), panel(5, 3, seed=2), np.zeros((0, 3))
    kernel.gather(X, rows, kernel.panel(V, "f8"), none.copy())
    assert not kernel.scatter(X, rows, none, "f8").join().any()
    Z, sums = kernel.gram(X, rows, kernel.panel(V, "f8"), None, np.zeros((0, 1)), kernel.panel(panel(1, 3), "f8"))
    assert not Z.join().any()
    assert not sums.join().any()
    assert not np.any(kernel.moments(X, rows, None, 0.0))
    assert kernel.row_moments(X, rows, None, 5.0)[0].shape == (0,)
    assert not kernel.column_counts(X, rows).any()
    assert not kernel.column_squares(X, rows, np.zeros(0), np.zeros((0, 1)), panel(5, 1)).any()
    assert not kernel.outer(X, rows, None).any()
    assert kernel.inspect(X, rows) == (0, 0, 0, -1, True)


@data_types
def test_add_adds_in_double_precision(dtype):
    part, total = values((1001,), dtype, seed=1), values((1001,), seed=2)
    want = total + part
    compiled.add(part, total)
    np.testing.assert_array_equal(total, want)


LAYOUTS: dict[str, Any] = {
    "rows": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "every other row": lambda D: np.repeat(D, 2, 0)[::2],
    "some columns": lambda D: np.hstack([D, D])[:, : D.shape[1]],
    "backwards": lambda D: D[::-1, ::-1].copy()[::-1, ::-1],
    "rows backwards": lambda D: D[::-1].copy()[::-1],
    "records": lambda D: _records(D),
    "big-endian": lambda D: D.astype(D.dtype.newbyteorder(">")),
    "read-only": lambda D: np.broadcast_to(D, D.shape),
}


def _records(V: Array) -> Array:
    """V inside records, between whose rows lies a number of bytes that no double divides."""
    table = np.zeros(len(V), [("V", V.dtype, V.shape[1:]), ("flag", "i1")])
    table["V"] = V
    return table["V"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rank", [0, 1, 3])
@data_types
def test_compiled_subtract_is_the_twins(dtype, rank, layout):
    for shape in ((7, 1), (7, 2), (1, 255), (5, 256), (3, 257), (2, 700), (0, 4)):
        X = LAYOUTS[layout](values(shape, dtype, seed=1, density=1.0))
        L, Rt = panel(shape[0], rank, seed=2), panel(rank, shape[1], seed=3)
        found = compiled.subtract(X, L, Rt, np.dtype(dtype))
        # Both are rounded to the type of the data once, on either side of a value between two numbers of it.
        bound = (np.finfo(dtype).eps + 2 * (rank + 1) * EPS) * np.linalg.norm(np.abs(X) + np.abs(L) @ np.abs(Rt))
        assert_close(found, twin.subtract(X, L, Rt, np.dtype(dtype)), bound, f"shape {shape}")
        assert_close(found, X - L @ Rt, bound, f"shape {shape}")
        assert found.dtype == dtype


# --- panels ---------------------------------------------------------------------------------------------------


@quick
@given(st.integers(1, 600), st.sampled_from(["f4", "f8"]))
def test_groups_cover_every_column_once_with_at_most_a_third_of_padding(width, dtype):
    cut = widths(width, dtype)
    where = spans(cut, width)
    assert [j for span in where for j in range(span.start, span.stop)] == list(range(width))
    assert all(w & (w - 1) == 0 and 0 < w * np.dtype(dtype).itemsize <= _compiled.panel_bytes for w in cut)
    assert cut == sorted(cut, reverse=True)
    padding = [w - (span.stop - span.start) for w, span in zip(cut, where, strict=True)]
    assert not any(padding[:-1])
    assert 3 * padding[-1] <= cut[-1]


@quick
@given(st.integers(1, 9), st.integers(1, 100), st.sampled_from(["f4", "f8"]))
def test_a_cut_panel_is_the_panel_and_its_rows_cross_no_more_cache_lines_than_they_must(rows, width, dtype):
    V = panel(rows, width, dtype, seed=width)
    groups = grouped(V, dtype)
    np.testing.assert_array_equal(groups.join(), V)
    assert_no_padding(groups)
    assert not zeros(rows, width, dtype).flat.any()
    assert groups.flat.ctypes.data % LINE == 0
    assert groups.flat.size == sum(part.size for part in groups.parts)
    for part in groups.parts:
        assert part.flags.c_contiguous
        assert part.shape[0] == rows
        assert np.shares_memory(part, groups.flat)
        assert part.ctypes.data % min(LINE, part.shape[1] * part.itemsize) == 0
    copy = groups.empty_like(groups.flat.astype(np.float64))
    np.testing.assert_array_equal(copy.join(), V)


# --- operators ------------------------------------------------------------------------------------------------


def everything(A: Any, V: Array, W: Array, w: Array, u: Array) -> dict[str, Array]:
    """All that an operator computes by kernels, by name."""
    moments, rows = A.moments(w), A.row_moments(u)
    parts = {
        "matmat": A.matmat(V),
        "rmatmat": A.rmatmat(W),
        "gram": A.gram(V),
        "gram single": A.gram(V.astype(np.float32)),
        "gram weighted": A.gram(V, w),
        "gram matrix": A.gram_matrix(w),
        "mean": A.moments().mean,
        "weighted mean": moments.mean,
        "row mean": rows.mean,
        "column squares": A.column_squares(),
        "weighted column squares": A.column_squares(w),
    }
    squares = {"squares": moments.M2, "row squares": rows.M2}
    return parts | {name: M2 for name, M2 in squares.items() if M2 is not None}


def full_lines(dtype: Any) -> Array:
    D = values((400, 30), dtype, seed=5, density=0.2)
    D[:, 4] = values((400,), dtype, seed=6, density=1.0) + 2
    return D


OPERATORS = {
    "single": lambda: csr_array(values((400, 30), np.float32, seed=1, density=0.2)),
    "double": lambda: csr_array(values((400, 30), np.float64, seed=2, density=0.2)),
    "int16": lambda: csr_array(values((400, 30), np.int16, seed=3, density=0.2)),
    "full column": lambda: csr_array(full_lines(np.float64)),
    "full column single": lambda: csr_array(full_lines(np.float32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("kind", OPERATORS)
def test_every_number_of_threads_gives_the_same_bits_every_time(monkeypatch, kind, shifted):
    monkeypatch.setattr(sparse, "ENTRIES", 32)
    monkeypatch.setattr(sparse, "ACCUMULATOR", 1)
    monkeypatch.setattr(compiled, "ENTRIES", 8)
    before = sys.getswitchinterval()
    X, rng = OPERATORS[kind](), np.random.default_rng(1)
    panels = panel(30, 19, seed=1), panel(400, 19, seed=2), rng.random(400), rng.random(30)
    shift = ss.LowRank(panel(400, 2, seed=3), panel(30, 2, seed=4))
    first = None
    try:
        sys.setswitchinterval(1e-5)
        for n_threads in (1, 2, 3, 8):
            A = ss.as_operator(X, n_threads=n_threads)
            A = A - shift if shifted else A
            assert len(A.blocks()) >= 4
            with kernels.threads():
                for _ in range(20):
                    parts = everything(A, *panels)
                    first = first or parts
                    for name, part in parts.items():
                        assert part.tobytes() == first[name].tobytes(), f"{name} with {n_threads} threads"
    finally:
        sys.setswitchinterval(before)


def assert_multiplies_as(A: Any, D: Array, eps: float = EPS) -> None:
    """Everything is what it is of the dense matrix D, whose products lose eps."""
    (m, n), rng = D.shape, np.random.default_rng(1)
    V, W, w, u = panel(n, 5, seed=1), panel(m, 5, seed=2), rng.random(m), rng.random(n)
    size, tol = np.linalg.norm(D), steps(D) * eps * np.linalg.norm(D)
    found = everything(A, V, W, w, u)
    assert_close(found["matmat"], D @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(found["rmatmat"], D.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(found["gram"], D.T @ (D @ V), 2 * tol * size * np.linalg.norm(V), "gram")
    assert_close(found["gram weighted"], D.T @ (w[:, None] * (D @ V)), 2 * tol * size * np.linalg.norm(V), "weighted")
    assert_close(found["gram matrix"], D.T @ (w[:, None] * D), tol * size, "gram matrix")
    assert_close(found["mean"], D.mean(axis=0), tol, "mean")
    assert_close(found["row mean"], D @ u / u.sum(), tol, "row mean")
    assert_close(found["column squares"], (D**2).sum(axis=0), tol * size, "column squares")


@pytest.mark.parametrize("dtype", [f"{s}int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64)] + ["bool"])
def test_integers_multiply_as_doubles(monkeypatch, dtype):
    monkeypatch.setattr(sparse, "ENTRIES", 32)
    rng = np.random.default_rng(1)
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    D = rng.integers(*limits, (90, 14), dtype=np.uint8 if dtype == "bool" else dtype, endpoint=True)
    X = csr_array((D * (rng.random(D.shape) < 0.3)).astype(dtype))
    assert X.dtype == dtype
    A = ss.as_operator(X)
    assert A.dtype == np.float64
    assert_multiplies_as(A, X.toarray().astype(np.float64))


def test_half_precision_is_converted_to_single():
    X = csr_array(values((40, 9), np.float32, seed=1))
    X.data = X.data.astype(np.float16)
    A = ss.as_operator(X)
    assert A.dtype == np.float32
    D = np.zeros(X.shape)
    D[np.repeat(np.arange(40), np.diff(X.indptr)), X.indices] = X.data
    assert_multiplies_as(A, D)


# --- arrays as users have them --------------------------------------------------------------------------------


def _read_only(X: Any) -> None:
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False


def _strided(*names: str) -> Any:
    def change(X: Any) -> None:
        for name in names:
            setattr(X, name, np.repeat(getattr(X, name), 2)[::2])

    return change


def _typed(name: str, dtype: str) -> Any:
    def change(X: Any) -> None:
        setattr(X, name, getattr(X, name).astype(dtype))

    return change


def _unaligned(X: Any) -> None:
    raw = bytearray(X.data.nbytes + 1)
    data = np.ndarray(X.data.shape, X.data.dtype, raw, 1)
    data[:] = X.data
    X.data = data


ARRAYS = {
    "read-only": _read_only,
    "strided data": _strided("data"),
    "strided indices": _strided("indices"),
    "strided indptr": _strided("indptr"),
    "strided everything": _strided("data", "indices", "indptr"),
    "big-endian float32": _typed("data", ">f4"),
    "big-endian float64": _typed("data", ">f8"),
    "big-endian int32": _typed("data", ">i4"),
    "big-endian indices": _typed("indices", ">i4"),
    "big-endian indptr": _typed("indptr", ">i8"),
    "unsigned indices": _typed("indices", "u4"),
    "long indptr": _typed("indptr", "i8"),
    "unaligned": _unaligned,
}


@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("container", [csr_array, csc_array])
@pytest.mark.parametrize("how", ARRAYS)
def test_arrays_of_any_layout_and_byte_order_give_the_same_products(how, container, shifted):
    D = values((40, 9), np.int32, seed=1).astype(np.float64)
    X = container(D)
    ARRAYS[how](X)
    shift = ss.LowRank(panel(40, 1, seed=2), panel(9, 1, seed=3))
    A, V, W = ss.as_operator(X), panel(9, 3, seed=4), panel(40, 3, seed=5)
    A, D = (A - shift, D - shift.L @ shift.R.T) if shifted else (A, D)
    size = np.linalg.norm(D) + np.linalg.norm(shift.L) * np.linalg.norm(shift.R)
    tol = steps(D) * EPS * size
    assert_close(A @ V, D @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(A.H @ W, D.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(A.gram(V), D.T @ (D @ V), 2 * tol * size * np.linalg.norm(V), "gram")
    assert_close(A.moments().mean, D.mean(axis=0), tol, "mean")
    assert_close(A.column_squares(), (D**2).sum(axis=0), tol * size, "column squares")
    assert_close(A.row_squares(), (D**2).sum(axis=1), tol * size, "row squares")


PANELS = {
    "fortran": np.asfortranarray,
    "backwards": lambda V: V[::-1, ::-1].copy()[::-1, ::-1],
    "strided": lambda V: np.repeat(V, 2, 0)[::2],
    "big-endian": lambda V: V.astype(">f8"),
    "long double": lambda V: V.astype(np.longdouble),
    "records": _records,
    "no columns": lambda V: V[:, :0],
}


@pytest.mark.parametrize("how", PANELS)
@pytest.mark.parametrize("product", ["matmat", "rmatmat", "gram"])
def test_panels_of_any_layout_and_byte_order_give_the_same_products(product, how):
    D = values((40, 9), seed=1)
    A, V = ss.as_operator(csr_array(D)), PANELS[how](panel(40 if product == "rmatmat" else 9, 3, seed=2))
    want = {"matmat": lambda: D @ V, "rmatmat": lambda: D.T @ V, "gram": lambda: D.T @ (D @ V)}[product]()
    assert_close(getattr(A, product)(V), want, 2 * steps(D) * EPS * np.linalg.norm(D) ** 2 * np.linalg.norm(V))


VECTORS = {
    "strided": lambda w: np.repeat(w, 2)[::2],
    "big-endian": lambda w: w.astype(">f8"),
    "single": lambda w: w.astype("f4"),
    "long double": lambda w: w.astype(np.longdouble),
    "int": lambda w: (9 * w).astype(int),
    "bool": lambda w: w > 0.5,
}


@pytest.mark.parametrize("how", VECTORS)
def test_weights_of_any_layout_and_type_are_read(how):
    D, rng = values((40, 9), seed=1), np.random.default_rng(2)
    A, w, u = ss.as_operator(csr_array(D)), VECTORS[how](rng.random(40)), VECTORS[how](rng.random(9))
    V, size, tol = panel(9, 3, seed=3), np.linalg.norm(D), steps(D) * EPS * np.linalg.norm(D)
    v, wD = u.astype(float), w[:, None].astype(float) * D
    assert_close(A.moments(w).mean, wD.sum(axis=0) / w.astype(float).sum(), tol, "mean")
    assert_close(A.row_moments(u).mean, D @ v / v.sum(), tol, "row mean")
    scale = max(float(w.max()), 1.0)
    assert_close(A.column_squares(w), (wD * D).sum(axis=0), scale * tol * size, "column squares")
    assert_close(A.gram(V, w), wD.T @ (D @ V), 2 * scale * tol * size * np.linalg.norm(V), "gram")


@pytest.mark.parametrize("turned", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize("layout", LAYOUTS)
@data_types
def test_dense_rows_of_any_layout_and_byte_order_give_the_same_products(dtype, layout, turned):
    X = LAYOUTS[layout](values((40, 9), dtype, seed=1))
    L, R = panel(40, 1, seed=2), panel(9, 1, seed=3)
    A = ss.as_operator(X.T) - ss.LowRank(R, L) if turned else ss.as_operator(X) - ss.LowRank(L, R)
    A, E = A.H if turned else A, X.astype(float) - L @ R.T
    V, W = panel(9, 3, seed=4), panel(40, 3, seed=5)
    size = np.linalg.norm(X.astype(float)) + np.linalg.norm(L) * np.linalg.norm(R)
    tol = steps(E) * np.finfo(dtype).eps * size
    assert_close(A @ V, E @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(A.H @ W, E.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(A.gram(V), E.T @ (E @ V), 2 * tol * size * np.linalg.norm(V), "gram")


@pytest.mark.parametrize("container", [csr_array, np.asarray], ids=["csr", "array"])
@pytest.mark.parametrize("dtype", [">f8", "f4", "i8", "longdouble"])
def test_a_shift_of_any_type_is_subtracted(dtype, container):
    D, mu = values((40, 9), seed=1), np.arange(9).astype(dtype)
    A = ss.as_operator(container(D)) - ss.LowRank(np.ones(40, dtype), mu)
    E, V, W = D - mu.astype(float), panel(9, 3, seed=2), panel(40, 3, seed=3)
    size = np.linalg.norm(D) + np.sqrt(40) * np.linalg.norm(mu.astype(float))
    tol = steps(E) * EPS * size
    assert_close(A @ V, E @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(A.H @ W, E.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(A.gram(V), E.T @ (E @ V), 2 * tol * size * np.linalg.norm(V), "gram")
    assert_close(A.column_squares(), (E**2).sum(axis=0), tol * size, "column squares")


# --- nothing unsound reaches a kernel -------------------------------------------------------------------------


@st.composite
def mutations(draw: Any) -> tuple[Any, str]:
    """A sparse matrix of either format whose index arrays have been changed behind SciPy's back."""
    D = values((draw(st.integers(1, 9)), draw(st.integers(1, 9))), seed=draw(st.integers(0, 99)))
    X = draw(st.sampled_from([csr_array, csc_array]))(D)
    index = draw(st.sampled_from(INDICES))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    name = draw(st.sampled_from(["indptr", "indices"]))
    array = getattr(X, name).copy()
    how = draw(st.sampled_from(["put", "longer", "shorter", "swap", "shape", "type", "data"]))
    edge = st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31), X.shape[0], X.shape[1], X.nnz, X.nnz + 1, X.nnz - 1])
    if how in ("put", "swap") and len(array):
        i = draw(st.integers(0, len(array) - 1))
        array[i] = array[draw(st.integers(0, len(array) - 1))] if how == "swap" else draw(edge)
    elif how == "longer":
        array = np.append(array, draw(edge)).astype(index)
    elif how == "shorter":
        array = array[: -draw(st.integers(1, 2))]
    elif how == "shape":
        array = array[:, None]
    elif how == "type":
        array = array.astype(draw(st.sampled_from([float, complex, "U8", object])))
    elif how == "data":
        X.data = X.data[:-1] if draw(st.booleans()) else np.append(X.data, 1.0)
    setattr(X, name, array)
    return X, how


def soundness(X: Any) -> bool:
    """Whether the arrays say what a matrix is, by the definition of the format, one entry at a time."""
    lines, across = X.shape if X.format == "csr" else X.shape[::-1]
    for array in (X.indptr, X.indices):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            return False
    if X.data.ndim != 1:
        return False
    indptr, indices = X.indptr.tolist(), X.indices.tolist()
    if len(indptr) != lines + 1 or indptr[0] != 0 or indptr != sorted(indptr):
        return False
    n = indptr[-1]
    return n <= min(len(indices), len(X.data)) and all(0 <= j < across for j in indices[:n])


def dense_of(X: Any) -> Array:
    """The matrix that sound arrays mean."""
    lines, across = X.shape if X.format == "csr" else X.shape[::-1]
    D = np.zeros((lines, across))
    for i in range(lines):
        for k in range(X.indptr[i], X.indptr[i + 1]):
            D[i, X.indices[k]] += X.data[k]
    return D if X.format == "csr" else D.T


NAMES = ("gather", "scatter", "gram", "moments", "row_moments", "column_counts", "column_squares", "outer")


@dataclass
class Watch:
    """Kernels that refuse to work on an unsound matrix, and count what they worked on."""

    calls: list[str] = field(default_factory=list)

    def around(self, name: str, kernel: Any) -> Any:
        def watched(X: Any, *rest: Any) -> Any:
            assert soundness(X), f"{name} was given an unsound matrix"
            self.calls.append(name)
            return kernel(X, *rest)

        return watched


@settings(quick, max_examples=400)
@given(mutations())
def test_a_corrupt_matrix_is_refused_by_its_rule_and_reaches_no_kernel(mutation):
    X, _ = mutation
    watch = Watch()
    patches = {module: {n: watch.around(n, getattr(module, n)) for n in NAMES} for module in (compiled, twin)}
    with mock.patch.multiple(compiled, **patches[compiled]), mock.patch.multiple(twin, **patches[twin]):
        if not soundness(X):
            with pytest.raises(ValueError, match=rf"\Acorrupt {X.format.upper()} structure: "):
                ss.as_operator(X)
            assert not watch.calls
            return
        D = dense_of(X)
        A, V = ss.as_operator(X), panel(X.shape[1], 3, seed=1)
        tol = (steps(D) + 2 * len(X.indices)) * EPS * np.abs(X.data).sum()
        assert_close(A.matmat(V), D @ V, tol * np.linalg.norm(V))
        assert_close(A.gram(V), D.T @ (D @ V), tol * np.abs(X.data).sum() * np.linalg.norm(V))
        assert len(watch.calls) >= 2


def _call(name: str, X: Any, rows: tuple[int, int], **change: Any) -> Any:
    """A compiled function on X with sound arrays for these rows, some of them changed."""
    m, n = rows[1] - rows[0], X.shape[1]
    own: dict[str, dict[str, Any]] = {
        "gather": {"V": np.ones((n, 4)), "Y": np.empty((m, 4))},
        "scatter": {"W": np.ones((m, 4)), "Z": np.zeros((n, 4))},
        "gram": {
            "V": np.ones((n, 4)),
            "weights": None,
            "L": np.ones((m, 2)),
            "C": np.ones((2, 4)),
            "sums": np.zeros((2, 4)),
            "Z": np.zeros((n, 4)),
        },
        "moments": {"weights": None, "total": 1.0, "mean": np.empty(n), "squares": np.empty(n)},
        "row_moments": {"n": n, "weights": None, "total": 1.0, "mean": np.empty(m), "squares": np.empty(m)},
        "column_squares": {"weights": None, "L": np.ones((m, 2)), "R": np.ones((n, 2)), "squares": np.zeros(n)},
        "outer": {"weights": None, "G": np.zeros((n, n))},
        "inspect": {},
        "column_counts": {"counts": np.zeros(n, np.int64)},
    }
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "lo": rows[0], "hi": rows[1]}
    if name == "column_counts":
        del arrays["data"]
    return getattr(_compiled, name)(**{**arrays, **own[name], **change})


FUNCTIONS = ("gather", "scatter", "gram", "moments", "row_moments", "column_squares", "outer", "inspect")
functions = pytest.mark.parametrize("name", [*FUNCTIONS, "column_counts"])


@functions
@index_types
def test_rows_out_of_range_are_refused_by_the_kernel_itself(name, index):
    X = csr(values((6, 5), seed=1), index)
    _call(name, X, (1, 4))
    for change in ({"lo": -1}, {"lo": 5}, {"hi": 7}, {"hi": 2**40}, {"hi": -1}, {"lo": -(2**62)}):
        with pytest.raises(ValueError, match="rows out of range"):
            _call(name, X, (1, 4), **change)
    with pytest.raises(ValueError, match="rows out of range"):
        _call(name, X, (0, 0), indptr=np.zeros(0, index))


@functions
@index_types
def test_an_indptr_that_leaves_its_arrays_is_refused_by_the_kernel_itself(name, index):
    X = csr(values((6, 5), seed=1), index)
    for i, value, rule in ((0, -1, "decreases"), (0, X.nnz + 1, "decreases"), (6, X.nnz + 1, "too large")):
        indptr = X.indptr.copy()
        indptr[i] = value
        with pytest.raises(ValueError, match=rule):
            _call(name, X, (0, 6), indptr=indptr)
    with pytest.raises(ValueError, match="too large"):
        _call(name, X, (0, 6), indices=X.indices[:-1].copy())
    if name != "column_counts":
        with pytest.raises(ValueError, match="too large"):
            _call(name, X, (0, 6), data=X.data[:-1].copy())


SHAPES = {
    "gather": [{"V": (5, 3)}, {"V": (5, 32)}, {"V": (5, 0)}, {"Y": (2, 4)}, {"Y": (4, 4)}, {"Y": (3, 5)}],
    "scatter": [{"Z": (5, 3)}, {"Z": (5, 32)}, {"Z": (5, 0)}, {"W": (2, 4)}, {"W": (4, 4)}, {"W": (3, 5)}],
    "gram": [
        {"V": (5, 3), "Z": (5, 3), "C": (2, 3), "sums": (2, 3)},
        {"V": (4, 4)},
        {"Z": (4, 4)},
        {"Z": (5, 2)},
        {"L": (2, 2)},
        {"L": (3, 1)},
        {"C": (3, 4)},
        {"C": (2, 2)},
        {"sums": (1, 4)},
        {"sums": (2, 8)},
        {"weights": (2,)},
        {"weights": (6,)},
    ],
    "moments": [{"mean": (4,)}, {"squares": (6,)}, {"weights": (2,)}],
    "row_moments": [{"mean": (2,)}, {"squares": (4,)}, {"weights": (4,)}, {"weights": (6,)}],
    "column_squares": [{"L": (2, 2)}, {"L": (3, 1)}, {"R": (4, 2)}, {"squares": (4,)}, {"weights": (4,)}],
    "outer": [{"G": (5, 4)}, {"G": (4, 5)}, {"weights": (2,)}],
}


@pytest.mark.parametrize(
    ("name", "shapes"), [(name, s) for name, all_ in SHAPES.items() for s in all_], ids=lambda value: str(value)
)
def test_arrays_of_wrong_shape_are_refused_by_the_kernel_itself(name, shapes):
    X = csr(values((6, 5), seed=1))
    with pytest.raises(ValueError):
        _call(name, X, (1, 4), **{key: np.zeros(shape) for key, shape in shapes.items()})


@pytest.mark.parametrize(
    "shapes", [{"X": (3, 4)}, {"L": (2, 2)}, {"L": (3, 1)}, {"Rt": (1, 5)}, {"Rt": (2, 4)}, {"out": (3, 4)}], ids=str
)
def test_a_difference_of_wrong_shape_is_refused_by_the_kernel_itself(shapes):
    arrays = {"X": (3, 5), "L": (3, 2), "Rt": (2, 5), "out": (3, 5)}
    _compiled.subtract(**{name: np.zeros(shape) for name, shape in arrays.items()})
    with pytest.raises(ValueError):
        _compiled.subtract(**{name: np.zeros(shape) for name, shape in (arrays | shapes).items()})


def test_sums_of_different_length_are_not_added():
    with pytest.raises(ValueError, match="different length"):
        _compiled.add(np.zeros(4), np.zeros(5))


@functions
def test_arrays_of_wrong_type_or_layout_are_never_converted(name):
    X = csr(values((6, 5), seed=1))
    for change in (
        {"indices": X.indices.astype(np.int16)},
        {"indices": X.indices.astype(np.int64)},
        {"indptr": X.indptr.astype(np.int64)},
        {"indptr": np.repeat(X.indptr, 2)[::2]},
        {"indices": np.repeat(X.indices, 2)[::2]},
        {"data": X.data.astype(">f8")},
        {"data": X.data.astype(np.float16)},
        {"data": X.data.astype(complex)},
        {"data": X.data.astype(np.int64)},
        {"data": np.repeat(X.data, 2)[::2]},
    ):
        if "data" in change and name == "column_counts":
            continue
        with pytest.raises(TypeError, match="incompatible function arguments"):
            _call(name, X, (1, 4), **change)


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("gather", "Y"),
        ("scatter", "Z"),
        ("gram", "Z"),
        ("gram", "sums"),
        ("moments", "mean"),
        ("row_moments", "squares"),
        ("column_squares", "squares"),
        ("outer", "G"),
        ("column_counts", "counts"),
    ],
)
def test_a_result_that_cannot_be_written_is_refused(name, out):
    X = csr(values((6, 5), seed=1))
    shape = {"Y": (3, 4), "Z": (5, 4), "sums": (2, 4), "G": (5, 5), "mean": (5,), "counts": (5,)}.get(out)
    array = np.zeros(shape or (3 if name == "row_moments" else 5,), np.int64 if out == "counts" else np.float64)
    _call(name, X, (1, 4), **{out: array})
    array.flags.writeable = False
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _call(name, X, (1, 4), **{out: array})


# --- what runs them -------------------------------------------------------------------------------------------

FIT = """
import json, logging, sys

lines = []
class Listen(logging.Handler):
    def emit(self, record):
        lines.append((record.levelname, record.getMessage()))
logging.getLogger("shiftsvd").addHandler(Listen())

import numpy as np
import scipy.sparse as sp
MISSING
import shiftsvd as ss
from shiftsvd import kernels

X = sp.random_array((300, 60), density=0.1, format="csr", rng=np.random.default_rng(1))
X = X.multiply(0.8 ** np.arange(60)).tocsr()
A = ss.centered(X)
F = ss.svd(A, 5, rng=0)
V = np.cos(np.arange(60 * 21)).reshape(60, 21)
single = ss.as_operator(X.astype(np.float32)).gram(V.astype(np.float32))
print(json.dumps({
    "set": kernels.instruction_set(),
    "S": F.S.tolist(),
    "gram": A.gram(V).tolist(),
    "single": single.tolist(),
    "squares": A.column_squares().tolist(),
    "log": lines,
}))
"""


def run_fit(missing: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same fit in a process of its own, perhaps with the extension gone."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTSVD_")} | environment
    code = FIT.replace("MISSING", 'sys.modules["shiftsvd.kernels._compiled"] = None' if missing else "")
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=env)


@cache
def fit_of(missing: bool = False, **environment: str) -> dict[str, Any]:
    """What such a fit found."""
    done = run_fit(missing, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_same_fit(found: dict[str, Any], want: dict[str, Any]) -> None:
    """Two fits agree to rounding."""
    for name, eps in (("S", EPS), ("gram", EPS), ("squares", EPS), ("single", np.finfo(np.float32).eps)):
        assert_close(found[name], want[name], 200 * eps * np.linalg.norm(want[name]), name)


LADDER = ["baseline", "AVX2", "AVX-512"]


@pytest.mark.parametrize("asked", ["baseline", "avx2"])
def test_every_instruction_set_finds_the_same(asked):
    best = fit_of()
    limit = {"baseline": "baseline", "avx2": "AVX2"}[asked]
    found = fit_of(SHIFTSVD_ISA=asked)
    assert best["set"] in LADDER
    assert found["set"] == min(best["set"], limit, key=LADDER.index)
    assert_same_fit(found, best)


def test_kernels_off_are_scipys_and_find_the_same():
    found = fit_of(SHIFTSVD_KERNELS="off")
    assert found["set"] == "SciPy"
    assert not found["log"]
    assert_same_fit(found, fit_of())


def test_kernels_require_are_the_compiled_ones():
    found = fit_of(SHIFTSVD_KERNELS="require")
    assert found["set"] in LADDER
    assert found == fit_of()
    assert not found["log"]


def test_another_word_for_kernels_is_refused():
    done = run_fit(SHIFTSVD_KERNELS="fast")
    assert done.returncode != 0
    assert "ValueError: SHIFTSVD_KERNELS must be auto, require or off, got 'fast'" in done.stderr


def test_a_missing_extension_is_logged_once_and_done_without():
    found = fit_of(missing=True)
    assert found["set"] == "SciPy"
    ((level, message),) = found["log"]
    assert level == "WARNING"
    assert message.startswith("the compiled kernels are missing")
    assert "pip install --force-reinstall --no-cache-dir" in message
    assert_same_fit(found, fit_of())
    assert not fit_of(missing=True, SHIFTSVD_KERNELS="off")["log"]


def test_a_missing_extension_that_is_required_is_an_import_error():
    done = run_fit(missing=True, SHIFTSVD_KERNELS="require")
    assert done.returncode != 0
    assert "import of shiftsvd.kernels._compiled halted" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(("ModuleNotFoundError", "ImportError"))
