"""Samples of fields: groups such as months, covariates such as trends, and matching samples of several fields."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.backends import is_lazy
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import BLOCK
from shiftsvd.io.base import optional
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import limit_of
from shiftsvd.xarray.fields import Dims, Mask, Stacked, as_field, at_once, at_rows, filled, labelled, tell_used, told_of

_EPOCH: Final = "1970-01-01"
_SHOWN: Final = 5  # labels in an error


@dataclass(frozen=True, eq=False)
class Samples:
    """What is known of each sample of a field, in the order of its matrix.

    Attributes
    ----------
    labels : array of shape (m,), or None
        The group of each sample.
    numbers : array of shape (m, c)
        The covariates of each sample, none or some.
    names : tuple of str
        What the covariates are called.
    """

    labels: npt.NDArray[Any] | None
    numbers: Panel
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, da: Any, over: Dims, groups: Any, covariates: Any) -> "Samples":
        labels = None if groups is None else aligned(da, over, groups, "groups")
        m = int(np.prod([da.sizes[dim] for dim in over]))
        given = _listed(covariates)
        numbers = [as_numbers(aligned(da, over, value, "covariates"), name) for name, value in given]
        return cls(labels, np.column_stack(numbers) if numbers else np.zeros((m, 0)), tuple(name for name, _ in given))

    @property
    def known(self) -> bool:
        return self.labels is not None or bool(self.names)

    def at(self, rows: Mask) -> "Samples":
        labels = None if self.labels is None else self.labels[rows]
        if labels is not None and (missing := int(np.count_nonzero(_absent(labels)))):
            raise ValueError(f"groups must not hold missing labels, got {missing}; give them a label of their own")
        numbers = self.numbers[rows]
        for name, column in zip(self.names, numbers.T, strict=True):
            if bad := int(np.count_nonzero(~np.isfinite(column))):
                raise ValueError(
                    f"covariates must be finite, {name!r} is not for {bad} samples; fill or leave them out"
                )
        return Samples(labels, numbers, self.names)

    def levels(self) -> npt.NDArray[Any] | None:
        if self.labels is None:
            return None
        if self.labels.dtype == object:  # of kinds that cannot be compared, perhaps
            known = sorted(set(self.labels.tolist()), key=lambda label: (type(label).__name__, label))
            levels = np.empty(len(known), object)
            levels[:] = known
        else:
            levels = np.unique(self.labels)
        if len(levels) == len(self.labels) > 1:
            raise ValueError(f"groups has another label for each of {len(levels)} samples: nothing would be left")
        return levels

    def one_hot(self, levels: Any) -> Panel:
        if levels is None:
            return np.ones((len(self.numbers), 1))
        assert self.labels is not None
        levels = np.asarray(levels)
        needed, limit = 8 * len(self.labels) * len(levels), limit_of(None)
        if limit is not None and needed > limit:
            raise ValueError(
                f"{len(levels)} groups of {len(self.labels)} samples need about {needed / 1e9:.3g} GB, more than the "
                f"limit of {limit / 1e9:.3g} GB; put rare groups together"
            )
        place = {label: j for j, label in enumerate(levels.tolist())}
        places = [place.get(label, -1) for label in self.labels.tolist()]
        if unseen := sorted({str(self.labels[i]) for i, j in enumerate(places) if j < 0}):
            few = ", ".join(unseen[:_SHOWN])
            raise ValueError(f"groups holds labels that no sample of the fit has, whose mean is unknown: {few}")
        L = np.zeros((len(places), len(levels)))
        L[np.arange(len(places)), places] = 1
        return L


def aligned(da: Any, over: Dims, value: Any, what: str) -> npt.NDArray[Any]:
    if isinstance(value, str):
        try:
            value = da[value]
        except (KeyError, AttributeError, TypeError) as error:
            known = list(da.coords)
            raise ValueError(
                f'{what} must name a coordinate or a part of one, such as "time.month", got {value!r}; da has {known}'
            ) from error
    sizes = tuple(da.sizes[dim] for dim in over)
    if not hasattr(value, "dims"):
        array = np.asarray(unmasked(what, value))
        if array.shape not in (sizes, (int(np.prod(sizes)),)):
            raise ValueError(f"{what} must have one value for each sample, {sizes}, got shape {array.shape}")
        return array.ravel()
    if unknown := [dim for dim in value.dims if dim not in over]:
        raise ValueError(f"{what} must have dimensions of the samples, {over}, got {unknown[0]!r}")
    places = {dim: _places(value, da, dim, what) for dim in value.dims}
    ordered = value.variable.isel({dim: at for dim, at in places.items() if at is not None})
    return np.asarray(ordered.set_dims(dict(zip(over, sizes, strict=True))).values).ravel()


def _places(value: Any, da: Any, dim: Hashable, what: str) -> Any:
    labels, own = (each.indexes.get(dim) if dim in each.coords else None for each in (da, value))
    if labels is None or own is None or labels.equals(own):
        if value.sizes[dim] != da.sizes[dim]:
            raise ValueError(f"{what} must have {da.sizes[dim]} values along {dim}, got {value.sizes[dim]}")
        return None
    if not own.is_unique:
        raise ValueError(f"{what} must have each label of {dim} once, some are there twice")
    places = own.get_indexer(labels)
    if absent := int(np.count_nonzero(places < 0)):
        first = labels[int(np.argmax(places < 0))]
        raise ValueError(f"{what} must have a value at each {dim} of da, {absent} are not there, such as {first}")
    return places


def _listed(covariates: Any) -> list[tuple[str, Any]]:
    if isinstance(covariates, Mapping) or hasattr(covariates, "data_vars"):
        return [(str(name), covariates[name]) for name in covariates]
    several = list(_one_by_one(covariates))
    named = [value if isinstance(value, str) else str(getattr(value, "name", None) or "") for value in several]
    unnamed = [f"covariate {i + 1}" if len(several) > 1 else "covariate" for i in range(len(several))]
    names = [name or other for name, other in zip(named, unnamed, strict=True)]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"covariates must have different names, got {twice[0]!r} twice; give a mapping from names")
    return list(zip(names, several, strict=True))


def _one_by_one(covariates: Any) -> Iterator[Any]:
    if covariates is None:
        return
    numbers = isinstance(covariates, Sequence) and all(np.isscalar(x) and not isinstance(x, str) for x in covariates)
    if isinstance(covariates, np.ndarray) and covariates.ndim == 2:
        yield from covariates.T
    elif isinstance(covariates, str) or not isinstance(covariates, Sequence) or numbers:
        yield covariates
    else:
        yield from covariates


def as_numbers(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    if values.dtype.kind == "M":
        return np.where(np.isnat(values), np.nan, (values - np.datetime64(_EPOCH)) / np.timedelta64(1, "D"))
    if values.dtype.kind == "m":
        return np.where(np.isnat(values), np.nan, values / np.timedelta64(1, "D"))
    if values.dtype.kind == "O" and hasattr(values[0], "calendar"):
        cftime = optional("cftime", "xarray")
        days = cftime.date2num(values, f"days since {_EPOCH}", calendar=values[0].calendar)
        return np.asarray(days, np.float64)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"covariates must be numbers or times, {name!r} is {values.dtype}; labels are for groups")
    return values.astype(np.float64)


def _absent(labels: npt.NDArray[Any]) -> Mask:
    return np.array([label is None or label != label for label in labels.tolist()])


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


def is_several(data: Any) -> bool:
    return isinstance(data, Mapping) or (isinstance(data, Sequence) and not isinstance(data, str))


def as_fields(data: Any) -> dict[str, Any]:
    if not is_several(data):
        told = type(data).__name__
        raise TypeError(f"data must be a Dataset, or DataArrays in a list or by their names, got {told}")
    if hasattr(data, "data_vars"):
        pairs = list(data.data_vars.items())
    elif isinstance(data, Mapping):
        pairs = list(data.items())
    else:
        pairs = [(getattr(da, "name", None) or f"field{i}", da) for i, da in enumerate(data, 1)]
    names = [str(name) for name, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"data must hold fields with a name of their own each, got {names}; da.rename(...) gives one")
    if prefixes := [a for a in names for b in names if a != b and b.startswith(f"{a}_")]:
        raise ValueError(f"no name may begin with that of another field and _, as with {prefixes[0]!r}; rename one")
    return dict(zip(names, (as_field(da, name) for name, (_, da) in zip(names, pairs, strict=True)), strict=True))


def in_order(first: Any, other: Any, dim: Any, names: tuple[str, str]) -> Any:
    for name in [dim] if isinstance(dim, str) or not isinstance(dim, Sequence) else dim:
        if name not in first.dims or name not in other.dims:
            continue  # which stacking refuses
        known, own = (da.indexes.get(name) if name in da.coords else None for da in (first, other))
        told = f"{names[0]} and {names[1]} must have the same samples"
        if known is None or own is None or known.equals(own):
            if first.sizes[name] != other.sizes[name]:
                raise ValueError(f"{told}, got {first.sizes[name]} and {other.sizes[name]} along {name}")
            continue
        places = own.get_indexer(known) if own.is_unique and known.is_unique else np.full(len(known), -1)
        if np.any(places < 0) or len(known) != len(own):
            common = int(np.count_nonzero(places >= 0))
            raise ValueError(
                f"{told}, each once: of {name}, {common} of the {len(known)} labels of {names[0]} are among the "
                f'{len(own)} of {names[1]}; xarray.align(..., join="inner") keeps those that both have'
            )
        other = other.isel({name: places})
    return other


def at_common(stacked: Sequence[Stacked]) -> list[Stacked]:
    rows: Mask = reduce(np.logical_and, (field.rows for field in stacked))
    if np.count_nonzero(rows) < 2:
        raise ValueError(f"fields must have values at two samples in common, got {np.count_nonzero(rows)}")
    tell_used(rows, stacked[0].over, "have values in all fields")
    return [at_rows(field, rows) for field in stacked]
