"""Scaled rows and columns, ``diag(rows) A diag(cols)``, and powers of two that keep squares in range."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Derived, Operator
from shiftsvd.kernels.twin import StepTaker, range_errors_ignored
from shiftsvd.numerics.orth import r_factor
from shiftsvd.numerics.panels import Panel, Vector, conj, field_of, power, read_only, scaled, unscaled
from shiftsvd.numerics.powers import LEAST, MOST, ZERO_EXPONENT, add_exponents, exponents_of, split, two_to


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Derived):
    """``diag(rows) A diag(cols)``: weights on the rows, scales on the columns; a missing one is all ones.

    Parameters
    ----------
    A : Operator of shape (m, n)
        What is scaled; nothing of it is copied.
    rows : array of shape (m,), optional
        The factor of each row.
    cols : array of shape (n,), optional
        The factor of each column.

    See Also
    --------
    operators.Shifted : Minus a matrix of low rank.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A = ss.operators.Scaled(ss.as_operator(np.ones((3, 2))), None, np.array([1.0, 2.0]))
    >>> A.matmat(np.eye(2))[0].tolist()
    [1.0, 2.0]
    """

    rows: Vector | None = None
    cols: Vector | None = None

    def __post_init__(self) -> None:
        for name, scale, size in zip(("rows", "cols"), (self.rows, self.cols), self.A.shape, strict=True):
            if scale is not None and scale.shape != (size,):
                raise ValueError(f"{name} must have shape ({size},) for a matrix {self.A.shape}, got {scale.shape}")
            object.__setattr__(self, name, read_only(scale))
        super().__post_init__()
        object.__setattr__(self, "dtype", field_of(self.A.dtype, *self._scales))

    @property
    def _scales(self) -> list[Vector]:
        return [scale for scale in (self.rows, self.cols) if scale is not None]

    def matmat(self, V: Panel) -> Panel:
        return scaled(self.rows, self.A.matmat(scaled(self.cols, V)))

    def rmatmat(self, W: Panel) -> Panel:
        return scaled(conj(self.cols), self.A.rmatmat(scaled(conj(self.rows), W)))

    def matmat_in_double(self, V: Panel) -> Panel:
        return scaled(self.rows, generic.matmat_in_double(self.A, scaled(self.cols, V)))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return scaled(conj(self.cols), generic.rmatmat_in_double(self.A, scaled(conj(self.rows), W)))

    def cancelled(self) -> float:
        return generic.cancelled(self.A) * math.prod(float(np.abs(scale).max()) for scale in self._scales)

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return scaled(conj(self.cols), self.A.gram(self._panel(V), self._row_weights(weights)))

    def gram_with_double(self, V: Panel, D: Panel, weights: Vector | None = None) -> tuple[Panel, Panel] | None:
        both = generic.gram_with_double(self.A, self._panel(V), self._panel(D), self._row_weights(weights))
        return both and (scaled(conj(self.cols), both[0]), scaled(conj(self.cols), both[1]))

    def step_taker(self, weights: Vector | None = None, cols: Vector | None = None) -> StepTaker | None:
        if self.dtype.kind == "c" or (cols is not None and self.cols is not None):
            return None
        return generic.step_taker(self.A, self._row_weights(weights), self.cols if cols is None else cols)

    def _panel(self, V: Panel) -> Panel:
        parts = () if self.cols is None else (self.cols,)
        return scaled(self.cols, V).astype(field_of(V.dtype, *parts), copy=False)

    def _row_weights(self, weights: Vector | None) -> Vector | None:
        if weights is not None and weights.flags.writeable:
            return power(self.rows, weights)
        known: tuple[Vector | None, Vector | None] | None = vars(self).get("_weighed")
        if known is None or known[0] is not weights:  # the same array each time: it is sent to a device once
            known = vars(self)["_weighed"] = weights, read_only(power(self.rows, weights))
        return known[1]

    def placed(self, V: Panel) -> Panel:
        return generic.placed(self.A, V)

    def known_costs(self) -> dict[str, Any]:
        A = self.A.costs
        strain = max((int(np.abs(split(scale)[1]).max()) for scale in self._scales), default=0) + A.strain
        return {"gram_reads": A.gram_reads, "gram_in_single": A.gram_in_single, "strain": strain}

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        G = generic.gram_matrix(self.A, power(self.rows, weights))
        return G if self.cols is None else np.conj(self.cols)[:, None] * G * self.cols

    def triangle(self, weights: Vector | None = None) -> Panel:
        R = generic.triangle(self.A, power(self.rows, weights))
        return R if self.cols is None else r_factor(R * self.cols)

    def fused(self, passes: float) -> "Scaled":
        return Scaled(generic.fused(self.A, passes), self.rows, self.cols)

    @range_errors_ignored
    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        squares = self.A.column_squares(power(self.rows, weights))
        return None if squares is None else scaled(power(self.cols), squares)

    @range_errors_ignored
    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        squares = self.A.row_squares(power(self.cols, weights))
        return None if squares is None else scaled(power(self.rows), squares)

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        if self.cols is not None:  # a column that is scaled to 0 leaves nothing
            V, W = scaled(self.cols, V), scaled(1 / np.where(self.cols == 0, 1, np.conj(self.cols)), W)
        squares = generic.squares_beyond(self.A, V, W, power(self.rows, weights))
        return None if squares is None else scaled(power(self.cols), squares)

    def exponents(self, axis: int) -> Vector | None:
        e, (near, far) = generic.exponents(self.A, axis), (self.cols, self.rows)
        if axis:
            near, far = far, near
        return None if e is None else _plus_exponents(_plus_exponents(e, near), far, whole=True)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Scaled":
        # The powers of two of the scales go into the data, too: panels are multiplied by numbers near 1 then.
        (left, e), (right, f) = split(self.rows), split(self.cols)
        return Scaled(times_powers(self.A, e + rows, f + cols), left, right)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        for lo, part in self.A.row_products(scaled(self.cols, V)):
            yield lo, scaled(self._rows_of(lo, part), part)

    def _rows_of(self, lo: int, part: Panel) -> Vector | None:
        return None if self.rows is None else self.rows[lo : lo + len(part)]

    def lazy_basis(self, V: Panel, rows: Vector | None = None) -> Any | None:
        return generic.lazy_basis(self.A, scaled(self.cols, V), self.rows if rows is None else scaled(self.rows, rows))

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        for lo, block in generic.row_blocks(self.A, rows):
            part = scaled(self._rows_of(lo, block), block)
            yield lo, part if self.cols is None else part * self.cols

    def with_shift(self, shift: LowRank) -> Operator | None:
        L, R = unscaled(self.rows, shift.L), unscaled(conj(self.cols), shift.R)
        if L is None or R is None:
            return None
        fused = self.A.with_shift(LowRank(L, R))
        return None if fused is None else Scaled(fused, self.rows, self.cols)

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        A, S = generic.unshifted(self.A)
        return (self, None) if S is None else (Scaled(A, self.rows, self.cols), self._scaled(S))

    def shift_of(self) -> LowRank | None:
        S = generic.shift_of(self.A)
        return S and self._scaled(S)

    def _scaled(self, S: LowRank) -> LowRank:
        return LowRank(scaled(self.rows, S.L), scaled(conj(self.cols), S.R))

    @property
    def H(self) -> "Scaled":
        return Scaled(self.A.H, conj(self.cols), conj(self.rows))


def times_powers(A: Operator, rows: Vector | int, cols: Vector | int) -> Operator:
    B = generic.ldexp(A, rows, cols)
    if B is not None:
        return B
    # Half on either side, or a panel could leave the range; at most what can be squared on the rows, as their weights.
    more = min((_middle(cols) - _middle(rows)) // 2, MOST // 2 - int(np.max(rows)))
    rows, cols = rows + more, cols - more
    D = [np.broadcast_to(two_to(e), (size,)) for e, size in zip((rows, cols), A.shape, strict=True)]
    return Scaled(A, *D)


def _middle(e: Vector | int) -> int:
    return (int(np.min(e)) + int(np.max(e))) // 2


def _plus_exponents(e: Vector, scale: Vector | None, whole: bool = False) -> Vector:
    if scale is None:
        return e
    more = exponents_of(scale)
    return add_exponents(e, more.max() if whole else more)


# Norms of matrices that are multiplied as they are, as exponents of two. Solvers take fourth powers (the Gram matrix
# of a panel of products with A^H A), of residuals too, and LAPACK rounds what is beyond 1e-146 and 1e146 another way
# (dsyevd). Where products are in single precision, their squares alone must be numbers.
DOUBLE_RANGE, SINGLE_RANGE = (-60, 100), (-20, 45)
ROOM = 20  # of exponents, for scales of subnormal data: half of all powers is squared as weights of rows


class Units(NamedTuple):
    """``A = 2^exponent B``: the matrix, its exponent, and the norm of B where it is known."""

    B: Operator
    exponent: int
    norm: float | None


def in_units(A: Operator) -> Units:
    # SciPy's operators are multiplied by a few vectors to see how large they are. An operator of one's own that does
    # not know its squares (`column_squares`) is taken as it is.
    norm = A.frobenius_norm()
    if norm is not None and not math.isfinite(norm):
        raise ValueError(
            f"the norm of {A!r} is outside the range of float64. Multiply the data by a small power of two, such as "
            "2.0**-400."
        )
    e = _exponent(A, norm)
    least, most = range_of(A)
    e = 0 if least <= e <= most or e == ZERO_EXPONENT else max(e, LEAST + ROOM)  # subnormal data come near 2^-72
    if e == 0 and A.costs.strain <= most:
        return Units(A, 0, norm)
    return Units(times_powers(A, 0, -e), e, None if norm is None else float(np.ldexp(norm, -e)))


def _exponent(A: Operator, norm: float | None) -> int:
    if norm is not None:
        return math.frexp(norm)[1] if norm > 0 else ZERO_EXPONENT
    exponents = generic.exponents(A, 0)
    return 0 if exponents is None else int(exponents.max())


def range_of(A: Operator) -> tuple[int, int]:
    return SINGLE_RANGE if A.costs.gram_in_single or np.finfo(A.dtype).bits == 32 else DOUBLE_RANGE
