"""A field as the operator of its anomalies: centred, divided and weighted inside its products."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.xarray import fields
from shiftsvd.xarray.areas import cell_weights
from shiftsvd.xarray.preparing import Asked, filled_in, observed, removed_by, whole
from shiftsvd.xarray.removed import Removed, as_variables
from shiftsvd.xarray.samples import Samples

Dim = Hashable | Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class Anomalies:
    """The anomalies of a field at the samples and cells that are present; never copied where no values are missing.

    Attributes
    ----------
    da : xarray.DataArray
    field : Stacked
    A : Operator of shape (m, n)
        The anomalies, divided and weighted.
    removed : Removed
        What was subtracted, in the units of the field.
    mean : array of shape (n,)
        The mean of each cell.
    weights : array of shape (n,)
        What the rest was multiplied by.
    known : Samples
        What is known of all samples, the absent ones too.
    said : dict
        What the result says of this field alone.
    converged : bool
        Whether a completion did, if there was one.
    """

    da: Any
    field: fields.Stacked
    A: Operator
    removed: Removed
    mean: Vector
    weights: Vector
    known: Samples
    said: dict[str, Any]
    converged: bool = True

    def in_space(self, values: Panel, mode: Any = None) -> Any:
        full = fields.filled(np.atleast_2d(values), self.field.cells)
        return fields.labelled(full if mode is not None else full[0], self.da, self.field.space, mode)

    def in_time(self, Z: Panel, mode: Any) -> Any:
        return fields.labelled(fields.filled(Z.T, self.field.rows), self.da, self.field.over, mode)

    def subtracted(self) -> dict[str, Any]:
        mean = self.in_space(self.mean).assign_attrs(fields.told_of(self.da))
        plain = {"mean_field": mean, "weights": self.in_space(self.weights)}
        return plain | as_variables(self.removed, self.da, self.field, self.known)


def anomalies(da: Any, field: fields.Stacked, asked: Asked, rank: Any, rng: np.random.Generator) -> Anomalies:
    """The anomalies of a stacked field; a completion, if one is asked for, is of this rank.

    One pass for means and deviations, one more for groups and covariates.
    """
    known = Samples.of(da, field.over, asked.groups, asked.covariates)
    samples, applied = known.at(field.rows), cell_weights(da, asked.weights, field)
    said: dict[str, Any] = {"missing": asked.missing} | ({} if da.name is None else {"field": str(da.name)})
    if not field.n_missing:
        prepared = whole(field.X, samples, applied, asked).prepared
        removed, scale = removed_by(prepared, samples, asked), prepared.scale
        weights = np.ones(len(removed.means[0])) if scale is None else 1 / scale
        mean = prepared.column_means if asked.center else removed.means[0]
        return Anomalies(da, field, prepared.of_own, removed, mean, weights, known, said)
    seen = observed(field.X, samples, applied, asked)
    filled = filled_in(seen.Y, rank, asked, rng)
    prepared = Preparation("mean" if asked.center else None).learn(filled.A)
    removed, mean = seen.off(prepared.column_means if asked.center else np.zeros(len(seen.mean)))
    said |= {"n_missing": field.n_missing} | filled.told
    return Anomalies(da, field, prepared.of_own, removed, mean, 1 / seen.scale, known, said, filled.converged)


def steps(da: Any, dim: Dim, what: str) -> Hashable:
    names = [dim] if isinstance(dim, str) or not isinstance(dim, Sequence) else list(dim)
    if len(names) != 1:
        raise ValueError(f"{what} needs one dimension of samples that follow each other, got dim={dim!r}")
    index = da.indexes.get(names[0]) if hasattr(da, "indexes") else None
    if index is not None and not index.is_unique:
        raise ValueError(
            f"{what} needs samples in order, {names[0]} has labels twice; da.drop_duplicates({names[0]!r})"
        )
    if index is not None and not index.is_monotonic_increasing:
        raise ValueError(f"{what} needs samples in order, {names[0]} is not ascending; da = da.sortby({names[0]!r})")
    return names[0]


def all_there(rows: fields.Mask, what: str) -> None:
    if absent := int(np.count_nonzero(~rows)):
        raise ValueError(
            f"{what} needs values at every step, {absent} of {len(rows)} samples have none; fill them, take a stretch "
            'without them, or say missing="mean" or "em" in the fit'
        )


def check_modes(n_modes: Any, most: int, what: str) -> None:
    whole = isinstance(n_modes, int | np.integer) and not isinstance(n_modes, bool)
    if not whole or not 1 <= n_modes <= most:
        raise ValueError(f"n_modes must be in 1..{most} for {what}, got {n_modes!r}")
