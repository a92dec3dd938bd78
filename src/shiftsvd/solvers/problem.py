"""Problem, products with G, budget of passes, and reasons to stop, of a run of block Lanczos."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import gram_with_double, step_taker
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.kernels.twin import StepTaker
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.numerics.panels import Vector, hstack, in_dtype, largest, norms
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers import constants
from shiftsvd.solvers.factors import components_for, rank_floor


class Shape(NamedTuple):
    """Column counts of a run."""

    block: int  # columns of a product
    wanted: int  # number of components by which the basis is sized
    columns: int  # columns of the basis before a restart
    reserved: int  # `columns`, plus the columns that a probe is likely to add
    probe: int  # columns of a probe
    joint: bool = False  # a step may multiply the first probe, too


def basis_columns(k: int, b: int, n: int, max_basis: int | None) -> int:
    return min(
        max(max_basis or constants.OF_COMPONENTS * k + constants.OF_BLOCKS * b, k + constants.LEAST_BLOCKS * b), n
    )


def most_passes(n: int, b: int) -> int:
    return constants.PASSES + constants.PASSES_OF_BLOCKS * n // b


@dataclass(frozen=True, eq=False)
class Problem:
    """The k leading components of A, or a share k of its squared norm, by products with G."""

    A: Operator
    multiplied: Operator  # A, or an operator with the same Gram matrix and faster products
    k: int | float
    tol: float
    missed_tol: float
    miss_probability: float
    shape: Shape
    total: float  # squared norm of A, if k is a share
    start: Panel | None  # approximate vectors to begin with
    single: bool  # products begin in single precision
    cancelled: float  # norm of the terms that cancel in products with the data
    leader: float = 0.0  # largest deflated value, which is part of the data and projected out of A

    @property
    def n(self) -> int:
        return self.multiplied.shape[1]

    @property
    def reads_file(self) -> bool:
        return self.multiplied.costs.file_bytes > 0

    def count(self, theta: Vector) -> int:
        if isinstance(self.k, float):
            return components_for(np.maximum(theta, 0), self.k, self.total)
        return min(self.k, len(theta))

    def steps_missing(self, theta: Vector) -> int:
        """Return the least number of further steps after which the basis can hold all components."""
        if not isinstance(self.k, float):  # with few start vectors, the basis begins with fewer columns than components
            return max(0, -(-(self.k - len(theta)) // self.shape.block))
        shortfall = self.total * self.k - float(np.sum(np.maximum(theta, 0)))
        if shortfall <= 0:
            return 0
        # A column adds at most the first Ritz value to the squared norm. If only rounding errors are left of the data,
        # this value may be 0, or so small that the ratio is infinite.
        most = self.shape.block * max(float(theta[0]), shortfall / self.n)
        return max(1, int(shortfall / most))

    def reads_in_single(self, eps: float) -> bool:
        return self.A.dtype == np.float32 and eps > self.A.costs.gram_eps and not self.A.costs.file_bytes

    def zero(self, first: float) -> float:
        return rank_floor(self.A, max(first, self.leader)) ** 2

    def deflated(self, V: Panel, leader: float) -> "Problem":
        """Return the problem orthogonal to V, with half of the tolerance: V adds the other half to the bounds."""
        A = Deflated(self.A, V)  # not the formed Gram matrix, whose rounding errors hide the other values
        k, leader = int(self.k) - V.shape[1], max(self.leader, leader)
        halved = replace(self, tol=self.tol / 2, miss_probability=self.miss_probability / 2)
        return replace(halved, A=A, multiplied=A, k=k, start=None, single=False, leader=leader)


@dataclass(eq=False)
class Budget:
    """Passes over the data that all runs of a fit may take together."""

    max_passes: int  # passes of the iteration; the last reading of the components may take one more
    n_passes: int = 0
    used: int = 0  # passes, where a product that reads no data counts as one, so that every iteration ends
    widest: int = 0  # columns of the widest panel that was multiplied

    def spend(self, reads: int, columns: int) -> None:
        self.widest = max(self.widest, columns)
        self.n_passes += reads
        self.used += max(reads, 1)

    def allows(self, reads: int) -> bool:
        return self.used + reads <= self.max_passes + 1


class Product(NamedTuple):
    """Product of G with components, its rounding unit, and further rounding errors."""

    panel: Panel
    eps: float
    noise: float = 0.0


@dataclass(eq=False)
class Products:
    """Products ``G V``, in single precision while the range and the tolerance allow it, and their rounding errors."""

    gram: Callable[[Panel], Panel]
    dtype: np.dtype[np.generic]  # float64 or complex128
    budget: Budget
    reads: int
    last_reads: int  # passes of the reading that follows the last product
    double_eps: float
    hidden: float = 0.0  # norm of parts of the data that are projected out or cancel, and so do not show in G
    precise: bool = True  # products are in double precision
    measured: float = 0.0  # measured rounding error of products in single precision
    n_steps: int = 0
    data_in_single: bool = False
    # Products with V in single and D in double precision by one read, or None where these take two.
    with_double: Callable[[Panel, Panel], tuple[Panel, Panel] | None] = lambda V, D: None
    step_taker: StepTaker | None = None  # takes several steps in one call

    @classmethod
    def of(cls, p: Problem, budget: Budget) -> "Products":
        X, costs, last = p.multiplied, p.multiplied.costs, max(p.A.costs.gram_reads, 1)
        hidden, with_double = max(p.leader, p.cancelled), partial(gram_with_double, X)
        return cls(
            *(X.gram, panel_dtype(X.dtype), budget, costs.gram_reads, last, costs.gram_eps, hidden),
            precise=not p.single,
            data_in_single=p.A.dtype == np.float32,
            with_double=with_double,
            step_taker=step_taker(X),
        )

    @property
    def eps(self) -> float:
        return self.double_eps if self.precise else constants.SINGLE

    @property
    def steps_left(self) -> int:
        """Return the number of steps that the budget allows; only for data in memory, where a step is a pass."""
        return self.budget.max_passes + 1 - self.budget.used - self.last_reads

    def may_step(self, steps: int = 1, more: int = 0) -> bool:
        return self.budget.allows(steps * max(self.reads, 1) + self.last_reads + more)

    def extra_rounding(self, first: float) -> float:
        """Return the rounding error of a product that does not follow from its size; `first` is the largest value."""
        return residual_rounding(self.eps) * self.hidden * first if self.precise else self.measured

    def __call__(self, V: Panel) -> Panel:
        self.n_steps += 1
        if not self.precise:
            single = V.astype(np.float32, copy=False)
            W = self._product(single) if self.n_steps > 1 else self._first_product(single)
            if W is not None:
                return W
            self.precise = True
        return in_dtype(self._product(V.astype(self.dtype, copy=False)), self.dtype)

    def _first_product(self, V: Panel) -> Panel | None:
        """Return ``G V`` in single precision, or None if it is out of range; measure the rounding of two columns."""
        two, (least, most) = V[:, :2].astype(self.dtype), constants.SINGLE_RANGE
        with np.errstate(over="ignore", invalid="ignore"):
            W, precise = self._in_one_read(V, two) or (self._product(V), None)
            if not least < largest(W) < most:
                return None
        self._record_rounding(W[:, :2], self._product(two) if precise is None else precise)
        return W

    def with_components(self, block: Panel, V: Panel, rng: Generator) -> tuple[Panel, Product | None]:
        """Return ``G block``, and ``G V`` in double precision if one read serves both, else with the unit of the data.

        ``G V`` is None for double data in memory.
        """
        self.n_steps += 1
        if self.precise:
            W = in_dtype(self._product(hstack(block, V).astype(self.dtype, copy=False)), self.dtype)
            return W[:, : block.shape[1]], Product(W[:, block.shape[1] :], self.double_eps)
        if both := self._in_one_read(block.astype(np.float32, copy=False), V):
            return both[0], Product(both[1], self.double_eps)
        if not self.data_in_single:  # rounding errors of single precision exceed those of the data
            return self._product(block.astype(np.float32, copy=False)), None
        W = self._product(hstack(block, V).astype(np.float32))
        W, of_components = W[:, : block.shape[1]], in_dtype(W[:, block.shape[1] :], self.dtype)
        # Products with components have larger rounding errors than with random vectors: many terms have equal signs.
        C = rng.standard_normal((V.shape[1], 2))
        self._record_rounding(of_components @ C, self._product(V @ C))
        return W, Product(of_components, constants.SINGLE)

    def record_steps(self, count: int, columns: int) -> None:
        self.n_steps += count
        for _ in range(count):
            self.budget.spend(self.reads, columns)

    def _product(self, V: Panel) -> Panel:
        self.budget.spend(self.reads, V.shape[1])
        return self.gram(V)

    def _in_one_read(self, V: Panel, D: Panel) -> tuple[Panel, Panel] | None:
        both = self.with_double(V, D)
        if both is not None:
            self.budget.spend(self.reads, V.shape[1] + D.shape[1])
        return both

    def _record_rounding(self, W: Panel, precise: Panel) -> None:
        errors = norms(precise - W)
        self.measured = max(self.measured, constants.MEASURED_MARGIN * float(errors.max()))


# --- outcomes of a check ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Continue:
    """Continue, and check again after `steps` steps."""

    steps: int


@dataclass(frozen=True)
class Leaders:
    """Stop and deflate the first `count` values, which have converged: their rounding errors hide the last values."""

    count: int


class Stop(Enum):
    """Other reasons to stop an iteration."""

    NEAR = "few steps are left, and data are read for each: a probe can share these reads"
    CONVERGED = "errors are within the tolerance if no value was missed"
    STUCK = "errors exceed the tolerance, and residuals are at rounding level"
    ROUNDED = "rounding errors of single precision exceed their share of the tolerance"
    SPENT = "the budget is used up, or the basis cannot grow"


Outcome = Stop | Leaders
