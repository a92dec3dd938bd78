"""SciPy LinearOperators, and any object with shape, dtype, matmat and rmatmat."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import exponents_of
from shiftsvd.operators import Operator, Panel, panel_dtype

FEW = 4  # random vectors that tell how large the entries are


@registered
@dataclass(frozen=True, eq=False, repr=False)
class Foreign(Operator):
    """An operator of another package (SciPy's LinearOperator, or what has its methods) as one of this."""

    A: Any

    def __post_init__(self) -> None:
        if self.A.dtype is None:
            raise ValueError("the operator has no dtype; set it, for example LinearOperator(..., dtype=float)")
        dtype = np.dtype(self.A.dtype)
        if dtype.kind not in "fciub":
            raise ValueError(f"the operator must be numeric, got dtype {dtype}")
        if len(self.A.shape) != 2 or min(self.A.shape) < 1:
            raise ValueError(f"the operator must have two dimensions of at least 1, got shape {self.A.shape}")
        dtype = dtype if dtype.char in "fdFD" else panel_dtype(dtype)
        vars(self).update(shape=(int(self.A.shape[0]), int(self.A.shape[1])), dtype=dtype)

    def matmat(self, V: Panel) -> Panel:
        return _theirs(self.A.matmat(V))

    def rmatmat(self, W: Panel) -> Panel:
        return _theirs(self.A.rmatmat(W))

    def column_exponents(self) -> Vector:
        return np.full(self.shape[1], self._exponent)

    def row_exponents(self) -> Vector:
        return np.full(self.shape[0], self._exponent)

    @cached_property
    def _exponent(self) -> int:
        Omega = np.random.default_rng(0).standard_normal((self.shape[1], FEW))
        return int(exponents_of(self.matmat(Omega.astype(panel_dtype(self.dtype)))).max())


def _theirs(product: Any) -> Panel:
    view = np.asarray(product).view()
    view.flags.writeable = False
    return view
