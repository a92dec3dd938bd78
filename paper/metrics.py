"""How a reconstruction is judged: mean squared error, errors of single columns, win rate, paired t-tests."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import ttest_rel

import shiftsvd as ss

Vector = npt.NDArray[np.float64]
Panel = npt.NDArray[np.float64]


def column_errors(A: ss.Operator, Vh: Panel) -> Vector:
    squares = A.row_squares()
    if squares is None:
        raise ValueError(f"the squares of the rows of {A!r} are not to be had; give an array or a sparse matrix")
    # ||x||^2 - ||V^T x||^2 loses 16 digits less the ratio of the two, and the errors here are above 1 % of ||x||^2.
    projections = A.matmat(Vh.T)
    return np.asarray(np.maximum(squares - np.einsum("ij,ij->i", projections, projections), 0))


def mse(A: ss.Operator, Vh: Panel) -> float:
    return float(column_errors(A, Vh).mean())


def exact_sample(A: ss.Operator, k: int, q: int, rng: np.random.Generator) -> float:
    # Omega is on the short side here: projecting on V would count half a power iteration that was not asked for.
    F = ss.RandomizedSVD(n_oversamples=k, n_iter=q)(A, k, rng)
    return (squared_norm(A) - float(np.sum(F.S**2))) / A.shape[0]


def squared_norm(A: ss.Operator) -> float:
    norm = A.frobenius_norm()
    if norm is None:
        raise ValueError(f"the norm of {A!r} is not to be had; give an array or a sparse matrix")
    return norm**2


def win_rate(ours: Vector, theirs: Vector) -> float:
    return float(np.mean(ours < theirs))


def paired_p(ours: Sequence[float] | Vector, theirs: Sequence[float] | Vector) -> float:
    differences = np.subtract(ours, theirs)
    if not differences.any():
        return 1.0
    return float(ttest_rel(ours, theirs).pvalue)
