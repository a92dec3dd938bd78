"""Error norms, residuals and bounds of factorizations."""

from typing import Any

import numpy as np

from shiftsvd.algebra.scaled import in_units
from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.operators import LowRank, Operator, Vector, panel_dtype
from shiftsvd.result import SVDResult


def spectral_norm(A: Any, *, max_iter: int = 60, rng: int | np.random.Generator | None = None) -> float:
    """Estimate ``||A||_2`` from below, by the Lanczos method from one random vector.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        ``spectral_norm(centered(X) - F)`` is the error of a factorization F.
    max_iter : int
        Most steps; the iteration stops earlier once the estimate changes by less than 1e-8.
    rng : int, Generator or None
        Seed of the first vector.

    Returns
    -------
    float
        A lower bound of the largest singular value.

    See Also
    --------
    frobenius_error : The Frobenius norm of an error.

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
    for _ in range(min(max_iter, n)):
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
    """Compute ``sqrt((||A v - sigma u||^2 + ||A^H u - sigma v||^2) / 2) / sigma_1`` of each component.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        The matrix that F factorizes, with the shift of that fit.
    F : SVDResult
        A factorization of A.

    Returns
    -------
    array of shape (k,)
        An exact singular value of A lies within ``sigma_1`` times this of each value.

    See Also
    --------
    frobenius_error : The error of all components together.
    Info : Residuals of a fit.

    Notes
    -----
    Two passes, and one for the Frobenius norm, which tells whether squares leave the range of numbers.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.diag([3.0, 2.0, 1.0])
    >>> bool(ss.residuals(X, ss.svd(X, 2, rng=0)).max() < 1e-4)
    True
    """
    A, unit, _ = in_units(as_operator(A))
    U, S, V = np.asarray(F.U), np.ldexp(F.S, -unit), F.Vh.conj().T
    right = np.linalg.norm(A.matmat(V) - U * S, axis=0)
    left = np.linalg.norm(A.rmatmat(U) - V * S, axis=0)
    return np.asarray(np.sqrt((right**2 + left**2) / 2) / (S[0] if S[0] > 0 else 1.0))


def frobenius_error(A: Any, F: SVDResult) -> float | None:
    """Compute ``||A - U S Vh||_F``, exact and without cancellation.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        The matrix that F factorizes, with the shift of that fit.
    F : SVDResult
        A factorization of A.

    Returns
    -------
    float or None
        The norm of ``A - U diag(S) Vh``; None where A cannot compute it cheaply.

    See Also
    --------
    spectral_norm : The largest error in one direction.
    residuals : An error for each component.

    Notes
    -----
    One pass, and the factor on the long side. ``F.info.frobenius_error`` is the same number, without the pass and the
    factor where a difference of squares has enough digits.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.diag([3.0, 2.0, 1.0])
    >>> round(float(ss.frobenius_error(X, ss.svd(X, 2, rng=0))), 6)
    1.0
    """
    return difference_norm(as_operator(A), F)


def difference_norm(A: Operator, F: SVDResult | LowRank) -> float | None:
    norm = (A - F).frobenius_norm()
    squares = A.row_squares() if norm is None else None
    if squares is None or np.all(squares):
        return norm
    # A row with weight 0 cannot subtract the rounding errors of F in this row, so these are summed separately.
    S, zero = F if isinstance(F, LowRank) else F.as_low_rank(), (squares == 0)[:, None]
    norm = (A - LowRank(np.where(zero, 0, S.L), S.R)).frobenius_norm()
    return None if norm is None else float(np.hypot(norm, LowRank(np.where(zero, S.L, 0), S.R).frobenius_norm()))


def halko_bound(
    S: Vector,
    k: int,
    n_iter: int,
    shape: tuple[int, int],
    n_oversamples: int | None = None,
    *,
    truncated: bool = False,
) -> float:
    """Bound the expected spectral error ``E ||A - Q Q^H A||`` of a randomized SVD.

    Parameters
    ----------
    S : array
        Singular values of A, descending; at least k + 1 of them.
    k : int
        Target rank, at least 2.
    n_iter : int
        The power iterations, q.
    shape : (int, int)
        Rows and columns of the matrix.
    n_oversamples : int, optional
        At least 2; the p of the bound. None is the paper's setting of 2k samples, with its bound
        ``(1 + 4 sqrt(2 min(m, n) / (k - 1)))^(1/(2q+1)) sigma_{k+1}``; else
        ``(1 + sqrt(k / (p - 1)) + e sqrt(k + p) / p sqrt(min(m, n) - k))^(1/(2q+1)) sigma_{k+1}``.
    truncated : bool
        Add ``sigma_{k+1}`` for a factorization that is cut back to rank k, as every solver here returns it. Both bounds
        hold for the whole sample of k + p columns.

    Returns
    -------
    float
        The bound.

    Raises
    ------
    ValueError
        For a k, n_iter or n_oversamples outside the theorems, or too few singular values.

    See Also
    --------
    ShiftedRandomizedSVD : The algorithm.

    References
    ----------
    Halko, Martinsson & Tropp (2011), theorem 1.2, corollary 10.10 and theorem 9.3; Basirat (2019),
    equation 9, states the first for the truncated factorization, where it does not hold.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> S = 0.5 ** np.arange(10)
    >>> bool(S[3] < ss.halko_bound(S, 3, n_iter=4, shape=(100, 50)) < 2 * S[3])
    True
    """
    short = min(shape)
    if not 2 <= k < len(S):
        raise refuse("k", f"be in 2..{len(S) - 1}, because the bound is a multiple of the next singular value", k)
    if n_iter < 0 or (n_oversamples is not None and n_oversamples < 2):
        given = (Setting("n_iter", n_iter), ", ", Setting("n_oversamples", n_oversamples))
        raise Refused("the bound needs n_iter >= 0 and n_oversamples >= 2, got ", *given)
    if n_oversamples is None:
        factor = 1 + 4 * np.sqrt(2 * short / (k - 1))
    else:
        p = n_oversamples
        factor = 1 + np.sqrt(k / (p - 1)) + np.e * np.sqrt(k + p) / p * np.sqrt(max(short - k, 0))
    return float((factor ** (1 / (2 * n_iter + 1)) + truncated) * S[k])
