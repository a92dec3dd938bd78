"""A sketch of the scatter matrix, which is exact in any order, and beside it the directions found so far."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy import linalg

from shiftsvd.numerics.bounds import rounding_bounds
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, qr, subtract_product
from shiftsvd.operators import Operator, Panel
from shiftsvd.solvers.factors import rounding
from shiftsvd.streaming.scatter import EPS, Scatter, ScatterPairs

# Basis of a search in a large batch, in columns of the test matrix. Sparse counts of 60 000 x 2 000 in one batch, ell =
# 2k, error over the optimum less 1: 1e-3 with a basis of 2 ell, 3e-5 with 4, 1e-6 with 6 (7 batches: 1e-3, 2e-4, 1e-4).
BASIS = 4


@dataclass(eq=False)
class SketchedScatter(Scatter):
    """``Y = S Omega``, and ``B B^T <= S`` of the leading directions; S itself is nowhere.

    The sketch is linear: neither the order nor the size of batches matters to it beyond rounding. The directions are
    those of an incremental SVD that keeps `ell` of them; what it drops depends on the order, but never makes it pass S.
    What is recovered, ``T = B B^T + nystrom(Y - B B^T Omega)``, lies between the Nystrom approximation of S by the
    sketch alone and S, in the order of semidefinite matrices, since Schur complements grow with their matrix. So
    the eigenvalues of S lie between those of T and those plus ``trace(S) - trace(T)``, whatever the order.

    Attributes
    ----------
    Omega : array of shape (n_features, ell)
        The test matrix; sketches with the same one merge.
    Y : array of shape (n_features, ell)
    eps : float
        Rounding unit of the products that Y is the sum of.

    References
    ----------
    Tropp, Yurtsever, Udell & Cevher (2017), Fixed-rank approximation of a positive-semidefinite matrix from streaming
    data; Ross, Lim, Lin & Yang (2008), Incremental learning for robust visual tracking; Musco & Musco (2015),
    Randomized block Krylov methods for stronger and faster approximate singular value decomposition.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.streaming.sketched import SketchedScatter
    >>> sketch = SketchedScatter.empty(5, 2, np.random.default_rng(0))
    >>> sketch.add_columns(np.outer(np.ones(5), [1.0, 2.0]))
    >>> sketch.leading(1, np.zeros(5)).values.round(12)
    array([5.])
    """

    Omega: Panel
    Y: Panel
    eps: float = EPS

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
        values, vectors = nystrom(TW, W, C.costs.gram_eps * float(np.linalg.norm(TW)))
        self.Y += Z
        self.eps = max(self.eps, C.costs.gram_eps)
        self.slack = self.slack + rounding(C, C.costs.gram_eps) * squares
        self._replace(vectors[:, :ell] * np.sqrt(values[:ell]))
        return reads

    def add_columns(self, P: Panel) -> None:
        subtract_product(self.Y, P, -inner(P, self.Omega))
        self._append(P)

    def _make_room(self) -> None:
        _, Z = np.linalg.eigh(inner(self.columns, self.columns))
        self._replace(self.columns @ Z[:, ::-1][:, : self.size])

    def _replace(self, B: Panel) -> None:
        self.used = B.shape[1]
        self.B[:, : self.used] = B

    def same_kind(self, other: Scatter) -> bool:
        if not isinstance(other, SketchedScatter):
            return False
        return self.Omega is other.Omega or np.array_equal(self.Omega, other.Omega)

    def added(self, other: "SketchedScatter") -> "SketchedScatter":
        both = replace(self, B=self.B.copy(order="F"), Y=self.Y + other.Y, slack=self.slack + other.slack)
        both.eps = max(self.eps, other.eps)
        both._append(other.columns)
        return both

    def refine(self, C: Operator, weights: Vector | None) -> int:
        W = self.leading(2 * self.size, np.zeros(len(self.B))).vectors
        SW = C.gram(W, weights)
        values, vectors = nystrom(SW, W, C.costs.gram_eps * float(np.linalg.norm(SW)))
        self._replace(vectors * np.sqrt(values))
        return 1

    def leading(self, k: int, slip: Vector) -> ScatterPairs:
        rest = self.Y.copy()
        subtract_product(rest, self.columns, inner(self.columns, self.Omega))
        values, vectors = nystrom(rest, self.Omega, self.eps * float(np.linalg.norm(self.Y)))
        V, S, _ = linalg.svd(np.hstack([self.columns, vectors * np.sqrt(values)]), False, check_finite=False)
        squares = float(self.slack.sum()) + EPS * sum(V.shape) * float(S @ S)
        errors = rounding_bounds(S[:k], float(np.linalg.norm(slip)), squares)
        return ScatterPairs(S[:k], V[:, :k], errors, float(S[k:] @ S[k:]))

    @property
    def size(self) -> int:
        return int(self.Omega.shape[1])


def nystrom(Y: Panel, Omega: Panel, rounding: float) -> tuple[Vector, Panel]:
    """Eigenpairs of ``Y (Omega^T Y)^+ Y^T``, at most those of the S behind ``Y = S Omega`` (Tropp et al. 2017).

    `rounding` is how large the rounding errors of a column of Y are.
    """
    Q, R = qr(Omega)
    Y = linalg.solve_triangular(R, Y.T, trans="T", check_finite=False).T  # S Q
    # The small shift makes the core definite in spite of rounding; it comes off the values again.
    nu = np.sqrt(Y.size) * rounding / float(np.linalg.norm(R)) or 1.0
    Y = Y + nu * Q
    core = Q.T @ Y
    w, Z = np.linalg.eigh((core + core.T) / 2)
    V, S, _ = linalg.svd((Y @ Z) / np.sqrt(np.maximum(w, nu)), full_matrices=False, check_finite=False)
    return np.maximum(S**2 - nu, 0), np.asarray(V)


def krylov(times: Callable[[Panel], Panel], start: Panel, columns: int) -> tuple[Panel, Panel]:
    W = qr(start)[0][:, :columns]
    TW = new = times(W)
    while W.shape[1] < columns:
        # Householder, since what is new may be nothing: columns are orthonormal all the same.
        Q = qr(np.hstack([W, new]))[0][:, W.shape[1] : columns]
        new = times(Q)
        W, TW = np.hstack([W, Q]), np.hstack([TW, new])
    return TW, W
