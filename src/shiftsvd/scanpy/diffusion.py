"""`shiftsvd.scanpy.diffmap`: diffusion maps of the neighbours of cells."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd import DiffusionMap
from shiftsvd.extend.fits import integer
from shiftsvd.extend.running import few
from shiftsvd.scanpy.stored import is_annotated


def diffmap(
    adata: Any,
    n_comps: int = 15,
    neighbors_key: str | None = None,
    *,
    random_state: Any = 0,
    copy: bool = False,
    dtype: npt.DTypeLike = "float32",
    tol: float = 1e-6,
    max_products: int | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Compute a diffusion map of the neighbours of cells as ``scanpy.tl.diffmap`` does, with bounds of the errors.

    Parameters
    ----------
    adata : AnnData
        With the connectivities that ``scanpy.pp.neighbors`` writes.
    n_comps : int
        Number of components, including the first one, which is constant up to the density of the cells; at most
        ``n_obs - 1``, as in scanpy.
    neighbors_key : str, optional
        The `key_added` of ``scanpy.pp.neighbors``. Default: use ``obsp["connectivities"]``.
    random_state : int, Generator or RandomState
        Seed of the solver; the same seed gives identical results.
    copy : bool
        Write the results to a copy, and return the copy.
    dtype : dtype
        Data type of the components.
    tol : float
        Bound of the sine of the angle of each component to its eigenvector, as in `shiftsvd.DiffusionMap`.
    max_products, n_threads, memory_limit : optional
        As in `shiftsvd.DiffusionMap`.

    Returns
    -------
    None, or AnnData
        None, or the copy if ``copy=True``. Results are ``obsm["X_diffmap"]``, ``uns["diffmap_evals"]`` and
        ``uns["diffmap"]`` (params, eigenvalue_errors, vector_errors): bounds of the absolute errors of the eigenvalues,
        and of the sines of the angles of the components to their eigenvectors.

    Raises
    ------
    ValueError
        If there are no connectivities, if they are negative or asymmetric, or for invalid settings.

    See Also
    --------
    DiffusionMap : The diffusion map of any affinities, with other powers of the density.
    scanpy.pca : Compute principal components, from which scanpy finds neighbours.

    Notes
    -----
    If the cells form several connected components, the first components of the map are constant up to the density on
    one of these each and 0 elsewhere, the largest first. Others have the largest eigenvalues; scanpy has those of
    largest absolute value, which differ if the transition matrix has large negative eigenvalues. scanpy computes the
    transition matrix in single precision if the connectivities have it.

    Examples
    --------
    >>> import numpy as np, shiftsvd.scanpy
    >>> from anndata import AnnData
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> W = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    >>> adata = AnnData(X, obsp={"connectivities": W})
    >>> shiftsvd.scanpy.diffmap(adata, 4)
    >>> adata.obsm["X_diffmap"].shape, bool(adata.uns["diffmap"]["params"]["converged"])
    ((60, 4), True)
    """
    if not is_annotated(adata):
        raise TypeError(f"adata must be AnnData, got {type(adata).__name__}. Use shiftsvd.DiffusionMap for a matrix.")
    if copy and adata.isbacked:
        raise ValueError("copy must be False for a backed AnnData object. Results are not written to its file.")
    W = _connectivities(adata, neighbors_key)
    count = max(min(integer("n_comps", n_comps, 1), adata.n_obs - 1), 1)
    model = DiffusionMap(
        count,
        t=0,
        drop_first=False,
        tol=tol,
        max_products=max_products,
        random_state=random_state,
        n_threads=n_threads,
        memory_limit=memory_limit,
    ).fit(W)
    # Eigenvectors of the symmetric matrix, of unit norm. A cell without neighbours is a component of its own.
    shares = np.where(model.degrees_ > 0, model.degrees_, 1.0) / (model.degrees_.sum() or 1.0)
    params = {"n_comps": count, "tol": tol, "converged": model.converged_}
    params["error_bound"] = float(model.vector_errors_.max())
    if neighbors_key is not None:
        params["neighbors_key"] = neighbors_key
    adata = adata.copy() if copy else adata
    adata.obsm["X_diffmap"] = (model.embedding_ * np.sqrt(shares)[:, None]).astype(dtype, copy=False)
    adata.uns["diffmap_evals"] = model.eigenvalues_
    errors = {name: getattr(model, f"{name}_") for name in ("eigenvalue_errors", "vector_errors")}
    adata.uns["diffmap"] = {"params": params, **errors}
    return adata if copy else None


def _connectivities(adata: Any, neighbors_key: str | None) -> Any:
    key = "connectivities"
    if neighbors_key not in (None, "neighbors"):
        settings = adata.uns.get(neighbors_key)
        if not (hasattr(settings, "get") and settings.get("connectivities_key")):
            raise ValueError(
                f"neighbors_key must be the key_added of scanpy.pp.neighbors, but uns[{neighbors_key!r}] has no "
                f"connectivities_key. Keys of uns: {few(adata.uns)}."
            )
        key = settings["connectivities_key"]
    if key not in adata.obsp:
        raise ValueError(f"adata.obsp has no {key!r}. Run scanpy.pp.neighbors first.")
    return adata.obsp[key]
