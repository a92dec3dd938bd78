"""Values as JSON and tensors, and back: numbers, texts, arrays, names, and the frozen values that a file may name.

In JSON, {"tensor": NAME, "order": "C" or "F"} is an array and how it lies in memory. {"texts": NAME} are texts, in
NAME.utf8 and ending at NAME.ends; with "width": "fixed" they are an array of NumPy's texts. {"tuple" or "list": [...]}
are runs of items of one kind, each an array or texts, and {"vectors": [...]} are arrays or indices. {"index": ...,
"name": ...} and {"frame": ..., "rows": ...} are names and named rows of pandas. {"entries": {...}} are values by name,
{"type": T, "fields": {...}} is a frozen value, {"values": [...], "of": "tuple" or "list"} are several, {"ufunc": NAME}
is a function of NumPy, and {"float": "inf"} is what JSON has no number for.
"""

import dataclasses
import math
from collections.abc import Iterable
from importlib import import_module
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import labels
from shiftsvd.model_file.checking import check_type
from shiftsvd.model_file.container import Tensors, listed

# The frozen values that a file may name, and where they live; their fields are checked against their annotations.
VALUES = {
    **dict.fromkeys(("Gaussian", "Rademacher", "SparseSign", "SRFT"), "shiftsvd.sketch"),
    **dict.fromkeys(("BlockLanczos", "Exact", "Gram", "RandomizedSVD", "ShiftedRandomizedSVD"), "shiftsvd.solvers"),
    **dict.fromkeys(("Covariates", "GroupMeans", "LearnedCovariates", "LearnedGroups"), "shiftsvd.shifts"),
    **dict.fromkeys(("Samples", "Variants"), "shiftsvd.genetics.variants"),
    **dict.fromkeys(("PearsonResiduals", "DevianceResiduals", "LogNormalize", "TfIdf", "BM25"), "shiftsvd.transforms"),
    **dict.fromkeys(("PMI", "CLR", "Ranks", "Sqrt", "FreemanTukey", "Anscombe", "Select"), "shiftsvd.transforms"),
    **dict.fromkeys(("Binarize", "Elementwise", "Fitted"), "shiftsvd.transforms"),
    "Smooth": "shiftsvd.transforms.smooth",
    "Design": "shiftsvd.preparation.covariates",
    "Choices": "shiftsvd.io.choices",
    "Info": "shiftsvd.result",
}
# Fields that solvers have in older files: what each is called now, None where it is no setting any more.
OLDER = {"normalizer": "power_iteration_normalizer", "reason": None}
# What the items of a tuple may be, and the arrays that hold runs of them; a truth value is an integer too.
ITEMS = {str: object, bool: np.bool_, int: np.int64, float: np.float64}


def code(value: Any, name: str, tensors: Tensors) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    kind = type(value).__name__
    if kind in VALUES and type(value) is _type(kind):
        fields = {field: code(getattr(value, field), f"{name}.{field}", tensors) for field in _fields(type(value))}
        return {"type": kind, "fields": fields}
    if isinstance(value, np.ufunc):
        return {"ufunc": _name_in_numpy(value, name)}
    if _frozen_values(value):
        coded = [code(one, f"{name}.{number}", tensors) for number, one in enumerate(value)]
        return {"values": coded, "of": type(value).__name__}
    if isinstance(value, dict):
        return {"entries": {key: code(entry, f"{name}.{key}", tensors) for key, entry in value.items()}}
    if type(value).__module__.partition(".")[0] == "pandas":
        return _code_pandas(value, name, tensors)
    if _vectors(value):
        return {"vectors": [code(one, f"{name}.{number}", tensors) for number, one in enumerate(value)]}
    if isinstance(value, tuple) or (isinstance(value, list) and value and all(isinstance(x, str) for x in value)):
        return {"tuple" if isinstance(value, tuple) else "list": _code_runs(value, name, tensors)}
    return _code_array(np.asarray(value), name, tensors, type(value).__name__)


def _frozen_values(value: Any) -> bool:
    kinds = [type(one).__name__ for one in value] if isinstance(value, tuple | list) else []
    return set(kinds) <= {*VALUES, "str"} and not set(kinds) <= {"str"}


def _vectors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(getattr(one, "ndim", 0) == 1 for one in value)


def _code_array(array: npt.NDArray[Any], name: str, tensors: Tensors, kind: str) -> Any:
    if array.ndim == 1 and (array.dtype.kind == "U" or _all_texts(array)):
        texts = [text.encode("utf-8", "surrogatepass") for text in array]
        tensors[f"{name}.utf8"] = np.frombuffer(b"".join(texts), np.uint8)
        tensors[f"{name}.ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return {"texts": name, "width": "fixed"} if array.dtype.kind == "U" else {"texts": name}
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        got = kind if array.dtype.kind == "O" else f"an array of {array.dtype}"
        raise ValueError(f"{name} cannot be stored: it is {got}, not a number, a text, an array or a solver of ours")
    # The product of a panel may round differently in the other order, and a loaded model has the same bits.
    turned = array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])
    # safetensors takes the bytes as they lie: they must be contiguous, little ends first where the machine has them.
    tensors[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return {"tensor": name, "order": "F" if turned else "C"}


def _all_texts(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind == "O" and all(isinstance(text, str) for text in array)


def _code_runs(items: Iterable[Any], name: str, tensors: Tensors) -> list[Any]:
    runs: list[Any] = []
    for kind, run in groupby(items, lambda item: _kind(item, name)):
        try:
            array: npt.NDArray[Any] = np.array([kind(item) for item in run], ITEMS[kind])
        except OverflowError:
            raise ValueError(f"{name} cannot be stored: it holds an integer of more than 64 bits") from None
        runs.append(_code_array(array, f"{name}.{len(runs)}", tensors, kind.__name__))
    return runs


def _kind(item: Any, name: str) -> type[Any]:
    item = item.item() if isinstance(item, np.generic) else item
    for kind in ITEMS:
        if isinstance(item, kind):
            return kind
    raise ValueError(f"{name} cannot be stored: it holds a {type(item).__name__}, where texts and numbers can be")


def _code_pandas(value: Any, name: str, tensors: Tensors) -> Any:
    array = np.asarray(value)
    if array.ndim == 2:
        rows = _code_pandas(value.index, f"{name}.rows", tensors)
        return {"frame": _code_array(array, name, tensors, "a frame"), "rows": rows}
    if array.dtype.kind == "O" and not _all_texts(array):
        raise ValueError(f"{name} cannot be stored: names must be all texts or all numbers, got {value!r:.80}")
    return {"index": _code_array(array, name, tensors, "an index"), "name": code(value.name, f"{name}.name", tensors)}


def text_array(names: Iterable[Any]) -> npt.NDArray[Any]:
    known = list(names)
    strange = [name for name in known if not isinstance(name, str)]
    if strange:
        raise ValueError(f"names of features must be text, got {strange[0]!r}")
    array = np.empty(len(known), object)
    array[:] = [str(name) for name in known]
    return array


# ---- and back


def decode(coded: Any, left: Tensors) -> Any:
    if coded is None or isinstance(coded, bool | int | float | str):
        return coded
    match coded:
        case {"tensor": str(name), "order": "C" | "F" as order, **rest} if not rest:
            return np.asarray(_taken(name, left), order=order)
        case {"texts": str(name), **rest} if not rest:
            return _texts(name, left)
        case {"texts": str(name), "width": "fixed", **rest} if not rest:
            return labels(Path("it"), _texts(name, left), None)
        case {"tuple": list(runs), **rest} if not rest:
            return tuple(_items(runs, left))
        case {"list": list(runs), **rest} if not rest:
            return _items(runs, left)
        case {"vectors": list(vectors), **rest} if not rest:
            return [decode(vector, left) if "index" in vector else _vector(vector, left) for vector in vectors]
        case {"entries": dict(entries), **rest} if not rest:
            return {key: decode(value, left) for key, value in entries.items()}
        case {"index": values, "name": None | bool() | int() | float() | str() as name, **rest} if not rest:
            return _pandas().Index(_vector(values, left), name=name)
        case {"frame": values, "rows": {"index": _} as rows, **rest} if not rest:
            return _pandas().DataFrame(decode(values, left), index=decode(rows, left))
        case {"values": list(values), "of": "tuple" | "list" as kind, **rest} if not rest:
            found = [decode(value, left) for value in values]
            return tuple(found) if kind == "tuple" else found
        case {"ufunc": str(name), **rest} if not rest:
            return _ufunc(name)
        case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case {"type": str(name), "fields": dict(fields), **rest} if not rest:
            return _frozen(name, {field: decode(value, left) for field, value in fields.items()})
    raise ValueError(f"its header is damaged: {coded!r:.80} is no value")


def _taken(name: str, left: Tensors) -> npt.NDArray[Any]:
    if name not in left:
        raise ValueError(f"the tensor {name!r:.80} is missing, or is referred to twice")
    return left.pop(name)


def _texts(name: str, left: Tensors) -> npt.NDArray[Any]:
    utf8, ends = _taken(f"{name}.utf8", left), _taken(f"{name}.ends", left)
    if (utf8.dtype, utf8.ndim, ends.dtype, ends.ndim) != (np.dtype(np.uint8), 1, np.dtype(np.int64), 1):
        raise ValueError("names must be bytes (uint8) and their ends (int64), each a vector")
    starts = [0, *ends.tolist()]
    if starts[-1] != len(utf8) or any(end < start for start, end in pairwise(starts)):
        raise ValueError("the ends of the names must ascend to the number of their bytes")
    content = utf8.tobytes()
    return text_array(content[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(starts))


def _vector(coded: Any, left: Tensors) -> npt.NDArray[Any]:
    array = decode(coded, left)
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        raise ValueError(f"its header is damaged: {coded!r:.80} is no vector")
    return array


def _items(runs: list[Any], left: Tensors) -> list[Any]:
    return [item for run in runs for item in _vector(run, left).tolist()]


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ModuleNotFoundError:
        raise ImportError("this model was fitted to a frame and needs pandas: pip install pandas") from None


def _frozen(name: str, values: dict[str, Any]) -> Any:
    if name not in VALUES:
        raise ValueError(f"{name!r:.80} is none of the types that a model file may name: {', '.join(VALUES)}")
    cls = _type(name)
    if VALUES[name] == "shiftsvd.solvers":
        values = {now: value for field, value in values.items() if (now := OLDER.get(field, field)) is not None}
    if unknown := set(values) - set(_fields(cls)):
        raise ValueError(f"{name} has no field {listed(unknown)}; a newer shiftsvd may have: pip install -U shiftsvd")
    hints = get_type_hints(cls)
    for field, value in values.items():
        check_type(f"{name}.{field}", value, hints[field])
    return cls(**values)


def _name_in_numpy(function: np.ufunc, name: str) -> str:
    own = str(getattr(function, "__name__", ""))
    if getattr(np, own, None) is not function:
        raise ValueError(f"{name} cannot be stored: {function} is none of NumPy's own")
    return own


def _ufunc(name: str) -> np.ufunc:
    found = getattr(np, name, None)
    if not isinstance(found, np.ufunc) or (found.nin, found.nout) != (1, 1):
        raise ValueError(f"{name!r:.80} is no function of NumPy of one number")
    return found


def _type(name: str) -> type[Any]:
    found: type[Any] = getattr(import_module(VALUES[name]), name)
    return found


def _fields(cls: type[Any]) -> tuple[str, ...]:
    if issubclass(cls, tuple):
        return cls._fields  # type: ignore[attr-defined, no-any-return]
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)
