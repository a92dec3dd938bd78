"""Groups and covariates of samples: align them with the samples of a field, and check them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pandas import Index, factorize, isna
from xarray import DataArray

from shiftsvd.extend.files import optional
from shiftsvd.extend.operators import unmasked
from shiftsvd.extend.running import Refused, Setting, affordable, few, plural, refuse
from shiftsvd.xarray import fields
from shiftsvd.xarray.fields import Dims, Mask, Panel, Places, Vector

Labels = npt.NDArray[Any]
_EPOCH: Final = "1970-01-01"


@dataclass(frozen=True, eq=False)
class Regressors:
    """Groups and covariates of the samples of a field, in the order of the rows of its matrix."""

    labels: Labels | None  # (m,), the group of each sample
    numbers: Panel  # (m, c), the covariates of each sample
    names: tuple[str, ...] = ()  # of the covariates
    dated: tuple[str, ...] = ()  # those of them that were dates

    @classmethod
    def of(cls, da: DataArray, over: Dims, groups: Any, covariates: Any) -> "Regressors":
        labels = None if groups is None else aligned(da, over, groups, "groups")
        m = int(np.prod([da.sizes[dim] for dim in over]))
        given = named_covariates(covariates)
        columns = {name: aligned(da, over, value, "covariates") for name, value in given}
        numbers = [_as_numbers(values, name) for name, values in columns.items()]
        dated = tuple(name for name, values in columns.items() if has_dates(values))
        return cls(labels, np.column_stack(numbers) if numbers else np.zeros((m, 0)), tuple(columns), dated)

    @property
    def given(self) -> bool:
        return self.labels is not None or bool(self.names)

    def at(self, rows: Mask) -> "Regressors":
        labels, numbers = None if self.labels is None else self.labels[rows], self.numbers[rows]
        if labels is not None and (absent := int(isna(labels).sum())):
            text = f" must have a label for every sample, got {plural(absent, 'missing label')}. Remove these samples."
            raise Refused(Setting("groups"), text)
        for name, column in zip(self.names, numbers.T, strict=True):
            if bad := int(np.count_nonzero(~np.isfinite(column))):
                got = f"{plural(bad, 'NaN or infinite value')} in {name!r}. Fill these values, or remove the samples."
                raise Refused(Setting("covariates"), f" must be finite, got {got}")
        return replace(self, labels=labels, numbers=numbers)

    def without(self, rows: Mask, levels: Labels | None, centre: Vector) -> "Regressors":
        # with any known label and covariate at `rows`, which have no values
        labels = self.labels
        if labels is not None and levels is not None:
            labels = Index(labels).where(~rows, levels[0]).to_numpy()
        return replace(self, labels=labels, numbers=np.where(rows[:, None], centre, self.numbers))

    def levels(self) -> Labels | None:
        if self.labels is None:
            return None
        # Labels of dtype object may have types that cannot be sorted together.
        plain = self.labels.dtype != object
        levels = np.unique(self.labels) if plain else np.asarray(factorize(self.labels, sort=True)[1])
        if len(levels) == len(self.labels) > 1:
            text = f" has a different label for each of the {len(levels):,} samples, so all anomalies would be 0. "
            raise Refused(Setting("groups"), text, "Pass labels that several samples share.")
        return levels

    def one_hot(self, levels: Labels | None) -> Panel:
        if self.labels is None or levels is None:
            return np.ones((len(self.numbers), 1))
        m, g = len(self.labels), len(levels)
        affordable(8 * m * g, None, f"{g:,} groups of {m:,} samples", "groups")
        places = places_of(self.labels, levels)
        if unseen := sorted(set(map(str, self.labels[places < 0]))):
            raise Refused(
                Setting("groups"),
                f" has labels that did not occur in the training data: {few(unseen)}. Fit on samples of every label.",
            )
        L = np.zeros((m, g))
        L[np.arange(m), places] = 1
        return L


def places_of(labels: Labels, levels: Labels) -> Places:
    return np.asarray(Index(levels).get_indexer(Index(labels)))


def aligned(da: DataArray, over: Dims, value: Any, what: str) -> Labels:
    if isinstance(value, str):
        try:
            value = da[value]
        except (KeyError, AttributeError, TypeError) as error:
            name, _, part = value.partition(".")
            if part and name in da.coords:
                check_dates(da[name], what, value)
            rule = 'be the name of a coordinate, or of a part of a coordinate of dates, such as "time.month"'
            known = f"da has the coordinates {few(da.coords)}, and only coordinates of dates have parts"
            raise refuse(what, rule, value, known) from error
    sizes = tuple(da.sizes[dim] for dim in over)
    if not hasattr(value, "dims"):
        array = np.asarray(unmasked(what, value))
        if array.shape not in (sizes, (int(np.prod(sizes)),)):
            text = f" must have one value for each sample, shape {sizes}, got shape {array.shape}"
            raise Refused(Setting(what), text)
        return array.ravel()
    if unknown := [dim for dim in value.dims if dim not in over]:
        raise refuse(what, f"have only dimensions of the samples, {over}", unknown[0])
    places = {dim: _sample_places(value, da, dim, what) for dim in value.dims}
    ordered = value.variable.isel({dim: at for dim, at in places.items() if at is not None})
    return np.asarray(ordered.set_dims(dict(zip(over, sizes, strict=True))).values).ravel()


def has_dates(values: Any) -> bool:
    return values.dtype.kind == "M" or (
        values.dtype.kind == "O" and all(hasattr(v, "calendar") for v in values.flat[:1])
    )


def check_dates(times: DataArray, what: str, value: str) -> None:
    if has_dates(times.values):
        return
    known = "numbers, not dates" if times.dtype.kind in "fiu" else f"no dates that xarray decodes ({times.dtype})"
    if " since " in str(times.attrs.get("units", "")):
        remedy = "decode with xarray.decode_cf(dataset), or open the file with decode_times=True"
    else:
        remedy = f"decode with da.assign_coords({times.name}=...), for example with pandas.to_datetime or date_range"
    raise Refused(Setting(what, value), f" requires dates, but {times.name} holds {known}: {remedy}.")


def _sample_places(value: DataArray, da: DataArray, dim: Hashable, what: str) -> Places | None:
    places = fields.matching_places(da, value, dim)
    if places is None and value.sizes[dim] != da.sizes[dim]:
        raise refuse(what, f"have {da.sizes[dim]} values along {dim}", value.sizes[dim])
    if places is not None and (absent := int(np.count_nonzero(places < 0))):
        labels, own = da.indexes[dim], value.indexes[dim]
        got = f"none or several for {plural(absent, 'label')}, such as {labels[int(np.argmax(places < 0))]}."
        got += fields.make_equal(labels, own, dim) if absent == len(places) and own.is_unique else ""
        raise Refused(Setting(what), f" must have one value for each label of da along {dim}, got {got}")
    return places


def named_covariates(covariates: Any) -> list[tuple[str, Any]]:
    if isinstance(covariates, Mapping) or hasattr(covariates, "data_vars"):
        return [(str(name), covariates[name]) for name in covariates]
    several = _one_by_one(covariates)
    given = [value if isinstance(value, str) else str(getattr(value, "name", None) or "") for value in several]
    names = [name or (f"covariate {i}" if len(several) > 1 else "covariate") for i, name in enumerate(given, 1)]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        text = f" must have unique names, got {twice[0]!r} twice. Pass a mapping from names to covariates."
        raise Refused(Setting("covariates"), text)
    return list(zip(names, several, strict=True))


def _one_by_one(covariates: Any) -> list[Any]:
    if covariates is None:
        return []
    if isinstance(covariates, np.ndarray) and covariates.ndim == 2:
        return list(covariates.T)
    if not isinstance(covariates, Sequence) or isinstance(covariates, str):
        return [covariates]
    are_numbers = all(np.isscalar(value) and not isinstance(value, str) for value in covariates)
    return [covariates] if are_numbers else list(covariates)


def _as_numbers(values: Labels, name: str) -> npt.NDArray[np.float64]:
    if values.dtype.kind == "M":
        values = values - np.datetime64(_EPOCH)
    if values.dtype.kind == "m":
        return np.asarray(values / np.timedelta64(1, "D"))  # NaN for NaT
    if values.dtype.kind == "O" and hasattr(values[0], "calendar"):
        cftime = optional("cftime", "xarray")
        days = cftime.date2num(values, f"days since {_EPOCH}", calendar=values[0].calendar)
        return np.asarray(days, np.float64)
    if values.dtype.kind not in "fiub":
        rule = f" must be numbers or times, but {name!r} has dtype {values.dtype}. Pass labels as "
        raise Refused(Setting("covariates"), rule, Setting("groups"), ".")
    return values.astype(np.float64)
