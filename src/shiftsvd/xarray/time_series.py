"""Operators for lagged copies of time series and for the analytic signal, without forming either matrix."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import fft

from shiftsvd import Operator
from shiftsvd.extend.operators import Derived, Panel, Vector, generic, panel_dtype
from shiftsvd.operators import Costs

Part = TypeVar("Part")


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Lagged(Derived):
    """``[A S_0; A S_1; ...]``: column t holds the columns t + lag of A, one lag above the other.

    A has p rows (cells) and m columns (steps); this has ``p * len(lags)`` rows and ``m - max(lags)`` columns. A product
    reads A once, with the panels of all lags side by side.
    """

    lags: tuple[int, ...]  # steps, none negative, ascending

    def __post_init__(self) -> None:
        super().__post_init__()
        p, m = self.A.shape
        object.__setattr__(self, "shape", (p * len(self.lags), m - max(self.lags)))

    def matmat(self, V: Panel) -> Panel:
        return self._lags_as_rows(self.A.matmat(self._shifted(V)))

    def matmat_in_double(self, V: Panel) -> Panel:
        return self._lags_as_rows(generic.matmat_in_double(self.A, self._shifted(V)))

    def rmatmat(self, W: Panel) -> Panel:
        return self._summed_over_lags(self.A.rmatmat(self._lags_as_columns(W)))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._summed_over_lags(generic.rmatmat_in_double(self.A, self._lags_as_columns(W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if weights is not None:
            return self.rmatmat(weights[:, None] * self.matmat(V))
        return self._summed_over_lags(self.A.gram(self._shifted(V)))

    def _by_lag(self, of: Callable[[Vector | None], Part], weights: Vector | None) -> Iterator[tuple[int, Part]]:
        if weights is None:
            return zip(self.lags, repeat(of(None)), strict=False)
        return zip(self.lags, map(of, np.split(weights, len(self.lags))), strict=True)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        n = self.shape[1]
        G = np.zeros((n, n), panel_dtype(self.dtype))
        for lag, own in self._by_lag(partial(generic.gram_matrix, self.A), weights):
            G += own[lag : lag + n, lag : lag + n]
        return G

    def known_costs(self) -> dict[str, Any]:
        A, count = self.A.costs, len(self.lags)
        kept = {name: getattr(A, name) for name in ("gram_reads", "gram_in_single", "gram_pairs")}
        columns = count * (A.column_bytes + 2 * panel_dtype(self.dtype).itemsize * sum(self.A.shape))
        lost = {"adjoint_bytes": 0, "long_bytes": 0, "square_columns": 0}
        return kept | lost | {"stored": A.stored * count, "column_bytes": columns}

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        n = self.shape[1]
        found = np.zeros(n)
        for lag, own in self._by_lag(self.A.column_squares, weights):
            if own is None:
                return None
            found += own[lag : lag + n]
        return found

    def exponents(self, axis: int) -> Vector | None:
        e, n = None if axis else generic.exponents(self.A, 0), self.shape[1]
        return None if e is None else np.max([e[lag : lag + n] for lag in self.lags], axis=0)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Lagged | None":
        A = None if np.ndim(rows) or np.ndim(cols) else generic.ldexp(self.A, rows, cols)
        return None if A is None else Lagged(A, self.lags)

    def _shifted(self, V: Panel) -> Panel:
        n, b = V.shape
        out = np.zeros((self.A.shape[1], len(self.lags) * b), V.dtype)
        for j, lag in enumerate(self.lags):
            out[lag : lag + n, j * b : (j + 1) * b] = V
        return out

    def _summed_over_lags(self, Y: Panel) -> Panel:
        n, b = self.shape[1], Y.shape[1] // len(self.lags)
        out = np.zeros((n, b), Y.dtype)
        for j, lag in enumerate(self.lags):
            out += Y[lag : lag + n, j * b : (j + 1) * b]
        return out

    def _lags_as_rows(self, Y: Panel) -> Panel:
        count = len(self.lags)
        return np.ascontiguousarray(Y.reshape(len(Y), count, -1).transpose(1, 0, 2)).reshape(count * len(Y), -1)

    def _lags_as_columns(self, W: Panel) -> Panel:
        count, p = len(self.lags), self.A.shape[0]
        return np.ascontiguousarray(W.reshape(count, p, -1).transpose(1, 0, 2)).reshape(p, -1)


@dataclass(frozen=True, eq=False, repr=False)
class AnalyticSignal(Operator):
    """Map m steps to their analytic signal minus its mean, by Fourier transforms of the columns of panels.

    Without padding the transform treats the series as periodic, so a step from its end to its beginning rings. With
    `decay`, m steps pad either side: the linear trend of the series continues, and the distances of the first and last
    value from that trend decay as ``exp(-t / (decay m))``.
    """

    m: int
    decay: float | None  # None: no padding
    kind: npt.DTypeLike  # of the results for users: complex64 or complex128

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
