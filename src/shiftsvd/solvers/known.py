"""Components of a matrix that is known to a norm only: what its error adds to the bounds of a fit."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import shift_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import length
from shiftsvd.operators import Operator
from shiftsvd.result import SVDResult
from shiftsvd.runs.messages import warn
from shiftsvd.solvers.base import Solver

# The share of the tolerance that is left to what the matrix is off by.
SHARE = 0.1
# Tolerances below this ask for rounding, which what zeros become has, too.
ROUNDING = 1e-11


class Off(NamedTuple):
    """What a matrix may be off by.

    Attributes
    ----------
    error : float
        A bound of the norm of what was approximated, which a lesser tolerance makes less.
    rounding : float
        A bound of the norm of what rounding adds where entries are differences of larger numbers.
    units : float
        What each entry is rounded by, relative to itself.
    """

    error: float
    rounding: float
    units: float


def known_to(
    off: Off, solver: Solver, A: Operator, k: int | float, rng: int | Generator | None, tol: float
) -> SVDResult:
    own: Any = solver
    asked, share = getattr(solver, "tol", tol), 1 - SHARE if off.error else 1.0
    stricter = replace(own, tol=share * asked) if hasattr(solver, "tol") else solver
    F = stricter(A, k, rng, tol=share * tol)
    F.info = replace(F.info, solver=repr(solver))
    shift = shift_of(A)
    size = np.hypot(length(F.S), F.info.frobenius_error or 0.0) + (shift.frobenius_norm() if shift else 0.0)
    # Solvers of all digits have no tolerance of their own.
    return off_by(F, off.error, tol if F.info.value_errors is None else asked, off.rounding + off.units * float(size))


def off_by(F: SVDResult, error: float, tol: float, rounding: float = 0.0) -> SVDResult:
    """Components of A + E, as those of A where ``||E|| <= error + rounding``.

    Values move by at most the norm of E (Weyl); vectors by at most twice its share of the gap (Wedin 1972). What is not
    certain to `tol` any more by `error` is said; what rounds is as it is.
    """
    info, norm = F.info, error + rounding
    # `missed_below` is of A + E, too.
    missed = None if info.missed_below is None else info.missed_below + norm
    # Where all digits of A were computed, nothing else is told.
    own = np.zeros(len(F.S)) if info.value_errors is None else info.value_errors
    with np.errstate(divide="ignore", invalid="ignore"):
        least, errors = (own + np.where(F.S > 0, each / F.S, 0) for each in (error, norm))
    vectors = None if info.vector_errors is None else _vectors(info.vector_errors, F.S, missed, norm)
    late = least > max(tol, ROUNDING) if error else np.zeros(len(F.S), bool)
    if late.any() and info.converged is not False:
        warn(
            f"{int(late.sum())} components are not certain to tol={tol:g}, since what entries become is known to "
            f"{error:.1e} only, in the norm of the matrix; a lesser tol makes it more accurate"
        )
    converged = False if late.any() else info.converged
    F.info = replace(info, value_errors=errors, vector_errors=vectors, missed_below=missed, converged=converged)
    return F


def _vectors(sines: Vector, S: Vector, missed: float | None, error: float) -> Vector:
    below = np.append(S[1:], S[-1] if missed is None else missed)
    above = np.append(np.inf, S[:-1])
    gap = np.minimum(above - S, S - below) - 2 * error
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(gap > 0, 2 * error / gap, 1)
    # Of clusters that a residual does not tell apart, the space is bounded, and their gap to others is not known here.
    return np.asarray(np.minimum(sines + more, 1))
