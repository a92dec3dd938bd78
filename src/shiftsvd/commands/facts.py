"""Collect and print the facts of `info` about the installation, a matrix or a model."""

import json
import platform
from importlib.metadata import version
from typing import Any

import click
import numpy as np

from shiftsvd.backends.device import devices, products
from shiftsvd.backends.source import RowSource
from shiftsvd.commands.hooks import first_answer, hooks_of
from shiftsvd.commands.options import as_given
from shiftsvd.commands.settings import Settings
from shiftsvd.commands.writing import model_in, of_gaps
from shiftsvd.errors import plain
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.io.opening import held_bytes, open_chosen, read_files
from shiftsvd.io.sniff import format_of
from shiftsvd.kernels import default_threads, instruction_set, lacking
from shiftsvd.missing.opening import n_missing
from shiftsvd.model_file import describe

Facts = dict[str, Any]
COUNTED = 2**30  # count missing entries up to this size in bytes: counting reads the whole matrix


def lines(facts: Facts, as_json: bool) -> str:
    if as_json:
        return as_given(json.dumps(facts))
    width = max(len(name) for name in facts) + 1
    return "\n".join(f"{name:{width}} {plain(as_given(_shown(value)))}" for name, value in facts.items())


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def installation() -> Facts:
    facts: Facts = {"shiftsvd": version("shiftsvd"), "kernels": instruction_set()}
    facts |= {"kernels_lacking": lacking} if lacking else {}
    facts |= {"threads": default_threads()}
    facts |= {"devices": {name: products(name.partition(" ")[0]) for name in found}} if (found := devices()) else {}
    facts |= {"machine": platform.machine(), "python": platform.python_version()}
    return facts | {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}


def of_matrix(settings: Settings) -> Facts:
    """Describe a matrix file. Count missing entries, which reads the whole matrix, up to `COUNTED` bytes."""
    where, memory = settings.where, settings.memory
    if settings.files == ("-",):
        A, names = open_chosen("-", settings.choices, **where, memory_limit=memory)
        facts: Facts = {"file": "-", "format": settings.format, "samples": A.shape[0], "features": A.shape[1]}
        # `open_chosen` raises an error for missing entries, so there are none.
        facts |= _numbers(A.shape, A.costs.stored, A.dtype) | {"n_missing": 0}
        return facts | _named(names.samples, names.features)
    paths = settings.paths
    opened = read_files(paths, **where, memory_limit=memory, choices=settings.choices)
    X = opened.matrix
    shape = X.shape[::-1] if opened.by_features else X.shape
    kinds = dict.fromkeys(format_of(path, settings.format) for path in paths)
    facts = {"file": settings.file, "format": ", ".join(kinds)}
    facts |= {"samples": shape[0], "features": shape[1]}
    facts |= {"samples_are": opened.samples} if len(paths) == 1 else {"files": len(paths), "stack": settings.stack}
    stored, held = _size(X)
    facts |= _numbers(shape, stored, X.dtype) | {"n_missing": n_missing(X) if held <= COUNTED else None}
    facts |= {"memory_bytes": held, "read_in_blocks": isinstance(X, RowSource)}
    return facts | _named(*opened.names)


def _size(X: Any) -> tuple[int, int]:
    if isinstance(X, RowSource):
        return X.stored, held_bytes(X)
    if hasattr(X, "nnz"):
        return int(X.nnz), int(X.nnz) * (X.dtype.itemsize + 4) + 8 * X.shape[0]
    return X.size, X.nbytes


def _numbers(shape: tuple[int, int], stored: int, dtype: Any) -> Facts:
    share = stored / (shape[0] * shape[1])
    return {"stored": int(stored), "density": share, "dtype": str(np.dtype(dtype))}


def _named(samples: Any, features: Any) -> Facts:
    named = {"sample_names": samples, "feature_names": features}
    return {key: None if names is None else [str(name) for name in names[:3]] for key, names in named.items()}


def of_model(settings: Settings) -> Facts:
    file, *others = settings.files
    hooks = hooks_of(settings)
    if others:
        comparison = first_answer(each.compare(file, others) for each in hooks)
        if comparison is None:
            raise click.UsageError(
                f"{file} is a model, and `info` describes one model at a time. Remove the other files."
            )
        return dict(comparison)
    pca = model_in(file, object)
    if not isinstance(pca, BatchPCA):
        content = describe(file)
        return {"file": file, **{name: content[name] for name in ("kind", "settings", "provenance", "tensors")}}
    info, names = pca.info_, getattr(pca, "feature_names_in_", None)
    return {
        "file": file,
        "kind": type(pca).__name__,
        "n_components": int(pca.n_components_),
        "n_samples": int(pca.n_samples_),
        "n_features": int(pca.n_features_in_),
        "dtype": str(pca.components_.dtype),
        "settings": {name: _plain(value) for name, value in pca.get_params(deep=False).items()},
        "solver": info.solver,
        "n_passes": info.n_passes,
        "converged": info.converged,
        "provenance": describe(file)["provenance"],
        "explained_variance_ratio": float(np.sum(pca.explained_variance_ratio_)),
        **of_gaps(pca),
        **{name: value for each in hooks for name, value in each.facts(pca).items()},
        "feature_names": None if names is None else [str(name) for name in names[:3]],
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
