"""Varimax and promax rotation of components, so that each has few features with large loadings."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from shiftsvd.errors import Setting, refuse
from shiftsvd.front import integer
from shiftsvd.numerics.orth import phases
from shiftsvd.numerics.powers import check_size, largest_of
from shiftsvd.operators import Panel, Vector
from shiftsvd.runs.messages import warn

ANGLE_TOL = 1e-9  # converged if no angle of a sweep is larger, in radians; the criterion changes by its square
# Rows shorter than this, relative to the longest, count as 0 and are ignored.
ZERO_ROW = 1e-12


class Rotated(NamedTuple):
    """Rotated loadings ``L T``."""

    loadings: Panel
    T: Panel
    n_iter: int
    converged: bool


def varimax(L: Panel, kaiser: bool, max_iter: int) -> Rotated:
    # Maximize `varimax_criterion` of ``L T`` over orthogonal T, by sweeps over all pairs of columns. Kaiser (1958)
    # gives the best angle for two columns in closed form, so no sweep lowers the criterion.
    B, T = _nonzero_rows(L, kaiser), np.eye(L.shape[1])
    for sweep in range(1, max_iter + 1):
        largest = max((_turn_pair(B, T, i, j) for j in range(B.shape[1]) for i in range(j)), default=0.0)
        if largest <= ANGLE_TOL:
            return Rotated(L @ T, T, sweep, True)
    return Rotated(L @ T, T, max_iter, False)


def _turn_pair(B: Panel, T: Panel, i: int, j: int) -> float:
    x, y = B[:, i], B[:, j]
    u, v = x * x - y * y, 2 * x * y
    a, b = u.sum(), v.sum()
    sine = 2 * (u @ v) - 2 * a * b / len(B)
    cosine = u @ u - v @ v - (a * a - b * b) / len(B)
    # If both are 0 up to rounding, every angle gives the same criterion: do not rotate.
    if np.hypot(sine, cosine) <= np.finfo(np.float64).eps * (u @ u + v @ v):
        return 0.0
    angle = float(np.arctan2(sine, cosine)) / 4
    plane = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    B[:, [i, j]] = B[:, [i, j]] @ plane
    T[:, [i, j]] = T[:, [i, j]] @ plane
    return abs(angle)


def promax(L: Panel, power: float, kaiser: bool, max_iter: int) -> Rotated:
    # Hendrickson & White (1964): varimax, then an oblique least-squares fit to powers of the rotated loadings, which
    # shrinks small loadings, with scores of unit variance.
    first = varimax(L, kaiser, max_iter)
    B = _nonzero_rows(first.loadings, kaiser)
    T = np.linalg.lstsq(B, B * np.abs(B) ** (power - 1), rcond=None)[0]
    T = T * np.sqrt(np.diagonal(np.linalg.inv(T.T @ T)))
    return Rotated(first.loadings @ T, first.T @ T, first.n_iter, first.converged)


def varimax_criterion(L: Panel, kaiser: bool = True) -> float:
    return float(np.var(_nonzero_rows(L, kaiser) ** 2, axis=0).sum())


def _nonzero_rows(L: Panel, kaiser: bool) -> Panel:
    lengths: Vector = np.linalg.norm(L, axis=1, keepdims=True)
    nonzero = lengths[:, 0] > ZERO_ROW * lengths.max()
    return np.asarray(L[nonzero] / lengths[nonzero] if kaiser else L[nonzero])


# ---- Varimax and promax rotation of components, so that each has few features with large loadings

Method = Literal["varimax", "promax"]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotated components, and the matrices that rotate scores: the result of `rotate`.

    Parameters
    ----------
    components : array of shape (k, n)
        Of length 1, the largest entry of each positive, by descending `squares`. They are not orthogonal.
    squares : array of shape (k,)
        The squared lengths of the rotated loadings, in squares of the units of S. With varimax their sum is that of
        ``S**2``.
    to_scores : array of shape (k, k)
        ``Z @ to_scores`` are the rotated scores of scores ``Z = U S``, and ``Z @ to_scores @ components`` is ``Z Vh``.
    duals : array of shape (k, n)
        ``A @ duals.T`` are the rotated scores of new rows A, whose scores are ``A @ Vh.T``.
    correlations : array of shape (k, k)
        Of the rotated scores: the identity with varimax.
    criterion : float
        The variance of the squared loadings within components, summed, which varimax maximizes.
    n_iter : int
        Sweeps over all pairs of components.
    converged : bool
        Whether the last sweep rotated nothing.

    See Also
    --------
    rotate : Returns one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> V = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, -1.0]]) / 2
    >>> (ss.rotate(V, [1.0, 1.0]).components ** 2).round(2)
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """

    components: Panel
    squares: Vector
    to_scores: Panel
    duals: Panel
    correlations: Panel
    criterion: float
    n_iter: int
    converged: bool


def rotate(
    V: Any, S: Any, method: Method = "varimax", *, power: float = 4, kaiser: bool = True, max_iter: int = 1000
) -> Rotation:
    """Rotate the loadings ``V diag(S)`` of components by varimax or promax.

    Parameters
    ----------
    V : array of shape (n, k)
        Right singular vectors, or components, in columns: ``Vh.T`` of `svd`, ``components_.T`` of `PCA`.
    S : array of shape (k,)
        Their singular values, or standard deviations of their scores; positive.
    method : {"varimax", "promax"}
        "varimax" keeps scores uncorrelated; "promax" lets them correlate, and makes small loadings smaller.
    power : float above 1
        Power of the loadings to which promax fits.
    kaiser : bool
        Give every feature the same weight: scale its loadings to length 1 first (Kaiser's normalisation).
    max_iter : int
        Most sweeps over all pairs of components.

    Returns
    -------
    Rotation
        The rotated components, and the matrices that rotate scores.

    Raises
    ------
    ValueError
        For other shapes, values that are not positive, or invalid settings.

    See Also
    --------
    Rotation : The result.
    xarray.rotate : The same for labelled fields.

    Notes
    -----
    No pass over the data. A sweep of varimax costs ``O(n k^2)``, and about ten are needed.

    References
    ----------
    Kaiser (1958), The varimax criterion for analytic rotation in factor analysis; Hendrickson & White (1964), Promax;
    Richman (1986), Rotation of principal components.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((50, 8))
    >>> U, S, Vh = ss.svd(X, 3, shift="mean", rng=0)
    >>> turned = ss.rotate(Vh.T, S)
    >>> bool(np.allclose((U * S) @ turned.to_scores @ turned.components, (U * S) @ Vh))
    True
    """
    V, S = _checked(V, S)
    if method not in get_args(Method):
        raise refuse("method", 'be "varimax" or "promax"', method)
    if not isinstance(power, int | float | np.number) or not power > 1:
        raise refuse("power", "be a number above 1", power, "only promax uses this number")
    max_iter = integer("max_iter", max_iter, 1)
    L = V * S
    check_size("loadings", largest_of(L))
    found = varimax(L, kaiser, max_iter) if method == "varimax" else promax(L, power, kaiser, max_iter)
    if not found.converged:
        warn(f"The rotation did not converge within {found.n_iter:,} sweeps. Raise ", Setting("max_iter"), ".")
    lengths = np.linalg.norm(found.loadings, axis=0)
    order = np.argsort(-lengths, kind="stable")
    back = np.linalg.inv(found.T)
    components = (found.loadings / lengths)[:, order].T
    signs = phases(components)
    to_scores = ((back.T * lengths)[:, order] * signs) / S[:, None]
    correlations = (back @ back.T)[np.ix_(order, order)] * np.outer(signs, signs)
    criterion = varimax_criterion(found.loadings, kaiser)
    components, squares, duals = signs[:, None] * components, lengths[order] ** 2, to_scores.T @ V.T
    return Rotation(components, squares, to_scores, duals, correlations, criterion, found.n_iter, found.converged)


def _checked(V: Any, S: Any) -> tuple[Panel, Vector]:
    V, S = np.asarray(V), np.asarray(S)
    if V.ndim != 2 or S.shape != V.shape[1:] or not 1 <= V.shape[1] <= V.shape[0]:
        raise ValueError(f"V must have shape (n, k) with k at most n, and S shape (k,), got {V.shape} and {S.shape}")
    if V.dtype.kind not in "fiu" or S.dtype.kind not in "fiu":
        raise ValueError(f"V and S must be real numbers, got {V.dtype} and {S.dtype}")
    V, S = V.astype(np.float64), S.astype(np.float64)
    if not (np.isfinite(V).all() and np.isfinite(S).all() and np.all(S > 0)):
        raise ValueError(
            f"V must be finite and S finite and positive, got a least S of {S.min():g}. Remove components whose S is 0."
        )
    return V, S
