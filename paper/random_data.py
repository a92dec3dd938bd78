"""Figures (a) to (f): S-RSVD, RSVD and the deterministic SVD on 100-dimensional random data."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

import shiftsvd as ss
from paper.metrics import exact_sample, mse
from paper.published import EXACT, EXPLICIT, PLAIN, SHIFTED, SVD, Values

Panel = npt.NDArray[np.float64]
ByRank = dict[int, float]

M: Final = 100  # features: the paper's rows
GRID: Final = (1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90)
SIZES: Final = (1000, 2000, 3000, 4000, 5000, 7000, 10_000, 15_000, 20_000)
POWERS: Final = (0, 1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 100, 200)
SHORTCUT_FROM: Final = 10  # power iterations from which the m x m recurrence replaces the solver

SVD_PLAIN: Final = "SVD, no shift"
EXACT_EXPLICIT: Final = "exact sample of the centred matrix"
SHORTCUT: Final = "shortcut"

DRAWS: Final[dict[str, Callable[[np.random.Generator, tuple[int, int]], npt.NDArray[np.generic]]]] = {
    "Uniform": lambda rng, shape: rng.random(shape),
    "Normal": lambda rng, shape: rng.normal(1.0, 1.0, shape),
    "Zipf": lambda rng, shape: rng.zipf(3.0, shape),
    "Poisson": lambda rng, shape: rng.poisson(1.0, shape),
}


@dataclass(frozen=True)
class Point:
    """One point of a figure, once: its own data set, n samples of a distribution, q power iterations."""

    figure: str
    x: int | str
    distribution: str
    n: int
    q: int
    seed: int

    def rng(self, k: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(f"{self.figure} {self.distribution} {self.x}".encode()), k])

    def data(self) -> Panel:
        return DRAWS[self.distribution](self.rng(), (self.n, M)).astype(np.float64)


@dataclass(frozen=True)
class Method:
    """A series of a figure: an operator, and a measure of what some solver makes of it at rank k."""

    name: str
    A: ss.Operator
    measure: Callable[[ss.Operator, int, int, np.random.Generator], float]


def as_printed(A: ss.Operator, k: int, q: int, rng: np.random.Generator) -> float:
    return mse(A, ss.ShiftedRandomizedSVD(n_iter=q)(A, k, rng).Vh)


def by_recurrence(A: ss.Operator, k: int, q: int, rng: np.random.Generator) -> float:
    K = min(2 * k, M)
    C = _gram(A)
    Q = _powers(C, ss.ShiftedRandomizedSVD(n_oversamples=0)(A, K, rng).Vh.T, q)
    return _tail(C, eigh(Q.T @ C @ Q, eigvals_only=True), k, A.shape[0])


def exact_by_recurrence(A: ss.Operator, k: int, q: int, rng: np.random.Generator) -> float:
    C = _gram(A)
    Q = _powers(C, np.linalg.qr(ss.sketch.Gaussian().draw(M, min(2 * k, M), rng))[0], q)
    CQ = C @ Q
    return _tail(C, eigh(CQ.T @ CQ, Q.T @ CQ, eigvals_only=True), k, A.shape[0])


def _powers(C: Panel, Q: Panel, q: int) -> Panel:
    for _ in range(q):
        Q, _ = np.linalg.qr(C @ Q)
    return Q


def _tail(C: Panel, squares: Panel, k: int, n: int) -> float:
    return float((np.trace(C) - np.sort(squares)[-k:].sum()) / n)


def by_svd(A: ss.Operator) -> ByRank:
    squares = _squares(A)
    return {k: float(squares[k:].sum() / A.shape[0]) for k in GRID}


# The matrices of one point are asked for at every rank: the last two operators are enough.
@lru_cache(maxsize=2)
def _squares(A: ss.Operator) -> Panel:
    return np.asarray(ss.Exact()(A, M).S ** 2)


@lru_cache(maxsize=2)
def _gram(A: ss.Operator) -> Panel:
    return A.gram(np.eye(M))


def by_rank(method: Method, point: Point, everywhere: bool = False) -> ByRank:
    errors = by_svd(method.A)
    for k in GRID:
        if everywhere or 2 * k < M:
            errors[k] = method.measure(method.A, k, point.q, point.rng(k))
    return errors


def measure(point: Point) -> Values:
    return FIGURES[point.figure](point)


def _methods(point: Point) -> tuple[Method, Method, Method]:
    A = ss.as_operator(point.data(), n_threads=1)
    Abar = ss.centered(A)
    long = point.q >= SHORTCUT_FROM
    printed, exact = (by_recurrence, exact_by_recurrence) if long else (as_printed, exact_sample)
    return Method(SHIFTED, Abar, printed), Method(EXACT, Abar, exact), Method(PLAIN, A, printed)


def figure_a(point: Point) -> Values:
    methods = _methods(point)
    curves = {method.name: by_rank(method, point, everywhere=True) for method in methods}
    curves[SVD], curves[SVD_PLAIN] = by_svd(methods[0].A), by_svd(methods[2].A)
    return {(point.figure, name, k): error for name, curve in curves.items() for k, error in curve.items()}


def figures_b_c(point: Point) -> Values:
    methods = _methods(point)
    sums = {method.name: sum(by_rank(method, point).values()) for method in methods}
    sums[SVD] = sum(by_svd(methods[0].A).values())
    return {(point.figure, name, point.x): value for name, value in sums.items()}


def figure_d(point: Point) -> Values:
    X = point.data()
    implicit = ss.centered(ss.as_operator(X, n_threads=1))
    explicit = ss.as_operator(X - X.mean(axis=0), n_threads=1)
    methods = (
        Method(SHIFTED, implicit, as_printed),
        Method(EXPLICIT, explicit, as_printed),
        Method(EXACT, implicit, exact_sample),
        Method(EXACT_EXPLICIT, explicit, exact_sample),
    )
    sums = {method.name: sum(by_rank(method, point).values()) for method in methods}
    sums[SVD] = sum(by_svd(explicit).values())
    return {(point.figure, name, point.x): value for name, value in sums.items()}


def figures_e_f(point: Point) -> Values:
    values = figures_b_c(point)
    sums = {series: value for (_, series, _), value in values.items()}
    difference: Values = {("fig-f", point.distribution, point.x): sums[SHIFTED] - sums[PLAIN]}
    if point.distribution != "Uniform":
        return difference
    return {("fig-e", series, point.x): value for series, value in sums.items()} | difference


def shortcut_gap(distribution: str, q: int) -> Values:
    point = Point(SHORTCUT, q, distribution, 1000, q, 0)
    A = ss.as_operator(point.data(), n_threads=1)
    Abar = ss.centered(A)
    pairs = (
        (Abar, as_printed, by_recurrence),
        (A, as_printed, by_recurrence),
        (Abar, exact_sample, exact_by_recurrence),
    )
    gap = 0.0
    for operator, loop, recurrence in pairs:
        for k in (1, 5, 20, 40):
            value = loop(operator, k, q, point.rng(k))
            gap = max(gap, abs(recurrence(operator, k, q, point.rng(k)) - value) / value)
    return {(SHORTCUT, distribution, q): gap}


FIGURES: Final[dict[str, Callable[[Point], Values]]] = {
    "fig-a": figure_a,
    "fig-b": figures_b_c,
    "fig-c": figures_b_c,
    "fig-d": figure_d,
    "fig-e": figures_e_f,
    "fig-f": figures_e_f,
}


def points(figure: str, seed: int, quick: bool = False) -> list[Point]:
    sizes = SIZES[:3] if quick else SIZES
    powers = (0, 1, 2, 5, 20) if quick else POWERS
    others = [name for name in DRAWS if name != "Uniform"]
    plans: dict[str, list[tuple[int | str, str, int, int]]] = {
        "fig-a": [(1000, "Uniform", 1000, 0)],
        "fig-b": [(n, "Uniform", n, 0) for n in sizes],
        "fig-c": [(name, name, 1000, 0) for name in DRAWS],
        "fig-d": [(name, name, 1000, 0) for name in DRAWS],
        # Uniform is the same runs in (e) and (f): the published differences are those of the published sums.
        "fig-e": [(q, "Uniform", 1000, q) for q in powers],
        "fig-f": [(q, name, 1000, q) for name in others for q in powers],
    }
    return [Point(figure, x, name, n, q, seed) for x, name, n, q in plans[figure]]
