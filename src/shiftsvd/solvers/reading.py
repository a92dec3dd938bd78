"""Compute components and their certificate by products with the data: the last reading of a run, and `certify`."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import cancelled, matmat_in_double
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TINY, TURNING, CountBound, Ritz
from shiftsvd.numerics.orth import inner, orth, qr, subtract_multiples, times, triangle, triangle_of_stacked
from shiftsvd.numerics.panels import hstack, in_dtype, lengths, norms, on_host
from shiftsvd.operators import Operator, Panel, Vector, panel_dtype
from shiftsvd.result import Certificate, SVDResult
from shiftsvd.solvers.constants import (
    CERTIFY_SWEEPS,
    EPS,
    FROM_BASIS,
    LIKELY_SWEEPS,
    MISSED_TOL,
    PROBABILITY,
    ROUNDING_SHARE,
    USUAL_BLOCK,
)
from shiftsvd.solvers.cost import overhead_bytes, tall
from shiftsvd.solvers.factors import Factors, long_factor, rank_floor, shift_rounding
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Probe, Proven, miss_limit
from shiftsvd.solvers.problem import Budget, Problem, Product, Products


@dataclass(frozen=True, eq=False)
class Snapshot:
    """State of a stopped iteration, from which `read` computes the components by products with the data.

    Any function that returns a Snapshot can replace the iteration of `solve`, such as `Gram`, and a small engine in the
    tests.
    """

    ritz: Ritz  # all Ritz values, and coordinates E of their residuals: first along the columns of `block`
    V: Panel  # (n, j): the Ritz vectors of the first j >= k values, in double precision
    block: Panel  # (n, b): the block that the next step would multiply
    panels: tuple[Panel, ...]  # the basis that spans the Ritz vectors, cut by columns
    proven: Proven  # bounds by probes, which have used ``1 - 2**-n_probes`` of the probability
    eps: float  # rounding unit of the products
    extra_noise: float  # further rounding errors: measured in single precision, else of terms that cancel
    product: Product | None = None  # ``G V``, if it was multiplied along with a probe
    basis_noise: float | None = None  # rounding error of ``G V`` computed from the basis; None: read the data for it


class Reading(NamedTuple):
    """Components and their certificate, computed from a product with the data."""

    V: Panel
    S: Vector
    certificate: Certificate

    @property
    def values_converged(self) -> bool:
        return not len(self.certificate.unconverged)

    def factors(self, A: Operator, budget: Budget) -> Factors:
        V = on_host(self.V)
        U = lambda: long_factor(A, V)  # noqa: E731
        return Factors(U, self.S, V.conj().T, budget.n_passes, budget.widest, 1, self.certificate, eps=A.costs.gram_eps)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def read(p: Problem, G: Products, s: Snapshot, rng: Generator) -> Reading:
    """Compute the k components and their error bounds by one product with A.

    G counts the passes, and measures the rounding of single precision again. The product yields both parts of a
    residual: ``A v - sigma u`` is 0 by the choice of u, and ``A^H u - sigma v`` is ``(G v - theta v) / sigma``. If
    squaring has lost the digits of small values, compute these from the triangular factor of A V.
    """
    last, k = _last_product(p, G, s, rng), s.ritz.k
    V, R, theta, S, rounded = _components(p, s.V, last, k, G.budget)
    every = np.append(theta, last.rest.theta)
    noise = bounds.rounding_of(every, last.eps, last.extra_noise)
    ritz = replace(last.rest, theta=every, E=_all_residuals(R, s.block, last.rest.E), noise=noise)
    S = np.where(S**2 > ritz.zero, S, 0.0)[:k]
    return Reading(V[:, :k], S, _certificate(p, ritz, S, rounded[:k], s.proven))


class LastProduct(NamedTuple):
    """Product ``G V``, its rounding, the Ritz values after those of V, and the norm of the coupling of V to these."""

    panel: Panel
    eps: float
    extra_noise: float
    rest: Ritz
    coupling: float


def _last_product(p: Problem, G: Products, s: Snapshot, rng: Generator) -> LastProduct:
    product, theta, left = _product_of(p, G, s, rng), s.ritz.theta, s.V.shape[1]
    extra = s.extra_noise if G.precise else G.measured
    rest = replace(s.ritz, theta=theta[left:], E=s.ritz.E[:, left:], proven_limit=s.proven.limit(s.ritz.k))
    panel, eps, coupling = in_dtype(product.panel, s.V.dtype), product.eps, 0.0
    if s.eps > eps:  # the other Ritz values keep the rounding errors of single precision
        rest = bounds.with_rounding(rest, bounds.rounding_of(theta, s.eps, extra))
        coupling = _coupling(s.panels, s.V, panel)
    extra = max(extra if eps > p.A.costs.gram_eps or G.precise else 0.0, product.noise)
    return LastProduct(panel, eps, extra, rest, coupling)


def _product_of(p: Problem, G: Products, s: Snapshot, rng: Generator) -> Product:
    # For single precision data in memory, use the precision of the iteration if its rounding allows; else use double.
    A, left, product, double = p.A, s.V.shape[1], s.product, p.A.costs.gram_eps
    if product is None and p.reads_in_single(G.eps) and G.budget.allows(2 * G.last_reads):
        _, product = G.with_components(s.V[:, :0], s.V, rng)
    noise = bounds.rounding_of(s.ritz.theta, s.eps, G.measured)
    is_coarse = product and product.eps > double and _is_coarse(s.ritz, noise, ROUNDING_SHARE * p.tol)
    if product and not (is_coarse and G.budget.allows(G.last_reads)):
        return product
    noise += s.basis_noise or 0.0
    may_use_basis = p.reads_file and s.basis_noise is not None and product is None
    if may_use_basis and not _is_coarse(s.ritz, noise, FROM_BASIS * p.tol):
        return _from_basis(s, s.eps, noise)
    if s.eps > double or G.budget.allows(G.last_reads):
        G.budget.spend(A.costs.gram_reads, left)
        return Product(A.gram(s.V), double)
    return _from_basis(s, double, noise)  # no pass is left


def _from_basis(s: Snapshot, eps: float, noise: float) -> Product:
    left = s.V.shape[1]
    return Product(s.V * s.ritz.theta[:left] + s.block @ s.ritz.E[: s.block.shape[1], :left], eps, noise)


def _is_coarse(ritz: Ritz, noise: float, most: float) -> bool:
    return bounds.relative_noise(replace(ritz, noise=noise)) > most


def _coupling(panels: tuple[Panel, ...], V: Panel, product: Panel) -> float:
    R = product - V @ inner(V, product)
    size = float(np.max(lengths(R), initial=0))
    if size == 0:
        return 0.0
    parts = [inner(B, (R / size).astype(B.dtype)) for B in panels]
    return float(np.linalg.norm(np.concatenate(parts), 2)) * size


def _components(
    p: Problem, V: Panel, last: LastProduct, k: int, budget: Budget
) -> tuple[Panel, Panel, Vector, Vector, Vector]:
    # Return vectors, residuals, squared values, values, and the relative rounding errors of the values.
    A, rest = p.A, last.rest
    theta, w = np.linalg.eigh(inner(V, last.panel))
    theta, w = theta[::-1], w[:, ::-1]
    V, R = times(V, w), times(last.panel, w)
    subtract_multiples(R, V, theta)
    S = np.sqrt(np.maximum(theta, 0))
    noise, of_shift = bounds.rounding_of(theta, last.eps, last.extra_noise), shift_rounding(A, last.eps)
    of_squares = max(noise, bounds.ROUNDING_OF_SQUARES * float(theta[0]))
    rounded = of_squares / (2 * np.maximum(theta, TINY)) + of_shift / np.maximum(S, TINY)
    # A square below its rounding error determines no digit of the value, which need not be 0.
    most = ROUNDING_SHARE * max(p.tol, bounds.residual_rounding(last.eps))
    lost_by_shift = last.eps > A.costs.gram_eps and of_shift > most * float(S[k - 1])
    lost = lost_by_shift or noise > most * max(float(theta[k - 1]), 0.0)
    if lost and theta[0] > 0 and budget.allows(1):
        S, Wh = _values_of_triangle(A, V, budget)
        V, R, theta = V @ Wh.conj().T, R @ Wh.conj().T, S**2
        rounded = rounded_values(A, S, S, A.costs.gram_eps)
        rounded += _mixing_errors(theta, np.append(theta, rest.theta), norms(R), rest.r, noise)
    elif lost and theta[0] > 0:  # no pass is left to tell small values from 0
        rounded = np.where(theta > rest.zero, rounded, np.nan)
    return V, R, theta, S, rounded + last.coupling / (2 * np.maximum(theta, TINY))


def _certificate(p: Problem, ritz: Ritz, S: Vector, rounded: Vector, proven: Proven) -> Certificate:
    rounded = np.where(np.isnan(rounded), np.inf, np.where(S > 0, rounded, 0.0))
    errors = bounds.value_errors(ritz, S) + rounded
    reported = errors
    # Convergence may use inferred bounds. Report the larger of the inferred bound and min(proven bound, `tol`).
    if not ritz.has_proven_growth and ritz.level > -np.inf:
        facts = replace(proven, count_bounds=(*proven.count_bounds, *bounds.leading_bounds(ritz)))
        theta = ritz.theta[: len(S)]
        growth = np.maximum(facts.limits(len(S)) - theta, 0)
        of_values = bounds.relative_errors(S, theta, growth, 0.0) + rounded
        reported = np.where(S > 0, np.maximum(errors, np.minimum(of_values, p.tol)), errors)
    residuals = np.where(S > 0, ritz.r[: len(S)] / np.where(S > 0, S, 1) / max(float(S[0]), TINY) / np.sqrt(2), 0.0)
    slack = 1.0 if p.tol > 0 else 8.0  # with tol=0, residuals are rounding errors, also of this reading
    # A rounding error as large as its value leaves no digit, and is not what tol=0 means by rounding.
    unconverged = np.flatnonzero(~(bounds.tol_ratios(ritz, p.tol, errors) <= slack) | ~(rounded < 1))
    result = certified(p.A, ritz, S, residuals, reported, unconverged, max(p.tol, p.missed_tol), rounded)
    angles = np.where(rounded < 1, result.vector_errors, 1.0)  # A v may consist of rounding errors
    return replace(result, vector_errors=_with_storage_rounding(p.A, S, angles))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def read_with_leaders(A: Operator, leaders: Ritz, V: Panel, rest: Reading, tol: float, budget: Budget) -> Reading:
    """Compute the leaders, spanned by V, and the components orthogonal to V from the triangular factor of one product.

    Eigenvalues of G differ from those of ``P G P`` by at most ``||R||^2 / (theta - lambda_j)``, where R is the residual
    of the leaders and theta the least value of the leaders.
    """
    count, of_rest = V.shape[1], rest.certificate
    square = float(np.sum(leaders.rounded_squares))
    V = qr(hstack(V, rest.V))[0]  # vectors of values that are 0 are arbitrary
    S, Wh = _values_of_triangle(A, V, budget)
    theta = np.maximum(S**2, TINY)
    gap = np.maximum(leaders.theta[count - 1] - theta[count:], TINY)
    coupling = square / gap
    first = leaders.theta, leaders.rounded_squares, count, float(theta[count])
    moved = 2 * of_rest.value_errors * rest.S**2 + coupling + np.abs(theta[count:] - rest.S**2)
    distances = np.append(bounds.value_bounds(*first), moved)
    nonzero = rank_floor(A, S[0]) < S
    errors = np.where(nonzero, distances / (2 * theta) + rounded_values(A, S, S, A.costs.gram_eps), 0.0)
    angles = np.append(
        bounds.vector_bounds(*first, TURNING * leaders.noise),
        np.minimum(of_rest.vector_errors + np.sqrt(coupling / gap), 1.0),
    )
    residuals = np.append(leaders.r / (np.sqrt(2 * theta[:count]) * S[0]), of_rest.residuals * (rest.S[0] / S[0]))
    # With tol=0 there is no relative criterion: the run of the rest has decided by residuals.
    unconverged = np.flatnonzero(~(errors <= tol)) if tol > 0 else of_rest.unconverged + count
    S = np.where(nonzero, S, 0.0)
    angles = _with_storage_rounding(A, S, angles)
    certificate = Certificate(residuals, errors, unconverged, angles, of_rest.missed_below, of_rest.complete)
    return Reading(V @ Wh.conj().T, S, certificate)


def _mixing_errors(theta_read: Vector, theta: Vector, r: Vector, others: Vector, noise: float) -> Vector:
    # If rounding joins the last values that were read with values that were not, the product may have mixed their
    # vectors: bound the errors of the values in this group by the rounding of squares. `theta` and the residuals, r
    # and `others`, are those of the values that were read and of all others.
    starts = bounds.groups(theta, (np.append(r, others) + noise) ** 2)[0]
    count = len(theta_read)
    first = starts[np.searchsorted(starts, count - 1, side="right") - 1]
    if count == len(theta) or count in starts:
        return np.zeros(count)
    return np.where(np.arange(count) >= first, noise / (2 * np.maximum(theta_read, TINY)), 0.0)


def rounded_values(A: Operator, S: Vector, relative_to: Vector, eps: float) -> Vector:
    # Relative rounding errors of values S that are computed without squares.
    return np.asarray((bounds.residual_rounding(eps) * S[0] + shift_rounding(A)) / np.maximum(relative_to, TINY))


def _with_storage_rounding(A: Operator, S: Vector, sines: Vector) -> Vector:
    # Vectors are rounded to the precision of the data. Left vectors, computed as A v, have the rounding of the shift.
    rounded = float(np.finfo(A.dtype).eps) + shift_rounding(A) / np.maximum(S, TINY)
    return np.where(S > 0, np.minimum(sines + rounded, 1.0), 1.0)


def _values_of_triangle(A: Operator, V: Panel, budget: Budget) -> tuple[Vector, Panel]:
    budget.spend(1, V.shape[1])
    double = A.costs.eps <= A.costs.gram_eps
    parts = (Y for _, Y in A.row_products(V)) if double else [matmat_in_double(A, V)]
    _, S, Wh = np.linalg.svd(triangle_of_stacked(triangle(Y) for Y in parts))
    return S, Wh


def certified(
    A: Operator,
    ritz: Ritz,
    S: Vector,
    residuals: Vector,
    errors: Vector,
    unconverged: Vector,
    missed_tol: float,
    rounded: Vector,
    doubtful: bool = False,
) -> Certificate:
    """Certify the values S, the first of `ritz`.

    Bounds assume that no value was missed. If more may have been missed than is allowed, or if components did not
    converge and the solver is `doubtful` (it has no tolerance), use bounds of the j-th value for each j, which hold
    with missed values, too.
    """
    limit = ritz.limit
    missed = None if limit == np.inf else float(np.sqrt(max(limit, 0.0)))
    complete = limit <= miss_limit(ritz, missed_tol) * (1 + 1e-9)  # both are rounded
    proven = missed is not None and (not complete or (doubtful and len(unconverged) > 0))
    if proven:
        if_missed = bounds.errors_if_missed(ritz, S) + rounded
        errors = np.where((S > 0) & np.isfinite(if_missed), if_missed, errors)
    # The rounding of the shift perturbs the squares, and so rotates the vectors.
    noise = 2 * float(S[0]) * shift_rounding(A) / TURNING
    vectors = bounds.vector_errors(ritz, proven, noise)
    return Certificate(residuals, errors, unconverged, vectors, missed, bool(complete))


def _all_residuals(R: Panel, block: Panel, E: Panel) -> Panel:
    # Coordinates of all residuals: first along the columns of `block`, then along directions of their own.
    along, squares = np.zeros((len(E), R.shape[1]), R.dtype), inner(R, R)
    if block.shape[1]:
        along[: block.shape[1]] = inner(in_dtype(block, R.dtype), R)
    # The part outside of `block` consists of rounding errors of products. The difference of squares has rounding errors
    # of its own, which are added.
    outside, X = np.linalg.eigh(squares - along.conj().T @ along)
    outside = np.maximum(outside, 0) + len(outside) * EPS * float(np.trace(squares).real)
    across = np.sqrt(outside)[:, None] * X.conj().T
    return np.block([[along, E], [across, np.zeros((len(across), E.shape[1]), E.dtype)]])


# ---- certify: compute residuals, error bounds and missed_below of a factorization without a certificate


def certificate_bytes(A: Operator, k: int) -> int:
    # Panels on the long side: U, F.U, A V, and three products of A V. On the short side: vectors, products, the
    # residual, and the basis of the probe.
    long, short = 6 * k, 8 * k + USUAL_BLOCK * CERTIFY_SWEEPS
    m, n = max(A.shape), min(A.shape)
    return 8 * (long * m + min(short * n, 3 * n**2)) + overhead_bytes(A, k + USUAL_BLOCK)


def certificate_passes(A: Operator, k: int, finds_all: bool) -> tuple[int, int, int]:
    # Fewest, typical and most passes: three products, and either the long-side factor of a solver that finds all values
    # or the products of a probe, which a complete basis does not need.
    if finds_all:
        return 4, 4, 4
    sweeps = (0, 0, 0) if k == min(A.shape) else LIKELY_SWEEPS
    fewest, typical, most = (3 + count * tall(A).costs.gram_reads for count in sweeps)
    return fewest, typical, most


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values that are 0
def certify(A: Operator, F: SVDResult, rng: Generator, tol: float) -> SVDResult:
    """Add residuals, error bounds and `missed_below` to the Info of F.

    The bounds are those of the Ritz values of the short-side vectors, orthonormalized in double precision, plus the
    differences of the values of F from these Ritz values. This takes three passes, and about 5 of a random block unless
    F comes from a solver that computes all values.
    """
    if A.shape[0] < A.shape[1]:
        F.info = certify(A.H, F.H, rng, tol).info
        return F
    k, dtype = len(F.S), panel_dtype(A.dtype)
    returned = F.Vh.conj().T.astype(dtype)
    V = orth(returned)
    Y = matmat_in_double(A, V)
    U = np.asarray(F.U)  # U may be a Dask array; collect its blocks
    right = Y @ inner(V, returned) - U * F.S
    left = A.rmatmat(U) - returned * F.S
    _, S, Wh = np.linalg.svd(triangle(Y))
    V, theta = V @ Wh.conj().T, S**2
    fused = A.costs.gram_reads == 1  # then `gram` multiplies in double precision with one read, as `rmatmat` does
    R = (A.gram(V) if fused else A.rmatmat(Y @ Wh.conj().T)).astype(dtype) - V * theta
    basis = Factorization.from_ritz(V, theta, R, rng)
    eps = A.costs.gram_eps if fused else A.costs.eps
    noise = bounds.rounding_of(theta, eps, bounds.residual_rounding(eps) * cancelled(A) * float(S[0]))
    ritz = Ritz(theta, basis.ritz().E, k, noise, zero=rank_floor(A, float(S[0])) ** 2)
    need = k, miss_limit(ritz, max(tol, MISSED_TOL))
    next_value = F.info.missed_below  # set by solvers that compute all values, which need no probe
    sweeps = 0
    if next_value is not None:
        ritz = replace(ritz, proven_limit=next_value**2)
    elif k == len(V):
        ritz = replace(ritz, level=-np.inf)
    else:
        probe = Probe(basis, USUAL_BLOCK, PROBABILITY, noise)
        while True:
            probe.add_product(np.asarray(A.gram(basis.block), dtype))
            sweeps += 1
            if sweeps == CERTIFY_SWEEPS or basis.width == 0 or _enough(ritz, F.S, need, tol, probe):
                break
        probe.finish()
        ritz = replace(ritz, level=probe.level)
    # S was computed without squares, so its rounding error is smaller than that of `theta`.
    rounded = rounded_values(A, S, F.S, eps)
    errors = bounds.value_errors(ritz, F.S) + np.where(F.S > 0, rounded, 0.0)
    errors = np.where((F.S == 0) & (theta > ritz.zero), np.inf, errors)  # the value is reported as 0, but is not 0
    if next_value is not None:  # Weyl: the values are exact for a matrix that differs from A by rounding
        rounding = rank_floor(A, float(S[0]), min(A.costs.gram_eps, A.H.costs.gram_eps))
        errors = np.minimum(errors, np.where(F.S > 0, (rounding + np.abs(F.S - S)) / np.maximum(F.S, TINY), np.inf))
    unconverged = np.flatnonzero(~(errors <= tol))
    residuals = np.hypot(np.linalg.norm(right, axis=0), np.linalg.norm(left, axis=0)) / np.sqrt(2) / (F.S[0] or 1.0)
    is_partial = next_value is None
    certificate = certified(A, ritz, F.S, residuals, errors, unconverged, max(tol, MISSED_TOL), rounded, is_partial)
    unconverged = np.flatnonzero(~(certificate.value_errors <= tol))  # proven errors may be within `tol`
    deviations = np.where(F.S > 0, np.linalg.norm(right, axis=0) / np.where(F.S > 0, F.S, 1), 1.0)
    angles = _angles(ritz, certificate.vector_errors, inner(V, returned), F.S) + deviations
    angles += shift_rounding(A) / np.maximum(F.S, TINY)  # left vectors are computed as A v
    n_passes = F.info.n_passes + 3 + sweeps * A.costs.gram_reads
    certificate = replace(certificate, unconverged=unconverged, vector_errors=np.minimum(angles, 1.0))
    F.info = certificate.add_to(replace(F.info, n_passes=n_passes))
    return F


def _enough(ritz: Ritz, S: Vector, need: CountBound, tol: float, probe: Probe) -> bool:
    # Stop if all errors are within `tol`, or if the largest Ritz value of the probe shows that no level can bring them
    # within `tol`. If values were missed, stop at a level close to that Ritz value.
    if not bounds.proves(ritz, need, probe.level):
        found_missed = not bounds.proves(ritz, need, probe.top)
        return found_missed and probe.level <= probe.top * (1 + MISSED_TOL) ** 2
    proven, best = (
        np.all(bounds.value_errors(replace(ritz, level=level), S) <= tol) for level in (probe.level, probe.top)
    )
    return bool(proven or not best)


def _angles(ritz: Ritz, sines: Vector, C: Panel, S: Vector) -> Vector:
    # A left vector is A v / sigma. The parts of A v along the left Ritz vectors have lengths |C| times singular values.
    starts, _ = bounds.groups(ritz.theta, ritz.rounded_squares)
    C = C / np.linalg.norm(C, axis=0)
    left = bounds.combined_sines(sines, starts, C, np.sqrt(np.maximum(ritz.theta, 0))) / np.where(S > 0, S, 1)
    return np.asarray(np.where(S > 0, np.maximum(bounds.combined_sines(sines, starts, C), left), 1.0))
