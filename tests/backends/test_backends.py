"""Every container of a matrix multiplies, sums and measures like the dense matrix that it holds."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

import shiftsvd as ss
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.testing import check_operator
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW, compressed, content
from tests.support.matrices import EPS, KINDS, in_double, matrix, values
from tests.support.operators import Minimal, assert_is, panel
from tests.support.sampling import in_turn, pairs


@pytest.mark.parametrize(("name", "kind"), in_turn(CONTAINERS, KINDS, 1))
def test_container_equals_its_dense_matrix(name: str, kind: str) -> None:
    D = matrix(kind, CONTAINERS[name].dtype, seed=len(name))
    X = CONTAINERS[name].make(D)
    before = content(X)
    assert_is(ss.as_operator(X), in_double(D), np.linalg.norm(in_double(D)))
    assert content(X) == before


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("name", "kind"), in_turn(FEW, KINDS, 1))
def test_many_blocks_equal_the_dense_matrix(name: str, kind: str) -> None:
    D = matrix(kind, CONTAINERS[name].dtype, seed=len(name))
    X = CONTAINERS[name].make(D)
    before = content(X)
    A = ss.as_operator(X, n_threads=3)
    assert_is(A, in_double(D), np.linalg.norm(in_double(D)))
    shifted = ss.centered(X)
    assert_is(shifted, in_double(D) - in_double(D).mean(axis=0), 2 * np.linalg.norm(in_double(D)))
    assert content(X) == before


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("shift", [None, "mean"])
def test_every_block_is_weighted_by_the_weights_of_its_own_rows(make, shift: str | None) -> None:
    D, w, V = values((90, 8), seed=1), np.random.default_rng(2).random(90), panel(8, 3)
    A = ss.as_operator(make(D)) if shift is None else ss.centered(make(D))
    E = D if shift is None else D - D.mean(axis=0)
    assert len(A.blocks()) > 3
    bound = 100 * EPS * np.linalg.norm(E) ** 2
    assert_close(A.gram(V, w), E.T @ (w[:, None] * (E @ V)), bound * np.linalg.norm(V))
    assert_close(A.gram_matrix(w), E.T @ (w[:, None] * E), bound)
    assert_close(A.column_squares(w), w @ E**2, bound)
    assert_close(A.moments(w).mean, w @ E / w.sum(), bound)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CONTAINERS)
def test_operator_of_a_container_passes_the_check_for_authors(name: str) -> None:
    D = matrix("tall", CONTAINERS[name].dtype, seed=5)
    check_operator(ss.as_operator(CONTAINERS[name].make(D)))
    check_operator(ss.centered(CONTAINERS[name].make(D)).H)


@pytest.mark.parametrize("name", CONTAINERS)
def test_dtype_is_the_precision_of_the_data(name: str) -> None:
    dtype = np.dtype(CONTAINERS[name].dtype)
    A = ss.as_operator(CONTAINERS[name].make(matrix("wide", dtype)))
    single = dtype in (np.float32, np.float16, np.complex64)
    if "mixed" not in name:
        real, cplx = (np.float32, np.complex64) if single else (np.float64, np.complex128)
        assert A.dtype == (cplx if dtype.kind == "c" else real)
    assert A.dtype.isnative
    assert A.H.dtype == A.dtype


@pytest.mark.parametrize("name", [name for name in CONTAINERS if "cs" in name[:3]])
def test_stored_counts_the_entries_of_a_sparse_matrix(name: str) -> None:
    D = matrix("tall", CONTAINERS[name].dtype)
    X = CONTAINERS[name].make(D)
    expected = len(np.unique(X.tocoo().row * 100 + X.tocoo().col)) if "longer" not in name else np.count_nonzero(D)
    assert ss.as_operator(X).costs.stored == ss.as_operator(X).H.costs.stored == ss.centered(X).costs.stored == expected


def test_stored_counts_all_entries_of_a_dense_matrix() -> None:
    assert ss.as_operator(matrix("tall")).costs.stored == 23 * 7
    assert ss.as_operator(Minimal(matrix("tall"))).costs.stored == 23 * 7


def test_arrays_are_read_in_place() -> None:
    for X in (values((50, 20)), values((20, 50)), np.asfortranarray(values((50, 20), np.float32))):
        A = ss.as_operator(X)
        inner = A if isinstance(A, DenseRows) else A.A
        assert np.shares_memory(inner.X, X)


@pytest.mark.parametrize("cls", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix])
def test_sorted_sparse_matrices_are_read_in_place(cls) -> None:
    X = cls(values((50, 20), density=0.2))
    A = ss.as_operator(X)
    inner = A if isinstance(A, SparseRows) else A.A
    for part in ("data", "indices", "indptr"):
        assert np.shares_memory(getattr(inner.X, part), getattr(X, part))


def test_read_in_place_means_later_changes_show() -> None:
    X = values((9, 4))
    A = ss.as_operator(X)
    X[0, 0] += 1
    assert_close(A @ np.eye(4), X, 20 * EPS * np.linalg.norm(X))


def test_unsorted_rows_are_not_sorted_in_the_callers_matrix() -> None:
    X = CONTAINERS["csr unsorted"].make(matrix("tall"))
    flags = X.has_sorted_indices, X.has_canonical_format
    A = ss.as_operator(X)
    A.matmat(np.ones((7, 2)))
    assert (X.has_sorted_indices, X.has_canonical_format) == flags == (False, False)


def test_an_operator_passes_the_door_unchanged() -> None:
    A = ss.as_operator(matrix("tall"))
    assert ss.as_operator(A) is A


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("dtype", "missing", "fmt", "blocks"),
    pairs([np.float32, np.float64, np.complex64], [1, 2, 3], ["csr", "csc"], ["one", "many"]),
)
def test_nearly_full_lines_are_shifted_like_all_others(fmt, dtype, missing, blocks, request) -> None:
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    D = values((320, 310), dtype, seed=missing, density=0.05)
    rng = np.random.default_rng(missing)
    for j in (0, 17, 309):  # columns that lack `missing` entries, or none
        D[:, j] = values((320, 1), dtype, seed=j, density=1.0)[:, 0]
        D[rng.permutation(320)[: missing * (j > 0)], j] = 0
    for i in (0, 5, 319):  # and rows, which cross the columns
        D[i] = values((1, 310), dtype, seed=i, density=1.0)
        D[i, rng.permutation(310)[: missing * (i > 0)]] = 0
    X = compressed(sparse.csr_array if fmt == "csr" else sparse.csc_array)(D)
    shift = ss.LowRank(panel(320, 2, seed=3), panel(310, 2, np.complex128 if dtype == np.complex64 else dtype, seed=4))
    E = in_double(D) - shift.L @ shift.R.conj().T
    A = ss.as_operator(X) - shift
    inner = A if fmt == "csr" else A.A
    assert inner.full is not None
    assert inner.full.unstored.nnz > 0
    assert inner.outside is not None
    size = np.linalg.norm(in_double(D)) + np.linalg.norm(E)
    assert_is(A, E, size)
    again = ss.LowRank(panel(320, 1, seed=5), panel(310, 1, seed=6))
    assert_is(A - again, E - again.L @ again.R.T, size + again.frobenius_norm())


def test_a_wholly_full_sparse_matrix_is_shifted_inside_its_entries() -> None:
    D = values((40, 12), density=1.0)
    for X in (sparse.csr_array(D), sparse.csc_array(D)):
        A = ss.centered(X)
        inner = A if isinstance(A, SparseRows) else A.A
        assert inner.outside.L.shape[1] == 0
        assert_is(A, D - D.mean(axis=0), 2 * np.linalg.norm(D))


def _never(*args, **kwargs):
    raise AssertionError("a sparse matrix was made dense")


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("cls", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize(
    "solver", [ss.RandomizedSVD(), ss.RandomizedSVD(sketch=ss.sketch.SRFT()), ss.ShiftedRandomizedSVD()]
)
def test_nothing_calls_toarray(cls, solver, monkeypatch) -> None:
    class Sealed(cls):
        toarray = todense = __array__ = _never

    X = Sealed(values((300, 120), density=0.05))
    for owner in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, sparse.csc_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(owner, name, _never)
    F = ss.svd(X, 5, shift="mean", scale="std", solver=solver, rng=0, certify=True)
    assert ss.spectral_norm(ss.centered(X) - F) > 0
    assert F.U.shape == (300, 5)


@pytest.mark.parametrize("name", ["csr", "csc", "coo", "lil", "bsr", "dok", "dia"])
def test_no_sparse_format_is_made_dense_on_the_way_in(name, monkeypatch) -> None:
    X = getattr(sparse, f"{name}_array")(values((30, 12), density=0.1))
    for owner in (sparse.csr_array, sparse.csc_array, sparse.coo_array, type(X)):
        for densify in ("toarray", "todense"):
            monkeypatch.setattr(owner, densify, _never)
    ss.as_operator(X).moments()


def test_sparse_frames_stay_sparse() -> None:
    frame = pd.DataFrame.sparse.from_spmatrix(sparse.csr_array(values((30, 12), density=0.1)))
    assert isinstance(ss.as_operator(frame), SparseRows)


def test_sparse_frames_of_integers_and_booleans_stay_sparse() -> None:
    for dtype in (np.int64, np.bool_):
        D = values((30, 12), dtype, density=0.1)
        frame = pd.DataFrame({j: pd.arrays.SparseArray(D[:, j], fill_value=dtype(0)) for j in range(12)})
        A = ss.as_operator(frame)
        assert isinstance(A, SparseRows)
        assert_is(A, in_double(D), np.linalg.norm(D))


def test_single_precision_sparse_products_are_made_in_double() -> None:
    D = values((400, 30), np.float32, density=0.3)
    V, W = panel(30, 3), panel(400, 3)
    for X in (sparse.csr_array(D), sparse.csc_array(D)):
        for A, E in ((ss.as_operator(X), in_double(D)), (ss.centered(X), in_double(D) - in_double(D).mean(axis=0))):
            size = np.linalg.norm(in_double(D))
            assert_close(A.matmat(V), E @ V, 20 * EPS * size * np.linalg.norm(V))
            assert_close(A.rmatmat(W), E.T @ W, 20 * EPS * size * np.linalg.norm(W))
            assert_close(A.gram(V), E.T @ (E @ V), 20 * EPS * size**2 * np.linalg.norm(V))
            assert A.costs.eps == EPS


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_single_precision_are_added_in_double() -> None:
    D = np.ones((65, 48), np.float32)
    D[0] = 2**24  # to which single precision cannot add 1
    sums = ss.as_operator(D).rmatmat(np.ones((65, 1), np.float32))
    assert np.array_equal(sums, np.full((48, 1), 2**24 + 64))


def test_integers_past_the_reach_of_single_precision_are_exact() -> None:
    D = np.array([[2**31 - 1, 2**30 + 1], [3, 2**29 + 1], [5, 7]])
    for X in (D, D.astype(np.uint32), sparse.csr_array(D), D.astype(object), D.tolist(), pd.DataFrame(D)):
        assert np.array_equal(ss.as_operator(X) @ np.eye(2), D)


def test_a_row_longer_than_a_block_is_a_block_of_its_own() -> None:
    assert cut(3, 0) == [(0, 1), (1, 2), (2, 3)]
    assert cut(5, 2) == [(0, 2), (2, 4), (4, 5)]
    assert cut(2, 9) == [(0, 2)]


def test_blocks_larger_than_their_limit_still_cover_the_matrix(monkeypatch) -> None:
    from shiftsvd.backends import dense as array

    monkeypatch.setattr(array, "BLOCK", 5)
    D = values((20, 8))
    assert_is(ss.as_operator(D), D, np.linalg.norm(D))


@pytest.mark.parametrize("layout", ["even", "one full row", "empty head", "empty tail", "all in the last"])
def test_sparse_blocks_cover_all_rows_once_in_order(layout: str) -> None:
    m, n, nnz = 3000, 700, 1_200_000
    counts = np.full(m, nnz // m)
    if layout == "one full row":
        counts = np.r_[np.zeros(m // 2, int), n, np.full(m - m // 2 - 1, nnz // m)]
    elif layout == "empty head":
        counts[: m // 3] = 0
    elif layout == "empty tail":
        counts[-m // 3 :] = 0
    elif layout == "all in the last":
        counts = np.r_[np.zeros(m - 1, int), n]
    indices = np.concatenate([np.arange(c) for c in counts])
    X = sparse.csr_array((np.ones(len(indices)), indices, np.r_[0, np.cumsum(counts)]), shape=(m, n))
    blocks = ss.as_operator(X).blocks()
    assert blocks[0][0] == 0
    assert blocks[-1][1] == m
    assert all(lo < hi for lo, hi in blocks)
    assert [hi for _, hi in blocks[:-1]] == [lo for lo, _ in blocks[1:]]
    if layout == "even":
        sizes = [X.indptr[hi] - X.indptr[lo] for lo, hi in blocks]
        assert len(blocks) > 3
        assert max(sizes) <= 2**18 + n
    V = panel(n, 2)
    assert_close(ss.as_operator(X) @ V, X @ V, 20 * EPS * np.linalg.norm(X.data) * np.linalg.norm(V))


def test_a_linear_operator_given_by_its_functions_works() -> None:
    D = values((12, 5))
    A = LinearOperator((12, 5), matvec=lambda v: D @ v, rmatvec=lambda w: D.T @ w, dtype=float)
    assert_is(ss.as_operator(A), D, np.linalg.norm(D))


@pytest.mark.parametrize("solver", ["gram", "lanczos", "randomized", "shifted-randomized", "exact"])
def test_products_that_a_linear_operator_keeps_are_not_written_to(solver: str) -> None:
    D, kept = values((60, 50)), []

    def remembered(M: np.ndarray, V: np.ndarray) -> np.ndarray:
        Y = M @ V
        kept.append((Y, Y.copy()))
        return Y

    for M in (D, D.T):  # the long side on the left, and on the right
        there, back = partial(remembered, M), partial(remembered, M.T)
        A = LinearOperator(M.shape, matvec=there, matmat=there, rmatmat=back, dtype=float)
        U, _, Vh = ss.svd(A, 4, solver=solver, rng=0)
        assert np.isfinite(U).all()
        assert np.isfinite(Vh).all()
    assert len(kept) > 4
    for Y, copy in kept:
        np.testing.assert_array_equal(Y, copy)


def test_center_is_the_matrix_minus_its_column_means() -> None:
    for name in FEW:
        D = matrix("tall", CONTAINERS[name].dtype)
        E = in_double(D)
        A = ss.centered(CONTAINERS[name].make(D))
        assert_close(A @ np.eye(7), E - E.mean(axis=0), 20 * A.costs.eps * 7 * np.linalg.norm(E), name)
        assert_close(A.rmatmat(np.ones((23, 1))), np.zeros((7, 1)), 40 * A.costs.eps * 5 * np.linalg.norm(E), name)
