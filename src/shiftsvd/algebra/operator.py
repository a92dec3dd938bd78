"""Operators: matrices that can only multiply a panel."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from inspect import getfullargspec, isfunction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra.costs import Costs
from shiftsvd.algebra.generic import adjoint, column_exponents, difference, ldexp
from shiftsvd.numerics.diagonal import scaled
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.panels import Panel, unmasked
from shiftsvd.numerics.powers import LEAST_SQUARES, MOST_SQUARES, NOTHING

if TYPE_CHECKING:
    from shiftsvd.algebra.low_rank import LowRank


class Operator(ABC):
    """A matrix A of shape (m, n) that can only multiply panels.

    A subclass sets ``shape`` and ``dtype`` (float32, float64, complex64 or complex128) and defines
    `matmat` and `rmatmat`; everything else has a default. ``A - B``, ``A.H`` and ``A @ V`` are the algebra.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the results for users; panels inside a solver are float64 or complex128.

    See Also
    --------
    as_operator : Makes one of data.
    testing.check_operator : Looks whether one keeps its promises.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A = ss.as_operator(np.arange(6.0).reshape(3, 2))
    >>> A.shape, A.matmat(np.ones((2, 1))).ravel().tolist()
    ((3, 2), [1.0, 5.0, 9.0])
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        gram = vars(cls).get("gram")
        if isfunction(gram) and gram.__code__.co_argcount == 2 and getfullargspec(gram).varargs is None:
            cls.gram = _weighted(gram)  # type: ignore[method-assign]
        own = vars(cls).get("costs")
        if "costs" in vars(cls) and not isinstance(own, Costs | property | cached_property):
            raise TypeError(
                f"{cls.__name__}.costs must be a property that gives shiftsvd.operators.Costs, which solvers plan by, "
                f"got {own!r}; give it another name"
            )

    @abstractmethod
    def matmat(self, V: Panel) -> Panel:
        """``A V``, (n, b) -> (m, b).

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.
        """

    @abstractmethod
    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W``, (m, b) -> (n, b).

        Parameters
        ----------
        W : array of shape (m, b)
            The panel that is multiplied.
        """

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V``, (n, b) -> (n, b); one pass where a backend fuses it, else two.

        `weights` has one entry a row; without them, ``A^H A V``. A single precision V says that single precision
        is enough.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        array of shape (n, b)
            The product, for which solvers call this once a step.
        """
        return self.rmatmat(scaled(weights, self.matmat(V)))

    def moments(self, weights: Vector | None = None) -> Moments:
        """The moments of the columns, ``mean = A^T w / sum(w)``; one pass. `weights` has one entry a row.

        Parameters
        ----------
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        Moments
            The mean of each column, and the sum of squares about it where that can be had.
        """
        w = np.ones(self.shape[0]) if weights is None else weights
        mean = self.rmatmat(w[:, None])[:, 0].conj() / w.sum()
        return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        """``sum_i w_i |a_ij|^2`` without cancellation, shape (n,); None where it cannot be had cheaply.

        Parameters
        ----------
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.
        """
        return None

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        """``sum_j w_j |a_ij|^2`` without cancellation, shape (m,); None where it cannot be had cheaply.

        Parameters
        ----------
        weights : array of shape (n,), optional
            A factor of each column; None is 1 for all.
        """
        return None

    def frobenius_norm(self) -> float | None:
        """``||A||_F`` without cancellation, in one pass; None where it cannot be had cheaply.

        Where the squares leave the range of numbers, it takes one more pass to find the largest entry, and one for the
        squares of the entries over a power of two.

        Returns
        -------
        float or None
            The norm, which tells what a factorization leaves over.
        """
        squares = self.column_squares()
        if squares is None:
            return None
        with np.errstate(over="ignore"):
            total = float(squares.sum())
        if LEAST_SQUARES < total < MOST_SQUARES:
            return float(np.sqrt(total))
        exponents = column_exponents(self)
        if exponents is None or exponents.max() == NOTHING:
            return None if exponents is None else 0.0
        unit = int(exponents.max())
        B = ldexp(self, 0, -unit)
        squares = None if B is None else B.column_squares()
        return None if squares is None else float(np.ldexp(np.sqrt(squares.sum()), unit))

    def with_shift(self, shift: "LowRank") -> "Operator | None":
        """The matrix minus `shift`, with the subtraction fused into its blocks; None if it cannot.

        Parameters
        ----------
        shift : LowRank
            What is subtracted, of the shape of this matrix.

        Returns
        -------
        Operator or None
            The difference; None leaves it to `shiftsvd.operators.Shifted`.
        """
        return None

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """``(first row, A[rows] V)`` in order, a part of the rows at a time where possible; one pass.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.

        Yields
        ------
        (int, array of shape (rows, b))
            The first row of a block, and the product of its rows.
        """
        yield 0, self.matmat(V)

    @cached_property
    def costs(self) -> Costs:
        """What solvers plan by, found out when somebody first asks; may take a read, where `matmat` would too."""
        return Costs.of(self)

    @property
    def H(self) -> "Operator":
        """The conjugate transpose, a view."""
        return adjoint(self)

    def __matmul__(self, V: npt.ArrayLike) -> Panel:
        X = np.asarray(unmasked("V", V))
        if X.ndim not in (1, 2) or X.shape[0] != self.shape[1]:
            raise ValueError(f"A @ V needs V with {self.shape[1]} rows for A of shape {self.shape}, got {X.shape}")
        return self.matmat(X[:, None])[:, 0] if X.ndim == 1 else self.matmat(X)

    def __sub__(self, shift: "Operator") -> "Operator":
        if not isinstance(shift, Operator):
            return NotImplemented
        check_same_shape(self, shift)
        return difference(self, shift)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape[0]} x {self.shape[1]} {self.dtype}>"

    # NumPy must leave `array @ A` and `array - A` to us, not loop over the entries.
    __array_ufunc__ = None


def _weighted(gram: Callable[[Any, Panel], Panel]) -> Callable[..., Panel]:
    @wraps(gram)
    def with_weights(self: Operator, V: Panel, weights: Vector | None = None) -> Panel:
        return gram(self, V) if weights is None else Operator.gram(self, V, weights)

    return with_weights


def check_same_shape(A: Operator, shift: Operator) -> None:
    if shift.shape != A.shape:
        raise ValueError(f"the shift has shape {shift.shape}, the matrix {A.shape}: they must be equal")
