"""Functions of single entries. The value at zero is subtracted as a shift."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shiftsvd.errors import refuse
from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.operators import Operator, Panel, Vector
from shiftsvd.transforms.base import Fitted, Transform, require


@dataclass(frozen=True, eq=False)
class OfEntry(Transform):
    """A function ``f(x)`` of each entry. Fitting needs no read of the data."""

    @abstractmethod
    def value(self, x: Vector) -> Vector:
        """Compute ``f(x)`` of each entry."""

    @property
    def at_zero(self) -> float:
        """``f(0)``, the transformed value of all entries that are not stored."""
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
    """Square root ``sqrt(x)``, which gives Poisson counts a variance of about 1/4.

    See Also
    --------
    FreemanTukey : More stable variance for small counts.
    Anscombe : Variance of about 1 for Poisson counts.

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
    """``sqrt(x) + sqrt(x + 1)``, which stabilises the variance of small counts (Freeman & Tukey 1950). Zeros become 1.

    See Also
    --------
    Sqrt : Square root, which keeps zeros.
    Anscombe : Variance of about 1 for Poisson counts.

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
    """``2 sqrt(x + 3/8)``, which gives Poisson counts a variance of about 1 (Anscombe 1948).

    See Also
    --------
    Sqrt : Square root, which keeps zeros.
    FreemanTukey : More stable variance for small counts.

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
    """Replace entries above a threshold by 1, and all others by 0.

    Parameters
    ----------
    threshold : float
        Threshold of at least 0, so that zeros stay zeros.

    See Also
    --------
    Ranks : Ranks of the entries of each column.

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
    """Apply a function to every entry.

    Parameters
    ----------
    f : callable
        Function of a vector that returns a vector of the same shape, finite at 0. A NumPy function can be saved in a
        model file; other functions cannot. A lambda cannot be sent to workers of a cluster.

    See Also
    --------
    Sqrt : Square root of every entry.

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
            called = "the function was called with an array of two zeros"
            raise refuse("f", "return one finite number for each entry", found, called)

    def value(self, x: Vector) -> Vector:
        return np.asarray(self.f(x), np.float64)
