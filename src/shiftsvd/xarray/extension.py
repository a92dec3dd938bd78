"""Register the NetCDF format, and an option, help and hooks of `shiftsvd fit`, with shiftsvd."""

from typing import Final

from shiftsvd.extend import Extension, Format

EXTENSION: Final = Extension(
    name="xarray",
    module="shiftsvd.xarray",
    formats={
        "netcdf": Format(
            "shiftsvd.xarray.netcdf:read", (".nc", ".nc4", ".netcdf", ".cdf"), ("HDF5", "NetCDF"), "NetCDF variable"
        )
    },
    magic={b"CDF\x01": "NetCDF", b"CDF\x02": "NetCDF"},
    by_content={"NetCDF": "netcdf"},
    options={"fit": "shiftsvd.xarray.options:OF_FIT"},
    hooks="shiftsvd.xarray.commands:FieldHooks",
    help={
        "fit": """Gridded fields (NetCDF): the first dimension of the variable, usually time, holds the samples, and all
    other dimensions hold the cells. --key names the variable if there are several, not counting bounds. Packed values
    are decoded. Cells without any values, such as land, require --missing em, and get components of 0; shiftsvd.xarray
    in Python excludes such cells."""
    },
    examples={"fit": ("fit sst.nc -k 10 --weights coslat -o sst/",)},
)
