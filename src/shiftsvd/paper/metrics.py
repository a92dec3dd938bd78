"""How a reconstruction is judged: mean squared error, errors of single columns, win rate, paired t-tests."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import ttest_rel

import shiftsvd as ss

Vector = npt.NDArray[np.float64]
Panel = npt.NDArray[np.float64]


def column_errors(A: ss.Operator, Vh: Panel) -> Vector:
    """``||x_j - V V^T x_j||^2`` of every row x_j of A: the paper's columns, with its U = V orthonormal."""
    squares = A.row_squares()
    if squares is None:
        raise ValueError(f"the squares of the rows of {A!r} are not to be had; give an array or a sparse matrix")
    # ||x||^2 - ||V^T x||^2 loses 16 digits less the ratio of the two, and the errors here are above 1 % of ||x||^2.
    projections = A.matmat(Vh.T)
    return np.asarray(np.maximum(squares - np.einsum("ij,ij->i", projections, projections), 0))


def mse(A: ss.Operator, Vh: Panel) -> float:
    """The mean of `column_errors`."""
    return float(column_errors(A, Vh).mean())


def exact_sample(A: ss.Operator, k: int, q: int, rng: np.random.Generator) -> float:
    """``||A - U S V^T||_F^2 / n`` of the randomized SVD that samples the shifted matrix itself."""
    # Omega is on the short side here: projecting on V would count half a power iteration that was not asked for.
    F = ss.RandomizedSVD(n_oversamples=k, n_iter=q)(A, k, rng)
    return (squared_norm(A) - float(np.sum(F.S**2))) / A.shape[0]


def squared_norm(A: ss.Operator) -> float:
    """``||A||_F^2``; refused where the operator cannot tell it."""
    norm = A.frobenius_norm()
    if norm is None:
        raise ValueError(f"the norm of {A!r} is not to be had; give an array or a sparse matrix")
    return norm**2


def win_rate(ours: Vector, theirs: Vector) -> float:
    """The share of columns that `ours` reconstructs better."""
    return float(np.mean(ours < theirs))


def paired_p(ours: Sequence[float] | Vector, theirs: Sequence[float] | Vector) -> float:
    """The p-value of a two-sided paired t-test; 1 where there is no difference at all."""
    differences = np.subtract(ours, theirs)
    if not differences.any():
        return 1.0
    return float(ttest_rel(ours, theirs).pvalue)
