"""Krylov factorization of block Lanczos: an orthonormal basis B, H = B^H G B, and the next block."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import Projected, inner, orth, project, subtract_product, subtract_projection, times
from shiftsvd.numerics.panels import beside, lengths, put, room, sent, to_spare
from shiftsvd.operators import Panel
from shiftsvd.solvers.constants import EPS, SINGLE_ROUNDING, TOLD_BY_SQUARES, TWICE


class RitzPairs(NamedTuple):
    """Ritz values, descending; coordinates Z of the vectors in B, and E of the residuals in the next block."""

    theta: Vector
    Z: Panel
    E: Panel


NONE = np.empty((0, 0))


@dataclass(eq=False)
class Factorization:
    """``G B = B H + Q C J^H``: Q is the next block, and J picks the columns of B that were multiplied last.

    An epoch ends when columns of B are removed. A bound of G outside of B holds until the epoch ends, because B only
    grows. During a probe `aside` stores the Q of before, and residuals lack their part along that Q.
    """

    rng: Generator
    capacity: int
    # (n, capacity), orthonormal columns: the first `size` were multiplied, the next `width` are Q. In single precision
    # if products are, which halves the memory traffic of the largest array.
    B: Panel = field(default_factory=lambda: NONE)
    # (capacity, capacity), Hermitian, in double precision; rows and columns up to `size` are set.
    H: Panel = field(default_factory=lambda: NONE)
    C: Panel = field(default_factory=lambda: NONE)  # (width, last)
    columns: int = 0  # columns of the basis before `make_room` restarts it
    b: int = 0  # columns of the first block
    epoch: int = 0
    size: int = 0
    width: int = 0
    last: int = 0
    scale: float = 0.0  # largest norm of a product so far; rounding errors are relative to it
    aside: tuple[Panel, Panel] | None = None  # the Q of before a probe, and the coordinates of residuals in that Q
    _ritz: tuple[tuple[int, int], RitzPairs] | None = None
    _rows: Panel | None = None  # Q by rows, as products read it, if the last step left it

    @classmethod
    def of(cls, Q: Panel, columns: int, rng: Generator, single: bool = False, room: int = 0) -> "Factorization":
        F = cls(rng, max(room, columns), columns=columns, b=Q.shape[1])
        F.begin(Q, single)
        return F

    @classmethod
    def around(cls, V: Panel, theta: Vector, R: Panel, rng: Generator) -> "Factorization":
        """Return the factorization with an orthonormal basis V, Ritz values theta and residuals R."""
        n, k = V.shape
        F = cls(rng, min(2 * k, n))
        F._allocate(V, V.dtype)
        F.B[:, :k], F.size, F.last = V, k, k
        F.H[:k, :k] = np.diag(theta)
        F.scale = float(np.max(np.abs(theta), initial=0.0))
        # Small residuals have rounding errors along V, which are relative to the products.
        Q = F._independent(R, F.rounding, n - k, k, before=F.scale)
        F.C = inner(Q, R)
        F._append(Q)
        return F

    @property
    def n(self) -> int:
        return int(self.B.shape[0])

    @property
    def block(self) -> Panel:
        return self.B[:, self.size : self.size + self.width] if self._rows is None else self._rows

    @property
    def single(self) -> bool:
        return self.B.dtype != self.H.dtype

    @property
    def full(self) -> bool:
        return self.size >= self.n or self.width == 0

    @property
    def rounding(self) -> float:
        """Return the norm below which the remainder of a product consists of rounding errors."""
        return self._unit * self.scale

    @property
    def _unit(self) -> float:
        return SINGLE_ROUNDING if self.single else self.n * EPS

    def reserve(self, columns: int) -> None:
        have, columns = self.B.shape[1], min(columns, self.n)
        if columns > have:
            B = room(self.B, columns, self.B.dtype)
            B[:, : self.size + self.width] = self.B[:, : self.size + self.width]
            self.B, self.H = B, np.pad(self.H, (0, columns - have))

    # --- epochs ---------------------------------------------------------------------------------------------------

    def begin(self, Q: Panel, single: bool = False) -> None:
        """Discard the basis and start with the span of Q as next block, in single precision or in that of Q."""
        self._allocate(Q, np.result_type(np.complex64 if Q.dtype.kind == "c" else np.float32) if single else Q.dtype)
        self.epoch, self.size, self.last, self.scale = self.epoch + 1, 0, 0, 0.0
        self._append(orth(Q))

    def _allocate(self, near: Panel, held: np.dtype[np.generic]) -> None:
        self.B = NONE  # frees its memory first
        self.B, self.H = room(near, self.capacity, held), np.zeros((self.capacity, self.capacity), near.dtype)

    def make_room(self, k: int, steps: int = 1) -> None:
        """Restart with at least k Ritz vectors, or enlarge the basis if that would leave no room for steps.

        For several steps, restart only if the basis already has room for them afterwards.
        """
        # Keep half of the basis: error bounds need values beyond the k-th to determine the gap.
        keep = min(max(k + self.b, (self.columns - 2 * self.width) // 2), self.size)
        if steps == 1:
            self.columns = max(self.columns, min(keep + 2 * self.width + 4 * self.b, self.n))
        elif keep + (steps + 1) * self.width > min(self.size, self.columns):
            return
        if self.size + (steps + 1) * self.width > self.columns:
            self.restart(keep)

    def restart(self, kept: int) -> None:
        """Keep the first Ritz vectors, and remove the rest of the basis (Wu & Simon 2000)."""
        theta, Z, _ = self.ritz()
        width, Q, border = self.width, self.block.copy(), self._border(Z[:, :kept])
        self.B[:, :kept] = self._times(Z[:, :kept])
        self.B[:, kept : kept + width] = Q
        self.H[:] = 0
        self.H[:kept, :kept] = np.diag(theta[:kept])
        # All kept vectors have a residual along Q, so all of them count as multiplied last.
        self.C, self.size, self.last, self.epoch = border, kept, kept, self.epoch + 1

    # --- Ritz values ----------------------------------------------------------------------------------------------

    def ritz(self) -> RitzPairs:
        now = self.epoch, self.size
        if self._ritz is None or self._ritz[0] != now:
            theta, Z = np.linalg.eigh(self.H[: self.size, : self.size])
            theta, Z = theta[::-1], Z[:, ::-1]
            self._ritz = now, RitzPairs(theta, Z, self._border(Z))
        return self._ritz[1]

    def vectors(self, count: int) -> Panel:
        out = self._times(self.ritz().Z[:, :count])
        return orth(out.astype(self.H.dtype)) if self.single else out

    def _border(self, Z: Panel) -> Panel:
        return np.asarray(self.C @ Z[self.size - self.last : self.size])

    def _times(self, Z: Panel) -> Panel:
        return times(self.B[:, : self.size], Z)

    # --- a step ---------------------------------------------------------------------------------------------------

    def extend(self, W: Panel) -> None:
        """Append Q to the basis, and make the part of ``W = G Q`` orthogonal to the basis the next block."""
        self.scale = self.scale or float(np.max(lengths(W), initial=0))
        unit = 2.0 ** int(np.frexp(self.scale)[1]) if self.single else 1.0
        factor = 1 / unit
        if W.dtype != self.B.dtype or not (to_spare(W, self.B) and to_spare(W, self.block)):
            W, factor = (W * factor).astype(self.B.dtype), 1.0
        old, end = self.size, self.size + self.width
        self.reserve(end + self.width)
        near, room = max(0, old - self.last), min(self.n, self.B.shape[1]) - end
        Q = self.B[:, end : end + self.width] if W.shape[1] <= room else None
        W, coefficients, squares, below = project(
            W, self.B[:, :end], near, factor, TWICE, Q, self._unit, self.scale / unit
        )
        left = np.sqrt(np.diagonal(squares).real)
        self.scale = max(self.scale, unit * float(np.max(np.hypot(left, lengths(coefficients)), initial=0)))
        coefficients = coefficients * unit
        diagonal = coefficients[old:]
        self.H[:old, old:end] = coefficients[:old]
        self.H[old:end, :old] = coefficients[:old].conj().T
        self.H[old:end, old:end] = (diagonal + diagonal.conj().T) / 2
        self.size, self.last = end, self.width
        # The next projection computes C again, for H. Until then only checks need C.
        if below is not None:
            self.C, self._rows = below * unit, W
            return
        Q = self._next(W, squares, self.rounding / unit)
        self.C = inner(Q, W) * unit
        self._append(Q)

    def _append(self, Q: Panel) -> None:
        put(self.B, self.size, Q)
        self.width, self._rows = Q.shape[1], None

    def _project(self, W: Panel, end: int) -> Panel:
        return subtract_projection(W, self.B[:, :end])

    def _projected(self, W: Panel, end: int) -> Projected:
        place, W = self.B[:, end : end + W.shape[1]], W.astype(self.B.dtype)
        Q = place if place.shape[1] == W.shape[1] else None
        return project(W, self.B[:, :end], 0, 1.0, TWICE, Q, self._unit, 0.0)

    def _next(self, W: Panel, squares: Panel, noise: float) -> Panel:
        # Do not fill up the block of a probe with random columns: its bound is for the chain of the first block alone.
        end = self.size
        width = min(W.shape[1], self.n - end, self.B.shape[1] - end)
        Q = self._independent(W, noise, width, end, squares=squares)
        if Q.shape[1] < width and self.aside is None:
            self.B[:, end : end + Q.shape[1]] = Q
            Q = beside(Q, self._fresh(end + Q.shape[1], width - Q.shape[1]))
        return Q

    def _independent(
        self, W: Panel, noise: float, width: int, end: int, before: float = 0.0, squares: Panel | None = None
    ) -> Panel:
        """Return at most `width` orthonormal columns that span W above `noise`, orthogonal to ``B[:, :end]``.

        W is orthogonal to these columns of B up to rounding. `before` is the length of the columns of W before the
        projection, `squares` is ``W^H W``.
        """
        Q, width = W[:, :0].copy(), min(width, W.shape[1])
        while True:
            squares = inner(W, W) if squares is None else squares
            combined, sizes, hidden = _longest(squares, noise, width - Q.shape[1])
            if not len(sizes):
                return Q
            X = times(W, combined)
            shortest = TWICE if self.single else TWICE**2
            if Q.shape[1] or sizes[0] < shortest * max(float(sizes[-1]), before):
                X = self._cleaned(X, end, Q)  # short columns have rounding errors along B
            elif not self.single:  # in single precision X is orthonormal already
                X = orth(X)
            Q = beside(Q, X) if Q.shape[1] else X
            if Q.shape[1] >= width or not hidden:
                return Q
            # Remove the longest columns, so that squares can resolve shorter columns.
            W, squares = W.copy(), None
            subtract_product(W, Q, inner(Q, W))
            self._project(W, end)

    def _cleaned(self, X: Panel, end: int, Q: Panel) -> Panel:
        for _ in range(2):
            self._project(X, end)
            subtract_product(X, Q, inner(Q, X))
            X = orth(X).astype(self.B.dtype)
        return X

    def _fresh(self, end: int, columns: int) -> Panel:
        X = self._normal(columns)
        for _ in range(2):
            X = orth(X).astype(self.B.dtype)
            self._project(X, end)
        return orth(X)

    def _normal(self, columns: int) -> Panel:
        shape = self.n, columns
        X: Panel = self.rng.standard_normal(shape)
        return sent(self.B, X if self.H.dtype.kind == "f" else (X + 1j * self.rng.standard_normal(shape)) / np.sqrt(2))

    # --- the block of a probe -------------------------------------------------------------------------------------

    def set_aside(self, columns: int) -> Panel:
        """Replace Q by a random block X_0 orthogonal to B, and return R of ``P Omega = X_0 R``."""
        end = self.size
        self.aside = self.block.copy(), self._border(np.eye(end, dtype=self.H.dtype))
        Omega = self._normal(min(columns, self.n - end))
        self.reserve(end + Omega.shape[1])
        X, _, _, R = self._projected(Omega, end)
        if R is None:
            X = orth(X).astype(self.B.dtype)
            self._project(X, end)
            X = orth(X)
            R = inner(X, Omega)
        self.last, self.C = 0, np.zeros((X.shape[1], 0), self.H.dtype)
        self._append(X)
        return R

    def take_back(self) -> None:
        """Append the block that was set aside to the next block, so that residuals are complete again."""
        assert self.aside is not None
        waiting, residuals = self.aside
        self.aside = None
        end = self.size + self.width
        self.reserve(end + waiting.shape[1])
        Q, known, squares, below = self._projected(waiting, end)
        if below is None:
            W, Q = Q, self._independent(Q, self._unit, self.n - end, end, before=1.0, squares=squares)
            below = inner(Q, W)
        border, earlier = np.zeros((self.width + Q.shape[1], self.size), self.H.dtype), residuals.shape[1]
        border[: self.width, self.size - self.last :] = self.C
        border[: self.width, :earlier] += known[self.size :] @ residuals
        border[self.width :, :earlier] = below @ residuals
        self.B[:, end : end + Q.shape[1]] = Q
        self.C, self.width, self.last, self._rows = border, self.width + Q.shape[1], self.size, None


def _longest(squares: Panel, noise: float, columns: int) -> tuple[Panel, Vector, bool]:
    # From squares = W^H W, return at most `columns` combinations of W that are orthonormal; the lengths of the unscaled
    # combinations, ascending; and True if rounding of the squares may hide shorter combinations above the noise.
    sizes, X = np.linalg.eigh(squares)
    sizes = np.sqrt(np.maximum(sizes, 0))
    least = max(noise, TOLD_BY_SQUARES * float(np.max(sizes, initial=0.0)))
    told = np.flatnonzero(~(sizes <= least))
    there = told[max(0, len(told) - columns) :]
    return X[:, there] / sizes[there], sizes[there], least > noise and len(told) < len(sizes)
