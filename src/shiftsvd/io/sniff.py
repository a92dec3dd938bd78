"""Detect the format of a file from its name, and check it against the first bytes."""

import bz2
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.extend import Decoder, Format, extensions, merged
from shiftsvd.io.location import Location
from shiftsvd.names import resolve


def _packed(*suffixes: str) -> tuple[str, ...]:
    return tuple(suffix + packing for suffix in suffixes for packing in ("", ".gz", ".bz2"))


def _known(reader: str, *about: Any, **more: Any) -> Format:
    return Format(f"shiftsvd.io.{reader}", *about, **more)


def _table(suffixes: tuple[str, ...], contents: tuple[str, ...], description: str, **more: Any) -> Format:
    return _known("formats.table:read", suffixes, contents, description, True, **more)


_HDF5: Final = (".h5", ".hdf5", ".hdf", ".he5")
_FORMATS: Final[dict[str, Format]] = {
    "npy": _known("formats.numpy_files:read_npy", (".npy",), ("npy",), "NumPy array", remote="read"),
    "npz": _known("formats.numpy_files:read_npz", (".npz",), ("zip",), "SciPy sparse matrix, or NumPy arrays"),
    "mtx": _known("formats.market:read", _packed(".mtx"), ("MatrixMarket",), "MatrixMarket"),
    "zarr": _known(
        "storage.tree:read_zarr", (".zarr",), ("folder",), "Zarr: an array, or a CSR or CSC group", remote="read"
    ),
    "hdf5": _known("storage.tree:read_hdf5", _HDF5, ("HDF5",), "HDF5 dataset, or CSR or CSC group", remote="read"),
    "csv": _table(_packed(".csv"), (), "comma-separated table"),
    "tsv": _table(_packed(".tsv", ".tab"), (), "tab-separated table"),
    "parquet": _table((".parquet", ".pq"), ("Parquet",), "Parquet table", remote="read"),
    "arrow": _table((".arrow", ".feather", ".ipc"), ("Arrow",), "Arrow IPC or Feather table"),
    "sheet": _table((".xlsx", ".xlsm", ".ods", ".xls"), ("zip", "OLE"), "sheet of a workbook"),
    "sqlite": _table((".sqlite", ".sqlite3"), ("SQLite",), "table of a SQLite file"),
    "duckdb": _table((".duckdb",), ("DuckDB",), "table of a DuckDB file"),
    "svmlight": _known("formats.svmlight:read", _packed(".svmlight", ".libsvm", ".svm"), (), "svmlight"),
}

_MAGIC: Final = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "OLE",
    b"SQLite format 3\0": "SQLite",
    b"\x93NUMPY": "npy",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",  # a stream
    b"%%MatrixMarket": "MatrixMarket",
}
# The first format of each content; folders and HDF5 files are examined.
_BY_CONTENT: Final = {
    content: name for name, known in reversed(_FORMATS.items()) for content in known.contents if content != "folder"
}
# Text files of unknown delimiter; the reader of tables detects it.
_TEXTS: Final = _packed(".txt")


def format_of(path: Path, format: str | None) -> str:  # noqa: A002
    """Return the name of the format: `format` if given, else by suffix, else by the first bytes.

    Raises
    ------
    ValueError
        If the suffix contradicts the content, or neither identifies a format.
    """
    if opener := opening_address(path, format):
        return opener
    path, known = split_element(path)[0], formats()
    if format is not None and format not in known:
        raise refuse("format", f"be one of {', '.join(known)}", format)
    if format is None and (decoder := decoder_of(path)):
        raise ValueError(resolve(decoder.refusal)(path))
    content = content_of(path)
    named = format or _by_suffix(path)
    if named is None or (format is None and named == "hdf5" and content == "HDF5"):
        named = _by_content(path, content)
    expected = known[named].contents
    if content not in (expected or ("something else",)):
        reason = f"the format is {named!r}" if format else f"the suffix is that of {named!r}"
        found = {"folder": "a folder", "something else": "text, or of an unknown format"}.get(content, content)
        is_text = named == "sheet" and content == "something else"  # many programs write texts with the suffix .xls
        text = f"{path}: {reason} ({known[named].description}), but the content is {found}. "
        if content == "folder" and (meant := meant_by(path)):
            raise Refused(f"{text}{meant}")
        remedy = "Set " if format else "Give the file the suffix of its content, or set "
        wanted = ("If it is a text, use ", Setting("format", "csv"), ".") if is_text else ()
        raise Refused(text, *(wanted or (remedy, Setting("format"), " to the format of the content.")))
    return named


def opening_address(path: Path, format: str | None) -> str | None:  # noqa: A002
    """Return the format whose reader opens an address by itself, or None."""
    if not isinstance(path, Location):
        return None
    scheme = path.address.partition("://")[0]
    named = (name for name, each in formats().items() if scheme in each.schemes or (each.schemes and name == format))
    return next(named, None)


def split_element(path: Path) -> tuple[Path, str | None]:
    """Split FILE::TABLE into the path of the file and the name of the table; other paths have none."""
    if isinstance(path, Location):
        place, question, query = path.address.partition("?")
        for text, rest in ((place, question + query), (path.address, "")):
            address, mark, element = text.rpartition("::")
            if mark and "]" not in element:  # not an address of IPv6
                return Location(address + rest, path.connection), element
        return path, None
    file, mark, element = str(path).partition("::")
    return (Path(file), element) if mark and not path.exists() else (path, None)


def content_of(path: Path) -> str:
    path, _ = split_element(path)
    if path.is_dir():
        return "folder"
    head = _head(path)
    if head[8:12] == b"DUCK":
        return "DuckDB"
    magics: dict[bytes, str] = _MAGIC | merged("magic")
    found = next((content for magic, content in magics.items() if head.startswith(magic)), None)
    return found or ("HDF5" if _has_user_block(path) else "something else")


@cache
def formats() -> dict[str, Format]:
    """Return all formats by name, including those of extensions."""
    return _FORMATS | merged("formats")


def format_claiming(content: str, root: Any) -> str | None:
    """Return the format of an extension that claims `root`: an open HDF5 file or Zarr folder, or a path of a folder."""
    claims = ((name, each.claims) for name, each in formats().items() if each.claims and content in each.contents)
    return next((name for name, claim in claims if resolve(claim)(root)), None)


def decoder_of(path: Path) -> Decoder | None:
    """Return the decoder of a file that only `convert` reads, or None."""
    name = path.name.lower()
    found = (each.decoder for each in extensions() if each.decoder is not None)
    return next((decoder for decoder in found if name.endswith(decoder.suffixes)), None)


def named_format(path: Path) -> str | None:
    path, _ = split_element(path)
    return _by_suffix(path) or ("csv" if path.name.lower().endswith(_TEXTS) else None)


def _by_suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((key for key, known in formats().items() if name.endswith(known.suffixes)), None)


def _by_content(path: Path, content: str) -> str:
    if content == "HDF5":
        kind: Callable[[Path], str] = resolve("shiftsvd.io.storage.tree:kind")
        return kind(path)
    if content == "folder" and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    if content == "folder" and (named := format_claiming(content, path)):
        return named
    by_content = _BY_CONTENT | merged("by_content")
    if content in by_content:
        return str(by_content[content])
    if content == "something else" and (named := named_format(path)):
        return named
    if content == "folder" and (meant := meant_by(path)):
        raise ValueError(f"{path} is a folder of an unknown format. {meant}")
    no_known = f"{path} has an unknown format, judged by its name and content. Set "
    if content == "folder" and next(path.glob("*.txt"), None):
        raise ValueError(f"{path} holds no matrix. For texts, use shiftsvd.LSA in Python.")
    model = " A model file is passed as MODEL, before FILE." if path.suffix == ".safetensors" else ""
    raise Refused(no_known, Setting("format"), f" to one of {', '.join(formats())}.{model}")


def meant_by(path: Path) -> str:
    """Return a question that names the files whose path without a known suffix is `path`, or an empty text."""
    suffixes = dict.fromkeys(suffix for each in formats().values() for suffix in each.suffixes)
    found = [] if isinstance(path, Location) else [f"{path}{one}" for one in suffixes if Path(f"{path}{one}").is_file()]
    return f"Did you mean {' or '.join(found)}?" if found else ""


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(1 << 16)
    try:
        if raw[:2] == b"\x1f\x8b":
            return zlib.decompressobj(31).decompress(raw, 64)
        return bz2.BZ2Decompressor().decompress(raw, 64) if raw[:3] == b"BZh" else raw[:64]
    except (OSError, EOFError, zlib.error):
        return raw[:64]  # damaged: the reader reports it


def _has_user_block(path: Path) -> bool:
    with path.open("rb") as file:
        for skipped in (512, 1024, 2048, 4096, 8192):
            file.seek(skipped)
            if file.read(8) == b"\x89HDF\r\n\x1a\n":
                return True
    return False
