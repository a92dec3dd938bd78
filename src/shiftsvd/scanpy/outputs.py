"""fit.h5ad: the result of a fit, as scanpy stores it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd.extend.commands import Block, Table, Write, of_gaps
from shiftsvd.extend.files import mark
from shiftsvd.extend.transforms import kept_of
from shiftsvd.io import Names
from shiftsvd.scanpy.annotations import Place
from shiftsvd.scanpy.stored import PEARSON, kept_design, kept_entries, kept_loadings, told_residuals

NAMES = 2**16  # that are texts at once


@contextmanager
def annotated(
    path: Path, table: Table, pca: Any, names: Names, place: Place, mask: str | None = None
) -> Iterator[Write]:
    import h5py

    # HDF5 tells of a full disk late, and more than once.
    _reserve(path, _foreseen(table, pca, names) + place.bytes_of_columns())
    with h5py.File(path, "w") as file:
        mark(file, "anndata", "0.1.0")
        for name in ("layers", "obsp", "varp"):
            _group(file, name)
        _frame(file, "obs", names.samples, table.n_rows)
        _frame(file, "var", names.features, pca.n_features_in_)
        place.copy_columns(file["obs"], "samples")
        place.copy_columns(file["var"], "features")
        kept, varm = kept_of(getattr(pca, "preprocess_", ()), pca.n_features_in_), _group(file, "varm")
        for name, values in kept_loadings(pca, pca.n_features_in_, kept, "PCs").items():
            _array(varm, name, values.astype(table.dtype) if name == "PCs" else values)
        _uns(_group(file, "uns"), pca, np.asarray(file["var/_index"].asstr()[:], object), place.key, mask)
        scores = mark(_room(_group(file, "obsm"), "X_pca", table), "array", "0.2.0")
        file.flush()
        _reserve(path, file.id.get_filesize())

        def write(first: int, block: Block) -> None:
            scores[first : first + len(block)] = block

        yield write


def _foreseen(table: Table, pca: Any, names: Names) -> int:
    n_features = int(pca.n_features_in_)
    numbers = table.dtype.itemsize * len(table.columns) * (table.n_rows + n_features)
    letters = sum(len(str(name).encode()) for labels in names if labels is not None for name in labels)
    return numbers + letters + 64 * (table.n_rows + n_features) + 2**20


def _reserve(path: Path, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b" if path.exists() else "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def _room(parent: Any, name: str, table: Table) -> Any:
    from h5py import Dataset, h5d, h5p, h5s, h5t

    settings = h5p.create(h5p.DATASET_CREATE)
    settings.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    settings.set_fill_time(h5d.FILL_TIME_NEVER)
    settings.set_obj_track_times(False)
    space = h5s.create_simple((table.n_rows, len(table.columns)))
    return Dataset(h5d.create(parent.id, name.encode(), h5t.py_create(table.dtype), space, settings))


def _uns(uns: Any, pca: Any, genes: Any, key: str | None, mask: str | None) -> None:
    told, info = _group(uns, "pca"), pca.info_
    _array(told, "variance", pca.explained_variance_)
    _array(told, "variance_ratio", pca.explained_variance_ratio_)
    settings = {"zero_center": pca.shift is not None, "n_comps": pca.n_components_, "scale": str(pca.scale)}
    settings |= {"svd_solver": info.solver, "mask_var": mask, "use_highly_variable": mask == "highly_variable"}
    if hasattr(pca, "preprocess_"):
        _learned(told, uns, pca, genes, key)
        settings |= {
            "preprocess": ", then ".join(str(each.how) for each in pca.preprocess_ if not each.selects) or None
        }
    if hasattr(pca, "design_"):
        _mapping(told, "design", kept_design(pca.design_, pca.shift_))
        settings |= {"covariates": ", ".join(pca.design_.names)}
    if info.completed is not None:  # the shares are of a completed matrix
        settings |= {"variance_of": of_gaps(pca)["variance_of"], "heldout_r2": info.heldout_r2}
    params = _group(told, "params")
    for name, value in settings.items():
        if value is not None:
            _scalar(params, name, value)


def _learned(told: Any, uns: Any, pca: Any, genes: Any, key: str | None) -> None:
    fitted = pca.preprocess_
    n_all = next((number for number, each in enumerate(fitted) if each.selects), 0)
    changes = tuple(each for each in fitted if not each.selects)
    if changes:
        kept = genes if n_all else genes[kept_of(fitted, len(genes))]
        _mapping(told, "preprocess", kept_entries(changes, n_all, kept))
    if changes and (residuals := told_residuals(changes[-1], key or "adata.X")):
        _mapping(uns, PEARSON, residuals)


def _mapping(parent: Any, name: str, values: dict[str, Any]) -> None:
    import h5py

    group = _group(parent, name)
    for key, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype == object:
            mark(group.create_dataset(key, data=value, dtype=h5py.string_dtype()), "string-array", "0.2.0")
        elif isinstance(value, np.ndarray):
            _array(group, key, value)
        else:
            _scalar(group, key, value)


def _scalar(parent: Any, name: str, value: Any) -> None:
    mark(parent.create_dataset(name, data=value), "string" if isinstance(value, str) else "numeric-scalar", "0.2.0")


def _frame(file: Any, name: str, labels: Any, count: int) -> None:
    import h5py

    frame = mark(file.create_group(name), "dataframe", "0.2.0")
    frame.attrs["_index"] = "_index"
    frame.attrs["column-order"] = np.empty(0, float)
    index = mark(frame.create_dataset("_index", (count,), h5py.string_dtype()), "string-array", "0.2.0")
    for lo in range(0, count, NAMES):
        part = range(lo, min(lo + NAMES, count))
        index[lo : part.stop] = [str(label) for label in (part if labels is None else labels[lo : part.stop])]


def _group(parent: Any, name: str) -> Any:
    return mark(parent.create_group(name), "dict", "0.1.0")


def _array(parent: Any, name: str, values: Any) -> None:
    mark(parent.create_dataset(name, data=np.ascontiguousarray(values)), "array", "0.2.0")
