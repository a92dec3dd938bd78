"""Read NetCDF variables as matrices: the first dimension as rows, all other dimensions as columns."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.extend import files as io
from shiftsvd.extend.running import Refused, Setting, few
from shiftsvd.xarray.fields import bounds_of

# Cells of larger grids get no names, because the names would need more memory than a sample.
MOST_CELLS: Final = 2_000_000
CHUNK_BYTES: Final = 2**22  # of the chunks in the command that rewrites a file


def read(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    with io.reading(path):
        variable = variable_of(path, key)
        shape = (int(variable.shape[0]), math.prod(map(int, variable.shape[1:])))
        io.plausible_shape(path, shape, memory_limit)
        chunks = variable.encoding.get("chunksizes") or None
        source = NetcdfRows(variable, chunks, f"{path}:{variable.name}", io.fingerprint_of(path, variable.name), shape)
        io.check_size(source.name, path, source, memory_limit)
        io.bounded(f"{source.name}: one row", shape[1] * source.dtype.itemsize, memory_limit)
        samples = _coordinate(variable, variable.dims[0])
        named = None if samples is None else io.labels(path, samples, memory_limit)
        return io.Opened(source, named, _cells(variable, shape[1], path, memory_limit))


@dataclass(frozen=True, eq=False)
class NetcdfRows(io.RowSource):
    """Rows of a NetCDF variable, read from the file by slicing."""

    variable: Any
    chunks: tuple[int, ...] | None
    name: str
    fingerprint: str
    shape: tuple[int, int]
    sparse = False

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        dtype: np.dtype[Any] = self.variable.dtype.newbyteorder("=")
        return dtype

    @property
    def chunk_rows(self) -> int:
        return self.chunks[0] if self.chunks else 1

    @property
    def rewrite(self) -> str:  # type: ignore[override]
        first, *others = self.variable.dims
        rows = max(1, CHUNK_BYTES // (self.shape[1] * self.dtype.itemsize))
        sizes = ",".join([f"{first}/{rows}", *(f"{dim}/{self.variable.sizes[dim]}" for dim in others)])
        return f"Write it once in other chunks: nccopy -c {sizes} IN.nc OUT.nc"

    def edges(self, n_bytes: int) -> list[int]:
        return io.row_edges(self.shape, self.dtype.itemsize, self.chunk_rows, n_bytes)

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        with io.reading(self.name):
            block = self.variable[lo:hi].values.reshape(hi - lo, self.shape[1])
            return np.ascontiguousarray(block, self.dtype)


def variable_of(path: Path, key: str | None) -> Any:
    data = _open(path)
    found = [str(name) for name, known in data.data_vars.items() if known.ndim >= 2 and known.dtype.kind in "fciub"]
    if key is not None and key not in found:
        raise ValueError(
            f"{path} has no numeric variable {key!r} with at least 2 dimensions. Such variables: "
            f"{', '.join(found) or 'none'}."
        )
    if key is None and not found:
        raise ValueError(f"{path} has no numeric variable with at least 2 dimensions. Write the field as one variable.")
    fields = [name for name in found if name not in bounds_of(data)] or found
    if key is None and len(fields) > 1:
        many = (
            f"{path} has {len(fields):,} numeric variables with at least 2 dimensions: {few(fields, 10)}. Choose one "
            "by "
        )
        raise Refused(many, Setting("key"), ".")
    return data[key or fields[0]]


def _open(path: Path) -> Any:
    xarray = io.optional("xarray", "xarray")
    with path.open("rb") as file:
        classic = file.read(3) == b"CDF"
    if not classic:
        io.optional("h5netcdf", "xarray")
        io.check_texts(path)
    engine = "scipy" if classic else "h5netcdf"
    return xarray.open_dataset(path, engine=engine, decode_times=False, cache=False)


def _cells(variable: Any, n: int, path: Path, memory_limit: int | str | None) -> io.Labels | None:
    dims = variable.dims[1:]
    known = {dim: _coordinate(variable, dim) for dim in dims}
    if not any(known.values()) or n > MOST_CELLS:
        return None
    if len(dims) == 1:
        return io.labels(path, known[dims[0]] or (), memory_limit)
    sides = [[f"{dim}={label}" for label in known[dim] or range(variable.sizes[dim])] for dim in dims]
    return io.labels(path, (" ".join(side) for side in product(*sides)), memory_limit)


def _coordinate(variable: Any, dim: Hashable) -> list[str] | None:
    if dim not in variable.coords:
        return None
    values = _dates(variable.coords[dim])
    if values.dtype.kind == "M":
        return list(np.datetime_as_string(values.astype("datetime64[s]"), unit="auto"))
    return [value.isoformat() if hasattr(value, "isoformat") else str(value) for value in values.tolist()]


def _dates(coordinate: Any) -> npt.NDArray[Any]:
    # Decode numbers of days to dates, because files may count from different dates.
    if " since " not in str(coordinate.attrs.get("units", "")):
        return np.asarray(coordinate.values)
    xarray = io.optional("xarray", "xarray")
    known = coordinate.drop_vars(list(coordinate.coords)).to_dataset(name="dates")
    try:
        return np.asarray(xarray.decode_cf(known)["dates"].values)
    except (ImportError, ValueError, OverflowError):  # unknown calendar
        return np.asarray(coordinate.values)
