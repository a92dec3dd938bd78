"""The probe: a fresh random block that tells, with a stated probability, what a basis can have missed."""

import numpy as np
from scipy.special import gammaincinv

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.solvers.krylov import Basis

# How likely a level may be exceeded, and how far above the last value it may lie where nothing else is asked for.
PROBABILITY, MISSED_TOL = 1e-9, 0.05
# Levels that are looked at in one go, and how far out: multiples of the spread of the chain.
LEVELS, NEAREST, FARTHEST = 16, 1e-4, 1e3
# Between two of them, a level is sought to this part of its distance from the largest Ritz value, in so many steps.
SOUGHT, STEPS = 1e-3, 14
# While a probe goes on, in which each product brings it several times nearer, to this part.
COARSE = 0.1
# Narrower blocks are too likely to have next to nothing of what is sought.
LEAST_COLUMNS, LEAST_PROBABILITY = 8, 1e-15
# What rounding leaves of the least of many numbers, in units of the largest.
RELIABLE = 1e-13
TINY = float(np.finfo(np.float64).tiny)


class Chain:
    """Block Lanczos of ``P G P`` from a block ``P Omega`` that knows nothing of the data; P is orthogonal to a basis.

    Let u be the eigenvector of the largest eigenvalue lambda of ``P G P``, and ``y_j = u^H X_j`` for the blocks X_j of
    the chain. Then ``lambda y_j = y_{j-1} B_{j-1}^H + y_j A_j + y_{j+1} B_j``, so that lambda and
    ``y_0 = u^H Omega R^-1`` give all y_j; and ``sum_j ||y_j||^2 <= ||u||^2 = 1``. The entries of ``u^H Omega`` are
    standard normal, since u was there before Omega: with probability 1 - p their squares sum to more than the
    p-quantile of chi^2. A lambda for which that makes the sum exceed 1 is excluded.
    """

    def __init__(self, R: Panel, probability: float) -> None:
        columns, real = R.shape[1], not np.iscomplexobj(R)
        freedom = columns if real else 2 * columns
        # Quantile of chi^2 with so many degrees of freedom; complex entries have half of the variance in each part.
        self.floor = 2 * float(gammaincinv(freedom / 2, probability)) / (1 if real else 2)
        self.start, self.size = np.linalg.pinv(R), float(np.linalg.norm(R, 2))
        self.A: list[Panel] = []
        self.B: list[Panel] = []
        self.parts: list[tuple[Panel, Vector, Panel]] = []  # the singular value decompositions of B, whole
        self.spread, self.top = 0.0, -np.inf  # the largest norm of a coefficient, the largest Ritz value of P G P
        self.known = np.inf  # the least level so far, without the rounding of G

    def add(self, A: Panel, B: Panel) -> None:
        """Add a product ``G X_j = X_{j-1} B_{j-1}^H + X_j A + X_{j+1} B``; X_{j+1} may be narrower than X_j."""
        self.A.append(A)
        self.B.append(B)
        self.parts.append(np.linalg.svd(B, full_matrices=True))
        self.spread = max(self.spread, float(np.linalg.norm(A, 2)), float(self.parts[-1][1].max(initial=0)))
        self.top = self._top()

    def _top(self) -> float:
        """The largest Ritz value of ``P G P``."""
        sizes = np.cumsum([0] + [len(A) for A in self.A])
        T = np.zeros((sizes[-1], sizes[-1]), self.A[0].dtype)
        for j, A in enumerate(self.A):
            here = slice(sizes[j], sizes[j + 1])
            T[here, here] = A
            if j + 1 < len(self.A):
                after = slice(sizes[j + 1], sizes[j + 2])
                T[after, here], T[here, after] = self.B[j], self.B[j].conj().T
        return float(np.linalg.eigvalsh(T)[-1])

    def level(self, noise: float, sought: float = SOUGHT) -> float:
        """What no eigenvalue of ``P G P`` exceeds, with the probability of the chain; `noise` is the rounding of G.

        At most this part of its distance from the largest Ritz value above the least that could be told.
        """
        top, spread = self.top, self.spread
        if not self.B[-1].size:
            # The chain has come to an end: what is not in it has no part in Omega, but for rounding.
            return top + noise * (1 + self.size / float(np.sqrt(self.floor)))
        lowest, highest = max(NEAREST * spread, noise), FARTHEST * spread
        if not self.known > top:  # rounding, or what happens with the probability of the chain
            self.known = np.inf
        if self.known < top + highest:  # what fewer products exclude stays excluded
            highest = max(self.known - top, lowest * (1 + sought))
        distances = lowest * np.geomspace(1, highest / lowest, LEVELS)
        margins = self._margins(top + distances, noise)
        left = np.flatnonzero(~(margins > 0))
        if not len(left):
            return top + lowest + noise
        last = int(left[-1])
        if last + 1 == LEVELS:
            return self.known + noise
        found = top + self._between(top, lowest, distances[last : last + 2], margins[last : last + 2], noise, sought)
        self.known = min(self.known, found)
        return found + noise

    def _between(
        self, top: float, unit: float, distances: Vector, margins: Vector, noise: float, sought: float
    ) -> float:
        """The least distance that is excluded, between one that is not and one that is: false position, in logarithms.

        Where the margin of an end stays, it is halved (the Illinois rule); infinite ones say nothing, and halve.
        """
        low, high = np.log(distances / unit)  # in a unit of the chain, so that powers of two change no bit
        below, above = margins
        for _ in range(STEPS):
            if high - low <= sought:
                break
            share = below / (below - above) if np.isfinite(below - above) else 0.5
            # A step beyond the root, so that the interval shrinks from both sides.
            middle = low + (high - low) * float(np.clip(share, 0.02, 0.98))
            margin = float(self._margins(top + unit * np.exp([middle]), noise)[0])
            if margin > 0:
                high, above, below = middle, margin, below / 2
            else:
                low, below, above = middle, margin, above / 2
        return float(unit * np.exp(high))

    @np.errstate(over="ignore", invalid="ignore")
    def _margins(self, levels: Vector, noise: float) -> Vector:
        """Log of how far each level exceeds what the largest eigenvalue can be; positive where it is excluded."""
        # Y_j is (levels, b, width of X_j): y_j = (u^H Omega) Y_j.
        Y = np.broadcast_to(self.start, (len(levels), *self.start.shape))
        before, all_y = Y[:, :, :0], [Y]
        for j, (A, (X, lengths, Wh)) in enumerate(zip(self.A, self.parts, strict=True)):
            Z = levels[:, None, None] * Y - Y @ A - (before @ self.B[j - 1].conj().T if j else 0)
            there = len(lengths)
            # y_{j+1} B = z: along directions that B has lost, z must vanish but for rounding.
            Z = Z @ Wh.conj().T
            before, Y = Y, (Z[:, :, :there] / np.maximum(lengths, noise)) @ X.conj().T
            all_y += [Y, Z[:, :, there:] / noise]
        parts = np.concatenate(all_y, axis=2)
        finite = np.isfinite(parts).all(axis=(1, 2))
        out = np.full(len(levels), -np.inf)
        if finite.any():
            # The least norm of all y for a u^H Omega of length 1, as far as rounding lets it be seen.
            found = np.linalg.svd(parts[finite], compute_uv=False)
            least = np.maximum(found[:, -1] - RELIABLE * found[:, 0], TINY)
            out[finite] = np.log(least) + np.log(self.floor) / 2
        return out


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
        """What is to be multiplied next."""
        return self.basis.block

    def take(self, product: Panel) -> None:
        """Take in ``G`` times the block."""
        basis, old = self.basis, self.basis.size
        basis.reserve(min(old + 2 * basis.width, basis.B.shape[0]))
        basis.extend(product)
        self._chain.add(basis.H[old : basis.size, old : basis.size], basis.C)
        self.level, self.top = self._chain.level(self._rounding(), COARSE), self._chain.top

    def end(self) -> None:
        """Go on with the block that the basis had before."""
        whole = self._chain.level(self._rounding())
        self.basis.take_back()
        self.level = self.top + self.noise if self.basis.size == self.basis.B.shape[0] else whole

    def _rounding(self) -> float:
        """What rounding of products, or dropping directions of the basis, may hide from the chain."""
        return max(self.noise, self.basis.dropped())
