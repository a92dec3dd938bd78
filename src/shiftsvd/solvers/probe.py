"""Probe: a random block that bounds the missed eigenvalues with a given probability."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import BEYOND, TINY, CountBound, Ritz
from shiftsvd.numerics.panels import Vector
from shiftsvd.operators import Panel
from shiftsvd.solvers import constants
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.problem import Product, Products

Needs = list[CountBound]  # bounds that a probe must prove


class Chain:
    """Block Lanczos of ``P G P`` from a block ``P Omega = X_0 R`` of normal columns; P is orthogonal to a basis.

    Let u be the eigenvector of the largest eigenvalue lambda. With probability 1 - p, ``||u^H Omega||^2`` exceeds the
    p-quantile of chi^2. A lambda for which the coefficients of the chain allow no such u is excluded
    (docs/how_it_works.rst, from eq. chain to eq. interval).
    """

    def __init__(self, R: Panel, probability: float) -> None:
        columns, real = R.shape[1], not np.iscomplexobj(R)
        freedom = columns if real else 2 * columns
        # Square root of the quantile of chi^2; the parts of complex entries have half of the variance each.
        self.shortest = float(np.sqrt(2 * gammaincinv(freedom / 2, probability) / (1 if real else 2)))
        self.R = R
        self.length = float(np.linalg.norm(R, 2))
        self.parts: list[tuple[Panel, Panel]] = []  # A_j and C_j
        self.spread, self.top = 0.0, -np.inf  # the largest norm of a coefficient, the largest Ritz value of P G P
        self.excluded = np.inf  # the least bound of earlier products, which still holds

    def add(self, diagonal: Panel, below: Panel) -> None:
        self.parts.append((diagonal, below))
        self.spread = max(self.spread, *(float(np.linalg.norm(X, 2)) for X in (diagonal, below) if X.size))
        t, Z = np.linalg.eigh(self._tridiagonal())
        self.top = float(t[-1])
        self.gaps = t[-1] - t
        self.first = Z[: len(self.R)].conj().T @ self.R  # E_1^H Z, times R: (size of T, columns)
        self.last = below @ Z[len(Z) - below.shape[1] :]  # C_d E_d^H Z, C_d the last C_j: (width of X', size of T)

    def _tridiagonal(self) -> Panel:
        size, hi = sum(len(A) for A, _ in self.parts), 0
        T = np.zeros((size, size), self.parts[0][0].dtype)
        for diagonal, below in self.parts:
            lo, hi = hi, hi + len(diagonal)
            T[lo:hi, lo:hi] = diagonal
            if hi < size:
                end = hi + len(below)
                T[hi:end, lo:hi], T[lo:hi, hi:end] = below, below.conj().T
        return T

    def bound(self, noise: float) -> float:
        """Return a bound of the largest eigenvalue of ``P G P`` that holds with the probability of the chain.

        `noise` bounds the norm of F. Intervals are excluded one after another, downwards from infinity. One that cannot
        be excluded is divided, until it is shorter than PRECISION times its distance from the largest Ritz value: its
        upper end is the bound.
        """
        if not len(self.last):
            # The chain has ended: y (lambda - T) = u^H F, and ||u^H Omega|| <= noise ||R|| / (lambda - top).
            return self.top + noise * (1 + self.length / self.shortest)
        lowest = max(constants.NEAREST * self.spread, noise)
        rounded = noise + len(self.gaps) * constants.EPS * self.spread
        # By ||(lambda - T)^-1|| <= 1 / distance, half of this distance excludes everything beyond without rounding.
        beyond = 2 * (self.spread + rounded) * self.length / self.shortest + lowest
        if not self.excluded > self.top:  # the bound failed, with probability p or by rounding: start again
            self.excluded = np.inf
        proven, ratio = min(beyond, self.excluded - self.top), constants.WIDEST
        while proven > lowest:
            edges = np.maximum(proven * ratio ** -np.arange(constants.INTERVALS + 1.0), lowest)
            kept = np.flatnonzero(~self._excluded(edges[1:], edges[:-1], rounded))
            proven = float(edges[kept[0] if len(kept) else -1])
            if len(kept):
                if ratio <= 1 + constants.PRECISION:
                    break
                ratio = ratio ** (1 / constants.INTERVALS)
        self.excluded = min(self.excluded, self.top + max(proven, lowest))
        return self.top + max(proven, lowest) + noise

    def _excluded(self, a: Vector, b: Vector, noise: float) -> NDArray[np.bool_]:
        """Return a mask of the intervals [a, b] of distances from the largest Ritz value that are excluded entirely.

        Without rounding, ``||u^H Omega|| <= ||D^{-1/2} M(lambda)||`` for all lambda in the interval, where
        ``D = I + C_d E_d^H (b - T)^-2 E_d C_d^H`` and ``M(lambda) = C_d E_d^H (lambda - T)^-1 E_1 R``. The terms of the
        Taylor series of M about the middle c, and its remainder, bound the norm (docs/how_it_works.rst, eq. interval).
        """
        c, h = (a + b) / 2, (b - a) / 2
        short = float(np.max(h / c))
        enough = np.log(constants.REMAINDER * self.shortest / self.length) / np.log(short)
        order = int(np.clip(enough, 1, constants.TERMS)) + 1
        at_a, at_b, at_c = (1 / (x[:, None] + self.gaps) for x in (a, b, c))
        K = self.last * at_b[:, None]
        D = np.eye(K.shape[1]) + K @ _adjoint(K)
        left = np.linalg.solve(np.linalg.cholesky(D), np.broadcast_to(self.last, (len(a), *self.last.shape)))
        powers = (h[:, None] * at_c)[:, None] ** np.arange(order + 1.0)[:, None]
        terms = (left[:, None] * (powers[:, :-1] * at_c[:, None])[:, :, None]) @ self.first
        remainder = _norms(left * at_a[:, None]) * _norms(_adjoint(powers[:, -1, :, None] * self.first))
        longest = np.sqrt(np.linalg.eigvalsh(terms[:, 0] @ _adjoint(terms[:, 0]))[:, -1])
        longest = longest * (1 + len(self.first) * constants.EPS) + _norms(terms[:, 1:]).sum(axis=1) + remainder
        rounded = _norms(_adjoint((noise * at_a)[:, :, None] * self.first))
        return np.asarray((1 + noise / a) * longest + rounded < self.shortest)


def _norms(X: Panel) -> Vector:
    return np.asarray(np.sqrt(np.linalg.norm(X @ _adjoint(X), axis=(-2, -1))))


def _adjoint(X: Panel) -> Panel:
    return X.conj().swapaxes(-1, -2)


class Probe:
    """Random block orthogonal to a basis F, which is multiplied by G repeatedly; F grows by the products.

    `level` bounds the eigenvalues of G outside of the basis. `top`, the largest Ritz value of the chain, is a lower
    bound of all levels. If `joint`, the products are steps of F, too.
    """

    def __init__(self, F: Factorization, columns: int, probability: float, noise: float, joint: bool = False) -> None:
        self.F, self.noise = F, noise
        R = F.begin_probe(max(columns, constants.LEAST_COLUMNS), joint)
        self._chain = Chain(R, probability)
        self.level = self.top = np.inf

    def add_product(self, product: Panel) -> None:
        F, old = self.F, self.F.size
        F.extend(product)
        self._chain.add(F.H[old : F.size, old : F.size], F.C)
        self.level, self.top = self._chain.bound(max(self.noise, F.rounding)), self._chain.top

    def finish(self) -> None:
        if self.F.size == self.F.n:  # the basis spans the whole space
            self.level = self.top + self.noise


@dataclass(frozen=True)
class Proven:
    """Upper bounds that probes have proven so far on eigenvalues of G."""

    seen: int  # random columns multiplied so far: the basis can contain this many copies of a multiple eigenvalue
    probability: float = constants.PROBABILITY  # of a wrong bound by any probe; p / 2^j for the j-th probe
    level: float = np.inf  # bound of G outside of the basis in `epoch`, which holds while the basis grows
    epoch: int = 0
    count_bounds: tuple[CountBound, ...] = ()  # which hold for every basis
    n_probes: int = 0

    def level_of(self, F: Factorization) -> float:
        if F.size == F.n:
            return -np.inf
        return self.level if self.epoch == F.epoch else np.inf

    def limit(self, k: int) -> float:
        return min((mu for count, mu in self.count_bounds if count <= k), default=np.inf)

    def limits(self, k: int) -> Vector:
        """Return bounds of the first k eigenvalues."""
        limits = np.full(k, np.inf)
        for count, mu in self.count_bounds:
            limits[count:] = np.minimum(limits[count:], mu)
        return limits

    def covers(self, needs: Needs) -> bool:
        return all(self.limit(count) <= mu for count, mu in needs)

    def needs_probe(self, needs: Needs) -> bool:
        return self.n_probes < constants.PROBES and not self.covers(needs)

    @property
    def failure_probability(self) -> float:
        return self.probability * 0.5 ** (self.n_probes + 1)


class Proof(NamedTuple):
    """Result of a probe: all proven bounds, the kept Ritz values with the new level, and the product G V."""

    proven: Proven
    kept: Ritz
    product: Product | None


def prove(
    G: Products,
    F: Factorization,
    ritz: Ritz,
    needs: Needs,
    proven: Proven,
    V: Panel | None = None,
    cold: bool = True,
    joint: bool = False,
    columns: int = 0,
) -> Proof:
    """Multiply a random block by G until its level proves the `needs`, or its Ritz values show that no level can.

    F is restarted with as many Ritz vectors as the proof takes, and grows by the products of the block; before further
    steps, call `F.end_probe`, which a run that ends with the proof does not need. V is multiplied together with the
    block in the product that is likely to be the last; not in the first product unless the run is `cold`, because the
    probe of a run with start vectors may find missed components. If residuals are too large for any level to prove the
    needs, return without a product. If `joint`, the products are steps of F, too.
    """
    count, product = vectors_to_keep(ritz, needs), None
    if count is None:
        return Proof(proven, ritz, None)
    if count < F.size:
        F.restart(count)
        ritz = ritz.first(count)
    probe = Probe(F, columns or F.block_width, proven.failure_probability, ritz.noise, joint)
    expected = constants.FIRST_LEVEL * float(ritz.theta[-1]) if cold else np.inf
    gain, before = constants.FIRST_GAIN, np.inf
    while True:
        if V is not None and F.size + F.width < F.n and proves_all(ritz, needs, expected):
            (W, product), V = G.with_components(F.block, V, F.rng), None
        else:
            W = G(F.block)
        probe.add_product(W)
        is_proven, possible = proves_all(ritz, needs, probe.level), proves_all(ritz, needs, probe.top)
        stuck, before = not probe.level < before and hides(F, ritz), probe.level
        if is_proven or not possible or stuck or F.full or not G.may_step():
            break
        expected, gain = probe.top + (probe.level - probe.top) / gain, constants.GAIN
    probe.finish()
    kept = replace(ritz, level=probe.level)
    shown = (each for each in [(kept.k, kept.limit), *needs] if bounds.proves(kept, each, probe.level))
    seen, probability = proven.seen + (columns or F.block_width), proven.probability
    facts = (*proven.count_bounds, *shown, *bounds.leading_bounds(kept))
    after = Proven(seen, probability, probe.level, F.epoch, facts, proven.n_probes + 1)
    return Proof(after, kept, product)


def hides(F: Factorization, ritz: Ritz) -> bool:
    """Return True if rounding errors, which a level contains enlarged, may keep a probe from proving the last value."""
    return F.rounding > constants.PROBE_SHARE * max(float(ritz.theta[ritz.k - 1]), 0.0)


# --- bounds that a probe must prove --------------------------------------------------------------------------------


def miss_limit(ritz: Ritz, missed_tol: float) -> float:
    # No level is below the rounding error of the products; constants.MISSED_NOISE of these leave room for a proof.
    relative = float(ritz.theta[ritz.k - 1]) * (1 + missed_tol) ** 2
    return max(relative, constants.MISSED_NOISE * ritz.noise, ritz.zero, TINY)


def required_bounds(ritz: Ritz, most: float, seen: int) -> Needs:
    """Return the bounds that a probe must prove: at most k eigenvalues exceed `most`, and no copy of a value is missed.

    If a value has as many copies as random columns were multiplied, it may have more copies.
    """
    size, end = bounds.largest_group(ritz)
    more = [(end, float(ritz.theta[end - 1] + ritz.theta[end]) / 2)] if size >= seen else []
    return [(ritz.k, most), *more]


def proves_all(ritz: Ritz, needs: Needs, below: float) -> bool:
    return all(bounds.proves(ritz, count_bound, below) for count_bound in needs)


def vectors_to_keep(ritz: Ritz, needs: Needs) -> int | None:
    """Return the number of Ritz vectors to keep such that a level can prove the needs, or None if there is none."""
    # The last Ritz vectors may have residuals too large for any level. The level bounds the values of removed vectors.
    counts = (len(ritz.theta), 2 * ritz.k, ritz.k + BEYOND, ritz.k)
    return next((count for count in counts if count <= len(ritz.theta) and _provable(ritz.first(count), needs)), None)


def _provable(ritz: Ritz, needs: Needs) -> bool:
    # No level is below the values of removed vectors. Assume that the level reaches the middle between these and mu.
    least = float(ritz.theta[min(ritz.k + BEYOND, len(ritz.theta)) - 1])
    return all(bounds.proves(ritz, (count, mu), (mu + min(mu, least)) / 2) for count, mu in needs)
