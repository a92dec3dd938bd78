"""The solvers: frozen values that map a matrix and a rank to a factorization."""

from shiftsvd.solvers.auto import Estimate, auto_solver, estimate
from shiftsvd.solvers.base import Solver
from shiftsvd.solvers.direct import Exact, Gram
from shiftsvd.solvers.lanczos import BlockLanczos
from shiftsvd.solvers.randomized import RandomizedSVD, ShiftedRandomizedSVD

__all__ = [
    "BlockLanczos",
    "Estimate",
    "Exact",
    "Gram",
    "RandomizedSVD",
    "ShiftedRandomizedSVD",
    "Solver",
    "auto_solver",
    "estimate",
]
