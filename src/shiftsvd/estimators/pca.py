"""PCA that swaps in for scikit-learn's, on dense and sparse data, centred without being centred."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from shiftsvd import streaming
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.estimators.extremes import beyond, deviations, in_range, refuse_beyond
from shiftsvd.estimators.features import points, scores
from shiftsvd.estimators.likelihood import PPCA, minka_rank
from shiftsvd.estimators.missing import given, new_rows
from shiftsvd.estimators.samples import checked
from shiftsvd.estimators.settings import (
    check_shift,
    chosen_solver,
    data_of_rows,
    learned_shift,
    random_generator,
    wanted,
)
from shiftsvd.estimators.threaded import as_one_fit
from shiftsvd.front import decompose
from shiftsvd.kernels import stepwise
from shiftsvd.missing import MAX_ITER, completed
from shiftsvd.names import (
    LazyArray,
    MissingName,
    NormalizerName,
    ScaleName,
    ShiftName,
    SklearnSolverName,
    SolverName,
    VectorLike,
)
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import LowRank, Operator, Panel, Scaled
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.scales import check_scale, moments_in_units, resolve_scale, squares_in_units
from shiftsvd.preparation.vectors import row_weights
from shiftsvd.result import SVDResult
from shiftsvd.shifts import Learned, Plain, of_each_row
from shiftsvd.solvers import Solver, check_solver
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.remainder import left_over


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal components of ``(X - shift) diag(1 / scale)``, which is never formed; sparse X stays sparse.

    Parameters
    ----------
    n_components : int, float in (0, 1), "mle" or None
        Number of components; a share of the variance to exceed, by the fewest components; Minka's estimate (up
        to 5000 features); None is min(n_samples, n_features).
    copy : bool
        Accepted for compatibility; input is never written.
    whiten : bool
        Scores of unit variance.
    svd_solver : {"auto", "full", "covariance_eigh", "arpack", "randomized"}, optional
        scikit-learn's spelling of `solver`, with scikit-learn's meaning; give one of the two.
    tol : float, optional
        Relative accuracy of the singular values. Default 1e-4, or down to rounding where `svd_solver` is given.
    iterated_power : int or "auto"
        Power iterations of the randomized solvers given by name; "auto" is 7 or 4, as in scikit-learn.
    n_oversamples : int
        Extra samples of the randomized solvers given by name ("shifted-randomized": at least k of them), and of
        `partial_fit`, at least k.
    power_iteration_normalizer : {"auto", "QR", "LU", "CholeskyQR2", "none"}
    random_state : int, Generator, RandomState or None
        None is fresh entropy; the global state is never read.
    shift : "mean", None, array of shape (n_features,), "rows", "both", `GroupMeans()` or `Covariates()`
        What is subtracted: the column means, nothing, a vector, the own mean of every row, the means of rows and
        columns (double centring), the mean of the group that a row is in (`fit`, `transform` and the others take
        `groups`), what a regression on known covariates explains (they take `covariates`).
    scale : False, True or "std", "pareto", or positive array of shape (n_features,)
        The standard deviation of the columns after the shift, its square root, a vector; columns without variance
        are left as they are, with a warning.
    solver : str or Solver
        "auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized", or an object such as
        ``RandomizedSVD(n_iter=7)``, which brings its own settings.
    missing : "error", "mean" or "em"
        What to do with NaN. "mean": missing entries equal the shift, the column means of the observed entries, and
        cost nothing; the scale is that of the observed entries; new rows are treated alike. "em": they equal a model
        of n_components and column means fitted to the observed entries (`complete`), and new rows
        are projected by a regression on theirs. Neither fills X in. The variances are then those of the completed
        matrix, which holds the model's own entries; `Info.heldout_r2` in `info_` says how well it predicts others.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.
    verbose : int
        Accepted for compatibility.
    scale_ddof : 0 or 1
        The standard deviation divides by the number of rows minus this: 0 as in `StandardScaler`, 1 as in scanpy.
    unobserved : bool
        Whether entries that a sparse X does not store are missing, as in ratings; by default they are zeros.
    penalty : float of at least 0, or "auto"
        Of the completion with ``missing="em"``: what is subtracted from its singular values; see `complete`.
    max_iter : int
        Of the completion: the most steps. One that is not done by then gives ``info_.converged=False``, and a warning.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features)
        The largest entry of each is positive.
    explained_variance_ : array of shape (n_components_,)
        ``singular_values_**2 / (n_samples - 1)``, in scaled units; for a shift that is not the mean, a second
        moment about the shift. Where the square leaves the range of numbers (data beyond 1e154, or below 1e-154), it is
        the largest number there is, or 0 or short of digits, and so is `noise_variance_`; a warning says so, and all
        else that is fitted is right at any scale.
    explained_variance_ratio_ : array of shape (n_components_,)
        Its share of the total variance of the shifted, scaled matrix, which is summed over the data; 0 where that is
        0. With ``missing="mean"`` the matrix has means in place of what is missing, which add nothing to the total.
        With ``missing="em"`` it is the completed one, most of which may be the model's own: the shares are then close
        to 1 for data that no model predicts, and say nothing of the fit. ``info_.heldout_r2`` does.
    singular_values_ : array of shape (n_components_,)
        Values, variances and ratios are float64 whatever the data are; components and scores are as the data.
    mean_ : array of shape (n_features,)
        What is subtracted from every row, float64; with `GroupMeans()` and `Covariates()`, the column means.
    shift_ : LearnedGroups or LearnedCovariates
        The means of the groups, or the coefficients of the regression; only with those shifts.
    scale_ : array of shape (n_features,), or None
        What the columns are divided by.
    noise_variance_ : float
        Mean variance of the left out components (Tipping & Bishop 1999), from `Info.frobenius_error`, so that it is
        right where it is a tiny share of the total; 0 where what is left is rounding. With ``missing="em"`` too small
        by what the completed entries, which have no noise, take from it.
    n_iter_ : int
        Steps of the completion with ``missing="em"``, otherwise 1.
    n_components_, n_samples_, n_features_in_ : int
    feature_names_in_ : array of str
        If X was a data frame.
    unseen_variance_ : float
        After `partial_fit` only: no exact variance is larger than `explained_variance_` by more.
    info_ : Info
        Solver, passes, rank, and what is known of the accuracy.

    Notes
    -----
    Cost: one read to check the values, one pass for the moments, and those of the solver (`Info.n_passes`); shifts that
    are not the same for every row take two more.

    Where `groups` or `covariates` are needed, scikit-learn's metadata routing brings them through pipelines and
    cross-validation: ``pca.set_fit_request(groups=True).set_transform_request(groups=True)``.

    References
    ----------
    Basirat (2019); Halko, Martinsson & Tropp (2011); Tipping & Bishop (1999); Minka (2000).

    Examples
    --------
    >>> import shiftsvd as ss
    >>> from scipy.sparse import random_array
    >>> X = random_array((1000, 50), density=0.05, format="csr", rng=0)
    >>> ss.PCA(n_components=3).fit_transform(X).shape
    (1000, 3)
    """

    def __init__(
        self,
        n_components: int | float | Literal["mle"] | None = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: SklearnSolverName | None = None,
        tol: float | None = None,
        iterated_power: int | Literal["auto"] = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: NormalizerName = "auto",
        random_state: Any = None,
        shift: ShiftName | VectorLike | GroupMeans | Covariates | None = "mean",
        scale: bool | ScaleName | VectorLike | None = False,
        solver: SolverName | Solver = "auto",
        missing: MissingName = "error",
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        verbose: int = 0,
        scale_ddof: int = 0,
        unobserved: bool = False,
        penalty: float | Literal["auto"] = "auto",
        max_iter: int = MAX_ITER,
    ) -> None:
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.shift = shift
        self.scale = scale
        self.solver = solver
        self.missing = missing
        self.n_threads = n_threads
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.scale_ddof = scale_ddof
        self.unobserved = unobserved
        self.penalty = penalty
        self.max_iter = max_iter

    @as_one_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None) -> Self:
        """Find the components of X.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Dask array of shape (n_samples, n_features)
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Frequencies: a weight of 2 is the row twice, a weight of 0 is no row.
        groups : array of shape (n_samples,), optional
            The group of each row, for ``shift=GroupMeans()``.
        covariates : array of shape (n_samples, p) or (n_samples,), optional
            What is known of each row, for ``shift=Covariates()``.

        Returns
        -------
        PCA

        Raises
        ------
        ValueError
            For data or settings that cannot be; nothing is computed before they are checked.
        """
        A = given(self, checked(self, X, reset=True))
        weights = row_weights(sample_weight, A.shape[0])
        total = float(A.shape[0]) if weights is None else float(weights.sum())
        k = wanted(self.n_components, A.shape, self.svd_solver)
        rng = random_generator(self.random_state)
        solver = chosen_solver(self, A, k)
        data = {"groups": groups, "covariates": covariates}
        check_shift(self.shift, A.shape[1], data)
        check_scale(self.scale, A.shape[1], self.scale_ddof)
        check_solver(solver, k)
        A, moments, account = completed(A, self.missing, self.shift, k, weights, rng, self.penalty, self.max_iter)
        if moments.M2 is None:
            raise ValueError(f"PCA needs the variances of the columns, which {A} cannot give; use svd")
        S, learned = learned_shift(self.shift, A, moments, weights, data)
        before, after, e = moments_in_units(A, S, moments, weights)
        scale = resolve_scale(self.scale, A.shape[1], after, before, self.scale_ddof, e)
        B = _shifted(A, S, scale)
        if weights is not None:
            B = Scaled(B, rows=np.sqrt(weights))
        squares, unit = squares_in_units(after, scale, e, B)
        variance = squares / (total - 1)
        tol = TOL if self.tol is None else self.tol
        F = decompose(B, min(A.shape) if k == "mle" else k or 1, solver, tol, rng, self.memory_limit)
        F.info = account.told(F.info)
        if k == "mle":
            F = F.truncate(minka_rank(np.ldexp(F.S, -unit) ** 2 / (total - 1), int(total)))
        # Only now: a fit that is refused leaves the estimator as it was.
        streaming.forget(self)
        self.mean_, self.scale_ = learned.mean if isinstance(learned, Plain) else moments.mean, scale
        self.__dict__.pop("shift_", None)
        self.n_iter_ = account.n_iter
        if not isinstance(learned, Plain):
            self.shift_ = learned
        self._set(F, variance, total, B, len(F.S) if k else 0, unit)
        return self

    def _set(self, F: SVDResult, variance: float, total: float, B: Operator, k: int, unit: int) -> None:
        """The fitted attributes of the first k components of B; `variance` is over ``4^unit``."""
        S = F.S[:k]
        explained = np.ldexp(S, -unit) ** 2 / (total - 1)
        left_out = min(B.shape[1], total) - k
        self.n_samples_ = B.shape[0]
        self.n_components_ = k
        self.components_ = np.asarray(F.Vh[:k], B.dtype)
        self.singular_values_ = S
        self.explained_variance_ = in_range(explained, unit)
        self.explained_variance_ratio_ = explained / variance if variance > 0 else np.zeros(k)
        C = times_powers(B, 0, -unit) if unit else B
        rest = left_over(C, F.times_power(-unit), k, variance * (total - 1)) / (total - 1)
        with np.errstate(over="ignore"):  # the warning is that of `in_range`
            noise = float(np.ldexp(rest / left_out, 2 * unit)) if left_out >= 1 else 0.0
        self.noise_variance_ = min(noise, float(np.finfo(np.float64).max))
        self.__dict__.pop("_freedom", None)
        if total != B.shape[0] and beyond(self):
            self._freedom = total - 1  # what `explained_variance_` would tell
        self.info_ = F.info

    @overload
    def fit_transform(
        self, X: LazyArray, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None
    ) -> LazyArray: ...

    @overload
    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None
    ) -> Panel: ...

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None
    ) -> Any:
        """``fit(X).transform(X)``: scores of every row, whatever its weight, shape (n_samples, n_components_)."""
        data = {"groups": groups, "covariates": covariates}
        return self.fit(X, y, sample_weight=sample_weight, **data).transform(X, **data)

    @overload
    def transform(self, X: LazyArray, groups: Any = None, covariates: Any = None) -> LazyArray: ...

    @overload
    def transform(self, X: Any, groups: Any = None, covariates: Any = None) -> Panel: ...

    @as_one_fit
    def transform(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Scores ``(X - shift) diag(1 / scale_) components_.T``, with the shift and scale of the training data.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Dask array of shape (n_samples, n_features)
        groups, covariates : array, optional
            Those of these rows, as in `fit`; the group means and coefficients are those of the training data.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Of a Dask array, a Dask array with the same chunks of rows; nothing is computed, unless the scores
            take groups or covariates.

        Raises
        ------
        ValueError
            For groups that no training row is in.

        Notes
        -----
        One pass; sparse X stays sparse.
        """
        check_is_fitted(self, "components_")
        learned, _ = self._learned(groups, covariates)
        return scores(self, X, lambda X: _joined(self.iter_scores(X, groups, covariates)), learned.needs is None)

    def iter_scores(self, X: Any, groups: Any = None, covariates: Any = None) -> Iterator[tuple[int, Panel]]:
        """Scores part by part: ``(first row, scores of the rows from there on)``, in order.

        Parameters
        ----------
        X : what `transform` takes, or an operator such as `shiftsvd.io.open_matrix` gives
        groups, covariates : array, optional
            As in `transform`.

        Yields
        ------
        (int, array of shape (rows, n_components_))

        Notes
        -----
        One pass. Data that are read from a file are never held, nor are their scores.
        """
        yield from stepwise(self._scored(X, groups, covariates), self.n_threads)

    def _scored(self, X: Any, groups: Any, covariates: Any) -> Generator[tuple[int, Panel], None, None]:
        """Scores part by part."""
        check_is_fitted(self, "components_")
        A = self._operator(X, reset=False)
        for lo, Z in self._score_parts(self._minus_shift(A, groups, covariates)):
            yield lo, (Z / self._deviations() if self.whiten else Z).astype(A.dtype, copy=False)

    @as_one_fit
    def inverse_transform(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Points in the space of the data, in its units, from scores of shape (n_samples, n_components_).

        Means of groups and what covariates explain are added back, the means of columns too; the own means of rows,
        which ``shift="rows"`` and "both" subtract, are not known.

        Returns
        -------
        array of shape (n_samples, n_features)
            Of a Dask array, a Dask array, as with `transform`.
        """
        check_is_fitted(self, "components_")
        learned, data = self._learned(groups, covariates)

        def found(Z: Panel) -> Panel:
            back = (Z * self._deviations() if self.whiten else Z) @ self.components_
            if self.scale_ is not None:
                back = back * self.scale_
            back = back + learned.points(len(Z), data)
            return np.asarray(back.astype(np.result_type(Z.dtype, self.components_.dtype)))

        return points(self, X, found, learned.needs is None)

    @as_one_fit
    def score_samples(self, X: Any, groups: Any = None, covariates: Any = None) -> Vector:
        """Log-likelihood of each row under the probabilistic model, in the units of X; shape (n_samples,).

        Notes
        -----
        Two passes; no matrix of n_features x n_features is formed (Tipping & Bishop 1999). Where the noise
        variance is 0 the model lives on the space of the components: the likelihood is that of the
        degenerate normal distribution there, minus infinity elsewhere. Where the variances leave the range of
        numbers (see `explained_variance_`) this, `score`, `get_covariance` and `get_precision` raise ValueError.
        """
        check_is_fitted(self, "components_")
        refuse_beyond(self)
        A = self._minus_shift(self._operator(X, reset=False), groups, covariates)
        Z = _joined(self._score_parts(A))
        rest = (A - LowRank(Z, self.components_.T)).row_squares()
        return self._model().log_likelihood(Z, np.asarray(rest))

    def score(self, X: Any, y: Any = None, groups: Any = None, covariates: Any = None) -> float:
        """Mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X, groups, covariates)))

    @as_one_fit
    def get_covariance(self) -> Panel:
        """Covariance of the model in the units of X, shape (n_features, n_features)."""
        check_is_fitted(self, "components_")
        return self._model().covariance()

    @as_one_fit
    def get_precision(self) -> Panel:
        """Inverse of `get_covariance`, by the formula of Woodbury."""
        check_is_fitted(self, "components_")
        return self._model().precision()

    @property
    def _n_features_out(self) -> int:
        """Number of columns of the output, for the names of scikit-learn."""
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _operator(self, X: Any, reset: bool) -> Operator:
        """X checked, with something in place of its missing entries if there may be any."""
        return new_rows(self, given(self, checked(self, X, reset)))

    def _learned(self, groups: Any, covariates: Any) -> tuple[Learned, Any]:
        """The shift of the training data, and what it has to know of these rows."""
        learned: Learned = getattr(self, "shift_", None) or Plain(self.mean_, of_each_row(self.shift))
        return learned, data_of_rows(learned.needs, self.shift, {"groups": groups, "covariates": covariates})

    def _minus_shift(self, A: Operator, groups: Any, covariates: Any) -> Operator:
        """Rows of A minus their shift, in units of the scale."""
        learned, data = self._learned(groups, covariates)
        return _shifted(A, learned.of(A, data), self.scale_)

    def _score_parts(self, A: Operator) -> Iterator[tuple[int, Panel]]:
        """Scores of shifted rows before whitening, part by part."""
        return A.row_products(self.components_.T.astype(np.float64))

    def _deviations(self) -> Vector:
        """Standard deviations of the scores; a tiny number where there is none, so that nothing becomes NaN."""
        return deviations(self)

    def _model(self) -> PPCA:
        """The Gaussian model; whitened, its variances are those that scikit-learn gives it."""
        refuse_beyond(self)
        variance, noise = self.explained_variance_.astype(np.float64), self.noise_variance_
        if self.whiten:
            # scikit-learn multiplies the excess variance by the variance once more, and its own tests hold it
            # to that. A drop-in follows, though a change of units of the scores should not change the model.
            variance = noise + np.maximum(variance - noise, 0) * variance
        return PPCA(self.components_, variance, noise, self.scale_)

    def save(
        self,
        path: str | PathLike[str],
        *,
        force: bool = False,
        names: Sequence[str] | None = None,
        source: str | None = None,
    ) -> None:
        """Write the fitted model to a file without pickle; see `shiftsvd.model_file.save`.

        Parameters
        ----------
        path : path
        force : bool
            Replace a file of that name.
        names : sequence of str, optional
            Names of the features, in place of `feature_names_in_`.
        source : str, optional
            Where the data came from, for whoever reads the file.
        """
        from shiftsvd.model_file import save

        save(self, path, force=force, names=names, source=source)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "PCA":
        """The fitted model in a file that `save` wrote; see `shiftsvd.load`."""
        from shiftsvd.model_file import load

        return load(path, cls)

    def to_sklearn(self) -> Any:
        """The same transform by classes of scikit-learn alone, fitted.

        Returns
        -------
        sklearn.decomposition.PCA
            Or, where there is a scale, a Pipeline of a StandardScaler that only divides (so that it takes sparse
            data) and a PCA of the scaled data.

        Notes
        -----
        Data far off-centre lose digits there: scikit-learn subtracts the mean after multiplying.

        Examples
        --------
        >>> import shiftsvd as ss
        >>> from sklearn.datasets import load_digits
        >>> ss.PCA(n_components=5, random_state=0).fit(load_digits().data).to_sklearn()
        PCA(n_components=5)
        """
        from shiftsvd.estimators.export import as_sklearn

        check_is_fitted(self, "components_")
        return as_sklearn(self)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to those that it was given before, one or many from the first batch on; sparse X stays sparse.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Frequencies, as in `fit`; in one batch all may be 0.

        Returns
        -------
        PCA
            Fitted from the second row on. Mean and total variance are exact; each exact variance lies between
            `explained_variance_` and that plus `unseen_variance_`. Up to 4096 features all of the scatter matrix is
            kept where `memory_limit` allows, and then the components are exact too, to rounding: the spectrum is
            that of all rows. Beyond, they are those of a sketch of ``ell = k + max(k, n_oversamples)`` columns.

        Raises
        ------
        ValueError
            For data or settings that cannot be: a scale that would have to be learned, a share of the variance.

        Notes
        -----
        Kept are n_features^2 numbers (134 MB for 4096 features), or of a sketch 4 n_features x ell: ``S Omega`` for
        the scatter matrix S, to which neither the order nor the size of batches matters beyond rounding, and the
        `ell` directions found so far, as by IncrementalPCA but sparse and with more of them; those depend on the order
        by what `ell` directions cannot hold. Both together are at least as near to S as the sketch alone, and never
        more than S. `shiftsvd.merge` joins what was fitted apart, and `refine` comes nearer to the exact components.
        Two reads of a batch; six at most of one with more than ell rows, where a sketch is kept. The solver settings of
        `fit` do not matter here, and what `fit` was given does not belong to the stream: the first `partial_fit`
        begins anew.

        Frobenius norm of what 50 components leave of sparse counts, 60 000 x 2 000, over the least there is, less 1:
        0 whole; with a sketch of 2 k columns 0.00003 in 1 batch, 0.0002 in 7, 0.0008 in 1000. IncrementalPCA of
        scikit-learn: 0.001 in 7, 0.003 in 1000 (benchmarks/batches.py).

        References
        ----------
        Tropp, Yurtsever, Udell & Cevher (2017), Fixed-rank approximation of a positive-semidefinite matrix from
        streaming data; Ross, Lim, Lin & Yang (2008), Incremental learning for robust visual tracking.

        Examples
        --------
        >>> import shiftsvd as ss
        >>> from scipy.sparse import random_array
        >>> X = random_array((1000, 50), density=0.05, format="csr", rng=0)
        >>> pca = ss.PCA(n_components=3, random_state=0)
        >>> for lo in range(0, 1000, 333):
        ...     pca = pca.partial_fit(X[lo : lo + 333])
        >>> pca.n_samples_
        1000
        """
        streaming.partial_fit(self, X, sample_weight)
        return self

    def __getattr__(self, name: str) -> Any:
        """Fitted attributes of a stream, which are made when one of them is asked for."""
        return streaming.recover(self, name)

    def refine(self, X: Any, passes: int = 1, sample_weight: Any = None) -> Self:
        """Come nearer to the exact components of a stream by reading all its rows again, in any order.

        Parameters
        ----------
        X : array, sparse matrix, data frame, or what `shiftsvd.io.open_matrix` gives
            All rows that `partial_fit` was given.
        passes : int
            Reads of X.
        sample_weight : array of shape (n_samples,), optional
            All weights that `partial_fit` was given.

        Returns
        -------
        PCA
            It can be fitted and merged further. Without a sketch it is exact as it is, and X is not read.
        """
        streaming.refine(self, X, passes, sample_weight)
        return self


def _shifted(A: Operator, S: LowRank | None, scale: Vector | None) -> Operator:
    """``(A - S) diag(1 / scale)``."""
    B = A if S is None else A - S
    return B if scale is None else Scaled(B, cols=1 / scale)


def _joined(parts: Iterable[tuple[int, Panel]]) -> Panel:
    """All rows of panels that come part by part."""
    panels = [panel for _, panel in parts]
    return panels[0] if len(panels) == 1 else np.concatenate(panels)
