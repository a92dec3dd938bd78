"""The last reading: components as the data show them, by one product, with their certificate."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shiftsvd.algebra.generic import matmat_in_double
from shiftsvd.numerics.bounds import groups, value_bounds, vector_bounds
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, qr, stacked, subtract_product, times, triangle
from shiftsvd.numerics.panels import beside, in_dtype, norms, on_host
from shiftsvd.operators import Operator, Panel
from shiftsvd.result import Certificate
from shiftsvd.solvers.factors import Factors, long_factor, rank_floor, shift_rounding
from shiftsvd.solvers.products import Budget
from shiftsvd.solvers.ritz import SHARE, TINY, TURNING, Ritz, allowed, residual_rounding


class Reading(NamedTuple):
    """Components as the data show them."""

    V: Panel
    S: Vector
    certificate: Certificate

    def factors(self, A: Operator, n_passes: int, widest: int) -> Factors:
        V = on_host(self.V)
        U = lambda: long_factor(A, V)  # noqa: E731
        return Factors(U, self.S, V.conj().T, n_passes, widest, 1, self.certificate, eps=A.costs.gram_eps)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def read(
    A: Operator,
    V: Panel,
    k: int,
    rest: Ritz,
    tol: float,
    missed_tol: float,
    budget: Budget,
    block: Panel | None = None,
    product: Panel | None = None,
    mixed: float = 0.0,
) -> Reading:
    """k components from the span of V by one product with A; `rest` are the values that follow, as far as known.

    `block` holds the directions in which `rest` tells residuals, `product` is ``A^H A V`` where it is known, `mixed` is
    what couples V to the vectors of the rest, which otherwise are Ritz vectors of one basis.
    Both halves of a residual are known then: ``A v - sigma u`` is 0 by the choice of u, and ``A^H u - sigma v`` is
    ``(G v - theta v) / sigma``. Where squared values have lost their digits, the triangular factor of A V has not.
    """
    R = product
    if R is None:
        budget.spend(A.costs.gram_reads)
        R = A.gram(V.astype(np.float32) if rest.eps > A.costs.gram_eps else V)
    R = in_dtype(R, V.dtype)
    theta, w = np.linalg.eigh(inner(V, R))
    theta, w = theta[::-1], w[:, ::-1]
    V, R = times(V, w), times(R, w)
    subtract_product(R, V, np.diag(theta))
    S = np.sqrt(np.maximum(theta, 0))
    here = Ritz(theta, norms(R)[None], rest.eps, measured=rest.measured)
    own = shift_rounding(A, here.eps)
    rounded = here.noise() / (2 * np.maximum(theta, TINY)) + own / np.maximum(S, TINY)
    # Squares below their rounding say nothing, not even that a value is 0.
    most = SHARE * max(tol, residual_rounding(here.eps))
    shifted = here.eps > A.costs.gram_eps and own > most * float(S[k - 1])
    lost = shifted or here.noise() > most * max(float(theta[k - 1]), 0.0)
    if lost and theta[0] > 0 and budget.allows(1):
        S, Wh = _values(A, V, budget)
        V, R, theta = V @ Wh.conj().T, R @ Wh.conj().T, S**2
        rounded = (residual_rounding(A.costs.gram_eps) * S[0] + shift_rounding(A)) / np.maximum(S, TINY)
        rounded += _mixed(theta, np.append(theta, rest.theta), norms(R), rest.r, here.noise())
    rounded = rounded + mixed / (2 * np.maximum(theta, TINY))
    seen = replace(rest, theta=np.append(theta, rest.theta), E=_joined(R, block, rest.E))
    V, S, rounded = V[:, :k], np.where(S**2 > rest.zero, S, 0.0)[:k], rounded[:k]
    errors = seen.errors(k, S) + np.where(S > 0, rounded, 0.0)
    # What is inferred says whether a value has converged; what is told of it does without, or is the tolerance.
    told = np.where(S > 0, np.maximum(errors, np.minimum(seen.errors(k, S, inferring=False), tol)), errors)
    residuals = np.where(S > 0, seen.r[:k] / np.where(S > 0, S, 1) / max(float(S[0]), TINY) / np.sqrt(2), 0.0)
    slack = 1.0 if tol > 0 else 8.0  # of residuals that are rounding, some is of this very reading
    late = np.flatnonzero(~(seen.excess(k, tol, errors) <= slack))
    known = certified(A, seen, S, residuals, told, late, max(tol, missed_tol), rounded)
    return Reading(V, S, replace(known, vector_errors=_returned(A, S, known.vector_errors)))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def together(A: Operator, leaders: Ritz, V: Panel, square: float, rest: Reading, tol: float, budget: Budget) -> Reading:
    """The components of leaders V and of what is orthogonal to them, by one product with both.

    `square` bounds the squared residual of the leaders; the values come from the triangular factor of the product.
    """
    count, known = V.shape[1], rest.certificate
    V = qr(beside(V, rest.V))[0]  # vectors of 0 may be any
    S, Wh = _values(A, V, budget)
    theta = np.maximum(S**2, TINY)
    gap = np.maximum(leaders.theta[count - 1] - theta[count:], TINY)
    leaning = square / gap
    rounded = (residual_rounding(A.costs.gram_eps) * S[0] + shift_rounding(A)) / np.maximum(S, TINY)
    radii = (leaders.r + leaders.noise()) ** 2
    bounds = np.append(
        value_bounds(leaders.theta, radii, count, float(theta[count])),
        2 * known.value_errors * rest.S**2 + leaning + np.abs(theta[count:] - rest.S**2),
    )
    there = rank_floor(A, S[0]) < S
    errors = np.where(there, bounds / (2 * theta) + rounded, 0.0)
    angles = np.append(
        vector_bounds(leaders.theta, radii, count, float(theta[count]), TURNING * leaders.noise()),
        np.minimum(known.vector_errors + np.sqrt(leaning / gap), 1.0),
    )
    residuals = np.append(leaders.r / (np.sqrt(2 * theta[:count]) * S[0]), known.residuals * (rest.S[0] / S[0]))
    # Down to rounding, there is nothing relative to ask: the rest has been judged by its residuals.
    late = np.flatnonzero(~(errors <= tol)) if tol > 0 else known.late + count
    S = np.where(there, S, 0.0)
    certificate = Certificate(residuals, errors, late, _returned(A, S, angles), known.missed_below, known.complete)
    return Reading(V @ Wh.conj().T, S, certificate)


def _mixed(read_off: Vector, theta: Vector, r: Vector, others: Vector, noise: float) -> Vector:
    starts = groups(theta, (np.append(r, others) + noise) ** 2)[0]
    count = len(read_off)
    first = starts[np.searchsorted(starts, count - 1, side="right") - 1]
    if count == len(theta) or count in starts:
        return np.zeros(count)
    return np.where(np.arange(count) >= first, noise / (2 * np.maximum(read_off, TINY)), 0.0)


def _returned(A: Operator, S: Vector, sines: Vector) -> Vector:
    """Bounds of sines for vectors in the precision of the data; those of values reported as 0 may be any.

    ``A v``, along which a vector on the left lies, is rounded at the level of the shift.
    """
    rounded = float(np.finfo(A.dtype).eps) + shift_rounding(A) / np.maximum(S, TINY)
    return np.where(S > 0, np.minimum(sines + rounded, 1.0), 1.0)


def _values(A: Operator, V: Panel, budget: Budget) -> tuple[Vector, Panel]:
    budget.spend(1)
    double = A.costs.eps <= A.costs.gram_eps
    parts = (Y for _, Y in A.row_products(V)) if double else [matmat_in_double(A, V)]
    _, S, Wh = np.linalg.svd(stacked(triangle(Y) for Y in parts))
    return S, Wh


def certified(
    A: Operator,
    ritz: Ritz,
    S: Vector,
    residuals: Vector,
    errors: Vector,
    late: Vector,
    missed_tol: float,
    rounded: Vector,
    doubtful: bool = False,
) -> Certificate:
    """The certificate of the values S, the first of `ritz`.

    Bounds are given that none was missed where nothing speaks against that: not where more may have been than is
    allowed, nor, of vectors that are `doubtful`, where some are late. A value that was missed moves those after it:
    then nothing is known but what no eigenvalue of each place exceeds.
    """
    k = len(S)
    limit = ritz.limit(k)
    missed = None if limit == np.inf else float(np.sqrt(max(limit, 0.0)))
    complete = limit <= allowed(ritz, k, missed_tol) * (1 + 1e-9)
    proven = missed is not None and (not complete or (doubtful and len(late) > 0))
    if proven:
        placed = ritz.placed(S) + rounded
        errors = np.where((S > 0) & np.isfinite(placed), placed, errors)
    # Vectors of the squares turn by what a shift that is rounded does to these.
    squares = replace(ritz, measured=ritz.noise() + 2 * float(S[0]) * shift_rounding(A) / TURNING)
    return Certificate(residuals, errors, late, squares.angles(k, proven), missed, bool(complete))


def _joined(R: Panel, block: Panel | None, E: Panel) -> Panel:
    along = np.zeros((len(E), R.shape[1]), R.dtype)
    if block is not None and block.shape[1]:
        R, block = R.copy(), in_dtype(block, R.dtype)
        along[: block.shape[1]] = inner(block, R)
        subtract_product(R, block, along[: block.shape[1]])
    # What is left is rounding, but not nothing.
    lengths, X = np.linalg.eigh(inner(R, R))
    aside = np.sqrt(np.maximum(lengths, 0))[:, None] * X.conj().T
    return np.block([[along, E], [aside, np.zeros((len(aside), E.shape[1]), E.dtype)]])
