"""The products of a run of block Lanczos: their widths, their precision, and the block that they start from."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.panels import beside, in_dtype, largest, norms, sent
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers.ritz import residual_rounding


class Shape(NamedTuple):
    """Columns of what a run holds.

    Attributes
    ----------
    block : int
        Of a product.
    wanted : int
        Components that the basis is made for.
    columns : int
        Of the basis before it is restarted.
    room : int
        The same, and what a probe is likely to add.
    """

    block: int
    wanted: int
    columns: int
    room: int


def checked(start: Panel | None, n: int, dtype: np.dtype[np.generic]) -> Panel | None:
    if start is None:
        return None
    start = np.asarray(start)
    if start.ndim != 2 or start.shape[0] != n:
        raise ValueError(f"start must have {n} rows, one for each entry of the short side, got {start.shape}")
    if not np.isfinite(start).all():
        raise ValueError("start must be finite, got NaN or infinite entries; drop those columns")
    if np.iscomplexobj(start) and dtype.kind == "f":
        start = np.hstack([start.real, start.imag])
    largest = np.max(np.abs(start), axis=0)
    return np.asarray(start / np.where(largest > 0, largest, 1), dtype)


def first_block(start: Panel | None, n: int, width: int, dtype: np.dtype[np.generic], rng: Generator) -> Panel:
    F: Panel = rng.standard_normal((n, width)).astype(dtype)
    if start is None:
        return F
    # All of them at once would make every product as wide as they are many, for the same space.
    j = start.shape[1]
    if j <= width:
        return beside(start, sent(start, F[:, j:]))
    combined: Panel = start @ rng.standard_normal((j, width)).astype(dtype)
    return combined


SINGLE = float(np.finfo(np.float32).eps)
# What single precision can hold of a product and of what it is made of.
SINGLE_RANGE = 1e-25, 1e30
# Single precision is judged by two columns in both precisions: their difference on a random vector, times this.
UNLUCKY = 4.0


@dataclass(eq=False)
class Budget:
    """The reads of the data that one fit may make, of all its runs together.

    Attributes
    ----------
    limit : int
        Reads for the iteration; the last reading of the components may take one more.
    n_passes : int
        Reads so far.
    used : int
        The same, with products that read nothing as one each, so that every iteration ends.
    """

    limit: int
    n_passes: int = 0
    used: int = 0

    def spend(self, reads: int) -> None:
        self.n_passes += reads
        self.used += max(reads, 1)

    def allows(self, reads: int) -> bool:
        return self.used + reads <= self.limit + 1


class Products:
    """``G V``, counted, with what is known of its rounding.

    Attributes
    ----------
    precise : bool
        Whether products are in double precision.
    measured : float
        What single precision was seen to do to a product.
    leader : float
        The largest value of those that were set apart: it is in what G multiplies, and is projected out.
    cancelled : float
        The norm of what products with the data cancel.
    budget : Budget
        The reads of the data.
    n_steps, widest : int
        Products; columns of the widest one.
    """

    def __init__(self, G: Operator, budget: Budget, precise: bool, leader: float = 0.0, cancelled: float = 0.0) -> None:
        self.G, self.budget, self.dtype = G, budget, panel_dtype(G.dtype)
        self.precise, self.leader, self.cancelled = precise, leader, cancelled
        self.measured = 0.0
        self.n_steps = self.widest = 0

    @property
    def eps(self) -> float:
        return self.G.costs.gram_eps if self.precise else SINGLE

    def noise(self, first: float) -> float:
        drowned = max(self.leader, self.cancelled)
        return residual_rounding(self.eps) * drowned * first if self.precise else self.measured

    def __call__(self, V: Panel) -> Panel:
        self.n_steps += 1
        if not self.precise:
            with np.errstate(over="ignore", invalid="ignore"):  # what leaves the range is seen by what comes of it
                W = self._gram(V.astype(np.float32, copy=False))
            if self.n_steps > 1 or self._measured(V, W):
                return W
            self.precise = True
        return in_dtype(self._gram(V.astype(self.dtype, copy=False)), self.dtype)

    def _gram(self, V: Panel) -> Panel:
        self.budget.spend(self.G.costs.gram_reads)
        return self.G.gram(V)

    def _measured(self, V: Panel, W: Panel) -> bool:
        least, most = SINGLE_RANGE
        if not least < largest(W) < most:
            return False
        self._compare(V[:, :2].astype(np.float32).astype(self.dtype), W[:, :2])
        return True

    def judge(self, V: Panel, W: Panel, rng: Generator) -> None:
        """Measure single precision again, on two random combinations of columns V that were multiplied to W.

        Sums of many equal terms lose more than those of random vectors, and components are such sums.
        """
        C = rng.standard_normal((V.shape[1], 2))
        self._compare(V @ C, W @ C)

    def _compare(self, V: Panel, W: Panel) -> None:
        off = norms(self._gram(V) - W)
        self.measured = max(self.measured, UNLUCKY * float(off.max()))
