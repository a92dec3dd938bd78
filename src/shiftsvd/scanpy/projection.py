"""Project new cells onto the components of a reference, also if they lack some of its genes."""

from typing import Any

import numpy as np

from shiftsvd.extend.fits import on_places
from shiftsvd.extend.running import Resources
from shiftsvd.extend.transforms import kept_of, warn_unless_counts
from shiftsvd.scanpy.stored import has_logarithms, keys_of, matrix_of, obs_column, places_of, read_model


def project(
    adata: Any,
    reference: Any,
    *,
    layer: str | None = None,
    key_added: str | None = None,
    max_absent: float = 0.1,
) -> None:
    """Project new cells onto the components of a reference, with its shift, scale and transformations.

    Parameters
    ----------
    adata : AnnData
        New cells, processed as those of the reference. Genes are matched by name; other genes are ignored. The scores
        are written to ``obsm["X_pca"]``; ``varm`` and ``uns`` are not changed.
    reference : AnnData
        The result of `pca`, or fit.h5ad of ``shiftsvd fit --anndata``.
    layer : str, optional
        The layer to use instead of `X`.
    key_added : str, optional
        As in `pca`.
    max_absent : float
        Largest share of the genes of the components, and of the genes of library sizes, that the new cells may lack;
        a notice counts them. If genes are absent, scores are the least-squares fit of the components to the present
        genes, and library sizes are sums over the present genes.

    Raises
    ------
    ValueError
        If the reference has no components of `pca`, or components of an obsm; if the new cells lack more genes than
        `max_absent` allows, or so many that a direction in the space of the components loses half of its squared norm;
        if gene names are not unique; or if `obs` lacks a column that was regressed out, or has a category in it that
        the reference does not have.

    See Also
    --------
    scanpy.pca : Compute the components.

    Notes
    -----
    Projection takes one pass, and another for library sizes if needed. Sparse data stay sparse. Genes outside the mask
    of the reference are needed for library sizes only. If `pca` transformed raw counts, the new cells must be raw
    counts too.

    Examples
    --------
    >>> import numpy as np, shiftsvd.scanpy
    >>> from anndata import AnnData
    >>> adata = AnnData(np.random.default_rng(0).poisson(1.0, (100, 30)).astype("float32"))
    >>> shiftsvd.scanpy.pca(adata, 5, preprocess="log-normalize")
    >>> new = adata[:3].copy()
    >>> shiftsvd.scanpy.project(new, adata)
    >>> bool(np.allclose(new.obsm["X_pca"], adata.obsm["X_pca"][:3], atol=1e-5))
    True
    """
    keys = keys_of(key_added)
    model, genes = read_model(reference, keys)
    model.feature_names_in_ = np.asarray(genes, object)
    steps, design = getattr(model, "preprocess_", ()), getattr(model, "design_", None)
    places = places_of(adata, reference, genes[kept_of(steps, len(genes))], "of the components", max_absent)
    if any(each.selects for each in steps):
        places = places_of(adata, reference, genes, "in the library sizes", max_absent)
    present = np.flatnonzero(places >= 0)
    order = present[np.argsort(places[present])]  # read files in their own order
    A = matrix_of(adata, layer, places[order], Resources())
    warn_unless_counts([each.how for each in steps], A, has_logarithms(adata, layer))
    Z = on_places(model, order).transform(A, covariates=None if design is None else design.of(obs_column(adata)))
    dtype = np.asarray(reference.obsm[keys.obsm]).dtype if keys.obsm in reference.obsm else np.float32
    adata.obsm[keys.obsm] = Z.astype(dtype)
