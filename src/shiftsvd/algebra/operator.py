"""Operators: the base class, what it tells about its products, the adjoint, and the difference of two operators."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import getfullargspec, isfunction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra import generic
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.panels import Panel, Vector, field_of, panel_dtype, scaled, unmasked
from shiftsvd.numerics.powers import LEAST_SQUARES, MOST_SQUARES, ZERO_EXPONENT, add_exponents

if TYPE_CHECKING:
    from shiftsvd.algebra.low_rank import LowRank


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Precision, memory and reads of the products of an operator, by which solvers plan.

    Parameters
    ----------
    eps : float
        Rounding unit of the products.
    stored : int
        Numbers that one pass reads.
    gram_eps : float
        Rounding unit of `gram` for panels in double precision.
    gram_in_single : bool
        Whether `gram` is faster for a panel in single precision.
    gram_pairs : float
        Approximate number of multiplications in a formed Gram matrix.
    panel_columns : (int, int)
        Fewest and most columns of a panel for which products are fastest.
    gram_reads : int
        Reads of the data in one `gram`.
    working_bytes : int
        Memory of a product beside its panels.
    column_bytes : int
        Memory of a product for each column of its panel, beside the panel and the result. A product of operators
        allocates inner panels as long as the side that they share.
    adjoint_bytes : int
        Memory of a product with the adjoint for each column, beside the panel and the result. Data that are read by
        their short side give a part for each block, as long as the long side.
    long_bytes : int
        Most memory for a Lanczos basis on the long side; 0 where that side saves no read. Data that are read by their
        short side take one read for a `gram` on the long side, and two on the short side.
    square_columns : int
        Columns of the panels by which a matrix as wide and as high as the columns is formed; 0: blocks are squared.
    block_bytes : int
        Size of a dense block in double precision that a thread works on; 0: as for an array in memory.
    file_bytes : int
        Bytes that one pass reads from a file; 0 where the data are in memory.
    square_bytes : float
        Bytes that are sent where a matrix as wide and as high as the columns is formed; infinite: never form it.
    strain : int
        Distance from 1 of the scales that panels are multiplied by, as an exponent of two.
    n_threads : int or None
        Threads that a solver may use; None: the cores that this process may use.

    See Also
    --------
    estimate : Predicts memory, passes and time from these numbers.
    Operator : Its ``costs`` hold these numbers.

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
        """Return the costs of A; where nothing is known, those of a dense matrix.

        Parameters
        ----------
        A : Operator
            The operator; only its shape and dtype are used.
        **known
            Fields of `Costs` that are known.

        Returns
        -------
        Costs
            The known fields, and guesses for the rest.
        """
        (m, n), dtype = A.shape, A.dtype
        eps, stored = known.get("eps", float(np.finfo(dtype).eps)), known.get("stored", m * n)
        guessed = {
            "eps": eps,
            "stored": stored,
            "gram_eps": eps,
            "gram_in_single": dtype == np.float32,
            "gram_pairs": stored**2 / (2 * m),
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
    as_operator : Make an operator from data.
    testing.check_operator : Check an operator of your own.

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
        if cls.__module__.startswith("shiftsvd."):  # a method of another package may have such a name by chance
            generic.registered(cls)
        gram = vars(cls).get("gram")
        if isfunction(gram) and gram.__code__.co_argcount == 2 and getfullargspec(gram).varargs is None:
            cls.gram = _weighted(gram)  # type: ignore[method-assign]
        own = vars(cls).get("costs")
        if "costs" in vars(cls) and not isinstance(own, Costs | property | cached_property):
            raise TypeError(
                f"{cls.__name__}.costs must be a property that returns shiftsvd.operators.Costs, "
                f"got {own!r}. Rename this attribute, or make it such a property."
            )

    @abstractmethod
    def matmat(self, V: Panel) -> Panel:
        """Compute ``A V``, (n, b) -> (m, b).

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.
        """

    @abstractmethod
    def rmatmat(self, W: Panel) -> Panel:
        """Compute ``A^H W``, (m, b) -> (n, b).

        Parameters
        ----------
        W : array of shape (m, b)
            The panel that is multiplied.
        """

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """Compute ``A^H diag(weights) A V``, (n, b) -> (n, b); one pass where a backend fuses it, else two.

        Solvers call this once a step. A panel V in single precision allows a product in single precision.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        array of shape (n, b)
            The product.
        """
        return self.rmatmat(scaled(weights, self.matmat(V)))

    def moments(self, weights: Vector | None = None) -> Moments:
        """Compute the moments of the columns, ``mean = A^T w / sum(w)``; one pass.

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
        """Compute ``sum_i w_i |a_ij|^2`` without cancellation, shape (n,); None where it cannot be had cheaply.

        Parameters
        ----------
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.
        """
        return None

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        """Compute ``sum_j w_j |a_ij|^2`` without cancellation, shape (m,); None where it cannot be had cheaply.

        Parameters
        ----------
        weights : array of shape (n,), optional
            A factor of each column; None is 1 for all.
        """
        return None

    def frobenius_norm(self) -> float | None:
        """Compute ``||A||_F`` without cancellation, in one pass.

        Two more passes where squares of the entries leave the range of numbers: one finds the largest entry, one sums
        the squares of the entries over a power of two.

        Returns
        -------
        float or None
            The norm; None where it cannot be had cheaply.
        """
        squares = self.column_squares()
        if squares is None:
            return None
        with np.errstate(over="ignore"):
            total = float(squares.sum())
        if LEAST_SQUARES < total < MOST_SQUARES:
            return float(np.sqrt(total))
        exponents = generic.exponents(self, 0)
        if exponents is None or exponents.max() == ZERO_EXPONENT:
            return None if exponents is None else 0.0
        unit = int(exponents.max())
        B = generic.ldexp(self, 0, -unit)
        squares = None if B is None else B.column_squares()
        return None if squares is None else float(np.ldexp(np.sqrt(squares.sum()), unit))

    def with_shift(self, shift: "LowRank") -> "Operator | None":
        """Return the matrix minus `shift`, with the subtraction fused into its blocks.

        Parameters
        ----------
        shift : LowRank
            What is subtracted, of the shape of this matrix.

        Returns
        -------
        Operator or None
            The difference; None where `shiftsvd.operators.Shifted` has to subtract products.
        """
        return None

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """Compute ``A V`` in one pass, in blocks of rows where possible.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.

        Yields
        ------
        (int, array of shape (rows, b))
            The first row of a block, and the product of its rows; blocks are in order.
        """
        yield 0, self.matmat(V)

    @cached_property
    def costs(self) -> Costs:
        """Costs of products, by which solvers plan; computed on first use, which may read the data once."""
        return Costs.of(self)

    @property
    def H(self) -> "Operator":
        """The conjugate transpose, a view."""
        return Adjoint(self)

    def __matmul__(self, V: npt.ArrayLike) -> Panel:
        X = np.asarray(unmasked("V", V))
        if X.ndim not in (1, 2) or X.shape[0] != self.shape[1]:
            raise ValueError(f"A @ V needs V with {self.shape[1]:,} rows for A of shape {self.shape}, got {X.shape}")
        return self.matmat(X[:, None])[:, 0] if X.ndim == 1 else self.matmat(X)

    def __sub__(self, shift: "Operator") -> "Operator":
        if not isinstance(shift, Operator):
            return NotImplemented
        check_same_shape(self, shift)
        low_rank = generic.as_low_rank(shift)
        fused = None if low_rank is None else self.with_shift(low_rank)
        return fused or Shifted(self, shift if low_rank is None else low_rank)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape[0]} x {self.shape[1]} {self.dtype}>"

    # NumPy must leave `array @ A` and `array - A` to us, not loop over the entries.
    __array_ufunc__ = None


def _weighted(gram: Callable[[Any, Panel], Panel]) -> Callable[..., Panel]:
    # An operator of a user may define gram(V) alone, as the documentation writes it.
    @wraps(gram)
    def with_weights(self: Operator, V: Panel, weights: Vector | None = None) -> Panel:
        return gram(self, V) if weights is None else Operator.gram(self, V, weights)

    return with_weights


def check_same_shape(A: Operator, shift: Operator) -> None:
    if shift.shape != A.shape:
        raise ValueError(f"the shift must have the shape {A.shape} of the matrix, got {shift.shape}")


@dataclass(frozen=True, eq=False, repr=False)
class Derived(Operator):
    """An operator made of another one, A: as large, and its products cost and round as those of A do."""

    A: Operator

    def __post_init__(self) -> None:
        vars(self).update(shape=self.A.shape, dtype=self.A.dtype)

    @cached_property
    def costs(self) -> Costs:
        A = self.A.costs
        own = {
            "gram_reads": 2,
            "gram_in_single": self.dtype == np.float32,
            "gram_pairs": A.stored**2 / (2 * self.shape[0]),
        }
        return replace(A, **own | self.known_costs())

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if V.dtype != panel_dtype(V.dtype):
            return super().gram(V, weights)
        return generic.rmatmat_in_double(self, scaled(weights, generic.matmat_in_double(self, V)))

    def known_costs(self) -> dict[str, Any]:
        """Return the costs that differ from those of A."""
        return {}

    def cancelled(self) -> float:
        return generic.cancelled(self.A)

    def passes_per_step(self) -> int:
        return generic.passes_per_step(self.A)

    def gram_seconds(self, V: Panel) -> float:
        return generic.gram_seconds(self.A, V)


@dataclass(frozen=True, eq=False, repr=False)
class Adjoint(Derived):
    """The conjugate transpose of an operator, of shape (m, n).

    Parameters
    ----------
    A : Operator of shape (n, m)
        The operator; nothing of it is copied.

    See Also
    --------
    Operator : ``A.H`` is this, or a view of its own kind.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.ones((3, 2))).H.shape
    (2, 3)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", self.A.shape[::-1])

    def placed(self, V: Panel) -> Panel:
        return generic.placed(self.A, V)

    def matmat(self, V: Panel) -> Panel:
        return self.A.rmatmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.A.matmat(W)

    def matmat_in_double(self, V: Panel) -> Panel:
        by_columns = generic.transposed(self.A, 0)
        if by_columns is None:
            return generic.rmatmat_in_double(self.A, V)
        return generic.matmat_in_double(by_columns, V)

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return generic.matmat_in_double(self.A, W)

    def moments(self, weights: Vector | None = None) -> Moments:
        moments = generic.row_moments(self.A, weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        moments = self.A.moments(weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def least(self) -> float | None:
        return generic.least(self.A)

    def triangle(self, weights: Vector | None = None) -> Panel:
        return generic.adjoint_triangle(self.A, weights)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.A.row_squares(weights)

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.A.column_squares(weights)

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        by_columns = generic.transposed(self.A, np.inf)
        return None if by_columns is None else generic.squares_beyond(by_columns, V, W, weights)

    def exponents(self, axis: int) -> Vector | None:
        return generic.exponents(self.A, 1 - axis)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> Operator | None:
        B = generic.ldexp(self.A, cols, rows)
        return None if B is None else B.H

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        return generic.column_blocks(self.A, rows)

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        return generic.row_blocks(self.A, columns)

    def gram_seconds(self, V: Panel) -> float:
        return generic.timed(self, V)

    def passes_per_step(self) -> int:
        return 2 if self.A.costs.file_bytes else generic.passes_per_step(self.A)

    def known_costs(self) -> dict[str, Any]:
        # The parts of a Gram matrix would be as long as the data: none is sent. The panel between the two products of
        # `gram` is as long as the rows of this matrix.
        A = self.A.costs
        known: dict[str, Any] = {"square_bytes": float("inf") if A.square_bytes else 0.0}
        if A.adjoint_bytes:
            between = self.shape[0] * panel_dtype(self.dtype).itemsize
            known |= {"column_bytes": A.column_bytes + A.adjoint_bytes + between, "adjoint_bytes": 0}
            known |= {"square_columns": self.shape[1]}
        return known

    def fused(self, passes: float) -> Operator:
        return generic.transposed(self.A, passes) or self

    def with_shift(self, shift: "LowRank") -> Operator | None:
        fused = self.A.with_shift(shift.H)
        return None if fused is None else fused.H

    def unshifted(self) -> "tuple[Operator, LowRank | None]":
        return generic.unshifted(self.A)[0].H, self.shift_of()

    def shift_of(self) -> "LowRank | None":
        shift = generic.shift_of(self.A)
        return None if shift is None else shift.H

    def as_low_rank(self) -> "LowRank | None":
        low_rank = generic.as_low_rank(self.A)
        return None if low_rank is None else low_rank.H

    @property
    def H(self) -> Operator:
        return self.A


@dataclass(frozen=True, eq=False, repr=False)
class Shifted(Derived):
    """``A - S``: the plain algebra of the shift, for every operator that cannot fuse it.

    Parameters
    ----------
    A : Operator of shape (m, n)
        What is shifted.
    S : Operator of shape (m, n)
        What is subtracted, such as a `LowRank`.

    See Also
    --------
    operators.Scaled : Rows and columns times numbers.
    LowRank : The shift.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A = ss.as_operator(np.ones((3, 2))) - ss.LowRank(np.ones(3), np.ones(2))
    >>> A.matmat(np.eye(2)).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    S: Operator

    def __post_init__(self) -> None:
        check_same_shape(self.A, self.S)
        super().__post_init__()
        object.__setattr__(self, "dtype", field_of(self.A.dtype, np.empty(0, self.S.dtype)))

    def matmat(self, V: Panel) -> Panel:
        return self.A.matmat(V) - self.S.matmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.A.rmatmat(W) - self.S.rmatmat(W)

    def matmat_in_double(self, V: Panel) -> Panel:
        return generic.matmat_in_double(self.A, V) - generic.matmat_in_double(self.S, V)

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return generic.rmatmat_in_double(self.A, W) - generic.rmatmat_in_double(self.S, W)

    def known_costs(self) -> dict[str, Any]:
        if generic.as_low_rank(self.S) is not None:
            return {}
        A, S = self.A.costs, self.S.costs
        return {"eps": max(A.eps, S.eps), "gram_eps": max(A.gram_eps, S.gram_eps)}

    def fused(self, passes: float) -> Operator:
        return generic.fused(self.A, passes) - self.S

    def with_shift(self, shift: "LowRank") -> Operator | None:
        S = generic.as_low_rank(self.S)
        return None if S is None else Shifted(self.A, shift.merge(S))

    def exponents(self, axis: int) -> Vector | None:
        a, b = generic.exponents(self.A, axis), generic.exponents(self.S, axis)
        return None if a is None or b is None else add_exponents(np.maximum(a, b), 1)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> Operator | None:
        A, S = generic.ldexp(self.A, rows, cols), generic.ldexp(self.S, rows, cols)
        return None if A is None or S is None else Shifted(A, S)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        S = generic.as_low_rank(self.S)
        if S is None:
            yield from super().row_products(V)
            return
        C = S.R.conj().T @ V
        for lo, part in self.A.row_products(V):
            yield lo, part - S.L[lo : lo + len(part)] @ C

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        S = generic.as_low_rank(self.S)
        if S is None:
            yield 0, self.matmat(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)))
            return
        for lo, block in generic.row_blocks(self.A, rows):
            yield lo, block - S.rows(lo, lo + len(block))

    def unshifted(self) -> "tuple[Operator, LowRank | None]":
        S = generic.as_low_rank(self.S)
        return (self, None) if S is None else (self.A, S)

    @property
    def H(self) -> "Shifted":
        return Shifted(self.A.H, self.S.H)
