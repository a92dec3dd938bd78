"""The probe: a fresh random block that bounds, with a stated probability, what a basis can have missed."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.ritz import Needs, Ritz

# How likely a level may be exceeded, and how far above the last value it may lie where nothing else is asked for.
PROBABILITY, MISSED_TOL = 1e-9, 0.05
# Least distance of a level from the largest Ritz value, in units of the largest norm of a coefficient.
NEAREST = 1e-4
# Intervals tested in one call, and the ratio of the ends of the widest: wider intervals need more terms of the series.
INTERVALS, WIDEST = 8, 1.3
# Largest number of terms for an interval; the remainder of the series, in units of the length that excludes.
MOST, REMAINDER = 30, 0.01
# Precision of a level, relative to its distance from the largest Ritz value: of the last level of a probe, and of those
# before it, since each product shrinks that distance several times.
SOUGHT, COARSE = 1e-3, 0.1
# Narrower blocks are too likely to have next to nothing of what is sought.
LEAST_COLUMNS, LEAST_PROBABILITY = 8, 1e-15
EPS = float(np.finfo(np.float64).eps)


class Chain:
    """Block Lanczos of ``P G P`` from a block ``P Omega = X_0 R`` of normal columns; P is orthogonal to a basis.

    Let X be the blocks that were multiplied, X' the next block, E_1 and E the first and last blocks of columns of the
    identity, and ``P G P X = X T + X' B E^H + F`` with rounding F. Let u be the eigenvector of the largest eigenvalue
    lambda of ``P G P``, ``y = u^H X`` and ``w = u^H X'``. Then ``y (lambda - T) = w B E^H + u^H F``, so that w
    determines y and ``u^H Omega = y E_1 R``, but for rounding; and ``||y||^2 + ||w||^2 <= ||u||^2 = 1``. The entries
    of ``u^H Omega`` are standard normal, since u does not depend on Omega: with probability 1 - p their squares sum to
    more than the p-quantile of chi^2. A lambda for which no w makes ``u^H Omega`` so long is excluded.
    """

    def __init__(self, R: Panel, probability: float) -> None:
        columns, real = R.shape[1], not np.iscomplexobj(R)
        freedom = columns if real else 2 * columns
        # The root of the quantile of chi^2; the parts of complex entries have half of the variance each.
        self.shortest = float(np.sqrt(2 * gammaincinv(freedom / 2, probability) / (1 if real else 2)))
        self.R = R
        self.length = float(np.linalg.norm(R, 2))
        self.parts: list[tuple[Panel, Panel]] = []  # A_j and B_j
        self.spread, self.top = 0.0, -np.inf  # the largest norm of a coefficient, the largest Ritz value of P G P
        self.known = np.inf  # the least level of fewer products: everything above it stays excluded

    def add(self, A: Panel, B: Panel) -> None:
        self.parts.append((A, B))
        self.spread = max(self.spread, float(np.linalg.norm(A, 2)), float(np.linalg.norm(B, 2)) if B.size else 0.0)
        t, Z = np.linalg.eigh(self._projected())
        self.top = float(t[-1])
        self.gaps = t[-1] - t
        self.first = Z[: len(self.R)].conj().T @ self.R  # E_1^H Z, times R: (size of T, columns)
        self.last = B @ Z[len(Z) - B.shape[1] :]  # B E^H Z: (width of X', size of T)

    def _projected(self) -> Panel:
        size, hi = sum(len(A) for A, _ in self.parts), 0
        T = np.zeros((size, size), self.parts[0][0].dtype)
        for A, B in self.parts:
            lo, hi = hi, hi + len(A)
            T[lo:hi, lo:hi] = A
            if hi < size:
                T[hi : hi + len(B), lo:hi], T[lo:hi, hi : hi + len(B)] = B, B.conj().T
        return T

    def level(self, noise: float, sought: float = SOUGHT) -> float:
        """Return a bound of the largest eigenvalue of ``P G P`` that holds with the probability of the chain.

        `noise` bounds the norm of F. Intervals are excluded one after another, downwards from infinity. One that cannot
        be excluded is divided, until it is shorter than `sought` times its distance from the largest Ritz value: its
        upper end is the bound.
        """
        if not len(self.last):
            # The chain has ended: y (lambda - T) = u^H F, and ||u^H Omega|| <= noise ||R|| / (lambda - top).
            return self.top + noise * (1 + self.length / self.shortest)
        lowest = max(NEAREST * self.spread, noise)
        rounded = noise + len(self.gaps) * EPS * self.spread
        # By ||(lambda - T)^-1|| <= 1 / distance, everything beyond this distance is excluded.
        beyond = 2 * (self.spread + rounded) * self.length / self.shortest + lowest
        if not self.known > self.top:  # the event of probability p has happened, or rounding
            self.known = np.inf
        proven, ratio = min(beyond, self.known - self.top), WIDEST
        while proven > lowest:
            edges = np.maximum(proven * ratio ** -np.arange(INTERVALS + 1.0), lowest)
            kept = np.flatnonzero(~self._excluded(edges[1:], edges[:-1], rounded))
            proven = float(edges[kept[0] if len(kept) else -1])
            if len(kept):
                if ratio <= 1 + sought:
                    break
                ratio = ratio ** (1 / INTERVALS)
        self.known = min(self.known, self.top + max(proven, lowest))
        return self.top + max(proven, lowest) + noise

    def _excluded(self, a: Vector, b: Vector, noise: float) -> NDArray[np.bool_]:
        """Return which intervals [a, b] of distances from the largest Ritz value are excluded as a whole.

        Without rounding, ``||u^H Omega|| <= ||D^{-1/2} M(lambda)||`` for all lambda in the interval, where
        ``D = I + B E^H (b - T)^-2 E B^H`` and ``M(lambda) = B E^H (lambda - T)^-1 E_1 R``. The terms of the Taylor
        series of M about the middle c, and its remainder, bound the norm (docs/how_it_works.rst, eq. interval).
        """
        c, h = (a + b) / 2, (b - a) / 2
        short = float(np.max(h / c))
        order = int(np.clip(np.log(REMAINDER * self.shortest / self.length) / np.log(short), 1, MOST)) + 1
        at_a, at_b, at_c = (1 / (x[:, None] + self.gaps) for x in (a, b, c))
        K = self.last * at_b[:, None]
        D = np.eye(K.shape[1]) + K @ _adjoint(K)
        left = np.linalg.solve(np.linalg.cholesky(D), np.broadcast_to(self.last, (len(a), *self.last.shape)))
        powers = (h[:, None] * at_c)[:, None] ** np.arange(order + 1.0)[:, None]
        terms = (left[:, None] * (powers[:, :-1] * at_c[:, None])[:, :, None]) @ self.first
        remainder = _norms(left * at_a[:, None]) * _norms(_adjoint(powers[:, -1, :, None] * self.first))
        longest = np.linalg.norm(terms[:, 0], 2, axis=(1, 2)) + _norms(terms[:, 1:]).sum(axis=1) + remainder
        rounded = _norms(_adjoint((noise * at_a)[:, :, None] * self.first))
        return np.asarray((1 + noise / a) * longest + rounded < self.shortest)


def _norms(X: Panel) -> Vector:
    return np.asarray(np.sqrt(np.linalg.norm(X @ _adjoint(X), axis=(-2, -1))))


def _adjoint(X: Panel) -> Panel:
    return X.conj().swapaxes(-1, -2)


class Probe:
    """A fresh random block on its way through G, which looks for what is orthogonal to a basis.

    The basis grows by what the block has seen: what was missed is in it afterwards, and the level holds for whatever is
    orthogonal to it, for as long as nothing is dropped from it.

    Attributes
    ----------
    level : float
        What nothing orthogonal to the basis exceeds, with the probability of the probe.
    top : float
        The largest Ritz value of the chain; none but infinity before the first product.
    """

    def __init__(self, basis: Basis, columns: int, probability: float, noise: float) -> None:
        self.basis, self.noise = basis, noise
        self._chain = Chain(basis.set_aside(max(columns, LEAST_COLUMNS)), max(probability, LEAST_PROBABILITY))
        self.level = self.top = np.inf

    @property
    def block(self) -> Panel:
        return self.basis.block

    def take(self, product: Panel) -> None:
        basis, old = self.basis, self.basis.size
        basis.reserve(min(old + 2 * basis.width, basis.B.shape[0]))
        basis.extend(product)
        self._chain.add(basis.H[old : basis.size, old : basis.size], basis.C)
        self.level, self.top = self._chain.level(self._rounding(), COARSE), self._chain.top

    def end(self) -> None:
        whole = self._chain.level(self._rounding())
        self.basis.take_back()
        self.level = self.top + self.noise if self.basis.size == self.basis.B.shape[0] else whole

    def _rounding(self) -> float:
        return max(self.noise, self.basis.dropped())


# Probes that may find something, each as likely to be wrong as all after it.
PROBES = 20


class Missed:
    """The books of the probes of one run.

    A level holds for what is orthogonal to the basis, so a restart voids it (`forget`); what it said of the number of
    eigenvalues above some mu is a fact of the matrix, and stays.

    Attributes
    ----------
    level : float
        What no eigenvalue exceeds orthogonal to the basis.
    seen : int
        Random columns that have been through the run: so many copies of a value can be there.
    """

    def __init__(self, columns: int, probability: float) -> None:
        self.columns, self.probability = columns, probability
        self.level, self.seen = np.inf, columns
        self.n_probes = 0
        self._proven: Needs = []

    @property
    def used_up(self) -> bool:
        return self.n_probes >= PROBES

    def forget(self) -> None:
        self.level = np.inf

    def limit(self, k: int) -> float:
        return min((mu for count, mu in self._proven if count <= k), default=np.inf)

    def lacks(self, needs: Needs) -> bool:
        return not all(self.limit(count) <= mu for count, mu in needs)

    def probe(self, basis: Basis, noise: float) -> Probe:
        self.n_probes += 1
        self.seen += self.columns
        return Probe(basis, self.columns, self.probability * 0.5**self.n_probes, noise)

    def learn(self, probe: Probe, ritz: Ritz, k: int, needs: Needs) -> Ritz:
        probe.end()
        self.level = probe.level
        above = replace(ritz, level=self.level)
        self._proven += [fact for fact in [(k, above.limit(k)), *needs] if ritz.at_most(*fact, self.level)]
        return above


def reduced(basis: Basis, ritz: Ritz, Z: Panel, count: int) -> Ritz:
    if count == len(ritz.theta):
        return ritz
    basis.restart(ritz.theta[:count], Z[:, :count])
    return ritz.first(count)
