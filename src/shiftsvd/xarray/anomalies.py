"""A field as the operator of its anomalies: centred, divided and weighted inside its products, never copied."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.runs.memory import Resources
from shiftsvd.xarray import fields
from shiftsvd.xarray.areas import cell_weights

Dim = Hashable | Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class Anomalies:
    """The anomalies of a field at the samples and cells that are present.

    Attributes
    ----------
    da : xarray.DataArray
    field : Stacked
    A : Operator of shape (m, n)
        The anomalies, divided and weighted.
    mean : array of shape (n,)
        What was subtracted, in the units of the field.
    weights : array of shape (n,)
        What the rest was multiplied by.
    """

    da: Any
    field: fields.Stacked
    A: Operator
    mean: Vector
    weights: Vector

    def in_space(self, values: Panel, mode: Any = None) -> Any:
        """Values of the cells, one row for each mode, or a single one, as a DataArray of the space."""
        full = fields.filled(np.atleast_2d(values), self.field.cells)
        return fields.labelled(full if mode is not None else full[0], self.da, self.field.space, mode)

    def in_time(self, Z: Panel, mode: Any) -> Any:
        """Scores (m, k) as a DataArray along the samples."""
        return fields.labelled(fields.filled(Z.T, self.field.rows), self.da, self.field.over, mode)

    def subtracted(self) -> dict[str, Any]:
        """The mean field with what the field says of itself, and the weights."""
        mean = self.in_space(self.mean).assign_attrs(fields.told_of(self.da))
        return {"mean_field": mean, "weights": self.in_space(self.weights)}

    @property
    def told(self) -> dict[str, str]:
        """What the field is called, if anything."""
        return {} if self.da.name is None else {"field": str(self.da.name)}


def anomalies(
    da: Any, field: fields.Stacked, weights: Any, center: bool, standardize: bool, resources: Resources
) -> Anomalies:
    """The anomalies of a stacked field; one pass for means and deviations."""
    applied = cell_weights(da, weights, field)
    A = as_operator(field.X, **vars(resources))
    moments = A.moments()
    scale = np.ones(A.shape[1])
    if standardize:
        scale = np.sqrt(moments.variance(ddof=0))
        scale[scale == 0] = 1
    scale = scale if applied is None else scale / applied
    plain = applied is None and not standardize
    prepared = Preparation("mean" if center else None, None if plain else scale).learn(A, moments)
    mean = moments.mean if center else np.zeros(A.shape[1])
    return Anomalies(da, field, prepared.of_own, mean, 1 / scale)


def steps(da: Any, dim: Dim, what: str) -> Hashable:
    """The one dimension along which samples follow each other in time; labels that do not are refused."""
    names = [dim] if isinstance(dim, str) or not isinstance(dim, Sequence) else list(dim)
    if len(names) != 1:
        raise ValueError(f"{what} needs one dimension of samples that follow each other, got dim={dim!r}")
    index = da.indexes.get(names[0]) if hasattr(da, "indexes") else None
    if index is not None and not index.is_monotonic_increasing:
        raise ValueError(f"{what} needs samples in order, {names[0]} is not ascending; da = da.sortby({names[0]!r})")
    return names[0]


def all_there(field: fields.Stacked, what: str) -> None:
    """Refuse samples without values, between which time would be cut out."""
    if absent := int(np.count_nonzero(~field.rows)):
        raise ValueError(
            f"{what} needs values at every step, {absent} of {len(field.rows)} samples have none; fill them, or take a "
            "stretch without them"
        )


def check_modes(n_modes: Any, most: int, what: str) -> None:
    """Refuse what cannot be a number of modes."""
    whole = isinstance(n_modes, int | np.integer) and not isinstance(n_modes, bool)
    if not whole or not 1 <= n_modes <= most:
        raise ValueError(f"n_modes must be in 1..{most} for {what}, got {n_modes!r}")
