"""Normalized affinities of graphs: ``D^-1/2 W D^-1/2`` without the trivial eigenvectors of its connected components."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from shiftsvd.algebra.operator import Costs, Operator
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

EDGES = 2**18  # edges whose differences are computed at once
SUMMED = 64  # relative rounding error of sums of squares over all edges, in rounding units


@dataclass(frozen=True, eq=False, repr=False)
class Affinity(Operator):
    """``N - 2 U U^T`` with ``N = D^-1/2 W D^-1/2 = S S^T - diag(loops)``, or N itself without a factor S.

    The columns of U are the trivial eigenvectors of N, one for each connected component; their eigenvalue 1 becomes -1.
    The eigenvalue of a node without edges counts as 1, too.

    Parameters
    ----------
    A : Operator
        N of shape (n, n), or its factor S of shape (n, p).
    degrees : array of shape (n,)
        Sums of the rows of W; 0 for nodes without edges.
    labels : array of shape (n,)
        The connected component of each node.
    loops : array of shape (n,), optional
        The diagonal of ``S S^T``; None if A is N.
    """

    A: Operator
    degrees: Vector
    labels: np.ndarray[Any, Any]
    loops: Vector | None = None

    def __post_init__(self) -> None:
        n = self.A.shape[0]
        vars(self).update(shape=(n, n), dtype=self.A.dtype)

    @cached_property
    def costs(self) -> Costs:
        A = self.A.costs
        reads = 1 if self.loops is None else 2
        return Costs.of(self, eps=A.eps, stored=reads * A.stored, n_threads=A.n_threads)

    @cached_property
    def trivial(self) -> csr_array:
        """U, of shape (n, components)."""
        n, squares = self.shape[0], np.where(self.degrees > 0, self.degrees, 1.0)
        lengths = np.bincount(self.labels, squares)
        entries = np.sqrt(squares / lengths[self.labels])
        return csr_array((entries, self.labels, np.arange(n + 1)), shape=(n, len(lengths)))

    def normalized(self, V: Panel) -> Panel:
        """Compute ``N V``."""
        if self.loops is None:
            return self.A.matmat(V)
        W = self.A.matmat(self.A.rmatmat(V))
        W -= self.loops[:, None] * V
        return W

    def nontrivial(self, V: Panel) -> Panel:
        """Project V orthogonally to U."""
        return np.asarray(V - self.trivial @ (self.trivial.T @ V))

    def matmat(self, V: Panel) -> Panel:
        U = self.trivial
        alone = np.where(self.degrees > 0, 0.0, 1.0)[:, None]
        return np.asarray(self.normalized(V) + alone * V - 2 * (U @ (U.T @ V)))

    def rmatmat(self, W: Panel) -> Panel:
        return self.matmat(W)

    def energies(self, V: Panel) -> Panel:
        """Compute ``V^T (I - N) V``, by differences along the edges where these are stored."""
        return np.asarray(V.T @ (V - self.normalized(V)))

    def energy_rounding(self, gaps: Vector) -> Vector | float:
        """Bound the rounding errors of the eigenvalues of `energies`."""
        return residual_rounding(self.costs.eps)


@dataclass(frozen=True, eq=False, repr=False)
class EdgeAffinity(Affinity):
    """The same with the edges of W, whose differences keep the digits of eigenvalues near 1."""

    edges: csr_array | None = None

    def energies(self, V: Panel) -> Panel:
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

    def energy_rounding(self, gaps: Vector) -> Vector | float:
        return SUMMED * self.costs.eps * gaps


def affinity_of_edges(W: csr_array, as_operator: Any) -> EdgeAffinity:
    """Return the affinity of a symmetric matrix W with nonnegative entries; its diagonal counts."""
    degrees = np.asarray(W.sum(axis=1), np.float64).ravel()
    roots = _inverse_roots(degrees)
    N = W.copy()
    N.data *= np.repeat(roots, np.diff(W.indptr))
    N.data *= roots[W.indices]
    labels = connected_components(W, directed=False)[1]
    return EdgeAffinity(as_operator(N), degrees, labels, None, W)


def affinity_of_rows(X: csr_array, as_operator: Any) -> Affinity:
    """Return the affinity ``W = X X^T - diag`` of rows with nonnegative entries, without forming W."""
    several = np.bincount(X.indices, minlength=X.shape[1]) > 1
    sums = np.bincount(X.indices, X.data, minlength=X.shape[1])
    # The diagonal of W is subtracted entry by entry; columns with a single entry connect nothing.
    shared = np.where(several[X.indices], X.data * np.maximum(sums[X.indices] - X.data, 0), 0.0)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    degrees = np.bincount(rows, shared, minlength=X.shape[0])
    roots = _inverse_roots(degrees)
    S = csr_array((X.data * roots[rows], X.indices, X.indptr), shape=X.shape)
    loops = np.bincount(rows, S.data**2, minlength=X.shape[0])
    joins, (n, p) = several[X.indices], X.shape  # rows are joined by the columns that they share
    ends = rows[joins], n + X.indices[joins]
    both = connected_components(csr_array((np.ones(len(ends[0])), ends), shape=(n + p, n + p)), directed=False)[1]
    labels = np.unique(both[:n], return_inverse=True)[1]
    return Affinity(as_operator(S), degrees, labels, loops)


def _inverse_roots(degrees: Vector) -> Vector:
    return np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0)), 0.0)
