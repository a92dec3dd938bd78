"""Methods of a fitted PCA: scores, reconstruction, likelihood, files, export to scikit-learn."""

from collections.abc import Generator, Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shiftsvd.algebra.scaled import times_powers
from shiftsvd.backends import is_lazy
from shiftsvd.backends.validation import named
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.estimators import evidence, features
from shiftsvd.estimators.evidence import Influence, Neighbors, Stability
from shiftsvd.estimators.ppca import PPCA
from shiftsvd.estimators.settings import data_of_rows, random_generator
from shiftsvd.front import integer, nonnegative
from shiftsvd.kernels import stepwise
from shiftsvd.missing.completion import mean_rows, regressed_rows, with_missing
from shiftsvd.missing.gaps import Observed, with_nan
from shiftsvd.names import LazyArray
from shiftsvd.numerics.powers import SQUARED, check_size, largest_of
from shiftsvd.operators import LowRank, Operator, Panel, Vector
from shiftsvd.preparation.covariates import labels_of_rows
from shiftsvd.preparation.prepare import Prepared
from shiftsvd.preparation.shifts import Learned, MeanShift, of_each_row
from shiftsvd.runs.messages import warn

OURS = {"scale_", "info_", "n_iter_", "unseen_variance_"}  # fitted attributes without a counterpart in scikit-learn

VALUES = ("singular_values_", "explained_variance_", "explained_variance_ratio_")


def _behind_a_scaler(pca: Any, model: Any) -> Any:
    from sklearn import pipeline, preprocessing

    scaler = preprocessing.StandardScaler(with_mean=False)
    scaler.mean_, scaler.scale_, scaler.var_ = model.mean_.copy(), model.scale_.copy(), model.scale_**2
    scaler.n_samples_seen_, scaler.n_features_in_ = model.n_samples_, model.n_features_in_
    pca.mean_ = model.mean_ / model.scale_
    if hasattr(pca, "feature_names_in_"):  # what the scaler gives has no names
        scaler.feature_names_in_ = vars(pca).pop("feature_names_in_")
    return pipeline.Pipeline([("scale", scaler), ("pca", pca)])


@np.errstate(over="ignore", under="ignore")
def in_range(explained: Vector, unit: int) -> Vector:
    # Not infinite: files of models, tables and plots hold numbers.
    variances = np.minimum(np.ldexp(explained, 2 * unit), np.finfo(np.float64).max)
    if np.any((explained > 0) & ~_is_number(variances)):
        warn(
            "Some variances are outside the range of float64. explained_variance_ and noise_variance_ hold the largest "
            "float64 number, 0 or an inaccurate number instead; singular_values_, components_, "
            "explained_variance_ratio_ and scores are accurate. Multiply X by a power of two to avoid this."
        )
    return variances


def quantity_of(model: Any) -> str:
    """Return what `explained_variance_` holds: without means of columns in the shift, it is no variance."""
    shift = getattr(model, "shift", "mean")
    return "second moment" if shift is None or (isinstance(shift, str) and shift == "rows") else "variance"


def beyond(S: Vector, variances: Vector) -> bool:
    return bool(len(S) and S[0] > 0 and not _is_number(variances[:1])[0])


def _is_number(variances: Vector) -> Vector:
    ends = np.finfo(variances.dtype)
    return np.asarray((variances >= ends.smallest_normal) & (variances < ends.max))


def labels_of_groups(name: str, given: Any, m: int) -> Vector:
    known, labels = labels_of_rows(name, given, m), np.asarray(given)
    labels = np.array(known) if labels.dtype == object else labels
    if len(np.unique(labels)) < 2:
        raise Refused(Setting(name), " must be the labels of at least 2 groups, got one group.")
    return labels


class FittedPCA(features.Components):
    """Base class of `PCA` and `IncrementalPCA`: the methods of a fitted model."""

    variants_: Any  # `shiftsvd.genetics.Variants` that the features are: of models that the command fits to genotypes

    @overload
    def transform(self, X: LazyArray, groups: Any = None, covariates: Any = None) -> LazyArray: ...

    @overload
    def transform(self, X: Any, groups: Any = None, covariates: Any = None) -> Panel: ...

    @features.on_device_of_input
    def transform(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Return the scores ``(X - shift) diag(1 / scale_) components_.T``, with the shift and scale of the fit.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Dask array of shape (n_samples, n_features)
            Rows with the features of the fit; sparse X stays sparse. One pass.
        groups, covariates : array, optional
            Groups and covariates of these rows, as in `fit`; group means and coefficients are those of the training
            data.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Of a Dask array, a Dask array with the same chunks of rows; nothing is computed, unless the scores
            take groups or covariates.

        Raises
        ------
        ValueError
            For groups without training rows.
        """
        prepared, data = self._prepared(groups, covariates)
        if data is None and is_lazy(X):
            return features.scores_by_row(self, X)
        return _joined(self._scored(X, prepared, data))

    def iter_scores(self, X: Any, groups: Any = None, covariates: Any = None) -> Iterator[tuple[int, Panel]]:
        """Yield the scores block by block, in order: one pass that stores neither the data of a file nor all scores.

        Parameters
        ----------
        X : what `transform` takes, or an operator such as `shiftsvd.io.open_matrix` gives
            Rows with the features of the fit.
        groups, covariates : array, optional
            As in `transform`.

        Yields
        ------
        (int, array of shape (rows, n_components_))
            The first row of a part, and the scores of its rows.
        """
        yield from stepwise(self._scored(X, *self._prepared(groups, covariates)), self.n_threads)

    def _scored(self, X: Any, prepared: Prepared, data: Any) -> Generator[tuple[int, Panel], None, None]:
        A = self._operator(X)
        for lo, Z in prepared.of(A, data).row_products(self.components_.T.astype(np.float64)):
            yield lo, (Z / self._deviations() if self.whiten else Z).astype(A.dtype, copy=False)

    def on_features(self, names: Iterable[Any], max_absent: float = 0.0) -> Self:
        """Return a copy of the model for rows with the given features, in the given order.

        Parameters
        ----------
        names : iterable of feature names
            Features of the rows; all must be features of the model, see `feature_names_in_`.
        max_absent : float
            Largest share of the components' features that may be absent. They are treated as unobserved: scores are
            the least-squares fit of the components to the present features.

        Returns
        -------
        A copy of the model, for `transform`
            Its components are no longer orthonormal if features are absent.

        Raises
        ------
        ValueError
            If more features are absent (for fewer, a notice gives the number), some are unknown or duplicate, the model
            has no names, or a combination of components would lose half of its squared length.

        Notes
        -----
        No pass: ``V`` becomes ``W (W^H W)^-1``, where W holds the rows of V of the present features.

        Examples
        --------
        >>> import numpy as np, pandas as pd, shiftsvd as ss
        >>> X = pd.DataFrame(np.outer(np.arange(6.0), [1, 2, 3, 4]), columns=list("abcd"))
        >>> pca = ss.PCA(1).fit(X)
        >>> other = X[["d", "b", "a", "c"]]
        >>> bool(np.allclose(pca.on_features(other.columns).transform(other), pca.transform(X)))
        True
        """
        check_is_fitted(self, "components_")
        if not 0 <= max_absent <= 1:
            raise refuse("max_absent", "be a share from 0 to 1", max_absent)
        if getattr(self, "feature_names_in_", None) is None:
            raise ValueError("the model has no feature names. Fit it on a data frame.")
        remedy = "Raise ", Setting("max_absent"), " to treat absent features as unobserved."
        return features.aligned(self, list(names), "the list of names", max_absent, *remedy)

    @features.on_device_of_input
    def inverse_transform(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Return the points in the space of the data, in its units, that have these scores.

        Group means, the fit of covariates and column means are added back. Row means, which ``shift="rows"`` and "both"
        subtract, are unknown and not added.

        Parameters
        ----------
        X : array or Dask array of shape (n_samples, n_components_)
            Scores, as `transform` gives them.
        groups, covariates : array, optional
            As in `transform`.

        Returns
        -------
        array of shape (n_samples, n_features)
            Of a Dask array, a Dask array, as with `transform`.
        """
        prepared, data = self._prepared(groups, covariates)

        def found(Z: Panel) -> Panel:
            back = (Z * self._deviations() if self.whiten else Z) @ self.components_
            if self.scale_ is not None:
                back = back * self.scale_
            back = back + prepared.points(len(Z), data)
            return np.asarray(back.astype(np.result_type(Z.dtype, self.components_.dtype)))

        return features.points(self, features.on_host(X), found, data is None)

    @features.on_device_of_input
    def row_contributions(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Return the share of each row of the training data in the squared singular value of each component.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The rows of the fit. For other rows, the share that such a row would have next to them.
        groups, covariates : array, optional
            As in `transform`.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_samples, n_components_)
            Squared scores over squared singular values. Over all rows of the fit they sum to 1, if each is multiplied
            by its weight; 0 for a component without variance.
        """
        A = self._minus_shift(self._operator(X), groups, covariates)
        return features.labelled(self._contributions(_joined(A.row_products(self._loadings))), features.labels_of(X)[0])

    @features.on_device_of_input
    def row_cosine_similarities(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Return squared cosines: the share of each component in a row's squared distance from the shift.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows with the features of the fit.
        groups, covariates : array, optional
            As in `transform`.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_samples, n_components_)
            Shares that sum to 1 over all components of a row; 0 for a row that equals the shift. Two passes.
        """
        A = self._in_units(self._minus_shift(self._operator(X), groups, covariates))
        return features.labelled(
            features.cosines(_joined(A.row_products(self._loadings)), features.row_squares(A)), features.labels_of(X)[0]
        )

    @features.on_device_of_input
    def neighbors(self, X: Any, n_neighbors: int = 15, groups: Any = None, covariates: Any = None) -> Neighbors:
        """Return the nearest rows of each row by the distances of their scores, and which of them are safe.

        A neighbour is safe if it is one of the `n_neighbors` nearest for the exact principal components of X, too:
        errors of the components cannot replace it.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The rows of the fit. For other rows, safe refers to the principal components of these rows.
        n_neighbors : int
            Number of neighbours of each row.
        groups, covariates : array, optional
            As in `transform`.

        Returns
        -------
        Neighbors
            Indices, distances, and a mask of the neighbours that are safe, each of shape (n_samples, n_neighbors).

        Raises
        ------
        ValueError
            If `n_neighbors` is not in 1..n_samples - 1, or if the fit has sample weights, approximated transformations
            or ``missing="em"``.

        Warns
        -----
        UserWarning
            If no gap after the last component is proven, so that no neighbour is safe.

        See Also
        --------
        influence : Bound the change of the components without a row.

        Notes
        -----
        The search compares all pairs, in blocks of 16 MB: ``n_samples^2 n_components`` operations. The bounds take
        two products with the scores, one pass for the norms of the rows, and up to 24 products with a random block of
        16 columns, and hold with a probability of at least 1 - 1e-9. docs/guide/evidence.rst derives them.

        Examples
        --------
        >>> import numpy as np, shiftsvd as ss
        >>> X = np.random.default_rng(0).standard_normal((100, 6)) * [9, 8, 7, 1e-3, 1e-3, 1e-3]
        >>> found = ss.PCA(3, random_state=0).fit(X).neighbors(X, 5)
        >>> found.indices.shape, bool(found.sine < 1e-6), bool(found.safe.all())
        ((100, 5), True, True)
        """
        A = self._rows_in_units(X, groups, covariates)
        m = A.shape[0]
        n_neighbors = integer("n_neighbors", n_neighbors, 1, m - 1, f" for {m:,} rows")
        found = evidence.neighbors(A, self._loadings, n_neighbors, self._probing())
        if found.sine == 1:
            warn(
                f"No gap after component {self.n_components_} is proven, so no neighbour is safe. Pass the rows of the "
                "fit, choose a number of components before a gap of singular_values_, or fit with a smaller ",
                *(Setting("tol"), "."),
            )
        return replace(found, distances=np.ldexp(found.distances, self._unit))

    @features.on_device_of_input
    def influence(self, X: Any, leave_out: Any = None, widest: float = 90.0) -> Influence:
        """Bound the singular values and components of X without each row, or without each group of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The rows of the fit.
        leave_out : array of shape (n_samples,), optional
            The label of the group of each row; each group is left out at a time. Default: each row.
        widest : float
            Refit without a row or group if the bounds of an angle differ by more than this number of degrees. Default:
            never.

        Returns
        -------
        Influence
            Lower and upper bounds of singular values, of the angle between each component and that of the other rows,
            and of the angle between the spaces of the components.

        Raises
        ------
        ValueError
            If X does not have the rows of the fit, if `leave_out` has fewer than 2 groups, if the shift is
            `GroupMeans()` or `Covariates()`, or as in `neighbors`.

        See Also
        --------
        row_contributions : Share of each row in each component.
        neighbors : Neighbours that are safe.

        Notes
        -----
        The bounds are those of a PCA of the other rows about their own mean (with ``shift="mean"`` and "both");
        transformations, scale and filled entries are those of the fit. They take the passes of `neighbors` and one
        product with the residuals, or with `leave_out` one product for each group, and hold with a probability of at
        least 1 - 1e-9. docs/guide/evidence.rst derives them. A refit takes the passes of a fit with ``tol=1e-8``, and
        up to 24 for its bounds.

        Examples
        --------
        >>> import numpy as np, shiftsvd as ss
        >>> X = np.random.default_rng(0).standard_normal((100, 6)) * [9, 5, 1, 1e-3, 1e-3, 1e-3]
        >>> X[17, :3] = [0, 60, 20]
        >>> found = ss.PCA(3, random_state=0).fit(X).influence(X)
        >>> int(found.angles[:, 2, 0].argmax()), found.angles[17, 2].round().tolist()
        (17, [14.0, 14.0])
        """
        most, rng = np.radians(nonnegative("widest", widest)), self._probing()
        fits = self._refits(X, "influence", rng)
        parts = None if leave_out is None else labels_of_groups("leave_out", leave_out, fits.A.shape[0])
        found = evidence.influence(fits.A, self._loadings, rng, fits, parts, most)
        return replace(found, singular_values=np.ldexp(found.singular_values, self._unit))

    @features.on_device_of_input
    def stability(
        self,
        X: Any,
        groups: Any = None,
        method: Literal["bootstrap", "jackknife"] = "bootstrap",
        n_resamples: int = 100,
    ) -> Stability:
        """Estimate standard errors of the components by refits of resampled rows, or of resampled groups of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The rows of the fit.
        groups : array of shape (n_samples,), optional
            Labels of rows that belong together, such as those of a donor: whole groups are drawn, or left out. Without
            groups, rows must be independent.
        method : {"bootstrap", "jackknife"}
            "bootstrap": draw as many rows or groups as there are, with replacement. "jackknife": leave out each group,
            or without groups each of `n_resamples` random parts of the rows.
        n_resamples : int
            Number of resamples; with "jackknife" and groups it is the number of groups.

        Returns
        -------
        Stability
            Standard errors of ``components_``, and the angle between each component and that of each resample.

        Raises
        ------
        ValueError
            As `influence`, or if a resample has no more different rows than components.

        See Also
        --------
        influence : Bounds without each row or group, without refits.

        Notes
        -----
        Each resample takes the passes of a fit with ``tol=1e-8`` and one for the means; ``n_passes`` counts all of
        them. The mean is that of the resample (with ``shift="mean"`` and "both"); transformations, scale and filled
        entries are those of the fit. Components of a resample are matched to those of the fit by the largest sum of
        absolute cosines, and their signs are aligned. Components whose singular values are close turn into each other:
        their standard errors are large. The same `random_state` gives identical results.

        References
        ----------
        Efron & Tibshirani (1993), An Introduction to the Bootstrap; Milan & Whittaker (1995), Application of the
        parametric bootstrap to models that incorporate a singular value decomposition.

        Examples
        --------
        >>> import numpy as np, shiftsvd as ss
        >>> X = np.random.default_rng(0).standard_normal((400, 4)) * [9, 3, 1, 1]
        >>> found = ss.PCA(1, random_state=0).fit(X).stability(X)
        >>> found.standard_errors.round(2).tolist()
        [[0.0, 0.02, 0.01, 0.01]]
        """
        if method not in ("bootstrap", "jackknife"):
            raise refuse("method", 'be "bootstrap" or "jackknife"', method)
        count, rng = integer("n_resamples", n_resamples, 2), self._probing()
        fits = self._refits(X, "stability", rng)
        m = fits.A.shape[0]
        if groups is not None:
            of_row = np.unique(labels_of_groups("groups", groups, m), return_inverse=True)[1]
        elif method == "jackknife":
            of_row = rng.permutation(np.arange(m) % min(count, m))
        else:
            of_row = np.arange(m)
        bootstrap = method == "bootstrap"
        drawn = evidence.bootstrap_weights(of_row, count, rng) if bootstrap else evidence.jackknife_weights(of_row)
        return evidence.stability(fits, self._loadings, drawn, not bootstrap)

    def _refits(self, X: Any, method: str, rng: np.random.Generator) -> evidence.Refits:
        if hasattr(self, "shift_"):
            rule = f" for {method}, because other shifts change with each row"
            raise Refused(Setting("shift"), ' must be "mean", "both", "rows", None or a vector', rule, ".")
        A = self._rows_in_units(X, None, None, exact=method == "influence")
        if A.shape[0] != self.n_samples_:
            raise ValueError(f"{method} needs the {self.n_samples_:,} rows of the fit, got {A.shape[0]:,}")
        centred = isinstance(self.shift, str) and self.shift != "rows"
        return evidence.Refits(A, self.n_components_, centred, rng, self.memory_limit)

    def _rows_in_units(self, X: Any, groups: Any, covariates: Any, exact: bool = True) -> Operator:
        prepared, data = self._prepared(groups, covariates)
        if not self.n_components_:
            raise ValueError("the model has no components. Fit it with n_components of at least 1.")
        if exact and any(each.smooth is not None for each in prepared.entries):
            got = Setting("preprocess", self.preprocess)
            rule = " approximates transformed zeros, and the bounds do not include the errors. "
            raise Refused(got, rule, "Use another transformation, such as Pearson residuals with theta=inf.")
        if self.missing == "em":
            raise Refused(
                Setting("missing", "em"), " completes rows by the components, which have no exact counterpart."
            )
        if self._weighted:
            raise ValueError(
                "the model was fitted with sample weights, which neighbors, influence and stability do not support."
            )
        return self._in_units(prepared.of(self._operator(X), data))

    @property
    def _weighted(self) -> bool:
        S, variances, freedom = self.singular_values_, self.explained_variance_, self.n_samples_ - 1
        if beyond(S, variances) or S[0] == 0:
            return bool(vars(self).get("_freedom", freedom) != freedom)
        return bool(abs(S[0] ** 2 / variances[0] - freedom) > 1e-6 * freedom)

    def _probing(self) -> np.random.Generator:
        # The probe must not depend on the components, so it must not draw the numbers of the fit again.
        return random_generator(self.random_state).spawn(1)[0]

    @property
    def _loadings(self) -> Panel:
        return np.asarray(self.components_.T, np.float64)

    def _contributions(self, scores: Panel) -> Panel:
        S = self.singular_values_
        return np.asarray((scores / np.where(S > 0, S, np.inf)) ** 2)

    @property
    def _unit(self) -> int:
        """Exponent of a power of two of the size of the scores, whose squares may be out of range."""
        S = self.singular_values_
        return int(np.frexp(S[0])[1]) if len(S) and S[0] > 0 else 0

    def _in_units(self, A: Operator) -> Operator:
        return times_powers(A, 0, -self._unit) if self._unit else A

    @features.on_device_of_input
    def score_samples(self, X: Any, groups: Any = None, covariates: Any = None) -> Vector:
        """Return the log-likelihood of each row under the probabilistic model, in the units of X.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows with the features of the fit.
        groups, covariates : array, optional
            As in `transform`.

        Returns
        -------
        array of shape (n_samples,)
            If the noise variance is 0, the model is a degenerate normal distribution on the space of the components,
            and the log-likelihood of rows outside of this space is minus infinity.

        Raises
        ------
        ValueError
            If the variances are outside the range of float64 (see `explained_variance_`); `score`, `get_covariance` and
            `get_precision` raise the same error.

        Notes
        -----
        Two passes; no matrix of n_features x n_features is formed (Tipping & Bishop 1999).
        """
        return self._likelihoods(X, groups, covariates)

    @features.on_device_of_input
    def score(self, X: Any, y: Any = None, groups: Any = None, covariates: Any = None) -> float:
        """Return the mean of `score_samples` over the rows; y is ignored."""
        return float(np.mean(self._likelihoods(X, groups, covariates)))

    def _likelihoods(self, X: Any, groups: Any, covariates: Any) -> Vector:
        model = self._model()
        A = self._minus_shift(self._operator(X), groups, covariates)
        Z = _joined(A.row_products(model.V))
        rest = np.asarray((A - LowRank(Z, self.components_.T)).row_squares())
        check_size("rows", max(1.0, largest_of(Z), float(np.sqrt(rest.max(initial=0)))), SQUARED)
        return model.log_likelihood(Z, rest)

    @features.on_device_of_input
    def get_covariance(self) -> Panel:
        """Return the covariance of the model in the units of X, shape (n_features, n_features)."""
        return self._model().covariance()

    @features.on_device_of_input
    def get_precision(self) -> Panel:
        """Return the inverse of `get_covariance`, by Woodbury's formula."""
        return self._model().precision()

    def _operator(self, X: Any, reset: bool = False) -> Operator:
        A = self._observed(X, reset)
        if isinstance(A, Operator):
            return A
        if self.missing == "mean" or not self.n_components_:
            return mean_rows(A, self.mean_)
        variances, noise = self.explained_variance_, self.noise_variance_
        return regressed_rows(A, self.mean_, self.scale_, self.components_, variances, noise)

    def _observed(self, X: Any, reset: bool, least: int = 1) -> Observed:
        X = features.checked(self, X if self.missing == "error" else with_nan(X), reset, least, on_device=True)
        with named(vars(self).get("feature_names_in_")):
            return with_missing(X, self.missing, self.unobserved, self._resources)

    def _prepared(self, groups: Any, covariates: Any) -> tuple[Prepared, Any]:
        known = vars(self)
        if "components_" not in known:
            check_is_fitted(self, "components_")  # those of a stream are made now
        shift: Learned = known.get("shift_") or MeanShift(self.mean_, of_each_row(self.shift))
        data = data_of_rows(shift.needs, self.shift, {"groups": groups, "covariates": covariates})
        return Prepared(shift, self.scale_, known.get("preprocess_", ())), data

    def _minus_shift(self, A: Operator, groups: Any, covariates: Any) -> Operator:
        prepared, data = self._prepared(groups, covariates)
        return prepared.of(A, data)

    def _deviations(self) -> Vector:
        freedom = vars(self).get("_freedom", self.n_samples_ - 1)
        S, variances = self.singular_values_, self.explained_variance_
        d = S / np.sqrt(freedom) if beyond(S, variances) else np.sqrt(variances)
        eps, most = np.finfo(self.components_.dtype).eps, d.max(initial=0)
        return np.asarray(np.maximum(d, eps * (most if most > 0 else 1)))

    def _model(self) -> PPCA:
        check_is_fitted(self, "components_")
        S, variance, noise = self.singular_values_, self.explained_variance_.astype(np.float64), self.noise_variance_
        if beyond(S, self.explained_variance_):
            raise ValueError(
                f"the variances of this model are outside the range of float64 (first singular value: {S[0]:.3g}), so "
                "likelihoods and covariances cannot be computed. Multiply X by a power of two and fit again."
            )
        if self.whiten:
            # scikit-learn multiplies the excess variance by the variance once more, and its own tests hold it
            # to that. A drop-in follows, though a change of units of the scores should not change the model.
            variance = noise + np.maximum(variance - noise, 0) * variance
        floor = max(noise, np.finfo(np.float64).tiny)
        return PPCA(self.components_.T.astype(np.float64), np.maximum(variance, floor), noise, self.scale_)

    def to_sklearn(self) -> Any:
        """Convert the model to fitted classes of scikit-learn with the same `transform`.

        Returns
        -------
        sklearn.decomposition.PCA
            If the model has a scale: a Pipeline of a StandardScaler without centring, which supports sparse data, and a
            PCA of the scaled data.

        Notes
        -----
        Data far off-centre lose digits: scikit-learn subtracts the mean after multiplying.

        Examples
        --------
        >>> import shiftsvd as ss
        >>> from sklearn.datasets import load_digits
        >>> ss.PCA(n_components=5, random_state=0).fit(load_digits().data).to_sklearn()
        PCA(n_components=5)
        """
        check_is_fitted(self, "components_")
        if hasattr(self, "shift_") or of_each_row(self.shift):
            raise Refused(
                *("scikit-learn's classes subtract the same vector from every row, got ", Setting("shift", self.shift)),
                *(". Fit with ", Setting("shift", "mean"), "."),
            )
        if self.preprocess is not None:
            got = Setting("preprocess", self.preprocess)
            raise Refused("scikit-learn's PCA does not transform entries, got ", got, ". Fit on transformed data.")
        from sklearn import decomposition  # which loads much that a fit does not need

        pca = decomposition.PCA(self.n_components_, whiten=self.whiten)
        vars(pca).update(
            {name: deepcopy(x) for name, x in vars(self).items() if name.endswith("_") and name not in OURS}
        )
        for name in VALUES:  # scikit-learn's scores have the type of these, which is that of its data
            setattr(pca, name, getattr(pca, name).astype(pca.components_.dtype))
        return pca if self.scale_ is None else _behind_a_scaler(pca, self)


def _joined(parts: Iterable[tuple[int, Panel]]) -> Panel:
    panels = [panel for _, panel in parts]
    return panels[0] if len(panels) == 1 else np.concatenate(panels)
