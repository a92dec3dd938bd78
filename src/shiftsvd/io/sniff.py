"""What a file is: told by its name, and held against what it begins with."""

import bz2
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.names import resolve


class Format(NamedTuple):
    """One kind of file.

    Attributes
    ----------
    reader : str
        "module:function" that reads such a file.
    suffixes : tuple of str
        How the names of such files end.
    contents : tuple of str
        What such a file may begin with, in the words of `_MAGIC`; empty: anything that is in none of them.
    description : str
    is_table : bool
        Whether columns of such a file may be chosen and left out.
    """

    reader: str
    suffixes: tuple[str, ...]
    contents: tuple[str, ...]
    description: str
    is_table: bool = False


def _packed(*suffixes: str) -> tuple[str, ...]:
    return tuple(suffix + packing for suffix in suffixes for packing in ("", ".gz", ".bz2"))


FORMATS: dict[str, Format] = {
    "npy": Format("shiftsvd.io.formats.numpy_files:read_npy", (".npy",), ("npy",), "NumPy array"),
    "npz": Format(
        "shiftsvd.io.formats.numpy_files:read_npz", (".npz",), ("zip",), "SciPy sparse matrix, or NumPy arrays"
    ),
    "mtx": Format("shiftsvd.io.formats.mtx:read", _packed(".mtx"), ("MatrixMarket",), "MatrixMarket"),
    "10x": Format(
        "shiftsvd.scanpy.files:read_tenx_folder", (), ("folder",), "10x folder: matrix.mtx, barcodes.tsv, features.tsv"
    ),
    "10x-h5": Format("shiftsvd.scanpy.files:read_tenx_h5", (), ("HDF5",), "10x HDF5"),
    "h5ad": Format("shiftsvd.scanpy.files:read_anndata", (".h5ad",), ("HDF5",), "AnnData"),
    "zarr": Format("shiftsvd.io.formats.hdf5:read_zarr", (".zarr",), ("folder",), "Zarr: an array, or AnnData"),
    "hdf5": Format(
        "shiftsvd.io.formats.hdf5:read_hdf5",
        (".h5", ".hdf5", ".hdf", ".he5"),
        ("HDF5",),
        "HDF5 dataset, or CSR or CSC group",
    ),
    "csv": Format("shiftsvd.io.formats.table:read", _packed(".csv"), (), "comma-separated table", True),
    "tsv": Format("shiftsvd.io.formats.table:read", _packed(".tsv", ".tab"), (), "tab-separated table", True),
    "parquet": Format("shiftsvd.io.formats.table:read", (".parquet", ".pq"), ("Parquet",), "Parquet table", True),
    "arrow": Format(
        "shiftsvd.io.formats.table:read", (".arrow", ".feather", ".ipc"), ("Arrow",), "Arrow IPC or Feather table", True
    ),
    "svmlight": Format("shiftsvd.io.formats.svmlight:read", _packed(".svmlight", ".libsvm", ".svm"), (), "svmlight"),
    "netcdf": Format(
        "shiftsvd.xarray.netcdf:read", (".nc", ".nc4", ".netcdf", ".cdf"), ("HDF5", "NetCDF"), "NetCDF variable"
    ),
    "bed": Format("shiftsvd.genetics.readers:read_bed", (".bed",), ("PLINK",), "PLINK 1 genotypes"),
    "pgen": Format("shiftsvd.genetics.readers:read_pgen", (".pgen",), ("PLINK 2",), "PLINK 2 genotypes"),
}

_MAGIC = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x93NUMPY": "npy",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",  # a stream
    b"%%MatrixMarket": "MatrixMarket",
    **{b"\x6c\x1b" + bytes([order]): "PLINK" for order in (0, 1)},  # samples or variants first; the reader tells
    **{b"\x6c\x1b" + bytes([kind]): "PLINK 2" for kind in (2, 3, 4, 16, 17)},
    b"CDF\x01": "NetCDF",
    b"CDF\x02": "NetCDF",
}
_BY_CONTENT = {"zip": "npz", "npy": "npy", "Parquet": "parquet", "Arrow": "arrow", "MatrixMarket": "mtx"} | {
    "PLINK": "bed",
    "PLINK 2": "pgen",
    "NetCDF": "netcdf",
}


# Texts whose name does not say of what; the reader of tables sees what separates their cells.
_TEXTS: Final = _packed(".txt")
_SPREADSHEETS: Final = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
_TO_PGEN: Final = {
    (".vcf", ".vcf.gz", ".vcf.bgz", ".vcf.zst"): "--vcf {}",
    (".bcf",): "--bcf {}",
    (".bgen",): "--bgen {} ref-first --sample NAME.sample",
}


def format_of(path: Path, format: str | None) -> str:  # noqa: A002
    if format is not None and format not in FORMATS:
        raise refuse("format", f"be one of {', '.join(FORMATS)}", format)
    if format is None:
        _refuse_other_genotypes(path)
        _refuse_spreadsheet(path)
    content = content_of(path)
    named = format or _by_suffix(path)
    if named is None or (format is None and named == "hdf5" and content == "HDF5"):
        named = _by_content(path, content)
    expected = FORMATS[named].contents
    if content not in (expected or ("something else",)):
        how = "is to be read as" if format else "is called like"
        raise ValueError(f"{path} {how} {FORMATS[named].description} ({named}), but it holds {content}")
    return named


def content_of(path: Path) -> str:
    if path.is_dir():
        return "folder"
    head = _head(path)
    for magic, content in _MAGIC.items():
        if head.startswith(magic):
            return content
    return "HDF5" if _has_user_block(path) else "something else"


def plink2_line(path: Path) -> str | None:
    name = path.name.lower()
    told = next((told for suffixes, told in _TO_PGEN.items() if name.endswith(suffixes)), None)
    if told is None:
        return None
    return f"plink2 {told.format(shlex.quote(str(path)))} --max-alleles 2 --make-pgen --out NAME"


def decodable(path: Path) -> bool:
    return plink2_line(path) is not None and path.suffix.lower() != ".zst"


def _refuse_other_genotypes(path: Path) -> None:
    if line := plink2_line(path):
        ours = f"shiftsvd convert {shlex.quote(str(path))} NAME.pgen, or " if decodable(path) else ""
        raise ValueError(f"genotypes must be PLINK's .bed or .pgen, got {path}; convert it with {ours}{line}")


def _refuse_spreadsheet(path: Path) -> None:
    if path.name.lower().endswith(_SPREADSHEETS):
        raise ValueError(f"{path} is a spreadsheet, of which only a text is read; save its sheet as CSV (in UTF-8)")


def named_format(path: Path) -> str | None:
    return _by_suffix(path) or ("csv" if path.name.lower().endswith(_TEXTS) else None)


def _by_suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((key for key, known in FORMATS.items() if name.endswith(known.suffixes)), None)


def _by_content(path: Path, content: str) -> str:
    if content == "HDF5":
        kind: Callable[[Path], str] = resolve("shiftsvd.io.formats.hdf5:kind")
        return kind(path)
    if content == "folder" and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    if content == "folder" and any(path.glob("*matrix.mtx*")):
        return "10x"
    if content in _BY_CONTENT:
        return _BY_CONTENT[content]
    if content == "something else" and (named := named_format(path)):
        return named
    known = "; ".join(f"{name} ({', '.join(known.suffixes) or known.description})" for name, known in FORMATS.items())
    no_known = f"{path} is of no known format by its name or content; give the "
    raise Refused(no_known, Setting("format"), f", one of: {known}")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(1 << 16)
    try:
        if raw[:2] == b"\x1f\x8b":
            return zlib.decompressobj(31).decompress(raw, 64)
        return bz2.BZ2Decompressor().decompress(raw, 64) if raw[:3] == b"BZh" else raw[:64]
    except (OSError, EOFError, zlib.error):
        return raw[:64]  # damaged: the reader will say so


def _has_user_block(path: Path) -> bool:
    with path.open("rb") as file:
        for skipped in (512, 1024, 2048, 4096, 8192):
            file.seek(skipped)
            if file.read(8) == b"\x89HDF\r\n\x1a\n":
                return True
    return False
