"""Model files: a fitted estimator as tensors with a JSON header, without executable code."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, overload

import numpy as np
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence

from shiftsvd.errors import Refused, Setting, damaged
from shiftsvd.io.base import reading
from shiftsvd.model_file import coding
from shiftsvd.model_file.kinds import ByName, Kind, Sizes, arguments, check_finite, check_type, class_of, kinds
from shiftsvd.result import Info
from shiftsvd.runs.messages import warn
from shiftsvd.runs.outputs import local, refuse

if TYPE_CHECKING:
    import shiftsvd as ss

    # MultipleCorrespondenceAnalysis is a CorrespondenceAnalysis. A model of an extension has its type by `kind`.
    Table: TypeAlias = ss.CorrespondenceAnalysis | ss.FAMD | ss.PCoA | ss.SpectralEmbedding | ss.DiffusionMap
    Stored: TypeAlias = ss.PCA | ss.IncrementalPCA | ss.ContrastivePCA | ss.TruncatedSVD | ss.LSA | Table

Model = TypeVar("Model")

# The metadata of a file: "format", "version", "kind", three JSON objects ("settings", "fitted", "provenance") whose
# values are coded as `shiftsvd.model_file.coding` says, and "sha256", the checksum of all of it and of the tensors.
TEXTS: Final = ("settings", "fitted", "provenance")
PARTS: Final = {"kind", "settings", "fitted"}  # of a model within a model
NAMES: Final = "feature_names_in_"
RANDOM: Final = (BitGenerator, Generator, RandomState, SeedSequence)  # not stored


def save_model(
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
    model : estimator of this package, or of an extension
        Fitted: any of the estimators.
    path : path
        The file, which appears when it is complete.
    force : bool
        Replace an existing file.
    names : sequence of str, optional
        Names of the features, in place of the model's `feature_names_in_`.
    source : str, optional
        Where the data came from, as a note in the file.

    Raises
    ------
    FileExistsError
        If the file exists, and `force` is false.
    OSError, ValueError
        If the file cannot be written, or the model has a value that cannot be stored: a solver that is not one of this
        package, a function, names that are neither texts nor numbers. A random generator is replaced by a note.

    See Also
    --------
    load_model : Read the file.

    Examples
    --------
    >>> import tempfile, shiftsvd as ss
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> pca = ss.PCA(n_components=5, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pca.save(f"{folder}/digits.safetensors")  # or shiftsvd.save_model(pca, ...)
    ...     again = ss.load_model(f"{folder}/digits.safetensors")
    >>> bool((again.transform(X) == pca.transform(X)).all())
    True
    """
    path = local(path)
    refuse([path], force)
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: the folder {path.parent} does not exist. Create it first.")
    try:
        metadata, tensors = _encoded(model, names, source)
        _decoded(metadata, tensors)  # write only files that can be read
    except Refused as error:
        raise error.after(f"{path} was not written: ") from None
    except ValueError as error:
        raise type(error)(f"{path} was not written: {error}") from None
    coding.write(path, metadata, tensors, force)


@overload
def load_model(path: str | os.PathLike[str]) -> "Stored": ...


@overload
def load_model(path: str | os.PathLike[str], kind: type[Model]) -> Model: ...


@overload
def load_model(path: str | os.PathLike[str], kind: type[Any] | tuple[type[Any], ...]) -> Any: ...


def load_model(path: str | os.PathLike[str], kind: type[Any] | tuple[type[Any], ...] = object) -> Any:
    """Read the model in a file that `save_model` wrote: the same attributes, bit for bit.

    Parameters
    ----------
    path : path
        A file that `save_model` wrote.
    kind : type or tuple of types, optional
        The class of the model, or the classes that are accepted.

    Returns
    -------
    estimator, or model of an extension
        The fitted model, of the class that was saved. The file has neither the output format of `set_output` nor the
        stream of batches of a PCA or IncrementalPCA: the next `partial_fit` starts a new stream, as a warning says.

    Raises
    ------
    ValueError
        If the file is damaged, is not a model file, holds a model of another class, or has a version that this package
        does not know. Reading executes no code from the file, and takes memory in proportion to its size.
    OSError
        If the file cannot be read.
    ImportError
        If the model was fitted to a pandas frame, and pandas is not installed.

    See Also
    --------
    save_model : Write the file.

    Examples
    --------
    See `save_model`.
    """
    path = Path(path)
    with reading(path):
        model = _decoded(*coding.read(path))
        if not isinstance(model, kind):
            classes = [cls for cls in map(class_of, kinds()) if issubclass(cls, kind)]
            wanted = " or ".join(cls.__name__ for cls in classes if not {*cls.__mro__[1:]} & {*classes})
            got = type(model).__name__
            raise Refused(f"the model must be {wanted}, got {got}, which {got}.load reads in Python")
    if hasattr(model, "unseen_variance_"):
        warn(
            f"{path} holds the components of partial_fit, but not its stream of batches. The next partial_fit starts a "
            "new stream; refine and merge_pca are not available. To continue a stream later, keep the estimator with "
            "pickle.",
        )
    return model


def describe(path: str | os.PathLike[str]) -> ByName:
    path = Path(path)
    with reading(path):
        metadata, tensors = coding.read(path)
        _decoded(metadata, tensors)
    shapes = {name: {"dtype": tensor.dtype.name, "shape": list(tensor.shape)} for name, tensor in tensors.items()}
    content = {name: json.loads(text) if name in TEXTS else text for name, text in metadata.items()}
    return {**content, "tensors": shapes}


def _encoded(model: Any, names: Sequence[str] | None, source: str | None) -> tuple[coding.Metadata, coding.Tensors]:
    parts, sizes = _parts(model)
    if names is not None:
        parts["fitted"][NAMES] = _given_names(names, parts["kind"])
    parts["provenance"] = {
        "shiftsvd": version("shiftsvd"),
        "n_samples": sizes.get("m"),
        "n_features": getattr(model, "n_features_in_", sizes.get("n")),
        "seed": _seed(getattr(model, "random_state", None)),
        "source": source,
    }
    tensors: coding.Tensors = {}
    metadata = {"format": coding.FORMAT, "version": coding.VERSION, "kind": parts["kind"]}
    for text in TEXTS:
        prefix = "" if text == "fitted" else f"{text}."
        coded = {name: coding.code(value, prefix + name, tensors) for name, value in parts[text].items()}
        metadata[text] = json.dumps(coded, allow_nan=False)
    if sum(map(len, metadata.values())) > coding.MAX_HEADER // 4:
        large = f"the settings take more than {coding.MAX_HEADER // 4:,} bytes as text. Shorten "
        raise Refused(large, Setting("source"), " or the settings.")
    metadata["sha256"] = coding.digest(metadata, tensors)
    return metadata, tensors


def _given_names(names: Sequence[str], kind: str) -> Any:
    if NAMES not in kinds()[kind].sometimes:
        raise Refused(Setting("names"), f" must be None for {kind}, which has no feature names, got {names!r:.80}")
    if strange := [name for name in names if not isinstance(name, str)]:
        raise Refused(Setting("names"), f" must be texts, got {strange[0]!r}. Convert the names with str.")
    return np.array([*names], object)


def _seed(seed: Any) -> Any:
    if isinstance(seed, RANDOM):
        return f"not stored: {type(seed).__name__}"
    return seed if isinstance(seed, int | np.integer | str | None) else "in the settings"


def _parts(model: Any) -> tuple[ByName, Sizes]:
    name = type(model).__name__
    if name not in kinds() or type(model) is not class_of(name):
        raise ValueError(f"the model must be one of {', '.join(kinds())}, got {type(model).__module__}.{name}")
    kind = kinds()[name]
    there = [name for name in kind.sometimes if getattr(model, name, None) is not None]
    settings = _settings(model, next(iter(kind.fitted)))
    fitted = kind.taken(model, [*kind.fitted, *there])
    sizes = _check_fitted(kind, fitted)
    return {"kind": name, "settings": settings, "fitted": {name: _part(one) for name, one in fitted.items()}}, sizes


def _part(value: Any) -> Any:
    if isinstance(value, Info):  # the same fit gives the same file
        return replace(value, seconds=None, peak_bytes=None)
    return _parts(value)[0] if type(value).__name__ in kinds() else value


def _settings(model: Any, attribute: str) -> ByName:
    if not hasattr(model, "get_params"):
        return {}
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, attribute)
    settings: ByName = model.get_params(deep=False)
    return {name: None if isinstance(value, RANDOM) else value for name, value in settings.items()}


def _decoded(metadata: coding.Metadata, tensors: coding.Tensors) -> Any:
    wanted = {"format", "version", "kind", "sha256", *TEXTS}
    if set(metadata) != wanted:
        wants = ", ".join(sorted(wanted))
        raise damaged("the file", f"its header must have the entries {wants}, got {coding.listed(metadata)}")
    if metadata["sha256"] != coding.digest(metadata, tensors):
        raise damaged("the file", "wrong checksum")
    left = dict(tensors)
    try:
        said = {text: coding.decode({"entries": json.loads(metadata[text])}, left) for text in TEXTS}
        if left:
            raise damaged("the file", f"its header does not refer to the tensors {coding.listed(left)}")
        return _restored(metadata["kind"], said["settings"], said["fitted"])
    except Refused as error:  # a setting in the file, not one of its reader
        raise ValueError(str(error)) from None


def _restored(kind: str, settings: ByName, fitted: ByName) -> Any:
    if kind not in kinds():
        raise ValueError(f"the model must be one of {', '.join(kinds())}, got {kind!r:.80}")
    for name, value in fitted.items():
        if isinstance(value, dict) and set(value) == PARTS:
            fitted[name] = _restored(**value)
    cls, its = class_of(kind), kinds()[kind]
    _check_settings(kind, settings)
    sizes = _check_fitted(its, fitted)
    fitted |= {attribute: sizes[letter] for attribute, letter in its.sizes.items()}
    its.agree(settings, fitted)
    return its.made(cls, settings, fitted)


def _check_settings(kind: str, settings: ByName) -> None:
    hints = arguments(kind) if hasattr(class_of(kind), "get_params") else {}
    if others := set(settings) - set(hints):
        raise coding.unknown(f"{kind} has no setting {coding.listed(others)}")
    for name, value in settings.items():
        check_type(name, value, hints[name], any_text=True)  # estimators validate names of options when they use them
        if isinstance(value, np.ndarray | tuple):
            check_finite(name, value)
    check_finite("solver.start", getattr(settings.get("solver"), "start", None))


def _check_fitted(kind: Kind, fitted: ByName) -> Sizes:
    if missing := set(kind.fitted) - set(fitted):
        raise damaged("the file", f"it lacks the fitted attributes {coding.listed(missing)}")
    checks = {**kind.fitted, **kind.sometimes}
    if others := set(fitted) - set(checks):
        raise coding.unknown(f"the file has unknown fitted attributes: {coding.listed(others)}")
    sizes: Sizes = {}
    for name, check in checks.items():
        if name in fitted:
            check(name, fitted[name], sizes)
    return sizes
