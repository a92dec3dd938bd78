"""Contrastive PCA: directions that vary more in one data set than in another."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shiftsvd.algebra.operator import Costs
from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting, few, refuse
from shiftsvd.estimators.features import Components, checked
from shiftsvd.estimators.settings import as_one_fit, random_generator
from shiftsvd.front import integer, nonnegative
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.runs.memory import affordable
from shiftsvd.runs.messages import warn
from shiftsvd.solvers.base import TOL, check_tol
from shiftsvd.solvers.factors import shift_rounding
from shiftsvd.solvers.hermitian import VectorLanczos, errors_of_pairs

LARGEST = 2.0**450  # rounding error of products, whose squares must not overflow


@dataclass(frozen=True, eq=False, repr=False)
class Contrast(Operator):
    """``C_t - alpha C_b``, the difference of two covariance matrices, by products with centred data."""

    target: Operator
    background: Operator
    alpha: float

    def __post_init__(self) -> None:
        n = self.target.shape[1]
        vars(self).update(shape=(n, n), dtype=np.dtype(np.float64))

    @property
    def costs(self) -> Costs:
        both = self.target.costs, self.background.costs
        eps, stored = max(each.gram_eps for each in both), sum(each.gram_reads * each.stored for each in both)
        return Costs.of(self, eps=eps, stored=stored, n_threads=both[0].n_threads)

    def matmat(self, V: Panel) -> Panel:
        return covariance_times(self.target, V) - self.alpha * covariance_times(self.background, V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.matmat(W)


def covariance_times(A: Operator, V: Panel) -> Panel:
    return np.asarray(A.gram(V) / (A.shape[0] - 1))


@dataclass(eq=False, repr=False)
class ContrastivePCA(Components):
    """Contrastive PCA: the leading eigenvectors of ``C_target - alpha C_background``.

    The covariance matrices are never formed; each data set is centred by its own means. With growing alpha, components
    lose the directions in which the background varies, too. Beyond that the data are as in `PCA`: sparse, dense, in
    files or Dask arrays.

    Parameters
    ----------
    n_components : int
        Number of components.
    alpha : float
        Weight of the background, at least 0; with 0 the components are those of PCA of the target.
    tol : float
        Bound of the sine of the angle of each component to its eigenvector, or to the space of the eigenvectors whose
        eigenvalues rounding errors do not separate.
    max_passes : int, optional
        Maximum number of passes over each data set; at least one for every 16 components.
    random_state, n_threads, memory_limit : optional
        As in `PCA`.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Orthonormal rows.
    eigenvalues_ : array of shape (n_components,)
        Variances in the target minus alpha times those in the background, descending; they may be negative.
    eigenvalue_errors_ : array of shape (n_components,)
        Bounds of their absolute errors, if no eigenvalue was missed.
    target_variance_, background_variance_ : array of shape (n_components,)
        Variances of both data sets along the components.
    vector_errors_ : array of shape (n_components,)
        Bounds of the sines that `tol` limits. They hold if `converged_`, with a probability of at least 1 - 1e-9.
    converged_ : bool
        Whether all sines are at most `tol`, and no eigenvalue was missed.
    mean_ : array of shape (n_features,)
        Means of the target, which `transform` subtracts.
    n_passes_ : int
        Passes over each data set.
    n_features_in_ : int

    See Also
    --------
    PCA : Without a background.

    References
    ----------
    Abid, Zhang, Bagaria & Zou (2018), Exploring patterns enriched in a dataset with contrastive principal component
    analysis.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> rng = np.random.default_rng(0)
    >>> background = rng.standard_normal((500, 4)) * [9, 1, 1, 1]
    >>> target = rng.standard_normal((500, 4)) * [9, 3, 1, 1]
    >>> contrast = ss.ContrastivePCA(1, alpha=2, random_state=0).fit(target, background=background)
    >>> int(np.abs(contrast.components_).argmax())
    1
    """

    n_components: int = 2
    _: KW_ONLY
    alpha: float = 1.0
    tol: float = TOL
    max_passes: int | None = None
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    @as_one_fit
    def fit(self, X: Any, y: Any = None, *, background: Any = None) -> Self:
        """Fit the components to X and the background.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_samples, n_features)
            The target.
        y : ignored
            For scikit-learn.
        background : the same of shape (n_background, n_features)
            Data whose variation is subtracted, with the features of X.

        Returns
        -------
        ContrastivePCA
            The estimator itself.

        Raises
        ------
        ValueError
            Without a background, or for invalid data or settings, before anything is computed.
        """
        alpha = nonnegative("alpha", self.alpha)
        check_tol(self.tol)
        integer("n_components", self.n_components, 1)
        most = None if self.max_passes is None else integer("max_passes", self.max_passes, 1)
        if background is None:
            raise Refused(Setting("background"), " is missing: fit(X, background=...). For X alone, use PCA.")
        target = self._operator(X, reset=True)
        others = self._operator(background, reset=False)
        n = target.shape[1]
        k = integer("n_components", self.n_components, 1, n, f" for {n:,} features")
        solver = VectorLanczos(self.tol, max_passes=most)
        affordable(8 * n * (solver.basis_columns(k, n) + 4 * k), self.memory_limit, f"finding {k} components")
        (A, mean, rounded_a), (B, _, rounded_b) = _centred(target), _centred(others)
        noise = rounded_a + alpha * rounded_b
        if not noise < LARGEST:
            raise refuse("alpha", f"be smaller than {LARGEST / rounded_b:.0e} for this background", self.alpha)
        G = Contrast(A, B, alpha)
        found = VectorLanczos(self.tol, max_passes=most, noise=noise)(G, k, random_generator(self.random_state))
        self._read(G, found.vectors, noise, found.limit)
        self.mean_, self.n_passes_ = mean, found.n_passes + 1
        self.vector_errors_ = found.value_errors
        self.converged_ = found.converged and bool(np.all(found.value_errors <= self.tol))
        if not self.converged_:
            warn(
                f"Components {few(1 + np.flatnonzero(~(found.value_errors <= self.tol)))} did not converge in "
                f"{found.n_passes:,} passes. Equal eigenvalues have no eigenvectors of their own; for others, raise ",
                *(Setting("max_passes"), " or ", Setting("tol"), "."),
            )
        return self

    def _read(self, G: Contrast, V: Panel, noise: float, limit: float) -> None:
        T, B = covariance_times(G.target, V), covariance_times(G.background, V)
        W = T - G.alpha * B
        values, X = np.linalg.eigh(V.T @ W)
        values, X = values[::-1].copy(), X[:, ::-1]
        V, W = V @ X, W @ X
        self.target_variance_, self.background_variance_ = (np.einsum("ij,ij->j", V, each @ X) for each in (T, B))
        self.components_ = (V * phases(V.T)).T
        self.eigenvalues_, self.eigenvalue_errors_ = values, errors_of_pairs(W, V, values, noise, limit) + noise

    def fit_transform(self, X: Any, y: Any = None, *, background: Any = None) -> Any:
        """Fit to X and the background, and return the scores of X, as `transform` does."""
        return self.fit(X, background=background).transform(X)

    @as_one_fit
    def transform(self, X: Any) -> Any:
        check_is_fitted(self, "components_")
        V = self.components_.T
        return np.asarray(self._operator(X, reset=False).matmat(V) - self.mean_ @ V)

    def _operator(self, X: Any, reset: bool) -> Operator:
        return as_operator(checked(self, X, reset, least=2 if reset else 1), **vars(self._resources))


def _centred(X: Operator) -> tuple[Operator, Vector, float]:
    """Return the centred data, their means, and the rounding errors of products of their covariance matrix."""
    if X.shape[0] < 2:
        raise ValueError(f"a covariance matrix needs at least 2 samples, got {X.shape[0]}")
    prepared = Preparation("mean").learn(X)
    A = prepared.of_own
    squares, unit = prepared.total_squares
    if unit:
        raise ValueError("squares of the data overflow or underflow. Multiply the data by a power of two.")
    rounded = residual_rounding(A.costs.gram_eps) * squares + 2 * shift_rounding(A) * np.sqrt(squares)
    return A, prepared.column_means, float(rounded) / (X.shape[0] - 1)
