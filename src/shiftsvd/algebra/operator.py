"""Operators: matrices that can only multiply a panel."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import getfullargspec, isfunction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra.generic import (
    adjoint,
    cancelled,
    difference,
    exponents,
    gram_seconds,
    ldexp,
    matmat_in_double,
    passes_per_step,
    registered,
    rmatmat_in_double,
)
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.panels import Panel, panel_dtype, scaled, unmasked
from shiftsvd.numerics.powers import LEAST_SQUARES, MOST_SQUARES, NOTHING

if TYPE_CHECKING:
    from shiftsvd.algebra.low_rank import LowRank


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a solver plans by.

    Parameters
    ----------
    eps : float
        Rounding unit of the products.
    stored : int
        How many numbers one pass reads.
    gram_eps : float
        Rounding unit of `gram` for panels in double precision.
    gram_in_single : bool
        Whether `gram` is quicker for a panel in single precision.
    gram_pairs : float
        How many products of two numbers a formed Gram matrix takes, about.
    panel_columns : (int, int)
        The fewest and the most columns of a panel that products are at their best with.
    gram_reads : int
        How often `gram` reads the data.
    working_bytes : int
        Memory that a product takes beside its panels.
    column_bytes : int
        Memory that a product holds for each column of its panel, beside that panel and the result: of products of
        operators, whose inner panels are as long as the side that these share.
    adjoint_bytes : int
        Memory that a product of the adjoint holds for each column, beside its panel and the result: of data that are
        read by their short side, the parts of the blocks, each as long as the long one.
    long_bytes : int
        Memory that a Lanczos basis on the long side may take; 0 where that side saves no read. Data that are read by
        their short side take one read for a `gram` on the long side, and two on the short one.
    square_columns : int
        Columns of the panels by which a matrix as wide and as high as the columns is formed; 0: blocks are squared.
    block_bytes : int
        Of a dense block in double precision that threads work on; 0: as of an array in memory.
    file_bytes : int
        How much one pass reads from a file; 0 where the data are in memory.
    square_bytes : float
        How much travels where a matrix as wide and as high as the columns is formed; infinite: it must not.
    strain : int
        How far from 1 the scales that panels are multiplied by are, as an exponent of two.
    n_threads : int or None
        Threads that a solver may use; None: the cores that this process may use.

    See Also
    --------
    estimate : Foresees by them.
    Operator : ``costs`` gives them.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.ones((3, 2))).costs.stored
    6
    """

    eps: float
    stored: int
    gram_eps: float
    gram_in_single: bool
    gram_pairs: float
    panel_columns: tuple[int, int]
    gram_reads: int = 2
    working_bytes: int = 0
    column_bytes: int = 0
    adjoint_bytes: int = 0
    long_bytes: int = 0
    square_columns: int = 0
    block_bytes: int = 0
    file_bytes: int = 0
    square_bytes: float = 0.0
    strain: int = 0
    n_threads: int | None = None

    @classmethod
    def of(cls, A: "Operator", **known: Any) -> "Costs":
        """The costs of A by what is known of it; by itself, those of a dense matrix.

        Parameters
        ----------
        A : Operator
            The operator, whose shape and dtype are looked at.
        **known
            Fields of `Costs` that are known.

        Returns
        -------
        Costs
            What is known, and guesses of the rest.
        """
        (m, n), dtype = A.shape, A.dtype
        eps, stored = known.get("eps", float(np.finfo(dtype).eps)), known.get("stored", m * n)
        guessed = {
            "eps": eps,
            "stored": stored,
            "gram_eps": eps,
            "gram_in_single": dtype == np.float32,
            "gram_pairs": stored**2 / m,
            "panel_columns": (16, 32) if stored == m * n else (8, 16),
        }
        return cls(**guessed | known)


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
        found = exponents(self, 0)
        if found is None or found.max() == NOTHING:
            return None if found is None else 0.0
        unit = int(found.max())
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
