"""Highly variable genes of AnnData objects, files and arrays, as scanpy finds them, without a copy of the data."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd import Operator, as_operator
from shiftsvd.extend.operators import Vector
from shiftsvd.extend.running import Resources, threads
from shiftsvd.extend.transforms import Preprocess, as_transforms
from shiftsvd.io import open_matrix
from shiftsvd.scanpy.annotations import Place, of_samples
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.scanpy.ranking import Batches, Cutoffs, HighlyVariable, Ranking, rank
from shiftsvd.scanpy.stored import is_annotated, logged, matrix_of

# What scanpy writes into ``var``, by flavor, in its order; what is of batches is there if there are any.
_BATCHES: Final = ("highly_variable_nbatches", "highly_variable_intersection")
_DISPERSIONS: Final = ("highly_variable", "means", "dispersions", "dispersions_norm", *_BATCHES)
_VARIANCES: Final = ("highly_variable", "highly_variable_rank", "means", "variances", "variances_norm", _BATCHES[0])
_RESIDUALS: Final = ("means", "variances", "residual_variances", "highly_variable_rank", *_BATCHES, "highly_variable")
WRITTEN: Final = {
    "seurat": _DISPERSIONS,
    "cell_ranger": _DISPERSIONS,
    "seurat_v3": _VARIANCES,
    "seurat_v3_paper": _VARIANCES,
    "pearson_residuals": _RESIDUALS,
}
SINGLE: Final = ("dispersions_norm", "highly_variable_rank")  # that scanpy holds in single precision


def highly_variable(
    data: Any,
    n_top_genes: int | None = None,
    *,
    flavor: FlavorName = "seurat",
    batch: Any = None,
    preprocess: Preprocess | None = None,
    layer: str | None = None,
    min_mean: float = 0.0125,
    max_mean: float = 3.0,
    min_disp: float = 0.5,
    max_disp: float = np.inf,
    n_bins: int = 20,
    span: float = 0.3,
    theta: float = 100.0,
    clip: float | None = None,
    inplace: bool = True,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Find highly variable genes as ``scanpy.pp.highly_variable_genes`` does; files are read in blocks.

    Parameters
    ----------
    data : AnnData of n_obs x n_vars, path, array or sparse matrix
        AnnData in memory, views, and files opened with ``backed="r"``; a path of any file that `open_matrix` reads.
    n_top_genes : int, optional
        Number of genes; "seurat" and "cell_ranger" keep ties beyond it, as scanpy does. By default these two use the
        cutoffs, and the other flavors take 2000.
    flavor : {"seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals"}
        "seurat" and "cell_ranger" rank normalised dispersions of logarithms, "seurat_v3" variances of raw counts in
        units of what a regression on the mean expects (in "seurat_v3_paper" the number of batches comes first), and
        "pearson_residuals" variances of analytic Pearson residuals of raw counts.
    batch : str or array of shape (n_obs,), optional
        A column of `obs` or labels: genes are ranked in each batch, and the genes that most batches choose are taken.
    preprocess : transformation, its name, or list of them
        The transformation of raw counts to logarithms, such as "log-normalize", for "seurat" and "cell_ranger". By
        default the data are logarithms, as in scanpy.
    layer : str, optional
        The layer to use instead of `X`, of AnnData or of a file.
    min_mean, max_mean, min_disp, max_disp : float
        Cutoffs of means and normalised dispersions, without `n_top_genes`.
    n_bins : int
        Bins of means, for "seurat".
    span : float
        Share of the genes in each local regression, for "seurat_v3".
    theta, clip : float
        Overdispersion and largest size of residuals; clip is sqrt(n_obs) of each batch by default.
    inplace : bool
        Write scanpy's columns of ``var``, and ``uns["hvg"]``, into AnnData. Otherwise return a data frame.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. A ranking that would need more is refused.

    Returns
    -------
    None, DataFrame, or dict of arrays
        For AnnData None, or a data frame of the columns. For other data a dict of the same columns, and of "names" if
        the genes have names.

    Raises
    ------
    ValueError
        For invalid data or settings, such as counts where logarithms are ranked, or missing labels.

    See Also
    --------
    scanpy.pca : Components of these genes.

    Notes
    -----
    Reads: one, and one for library sizes if `preprocess` needs them; two for flavors of counts. Sums are in double
    precision. The regression agrees to rounding with the `loess` of scikit-misc (degree 2, interpolated), which need
    not be installed. Equal percentiles of means ("cell_ranger"), which scanpy refuses, are one edge of the bins, and
    cells without counts have residuals of 0.

    References
    ----------
    Satija et al. (2015); Zheng et al. (2017); Stuart, Butler et al. (2019); Lause, Berens & Kobak (2021).

    Examples
    --------
    >>> import numpy as np, shiftsvd.scanpy
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> adata = AnnData(rng.poisson(rng.gamma(1.0, 1.0, (200, 1)) * rng.gamma(1.0, 1.0, 50)).astype("float32"))
    >>> shiftsvd.scanpy.highly_variable(adata, 10, flavor="seurat_v3")
    >>> int(adata.var["highly_variable"].sum())
    10
    """
    cutoffs = Cutoffs(min_mean, max_mean, min_disp, max_disp)
    asked = HighlyVariable(n_top_genes, flavor, n_bins, span, theta, clip, cutoffs)
    steps, resources = as_transforms(preprocess), Resources(memory_limit, n_threads)
    asked.check_steps(steps)
    A, names, labels, base = _given(data, layer, batch, resources)
    batches = Batches.of(labels, A.shape[0])
    with threads(n_threads):
        marked = is_annotated(data) and logged(data, layer)
        found = rank(A, asked, steps, batches, names, 1.0 if steps else base, memory_limit, marked)
    if not is_annotated(data):
        return ({} if names is None else {"names": names}) | found.columns
    columns = as_scanpy(found)
    if not inplace:
        from pandas import DataFrame

        return DataFrame(columns, index=data.var_names)
    for name, values in columns.items():
        data.var[name] = values
    computed_on = {"computed_on": layer or "adata.X"} if flavor == "pearson_residuals" else {}
    data.uns["hvg"] = {"flavor": flavor} | computed_on
    return None


def as_scanpy(found: Ranking) -> dict[str, Vector]:
    names = [name for name in WRITTEN[found.asked.flavor] if name in found.columns]
    return {name: found.columns[name].astype(np.float32) if name in SINGLE else found.columns[name] for name in names}


def _given(data: Any, layer: str | None, batch: Any, resources: Resources) -> tuple[Operator, Any, Any, float]:
    if is_annotated(data):
        base = dict(data.uns.get("log1p", {})).get("base")
        labels = _column(data, batch) if isinstance(batch, str) else batch
        A = matrix_of(data, layer, None, resources)
        return A, np.asarray(data.var_names, object), labels, 1.0 if base is None else float(np.log(base))
    if isinstance(data, str | Path):
        key = None if layer is None else f"layers/{layer}"
        A, names = open_matrix(data, key=key, **vars(resources))
        place = Place([Path(data)], key=key, memory_limit=resources.memory_limit)
        return A, names.features, of_samples(place, batch) if isinstance(batch, str) else batch, 1.0
    if layer is not None or isinstance(batch, str):
        raise ValueError(f"layer and names of batches are for AnnData and files, got {type(data).__name__}")
    return as_operator(data, **vars(resources)), None, batch, 1.0


def _column(adata: Any, name: str) -> Any:
    if name not in adata.obs:
        raise ValueError(f"batch must be a column of obs or an array, got {name!r}; obs has {list(adata.obs)}")
    return np.asarray(adata.obs[name])
