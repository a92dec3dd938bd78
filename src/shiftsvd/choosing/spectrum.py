"""How many components stand out in a spectrum, which a fit knows without its data."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import length
from shiftsvd.result import SVDResult

EPS = float(np.finfo(np.float64).eps)

Found = tuple[int, dict[str, Vector]]  # a number of components, and the table of the evidence


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Leading singular values, the length of what they leave over, and the degrees of freedom of rows and columns."""

    S: Vector
    rest: float | None
    shape: tuple[int, int]

    def first(self, k: int) -> "Spectrum":
        rest = None if self.rest is None else float(np.hypot(self.rest, length(self.S[k:])))
        return Spectrum(self.S[:k], rest, self.shape)

    def noise(self, k: int) -> float:
        rest = self.first(k).rest
        if rest is None:
            raise ValueError('this needs the Frobenius norm, which the operator does not know; use "elbow"')
        (m, n), floor = self.shape, EPS * length(self.S)  # rounding is not noise
        return max(rest, floor) / float(np.sqrt(max(m - k, 1) * max(n - k, 1)))


def spectrum_of(fitted: Any) -> Spectrum | None:
    if isinstance(fitted, SVDResult):
        return of_result(fitted)
    return of_estimator(fitted) if hasattr(fitted, "singular_values_") else None


def of_result(F: SVDResult, centred: bool = False) -> Spectrum:
    return Spectrum(F.S.astype(np.float64), F.info.frobenius_error, (F.shape[0] - centred, F.shape[1]))


def of_estimator(fitted: Any) -> Spectrum:
    S = np.asarray(fitted.singular_values_, np.float64)
    share = float(np.sum(fitted.explained_variance_ratio_, dtype=np.float64))
    centred = isinstance(getattr(fitted, "shift", "mean"), str)
    error = getattr(getattr(fitted, "info_", None), "frobenius_error", None)
    of_shares = length(S) * float(np.sqrt(max(1 / share - 1, 0))) if share > 0 else 0.0
    rest = of_shares if error is None or not len(S) else error
    return Spectrum(S, rest, (fitted.n_samples_ - centred, fitted.n_features_in_))


def elbow(known: Spectrum) -> Found:
    S = known.S[known.S > 0]
    if len(S) < 3:
        raise ValueError(f"an elbow needs at least 3 values that are not 0, got {len(S)}; give more components")
    chord = np.exp(np.linspace(np.log(S[0]), np.log(S[-1]), len(S)))
    return int(np.argmax(chord / S)), evidence(S, chord=chord)


def hard_threshold(known: Spectrum) -> Found:
    (m, n), S = known.shape, known.S
    b = min(m, n) / max(m, n)
    factor = np.sqrt(2 * (b + 1) + 8 * b / (b + 1 + np.sqrt(b * b + 14 * b + 1)))
    above, k = 0, -1
    while above > k:  # each step leaves out more of the signal, so that the threshold falls
        k = above
        threshold = factor * np.sqrt(max(m, n)) * known.noise(k)
        above = int(np.sum(threshold < S))
    return k, evidence(S, threshold=np.full(len(S), threshold))


def evidence(S: Vector, **beside: Vector) -> dict[str, Vector]:
    return {"component": np.arange(1, len(S) + 1), "value": S, **beside}
