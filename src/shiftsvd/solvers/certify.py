"""`certify`: compute residuals, error bounds and `missed_below` of a factorization without a certificate."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import cancelled, matmat_in_double
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TINY, CountBound, Ritz
from shiftsvd.numerics.orth import inner, orth, triangle
from shiftsvd.operators import Operator, Panel, Vector, panel_dtype
from shiftsvd.result import SVDResult
from shiftsvd.solvers.constants import CERTIFY_SWEEPS, MISSED_TOL, PROBABILITY, USUAL_BLOCK
from shiftsvd.solvers.cost import overhead_bytes
from shiftsvd.solvers.factors import rank_floor, shift_rounding
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Probe, miss_limit
from shiftsvd.solvers.reading import certified, rounded_values


def certificate_bytes(A: Operator, k: int) -> int:
    # Panels on the long side: U, F.U, A V, and three products of A V. On the short side: vectors, products, the
    # residual, and the basis of the probe.
    long, short = 6 * k, 8 * k + USUAL_BLOCK * CERTIFY_SWEEPS
    m, n = max(A.shape), min(A.shape)
    return 8 * (long * m + min(short * n, 3 * n**2)) + overhead_bytes(A, k + USUAL_BLOCK)


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
        ritz = replace(ritz, known=next_value**2)
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
    """Bound the sines of the angles of vectors with coordinates C in Ritz vectors, whose own bounds are `sines`."""
    # A left vector is A v / sigma. The parts of A v along the left Ritz vectors have lengths |C| times singular values.
    starts, _ = bounds.groups(ritz.theta, ritz.rounded_squares)
    C = C / np.linalg.norm(C, axis=0)
    left = bounds.combined_sines(sines, starts, C, np.sqrt(np.maximum(ritz.theta, 0))) / np.where(S > 0, S, 1)
    return np.asarray(np.where(S > 0, np.maximum(bounds.combined_sines(sines, starts, C), left), 1.0))
