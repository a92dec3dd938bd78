"""Explicit dense computations of every transformation, entry by entry: what the lazy ones are compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.feature_extraction.text import TfidfTransformer

import shiftsvd as ss

Array = np.ndarray
# Of training rows X and rows Y, which may be the same: Y transformed by what is learned from X.
Dense = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Row:
    """A transformation, and the same computed densely."""

    how: Any
    dense: Dense


def counts(m: int = 80, n: int = 24, seed: int = 0, mean: float = 1.0) -> Array:
    """Overdispersed counts of rows of unequal sizes, with an empty row; every column has some, the first one many."""
    rng = np.random.default_rng(seed)
    rates = np.outer(rng.gamma(2, 0.5, m), rng.gamma(0.7, mean, n))
    X = rng.poisson(rates * rng.gamma(2, 0.5, (m, n))).astype(float)
    X[:, 0] += rng.poisson(10 * rates.mean(axis=1))
    X[m // 8 : m // 4, 0] = 0  # where many are expected
    X[m // 2] = 0
    X[0, X.sum(axis=0) == 0] = 1
    return X


def expected(X: Array, Y: Array) -> Array:
    return np.outer(Y.sum(axis=1), X.sum(axis=0) / X.sum())


def pearson(theta: Any, clip: float | None = None) -> Dense:
    def of(X: Array, Y: Array) -> Array:
        mu = expected(X, Y)
        limit = np.sqrt(len(X)) if clip is None else clip
        with np.errstate(invalid="ignore", divide="ignore"):
            Z = (Y - mu) / np.sqrt(mu + mu**2 / theta)
        return np.clip(np.where(mu > 0, Z, 0), -limit, limit)

    return of


def estimated(X: Array, Y: Array) -> Array:
    mu = expected(X, X)
    with np.errstate(divide="ignore"):
        inverse = ((X - mu) ** 2 - mu).sum(axis=0) / (mu**2).sum(axis=0)
        return pearson(np.where(inverse > 0, 1 / inverse, np.inf))(X, Y)


def xlogy(x: Array, y: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 0, x * np.log(y), 0)


def rooted(D: Array, sign: Array) -> Array:
    return np.sign(sign) * np.sqrt(np.maximum(np.where(np.isfinite(D), D, 0), 0))


def deviance(model: str, theta: Any = np.inf) -> Dense:
    def of(X: Array, Y: Array) -> Array:
        X, Y = X.astype(np.longdouble), Y.astype(np.longdouble)  # differences of logarithms cancel near mu
        mu, total = expected(X, Y), Y.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            if model == "poisson":
                D = 2 * (xlogy(Y, Y / mu) - (Y - mu))
            elif model == "binomial":
                D = 2 * (xlogy(Y, Y / mu) + xlogy(total - Y, (total - Y) / (total - mu)))
            else:
                D = 2 * (xlogy(Y, Y / mu) - (Y + theta) * np.log((Y + theta) / (mu + theta)))
        return rooted(D, Y - mu).astype(float)

    return of


def log_normalized(target: float | None, most: float | None = None) -> Dense:
    def of(X: Array, Y: Array) -> Array:
        counted = np.ones(X.shape[1], bool)
        if most is not None:
            counted = ~(X > most * X.sum(axis=1, keepdims=True)).any(axis=0)
        r, own = Y[:, counted].sum(axis=1), X[:, counted].sum(axis=1)
        t = np.median(own[own > 0]) if target is None else target
        scale = np.where(r > 0, t / np.where(r > 0, r, 1), 1)
        return np.log1p(Y * scale[:, None])

    return of


def pmi(a: float, power: float, positive: bool = False) -> Dense:
    def of(X: Array, Y: Array) -> Array:
        m, n = X.shape
        p = (X.sum(axis=0) + a * m) ** power
        with np.errstate(divide="ignore", invalid="ignore"):
            M = np.log((Y + a) / ((Y.sum(axis=1, keepdims=True) + a * n) * p / p.sum()))
        M = M if a else np.where(Y > 0, M, 0)
        return np.maximum(M, 0) if positive else M

    return of


def tfidf(**settings: Any) -> Dense:
    return lambda X, Y: np.asarray(TfidfTransformer(**settings).fit(X).transform(Y).todense())


def bm25(X: Array, Y: Array) -> Array:
    df, r, average = (X > 0).sum(axis=0), Y.sum(axis=1, keepdims=True), X.sum(axis=1).mean()
    idf = np.log(1 + (len(X) - df + 0.5) / (df + 0.5))
    return idf * Y * 2.2 / (Y + 1.2 * (1 - 0.75 + 0.75 * r / average))


def clr(c: float) -> Dense:
    def of(X: Array, Y: Array) -> Array:
        L = np.log(Y + c)
        return L - L.mean(axis=1, keepdims=True)

    return of


def robust_clr(X: Array, Y: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        L = np.where(Y > 0, np.log(Y), np.nan)
        mean = np.where((Y > 0).any(axis=1), np.nansum(L, axis=1) / np.maximum((Y > 0).sum(axis=1), 1), 0)
    return np.where(Y > 0, L - mean[:, None], 0)


def seurat_clr(X: Array, Y: Array) -> Array:
    return np.log1p(Y / np.exp(np.log1p(Y).sum(axis=1, keepdims=True) / Y.shape[1]))


def ranks(X: Array, Y: Array) -> Array:
    if X is Y:
        return rankdata(X, axis=0)
    below = (X[None] < Y[:, None]).sum(axis=1)
    return below + ((X[None] == Y[:, None]).sum(axis=1) + 1) / 2


VECTOR = np.geomspace(0.5, 50, 24)
ROWS = {
    "log-normalize": Row(ss.LogNormalize(1e4), log_normalized(1e4)),
    "log-normalize by the median": Row(ss.LogNormalize(None), log_normalized(None)),
    "log-normalize by few": Row(
        ss.LogNormalize(1e4, exclude_highly_expressed=True, max_fraction=0.5), log_normalized(1e4, 0.5)
    ),
    "pearson": Row(ss.PearsonResiduals(100), pearson(100)),
    "pearson, theta 1": Row(ss.PearsonResiduals(1), pearson(1)),
    "pearson, a theta each": Row(ss.PearsonResiduals(VECTOR), pearson(VECTOR)),
    "pearson, estimated": Row(ss.PearsonResiduals("estimate"), estimated),
    "pearson, poisson": Row(ss.PearsonResiduals(np.inf), pearson(np.inf)),
    "pearson, cut off": Row(ss.PearsonResiduals(np.inf, clip=3.0), pearson(np.inf, 3.0)),
    "pearson, never cut off": Row(ss.PearsonResiduals(100, clip=np.inf), pearson(100, np.inf)),
    "deviance, poisson": Row(ss.DevianceResiduals("poisson"), deviance("poisson")),
    "deviance, binomial": Row(ss.DevianceResiduals("binomial"), deviance("binomial")),
    "deviance, nb": Row(ss.DevianceResiduals("nb", 3.0), deviance("nb", 3.0)),
    "deviance, a theta each": Row(ss.DevianceResiduals("nb", VECTOR), deviance("nb", VECTOR)),
    "pmi": Row(ss.PMI(1.0), pmi(1.0, 0.75)),
    "pmi of little": Row(ss.PMI(0.01, context_power=1), pmi(0.01, 1)),
    "pmi of what is stored": Row(ss.PMI(0), pmi(0, 0.75)),
    "positive pmi": Row(ss.PMI(0, positive=True), pmi(0, 0.75, True)),
    "tfidf": Row(ss.TfIdf(), tfidf()),
    "tfidf, l1, sublinear": Row(ss.TfIdf("l1", sublinear_tf=True), tfidf(norm="l1", sublinear_tf=True)),
    "tfidf, not smooth": Row(ss.TfIdf(None, smooth_idf=False), tfidf(norm=None, smooth_idf=False)),
    "tf": Row(ss.TfIdf(use_idf=False), tfidf(use_idf=False)),
    "bm25": Row(ss.BM25(), bm25),
    "clr": Row(ss.CLR(), clr(1.0)),
    "clr, pseudocount": Row(ss.CLR(0.3), clr(0.3)),
    "robust clr": Row(ss.CLR(kind="robust"), robust_clr),
    "seurat clr": Row(ss.CLR(kind="seurat"), seurat_clr),
    "ranks": Row(ss.Ranks(), ranks),
    "sqrt": Row(ss.Sqrt(), lambda X, Y: np.sqrt(Y)),
    "freeman-tukey": Row(ss.FreemanTukey(), lambda X, Y: np.sqrt(Y) + np.sqrt(Y + 1)),
    "anscombe": Row(ss.Anscombe(), lambda X, Y: 2 * np.sqrt(Y + 0.375)),
    "binarize": Row(ss.Binarize(1), lambda X, Y: (Y > 1).astype(float)),
    "elementwise": Row(ss.Elementwise(np.cos), lambda X, Y: np.cos(Y)),
}
