"""A fitted PCA: scores, reconstruction, the probabilistic model of Tipping & Bishop (1999), export to scikit-learn."""

from collections.abc import Generator, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self, overload

import numpy as np
from scipy.special import gammaln
from sklearn.utils.validation import check_is_fitted

from shiftsvd.algebra.scaled import times_powers
from shiftsvd.backends import is_lazy
from shiftsvd.backends.validation import named
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.estimators import attributes, features
from shiftsvd.estimators.settings import data_of_rows
from shiftsvd.kernels import stepwise
from shiftsvd.missing.completion import mean_rows, regressed_rows, with_missing
from shiftsvd.missing.gaps import Observed, with_nan
from shiftsvd.names import LazyArray
from shiftsvd.numerics.powers import SQUARED, check_size, largest_of
from shiftsvd.operators import LowRank, Operator, Panel, Vector
from shiftsvd.preparation.prepare import Prepared
from shiftsvd.preparation.shifts import Learned, MeanShift, of_each_row


@dataclass(frozen=True, eq=False)
class PPCA:
    """Gaussian with covariance ``D (V diag(variance - noise) V^T + noise I) D``; D holds the scales of the features."""

    V: Panel  # shape (n, k)
    variance: Vector  # of the components, at least the noise
    noise: float
    scale: Vector | None

    def log_likelihood(self, scores: Panel, rest: Vector) -> Vector:
        n, k = self.V.shape
        squares = (scores.astype(np.float64) ** 2 / self.variance).sum(axis=1)
        log_det = np.log(self.variance).sum()
        dimensions = n if k == n or self.noise > 0 else k
        if k < dimensions:
            log_det += (n - k) * np.log(self.noise)
            squares += rest / self.noise
        if self.scale is not None:
            log_det += 2 * np.log(self.scale).sum()
        likelihood = -0.5 * (squares + log_det + dimensions * np.log(2 * np.pi))
        off = rest > 1e-12 * (rest + (scores**2).sum(axis=1)) if dimensions < n else np.zeros(len(rest), bool)
        return np.where(off, -np.inf, likelihood)

    def covariance(self) -> Panel:
        return self._in_units(self._beside(self.variance, self.noise), 1)

    def precision(self) -> Panel:
        V, (n, k) = self.V, self.V.shape
        if k == n:
            return self._in_units((V / self.variance) @ V.T, -1)
        if k == 0 and self.noise <= 0:
            raise ValueError("the data have no variance, so their covariance has no inverse. Fit rows that differ.")
        if self.noise <= 0:
            raise ValueError(
                f"the noise variance is 0, so the covariance has no inverse. Use fewer than {k} components."
            )
        return self._in_units(self._beside(1 / self.variance, 1 / self.noise), -1)

    def _beside(self, values: Vector, others: float) -> Panel:
        # The symmetric matrix with eigenvalues `values` along V, and `others` orthogonal to V.
        C = (self.V * (values - others)) @ self.V.T
        C[np.diag_indices_from(C)] += others
        return C

    def _in_units(self, C: Panel, power: int) -> Panel:
        if self.scale is None:
            return C
        d = self.scale**power
        return np.asarray(d[:, None] * C * d)


def minka_rank(spectrum: Vector, n_samples: int) -> int:
    evidence = [_log_evidence(spectrum, k, n_samples) for k in range(1, len(spectrum))]
    return 1 + int(np.argmax(evidence)) if evidence else 1


def _log_evidence(spectrum: Vector, k: int, n_samples: int) -> float:
    n = len(spectrum)
    tiny = 1e-15 * float(spectrum[0])
    if spectrum[k - 1] <= tiny:
        return -np.inf
    noise = max(float(spectrum[k:].mean()), tiny)
    i = np.arange(1, k + 1)
    log_prior = -k * np.log(2.0) + np.sum(gammaln((n - i + 1) / 2) - np.log(np.pi) * (n - i + 1) / 2)
    log_variance = -0.5 * n_samples * (np.log(spectrum[:k]).sum() + (n - k) * np.log(noise))
    parameters = n * k - k * (k + 1) / 2
    fitted = np.where(np.arange(n) < k, spectrum, noise)
    upper = np.triu_indices(k, 1, n)
    gaps = (spectrum[upper[0]] - spectrum[upper[1]]) * (1 / fitted[upper[1]] - 1 / fitted[upper[0]])
    log_hessian = np.sum(np.log(np.maximum(gaps, np.finfo(np.float64).tiny)) + np.log(n_samples))
    volume = (parameters + k) / 2 * np.log(2 * np.pi)
    return float(log_prior + log_variance + volume - log_hessian / 2 - k / 2 * np.log(n_samples))


# ---- methods


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
            data. For models that the command fitted with ``--groups`` or ``--covariates``, `covariates` is a data frame
            with all of these columns, or `groups` the labels of the single one.

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
        X, groups, covariates
            As in `transform`; X may also be an operator, such as of `shiftsvd.io.open_matrix`.

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
        remedy = "Use ", Setting("max_absent"), " to treat absent features as unobserved."
        return attributes.aligned(self, list(names), "the list of names", max_absent, *remedy)

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
        X, groups, covariates
            As in `transform`, for the rows of the fit; others have the share that they would have next to these.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_samples, n_components_)
            Squared scores over squared singular values. Over all rows of the fit they sum to 1, if each is multiplied
            by its weight; 0 for a component without variance.
        """
        A = self._minus_shift(self._operator(X), groups, covariates)
        found = self._contributions(_joined(A.row_products(self._loadings)))
        return attributes.labelled(found, attributes.labels_of(X)[0])

    @features.on_device_of_input
    def row_cosine_similarities(self, X: Any, groups: Any = None, covariates: Any = None) -> Any:
        """Return squared cosines: the share of each component in a row's squared distance from the shift.

        Parameters
        ----------
        X, groups, covariates
            As in `transform`.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_samples, n_components_)
            Shares that sum to 1 over all components of a row; 0 for a row that equals the shift. Two passes.
        """
        A = self._in_units(self._minus_shift(self._operator(X), groups, covariates))
        found = attributes.cosines(_joined(A.row_products(self._loadings)), attributes.row_squares(A))
        return attributes.labelled(found, attributes.labels_of(X)[0])

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
        X, groups, covariates
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
        rest = np.asarray((A - LowRank(Z, model.V)).row_squares())
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

    def _operator(self, X: Any, reset: bool = False, least: int = 1) -> Operator:
        A = self._observed(X, reset, least)
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
        if (design := known.get("design_")) is not None:
            groups, covariates = None, design.of_rows(groups, covariates)
        data = data_of_rows(shift.needs, self.shift, {"groups": groups, "covariates": covariates})
        return Prepared(shift, self.scale_, known.get("preprocess_", ())), data

    def _minus_shift(self, A: Operator, groups: Any, covariates: Any) -> Operator:
        prepared, data = self._prepared(groups, covariates)
        return prepared.of(A, data)

    def _deviations(self) -> Vector:
        freedom = vars(self).get("_freedom", self.n_samples_ - 1)
        S, variances = self.singular_values_, self.explained_variance_
        d = S / np.sqrt(freedom) if attributes.beyond(S, variances) else np.sqrt(variances)
        eps, most = np.finfo(self.components_.dtype).eps, d.max(initial=0)
        return np.asarray(np.maximum(d, eps * (most if most > 0 else 1)))

    def _model(self) -> PPCA:
        check_is_fitted(self, "components_")
        S, variance, noise = self.singular_values_, self.explained_variance_.astype(np.float64), self.noise_variance_
        if attributes.beyond(S, self.explained_variance_):
            raise ValueError(
                f"the variances of this model are outside the range of float64 (first singular value: {S[0]:.3g}), so "
                "likelihoods and covariances cannot be computed. Multiply X by a power of two and fit again."
            )
        if self.whiten:
            # scikit-learn multiplies the excess variance by the variance once more, and its own tests hold it
            # to that. A drop-in follows, though a change of units of the scores should not change the model.
            variance = noise + np.maximum(variance - noise, 0) * variance
        floor = max(noise, np.finfo(np.float64).tiny)
        V = self.components_.T.astype(np.float64)
        if noise == 0:  # no density off the space of the components with a variance
            V, variance = V[:, variance > 0], variance[variance > 0]
        return PPCA(V, np.maximum(variance, floor), noise, self.scale_)

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
        theirs = {name: x for name, x in vars(self).items() if name.endswith("_") and name not in OURS}
        vars(pca).update(deepcopy(theirs))
        for name in VALUES:  # scikit-learn's scores have the type of these, which is that of its data
            setattr(pca, name, getattr(pca, name).astype(pca.components_.dtype))
        return pca if self.scale_ is None else _behind_a_scaler(pca, self)


def _joined(parts: Iterable[tuple[int, Panel]]) -> Panel:
    panels = [panel for _, panel in parts]
    return panels[0] if len(panels) == 1 else np.concatenate(panels)
