"""`shiftsvd.scanpy.pca`: principal components of AnnData objects, files and arrays."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd import PCA, Covariates, Operator, as_operator
from shiftsvd.extend.files import Places
from shiftsvd.extend.fits import Design, Preparation
from shiftsvd.extend.operators import Panel, Vector
from shiftsvd.extend.running import Refused, Resources, Setting, SklearnSolverName, SolverName
from shiftsvd.extend.transforms import Preprocess, Transform, as_transforms, warn_of_counts, warn_unless_counts
from shiftsvd.scanpy.stored import (
    Keys,
    Known,
    MarginsName,
    Step,
    booleans,
    indexable,
    is_annotated,
    keys_of,
    learned,
    logged,
    mask_of,
    matrix_of,
    names_of,
    obs_column,
    transformed,
    write_design,
    write_entries,
    write_loadings,
)
from shiftsvd.solvers import Solver

_IF_THERE: Final = "highly_variable, where var has it"
_MOST: Final = 50  # components, where no number is given


class _Fit(NamedTuple):
    """What is found in a matrix."""

    pca: PCA
    scores: Panel
    variance: Vector
    ratio: Vector


def pca(
    data: Any,
    n_comps: int | None = None,
    *,
    layer: str | None = None,
    obsm: str | None = None,
    zero_center: bool = True,
    scale: bool = False,
    svd_solver: SklearnSolverName | Literal["tsqr"] | None = None,
    chunked: bool = False,
    chunk_size: int | None = None,
    random_state: Any = 0,
    return_info: bool = False,
    mask_var: Any = _IF_THERE,
    use_highly_variable: bool | None = None,
    dtype: npt.DTypeLike = "float32",
    key_added: str | None = None,
    copy: bool = False,
    solver: SolverName | Solver = "auto",
    tol: float = 1e-6,
    preprocess: Preprocess | None = None,
    margins: MarginsName | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    covariates: str | Sequence[str] | None = None,
    groups: str | Sequence[str] | None = None,
) -> Any:
    """Principal components, as ``scanpy.pp.pca`` gives them; sparse data stay sparse, files stay on the disk.

    Parameters
    ----------
    data : AnnData of n_obs x n_vars, or array or sparse matrix of that shape
        Views, layers, and files opened with ``backed="r"`` too: those are read block by block where they would take
        more than half of `memory_limit`.
    n_comps : int, optional
        Default: 50, or one less than the smaller side of the matrix where that is not above 50; 2 cells and 2 genes
        are needed then.
    layer, obsm : str, optional
        What to take in place of `X`.
    zero_center : bool
        Subtract the means of the genes. If not, the variances are those of the scores about their means, as in
        scikit-learn's `TruncatedSVD`.
    scale : bool
        Divide by the standard deviations (ddof 1), as ``scanpy.pp.scale`` without clipping does; `X` is left as it is.
        For new cells use `project` then: ``scanpy.tl.ingest`` multiplies `X` as it finds it, which must be scaled.
    svd_solver : str, optional
        A name of scikit-learn's solvers, as in `shiftsvd.PCA`; "tsqr" is "full".
    chunked : bool
        Accepted for compatibility: files and Dask arrays are read block by block anyway, and not less accurately.
    chunk_size : int, optional
        Accepted for compatibility: `memory_limit` decides how much is read at once.
    random_state : int, Generator or RandomState
        Seed of the solver; the same seed gives the same bits.
    return_info : bool
        For arrays: return components and variances too.
    mask_var : str, array of bool or None
        The genes to take: a column of `var` or a mask. A Series whose index holds the names of the genes goes by these,
        any other mask by position. Default: "highly_variable" if there is such a column.
    use_highly_variable : bool, optional
        The older spelling, in scanpy, of ``mask_var="highly_variable"`` and ``mask_var=None``.
    dtype : dtype
        Of the scores.
    key_added : str, optional
        The key of what is written, in place of "X_pca", "PCs" and "pca".
    copy : bool
        Return a copy with the results in place of writing them into `data`.
    solver : str or Solver
        As in `shiftsvd.PCA`.
    tol : float
        Relative accuracy of the singular values.
    preprocess : transformation, its name, or list of them
        As in `shiftsvd.PCA`, for raw counts: "pearson" gives what ``scanpy.experimental.pp
        .normalize_pearson_residuals_pca`` gives without its dense residuals, "log-normalize" what ``normalize_total``
        and ``log1p`` before `pca` do.
    margins : "all", "mask" or None
        The genes that sums of cells go over. By default library sizes (`LogNormalize`) are of all genes, and whatever
        else a transformation learns is of those in the mask, as in scanpy.
    n_threads : int, optional
        As in `shiftsvd.svd`.
    memory_limit : int (bytes) or str such as "2GB", optional
        As in `shiftsvd.PCA`.
    covariates : str or list of str, optional
        Columns of `obs` that are regressed out of every gene, in one regression with a constant: numbers as they are,
        and a coefficient for each label of text and categories. With ``scale=True`` what is left is divided by its
        standard deviation, as ``scanpy.pp.regress_out`` and ``scanpy.pp.scale`` do; `X` stays as it is.
    groups : str or list of str, optional
        Columns of `obs` that are labels also where they are numbers, such as the batch: of one alone, the mean of its
        group is subtracted from each cell. Several, and covariates beside them, are one regression.

    Returns
    -------
    None, or AnnData
        The copy, if there is to be one. Written are ``obsm["X_pca"]`` (scores), ``varm["PCs"]`` (loadings; rows of 0
        for genes outside the mask), ``uns["pca"]`` (params, variance, variance_ratio), and
        ``varm["PCs_shift_scale"]``, for `project`: what was subtracted from each gene, what it was divided by, and the
        sum of its loadings, by which `project` knows them (0 outside the mask). What `preprocess` has learned is in
        ``uns["pca"]["preprocess"]``, and what scanpy tells of residuals, but for themselves, in
        ``uns["pearson_residuals_normalization"]``. What covariates explain is in
        ``uns["pca"]["design"]``. Of an obsm, the components are in ``uns["pca"]["components"]``.
    array, or (array, array, array, array)
        For arrays: the scores; with `return_info` also components, variance ratios and variances.

    Raises
    ------
    ValueError
        For data or settings that cannot be.

    See Also
    --------
    scanpy.project : New cells on its components.
    scanpy.highly_variable : Genes first.

    Notes
    -----
    Cost: as `shiftsvd.PCA`, and a pass for the scores. scanpy's `batch_key` ranks genes within batches, and is not
    about components: `groups` is what takes batches out of these.

    Examples
    --------
    >>> import numpy as np, shiftsvd.scanpy
    >>> X = np.random.default_rng(0).poisson(1.0, (100, 30)).astype("float32")
    >>> shiftsvd.scanpy.pca(X, 5, preprocess="log-normalize").shape
    (100, 5)
    """
    resources, how = Resources(memory_limit, n_threads), as_transforms(preprocess)
    model = PCA(
        n_comps,
        shift="mean" if zero_center else None,
        scale=bool(scale),
        scale_ddof=1,
        svd_solver="full" if svd_solver == "tsqr" else svd_solver,
        solver=solver,
        tol=tol,
        random_state=random_state,
        **vars(resources),
    )
    mask_var = _mask(mask_var, use_highly_variable)
    if not is_annotated(data):
        refused = {"layer": layer, "obsm": obsm, "key_added": key_added, "covariates": covariates, "groups": groups}
        if given := [name for name, value in refused.items() if value is not None]:
            raise ValueError(f"{', '.join(given)} must be left out for what is not AnnData, got {type(data).__name__}")
        every, A = _array(data, None, resources), _array(data, mask_var, resources)
        columns = (
            None if mask_var is None or _left_out(mask_var) else np.flatnonzero(booleans(mask_var, every.shape[1]))
        )
        _look(how, every)
        fit = _fit(model, A, dtype, learned(how, every, A, columns, margins, tol), None)
        return (fit.scores, fit.pca.components_, fit.ratio, fit.variance) if return_info else fit.scores
    if copy and data.isbacked:
        raise ValueError("copy must be False for a backed AnnData object; what is written stays in memory")
    design = _design(data, names_of("covariates", covariates), names_of("groups", groups), zero_center, obsm)
    name = _mask_name(data, mask_var, obsm)
    mask = None if name is None else mask_of(data, name)
    columns = None if mask is None else np.flatnonzero(mask)
    A = _operator(data, layer, obsm, columns, resources)
    every = A if columns is None or not how else _operator(data, layer, obsm, None, resources)
    if obsm is None:
        _look(how, every, logged(data, layer))
    steps = learned(how, every, A, columns, margins, tol)
    fit = _fit(model, A, dtype, steps, None if design is None else design.of(obs_column(data)))
    adata = data.copy() if copy else data
    told = name if isinstance(name, str) else mask  # a Series in uns could not be written to a file
    _write(adata, fit, columns, keys_of(key_added), _params(zero_center, scale, told, layer, obsm))
    if steps:
        write_entries(adata, keys_of(key_added).uns, steps, columns, layer or "adata.X")
    if design is not None:
        write_design(adata, keys_of(key_added).uns, design, fit.pca.shift_)
    return adata if copy else None


def _look(how: tuple[Transform, ...], A: Operator, marked: bool = False) -> None:
    if how:
        warn_unless_counts(how, A, marked)
    else:
        warn_of_counts(A, "scanpy takes components of logarithms: give ", Setting("preprocess", "log-normalize"), ".")


def _design(
    adata: Any, covariates: tuple[str, ...], groups: tuple[str, ...], zero_center: bool, obsm: str | None
) -> Design | None:
    if not covariates + groups:
        return None
    if not zero_center or obsm is not None:
        raise ValueError(
            "covariates and groups are regressed out of genes with their means: leave out zero_center=False and obsm"
        )
    return Design.learn(covariates, groups, obs_column(adata))


def _fit(model: PCA, A: Operator, dtype: npt.DTypeLike, steps: tuple[Step, ...], C: Panel | None) -> _Fit:
    model.n_components = _number(model.n_components, A)
    model.preprocess = tuple(Known(step) for step in steps) or None
    model.shift = model.shift if C is None else Covariates()
    model.fit(A, covariates=C)
    vars(model).pop("preprocess_", None)  # which is done already, with sums that may be of other genes too
    A = transformed(steps, A)
    Z = model.transform(A, covariates=C)
    variance, ratio = model.explained_variance_, model.explained_variance_ratio_
    if model.shift is None:
        # Of the scores about their means; fit would have refused what has no variances.
        squares, unit = Preparation("mean", model.scale_).learn(A).total_squares
        total = np.ldexp(squares, 2 * unit) / A.shape[0]
        variance = np.var(Z, axis=0, dtype=np.float64).astype(variance.dtype)
        ratio = (variance / total if total > 0 else np.zeros_like(variance)).astype(variance.dtype)
    return _Fit(model, Z.astype(dtype, copy=False), variance, ratio)


def _number(k: Any, A: Operator) -> int:
    least, told = min(A.shape), f"{A.shape[0]} cells x {A.shape[1]} genes"
    if k is None and least < 2:
        raise ValueError(f"without n_comps there must be at least 2 cells and 2 genes, got {told}")
    k = min(least - 1, _MOST) if k is None else k
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= least:
        raise ValueError(f"n_comps must be in 1..{least} for {told}, got {k!r}")
    return int(k)


def _array(X: Any, mask: Any, resources: Resources) -> Operator:
    if mask is not None and not _left_out(mask):
        X = indexable(X)
        X = X[:, np.flatnonzero(booleans(mask, X.shape[1]))]
    return as_operator(X, **vars(resources))


def _operator(
    adata: Any, layer: str | None, obsm: str | None, columns: Places | None, resources: Resources
) -> Operator:
    if obsm is None:
        return matrix_of(adata, layer, columns, resources)
    if layer is not None:
        raise ValueError(f"one of layer and obsm must be left out, got layer={layer!r} and obsm={obsm!r}")
    if obsm not in adata.obsm:
        raise ValueError(f"obsm must be one of {list(adata.obsm)}, got {obsm!r}")
    return as_operator(adata.obsm[obsm], **vars(resources))


def _mask(mask: Any, use_highly_variable: bool | None) -> Any:
    if use_highly_variable is None:
        return mask
    if not _left_out(mask):
        got = f" or use_highly_variable, not both; got {mask!r} and {use_highly_variable!r}"
        raise Refused("give ", Setting("mask_var"), got)
    return "highly_variable" if use_highly_variable else None


def _left_out(mask: Any) -> bool:
    return isinstance(mask, str) and mask == _IF_THERE


def _mask_name(adata: Any, mask: Any, obsm: str | None) -> Any:
    if _left_out(mask):
        return "highly_variable" if obsm is None and "highly_variable" in adata.var else None
    if mask is not None and obsm is not None:
        raise Refused(Setting("mask_var"), " is of genes and must be left out beside ", Setting("obsm", obsm))
    return mask


def _params(zero_center: bool, scale: bool, mask: Any, layer: str | None, obsm: str | None) -> dict[str, Any]:
    named = isinstance(mask, str) and mask == "highly_variable"
    params = {"zero_center": zero_center, "use_highly_variable": named, "mask_var": mask}
    others = {"layer": layer, "obsm": obsm, "scale": scale or None}
    return params | {name: value for name, value in others.items() if value is not None}


def _write(adata: Any, fit: _Fit, columns: Places | None, keys: Keys, params: dict[str, Any]) -> None:
    told = {"params": params, "variance": fit.variance, "variance_ratio": fit.ratio}
    adata.obsm[keys.obsm] = fit.scores
    if "obsm" in params:
        adata.uns[keys.uns] = told | {"components": fit.pca.components_}
        return
    write_loadings(adata, keys.varm, fit.pca, slice(None) if columns is None else columns)
    adata.uns[keys.uns] = told
