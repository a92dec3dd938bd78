"""Log ratios of the parts of compositions, whose rows have no size of their own."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms.base import Fitted, Transform, not_negative


@dataclass(frozen=True, eq=False)
class CLR(Transform):
    """Centred log ratios of compositions: ``log(x + c)`` less its mean over the columns of the row, or a kin of it.

    Parameters
    ----------
    pseudocount : float
        The number c, for "clr": its logarithm cancels, ``log(1 + x / c) - mean_j log(1 + x_ij / c)``.
    kind : "clr", "robust" or "seurat"
        "robust": ``log(x)`` less its mean over the entries of the row that are not 0; zeros stay (Martino et al. 2019).
        "seurat": ``log(1 + x / exp(mean_j log(1 + x_ij)))``, as Seurat's normalisation of proteins; zeros stay zeros.

    See Also
    --------
    LogNormalize : Logarithms of shares, whose zeros stay zeros.

    Notes
    -----
    The mean is over all columns, those that are not stored too: what is subtracted from zeros is of rank 1. One read.

    References
    ----------
    Aitchison (1986), The statistical analysis of compositional data; Martino et al. (2019), A novel sparse
    compositional technique reveals microbial perturbations.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(np.array([[1.0, 0.0], [7.0, 1.0]]), ss.CLR()) @ np.eye(2)
    array([[ 0.34657359, -0.34657359],
           [ 0.69314718, -0.69314718]])
    """

    of_counts: ClassVar[bool] = True
    pseudocount: float = 1.0
    kind: Literal["clr", "robust", "seurat"] = "clr"

    def __post_init__(self) -> None:
        if not 0 < self.pseudocount < np.inf:
            raise ValueError(f"pseudocount must be a finite number above 0, got {self.pseudocount!r}")
        if self.kind not in ("clr", "robust", "seurat"):
            raise ValueError(f'kind must be "clr", "robust" or "seurat", got {self.kind!r}')

    @property
    def keeps_zeros(self) -> bool:  # type: ignore[override]
        return self.kind != "clr"

    def terms(self, x: Vector, c: Quantities) -> tuple[Vector, ...]:
        not_negative(x, self)
        return (self._log(x), (x > 0).astype(np.float64))

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        count = np.maximum(sums[:, 1:], 1) if self.kind == "robust" else len(fitted.columns)
        mean = sums[:, :1] / count
        return np.exp(-mean) if self.kind == "seurat" else mean

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        n = A.shape[1]
        fitted = Fitted(self, np.zeros((n, 0)), np.zeros(0), np.ones((n, 1)) if self.kind == "clr" else None)
        return fitted, fitted.rows(A)

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        not_negative(x, self)
        if self.kind == "seurat":
            return np.asarray(np.log1p(x * r[0]))
        return np.where(x > 0, self._log(x) - r[0], 0) if self.kind == "robust" else self._log(x)

    def _log(self, x: Vector) -> Vector:
        if self.kind != "robust":
            return np.log1p(x / (self.pseudocount if self.kind == "clr" else 1))
        with np.errstate(divide="ignore"):
            return np.where(x > 0, np.log(x), 0)

    def rounded_at(self, R: Panel, fitted: Fitted) -> tuple[Panel, Panel]:
        mean = -np.log(R) if self.kind == "seurat" else R
        return mean, np.ones((len(fitted.columns), 1))

    def left(self, R: Panel, fitted: Fitted) -> Panel:
        return np.negative(R)
