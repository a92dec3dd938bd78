"""Diagnostics of a fitted PCA: safe neighbours, components without rows or groups, and standard errors of loadings."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from shiftsvd.errors import Refused, Setting, few, plural, refuse
from shiftsvd.estimators import evidence, features
from shiftsvd.estimators.attributes import beyond
from shiftsvd.estimators.evidence import Influence, Neighbors, Stability
from shiftsvd.estimators.fitted import FittedPCA
from shiftsvd.estimators.settings import random_generator
from shiftsvd.front import integer, nonnegative
from shiftsvd.operators import Operator, Panel, Vector
from shiftsvd.preparation.covariates import labels_of_rows
from shiftsvd.runs.memory import affordable
from shiftsvd.runs.messages import warn

FEW_SAFE = 0.5  # share of the neighbours that would be safe with rounding errors alone; fewer raise a warning


def labels_of_groups(name: str, given: Any, m: int) -> Vector:
    known, labels = labels_of_rows(name, given, m), np.asarray(given)
    labels = np.array(known) if labels.dtype == object else labels
    if len(np.unique(labels)) < 2:
        raise Refused(Setting(name), " must be the labels of at least 2 groups, got one group.")
    return labels


class DiagnosablePCA(FittedPCA):
    """Methods that need rows of data beside the model."""

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
            If no gap after the last component is proven, so that no neighbour is safe, or if a smaller `tol` could at
            least double the number of safe neighbours.

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
        found, attainable = evidence.neighbors(A, self._loadings, n_neighbors, self._probing())
        share = float(found.safe.mean())
        if found.sine == 1:
            warn(
                f"No gap after component {self.n_components_} is proven, so no neighbour is safe. Pass the rows of the "
                "fit, choose a number of components before a gap of singular_values_, or fit with a smaller ",
                *(Setting("tol"), "."),
            )
        elif share < FEW_SAFE * attainable:
            warn(
                f"Only {100 * share:.1f} % of the neighbours are safe, because the components are not accurate enough. "
                f"With smaller errors, {100 * attainable:.1f} % would be safe. Pass the rows of the fit, or fit with ",
                *("a smaller ", Setting("tol"), "."),
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
            `GroupMeans()` or `Covariates()`, if the bounds of the rows exceed `memory_limit`, or as in `neighbors`.

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
        return self._influence(X, leave_out, widest)[0]

    def _influence(
        self, X: Any, leave_out: Any, widest: float, *, settle: bool = False
    ) -> tuple[Influence, Vector, Panel]:
        most, rng = np.radians(nonnegative("widest", widest)), self._probing()
        fits = self._refits(X, "influence", rng)
        m, k = fits.A.shape[0], self.n_components_
        parts = None if leave_out is None else labels_of_groups("leave_out", leave_out, m)
        count = m if parts is None else len(np.unique(parts))
        what = f"influence of {plural(count, 'row' if parts is None else 'group')}"
        affordable(evidence.influence_bytes(m, count, k), self.memory_limit, what)
        found, refitted, own = evidence.influence(fits.A, self._loadings, rng, fits, parts, most, settle)
        np.ldexp(found.singular_values, self._unit, out=found.singular_values)
        return found, refitted, own

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
        if (design := getattr(self, "design_", None)) is not None:
            raise ValueError(
                f"the model regresses out {few(design.names)}, and this regression changes with each row, which "
                f"{method} does not compute. Fit without --groups and --covariates."
            )
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
            rule = " predicts missing values, so there are no exact components to compare with. Fit complete data."
            raise Refused(Setting("missing", "em"), rule)
        if self._weighted:
            which = "neighbors, influence and stability do not support"
            raise ValueError(f"the model was fitted with sample weights, which {which}.")
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
