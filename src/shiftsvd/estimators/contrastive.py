"""Contrastive PCA: directions that vary more in one data set than in another."""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from sklearn.utils.validation import check_is_fitted

from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.estimators.features import Components
from shiftsvd.estimators.settings import as_one_fit, random_generator, warn_unconverged
from shiftsvd.front import integer, nonnegative
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.runs.memory import affordable
from shiftsvd.solvers.base import TOL, check_tol
from shiftsvd.solvers.factors import shift_rounding
from shiftsvd.solvers.pencil import Member, family_bytes, leading_of_all

ALPHAS = (0.0, *np.logspace(-1, 3, 40).tolist())
UNLIKE = 1e-6  # affinity of orthogonal components: spectral clustering needs a connected graph
LARGEST = 2.0**450  # rounding error of products, whose squares must not overflow


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
    >>> contrast = ss.ContrastivePCA(1, alpha=2, random_state=0).fit(
    ...     target, background=background
    ... )
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
        (model,) = self.path(X, background=background, alphas=[self.alpha])
        vars(self).update(vars(model) | {"alpha": self.alpha})
        return self

    @as_one_fit
    def path(self, X: Any, *, background: Any = None, alphas: Any = ALPHAS, choose: int | None = None) -> list[Self]:
        """Fit the components of several alphas, which share one basis and their passes over the data.

        Parameters
        ----------
        X, background : array, sparse matrix, Operator or data frame, of shapes (m, n) and (p, n)
            As in `fit`.
        alphas : sequence of float
            Weights of the background, at least 0. The default is 0 and 40 values from 0.1 to 1000 (Abid et al. 2018).
        choose : int, optional
            Return the fits of this many alphas only, which represent the others. Spectral clustering groups alphas by
            the products of the cosines of the principal angles between their components; each cluster without the
            least alpha is represented by the alpha with the largest sum of products (Abid et al. 2018).

        Returns
        -------
        list of ContrastivePCA
            A fitted copy for each alpha, in the order of `alphas`; `n_passes_` counts the passes of all together.

        Raises
        ------
        ValueError
            As `fit`.
        """
        if isinstance(alphas, str) or not np.iterable(alphas) or not len(alphas := list(alphas)):
            raise refuse("alphas", "be a sequence of numbers", alphas)
        weights = [nonnegative("alpha", alpha) for alpha in alphas]
        check_tol(self.tol)
        integer("n_components", self.n_components, 1)
        most = None if self.max_passes is None else integer("max_passes", self.max_passes, 1)
        if choose is not None:
            choose = integer("choose", choose, 1)
        if background is None:
            raise Refused(Setting("background"), " is missing: fit(X, background=...). For X alone, use PCA.")
        target, others = self._operator(X, reset=True, least=2), self._operator(background)
        n = target.shape[1]
        k = integer("n_components", self.n_components, 1, n, f" for {n:,} features")
        needed = family_bytes(k, n, self.tol, len(weights))
        affordable(needed, self.memory_limit, f"finding {k} components")
        (A, mean, rounded_a), (B, _, rounded_b) = _centred(target), _centred(others)
        noise = rounded_a + np.array(weights) * rounded_b
        if not noise.max() < LARGEST:
            raise refuse("alpha", f"be smaller than {LARGEST / rounded_b:.0e} for this background", max(weights))
        rng, eps = random_generator(self.random_state), max(A.costs.gram_eps, B.costs.gram_eps)
        pair = partial(_covariances_times, A, B)
        found = leading_of_all(pair, n, k, np.array(weights), noise, eps, self.tol, most, rng)
        models = [copy(self)._set(alpha, mean, one) for alpha, one in zip(weights, found, strict=True)]
        return models if choose is None else [models[j] for j in _medoids(models, choose, rng)]

    def _set(self, alpha: float, mean: Vector, found: Member) -> Self:
        V = found.vectors
        self.alpha, self.mean_, self.n_passes_ = alpha, mean, found.n_passes + 1
        self.target_variance_, self.background_variance_ = found.forms
        self.components_ = (V * phases(V.T)).T
        self.eigenvalues_, self.eigenvalue_errors_ = found.values, found.value_errors
        self.vector_errors_, self.converged_ = found.sines, found.converged
        if not self.converged_:
            unconverged = 1 + np.flatnonzero(~(found.sines <= self.tol))
            warn_unconverged(unconverged, f"{self.n_passes_:,} passes", "max_passes")
        return self

    def fit_transform(self, X: Any, y: Any = None, *, background: Any = None) -> Any:
        """Fit to X and the background, and return the scores of X, as `transform` does."""
        return self.fit(X, background=background).transform(X)

    @as_one_fit
    def transform(self, X: Any) -> Any:
        check_is_fitted(self, "components_")
        V = self.components_.T
        return np.asarray(self._operator(X).matmat(V) - self.mean_ @ V)


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


def _covariances_times(A: Operator, B: Operator, V: Panel) -> tuple[Panel, Panel]:
    return np.asarray(A.gram(V) / (A.shape[0] - 1)), np.asarray(B.gram(V) / (B.shape[0] - 1))


def _medoids(models: list[Any], count: int, rng: Generator) -> list[int]:
    if len(models) <= count:
        return [*range(len(models))]
    from sklearn.cluster import SpectralClustering  # takes a second to import

    order = np.argsort([model.alpha for model in models], kind="stable")
    V = np.stack([models[j].components_ for j in order])
    cosines = np.linalg.svd(V[:, None] @ V[None].swapaxes(-1, -2), compute_uv=False)
    affinity = np.clip(cosines.prod(axis=-1), UNLIKE, 1).round(9)  # rounding errors must not decide between equal sums
    seed = int(rng.integers(2**31))
    if count + 1 == len(models):
        labels = np.arange(len(models))
    else:
        labels = SpectralClustering(count + 1, affinity="precomputed", random_state=seed).fit(affinity).labels_
    clusters = [np.flatnonzero(labels == label) for label in np.unique(labels) if label != labels[0]]
    chosen = [int(each[affinity[np.ix_(each, each)].sum(axis=1).argmax()]) for each in clusters]
    while len(chosen) < count:  # fewer clusters than asked for: add the least similar
        nearest = affinity[:, chosen].max(axis=1, initial=0)
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
    return sorted(int(order[j]) for j in chosen)
