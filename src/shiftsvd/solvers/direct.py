"""Direct solvers: the SVD by a QR factorization in one pass, and eigenvectors of a formed Gram matrix."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator
from scipy import linalg

from shiftsvd.algebra.generic import QR_ENTRIES, cancelled, fused, gram_matrix, triangle
from shiftsvd.algebra.operator import Costs
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.bounds import Ritz
from shiftsvd.numerics.orth import subtract_product
from shiftsvd.numerics.powers import length
from shiftsvd.operators import Operator, Panel, Vector
from shiftsvd.solvers import constants
from shiftsvd.solvers.base import TOL, Solver, check_tol
from shiftsvd.solvers.cost import long_vector_bytes, overhead_bytes, tall
from shiftsvd.solvers.factors import Factors, components_for, long_factor, rank_floor, rounding, squares_rounding
from shiftsvd.solvers.lanczos import BlockLanczos, problem_of
from shiftsvd.solvers.probe import Proven
from shiftsvd.solvers.problem import Budget, Product, Products
from shiftsvd.solvers.reading import Snapshot, read
from shiftsvd.solvers.solve import solve


@dataclass(frozen=True, repr=False)
class Exact(Solver):
    """Exact SVD by a sequential QR factorization of row blocks and the SVD of the last R, accurate to rounding.

    Blocks of the shifted matrix are converted to dense double precision one by one, so no array as long as the long
    side is stored. Operators without blocks are multiplied by the identity.

    Parameters
    ----------
    tol : float
        0, the default, means accurate to rounding. For a positive `tol` the eigenvalues of ``A^H A``, which are several
        times faster, are tried first; they are used if their rounding provably changes every value by at most
        ``tol / 10``, relatively. `auto_solver` sets `tol` for small dense data.
    certify : bool
        Also compute error bounds and `Info.missed_below`; see `solvers.Solver`.

    See Also
    --------
    Gram : Eigenvalues of ``A^H A``.
    BlockLanczos : For large matrices.

    Notes
    -----
    One pass, ``2 m n^2`` operations and ``n^2`` numbers for an m x n matrix with m >= n; meant for
    ``n <= 1000``, or for a larger n where all components are wanted.

    With a `tol`, a pass and ``m n^2`` operations come first. The computed eigenvalues are those of a matrix within
    ``max(m, n) eps (||A||_F^2 + ||shift||_F^2)`` of ``A^H A``, which changes sigma_k by half of that over sigma_k.
    These eigenvalues are discarded if the change exceeds ``tol sigma_k / 10``, if the rest of the matrix is negligible,
    if all components are wanted, and with ``certify=True``.

    References
    ----------
    Demmel, Grigori, Hoemmen & Langou (2012), Communication-optimal QR (the sequential TSQR).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> F = ss.svd(np.diag([3.0, 2.0, 1.0]), 2, solver=ss.Exact())
    >>> F.S
    array([3., 2.])
    """

    tol: float = 0.0

    takes_shares = True
    finds_all = True
    remedy = ("The values are accurate to rounding, but their error bounds, computed from squares, are larger.",)

    def __post_init__(self) -> None:
        check_tol(self.tol, any_size=True)

    def __repr__(self) -> str:
        return f"Exact(tol={self.tol!r})" if self.tol > 0 else "Exact()"

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        return self._tall(A, k) if A.shape[0] >= A.shape[1] else self._tall(A.H, k).H

    def _tall(self, A: Operator, share: int | float) -> Factors:
        n, squared = A.shape[1], self.tol > 0 and not self.certify and share != A.shape[1]
        factors = self._of_squares(A, share) if squared else None
        if factors is not None:
            return factors
        _, S, Vh = np.linalg.svd(_triangle(A), full_matrices=False)
        k = components_for(S**2, share) if isinstance(share, float) else share
        eps = A.costs.gram_eps
        # Blocks have the rounding unit of the stored matrix, which is A or its adjoint.
        eps = eps if eps == constants.EPS else min(eps, A.H.costs.gram_eps)
        missed = float(S[k] + rounding(A, eps) * S[0] + 4 * constants.EPS * cancelled(A)) if k < n else 0.0
        rest, S, Vh = length(S[k:]), S[:k], Vh[:k]
        U = lambda: long_factor(A, Vh.conj().T)  # noqa: E731
        return Factors(U, S, Vh, 2 if squared else 1, n, 1, missed_below=missed, rest=rest, eps=eps)

    def _of_squares(self, A: Operator, share: int | float) -> Factors | None:
        G = gram_matrix(A)
        theta, Z = np.linalg.eigh(G)
        theta, V = np.maximum(theta[::-1], 0), Z[:, ::-1]
        k = components_for(theta, share) if isinstance(share, float) else share
        eps = A.costs.gram_eps
        noise, rest = squares_rounding(A, G), float(theta[k:].sum())
        if not (
            noise < 2 * constants.SQUARES_SHARE * self.tol * theta[k - 1]
            and rest >= constants.DIFFERENCE_MARGIN * noise
        ):
            return None
        missed = float(np.sqrt(theta[k] + noise))
        S, V = np.sqrt(theta[:k]), V[:, :k]
        U = lambda: long_factor(A, V)  # noqa: E731
        return Factors(U, S, V.conj().T, 1, len(theta), 1, missed_below=missed, rest=float(np.sqrt(rest)), eps=eps)

    def expected_passes(self, A: Operator, k: int) -> float:
        return 1.0

    def passes_range(self, A: Operator, k: int) -> tuple[int, int]:
        return 1, 2 if self.tol > 0 and not self.certify else 1

    def peak_bytes(self, A: Operator, k: int) -> int:
        m, n = max(A.shape), min(A.shape)
        threads, size = A.costs.n_threads or default_threads(), min(max(QR_ENTRIES, 2 * n * n), m * n)
        count = -(-m * n // size)
        if count > 1 and tall(A).costs.square_columns:  # a file with its rows on the short side is one block
            return 8 * (3 * m * n + 6 * n * n) + overhead_bytes(A, k) + long_vector_bytes(A, k)
        # Waiting blocks, the shift of the next block, and two copies of each block that LAPACK factorizes.
        waiting = min(count, threads + 2) + 1 if count > 1 else 0
        blocks = size * (waiting + 2 * min(count, threads))
        return 8 * (blocks + 6 * n * n) + overhead_bytes(A, k) + long_vector_bytes(A, k)


def _triangle(A: Operator) -> Panel:
    R, n = triangle(A), A.shape[1]
    return R if len(R) >= n else np.vstack([R, np.zeros((n - len(R), n), R.dtype)])


# ---- Gram matrix of the short side: formed in one pass, leading eigenvectors, and a last pass that checks them


@dataclass(frozen=True, repr=False)
class Gram(Solver):
    """Form ``A^H A`` in double precision, n x n for a short side of n, and compute its leading eigenvectors.

    The shift does not cancel digits: dense blocks, and columns of sparse data with means of ten deviations or more, are
    shifted before they are multiplied. A last pass over the data computes the components and their residuals from A
    itself.

    Parameters
    ----------
    tol : float
        Bound of ``|sigma - exact| / sigma`` for every component. 0 means down to the rounding of the products.
    missed_tol, miss_probability : float
        As in `BlockLanczos`; up to a short side of 1000, LAPACK computes all eigenvalues and no value is missed.
    last_pass : bool
        False omits the last pass if LAPACK computes the eigenvalues and rounding provably changes every value by at
        most ``tol / 10``, relatively. `auto_solver` sets False.
    certify : bool
        No effect: every run computes error bounds and `Info.missed_below`.

    See Also
    --------
    BlockLanczos : For sides of any length.
    Exact : All digits.

    Notes
    -----
    Two passes, ``sum_i nnz_i^2`` operations (sparse) or ``m n^2`` (dense), n^2 numbers: for rows with few nonzeros, and
    for short sides of at most a few thousand.

    References
    ----------
    Golub & Van Loan (2013), section 8.6; Chan, Golub & LeVeque (1983) on cancellation in sums of squares.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> F = ss.svd(np.diag([3.0, 2.0, 1.0]), 2, solver=ss.Gram())
    >>> F.S
    array([3., 2.])
    """

    takes_shares = True
    certifies_itself = True
    tol: float = TOL
    missed_tol: float = field(default=constants.MISSED_TOL, repr=False)
    miss_probability: float = field(default=constants.PROBABILITY, repr=False)
    last_pass: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        self._lanczos()  # validates the settings shared with BlockLanczos

    def _lanczos(self) -> BlockLanczos:
        return BlockLanczos(self.tol, missed_tol=self.missed_tol, miss_probability=self.miss_probability)

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        return self._tall(A, k, rng) if A.shape[0] >= A.shape[1] else self._tall(A.H, k, rng).H

    def _tall(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        A = fused(A, np.inf)
        n = A.shape[1]
        G = gram_matrix(A)
        few = isinstance(k, int) and k + 8 <= constants.ALL_FROM * n
        if few and n > constants.LEADING_SIDE:
            return self._by_lanczos(A, G, k, rng)
        theta, Z, level = _eigenpairs(G, int(k) + 1 if few else n, constants.RESIDUAL * self.tol, rng)
        k = components_for(theta, k) if isinstance(k, float) else k
        noise = squares_rounding(A, G)
        proven = noise < 2 * constants.SQUARES_SHARE * self.tol * theta[k - 1]
        if few and not proven:  # block Lanczos deflates leading values whose rounding hides the others
            return self._by_lanczos(A, G, k, rng)
        V = Z[:, : k if len(theta) == n else k + 1]
        ritz = Ritz(theta, np.zeros((0, len(theta))), k, 0.0, level, zero=rank_floor(A, float(np.sqrt(theta[0]))) ** 2)
        eps = A.costs.gram_eps
        product, extra_noise = (Product(G @ V, eps), noise) if proven and not self.last_pass else (None, 0.0)
        p, budget = problem_of(self._lanczos(), A, k)[0], Budget(2, n_passes=1, widest=n)
        products = replace(Products.of(p, budget), precise=True)
        stopped = Snapshot(ritz, V, V[:, :0], (), Proven(0), eps, extra_noise, product)
        return read(p, products, stopped, rng).factors(A, budget)

    def _by_lanczos(self, A: Operator, G: Panel, k: int | float, rng: Generator) -> Factors:
        p, budget = problem_of(self._lanczos(), A, k, GramOperator(G))
        reading = solve(p, budget, rng)
        return reading.factors(A, replace(budget, n_passes=1 + budget.n_passes, widest=len(G)))

    def expected_passes(self, A: Operator, k: int) -> float:
        return 2.0

    def passes_range(self, A: Operator, k: int) -> tuple[int, int]:
        return 2 if self.last_pass else 1, 3 if self.tol < constants.LOST_TOL else 2

    def peak_bytes(self, A: Operator, k: int) -> int:
        n, widest = min(A.shape), max(k, tall(A).costs.square_columns)
        threads = A.costs.n_threads or default_threads()
        # For a file, threads + 1 threads each sum the parts of a block, and one more block waits.
        squares = 2 * (threads + 1) + 3 if A.costs.file_bytes else threads + 4
        return 8 * (squares * n * n + 8 * n * k) + overhead_bytes(A, widest) + long_vector_bytes(A, k)


def _eigenpairs(G: Panel, count: int, tol: float, rng: Generator) -> tuple[Vector, Panel, float]:
    # Return the largest eigenvalues, their vectors, and a bound of all other eigenvalues.
    n = len(G)
    found = (
        _krylov(G, count, tol, rng) if n >= constants.KRYLOV_SIDE and count <= constants.PART_OF_KRYLOV * n else None
    )
    if found is not None:
        return found
    theta, Z = np.zeros(0), G
    if (
        count <= constants.PART_OF_ALL * n
    ):  # scale G by a power of two: LAPACK's thresholds in this routine are absolute
        unit = 2.0 ** np.frexp(np.max(np.abs(G)))[1]
        theta, Z = linalg.eigh(G / unit, subset_by_index=[n - count, n - 1], overwrite_a=True, check_finite=False)
        theta *= unit
    if len(theta) < count:  # the routine may return fewer eigenvalues if some are equal up to rounding
        theta, Z = np.linalg.eigh(G)
    theta = np.maximum(theta[::-1], 0)
    return theta, Z[:, ::-1], -np.inf if len(theta) == n else float(theta[-1])


def _krylov(G: Panel, count: int, tol: float, rng: Generator) -> tuple[Vector, Panel, float] | None:
    # Lanczos with full orthogonalisation: return the leading Ritz pairs once each residual is below `tol` times its
    # value. Return None after MOST_COLUMNS n columns, or if an eigenvalue may have been missed.
    if G.dtype.kind == "c":
        return None
    n, due = len(G), constants.OF_PAIRS * count + constants.FIRST_COLUMNS
    most = int(n * constants.MOST_COLUMNS)
    Q, T = np.empty((most + 1, n)), np.zeros((most + 1, most + 1))
    Q[0] = rng.standard_normal(n)
    Q[0] /= np.linalg.norm(Q[0])
    for i in range(most):
        w, near, basis = G @ Q[i], Q[max(i - 1, 0) : i + 1], Q[: i + 1]
        along = near @ w
        w -= along @ near
        w -= (basis @ w) @ basis
        beta = float(np.linalg.norm(w))
        if not beta > constants.INVARIANT_SPACE * T[0, 0]:
            return None
        T[i, i], T[i + 1, i], T[i, i + 1] = along[-1], beta, beta
        np.divide(w, beta, out=Q[i + 1])
        if i + 1 == due:
            theta, S = np.linalg.eigh(T[:due, :due])
            theta, S = theta[: -count - 1 : -1], S[:, : -count - 1 : -1]
            if np.all(beta * np.abs(S[-1]) <= tol * theta):
                return _prove_none_missed(G, theta, basis.T @ S, float(np.linalg.norm(beta * S[-1])))
            due += due // 4
    return None


def _prove_none_missed(G: Panel, theta: Vector, V: Panel, residual: float) -> tuple[Vector, Panel, float] | None:
    # If ``mu I - (G - V Theta V^H)`` has a Cholesky factor, no eigenvalue of ``P G P``, ``P = I - V V^H``, exceeds mu
    # plus the rounding of the factor, (n + 1) eps times the trace (Higham 2002, theorem 10.3), and of the matrix.
    last = float(theta[-1])
    mu = last * (1 + constants.LEVEL_MARGIN) + 2 * residual**2 / last
    M = (V * theta) @ V.T - G
    M.flat[:: len(G) + 1] += mu
    rounded = (len(G) + 1) * constants.EPS * float(np.trace(M) + 2 * np.trace(G))
    failed = linalg.lapack.dpotrf(M.T, clean=False, overwrite_a=True)[1]
    return None if failed else (theta, V, mu + rounded)


@dataclass(frozen=True, eq=False, repr=False)
class GramOperator(Operator):
    """Operator of a known Gram matrix, which supports `gram` alone."""

    G: Panel

    def __post_init__(self) -> None:
        vars(self).update(shape=self.G.shape, dtype=self.G.dtype)

    @cached_property
    def costs(self) -> Costs:
        return Costs.of(self, gram_reads=0)

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        product = np.zeros(V.shape, np.result_type(self.G, V))
        subtract_product(product, self.G, -V)
        return product

    def matmat(self, V: Panel) -> Panel:
        raise NotImplementedError("this operator supports only gram")

    def rmatmat(self, W: Panel) -> Panel:
        raise NotImplementedError("this operator supports only gram")
