"""Missing entries in a fit, and in new rows."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.missing.completion import complete_matrix
from shiftsvd.missing.gaps import Gaps, Observed, gaps_of
from shiftsvd.names import MAX_ITER, BiasName, MissingName
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel, Scaled, repeated
from shiftsvd.result import Info
from shiftsvd.runs.memory import Resources

# Least and largest ridge: a row with fewer observed entries than components still has one solution.
LEAST, MOST = 1e-9, 1e9


def mean_rows(gaps: Gaps, mean: Vector) -> Operator:
    return gaps.filled(repeated(mean, gaps.shape[0]))


def regressed_rows(
    gaps: Gaps, mean: Vector, scale: Vector | None, components: Panel, variances: Vector, noise: float
) -> Operator:
    """Rows whose missing entries are those that the components give them, from a regression on the observed ones.

    With V the components at the observed entries of a row, x those entries about the mean and in units of the scale:
    ``y = (V^H V + diag(ridge))^-1 V^H x``, ``ridge = noise / (variance - noise)``, which is how far probabilistic
    PCA trusts each component. Rows without gaps keep their scores ``V^H x``.
    """
    V = components.T.astype(np.float64)
    ridge = np.clip(noise / np.maximum(variances - noise, noise / MOST + np.finfo(float).tiny), LEAST, MOST)
    ones = np.ones(gaps.shape[0])
    off = mean_rows(gaps, mean) - LowRank(ones, mean)
    Y = (off if scale is None else Scaled(off, cols=1 / scale)).matmat(V)
    for lo, hi in gaps.row_blocks(V.shape[1] ** 2):
        # Column by column of the small matrices: all products of two components at once could be large.
        G = np.stack([np.eye(V.shape[1])[a] - gaps.absent(V * V[:, [a]], (lo, hi)) for a in range(V.shape[1])], axis=1)
        Y[lo:hi] = np.linalg.solve(G + np.diag(ridge), Y[lo:hi, :, None])[:, :, 0]
    return gaps.filled(LowRank(Y, V if scale is None else scale[:, None] * V).merge(LowRank(ones, mean)))


MISSING = get_args(MissingName)


@dataclass(frozen=True)
class Account:
    """What is known of the missing entries of a fit, and of the completion that stands for them."""

    n_missing: int | None = None
    heldout_r2: float | None = None
    completed: bool | None = None
    n_iter: int = 1

    def told(self, info: Info) -> Info:
        converged = False if self.completed is False else info.converged
        n_missing, r2 = self.n_missing, self.heldout_r2
        return replace(info, converged=converged, n_missing=n_missing, heldout_r2=r2, completed=self.completed)


def with_missing(X: Any, missing: str, unobserved: bool, resources: Resources) -> Observed:
    if not isinstance(missing, str) or missing not in MISSING:
        raise ValueError(f'missing must be "error", "mean" or "em", got {missing!r}')
    if missing != "error":
        return gaps_of(X, unobserved, **vars(resources))
    if unobserved:
        raise ValueError('unobserved=True needs missing="mean" or "em", got "error"')
    return as_operator(X, **vars(resources))


def completed(
    gaps: Observed,
    missing: str,
    shift: Any,
    k: Any,
    weights: Vector | None,
    rng: np.random.Generator,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
) -> tuple[Operator, Moments | None, Account]:
    """What a fit reads in place of a matrix with missing entries, the moments of its columns, and what is told of it.

    With "mean" they equal the shift, and the moments are those of the observed entries; with "em" they are those of
    a fitted model that has the same biases as the shift. An operator has no missing entries, and its moments are taken
    by whoever wants them.
    """
    if isinstance(gaps, Operator):
        return gaps, None, Account()
    name = shift if isinstance(shift, str) or shift is None else type(shift).__name__
    if missing == "mean":
        if name != "mean":
            raise ValueError(f'missing="mean" is for shift="mean": missing entries equal the shift; got {name!r}')
        moments, (m, n) = gaps.moments(weights), gaps.shape
        n_missing = m * n - round(float(np.sum(moments.count))) if weights is None else gaps.n_missing()
        return gaps.filled(repeated(moments.mean, m)), moments, Account(n_missing)
    biases: dict[Any, BiasName | None] = {None: None, "mean": "columns", "rows": "rows", "both": "both"}
    if name not in biases:
        raise ValueError(f'missing="em" is for shift="mean", "rows", "both" or None, got {name!r}')
    if weights is not None:
        raise ValueError('missing="em" takes no sample_weight; use missing="mean"')
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise ValueError(f'missing="em" needs the number of components as an integer, got {k!r}')
    C = complete_matrix(gaps, max(int(k), 1), biases=biases[name], penalty=penalty, max_iter=max_iter, rng=rng)
    A, account = C.A, Account(gaps.n_missing(), C.heldout_r2, C.converged, C.n_iter)
    mean = A.moments().mean
    M2 = (A - repeated(mean, A.shape[0])).column_squares()
    return A, Moments(float(A.shape[0]), mean, M2), account


def check_unused(missing: str, penalty: Any, max_iter: Any) -> None:
    given = {"penalty": penalty} if not isinstance(penalty, str) or penalty != "auto" else {}
    given |= {} if max_iter == MAX_ITER else {"max_iter": max_iter}
    if missing != "em" and given:
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f'penalty and max_iter are for missing="em", got {settings} with missing={missing!r}')
