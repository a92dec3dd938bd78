"""Operators made of several: stacked on top of each other or side by side, and the product of two."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, TypeVar

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Costs, Operator
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.orth import folded
from shiftsvd.numerics.panels import Panel, Vector, panel_dtype, scaled
from shiftsvd.numerics.powers import ZERO_EXPONENT, length, two_to

Part = TypeVar("Part")
SUM, LARGEST = partial(reduce, np.add), partial(reduce, np.maximum)


def costs_together(
    A: Operator, parts: tuple[Operator, ...], most: tuple[str, ...], sums: tuple[str, ...], **known: Any
) -> Costs:
    costs = [part.costs for part in parts]
    together = {
        "panel_columns": tuple(map(max, zip(*(each.panel_columns for each in costs), strict=True))),
        "n_threads": next((each.n_threads for each in costs if each.n_threads), None),
    }
    for name in ("eps", "gram_eps", "gram_reads", "block_bytes", *most):
        together[name] = max(getattr(each, name) for each in costs)
    for name in ("stored", "file_bytes", *sums):
        together[name] = sum(getattr(each, name) for each in costs)
    return Costs.of(A, **together | known)


@dataclass(frozen=True, eq=False, repr=False)
class VStack(Operator):
    """Operators with equal numbers of columns, one above another, as one operator. No part is copied.

    Parameters
    ----------
    parts : tuple of Operator
        Operators of shapes ``(m_1, n)``, ``(m_2, n)`` and so on.

    Raises
    ------
    ValueError
        If the numbers of columns differ.

    See Also
    --------
    operators.hstack : Operators side by side.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A, B = ss.as_operator(np.ones((3, 2))), ss.as_operator(np.zeros((1, 2)))
    >>> ss.operators.VStack((A, B)).matmat(np.eye(2)).tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """

    parts: tuple[Operator, ...]

    def __post_init__(self) -> None:
        widths = sorted({A.shape[1] for A in self.parts})
        if len(widths) != 1:
            raise ValueError(f"stacked operators must have equal numbers of columns, got {widths}")
        dtype = np.result_type(*(A.dtype for A in self.parts))
        vars(self).update(shape=(int(self._firsts[-1]), widths[0]), dtype=dtype)

    @cached_property
    def _firsts(self) -> Vector:
        return np.cumsum([0, *(A.shape[0] for A in self.parts)])

    def _cut(self, W: Any) -> Iterator[tuple[Operator, Any]]:
        for A, lo, hi in zip(self.parts, self._firsts[:-1], self._firsts[1:], strict=True):
            yield A, W[lo:hi] if np.ndim(W) else W

    def _in_order(self, blocks: Callable[[Operator], Iterator[tuple[int, Panel]]]) -> Iterator[tuple[int, Panel]]:
        for A, first in zip(self.parts, self._firsts[:-1], strict=True):
            yield from ((int(first) + lo, block) for lo, block in blocks(A))

    def matmat(self, V: Panel) -> Panel:
        return np.concatenate([A.matmat(V) for A in self.parts])

    def rmatmat(self, W: Panel) -> Panel:
        return reduce(np.add, (A.rmatmat(rows) for A, rows in self._cut(W)))

    def matmat_in_double(self, V: Panel) -> Panel:
        return np.concatenate([generic.matmat_in_double(A, V) for A in self.parts])

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return reduce(np.add, (generic.rmatmat_in_double(A, rows) for A, rows in self._cut(W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return reduce(np.add, (A.gram(V, w) for A, w in self._cut(weights)))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        return reduce(np.add, (generic.gram_matrix(A, w) for A, w in self._cut(weights)))

    def triangle(self, weights: Vector | None = None) -> Panel:
        return reduce(folded, (generic.triangle(A, w) for A, w in self._cut(weights)))

    @cached_property
    def costs(self) -> Costs:
        most = ("working_bytes", "column_bytes", "adjoint_bytes", "strain")
        in_single = all(A.costs.gram_in_single for A in self.parts)
        return costs_together(self, self.parts, most, ("gram_pairs", "square_bytes"), gram_in_single=in_single)

    def passes_per_step(self) -> int:
        return max(map(generic.passes_per_step, self.parts))

    def moments(self, weights: Vector | None = None) -> Moments:
        found = [A.moments(w) for A, w in self._cut(weights) if w is None or np.any(w)]
        if all(part.M2 is not None for part in found):
            return reduce(Moments.merge, found)
        count = sum(part.count for part in found)
        return Moments(count, reduce(np.add, (part.mean * (part.count / count) for part in found)), None)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        found = [generic.row_moments(A, weights) for A in self.parts]
        M2 = _of_all(np.concatenate, (part.M2 for part in found))
        return Moments(found[0].count, np.concatenate([part.mean for part in found]), M2)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        return _of_all(SUM, (A.column_squares(w) for A, w in self._cut(weights)))

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return _of_all(np.concatenate, (A.row_squares(weights) for A in self.parts))

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        return _of_all(SUM, (generic.squares_beyond(A, V, W, w) for A, w in self._cut(weights)))

    def cancelled(self) -> float:
        # The shift of a part, too: its products round at the level of the shift.
        shifts = map(generic.shift_of, self.parts)
        return sum(S.frobenius_norm() for S in shifts if S is not None) + sum(map(generic.cancelled, self.parts))

    def least(self) -> float | None:
        return _of_all(min, map(generic.least, self.parts))

    def exponents(self, axis: int) -> Vector | None:
        return _of_all(np.concatenate if axis else LARGEST, (generic.exponents(A, axis) for A in self.parts))

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "VStack":
        return VStack(tuple(times_powers(A, e, cols) for A, e in self._cut(rows)))

    def with_shift(self, shift: LowRank) -> "VStack":
        return VStack(tuple(A - LowRank(L, shift.R) for A, L in self._cut(shift.L)))

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self._in_order(lambda A: A.row_products(V))

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        return self._in_order(lambda A: generic.row_blocks(A, rows))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        for first, blocks in together([generic.column_blocks(A, columns) for A in self.parts]):
            yield first, np.hstack(blocks)


def hstack(parts: Sequence[Operator]) -> Operator:
    """Return operators with equal numbers of rows side by side, as one operator.

    Parameters
    ----------
    parts : sequence of Operator
        Operators of shapes ``(m, n_1)``, ``(m, n_2)`` and so on.

    Returns
    -------
    Operator
        The operator of shape ``(m, n_1 + n_2 + ...)``; its parts are not copied.

    Raises
    ------
    ValueError
        If the numbers of rows differ.

    See Also
    --------
    operators.VStack : One above another.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.operators.hstack(
    ...     [ss.as_operator(np.ones((3, 2))), ss.as_operator(np.ones((3, 4)))]
    ... ).shape
    (3, 6)
    """
    return VStack(tuple(A.H for A in parts)).H


def together(blocks: Sequence[Iterator[tuple[int, Panel]]]) -> Iterator[tuple[int, list[Panel]]]:
    # Blocks of the same rows of several matrices, as long as the shortest of those that are left.
    left, first = [next(each)[1] for each in blocks], 0
    while all(len(block) for block in left):
        rows = min(len(block) for block in left)
        yield first, [block[:rows] for block in left]
        first += rows
        left = [
            block[rows:] if len(block) > rows else next(each, (0, block[:0]))[1]
            for block, each in zip(left, blocks, strict=True)
        ]


def _of_all(how: Callable[[list[Part]], Part], found: Iterable[Part | None]) -> Part | None:
    parts = list(found)
    known = [part for part in parts if part is not None]
    return how(known) if len(known) == len(parts) else None


# ---- The product of two operators, A B: never formed, whatever lies between them

EPS = float(np.finfo(np.float64).eps)
FEW = 4  # random vectors that estimate the norm of an operator that cannot compute it
RANGE = 200  # exponent of two up to which products and squares of the norms of factors are in range
FORMED = 2**23  # entries of the product that are formed at a time, where rows are needed: 64 MiB in double precision
AT_ONCE = 2**27  # operations of a product that is small enough to be formed, with all its digits
WORTH = 1000  # operations for each stored number that a norm may take


@dataclass(frozen=True, eq=False, repr=False)
class Product(Operator):
    """``A B``, multiplied from right to left: its products form nothing as large as ``A B``.

    ``costs.column_bytes`` includes an inner panel, as long as the side that A and B share. A pass is one read of A and
    of B. Products are made in double precision. Their rounding errors have the size of ``||A|| ||B||``, however small
    ``A B`` itself may be; certificates include them.

    Parameters
    ----------
    A : Operator of shape (m, l)
        The left factor.
    B : Operator of shape (l, n)
        The right factor.

    Raises
    ------
    ValueError
        If the number of columns of A differs from the number of rows of B.

    See Also
    --------
    cross : ``X^H Y`` of two matrices.
    operators.Scaled : Rows and columns times numbers.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A, B = ss.as_operator(np.ones((4, 3))), ss.as_operator(np.ones((3, 2)))
    >>> ss.operators.Product(A, B).matmat(np.eye(2))[0].tolist()
    [3.0, 3.0]
    """

    A: Operator
    B: Operator

    def __post_init__(self) -> None:
        if self.A.shape[1] != self.B.shape[0]:
            raise ValueError(
                f"the product A B needs A.shape[1] == B.shape[0], got shapes {self.A.shape} and {self.B.shape}"
            )
        vars(self).update(shape=(self.A.shape[0], self.B.shape[1]), dtype=_kind(self.A, self.B))

    def matmat(self, V: Panel) -> Panel:
        return _times(self.A, _times(self.B, V))

    def rmatmat(self, W: Panel) -> Panel:
        return _times(self.B.H, _times(self.A.H, W))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        A, B, e = self._near_one
        Z = _times(B.H, _gram(A, _times(B, V), weights))
        return Z * two_to(e) * two_to(e) if e else Z

    def passes_per_step(self) -> int:
        return 2  # each factor is multiplied from both sides, and nothing fuses that

    @cached_property
    def costs(self) -> Costs:
        A, B = self.A.costs, self.B.costs
        eps = max(_precision(self.A), _precision(self.B))
        inner = 3 * panel_dtype(self.dtype).itemsize * self.A.shape[1]
        known: dict[str, Any] = {"eps": eps, "gram_eps": eps, "gram_reads": 2, "gram_in_single": False}
        known |= {"column_bytes": A.column_bytes + B.column_bytes + inner}
        known |= {"square_bytes": 0.0 if self._operations <= AT_ONCE else float("inf")}
        return costs_together(self, (self.A, self.B), (), ("working_bytes", "strain"), **known)

    @property
    def _operations(self) -> int:
        return self.shape[0] * self.shape[1] * self.A.shape[1]

    @cached_property
    def _measured(self) -> list[tuple[float, float]]:
        return [_norm_and_level(self.A), _norm_and_level(self.B)]

    @property
    def sizes(self) -> tuple[float, float]:
        """Levels at which products with A and with B round, at least their norms."""
        return self._measured[0][1], self._measured[1][1]

    def cancelled(self) -> float:
        # ||A|| ||B||, of which the product may be any small part, and more where a factor is shifted: what one factor
        # rounds is multiplied by the other factor, without its shift.
        (a, of_a), (b, of_b) = self._measured
        return of_a * b + a * of_b - a * b

    def frobenius_norm(self) -> float | None:
        # Of a large product, by Gram matrices on the side that A and B share, if that is short.
        inner, (m, n) = self.A.shape[1], self.shape
        worth = WORTH * self.costs.stored
        if self._operations <= worth:
            return super().frobenius_norm()
        if inner * inner * (m + n) > worth:
            return None
        A, B, e = self._near_one
        G, K = generic.gram_matrix(A), generic.gram_matrix(B.H)
        return float(np.ldexp(np.sqrt(max(float(np.vdot(K, G).real), 0.0)), e))

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        if self._operations > WORTH * self.costs.stored:
            return None
        squares = np.zeros(self.shape[1])
        with np.errstate(over="ignore"):
            for lo, block in self.row_blocks(FORMED):
                entries = np.abs(block) ** 2
                squares += entries.sum(axis=0) if weights is None else weights[lo : lo + len(block)] @ entries
        return squares

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.H.column_squares(weights)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        n = self.shape[1]
        if self.A.shape[1] <= n:
            K = _times(self.B.H, generic.gram_matrix(self.A, weights))
            return _times(self.B.H, K.conj().T).conj().T
        G = np.zeros((n, n), panel_dtype(self.dtype))
        for lo, block in self.row_blocks(FORMED):
            w = None if weights is None else weights[lo : lo + len(block)]
            G += block.conj().T @ scaled(w, block)
        return G

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        # From dense blocks of A and B; a pass for each FORMED entries.
        m, n = self.shape
        rows, at_once = max(1, min(rows, m)), max(1, FORMED // n)
        for first in range(0, m, at_once):
            lines = slice(first, min(first + at_once, m))
            C = np.zeros((lines.stop - first, n), panel_dtype(self.dtype))
            inner = max(1, generic.QR_ENTRIES // max(m, n))
            blocks = [generic.row_blocks(F, inner) for F in (self.A.H, self.B)]
            for _, (X, Y) in together(blocks):
                C += X[:, lines].conj().T @ Y
            for lo in range(0, len(C), rows):
                yield first + lo, C[lo : lo + rows]

    def exponents(self, axis: int) -> Vector:
        # The same for all columns or rows, from the norms of both factors.
        e = ZERO_EXPONENT if 0.0 in self.sizes else sum(math.frexp(size)[1] for size in self.sizes)
        return np.full(self.shape[1 - axis], e)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Product":
        # A is brought near 1, so that inner panels stay in range.
        e = math.frexp(self.sizes[0])[1] + int(np.max(rows))
        return Product(times_powers(self.A, rows - e, 0), times_powers(self.B, 0, cols + e))

    @property
    def H(self) -> "Product":
        return Product(self.B.H, self.A.H)

    @cached_property
    def _near_one(self) -> tuple[Operator, Operator, int]:
        a, b = (math.frexp(size)[1] for size in self.sizes)
        if max(abs(a), abs(b)) < RANGE:
            return self.A, self.B, 0
        return times_powers(self.A, 0, -a), times_powers(self.B, 0, -b), a + b


def _kind(A: Operator, B: Operator) -> np.dtype[Any]:
    dtype = np.result_type(A.dtype, B.dtype)
    mixed = np.finfo(A.dtype).eps != np.finfo(B.dtype).eps
    if mixed and max(_precision(A), _precision(B)) > EPS:
        return np.dtype(np.complex64 if dtype.kind == "c" else np.float32)
    return dtype


def _times(A: Operator, V: Panel) -> Panel:
    return A.matmat(V) if A.costs.eps <= EPS else generic.rmatmat_in_double(A.H, V)


def _gram(A: Operator, V: Panel, weights: Vector | None) -> Panel:
    if A.costs.gram_eps <= EPS:
        return A.gram(V, weights)
    return _times(A.H, scaled(weights, _times(A, V)))


def _precision(A: Operator) -> float:
    return min(A.costs.gram_eps, A.H.costs.gram_eps)


def _norm_and_level(A: Operator) -> tuple[float, float]:
    norm, shift = A.frobenius_norm(), generic.shift_of(A)
    if norm is None:  # of an operator that only multiplies, the root mean square of a few random products
        Omega = np.random.default_rng(0).standard_normal((A.shape[1], FEW)).astype(panel_dtype(A.dtype))
        norm = length(np.abs(A.matmat(Omega)).ravel()) / math.sqrt(FEW)
    return norm, norm + (0.0 if shift is None else shift.frobenius_norm()) + generic.cancelled(A)
