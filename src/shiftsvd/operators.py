"""The algebra of the shift: matrices that can only multiply a panel, and what is built of them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shiftsvd.moments import Moments, Vector

Panel = npt.NDArray[Any]  # a tall thin 2-D array in memory
PANEL_CACHE = 2**20  # bytes of one panel that stays in the cache of a core beside another


class Mixer(Protocol):
    """A structured test matrix of shape (n, ell): it mixes the columns of a block without being formed."""

    def mix(self, block: Panel) -> Panel:
        """``block @ Omega``, of shape (rows, ell)."""

    def to_array(self) -> Panel:
        """Omega itself, of shape (n, ell)."""


class Operator(ABC):
    """A matrix A of shape (m, n) that can only multiply panels.

    A subclass sets ``shape`` and ``dtype`` (float32, float64, complex64 or complex128) and defines
    `matmat` and `rmatmat`; everything else has a default. ``A - B``, ``A.H`` and ``A @ V`` are the algebra.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the results for users; panels inside a solver are float64 or complex128.
    eps : float
        Rounding unit of the products.
    stored : int
        How many numbers one pass reads.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @abstractmethod
    def matmat(self, V: Panel) -> Panel:
        """``A V``, (n, b) -> (m, b)."""

    @abstractmethod
    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W``, (m, b) -> (n, b)."""

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V``, (n, b) -> (n, b); one pass where a backend fuses it, else two.

        `weights` has one entry a row; without them, ``A^H A V``. A single precision V says that single precision
        is enough.
        """
        return self.rmatmat(_scale(weights, self.matmat(V)))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A`` formed in double precision, shape (n, n)."""
        return self.gram(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)), weights)

    def fused(self, passes: float) -> "Operator":
        """The same matrix with a `gram` of one read, if getting there pays back within so many passes."""
        return self

    def transposed(self, passes: float) -> "Operator | None":
        """The adjoint with a `gram` of one read, if getting there pays back; None if it does not."""
        return None

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns, ``mean = A^T w / sum(w)``; one pass. `weights` has one entry a row."""
        w = np.ones(self.shape[0]) if weights is None else weights
        mean = self.rmatmat(w[:, None])[:, 0].conj() / w.sum()
        return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows: those of ``A^H``, conjugated. `weights` has one entry a column."""
        w = np.ones(self.shape[1]) if weights is None else weights
        mean = self.matmat(w[:, None])[:, 0] / w.sum()
        return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        """``sum_i w_i |a_ij|^2`` without cancellation, shape (n,); None where it cannot be had cheaply."""
        return None

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        """``sum_j w_j |a_ij|^2`` without cancellation, shape (m,); None where it cannot be had cheaply."""
        return None

    def frobenius_norm(self) -> float | None:
        """``||A||_F`` without cancellation, in one pass; None where it cannot be had cheaply."""
        squares = self.column_squares()
        return None if squares is None else float(np.sqrt(squares.sum()))

    def with_shift(self, shift: "LowRank") -> "Operator | None":
        """This matrix minus `shift`, with the subtraction fused into its blocks; None if it cannot."""
        return None

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """``(first row, dense block)`` over all rows in one pass, about `rows` at a time where possible."""
        yield 0, self.matmat(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """``(first row, dense block)`` over all rows of ``A^H``, as `row_blocks`."""
        yield 0, self.rmatmat(np.eye(self.shape[0], dtype=panel_dtype(self.dtype)))

    def gram_seconds(self, V: Panel) -> float:
        """How long ``gram(V)`` takes: one is made, or a part of one where that tells as much."""
        started = time.perf_counter()
        self.gram(V)
        return time.perf_counter() - started

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """``(first row, A[rows] V)`` in order, a part of the rows at a time where possible; one pass."""
        yield 0, self.matmat(V)

    def mix(self, Omega: Mixer) -> Panel:
        """``A Omega`` for a structured test matrix."""
        return self.matmat(Omega.to_array())

    @property
    def H(self) -> "Operator":
        """The conjugate transpose, a view."""
        return Adjoint(self)

    @property
    def eps(self) -> float:
        """Rounding unit of the products."""
        return float(np.finfo(self.dtype).eps)

    @property
    def gram_reads(self) -> int:
        """How often `gram` reads the data."""
        return 2

    @property
    def panel_columns(self) -> tuple[int, int]:
        """The fewest and the most columns of a panel that products are at their best with."""
        if self.stored == self.shape[0] * self.shape[1]:
            return 16, 32
        # Where two panels leave the cache, 8 columns take as long each as 16, and a run needs fewer of them.
        return (8, 8) if 16 * self.dtype.itemsize * min(self.shape) > PANEL_CACHE else (8, 16)

    @property
    def working_bytes(self) -> int:
        """Memory that a product takes beside its panels."""
        return 0

    @property
    def file_bytes(self) -> int:
        """How much one pass reads from a file; 0 where the data are in memory."""
        return 0

    @property
    def gram_pairs(self) -> float:
        """How many products of two numbers `gram_matrix` takes, about."""
        return self.stored**2 / self.shape[0]

    @property
    def gram_eps(self) -> float:
        """Rounding unit of `gram` for panels in double precision."""
        return self.eps

    @property
    def stored(self) -> int:
        """How many numbers one pass reads."""
        return self.shape[0] * self.shape[1]

    @property
    def n_threads(self) -> int | None:
        """Threads that a solver may use; None: the cores that this process may use."""
        return None

    def __matmul__(self, V: npt.ArrayLike) -> Panel:
        X = np.asarray(V)
        if X.ndim not in (1, 2) or X.shape[0] != self.shape[1]:
            raise ValueError(f"A @ V needs V with {self.shape[1]} rows for A of shape {self.shape}, got {X.shape}")
        return self.matmat(X[:, None])[:, 0] if X.ndim == 1 else self.matmat(X)

    def __sub__(self, shift: "Operator") -> "Operator":
        if not isinstance(shift, Operator):
            return NotImplemented
        _check_same_shape(self, shift)
        low_rank = shift.as_low_rank()
        fused = None if low_rank is None else self.with_shift(low_rank)
        return fused or Shifted(self, shift if low_rank is None else low_rank)

    def as_low_rank(self) -> "LowRank | None":
        """This matrix as ``L R^H``, if that is what it is."""
        return None

    def unshifted(self) -> "tuple[Operator, LowRank | None]":
        """The matrix and the low-rank shift that this operator is the difference of."""
        return self, None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape[0]} x {self.shape[1]} {self.dtype}>"

    # NumPy must leave `array @ A` and `array - A` to us, not loop over the entries.
    __array_ufunc__ = None


def panel_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """float64, or complex128 for complex data: what solvers compute in, whatever the data are stored as."""
    # Products of float32 panels square their rounding into sigma^2 (65 % error at sigma_1/sigma_k = 1e4).
    return np.dtype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)


def field_of(dtype: np.dtype[Any], *parts: npt.NDArray[Any]) -> np.dtype[Any]:
    """`dtype`, made complex if any of `parts` is; its precision stays."""
    return np.result_type(dtype, np.complex64) if any(np.iscomplexobj(p) for p in parts) else dtype


class Derived(Operator):
    """An operator made of another one, A: its products cost and round as those of A do."""

    A: Operator

    @property
    def eps(self) -> float:
        """As of A."""
        return self.A.eps

    def gram_seconds(self, V: Panel) -> float:
        """As of A."""
        return self.A.gram_seconds(V)

    @property
    def gram_eps(self) -> float:
        """As of A."""
        return self.A.gram_eps

    @property
    def panel_columns(self) -> tuple[int, int]:
        """As of A."""
        return self.A.panel_columns

    @property
    def working_bytes(self) -> int:
        """As of A."""
        return self.A.working_bytes

    @property
    def file_bytes(self) -> int:
        """As of A."""
        return self.A.file_bytes

    @property
    def stored(self) -> int:
        """As of A."""
        return self.A.stored

    @property
    def n_threads(self) -> int | None:
        """As of A."""
        return self.A.n_threads


@dataclass(frozen=True, eq=False, repr=False)
class Adjoint(Derived):
    """The conjugate transpose of an operator."""

    A: Operator
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.A.shape[::-1])
        object.__setattr__(self, "dtype", self.A.dtype)

    def matmat(self, V: Panel) -> Panel:
        """``A^H V``."""
        return self.A.rmatmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        """``A W``."""
        return self.A.matmat(W)

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows of A, conjugated."""
        moments = self.A.row_moments(weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns of A, conjugated."""
        moments = self.A.moments(weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        """Squared norms of the rows of A."""
        return self.A.row_squares(weights)

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        """Squared norms of the columns of A."""
        return self.A.column_squares(weights)

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """The column blocks of A."""
        return self.A.column_blocks(rows)

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The row blocks of A."""
        return self.A.row_blocks(columns)

    def gram_seconds(self, V: Panel) -> float:
        """That of two products."""
        return Operator.gram_seconds(self, V)

    @property
    def gram_eps(self) -> float:
        """That of two products."""
        return self.A.eps

    def fused(self, passes: float) -> Operator:
        """A sorted the other way, where that pays."""
        return self.A.transposed(passes) or self

    def with_shift(self, shift: "LowRank") -> Operator | None:
        """``(A - shift^H)^H``."""
        fused = self.A.with_shift(shift.H)
        return None if fused is None else fused.H

    def unshifted(self) -> "tuple[Operator, LowRank | None]":
        """The parts of A, each conjugate-transposed."""
        A, shift = self.A.unshifted()
        return A.H, None if shift is None else shift.H

    def as_low_rank(self) -> "LowRank | None":
        """``R L^H``, if A is ``L R^H``."""
        low_rank = self.A.as_low_rank()
        return None if low_rank is None else low_rank.H

    @property
    def H(self) -> Operator:
        """The operator itself."""
        return self.A


@dataclass(frozen=True, eq=False, repr=False)
class LowRank(Operator):
    """The matrix ``L R^H`` of rank at most r: a shift. ``LowRank(ones, conj(mu))`` is ``1 mu^T``.

    Parameters
    ----------
    L : array of shape (m, r) or (m,)
    R : array of shape (n, r) or (n,)

    Raises
    ------
    ValueError
        If the factors do not have the same number of columns, or hold NaN or infinities.
    """

    L: Panel
    R: Panel
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        L, R = _factor("L", self.L), _factor("R", self.R)
        if L.shape[1] != R.shape[1]:
            raise ValueError(f"LowRank needs L (m, r) and R (n, r) of equal r, got {L.shape} and {R.shape}")
        object.__setattr__(self, "L", L)
        object.__setattr__(self, "R", R)
        object.__setattr__(self, "shape", (len(L), len(R)))
        object.__setattr__(self, "dtype", np.result_type(L, R))

    def matmat(self, V: Panel) -> Panel:
        """``L (R^H V)``."""
        return np.asarray(self.L @ (self.R.conj().T @ V))

    def rmatmat(self, W: Panel) -> Panel:
        """``R (L^H W)``."""
        return np.asarray(self.R @ (self.L.conj().T @ W))

    def rows(self, lo: int, hi: int) -> Panel:
        """Rows lo to hi of ``L R^H``, formed."""
        return np.asarray(self.L[lo:hi] @ self.R.conj().T)

    def merge(self, other: "LowRank | None") -> "LowRank":
        """The sum of both; columns that both have count once."""
        if other is None:
            return self
        L, R = _gathered(np.hstack([other.L, self.L]), np.hstack([other.R, self.R]))
        R, L = _gathered(R, L)
        return LowRank(L, R)

    def __add__(self, other: "LowRank") -> "LowRank":
        if not isinstance(other, LowRank):
            return NotImplemented
        _check_same_shape(self, other)
        return other.merge(self)

    def __neg__(self) -> "LowRank":
        return LowRank(-self.L, self.R)

    def with_shift(self, shift: "LowRank") -> "LowRank":
        """The difference."""
        return LowRank(shift.L, -shift.R).merge(self)

    def frobenius_norm(self) -> float:
        """``||L R^H||_F``, by the triangular factors of both."""
        return float(np.linalg.norm(_triangle(self.L) @ _triangle(self.R).conj().T))

    def as_low_rank(self) -> "LowRank":
        """Itself."""
        return self

    def row_vector(self) -> Vector | None:
        """mu, if this is ``1 mu^T`` however it is written; else None."""
        return np.asarray(self.R.conj() @ self.L[0]) if np.all(self.L == self.L[0]) else None

    @property
    def H(self) -> "LowRank":
        """``R L^H``."""
        return LowRank(self.R, self.L)


@dataclass(frozen=True, eq=False, repr=False)
class Shifted(Derived):
    """``A - S``: the plain algebra of the shift, for every operator that cannot fuse it."""

    A: Operator
    S: Operator
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        _check_same_shape(self.A, self.S)
        object.__setattr__(self, "shape", self.A.shape)
        object.__setattr__(self, "dtype", field_of(self.A.dtype, np.empty(0, self.S.dtype)))

    def matmat(self, V: Panel) -> Panel:
        """``A V - S V``."""
        return self.A.matmat(V) - self.S.matmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W - S^H W``."""
        return self.A.rmatmat(W) - self.S.rmatmat(W)

    def fused(self, passes: float) -> Operator:
        """As A, with the shift inside it where it can be."""
        return self.A.fused(passes) - self.S

    def with_shift(self, shift: LowRank) -> Operator | None:
        """Both shifts in one, where this one is of low rank too."""
        S = self.S.as_low_rank()
        return None if S is None else Shifted(self.A, shift.merge(S))

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """Those of A minus those of S."""
        S = self.S.as_low_rank()
        if S is None:
            yield from super().row_products(V)
            return
        C = S.R.conj().T @ V
        for lo, part in self.A.row_products(V):
            yield lo, part - S.L[lo : lo + len(part)] @ C

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """Blocks of A minus the same rows of S."""
        S = self.S.as_low_rank()
        if S is None:
            yield from super().row_blocks(rows)
            return
        for lo, block in self.A.row_blocks(rows):
            yield lo, block - S.rows(lo, lo + len(block))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The row blocks of the adjoint."""
        return self.H.row_blocks(columns)

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        """A and the shift."""
        S = self.S.as_low_rank()
        return (self, None) if S is None else (self.A, S)

    @property
    def H(self) -> "Shifted":
        """``A^H - S^H``."""
        return Shifted(self.A.H, self.S.H)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Derived):
    """``diag(rows) A diag(cols)``: weights on the rows, scales on the columns; a missing one is all ones."""

    A: Operator
    rows: Vector | None = None
    cols: Vector | None = None
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        for name, scale, size in zip(("rows", "cols"), (self.rows, self.cols), self.A.shape, strict=True):
            if scale is not None and scale.shape != (size,):
                raise ValueError(f"{name} must have shape ({size},) for a matrix {self.A.shape}, got {scale.shape}")
        scales = [scale for scale in (self.rows, self.cols) if scale is not None]
        object.__setattr__(self, "shape", self.A.shape)
        object.__setattr__(self, "dtype", field_of(self.A.dtype, *scales))

    def matmat(self, V: Panel) -> Panel:
        """``D_r (A (D_c V))``."""
        return _scale(self.rows, self.A.matmat(_scale(self.cols, V)))

    def rmatmat(self, W: Panel) -> Panel:
        """``D_c^H (A^H (D_r^H W))``."""
        return _scale(_conj(self.cols), self.A.rmatmat(_scale(_conj(self.rows), W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``D_c^H A^H D_r^H diag(weights) D_r A D_c V``, as many reads as A takes."""
        Z = self.A.gram(_scale(self.cols, V).astype(_precision(V, self.cols), copy=False), _power(self.rows, weights))
        return _scale(_conj(self.cols), Z)

    @property
    def gram_reads(self) -> int:
        """As of A."""
        return self.A.gram_reads

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """``D_c^H A^H D_r^H diag(weights) D_r A D_c``, formed."""
        G = self.A.gram_matrix(_power(self.rows, weights))
        return G if self.cols is None else np.conj(self.cols)[:, None] * G * self.cols

    def fused(self, passes: float) -> "Scaled":
        """As A."""
        return Scaled(self.A.fused(passes), self.rows, self.cols)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        """``|c_j|^2`` times the weighted squares of A."""
        squares = self.A.column_squares(_power(self.rows, weights))
        return None if squares is None else _scale(_power(self.cols), squares)

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        """``|r_i|^2`` times the weighted squares of A."""
        squares = self.A.row_squares(_power(self.cols, weights))
        return None if squares is None else _scale(_power(self.rows), squares)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """Those of A with ``D_c V``, scaled."""
        for lo, part in self.A.row_products(_scale(self.cols, V)):
            yield lo, _scale(None if self.rows is None else self.rows[lo : lo + len(part)], part)

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """Blocks of A, scaled."""
        for lo, block in self.A.row_blocks(rows):
            r = None if self.rows is None else self.rows[lo : lo + len(block)]
            yield lo, _scale(r, block) if self.cols is None else _scale(r, block) * self.cols

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The row blocks of the adjoint."""
        return self.H.row_blocks(columns)

    def with_shift(self, shift: LowRank) -> Operator | None:
        """``D_r (A - D_r^-1 shift D_c^-1) D_c``, where the shift is 0 wherever a scale is, and A can fuse it."""
        L, R = _unscaled(self.rows, shift.L), _unscaled(_conj(self.cols), shift.R)
        if L is None or R is None:
            return None
        fused = self.A.with_shift(LowRank(L, R))
        return None if fused is None else Scaled(fused, self.rows, self.cols)

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        """The parts of A, each scaled."""
        A, S = self.A.unshifted()
        if S is None:
            return self, None
        return Scaled(A, self.rows, self.cols), LowRank(_scale(self.rows, S.L), _scale(_conj(self.cols), S.R))

    @property
    def H(self) -> "Scaled":
        """``D_c^H A^H D_r^H``."""
        return Scaled(self.A.H, _conj(self.cols), _conj(self.rows))


def _check_same_shape(A: Operator, shift: Operator) -> None:
    """Refuse a shift of another shape."""
    if shift.shape != A.shape:
        raise ValueError(f"the shift has shape {shift.shape}, the matrix {A.shape}: they must be equal")


def _gathered(L: Panel, R: Panel) -> tuple[Panel, Panel]:
    """Factors of ``L R^H`` where equal columns of L are one, and those that R has cancelled are none."""
    place: dict[bytes, int] = {}
    places = [place.setdefault(sha256(column.tobytes()).digest(), len(place)) for column in L.T]
    if len(place) < len(places):
        kept = [places.index(i) for i in range(len(place))]
        sums = np.zeros((len(R), len(place)), R.dtype)
        for i, column in zip(places, R.T, strict=True):
            sums[:, i] += column
        L, R = L[:, kept], sums
    # A shift of rank 0 is one column of zeros.
    there = np.flatnonzero(np.any(R != 0, axis=0)) if np.any(R) else np.arange(min(1, R.shape[1]))
    return (L, R) if len(there) == R.shape[1] else (L[:, there], R[:, there])


def _factor(name: str, F: npt.ArrayLike) -> Panel:
    """A factor of a low-rank matrix as a finite 2-D float or complex array."""
    F = np.asarray(F)
    F = F[:, None] if F.ndim == 1 else F
    if F.ndim != 2 or F.dtype.kind not in "fciub":
        raise ValueError(f"{name} must be a numeric array of one or two dimensions, got {F.dtype} {F.shape}")
    F = F.astype(panel_dtype(F.dtype), copy=False)
    if not np.isfinite(F).all():
        raise ValueError(f"{name} holds NaN or infinite values: a shift must be finite")
    return F


def _triangle(F: Panel) -> Panel:
    """R of the QR factorization of F."""
    return np.asarray(np.linalg.qr(F, mode="r"))


def _scale(scale: Vector | None, V: Panel) -> Panel:
    """``diag(scale) V`` for a panel or a vector."""
    if scale is None:
        return V
    return np.asarray(scale[:, None] * V if V.ndim == 2 else scale * V)


def _unscaled(scale: Vector | None, F: Panel) -> Panel | None:
    """``diag(scale)^-1 F``; None where a scale of 0 meets a row that is not."""
    if scale is None:
        return F
    zero = scale == 0
    return None if np.any(F[zero]) else np.asarray(F / np.where(zero, 1, scale)[:, None])


def _precision(V: Panel, scale: Vector | None) -> np.dtype[Any]:
    """The precision of V, made complex if the scale is."""
    return field_of(V.dtype, *() if scale is None else (scale,))


def _conj(scale: Vector | None) -> Vector | None:
    """The conjugate of a scale."""
    return None if scale is None else np.conj(scale)


def _power(scale: Vector | None, weights: Vector | None = None) -> Vector | None:
    """``|scale|^2 weights``, where a missing one is all ones."""
    if scale is None:
        return weights
    power = np.abs(scale) ** 2
    return power if weights is None else power * weights
