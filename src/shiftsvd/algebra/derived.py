"""An operator made of another one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import gram_seconds, registered
from shiftsvd.algebra.operator import Operator
from shiftsvd.numerics.panels import Panel


@registered
@dataclass(frozen=True, eq=False, repr=False)
class Derived(Operator):
    """An operator made of another one, A: as large, and its products cost and round as those of A do."""

    A: Operator
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.A.shape)
        object.__setattr__(self, "dtype", self.A.dtype)

    @property
    def eps(self) -> float:
        """As of A."""
        return self.A.eps

    def gram_seconds(self, V: Panel) -> float:
        """As of A."""
        return gram_seconds(self.A, V)

    @property
    def gram_eps(self) -> float:
        """As of A."""
        return self.A.gram_eps

    @property
    def panel_columns(self) -> tuple[int, int]:
        """As of A."""
        return self.A.panel_columns

    @property
    def working_bytes(self) -> int:
        """As of A."""
        return self.A.working_bytes

    @property
    def file_bytes(self) -> int:
        """As of A."""
        return self.A.file_bytes

    @property
    def square_bytes(self) -> float:
        """As of A."""
        return self.A.square_bytes

    @property
    def stored(self) -> int:
        """As of A."""
        return self.A.stored

    @property
    def n_threads(self) -> int | None:
        """As of A."""
        return self.A.n_threads

    @property
    def strain(self) -> int:
        """As of A."""
        return self.A.strain
