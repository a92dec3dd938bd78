"""What is as long as a Dask array stays one: left vectors by TSQR, in chunks of rows, orthonormal."""

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from tests.support.containers import Loads
from tests.support.matrices import EPS, decaying, values, with_values

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

ORTHONORMAL = 1e-6


def orthonormal_error(U: Any) -> float:
    """Of a panel in memory."""
    return float(np.linalg.norm(U.conj().T @ U - np.eye(U.shape[1]), 2))


@pytest.mark.parametrize("chunks", [(300, 40), (7, 40), ((0, 170, 0, 129, 1), 40), (128, 13)], ids=str)
@pytest.mark.parametrize("solver", ["lanczos", "gram", "exact"])
def test_u_of_a_tall_array_is_lazy_in_chunks_of_rows_and_that_in_memory(chunks: Any, solver: str) -> None:
    D = decaying((300, 40), 0.7) + 5
    loads = Loads()
    X = da.from_array(D, chunks=chunks)
    X = X.rechunk({1: -1}).map_blocks(loads, dtype=X.dtype, meta=np.empty((0, 0)))
    F = ss.svd(X, 4, shift="mean", solver=solver, tol=1e-11, rng=0)
    loads.n, U = 0, F.U
    assert isinstance(U, da.Array)
    assert loads.n == 0
    assert U.shape == (300, 4)
    assert U.chunks[0] == tuple(rows for rows in X.chunks[0] if rows)
    found = U.compute(scheduler="synchronous")
    assert loads.n == len(U.chunks[0])
    np.testing.assert_allclose(found, ss.svd(D, 4, shift="mean", solver=solver, tol=1e-11, rng=0).U, atol=1e-9)
    assert orthonormal_error(found) <= 300 * EPS


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_u_is_orthonormal_whatever_the_spectrum(dtype: Any) -> None:
    D = with_values((400, 12), np.array([1e7, 1e7, 1.0, 1e-3, *np.zeros(8)]), dtype)
    X = da.from_array(D, chunks=(90, 12))
    U = ss.svd(X, 6, solver="exact").U
    assert U.dtype == dtype
    found = np.asarray(U)
    assert found.dtype == dtype
    assert orthonormal_error(found) <= min(ORTHONORMAL, 400 * float(np.finfo(dtype).eps))


def test_factors_belong_together_with_scales_and_weights() -> None:
    D = values((120, 9), np.float64, 2)
    w = np.random.default_rng(1).integers(0, 3, 120)
    X = da.from_array(sparse.csr_array(D), chunks=(50, 9))
    mean = (w @ D) / w.sum()
    deviation = np.sqrt(w @ (D - mean) ** 2 / w.sum())
    E = np.sqrt(w)[:, None] * (D - mean) / deviation
    U, S, Vh = ss.svd(X, 9, shift="mean", scale=True, sample_weight=w, solver="lanczos", tol=1e-11, rng=0)
    assert isinstance(U, da.Array)
    np.testing.assert_allclose(np.asarray(U) * S @ Vh, E, atol=1e-10 * S[0])


def test_a_result_with_a_lazy_factor_does_what_others_do() -> None:
    D = decaying((200, 15), 0.5) + 1
    X = da.from_array(D, chunks=(60, 15))
    F, G = (ss.svd(A, 5, shift="mean", solver="lanczos", tol=1e-11, rng=0) for A in (X, D))
    V, W = np.eye(15, 3), np.eye(200, 2)
    for found, want in ((F @ V, G @ V), (F.H @ W, G.H @ W), (F.truncate(2) @ V, G.truncate(2) @ V)):
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, want, atol=1e-9)
    assert isinstance(F.truncate(2).U, da.Array)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(F)).U, G.U, atol=1e-9)
    A = ss.centered(X)
    np.testing.assert_allclose(ss.residuals(A, F), ss.residuals(ss.centered(D), G), atol=1e-11)
    assert ss.spectral_norm(A - F) == pytest.approx(ss.spectral_norm(ss.centered(D) - G), rel=1e-6)


def test_certificates_are_computed_of_a_lazy_factor_too() -> None:
    D = decaying((200, 15), 0.5) + 1
    F, G = (ss.svd(A, 5, shift="mean", solver="exact", certify=True) for A in (da.from_array(D, chunks=(60, 15)), D))
    assert isinstance(F.info.residuals, np.ndarray)
    np.testing.assert_allclose(F.info.residuals, G.info.residuals, atol=1e-13)
    assert F.info.converged


@pytest.mark.parametrize("chunks", [(15, 60), (4, 7)], ids=str)
def test_right_vectors_of_a_wide_array_come_to_memory_since_their_signs_do(chunks: Any) -> None:
    D = decaying((15, 200), 0.5) + 1
    F = ss.svd(da.from_array(D, chunks=chunks), 5, solver="lanczos", tol=1e-11, rng=0)
    want = ss.svd(D, 5, solver="lanczos", tol=1e-11, rng=0)
    assert isinstance(F.U, np.ndarray)
    assert isinstance(F.Vh, np.ndarray)
    np.testing.assert_allclose(F.Vh, want.Vh, atol=1e-9)
    np.testing.assert_allclose(F.U, want.U, atol=1e-9)


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Dask array with more than 10 columns is brought to memory as a whole."""
    compute = da.Array.compute

    def refuse(X: Any, **settings: Any) -> Any:
        assert X.ndim < 2 or X.shape[1] <= 10, f"{X} was computed"
        return compute(X, **settings)

    monkeypatch.setattr(da.Array, "compute", refuse)


@pytest.mark.usefixtures("never_whole")
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_truncated_svd_reads_chunks_and_its_scores_are_lazy(kind: Any) -> None:
    D = np.random.default_rng(0).poisson(0.5, (300, 40)) * np.linspace(3, 0.1, 40)
    loads = Loads()
    X = da.from_array(D, chunks=(70, 40)).map_blocks(kind, dtype=D.dtype, meta=kind(np.empty((0, 0))))
    X = X.map_blocks(loads, dtype=D.dtype, meta=kind(np.empty((0, 0))))
    loads.n = 0
    found, want = (ss.TruncatedSVD(3, tol=1e-11, random_state=0) for _ in range(2))
    with pytest.warns(UserWarning, match="first component is the mean"):
        found.fit(X)
    assert loads.n == 5 * (found.info_.n_passes + 2)  # means and variances
    want.fit(kind(D))  # of the mean, nothing is said again
    for name in ("components_", "singular_values_", "explained_variance_ratio_", "mean_alignment_"):
        np.testing.assert_allclose(getattr(found, name), getattr(want, name), atol=1e-8, err_msg=name)
    loads.n, Z = 0, found.transform(X)
    assert isinstance(Z, da.Array)
    assert (loads.n, Z.chunks) == (0, (X.chunks[0], (3,)))
    np.testing.assert_allclose(Z.compute(), want.transform(kind(D)), atol=1e-8)
    with pytest.raises(ValueError, match="39 features, but TruncatedSVD is expecting 40"):
        found.transform(X[:, :39])


@pytest.mark.usefixtures("never_whole")
def test_correspondence_of_a_dask_array_is_that_in_memory() -> None:
    N = np.random.default_rng(0).poisson(2.0, (90, 18)).astype(np.float64)
    X = da.from_array(N, chunks=(40, 18))
    found, want = (ss.CorrespondenceAnalysis(3, tol=1e-11, random_state=0).fit(A) for A in (X, N))
    np.testing.assert_allclose(found.row_coordinates_, want.row_coordinates_, atol=1e-8)
    np.testing.assert_allclose(found.column_coordinates_, want.column_coordinates_, atol=1e-8)
    np.testing.assert_allclose(found.transform(X), want.transform(N), atol=1e-8)
    np.testing.assert_allclose(found.column_coordinates(X), want.column_coordinates(N), atol=1e-8)


def test_scores_that_need_the_group_of_each_row_are_refused_before_any_work_without_it() -> None:
    X = da.from_array(np.random.default_rng(0).standard_normal((60, 5)), chunks=(20, 5))
    groups = np.arange(60) % 3
    pca = ss.PCA(2, shift=ss.GroupMeans(), random_state=0).fit(X, groups=groups)
    with pytest.raises(ValueError, match="groups"):
        pca.transform(X)
    np.testing.assert_allclose(pca.transform(X, groups=groups), pca.transform(np.asarray(X), groups=groups), atol=1e-10)


@pytest.mark.long
def test_a_fit_about_the_mean_holds_nothing_that_is_as_long_as_the_data() -> None:
    rows, height = 4 * 10**6, 10**4

    def chunk(block_id: tuple[int, int]) -> Any:
        return np.random.default_rng(block_id[0]).random((height, 3)) + 1

    X = da.map_blocks(chunk, chunks=((height,) * (rows // height), (3,)), dtype=np.float64, meta=np.empty((0, 0)))
    tracemalloc.start()
    with dask.config.set(scheduler="synchronous"):
        pca = ss.PCA(2, tol=1e-3, random_state=0).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(pca.mean_, 1.5, atol=1e-3)
    np.testing.assert_allclose(pca.explained_variance_, 1 / 12, rtol=1e-2)
    assert peak < rows  # bytes: a column of ones would take eight times as much
