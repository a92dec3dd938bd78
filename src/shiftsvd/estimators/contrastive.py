"""Contrastive PCA: directions that vary more in one data set than in another."""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from sklearn.utils.validation import check_is_fitted

from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.estimators.features import Components
from shiftsvd.estimators.settings import as_one_fit, random_generator, warn_unconverged
from shiftsvd.front import integer, nonnegative
from shiftsvd.numerics.bounds import TINY, residual_rounding, rounding_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, phases, times
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.runs.memory import affordable
from shiftsvd.solvers.base import TOL, check_tol
from shiftsvd.solvers.direct import Exact
from shiftsvd.solvers.factors import rank_floor, shift_rounding
from shiftsvd.solvers.pencil import Member, family_bytes, leading_of_all

ALPHAS = (0.0, *np.logspace(-1, 3, 40).tolist())
UNLIKE = 1e-6  # affinity of orthogonal components: spectral clustering needs a connected graph
LARGEST = 2.0**450  # rounding error of products, whose squares must not overflow
# Rounding error of the background over the root of its least variance plus ridge: eigenvalues lose twice as much. At
# the first ratio, sines of separate components are near the default `tol`; the second is recommended.
MOST_ROUNDED, ROUNDED_LITTLE = 1e-6, 1e-8


@dataclass(eq=False, repr=False)
class ContrastivePCA(Components):
    """Contrastive PCA: the leading eigenvectors of ``C_target - alpha C_background``.

    The covariance matrices are never formed; each data set is centred by its own means. With growing alpha, components
    lose the directions in which the background varies, too. Beyond that the data are as in `PCA`: sparse, dense, in
    files or Dask arrays. With `ridge`, components maximize a ratio of variances, in which alpha has no part.

    Parameters
    ----------
    n_components : int
        Number of components.
    alpha : float
        Weight of the background, at least 0; with 0 the components are those of PCA of the target.
    ridge : float, optional
        A variance, at least 0, in squared units of the data: maximize the variance in the target over the sum of
        `ridge` and the variance in the background, by ``C_target v = lambda (C_background + ridge I) v``.
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
        Orthonormal rows; with `ridge`, rows of length 1.
    eigenvalues_ : array of shape (n_components,)
        Variances in the target minus alpha times those in the background, descending; they may be negative. With
        `ridge`, the ratios lambda.
    eigenvalue_errors_ : array of shape (n_components,)
        Bounds of their absolute errors, if no eigenvalue was missed.
    target_variance_, background_variance_ : array of shape (n_components,)
        Variances of both data sets along the components.
    vector_errors_ : array of shape (n_components,)
        Bounds of the sines that `tol` limits. They hold if `converged_`, with a probability of at least 1 - 1e-9. With
        `ridge`, angles are those of the scalar product ``v^T (C_background + ridge I) w``.
    converged_ : bool
        Whether all sines are at most `tol`, and no eigenvalue was missed.
    mean_ : array of shape (n_features,)
        Means of the target, which `transform` subtracts.
    n_passes_ : int
        Passes over each data set; with `ridge`, over the target; the background is read two or three times.
    n_features_in_ : int

    See Also
    --------
    PCA : Without a background.

    Notes
    -----
    With ``ridge=0`` the components are those of gcPCA of centred data that are not normalized (de Oliveira et al.
    2025): version 2 maximizes lambda, version 3 ``lambda - 1``, version 4 ``(lambda - 1) / (lambda + 1)``. Its values
    are ratios of sums of squares, not of variances. Singular backgrounds need a positive `ridge`.

    For n features, p samples of the background and ``r = min(p - 1, n)``, `ridge` takes ``O(p n r)`` operations for a
    singular value decomposition of the background, ``4 n r`` for each vector of a product, and memory for ``n r``
    numbers beside those of the decomposition.

    Let B be the centred background over ``sqrt(p - 1)``, ``M = B^T B + ridge I``, and mu its least eigenvalue. The
    eigenvalues are the squared singular values of the centred target over ``sqrt(m - 1)``, times ``M^(-1/2)``. The
    decomposition of B is that of ``B + E`` with ``||E|| <= delta``. The length of ``(B v, sqrt(ridge) v)`` is
    ``sqrt(v^T M v) >= sqrt(mu) ||v||`` and changes by at most ``||E v|| <= eta sqrt(v^T M v)``, ``eta = delta /
    sqrt(mu)``. So ``v^T M v`` changes by factors between ``(1 - eta)^2`` and ``(1 + eta)^2``, and by the maximum and
    minimum principle (Courant & Fischer) no eigenvalue changes by more than ``(1 - eta)^-2 - 1`` of itself. An error F
    of products with the target changes roots of eigenvalues by at most ``||F|| / sqrt((m - 1) mu)`` (Weyl). Bounds
    include both; as for all fits here, delta and F are models of rounding errors. Fits with eta above 1e-6 are refused.

    References
    ----------
    Abid, Zhang, Bagaria & Zou (2018), Exploring patterns enriched in a dataset with contrastive principal component
    analysis. de Oliveira, Garg, Hjerling-Leffler, Batista-Brito & Sjulson (2025), Identifying patterns differing
    between high-dimensional datasets with generalized contrastive PCA.

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
    ridge: float | None = None
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
            Without a background, or for invalid data or settings, before anything is computed. With `ridge`, also
            if rounding errors hide the least variances of the background, or its decomposition exceeds `memory_limit`.
        """
        rng = random_generator(self.random_state)
        (model,) = self._models(X, background, [nonnegative("alpha", self.alpha)], rng)
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

        Notes
        -----
        For at most 1,000 features, all unit vectors are multiplied, and the pairs of all alphas are exact up to
        rounding. For more features the fits share passes, not time: vectors are made orthogonal to a basis that is
        larger than those of separate fits, which may take less time if products are fast and hundreds are needed.
        """
        if isinstance(alphas, str) or not np.iterable(alphas) or not len(alphas := list(alphas)):
            raise refuse("alphas", "be a sequence of numbers", alphas)
        weights = [nonnegative("alpha", alpha) for alpha in alphas]
        if self.ridge is not None:
            raise refuse("ridge", "be None for several alphas", self.ridge, "Use fit, which ignores alpha")
        if choose is not None:
            choose = integer("choose", choose, 1)
        rng = random_generator(self.random_state)
        models = self._models(X, background, weights, rng)
        return models if choose is None else [models[j] for j in _medoids(models, choose, rng)]

    def _models(self, X: Any, background: Any, weights: list[float], rng: Generator) -> list[Self]:
        check_tol(self.tol)
        integer("n_components", self.n_components, 1)
        most = None if self.max_passes is None else integer("max_passes", self.max_passes, 1)
        ridge = None if self.ridge is None else nonnegative("ridge", self.ridge)
        if background is None:
            raise Refused(Setting("background"), " is missing: fit(X, background=...). For X alone, use PCA.")
        target, others = self._operator(X, reset=True, least=2), self._operator(background)
        n = target.shape[1]
        k = integer("n_components", self.n_components, 1, n, f" for {n:,} features")
        needed = family_bytes(k, n, self.tol, len(weights))
        affordable(needed, self.memory_limit, f"finding {k} components")
        A, B = _centred(target), _centred(others)
        if ridge is not None:
            found = [_of_ratio(A, _whitening(B, ridge, needed, self.memory_limit), k, self.tol, most, rng)]
        else:
            found = _of_differences(A, B, k, np.array(weights), self.tol, most, rng)
        return [copy(self)._set(alpha, A.mean, one) for alpha, one in zip(weights, found, strict=True)]

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


class Centred(NamedTuple):
    """Centred data, their means, their total variance, and the rounding errors of products of their covariance."""

    A: Operator
    mean: Vector
    variance: float
    rounded: float

    def covariance_times(self, V: Panel) -> Panel:
        return np.asarray(self.A.gram(V) / (self.A.shape[0] - 1))


def _centred(X: Operator) -> Centred:
    if X.shape[0] < 2:
        raise ValueError(f"a covariance matrix needs at least 2 samples, got {X.shape[0]}")
    prepared = Preparation("mean").learn(X)
    A = prepared.of_own
    squares, unit = prepared.total_squares
    if unit:
        raise ValueError("squares of the data overflow or underflow. Multiply the data by a power of two.")
    rounded = residual_rounding(A.costs.gram_eps) * squares + 2 * shift_rounding(A) * np.sqrt(squares)
    count = X.shape[0] - 1
    return Centred(A, prepared.column_means, float(squares) / count, float(rounded) / count)


def _of_differences(
    A: Centred, B: Centred, k: int, alphas: Vector, tol: float, most: int | None, rng: Generator
) -> list[Member]:
    rounded = A.rounded + alphas * B.rounded
    if not rounded.max() < LARGEST:
        raise refuse("alpha", f"be smaller than {LARGEST / B.rounded:.0e} for this background", max(alphas))
    eps = max(A.A.costs.gram_eps, B.A.costs.gram_eps)

    def noise(i: int, theta: Vector) -> float:
        return rounding_of(theta, eps, float(rounded[i]))

    def pair(V: Panel) -> tuple[Panel, Panel]:
        return A.covariance_times(V), B.covariance_times(V)

    return leading_of_all(pair, len(A.mean), k, alphas, noise, tol, most, rng)


class Whitening(NamedTuple):
    """``W = (least M^-1)^(1/2)`` of ``M = C_background + ridge I``, whose smallest eigenvalue is `least`: ||W|| = 1."""

    axes: Panel  # principal axes of the background, orthonormal columns
    factors: Vector  # eigenvalues of W of the axes
    beyond: float  # eigenvalue of W of vectors orthogonal to all axes
    shares: Vector  # of the background in v^T M v along the axes
    least: float
    rounded: float  # largest relative change of v^T M v by the rounding of the background

    def __call__(self, V: Panel) -> Panel:
        return self.beyond * V + self._along(self.factors - self.beyond, V)

    def background(self, V: Panel) -> Panel:
        """Return ``W C_background W V / least``."""
        return self._along(self.shares, V)

    def _along(self, values: Vector, V: Panel) -> Panel:
        return times(self.axes, values[:, None] * inner(self.axes, V))


def _whitening(B: Centred, ridge: float, beside: int, memory_limit: Any) -> Whitening:
    p, n = B.A.shape
    rank, solver = min(p - 1, n), Exact()  # p centred rows have at most the rank p - 1
    needed = max(solver.peak_bytes(B.A, rank), beside) + 8 * n * rank
    affordable(needed, memory_limit, "whitening the background", "features, or samples of the background")
    factors = solver.factorize(B.A, rank, np.random.default_rng(0))
    axes = np.asarray(factors.Vh() if callable(factors.Vh) else factors.Vh).T
    variances, delta = factors.S**2 / (p - 1), rank_floor(B.A, float(factors.S[0])) / np.sqrt(p - 1)
    least = ridge + (max(np.sqrt(variances[-1]) - delta, 0) ** 2 if rank == n else 0.0)
    if not delta < MOST_ROUNDED * np.sqrt(least):
        enough = f"Use {(delta / ROUNDED_LITTLE) ** 2:.1e} or more" if delta else ""
        raise refuse("ridge", "be larger, because variances of this background are 0 or rounding errors", ridge, enough)
    factor, beyond = np.sqrt(least / (variances + ridge)), float(np.sqrt(least / ridge)) if rank < n else 0.0
    rounded = 1 / (1 - delta / np.sqrt(least)) ** 2 - 1
    return Whitening(axes, factor, beyond, variances / (variances + ridge), float(least), float(rounded))


def _of_ratio(A: Centred, W: Whitening, k: int, tol: float, most: int | None, rng: Generator) -> Member:
    size = A.variance or 1.0
    unit, product = size / W.least, 2 * A.rounded / size
    if not 0 < unit < np.inf:
        raise ValueError("the scales of target and background differ too much. Multiply one by a power of two.")
    eps = residual_rounding(A.A.costs.gram_eps) + W.rounded

    def noise(i: int, theta: Vector) -> float:
        largest = max(float(theta[0]), TINY)
        return float(eps * largest + product * np.sqrt(largest))

    def pair(V: Panel) -> tuple[Panel, Panel]:
        return W(A.covariance_times(W(V)) / size), W.background(V)

    (found,) = leading_of_all(pair, len(A.mean), k, np.zeros(1), noise, tol, most, rng)
    V = W(found.vectors)
    squares = np.sum(V * V, axis=0)
    return found._replace(
        values=found.values * unit,
        vectors=V / np.sqrt(squares),
        forms=found.forms * [[size], [W.least]] / squares,
        value_errors=found.value_errors * unit,
    )


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
