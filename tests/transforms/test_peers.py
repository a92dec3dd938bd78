"""Transformations of peers, by their own functions where they are installed, on simulated and real counts."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

import shiftsvd as ss
from tests.support.transformed import counts

X = counts(300, 60, seed=1)


def formed(A: ss.Operator) -> np.ndarray:
    return A @ np.eye(A.shape[1])


def annotated(X: np.ndarray) -> Any:
    return pytest.importorskip("anndata").AnnData(sparse.csr_matrix(X))


@pytest.mark.parametrize(("theta", "clip"), [(100, None), (1, None), (10, 4.0), (np.inf, None), (100, np.inf)])
@pytest.mark.filterwarnings("ignore")
def test_pearson_residuals_are_those_of_scanpy(theta: float, clip: float | None) -> None:
    scanpy = pytest.importorskip("scanpy")
    adata = annotated(X[X.sum(axis=1) > 0])
    scanpy.experimental.pp.normalize_pearson_residuals(adata, theta=theta, clip=clip)
    A = ss.preprocess(sparse.csr_array(X[X.sum(axis=1) > 0]), ss.PearsonResiduals(theta, clip))
    np.testing.assert_allclose(formed(A), adata.X, atol=2e-6)  # theirs are in the precision of the counts, or single


@pytest.mark.parametrize("target", [None, 1e4])
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_normalized_counts_are_those_of_scanpy(target: float | None, exclude: bool) -> None:
    scanpy = pytest.importorskip("scanpy")
    adata = pytest.importorskip("anndata").AnnData(X.copy())  # of sparse data its median counts empty cells, too
    scanpy.pp.normalize_total(adata, target_sum=target, exclude_highly_expressed=exclude, max_fraction=0.3)
    scanpy.pp.log1p(adata)
    A = ss.preprocess(X, ss.LogNormalize(target, exclude_highly_expressed=exclude, max_fraction=0.3))
    np.testing.assert_allclose(formed(A), adata.X, rtol=1e-5)


def test_log_ratios_are_those_of_scikit_bio() -> None:
    composition = pytest.importorskip("skbio.stats.composition")
    np.testing.assert_allclose(formed(ss.preprocess(X, ss.CLR(0.5))), composition.clr(X + 0.5), atol=1e-12)
    theirs = composition.rclr(X[X.sum(axis=1) > 0])
    ours = formed(ss.preprocess(X[X.sum(axis=1) > 0], ss.CLR(kind="robust")))
    np.testing.assert_allclose(ours, np.nan_to_num(theirs), atol=1e-12)


def test_components_of_ranks_are_those_of_spearmans_correlation() -> None:
    rng = np.random.default_rng(0)
    heavy = np.exp(2 * rng.standard_normal((200, 3)) @ rng.standard_normal((3, 12))) * (rng.random((200, 12)) < 0.6)
    pca = ss.PCA(4, preprocess=ss.Ranks(), scale=True, scale_ddof=1, solver="exact").fit(sparse.csr_array(heavy))
    values = np.linalg.eigvalsh(spearmanr(heavy).statistic)[::-1]
    np.testing.assert_allclose(pca.explained_variance_, values[:4], rtol=1e-10)


def real(name: str) -> sparse.csr_array:
    file = Path(os.environ.get("SHIFTSVD_TEST_DATA", "")) / f"{name}.npz"
    if "SHIFTSVD_TEST_DATA" not in os.environ or not file.exists():
        pytest.skip(f"SHIFTSVD_TEST_DATA names no folder with {name}.npz")
    return sparse.csr_array(sparse.load_npz(file))


@pytest.mark.long
@pytest.mark.parametrize("name", ["bladder_counts", "pbmc10k_counts"])
def test_components_of_real_cells_are_those_of_dense_residuals(name: str) -> None:
    A = real(name).astype(np.float64)
    A = A[:1500, np.flatnonzero(A[:1500].sum(axis=0) > 0)[:4000]]
    r, c = A.sum(axis=1), A.sum(axis=0)
    mu = np.outer(r, c / r.sum())
    with np.errstate(invalid="ignore"):
        Z = np.where(mu > 0, (A.toarray() - mu) / np.sqrt(mu + mu**2 / 100), 0)
    D = np.clip(Z, -np.sqrt(len(r)), np.sqrt(len(r)))
    D -= D.mean(axis=0)
    S = np.linalg.svd(D, compute_uv=False)[:20]
    sharp = ss.PCA(20, preprocess=ss.PearsonResiduals(), tol=1e-10, random_state=0).fit(A)
    np.testing.assert_allclose(sharp.singular_values_, S, rtol=1e-8)
    loose = ss.PCA(20, preprocess=ss.PearsonResiduals(), solver="lanczos", random_state=0).fit(A.astype(np.float32))
    assert loose.info_.converged
    assert np.all(np.abs(loose.singular_values_ - S) <= loose.info_.value_errors * S)
