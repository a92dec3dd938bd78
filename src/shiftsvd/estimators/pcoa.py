"""Principal coordinate analysis of a matrix of distances, which is double-centred implicitly."""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import check_is_fitted, validate_data

from shiftsvd.algebra.operator import Costs
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import BLOCK
from shiftsvd.backends.validation import unmasked_matrix
from shiftsvd.errors import Setting, plural, refuse
from shiftsvd.estimators.attributes import has_ids, labelled, labels_of
from shiftsvd.estimators.features import Components
from shiftsvd.estimators.settings import as_one_fit, random_generator
from shiftsvd.front import integer
from shiftsvd.kernels import ordered, thread_count, threads
from shiftsvd.numerics.orth import phases
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import Derived, Operator, Panel, Vector
from shiftsvd.runs.memory import affordable
from shiftsvd.runs.messages import warn
from shiftsvd.solvers.base import TOL, check_tol
from shiftsvd.solvers.hermitian import Eigenpairs, HermitianLanczos

LARGEST = 2.0**100  # of a distance; the least is its inverse: their fourth powers are summed
SMALL = 2000  # points up to which all eigenvalues are computed, as they take seconds


@dataclass(eq=False, repr=False)
class PCoA(Components):
    """Principal coordinate analysis (classical scaling): the largest eigenvalues of ``B = -1/2 J S J``.

    S holds the squared distances, and J subtracts the mean. B is symmetric. Unless the distances are Euclidean, B has
    negative eigenvalues, which a singular value decomposition cannot distinguish from positive ones. B is formed for at
    most 2000 points.

    `fit` takes distances, symmetric and 0 on the diagonal, as an array, a data frame or an object with ``data`` and
    ``ids``, or an operator of **squared** distances; with a `metric`, features. `transform` takes the distances of
    further points to those of the fit, or their features, and returns their coordinates (Gower 1968).

    Parameters
    ----------
    n_components : int, optional
        Default: the number of points; required beyond 2000 points.
    metric : str or callable
        "precomputed": X holds distances. Else X holds the points' features, and this is the metric of
        `sklearn.metrics.pairwise_distances`, such as "braycurtis".
    tol : float
        Relative accuracy of the square roots of the eigenvalues, which are the lengths of the coordinates, beyond 2000
        points; up to there all digits are computed.
    random_state, n_threads, memory_limit : optional
        As in `PCA`.

    Attributes
    ----------
    coordinates_ : array or DataFrame of shape (n_samples, n_components)
        ``V sqrt(lambda)``; 0 for negative eigenvalues.
    eigenvalues_ : array of shape (n_components,)
        The largest, descending; they may be negative.
    proportion_explained_ : array of shape (n_components,)
        Eigenvalues over the sum of all positive ones; 0 for negative ones.
    negative_share_ : float
        Share of the negative eigenvalues in the sum of all absolute values; exact up to 2000 points, beyond that an
        estimate by stochastic Lanczos quadrature, good to a few percent if there are many of them.
    lowest_eigenvalue_ : float
        The most negative eigenvalue; beyond 2000 points an upper bound of it.
    trace_ : float
        The sum of all eigenvalues, exact.
    value_errors_ : array of shape (n_components,), or None
        Bounds of the relative errors of the square roots; None if all digits were computed.
    n_passes_ : int
        Products with the distances.
    n_features_in_ : int
        The number of points.

    See Also
    --------
    PCA : Of features in place of distances.

    References
    ----------
    Gower (1966), Some distance properties of latent root and vector methods; Gower (1968), Adding a point to vector
    diagrams.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> D = np.abs(np.subtract.outer([0.0, 3.0, 7.0], [0.0, 3.0, 7.0]))
    >>> pcoa = ss.PCoA(n_components=1).fit(D)
    >>> np.abs(np.diff(pcoa.coordinates_[:, 0])).round(6)
    array([3., 4.])
    """

    n_components: int | None = None
    _: KW_ONLY
    metric: Any = "precomputed"
    tol: float = TOL
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    @as_one_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        names = labels_of(X)[0]
        S = self._squared(X)
        n, k = S.shape[0], self.n_components
        small = n <= SMALL
        k = n if k is None and small else integer("n_components", k, 1, n, f" for {n:,} points")
        check_tol(self.tol)
        rng = random_generator(self.random_state)
        with threads(S.costs.n_threads):
            means = _means(S, rng)
            B = DoubleCentred(S)
            found = self._everything(B, k) if small else self._leading(B, k, rng)
        if not found.converged:
            worst = f"relative errors up to {float(found.value_errors.max()):.1e}, `tol` {self.tol:g}"
            warn(f"Eigenvalues did not converge ({worst}). Raise ", Setting("tol"), ".")
        self._set(found, means, small, names)
        return self

    def _set(self, found: Eigenpairs, means: Vector, exact: bool, names: Any) -> None:
        self._means, self._vectors = means, found.vectors * phases(found.vectors.T)
        # The diagonal of S is 0, so that the trace of -1/2 J S J is that of its mean alone.
        self.trace_ = float(means.sum() / 2)
        positive = max(self.trace_ + found.negative, float(np.maximum(found.values, 0).sum()))
        self.eigenvalues_ = found.values
        self.proportion_explained_ = np.maximum(found.values, 0) / positive if positive > 0 else 0 * found.values
        total = positive + found.negative
        self.negative_share_ = found.negative / total if total > 0 else 0.0
        self.lowest_eigenvalue_ = found.lowest
        self.coordinates_ = labelled(self._vectors * np.sqrt(np.maximum(found.values, 0)), names)
        self.value_errors_ = None if exact else found.value_errors
        self.n_passes_ = found.n_passes

    def fit_transform(self, X: Any, y: Any = None) -> Panel:
        return np.asarray(self.fit(X).coordinates_)

    @as_one_fit
    def transform(self, X: Any) -> Panel:
        check_is_fitted(self, "eigenvalues_")
        D = validate_data(self, unmasked_matrix(X), reset=False, dtype=np.float64)
        if self.metric != "precomputed":
            D = pairwise_distances(D, self._points, metric=self.metric)
        positive = self.eigenvalues_ > 0
        V = self._vectors * np.where(positive, 1 / np.sqrt(np.where(positive, self.eigenvalues_, 1)), 0)
        return np.asarray((self._means - D**2) @ V / 2)

    def _squared(self, X: Any) -> Operator:
        if isinstance(X, Operator):
            if self.metric != "precomputed":
                raise refuse("metric", 'be "precomputed" for an operator, which holds squared distances', self.metric)
            if X.shape[0] != X.shape[1] or X.dtype.kind == "c":
                raise ValueError(f"squared distances must be a real square matrix, got {X}")
            self.n_features_in_ = X.shape[1]
            vars(self).pop("feature_names_in_", None)
            return X
        unmasked_matrix(X)
        X = X.data if has_ids(X) else X
        D = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        if self.metric != "precomputed":
            affordable(8 * len(D) ** 2, self.memory_limit, f"the distances between {len(D):,} points")
            self._points = D.copy()
            D = pairwise_distances(D, metric=self.metric)
        if D.shape[0] != D.shape[1]:
            raise ValueError(f"distances must be a square matrix with a row and a column per point, got {D.shape}")
        _distances(D)
        return SquaredDistances(D, thread_count(self.n_threads))

    def _everything(self, B: "DoubleCentred", k: int) -> Eigenpairs:
        n = B.shape[0]
        affordable(24 * n * n, self.memory_limit, f"the eigenvalues of {n:,} points")
        G = B.matmat(np.eye(n))
        values, vectors = linalg.eigh((G + G.T) / 2)
        values = values[::-1].copy()
        rounding = 4 * n * B.costs.eps * np.abs(values).max(initial=0)
        values[np.abs(values) <= rounding] = 0  # one is 0 in any case
        negative = float(-values[values < 0].sum())
        return Eigenpairs(values[:k], vectors[:, ::-1][:, :k], np.zeros(k), True, 1, negative, float(values[-1]))

    def _leading(self, B: "DoubleCentred", k: int, rng: np.random.Generator) -> Eigenpairs:
        solver, n = HermitianLanczos(self.tol), B.shape[0]
        what = f"finding {plural(k, 'coordinate')} of {plural(n, 'point')}"
        affordable(8 * n * solver.peak_columns(k, n), self.memory_limit, what)
        return solver(B, k, rng)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    @property
    def _tags(self) -> dict[str, Any]:
        return dict.fromkeys(("pairwise", "positive_only"), self.metric == "precomputed")


@dataclass(frozen=True, eq=False, repr=False)
class SquaredDistances(Operator):
    """Operator of squared distances, which are computed block by block and never stored."""

    D: Panel
    n_threads: int = 1

    def __post_init__(self) -> None:
        vars(self).update(shape=self.D.shape, dtype=self.D.dtype)

    @cached_property
    def costs(self) -> Costs:
        return Costs.of(self, eps=float(np.finfo(np.float64).eps), n_threads=self.n_threads)

    def matmat(self, V: Panel) -> Panel:
        blocks = cut(self.shape[0], BLOCK // self.shape[1])
        parts = ordered(lambda rows: np.square(self.D[slice(*rows)], dtype=np.float64) @ V, blocks, self.n_threads)
        return np.concatenate(list(parts))

    def rmatmat(self, W: Panel) -> Panel:
        return self.matmat(W)


@dataclass(frozen=True, eq=False, repr=False)
class DoubleCentred(Derived):
    """Operator ``-1/2 J A J`` with the projection ``J = I - 1 1^T / n``, for a symmetric A."""

    def matmat(self, V: Panel) -> Panel:
        return _centred(self.A.matmat(_centred(V))) / -2

    def rmatmat(self, W: Panel) -> Panel:
        return self.matmat(W)


def _centred(V: Panel) -> Panel:
    return np.asarray(V - V.mean(axis=0))


def _distances(D: Panel) -> None:
    n = len(D)
    least, largest = float(D.min()), float(D.max())
    if least < 0:
        raise ValueError(f"Negative values in data passed to PCoA: distances must be at least 0, got {least:g}")
    check_size("distances", largest, LARGEST)
    tolerance = 8 * n * float(np.finfo(D.dtype).eps) * largest
    diagonal = float(np.abs(np.diagonal(D)).max())
    if diagonal > tolerance:
        raise ValueError(f"distances must be 0 on the diagonal, got {diagonal:g}. Convert similarities to distances.")
    for lo, hi in cut(n, BLOCK // n):
        off = float(np.abs(D[lo:hi] - D[:, lo:hi].T).max())
        if off > tolerance:
            raise ValueError(f"distances must be symmetric, got a difference of {off:g}. Pass (D + D.T) / 2.")


def _means(S: Operator, rng: np.random.Generator) -> Vector:
    V = np.column_stack([np.ones(S.shape[0]), rng.standard_normal(S.shape[0])])
    SV = S.matmat(V)
    if abs(float(SV[:, 0] @ V[:, 1] - V[:, 0] @ SV[:, 1])) > 1e-4 * float(np.linalg.norm(SV) * np.linalg.norm(V)):
        raise ValueError(f"squared distances must be a symmetric matrix, got {S}, which is not symmetric")
    if np.any(SV[:, 0] < 0):
        raise ValueError(f"squared distances must be at least 0, got a column of {S} with a negative sum")
    return np.asarray(SV[:, 0] / S.shape[0])
