"""Accuracy as public functions: error norms, residuals, bounds."""

from typing import Any

import numpy as np

from shiftsvd.algebra.units import in_units
from shiftsvd.backends import as_operator
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.result import SVDResult


def spectral_norm(A: Any, *, n_iter: int = 60, rng: int | np.random.Generator | None = 0) -> float:
    """``||A||_2``, estimated from below by the Lanczos method from one random vector.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        ``spectral_norm(center(X) - F)`` is the error of a factorization F.
    n_iter : int
        Most steps; it stops earlier once the estimate has settled to 1e-8.
    rng : int, Generator or None

    Returns
    -------
    float

    Notes
    -----
    Two passes a step, and one before, for the Frobenius norm. After q steps the estimate is below
    ``(1 - e) ||A||^2`` with probability at most
    ``1.648 sqrt(n) exp(-(2q - 1) sqrt(e))`` (Kuczynski & Wozniakowski 1992).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> round(ss.spectral_norm(np.diag([3.0, 2.0, 1.0])), 6)
    3.0
    """
    A, unit, _ = in_units(as_operator(A))
    A = A if A.shape[0] >= A.shape[1] else A.H
    n = A.shape[1]
    v = np.random.default_rng(rng).standard_normal((n, 1)).astype(panel_dtype(A.dtype))
    basis = np.empty((n, 0), v.dtype)
    diagonal: list[float] = []
    beside: list[float] = []
    estimate = 0.0
    for _ in range(min(n_iter, n)):
        basis = np.hstack([basis, v / np.linalg.norm(v)])
        w = A.gram(basis[:, -1:])
        diagonal.append(float(np.real(np.vdot(basis[:, -1], w))))
        for _ in range(2):  # full reorthogonalization, twice
            w = w - basis @ (basis.conj().T @ w)
        T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        previous, estimate = estimate, float(np.linalg.eigvalsh(T)[-1])
        beside.append(float(np.linalg.norm(w)))
        if estimate - previous <= 1e-8 * estimate or beside[-1] <= 1e-14 * estimate:
            break
        v = w
    return float(np.ldexp(np.sqrt(max(estimate, 0)), unit))


def residuals(A: Any, F: SVDResult) -> Vector:
    """``sqrt((||A v - sigma u||^2 + ||A^H u - sigma v||^2) / 2) / sigma_1`` of each component, both halves computed.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        The matrix that F factorizes, shifted as it was.
    F : SVDResult

    Returns
    -------
    array of shape (k,)
        An exact singular value of A lies within ``sigma_1`` times this of each value.

    Notes
    -----
    Two passes, and one for the Frobenius norm, which says whether squares leave the range of numbers.
    """
    A, unit, _ = in_units(as_operator(A))
    U, S, V = np.asarray(F.U), np.ldexp(F.S, -unit), F.Vh.conj().T
    right = np.linalg.norm(A.matmat(V) - U * S, axis=0)
    left = np.linalg.norm(A.rmatmat(U) - V * S, axis=0)
    return np.asarray(np.sqrt((right**2 + left**2) / 2) / (S[0] if S[0] > 0 else 1.0))


def frobenius_error(A: Any, F: SVDResult) -> float | None:
    """``||A - U S Vh||_F``, exact and without cancellation; None where A cannot give it cheaply.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
    F : SVDResult

    Returns
    -------
    float or None

    Notes
    -----
    One pass. ``F.info.frobenius_error`` is free, but has a floor of ``1e-8 ||A||_F``.
    """
    return (as_operator(A) - F).frobenius_norm()


def halko_bound(
    S: Vector,
    k: int,
    q: int,
    shape: tuple[int, int],
    n_oversamples: int | None = None,
    *,
    truncated: bool = False,
) -> float:
    """Bound of the expected spectral error ``E ||A - Q Q^H A||`` of a randomized SVD.

    Parameters
    ----------
    S : array
        Singular values of A, descending; at least k + 1 of them.
    k : int
        Target rank, at least 2.
    q : int
        Power iterations.
    shape : (int, int)
    n_oversamples : int, optional
        p, at least 2. None is the paper's setting of 2k samples, with its bound
        ``(1 + 4 sqrt(2 min(m, n) / (k - 1)))^(1/(2q+1)) sigma_{k+1}``; else
        ``(1 + sqrt(k / (p - 1)) + e sqrt(k + p) / p sqrt(min(m, n) - k))^(1/(2q+1)) sigma_{k+1}``.
    truncated : bool
        Both bounds hold for the whole sample of k + p columns. A factorization cut back to rank k, which is
        what every solver here returns, has ``sigma_{k+1}`` added.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For a k, q or p outside the theorems, or too few singular values.

    References
    ----------
    Halko, Martinsson & Tropp (2011), theorem 1.2, corollary 10.10 and theorem 9.3; Basirat (2019),
    equation 9, states the first for the truncated factorization, where it does not hold.
    """
    short = min(shape)
    if not 2 <= k < len(S):
        raise ValueError(f"k must be in 2..{len(S) - 1}, since the bound is a multiple of sigma_(k+1), got {k}")
    if q < 0 or (n_oversamples is not None and n_oversamples < 2):
        raise ValueError(f"the bound needs q >= 0 and n_oversamples >= 2, got q={q}, n_oversamples={n_oversamples}")
    if n_oversamples is None:
        factor = 1 + 4 * np.sqrt(2 * short / (k - 1))
    else:
        p = n_oversamples
        factor = 1 + np.sqrt(k / (p - 1)) + np.e * np.sqrt(k + p) / p * np.sqrt(max(short - k, 0))
    return float((factor ** (1 / (2 * q + 1)) + truncated) * S[k])


def value_errors(S: Vector, rho: Vector, r: Vector, floor: float = 0.0, growth: Vector | float = np.inf) -> Vector:
    """Bounds of ``|sigma - exact| / sigma`` for values S, from the quotients rho = ||A v||^2 and their residuals r.

    ``(min(r_j, r_j^2 / g_j) + |rho_j - S_j^2|) / (2 S_j^2)``, where g_j is the gap to the neighbours outside the
    cluster of j, each moved closer by its own residual (Kato-Temple); below the last value nothing is
    known, so its cluster uses r_j. `growth` bounds ``exact^2 - rho`` otherwise, as `growth_bounds` does.
    """
    order = np.argsort(-rho, kind="stable")
    low, high = (rho - r)[order], (rho + r)[order]
    # Clusters: intervals that overlap, chained from above; what is below `low[:j].min()` is another one.
    first = np.concatenate([[True], np.minimum.accumulate(low)[:-1] > np.maximum.accumulate(high[::-1])[::-1][1:]])
    starts = np.flatnonzero(first)
    below = np.append(np.maximum.reduceat(high, starts)[1:], np.inf)
    above = np.append(np.inf, np.minimum.reduceat(low, starts)[:-1])
    cluster = np.empty(len(rho), int)
    cluster[order] = np.cumsum(first) - 1
    gap = np.minimum(rho - below[cluster], above[cluster] - rho)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(gap > 0, np.minimum(r, r**2 / gap), r)
    bounds = np.minimum(bounds, growth)
    # Not every solver returns S^2 = rho: one that ends with B = Q^H A has S^2 = ||Q^H A v||^2 below it.
    bounds += np.abs(rho - S**2)
    # A value reported as 0 has no relative error; it is right if its residual is rounding.
    lost = np.where(r + rho > floor, np.inf, 0.0)
    return np.where(S > 0, bounds / (2 * np.where(S > 0, S, 1) ** 2), lost)


def growth_bounds(theta: Vector, N: Panel, below: float, k: int) -> Vector:
    """How far the k largest eigenvalues can lie above the leading Ritz values theta of a projection.

    N is the Gram matrix of the residuals of those Ritz vectors; what is orthogonal to them has no eigenvalue above
    `below`. The Schur complement then puts the j-th eigenvalue at most at that of
    ``diag(theta) + N / (theta_k - below)``: the more Ritz values are taken in beyond the k-th, the larger the
    gap that divides, so that close neighbours of the k-th cost nothing (compare Mathias 1998, Quadratic residual
    bounds for the Hermitian eigenvalue problem).
    """
    gap = theta[k - 1] - below
    if not gap > 0:
        return np.full(k, np.inf)
    return np.asarray(np.linalg.eigvalsh(np.diag(theta) + N / gap)[::-1][:k] - theta[:k])


def certificate(A: Operator, F: SVDResult) -> tuple[Vector, Vector]:
    """(residuals, value errors) of a factorization, everything computed; three passes."""
    S, V = F.S.astype(np.float64), F.Vh.conj().T
    AV = A.matmat(V)
    rho = np.linalg.norm(AV, axis=0).astype(np.float64) ** 2
    r = np.linalg.norm(A.rmatmat(AV) - V * rho, axis=0)
    U = np.asarray(F.U)
    right = np.linalg.norm(AV - U * S, axis=0)
    left = np.linalg.norm(A.rmatmat(U) - V * S, axis=0)
    first = S[0] if S[0] > 0 else 1.0
    floor = max(A.shape) * A.eps * S[0] ** 2
    return np.sqrt((right**2 + left**2) / 2) / first, value_errors(S, rho, r, floor)
