"""Some of the columns, as a step among transformations: sums of rows before it go over all, after it over those."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms.base import Fitted, Transform


@dataclass(frozen=True, eq=False)
class Select(Transform):
    """Keep some columns, such as highly variable genes.

    Parameters
    ----------
    places : array of bool of shape (n,), or array of int
        Which of the columns stay: a mask, or places that are counted from 0. Their order is that of the data.

    See Also
    --------
    preprocess : Steps one after the other.

    Notes
    -----
    What comes before it in a list is learned from all columns, what comes after it from those that stay:
    ``[LogNormalize(), Select(kept)]`` divides by sums over all genes, and ``[Select(kept), PearsonResiduals()]`` is a
    model of those alone. Entries are changed after the others are left out, so that those cost nothing but their part
    of the sums. No read.

    Rows of the same features are expected by whatever is fitted: `n_features_in_` counts all of them, while components,
    means and scales are of those that stay.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 2.0]])
    >>> ss.preprocess(X, [ss.LogNormalize(1.0), ss.Select([0, 2])]) @ np.eye(2)
    array([[0.22314355, 0.55961579],
           [0.        , 0.40546511]])
    """

    selects: ClassVar[bool] = True
    learns: ClassVar[tuple[int, int]] = (1, 0)
    places: Vector = field(repr=False)

    def __post_init__(self) -> None:
        places = np.array(unmasked("places", self.places))
        if places.ndim != 1 or not places.size or places.dtype.kind not in "biu":
            raise ValueError(f"places must be a mask or places of columns, got {places.dtype} of shape {places.shape}")
        if places.dtype == bool and not places.any():
            raise ValueError("places must keep a column at least, got a mask that is false everywhere")
        if places.dtype != bool:
            places = np.sort(places).astype(np.int64)
            if places[0] < 0 or np.any(np.diff(places) == 0):
                raise ValueError("places must be counted from 0, each of them once")
        object.__setattr__(self, "places", places)

    def n_columns(self, n: int) -> int:
        if self.places.dtype == bool and len(self.places) != n:
            raise ValueError(f"places must be a mask of the {n} columns, got {len(self.places)} truth values")
        if self.places.dtype != bool and self.places[-1] >= n:
            raise ValueError(f"places must be in 0..{n - 1}, got {self.places[-1]}")
        return int(self.places.sum()) if self.places.dtype == bool else len(self.places)

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        n = A.shape[1]
        self.n_columns(n)
        marks = np.zeros(n)
        marks[self.places] = 1
        return Fitted(self, marks[:, None], np.zeros(0)), np.zeros((A.shape[0], 0))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return x
