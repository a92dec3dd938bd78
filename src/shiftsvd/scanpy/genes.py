"""Find highly variable genes of AnnData objects, files and arrays as scanpy does, without a copy of the data."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd import Operator, as_operator
from shiftsvd.extend.files import MatrixOptions, listed
from shiftsvd.extend.operators import Vector
from shiftsvd.extend.running import Resources, few, named, threads
from shiftsvd.extend.transforms import Preprocess, as_transforms
from shiftsvd.io import open_matrix
from shiftsvd.scanpy.annotations import AnnotationSource, sample_column
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.scanpy.ranking import Batches, Cutoffs, HighlyVariable, Ranking, rank
from shiftsvd.scanpy.stored import has_logarithms, is_annotated, matrix_of

# Columns that scanpy writes to ``var``, by flavor, in order; those of batches only if there are batches.
_BATCHES: Final = ("highly_variable_nbatches", "highly_variable_intersection")
_DISPERSIONS: Final = ("highly_variable", "means", "dispersions", "dispersions_norm", *_BATCHES)
_VARIANCES: Final = ("highly_variable", "highly_variable_rank", "means", "variances", "variances_norm", _BATCHES[0])
_RESIDUALS: Final = ("means", "variances", "residual_variances", "highly_variable_rank", *_BATCHES, "highly_variable")
COLUMNS: Final = {
    "seurat": _DISPERSIONS,
    "cell_ranger": _DISPERSIONS,
    "seurat_v3": _VARIANCES,
    "seurat_v3_paper": _VARIANCES,
    "pearson_residuals": _RESIDUALS,
}
SINGLE_PRECISION: Final = ("dispersions_norm", "highly_variable_rank")  # columns that scanpy writes in single precision


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
    """Find highly variable genes as ``scanpy.pp.highly_variable_genes`` does, also in files larger than memory.

    Parameters
    ----------
    data : AnnData of n_obs x n_vars, path, array or sparse matrix
        AnnData in memory, a view, or a file opened with ``backed="r"``; or the path of a file that `open_matrix` reads.
    n_top_genes : int, optional
        Number of genes to keep. "seurat" and "cell_ranger" also keep genes tied with the last one, as scanpy does.
        Default: the cutoffs below for "seurat" and "cell_ranger", 2000 genes for the other flavors.
    flavor : {"seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals"}
        "seurat" and "cell_ranger" rank genes by the normalised dispersion of logarithms. "seurat_v3" and
        "seurat_v3_paper" rank by the variance of raw counts, standardised by the variance that a regression on the mean
        predicts; with batches, "seurat_v3" sorts genes by median rank first, and "seurat_v3_paper" by the number of
        batches first. "pearson_residuals" ranks by the variance of analytic Pearson residuals of raw counts.
    batch : str or array of shape (n_obs,), optional
        A column of `obs`, or labels. Genes are ranked within each batch, and the genes that most batches select are
        kept.
    preprocess : transformation, its name, or list of them
        The transformation of raw counts to logarithms, such as "log-normalize", for "seurat" and "cell_ranger". By
        default the data must be logarithms, as in scanpy.
    layer : str, optional
        The layer of AnnData or of a file to use instead of `X`.
    min_mean, max_mean, min_disp, max_disp : float
        Cutoffs of means and normalised dispersions if `n_top_genes` is None.
    n_bins : int
        Number of bins of means, for "seurat".
    span : float
        Share of the genes in each local regression, for "seurat_v3".
    theta, clip : float
        Overdispersion and largest absolute value of residuals, for "pearson_residuals". Default of `clip`: the square
        root of the number of cells in a batch.
    inplace : bool
        Write scanpy's columns to ``var``, and the settings to ``uns["hvg"]``. Otherwise return a data frame.
    n_threads, memory_limit : optional
        As in `shiftsvd.PCA`.

    Returns
    -------
    None, DataFrame, or dict of arrays
        For AnnData: None, or a data frame of the columns if `inplace` is False. For other data: a dict of the columns,
        with "names" if the genes have names.

    Raises
    ------
    ValueError
        If data or settings are invalid, such as raw counts for a flavor that ranks logarithms, or missing labels.

    See Also
    --------
    scanpy.pca : Compute components of these genes.

    Notes
    -----
    Ranking reads the data once, and once more for library sizes if `preprocess` needs these; flavors of raw counts read
    twice. Sums are in double precision. The regression agrees to rounding with the `loess` of scikit-misc (degree 2,
    interpolated), which need not be installed. Unlike scanpy, "cell_ranger" accepts equal percentiles of means, as one
    edge of the bins, features of equal dispersion in a bin have no normalised one, cells without counts have residuals
    of 0, and the default of `clip` depends on each batch, not on the first alone.

    References
    ----------
    Satija et al. (2015); Zheng et al. (2017); Stuart, Butler et al. (2019); Lause, Berens & Kobak (2021).

    Examples
    --------
    >>> import numpy as np, shiftsvd.scanpy
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> adata = AnnData(
    ...     rng.poisson(rng.gamma(1.0, 1.0, (200, 1)) * rng.gamma(1.0, 1.0, 50)).astype(
    ...         "float32"
    ...     )
    ... )
    >>> shiftsvd.scanpy.highly_variable(adata, 10, flavor="seurat_v3")
    >>> int(adata.var["highly_variable"].sum())
    10
    """
    cutoffs = Cutoffs(min_mean, max_mean, min_disp, max_disp)
    criterion = HighlyVariable(n_top_genes, flavor, n_bins, span, theta, clip, cutoffs)
    steps, resources = as_transforms(preprocess), Resources(memory_limit, n_threads)
    criterion.check_steps(steps)
    A, names, labels, base = _open_data(data, layer, batch, resources)
    batches = Batches.of(labels, A.shape[0])
    with threads(n_threads), named(names):
        marked = is_annotated(data) and has_logarithms(data, layer)
        found = rank(A, criterion, steps, batches, names, base, memory_limit, marked)
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
    columns = {name: found.columns[name] for name in COLUMNS[found.criterion.flavor] if name in found.columns}
    return columns | {name: columns[name].astype(np.float32) for name in SINGLE_PRECISION if name in columns}


def _open_data(data: Any, layer: str | None, batch: Any, resources: Resources) -> tuple[Operator, Any, Any, float]:
    if is_annotated(data):
        base = dict(data.uns.get("log1p", {})).get("base")
        labels = _column(data, batch) if isinstance(batch, str) else batch
        A = matrix_of(data, layer, None, resources)
        return A, np.asarray(data.var_names, object), labels, 1.0 if base is None else float(np.log(base))
    if isinstance(data, str | Path):
        key = None if layer is None else f"layers/{layer}"
        A, names = open_matrix(data, key=key, **vars(resources))
        source = AnnotationSource(listed(data), MatrixOptions(key=key), resources.memory_limit)
        labels = sample_column(source, batch) if isinstance(batch, str) else batch
        return A, names.features, labels, source.log_of_base
    if layer is not None or isinstance(batch, str):
        raise ValueError(f"layer and a column name as batch require AnnData or a file, got {type(data).__name__}")
    return as_operator(data, **vars(resources)), None, batch, 1.0


def _column(adata: Any, name: str) -> Any:
    if name not in adata.obs:
        raise ValueError(f"batch must be a column of obs or an array, got {name!r}. Columns of obs: {few(adata.obs)}.")
    return np.asarray(adata.obs[name])
