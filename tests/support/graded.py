"""Streams of graded data with their singular values in extended precision: what bounds of rounding are tried on."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse

import shiftsvd as ss
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

CONTAINERS = {"dense": np.asarray, "csr": sparse.csr_array, "fortran": np.asfortranarray}
DIGITS, SWEEPS, TINY = 80, 40, Decimal(10) ** -100
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Case:
    """Rows with weights, cut into batches that are streamed apart in some groups and merged."""

    X: Panel
    weights: Vector | None
    cuts: tuple[int, ...]
    n_streams: int
    k: int
    container: str
    settings: dict[str, Any]
    what: str

    def fit(self) -> ss.PCA:
        """The merged stream of all rows."""
        parts = np.split(np.arange(len(self.X)), self.cuts)
        streams = []
        for group in np.array_split(np.arange(len(parts)), self.n_streams):
            pca = ss.PCA(self.k, random_state=0, **self.settings)
            for at in group:
                rows = parts[at]
                w = None if self.weights is None else self.weights[rows]
                pca.partial_fit(CONTAINERS[self.container](self.X[rows]), sample_weight=w)
            streams.append(pca)
        while len(streams) > 1:
            streams[:2] = [ss.merge_pca(*streams[:2])]
        return streams[0]

    @cached_property
    def exact(self) -> Vector:
        """The singular values."""
        return exact_values(self.X, self.weights, centred="shift" not in self.settings)


def exact_values(X: Panel, weights: Vector | None = None, centred: bool = True) -> Vector:
    """Singular values of the centred, weighted rows, from eigenvalues of their squares with 80 digits."""
    with localcontext(prec=DIGITS):
        D = _decimals(X)
        w = _decimals(np.ones(len(X)) if weights is None else weights)[:, None]
        C = D - (w * D).sum(axis=0) / w.sum() if centred else D
        values = _eigenvalues(C.T @ (w * C))
        return np.array([float(max(value, Decimal(0)).sqrt()) for value in sorted(values, reverse=True)])


def _decimals(x: Panel) -> Panel:
    """The same numbers, exactly."""
    return np.array([Decimal(float(each)) for each in x.ravel()], object).reshape(x.shape)


def _eigenvalues(S: Panel) -> list[Decimal]:
    """Eigenvalues of a symmetric matrix of decimals, by Jacobi's method."""
    S, one = S.copy(), Decimal(1)
    for _ in range(SWEEPS):
        for p, q in combinations(range(len(S)), 2):
            if abs(S[p, q]) ** 2 <= abs(S[p, p] * S[q, q]) * TINY:
                continue
            slope = (S[q, q] - S[p, p]) / (2 * S[p, q])
            t = one.copy_sign(slope) / (abs(slope) + (slope * slope + 1).sqrt())
            c = one / (t * t + 1).sqrt()
            turn = np.array([[c, t * c], [-t * c, c]], object)
            S[:, [p, q]] = S[:, [p, q]] @ turn
            S[[p, q]] = turn.T @ S[[p, q]]
    return list(np.diagonal(S))


def within(pca: ss.PCA, exact: Vector, most: list[float] | None = None) -> bool:
    """Whether every singular value is as near to the exact one as is told; how near of that goes to `most`."""
    values, errors = pca.singular_values_, pca.info_.value_errors
    m, n = pca.n_samples_, pca.n_features_in_
    # A value that is reported as 0 with error 0 is rounding of the data: see `PCA.partial_fit`.
    zero = (values == 0) & (errors == 0)
    size = float(np.linalg.norm(exact)) + np.sqrt(m) * float(np.linalg.norm(pca.mean_))
    exact = exact[: len(values)]
    nothing = 2 * max(m, n) * EPS * size
    told = values > 0  # of others nothing is known unless their error is 0
    far, bound = np.abs(values - exact)[told], errors[told] * values[told]
    if most is not None:
        most.extend(far / bound)
    return bool(np.all(exact[zero] <= nothing) and np.all(far <= bound) and np.all(errors[~told & ~zero] == np.inf))


def graded(rng: np.random.Generator) -> Case:
    """A random case: columns or a rotated spectrum from 1 to 1e12, off-centre or not, with weights or without."""
    n, m = int(rng.integers(2, 9)), int(rng.integers(10, 120) if rng.random() < 0.8 else rng.integers(600, 2000))
    sketched = rng.random() < 0.1
    n = 16 if sketched else n
    top = 10 ** rng.uniform(0, 12)
    scale = rng.permutation(np.geomspace(1, top, n)) * 10 ** rng.uniform(-3, 3)
    kind = rng.choice(["columns", "rotated", "correlated", "dependent"])
    X = rng.standard_normal((m, n)) * (rng.random((m, n)) < rng.choice([0.3, 1.0]))
    if kind == "correlated":
        X = X @ (np.eye(n) + rng.uniform(0, 1) * rng.standard_normal((n, n)))
    X = X * scale
    if kind == "rotated":
        X = X @ np.linalg.qr(rng.standard_normal((n, n)))[0]
    if kind == "dependent":
        X[:, -1] = X[:, 0] * 2.0 ** rng.integers(-30, 30)
    off = 10 ** rng.uniform(0, 6) if rng.random() < 0.4 else 0.0
    X = X + off * scale * rng.standard_normal(n)
    X = X.astype(np.float32) if rng.random() < 0.2 else X
    weights = rng.choice([None, "whole", "any"])
    w = None if weights is None else rng.integers(0, 4, m) + 0.0 if weights == "whole" else 10 ** rng.uniform(-3, 3, m)
    if w is not None:
        w[:2] = 1.0
    n_cuts = int(rng.integers(0, min(m, 20)))
    cuts = tuple(int(at) for at in np.sort(rng.choice(np.arange(1, m), n_cuts, replace=False)))
    settings: dict[str, Any] = {} if rng.random() < 0.85 else {"shift": None}
    k = n
    if sketched:  # by a limit that the whole scatter matrix does not fit in
        k, settings = 3, settings | {"memory_limit": "40kB", "n_oversamples": 3}
    container = str(rng.choice(list(CONTAINERS)))
    n_streams = int(rng.integers(1, n_cuts + 2)) if rng.random() < 0.5 else 1
    cut = f"{len(cuts) + 1} batches, {n_streams} streams, {container}, {settings}"
    what = f"{kind}, to {top:.0e}, {m} x {n}, off {off:.0e}, {cut}"
    return Case(X, w, cuts, n_streams, k, container, settings, what)
