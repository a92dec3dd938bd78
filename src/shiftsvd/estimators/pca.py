"""PCA with scikit-learn's interface for dense and sparse data, which are centred implicitly."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np

from shiftsvd import names
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.estimators.attributes import beyond, in_range
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.features import move_fitted
from shiftsvd.estimators.fitted import minka_rank
from shiftsvd.estimators.settings import random_generator, shift_of_rows, solver_of, wanted
from shiftsvd.front import decompose, learned, tolerance
from shiftsvd.kernels import threads
from shiftsvd.missing.gaps import Observed
from shiftsvd.operators import Panel
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.shifts import MeanShift, row_weights
from shiftsvd.result import SVDResult
from shiftsvd.runs.messages import columns_called
from shiftsvd.solvers import Solver
from shiftsvd.solvers.factors import residual_square
from shiftsvd.transforms.chains import Preprocess, as_transforms, kept_names, width


class _Asked(NamedTuple):
    """Valid data and settings of a fit."""

    A: Observed
    k: int | float | Literal["mle"]
    rank: int | float
    solver: str | Solver
    tol: float
    rng: np.random.Generator
    preparation: Preparation


@dataclass(eq=False, repr=False)
class PCA(BatchPCA):
    """Principal components of ``(X - shift) diag(1 / scale)``, which is never formed; sparse X stays sparse.

    Parameters
    ----------
    n_components : int, float in (0, 1), "mle" or None
        Number of components; the share of the variance to exceed with the fewest; Minka's estimate (up to 5000
        features); None is min(n_samples, n_features).
    copy : bool
        Accepted for compatibility; input is never written.
    whiten : bool
        Scale the scores to unit variance.
    svd_solver : {"auto", "full", "covariance_eigh", "arpack", "randomized"}, optional
        scikit-learn's name for the solver; pass either `svd_solver` or `solver`.
    tol : float, optional
        Relative accuracy of the singular values. Default 1e-4; for "arpack" and "covariance_eigh", down to rounding.
    iterated_power : int or "auto"
        Power iterations of the randomized solvers given by name; "auto" is 7 or 4, as in scikit-learn.
    n_oversamples : int
        Extra samples of the randomized solvers given by name, and of `partial_fit`, there at least k.
    power_iteration_normalizer : {"auto", "QR", "LU", "CholeskyQR2", "none"}
        Normalization between the power iterations of "randomized".
    random_state : int, Generator, RandomState or None
        Seed or generator; None draws fresh entropy. NumPy's global random state is never used.
    shift : "mean", None, array of shape (n_features,), "rows", "both", `GroupMeans()` or `Covariates()`
        Shift to subtract, as in `svd`. `fit`, `transform` and the other methods take the `groups` of rows for
        `GroupMeans()`, and known `covariates` for `Covariates()`.
    scale : None, "std" or True, "pareto", or positive array of shape (n_features,)
        Divisor of the columns after the shift, as in `svd`.
    solver : str or Solver
        "auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized", or an object such as
        ``RandomizedSVD(n_iter=7)``, which has its own settings.
    missing : "error", "mean" or "em"
        Treatment of NaN, in new rows, too. "mean": missing entries equal the column means of the observed ones, and the
        scale is that of the observed entries. "em": they equal a model of n_components and column means fitted to the
        observed entries (`complete_matrix`), in units of `scale` if it is an array, and a regression projects new rows.
        Neither fills X in.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. A fit that needs more raises ValueError; near the limit the choice of
        "auto" may depend on the number of threads, as in `svd`.
    verbose : int
        Accepted for compatibility.
    scale_ddof : 0 or 1
        Standard deviations divide by ``n_samples - scale_ddof``: 0 as in `StandardScaler`, 1 as in scanpy.
    unobserved, penalty, max_iter : optional
        As in `svd`.
    preprocess : transformation, its name, or list of them
        Transformations of the entries before shift and scale, such as ``LogNormalize()`` or "pearson:theta=10": see
        `preprocess`. Sparse data stay sparse. `transform` applies the fitted transformations to new rows; means,
        scales, variances and `inverse_transform` refer to the transformed matrix.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features)
        The entry of each component that is largest in absolute value is positive.
    explained_variance_ : array of shape (n_components_,)
        ``singular_values_**2 / (n_samples - 1)``, in scaled units; for a shift other than the mean, a second moment
        about the shift. A variance outside the range of float64 (data beyond 1e154, or below 1e-154) is the largest
        float64 number, 0 or inaccurate, with a warning; so is `noise_variance_`. Other attributes are accurate.
    explained_variance_ratio_ : array of shape (n_components_,)
        Share of each component in the total variance of the shifted, scaled matrix. With ``missing="em"`` most entries
        may be predictions of the model, so shares close to 1 do not measure the fit; use ``info_.heldout_r2``.
    singular_values_ : array of shape (n_components_,)
        Values, variances and ratios are float64; components and scores have the type of the data.
    mean_ : array of shape (n_features,)
        Vector that is subtracted from every row, float64; with `GroupMeans()` and `Covariates()`, the column means.
    shift_ : LearnedGroups or LearnedCovariates
        The means of the groups, or the coefficients of the regression; only with those shifts.
    scale_ : array of shape (n_features,), or None
        Divisors of the columns.
    preprocess_ : tuple of Fitted
        Fitted transformations; only with `preprocess`.
    noise_variance_ : float
        Mean variance of the components beyond `n_components_` (Tipping & Bishop 1999), computed from
        `Info.frobenius_error`, so a tiny share of the total is accurate, too; 0 at rounding level. With
        ``missing="em"`` the noise variance is too small, because completed entries have no noise.
    n_iter_ : int
        Steps of the completion with ``missing="em"``, otherwise 1.
    n_components_, n_samples_, n_features_in_ : int
        With `Select` among the transformations, X has more features than the components.
    feature_names_in_ : array of str
        If X was a data frame.
    table_ : shiftsvd.io.Choices
        Options by which ``shiftsvd fit`` read the table, if the input was a table.
    unseen_variance_ : float
        After `partial_fit` only: bound of the amount by which exact variances exceed `explained_variance_`.
    info_ : Info
        Solver, passes, rank, and accuracy.

    See Also
    --------
    svd : The decomposition as a function.
    TruncatedSVD : Decomposition without centring.
    suggest_k : Choose the number of components.

    Notes
    -----
    Passes: one to validate the values, one for the moments, and those of the solver (`Info.n_passes`); shifts that
    differ between rows take two more. scikit-learn's metadata routing passes `groups` and `covariates` through
    pipelines: ``pca.set_fit_request(groups=True).set_transform_request(groups=True)``.

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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, covariates: Any = None) -> Self:
        """Compute the components of X.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Dask array of shape (n_samples, n_features)
            Training data. Column names of polars 2 are stored with scikit-learn 1.9 and newer only.
        y : ignored
            For scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Frequencies: a weight of 2 is the row twice, a weight of 0 is no row.
        groups : array of shape (n_samples,), optional
            The group of each row, for ``shift=GroupMeans()``.
        covariates : array of shape (n_samples, p) or (n_samples,), optional
            Known values of each row, for ``shift=Covariates()``.

        Returns
        -------
        PCA
            The estimator itself.

        Raises
        ------
        ValueError
            For invalid data or settings, before anything is computed.
        """
        with threads(self.n_threads):
            A, k, rank, solver, tol, rng, preparation = self._asked(X, sample_weight, groups, covariates)
            completion, limit = (self.missing, rng, self.penalty, self.max_iter), self.memory_limit
            with columns_called(kept_names(vars(self).get("feature_names_in_"), preparation.entries, A.shape[1])):
                prepared, account = learned(A, preparation, rank, solver, tol, limit, *completion)
            variance, unit = prepared.total_variance
            A, start = prepared.of_own, prepared.training.product
            F = decompose(A, rank, solver, tol, rng, limit, perturbation=prepared.perturbation, start=start)
            F.info = account.added_to(F.info)
            if k == "mle":
                F = F.truncate(minka_rank(np.ldexp(F.S, -unit) ** 2 / (prepared.count - 1), int(prepared.count)))
            # Only now: a fit that raises an error must not change the estimator.
            self._forget()
            self._set(F, prepared, len(F.S) if k else 0, variance, unit)
            self.n_iter_ = account.n_iter
        move_fitted(self, X)
        return self

    def _asked(self, X: Any, sample_weight: Any = None, groups: Any = None, covariates: Any = None) -> _Asked:
        A = self._observed(X, reset=True, least=2)
        entries = as_transforms(self.preprocess)
        shape = A.shape[0], width(entries, A.shape[1])
        k = wanted(self.n_components, shape, self.svd_solver)
        rng = random_generator(self.random_state)
        tol, solver = tolerance(self.solver, self.tol), solver_of(self, k, shape)
        shift = shift_of_rows(self.shift, self.missing, {"groups": groups, "covariates": covariates})
        weights = row_weights(sample_weight, A.shape[0])
        preparation = Preparation(shift, self.scale, weights, self.scale_ddof, entries)
        return _Asked(A, k, min(shape) if k == "mle" else k or 1, solver, tol, rng, preparation)

    def _set(self, F: SVDResult, prepared: Prepared, k: int, variance: float, unit: int) -> None:
        B, freedom, S = prepared.of_own, prepared.count - 1, F.S[:k]
        if isinstance(prepared.shift, MeanShift):
            self.mean_ = prepared.shift.mean
        else:
            self.mean_, self.shift_ = prepared.column_means, prepared.shift
        self.scale_ = prepared.scale
        if prepared.entries:
            self.preprocess_ = prepared.entries
        self.n_samples_, self.n_components_ = B.shape[0], k
        self.components_ = np.asarray(F.Vh[:k], B.dtype)
        self.singular_values_ = S
        explained = np.ldexp(S, -unit) ** 2 / freedom
        self.explained_variance_ = in_range(explained, unit)
        self.explained_variance_ratio_ = explained / variance if variance > 0 else np.zeros(k)
        C = times_powers(B, 0, -unit) if unit else B
        rest = residual_square(C, F.times_power(-unit), k, variance * freedom) / freedom
        left_out = min(B.shape[1], prepared.count) - k
        with np.errstate(over="ignore"):  # the warning is that of `in_range`
            noise = float(np.ldexp(rest / left_out, 2 * unit)) if left_out >= 1 else 0.0
        self.noise_variance_ = min(noise, float(np.finfo(np.float64).max))
        if prepared.count != B.shape[0] and beyond(S, self.explained_variance_):
            self._freedom = freedom  # `explained_variance_` is out of range, so it cannot be computed from that
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
        """Fit to X and return the scores of all rows, also of rows with weight 0, shape (n_samples, n_components_)."""
        data = {"groups": groups, "covariates": covariates}
        return self.fit(X, y, sample_weight=sample_weight, **data).transform(X, **data)
