"""Datasets of modes: their variables, checks of known modes, and results of several fields."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray
from xarray import DataArray

from shiftsvd import Info, SVDResult
from shiftsvd.xarray.anomalies import Anomalies
from shiftsvd.xarray.fields import ERROR_BOUNDS, RESULTS, Attrs, Dims, Panel, Vector

_FIT: Final = ("components", "scores", "mean_field", "weights")  # variables that a projection needs
_OF_FIELD: Final = ("field", "missing", "n_missing", "heldout_r2")  # attributes that each of several fields has


class Dataset(xarray.Dataset):  # type: ignore[misc]  # xarray has no types for the checker
    """A Dataset that writes to NetCDF, which has neither booleans, None nor complex numbers.

    Booleans in its attributes become 1 and 0, None is not written, and a complex variable becomes two, with the
    suffixes _real and _imag.
    """

    __slots__ = ()

    def to_netcdf(self, *args: Any, **kwargs: Any) -> Any:
        known = {key: value for key, value in self.attrs.items() if value is not None}
        plain = {key: int(value) if isinstance(value, bool | np.bool_) else value for key, value in known.items()}
        of_complex = [name for name, da in self.data_vars.items() if da.dtype.kind == "c"]
        if kwargs.get("encoding"):
            kwargs["encoding"] = {
                part: how
                for name, how in kwargs["encoding"].items()
                for part in (_parts(name) if name in of_complex else [name])
            }
        written = _split(self.copy(), of_complex)
        written.attrs = plain
        return xarray.Dataset.to_netcdf(written, *args, **kwargs)


def _parts(name: Hashable) -> tuple[str, str]:
    return f"{name}_real", f"{name}_imag"


def _split(data: xarray.Dataset, names: Iterable[Hashable]) -> xarray.Dataset:
    for name in names:
        real, imaginary = _parts(name)
        whole = data[name]
        data = data.drop_vars(name).assign({real: whole.real, imaginary: whole.imag})
    return data


def joined(eofs: Any) -> Any:
    """Return modes with complex variables in place of the parts that `Dataset.to_netcdf` wrote."""
    for name in RESULTS:
        real, imaginary = _parts(name)
        if real in getattr(eofs, "data_vars", ()) and imaginary in eofs:
            whole = (eofs[real] + 1j * eofs[imaginary]).assign_attrs(eofs[real].attrs)
            eofs = eofs.drop_vars([real, imaginary]).assign({name: whole})
    return eofs


def mode_labels(count: int) -> DataArray:
    return DataArray(np.arange(1, count + 1), dims="mode", name="mode")


def scores_of(F: SVDResult) -> Panel:
    U = np.asarray(F.U)  # that of a Dask array is lazy
    return np.asarray(U * F.S.astype(U.real.dtype))


def variance_variables(F: SVDResult, m: int, squares: float) -> dict[str, DataArray]:
    S = F.S
    shares = S**2 / squares if squares > 0 else np.zeros(len(S))
    found = {"explained_variance": S**2 / (m - 1), "explained_variance_ratio": shares, "singular_values": S}
    return {name: DataArray(values, dims="mode") for name, values in (found | error_bounds(F.info)).items()}


def error_bounds(info: Info) -> dict[str, Vector]:
    found = {name: getattr(info, name) for name in ERROR_BOUNDS}
    return {name: values for name, values in found.items() if values is not None}


def modes_dataset(
    of: Anomalies, components: Panel, Z: Panel, F: SVDResult, squares: float, **more: DataArray
) -> Dataset:
    modes = mode_labels(len(F.S))
    found = {"components": of.field.in_space(components, modes), "scores": of.field.in_time(Z, modes)}
    found |= variance_variables(F, len(Z), squares) | more | of.subtracted()
    return Dataset(found, coords={"mode": modes}, attrs=of.attrs)


def fit_attrs(factors: Sequence[SVDResult], *of: Anomalies) -> Attrs:
    infos = [F.info for F in factors]
    filled = all(each.completion is None or each.completion.converged for each in of)
    known = {filled and info.converged for info in infos}
    converged = False if False in known else None if None in known else True  # as `Info.converged`
    found = {"solver": infos[0].solver, "n_passes": sum(info.n_passes for info in infos), "converged": converged}
    missed = infos[0].missed_below if len(infos) == 1 else None
    bound = {} if missed is None else {"missed_below": missed, "n_modes": len(factors[0].S)}
    return found | {"n_samples": of[0].A.shape[0]} | bound


def attrs_per_field(parts: Mapping[str, Anomalies]) -> Attrs:
    return {f"{key}_{name}": value for name, of in parts.items() for key, value in of.attrs.items()}


# --- known modes ----------------------------------------------------------------------------------------------------


def checked_fit(eofs: Any, kinds: str = "f", lags: bool = False) -> Any:
    eofs = joined(eofs)
    if missing := [name for name in _FIT if name not in getattr(eofs, "data_vars", ())]:
        raise ValueError(
            f"eofs must be a result of shiftsvd.xarray.pca, but it lacks {', '.join(missing)}. For a result with "
            "several fields, select one with side(eofs, name) first."
        )
    if "lag" in eofs.components.dims and not lags:
        raise ValueError(
            "eofs must be modes without lags, got modes of extended. Functions of these are project, reconstruct and "
            "patterns."
        )
    if lags and "score_means" in eofs and "lag" not in eofs.components.dims and eofs.components.dtype.kind != "c":
        raise ValueError(
            "eofs must have the dimension lag of modes of extended, got a single lag without it. Pass the modes with "
            "all lags."
        )
    if eofs.components.dtype.kind not in kinds:
        raise ValueError("eofs must be real modes, got complex modes of hilbert, which this function does not support")
    return eofs


def check_variances(eofs: Any, lags: bool = False) -> None:
    if not (lags and "lag" in getattr(eofs, "dims", ())):
        checked_fit(eofs)
    if "explained_variance" not in eofs:
        raise ValueError(
            "eofs must have explained variances, which one field of a result of shiftsvd.xarray.coupled does not have. "
            "Its maps of correlation are x_homogeneous and x_heterogeneous (or y_...) of that result. Modes of this "
            "field alone are those of shiftsvd.xarray.pca(da)."
        )


def with_modes(values: DataArray, name: str) -> DataArray:
    if "mode" not in values.coords:
        raise ValueError(
            f"{name} must have the coordinate mode, got dimensions {values.dims}. Select modes with .sel(mode=[1])."
        )
    return values if "mode" in values.dims else values.expand_dims("mode")


# --- several fields -------------------------------------------------------------------------------------------------


def merge_fields(
    parts: Mapping[str, Mapping[str, DataArray]],
    shared: Mapping[str, DataArray],
    modes: DataArray,
    over: Dims,
    attrs: Attrs,
) -> Dataset:
    # Coordinates that differ between fields get the name of their field as a suffix.
    own = {name: xarray.Dataset(dict(part)) for name, part in parts.items()}
    differ = _differing(own.values(), {*over, modes.name})
    found = {key: da.drop_vars([coord for coord in differ if coord in da.coords]) for key, da in shared.items()}
    attrs = attrs | {"fields": json.dumps(list(parts))}
    for name, part in own.items():
        renamed = {key: f"{key}_{name}" for key in differ if key in part.variables or key in part.dims}
        found |= {f"{name}_{key}": _renamed(da, renamed) for key, da in part.data_vars.items()}
        attrs[f"renamed_{name}"] = json.dumps({new: key for key, new in renamed.items()})
    return Dataset(found, coords={modes.name: modes}, attrs=attrs)


def side(result: Any, name: str) -> Any:
    """Return one field of a result of several fields, in the layout of `pca`, for `project` and `reconstruct`.

    Parameters
    ----------
    result : xarray.Dataset
        The result of `coupled` or `joint`, perhaps from a file.
    name : str
        The field: "x" or "y" of `coupled`, else its name.

    Returns
    -------
    xarray.Dataset
        The variables of the field under plain names, such as ``components``, ``scores`` and ``mean_field``, on its own
        coordinates, and the variables that all fields share.

    Raises
    ------
    ValueError
        If `result` has a single field, or no field of this name.

    See Also
    --------
    xarray.coupled : Compute pairs of patterns in two fields.
    xarray.joint : Compute modes of several fields together.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> X = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> pair = shiftsvd.xarray.coupled(X, X[:, :2] ** 2, n_modes=2)
    >>> shiftsvd.xarray.side(pair, "y").components.dims
    ('mode', 'lat', 'lon')
    """
    names = names_of(result)
    if name not in names:
        if not names:
            raise ValueError(f"result must have several fields, got a single field, so there is no field {name!r}")
        raise ValueError(f"result has no field {name!r}. Its fields: {', '.join(names)}.")
    back = {other: json.loads(result.attrs[f"renamed_{other}"]) for other in names}
    foreign = {key for other in names if other != name for key in back[other]}
    prefixes = tuple(f"{other}_" for other in names if other != name)
    found = {}
    for key, da in result.data_vars.items():
        own = key.startswith(f"{name}_")
        if own or not key.startswith(prefixes):
            da = da.drop_vars([coord for coord in da.coords if coord in foreign])
            found[key.removeprefix(f"{name}_") if own else key] = _renamed(da, back[name])
    return Dataset(found, attrs=_attrs_of(name, result.attrs, names))


def _attrs_of(name: str, attrs: Attrs, names: Sequence[str]) -> Attrs:
    of_fields = {f"{key}_{other}": key for key in ("renamed", *_OF_FIELD) for other in names}
    plain = {key: value for key, value in attrs.items() if key not in ("fields", *of_fields)}
    own = {key: attrs[f"{key}_{name}"] for key in _OF_FIELD if f"{key}_{name}" in attrs}
    return plain | own


def names_of(result: Any) -> list[str]:
    return list(json.loads(getattr(result, "attrs", {}).get("fields", "[]")))


def suffixed(result: xarray.Dataset, name: str, da: DataArray) -> DataArray:
    return _renamed(da, {key: new for new, key in json.loads(result.attrs[f"renamed_{name}"]).items()})


def _renamed(da: DataArray, names: Mapping[Any, str]) -> DataArray:
    return da.rename({key: new for key, new in names.items() if key in da.coords or key in da.dims})


def _differing(parts: Iterable[xarray.Dataset], shared: set[Hashable]) -> list[Hashable]:
    holders: dict[Hashable, list[xarray.Dataset]] = {}
    for part in parts:
        for key in dict.fromkeys((*part.dims, *part.coords)):
            holders.setdefault(key, []).append(part)
    return [
        key
        for key, (first, *others) in holders.items()
        if key not in shared and not all(_same(first, part, key) for part in others)
    ]


def _same(first: xarray.Dataset, part: xarray.Dataset, key: Hashable) -> bool:
    known, own = first.coords.get(key), part.coords.get(key)
    if known is None or own is None:
        return known is own and first.sizes[key] == part.sizes[key]
    return bool(own.variable.equals(known.variable))
