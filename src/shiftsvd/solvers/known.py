"""Components of a matrix that is known to a norm only: what its error adds to the bounds of a fit."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator
from shiftsvd.result import SVDResult
from shiftsvd.runs.warned import warn
from shiftsvd.solvers.base import Solver

# The share of the tolerance that is left to what the matrix is off by.
SHARE = 0.1
# Tolerances below this ask for rounding, which what zeros become has, too.
ROUNDING = 1e-11


def known_to(
    error: float, solver: Solver, A: Operator, k: int | float, rng: int | Generator | None, tol: float
) -> SVDResult:
    """Components of A, which is E off where ``||E|| <= error``, each to `tol` with what that adds."""
    own: Any = solver
    asked = getattr(solver, "tol", tol)
    stricter = replace(own, tol=(1 - SHARE) * asked) if hasattr(solver, "tol") else solver
    F = stricter(A, k, rng, tol=(1 - SHARE) * tol)
    F.info = replace(F.info, solver=repr(solver))
    # Solvers of all digits have no tolerance of their own.
    return off_by(F, error, tol if F.info.value_errors is None else asked)


def off_by(F: SVDResult, error: float, tol: float) -> SVDResult:
    """Components of A + E, as those of A where ``||E|| <= error``.

    Values move by at most the norm of E (Weyl); vectors by at most twice its share of the gap (Wedin 1972). What is not
    certain to `tol` any more is said.
    """
    info = F.info
    # `missed_below` is of A + E, too.
    missed = None if info.missed_below is None else info.missed_below + error
    # Where all digits of A were computed, nothing else is told.
    own = np.zeros(len(F.S)) if info.value_errors is None else info.value_errors
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = own + np.where(F.S > 0, error / F.S, 0)
    vectors = None if info.vector_errors is None else _vectors(info.vector_errors, F.S, missed, error)
    late = errors > max(tol, ROUNDING)
    if late.any() and info.converged is not False:
        warn(
            f"{int(late.sum())} components are not certain to tol={tol:g}, since what entries become is known to "
            f"{error:.1e} only, in the norm of the matrix; a lesser tol makes it more accurate"
        )
    converged = False if late.any() else info.converged
    F.info = replace(info, value_errors=errors, vector_errors=vectors, missed_below=missed, converged=converged)
    return F


def _vectors(sines: Vector, S: Vector, missed: float | None, error: float) -> Vector:
    """Bounds for single vectors where their gap allows one; 1 where it does not."""
    below = np.append(S[1:], S[-1] if missed is None else missed)
    above = np.append(np.inf, S[:-1])
    gap = np.minimum(above - S, S - below) - 2 * error
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(gap > 0, 2 * error / gap, 1)
    # Of clusters that a residual does not tell apart, the space is bounded, and their gap to others is not known here.
    return np.asarray(np.minimum(sines + more, 1))
