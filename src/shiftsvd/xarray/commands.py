"""NetCDF fields in `shiftsvd fit`: weights of cells, and notices."""

from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd.io.sniff import format_of
from shiftsvd.missing.gaps import Gaps, Observed
from shiftsvd.numerics.moments import Vector
from shiftsvd.runs.messages import notice
from shiftsvd.xarray.fields import Stacked, cell_weights, latitude_of
from shiftsvd.xarray.netcdf import variable_of


def cell_divisors(options: Any) -> Vector:
    fields = _fields(options)
    if not fields:
        raise ValueError(f"{options.file}: --weights coslat is of NetCDF files, with samples as rows; leave it out")
    weights = [cell_weights(da, "coslat", _layout(da)) for da in fields]
    assert all(own is not None for own in weights)
    return 1 / np.concatenate([own for own in weights if own is not None])


def look_at_fields(options: Any, A: Observed) -> None:
    fields = _fields(options)
    for da in fields if options.weights is None else ():
        if n := _latitudes(da):
            notice(
                f"{options.file} is a field on {n} latitudes, whose cells differ in area. Give --weights coslat to "
                "weight cells by their area, or --weights none to weight all alike."
            )
            break
    if fields and isinstance(A, Gaps):
        in_rows, _ = A.observed()
        used = int(np.count_nonzero(np.rint(in_rows) > 0))
        if used < len(in_rows):
            notice(
                f"{options.file}: {used:,} of {len(in_rows):,} samples have values. The others count as the mean; "
                "leave them out of the file to learn from these alone."
            )


def _fields(options: Any) -> list[Any]:
    paths = [Path(file) for file in options.files]
    are_fields = all(str(path) != "-" and format_of(path, options.format) == "netcdf" for path in paths)
    if not are_fields or options.orient == "columns":
        return []
    return [variable_of(path, options.key) for path in (paths if options.stack == "columns" else paths[:1])]


def _layout(da: Any) -> Stacked:
    over, *space = da.dims
    return Stacked(None, None, slice(None), (over,), tuple(space), 0)  # type: ignore[arg-type]


def _latitudes(da: Any) -> int:
    try:
        latitude = latitude_of(da)
    except ValueError:
        return 0
    return int(latitude.size) if latitude.dims in [(dim,) for dim in da.dims[1:]] and latitude.size > 1 else 0
