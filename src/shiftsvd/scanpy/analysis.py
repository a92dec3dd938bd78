"""`shiftsvd.scanpy`: principal components of AnnData objects and arrays, projection of new cells, diffusion maps."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd import PCA, Covariates, DiffusionMap, Operator, as_operator, centered
from shiftsvd.extend.files import some_columns
from shiftsvd.extend.fits import Design, integer, on_places
from shiftsvd.extend.operators import Panel, Vector
from shiftsvd.extend.running import (
    Refused,
    Resources,
    Setting,
    SklearnSolverName,
    SolverName,
    columns_called,
    few,
    named,
    plural,
)
from shiftsvd.extend.transforms import Preprocess, apply_all, as_transforms, kept_of, warn_of_counts, warn_unless_counts
from shiftsvd.scanpy import stored
from shiftsvd.scanpy.clipping import clipped_shares, with_clip
from shiftsvd.solvers import Solver
from shiftsvd.transforms import Transform

_DEFAULT_MASK: Final = "highly_variable, if var has it"  # compared by `is`: a mask may be an array
_DEFAULT_N_COMPONENTS: Final = 50  # default number of components


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
    mask_var: Any = _DEFAULT_MASK,
    use_highly_variable: bool | None = None,
    dtype: npt.DTypeLike = "float32",
    key_added: str | None = None,
    copy: bool = False,
    solver: SolverName | Solver = "auto",
    tol: float = 1e-6,
    preprocess: Preprocess | None = None,
    margins: stored.MarginsName | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    covariates: str | Sequence[str] | None = None,
    groups: str | Sequence[str] | None = None,
    max_value: float | None = None,
) -> Any:
    """Compute principal components as ``scanpy.pp.pca`` does, without a dense copy and from files larger than memory.

    Parameters
    ----------
    data : AnnData of n_obs x n_vars, or array or sparse matrix of that shape
        Data in memory, views, and files opened with ``backed="r"``. A file that would need more than half of
        `memory_limit` is read block by block.
    n_comps : int, optional
        Number of components. Default: 50, or one less than the smaller dimension of the matrix if that is at most 50.
    layer, obsm : str, optional
        The matrix to decompose instead of `X`.
    zero_center : bool
        Subtract the means of the genes. If False, variances are those of the scores around their means, as in
        scikit-learn's `TruncatedSVD`.
    scale : bool
        Divide by the standard deviations (ddof 1), as ``scanpy.pp.scale`` does; `X` is not changed. Then use `project`
        for new cells, because ``scanpy.tl.ingest`` expects a scaled `X`.
    svd_solver : str, optional
        Name of a scikit-learn solver, as in `shiftsvd.PCA`; "tsqr" means "full".
    chunked : bool
        Ignored, for compatibility with scanpy: files and Dask arrays are always read block by block, at full accuracy.
    chunk_size : int, optional
        Ignored, for compatibility with scanpy: the size of blocks depends on `memory_limit`.
    random_state : int, Generator or RandomState
        Seed of the solver; the same seed gives identical results.
    return_info : bool
        For arrays, also return components and variances.
    mask_var : str, array of bool or None
        The genes to use: a column of `var`, a mask, or None for all. A Series indexed by gene names is matched by name,
        any other mask by position. Default: "highly_variable" if `var` has this column.
    use_highly_variable : bool, optional
        Deprecated scanpy argument: True means ``mask_var="highly_variable"``, and False ``mask_var=None``.
    dtype : dtype
        Data type of the scores.
    key_added : str, optional
        Key of all results, instead of "X_pca", "PCs" and "pca".
    copy : bool
        Write the results to a copy, and return the copy.
    solver : str or Solver
        As in `shiftsvd.PCA`.
    tol : float
        Relative accuracy of the singular values.
    preprocess : transformation, its name, or list of them
        As in `shiftsvd.PCA`, for raw counts: "pearson" is ``scanpy.experimental.pp.normalize_pearson_residuals_pca``
        without its dense residuals, "log-normalize" is `pca` after ``normalize_total`` and ``log1p``.
    margins : "all", "mask" or None
        The genes that transformations are fitted on. By default library sizes (`LogNormalize`) are sums over all genes,
        and other transformations are fitted on the genes in the mask, as in scanpy.
    n_threads, memory_limit : optional
        As in `shiftsvd.PCA`.
    covariates : str or list of str, optional
        Columns of `obs` to regress out of every gene, in one regression with an intercept. Numeric columns get one
        coefficient, text and categorical columns one for each category. With ``scale=True`` the residuals are divided
        by their standard deviation, as ``scanpy.pp.regress_out`` and ``scanpy.pp.scale`` do; `X` is not changed.
    groups : str or list of str, optional
        Columns of `obs` to treat as categories even if they are numeric, such as the batch. A single column subtracts
        the mean of its group from each cell; several columns and `covariates` are fitted in one regression.
    max_value : float, optional
        With ``scale=True``, clip scaled values at plus and minus this number, as ``scanpy.pp.scale`` does, without a
        dense copy; with ``zero_center=False`` at plus this number only. ``uns["pca"]["params"]`` has the share of
        clipped entries. Cannot follow `covariates` and `groups`.

    Returns
    -------
    None, or AnnData
        For AnnData: None, or the copy if ``copy=True``. Results are ``obsm["X_pca"]`` (scores), ``varm["PCs"]``
        (loadings, 0 for genes outside the mask), ``uns["pca"]`` (params, variance, variance_ratio, value_errors), and
        ``varm["PCs_shift_scale"]`` for `project`: the shift and the scale of each gene, and the sum of its loadings,
        by which `project` checks that ``varm["PCs"]`` is unchanged. The fitted parts of `preprocess` are in
        ``uns["pca"]["preprocess"]``, scanpy's settings of residuals in ``uns["pearson_residuals_normalization"]``, and
        the regression on covariates in ``uns["pca"]["design"]``. Components of an obsm are in
        ``uns["pca"]["components"]``.
    array, or (array, array, array, array)
        For arrays: the scores. With `return_info`: scores, components, variance ratios and variances.

    Raises
    ------
    ValueError
        If data or settings are invalid.

    See Also
    --------
    scanpy.project : Project new cells onto the components.
    scanpy.highly_variable : Select genes before PCA.

    Notes
    -----
    Cost: that of `shiftsvd.PCA` and one pass for the scores. With `preprocess`, the scores take another pass for
    library sizes. scanpy's `batch_key` ranks genes within batches; `groups` removes batch means from the data.

    Examples
    --------
    >>> import numpy as np, shiftsvd.scanpy
    >>> X = np.random.default_rng(0).poisson(1.0, (100, 30)).astype("float32")
    >>> shiftsvd.scanpy.pca(X, 5, preprocess="log-normalize").shape
    (100, 5)
    """
    if margins not in ("all", "mask", None):
        raise ValueError(f'margins must be "all", "mask" or None, got {margins!r}')
    resources, steps = Resources(memory_limit, n_threads), as_transforms(preprocess)
    how = steps
    if max_value is not None:
        regressed = covariates is not None or groups is not None
        how = with_clip(how, max_value, scaled=bool(scale), regressed=regressed, zero_center=zero_center)
    if use_highly_variable is not None:
        mask_var = _mask_of_flag(mask_var, use_highly_variable)
    part = _Part(layer, obsm, key_added, covariates, groups, mask_var, zero_center, scale, bool(how), resources)
    if annotated := stored.is_annotated(data):
        stored.refuse_copy_of_file(data, copy)
    cells = part.of_annotated(data) if annotated else part.of_array(data)
    model = PCA(
        _n_components(n_comps, *cells.shape),
        preprocess=cells.selected_in(how, margins),
        shift=Covariates() if cells.design else "mean" if zero_center else None,
        scale=bool(scale) and max_value is None,
        scale_ddof=1,
        svd_solver="full" if svd_solver == "tsqr" else svd_solver,
        solver=solver,
        tol=tol,
        random_state=random_state,
        **vars(resources),
    )
    with columns_called(cells.names), named(cells.names):
        if obsm is None:
            _warn_of_values(steps, cells.A, cells.are_logarithms)
        Z = model.fit(cells.A, covariates=cells.C).transform(cells.A, covariates=cells.C)
    model.design_ = cells.design
    scores, (variance, ratio) = Z.astype(dtype, copy=False), _variances(model, Z, cells.A)
    if not annotated:
        return (scores, model.components_, ratio, variance) if return_info else scores
    adata = data.copy() if copy else data
    adata.obsm[stored.keys_of(key_added).obsm] = scores
    part.store(adata, model, cells, {"variance": variance, "variance_ratio": ratio})
    return adata if copy else None


def _mask_of_flag(mask: Any, use_highly_variable: bool) -> str | None:
    if mask is not _DEFAULT_MASK:
        got = f"got {mask!r} and {use_highly_variable!r}"
        raise Refused("Pass ", Setting("mask_var"), f" or use_highly_variable, not both, {got}")
    return "highly_variable" if use_highly_variable else None


class _Cells(NamedTuple):
    """The matrix to decompose, the genes to use, and the regression on columns of obs."""

    A: Operator  # with all genes if transformations need them, else with those in the mask
    mask: stored.Mask | None = None
    recorded: Any = None  # the mask, or its column of var
    names: Any = None  # of the columns of A
    design: Design | None = None
    C: Panel | None = None
    are_logarithms: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.A.shape[0], self.A.shape[1] if self.mask is None else int(self.mask.sum())

    def selected_in(self, how: tuple[Transform, ...], margins: stored.MarginsName | None) -> Any:
        if self.mask is None or not how:
            return how or None
        return stored.with_selection(how, np.flatnonzero(self.mask), margins)


class _Part(NamedTuple):
    """The part of the data to decompose, by the arguments of `pca`."""

    layer: str | None
    obsm: str | None
    key_added: str | None
    covariates: str | Sequence[str] | None
    groups: str | Sequence[str] | None
    mask_var: Any
    zero_center: bool
    scale: bool
    all_genes: bool  # whether transformations are fitted before genes are selected
    resources: Resources

    def of_array(self, data: Any) -> _Cells:
        names = "layer", "obsm", "key_added", "covariates", "groups"
        if given := [name for name in names if getattr(self, name) is not None]:
            raise ValueError(f"{', '.join(given)} must be None unless data is AnnData, got {type(data).__name__}")
        A = as_operator(data, **vars(self.resources))
        if self.mask_var is None or self.mask_var is _DEFAULT_MASK:
            return _Cells(A)
        mask = stored.booleans(self.mask_var, A.shape[1])
        return _Cells(A if self.all_genes else some_columns(A, np.flatnonzero(mask)), mask)

    def of_annotated(self, adata: Any) -> _Cells:
        design, mask_var = self._design(adata), self.mask_var
        C = None if design is None else design.of(stored.obs_column(adata))
        if self.obsm is not None:
            return _Cells(self._of_obsm(adata, self.obsm))
        if mask_var is _DEFAULT_MASK:
            mask_var = "highly_variable" if "highly_variable" in adata.var else None
        mask = None if mask_var is None else stored.mask_of(adata, mask_var)
        columns = None if mask is None or self.all_genes else np.flatnonzero(mask)
        A = stored.matrix_of(adata, self.layer, columns, self.resources)
        recorded = mask_var if isinstance(mask_var, str) else mask  # anndata cannot write a Series in uns
        names = adata.var_names if columns is None else adata.var_names[columns]
        return _Cells(A, mask, recorded, names, design, C, stored.has_logarithms(adata, self.layer))

    def _design(self, adata: Any) -> Design | None:
        covariates, groups = (stored.obs_names(what, getattr(self, what)) for what in ("covariates", "groups"))
        if not covariates + groups:
            return None
        if not self.zero_center or self.obsm is not None:
            raise ValueError(
                "covariates and groups are regressed out of genes, together with the means of the genes, and conflict "
                "with zero_center=False and obsm. Remove zero_center=False and obsm."
            )
        return Design.learn(covariates, groups, stored.obs_column(adata))

    def _of_obsm(self, adata: Any, key: str) -> Operator:
        if self.mask_var is not None and self.mask_var is not _DEFAULT_MASK:
            raise Refused(Setting("mask_var"), " selects genes and must be None with ", Setting("obsm", key))
        if self.layer is not None:
            raise ValueError(f"Pass layer or obsm, not both, got layer={self.layer!r} and obsm={key!r}.")
        if key not in adata.obsm:
            raise ValueError(f"adata.obsm has no {key!r}. Its entries: {few(adata.obsm)}.")
        return as_operator(adata.obsm[key], **vars(self.resources))

    def store(self, adata: Any, model: PCA, cells: _Cells, variances: dict[str, Any]) -> None:
        named = isinstance(cells.recorded, str) and cells.recorded == "highly_variable"
        params = {"zero_center": self.zero_center, "use_highly_variable": named, "mask_var": cells.recorded}
        params |= {name: own for name in ("layer", "obsm", "scale") if (own := getattr(self, name))}
        params |= clipped_shares(getattr(model, "preprocess_", ()))
        keys = stored.keys_of(self.key_added)
        if self.obsm is None:
            rows = slice(None) if cells.mask is None else cells.mask
            adata.varm.update(stored.loadings_of(model, adata.n_vars, rows, keys))
        else:
            variances["components"] = model.components_
        computed_on = self.layer or "adata.X"
        adata.uns.update(stored.uns_entries(model, keys.uns, params, variances, adata.var_names, computed_on))


def _warn_of_values(how: tuple[Transform, ...], A: Operator, marked: bool) -> None:
    if how:
        warn_unless_counts(how, A, marked)
    else:
        warn_of_counts(A, "PCA of cells usually uses logarithms. Use ", Setting("preprocess", "log-normalize"), ".")


def _variances(model: PCA, scores: Panel, A: Operator) -> tuple[Vector, Vector]:
    if model.shift is not None:
        return model.explained_variance_, model.explained_variance_ratio_
    # Variances of the scores around their means. `fit` has raised an error if the data have no variances.
    B = apply_all(getattr(model, "preprocess_", ()), A)
    scale: Any = 1 if model.scale_ is None else model.scale_
    total = np.sum(centered(B).column_squares() / scale**2) / B.shape[0]
    kind = model.explained_variance_.dtype
    variance = np.var(scores, axis=0, dtype=np.float64).astype(kind)
    return variance, (variance / total if total > 0 else np.zeros_like(variance)).astype(kind)


def _n_components(k: Any, m: int, n: int) -> int:
    least, shape = min(m, n), f"{plural(m, 'cell')} x {plural(n, 'gene')}"
    if k is None and least < 2:
        raise ValueError(f"data must have at least 2 cells, and 2 genes unless n_comps is given, got {shape}")
    k = min(least - 1, _DEFAULT_N_COMPONENTS) if k is None else k
    return integer("n_comps", k, 1, least, f" for {shape}")


# ---- projection of new cells


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
        If the reference has no components of `pca`, or components of an obsm; if genes of the components were removed
        from the reference; if the new cells lack more genes than `max_absent` allows, or so many that a direction in
        the space of the components loses half of its squared norm; if gene names are not unique; or if `obs` lacks a
        column that was regressed out, or has a category in it that the reference does not have.

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
    keys = stored.keys_of(key_added)
    model, genes = stored.read_model(reference, keys)
    model.feature_names_in_ = np.asarray(genes, object)
    steps, design = getattr(model, "preprocess_", ()), getattr(model, "design_", None)
    places = stored.places_of(adata, reference, genes[kept_of(steps, len(genes))], "of the components", max_absent)
    if any(each.selects for each in steps):
        places = stored.places_of(adata, reference, genes, stored.OF_SUMS, max_absent)
    present = np.flatnonzero(places >= 0)
    order = present[np.argsort(places[present])]  # read files in their own order
    A = stored.matrix_of(adata, layer, places[order], Resources())
    warn_unless_counts([each.how for each in steps], A, stored.has_logarithms(adata, layer))
    Z = on_places(model, order).transform(A, covariates=None if design is None else design.of(stored.obs_column(adata)))
    dtype = np.asarray(reference.obsm[keys.obsm]).dtype if keys.obsm in reference.obsm else np.float32
    adata.obsm[keys.obsm] = Z.astype(dtype)


# ---- diffusion maps


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
    if not stored.is_annotated(adata):
        raise TypeError(f"adata must be AnnData, got {type(adata).__name__}. Use shiftsvd.DiffusionMap for a matrix.")
    stored.refuse_copy_of_file(adata, copy)
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
