"""The certificate of a factorization that came without one: residuals computed, and a probe of its own."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from shiftsvd.accuracy import residuals
from shiftsvd.operators import Operator, panel_dtype
from shiftsvd.orth import orth, triangle
from shiftsvd.result import SVDResult
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import MISSED_TOL, PROBABILITY, probe
from shiftsvd.solvers.ritz import Ritz, allowed, certified, rounding

BLOCK = 16
# Sweeps after which a probe gives up: for a level of 1.05 in a flat spectrum a million wide, 9 are enough.
MOST = 24


def certify(A: Operator, F: SVDResult, rng: Generator, tol: float) -> SVDResult:
    """F with residuals, bounds and what it can have missed in its account.

    The vectors on the short side are made orthonormal in double precision, and their Ritz values and residuals are
    what the bounds are about; by how much the values of F differ from those is added. Four passes, and some 5 of a
    random block.
    """
    if A.shape[0] < A.shape[1]:
        certified_adjoint = certify(A.H, F.H, rng, tol)
        F.info = certified_adjoint.info
        return F
    k, dtype = len(F.S), panel_dtype(A.dtype)
    V = orth(F.Vh.conj().T.astype(dtype))
    Y = A.matmat(V)
    _, S, Wh = np.linalg.svd(triangle(Y))
    V, theta = V @ Wh.conj().T, S**2
    R = A.rmatmat(Y @ Wh.conj().T).astype(dtype) - V * theta
    basis = Basis.around(V, theta, R, rng)
    ritz = Ritz(theta, basis.values()[2], A.eps)
    # Squares know nothing of what is below their rounding; the values come from no square.
    rounded = rounding(A.eps) * S[0] / np.maximum(F.S, np.finfo(np.float64).tiny)
    need = allowed(ritz, k, max(tol, MISSED_TOL))
    sweeps = 0

    def done(level: float, top: float) -> bool:
        nonlocal sweeps
        sweeps += 1
        return sweeps == MOST or ritz.at_most(k, need, level) or not ritz.at_most(k, need, top)

    level = -np.inf
    if k < len(V):
        level = probe(basis, lambda X: np.asarray(A.gram(X), dtype), BLOCK, PROBABILITY, ritz.noise(), done)
    ritz = ritz._replace(level=level)
    errors = ritz.errors(k, F.S) + np.where(F.S > 0, rounded, 0.0)
    late = np.flatnonzero(~(errors <= tol))
    known = certified(ritz, F.S, residuals(A, F), errors, late, max(tol, MISSED_TOL))
    F.info = replace(
        F.info,
        residuals=known.residuals,
        value_errors=errors,
        vector_errors=known.vector_errors,
        missed_below=known.missed_below,
        converged=known.converged,
        n_passes=F.info.n_passes + 4 + sweeps * A.gram_reads,
    )
    return F
