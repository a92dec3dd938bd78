"""Read matrices and columns of AnnData objects, and store models in their `varm` and `uns`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import shiftsvd
from shiftsvd import Covariates, LogNormalize, Operator, PearsonResiduals, Select, as_operator
from shiftsvd.extend.files import Labels, Places, SomeColumns, SomeRows, held_or_streamed, read_file
from shiftsvd.extend.fits import Column
from shiftsvd.extend.models import code, decode
from shiftsvd.extend.operators import Panel, Vector, unmasked
from shiftsvd.extend.running import Refused, Resources, Setting, few, named, notice, refuse
from shiftsvd.extend.transforms import OfEntry, SettingText, kept_of
from shiftsvd.scanpy.clipping import ClippedScale
from shiftsvd.scanpy.gene_names import Genes, is_missing, matched, names_of_var
from shiftsvd.transforms import Transform

if TYPE_CHECKING:
    from shiftsvd import PCA

# Rounding error of the sum of a row whose absolute values sum to 1, in a file in single precision.
_ROUNDING: Final = 4 * float(np.finfo(np.float32).eps)
# Largest deviation of the squared norm of loadings from 1. Rounding to single precision leaves less than 1e-7.
_LOST: Final = 1e-5
_DESIGN, _STEPS = "design", "preprocess"  # keys of the fitted regression and transformations in ``uns["pca"]``
_RESIDUALS: Final = "pearson_residuals_normalization"  # scanpy's own key
_ALL: Final = SettingText("mask_var", "none", "mask_var=None")
MarginsName = Literal["all", "mask"]
Mask = npt.NDArray[np.bool_]


class Keys(NamedTuple):
    """Keys of the results in an AnnData object."""

    obsm: str = "X_pca"
    varm: str = "PCs"
    uns: str = "pca"

    @property
    def shift_scale(self) -> str:
        return f"{self.varm}_shift_scale"


def keys_of(key_added: str | None) -> Keys:
    return Keys() if key_added is None else Keys(key_added, key_added, key_added)


# ---- the model


def loadings_of(pca: "PCA", n_genes: int, rows: Any, keys: Keys) -> dict[str, Panel]:
    V = np.zeros((n_genes, pca.n_components_), pca.components_.dtype)
    V[rows] = pca.components_.T
    shift_scale = np.zeros((n_genes, 3))
    shift_scale[rows, 0] = pca.mean_
    shift_scale[rows, 1] = 1 if pca.scale_ is None else pca.scale_
    shift_scale[:, 2] = V.sum(axis=1, dtype=np.float64)
    return {keys.varm: V, keys.shift_scale: shift_scale}


def uns_entries(
    pca: "PCA", key: str, params: dict[str, Any], variances: dict[str, Any], genes: Any, computed_on: str
) -> dict[str, Any]:
    # `genes` has the names of all genes, also of those outside the mask.
    found: dict[str, Any] = {}
    info, results = pca.info_, {"params": params, **variances}
    known = {"tol": pca.tol, "converged": info.converged}
    if info.value_errors is not None:
        results["value_errors"] = info.value_errors  # bounds of the relative errors of the singular values
        known["error_bound"] = float(np.max(info.value_errors, initial=0.0))
    params |= {name: value for name, value in known.items() if value is not None}
    fitted, design = getattr(pca, "preprocess_", ()), getattr(pca, "design_", None)
    if steps := tuple(each for each in fitted if not each.selects):
        n_all = next((number for number, each in enumerate(fitted) if each.selects), 0)
        names = np.array(genes if n_all else genes[kept_of(fitted, len(genes))], object)
        results[_STEPS] = _encoded(steps, "fitted") | {"n_all": n_all, "genes": names}
        params[_STEPS] = ", then ".join(str(each.how) for each in steps)
        last = steps[-1]
        if isinstance(last.how, PearsonResiduals):
            clip = float(last.known[0])
            found[_RESIDUALS] = {"theta": last.how.theta, "clip": clip, "computed_on": computed_on}
    if design is not None:
        results[_DESIGN] = _encoded((design, pca.shift_), "design")
        params["covariates"] = ", ".join(design.names)
    return {key: results} | found


def _encoded(value: Any, name: str) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    text = json.dumps(code(value, name, tensors))
    return {"text": text, **tensors}


def _decoded(kept: dict[str, Any]) -> Any:
    text = str(kept.pop("text"))
    return decode(json.loads(text), {name: np.asarray(value) for name, value in kept.items()})


def read_model(reference: Any, keys: Keys) -> tuple["PCA", Any]:
    """Return the model that `pca` or the command stored, and the names of the genes that it needs in new cells."""
    stored = reference.uns.get(keys.uns, {})
    if "obsm" in stored.get("params", {}):
        raise ValueError(
            f"the reference must have components of genes, but uns[{keys.uns!r}] holds components of "
            f"obsm={stored['params']['obsm']!r}. Run shiftsvd.scanpy.pca without obsm, or pass the key_added of such a "
            "run."
        )
    if missing := [name for name in (keys.varm, keys.shift_scale) if name not in reference.varm]:
        raise ValueError(f"the reference must have varm[{missing[0]!r}]. Run shiftsvd.scanpy.pca on it first.")
    V = np.asarray(reference.varm[keys.varm], np.float64)
    shift, scale, *sums = np.asarray(reference.varm[keys.shift_scale], np.float64).T
    for known in sums:  # absent from files of the first versions
        _check_sums(V, known, keys.varm)
    _check_norms(V, keys.varm)
    used = np.flatnonzero(scale > 0)
    genes = reference.var_names[used]
    pca = shiftsvd.PCA()
    pca.components_, pca.mean_, pca.scale_ = V[used].T, shift[used], scale[used]
    if kept := dict(stored.get(_DESIGN, {})):
        pca.shift = Covariates()
        design, learned = _decoded(kept)
        pca.design_, pca.shift_ = design, learned
        shape, mean = learned.coefficients.shape, learned.mean
        if shape != (design.width, len(genes)) or mean.shape != (len(genes),):
            raise ValueError(
                f"uns[{keys.uns!r}][{_DESIGN!r}] must have coefficients of the {len(genes):,} genes of the components, "
                f"got shape {shape}. Run shiftsvd.scanpy.pca again."
            )
    if kept := dict(stored.get(_STEPS, {})):
        n_all, names = int(kept.pop("n_all")), type(genes)(np.asarray(kept.pop("genes"), object))
        if not names.equals(reference.var_names if n_all else genes):
            raise ValueError(
                f"the reference must have the {len(names):,} genes that uns[{keys.uns!r}][{_STEPS!r}] was fitted on, "
                "in the same order. Run shiftsvd.scanpy.pca again."
            )
        steps = _decoded(kept)
        for number, each in enumerate(steps):
            each.check(len(names if number < n_all else genes))
        if n_all:
            genes, selection = names, Select(used).learn(np.zeros((1, len(names))))
            steps = (*steps[:n_all], selection, *steps[n_all:])
        pca.preprocess_ = steps
    return pca, genes


def _check_sums(V: Panel, sums: Vector, key: str) -> None:
    others = np.abs(V.sum(axis=1) - sums) > _ROUNDING * np.abs(V).sum(axis=1)
    if others.any():
        raise ValueError(
            f"the loadings of the reference, varm[{key!r}], have changed since shiftsvd.scanpy.pca wrote them: "
            f"{np.count_nonzero(others):,} of {len(V):,} genes differ. Run shiftsvd.scanpy.pca again."
        )


def _check_norms(V: Panel, key: str) -> None:
    held = np.sum(V**2, axis=0)
    worst = int(np.argmax(np.abs(held - 1)))
    if abs(held[worst] - 1) > _LOST:
        share = f"{100 * held[worst]:.4g} % of the squared loadings of component {worst + 1} in varm[{key!r}]"
        raise ValueError(
            f"the genes of the reference hold {share} instead of all, so genes were removed or repeated after "
            "shiftsvd.scanpy.pca. Pass the reference with all its genes; the new cells may lack some."
        )


def with_selection(
    how: tuple[Transform, ...], places: Places, margins: MarginsName | None = None
) -> tuple[Transform, ...]:
    # A clip is fitted gene by gene, and its shares are those of the selected genes.
    kinds = {"all": (Transform,), "mask": (), None: (LogNormalize, OfEntry)}[margins]
    of_all = [isinstance(each, kinds) and not isinstance(each, ClippedScale) for each in how]
    n_all = (*of_all, False).index(False)
    return (*how[:n_all], Select(places), *how[n_all:])


# ---- columns of obs


def obs_names(what: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a column of obs or a list of them, got {given!r:.80}")
    return names


def obs_column(adata: Any) -> Callable[[str], Column]:
    def column(name: str) -> Column:
        if name not in adata.obs:
            rule = f" must be columns of obs, got {name!r}. Columns of obs: {few(adata.obs)}."
            raise Refused(Setting("covariates"), " and ", Setting("groups"), rule)
        series = adata.obs[name]
        if type(series.dtype).__name__ == "CategoricalDtype" or series.dtype.kind not in "fiub":
            return np.asarray(series.to_numpy(object))
        return np.asarray(series if isinstance(series.dtype, np.dtype) else series.to_numpy(float, na_value=np.nan))

    return column


# ---- matrices and genes


def is_annotated(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("obsm", "varm", "uns", "var_names"))


def refuse_copy_of_file(adata: Any, copy: bool) -> None:
    if copy and adata.isbacked:
        raise ValueError("copy must be False for a backed AnnData object. Results are not written to its file.")


def matrix_of(adata: Any, layer: str | None, columns: Places | None, resources: Resources) -> Operator:
    with named(adata.var_names if columns is None else adata.var_names[columns]):
        if adata.isbacked and layer is None:
            return _backed_matrix(adata, columns, resources)
        if layer is not None and layer not in adata.layers:
            raise ValueError(f"adata has no layer {layer!r}. Its layers: {few(adata.layers)}.")
        part = adata if columns is None else adata[:, columns]
        X = part.X if layer is None else part.layers[layer]
        if X is None:
            raise ValueError("this AnnData object has no X. Pass a layer or an obsm.")
        return as_operator(X, **vars(resources))


def has_logarithms(adata: Any, layer: str | None) -> bool:
    return layer is None and "log1p" in adata.uns


def _backed_matrix(adata: Any, columns: Places | None, resources: Resources) -> Operator:
    if adata.is_view:
        raise ValueError("a view of a backed AnnData object cannot be written to. Call its method .to_memory() first.")
    opened = read_file(Path(adata.filename), "h5ad", "X", resources.memory_limit)
    source = opened.matrix
    if columns is not None:
        source = SomeRows(source, columns) if opened.transposed else SomeColumns(source, columns)
    A = as_operator(held_or_streamed(source, resources), **vars(resources))
    return A.H if opened.transposed else A


def mask_of(adata: Any, mask: Any) -> Mask:
    if not isinstance(mask, str):
        return booleans(_mask_by_names(mask, adata.var_names), adata.n_vars)
    if mask not in adata.var:
        raise refuse("mask_var", "be a column of var or an array", mask, f"columns of var: {few(adata.var)}")
    return booleans(adata.var[mask], adata.n_vars, f"the column {mask!r} of var")


def _mask_by_names(mask: Any, genes: Any) -> Any:
    if not hasattr(mask, "reindex") or len(mask) != len(genes) or not (mask.index.is_unique and genes.is_unique):
        return mask
    places = mask.index.get_indexer(genes)
    return mask if (places < 0).any() else mask.iloc[places]


def booleans(mask: Any, n_vars: int, name: str = "the mask") -> Mask:
    values = np.array(unmasked("mask_var", mask, "fill them with True or False"))
    if values.dtype == object:
        values = _from_objects(values, name)
    if values.dtype != bool or values.shape != (n_vars,):
        rule = f" must be {n_vars:,} booleans, got {values.dtype} of shape {values.shape}"
        raise Refused(Setting("mask_var"), rule)
    if not values.any():
        raise Refused(Setting("mask_var"), " must be true for at least one gene. To use all genes, pass ", _ALL, ".")
    return values


def _from_objects(values: Any, name: str) -> Any:
    if gaps := sum(map(is_missing, values.flat)):
        have = "missing value" if gaps == 1 else "missing values"
        rule = f" must be true or false for every gene, but {name} has {gaps:,} {have} in {values.size:,} genes. "
        remedy = "Fill them with .fillna(False).astype(bool), or pass ", _ALL, " to use all genes."
        raise Refused(Setting("mask_var"), rule, *remedy)
    return values.astype(bool) if all(isinstance(x, bool | np.bool_) for x in values.flat) else values


OF_SUMS: Final = "in the library sizes, selected or not"


def places_of(adata: Any, reference: Any, names: Any, of: str, max_absent: float) -> Places:
    """Return the place in `adata` of genes of the reference, of which a share may be absent (-1)."""
    if not 0 <= max_absent < 1:
        raise ValueError(f"max_absent must be at least 0 and below 1, a share of the genes, got {max_absent!r}")
    model, new = _genes_of(reference).named(names), _genes_of(adata)
    by_names = not (model.has_kinds or new.has_kinds)
    for whose, known in (*((("the new cells", adata.var_names),) if by_names else ()), ("the reference", names)):
        if not known.is_unique:
            twice = known[known.duplicated()][0]
            raise ValueError(
                f"gene names of {whose} must be unique, got {twice!r} several times. Call .var_names_make_unique() "
                "first."
            )
    found = matched(model, new)
    for note in found.notes:
        notice(f"The new cells: {note}")
    places = np.full(len(names), -1, np.intp)
    places[found.places[found.places >= 0]] = np.flatnonzero(found.places >= 0)
    absent = model.called(places < 0)
    if len(absent) > max_absent * len(names):
        unknown = new.called(matched(_genes_of(reference), new).places < 0)
        remedy = "Raise max_absent, or run shiftsvd.scanpy.pca on the genes that both have."
        if len(absent) == len(names):
            remedy = "Pass cells with the gene names of the reference."
        raise ValueError(
            f"the new cells lack {len(absent):,} of the {len(names):,} genes {of} (limit {100 * max_absent:g} %, "
            f"max_absent): {few(absent)}. Genes of the new cells that the reference lacks: {few(unknown)}. {remedy}"
        )
    if len(absent):
        then = "Library sizes are sums of the others" if of == OF_SUMS else "These genes are treated as missing"
        notice(
            f"The new cells lack {len(absent):,} of the {len(names):,} genes {of}: {few(absent)}. {then}. To raise an "
            "error instead, pass a smaller max_absent."
        )
    return places


def _genes_of(adata: Any) -> Genes:
    names: Labels = np.array([str(name) for name in adata.var_names], dtype=np.str_)
    columns = [str(name) for name in adata.var]
    return Genes.of(names, *names_of_var(names, columns, lambda name: adata.var[name].to_numpy(object)))
