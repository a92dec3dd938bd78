"""The solvers: frozen values that map a matrix and a rank to a factorization."""

from shiftsvd.solvers.auto import auto_solver, solver_named
from shiftsvd.solvers.base import Solver
from shiftsvd.solvers.exact import Exact
from shiftsvd.solvers.randomized import RandomizedSVD
from shiftsvd.solvers.shifted_randomized import ShiftedRandomizedSVD

__all__ = ["Exact", "RandomizedSVD", "ShiftedRandomizedSVD", "Solver", "auto_solver", "solver_named"]
