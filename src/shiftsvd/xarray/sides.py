"""Results of several fields in one Dataset: what each field has goes by its name, on its own grid."""

import json
from collections.abc import Mapping
from typing import Any

from shiftsvd.xarray.fields import Dims

_SAID = ("field", "missing", "n_missing", "heldout_r2")  # attributes that each field has for itself
Parts = Mapping[str, Mapping[str, Any]]  # DataArrays by the name of the field and of the variable


def together(parts: Parts, shared: Mapping[str, Any], modes: Any, over: Dims, told: Mapping[str, Any]) -> Any:
    from xarray import Dataset as Part

    from shiftsvd.xarray.dataset import Dataset

    own = {name: Part(dict(part)) for name, part in parts.items()}
    differ = _differing(own, {*over, modes.name})
    found = {key: da.drop_vars([coord for coord in differ if coord in da.coords]) for key, da in shared.items()}
    attrs = dict(told)
    attrs["fields"] = json.dumps(list(parts))
    for name, part in own.items():
        renamed = {key: f"{key}_{name}" for key in differ if key in part.variables or key in part.dims}
        found |= {f"{name}_{key}": da.rename(_of(da, renamed)) for key, da in part.data_vars.items()}
        attrs[f"renamed_{name}"] = json.dumps({new: key for key, new in renamed.items()})
    return Dataset(found, coords={modes.name: modes}, attrs=attrs)


def side(result: Any, name: str) -> Any:
    """What a result of several fields says of one of them, as `pca` would: for `project` and `reconstruct`.

    Parameters
    ----------
    result : xarray.Dataset
        What `coupled` gave, or `pca` of several fields, perhaps from a file.
    name : str
        The field: "x" or "y" of `coupled`, else its name.

    Returns
    -------
    xarray.Dataset
        Its variables by their plain names, such as ``components``, ``scores`` and ``mean_field``, on its own
        coordinates; and what all fields share.

    Raises
    ------
    ValueError
        If `result` is of one field, or has no such field.

    See Also
    --------
    xarray.coupled : Gives a result of two fields.
    xarray.joint : Gives one of several.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> X = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> pair = shiftsvd.xarray.coupled(X, X[:, :2] ** 2, n_modes=2)
    >>> shiftsvd.xarray.side(pair, "y").components.dims
    ('mode', 'lat', 'lon')
    """
    from shiftsvd.xarray.dataset import Dataset

    names = names_of(result)
    if name not in names:
        raise ValueError(f"the result must have the field {name!r}, it has {', '.join(names) or 'one without a name'}")
    back = {other: json.loads(result.attrs[f"renamed_{other}"]) for other in names}
    foreign = {key for other in names if other != name for key in back[other]}
    prefixes = tuple(f"{other}_" for other in names if other != name)
    found = {}
    for key, da in result.data_vars.items():
        own = key.startswith(f"{name}_")
        if own or not key.startswith(prefixes):
            da = da.drop_vars([coord for coord in da.coords if coord in foreign])
            found[key.removeprefix(f"{name}_") if own else key] = da.rename(_of(da, back[name]))
    of_fields = ("fields", *(f"{key}_{other}" for key in ("renamed", *_SAID) for other in names))
    told = {key: value for key, value in result.attrs.items() if key not in of_fields}
    told |= {key: result.attrs[f"{key}_{name}"] for key in _SAID if f"{key}_{name}" in result.attrs}
    return Dataset(found, attrs=told)


def names_of(result: Any) -> list[str]:
    return list(json.loads(getattr(result, "attrs", {}).get("fields", "[]")))


def renamed(result: Any, name: str, da: Any) -> Any:
    return da.rename(_of(da, {key: new for new, key in json.loads(result.attrs[f"renamed_{name}"]).items()}))


def _of(da: Any, renamed: Mapping[str, str]) -> dict[str, str]:
    return {key: new for key, new in renamed.items() if key in da.coords or key in da.dims}


def _differing(own: Mapping[str, Any], shared: set[Any]) -> list[Any]:
    keys = dict.fromkeys(key for part in own.values() for key in (*part.dims, *part.coords))
    return [key for key in keys if key not in shared and not _same([p for p in own.values() if key in _keys(p)], key)]


def _keys(part: Any) -> set[Any]:
    return {*part.dims, *part.coords}


def _same(parts: list[Any], key: Any) -> bool:
    first = parts[0]
    return all(
        part.sizes.get(key) == first.sizes.get(key)
        and (key in part.coords) == (key in first.coords)
        and (key not in part.coords or part[key].variable.equals(first[key].variable))
        for part in parts[1:]
    )
