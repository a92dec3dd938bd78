"""The basis of a block Lanczos run: orthonormal columns B, the projected matrix H = B^H G B, and what comes next."""

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, orth, subtract_product, times
from shiftsvd.numerics.panels import beside, lengths, put, room, sent, to_spare
from shiftsvd.operators import Panel

# A projection that leaves less than this of a column has lost digits of it: it is done again (Daniel et al. 1976).
TWICE = 0.1
# What a product in single precision adds that is no longer than this, relative to the longest product, is rounding.
SINGLE_ROUNDING = 2 * float(np.finfo(np.float32).eps)
# Squares of what is shorter than this, relative to the longest, are lost in rounding, or nearly so.
TOLD_BY_SQUARES = 1e-6


@dataclass(eq=False)
class Basis:
    """``G B = B H + Q C E^H``: Q is the next block, and E picks the columns of B that were multiplied last.

    While a probe is under way (`set_aside`), the Q of before waits, and what it tells of the residuals is left out.

    Attributes
    ----------
    B : array (n, capacity), by columns
        Orthonormal columns; the first `size` were multiplied, the `width` after them are Q. In single precision for
        products that are: what is read and multiplied most is half as large, and rounded as they are.
    H : array (capacity, capacity)
        Hermitian, in double precision; rows and columns up to size + width are set.
    """

    B: Panel
    H: Panel
    rng: Generator
    size: int = 0
    width: int = 0
    last: int = 0  # columns that were multiplied last
    C: Panel = field(default_factory=lambda: np.empty((0, 0)))  # (width, last)
    scale: float = 0.0  # the largest norm of a product so far: what rounding is measured by
    aside: tuple[Panel, Panel] | None = None  # the block that waits, and the residuals of all columns in its terms

    @classmethod
    def of(
        cls,
        n: int,
        capacity: int,
        dtype: np.dtype[np.generic],
        rng: Generator,
        single: bool = False,
        near: Panel | None = None,
    ) -> "Basis":
        held = np.result_type(np.complex64 if dtype.kind == "c" else np.float32) if single else dtype
        B = room(np.empty((n, 0)) if near is None else near, capacity, held)
        return cls(B, np.zeros((capacity, capacity), dtype), rng)

    @classmethod
    def around(cls, V: Panel, theta: Vector, R: Panel, rng: Generator) -> "Basis":
        n, k = V.shape
        basis = cls.of(n, min(2 * k, n), V.dtype, rng)
        basis.B[:, :k], basis.size, basis.last = V, k, k
        basis.H[:k, :k] = np.diag(theta)
        basis.scale = float(np.max(np.abs(theta), initial=0.0))
        # However small residuals are, they have the rounding of products along V.
        Q = basis._independent(R, _column_rounding(R) * basis.scale, n - k, k, whole=basis.scale)
        basis.B[:, k : k + Q.shape[1]], basis.width = Q, Q.shape[1]
        basis.C = inner(Q, R)
        return basis

    @property
    def block(self) -> Panel:
        return self.B[:, self.size : self.size + self.width]

    @property
    def single(self) -> bool:
        return self.B.dtype != self.H.dtype

    @property
    def room(self) -> int:
        return int(self.B.shape[1]) - self.size - self.width

    def reserve(self, columns: int) -> None:
        have = self.B.shape[1]
        if columns > have:
            B = room(self.B, columns, self.B.dtype)
            B[:, : self.size + self.width] = self.B[:, : self.size + self.width]
            self.B, self.H = B, np.pad(self.H, (0, columns - have))

    def begin(self, Q: Panel) -> None:
        self.size = self.last = 0
        self.width = Q.shape[1]
        self.B[:, : self.width] = orth(Q)
        self.H[:] = 0

    def set_aside(self, columns: int) -> Panel:
        n, end = self.B.shape[0], self.size
        self.aside = self.block.copy(), self._border(np.eye(end, dtype=self.H.dtype))
        Omega = self._normal(min(columns, n - end))
        F = Omega
        self.reserve(end + F.shape[1])
        for _ in range(2):
            F = self._held(F)
            self._project(F, end)
            F = orth(F)
        self.width, self.last = F.shape[1], 0
        self.B[:, end : end + self.width] = F
        self.C = np.zeros((self.width, 0), self.H.dtype)
        return inner(F, Omega)

    def take_back(self) -> None:
        assert self.aside is not None
        D, C = self.aside
        self.aside = None
        end = self.size + self.width
        self.reserve(min(end + D.shape[1], D.shape[0]))
        known = np.zeros((end, D.shape[1]), D.dtype)
        for _ in range(2):
            known += self._project(D, end)
        Q = self._independent(D, self._rounding, self.B.shape[0] - end, end, whole=1.0)
        border = np.zeros((self.width + Q.shape[1], self.size), self.H.dtype)
        border[: self.width, self.size - self.last :] = self.C
        border[: self.width, : C.shape[1]] += known[self.size :] @ C
        border[self.width :, : C.shape[1]] = inner(Q, D) @ C
        self.B[:, end : end + Q.shape[1]] = Q
        self.C, self.width, self.last = border, self.width + Q.shape[1], self.size

    def extend(self, W: Panel) -> None:
        self.scale = self.scale or float(np.max(lengths(W), initial=0))
        W, unit = self._scaled(W)
        old, end = self.size, self.size + self.width
        # What W has in common with the last blocks is large and known beforehand; the rest is rounding.
        near = max(0, old - self.last)
        coefficients, part = np.zeros((end, self.width), self.H.dtype), np.zeros((0, self.width))
        for lo in (near, 0):
            part = self._project(W, end, lo)
            coefficients[lo:] += part
        squares = inner(W, W)
        left = np.sqrt(np.diagonal(squares).real)
        if np.any(left < TWICE * np.hypot(left, lengths(part))):
            self._project(W, end)
            squares = inner(W, W)
        self.scale = max(self.scale, unit * float(np.max(np.hypot(left, lengths(coefficients)), initial=0)))
        coefficients *= unit
        D = coefficients[old:]
        self.H[:old, old:end] = coefficients[:old]
        self.H[old:end, :old] = coefficients[:old].conj().T
        self.H[old:end, old:end] = (D + D.conj().T) / 2
        self.size, self.last = end, self.width
        Q = self._next(W, squares, self.dropped() / unit)
        self.C = inner(Q, W) * unit
        self.width = Q.shape[1]
        put(self.B, end, Q)
        # The next projection finds these again; a check before it needs nothing but C.

    def values(self) -> tuple[Vector, Panel, Panel]:
        theta, Z = np.linalg.eigh(self.H[: self.size, : self.size])
        theta, Z = theta[::-1], Z[:, ::-1]
        return theta, Z, self._border(Z)

    def residuals(self, Z: Panel) -> Panel:
        return np.asarray(self.block @ self._border(Z))

    def _border(self, Z: Panel) -> Panel:
        return np.asarray(self.C @ Z[self.size - self.last : self.size])

    def vectors(self, Z: Panel) -> Panel:
        out = self._times(Z)
        return orth(out.astype(self.H.dtype)) if self.single else out

    def coupling(self, V: Panel, W: Panel, count: int) -> float:
        R = W - V @ inner(V, W)
        size = float(np.max(lengths(R), initial=0))
        if size == 0:
            return 0.0
        return float(np.linalg.norm(inner(self.B[:, :count], (R / size).astype(self.B.dtype)), 2)) * size

    def _times(self, Z: Panel) -> Panel:
        return times(self.B[:, : self.size], Z)

    def _held(self, W: Panel) -> Panel:
        return W.astype(self.B.dtype)

    def _scaled(self, W: Panel) -> tuple[Panel, float]:
        unit = 2.0 ** int(np.frexp(self.scale)[1]) if self.single else 1.0
        if W.dtype != self.B.dtype or not to_spare(W, self.B):
            W = (W / unit).astype(self.B.dtype)
        elif unit != 1:
            W /= W.dtype.type(unit)
        return W, unit

    def _project(self, W: Panel, end: int, start: int = 0) -> Panel:
        B = self.B[:, start:end]
        part = inner(B, W)
        subtract_product(W, B, part)
        return part

    def restart(self, theta: Vector, Z: Panel) -> None:
        kept, width = Z.shape[1], self.width
        border = self._border(Z)
        Q = self.block.copy()
        self.B[:, :kept] = self._times(Z)
        self.B[:, kept : kept + width] = Q
        self.H[:] = 0
        self.H[:kept, :kept] = np.diag(theta)
        # The kept vectors all have a residual along Q: they count as multiplied last.
        self.C, self.size, self.last = border, kept, kept

    def dropped(self) -> float:
        return self._rounding * self.scale

    @property
    def _rounding(self) -> float:
        return SINGLE_ROUNDING if self.single else _column_rounding(self.B)

    def _next(self, W: Panel, squares: Panel, noise: float) -> Panel:
        """Orthonormal columns along those of W that are more than rounding, filled up with fresh ones.

        `squares` is ``W^H W``.

        Those of a probe are not filled up: they must know of nothing but its first block.
        """
        n, end = self.B.shape[0], self.size
        width = min(W.shape[1], n - end, self.B.shape[1] - end)
        Q = self._independent(W, noise, width, end, squares=squares)
        if Q.shape[1] < width and self.aside is None:
            self.B[:, end : end + Q.shape[1]] = Q
            Q = beside(Q, self._fresh(end + Q.shape[1], width - Q.shape[1]))
        return Q

    def _independent(
        self, W: Panel, noise: float, width: int, end: int, whole: float = 0.0, squares: Panel | None = None
    ) -> Panel:
        """At most so many orthonormal columns, orthogonal to the first `end` of B, along what of W is above noise.

        W is orthogonal to those but for rounding; `whole` is the length that its columns had before, `squares` is
        ``W^H W``.
        """
        Q, width = W[:, :0].copy(), min(width, W.shape[1])
        while True:
            sizes, P = np.linalg.eigh(inner(W, W) if squares is None else squares)
            sizes, squares = np.sqrt(np.maximum(sizes, 0)), None
            least = max(noise, TOLD_BY_SQUARES * float(sizes[-1])) if len(sizes) else noise
            short = sizes <= least
            there = np.flatnonzero(~short)[max(0, len(sizes) - short.sum() - (width - Q.shape[1])) :]
            if not len(there):
                return Q
            F = times(W, P[:, there] / sizes[there])
            shortest = TWICE if self.single else TWICE**2
            if Q.shape[1] or sizes[there[0]] < shortest * max(float(sizes[-1]), whole):
                for _ in range(2):  # short columns have rounding along B
                    self._project(F, end)
                    subtract_product(F, Q, inner(Q, F))
                    F = self._held(orth(F))
            elif not self.single:  # to single precision they are
                F = orth(F)
            Q = beside(Q, F) if Q.shape[1] else F
            if Q.shape[1] >= width or least == noise or not short.any():
                return Q
            W = W.copy()
            subtract_product(W, Q, inner(Q, W))
            self._project(W, end)

    def _fresh(self, end: int, columns: int) -> Panel:
        F = self._normal(columns)
        for _ in range(2):
            F = self._held(orth(F))
            self._project(F, end)
        return orth(F)

    def _normal(self, columns: int) -> Panel:
        shape = self.B.shape[0], columns
        F: Panel = self.rng.standard_normal(shape)
        return sent(self.B, F if self.H.dtype.kind == "f" else (F + 1j * self.rng.standard_normal(shape)) / np.sqrt(2))


def _column_rounding(W: Panel) -> float:
    return len(W) * float(np.finfo(np.float64).eps)
