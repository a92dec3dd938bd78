"""Log counts of cells as AnnData objects, and their components by the definition."""

from typing import Any

import numpy as np
import pytest

anndata = pytest.importorskip("anndata")

CELLS, GENES = 120, 40


def counts(cells: int = CELLS, genes: int = GENES, seed: int = 0, groups: int = 4) -> Any:
    """Log counts of cells in groups, dense, in single precision."""
    rng = np.random.default_rng(seed)
    programmes = np.random.default_rng(99).gamma(0.6, 1.5, (groups, genes))
    depth = rng.lognormal(0.0, 0.3, (cells, 1))
    mean = rng.dirichlet(np.full(groups, 0.3), cells) @ programmes * depth
    return np.log1p(rng.poisson(mean)).astype(np.float32)


def annotated(X: Any) -> Any:
    """An AnnData object of this matrix."""
    adata = anndata.AnnData(X)
    adata.obs_names = [f"cell{i}" for i in range(X.shape[0])]
    adata.var_names = [f"gene{j}" for j in range(X.shape[1])]
    return adata


def explicit(X: Any, k: int, center: bool = True, scale: bool = False) -> tuple[Any, Any, Any]:
    """Scores, components and variances by the definition, in double precision."""
    X = np.asarray(X, np.float64)
    deviations = X.std(axis=0, ddof=1)
    X = X - X.mean(axis=0) if center else X
    X = X / np.where(deviations > 0, deviations, 1) if scale else X
    _, S, Vh = np.linalg.svd(X, full_matrices=False)
    Vh = Vh[:k] * np.sign(Vh[np.arange(k), np.argmax(np.abs(Vh[:k]), axis=1)])[:, None]
    return X @ Vh.T, Vh, S[:k] ** 2 / (len(X) - 1)


def assert_near(got: Any, want: Any, bound: float = 2e-5) -> None:
    assert np.linalg.norm(np.asarray(got, np.float64) - want) <= bound * np.linalg.norm(want)


def chunks_of(X: Any, container: Any) -> Any:
    """A Dask array of blocks of 50 rows."""
    array = pytest.importorskip("dask.array")
    blocks = [array.from_array(container(X[lo : lo + 50]), asarray=False, chunks=-1) for lo in range(0, len(X), 50)]
    return array.concatenate(blocks)
