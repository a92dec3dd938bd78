"""Write fit.h5ad, the result of a fit in scanpy's layout."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd import PCA
from shiftsvd.extend.commands import Block, Table, Write, of_gaps
from shiftsvd.extend.files import creating, mark, optional, write_frame
from shiftsvd.extend.transforms import kept_of
from shiftsvd.io import Names
from shiftsvd.scanpy.annotations import AnnotationSource
from shiftsvd.scanpy.clipping import clipped_shares
from shiftsvd.scanpy.stored import Keys, loadings_of, uns_entries


@contextmanager
def anndata_writer(
    path: Path,
    table: Table,
    pca: Any,
    names: Names,
    source: AnnotationSource,
    mask: str | None = None,
    ranked: Mapping[str, Any] | None = None,
) -> Iterator[Write]:
    keys, n_features = Keys(), int(pca.n_features_in_)
    kept = kept_of(getattr(pca, "preprocess_", ()), n_features)
    variances = {"variance": pca.explained_variance_, "variance_ratio": pca.explained_variance_ratio_}
    with creating(path, None) as store:
        root = mark(store.root, "anndata", "0.1.0")
        genes = write_frame(store, "var", names.features, n_features)
        write_frame(store, "obs", names.samples, table.n_rows)
        source.copy_columns(root["obs"], "samples")
        source.copy_columns(root["var"], "features", getattr(pca, "genes_", None), ranked)
        varm, computed_on = loadings_of(pca, n_features, kept, keys), source.key or "adata.X"
        varm[keys.varm] = varm[keys.varm].astype(table.dtype)
        uns = uns_entries(pca, keys.uns, _params(pca, mask), variances, np.array(genes, object), computed_on)
        for name, group in {"varm": varm, "uns": uns, "layers": {}, "obsm": {}, "obsp": {}, "varp": {}}.items():
            _store(root, name, group)
        shape = table.n_rows, len(table.columns)
        scores = mark(root["obsm"].create_dataset(keys.obsm, shape, table.dtype), "array", "0.2.0")

        def write(first: int, block: Block) -> None:
            scores[first : first + len(block)] = block
            store.check()

        yield write


def _params(pca: PCA, mask: str | None) -> dict[str, Any]:
    info = pca.info_
    params = {"zero_center": pca.shift is not None, "n_comps": pca.n_components_, "scale": str(pca.scale)}
    params |= {"svd_solver": info.solver, "mask_var": mask, "use_highly_variable": mask == "highly_variable"}
    if info.completed is not None:  # variance ratios refer to the completed matrix
        params |= {"variance_of": of_gaps(pca)["variance_of"], "heldout_r2": info.heldout_r2}
    if shares := clipped_shares(getattr(pca, "preprocess_", ())):
        params |= {"scale": "std", **shares}
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
