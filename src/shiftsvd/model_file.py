"""Model files: a fitted estimator as tensors under a JSON header, with no code in it that could run."""

import dataclasses
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from inspect import signature
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence

from shiftsvd import sketch, solvers
from shiftsvd.io.opening import reading
from shiftsvd.missing import MISSING
from shiftsvd.outputs import Outputs
from shiftsvd.result import Info
from shiftsvd.solvers import Solver

if TYPE_CHECKING:
    from shiftsvd.estimators.pca import PCA

Tensors = dict[str, npt.NDArray[Any]]
Metadata = dict[str, str]

# The metadata of a file: "format", "version", "kind", three JSON objects ("settings", "fitted", "provenance") and
# "sha256", the checksum of all of it and of the tensors (`_digest`). In the objects {"tensor": NAME, "order": "C" or
# "F"} is an array and how it lies in memory, {"texts": NAME} are texts in NAME.utf8 that end at NAME.ends,
# {"type": T, "fields": {...}} is a frozen value, and {"float": "inf"} is what JSON has no number for.
FORMAT, VERSION = "shiftsvd-model", "1"
# Names are tensors, so a header is small whatever the model; what parsing one can take is bounded by this.
MAX_HEADER = 2**20
TEXTS = ("settings", "fitted", "provenance")

# What kind of model lives where: a class is imported when a file of its kind arrives.
_KINDS = {"PCA": "shiftsvd.estimators.pca"}
# The frozen values that a file may name; their fields are checked against their annotations.
_VALUES: dict[str, type[Any]] = {
    value.__name__: value
    for value in (
        Info,
        *(sketch.Gaussian, sketch.Rademacher, sketch.SparseSign, sketch.SRFT),
        *(solvers.BlockLanczos, solvers.Exact, solvers.Gram, solvers.RandomizedSVD, solvers.ShiftedRandomizedSVD),
    )
}
# Settings whose annotation is Any.
_LOOSE = {
    "random_state": int | np.ndarray | None,
    "scale": bool | str | np.ndarray | None,
    "shift": str | np.ndarray | None,
    "solver": str | Solver,
}
_SPECTRA = ("singular_values_", "explained_variance_", "explained_variance_ratio_")
_FITTED = ("components_", *_SPECTRA, "mean_", "scale_", "noise_variance_", "n_samples_", "info_")
_NAMES = "feature_names_in_"
_RANDOM = (BitGenerator, Generator, RandomState, SeedSequence)


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    names: Sequence[str] | None = None,
    source: str | None = None,
) -> None:
    """Write a fitted model to a file in the safetensors format; the file appears whole or not at all.

    Parameters
    ----------
    model : PCA
        Fitted.
    path : path
    force : bool
        Replace a file of that name.
    names : sequence of str, optional
        Names of the features, in place of the model's `feature_names_in_`.
    source : str, optional
        Where the data came from, for whoever reads the file.

    Raises
    ------
    FileExistsError
        If there is a file of that name, and `force` is false.
    OSError, ValueError
        If the file cannot be written, or holds what a file cannot: a solver that is not one of this package, an
        array of objects. A random generator is not stored, and the file says so.

    Examples
    --------
    >>> import tempfile, shiftsvd as ss
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> pca = ss.PCA(n_components=5, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pca.save(f"{folder}/digits.safetensors")
    ...     again = ss.load(f"{folder}/digits.safetensors")
    >>> bool((again.transform(X) == pca.transform(X)).all())
    True
    """
    path = Path(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; give force=True to replace it, or another name")
    try:
        metadata, tensors = _encoded(model, names, source)
        _decoded(metadata, tensors)  # what is written can be read
    except ValueError as error:
        raise type(error)(f"{path} is not written: {error}") from None
    _write(path, metadata, tensors, force)


def load(path: str | os.PathLike[str]) -> "PCA":
    """Read the model in a file that `PCA.save` wrote: the same attributes, bit for bit.

    Parameters
    ----------
    path : path

    Returns
    -------
    PCA
        Fitted. What `set_output` had set is not in the file.

    Raises
    ------
    ValueError
        If the file is damaged, is not a model, or is of a version that this package does not know. Nothing in
        a file is run, and reading takes memory in proportion to its size.
    OSError
        If it cannot be read.

    Examples
    --------
    See `PCA.save`.
    """
    path = Path(path)
    with reading(path):
        model: PCA = _decoded(*_read(path))
    return model


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file says, as JSON could hold it: kind, settings, fitted numbers, provenance, tensors."""
    path = Path(path)
    with reading(path):
        metadata, tensors = _read(path)
        _decoded(metadata, tensors)
    shapes = {name: {"dtype": tensor.dtype.name, "shape": list(tensor.shape)} for name, tensor in tensors.items()}
    said = {name: json.loads(text) if name in TEXTS else text for name, text in metadata.items()}
    return {**said, "tensors": shapes}


# ---- writing


def _encoded(model: Any, names: Sequence[str] | None, source: str | None) -> tuple[Metadata, Tensors]:
    """The header and the tensors of a fitted model."""
    from sklearn.utils.validation import check_is_fitted

    kind = type(model).__name__
    if type(model).__module__ != _KINDS.get(kind):
        raise ValueError(f"a model file holds a {' or '.join(_KINDS)}, got {kind}")
    check_is_fitted(model, "components_")
    tensors: Tensors = {}
    settings = model.get_params(deep=False)
    if isinstance(model.random_state, _RANDOM):
        settings["random_state"] = None
    fitted = {name: getattr(model, name) for name in _FITTED}
    names = getattr(model, _NAMES, None) if names is None else names
    if names is not None:
        fitted[_NAMES] = _text_array(names)
    texts = {"settings": settings, "fitted": fitted, "provenance": _provenance(model, source)}
    metadata = {"format": FORMAT, "version": VERSION, "kind": kind}
    for text, values in texts.items():
        prefix = "" if text == "fitted" else f"{text}."
        coded = {name: _code(value, prefix + name, tensors) for name, value in values.items()}
        metadata[text] = json.dumps(coded, allow_nan=False)
    if sum(map(len, metadata.values())) > MAX_HEADER // 4:
        raise ValueError(f"its settings take more than {MAX_HEADER // 4} bytes as text; shorten `source` or settings")
    metadata["sha256"] = _digest(metadata, tensors)
    return metadata, tensors


def _provenance(model: Any, source: str | None) -> dict[str, Any]:
    """Where a model comes from."""
    seed = model.random_state
    if isinstance(seed, _RANDOM):
        seed = f"not stored: {type(seed).__name__}"
    return {
        "shiftsvd": _version(),
        "n_samples": model.n_samples_,
        "n_features": model.n_features_in_,
        "seed": seed if isinstance(seed, int | np.integer | str | None) else "in the settings",
        "source": source,
    }


def _code(value: Any, name: str, tensors: Tensors) -> Any:
    """A value as JSON; arrays go to `tensors`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if _VALUES.get(type(value).__name__) is type(value):
        return {
            "type": type(value).__name__,
            "fields": {f.name: _code(getattr(value, f.name), f"{name}.{f.name}", tensors) for f in _fields(value)},
        }
    array = np.asarray(value)
    if array.dtype.kind == "O" and array.ndim == 1:
        return _code_names(array, name, tensors)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        kind = type(value).__name__ if array.dtype.kind == "O" else f"an array of {array.dtype}"
        raise ValueError(f"{name} cannot be stored: it is {kind}, not a number, a text, an array or a solver of ours")
    # The product of a panel may round differently in the other order, and a loaded model has the same bits.
    turned = array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])
    # safetensors takes the bytes as they lie: they must be contiguous, little ends first where the machine has them.
    tensors[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return {"tensor": name, "order": "F" if turned else "C"}


def _code_names(array: npt.NDArray[Any], name: str, tensors: Tensors) -> Any:
    """Texts as two tensors: their bytes in UTF-8, and where each ends."""
    texts = [text.encode("utf-8", "surrogatepass") for text in array]
    tensors[f"{name}.utf8"] = np.frombuffer(b"".join(texts), np.uint8)
    tensors[f"{name}.ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return {"texts": name}


def _text_array(names: Iterable[Any]) -> npt.NDArray[Any]:
    """Names as scikit-learn keeps them."""
    listed = list(names)
    strange = [name for name in listed if not isinstance(name, str)]
    if strange:
        raise ValueError(f"names of features must be text, got {strange[0]!r}")
    array = np.empty(len(listed), object)
    array[:] = [str(name) for name in listed]
    return array


def _write(path: Path, metadata: Metadata, tensors: Tensors, force: bool) -> None:
    """The file under another name first, safe on the disk, then under its own."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: no such folder as {path.parent}")
    try:
        with Outputs([path], force) as outputs:
            part = outputs.part(path)
            part.touch()
            mode = part.stat().st_mode  # as any file of this user's; safetensors makes files for the owner alone
            save_file(tensors, part, metadata)
            part.chmod(mode)
    except (OSError, SafetensorError) as error:
        if isinstance(error, FileExistsError):
            raise
        raise OSError(f"{path} cannot be written: {error}") from error


# ---- reading


def _read(path: Path) -> tuple[Metadata, Tensors]:
    """The header and the tensors of a file, once the header is known to be sane."""
    from safetensors import SafetensorError, safe_open

    _check_header(path)
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            _check_version(metadata)
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"it is damaged, or no model file: {error}") from None


def _check_header(path: Path) -> None:
    """Refuse what safetensors would take: long headers, names that appear twice, pipes that never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MAX_HEADER:
            raise ValueError(f"it is no model file: a header of {size} bytes, where {MAX_HEADER} is the most")
        _parsed(file.read(size).decode())


def _check_version(metadata: Metadata) -> None:
    """Refuse files of others, and of versions to come."""
    if metadata.get("format") != FORMAT:
        raise ValueError(f"it is no model file: its format is {metadata.get('format')!r:.80}, not {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"it is a model file of version {metadata.get('version')!r:.80}, and shiftsvd {_version()} reads version "
            f"{VERSION!r}; update with pip install -U shiftsvd"
        )


def _parsed(text: str) -> dict[str, Any]:
    """A JSON object, with no name twice and no number that is none."""
    parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    if not isinstance(parsed, dict):
        raise ValueError(f"its header is damaged: an object is wanted, got {text!r:.80}")
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header is damaged: a name appears twice")
    return found


def _no_constant(name: str) -> None:
    """NaN and Infinity, which are not JSON."""
    raise ValueError(f"its header is damaged: {name} is not a number")


def _decoded(metadata: Metadata, tensors: Tensors) -> Any:
    """The model that a header and tensors describe, everything checked."""
    wanted = {"format", "version", "kind", "sha256", *TEXTS}
    if set(metadata) != wanted:
        raise ValueError(f"its header must hold {', '.join(sorted(wanted))}, got {_listed(metadata)}")
    if metadata["sha256"] != _digest(metadata, tensors):
        raise ValueError("it is damaged: its content does not have the checksum that it states")
    left = dict(tensors)
    said = {text: {n: _value(v, left) for n, v in _parsed(metadata[text]).items()} for text in TEXTS}
    if left:
        raise ValueError(f"it holds tensors that nothing refers to: {_listed(left)}")
    if metadata["kind"] not in _KINDS:
        raise ValueError(f"it holds a {metadata['kind']!r:.80}, which must be one of: {', '.join(_KINDS)}")
    cls = getattr(import_module(_KINDS[metadata["kind"]]), metadata["kind"])
    _check_settings(cls, said["settings"])
    _check_fitted(said["fitted"])
    model = cls(**said["settings"])
    for name, value in said["fitted"].items():
        setattr(model, name, value)
    model.n_components_, model.n_features_in_ = model.components_.shape
    return model


def _value(coded: Any, left: Tensors) -> Any:
    """The value that was coded as JSON; its tensors are taken out of `left`."""
    if coded is None or isinstance(coded, bool | int | float | str):
        return coded
    match coded:
        case {"tensor": str(name), "order": "C" | "F" as order, **rest} if not rest:
            return np.asarray(_taken(name, left), order=order)
        case {"texts": str(name), **rest} if not rest:
            return _names(_taken(f"{name}.utf8", left), _taken(f"{name}.ends", left))
        case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case {"type": str(name), "fields": dict(fields), **rest} if not rest:
            return _frozen(name, {field: _value(value, left) for field, value in fields.items()})
    raise ValueError(f"its header is damaged: {coded!r:.80} is no value")


def _taken(name: str, left: Tensors) -> npt.NDArray[Any]:
    """A tensor, which nothing else may refer to."""
    if name not in left:
        raise ValueError(f"the tensor {name!r:.80} is missing, or is referred to twice")
    return left.pop(name)


def _names(utf8: npt.NDArray[Any], ends: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Texts from their bytes and where each ends."""
    if (utf8.dtype, utf8.ndim, ends.dtype, ends.ndim) != (np.dtype(np.uint8), 1, np.dtype(np.int64), 1):
        raise ValueError("names must be bytes (uint8) and their ends (int64), each a vector")
    starts = [0, *ends.tolist()]
    if starts[-1] != len(utf8) or any(end < start for start, end in pairwise(starts)):
        raise ValueError("the ends of the names must ascend to the number of their bytes")
    content = utf8.tobytes()
    return _text_array(content[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(starts))


def _frozen(name: str, values: dict[str, Any]) -> Any:
    """A solver, a sketch, or an account of a solver."""
    if name not in _VALUES:
        raise ValueError(f"{name!r:.80} is none of the types that a model file may name: {', '.join(_VALUES)}")
    cls = _VALUES[name]
    known = {field.name for field in _fields(cls)}
    if unknown := set(values) - known:
        raise ValueError(f"{name} has no field {_listed(unknown)}; a newer shiftsvd may have: pip install -U shiftsvd")
    hints = get_type_hints(cls)
    for field, value in values.items():
        _check_type(f"{name}.{field}", value, hints[field])
    return cls(**values)


def _check_settings(cls: type[Any], settings: Mapping[str, Any]) -> None:
    """Settings are parameters of the class, of the types that it takes."""
    if unknown := set(settings) - set(signature(cls).parameters):
        raise ValueError(f"{cls.__name__} has no setting {_listed(unknown)}; a newer shiftsvd may have: update it")
    hints = {**get_type_hints(cls.__init__), **_LOOSE}
    for name, value in settings.items():
        _check_type(name, value, hints[name])
        _check_finite(name, value)
    missing, unobserved = settings.get("missing", "error"), settings.get("unobserved", False)
    if missing not in MISSING or (unobserved and missing == "error"):
        raise ValueError(f"missing={missing!r} with unobserved={unobserved!r} is no way to treat missing entries")
    if isinstance(settings.get("solver"), Solver):
        _check_finite("solver.start", getattr(settings["solver"], "start", None))


def _check_fitted(fitted: Mapping[str, Any]) -> None:
    """Fitted attributes are complete, finite, and agree with each other."""
    if missing := set(_FITTED) - set(fitted):
        raise ValueError(f"the fitted {_listed(missing)} is missing")
    if unknown := set(fitted) - {*_FITTED, _NAMES}:
        raise ValueError(f"it has the unknown fitted {_listed(unknown)}; a newer shiftsvd may know: update it")
    V = fitted["components_"]
    if not isinstance(V, np.ndarray) or V.ndim != 2 or V.dtype not in (np.float32, np.float64):
        raise ValueError("components_ must be a matrix of float32 or float64")
    k, n = V.shape
    _check_array("components_", V, V.dtype, (k, n))
    for name in _SPECTRA:
        _check_array(name, fitted[name], V.dtype, (k,), least=0.0)
    _check_array("mean_", fitted["mean_"], np.dtype(np.float64), (n,))
    if fitted["scale_"] is not None:
        _check_array("scale_", fitted["scale_"], np.dtype(np.float64), (n,), least=np.nextafter(0.0, 1.0))
    if _NAMES in fitted:
        _check_array(_NAMES, fitted[_NAMES], np.dtype(object), (n,))
    noise, m, info = fitted["noise_variance_"], fitted["n_samples_"], fitted["info_"]
    if not isinstance(noise, float) or not 0 <= noise < math.inf:
        raise ValueError(f"noise_variance_ must be a number of at least 0, got {noise!r:.80}")
    if isinstance(m, bool) or not isinstance(m, int) or m < 1:
        raise ValueError(f"n_samples_ must be a positive integer, got {m!r:.80}")
    _check_type("info_", info, Info)
    for known in (info.residuals, info.value_errors):
        if known is not None and known.shape != (max(k, 1),):
            raise ValueError(f"info_ must have one residual and value error for each of {k} components")


def _check_array(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], least: float = -math.inf) -> None:
    """An array of this type and shape, finite, with no entry below `least`."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else f"{array!r:.80}"
        raise ValueError(f"{name} must be an array of {dtype} and shape {shape}, got {got}")
    _check_finite(name, array)
    if dtype.kind == "f" and np.any(array < least):
        raise ValueError(f"{name} must not be {'negative' if least == 0 else 'below the least positive number'}")


def _check_finite(name: str, value: Any) -> None:
    """No NaN and no infinity in an array of numbers."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(value)).sum())} NaN or infinite entries")


def _check_type(name: str, value: Any, hint: Any) -> None:
    """A value of the annotated type."""
    if not _is(value, hint):
        wanted = getattr(hint, "__name__", None) or str(hint)
        raise ValueError(f"{name} must be {wanted}, got {value!r:.80}")


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; where a number may be real, it may be an integer."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_is(value, part) for part in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint is Any:
        return not isinstance(value, np.ndarray | Info)
    if hint is float:
        return isinstance(value, float | int)
    return isinstance(value, origin or hint)


# ---- both


def _digest(metadata: Metadata, tensors: Tensors) -> str:
    """A checksum of all texts, and of the name, type, shape and bytes of all tensors."""
    digest = sha256()
    for name in sorted(set(metadata) - {"sha256"}):
        digest.update(f"{name}={metadata[name]}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.name} {list(tensor.shape)}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data.cast("B") if tensor.size else b"")
    return digest.hexdigest()


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    """What a frozen value is made with."""
    return tuple(field for field in dataclasses.fields(value) if field.init)


def _listed(names: Iterable[str]) -> str:
    """Some names for a message."""
    ordered = sorted(names)
    return ", ".join(f"{name!r:.80}" for name in ordered[:5]) + (" ..." if len(ordered) > 5 else "")


def _version() -> str:
    """Of this package."""
    return import_module("importlib.metadata").version("shiftsvd")  # type: ignore[no-any-return]
