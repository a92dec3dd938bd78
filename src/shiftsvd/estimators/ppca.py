"""Probabilistic PCA (Tipping & Bishop 1999): likelihood, covariance, precision; Minka's choice of the rank (2000)."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from shiftsvd.operators import Panel, Vector


@dataclass(frozen=True, eq=False)
class PPCA:
    """Gaussian with covariance ``D (V diag(variance - noise) V^T + noise I) D``; D holds the scales of the features."""

    V: Panel  # shape (n, k)
    variance: Vector  # of the components, at least the noise
    noise: float
    scale: Vector | None

    def log_likelihood(self, scores: Panel, rest: Vector) -> Vector:
        n, k = self.V.shape
        squares = (scores.astype(np.float64) ** 2 / self.variance).sum(axis=1)
        log_det = np.log(self.variance).sum()
        dimensions = n if k == n or self.noise > 0 else k
        if k < dimensions:
            log_det += (n - k) * np.log(self.noise)
            squares += rest / self.noise
        if self.scale is not None:
            log_det += 2 * np.log(self.scale).sum()
        likelihood = -0.5 * (squares + log_det + dimensions * np.log(2 * np.pi))
        off = rest > 1e-12 * (rest + (scores**2).sum(axis=1)) if dimensions < n else np.zeros(len(rest), bool)
        return np.where(off, -np.inf, likelihood)

    def covariance(self) -> Panel:
        C = (self.V * (self.variance - self.noise)) @ self.V.T
        C[np.diag_indices_from(C)] += self.noise
        return self._in_units(C, 1)

    def precision(self) -> Panel:
        V, (n, k) = self.V, self.V.shape
        if k == n:
            return self._in_units((V / self.variance) @ V.T, -1)
        if self.noise <= 0:
            raise ValueError(
                f"the noise variance is 0, so the covariance has no inverse. Use fewer than {k} components."
            )
        P = V * (1 / self.variance - 1 / self.noise) @ V.T
        P[np.diag_indices_from(P)] += 1 / self.noise
        return self._in_units(P, -1)

    def _in_units(self, C: Panel, power: int) -> Panel:
        if self.scale is None:
            return C
        d = self.scale**power
        return np.asarray(d[:, None] * C * d)


def minka_rank(spectrum: Vector, n_samples: int) -> int:
    evidence = [_log_evidence(spectrum, k, n_samples) for k in range(1, len(spectrum))]
    return 1 + int(np.argmax(evidence)) if evidence else 1


def _log_evidence(spectrum: Vector, k: int, n_samples: int) -> float:
    n = len(spectrum)
    tiny = 1e-15 * float(spectrum[0])
    if spectrum[k - 1] <= tiny:
        return -np.inf
    noise = max(float(spectrum[k:].mean()), tiny)
    i = np.arange(1, k + 1)
    log_prior = -k * np.log(2.0) + np.sum(gammaln((n - i + 1) / 2) - np.log(np.pi) * (n - i + 1) / 2)
    log_variance = -0.5 * n_samples * (np.log(spectrum[:k]).sum() + (n - k) * np.log(noise))
    parameters = n * k - k * (k + 1) / 2
    fitted = np.where(np.arange(n) < k, spectrum, noise)
    upper = np.triu_indices(k, 1, n)
    gaps = (spectrum[upper[0]] - spectrum[upper[1]]) * (1 / fitted[upper[1]] - 1 / fitted[upper[0]])
    log_hessian = np.sum(np.log(np.maximum(gaps, np.finfo(np.float64).tiny)) + np.log(n_samples))
    return float(
        log_prior
        + log_variance
        + (parameters + k) / 2 * np.log(2 * np.pi)
        - log_hessian / 2
        - k / 2 * np.log(n_samples)
    )
