"""Model files: a fitted estimator as tensors under a JSON header, with no code in it that could run."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import numpy as np

from shiftsvd.errors import Refused
from shiftsvd.io.base import reading
from shiftsvd.model_file.coding import code, decode, text_array
from shiftsvd.model_file.container import (
    FORMAT,
    MAX_HEADER,
    VERSION,
    Metadata,
    Tensors,
    digest,
    listed,
    own_version,
    parsed,
    read,
    write,
)
from shiftsvd.model_file.kinds import KINDS, kind_class
from shiftsvd.model_file.models import RANDOM, parts, restored
from shiftsvd.runs.messages import warn
from shiftsvd.runs.outputs import refuse

if TYPE_CHECKING:
    from shiftsvd.estimators.batches import IncrementalPCA
    from shiftsvd.estimators.correspondence import CorrespondenceAnalysis
    from shiftsvd.estimators.lsa import LSA
    from shiftsvd.estimators.pca import PCA
    from shiftsvd.estimators.pcoa import PCoA
    from shiftsvd.estimators.truncated import TruncatedSVD
    from shiftsvd.genetics import GenotypePCA

    # MultipleCorrespondenceAnalysis is a CorrespondenceAnalysis.
    Stored: TypeAlias = PCA | IncrementalPCA | TruncatedSVD | LSA | CorrespondenceAnalysis | PCoA | GenotypePCA

Model = TypeVar("Model")

# The metadata of a file: "format", "version", "kind", three JSON objects ("settings", "fitted", "provenance") whose
# values are coded as `shiftsvd.model_file.coding` says, and "sha256", the checksum of all of it and of the tensors.
TEXTS = ("settings", "fitted", "provenance")
NAMES = "feature_names_in_"


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
    model : estimator of this package, or GenotypePCA
        Fitted: any of the classes that end with PCA, SVD, LSA, CorrespondenceAnalysis or PCoA.
    path : path
        Where the file is written; it appears when it is complete.
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
        If the file cannot be written, or holds what a file cannot: a solver that is not one of this package, a
        function, names that are neither texts nor numbers. A random generator is not stored, and the file says so.

    See Also
    --------
    load_model : Reads it again.

    Examples
    --------
    >>> import tempfile, shiftsvd as ss
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> pca = ss.PCA(n_components=5, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pca.save(f"{folder}/digits.safetensors")  # of other models: shiftsvd.save_model(model, ...)
    ...     again = ss.load_model(f"{folder}/digits.safetensors")
    >>> bool((again.transform(X) == pca.transform(X)).all())
    True
    """
    path = Path(path)
    refuse([path], force)
    try:
        metadata, tensors = _encoded(model, names, source)
        _decoded(metadata, tensors)  # what is written can be read
    except ValueError as error:
        raise type(error)(f"{path} is not written: {error}") from None
    write(path, metadata, tensors, force)


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
        The class that it must be of, or those that it may be of.

    Returns
    -------
    estimator, or GenotypePCA
        Of the class that was saved, fitted. What `set_output` had set is not in the file, nor is the stream of batches
        of a PCA or IncrementalPCA, as a warning says: its first `partial_fit` begins anew.

    Raises
    ------
    ValueError
        If the file is damaged, is not a model, holds one of another kind, or is of a version that this package does
        not know. Nothing in a file is run, and reading takes memory in proportion to its size.
    OSError
        If it cannot be read.
    ImportError
        If the model was fitted to a pandas frame, and there is no pandas.

    See Also
    --------
    save_model : Writes what this reads.

    Examples
    --------
    See `save_model`.
    """
    path = Path(path)
    with reading(path):
        model = _decoded(*read(path))
        if not isinstance(model, kind):
            wanted = " or ".join(name for name in KINDS if issubclass(kind_class(name), kind))
            raise Refused(f"it holds a {type(model).__name__}, where {wanted} is wanted")
    if hasattr(model, "unseen_variance_"):
        warn(
            f"{path} holds what partial_fit found, but not its stream: partial_fit begins anew, and neither refine "
            "nor merge_pca can go on",
        )
    return model


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    path = Path(path)
    with reading(path):
        metadata, tensors = read(path)
        _decoded(metadata, tensors)
    shapes = {name: {"dtype": tensor.dtype.name, "shape": list(tensor.shape)} for name, tensor in tensors.items()}
    said = {name: json.loads(text) if name in TEXTS else text for name, text in metadata.items()}
    return {**said, "tensors": shapes}


def _encoded(model: Any, names: Sequence[str] | None, source: str | None) -> tuple[Metadata, Tensors]:
    said, sizes = parts(model)
    if names is not None:
        if NAMES not in KINDS[said["kind"]].sometimes:
            raise ValueError(f"a {said['kind']} has no names of features, got {names!r:.80}")
        said["fitted"][NAMES] = text_array(names)
    provenance = {
        "shiftsvd": own_version(),
        "n_samples": sizes.get("m"),
        "n_features": getattr(model, "n_features_in_", sizes.get("n")),
        "seed": _seed(getattr(model, "random_state", None)),
        "source": source,
    }
    tensors: Tensors = {}
    metadata = {"format": FORMAT, "version": VERSION, "kind": said["kind"]}
    for text, values in {"settings": said["settings"], "fitted": said["fitted"], "provenance": provenance}.items():
        prefix = "" if text == "fitted" else f"{text}."
        coded = {name: code(value, prefix + name, tensors) for name, value in values.items()}
        metadata[text] = json.dumps(coded, allow_nan=False)
    if sum(map(len, metadata.values())) > MAX_HEADER // 4:
        raise ValueError(f"its settings take more than {MAX_HEADER // 4} bytes as text; shorten `source` or settings")
    metadata["sha256"] = digest(metadata, tensors)
    return metadata, tensors


def _seed(seed: Any) -> Any:
    if isinstance(seed, RANDOM):
        return f"not stored: {type(seed).__name__}"
    return seed if isinstance(seed, int | np.integer | str | None) else "in the settings"


def _decoded(metadata: Metadata, tensors: Tensors) -> Any:
    wanted = {"format", "version", "kind", "sha256", *TEXTS}
    if set(metadata) != wanted:
        raise ValueError(f"its header must hold {', '.join(sorted(wanted))}, got {listed(metadata)}")
    if metadata["sha256"] != digest(metadata, tensors):
        raise ValueError("it is damaged: its content does not have the checksum that it states")
    left = dict(tensors)
    said = {text: {name: decode(value, left) for name, value in parsed(metadata[text]).items()} for text in TEXTS}
    if left:
        raise ValueError(f"it holds tensors that nothing refers to: {listed(left)}")
    return restored(metadata["kind"], said["settings"], said["fitted"])
