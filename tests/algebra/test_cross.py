"""Products of operators, ``X^H Y`` above all: in every container what the formed matrix is, with bounds that hold."""

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra import generic
from shiftsvd.algebra.generic import cancelled, gram_matrix
from shiftsvd.operators import Product
from shiftsvd.testing import check_operator
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW, Duck, Held, streamed
from tests.support.matrices import EPS, Array, in_double, values
from tests.support.operators import Counting, Minimal, assert_is, panel
from tests.support.sampling import in_turn

ROWS, LEFT, RIGHT = 23, 6, 9


def pair(seed: int = 0, m: int = 120, p: int = 30, q: int = 20) -> tuple[Array, Array]:
    """Two matrices of the same rows, far off-centre, that have some of their variation in common."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((m, 4)) * [8, 5, 3, 2]
    X, Y = (shared @ rng.standard_normal((4, n)) + rng.standard_normal((m, n)) + 50 for n in (p, q))
    return X, Y


def centred(X: Array) -> Array:
    return X - X.mean(axis=0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "shape"), in_turn(FEW, [(ROWS, LEFT, RIGHT), (4, RIGHT, LEFT)], 1))
def test_cross_equals_the_formed_product(name: str, shape: tuple[int, int, int]) -> None:
    m, p, q = shape
    container = CONTAINERS[name]
    X, Y = values((m, p), container.dtype, 1), values((m, q), container.dtype, 2)
    D, E = in_double(X), in_double(Y)
    C = ss.cross(container.make(X), container.make(Y))
    size = np.linalg.norm(D) * np.linalg.norm(E)
    assert_is(C, D.conj().T @ E, size)
    assert_is(C - ss.LowRank(panel(p, 2), panel(q, 2)), D.conj().T @ E - panel(p, 2) @ panel(q, 2).T, size + 400)
    check_operator(C)
    check_operator(C.H)


@pytest.mark.parametrize("name", FEW)
def test_two_kinds_of_matrices_have_a_product(name: str) -> None:
    X, Y = values((ROWS, LEFT), CONTAINERS[name].dtype, 1), values((ROWS, RIGHT), np.float64, 2)
    D = in_double(X)
    C = ss.cross(CONTAINERS[name].make(X), sparse.csr_array(Y), shift=("mean", None))
    assert_is(C, centred(D).conj().T @ Y, 2 * np.linalg.norm(D) * np.linalg.norm(Y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("solver", ["auto", "lanczos", "gram", "exact"])
def test_values_and_vectors_are_those_of_the_cross_covariances(dtype: Any, solver: Any) -> None:
    X, Y = (F.astype(dtype) for F in pair())
    D, E = (centred(in_double(F)) for F in (X, Y))
    F = (
        ss.svd(ss.cross(X, Y, shift="mean"), 4, solver=solver, tol=1e-8, rng=0)
        if solver != "exact"
        else ss.svd(ss.cross(X, Y, shift="mean"), 4, solver="exact")
    )
    U, S, Vh = np.linalg.svd(D.conj().T @ E)
    np.testing.assert_allclose(F.S, S[:4], rtol=1e-8)
    assert np.all(np.abs(F.S - S[:4]) <= (1e-10 if F.info.value_errors is None else F.info.value_errors + EPS) * F.S)
    assert F.U.dtype == F.Vh.dtype == dtype
    for found, exact in ((F.U, U[:, :4]), (F.Vh.conj().T, Vh[:4].conj().T)):
        np.testing.assert_allclose(np.abs(np.sum(found.conj() * exact, axis=0)), 1, atol=1e-6)
    assert F.info.frobenius_error == pytest.approx(np.linalg.norm(S[4:]), rel=1e-2)


def test_shifts_scales_and_weights_are_those_of_each_matrix() -> None:
    X, Y = pair(1)
    w = np.arange(1.0, 121.0)
    D, E = (F - np.average(F, axis=0, weights=w) for F in (X, Y))
    E = E / np.sqrt(np.average(E**2, axis=0, weights=w))
    C = ss.cross(X, Y, shift="mean", scale=(None, "std"), sample_weight=w)
    size = np.linalg.norm(D * np.sqrt(w)[:, None]) * np.linalg.norm(E * np.sqrt(w)[:, None])
    assert_is(C, D.T @ (w[:, None] * E), 10 * size)
    mu = np.linspace(0, 3, 20)
    assert_is(ss.cross(X, Y, shift=(None, mu)), X.T @ (Y - mu), 10 * np.linalg.norm(X) * np.linalg.norm(Y))
    twice = ss.svd(ss.cross(X, Y), 2, shift="mean", scale=mu + 1, rng=0)
    G = X.T @ Y
    np.testing.assert_allclose(twice.S, np.linalg.svd((G - G.mean(0)) / (mu + 1))[1][:2], rtol=1e-4)


def test_pls_svd_of_scikit_learn_is_the_same() -> None:
    from sklearn.cross_decomposition import PLSSVD

    X, Y = pair(2)
    model = PLSSVD(3).fit(X, Y)
    F = ss.svd(ss.cross(X, Y, shift="mean", scale="std", scale_ddof=1), 3, tol=1e-10, rng=0)
    for found, theirs in ((F.U, model.x_weights_), (F.Vh.T, model.y_weights_)):
        np.testing.assert_allclose(np.abs(found), np.abs(theirs), atol=1e-8)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", [sparse.csr_array, np.ndarray.copy])
def test_files_and_dask_arrays_have_the_values_of_matrices_in_memory(kind: Any) -> None:
    X, Y = (np.where(np.abs(F - 50) > 9, F, 0).astype(np.float32) for F in pair(3))
    known = ss.svd(ss.cross(kind(X), kind(Y), shift="mean"), 3, tol=1e-10, rng=0)
    streams = ss.svd(ss.cross(streamed(kind)(X), streamed(kind)(Y), shift="mean"), 3, tol=1e-10, rng=0)
    np.testing.assert_allclose(streams.S, known.S, rtol=1e-9)
    dask_array = pytest.importorskip("dask.array")
    lazy = [dask_array.from_array(F, chunks=(31, -1)).map_blocks(kind) for F in (X, Y)]
    chunked = ss.svd(ss.cross(*lazy, shift="mean"), 3, tol=1e-10, rng=0)
    np.testing.assert_allclose(chunked.S, known.S, rtol=1e-9)


def test_passes_read_both_matrices_as_often_as_is_told() -> None:
    X, Y = (Counting(F) for F in pair(4, 400, 150, 130))
    C = ss.cross(X, Y)
    C.cancelled()  # which asks for the norms
    before = X.reads, Y.reads
    F = ss.svd(C, 3, solver="lanczos", rng=0)
    beside = 1  # frobenius_error needs the norm of the product: as many reads as it is formed in
    assert X.reads - before[0] <= F.info.n_passes + beside
    assert Y.reads - before[1] <= F.info.n_passes + beside
    assert F.info.n_passes >= 4


@pytest.mark.parametrize("solver", ["auto", "lanczos", "gram"])
def test_of_matrices_without_anything_in_common_all_values_are_rounding(solver: Any) -> None:
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 60)))[0]
    X, Y = Q[:, :30] @ values((30, 40), seed=1), Q[:, 30:] @ values((30, 35), seed=2)
    F = ss.svd(ss.cross(X, Y), 3, solver=solver, rng=0)
    assert F.info.rank == 0
    assert not F.S.any()
    assert F.info.missed_below <= 1e-10 * np.linalg.norm(X) * np.linalg.norm(Y)


@pytest.mark.parametrize("solver", ["lanczos", "gram", "exact", "randomized"])
def test_bounds_hold_where_next_to_nothing_is_in_common(solver: Any) -> None:
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 60)))[0]
    left, right = values((30, 35), seed=1), values((30, 35), seed=2)
    exact = 1e-9 * np.linalg.svd(left.T @ left, compute_uv=False)[:3]
    X, Y = Q[:, :30] @ left, Q[:, 30:] @ right + 1e-9 * (Q[:, :30] @ left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of some, the certificate says that they are not certain
        F = ss.svd(ss.cross(X, Y), 3, solver=solver, certify=True, rng=0)
    off = np.abs(F.S - exact) / F.S
    assert np.all(off <= F.info.value_errors)
    assert off.max() > 1e-12  # since the products are rounding at that level


@pytest.mark.parametrize(("a", "b"), [(1e-200, 1e-90), (1e150, 1e120), (1e-250, 1e250), (1e300, 1e-300)])
@pytest.mark.parametrize("make", [np.ndarray.copy, sparse.csr_array, Duck])
def test_values_are_the_same_at_any_scale(a: float, b: float, make: Any) -> None:
    X, Y = pair(5)
    exact = np.linalg.svd(X.T @ Y, compute_uv=False)[:3]
    for solver in ("exact", "gram", "lanczos"):
        F = ss.svd(ss.cross(make(X * a), make(Y * b)), 3, solver=solver, rng=0)
        np.testing.assert_allclose(F.S / (a * b), exact, rtol=1e-4)
    assert F.info.converged


@pytest.mark.long
def test_nothing_as_large_as_the_product_is_formed() -> None:
    import tracemalloc

    X, Y = (sparse.random_array((300, 40_000), density=1e-3, rng=seed, format="csr") for seed in (0, 1))
    C = ss.cross(X, Y)
    told = ss.estimate(C, 3).peak_bytes
    tracemalloc.start()
    F = ss.svd(C, 3, rng=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert F.info.converged
    assert peak <= 1.1 * told < 8 * 40_000**2 / 50


def test_memory_that_inner_panels_take_is_told_beforehand() -> None:
    tall = [sparse.random_array((300_000, 40), density=1e-3, rng=seed, format="csr") for seed in (0, 1)]
    C = ss.cross(*tall)
    assert ss.estimate(C, 3, "lanczos").peak_bytes > 8 * 300_000 * 16
    with pytest.raises(ValueError, match="more than the limit"):
        ss.svd(C, 3, solver="lanczos", memory_limit="30MB")


def test_small_products_have_all_digits_and_large_ones_are_not_formed() -> None:
    assert isinstance(ss.auto_solver(ss.cross(*pair()), 3), ss.Exact)
    large = ss.cross(*(np.ones((700, 500)) for _ in range(2)))
    assert isinstance(ss.auto_solver(large, 3), ss.BlockLanczos)


def test_weights_of_gram_are_those_of_the_rows_of_the_product() -> None:
    X, Y = pair(6)
    w = np.linspace(0, 2, 30)
    C, G = ss.cross(X, Y), X.T @ Y
    assert_close(gram_matrix(C, w), G.T @ (w[:, None] * G), 100 * EPS * np.linalg.norm(G) ** 2 * 2)


def test_a_share_of_the_squared_covariance_can_be_asked_for() -> None:
    X, Y = pair(7)
    S = np.linalg.svd(centred(X).T @ centred(Y), compute_uv=False)
    F = ss.svd(ss.cross(X, Y, shift="mean"), 0.95, solver="lanczos", rng=0)
    assert len(F.S) == int(np.searchsorted(np.cumsum(S**2) / np.sum(S**2), 0.95)) + 1


def test_norms_of_products_with_a_short_inner_side_are_exact() -> None:
    X, Y = values((40, 3000), seed=1), values((40, 2500), seed=2)
    C = ss.cross(X, Y)
    assert C.frobenius_norm() == pytest.approx(np.linalg.norm(X.T @ Y), rel=1e-12)
    assert ss.cross(X * 1e-160, Y * 1e-120).frobenius_norm() == pytest.approx(1e-280 * C.frobenius_norm(), rel=1e-12)
    assert Product(ss.as_operator(values((9, 5))), Minimal(values((5, 4)))).frobenius_norm() is not None


def test_what_products_cancel_goes_through_the_algebra() -> None:
    C = ss.cross(*pair(8))
    size = cancelled(C)
    assert size >= C.frobenius_norm()
    assert cancelled(C.H) == pytest.approx(size)
    assert cancelled(ss.operators.Scaled(C, None, np.full(20, 3.0))) == pytest.approx(3 * size)
    assert cancelled(C - ss.LowRank(np.ones(30), np.ones(20))) == size
    assert cancelled(ss.as_operator(pair(8)[0])) == 0
    # What one factor rounds, at the level of its mean, is multiplied by the other factor without its mean.
    for far in ((1e6, 0.0), (0.0, 1e6), (1e6, 1e6)):
        F = [X + more for X, more in zip(pair(8), far, strict=True)]
        levels = [np.linalg.norm(X.mean(axis=0)) * np.sqrt(len(X)) for X in F]
        norms = [np.linalg.norm(centred(X)) for X in F]
        least = levels[0] * norms[1], norms[0] * levels[1]
        assert max(least) <= cancelled(ss.cross(*F, shift="mean")) <= sum(least) + norms[0] * norms[1] * (1 + 1e-6)


def test_adjoint_products_of_single_precision_data_are_in_double() -> None:
    D = values((200, 12), np.float32, density=1.0)
    W = panel(200, 3)
    for A, E in ((ss.as_operator(D), D), (ss.as_operator(D.T).H, D), (ss.backends.files.DiskRows(Held(D)), D)):
        found = generic.rmatmat_in_double(ss.operators.Scaled(A, None, np.full(12, 2.0)), W)
        assert_close(found, 2 * in_double(E).T @ W, 40 * EPS * np.linalg.norm(D) * np.linalg.norm(W))


def test_matrices_with_other_rows_are_refused() -> None:
    X, Y = pair()
    with pytest.raises(ValueError, match=r"the same rows, got 120 and 119\. Select the rows that both have"):
        ss.cross(X, Y[1:])
    with pytest.raises(ValueError, match=r"one setting for X and one for Y, got 3\. Pass a vector as an array"):
        ss.cross(X, Y, shift=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match=r"A.shape\[1\] == B.shape\[0\], got shapes \(30, 120\) and \(20, 120\)"):
        Product(ss.as_operator(X).H, ss.as_operator(Y).H)
    read = Counting(X)
    for wrong in ({"shift": ("mean", np.ones(19))}, {"scale": ("std", np.zeros(20))}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ss.cross(read, Y, **wrong)
    assert read.reads == 0, "settings of Y are checked before X is read"


def test_labels_of_rows_must_be_the_same() -> None:
    X, Y = (pd.DataFrame(F) for F in pair())
    names = [f"s{i}" for i in range(120)]
    X.index, Y.index = names, names[::-1]
    with pytest.raises(ValueError, match=r"labels differ, such as 's0' and 's119'\. Put their rows in the same order"):
        ss.cross(X, Y)
    found = ss.cross(X, Y.loc[X.index])
    assert_is(found, X.to_numpy().T @ Y.to_numpy()[::-1], np.linalg.norm(X) * np.linalg.norm(Y))
    assert ss.cross(X, Y.reset_index(drop=True)).shape == (30, 20)  # without names of their own
    plain = X.reset_index(drop=True)
    with pytest.raises(ValueError, match="labels differ, such as 0 and 119"):
        ss.cross(plain, Y.reset_index(drop=True).iloc[::-1])
    xarray = pytest.importorskip("xarray")
    A, B = (xarray.DataArray(F, dims=("time", "cell"), coords={"time": range(120)}) for F in pair())
    assert ss.cross(A, B).shape == (30, 20)
    with pytest.raises(ValueError, match="labels differ, such as 0 and 119"):
        ss.cross(A, B[::-1])


def test_what_is_foreseen_counts_both_reads_of_a_step() -> None:
    C = ss.cross(*pair(9, 500, 300, 280))
    told = ss.estimate(C, 3, "lanczos")
    taken = ss.svd(C, 3, solver="lanczos", rng=0).info.n_passes
    assert told.passes_range[0] <= taken <= told.passes_range[1]
    for same in (C.H, ss.operators.Scaled(C), ss.operators.Above((C,))):
        assert generic.passes_per_step(same) == 2
    assert generic.passes_per_step(ss.as_operator(pair()[0])) == 1


def test_products_survive_pickling() -> None:
    C = ss.cross(*pair(), shift="mean")
    assert np.array_equal(C @ np.eye(20), pickle.loads(pickle.dumps(C)) @ np.eye(20))
    assert repr(C) == "<Product 30 x 20 float64>"
