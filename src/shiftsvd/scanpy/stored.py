"""Matrices of AnnData objects as operators, and what is stored in `varm` and `uns`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from shiftsvd import PCA, LogNormalize, Operator, PearsonResiduals, Select, as_operator
from shiftsvd.extend.files import Places, SomeColumns, SomeRows, held_or_streamed, read_file
from shiftsvd.extend.fits import Column, Design, LearnedCovariates
from shiftsvd.extend.models import code, decode
from shiftsvd.extend.operators import (
    Panel,
    Quantities,
    Vector,
    from_frame,
    is_frame,
    is_lazy,
    numeric_array,
    sound_places,
    unmasked,
)
from shiftsvd.extend.running import Refused, Resources, Setting, notice, refuse
from shiftsvd.extend.transforms import Fitted, OfEntry, Transform, checked

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


_KEPT_DESIGN: Final = "design"  # where it is in ``uns["pca"]``


def names_of(what: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a column of obs or a list of them, got {given!r:.80}")
    return names


def obs_column(adata: Any) -> Callable[[str], Column]:
    def column(name: str) -> Column:
        if name not in adata.obs:
            rule = f" must be columns of obs, got {name!r}; obs has {list(adata.obs)}"
            raise Refused(Setting("covariates"), " and ", Setting("groups"), rule)
        series = adata.obs[name]
        is_label = type(series.dtype).__name__ == "CategoricalDtype" or series.dtype.kind not in "fiub"
        values: Column = series.to_numpy(object) if is_label else _numbers(series)
        return values

    return column


def _numbers(series: Any) -> Column:
    if isinstance(series.dtype, np.dtype):
        return np.asarray(series)
    return np.asarray(series.to_numpy(np.float64, na_value=np.nan))


def kept_design(design: Design, learned: LearnedCovariates) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    text = json.dumps(code((design, learned), "design", tensors))
    return {"text": text, **tensors}


def write_design(adata: Any, key: str, design: Design, learned: Any) -> None:
    adata.uns[key][_KEPT_DESIGN] = kept_design(design, learned)
    adata.uns[key]["params"]["covariates"] = ", ".join(design.names)


def read_design(reference: Any, key: str, n_genes: int) -> tuple[Design, LearnedCovariates] | None:
    kept = dict(reference.uns.get(key, {}).get(_KEPT_DESIGN, {}))
    if not kept:
        return None
    text = str(kept.pop("text"))
    design, learned = decode(json.loads(text), {name: np.asarray(value) for name, value in kept.items()})
    if learned.coefficients.shape != (design.width, n_genes) or learned.mean.shape != (n_genes,):
        raise ValueError(
            f"uns[{key!r}][{_KEPT_DESIGN!r}] must be of the {n_genes} genes of the components, got coefficients of "
            f"shape {learned.coefficients.shape}; run shiftsvd.scanpy.pca again"
        )
    return design, learned


MarginsName = Literal["all", "mask"]
_KEPT: Final = "preprocess"  # where what was learned is in ``uns["pca"]``
PEARSON: Final = "pearson_residuals_normalization"  # scanpy's own


class Step(NamedTuple):
    """A transformation that was learned from all genes, or from those in the mask."""

    fitted: Fitted
    own: Fitted  # of the genes in the mask
    R: Panel  # the quantities of the cells
    of_all: bool


@dataclass(frozen=True, eq=False)
class Known(Transform):
    """A transformation for which nothing is to be learned any more: for `PCA`, which learns from the mask alone."""

    step: Step

    @property
    def keeps_zeros(self) -> bool:  # type: ignore[override]
        return self.step.fitted.how.keeps_zeros

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        return self.step.own, self.step.R

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return self.step.fitted.how.entry(x, r, c, known, table)


def learned(
    how: tuple[Transform, ...],
    every: Operator,
    A: Operator,
    columns: Places | None,
    margins: MarginsName | None,
    tol: float,
) -> tuple[Step, ...]:
    steps: list[Step] = []
    for each in how:
        if steps:
            last = steps[-1]
            every = last.fitted.of(every, last.R) if last.of_all else every
            A = last.own.of(A, last.R)
        of_all = columns is not None and _of_all(each, margins) and all(step.of_all for step in steps)
        B = checked(every if of_all else A)
        fitted, R = each.learn_rows(B, np.ones(B.shape[0]), tol)
        steps.append(Step(fitted, fitted.at(columns) if of_all else fitted, R, of_all))
    return tuple(steps)


def _of_all(how: Transform, margins: MarginsName | None) -> bool:
    if margins not in ("all", "mask", None):
        raise ValueError(f'margins must be "all", "mask" or None, got {margins!r}')
    return margins == "all" or (margins is None and isinstance(how, LogNormalize | OfEntry))


def with_selection(
    how: tuple[Transform, ...], places: Places, margins: MarginsName | None = None
) -> tuple[Transform, ...]:
    n_all = next((number for number, each in enumerate(how) if not _of_all(each, margins)), len(how))
    return (*how[:n_all], Select(places), *how[n_all:])


def transformed(steps: tuple[Step, ...], A: Operator) -> Operator:
    for step in steps:
        A = step.own.of(A, step.R)
    return A


class Entries(NamedTuple):
    """What new cells need."""

    fitted: tuple[Fitted, ...]
    n_all: int  # how many of them, the first ones, need all genes
    genes: Any  # the names of these, a pandas Index; of those in the mask where there are none such

    def of_cells(
        self, A: Operator, adata: Any, layer: str | None, genes: Any, order: Places, max_absent: float
    ) -> Operator:
        if self.n_all:
            places = places_of(adata, self.genes, "that sums of cells go over", max_absent)
            there = np.flatnonzero(places >= 0)
            ascending, inside = there[np.argsort(places[there])], self.genes.get_indexer(genes[order])
            every = matrix_of(adata, layer, places[ascending], Resources())
            for fitted in self.fitted[: self.n_all]:
                R = fitted.at(ascending).rows(every)
                every, A = fitted.at(ascending).of(every, R), fitted.at(inside).of(A, R)
        for fitted in self.fitted[self.n_all :]:
            A = fitted.at(order).of(A)
        return A


def kept_entries(fitted: tuple[Fitted, ...], n_all: int, genes: Any) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    text = json.dumps(code(fitted, "fitted", tensors))
    return {"text": text, "n_all": n_all, "genes": np.array(genes, object), **tensors}


def write_entries(adata: Any, key: str, steps: tuple[Step, ...], columns: Places | None, computed_on: str) -> None:
    n_all = sum(step.of_all for step in steps)
    genes = adata.var_names if n_all or columns is None else adata.var_names[columns]
    adata.uns[key][_KEPT] = kept_entries(tuple(step.fitted for step in steps), n_all, genes)
    adata.uns[key]["params"][_KEPT] = ", then ".join(str(step.fitted.how) for step in steps)
    if told := told_residuals(steps[-1].fitted, computed_on):
        adata.uns[PEARSON] = told


def told_residuals(last: Fitted, computed_on: str) -> dict[str, Any]:
    if not isinstance(last.how, PearsonResiduals):
        return {}
    return {"theta": last.how.theta, "clip": float(last.known[0]), "computed_on": computed_on}


def read_entries(reference: Any, key: str, genes: Any) -> Entries | None:
    kept = dict(reference.uns.get(key, {}).get(_KEPT, {}))
    if not kept:
        return None
    n_all, text = int(kept.pop("n_all")), str(kept.pop("text"))
    names = type(genes)(np.asarray(kept.pop("genes"), object))
    if not names.equals(reference.var_names if n_all else genes):
        raise ValueError(
            f"the genes of the reference must be those that uns[{key!r}][{_KEPT!r}] was learned of, {len(names)} in "
            "their order; run shiftsvd.scanpy.pca again"
        )
    fitted = decode(json.loads(text), {name: np.asarray(value) for name, value in kept.items()})
    for number, each in enumerate(fitted):
        each.check(len(names if number < n_all else genes))
    return Entries(fitted, n_all, names)


Mask = npt.NDArray[np.bool_]


def is_annotated(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("obsm", "varm", "uns", "var_names"))


def matrix_of(adata: Any, layer: str | None, columns: Places | None, resources: Resources) -> Operator:
    if adata.isbacked and layer is None:
        return _backed(adata, columns, resources)
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"layer must be one of {list(adata.layers)}, got {layer!r}")
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError("this AnnData object has no X; name a layer or an obsm")
    return as_operator(X if columns is None else indexable(X)[:, columns], **vars(resources))


def logged(adata: Any, layer: str | None) -> bool:
    return layer is None and "log1p" in adata.uns


def _backed(adata: Any, columns: Places | None, resources: Resources) -> Operator:
    if adata.is_view:
        raise ValueError("a view of a backed AnnData object cannot be written to; call .to_memory() of it first")
    opened = read_file(Path(adata.filename), "h5ad", "X", resources.memory_limit)
    source = opened.matrix
    if columns is not None:
        source = SomeRows(source, columns) if opened.transposed else SomeColumns(source, columns)
    A = as_operator(held_or_streamed(source, resources), **vars(resources))
    return A.H if opened.transposed else A


def indexable(X: Any) -> Any:
    X = from_frame(X) if is_frame(X) else X
    if hasattr(X, "matmat"):
        raise TypeError(f"mask_var must be left out for an operator, which has no columns to choose; got {X!r}")
    if getattr(X, "format", None) in ("coo", "dia", "bsr"):
        sound_places(X)
        X = X.tocsr()
    return X if issparse(X) or is_lazy(X) else numeric_array(X)


def mask_of(adata: Any, mask: Any) -> Mask:
    if not isinstance(mask, str):
        return booleans(_in_order(mask, adata.var_names), adata.n_vars)
    if mask not in adata.var:
        raise refuse("mask_var", "be a column of var or an array", mask, f"var has {list(adata.var)}")
    return booleans(adata.var[mask], adata.n_vars, f"the column {mask!r} of var")


def _in_order(mask: Any, genes: Any) -> Any:
    if not hasattr(mask, "reindex") or len(mask) != len(genes) or not (mask.index.is_unique and genes.is_unique):
        return mask
    places = mask.index.get_indexer(genes)
    return mask if (places < 0).any() else mask.iloc[places]


def booleans(mask: Any, n_vars: int, told: str = "it") -> Mask:
    values = np.array(unmasked("mask_var", mask, "fill them with True or False"))
    if values.dtype == object:
        values = _from_objects(values, told)
    if values.dtype != bool or values.shape != (n_vars,):
        raise Refused(Setting("mask_var"), f" must be {n_vars} booleans, got {values.dtype} of shape {values.shape}")
    if not values.any():
        rule = " must be true for a gene at least; give "
        raise Refused(Setting("mask_var"), rule, Setting("mask_var", None), " to take them all")
    return values


def _from_objects(values: Any, told: str) -> Any:
    if gaps := sum(x is None or type(x).__name__ == "NAType" or x != x for x in values.flat):
        raise Refused(
            Setting("mask_var"),
            f" must be true or false for every gene, but {told} misses {gaps} of {values.size}; ",
            *("use .fillna(False).astype(bool), or ", Setting("mask_var", None), " to take them all"),
        )
    return values.astype(bool) if all(isinstance(x, bool | np.bool_) for x in values.flat) else values


def places_of(adata: Any, names: Any, of: str, max_absent: float) -> Places:
    if not 0 <= max_absent < 1:
        raise ValueError(f"max_absent must be a share of the genes, at least 0 and below 1, got {max_absent!r}")
    for whose, known in (("the new cells", adata.var_names), ("the reference", names)):
        if not known.is_unique:
            twice = known[known.duplicated()][0]
            raise ValueError(
                f"the names of the genes of {whose} must be unique, got {twice!r} twice; "
                "call .var_names_make_unique() first"
            )
    places: Places = adata.var_names.get_indexer(names)
    absent = names[places < 0]
    few = f"{', '.join(map(str, absent[:5]))}{', ...' if len(absent) > 5 else ''}"
    if len(absent) > max_absent * len(names):
        raise ValueError(
            f"the new cells must have all {len(names)} genes {of}, {len(absent)} are missing: {few}; "
            f"max_absent={max_absent:g} is the share of them that may be"
        )
    if len(absent):
        notice(f"{len(absent)} of {len(names)} genes {of} are absent from the new cells, and unobserved: {few}")
    return places
