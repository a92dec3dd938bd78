"""Krylov factorization of block Lanczos: an orthonormal basis B, H = B^H G B, and the next block."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.kernels import shared
from shiftsvd.kernels.twin import Steps, StepTaker
from shiftsvd.numerics.orth import Projected, inner, orth, project, subtract_product, subtract_projection, times
from shiftsvd.numerics.panels import Vector, empty_columns, hstack, lengths, may_overwrite, set_columns, to_device_of
from shiftsvd.operators import Panel
from shiftsvd.solvers.constants import EPS, KEPT_SHARE, REPEAT_BELOW, RESOLVED_BY_SQUARES, SINGLE_ROUNDING


class RitzPairs(NamedTuple):
    """Ritz values, descending; coordinates Z of Ritz vectors in B, and coordinates E of residuals in the next block."""

    theta: Vector
    Z: Panel
    E: Panel


NONE = np.empty((0, 0))


@dataclass(eq=False)
class Factorization:
    """``G B = B H + Q C J^H``: Q is the next block, and J picks the last `last` columns of B.

    Products with the other columns of B have no part along Q. An epoch ends when columns of B are removed. A bound of G
    outside of B holds until the epoch ends, because B only grows. A probe replaces Q by a random block, or appends the
    block to Q. Until `end_probe`, `suspended` stores the replaced Q, and residuals lack their part along that Q.
    """

    rng: Generator
    capacity: int
    # (n, capacity), orthonormal columns: the first `size` were multiplied, the next `width` are Q. In single precision
    # if products are, which halves the memory traffic of the largest array.
    B: Panel = field(default_factory=lambda: NONE)
    # (capacity, capacity), Hermitian, in double precision; rows and columns up to `size` are set.
    H: Panel = field(default_factory=lambda: NONE)
    C: Panel = field(default_factory=lambda: NONE)  # (width, last)
    columns: int = 0  # columns of the basis before `restart_if_full` restarts it
    block_width: int = 0  # columns of the first block; `width` may differ
    epoch: int = 0
    size: int = 0  # columns of B that were multiplied
    width: int = 0  # columns of Q
    last: int = 0  # columns of C: of the last block, or all kept columns after a restart
    scale: float = 0.0  # largest norm of a product so far; rounding errors are relative to it
    probing: bool = False
    suspended: tuple[Panel, Panel] | None = None  # the replaced Q, and the coordinates of residuals in it
    _ritz: tuple[tuple[int, int], RitzPairs] | None = None  # and the epoch and size for which they were computed
    _rows: Panel | None = None  # Q by rows, as products read it, if the last step returned it so

    @classmethod
    def of(cls, Q: Panel, columns: int, rng: Generator, single: bool = False, reserved: int = 0) -> "Factorization":
        F = cls(rng, max(reserved, columns), columns=columns, block_width=Q.shape[1])
        F.begin(Q, single)
        return F

    @classmethod
    def from_ritz(cls, V: Panel, theta: Vector, R: Panel, rng: Generator) -> "Factorization":
        n, k = V.shape
        F = cls(rng, min(2 * k, n))
        F._allocate(V, V.dtype)
        F.B[:, :k], F.size, F.last = V, k, k
        F.H[:k, :k] = np.diag(theta)
        F.scale = float(np.max(np.abs(theta), initial=0.0))
        # Small residuals have rounding errors along V, which are relative to the products.
        Q = F._orthonormal_part(R, F.rounding, n - k, k, before=F.scale)
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
        return self._eps * self.scale

    @property
    def _eps(self) -> float:
        return SINGLE_ROUNDING if self.single else self.n * EPS

    def reserve(self, columns: int) -> None:
        have, columns = self.B.shape[1], min(columns, self.n)
        if columns > have:
            B = empty_columns(self.B, columns, self.B.dtype)
            B[:, : self.size + self.width] = self.B[:, : self.size + self.width]
            self.B, self.H = B, np.pad(self.H, (0, columns - have))

    # --- epochs ---------------------------------------------------------------------------------------------------

    def begin(self, Q: Panel, single: bool = False) -> None:
        self._allocate(Q, np.result_type(np.complex64 if Q.dtype.kind == "c" else np.float32) if single else Q.dtype)
        self.epoch, self.size, self.last, self.scale = self.epoch + 1, 0, 0, 0.0
        self._append(orth(Q))

    def _allocate(self, like: Panel, dtype: np.dtype[np.generic]) -> None:
        self.B = NONE  # free the old basis first
        self.B, self.H = empty_columns(like, self.capacity, dtype), np.zeros((self.capacity, self.capacity), like.dtype)

    def restart_if_full(self, k: int, steps: int = 1) -> None:
        """Restart with at least k Ritz vectors, or enlarge the basis if that would leave no room for steps.

        For several steps, restart only if the basis already has room for them afterwards.
        """
        keep = min(max(k + self.block_width, int(KEPT_SHARE * (self.columns - 2 * self.width))), self.size)
        if steps == 1:
            self.columns = max(self.columns, min(keep + 6 * self.width, self.n))
        elif keep + (steps + 1) * self.width > min(self.size, self.columns):
            return
        if self.size + (steps + 1) * self.width > self.columns:
            self.restart(keep)

    def restart(self, kept: int) -> None:
        """Keep the first Ritz vectors, and remove the rest of the basis (Wu & Simon 2000)."""
        theta, Z, _ = self.ritz()
        width, Q, residuals = self.width, self.block.copy(), self._residual_coordinates(Z[:, :kept])
        self.B[:, :kept] = self._times(Z[:, :kept])
        self.B[:, kept : kept + width] = Q
        self.H[:] = 0
        self.H[:kept, :kept] = np.diag(theta[:kept])
        # All kept vectors have a residual along Q.
        self.C, self.size, self.last, self.epoch = residuals, kept, kept, self.epoch + 1

    # --- Ritz values ----------------------------------------------------------------------------------------------

    def ritz(self) -> RitzPairs:
        state = self.epoch, self.size
        if self._ritz is None or self._ritz[0] != state:
            theta, Z = np.linalg.eigh(self.H[: self.size, : self.size])
            theta, Z = theta[::-1], Z[:, ::-1]
            self._ritz = state, RitzPairs(theta, Z, self._residual_coordinates(Z))
        return self._ritz[1]

    def vectors(self, count: int) -> Panel:
        V = self._times(self.ritz().Z[:, :count])
        return orth(V.astype(self.H.dtype)) if self.single else V

    def _residual_coordinates(self, Z: Panel) -> Panel:
        return np.asarray(self.C @ Z[self.size - self.last : self.size])

    def _times(self, Z: Panel) -> Panel:
        return times(self.B[:, : self.size], Z)

    # --- a step ---------------------------------------------------------------------------------------------------

    def extend(self, W: Panel) -> None:
        """Append Q to the basis, and make the part of ``W = G Q`` orthogonal to the basis the next block."""
        self.scale = self.scale or float(np.max(lengths(W), initial=0))
        power = 2.0 ** int(np.frexp(self.scale)[1]) if self.single else 1.0
        factor = 1 / power
        if W.dtype != self.B.dtype or not (may_overwrite(W, self.B) and may_overwrite(W, self.block)):
            W, factor = (W * factor).astype(self.B.dtype), 1.0
        old, end = self.size, self.size + self.width
        self.reserve(end + self.width)
        recent, free = max(0, old - self.last), min(self.n, self.B.shape[1]) - end
        Q = self.B[:, end : end + self.width] if W.shape[1] <= free else None
        W, coefficients, squares, below = project(
            W, self.B[:, :end], recent, factor, REPEAT_BELOW, Q, self._eps, self.scale / power
        )
        projected = np.sqrt(np.diagonal(squares).real)  # lengths of the columns of W after the projection
        self.scale = max(self.scale, power * float(np.max(np.hypot(projected, lengths(coefficients)), initial=0)))
        coefficients = coefficients * power
        diagonal = coefficients[old:]
        self.H[:old, old:end] = coefficients[:old]
        self.H[old:end, :old] = coefficients[:old].conj().T
        self.H[old:end, old:end] = (diagonal + diagonal.conj().T) / 2
        self.size, self.last = end, self.width
        self._end_step(W, squares, below, power)

    def take_steps(self, steps: int, step_taker: StepTaker) -> int:
        """Take at most `steps` steps in one call, without a restart; return the number taken, or 0 without a kernel."""
        steps = min(steps, (min(self.columns, self.B.shape[1], self.n) - self.size) // self.width - 1)
        W = self.block
        if steps < 1 or not (shared and shared.fills_registers(self.B, W)):
            return 0
        taken = step_taker(Steps(self.B, self.H, W, self.size, self.last, steps, self.scale, self._eps, REPEAT_BELOW))
        self.size, self.last, self.scale = self.size + taken.steps * self.width, self.width, taken.scale
        self._end_step(taken.W, taken.squares, taken.below, taken.power)
        return taken.steps

    def _end_step(self, W: Panel, squares: Panel, below: Panel | None, power: float) -> None:
        # The next step computes C again, as coefficients of its projection, for H. Until then only checks need C.
        if below is not None:
            self.C, self._rows = below * power, W
            return
        Q = self._next_block(W, squares, self.rounding / power)
        self.C = inner(Q, W) * power
        self._append(Q)

    def _append(self, Q: Panel) -> None:
        set_columns(self.B, self.size, Q)
        self.width, self._rows = Q.shape[1], None

    def _project_fully(self, W: Panel, end: int) -> Projected:
        next_columns, W = self.B[:, end : end + W.shape[1]], W.astype(self.B.dtype)
        Q = next_columns if next_columns.shape[1] == W.shape[1] else None
        return project(W, self.B[:, :end], 0, 1.0, REPEAT_BELOW, Q, self._eps, 0.0)

    def _next_block(self, W: Panel, squares: Panel, noise: float) -> Panel:
        # Replace lost columns by random columns, except in a probe, whose bound is for the chain of its first block.
        end = self.size
        width = min(W.shape[1], self.n - end, self.B.shape[1] - end)
        Q = self._orthonormal_part(W, noise, width, end, squares=squares)
        if Q.shape[1] < width and not self.probing:
            self.B[:, end : end + Q.shape[1]] = Q
            Q = hstack(Q, self._random_orthonormal(end + Q.shape[1], width - Q.shape[1]))
        return Q

    def _orthonormal_part(
        self, W: Panel, noise: float, width: int, end: int, before: float = 0.0, squares: Panel | None = None
    ) -> Panel:
        """Return at most `width` orthonormal columns that span W above `noise`, orthogonal to ``B[:, :end]``.

        W is orthogonal to these columns of B up to rounding. `before` is the length of the columns of W before the
        projection, `squares` is ``W^H W``.
        """
        Q, width = W[:, :0].copy(), min(width, W.shape[1])
        while True:
            squares = inner(W, W) if squares is None else squares
            combined, sizes, hidden = _longest_combinations(squares, noise, width - Q.shape[1])
            if not len(sizes):
                return Q
            X = times(W, combined)
            shortest = REPEAT_BELOW if self.single else REPEAT_BELOW**2
            if Q.shape[1] or sizes[0] < shortest * max(float(sizes[-1]), before):
                X = self._reorthogonalized(X, end, Q)  # short columns have rounding errors along B
            elif not self.single:  # in single precision X is orthonormal already
                X = orth(X)
            Q = hstack(Q, X) if Q.shape[1] else X
            if Q.shape[1] >= width or not hidden or not X.shape[1]:
                return Q
            # Remove the longest columns, so that squares can resolve shorter columns.
            W, squares = W.copy(), None
            subtract_product(W, Q, inner(Q, W))
            subtract_projection(W, self.B[:, :end])

    def _reorthogonalized(self, X: Panel, end: int, Q: Panel) -> Panel:
        for shortest in (0.0, REPEAT_BELOW):
            subtract_projection(X, self.B[:, :end])
            subtract_product(X, Q, inner(Q, X))
            squares = inner(X, X)
            if np.linalg.eigvalsh(squares)[0] < shortest**2:  # the first projection left rounding errors alone
                X = times(X, _longest_combinations(squares, shortest, len(squares))[0])
            X = orth(X).astype(self.B.dtype)
        return X

    def _random_orthonormal(self, end: int, columns: int) -> Panel:
        X = self._random_normal(columns)
        for _ in range(2):
            X = orth(X).astype(self.B.dtype)
            subtract_projection(X, self.B[:, :end])
        return orth(X)

    def _random_normal(self, columns: int) -> Panel:
        shape = self.n, columns
        X: Panel = self.rng.standard_normal(shape)
        if self.H.dtype.kind == "c":
            X = (X + 1j * self.rng.standard_normal(shape)) / np.sqrt(2)
        return to_device_of(self.B, X)

    # --- probes ---------------------------------------------------------------------------------------------------

    def begin_probe(self, columns: int, joint: bool = False) -> Panel:
        """Replace Q by X_0, and return R, of ``P Omega = X_0 R``; P projects normal columns Omega orthogonally to B.

        If `joint`, append to Q instead, so that products with X_0 are steps, too.
        """
        end, here = self.size, self.size + (self.width if joint else 0)
        Q, residuals = self.block.copy(), self._residual_coordinates(np.eye(end, dtype=self.H.dtype))
        Omega = self._random_normal(min(columns, self.n - here))
        self.reserve(here + Omega.shape[1])
        X, coefficients, _, R = self._project_fully(Omega, here)
        if R is None:
            X = orth(X).astype(self.B.dtype)
            subtract_projection(X, self.B[:, :here])
            X = orth(X)
            R = inner(X, Omega)
        self.probing = True
        if joint:
            set_columns(self.B, here, X)
            self.C = np.vstack([self.C, np.zeros((X.shape[1], self.last), self.C.dtype)])
            self.width, self._rows = self.width + X.shape[1], None
            return np.vstack([coefficients[end:], R])
        self.suspended = Q, residuals
        self.last, self.C = 0, np.zeros((X.shape[1], 0), self.H.dtype)
        self._append(X)
        return R

    def end_probe(self) -> None:
        """Append a suspended block to the next block, so that residuals are complete again."""
        self.probing = False
        if self.suspended is None:
            return
        block, residuals = self.suspended
        self.suspended = self._ritz = None
        end = self.size + self.width
        self.reserve(end + block.shape[1])
        Q, coefficients, squares, below = self._project_fully(block, end)
        if below is None:
            W, Q = Q, self._orthonormal_part(Q, self._eps, self.n - end, end, before=1.0, squares=squares)
            below = inner(Q, W)
        C, earlier = np.zeros((self.width + Q.shape[1], self.size), self.H.dtype), residuals.shape[1]
        C[: self.width, self.size - self.last :] = self.C
        C[: self.width, :earlier] += coefficients[self.size :] @ residuals
        C[self.width :, :earlier] = below @ residuals
        self.B[:, end : end + Q.shape[1]] = Q
        self.C, self.width, self.last, self._rows = C, self.width + Q.shape[1], self.size, None


def _longest_combinations(squares: Panel, noise: float, columns: int) -> tuple[Panel, Vector, bool]:
    # From squares = W^H W, return at most `columns` combinations of W that are orthonormal; the lengths of the unscaled
    # combinations, ascending; and True if rounding of the squares may hide shorter combinations above the noise.
    sizes, X = np.linalg.eigh(squares)
    sizes = np.sqrt(np.maximum(sizes, 0))
    least = max(noise, RESOLVED_BY_SQUARES * float(np.max(sizes, initial=0.0)))
    resolved = np.flatnonzero(~(sizes <= least))
    longest = resolved[max(0, len(resolved) - columns) :]
    return X[:, longest] / sizes[longest], sizes[longest], least > noise and len(resolved) < len(sizes)
