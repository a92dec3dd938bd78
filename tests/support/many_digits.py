"""Transformations at 50 digits: the defining formulas entry by entry in mpmath, and random data that strain doubles."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy import sparse

import shiftsvd as ss
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.transforms.base import parts, units

Array = np.ndarray
Numbers = list[Any]  # of mpf
Lines = list[Numbers]
Exact = Callable[[Lines, Numbers], Lines]  # from entries and weights of the rows
DIGITS = 50
THETA = 100


@dataclass(frozen=True)
class Case:
    """A transformation, the same at 50 digits, and whether it takes whole numbers alone."""

    how: Any
    exact: Exact
    whole: bool = False
    scales: bool = False  # whether scales from 1e-300 to 1e300 mean something
    dense: bool = False  # whether zeros may become stored entries, for which sparse data have no room


@dataclass(frozen=True)
class Data:
    """Entries, and how often each row counts."""

    X: Array
    weights: Array


class Ratios(NamedTuple):
    """Errors over what is stated of them: of the columns of the transformed matrix, and of singular values."""

    columns: float
    values: float


def margins(X: Lines, w: Numbers) -> tuple[Numbers, Numbers, Any]:
    c = [mp.fsum(w[i] * row[j] for i, row in enumerate(X)) for j in range(len(X[0]))]
    return [mp.fsum(row) for row in X], c, mp.fsum(c)


def of_model(f: Callable[..., Any]) -> Exact:
    """Residuals ``f(x, mu, r, p)`` where something is expected, else 0."""

    def of(X: Lines, w: Numbers) -> Lines:
        r, c, total = margins(X, w)
        p = [each / total if total else mpf(0) for each in c]
        return [
            [f(x, r[i] * p[j], r[i], p[j]) if r[i] * p[j] else mpf(0) for j, x in enumerate(X[i])]
            for i in range(len(X))
        ]

    return of


def pearson(theta: Any, cut_off: bool = False) -> Exact:
    """Pearson residuals; theta None is that of the moments of each column."""

    def of(X: Lines, w: Numbers) -> Lines:
        clip = mp.sqrt(mp.fsum(w)) if cut_off else mp.inf
        r, c, total = margins(X, w)
        thetas = [theta if theta else of_moments(X, w, r, each / total if total else 0, j) for j, each in enumerate(c)]
        made = [
            of_model(lambda x, mu, r, p, t=t: max(-clip, min(clip, (x - mu) / mp.sqrt(mu + mu**2 / t))))(X, w)
            for t in (thetas if theta is None else thetas[:1])
        ]
        return [[made[j if theta is None else 0][i][j] for j in range(len(c))] for i in range(len(X))]

    return of


def of_moments(X: Lines, w: Numbers, r: Numbers, p: Any, j: int) -> Any:
    squares = mp.fsum(w[i] * (r[i] * p) ** 2 for i in range(len(X)))
    excess = mp.fsum(w[i] * ((X[i][j] - r[i] * p) ** 2 - r[i] * p) for i in range(len(X)))
    return squares / excess if excess > 0 else mp.inf


def xlog(x: Any, y: Any) -> Any:
    return x * mp.log(x / y) if x else mpf(0)


def rooted(half: Any, d: Any) -> Any:
    return mp.sign(d) * mp.sqrt(2 * max(half, 0))


def poisson(x: Any, mu: Any, r: Any, p: Any) -> Any:
    return rooted(xlog(x, mu) - (x - mu), x - mu)


def binomial(x: Any, mu: Any, r: Any, p: Any) -> Any:
    return rooted(xlog(x, mu) + xlog(r - x, r - mu), x - mu)


def negative_binomial(theta: Any) -> Callable[..., Any]:
    return lambda x, mu, r, p: rooted(xlog(x, mu) - (x + theta) * mp.log((x + theta) / (mu + theta)), x - mu)


def log_normalized(most: float | None) -> Exact:
    def of(X: Lines, w: Numbers) -> Lines:
        n, r = len(X[0]), margins(X, w)[0]
        high = [
            most is not None and any(w[i] and row[j] > mpf(most) * r[i] for i, row in enumerate(X)) for j in range(n)
        ]
        own = [mp.fsum(x for x, out in zip(row, high, strict=True) if not out) for row in X]
        return [[mp.log1p(x * (10000 / own[i] if own[i] else 1)) for x in row] for i, row in enumerate(X)]

    return of


def frequencies(X: Lines, w: Numbers) -> tuple[Numbers, Any]:
    df = [mp.fsum(w[i] for i, row in enumerate(X) if row[j]) for j in range(len(X[0]))]
    return df, mp.fsum(w)


def tfidf(norm: str | None, smooth: int) -> Exact:
    def of(X: Lines, w: Numbers) -> Lines:
        df, total = frequencies(X, w)
        idf = [mp.log((total + smooth) / (each + smooth)) + 1 if each + smooth else mpf(0) for each in df]
        Y = [[x * idf[j] for j, x in enumerate(row)] for row in X]
        length = {"l2": lambda row: mp.sqrt(mp.fsum(x * x for x in row)), "l1": mp.fsum, None: lambda row: 1}[norm]
        return [[x / (length(row) or 1) for x in row] for row in Y]

    return of


def bm25(b: float) -> Exact:
    def of(X: Lines, w: Numbers) -> Lines:
        df, total = frequencies(X, w)
        r, k1, b_ = margins(X, w)[0], mpf(1.2), mpf(b)
        average = mp.fsum(u * v for u, v in zip(w, r, strict=True)) / total or mpf(1)
        idf = [mp.log1p((total - each + 0.5) / (each + 0.5)) for each in df]
        add = [k1 * (1 - b_ + b_ * each / average) for each in r]
        return [
            [idf[j] * x * (k1 + 1) / (x + add[i]) if x else mpf(0) for j, x in enumerate(X[i])] for i in range(len(X))
        ]

    return of


def pmi(a: float, power: float) -> Exact:
    def of(X: Lines, w: Numbers) -> Lines:
        r, c, _ = margins(X, w)
        n, plus = len(c), a * mp.fsum(w)
        p = [(each + plus) ** mpf(power) if each + plus else mpf(0) for each in c]
        total = mp.fsum(p)
        if a:
            return [
                [mp.log((x + a) / ((r[i] + a * n) * p[j] / total)) for j, x in enumerate(X[i])] for i in range(len(X))
            ]
        return [
            [mp.log(x / (r[i] * p[j] / total)) if x and p[j] else mpf(0) for j, x in enumerate(X[i])]
            for i in range(len(X))
        ]

    return of


def clr(X: Lines, w: Numbers) -> Lines:
    logs = [[mp.log1p(x) for x in row] for row in X]
    return [[x - mp.fsum(row) / len(row) for x in row] for row in logs]


def robust_clr(X: Lines, w: Numbers) -> Lines:
    logs = [[mp.log(x) if x else None for x in row] for row in X]
    means = [mp.fsum(x for x in row if x is not None) / max(1, sum(x is not None for x in row)) for row in logs]
    return [[mpf(0) if x is None else x - means[i] for x in row] for i, row in enumerate(logs)]


CASES = {
    "pearson, theta 100": Case(ss.PearsonResiduals(THETA, clip=np.inf), pearson(THETA), True),
    "pearson, poisson": Case(ss.PearsonResiduals(np.inf, clip=np.inf), pearson(mp.inf), True),
    "pearson, cut off": Case(ss.PearsonResiduals(THETA), pearson(THETA, True), True, dense=True),
    "pearson, estimated theta": Case(ss.PearsonResiduals("estimate", clip=np.inf), pearson(None), True),
    "deviance, poisson": Case(ss.DevianceResiduals("poisson"), of_model(poisson), True),
    "deviance, binomial": Case(ss.DevianceResiduals("binomial"), of_model(binomial), True),
    "deviance, nb, theta 100": Case(ss.DevianceResiduals("nb", THETA), of_model(negative_binomial(THETA)), True),
    "deviance, nb, theta 0.1": Case(ss.DevianceResiduals("nb", 0.1), of_model(negative_binomial(mpf(0.1))), True),
    "deviance, nb, theta 1e9": Case(ss.DevianceResiduals("nb", 1e9), of_model(negative_binomial(10**9)), True),
    "log-normalize": Case(ss.LogNormalize(), log_normalized(None), scales=True),
    "log-normalize, few excluded": Case(
        ss.LogNormalize(exclude_highly_expressed=True, max_fraction=0.5), log_normalized(0.5), scales=True
    ),
    "tf-idf, l2": Case(ss.TfIdf(), tfidf("l2", 1), scales=True),
    "tf-idf, l1, not smooth": Case(ss.TfIdf("l1", smooth_idf=False), tfidf("l1", 0), scales=True),
    "bm25": Case(ss.BM25(), bm25(0.75)),
    "bm25, b = 1": Case(ss.BM25(b=1.0), bm25(1.0)),
    "pmi": Case(ss.PMI(), pmi(1, 0.75)),
    "pmi of what is stored": Case(ss.PMI(0, 1.0), pmi(0, 1.0), scales=True),
    "clr": Case(ss.CLR(), clr),
    "robust clr": Case(ss.CLR(kind="robust"), robust_clr, scales=True),
}


def draw(rng: np.random.Generator, case: Case) -> Data:
    """Random rows, some empty or of weight 0, some far beyond theta or as they are expected, and columns likewise."""
    m, n = int(rng.integers(7, 13)), int(rng.integers(4, 7))
    size = 10 ** rng.uniform(0, rng.choice([1.0, 4.0, 8.0, 15.0, 100.0]))
    rates = np.outer(rng.gamma(2, 1, m), rng.gamma(0.7, 1, n)) * size
    noise = rng.choice([0.0, 1e-6, 1.0])
    X = (
        rng.poisson(np.minimum(rates, 1e15)) * np.maximum(rates / 1e15, 1)
        if noise == 1.0
        else rates * (1 + noise * rng.standard_normal((m, n)))
    )
    X = np.rint(np.maximum(X, 0))
    X[rng.random((m, n)) < rng.choice([0.0, 0.5])] = 0
    X[rng.random(m) < 0.1] = 0
    X[:, rng.random(n) < 0.1] = 0
    X[0, :2] += 1 + np.rint(size)  # not all in one column
    if not case.whole and rng.random() < 0.7:
        X = X / X.max() * 10 ** (rng.uniform(-295, 290) if case.scales else rng.uniform(-20, 20))
        X[X < X.max() * 1e-8] = 0
    kind = rng.integers(5)
    w = np.ones(m)
    if kind == 1:
        w = rng.integers(0, 4, m).astype(float)
    elif kind == 2:
        w = rng.uniform(1e-3, 1, m)
    elif kind == 3:
        w = 10 ** rng.uniform(-12, 12, m) * (rng.random(m) < 0.8)
    elif kind == 4:  # of which counts add up to less than 1
        w = rng.uniform(0, 1, m) / max(X.sum(), 1) / 2
    if kind:
        X, w = np.vstack([X, np.zeros(n)]), np.append(w, 2.0 * (kind == 4))
        w[0] = max(w[0], 1.5 if kind != 4 else w.max())
    return Data(X, w)


def compare(case: Case, data: Data, rng: np.random.Generator, k: int = 3) -> Ratios:
    """Errors over what a fit states of them, at a random tolerance and in a random container."""
    mp.dps = DIGITS + 2 * max(0, round(float(np.log10(max(data.X.max(), 1)))))
    X, w = ([[mpf(x) for x in row] for row in data.X.tolist()], [mpf(x) for x in data.weights.tolist()])
    Z = case.exact(X, w)
    kinds = [np.asarray, sparse.csr_array, sparse.csc_array]
    held = kinds[0 if case.dense else int(rng.integers(3))](data.X)
    tol = float(rng.choice([1e-4, 1e-8, 1e-12]))
    A = ss.as_operator(held)
    prepared = Preparation(weights=data.weights, entries=(case.how,), tol=tol).learn(A)
    (fitted,), own = prepared.entries, prepared.own
    assert own is not None
    stored, zeros = parts(fitted, A, fitted.rows(A))
    made = [[mpf(x) for x in row] for row in (stored @ np.eye(A.shape[1])).tolist()]
    if zeros is not None:
        L, R = zeros.L.tolist(), zeros.R.tolist()
        made = [
            [x - mp.fsum(mpf(a) * mpf(b) for a, b in zip(L[i], R[j], strict=True)) for j, x in enumerate(row)]
            for i, row in enumerate(made)
        ]
    told = np.broadcast_to(own.errors + own.changed.rounding, A.shape[1])
    worst = mpf(0)
    for j in range(A.shape[1]):
        error, size = (
            mp.sqrt(mp.fsum(w[i] * f(i) ** 2 for i in range(len(w))))
            for f in (lambda i, j=j: made[i][j] - Z[i][j], lambda i, j=j: Z[i][j])
        )
        bound = mpf(float(told[j])) + mpf(units(*A.shape)) * size
        worst = max(worst, error / bound if bound else (mpf(0) if not error else mp.inf))
    F = ss.svd(
        held, min(k, A.shape[1]), preprocess=case.how, sample_weight=data.weights, tol=tol, solver="lanczos", rng=0
    )
    roots = mpmath.matrix([[mp.sqrt(w[i]) * x for x in row] for i, row in enumerate(Z)])
    squares = sorted((x for x in mp.eigsy(roots.T * roots, eigvals_only=True)), reverse=True)
    S = [mp.sqrt(max(x, 0)) for x in squares]
    values = mpf(0)
    errors = np.zeros(len(F.S)) if F.info.value_errors is None else F.info.value_errors
    for s, exact, error in zip(F.S.tolist(), S, errors.tolist(), strict=False):
        if s > 0:
            bound = mpf(error) * mpf(s)
            values = max(values, abs(mpf(s) - exact) / bound if bound else mp.inf * abs(mpf(s) - exact))
    return Ratios(float(worst), float(values))
