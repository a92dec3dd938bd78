"""PCA that swaps in for scikit-learn's, on dense and sparse data, centred without being centred."""

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal, Self, overload

import numpy as np

from shiftsvd import names
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.fitted import beyond, in_range, minka_rank
from shiftsvd.estimators.native import fitted_natively
from shiftsvd.estimators.settings import Asked, as_one_fit, random_generator, shift_of_rows, wanted
from shiftsvd.front import accuracy, check_complete, decompose, planned
from shiftsvd.missing import completed
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.scales import row_weights
from shiftsvd.preparation.shifts import Plain
from shiftsvd.result import SVDResult
from shiftsvd.solvers import Solver
from shiftsvd.solvers.auto import check_solver
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.factors import left_over
from shiftsvd.transforms.chains import Preprocess, as_transforms, width


@dataclass(eq=False, repr=False)
class PCA(BatchPCA):
    """Principal components of ``(X - shift) diag(1 / scale)``, which is never formed; sparse X stays sparse.

    Parameters
    ----------
    n_components : int, float in (0, 1), "mle" or None
        Number of components; a share of the variance to exceed, by the fewest components; Minka's estimate (up
        to 5000 features); None is min(n_samples, n_features), whatever the weights of the samples.
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
    scale : None, "std" or True, "pareto", or positive array of shape (n_features,)
        The standard deviation of the columns after the shift, its square root, a vector; columns without variance
        are left as they are, with a warning.
    solver : str or Solver
        "auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized", or an object such as
        ``RandomizedSVD(n_iter=7)``, which brings its own settings.
    missing : "error", "mean" or "em"
        What to do with NaN. "mean": missing entries equal the shift, the column means of the observed entries, and
        cost nothing; the scale is that of the observed entries; new rows are treated alike. "em": they equal a model
        of n_components and column means fitted to the observed entries (`complete_matrix`), and new rows
        are projected by a regression on theirs. Neither fills X in. The variances are then those of the completed
        matrix, which holds the model's own entries; `Info.heldout_r2` in `info_` says how well it predicts others.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused; where it is tight, "auto" may take
        another solver for another number of threads, as in `svd`.
    verbose : int
        Accepted for compatibility.
    scale_ddof : 0 or 1
        Deviations are roots of sums of squares over ``n_samples - scale_ddof``: 0 as in `StandardScaler`, 1 in scanpy.
    unobserved : bool
        Whether entries that a sparse X does not store are missing, as in ratings; by default they are zeros.
    penalty : float of at least 0, or "auto"
        Of the completion with ``missing="em"``: what is subtracted from its singular values; see `complete_matrix`.
    max_iter : int
        Of the completion: the most steps. One that is not done by then gives ``info_.converged=False``, and a warning.
    preprocess : transformation, its name, or list of them
        What is done to the entries before anything else, such as ``LogNormalize()``, or by its name, such as
        "pearson" or "pearson:theta=10": see `preprocess`. Nothing becomes dense. `transform` does with new rows what
        was learned from those of the training; means, scales, variances and `inverse_transform` are those of the
        transformed matrix.

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
    preprocess_ : tuple of Fitted
        What the transformations have learned; only where there are any.
    noise_variance_ : float
        Mean variance of the left out components (Tipping & Bishop 1999), from `Info.frobenius_error`, so that it is
        right where it is a tiny share of the total; 0 where what is left is rounding. With ``missing="em"`` too small
        by what the completed entries, which have no noise, take from it.
    n_iter_ : int
        Steps of the completion with ``missing="em"``, otherwise 1.
    n_components_, n_samples_, n_features_in_ : int
        With `Select` among the transformations, the features of X are more than those of the components.
    feature_names_in_ : array of str
        If X was a data frame.
    table_ : shiftsvd.io.Choices
        What was said of the table that ``shiftsvd fit`` read; only where something was.
    unseen_variance_ : float
        After `partial_fit` only: no exact variance is larger than `explained_variance_` by more.
    info_ : Info
        Solver, passes, rank, and what is known of the accuracy.

    See Also
    --------
    svd : The decomposition alone.
    TruncatedSVD : Without a mean.
    suggest_k : How many components.

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

    n_components: int | float | Literal["mle"] | None = None
    _: KW_ONLY
    copy: bool = True
    whiten: bool = False
    svd_solver: names.SklearnSolverName | None = None
    tol: float | None = None
    iterated_power: int | Literal["auto"] = "auto"
    n_oversamples: int = 10
    power_iteration_normalizer: names.NormalizerName = "auto"
    random_state: Any = None
    shift: names.ShiftName | names.VectorLike | GroupMeans | Covariates | None = "mean"
    scale: bool | names.ScaleName | names.VectorLike | None = None
    solver: names.SolverName | Solver = "auto"
    missing: names.MissingName = "error"
    n_threads: int | None = None
    memory_limit: int | str | None = None
    verbose: int = 0
    scale_ddof: int = 0
    unobserved: bool = False
    penalty: float | Literal["auto"] = "auto"
    max_iter: int = names.MAX_ITER
    preprocess: Preprocess | None = None

    @fitted_natively
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None) -> Self:
        """Find the components of X.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Dask array of shape (n_samples, n_features)
            The rows that components are learned from.
        y : ignored
            Not used; there for scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Frequencies: a weight of 2 is the row twice, a weight of 0 is no row.
        groups : array of shape (n_samples,), optional
            The group of each row, for ``shift=GroupMeans()``.
        covariates : array of shape (n_samples, p) or (n_samples,), optional
            What is known of each row, for ``shift=Covariates()``.

        Returns
        -------
        PCA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            For data or settings that cannot be; nothing is computed before they are checked.
        """
        self._learn(X, sample_weight, groups, covariates)
        return self

    @as_one_fit
    def _learn(self, X: Any, sample_weight: Any = None, groups: Any = None, covariates: Any = None) -> Prepared:
        A = self._given(X, reset=True, least=2)
        weights = row_weights(sample_weight, A.shape[0])
        entries, tol = as_transforms(self.preprocess), TOL if self.tol is None else self.tol
        shape = A.shape[0], width(entries, A.shape[1])
        k = wanted(self.n_components, shape, self.svd_solver)
        rng = random_generator(self.random_state)
        solver = Asked(*(getattr(self, setting.name) for setting in fields(Asked))).solver_for(k, shape)
        shift = shift_of_rows(self.shift, {"groups": groups, "covariates": covariates})
        check_complete(entries, self.missing)
        preparation = Preparation(shift, self.scale, weights, self.scale_ddof, entries, accuracy(solver, tol))
        preparation.check(A.shape[1])
        check_solver(solver, k)
        A, moments, account = completed(A, self.missing, self.shift, k, weights, rng, self.penalty, self.max_iter)
        count = min(shape) if k == "mle" else k or 1
        A = planned(A, preparation.entries, count, solver, tol, self.memory_limit)
        prepared = preparation.learn(A, moments)
        B, (variance, unit) = prepared.of(A), prepared.total_variance
        F = decompose(B, count, solver, tol, rng, self.memory_limit, off=prepared.off)
        F.info = account.told(F.info)
        if k == "mle":
            F = F.truncate(minka_rank(np.ldexp(F.S, -unit) ** 2 / (prepared.count - 1), int(prepared.count)))
        # Only now: a fit that is refused leaves the estimator as it was.
        self._forget()
        learned = prepared.shift
        if isinstance(learned, Plain):
            self.mean_ = learned.mean
        else:
            self.mean_, self.shift_ = prepared.column_means, learned
        self.scale_, self.n_iter_ = prepared.scale, account.n_iter
        if entries:
            self.preprocess_ = prepared.entries
        self._set(F, variance, prepared.count, B, len(F.S) if k else 0, unit)
        return prepared

    def _set(self, F: SVDResult, variance: float, total: float, B: Operator, k: int, unit: int) -> None:
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
        if total != B.shape[0] and beyond(S, self.explained_variance_):
            self._freedom = total - 1  # what `explained_variance_` would tell
        self.info_ = F.info

    @overload
    def fit_transform(
        self, X: names.LazyArray, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None
    ) -> names.LazyArray: ...

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
