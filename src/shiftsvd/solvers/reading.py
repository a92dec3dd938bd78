"""The last reading: components by one product with the data, with a certificate; and `certify`, which adds one."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import cancelled, matmat_in_double
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TINY, TURNING, Fact, Ritz
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, orth, qr, stacked, subtract_product, times, triangle
from shiftsvd.numerics.panels import beside, in_dtype, lengths, norms, on_host
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.result import Certificate, SVDResult
from shiftsvd.solvers.constants import CERTIFY_SWEEPS, MISSED_TOL, PROBABILITY, SHARE, USUAL_BLOCK
from shiftsvd.solvers.cost import surroundings
from shiftsvd.solvers.factors import Factors, long_factor, rank_floor, shift_rounding
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Probe, Proven, allowed
from shiftsvd.solvers.problem import Budget, Outcome, Problem, Products


@dataclass(frozen=True, eq=False)
class Snapshot:
    """State of an iteration that has stopped: all that `read` needs of it, beside products with the data.

    What returns one can take the place of `solve` up to the reading: `Gram` does, and a small engine of the tests.
    Where it stops as `Rounded` or with `Leaders`, the Ritz values and V are what the next run begins with. `read` does
    not ask why it has stopped.

    Attributes
    ----------
    ritz : Ritz
        All Ritz values, and coordinates E of their residuals: first along the columns of `block`.
    V : array of shape (n, j)
        The Ritz vectors of the first j >= k values, in double precision.
    block : array of shape (n, b)
        The block that would have been multiplied next.
    panels : tuple of arrays of shape (n, ...)
        The basis in whose terms the Ritz vectors are, side by side.
    proven : Proven
        The level with its epoch, the facts (count, mu), the columns seen, and the probes, which have spent
        ``1 - 2**-n_probes`` of the probability.
    eps : float
        Rounding unit of the products.
    measured : float
        Rounding of a product beyond that: measured in single precision, else that of what the data cancel.
    why : Outcome
        Why the iteration stopped.
    product : array of shape (n, j), or None
        ``G V``, if it was multiplied along with a probe.
    """

    ritz: Ritz
    V: Panel
    block: Panel
    panels: tuple[Panel, ...]
    proven: Proven
    eps: float
    measured: float
    why: Outcome
    product: Panel | None = None


class Reading(NamedTuple):
    """Components that were read off the data."""

    V: Panel
    S: Vector
    certificate: Certificate

    @property
    def settled(self) -> bool:
        return not len(self.certificate.late)

    def factors(self, A: Operator, budget: Budget) -> Factors:
        V = on_host(self.V)
        U = lambda: long_factor(A, V)  # noqa: E731
        return Factors(U, self.S, V.conj().T, budget.n_passes, budget.widest, 1, self.certificate, eps=A.costs.gram_eps)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def read(p: Problem, G: Products, s: Snapshot, rng: Generator) -> Reading:
    """Read the k components off the data, by one product with A, and bound their errors.

    G counts the reads, and measures once more how single precision rounds.
    Both halves of a residual are known then: ``A v - sigma u`` is 0 by the choice of u, and ``A^H u - sigma v`` is
    ``(G v - theta v) / sigma``. Where squared values have lost their digits, the triangular factor of A V has not.
    """
    A, k, budget = p.A, s.ritz.k, G.budget
    R, eps, measured, rest, mixed = _last_product(p, G, s, rng)
    theta, w = np.linalg.eigh(inner(s.V, R))
    theta, w = theta[::-1], w[:, ::-1]
    V, R = times(s.V, w), times(R, w)
    subtract_product(R, V, np.diag(theta))
    S = np.sqrt(np.maximum(theta, 0))
    noise, own = bounds.rounding_of(theta, eps, measured), shift_rounding(A, eps)
    rounded = noise / (2 * np.maximum(theta, TINY)) + own / np.maximum(S, TINY)
    # Squares below their rounding say nothing, not even that a value is 0.
    most = SHARE * max(p.tol, bounds.residual_rounding(eps))
    shifted = eps > A.costs.gram_eps and own > most * float(S[k - 1])
    lost = shifted or noise > most * max(float(theta[k - 1]), 0.0)
    if lost and theta[0] > 0 and budget.allows(1):
        S, Wh = _values(A, V, budget)
        V, R, theta = V @ Wh.conj().T, R @ Wh.conj().T, S**2
        rounded = _rounded_values(A, S, S, A.costs.gram_eps)
        rounded += _mixed(theta, np.append(theta, rest.theta), norms(R), rest.r, noise)
    rounded = rounded + mixed / (2 * np.maximum(theta, TINY))
    every = np.append(theta, rest.theta)
    seen = replace(rest, theta=every, E=_joined(R, s.block, rest.E), noise=bounds.rounding_of(every, eps, measured))
    V, S, rounded = V[:, :k], np.where(S**2 > rest.zero, S, 0.0)[:k], rounded[:k]
    errors = bounds.value_errors(seen, S) + np.where(S > 0, rounded, 0.0)
    # Convergence may use inferred bounds. Report the larger of the inferred bound and min(proven bound, `tol`).
    told = np.where(S > 0, np.maximum(errors, np.minimum(bounds.value_errors(seen, S, inferring=False), p.tol)), errors)
    residuals = np.where(S > 0, seen.r[:k] / np.where(S > 0, S, 1) / max(float(S[0]), TINY) / np.sqrt(2), 0.0)
    slack = 1.0 if p.tol > 0 else 8.0  # of residuals that are rounding, some is of this very reading
    late = np.flatnonzero(~(bounds.excess(seen, p.tol, errors) <= slack))
    known = certified(A, seen, S, residuals, told, late, max(p.tol, p.missed_tol), rounded)
    return Reading(V, S, replace(known, vector_errors=_returned(A, S, known.vector_errors)))


def _last_product(p: Problem, G: Products, s: Snapshot, rng: Generator) -> tuple[Panel, float, float, Ritz, float]:
    """Return ``G V``, its rounding unit and measured rounding, the Ritz values after V, and what couples V to these.

    Single data are read in the precision that they were multiplied in, if that holds them; double data in double.
    """
    A, theta, product, measured = p.A, s.ritz.theta, s.product, s.measured
    single = p.reads_in_single(G.eps) and (product is not None or G.budget.allows(2 * G.last_reads))
    if single:
        product = in_dtype(G(s.V) if product is None else product, G.dtype)
        G.judge(s.V, product, rng)
        measured = G.measured
        lossy = bounds.loss(replace(s.ritz, noise=bounds.rounding_of(theta, s.eps, measured))) > SHARE * p.tol
        if lossy and G.budget.allows(G.last_reads):
            single, product = False, None
    left, eps = s.V.shape[1], s.eps if single else A.costs.gram_eps
    rest = replace(s.ritz, theta=theta[left:], E=s.ritz.E[:, left:], known=s.proven.limit(s.ritz.k))
    if product is None and (s.eps > eps or G.budget.allows(G.last_reads)):
        G.budget.spend(A.costs.gram_reads, left)
        product = A.gram(s.V)
    if product is None:  # as the basis knows it
        product = s.V * theta[:left] + s.block @ s.ritz.E[: s.block.shape[1], :left]
    product, mixed = in_dtype(product, s.V.dtype), 0.0
    if s.eps > eps:  # the others keep what single precision did to them
        rest = bounds.grown(rest, bounds.rounding_of(theta, s.eps, measured))
        mixed = _coupling(s.panels, s.V, product)
    return product, eps, measured if single or G.precise else 0.0, rest, mixed


def _coupling(panels: tuple[Panel, ...], V: Panel, product: Panel) -> float:
    R = product - V @ inner(V, product)
    size = float(np.max(lengths(R), initial=0))
    if size == 0:
        return 0.0
    parts = [inner(B, (R / size).astype(B.dtype)) for B in panels]
    return float(np.linalg.norm(np.concatenate(parts), 2)) * size


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def together(A: Operator, leaders: Ritz, V: Panel, rest: Reading, tol: float, budget: Budget) -> Reading:
    """Read leaders V and what is orthogonal to them off together, by the triangular factor of one product.

    Eigenvalues of G are less than those of ``P G P`` by at most ``||R||^2 / (theta - lambda_j)``, R being the residual
    of the leaders and theta the least of them.
    """
    count, known = V.shape[1], rest.certificate
    square = float(np.sum(leaders.rounded_squares))
    V = qr(beside(V, rest.V))[0]  # vectors of 0 may be any
    S, Wh = _values(A, V, budget)
    theta = np.maximum(S**2, TINY)
    gap = np.maximum(leaders.theta[count - 1] - theta[count:], TINY)
    leaning = square / gap
    first = leaders.theta, leaders.rounded_squares, count, float(theta[count])
    off = np.append(
        bounds.value_bounds(*first), 2 * known.value_errors * rest.S**2 + leaning + np.abs(theta[count:] - rest.S**2)
    )
    there = rank_floor(A, S[0]) < S
    errors = np.where(there, off / (2 * theta) + _rounded_values(A, S, S, A.costs.gram_eps), 0.0)
    angles = np.append(
        bounds.vector_bounds(*first, TURNING * leaders.noise),
        np.minimum(known.vector_errors + np.sqrt(leaning / gap), 1.0),
    )
    residuals = np.append(leaders.r / (np.sqrt(2 * theta[:count]) * S[0]), known.residuals * (rest.S[0] / S[0]))
    # Down to rounding, there is nothing relative to ask: the rest has been judged by its residuals.
    late = np.flatnonzero(~(errors <= tol)) if tol > 0 else known.late + count
    S = np.where(there, S, 0.0)
    certificate = Certificate(residuals, errors, late, _returned(A, S, angles), known.missed_below, known.complete)
    return Reading(V @ Wh.conj().T, S, certificate)


def _mixed(read_off: Vector, theta: Vector, r: Vector, others: Vector, noise: float) -> Vector:
    starts = bounds.groups(theta, (np.append(r, others) + noise) ** 2)[0]
    count = len(read_off)
    first = starts[np.searchsorted(starts, count - 1, side="right") - 1]
    if count == len(theta) or count in starts:
        return np.zeros(count)
    return np.where(np.arange(count) >= first, noise / (2 * np.maximum(read_off, TINY)), 0.0)


def _rounded_values(A: Operator, S: Vector, of: Vector, eps: float) -> Vector:
    # Of values that come from no square.
    return np.asarray((bounds.residual_rounding(eps) * S[0] + shift_rounding(A)) / np.maximum(of, TINY))


def _returned(A: Operator, S: Vector, sines: Vector) -> Vector:
    # Vectors are returned in the precision of the data; A v, along which the left ones lie, is rounded as the shift is.
    rounded = float(np.finfo(A.dtype).eps) + shift_rounding(A) / np.maximum(S, TINY)
    return np.where(S > 0, np.minimum(sines + rounded, 1.0), 1.0)


def _values(A: Operator, V: Panel, budget: Budget) -> tuple[Vector, Panel]:
    budget.spend(1, V.shape[1])
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
    """Certify the values S, the first of `ritz`.

    Bounds assume that no value was missed, unless more may have been missed than is allowed, or a `doubtful` solver has
    late components. A value that was missed moves those after it: then bounds are those of the values of each place.
    """
    limit = ritz.limit
    missed = None if limit == np.inf else float(np.sqrt(max(limit, 0.0)))
    complete = limit <= allowed(ritz, missed_tol) * (1 + 1e-9)
    proven = missed is not None and (not complete or (doubtful and len(late) > 0))
    if proven:
        placed = bounds.placed_errors(ritz, S) + rounded
        errors = np.where((S > 0) & np.isfinite(placed), placed, errors)
    # Vectors of the squares turn by what a shift that is rounded does to these.
    squares = replace(ritz, noise=ritz.noise + 2 * float(S[0]) * shift_rounding(A) / TURNING)
    return Certificate(residuals, errors, late, bounds.vector_errors(squares, proven), missed, bool(complete))


def _joined(R: Panel, block: Panel, E: Panel) -> Panel:
    along = np.zeros((len(E), R.shape[1]), R.dtype)
    if block.shape[1]:
        R, block = R.copy(), in_dtype(block, R.dtype)
        along[: block.shape[1]] = inner(block, R)
        subtract_product(R, block, along[: block.shape[1]])
    # What is left is rounding, but not nothing.
    lengths, X = np.linalg.eigh(inner(R, R))
    aside = np.sqrt(np.maximum(lengths, 0))[:, None] * X.conj().T
    return np.block([[along, E], [aside, np.zeros((len(aside), E.shape[1]), E.dtype)]])


# --- the certificate of a factorization that came without one -----------------------------------------------------


def certificate_bytes(A: Operator, k: int) -> int:
    # Long: U, F.U, A V, and three of its products. Short: vectors, products, the residual, and the basis of the probe.
    long, short = 6 * k, 8 * k + USUAL_BLOCK * CERTIFY_SWEEPS
    m, n = max(A.shape), min(A.shape)
    return 8 * (long * m + min(short * n, 3 * n**2)) + surroundings(A, k + USUAL_BLOCK)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def certify(A: Operator, F: SVDResult, rng: Generator, tol: float) -> SVDResult:
    """Add residuals, bounds, and what can have been missed to the account of F.

    Bounds are those of the Ritz values of the short vectors, which are made orthonormal in double precision; by how
    much the values of F differ from these is added. Three passes, and some 5 of a random block, unless F comes from a
    solver that finds all values.
    """
    if A.shape[0] < A.shape[1]:
        F.info = certify(A.H, F.H, rng, tol).info
        return F
    k, dtype = len(F.S), panel_dtype(A.dtype)
    given = F.Vh.conj().T.astype(dtype)
    V = orth(given)
    Y = matmat_in_double(A, V)
    U = np.asarray(F.U)  # one that is spread over a cluster is needed whole
    right = Y @ inner(V, given) - U * F.S
    left = A.rmatmat(U) - given * F.S
    _, S, Wh = np.linalg.svd(triangle(Y))
    V, theta = V @ Wh.conj().T, S**2
    fused = A.costs.gram_reads == 1  # in double precision, and as many reads
    R = (A.gram(V) if fused else A.rmatmat(Y @ Wh.conj().T)).astype(dtype) - V * theta
    basis = Factorization.around(V, theta, R, rng)
    eps = A.costs.gram_eps if fused else A.costs.eps
    noise = bounds.rounding_of(theta, eps, bounds.residual_rounding(eps) * cancelled(A) * float(S[0]))
    ritz = Ritz(theta, basis.ritz().E, k, noise, zero=rank_floor(A, float(S[0])) ** 2)
    need = k, allowed(ritz, max(tol, MISSED_TOL))
    whole = F.info.missed_below  # of a solver that has all values: there is nothing to look for
    sweeps = 0
    if whole is not None:
        ritz = replace(ritz, known=whole**2)
    elif k == len(V):
        ritz = replace(ritz, level=-np.inf)
    else:
        probe = Probe(basis, USUAL_BLOCK, PROBABILITY, noise)
        while True:
            probe.take(np.asarray(A.gram(basis.block), dtype))
            sweeps += 1
            if sweeps == CERTIFY_SWEEPS or basis.width == 0 or _enough(ritz, F.S, need, tol, probe):
                break
        probe.end()
        ritz = replace(ritz, level=probe.level)
    # Squares know nothing of what is below their rounding; these values come from no square.
    rounded = _rounded_values(A, S, F.S, eps)
    errors = bounds.value_errors(ritz, F.S) + np.where(F.S > 0, rounded, 0.0)
    errors = np.where((F.S == 0) & (theta > ritz.zero), np.inf, errors)  # a value that is there is not 0
    if whole is not None:  # by Weyl, since all values are those of a matrix as near to A as rounding
        near = rank_floor(A, float(S[0]), min(A.costs.gram_eps, A.H.costs.gram_eps))
        errors = np.minimum(errors, np.where(F.S > 0, (near + np.abs(F.S - S)) / np.maximum(F.S, TINY), np.inf))
    late = np.flatnonzero(~(errors <= tol))
    residuals = np.hypot(np.linalg.norm(right, axis=0), np.linalg.norm(left, axis=0)) / np.sqrt(2) / (F.S[0] or 1.0)
    doubtful = F.info.missed_below is None  # the solver does not know what it missed, as one of all values does
    known = certified(A, ritz, F.S, residuals, errors, late, max(tol, MISSED_TOL), rounded, doubtful)
    known = replace(known, late=np.flatnonzero(~(known.value_errors <= tol)))  # what is proven may be within it
    leaning = np.where(F.S > 0, np.linalg.norm(right, axis=0) / np.where(F.S > 0, F.S, 1), 1.0)
    angles = _angles(ritz, known.vector_errors, inner(V, given), F.S) + leaning
    angles += shift_rounding(A) / np.maximum(F.S, TINY)  # of the left ones, which lie along A v
    n_passes = F.info.n_passes + 3 + sweeps * A.costs.gram_reads
    F.info = replace(known, vector_errors=np.minimum(angles, 1.0)).told(replace(F.info, n_passes=n_passes))
    return F


def _enough(ritz: Ritz, S: Vector, need: Fact, tol: float, probe: Probe) -> bool:
    # More products change nothing once all errors are within `tol`, or the largest Ritz value of the probe shows that
    # no level can bring them there. For what was missed, a level close to that Ritz value is enough.
    if not bounds.shows(ritz, need, probe.level):
        found = not bounds.shows(ritz, need, probe.top)  # bounds are those of its level then
        return found and probe.level <= probe.top * (1 + MISSED_TOL) ** 2
    proven, best = (
        np.all(bounds.value_errors(replace(ritz, level=level), S) <= tol) for level in (probe.level, probe.top)
    )
    return bool(proven or not best)


def _angles(ritz: Ritz, sines: Vector, C: Panel, S: Vector) -> Vector:
    """Bounds of sines for vectors with coordinates C in Ritz vectors that have bounds `sines`."""
    # On the left, A v consists of parts that are as long as C and the Ritz values say.
    starts, _ = bounds.groups(ritz.theta, ritz.rounded_squares)
    C = C / np.linalg.norm(C, axis=0)
    left = bounds.turned(sines, starts, C, np.sqrt(np.maximum(ritz.theta, 0))) / np.where(S > 0, S, 1)
    return np.asarray(np.where(S > 0, np.maximum(bounds.turned(sines, starts, C), left), 1.0))
