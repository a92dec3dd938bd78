"""What is known of each sample of a field: its group, such as a month, and covariates, such as a trend."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import limit_of
from shiftsvd.xarray.fields import Dims, Mask

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
