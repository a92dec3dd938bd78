"""Functions of one entry, whatever its row and column: what zeros become is a shift."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shiftsvd.errors import refuse
from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms.base import Fitted, Transform, require


@dataclass(frozen=True, eq=False)
class OfEntry(Transform):
    """``f(x)``: only the number of columns is learned, without a read."""

    @abstractmethod
    def value(self, x: Vector) -> Vector:
        """Compute ``f(x)`` of each entry."""

    @property
    def at_zero(self) -> float:
        """``f(0)``, the value of all entries that are not stored."""
        return float(self.value(np.zeros(1))[0])

    @property
    def keeps_zeros(self) -> bool:  # type: ignore[override]
        return self.at_zero == 0

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        n = A.shape[1]
        right = None if self.keeps_zeros else np.full((n, 1), self.at_zero)
        return Fitted(self, np.zeros((n, 0)), np.zeros(0), right), np.zeros((A.shape[0], 0))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return np.asarray(self.value(x) - self.at_zero)


@dataclass(frozen=True, eq=False)
class Sqrt(OfEntry):
    """``sqrt(x)``: Poisson counts then have a variance of about 1/4.

    See Also
    --------
    FreemanTukey : Steadier near 0.
    Anscombe : For Poisson counts.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[4.0, 0.0], [9.0, 1.0]])
    >>> round(float(ss.svd(X, 1, preprocess=ss.Sqrt(), rng=0).S[0]), 3)
    3.702
    """

    of_counts: ClassVar[bool] = True

    def value(self, x: Vector) -> Vector:
        return np.sqrt(x)


@dataclass(frozen=True, eq=False)
class FreemanTukey(OfEntry):
    """``sqrt(x) + sqrt(x + 1)``: stabler for small counts (Freeman & Tukey 1950). A zero becomes 1.

    See Also
    --------
    Sqrt : One root.
    Anscombe : For Poisson counts.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.FreemanTukey().value(np.array([0.0, 3.0])).round(3).tolist()
    [1.0, 3.732]
    """

    of_counts: ClassVar[bool] = True

    def value(self, x: Vector) -> Vector:
        return np.asarray(np.sqrt(x) + np.sqrt(x + 1))


@dataclass(frozen=True, eq=False)
class Anscombe(OfEntry):
    """``2 sqrt(x + 3/8)``: Poisson counts then have a variance of about 1 (Anscombe 1948).

    See Also
    --------
    Sqrt : The plain root.
    FreemanTukey : Both roots.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.Anscombe().value(np.array([0.0, 3.0])).round(3).tolist()
    [1.225, 3.674]
    """

    of_counts: ClassVar[bool] = True

    def value(self, x: Vector) -> Vector:
        return 2 * np.sqrt(x + 0.375)


@dataclass(frozen=True, eq=False)
class Binarize(OfEntry):
    """1 where ``x > threshold``, else 0.

    Parameters
    ----------
    threshold : float
        At least 0, so that zeros stay zeros.

    See Also
    --------
    Ranks : The order of the entries in a row.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.Binarize(1.0).value(np.array([0.0, 1.0, 2.0])).tolist()
    [0.0, 0.0, 1.0]
    """

    threshold: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.threshold < np.inf, "threshold", "be a finite number of at least 0", self.threshold)

    def value(self, x: Vector) -> Vector:
        return (x > self.threshold).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Elementwise(OfEntry):
    """``f(x)`` of every entry.

    Parameters
    ----------
    f : callable
        Takes and returns a vector; finite at 0. A function of NumPy can be written to a model file; one of your own
        cannot, nor a lambda on a cluster of other machines.

    See Also
    --------
    Sqrt : A function that has a name already.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(np.array([[0.0, 1.0]]), ss.Elementwise(np.cos)) @ np.eye(2)
    array([[1.        , 0.54030231]])
    """

    f: Callable[[Any], Any]

    def __post_init__(self) -> None:
        require(callable(self.f), "f", "be a function of a vector", self.f)
        found = np.asarray(self.f(np.zeros(2)))
        if found.shape != (2,) or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            raise refuse("f", "give one finite number for each zero of a vector", found, "it was given two zeros")

    def value(self, x: Vector) -> Vector:
        return np.asarray(self.f(x), np.float64)
