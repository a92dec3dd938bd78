"""The Dataset of a result, whose attributes may be truth values, and which can be written nevertheless."""

from typing import Any

import xarray


class Dataset(xarray.Dataset):  # type: ignore[misc]  # xarray is optional, and has no types for the checker
    """A Dataset that writes truth values among its attributes as 1 and 0: NetCDF has none."""

    __slots__ = ()

    def to_netcdf(self, *args: Any, **kwargs: Any) -> Any:
        plain = {key: int(value) if isinstance(value, bool) else value for key, value in self.attrs.items()}
        return xarray.Dataset.to_netcdf(self.assign_attrs(plain), *args, **kwargs)


def as_result(data: Any, **attrs: Any) -> Dataset:
    return Dataset(data.data_vars, data.coords, {**data.attrs, **attrs})
