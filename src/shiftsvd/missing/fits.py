"""Replace missing entries in a fit and in new rows."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.missing.completion import complete_matrix
from shiftsvd.missing.gaps import Gaps, Observed, gaps_of
from shiftsvd.names import MAX_ITER, BiasName, MissingName
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel, Scaled, repeated
from shiftsvd.result import Info
from shiftsvd.runs.memory import Resources

MISSING = get_args(MissingName)
# Smallest and largest ridge: with these, a row with fewer observed entries than components has a unique solution.
LEAST, MOST = 1e-9, 1e9


def with_missing(X: Any, missing: str, unobserved: bool, resources: Resources) -> Observed:
    if not isinstance(missing, str) or missing not in MISSING:
        raise refuse("missing", 'be "error", "mean" or "em"', missing)
    if missing != "error":
        return gaps_of(X, unobserved, **vars(resources))
    if unobserved:
        raise Refused(Setting("unobserved", True), " requires ", Setting("missing", "mean"), ' or "em", got "error".')
    return as_operator(X, **vars(resources))


def check_unused(missing: str, penalty: float | str, max_iter: int) -> None:
    unused = [] if isinstance(penalty, str) and penalty == "auto" else [Setting("penalty", penalty)]
    unused += [] if max_iter == MAX_ITER else [Setting("max_iter", max_iter)]
    if missing != "em" and unused:
        got = [part for setting in unused for part in (", ", setting)][1:]
        rule = Setting("penalty"), " and ", Setting("max_iter"), " require ", Setting("missing", "em")
        raise Refused(*rule, ", got ", *got, " with ", Setting("missing", missing), ".")


def mean_rows(gaps: Gaps, mean: Vector) -> Operator:
    return gaps.filled(repeated(mean, gaps.shape[0]))


def regressed_rows(
    gaps: Gaps, mean: Vector, scale: Vector | None, components: Panel, variances: Vector, noise: float
) -> Operator:
    # Replace missing entries by V y, where y = (V^H V + diag(ridge))^-1 V^H x, V has the rows of the observed entries,
    # and x are these entries, centred and scaled. The ridge of probabilistic PCA, noise / (variance - noise), shrinks
    # components with a smaller variance more. Rows without gaps keep their scores V^H x.
    V = components.T.astype(np.float64)
    ridge = np.clip(noise / np.maximum(variances - noise, noise / MOST + np.finfo(float).tiny), LEAST, MOST)
    ones = np.ones(gaps.shape[0])
    off = mean_rows(gaps, mean) - LowRank(ones, mean)
    Y = (off if scale is None else Scaled(off, cols=1 / scale)).matmat(V)
    for lo, hi in gaps.row_blocks(V.shape[1] ** 2):
        # One column of the small matrices at a time, because all products of two components could need much memory.
        G = np.stack([np.eye(V.shape[1])[a] - gaps.absent(V * V[:, [a]], (lo, hi)) for a in range(V.shape[1])], axis=1)
        Y[lo:hi] = np.linalg.solve(G + np.diag(ridge), Y[lo:hi, :, None])[:, :, 0]
    return gaps.filled(LowRank(Y, V if scale is None else scale[:, None] * V).merge(LowRank(ones, mean)))


@dataclass(frozen=True)
class MissingSummary:
    """Facts about missing entries in a fit, for `Info`."""

    n_missing: int | None = None
    heldout_r2: float | None = None
    completed: bool | None = None
    n_iter: int = 1

    def added_to(self, info: Info) -> Info:
        if self.n_missing is None:
            return info
        converged = False if self.completed is False else info.converged
        n_missing, r2 = self.n_missing, self.heldout_r2
        return replace(info, converged=converged, n_missing=n_missing, heldout_r2=r2, completed=self.completed)


def completed(
    gaps: Observed,
    missing: str,
    shift: Any,
    k: Any,
    weights: Vector | None,
    rng: np.random.Generator,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
) -> tuple[Operator, Moments | None, MissingSummary]:
    # Return the matrix that a fit decomposes, and the moments of its columns. With "mean", missing entries equal the
    # shift, and the moments are those of the observed entries. With "em", missing entries come from a completion with
    # the biases of the shift, and the moments are those of the completed matrix.
    if isinstance(gaps, Operator):
        return gaps, None, MissingSummary()
    name = shift if isinstance(shift, str) or shift is None else type(shift).__name__
    setting, centred = Setting("missing", missing), Setting("shift", "mean")
    if missing == "mean":
        if name != "mean":
            raise Refused(setting, " requires ", centred, f", because missing entries equal the shift, got {name!r}")
        moments, (m, n) = gaps.moments(weights), gaps.shape
        n_missing = m * n - round(float(np.sum(moments.count))) if weights is None else gaps.n_missing()
        return mean_rows(gaps, moments.mean), moments, MissingSummary(n_missing)
    biases: dict[Any, BiasName | None] = {None: None, "mean": "columns", "rows": "rows", "both": "both"}
    if name not in biases:
        raise Refused(setting, " requires ", centred, f', "rows", "both" or None, got {name!r}')
    if weights is not None:
        remedy = ". Remove ", Setting("sample_weight"), ", or use ", Setting("missing", "mean"), "."
        raise Refused(setting, " does not support ", Setting("sample_weight"), *remedy)
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise Refused(setting, f" requires an integer number of components, got {k!r}")
    C = complete_matrix(gaps, max(int(k), 1), biases=biases[name], penalty=penalty, max_iter=max_iter, rng=rng)
    A, summary = C.A, MissingSummary(gaps.n_missing(), C.heldout_r2, C.converged, C.n_iter)
    mean = A.moments().mean
    M2 = (A - repeated(mean, A.shape[0])).column_squares()
    return A, Moments(float(A.shape[0]), mean, M2), summary
