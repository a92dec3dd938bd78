"""What a step of block Lanczos does in one compiled call: the same as its parts, with the same bits for any threads."""

import subprocess
import sys
import threading
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.kernels import shared
from shiftsvd.numerics import orth
from shiftsvd.solvers.constants import REPEAT_BELOW
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.operators import panel
from tests.support.sampling import pairs
from tests.support.structures import INDICES, PRECISIONS, STRUCTURES, cases

THREADS = (1, 2, 3, 8, 12)  # with 12, rounds have more panels
# Rows of a panel: fewer than a piece, at the edges of pieces, and more pieces than there may be.
HEIGHTS = (40, 511, 512, 513, 1500, 17000)


def blocks_of(rows: int, count: int) -> list[int]:
    """The edges of so many blocks, the first of which is empty where there are several."""
    return [0, *np.linspace(0, rows, count).astype(int).tolist()] if count > 1 else [0, rows]


def gram(X, edges, V, w, L, R, n_threads=1):
    """``X^T diag(w) (X V - L R^T V) - R sums``, by one call."""
    Y = np.empty((X.shape[1], V.shape[1]), V.dtype)
    compiled.gram_of_all(X, edges, V, w, L, R, Y, n_threads)
    return Y


def gram_of_both(X, V, w, L, R, n_threads=1):
    """The same from X and its adjoint."""
    Y = np.empty((X.shape[1], V.shape[1]), V.dtype)
    compiled.gram_of_both(X, sparse.csr_array(X.T.tocsr()), V, w, L, R, Y, n_threads)
    return Y


@pytest.mark.parametrize(
    ("structure", "precision", "index", "weighted", "rank", "count"),
    pairs(STRUCTURES, PRECISIONS, INDICES, [False, True], [0, 1, 3], [1, 2, 9, 20]),
)
def test_one_call_has_the_bits_of_its_blocks(structure, precision, index, weighted, rank, count):
    data, dtype = PRECISIONS[precision]
    for X, rows, _ in cases(structure, data, index):
        if rows != (0, X.shape[0]) or not X.shape[0]:
            continue
        w = np.random.default_rng(1).random(X.shape[0]) if weighted else None
        L, R, edges = panel(X.shape[0], rank, seed=2), panel(X.shape[1], rank, seed=3), blocks_of(X.shape[0], count)
        for width in (1, 7, 16, 50):
            V = panel(X.shape[1], width, dtype, seed=width)
            C = np.zeros((rank, width))
            for r in range(0, len(V), 1024):
                for c, x in zip(V[r : r + 1024].astype(float), R[r : r + 1024], strict=True):
                    C += np.outer(x, c)
            P, C = compiled.panel(V, dtype), compiled.panel(C, dtype)
            sums, before, last = np.zeros((rank, width)), None, None
            for lo, hi in pairwise(edges):
                if last is not None:
                    flat = last.flat.astype(np.float64)
                    before = flat if before is None else before + flat
                last, S = compiled.gram(X, (lo, hi), P, None if w is None else w[lo:hi], L[lo:hi], C)
                sums += S.join()
            want = np.empty((X.shape[1], width), dtype)
            compiled.total([last], before, R, sums, (0, len(want)), want)
            for n_threads in THREADS:
                np.testing.assert_array_equal(gram(X, edges, V, w, L, R, n_threads), want)


@pytest.mark.parametrize(
    ("structure", "precision", "index", "weighted", "rank"),
    pairs(STRUCTURES, PRECISIONS, INDICES, [False, True], [0, 1, 3]),
)
def test_a_matrix_and_its_adjoint_give_the_same_product(structure, precision, index, weighted, rank):
    data, dtype = PRECISIONS[precision]
    for X, rows, _ in cases(structure, data, index):
        if rows != (0, X.shape[0]) or not min(X.shape):
            continue
        w = np.random.default_rng(1).random(X.shape[0]) if weighted else None
        L, R = panel(X.shape[0], rank, seed=2), panel(X.shape[1], rank, seed=3)
        D = X.toarray().astype(float) - L @ R.T
        for width in (0, 1, 7, 16, 50):
            for V in (panel(X.shape[1], width, dtype, seed=width), np.asfortranarray(panel(X.shape[1], width, dtype))):
                found = [gram_of_both(X, V, w, L, R, n_threads) for n_threads in THREADS]
                parts = np.abs(X).toarray().astype(float) + np.abs(L) @ np.abs(R).T
                bound = 20 * np.finfo(dtype).eps * np.linalg.norm(parts) ** 2 * np.linalg.norm(V)
                assert_close(found[0], D.T @ ((1.0 if w is None else w[:, None]) * (D @ V)), bound)
                for other in found[1:]:
                    np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize(("structure", "precision", "index"), pairs(STRUCTURES, PRECISIONS, INDICES))
def test_a_transpose_is_that_of_scipy_with_the_same_types(structure, precision, index):
    for X, rows, _ in cases(structure, PRECISIONS[precision][0], index):
        if rows != (0, X.shape[0]):
            continue
        want = sparse.csr_array(X.T.tocsr())
        for n_threads in THREADS:
            Z = compiled.transpose(X, n_threads)
            assert (Z.data.dtype, Z.indices.dtype, Z.indptr.dtype) == (X.dtype, X.indices.dtype, X.indptr.dtype)
            for mine, theirs in zip((Z.data, Z.indices, Z.indptr), (want.data, want.indices, want.indptr), strict=True):
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space")
def test_a_transpose_of_few_entries_needs_no_counters_for_each_thread():
    program = """
import resource
import numpy as np
from scipy.sparse import csr_array
from shiftsvd.kernels import compiled
X = csr_array((np.ones(300), np.arange(300), np.arange(301)), shape=(300, 10_000_000))
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, now + 2**30))
Z = compiled.transpose(X, 100)
assert Z.indptr[-1] == 300 and (Z.indices == np.arange(300)).all()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shared is None, reason="the compiled kernels are switched off")
@pytest.mark.parametrize("index", INDICES)
def test_a_wide_fit_takes_both_orientations_and_has_the_bits_of_any_threads(index):
    X = sparse.random_array((300, 900), density=0.05, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    with mock.patch.object(compiled, "gram_of_both", wraps=compiled.gram_of_both) as both:
        fits = [ss.svd(X, 6, shift="mean", rng=0, n_threads=n, solver=ss.BlockLanczos()) for n in (1, 2, 5)]
    assert both.call_count >= 20
    exact = np.linalg.svd(X.toarray().astype(float) - X.toarray().astype(float).mean(axis=0), compute_uv=False)[:6]
    assert_close(fits[0].S, exact, 1e-3 * exact[-1])
    for other in fits[1:]:
        np.testing.assert_array_equal(other.S, fits[0].S)
        np.testing.assert_array_equal(other.Vh, fits[0].Vh)


def test_a_panel_beyond_the_cache_is_fetched_ahead_with_the_same_sums():
    X = sparse.random_array((9000, 12000), density=1e-3, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    V, none = panel(12000, 16, "f4"), np.zeros((9000, 0))
    want = X.T @ (X @ V)
    assert_close(gram_of_both(X, V, None, none, np.zeros((12000, 0)), 2), want, 1e-5 * np.linalg.norm(want))


def test_indices_of_an_adjoint_that_lead_out_are_refused():
    X = sparse.random_array((60, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    V, L, R = panel(20, 16), np.zeros((60, 0)), np.zeros((20, 0))
    for damage in (lambda A: A.indices.__setitem__(5, 99), lambda A: A.indices.__setitem__(5, -1)):
        for which in range(2):
            both = [X.copy(), sparse.csr_array(X.T.tocsr())]
            damage(both[which])
            with pytest.raises(ValueError, match="refer to entries outside of the matrix"):
                compiled.gram_of_both(*both, V, None, L, R, np.empty((20, 16)), 2)


def test_arrays_that_lead_out_between_blocks_are_refused():
    X = sparse.random_array((60, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    V, none = panel(20, 16), np.zeros((60, 0))
    for at, value in ((30, 2**30), (30, -5), (20, 2**30)):
        broken = X.copy()
        broken.indptr[at] = value
        with pytest.raises(ValueError, match="refer to entries outside of the matrix"):
            gram(broken, [0, 20, 30, 40, 60], V, None, none, none[:20], 2)


def basis(rows: int, columns: int, dtype: str) -> np.ndarray:
    """Orthonormal columns, contiguous."""
    Q = np.linalg.qr(panel(rows, columns, seed=4))[0]
    return np.asfortranarray(Q.astype(dtype))


def projected(monkeypatch, B, W, near, factor):
    """The same by `inner` and `subtract_product`."""
    with monkeypatch.context() as without:
        without.setattr(orth, "shared", None)
        return orth.project(W.copy(), B, near, factor, REPEAT_BELOW, None, 0.0, 0.0)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("rows", "dtype", "width"), pairs(HEIGHTS, ["f4", "f8"], [8, 16]))
def test_a_projection_is_that_of_its_parts(monkeypatch, rows, dtype, width, again):
    monkeypatch.setattr(compiled, "NARROW", dict.fromkeys(compiled.NARROW, 1000))
    B, eps = basis(rows, 24, dtype), float(np.finfo(dtype).eps)
    # What lies outside of B, after the first projection, is rounding where all must be projected three times.
    W = (B @ panel(24, width, dtype) + (8 * eps if again else 1) * panel(rows, width, dtype, seed=5)).astype(dtype)
    near = 24 if again else 8  # with 24, the first projection takes nothing
    want = projected(monkeypatch, B, W, near, 0.25)
    found = [
        compiled.project(W.copy(), B, near, 0.25, REPEAT_BELOW, None, 0.0, 0.0, n_threads)[:3] for n_threads in THREADS
    ]
    size = float(np.linalg.norm(W)) / 4
    for mine, theirs in zip(found[0][1:], want[1:3], strict=True):
        assert_close(mine, theirs, 100 * eps * max(size, size**2))
    left = found[0][0]
    assert np.linalg.norm(B.T @ left) <= 50 * eps * np.linalg.norm(left) + (0 if again else 50 * eps * size)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("spread", [1, 100, 1e5])
@pytest.mark.parametrize(("rows", "dtype", "columns"), pairs(HEIGHTS, ["f4", "f8"], [4, 20]))
def test_what_a_projection_leaves_is_made_orthonormal(monkeypatch, rows, dtype, columns, spread):
    monkeypatch.setattr(compiled, "NARROW", dict.fromkeys(compiled.NARROW, 1000))
    B, eps, width = basis(rows, columns, dtype), float(np.finfo(dtype).eps), 16
    lengths = np.geomspace(1, 1 / spread, width)
    # Long columns, whose combinations are short: one step would leave 100 to 8,000 roundings.
    W = (panel(rows, width, seed=5) * lengths @ np.linalg.qr(panel(width, width))[0]).astype(dtype)
    found = []
    for n_threads in THREADS:
        Q = np.full((rows, width), np.nan, dtype, order="F")
        found.append((Q, *compiled.project(W.copy(), B, 4, 1.0, REPEAT_BELOW, Q, 2 * eps, 0.0, n_threads)))
    Q, left, _, squares, below = found[0]
    if spread > 1e4:
        assert below is None  # squares do not tell the shortest columns from rounding
        assert np.isnan(Q).all()
        return
    whole = np.hstack([B, Q]).astype(float)
    assert_close(whole.T @ whole, np.eye(columns + width), 20 * eps)
    rest = (W - B.astype(float) @ (B.T.astype(float) @ W)).astype(float)
    assert_close(Q.astype(float) @ below, rest, 100 * eps * np.linalg.norm(W))
    assert_close(below.T @ below, squares, 100 * eps * np.linalg.norm(W) ** 2)
    np.testing.assert_array_equal(Q, left)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_columns_at_the_level_of_rounding_are_left_to_the_caller(dtype):
    B, eps = basis(600, 20, dtype), float(np.finfo(dtype).eps)
    W = (B @ panel(20, 16, dtype) + 0.1 * eps * panel(600, 16, dtype, seed=5)).astype(dtype)
    Q = np.full((600, 16), np.nan, dtype, order="F")
    assert compiled.project(W, B, 20, 1.0, REPEAT_BELOW, Q, 2 * eps, 0.0, 1)[3] is None
    assert np.isnan(Q).all()


@pytest.mark.parametrize(("rows", "dtype", "width"), pairs(HEIGHTS, ["f4", "f8"], [3, 16]))
def test_combinations_are_products(rows, dtype, width):
    W, Z = panel(rows, 16, dtype), panel(16, width, seed=1)
    bound = 20 * np.finfo(dtype).eps * np.linalg.norm(W) * np.linalg.norm(Z)
    for n_threads in THREADS:
        assert_close(compiled.combine(W, Z, n_threads), W @ Z.astype(dtype), bound)


def test_calls_from_many_threads_at_once_do_not_meet():
    X = sparse.random_array((3000, 300), density=0.1, format="csr", rng=np.random.default_rng(0))
    V, none, edges = panel(300, 16), np.zeros((3000, 0)), blocks_of(3000, 6)
    want, wrong = gram(X, edges, V, None, none, none[:300]), []

    def often() -> None:
        found = (gram(X, edges, V, None, none, none[:300], 3) for _ in range(50))
        wrong.extend(1 for Y in found if not np.array_equal(Y, want))

    others = [threading.Thread(target=often) for _ in range(6)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("n", "width", "steps"), [(1, 1, 1), (130, 3, 2), (3000, 8, 7), (1500, 20, 0)])
def test_a_recurrence_is_that_of_its_products_and_has_the_same_bits_with_any_threads(
    n, width, steps, index, monkeypatch
):
    X = sparse.csr_array(sparse.random_array((n, n), density=min(1, 20 / n), rng=np.random.default_rng(0)))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    before, now = panel(n, width, seed=1), panel(n, width, seed=2)
    found = [compiled.recur(X, before, now, steps, threads) for threads in THREADS]
    monkeypatch.setattr(compiled, "OPERATIONS", 2 * X.nnz * width)  # calls of at most two steps
    found.append(compiled.recur(X, before, now, steps, 2))
    last, want = before, now
    for _ in range(steps):
        last, want = want, X @ want - last
    for got in found:
        assert np.array_equal(got, found[0])
        assert_close(got, want, 1e-13 * max(1, float(np.abs(want).max())) * want.size)
    with pytest.raises((TypeError, ValueError)):
        compiled.recur(X, before[1:], now, 1, 1)
