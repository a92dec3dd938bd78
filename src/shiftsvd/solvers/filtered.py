"""Eigenvectors of a normalized affinity, by Lanczos on a Chebyshev polynomial of it where gaps are small."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.backends.affinity import Affinity, Recurrence
from shiftsvd.backends.files import larger_blocks
from shiftsvd.errors import Setting
from shiftsvd.events import passes_so_far, set_expected_passes
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.bounds import combined_sines, residual_rounding
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import qr
from shiftsvd.operators import Derived, Panel
from shiftsvd.runs.memory import release
from shiftsvd.runs.messages import notice, warn
from shiftsvd.solvers.constants import EPS
from shiftsvd.solvers.hermitian import Eigenpairs, VectorLanczos, errors_of_pairs

BLOCK = 8
N_COMPONENTS = Setting("n_components")
LOWEST = -1.1  # below all eigenvalues


@dataclass(frozen=True, eq=False, repr=False)
class Filtered(Derived):
    """``P T_m(y(N)) P / T_m(y(top))``, where y maps LOWEST..cut to -1..1 and P removes the trivial eigenvectors.

    The polynomial shrinks eigenvalues up to `cut` to at most ``1 / T_m(y(top))``; beyond, it is monotone.
    """

    A: Affinity
    cut: float
    top: float
    degree: int

    def y(self, value: Any) -> Any:
        return (2 * value - LOWEST - self.cut) / (self.cut - LOWEST)

    @property
    def size(self) -> float:
        """T_m(y(top))."""
        return float(np.cosh(self.degree * np.arccosh(max(self.y(self.top), 1.0))))

    def inverse(self, values: Any) -> Any:
        """Return the eigenvalues of N of which the polynomial has these values; at least `cut`."""
        y = np.cosh(np.arccosh(np.maximum(np.multiply(values, self.size), 1.0)) / self.degree)
        return (y * (self.cut - LOWEST) + LOWEST + self.cut) / 2

    def known_costs(self) -> dict[str, Any]:
        # The error of step j grows by U_(m - j)(y), of components up to the largest eigenvalue.
        t = np.arccosh(max(self.y(self.top), 1.0 + 1e-12))
        j = np.arange(self.degree)
        growth = np.cosh(j * t) * np.sinh((self.degree - j) * t) / np.sinh(t) / np.cosh(self.degree * t)
        eps = self.A.costs.eps * float(np.sum(growth))
        return {"eps": eps, "gram_eps": eps, "stored": self.degree * self.A.costs.stored}

    @cached_property
    def recurrence(self) -> Recurrence:
        """The recurrence of ``2 y(N)``."""
        return self.A.recurrence(4 / (self.cut - LOWEST), -2 * (LOWEST + self.cut) / (self.cut - LOWEST))

    def matmat(self, V: Panel) -> Panel:
        V = self.A.nontrivial(V)
        first = self.recurrence(np.zeros_like(V), V, 1) / 2
        return self.A.nontrivial(self.recurrence(V, first, self.degree - 1)) / self.size

    def rmatmat(self, W: Panel) -> Panel:
        return self.matmat(W)


class Modes(NamedTuple):
    """Leading nontrivial eigenvectors of an affinity N."""

    vectors: Panel
    gaps: Vector  # 1 - lambda, ascending
    gap_errors: Vector  # bounds of the errors of the gaps
    sines: Vector  # bounds of the sines of the angles of the vectors to the spaces of their groups
    converged: bool
    n_products: int


LAST = 2  # products that `_read` takes
# Logarithm by which the polynomial shrinks eigenvalues at the cut, relative to the k-th. With 4, graphs of neighbours
# of 20,000 nodes took 1.2 times as many products, because a last step went far below the tolerance; with 1.5, one took
# a run more (benchmarks.claims.graphs).
SHRINK = 2.5
MOST_DEGREE = 100
# Vectors converge to this part of the tolerance, and to LOOSEST at least: the read combines them, which adds a part of
# the order of the square of their errors, up to a tenth of errors of LOOSEST.
SHARE, LOOSEST = 0.9, 0.05
# Tell a forecast that exceeds the budget or LONG multiplications (3 to 10 seconds on two cores), and again if it grew
# by AGAIN. Vectors converge when a Chebyshev polynomial has grown by exp(GROWTH) / tol between two eigenvalues, whose
# forecasts were 0.3 to 1.3 of the products of paths, and 0.3 to 0.6 of those of graphs of neighbours. A run takes twice
# as many steps as the one before, so that at least as many products follow as were computed.
LONG, AGAIN, GROWTH = 5e9, 2.0, 2.5
FINER = 2  # ratio of the degrees of a polynomial that is tried after one whose rounding errors are too large
# A run may take this many times its steps if it converges: on 100,000 points of a surface, a run ended one step before,
# and the next took as many products again.
LONGER = 3
MOST_RANGE = 14.0  # logarithm of the largest quotient of the polynomial at 1 and at the k-th value


def leading_modes(A: Affinity, k: int, tol: float, most_products: int, rng: Generator) -> Modes:
    n = A.shape[0]
    if k == 0:
        return Modes(np.empty((n, 0)), np.empty(0), np.empty(0), np.empty(0), True, 0)
    solver = VectorLanczos(min(SHARE * tol, LOOSEST), block_size=BLOCK)
    b, columns = solver.block(n), solver.basis_columns(k, n)
    least = -(-k // b)  # steps until the basis has k columns
    most = max(most_products - LAST, least)
    steps = most if columns == n else min(columns // b - 1, most)
    found = replace(solver, max_passes=steps)(A, k, rng)
    n_products, limit = found.n_passes, found.limit
    # Eigenvalues of N are at least -1: lower Ritz values belong to trivial vectors.
    theta = np.maximum(np.append(found.values, found.rest), -1.0)
    told, degree = 0.0, 0
    while found.spent or degree:
        G = _filter(A, theta, k)
        # At the rounding errors of a polynomial, one of a higher degree may have smaller ones relative to its gaps.
        if not found.spent and (np.all(found.value_errors <= solver.tol) or G.degree < FINER * degree):
            break
        told = _foretell(A, n_products + max(_products(theta, k, tol), n_products), most_products, told)
        left = (most - n_products) // G.degree
        steps = min(2 * steps, left)
        if steps < least:
            break
        if A.costs.working_bytes:
            release()
        found = replace(solver, max_passes=steps, longest=min(LONGER * steps, left))(G, k, rng, found.vectors)
        degree = G.degree
        n_products += found.n_passes * degree
        theta = G.inverse(np.append(found.values, found.rest))
        limit = float(G.inverse(found.limit + residual_rounding(G.costs.eps)))
    return _read(A, found, limit, tol, n_products)


def _filter(A: Affinity, theta: Vector, k: int) -> Filtered:
    least = float(theta[k - 1])
    # The polynomial of the highest degree shrinks values up to `farthest` enough.
    y = np.cosh(SHRINK / MOST_DEGREE)
    farthest = (2 * least - LOWEST * (1 - y)) / (1 + y)
    cut = min(float(theta[min(k + BLOCK // 2, len(theta) - 1)]), farthest)
    shape = Filtered(A, cut, float(theta[0]), 1)
    # Rounding errors are relative to the value of the trivial vectors, which are removed afterwards.
    t, first = np.arccosh(shape.y(np.array([least, 1.0])))
    most = MOST_RANGE / max(first - t, MOST_RANGE / MOST_DEGREE)
    return replace(shape, degree=max(int(min(np.ceil(SHRINK / t), most)), 1))


def _products(theta: Vector, k: int, tol: float) -> float:
    """Forecast the products that vectors take, from the gap between Ritz values, which shrinks as they converge."""
    cut = float(theta[min(k + BLOCK // 2, len(theta) - 1)])
    y = 1 + 2 * max(float(theta[k - 1]) - cut, EPS) / (cut - LOWEST)
    return float((GROWTH - np.log(max(tol, EPS))) / np.arccosh(y))


def _foretell(A: Affinity, expected: float, most: int, told: float) -> float:
    set_expected_passes(A.reads * expected - (passes_so_far() or 0.0))
    if expected < AGAIN * told or (expected <= most and expected * BLOCK * A.costs.stored < LONG):
        return told
    text = f"The gap after the last component is small: at least about {expected:,.0f} products with W are expected"
    if expected <= most:
        notice(f"{text}. Vectors converge faster with another ", N_COMPONENTS, ", before a larger gap.")
    else:
        warn(f"{text}, more than ", Setting("max_products", most), ". Raise it, or choose another ", N_COMPONENTS, ".")
    return expected


def _read(A: Affinity, found: Eigenpairs, limit: float, tol: float, n_products: int) -> Modes:
    V, noise = found.vectors, residual_rounding(A.costs.eps)
    if not found.converged:  # trivial vectors, whose energy is 0, may have parts in a basis that is too small
        for _ in range(2):
            V = qr(A.nontrivial(V))[0]
    gaps, X, rounding = A.energies(V)
    V = V @ X
    errors = errors_of_pairs(A.normalized(V), V, 1 - gaps, noise, limit) + rounding
    sines = np.minimum(combined_sines(found.value_errors, found.starts, X), 1.0)
    converged = found.converged and bool(np.all(sines <= tol))
    return Modes(V, gaps, errors, sines, converged, n_products + LAST)


# Copies of a block of a file while its entries are changed, in those of a block that is multiplied; and panels that the
# allocator keeps among blocks (60,000 x 20,000 counts in 200 MB).
CHANGED, FREED = 2, 12


def modes_bytes(A: Affinity, k: int) -> int:
    """Predict the memory of `leading_modes`: the basis, panels of the recurrence and results, and copies of edges.

    Of a matrix in a file: its blocks, and sums of products of each thread.
    """
    n, copies, columns = A.shape[0], 0, VectorLanczos(block_size=BLOCK).peak_columns(k, A.shape[0])
    if A.largest is None:
        copies = 2 * 12 * A.costs.stored
    elif blocks := A.costs.working_bytes:
        sums = ((A.costs.n_threads or default_threads()) + 4) * BLOCK * A.A.shape[1]
        copies = CHANGED * blocks + 8 * (sums + FREED * BLOCK * n)
    return 8 * n * columns + copies


def in_fitting_blocks(A: Affinity, k: int) -> Affinity:
    """Return the affinity with blocks of a file that are small enough beside the vectors of `leading_modes`."""
    if not A.costs.working_bytes:
        return A
    release()
    return replace(A, A=larger_blocks(A.A, CHANGED * A.costs.working_bytes - modes_bytes(A, k)))
