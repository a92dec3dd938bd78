"""Normalized affinities of graphs: ``D^-1/2 W D^-1/2`` without the trivial eigenvectors of its connected components."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from shiftsvd.algebra.operator import Costs, Operator
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

EDGES = 2**18  # edges whose differences are computed at once
# Sort the nodes of larger graphs (Cuthill & McKee) if neighbours are then at most this part of the nodes apart, on
# average: products read vectors from the cache, and took 0.77 of the time for neighbours of 100,000 points of a surface
# (0.003), 0.85 for points of 20 dimensions (0.16), where sorting took longer, and as long for 10,000 points.
UNSORTED, NARROW = 2**15, 0.05
MOVED = 2.5  # subtracted from the eigenvalue 1 of the trivial vectors
SUMMED = 64  # rounding error of sums over edges, in rounding units of the roots of the diagonal


@dataclass(frozen=True, eq=False, repr=False)
class Affinity(Operator):
    """``N - 2.5 U U^T`` with ``N = D^-1/2 W D^-1/2``.

    The columns of U are the trivial eigenvectors of N, one for each connected component; their eigenvalue 1 becomes
    -1.5, below all others: N of a bipartite graph has the eigenvalue -1. The eigenvalue of a node without edges counts
    as 1, too.

    Parameters
    ----------
    A : Operator
        N of shape (n, n); with `largest`, the factor S of shape (n, p).
    degrees : array of shape (n,)
        Sums of the rows of W; 0 for nodes without edges.
    labels : array of shape (n,)
        The connected component of each node.
    largest : Operator of shape (n, p), optional
        T with one entry in each column at least as large as those of S: ``N = S S^T + S T^T + T S^T - diag(loops)``.
        The diagonal ``T T^T`` is left out, because it may exceed N by far: it would cancel to rounding errors.
    loops : array of shape (n,), optional
        The diagonal of ``S S^T``, at most 1.
    places : array of shape (n,), optional
        The row of each node, if the nodes were sorted; degrees and labels are sorted, too.
    """

    A: Operator
    degrees: Vector
    labels: np.ndarray[Any, Any]
    largest: Operator | None = None
    loops: Vector | None = None
    places: np.ndarray[Any, Any] | None = None

    def __post_init__(self) -> None:
        n = self.A.shape[0]
        vars(self).update(shape=(n, n), dtype=self.A.dtype)

    @cached_property
    def costs(self) -> Costs:
        A = self.A.costs
        stored = A.stored if self.largest is None else 2 * (A.stored + self.largest.costs.stored)
        return Costs.of(self, eps=A.eps, stored=stored, n_threads=A.n_threads)

    @property
    def reads(self) -> int:
        """Passes over stored matrices of a product."""
        return 1 if self.largest is None else 4

    @cached_property
    def trivial(self) -> csr_array:
        """U, of shape (n, components)."""
        n, squares = self.shape[0], np.where(self.degrees > 0, self.degrees, 1.0)
        lengths = np.bincount(self.labels, squares)
        entries = np.sqrt(squares / lengths[self.labels])
        return csr_array((entries, self.labels, np.arange(n + 1)), shape=(n, len(lengths)))

    def normalized(self, V: Panel) -> Panel:
        """Compute ``N V``."""
        if self.largest is None or self.loops is None:
            return self.A.matmat(V)
        Y = self.A.rmatmat(V)
        W = self.A.matmat(Y + self.largest.rmatmat(V)) + self.largest.matmat(Y)
        W -= self.loops[:, None] * V
        return W

    def combination(self, scale: float, shift: float) -> Callable[[Panel], Panel]:
        """Return the function that computes ``scale N V + shift V``."""

        def product(V: Panel) -> Panel:
            W = self.normalized(V)
            W *= scale
            W += shift * V
            return W

        return product

    def nontrivial(self, V: Panel) -> Panel:
        """Project V orthogonally to U."""
        return np.asarray(V - self.trivial @ (self.trivial.T @ V))

    def matmat(self, V: Panel) -> Panel:
        U = self.trivial
        alone = np.where(self.degrees > 0, 0.0, 1.0)[:, None]
        return np.asarray(self.normalized(V) + alone * V - MOVED * (U @ (U.T @ V)))

    def rmatmat(self, W: Panel) -> Panel:
        return self.matmat(W)

    def energies(self, V: Panel) -> tuple[Vector, Panel, Vector | float]:
        """Return the eigenvalues of ``V^T (I - N) V``, ascending, their vectors, and bounds of their rounding."""
        gaps, X = np.linalg.eigh(V.T @ (V - self.normalized(V)))
        return gaps, X, residual_rounding(self.costs.eps)


@dataclass(frozen=True, eq=False, repr=False)
class EdgeAffinity(Affinity):
    """The same with the edges of W, whose differences keep the digits of eigenvalues near 1."""

    edges: csr_array | None = None
    as_operator: Any = None

    def combination(self, scale: float, shift: float) -> Callable[[Panel], Panel]:
        assert self.edges is not None
        N = _normalized(self.edges, self.degrees)
        N.data *= scale
        combined: Operator = self.as_operator(csr_array(N + shift * eye_array(N.shape[0])))
        return combined.matmat

    def energies(self, V: Panel) -> tuple[Vector, Panel, Vector | float]:
        E = self._of_edges(V)
        # Entries are accurate relative to the diagonal, and so are the results: Demmel & Veselic (1992).
        unit, roots = SUMMED * self.costs.eps, np.sqrt(np.diagonal(E))
        try:
            R = np.linalg.cholesky(E).T
        except np.linalg.LinAlgError:
            return *np.linalg.eigh(E), unit * np.trace(E)
        S, _, X, work, *_ = lapack.dgejsv(R, joba=0, jobu=3, jobv=0, jobr=0, jobt=1)
        X = X[:, ::-1]
        return (S[::-1] * (work[0] / work[1])) ** 2, X, unit * (roots @ np.abs(X)) ** 2

    def _of_edges(self, V: Panel) -> Panel:
        # sum_ij w_ij (y_i - y_j) (y_i - y_j)^T / 2 with y = D^-1/2 v: a sum of squares, without cancellation.
        assert self.edges is not None
        W = self.edges
        Y = V * _inverse_roots(self.degrees)[:, None]
        total, first = np.zeros((V.shape[1], V.shape[1])), 0
        while first < W.shape[0]:
            most = W.indptr[first] + EDGES
            end = max(int(np.searchsorted(W.indptr, most, side="right")) - 1, first + 1)
            lo, hi = W.indptr[first], W.indptr[end]
            rows = np.repeat(np.arange(first, end), np.diff(W.indptr[first : end + 1]))
            upper = W.indices[lo:hi] > rows
            differences = Y[rows[upper]] - Y[W.indices[lo:hi][upper]]
            differences *= np.sqrt(W.data[lo:hi][upper])[:, None]
            total += differences.T @ differences
            first = end
        return total


def affinity_of_edges(W: csr_array, as_operator: Any) -> EdgeAffinity:
    """Return the affinity of a symmetric matrix W with nonnegative entries; its diagonal counts."""
    degrees, places = np.asarray(W.sum(axis=1), np.float64).ravel(), None
    labels = connected_components(W, directed=False)[1]
    if len(degrees) > UNSORTED:
        order = reverse_cuthill_mckee(W, symmetric_mode=True)
        rank = np.argsort(order)
        if np.abs(np.repeat(rank, np.diff(W.indptr)) - rank[W.indices]).mean() < NARROW * len(rank):
            W, degrees, labels, places = csr_array(W[order][:, order]), degrees[order], labels[order], rank
            W.sort_indices()
    A = as_operator(_normalized(W, degrees))
    return EdgeAffinity(A, degrees, labels, places=places, edges=W, as_operator=as_operator)


def _normalized(W: csr_array, degrees: Vector) -> csr_array:
    N, roots = W.copy(), _inverse_roots(degrees)
    N.data *= np.repeat(roots, np.diff(W.indptr))
    N.data *= roots[W.indices]
    return N


def affinity_of_rows(X: csr_array, as_operator: Any) -> Affinity:
    """Return the affinity ``W = X X^T - diag`` of rows with positive entries, without forming W."""
    (n, p), rows = X.shape, np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    most, place = X.max(axis=0).toarray().ravel(), np.full(p, -1)
    at = np.flatnonzero(X.data == most[X.indices])
    place[X.indices[at]] = at
    largest = np.zeros(X.nnz, bool)  # one entry of each column
    largest[place[place >= 0]] = True
    # The sum of the other entries of the column, without cancellation.
    others = np.bincount(X.indices, np.where(largest, 0, X.data), minlength=p)[X.indices]
    others += np.where(largest, 0, most[X.indices] - X.data)
    degrees = np.bincount(rows, X.data * others, minlength=n)
    data = X.data * _inverse_roots(degrees)[rows]
    S, T = (csr_array((data[part], (rows[part], X.indices[part])), shape=X.shape) for part in (~largest, largest))
    loops = np.bincount(rows, np.where(largest, 0, data**2), minlength=n)
    joins = others > 0  # rows are joined by the columns that they share
    ends = rows[joins], n + X.indices[joins]
    both = connected_components(csr_array((np.ones(len(ends[0])), ends), shape=(n + p, n + p)), directed=False)[1]
    labels = np.unique(both[:n], return_inverse=True)[1]
    return Affinity(as_operator(S), degrees, labels, as_operator(T), loops)


def _inverse_roots(degrees: Vector) -> Vector:
    return np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0)), 0.0)
