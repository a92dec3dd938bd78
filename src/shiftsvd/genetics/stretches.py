"""Stretches of the genome, within which residuals of neighbouring variants are alike, and what that does to scores.

Scores of a sample that lacks variants are off by ``sum_j W_j v_j e_j`` (`least_squares`), with ``W_j = G^-1 - I`` where
a variant is present and ``W_j = -I`` where it is absent. Of variants that are absent at random the weights of
neighbours are as often alike as not, and what residuals have in common drops out. Where whole stretches are absent it
adds up: with chromosomes absent, errors of linked variants are several times those of independent ones. So the products
of residuals of two variants of a stretch, on average over all pairs that are present, stand for those of every pair:
with

    X = sum_c s_c s_c^T - sum_P e_j^2 v_j v_j^T,    s_c = sum_(P in c) v_j e_j,

and pairs of which both, one, or none are present, ``Q_PP``, ``Q_PA`` and ``Q_AA``, what they add to the covariance is

    W X W - (Q_PA / Q_PP) (W X + X W) + (Q_AA / Q_PP) X,    W = G^-1 - I.

These are the sums over clusters of Liang & Zeger (1986), for clusters that are there, carried over to those that are
not.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from shiftsvd.genetics.alleles import Variants
from shiftsvd.genetics.chromosomes import canonical
from shiftsvd.genetics.least_squares import Solved
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

COUNT: Final = 50  # of stretches: of the human genome, 60 Mb each, longer than what relatives and linkage share
_FURTHEST: Final = 2**62  # no position lies behind it
_NOWHERE: Final = -1

Places = npt.NDArray[np.intp]


def stretches(variants: Variants, used: npt.NDArray[np.bool_]) -> Places:
    out = np.full(len(used), _NOWHERE)
    here = np.flatnonzero(used)
    _, chromosome = np.unique(canonical(variants.chromosomes[here])[0], return_inverse=True)
    position = np.array(
        [min(int(text), _FURTHEST) if text.isdecimal() else 0 for text in variants.positions[here].tolist()]
    )
    order = np.lexsort((position, chromosome))
    size = max(1, -(-len(here) // COUNT))
    counts = np.bincount(chromosome)
    if len(counts) > COUNT:  # an assembly in pieces: a stretch has several
        out[here[order]] = np.arange(len(here)) // size
        return out
    within = np.arange(len(here)) - np.repeat(np.cumsum(counts) - counts, counts)
    parts = -(-counts // size)
    share = within * np.repeat(parts, counts) // np.repeat(counts, counts)
    out[here[order]] = np.repeat(np.cumsum(parts) - parts, counts) + share
    return out


@dataclass(eq=False)
class Sums:
    """Sums over the variants of each stretch that samples have: of ``v_j e_j``, and of 1."""

    stretch: Places
    residuals: Panel = field(init=False)
    present: Panel = field(init=False)
    sizes: Panel = field(init=False)

    def begin(self, m: int, k: int) -> None:
        count = int(self.stretch.max(initial=0)) + 1
        self.sizes = np.bincount(self.stretch[self.stretch != _NOWHERE], minlength=count).astype(np.float64)
        self.residuals, self.present = np.zeros((count, m, k)), np.zeros((count, m))

    def add(self, places: Places, residual: Panel, V: Panel) -> None:
        own = self.stretch[places]
        there = ~np.isnan(residual)
        filled = np.where(there, residual, 0)
        for c in np.unique(own):
            self.residuals[c] += filled[:, own == c] @ V[own == c]
            self.present[c] += there[:, own == c].sum(axis=1)

    def _freedom(self) -> Vector:
        total, squares = self.present.sum(axis=0), (self.present**2).sum(axis=0)
        several = total**2 > squares * (1 + 1e-9)  # of one alone nothing is known
        return np.asarray(np.divide(total**2, total**2 - squares, out=np.zeros_like(total), where=several))

    def covariance(self, found: Solved, spread: Panel) -> Panel:
        k = spread.shape[1]
        X = np.einsum("cmi,cmj->mij", self.residuals, self.residuals, optimize=True)
        X = X * self._freedom()[:, None, None] - spread
        absent = self.sizes[:, None] - self.present
        both = (self.present * (self.present - 1)).sum(axis=0)
        one, none = (self.present * absent).sum(axis=0), (absent * (absent - 1)).sum(axis=0)
        some = found.told & (both > 0)
        share = np.divide([one, none], both, out=np.zeros((2, len(both))), where=some)[:, :, None, None]
        W = np.where(some[:, None, None], found.inverse - np.eye(k), 0)
        added = W @ X @ W - share[0] * (W @ X + X @ W) + share[1] * X
        values, vectors = np.linalg.eigh(np.where(some[:, None, None], added, 0))
        return np.asarray((vectors * np.maximum(values, 0)[:, None, :]) @ vectors.swapaxes(1, 2))
