"""Operators on time series: lagged copies side by side, and the analytic signal; neither is formed."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import fft

from shiftsvd.algebra import generic
from shiftsvd.algebra.operator import Costs, Derived, Operator
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel, panel_dtype, scaled


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Lagged(Derived):
    """``[A S_0; A S_1; ...]``: column t holds the columns t + lag of A, one lag above the other.

    A has p rows (cells) and m columns (steps); this has ``p * len(lags)`` rows and ``m - max(lags)`` columns. A is read
    once by a product, whose panels of all lags stand side by side.

    Parameters
    ----------
    lags : tuple of int
        Steps, none negative, ascending.
    """

    lags: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        p, m = self.A.shape
        object.__setattr__(self, "shape", (p * len(self.lags), m - max(self.lags)))

    def matmat(self, V: Panel) -> Panel:
        return self._below(self.A.matmat(self._shifted(V)))

    def matmat_in_double(self, V: Panel) -> Panel:
        return self._below(generic.matmat_in_double(self.A, self._shifted(V)))

    def rmatmat(self, W: Panel) -> Panel:
        return self._back(self.A.rmatmat(self._beside(W)))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._back(generic.rmatmat_in_double(self.A, self._beside(W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if weights is not None:
            return self.rmatmat(scaled(weights, self.matmat(V)))
        return self._back(self.A.gram(self._shifted(V)))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        p, n = self.A.shape[0], self.shape[1]
        G = np.zeros((n, n), panel_dtype(self.dtype))
        known = None if weights is not None else generic.gram_matrix(self.A)
        for j, lag in enumerate(self.lags):
            own = generic.gram_matrix(self.A, weights[j * p : (j + 1) * p]) if known is None else known  # type: ignore[index]
            G += own[lag : lag + n, lag : lag + n]
        return G

    @cached_property
    def costs(self) -> Costs:
        A, count = self.A.costs, len(self.lags)
        return Costs.of(
            self,
            eps=A.eps,
            stored=A.stored * count,
            gram_reads=A.gram_reads,
            gram_eps=A.gram_eps,
            gram_in_single=A.gram_in_single,
            gram_pairs=A.gram_pairs,
            panel_columns=A.panel_columns,
            working_bytes=A.working_bytes,
            column_bytes=count * (A.column_bytes + 2 * panel_dtype(self.dtype).itemsize * sum(self.A.shape)),
            block_bytes=A.block_bytes,
            file_bytes=A.file_bytes,
            square_bytes=A.square_bytes,
            strain=A.strain,
            n_threads=A.n_threads,
        )

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        p, n = self.A.shape[0], self.shape[1]
        found = np.zeros(n)
        squares = self.A.column_squares() if weights is None else None
        for j, lag in enumerate(self.lags):
            own = squares if weights is None else self.A.column_squares(weights[j * p : (j + 1) * p])
            if own is None:
                return None
            found += own[lag : lag + n]
        return found

    def exponents(self, axis: int) -> Vector | None:
        e, n = None if axis else generic.exponents(self.A, 0), self.shape[1]
        return None if e is None else np.max([e[lag : lag + n] for lag in self.lags], axis=0)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Lagged | None":
        """A times a power of two, where all rows and columns are to be multiplied by one.

        Parameters
        ----------
        rows : int, or array of shape (m,)
            Exponents of the powers of two for rows.
        cols : int, or array of shape (n,)
            Exponents of the powers of two for columns.

        Returns
        -------
        Lagged or None
            This matrix with rows and columns multiplied; None where they are several.
        """
        if np.ndim(rows) or np.ndim(cols):
            return None
        A = generic.ldexp(self.A, rows, cols)
        return None if A is None else Lagged(A, self.lags)

    def _shifted(self, V: Panel) -> Panel:
        n, b = V.shape
        out = np.zeros((self.A.shape[1], len(self.lags) * b), V.dtype)
        for j, lag in enumerate(self.lags):
            out[lag : lag + n, j * b : (j + 1) * b] = V
        return out

    def _back(self, Y: Panel) -> Panel:
        n, b = self.shape[1], Y.shape[1] // len(self.lags)
        out = np.zeros((n, b), Y.dtype)
        for j, lag in enumerate(self.lags):
            out += Y[lag : lag + n, j * b : (j + 1) * b]
        return out

    def _below(self, Y: Panel) -> Panel:
        count = len(self.lags)
        return np.ascontiguousarray(Y.reshape(len(Y), count, -1).transpose(1, 0, 2)).reshape(count * len(Y), -1)

    def _beside(self, W: Panel) -> Panel:
        count, p = len(self.lags), self.A.shape[0]
        return np.ascontiguousarray(W.reshape(count, p, -1).transpose(1, 0, 2)).reshape(p, -1)

    def row_moments(self, weights: Vector | None = None) -> Any:
        return generic.row_means(self, weights)


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class AnalyticSignal(Operator):
    """The map of m steps to their analytic signal minus its mean, (m, m), by Fourier transforms of panels' columns.

    Without padding the series is taken to be periodic, and a step from its end to its beginning rings in the transform.
    With `decay`, m steps are put on either side: the linear trend of the series goes on, and what its first and last
    value are off it decays to nothing as ``exp(-t / (decay m))``.

    Parameters
    ----------
    m : int
        Steps.
    decay : float, optional
        None is no padding.
    kind : numpy.dtype
        complex64 or complex128: of the results for users.
    """

    m: int
    decay: float | None
    kind: Any

    def __post_init__(self) -> None:
        vars(self).update(shape=(self.m, self.m), dtype=np.dtype(self.kind))

    def matmat(self, V: Panel) -> Panel:
        V = V.astype(np.result_type(V, np.float64), copy=False)
        return _centred(self._filtered(self._padded(V))[self._inside])

    def rmatmat(self, W: Panel) -> Panel:
        Y = np.zeros((len(self._response), W.shape[1]), np.complex128)
        Y[self._inside] = _centred(W)
        return self._unpadded(self._filtered(Y))

    @cached_property
    def costs(self) -> Costs:
        eps = float(np.finfo(np.float64).eps)
        return Costs.of(self, stored=self.m, eps=eps, gram_eps=eps, gram_reads=0, gram_in_single=False)

    @cached_property
    def _response(self) -> Vector:
        n = self.m if self.decay is None else 3 * self.m
        h = np.zeros(n)
        h[0], h[1 : (n + 1) // 2] = 1, 2
        if n % 2 == 0:
            h[n // 2] = 1
        return h

    @property
    def _inside(self) -> slice:
        return slice(0, self.m) if self.decay is None else slice(self.m, 2 * self.m)

    @cached_property
    def _padding(self) -> tuple[Panel, Panel, Panel]:
        m, t = self.m, np.arange(self.m)
        line = np.column_stack([np.ones(m), t])
        fitted = np.linalg.pinv(line)
        fading = np.exp(-t / (self.decay * m))[:, None]  # type: ignore[operator]
        M = np.vstack([np.eye(1, m), fitted, np.eye(1, m, m - 1)])
        ends = np.zeros((m, 1))
        before = np.hstack([fading[::-1], np.column_stack([np.ones(m), t - m]) - fading[::-1] * line[:1], ends])
        after = np.hstack([ends, np.column_stack([np.ones(m), t + m]) - fading * line[-1:], fading])
        return before, after, M

    def _padded(self, V: Panel) -> Panel:
        if self.decay is None:
            return V
        before, after, M = self._padding
        known = M @ V
        return np.concatenate([before @ known, V, after @ known])

    def _unpadded(self, Y: Panel) -> Panel:
        if self.decay is None:
            return Y
        before, after, M = self._padding
        m = self.m
        return np.asarray(Y[m : 2 * m] + M.T @ (before.T @ Y[:m] + after.T @ Y[2 * m :]))

    def _filtered(self, Y: Panel) -> Panel:
        return np.asarray(fft.ifft(self._response[:, None] * fft.fft(Y, axis=0), axis=0))


def _centred(Y: Panel) -> Panel:
    return np.asarray(Y - Y.mean(axis=0))
