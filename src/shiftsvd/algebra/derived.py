"""An operator made of another one."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shiftsvd.algebra.costs import Costs
from shiftsvd.algebra.generic import (
    cancelled,
    gram_seconds,
    matmat_in_double,
    passes_per_step,
    registered,
    rmatmat_in_double,
)
from shiftsvd.algebra.operator import Operator
from shiftsvd.numerics.diagonal import scaled
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel, panel_dtype


@registered
@dataclass(frozen=True, eq=False, repr=False)
class Derived(Operator):
    """An operator made of another one, A: as large, and its products cost and round as those of A do."""

    A: Operator

    def __post_init__(self) -> None:
        vars(self).update(shape=self.A.shape, dtype=self.A.dtype)

    @cached_property
    def costs(self) -> Costs:
        A = self.A.costs
        own = {"gram_reads": 2, "gram_in_single": self.dtype == np.float32, "gram_pairs": A.stored**2 / self.shape[0]}
        return replace(A, **own | self.known_costs())

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if V.dtype != panel_dtype(V.dtype):
            return super().gram(V, weights)
        return rmatmat_in_double(self, scaled(weights, matmat_in_double(self, V)))

    def known_costs(self) -> dict[str, Any]:
        """The costs that differ from those of A, for `costs`."""
        return {}

    def cancelled(self) -> float:
        """What products of A cancel."""
        return cancelled(self.A)

    def passes_per_step(self) -> int:
        """The passes of a step: as many as A takes."""
        return passes_per_step(self.A)

    def gram_seconds(self, V: Panel) -> float:
        """Seconds that ``A^H A V`` is expected to take, as the operator inside foresees them."""
        return gram_seconds(self.A, V)
