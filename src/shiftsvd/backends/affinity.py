"""Normalized affinities of graphs: ``D^-1/2 W D^-1/2`` without the trivial eigenvectors of its connected components."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial, singledispatch
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from shiftsvd.algebra import generic
from shiftsvd.algebra.operator import Adjoint, Costs, Operator
from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.entries import bare, by_pieces, entries
from shiftsvd.backends.files import OURS, Reread
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.errors import plural
from shiftsvd.events import record_read
from shiftsvd.kernels import default_threads, shared
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.numerics.entrywise import Change, Quantities, Sides, Terms
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel
from shiftsvd.numerics.powers import ZERO_EXPONENT

EDGES = 2**18  # edges whose differences are computed at once
# Sort the nodes of larger graphs (Cuthill & McKee) if neighbours are then at most this part of the nodes apart, on
# average: products read vectors from the cache, and took 0.77 of the time for neighbours of 100,000 points of a surface
# (0.003), 0.85 for points of 20 dimensions (0.16), where sorting took longer, and as long for 10,000 points.
UNSORTED, NARROW = 2**15, 0.05
Recurrence = Callable[[Panel, Panel, int], Panel]
MOVED = 2.5  # subtracted from the eigenvalue 1 of the trivial vectors
SUMMED = 64  # rounding error of sums over edges, in rounding units of the roots of the diagonal


@dataclass(frozen=True, eq=False, repr=False)
class Affinity(Operator):
    """``N - 2.5 U U^T`` with ``N = D^-1/2 W D^-1/2``.

    The columns of U are the trivial eigenvectors of N, one for each connected component; their eigenvalue 1 becomes
    -1.5, below all others: N of a bipartite graph has the eigenvalue -1. The eigenvalue of a node without edges counts
    as 1, too.
    """

    A: Operator  # N; with `largest`, the factor S of shape (n, p)
    degrees: Vector  # sums of the rows of W; 0 for nodes without edges
    labels: np.ndarray[Any, Any]  # the connected component of each node
    # T, of shape (n, p), with at most one entry in each column: N = S S^T + S T^T + T S^T - diag(loops). The diagonal
    # T T^T is left out, because it may exceed N by far: it would cancel to rounding errors.
    largest: csr_array | None = None
    loops: Vector | None = None  # the diagonal of S S^T, at most 1.05
    places: np.ndarray[Any, Any] | None = None  # the row of each node, if the nodes, degrees and labels were sorted

    def __post_init__(self) -> None:
        n = self.A.shape[0]
        vars(self).update(shape=(n, n), dtype=self.A.dtype)

    @cached_property
    def costs(self) -> Costs:
        A = self.A.costs
        stored = A.stored if self.largest is None else 2 * (A.stored + self.largest.nnz)
        return Costs.of(self, eps=A.eps, stored=stored, n_threads=A.n_threads, working_bytes=A.working_bytes)

    @property
    def reads(self) -> int:
        """Passes over stored matrices of a product."""
        return 1 if self.largest is None else 2

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
        W: Panel = self.A.matmat(Y + self.largest.T @ V) + self.largest @ Y
        W -= self.loops[:, None] * V
        return W

    def recurrence(self, scale: float, shift: float) -> Recurrence:
        """Return the function of (before, now, steps) that computes ``scale N now + shift now - before`` repeatedly."""

        def product(V: Panel) -> Panel:
            W = self.normalized(V)
            W *= scale
            W += shift * V
            return W

        return partial(_recur, product)

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
    """Affinity that multiplies by the edges of W, whose differences keep the digits of eigenvalues near 1."""

    edges: csr_array | None = None
    as_operator: Any = None

    def recurrence(self, scale: float, shift: float) -> Recurrence:
        assert self.edges is not None
        N = _normalized(self.edges, self.degrees)
        N.data *= scale
        X = csr_array(N + shift * eye_array(N.shape[0]))
        if not shared or X.dtype != np.float64:
            return partial(_recur, self.as_operator(X).matmat)

        def recur(before: Panel, now: Panel, steps: int) -> Panel:
            found = shared.recur(X, before, now, steps, self.costs.n_threads or default_threads())
            record_read(steps)
            return found

        return recur

    def energies(self, V: Panel) -> tuple[Vector, Panel, Vector | float]:
        E = self._of_edges(V)
        # Entries are accurate relative to the diagonal, and so are the results: Demmel & Veselic (1992).
        unit, roots = SUMMED * self.costs.eps, np.sqrt(np.diagonal(E))
        try:
            R = np.linalg.cholesky(E).T
            S, _, X, work, _, failed = lapack.dgejsv(R, joba=0, jobu=3, jobv=0, jobr=0, jobt=0)
        except np.linalg.LinAlgError:
            failed = True
        if failed:
            return *np.linalg.eigh(E), unit * np.trace(E)
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


def _recur(product: Callable[[Panel], Panel], before: Panel, now: Panel, steps: int) -> Panel:
    for _ in range(steps):
        after = product(now)
        after -= before
        before, now = now, after
    return now


def affinity_of_edges(W: csr_array, as_operator: Any) -> EdgeAffinity:
    """Return the affinity of a symmetric matrix W with nonnegative entries, including the diagonal."""
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


# --- cosines of rows -------------------------------------------------------------------------------------------------

LEAST_COSINE = 1e-140  # smaller entries of a row of norm 1 count as 0: products would underflow
MODERATE = 1e-140, 1e140  # entries whose squares and sums of squares are in the range of numbers
# An entry dominates its column if it is more than this part of the sum of the column. Beyond 1/2 by more than rounding
# errors of sums, so that at most one entry does.
DOMINATES = 0.51


def affinity_of_rows(X: Operator) -> Affinity:
    """Return the affinity ``W = Y Y^T - diag``, where Y holds the rows of X over their norms; W is never formed.

    Takes four reads of X, for the norms, the sums of columns, the degrees and the connected components, and two more
    where squares of entries leave the range of numbers. A product reads X twice. Entries are changed in each read, a
    block at a time.

    An entry that is most of the sum of its column may exceed all affinities of its row by far. These entries, of which
    there is one in a column at most, are in `Affinity.largest`, in memory.
    """
    norms, none = _norms(X), np.zeros((X.shape[1], 0))
    R = np.column_stack([*norms, np.arange(len(norms[0]))])
    sums = generic.entry_sums(X, Terms(_units, R[:, :2], none))[1]
    of_rows, of_columns = generic.entry_sums(X, Terms(_shares, R, sums))
    degrees, loops = of_rows.T
    places, most, others = of_columns.T
    j = np.flatnonzero((most > 0) & (others > 0))
    i = places[j].astype(np.intp)
    degrees = degrees + np.bincount(i, most[j] * others[j], minlength=len(degrees))
    roots = _inverse_roots(degrees)
    S = generic.with_entries(X, Change(_small, np.column_stack([*norms, roots]), sums, dtype=np.float64))
    T = csr_array((most[j] * roots[i], (i, j)), shape=X.shape)
    labels, _ = linked(X, Links(_joined, R[:, :2], np.column_stack([sums, others])))
    _, first, at = np.unique(labels, return_index=True, return_inverse=True)
    labels = np.argsort(np.argsort(first))[at]  # in the order of the rows
    return Affinity(S, degrees, labels, T, loops * roots**2)


def _norms(X: Operator) -> tuple[Vector, Vector]:
    """Return exponents of the powers of two that rows are multiplied by, and the norms of the products, or 1 for 0."""
    powers, none = np.zeros(X.shape[0]), np.zeros((X.shape[1], 0))
    squares, negative, extreme = generic.entry_sums(X, Terms(_squares, powers[:, None], none))[0].T
    if (count := int(negative.sum())) > 0:
        raise ValueError(f"Cosines need nonnegative values, got {plural(count, 'negative value')}.")
    if extreme.any():
        exponents = generic.exponents(X, 1)
        assert exponents is not None
        powers = np.where(exponents > ZERO_EXPONENT, -exponents, 0)
        squares = generic.entry_sums(X, Terms(_squares, powers[:, None], none))[0][:, 0]
    return powers, np.sqrt(np.where(squares > 0, squares, 1.0))


def _squares(x: Vector, r: Quantities, c: Quantities) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    least, most = MODERATE
    x = np.ldexp(x, r[0].astype(np.int64))
    with np.errstate(over="ignore"):
        return (x**2, x < 0, (x != 0) & ~((x > least) & (x < most))), ()


def _unit(x: Vector, r: Quantities) -> Vector:
    """Return entries over the norms of their rows."""
    u = np.ldexp(x, r[0].astype(np.int64)) / r[1]
    u[u < LEAST_COSINE] = 0.0
    return u


def _units(x: Vector, r: Quantities, c: Quantities) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    return (), (_unit(x, r),)


def _shares(x: Vector, r: Quantities, c: Quantities) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    u, (*_, row), (total,) = _unit(x, r), r, c
    most = u > DOMINATES * total
    rest = np.where(most, 0.0, u)
    return (rest * (total - rest), rest**2), (most * row, u - rest, rest)


def _small(x: Vector, r: Quantities, c: Quantities) -> Vector:
    u = _unit(x, r)
    return np.where(u > DOMINATES * c[0], 0.0, u) * r[2]


def _joined(x: Vector, r: Quantities, c: Quantities) -> Vector:
    u, (total, others) = _unit(x, r), c
    return (u > 0) & ((u <= DOMINATES * total) | (others > 0))


# --- connected components of rows and columns ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Links(Sides):
    """A function that returns which entries join their row and column."""


Found = tuple[list[Vector], Vector]  # a column that each row is joined to, or -1; a column for each component


@singledispatch
def linked(A: Operator, links: Links) -> tuple[Vector, Vector]:
    """Return the label of the connected component of each row and of each column, in one read."""
    raise generic.no_entries(A)


linked.register(Adjoint, lambda A, links: linked(A.A, links.H)[::-1])


@linked.register
def _(A: SparseRows | DenseRows | Reread, links: Links) -> tuple[Vector, Vector]:
    bare(A)
    if isinstance(A, Reread):
        firsts, columns = A._total("links", (links.rows(0, 0),), (links.R,), _linked_too)
    else:
        firsts, columns = _links(A, links)
    first = np.concatenate(firsts)
    return np.where(first >= 0, columns[first], len(columns) + np.arange(len(first))), columns


def _links(A: SparseRows | DenseRows, links: Links) -> Found:
    def piece(rows: Rows) -> Found:
        x, i, j = entries(A, rows)
        kept = links.rows(*rows).of(x, i, j)
        first, i, j = np.full(rows[1] - rows[0], -1), i[kept], j[kept]
        first[i] = j
        return [first], _components(first[i], j, A.shape[1])

    return by_pieces(A, piece, _linked_too, A.shape[1])


def _linked_too(a: Found, b: Found) -> Found:
    n = len(a[1])
    return a[0] + b[0], _components(np.tile(np.arange(n), 2), np.concatenate([a[1], b[1]]), n)


def _components(i: Vector, j: Vector, n: int) -> Vector:
    """Return one of n nodes for each connected component of the graph of the edges from i to j."""
    graph = csr_array((np.ones(len(i), bool), (i, j)), shape=(n, n))
    _, first, at = np.unique(connected_components(graph, directed=False)[1], return_index=True, return_inverse=True)
    return np.asarray(first[at])


OURS["links"] = lambda A, links, R: _links(A, replace(links, R=R))


def _inverse_roots(degrees: Vector) -> Vector:
    return np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0)), 0.0)
