"""Streaming PCA: update the scatter matrix of centred rows, exact or sketched, by batches, and merge streams."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from scipy import linalg
from scipy.linalg.lapack import dgejsv

from shiftsvd.algebra.generic import gram_matrix, row_blocks, triangle
from shiftsvd.backends import as_operator
from shiftsvd.backends.blocked import squares_about
from shiftsvd.errors import Part, Refused, Setting, plural
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.kernels.twin import range_errors_ignored
from shiftsvd.numerics.bounds import rounding_bounds
from shiftsvd.numerics.nystrom import krylov, nystrom
from shiftsvd.numerics.orth import folded, inner, phases, r_factor, subtract_product
from shiftsvd.operators import Moments, Operator, Panel, Vector
from shiftsvd.preparation.prepare import Prepared
from shiftsvd.preparation.shifts import MeanShift
from shiftsvd.result import Info
from shiftsvd.runs.memory import affordable, enough_bytes, spare
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.factors import rounding

# ---- The scatter matrix of centred rows: exact, or sketched

EPS = float(np.finfo(np.float64).eps)
ORIGIN = np.zeros(1)  # a mean, about which squares are raw
# Smallest capacity of the buffer of columns: small compared with S, and large enough for fast updates.
WAITING = 512
# Entries per thread in a block of dense rows, so that the block fits in the cache.
PIECE = 2**17
# Factorize one in HEAD of the first rows of a stream by Householder reflections, so that W of the others is moderate.
HEAD = 8
# Largest diagonal entry of I + W^T W for an update by squares; it multiplies the rounding error of each column.
MODERATE = 32.0
# Compute singular values from squares, which is several times faster, if the bound is below this relative error.
SQUARED = 1e-7
# Smallest ratio of the rest of the trace to its rounding error, so that the rest has correct digits.
LEAST_REST = 1000.0
# Basis of a search in a large batch, in columns of the test matrix. Sparse counts of 60 000 x 2 000 in one batch, ell =
# 2k, error over the optimum less 1: 1e-3 with a basis of 2 ell, 3e-5 with 4, 1e-6 with 6 (7 batches: 1e-3, 2e-4, 1e-4).
BASIS = 4
# Rounding error of B B^T, in units of its norm, whenever B is turned to drop columns.
TURNING = 4.0


class ScatterPairs(NamedTuple):
    """The leading eigenpairs of a scatter matrix C^T C or its sketch, as singular values and vectors of C."""

    values: Vector  # singular values, descending
    vectors: Panel  # orthonormal columns
    errors: Vector  # bounds of the rounding error of each singular value
    rest: float  # sum of the squares of the other singular values kept; of a stream, of all others
    # Of a stream:
    total: float = 0.0  # the exact trace
    slip: float = 0.0  # bound of the error of a value due to rounding of the means; included in `errors`
    unseen: float = 0.0  # largest possible underestimate of an eigenvalue by the sketch


@dataclass(eq=False)
class Scatter(ABC):
    """``S = sum of C^T C`` over batches of centred rows C; grows in place."""

    B: Panel  # buffer of columns, shape (n_features, capacity), in Fortran order; the first `used` are set
    used: int
    slack: Vector  # the rounding error of entry (i, j) of the squares is at most ``sqrt(slack[i] slack[j])``

    def __setstate__(self, state: dict[str, Any]) -> None:
        # joblib may map arrays read-only from a file: copy them.
        fixed = (name for name, value in state.items() if isinstance(value, np.ndarray) and not value.flags.writeable)
        vars(self).update(state | {name: np.array(state[name]) for name in fixed})

    @property
    def columns(self) -> Panel:
        return self.B[:, : self.used]

    @property
    def size(self) -> int:
        return len(self.B)

    # S += C^T diag(weights) C; returns the number of reads of C, the first of them before anything changes. `squares`
    # are the squared column norms at whose level squares of C round: those before a shift that products subtract last.
    def add(self, C: Operator, weights: Vector | None, squares: Vector) -> int:
        # A batch of few rows adds a few columns to B. Sparse rows become dense there, which is cheap for few rows.
        few = self.B.shape[1] if is_dense(C) else WAITING
        if C.shape[0] > few // 2:
            return self.add_rows(C, weights, squares)
        self.add_columns(np.concatenate(list(_weighted(C, weights, C.shape[0]))).T)
        return 1

    def _append(self, P: Panel) -> None:
        at_once = self.B.shape[1] // 2
        for lo in range(0, P.shape[1], at_once):
            part = P[:, lo : lo + at_once]
            if self.used + part.shape[1] > self.B.shape[1]:
                self._make_room()
            self.B[:, self.used : self.used + part.shape[1]] = part
            self.used += part.shape[1]

    def same_kind(self, other: "Scatter") -> bool:
        return type(self) is type(other)

    def refine(self, C: Operator, weights: Vector | None) -> int:
        return 0  # reads: nothing is sketched

    @abstractmethod
    def add_rows(self, C: Operator, weights: Vector | None, squares: Vector) -> int: ...

    @abstractmethod
    def add_columns(self, P: Panel) -> None: ...

    @abstractmethod
    def _make_room(self) -> None: ...

    @abstractmethod
    def added(self, other: Self) -> Self: ...

    @abstractmethod
    def leading(self, k: int, slip: Vector) -> ScatterPairs: ...


def is_dense(C: Operator) -> bool:
    return C.costs.stored >= C.shape[0] * C.shape[1]


def _weighted(C: Operator, weights: Vector | None, rows: int) -> Iterator[Panel]:
    roots = None if weights is None else np.sqrt(weights)[:, None]
    for lo, block in row_blocks(C, rows):
        yield block if roots is None else roots[lo : lo + len(block)] * block


@dataclass(eq=False)
class WholeScatter(Scatter):
    """The full scatter matrix ``R^T R + S``: the triangular factor R of dense rows, and the squares S of sparse rows.

    B buffers columns until they are added to R (the sequential TSQR of Demmel, Grigori, Hoemmen & Langou 2012). A
    factor has a relative error of eps in each column, while squares lose singular values below sqrt(eps). Sparse rows
    use squares nevertheless, because their factor would be dense and take much longer.
    """

    R: Panel  # upper triangle
    S: Panel | None = None  # in Fortran order
    doubt: float = 0.0  # relative backward error of R in each column

    @classmethod
    def empty(cls, n: int) -> "WholeScatter":
        return cls(np.empty((n, max(WAITING, 2 * n)), order="F"), 0, np.zeros(n), np.zeros((n, n)))

    @staticmethod
    def bytes(n: int, n_threads: int) -> int:
        return 8 * n * ((n_threads + 9) * n + WAITING)

    def add_rows(self, C: Operator, weights: Vector | None, squares: Vector) -> int:
        if is_dense(C):
            return self._factorize(C, weights)
        G = gram_matrix(C, weights).T  # symmetric, and by columns
        self.S = G if self.S is None else self.S + G
        self.slack = self.slack + EPS / 2 * ((C.shape[0] + 8) * squares + np.diagonal(self.S))
        return 1

    def _factorize(self, C: Operator, weights: Vector | None) -> int:
        (m, n), step = C.shape, max(2 * C.shape[1], PIECE // C.shape[1])
        blocks, R, rounding = _weighted(C, weights, step), self.R, EPS / 2 * (m + 4 * n)
        if not R.any():
            head = islice(blocks, -(-max(m // HEAD, 2 * n) // step))
            R = reduce(folded, ordered(r_factor, head, default_threads()), R)
        found, size = _updated(R, blocks) if m >= n else (None, 1.0)
        self.R = folded(self.R, triangle(C, weights)) if found is None else found
        self.doubt += rounding * (1 + size)
        return 2 if found is None and m >= n else 1

    def add_columns(self, P: Panel) -> None:
        self._append(P)

    def _make_room(self) -> None:
        if self.used:
            self._factorize(as_operator(self.columns.T), None)
        self.used = 0

    def added(self, other: "WholeScatter") -> "WholeScatter":
        both = deepcopy(self)
        if other.R.any():
            both.R = folded(self.R, other.R)
            both.doubt = max(self.doubt, other.doubt) + EPS * len(self.R)
        if other.S is not None:
            both.S = other.S.copy(order="F") if self.S is None else self.S + other.S
            both.slack = self.slack + other.slack + EPS / 2 * np.diagonal(both.S)
        both._append(other.columns)
        return both

    def leading(self, k: int, slip: Vector) -> ScatterPairs:
        self._make_room()
        T = self.R.T @ self.R if self.S is None else self.R.T @ self.R + self.S
        n, lengths = len(T), np.sqrt(np.diagonal(T))
        slip = slip + self.doubt * lengths
        w, V = linalg.eigh(T, subset_by_index=(n - k, n - 1), check_finite=False)
        values, trace = np.sqrt(np.maximum(w[::-1], 0)), float(lengths @ lengths)
        squares = float(self.slack.sum()) + 2 * n * EPS * trace
        errors, rest = rounding_bounds(values, float(np.linalg.norm(slip)), squares), trace - float(values @ values)
        if np.all(errors <= SQUARED * values) and (k == n or rest >= LEAST_REST * squares):
            return ScatterPairs(values, V[:, ::-1], errors, rest)
        return self._by_factor(k, lengths, slip)

    def _by_factor(self, k: int, lengths: Vector, slip: Vector) -> ScatterPairs:
        F, slack, n = self.R, self.slack, len(self.R)
        if self.S is not None:
            unit = np.sqrt(np.diagonal(self.S))  # 0 for columns of zeros, which must not get rounding of others
            divisor = np.where(unit > 0, unit, 1)
            root, lost = _root(self.S / divisor / divisor[:, None])
            F, slack = folded(self.R, root * unit), slack + lost * unit**2
        values, vectors = _jacobi(F)
        slip = slip + EPS / 2 * n * lengths
        known = np.maximum(slip, np.sqrt(slack)) < lengths
        errors = np.minimum(*(_factor_errors(values, F, which, slip, slack) for which in (known, np.zeros(n, bool))))
        return ScatterPairs(values[:k], vectors[:, :k], errors[:k], float(values[k:] @ values[k:]))


# Return the R factor of R stacked on blocks of rows P, and the growth of the rounding error; None if Householder QR is
# more accurate. With W = P R^-1, R^T R + P^T P = R^T (I + W^T W) R: squaring a W of moderate size loses no digits and
# takes at most half the time of a QR factorization.
def _updated(R: Panel, blocks: Iterator[Panel]) -> tuple[Panel | None, float]:
    n, lengths = len(R), np.linalg.norm(R, axis=0)
    near, at = np.triu(R), np.diag_indices(n)
    least = n * EPS * lengths  # size of rounding errors; diagonal entries of repeated columns are below this
    near[at] = np.where(np.abs(near[at]) > least, near[at], np.where(lengths > 0, least, 1))

    @range_errors_ignored
    def squares(P: Panel) -> Panel:
        W = linalg.solve_triangular(near, P.T, trans="T", check_finite=False)
        return np.asarray(W @ W.T)

    M = reduce(np.add, ordered(squares, blocks, default_threads()), np.eye(n))
    size = float(M[at].max())
    if not (size <= MODERATE and np.all(M[at][lengths == 0] == 1)):
        return None, 1.0
    return np.where(lengths > 0, np.linalg.cholesky(M).T @ near, 0), size


# Bounds of the errors of the singular values of F, relative to each value if the `known` columns are independent. With
# D the lengths of the known columns, ||D x|| <= (||F x|| + ||F_rest|| ||x||) / sigma_min(F_known D^-1), so errors of
# these columns change even a tiny value only by a fraction of itself (Demmel & Veselic 1992).
def _factor_errors(values: Vector, F: Panel, known: Vector, slip: Vector, slack: Vector) -> Vector:
    lengths, least = np.linalg.norm(F[:, known], axis=0), 1.0
    if known.any():
        least = float(np.linalg.svd(F[:, known] / lengths, compute_uv=False)[-1])
        if least <= len(F) * EPS:
            return np.full(len(values), np.inf)
    reach = (values + float(np.linalg.norm(F[:, ~known]))) / least
    columns = float(np.linalg.norm(slip[known] / lengths)) * reach + float(np.linalg.norm(slip[~known]))
    squares = np.sqrt((slack[known] / lengths**2).sum()) * reach + np.sqrt(slack[~known].sum())
    return rounding_bounds(values, columns, squares**2)


def _root(G: Panel) -> tuple[Panel, float]:
    w, V = linalg.eigh(G, check_finite=False)
    root = np.sqrt(np.maximum(w, 0))[:, None] * V.T
    # Measure the error: eigenvectors of close eigenvalues may lose hundreds of ulps of their orthogonality.
    off = root.T @ root - G
    return root, float(max(off.max(), -off.min())) + 2 * len(G) * EPS


# One-sided Jacobi is accurate for columns of very different lengths (Drmac & Veselic 2008, SIAM J. Matrix Anal. Appl.).
def _jacobi(F: Panel) -> tuple[Vector, Panel]:
    values, _, V, scale, _, info = dgejsv(F, joba=0, jobu=3, jobv=0, jobp=0)
    if info:
        raise np.linalg.LinAlgError(
            f"The SVD did not converge: dgejsv of LAPACK returned info = {info}. Use fit, which has other algorithms."
        )
    return values * (scale[0] / scale[1]), V


@dataclass(eq=False)
class SketchedScatter(Scatter):
    """A sketch ``Y = S Omega`` and leading directions ``B B^T <= S`` of the scatter matrix S, which is not stored.

    The sketch is linear: neither the order nor the size of batches matters to it beyond rounding (Tropp, Yurtsever,
    Udell & Cevher 2017). The directions are those of an incremental SVD that keeps `ell` of them (Ross, Lim, Lin & Yang
    2008), in a large batch by block Krylov (Musco & Musco 2015). The dropped directions depend on the order of batches,
    but B B^T never exceeds S. The recovered matrix ``T = B B^T + nystrom(Y - B B^T Omega)`` lies between the Nystrom
    approximation of S by the sketch alone and S, in the Loewner order, since Schur complements are monotone. So each
    eigenvalue of S is at least that of T, and at most that of T plus ``trace(S) - trace(T)``, for any order.
    """

    Omega: Panel  # test matrix of shape (n_features, ell); only sketches with equal test matrices can be merged
    Y: Panel
    eps: float = EPS  # rounding unit of the products that are summed in Y

    @classmethod
    def empty(cls, n: int, ell: int, rng: Generator) -> "SketchedScatter":
        Omega, B = rng.standard_normal((n, ell)), np.empty((n, 2 * ell), order="F")
        return cls(B, 0, np.zeros(n), Omega, np.zeros((n, ell)))

    @staticmethod
    def bytes(n: int, ell: int) -> int:
        return 8 * n * ell * (4 + 3 * BASIS)

    def add_rows(self, C: Operator, weights: Vector | None, squares: Vector) -> int:
        ell, reads = self.size, 1
        if self.used > ell:
            self._make_room()

        def times(W: Panel) -> Panel:
            nonlocal reads
            reads += 1
            TW = C.gram(W, weights)
            subtract_product(TW, self.columns, -inner(self.columns, W))
            return TW

        Z = C.gram(self.Omega, weights)
        TW, W = krylov(times, np.hstack([self.columns, Z]), min(BASIS * ell, len(Z)))
        directions = self._directions(TW, W, C.costs.gram_eps)
        self.Y += Z
        self.eps = max(self.eps, C.costs.gram_eps)
        self.slack = self.slack + rounding(C, C.costs.gram_eps) * squares
        self._replace(directions[:, :ell])
        return reads

    def _directions(self, SW: Panel, W: Panel, eps: float) -> Panel:
        values, vectors, excess = nystrom(SW, W, eps * float(np.linalg.norm(SW)))
        self.slack = self.slack + excess / len(W)
        return vectors * np.sqrt(values)

    def add_columns(self, P: Panel) -> None:
        subtract_product(self.Y, P, -inner(P, self.Omega))
        self._append(P)

    def _make_room(self) -> None:
        _, Z = np.linalg.eigh(inner(self.columns, self.columns))
        self.slack = self.slack + TURNING * EPS * (self.columns**2).sum(axis=1)
        self._replace(self.columns @ Z[:, ::-1][:, : self.size])

    def _replace(self, B: Panel) -> None:
        self.used = B.shape[1]
        self.B[:, : self.used] = B

    def same_kind(self, other: Scatter) -> bool:
        return isinstance(other, SketchedScatter) and np.array_equal(self.Omega, other.Omega)

    def added(self, other: "SketchedScatter") -> "SketchedScatter":
        both = replace(self, B=self.B.copy(order="F"), Y=self.Y + other.Y, slack=self.slack + other.slack)
        both.eps = max(self.eps, other.eps)
        both._append(other.columns)
        return both

    def refine(self, C: Operator, weights: Vector | None) -> int:
        W = self.leading(2 * self.size, np.zeros(len(self.B))).vectors
        self._replace(self._directions(C.gram(W, weights), W, C.costs.gram_eps))
        return 1

    def leading(self, k: int, slip: Vector) -> ScatterPairs:
        rest = self.Y.copy()
        subtract_product(rest, self.columns, inner(self.columns, self.Omega))
        values, vectors, excess = nystrom(rest, self.Omega, self.eps * float(np.linalg.norm(self.Y)))
        V, S, _ = linalg.svd(np.hstack([self.columns, vectors * np.sqrt(values)]), False, check_finite=False)
        squares = float(self.slack.sum()) + excess + EPS * sum(V.shape) * float(S @ S)
        errors = rounding_bounds(S[:k], float(np.linalg.norm(slip)), squares)
        return ScatterPairs(S[:k], V[:, :k], errors, float(S[k:] @ S[k:]))

    @property
    def size(self) -> int:
        return int(self.Omega.shape[1])


# ---- A stream of rows: exact moments, and a scatter matrix that is centred after each batch

# Keep the full scatter matrix up to this number of features (1.5 GB with the workspace of 2 threads).
WHOLE = 4096
LARGEST = 2.0**240  # largest size of a column of a batch; the smallest size is its inverse


@dataclass(eq=False)
class Stream:
    """Moments and scatter matrix of the rows so far; batches update both in place.

    Batches and merges use the update of Chan, Golub & LeVeque (1983), which avoids cancellation for data far from the
    origin. The mean and the total variance are exact even if the scatter matrix is sketched.
    """

    scatter: Scatter  # scatter matrix of the centred, scaled rows
    scale: Vector | None
    moments: Moments  # count (the sum of the weights), mean and squared deviations of each column
    n_rows: int = 0
    dtype: np.dtype[Any] = np.dtype(np.float32)  # of the results: float64 after the first batch of that type
    n_passes: int = 0  # largest number of reads of a row
    seconds: float = 0.0
    n_joined: int = 0  # number of times that two means were combined, each with a rounding error
    k: int | None = None  # number of components given to `begin`

    @classmethod
    def empty(cls, scatter: Scatter, scale: Vector | None = None, k: int | None = None) -> "Stream":
        n = len(scatter.B)
        return cls(scatter, scale, Moments(0.0, np.zeros(n), np.zeros(n)), k=k)

    @classmethod
    def begin(
        cls,
        n: int,
        k: int,
        n_oversamples: int,
        scale: Vector | None,
        rng: Callable[[], Generator],
        memory_limit: int | str | None,
    ) -> "Stream":
        ell = min(k + max(k, n_oversamples), n)
        what = f"partial_fit with {plural(k, 'component')} of {plural(n, 'feature')}"
        needed = WholeScatter.bytes(n, default_threads())
        if ell == n or (n <= max(WHOLE, 4 * ell) and spare(needed, memory_limit)):
            affordable(needed, memory_limit, what)
            return cls.empty(WholeScatter.empty(n), scale, k)
        affordable(SketchedScatter.bytes(n, ell), memory_limit, what)
        return cls.empty(SketchedScatter.empty(n, ell, rng()), scale, k)

    @property
    def is_sketched(self) -> bool:
        return self.scatter.size < len(self.moments.mean)

    def more_exactly(self) -> tuple[Part, ...]:
        """Return the remedy for errors of the sketch, as parts of a message."""
        n = len(self.moments.mean)
        if n <= max(WHOLE, 4 * self.scatter.size):
            least = enough_bytes(WholeScatter.bytes(n, default_threads()))
            first = "Set ", Setting("memory_limit"), f" to {least} for exact components, or "
        else:
            first = "Raise ", Setting("n_oversamples"), ", or "
        return (*first, "call refine with all rows.")

    def update(self, A: Operator, weights: Vector | None = None) -> None:
        started = time.perf_counter()
        empty = weights is not None and not weights.any()
        moments = self.moments if empty else A.moments(weights)
        if moments.M2 is None or A.dtype.kind == "c":
            raise ValueError(
                f"partial_fit needs real numbers and the sums of squares of the columns, which {A} does not provide. "
                "Pass an array or a sparse matrix, or use shiftsvd.svd."
            )
        _check_size(moments)
        if not empty:
            C = self._centred(A, moments.mean)
            # Products of sparse rows subtract the shift from sums, which round at the level of the data.
            squares = self._in_units(moments.M2 if is_dense(C) else squares_about(moments, ORIGIN))
            reads = 1 + self.scatter.add(C, weights, squares)
            self._join(moments)
            self.n_passes = max(self.n_passes, reads)
        self.n_rows += A.shape[0]
        self.dtype = np.result_type(self.dtype, A.dtype)
        self.seconds += time.perf_counter() - started

    def merged(self, other: "Stream") -> "Stream":
        a, b = (np.ones(1) if one.scale is None else one.scale for one in (self, other))
        if not (np.array_equal(a, b) and self.scatter.same_kind(other.scatter)):
            raise Refused(
                "merge_pca needs fits with the same scale and the same random test matrix. Fit both with the same ",
                Setting("random_state"),
                ", n_components, n_oversamples, scale and memory_limit.",
            )
        both = Stream(self.scatter.added(other.scatter), self.scale, self.moments, self.n_rows + other.n_rows)
        both.n_joined, both.k = self.n_joined + other.n_joined, self.k
        both._join(other.moments)
        both.dtype = np.result_type(self.dtype, other.dtype)
        both.n_passes, both.seconds = max(self.n_passes, other.n_passes), self.seconds + other.seconds
        return both

    def refine(self, A: Operator, weights: Vector | None = None) -> None:
        started, count = time.perf_counter(), float(A.shape[0]) if weights is None else float(weights.sum())
        if A.shape[0] != self.n_rows or not np.isclose(count, self.moments.count, rtol=1e-9):
            known, given = plural(self.n_rows, "row"), plural(A.shape[0], "row")
            if known == given:
                known, given = f"weights of sum {self.moments.count:g}", f"weights of sum {count:g}"
            raise ValueError(f"refine needs the same data as all calls of partial_fit: {known}, got {given}.")
        self.n_passes += self.scatter.refine(self._centred(A, self.moments.mean), weights)
        self.seconds += time.perf_counter() - started

    def spectrum(self, k: int, shift: Vector | None = None) -> ScatterPairs:
        scatter, mean = self.scatter, self.moments.mean
        if shift is not None:
            scatter = deepcopy(scatter)
            scatter.add_columns(self._column(mean - shift, self.moments.count))
        total = float(self._in_units(squares_about(self.moments, mean if shift is None else shift)).sum())
        # Each computation or combination of means has a rounding error of an ulp or two, and so has the centring.
        slip = EPS * (self.n_joined + 1) * np.sqrt(self._in_units(squares_about(self.moments, ORIGIN)))
        found = scatter.leading(k, slip)
        kept, rest, unseen = float(found.values @ found.values), found.rest, 0.0
        if self.is_sketched:  # the rest is total minus kept, plus rounding
            rest = max(total - kept, 0.0)
            unseen = max(rest - found.rest, 0.0) + max(self.n_rows, len(mean)) * EPS * total
        values, slip_norm = np.minimum(found.values, np.sqrt(total)), float(np.linalg.norm(slip))
        return found._replace(values=values, rest=rest, total=total, slip=slip_norm, unseen=unseen)

    def fitted(self, k: int, shift: Vector | None) -> dict[str, Any]:
        started, count, mean = time.perf_counter(), self.moments.count, self.moments.mean
        n = len(mean)
        k = min(k, self.n_rows, n)
        found = self.spectrum(k, shift)
        upper = np.sqrt((found.values + found.errors) ** 2 + found.unseen)
        # Report 0 for the first value that does not exceed its error bound, and for all after it.
        nonzero = np.logical_and.accumulate(found.values > found.errors)
        values = np.where(nonzero, found.values, 0)
        errors = np.full(k, np.inf)
        errors[nonzero] = np.maximum(upper - values, found.errors)[nonzero] / values[nonzero]
        nothing = 2 * max(self.n_rows, n) * EPS * np.sqrt(found.total) + found.slip
        errors[~nonzero & (upper <= nothing)] = 0
        left_out, V = min(n, count) - k, found.vectors.T
        components = (V / phases(V)[:, None]).astype(self.dtype)
        info = Info(
            solver=f"Streaming(sample_size={self.scatter.size})",
            n_passes=self.n_passes,
            sample_size=self.scatter.size,
            rank=int(nonzero.sum()),
            residuals=None,
            value_errors=errors,
            converged=bool(np.all(errors <= TOL)),
            frobenius_error=None,
            seconds=self.seconds + time.perf_counter() - started,
            peak_bytes=None,
        )
        return {
            "mean_": mean if shift is None else shift,
            "scale_": self.scale,
            "n_samples_": self.n_rows,
            "n_components_": k,
            "components_": components,
            "singular_values_": values,
            "explained_variance_": values**2 / (count - 1),
            "explained_variance_ratio_": values**2 / found.total if found.total > 0 else np.zeros(k),
            "noise_variance_": found.rest / (count - 1) / left_out if left_out > 0 else 0.0,
            "unseen_variance_": found.unseen / (count - 1),
            "info_": info,
        }

    def _centred(self, A: Operator, mean: Vector) -> Operator:
        return Prepared(MeanShift(mean), self.scale).of(A)

    def _join(self, moments: Moments) -> None:
        count, more = self.moments.count, moments.count
        if count and more:
            self.n_joined += 1
            self.scatter.add_columns(self._column(moments.mean - self.moments.mean, count * more / (count + more)))
        self.moments = self.moments.merge(moments)

    def _column(self, delta: Vector, count: float) -> Panel:
        delta = np.sqrt(count) * delta
        return (delta if self.scale is None else delta / self.scale)[:, None]

    def _in_units(self, squares: Vector) -> Vector:
        return squares if self.scale is None else squares / self.scale**2

    def __repr__(self) -> str:
        return f"<stream of {self.n_rows} rows, {len(self.scatter.B)} features, sample size {self.scatter.size}>"


def _check_size(moments: Moments) -> None:
    assert moments.M2 is not None
    size = float(max(np.abs(moments.mean).max(), np.sqrt(moments.M2.max())))
    if size != 0 and not 1 / LARGEST < size < LARGEST:
        raise ValueError(
            f"partial_fit computes sums of squares of the columns, which are outside the range of float64 for a column "
            f"of size {size:.3g}. Multiply all batches by the same power of two, or use fit."
        )
