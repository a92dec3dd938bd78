"""What `shiftsvd.scanpy.pca` leaves in ``varm``: the loadings, and how each gene is treated before them."""

from typing import Any, Final, NamedTuple

import numpy as np

from shiftsvd.estimators.pca import PCA
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

# Of the sum of a row whose absolute values sum to 1: what a file in single precision may change.
_ROUNDING: Final = 4 * float(np.finfo(np.float32).eps)


class Loadings(NamedTuple):
    """What new cells are multiplied by, of the genes that take part."""

    genes: Any  # their names, a pandas Index
    V: Panel  # genes x components
    shift: Vector
    scale: Vector


class Keys(NamedTuple):
    """Names of what is written."""

    obsm: str
    varm: str
    uns: str


def keys_of(key_added: str | None) -> Keys:
    return Keys("X_pca", "PCs", "pca") if key_added is None else Keys(key_added, key_added, key_added)


def write_loadings(adata: Any, key: str, pca: PCA, rows: Any) -> None:
    for name, values in kept_loadings(pca, adata.n_vars, rows, key).items():
        adata.varm[name] = values


def kept_loadings(pca: PCA, n_genes: int, rows: Any, key: str) -> dict[str, Panel]:
    V = np.zeros((n_genes, pca.n_components_), pca.components_.dtype)
    V[rows] = pca.components_.T
    treated = np.zeros((n_genes, 3))
    treated[rows, 0] = pca.mean_
    treated[rows, 1] = 1 if pca.scale_ is None else pca.scale_
    treated[:, 2] = V.sum(axis=1, dtype=np.float64)
    return {key: V, _treated(key): treated}


def read_loadings(reference: Any, key: str, uns: str) -> Loadings:
    params = reference.uns.get(uns, {}).get("params", {})
    if "obsm" in params:
        raise ValueError(
            f"the components of the reference must be of its genes, but uns[{uns!r}] is of obsm={params['obsm']!r}; "
            "run shiftsvd.scanpy.pca without obsm, or give its key_added"
        )
    if missing := [name for name in (key, _treated(key)) if name not in reference.varm]:
        raise ValueError(f"the reference must have varm[{missing[0]!r}]; run shiftsvd.scanpy.pca on it first")
    V = np.asarray(reference.varm[key], np.float64)
    shift, scale, *sums = np.asarray(reference.varm[_treated(key)], np.float64).T
    for known in sums:  # files of the first versions have none
        _check_sums(V, known, key)
    used = scale > 0
    return Loadings(reference.var_names[used], V[used], shift[used], scale[used])


def _treated(key: str) -> str:
    return f"{key}_shift_scale"


def _check_sums(V: Panel, sums: Vector, key: str) -> None:
    others = np.abs(V.sum(axis=1) - sums) > _ROUNDING * np.abs(V).sum(axis=1)
    if others.any():
        raise ValueError(
            f"the loadings of the reference, varm[{key!r}], are not those that shiftsvd.scanpy.pca wrote: "
            f"{np.count_nonzero(others)} of {len(V)} genes differ; run it again"
        )
