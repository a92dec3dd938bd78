"""The analytic signal of time series, as an operator on steps: themselves, and their Hilbert transform times i."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import fft

from shiftsvd.algebra import generic
from shiftsvd.algebra.costs import Costs
from shiftsvd.algebra.operator import Operator
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel


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
