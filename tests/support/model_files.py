"""Models and their files, written by the library or by hand."""

import json
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import shiftsvd as ss


def data(shape: tuple[int, int] = (60, 9), dtype: Any = np.float64, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.arange(1, shape[1] + 1) + 3).astype(dtype)


def assert_same_values(found: Any, expected: Any, name: str) -> None:
    """Equal to the last bit, of the same type, in the same order in memory."""
    assert type(found) is type(expected), name
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
        same = found.tolist() == expected.tolist() if found.dtype == object else found.tobytes() == expected.tobytes()
        assert same, name
        if expected.ndim == 2 and min(expected.shape) > 1:
            assert np.argmin(found.strides) == np.argmin(expected.strides), name
    elif isinstance(expected, ss.Info):
        for field in fields(expected):
            if field.name in ("seconds", "peak_bytes") and getattr(found, field.name) is None:
                continue  # what no two runs have alike is not in a file
            assert_same_values(getattr(found, field.name), getattr(expected, field.name), f"{name}.{field.name}")
    else:
        assert found == expected, name


def assert_same_model(found: ss.PCA, expected: ss.PCA) -> None:
    assert set(vars(found)) == set(vars(expected))
    for name, value in vars(expected).items():
        assert_same_values(getattr(found, name), value, name)


def written_by_hand(path: Path, tensors: dict[str, Any], texts: dict[str, Any], **header: str) -> None:
    """A model file of version 1, byte by byte; this function never changes."""
    kinds = {"float64": "F64", "float32": "F32", "int64": "I64", "uint8": "U8", "bool": "BOOL"}
    metadata = {"format": "shiftsvd-model", "version": "1", "kind": "PCA", **header}
    metadata |= {name: text if isinstance(text, str) else json.dumps(text) for name, text in texts.items()}
    digest = sha256()
    for name in sorted(metadata):
        digest.update(f"{name}={metadata[name]}\n".encode())
    entries: dict[str, Any] = {}
    content = b""
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.name} {list(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
        ends = [len(content), len(content) + tensor.nbytes]
        entries[name] = {"dtype": kinds[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": ends}
        content += tensor.tobytes()
    metadata["sha256"] = digest.hexdigest()
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def first_version() -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and texts of a file of version 1."""
    tensors = {
        "components_": np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]], np.float32),
        "singular_values_": np.array([4.0, 2.0], np.float32),
        "explained_variance_": np.array([1.6, 0.4], np.float32),
        "explained_variance_ratio_": np.array([0.8, 0.2], np.float32),
        "mean_": np.array([1.0, 2.0, 3.0]),
        "scale_": np.array([1.0, 2.0, 4.0]),
        "settings.scale": np.array([1.0, 2.0, 4.0]),
        "info_.residuals": np.array([1e-7, 1e-6]),
        "info_.value_errors": np.array([1e-12, np.inf]),
        "feature_names_in_.utf8": np.frombuffer("aβc".encode(), np.uint8),
        "feature_names_in_.ends": np.array([1, 3, 4]),
    }

    def tensor(name: str, order: str = "C") -> dict[str, str]:
        return {"tensor": name, "order": order}

    settings = {
        "n_components": 2,
        "copy": True,
        "whiten": False,
        "svd_solver": None,
        "tol": None,
        "iterated_power": "auto",
        "n_oversamples": 10,
        "power_iteration_normalizer": "auto",
        "random_state": 7,
        "shift": "mean",
        "scale": tensor("settings.scale"),
        "solver": {
            "type": "RandomizedSVD",
            "fields": {"n_iter": 4, "sketch": {"type": "SparseSign", "fields": {"nonzeros": 4}}},
        },
        "missing": "error",
        "n_threads": None,
        "memory_limit": "2GB",
        "verbose": 0,
    }
    info = {
        "solver": "RandomizedSVD(n_iter=4)",
        "n_passes": 10,
        "sample_size": 12,
        "rank": 2,
        "residuals": tensor("info_.residuals"),
        "value_errors": tensor("info_.value_errors"),
        "converged": False,
        "frobenius_error": 0.25,
        "seconds": 1.5,
        "peak_bytes": 1000,
    }
    fitted = {
        "components_": tensor("components_", "F"),
        "singular_values_": tensor("singular_values_"),
        "explained_variance_": tensor("explained_variance_"),
        "explained_variance_ratio_": tensor("explained_variance_ratio_"),
        "mean_": tensor("mean_"),
        "scale_": tensor("scale_"),
        "noise_variance_": 0.125,
        "n_samples_": 11,
        "info_": {"type": "Info", "fields": info},
        "feature_names_in_": {"texts": "feature_names_in_"},
    }
    provenance = {"shiftsvd": "0.1.0", "n_samples": 11, "n_features": 3, "seed": 7, "source": None}
    return tensors, {"settings": settings, "fitted": fitted, "provenance": provenance}
