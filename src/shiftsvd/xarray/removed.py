"""What of a field goes with what is known of its samples: the means of groups, and the slopes of covariates."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.backends import is_lazy
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import BLOCK
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.xarray.fields import Stacked, at_once, filled, labelled, told_of
from shiftsvd.xarray.samples import Samples

# Covariates of a cell whose squares, beside the others, are a smaller share than this tell nothing.
RANK = 1e-10


@dataclass(frozen=True, eq=False)
class Removed:
    """What is subtracted from each sample: the mean of its group, and slopes times its covariates about their centre.

    Attributes
    ----------
    levels : array of shape (g,), or None
        The groups; None where there is one mean for all.
    means : array of shape (g, n), or (1, n)
        The mean of each group where covariates are at their centre.
    slopes : array of shape (c, n)
    centre : array of shape (c,)
    names : tuple of str
        Of the covariates.
    """

    levels: Any
    means: Panel
    slopes: Panel
    centre: Vector
    names: tuple[str, ...] = ()

    def factors(self, samples: Samples) -> tuple[Panel, Panel]:
        L = np.hstack([samples.one_hot(self.levels), samples.numbers - self.centre])
        return L, np.vstack([self.means, self.slopes])


def mean_alone(mean: Vector) -> Removed:
    return Removed(None, mean[None], np.zeros((0, len(mean))), np.zeros(0))


def design(samples: Samples) -> Panel:
    levels = samples.levels()
    return np.hstack([samples.numbers] if levels is None else [samples.one_hot(levels), samples.numbers])


def from_regression(samples: Samples, mean: Vector, centre: Vector, coefficients: Panel) -> Removed:
    levels, c = samples.levels(), len(samples.names)
    g = 0 if levels is None else len(levels)
    at_groups = np.eye(g) - centre[:g] if g else np.zeros((1, 0))
    return Removed(levels, mean + at_groups @ coefficients[:g], coefficients[g:], centre[g : g + c], samples.names)


def from_observed(Y: Any, samples: Samples, mean: Vector) -> Removed:
    """Least squares on the observed values alone, cell by cell, of anomalies about `mean`; a read of a Dask array.

    A group without a value in some cell has the mean of that cell; what the values of a cell do not tell is 0.
    """
    levels = samples.levels()
    L, centre = samples.one_hot(levels), samples.numbers.mean(axis=0)
    C, n = samples.numbers - centre, len(mean)
    there = ~np.isnan(Y)
    counted = np.hstack([L, *(L * column[:, None] for column in C.T), _products(C)])
    found = at_once(
        M=(("p", "cell"), product(counted.T, there)),
        x=(("q", "cell"), product(np.hstack([L, C]).T, np.where(there, Y, 0))),
    )
    g, c = L.shape[1], C.shape[1]
    counts = np.maximum(found["M"][:g], 1)
    within = found["x"][:g] / counts
    # The covariates about their means within groups, over what is observed of each cell: c normal equations.
    P = found["M"][g : g + g * c].reshape(c, g, n)
    squares = found["M"][g + g * c :].reshape(c, c, n) - np.einsum("agn,bgn->abn", P, P / counts)
    inverse = np.linalg.pinv(squares.transpose(2, 0, 1), rcond=RANK, hermitian=True)
    slopes = np.einsum("nab,bn->an", inverse, found["x"][g:] - np.einsum("agn,gn->an", P, within))
    means = within - np.einsum("agn,an->gn", P, slopes) / counts
    return Removed(levels, mean + np.where(found["M"][:g] > 0, means, 0), slopes, centre, samples.names)


def as_variables(removed: Removed, da: Any, field: Stacked, known: Samples) -> dict[str, Any]:
    from xarray import DataArray

    parts, attrs = dict[str, Any](), told_of(da)
    if removed.levels is not None:
        group = DataArray(removed.levels, dims="group", name="group")
        means = filled(removed.means, field.cells)
        parts["group_means"] = labelled(means, da, field.space, group, attrs=attrs)
        parts["groups"] = labelled(np.asarray(known.labels), da, field.over)
    if removed.names:
        names = DataArray(list(removed.names), dims="covariate", name="covariate")
        slopes = filled(removed.slopes, field.cells)
        per = {"long_name": "change by 1 of the covariate, by a day of times"} | told_of(da, "units")
        parts["slopes"] = labelled(slopes, da, field.space, names, attrs=per)
        parts["covariate_means"] = DataArray(removed.centre, dims="covariate")
        parts["covariates"] = labelled(known.numbers.T, da, field.over, names)
    return parts


def _products(C: Panel) -> Panel:
    return (C[:, :, None] * C[:, None, :]).reshape(len(C), -1)


def product(D: Panel, X: Any) -> Any:
    if is_lazy(X):
        import dask.array as da

        return da.from_array(D, chunks=(-1, X.chunks[0])) @ X.astype(np.float64)
    out = np.empty((len(D), X.shape[1]))
    for lo, hi in cut(X.shape[1], max(1, BLOCK // len(X))):
        out[:, lo:hi] = D @ X[:, lo:hi].astype(np.float64)
    return out


def without(X: Any, factors: tuple[Panel, Panel], times: Vector | None = None, dtype: Any = None) -> Any:
    (L, R), kind = factors, np.result_type(X.dtype, np.float32) if dtype is None else dtype
    if is_lazy(X):
        import dask.array as da

        below = da.from_array(L, chunks=(X.chunks[0], -1)) @ da.from_array(R, chunks=(-1, X.chunks[1]))
        off = X - below
        return (off if times is None else off * da.from_array(times, chunks=X.chunks[1])).astype(kind)
    out = np.empty(X.shape, kind)
    for lo, hi in cut(len(X), max(1, BLOCK // X.shape[1])):
        off = X[lo:hi] - L[lo:hi] @ R
        out[lo:hi] = off if times is None else off * times
    return out
