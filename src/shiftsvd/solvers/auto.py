"""auto_solver: which solver is the right one for a matrix, and why."""

from typing import Any

from shiftsvd.backends import as_operator
from shiftsvd.operators import Operator
from shiftsvd.solvers.base import TOL, Solver
from shiftsvd.solvers.exact import Exact
from shiftsvd.solvers.randomized import RandomizedSVD
from shiftsvd.solvers.shifted_randomized import ShiftedRandomizedSVD

BY_NAME: dict[str, type[Solver]] = {
    "shifted-randomized": ShiftedRandomizedSVD,
    "randomized": RandomizedSVD,
    "exact": Exact,
}

# Operations of one second or so: below this nobody waits, so the answer may as well be exact.
AT_ONCE = 2e10
# A sparse product makes about a tenth of the operations per second that a factorization of a dense block makes.
SPARSE_SLOWNESS = 10


def auto_solver(A: Any, k: int, tol: float = TOL) -> Solver:
    """The solver that ``solver="auto"`` uses; its ``reason`` says why.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
    k : int
    tol : float
        Accepted; neither solver stops by it.

    Returns
    -------
    Solver
        `Exact` where the short side is at most 1000 and its ``2 m n^2`` operations take about a second, or no
        longer than randomized iterations would; else ``RandomizedSVD(n_iter=4)``.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.auto_solver(np.ones((100, 20)), 5)
    Exact()
    """
    A = as_operator(A)
    exact, randomized = _operations(A, k)
    short = min(A.shape)
    counts = f"{exact:.1e} operations exactly, about {randomized:.1e} by random samples"
    if short <= 1000 and exact <= max(AT_ONCE, randomized):
        return Exact(reason=f"the short side is {short}: {counts}")
    if k + 10 >= 0.8 * short and exact <= 10 * randomized:
        return Exact(reason=f"{k} of {short} components are wanted: {counts}")
    return RandomizedSVD(n_iter=4, reason=f"the short side is {short}: {counts}")


def _operations(A: Operator, k: int) -> tuple[float, float]:
    """Operations of an exact and of a randomized solution with 4 iterations."""
    long, short = max(A.shape), min(A.shape)
    ell = min(k + 10, short)
    sparse = SPARSE_SLOWNESS if A.stored < A.shape[0] * A.shape[1] else 1
    products = 10 * 2.0 * A.stored * ell * sparse
    return 2.0 * long * short**2, products + 5 * 4.0 * long * ell**2


def solver_named(solver: "str | Solver", A: Operator, k: int, tol: float) -> Solver:
    """A solver from its name; a solver stays what it is."""
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return auto_solver(A, k, tol)
    if solver not in BY_NAME:
        names = ", ".join(["auto", *BY_NAME])
        raise ValueError(f"solver must be one of {names}, or a solver object, got {solver!r}")
    return BY_NAME[solver]()
