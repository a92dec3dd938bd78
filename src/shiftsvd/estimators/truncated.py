"""TruncatedSVD with scikit-learn's interface, which warns if the first component is the mean."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shiftsvd.algebra.scaled import in_units
from shiftsvd.backends import is_lazy
from shiftsvd.errors import Setting, refuse
from shiftsvd.estimators.attributes import ALIGNED, first_is_mean, in_range
from shiftsvd.estimators.features import Components, points, scores_by_row
from shiftsvd.estimators.settings import as_one_fit, either, random_generator
from shiftsvd.front import decompose, integer, learned, tolerance
from shiftsvd.kernels import threads
from shiftsvd.names import LazyArray, NormalizerName, SolverName
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.result import SVDResult
from shiftsvd.runs.messages import warn_once
from shiftsvd.solvers import BlockLanczos, RandomizedSVD, Solver
from shiftsvd.transforms.chains import Preprocess, apply_all, as_transforms, width


@dataclass(eq=False, repr=False)
class TruncatedSVD(Components):
    """Truncated SVD of X without centring; sparse X stays sparse.

    Parameters
    ----------
    n_components : int, or float in (0, 1)
        Number of components, or the share of the squared Frobenius norm to exceed with the fewest components.
    algorithm : {"arpack", "randomized"}, optional
        scikit-learn's name for the solver; pass either `algorithm` or `solver`.
    n_iter, n_oversamples, power_iteration_normalizer : optional
        Power iterations of ``algorithm="randomized"``, its extra samples, and the normalization between the iterations.
    random_state, tol, solver, n_threads, memory_limit, preprocess : optional
        As in `PCA`; ``algorithm="arpack"`` is accurate down to rounding by default.
    warn_mean : bool
        Warn, once per process, if the first component is the mean of the rows; see `mean_alignment_`.

    Attributes
    ----------
    components_, singular_values_, preprocess_, n_features_in_, feature_names_in_, info_
        As in `PCA`.
    explained_variance_ : array of shape (n_components,)
        Variance of the scores, about their mean. The variances need not descend: a first component that is the mean of
        the rows has little variance. Out of the range of float64 as in `PCA`.
    explained_variance_ratio_ : array of shape (n_components,)
        Share of each component in the exact total variance of X.
    mean_alignment_ : array of shape (n_components,)
        ``|cos|`` of the angle between each component and the mean of the rows. Above 0.99 the first component is the
        mean; `PCA` subtracts the mean, also of sparse data.

    See Also
    --------
    PCA : Subtracts the mean of every column.
    LSA : Computes components of raw texts.

    Notes
    -----
    One read to check the values, two passes for the variances, and those of the solver (`Info.n_passes`).

    References
    ----------
    Halko, Martinsson & Tropp (2011); Golub & Underwood (1977).

    Examples
    --------
    >>> import shiftsvd as ss
    >>> from scipy.sparse import random_array
    >>> X = random_array((1000, 50), density=0.05, format="csr", rng=0)
    >>> svd = ss.TruncatedSVD(n_components=3).fit(X)
    >>> svd.transform(X).shape, bool(svd.mean_alignment_[0] > 0.9)
    ((1000, 3), True)
    """

    n_components: int | float = 2
    _: KW_ONLY
    algorithm: str | None = None
    n_iter: int = 5
    n_oversamples: int = 10
    power_iteration_normalizer: NormalizerName = "auto"
    random_state: Any = None
    tol: float | None = None
    solver: SolverName | Solver = "auto"
    n_threads: int | None = None
    memory_limit: int | str | None = None
    preprocess: Preprocess | None = None
    warn_mean: bool = True

    @as_one_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        A = self._operator(X, reset=True)
        entries = as_transforms(self.preprocess)
        k = self._checked_n_components((A.shape[0], width(entries, A.shape[1])))
        tol, solver = tolerance(self.solver, self.tol), self._solver()
        rng, limit = random_generator(self.random_state), self.memory_limit
        prepared, _ = learned(A, Preparation(entries=entries), k, solver, tol, limit, "error", rng)
        B = prepared.of_own
        centred = Preparation("mean").learn(B)
        squares, _ = centred.total_squares
        F = decompose(B, k, solver, tol, rng, limit, perturbation=prepared.perturbation)
        vars(self).pop("preprocess_", None)
        if entries:
            self.preprocess_ = prepared.entries
        self._set(F, B, centred, squares)
        if self.warn_mean and self.mean_alignment_[0] > ALIGNED:
            warn_once(
                f"{first_is_mean(self.mean_alignment_[0], len(F.S))} Use PCA to subtract the mean. Sparse data stay "
                "sparse. ",
                *("This warning appears once per process. Pass ", Setting("warn_mean", False), " to silence it."),
            )
        return self

    def _set(self, F: SVDResult, A: Operator, centred: Prepared, squares: float) -> None:
        V, mean = F.Vh.T.astype(np.float64), centred.column_means
        with threads(A.costs.n_threads):
            # Not sigma^2 / m minus a squared mean: that cancels where the first component is the mean.
            B, unit, norm = in_units(centred.of_own)
            G = B.gram(V)
        variance = np.maximum(np.einsum("ij,ij->j", V, G), 0) / A.shape[0]
        total = (norm**2 if unit and norm is not None else squares) / A.shape[0]
        mean = np.ldexp(mean, -np.frexp(np.abs(mean).max(initial=0))[1])
        length = float(np.linalg.norm(mean))
        self.components_ = np.asarray(F.Vh, A.dtype)
        self.singular_values_ = F.S
        self.explained_variance_ = in_range(variance, unit)
        self.explained_variance_ratio_ = variance / total if total > 0 else 0 * variance
        self.mean_alignment_ = np.abs(mean @ V) / length if length > 0 else np.zeros(len(F.S))
        self.info_ = F.info

    @overload
    def fit_transform(self, X: LazyArray, y: Any = None) -> LazyArray: ...

    @overload
    def fit_transform(self, X: Any, y: Any = None) -> Panel: ...

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        return super().fit_transform(X, y)

    @overload
    def transform(self, X: LazyArray) -> LazyArray: ...

    @overload
    def transform(self, X: Any) -> Panel: ...

    def transform(self, X: Any) -> Any:
        check_is_fitted(self, "components_")
        if is_lazy(X):
            return scores_by_row(self, X)
        A = self._operator(X)
        with threads(A.costs.n_threads):
            Z = apply_all(getattr(self, "preprocess_", ()), A).matmat(self.components_.T.astype(np.float64))
        return np.asarray(Z, A.dtype)

    @as_one_fit
    def inverse_transform(self, X: Any) -> Any:
        """Return the points in the space of the data that have these scores.

        Parameters
        ----------
        X : array or Dask array of shape (n_samples, n_components)
            Scores, as `transform` gives them.

        Returns
        -------
        array of shape (n_samples, n_features)
            Of a Dask array, a Dask array.
        """
        check_is_fitted(self, "components_")
        return points(self, X, lambda Z: np.asarray(Z @ self.components_))

    def _checked_n_components(self, shape: tuple[int, int]) -> int | float:
        k, (m, n) = self.n_components, shape
        if isinstance(k, float | np.floating) and 0 < k < 1:
            return float(k)
        of = f" for a {m} x {n} matrix (n_features = {n}), or a share in (0, 1)"
        return integer("n_components", k, 1, min(shape), of)

    def _solver(self) -> str | Solver:
        name = either(self.solver, algorithm=self.algorithm)
        if self.algorithm is None:
            return name
        if self.algorithm not in ("arpack", "randomized"):
            raise refuse("algorithm", 'be "arpack", "randomized" or None', self.algorithm)
        if self.algorithm == "arpack":
            return BlockLanczos(self.tol or 0)
        extra, n_iter = (integer(name, getattr(self, name), 0) for name in ("n_oversamples", "n_iter"))
        return RandomizedSVD(extra, n_iter, self.power_iteration_normalizer)
