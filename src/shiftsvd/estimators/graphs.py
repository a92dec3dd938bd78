"""Embeddings of graphs: Laplacian eigenmaps and diffusion maps."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, csr_matrix, diags_array, issparse
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from shiftsvd.backends import as_operator, is_lazy, unwrapped
from shiftsvd.backends.affinity import Affinity, affinity_of_edges, affinity_of_rows
from shiftsvd.backends.validation import NotFinite, before_sklearn, finite_dense, finite_sparse
from shiftsvd.errors import Part, Refused, Setting, refuse
from shiftsvd.estimators.attributes import labels_of
from shiftsvd.estimators.features import Tagged
from shiftsvd.estimators.settings import as_one_fit, random_generator, warn_unconverged
from shiftsvd.front import integer, nonnegative
from shiftsvd.kernels import thread_count
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import affordable
from shiftsvd.runs.messages import notice, warn
from shiftsvd.solvers.base import TOL, check_tol
from shiftsvd.solvers.constants import EPS
from shiftsvd.solvers.filtered import in_fitting_blocks, leading_modes, modes_bytes

LARGEST = 2.0**500  # of an affinity; the least is its inverse: degrees and their products are sums and squares
ASYMMETRY = 1e-6  # relative to the largest affinity: rounding errors of single precision
MOST_PRODUCTS = 20_000  # the default of `max_products`: a gap of 1e-6 takes about 5,000


@dataclass(eq=False, repr=False)
class GraphEmbedding(Tagged):
    """Base class: leading nontrivial eigenvectors of ``N = D^-1/2 W D^-1/2``, with bounds of their errors."""

    n_components: int = 2
    _: KW_ONLY
    tol: float = TOL
    max_products: int | None = None
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None
    drop_first: bool = True

    def fit_transform(self, X: Any, y: Any = None) -> Panel:
        """Fit to X, as `fit` does, and return the coordinates of its nodes: ``embedding_``."""
        return np.asarray(self.fit(X).embedding_)

    @property
    def _of_samples(self) -> bool:
        return getattr(self, "affinity", "precomputed") != "precomputed"

    def _check(self) -> None:
        """Raise ValueError for settings that are invalid for all data."""
        integer("n_components", self.n_components, 1)
        check_tol(self.tol)
        if self.max_products is not None:
            integer("max_products", self.max_products, 1)
        if not isinstance(self.drop_first, bool | np.bool_):
            raise refuse("drop_first", "be True or False", self.drop_first)

    def _validated(self, X: Any, reset: bool = True, least: int = 2) -> Any:
        if isinstance(X, Operator):
            raise TypeError(f"{type(self).__name__} needs an array or a sparse matrix in memory, got {X}.")
        X = before_sklearn(unwrapped(X).compute() if is_lazy(X) else X)
        if bool(issparse(X)) and X.dtype.kind in "iu":
            X = X.astype(np.float64)  # sums of entries at the same place would overflow in small integers
        how = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": least}
        array = check_array(X, **how, ensure_all_finite=False, estimator=self)
        try:
            (finite_sparse if issparse(array) else finite_dense)(array)
        except NotFinite as error:
            samples = self._of_samples or error.found.n_inf
            remedy = "remove or replace these values" if samples else "replace these values by 0, which is no edge"
            raise error.but(remedy=remedy) from None
        validate_data(self, X, reset=reset, skip_check_array=True)
        return array

    def _embed(self, A: Affinity) -> tuple[Panel, Vector]:
        """Set the fitted attributes; return ``D^-1/2 V`` and 1 - lambda, those of the trivial vectors first."""
        n, sizes = A.shape[0], np.bincount(A.labels)
        most, graph = (n - len(sizes) if self.drop_first else n), _of_nodes(n, len(sizes))
        if most == 0:
            name = type(self).__name__
            raise ValueError(f"{name} needs a graph with edges between different nodes, got {n:,} nodes without edges.")
        wanted = integer("n_components", self.n_components, 1, most, graph)
        trivial = 0 if self.drop_first else min(len(sizes), wanted)
        products = MOST_PRODUCTS if self.max_products is None else int(self.max_products)
        k = wanted - trivial
        A = in_fitting_blocks(A, k)
        affordable(modes_bytes(A, k), self.memory_limit, f"finding {k} coordinates of {n:,} nodes")
        modes = leading_modes(A, k, self.tol, products, random_generator(self.random_state))
        by_size = np.argsort(-sizes, kind="stable")
        first, zeros = A.trivial[:, by_size[:trivial]].toarray(), np.zeros(trivial)
        joined = sizes[A.labels] > 1
        Y = np.hstack([first, np.where(joined[:, None], modes.vectors, 0)])
        Y /= np.sqrt(np.where(A.degrees > 0, A.degrees, 1.0))[:, None]
        places = slice(None) if A.places is None else A.places
        Y, self.degrees_, self.component_labels_ = Y[places], A.degrees[places], A.labels[places].astype(np.int64)
        self.eigenvalue_errors_ = np.append(zeros, modes.gap_errors)
        self.vector_errors_ = np.append(zeros, modes.sines)
        self.converged_, self.n_products_ = modes.converged, modes.n_products
        _warn_of_components(sizes, trivial)
        if not modes.converged:
            unconverged = trivial + 1 + np.flatnonzero(~(modes.sines <= self.tol))
            warn_unconverged(unconverged, f"{modes.n_products:,} products", "max_products")
        return Y * phases(Y.T), np.append(zeros, modes.gaps)

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])


@dataclass(eq=False, repr=False)
class SpectralEmbedding(GraphEmbedding):
    """Spectral embedding (Laplacian eigenmaps): eigenvectors of ``L = I - D^-1/2 W D^-1/2`` with small eigenvalues.

    W holds the affinities of the nodes of a graph without the diagonal, which counts in `DiffusionMap` (whose default
    ``alpha=1`` also removes the influence of densities), D the sums of its rows. The coordinates are ``D^-1/2 v`` for
    the eigenvectors v of unit norm, as in scikit-learn. L has the eigenvalue 0 once for each connected component of the
    graph, with a vector that is constant on the component. These trivial vectors are found first and subtracted as a
    low-rank shift, so that all computed components vary within a connected component.

    Parameters
    ----------
    n_components : int
        Number of coordinates.
    affinity : {"nearest_neighbors", "cosine", "precomputed"}
        How W follows from X. "nearest_neighbors": the mean of the adjacency matrix of `n_neighbors` neighbours and its
        transpose. "cosine": ``w_ij`` is the cosine of rows i and j of X, which must be nonnegative; W is never formed.
        "precomputed": X is W, symmetric and nonnegative. A file or Dask array of rows for cosines is not loaded: four
        reads prepare the fit, and each product with W takes two.
    n_neighbors : int, optional
        The sample itself counts. Default: a tenth of the samples, at least 2.
    tol : float
        Bound of the sine of the angle of each vector to its eigenvector, or to the space of the eigenvectors whose
        eigenvalues cannot be distinguished.
    max_products : int, optional
        Maximum number of products of W with 8 columns; at least ``n_components / 8 + 2``. Default: 20 000.
    random_state, n_threads, memory_limit : optional
        As in `PCA`.
    drop_first : bool
        False: begin with the trivial vector of each connected component, the largest component first.

    Attributes
    ----------
    embedding_ : array of shape (n_samples, n_components)
        The coordinates.
    eigenvalues_ : array of shape (n_components,)
        Of L, ascending.
    eigenvalue_errors_ : array of shape (n_components,)
        Bounds of their absolute errors, if no eigenvalue was missed.
    vector_errors_ : array of shape (n_components,)
        Bounds of the sines that `tol` limits. They hold if `converged_`, with a probability of at least 1 - 1e-9.
    converged_ : bool
        Whether all sines are at most `tol`, and no vector was missed.
    component_labels_ : array of shape (n_samples,)
        Connected component of each node; a node without edges is one of its own, with coordinates 0.
    degrees_ : array of shape (n_samples,)
        The diagonal of D.
    n_products_ : int
        Products with W that were computed.
    n_features_in_ : int

    See Also
    --------
    DiffusionMap : Eigenvectors of a random walk, scaled by its eigenvalues.
    PCA : Components of the samples themselves.

    References
    ----------
    Belkin & Niyogi (2003), Laplacian eigenmaps; Zhou & Saad (2007), A Chebyshev-Davidson algorithm. The bounds are
    those of `PCA` (Davis & Kahan 1970).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> W = np.diag(np.ones(5), 1)
    >>> ss.SpectralEmbedding(1, affinity="precomputed", random_state=0).fit(
    ...     W + W.T
    ... ).eigenvalues_.round(6)
    array([0.190983])
    """

    affinity: str = "nearest_neighbors"
    n_neighbors: int | None = None

    @as_one_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the embedding to X.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features), or (n_samples, n_samples)
            Samples; with ``affinity="precomputed"`` affinities. With ``affinity="cosine"`` also an Operator, such as of
            an opened file.
        y : ignored
            For scikit-learn.

        Returns
        -------
        SpectralEmbedding
            The estimator itself.

        Raises
        ------
        ValueError
            For negative or asymmetric affinities, or more components than the graph has.
        """
        choices = "nearest_neighbors", "cosine", "precomputed"
        if not isinstance(self.affinity, str) or self.affinity not in choices:
            raise refuse("affinity", f"be one of {', '.join(choices)}", self.affinity)
        self._check()
        if self.n_neighbors is not None:
            integer("n_neighbors", self.n_neighbors, 1)
        if self.affinity == "precomputed":
            check_order(*labels_of(X))
        if self.affinity == "cosine":
            self.embedding_, self.eigenvalues_ = self._embed(affinity_of_rows(self._rows(X)))
            return self
        X = self._validated(X)
        n, operator = X.shape[0], partial(as_operator, n_threads=thread_count(self.n_threads))
        if self.affinity == "nearest_neighbors":
            if _may_be_graph(X):
                what = "X is square, symmetric and sparse, and its rows are taken as samples. If it is a graph, use "
                notice(what, Setting("affinity", "precomputed"), ".")
            neighbours = max(n // 10, 2)  # the first is the sample itself
            if self.n_neighbors is not None:
                neighbours = integer("n_neighbors", self.n_neighbors, 1, n - 1, f" for {n:,} samples")
            from sklearn.neighbors import kneighbors_graph  # takes a fifth of a second to import

            X = kneighbors_graph(X, neighbours, include_self=True)
            X = (X + X.T) / 2
        W = _affinities(X, self)
        A = affinity_of_edges(csr_array(W - diags_array(W.diagonal(), format="csr")), operator)
        self.embedding_, self.eigenvalues_ = self._embed(A)
        return self

    def _rows(self, X: Any) -> Operator:
        how: dict[str, Any] = {"n_threads": thread_count(self.n_threads), "memory_limit": self.memory_limit}
        if not isinstance(X, Operator) and not is_lazy(X):
            return as_operator(_nonnegative(self._validated(X), self), **how)
        A = as_operator(X, **how)
        if A.shape[0] < 2 or A.dtype.kind == "c":
            raise ValueError(f"SpectralEmbedding needs at least 2 samples of real numbers, got {A}.")
        self.n_features_in_ = A.shape[1]
        return A

    @property
    def _tags(self) -> dict[str, Any]:
        given, positive = self.affinity == "precomputed", self.affinity != "nearest_neighbors"
        return {"sparse": True, "pairwise": given, "positive_only": positive}


@dataclass(eq=False, repr=False)
class DiffusionMap(GraphEmbedding):
    """Diffusion map: eigenvectors of a random walk on a graph, scaled by powers of their eigenvalues.

    The affinities W, with their diagonal, are normalized by their densities q, the sums of rows, to
    ``W_ij / (q_i q_j)^alpha``; the rows of the result over their sums are the probabilities P of a step. The
    coordinates are ``lambda^t psi`` for the right eigenvectors psi of P, scaled so that the trivial vector of a
    connected graph is 1 everywhere. For ``alpha=0`` and W without a diagonal, psi are the vectors of
    `SpectralEmbedding`, up to scale.

    Parameters
    ----------
    n_components : int
        Number of coordinates.
    alpha : float
        1: remove the influence of the density of the samples; 1/2: Fokker-Planck; 0: the graph Laplacian.
    t : float
        Steps of the random walk.
    tol, max_products, random_state, n_threads, memory_limit : optional
        As in `SpectralEmbedding`.
    drop_first : bool
        As in `SpectralEmbedding`.

    Attributes
    ----------
    embedding_ : array of shape (n_samples, n_components)
    eigenvalues_ : array of shape (n_components,)
        Of P, descending.
    eigenvalue_errors_, vector_errors_, converged_, component_labels_, degrees_, n_products_ :
        As in `SpectralEmbedding`.
    n_features_in_ : int

    See Also
    --------
    SpectralEmbedding : The eigenvectors for clustering.

    References
    ----------
    Coifman & Lafon (2006), Diffusion maps; Haghverdi, Buettner & Theis (2015), Diffusion maps for single cells.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> W = np.exp(-(np.subtract.outer(np.arange(6.0), np.arange(6.0)) ** 2))
    >>> ss.DiffusionMap(1, random_state=0).fit(W).eigenvalues_.round(3)
    array([0.94])
    """

    alpha: float = 1.0
    t: float = 1.0

    @as_one_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map to affinities.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_samples)
            Affinities of the samples, symmetric and nonnegative; the diagonal counts.
        y : ignored
            For scikit-learn.

        Returns
        -------
        DiffusionMap
            The estimator itself.

        Raises
        ------
        ValueError
            For negative or asymmetric affinities, or more components than the graph has.
        """
        self._check()
        alpha, t = nonnegative("alpha", self.alpha), nonnegative("t", self.t)
        check_order(*labels_of(X))
        X = self._validated(X)
        W = _affinities(X, self)
        self._factors = _density_factors(_sums(W), alpha)
        W = _scaled(W, self._factors, self._factors)
        if W.nnz:
            least, most = W.data.min(), W.data.max()
            if not 1 / LARGEST < least <= most < LARGEST:
                rule = f" scales affinities to numbers outside of {1 / LARGEST:.0e} to {LARGEST:.0e}. Lower "
                raise Refused(Setting("alpha", self.alpha), rule, Setting("alpha"), ", or rescale the affinities.")
        A = affinity_of_edges(W, partial(as_operator, n_threads=thread_count(self.n_threads)))
        Y, gaps = self._embed(A)
        self.eigenvalues_, self._psi = 1 - gaps, Y * np.sqrt(A.degrees.sum() or 1.0)
        self.eigenvalue_errors_ += EPS  # of the difference 1 - gaps
        self.embedding_ = self._psi * _powers(self.eigenvalues_, t)
        return self

    def transform(self, X: Any) -> Panel:
        """Return the coordinates of further samples (Nystrom extension).

        Parameters
        ----------
        X : array or sparse matrix of shape (n_new, n_samples)
            Affinities of the new samples to those of the fit.

        Returns
        -------
        array of shape (n_new, n_components)
            0 for a sample without affinities, and along components whose eigenvalue is 0 up to its error.
        """
        P = self._steps(X)
        # The extension is undefined for eigenvalues that may be 0.
        nonzero = np.where(np.abs(self.eigenvalues_) <= self.eigenvalue_errors_, np.inf, self.eigenvalues_)
        return np.asarray(P @ self._psi / nonzero * _powers(self.eigenvalues_, self.t))

    def transform_errors(self, X: Any) -> Panel:
        """Bound the errors of `transform` that the errors of the fit cause.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_new, n_samples)
            Affinities of the new samples to those of the fit.

        Returns
        -------
        array of shape (n_new, n_components)
            Bounds of the absolute differences to the coordinates by the exact eigenvectors, if `converged_`; for
            eigenvalues that cannot be distinguished, by the closest vectors of the space that they share. Infinite
            along components whose eigenvalue may be 0.

        Raises
        ------
        ValueError
            If X does not have a column for each sample of the fit, or has negative or missing affinities.

        Notes
        -----
        Costs one product of the affinities with a vector. docs/how_it_works.rst, eq. nystrom, derives the bound.
        """
        P, eigenvalues, errors = self._steps(X), self.eigenvalues_, self.eigenvalue_errors_
        unit = (8 + np.sqrt(P.shape[1])) * EPS
        squares = P.multiply(P) @ np.divide(1, self.degrees_, out=np.zeros(P.shape[1]), where=self.degrees_ > 0)
        lengths = np.sqrt(squares * (self.degrees_.sum() or 1.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            at = eigenvalues, eigenvalues - errors, eigenvalues + errors
            power, *ends = (_powers(mu, self.t) / mu for mu in at)
            moved = np.maximum(*(np.abs(end - power) for end in ends))
            each = (np.sqrt(2) * self.vector_errors_ + unit) * np.abs(power) + moved
            each = np.where(np.abs(eigenvalues) <= errors, np.inf, each)
            found = np.where(lengths[:, None] > 0, lengths[:, None] * each, 0.0)
        return np.asarray(found)

    def _steps(self, X: Any) -> csr_array:
        """Return the probabilities of steps from new samples; 0 for a sample without affinities."""
        check_is_fitted(self, "embedding_")
        W = _nonnegative(self._validated(X, reset=False, least=1), self)
        P = _scaled(W, np.ones(W.shape[0]), self._factors)  # densities of rows cancel
        sums = _sums(P)
        return _scaled(P, np.divide(1, sums, out=np.zeros(len(sums)), where=sums > 0), np.ones(P.shape[1]))

    @property
    def _tags(self) -> dict[str, Any]:
        return dict.fromkeys(("sparse", "pairwise", "positive_only"), True)


# --- affinities ------------------------------------------------------------------------------------------------------


def check_order(rows: Any, columns: Any) -> None:
    nodes, others = ([] if labels is None else [str(label) for label in labels] for labels in (rows, columns))
    if nodes != others and sorted(nodes) == sorted(others):
        raise ValueError(
            "The rows and columns of the affinities have the same labels in different orders. Reorder one."
        )


def _may_be_graph(X: Any) -> bool:
    if not isinstance(X, csr_array | csr_matrix) or X.shape[0] != X.shape[1] or not X.nnz or X.data.min() < 0:
        return False
    return bool(abs(X - X.T).max() <= ASYMMETRY * X.data.max())


def _affinities(X: Any, estimator: Any) -> csr_array:
    name = type(estimator).__name__
    if X.shape[0] != X.shape[1]:
        raise ValueError(f"{name} needs a square matrix of affinities, one row and column per node, got {X.shape}.")
    W = _nonnegative(X, estimator)
    largest = float(W.data.max(initial=0.0))
    check_size("affinities", largest, LARGEST)
    differences = abs(W - W.T)
    off = float(differences.max()) if W.nnz else 0.0
    if off == 0:
        return W
    if off > ASYMMETRY * largest:
        raise ValueError(f"{name} needs symmetric affinities, got a difference of {off:.3g}. Pass (W + W.T) / 2.")
    sums = csr_array(W + W.T)
    # Rounding errors are relative to each affinity, or, of products of samples, to the largest.
    if (differences - ASYMMETRY * sums).max() > 0:
        notice(f"The affinities differ from those of the other direction by up to {off:.1g}. Their means are used.")
    return csr_array(sums / 2)


def _nonnegative(X: Any, estimator: Any) -> csr_array:
    W: csr_array = csr_array(X, copy=True)  # zeros and duplicates are removed in place
    W.sum_duplicates()
    if W.data.min(initial=0.0) < 0:
        found = f"Negative values in data passed to {type(estimator).__name__}."
        if estimator._of_samples:
            cosines = " Cosines of rows with negative entries may be negative, and affinities are at least 0. Use "
            raise Refused(found, cosines, Setting("affinity", "nearest_neighbors"), ".")
        raise ValueError(f"{found} Affinities are at least 0. Pass W instead of a Laplacian D - W.")
    W.eliminate_zeros()
    return W


def _density_factors(densities: Vector, alpha: float) -> Vector:
    # Multiples of them do not matter: the unit keeps powers within the range of float64.
    unit = np.sqrt(max(densities, default=1.0)) * np.sqrt(min(densities[densities > 0], default=1.0))
    with np.errstate(over="ignore"):
        return np.asarray(np.where(densities > 0, densities / (unit or 1.0), np.inf) ** -alpha)


def _scaled(W: csr_array, rows: Vector, columns: Vector) -> csr_array:
    with np.errstate(over="ignore", invalid="ignore"):
        data = W.data * np.repeat(rows, np.diff(W.indptr)) * columns[W.indices]
    return csr_array((data, W.indices, W.indptr), shape=W.shape)


def _sums(W: csr_array) -> Vector:
    return np.asarray(W.sum(axis=1), np.float64).ravel()


def _powers(eigenvalues: Vector, t: float) -> Vector:
    return np.sign(eigenvalues) * np.abs(eigenvalues) ** t if t % 1 else eigenvalues**t


def _of_nodes(n: int, components: int) -> str:
    if components == 1:
        return f" for a connected graph of {n:,} nodes"
    return f" for a graph of {n:,} nodes in {components:,} connected components"


def _warn_of_components(sizes: Vector, trivial: int) -> None:
    if len(sizes) == 1:
        return
    shown = ", ".join(f"{size:,}" for size in np.sort(sizes)[::-1][:3]) + (", ..." if len(sizes) > 3 else "")
    if trivial:
        many = f"Each of the first {trivial:,} coordinates" if trivial > 1 else "The first coordinate"
        where: tuple[Part, ...] = (f"{many} is constant on one component and 0 on the others.",)
    else:
        remedy = " to begin with one coordinate per component, constant on its nodes."
        where = ("The coordinates vary within components. Use ", Setting("drop_first", False), remedy)
    warn(f"The graph has {len(sizes):,} connected components ({shown} nodes). ", *where)
