"""Read and write safetensors files, completely or not at all; encode values as JSON and tensors, and decode them.

JSON encodes {"tensor": NAME, "order": "C" or "F"} for an array and its memory order; {"texts": NAME} for texts, with
their bytes in NAME.utf8 and the end of each text in NAME.ends ("width": "fixed" for a NumPy array of type str);
{"tuple" or "list": [...]} for runs of items of one type, each an array or texts; {"vectors": [...]} for arrays or
indices; {"index": ..., "name": ...} for an index of pandas and {"frame": ..., "rows": ...} for a frame; {"entries":
{...}} for a dict; {"type": T, "fields": {...}} for a frozen dataclass, and {"values": [...], "of": "tuple" or "list"}
for several; {"ufunc": NAME} for a function of NumPy; and {"float": "inf"} for numbers that JSON does not have.
"""

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from inspect import isroutine
from itertools import groupby
from math import prod
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import damaged
from shiftsvd.io.base import labels
from shiftsvd.model_file.kinds import arguments, check_type, class_of, values
from shiftsvd.runs.outputs import Outputs

Tensors = dict[str, npt.NDArray[Any]]
Metadata = dict[str, str]

FORMAT, VERSION = "shiftsvd-model", "1"
# Limit of the size of a header, and so of the memory for parsing it. Names are stored as tensors, so headers are small.
MAX_HEADER: Final = 2**20
UPDATE: Final = "pip install -U shiftsvd"
# In the order of the tensors in a file, as the package safetensors writes them: numbers of 8 bytes first, aligned.
_NUMBERS: Final = ("U64", "I64", "F64", "F32", "U32", "I32", "F16", "U16", "I16", "I8", "U8")
_DTYPES: Final = {code: np.dtype(f"<{code[0].lower()}{int(code[1:]) // 8}") for code in _NUMBERS} | {
    "BOOL": np.dtype(bool)
}


def write(path: Path, metadata: Metadata, tensors: Tensors, force: bool) -> None:
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    order = sorted(tensors, key=lambda name: ([*codes].index(_little(tensors[name])), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": codes[_little(tensor)], "shape": tensor.shape, "data_offsets": (begin, end)}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with Outputs([path], force) as outputs, outputs.part(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(_bytes(tensors[name]) for name in order)


def _little(tensor: npt.NDArray[Any]) -> np.dtype[Any]:
    return tensor.dtype.newbyteorder("<")


def _bytes(tensor: npt.NDArray[Any]) -> memoryview:
    return np.asarray(tensor, _little(tensor), order="C").reshape(-1).view(np.uint8).data


def read(path: Path) -> tuple[Metadata, Tensors]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise _no_model("not a regular file")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MAX_HEADER:
            raise _no_model("not a model file")
        _check_length(file, 8 + size)
        try:
            header = json.loads(file.read(size))
            metadata = header.pop("__metadata__", {})
            _check_version(metadata)
            return metadata, dict(_tensors(file, header))
        except (AttributeError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
            raise _no_model("damaged, or not a model file") from None


def _no_model(what: str) -> ValueError:
    return ValueError(f"{what}. Pass a file that save_model or `shiftsvd fit` wrote.")


def unknown(what: str) -> ValueError:
    return ValueError(f"{what}. A newer shiftsvd may have it: {UPDATE}")


def _tensors(file: IO[bytes], header: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    start = end = file.tell()
    for name, said in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = _DTYPES[said["dtype"]], said["shape"]
        begin, end = end, end + dtype.itemsize * prod(shape)
        if said["data_offsets"] != [begin - start, end - start] or min(shape, default=0) < 0:
            raise damaged("the file", f"wrong offsets of {name!r:.80}, whose shape is {shape!r:.80}")
        _check_length(file, end)  # each time, since the file may be truncated meanwhile
        values = np.fromfile(file, dtype, prod(shape))
        yield name, values.astype(dtype.newbyteorder("="), copy=False).reshape(shape)
    if end != os.fstat(file.fileno()).st_size:
        raise damaged("the file", "it has bytes after the last tensor")


def _check_length(file: IO[bytes], least: int) -> None:
    there = os.fstat(file.fileno()).st_size
    if there == 0:
        raise ValueError("the file is empty. Copy it again.")
    if there < least:
        raise damaged("the file", f"truncated to {there:,} of at least {least:,} bytes")


def _check_version(metadata: Metadata) -> None:
    if metadata.get("format") != FORMAT:
        raise _no_model(f"not a model file of shiftsvd: its format is {metadata.get('format')!r:.80}")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"the model file has version {metadata.get('version')!r:.80}, but shiftsvd {version('shiftsvd')} reads "
            f"version {VERSION!r}. Update with: {UPDATE}"
        )


def digest(metadata: Metadata, tensors: Tensors) -> str:
    summed = sha256()
    for name in sorted(set(metadata) - {"sha256"}):
        summed.update(f"{name}={metadata[name]}\n".encode())
    for name in sorted(tensors):
        summed.update(f"{name} {tensors[name].dtype.name} {list(tensors[name].shape)}\n".encode())
        summed.update(_bytes(tensors[name]))
    return summed.hexdigest()


def listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(f"{name!r:.80}" for name in ordered[:5]) + (" ..." if len(ordered) > 5 else "")


# ---- Encode values as JSON and tensors, and decode them: numbers, texts, arrays, names, and frozen dataclasses

# Fields of solvers in older files: the current name, or None for fields that were removed.
OLDER: Final = {"normalizer": "power_iteration_normalizer", "reason": None}
# What to do instead of passing a function to LSA.
_JOINED: Final = r'Join the tokens of each text by blanks, and pass these texts with token_pattern=r"\S+"'
INSTEAD: Final = {
    "preprocessor": "Apply the function before the fit, and pass the texts that it returns with lowercase=False",
    "tokenizer": f"{_JOINED} instead of tokenizer",
    "analyzer": f"{_JOINED} and lowercase=False instead of analyzer",
}
# Types of items, and of the arrays that hold runs of them; bool before int, since True is an int.
ITEMS: Final = {str: object, bool: np.bool_, int: np.int64, float: np.float64}


def _unstorable(name: str, why: str) -> ValueError:
    return ValueError(f"{name} cannot be stored: {why}")


def code(value: Any, name: str, tensors: Tensors) -> Any:
    kind = type(value).__name__
    value = value.item() if isinstance(value, np.bool_ | np.integer) else value
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if kind in values() and type(value) is class_of(kind):
        found = {field: getattr(value, field) for field in arguments(kind)}
        return {"type": kind, "fields": _code_entries(found, name, tensors)}
    if isinstance(value, np.ufunc) and getattr(np, own := str(value.__name__), None) is value:
        return {"ufunc": own}
    if isinstance(value, dict):
        return {"entries": _code_entries(value, name, tensors)}
    if type(value).__module__.partition(".")[0] == "pandas":
        return _code_pandas(value, name, tensors)
    if isinstance(value, tuple | list) and (coded := _code_items(value, name, tensors)):
        return coded
    setting = name.rpartition(".")[2]
    if isroutine(value) or setting in INSTEAD:
        kind += f". {INSTEAD.get(setting, 'Apply the function before the fit, and pass what it returns')}"
    return _code_array(np.asarray(value), name, tensors, kind)


def _code_entries(entries: dict[str, Any], name: str, tensors: Tensors) -> dict[str, Any]:
    return {key: code(entry, f"{name}.{key}", tensors) for key, entry in entries.items()}


def _code_items(items: tuple[Any, ...] | list[Any], name: str, tensors: Tensors) -> dict[str, Any] | None:
    """Return the code of a tuple, or of a list of frozen values, vectors or texts; None for other lists."""
    kind = "tuple" if isinstance(items, tuple) else "list"
    numbered = {str(number): one for number, one in enumerate(items)}
    if any(type(one).__name__ in values() for one in items):
        return {"values": [*_code_entries(numbered, name, tensors).values()], "of": kind}
    if kind == "list" and items and all(getattr(one, "ndim", 0) == 1 for one in items):
        return {"vectors": [*_code_entries(numbered, name, tensors).values()]}
    if kind == "tuple" or (items and all(isinstance(one, str) for one in items)):
        return {kind: _code_runs(items, name, tensors)}
    return None


def _code_array(array: npt.NDArray[Any], name: str, tensors: Tensors, kind: str) -> Any:
    if array.ndim == 1 and (array.dtype.kind == "U" or _all_texts(array)):
        texts = [text.encode("utf-8", "surrogatepass") for text in array]
        tensors[f"{name}.utf8"] = np.frombuffer(b"".join(texts), np.uint8)
        tensors[f"{name}.ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return {"texts": name, "width": "fixed"} if array.dtype.kind == "U" else {"texts": name}
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        got = kind if array.dtype.kind == "O" else f"an array of {array.dtype}"
        raise _unstorable(name, f"it must be a number, a text, an array or a solver of shiftsvd, got {got}")
    # Keep the memory order: products may round differently in the other order, and a loaded model has the same bits.
    turned = array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])
    tensors[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return {"tensor": name, "order": "F" if turned else "C"}


def _all_texts(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind == "O" and all(issubclass(kind, str) for kind in set(map(type, array)))


def _code_runs(items: Iterable[Any], name: str, tensors: Tensors) -> list[Any]:
    runs: list[Any] = []
    for kind, run in groupby(items, lambda item: _kind(item, name)):
        try:
            array: npt.NDArray[Any] = np.array([kind(item) for item in run], ITEMS[kind])
        except OverflowError:
            raise _unstorable(name, "it holds an integer of more than 64 bits") from None
        runs.append(_code_array(array, f"{name}.{len(runs)}", tensors, kind.__name__))
    return runs


def _kind(item: Any, name: str) -> type[Any]:
    item = item.item() if isinstance(item, np.generic) else item
    for kind in ITEMS:
        if isinstance(item, kind):
            return kind
    raise _unstorable(name, f"its items must be texts or numbers, got {type(item).__name__}")


def _code_pandas(value: Any, name: str, tensors: Tensors) -> Any:
    array = np.asarray(value)
    if array.ndim == 2:
        rows = _code_pandas(value.index, f"{name}.rows", tensors)
        return {"frame": _code_array(array, name, tensors, "a frame"), "rows": rows}
    if array.dtype.kind == "O" and not _all_texts(array):
        raise _unstorable(name, f"names must be all texts or all numbers, got {value!r:.80}")
    return {"index": _code_array(array, name, tensors, "an index"), "name": code(value.name, f"{name}.name", tensors)}


# ---- and back


_OF: Final[dict[str, type[Any]]] = {"tuple": tuple, "list": list}


def decode(coded: Any, left: Tensors) -> Any:
    if coded is None or isinstance(coded, bool | int | float | str):
        return coded
    match sorted(coded.items()) if isinstance(coded, dict) else None:
        case [("order", "C" | "F" as order), ("tensor", str(name))]:
            return np.asarray(_pop(name, left), order=order)
        case [("texts", str(name))]:
            return _texts(name, left)
        case [("texts", str(name)), ("width", "fixed")]:
            return labels(Path("it"), _texts(name, left), None)
        case [("tuple" | "list" as kind, list(runs))]:
            return _OF[kind](item for run in runs for item in _vector(run, left).tolist())
        case [("vectors", list(vectors))]:
            return [decode(vector, left) if "index" in vector else _vector(vector, left) for vector in vectors]
        case [("entries", dict(entries))]:
            return {key: decode(value, left) for key, value in entries.items()}
        case [("index", index), ("name", None | bool() | int() | float() | str() as name)]:
            return _pandas().Index(_vector(index, left), name=name)
        case [("frame", frame), ("rows", {"index": _} as rows)]:
            return _pandas().DataFrame(decode(frame, left), index=decode(rows, left))
        case [("of", "tuple" | "list" as kind), ("values", list(several))]:
            return _OF[kind](decode(value, left) for value in several)
        case [("ufunc", str(name))]:
            return _ufunc(name)
        case [("float", "inf" | "-inf" | "nan" as text)]:
            return float(text)
        case [("fields", dict(fields)), ("type", str(name))]:
            return _frozen(name, {field: decode(value, left) for field, value in fields.items()})
    raise damaged("the header", f"{coded!r:.80} does not encode a value")


def _pop(name: str, left: Tensors) -> npt.NDArray[Any]:
    if name not in left:
        raise damaged("the file", f"the tensor {name!r:.80} is missing, or the header refers to it twice")
    return left.pop(name)


def _texts(name: str, left: Tensors) -> npt.NDArray[Any]:
    utf8, ends = _pop(f"{name}.utf8", left), _pop(f"{name}.ends", left)
    if (utf8.dtype, utf8.ndim, ends.dtype, ends.ndim) != (np.dtype(np.uint8), 1, np.dtype(np.int64), 1):
        raise damaged("the file", "texts must be a vector of bytes (uint8) and a vector of their ends (int64)")
    starts, content = np.append(0, ends)[:-1], utf8.tobytes()
    if np.append(0, ends)[-1] != len(utf8) or np.any(ends < starts):
        raise damaged("the file", "the ends of texts must be ascending, the last one the number of bytes")
    cuts = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([content[start:end].decode("utf-8", "surrogatepass") for start, end in cuts], object)


def _vector(coded: Any, left: Tensors) -> npt.NDArray[Any]:
    array = decode(coded, left)
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        raise damaged("the header", f"{coded!r:.80} does not encode a vector")
    return array


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ModuleNotFoundError:
        raise ImportError(
            "The model was fitted to a data frame and needs pandas. Install it with: pip install pandas"
        ) from None


def _ufunc(name: str) -> np.ufunc:
    found = getattr(np, name, None)
    if not isinstance(found, np.ufunc) or (found.nin, found.nout) != (1, 1):
        raise ValueError(f"{name!r:.80} is not a NumPy function (ufunc) of one argument")
    return found


def _frozen(name: str, found: dict[str, Any]) -> Any:
    if name not in values():
        raise unknown(f"{name!r:.80} is not a type that model files may hold")
    cls = class_of(name)
    if values()[name].module == "shiftsvd.solvers":
        found = {now: value for field, value in found.items() if (now := OLDER.get(field, field)) is not None}
    hints = arguments(name)
    if others := set(found) - set(hints):
        raise unknown(f"{name} has no field {listed(others)}")
    for field, value in found.items():
        check_type(f"{name}.{field}", value, hints[field])
    return cls(**found)
