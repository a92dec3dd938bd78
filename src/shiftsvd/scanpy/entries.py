"""What `preprocess` does to counts of cells: learned before or after the mask, kept in ``uns``, done to new cells."""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from shiftsvd.backends.selection import Places
from shiftsvd.model_file.coding import code, decode
from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.scanpy.annotated import matrix_of, places_of
from shiftsvd.transforms.base import Fitted, Transform, checked
from shiftsvd.transforms.counting import LogNormalize
from shiftsvd.transforms.elementwise import OfEntry
from shiftsvd.transforms.residuals import PearsonResiduals
from shiftsvd.transforms.selecting import Select

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
