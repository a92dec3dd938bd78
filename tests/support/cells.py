"""Cells of a made-up experiment with what is known of them, and what is to be found in them, by dense formulae."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

CELLS, GENES = 120, 40
GENE_NAMES = np.array([f"gene{j}" for j in range(GENES)])
MASK = np.arange(GENES) % 3 != 1


def counts(cells: int = CELLS, genes: int = GENES, seed: int = 0) -> np.ndarray:
    """Counts of cells in four groups, of which none is empty."""
    rng = np.random.default_rng(seed)
    programmes = np.random.default_rng(99).gamma(0.6, 1.5, (4, genes))
    mean = rng.dirichlet(np.full(4, 0.3), cells) @ programmes * rng.lognormal(0.0, 0.3, (cells, 1))
    X = rng.poisson(2 * mean).astype(np.float32)
    X[:, 0] += 1
    return X


def known(cells: int = CELLS, seed: int = 0) -> dict[str, Any]:
    """What is known of each cell."""
    rng = np.random.default_rng(1000 + seed)
    return {
        "pct_mito": rng.random(cells),
        "phase": np.array(["G1", "S", "G2M"])[np.arange(cells) % 3],
        "batch": np.arange(cells) // 7 % 2,
        "doublet": rng.random(cells) < 0.5,
    }


def annotated(X: Any = None, container: Any = sparse.csr_matrix, seed: int = 0) -> Any:
    """All of it as an AnnData object."""
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    X = counts(seed=seed) if X is None else X
    obs = pandas.DataFrame(known(len(X), seed), index=[f"cell{i}" for i in range(len(X))])
    obs["phase"] = obs["phase"].astype("category")
    var = pandas.DataFrame({"highly_variable": MASK, "mean": X.mean(axis=0)}, index=GENE_NAMES)
    return anndata.AnnData(container(X), obs=obs, var=var)


def written(path: Path, adata: Any = None) -> Path:
    """As a file, by its suffix."""
    adata = annotated() if adata is None else adata
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of anndata, about versions of formats to come
        (adata.write_zarr if path.suffix == ".zarr" else adata.write_h5ad)(path)
    return path


def logs(X: np.ndarray) -> np.ndarray:
    """normalize_total and log1p, in double precision."""
    X = X.astype(np.float64)
    return np.log1p(X * 1e4 / X.sum(axis=1, keepdims=True))


def design(what: dict[str, Any], names: tuple[str, ...], as_labels: tuple[str, ...] = ()) -> np.ndarray:
    """A column of ones, numbers as they are, and one for each label."""
    parts = [np.ones((len(what["phase"]), 1))]
    for name in (*names, *as_labels):
        values = np.asarray(what[name])
        labels = values.dtype.kind in "UO" or name in as_labels
        parts.append((values[:, None] == np.unique(values)).astype(float) if labels else values[:, None].astype(float))
    return np.hstack(parts)


class Dense:
    """Components of dense cells, after a regression on what is known of them, and scores of others."""

    def __init__(self, D: np.ndarray, C: np.ndarray, k: int, scale: bool = False) -> None:
        self.B = np.linalg.lstsq(C, D, rcond=None)[0]
        R = D - C @ self.B
        self.scale = R.std(axis=0, ddof=1) if scale else np.ones(D.shape[1])
        _, S, Vh = np.linalg.svd(R / self.scale, full_matrices=False)
        self.variance, self.V = S[:k] ** 2 / (len(D) - 1), Vh[:k].T

    def scores(self, D: np.ndarray, C: np.ndarray) -> np.ndarray:
        """Of these or other cells."""
        return np.asarray((D - C @ self.B) / self.scale @ self.V)


def assert_alike(got: Any, want: Any, bound: float = 1e-4) -> None:
    """Scores are those, but for the signs of their columns."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    signs = np.sign(np.sum(got * want, axis=0))
    np.testing.assert_allclose(got * signs, want, atol=bound * np.abs(want).max())
