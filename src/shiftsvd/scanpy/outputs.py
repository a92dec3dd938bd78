"""fit.h5ad: the result of a fit, as scanpy stores it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd import PCA
from shiftsvd.extend.commands import Block, Table, Write, of_gaps
from shiftsvd.extend.files import mark, optional
from shiftsvd.extend.transforms import kept_of
from shiftsvd.io import Names
from shiftsvd.scanpy.annotations import Place
from shiftsvd.scanpy.stored import Keys, loadings_of, unstructured

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
            _store(file, name, {})
        _frame(file, "obs", names.samples, table.n_rows)
        _frame(file, "var", names.features, pca.n_features_in_)
        place.copy_columns(file["obs"], "samples")
        place.copy_columns(file["var"], "features")
        keys, n_features = Keys(), int(pca.n_features_in_)
        varm = loadings_of(pca, n_features, kept_of(getattr(pca, "preprocess_", ()), n_features), keys)
        _store(file, "varm", varm | {keys.varm: varm[keys.varm].astype(table.dtype)})
        variances = {"variance": pca.explained_variance_, "variance_ratio": pca.explained_variance_ratio_}
        genes = np.asarray(file["var/_index"].asstr()[:], object)
        computed_on = place.key or "adata.X"
        _store(file, "uns", unstructured(pca, keys.uns, _params(pca, mask), variances, genes, computed_on))
        scores = mark(_room(_store(file, "obsm", {}), keys.obsm, table), "array", "0.2.0")
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


def _params(pca: PCA, mask: str | None) -> dict[str, Any]:
    info = pca.info_
    params = {"zero_center": pca.shift is not None, "n_comps": pca.n_components_, "scale": str(pca.scale)}
    params |= {"svd_solver": info.solver, "mask_var": mask, "use_highly_variable": mask == "highly_variable"}
    if info.completed is not None:  # the shares are of a completed matrix
        params |= {"variance_of": of_gaps(pca)["variance_of"], "heldout_r2": info.heldout_r2}
    return {name: value for name, value in params.items() if value is not None}


def _store(parent: Any, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        group = mark(parent.create_group(name), "dict", "0.1.0")
        for key, part in value.items():
            _store(group, key, part)
        return group
    is_array = isinstance(value, np.ndarray)
    is_text = isinstance(value, str) or (is_array and value.dtype == object)
    kind = "string" if is_text else "numeric-scalar"
    if is_array:
        kind = "string-array" if is_text else "array"
    dtype = optional("h5py", "hdf5").string_dtype() if is_text else None
    return mark(parent.create_dataset(name, data=value, dtype=dtype), kind, "0.2.0")


def _frame(file: Any, name: str, labels: Any, count: int) -> None:
    import h5py

    frame = mark(file.create_group(name), "dataframe", "0.2.0")
    frame.attrs["_index"] = "_index"
    frame.attrs["column-order"] = np.empty(0, float)
    index = mark(frame.create_dataset("_index", (count,), h5py.string_dtype()), "string-array", "0.2.0")
    for lo in range(0, count, NAMES):
        part = range(lo, min(lo + NAMES, count))
        index[lo : part.stop] = [str(label) for label in (part if labels is None else labels[lo : part.stop])]
