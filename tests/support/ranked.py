"""Highly variable features by the formulas of scanpy, dense and with pandas: what lazy rankings are compared with."""

from typing import Any

import numpy as np
import pandas as pd

Array = np.ndarray
FLAVORS = ("seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals")
OF_LOGARITHMS = FLAVORS[:2]
TINY = 1e-12


def cells(m: int = 240, n: int = 120, seed: int = 0, groups: int = 3) -> Array:
    """Counts of cells of several kinds, unequal sizes; some genes are nowhere, some everywhere the same, some alike."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, groups, m)
    rates = rng.gamma(0.6, 1.0, n) * rng.lognormal(0, 0.7, (groups, n))
    X = rng.poisson(rates[kinds] * rng.gamma(4, 0.25, (m, 1))).astype(float)
    X[:, 5] = 0
    X[:, 6] = 2
    X[:, 7] = X[:, 8]
    X[:, 9] = 0
    X[rng.integers(0, m), 9] = 1
    return X


def logarithms(X: Array, target: float = 1e4) -> Array:
    sums = X.sum(axis=1, keepdims=True)
    return np.log1p(X * np.where(sums > 0, target / np.where(sums > 0, sums, 1), 1))


def dispersions(L: Array, flavor: str, n_top: Any, n_bins: int = 20, cutoffs: Any = (0.0125, 3, 0.5, np.inf)) -> Any:
    """A frame of one batch."""
    X = np.expm1(L) if flavor == "seurat" else L
    constant = np.ptp(X, axis=0) == 0
    mean, var = X.mean(axis=0), np.where(constant, 0, X.var(axis=0, ddof=1))
    mean[mean == 0] = TINY
    dispersion = var / mean
    if flavor == "seurat":
        dispersion[dispersion == 0] = np.nan
        dispersion, mean = np.log(dispersion), np.log1p(mean)
        bins: Any = n_bins
    else:
        bins = np.unique(np.r_[-np.inf, np.percentile(mean, np.arange(10, 105, 5)), np.inf])
    frame = pd.DataFrame({"means": mean, "dispersions": dispersion})
    frame["bin"] = pd.cut(frame["means"], bins=bins)
    grouped = frame.groupby("bin", observed=True)["dispersions"]
    if flavor == "seurat":
        centre, spread = grouped.transform("mean"), grouped.transform("std")
        alone = spread.isna()
        spread, centre = spread.where(~alone, centre), centre.where(~alone, 0)
    else:
        centre = grouped.transform("median")
        spread = grouped.transform(lambda d: np.median(np.abs(d - np.median(d)))) / 0.6744897501960817
    with np.errstate(all="ignore"):
        frame["dispersions_norm"] = (frame["dispersions"] - centre) / spread
    frame["highly_variable"] = chosen(frame, n_top, cutoffs)
    return frame.drop(columns="bin")


def chosen(frame: Any, n_top: Any, cutoffs: Any) -> Any:
    norm = frame["dispersions_norm"].to_numpy()
    if n_top is None:
        low, high, least, most = cutoffs
        return (frame["means"] > low) & (frame["means"] < high) & (np.nan_to_num(norm) > least) & (norm < most)
    known = np.sort(norm[~np.isnan(norm)])[::-1]
    return np.nan_to_num(norm, nan=-np.inf) >= known[min(n_top, len(known)) - 1]


def by_dispersion(L: Array, flavor: str, n_top: Any, batch: Any, names: Array, **more: Any) -> Any:
    if batch is None:
        return dispersions(L, flavor, n_top, **more)
    frames = []
    for label in np.unique(batch):
        part = L[batch == label]
        there = (part > 0).any(axis=0)
        own = dispersions(part[:, there], flavor, n_top, **more).set_index(names[there])
        rest = pd.DataFrame(0.0, index=names[~there], columns=own.columns).astype({"highly_variable": bool})
        frames.append(pd.concat([own, rest]))
    frame = pd.concat(frames)
    frame["highly_variable"] = frame["highly_variable"].astype(int)
    grouped = frame.groupby(level=0)
    kinds = {"means": "mean", "dispersions": "mean", "dispersions_norm": "mean", "highly_variable": "sum"}
    frame = grouped.agg(kinds)
    frame["highly_variable_nbatches"] = frame["highly_variable"]
    frame["highly_variable_intersection"] = frame["highly_variable"] == len(frames)
    if n_top is None:
        frame["dispersions_norm"] = frame["dispersions_norm"].fillna(0)
        frame["highly_variable"] = chosen(frame, None, more.get("cutoffs", (0.0125, 3, 0.5, np.inf)))
    else:
        frame = frame.sort_values(["highly_variable_nbatches", "dispersions_norm"], ascending=False)
        frame["highly_variable"] = np.arange(len(frame)) < n_top
    return frame.loc[names].reset_index(drop=True)


def by_rank(scores: Array, n_top: int, rank_first: bool) -> Any:
    """Of scores of shape (batches, n), of which those are alike that differ by rounding."""
    alike = np.array([[float(f"{score:.11e}") for score in own] for own in scores])
    ranks = np.argsort(np.argsort(-alike, axis=1), axis=1).astype(float)
    n_batches = (ranks < n_top).sum(axis=0)
    ranks[ranks >= n_top] = np.nan
    frame = pd.DataFrame({"highly_variable_rank": pd.DataFrame(ranks).median(), "highly_variable_nbatches": n_batches})
    keys = ["highly_variable_rank", "highly_variable_nbatches"]
    sorted_ = frame.sort_values(keys if rank_first else keys[::-1], ascending=[rank_first, not rank_first])
    frame["highly_variable"] = frame.index.isin(sorted_.index[:n_top])
    return frame


def residual_variance(X: Array, theta: float, clip: Any) -> Array:
    mu = np.outer(X.sum(axis=1), X.sum(axis=0)) / X.sum()
    with np.errstate(all="ignore"):
        Z = np.where(mu > 0, (X - mu) / np.sqrt(mu + mu**2 / theta), 0)
    limit = np.sqrt(len(X)) if clip is None else clip
    return np.clip(Z, -limit, limit).var(axis=0)


def standardised_variance(X: Array, span: float, loess: Any) -> Array:
    mean, var = X.mean(axis=0), X.var(axis=0, ddof=1)
    varies, deviation = np.ptp(X, axis=0) > 0, np.ones(X.shape[1])
    deviation[varies] = np.sqrt(10 ** loess(np.log10(mean[varies]), np.log10(var[varies]), span))
    Y = np.minimum(X, mean + deviation * np.sqrt(len(X)))
    return ((Y - mean) ** 2).sum(axis=0) / ((len(X) - 1) * deviation**2)


def frame_of(X: Array, flavor: str, n_top: Any, batch: Any = None, names: Any = None, **more: Any) -> Any:
    """All that a ranking of raw counts tells, by its formulas."""
    names = np.array([f"gene{j:04}" for j in range(X.shape[1])]) if names is None else names
    if flavor in OF_LOGARITHMS:
        return by_dispersion(logarithms(X), flavor, n_top, batch, names, **more)
    labels = np.zeros(len(X)) if batch is None else batch
    parts = [X[labels == label] for label in np.unique(labels)]
    if flavor == "pearson_residuals":
        theta, clip = more.get("theta", 100.0), more.get("clip")
        scores, name = np.array([residual_variance(part, theta, clip) for part in parts]), "residual_variances"
    else:
        from shiftsvd.scanpy.ranking import loess

        scores = np.array([standardised_variance(part, more.get("span", 0.3), loess) for part in parts])
        name = "variances_norm"
    frame = by_rank(scores, n_top, flavor == "seurat_v3")
    frame["highly_variable_intersection"] = frame["highly_variable_nbatches"] == len(parts)
    frame["means"], frame["variances"], frame[name] = X.mean(axis=0), X.var(axis=0, ddof=1), scores.mean(axis=0)
    return frame
