"""Block Lanczos with thick restart, which iterates to a given accuracy, for singular values and for eigenvalues."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import cancelled, fused, passes_per_step
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.bounds import TINY, CountBound, Ritz, residual_rounding, rounding_of, value_errors
from shiftsvd.operators import Operator, Panel, Vector, panel_dtype
from shiftsvd.solvers import constants, problem
from shiftsvd.solvers.base import TOL, Solver, check_tol
from shiftsvd.solvers.cost import Work, long_vector_bytes, overhead_bytes, tall, wide
from shiftsvd.solvers.factors import Factors
from shiftsvd.solvers.krylov import Factorization, RitzPairs
from shiftsvd.solvers.probe import Proven, miss_limit, prove, required_bounds
from shiftsvd.solvers.solve import advance, cannot_step, converge, solve


@dataclass(frozen=True)
class BlockLanczos(Solver):
    """Block Lanczos on ``A^H A``, which iterates until every value is within `tol` of an exact one.

    The basis has ``2 k + 12 block_size`` columns on the short side (for files with few rows, see Notes), is fully
    orthogonalized, and restarted with its Ritz vectors. Every step yields residuals without extra cost. When they are
    below the tolerance, a random block (the probe) is multiplied a few times, until it proves that no value above
    ``sigma_k (1 + max(tol, missed_tol))`` was missed. One last product with the data then yields the components and the
    reported residuals. Products are in the precision of the data while the spectrum allows it, else in double.

    Parameters
    ----------
    tol : float
        Bound of ``|sigma - exact| / sigma`` for every component. 0 means down to the rounding of the products.
    block_size : int, optional
        Columns of a product. Default 16 for sparse data, 32 for dense data, 2 k but at most 128 for data in files;
        fewer for few components.
    max_basis : int, optional
        Columns of the basis before it is restarted, at least ``k + 8 block_size``. Default ``2 k + 12 block_size``.
    max_passes : int, optional
        Maximum number of passes, not counting the last product. The default is far above the passes of fits that
        converge.
    start : array of shape (min(m, n), j), optional
        Approximate singular vectors on the short side to start with, such as those of similar data. The probe detects
        components that the start vectors lack.
    missed_tol : float
        A converged fit may have missed values up to ``sigma_k (1 + max(tol, missed_tol))``; `Info.missed_below` is the
        proven bound. The probe takes about 3 to 7 products with a block for 0.05, and 8 for 0.01.
    miss_probability : float
        Probability, over `rng`, that `Info.missed_below` is wrong.
    certify : bool
        Also compute error bounds and `Info.missed_below`; see `solvers.Solver`.

    See Also
    --------
    Gram : For a short side of up to a few thousand.
    auto_solver : Choose a solver.

    Notes
    -----
    A step takes one pass if the data are stored by their long side. Files and Dask arrays that are stored by their
    short side take one pass, too, if a basis on the long side needs no more memory than the data; otherwise two. The
    last product shares the last pass of the probe, or takes a pass of its own, such as for double data that are
    multiplied in single precision, or after a probe that found missed values. If k is a share of the variance, the
    basis grows until the share is exceeded, and the smallest such k is returned.

    References
    ----------
    Golub & Underwood (1977); Wu & Simon (2000), thick-restart Lanczos; Baglama & Reichel (2005).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((500, 40))
    >>> F = ss.svd(X, 3, shift="mean", solver=ss.BlockLanczos(tol=1e-6), rng=0)
    >>> F.info.converged
    True
    """

    takes_shares = True
    certifies_itself = True
    tol: float = TOL
    block_size: int | None = None
    max_basis: int | None = None
    max_passes: int | None = None
    start: Panel | None = field(default=None, compare=False, repr=False)
    missed_tol: float = field(default=constants.MISSED_TOL, repr=False)
    miss_probability: float = field(default=constants.PROBABILITY, repr=False)

    def __post_init__(self) -> None:
        check_tol(self.tol, any_size=True)
        if not self.missed_tol >= 0:
            raise refuse("missed_tol", "be at least 0", self.missed_tol)
        if not 0 < self.miss_probability < 1:
            raise refuse("miss_probability", "be between 0 and 1", self.miss_probability)
        for name in ("block_size", "max_basis", "max_passes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise refuse(name, "be a positive integer or None", value)

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        basis_on_columns = (A.shape[0] >= A.shape[1]) != self.on_long_side(A, k)
        return self._factors(A, k, rng) if basis_on_columns else self._factors(A.H, k, rng).H

    def _factors(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        steps = 12.0 if isinstance(k, float) else 6.0 + 4 * k / (self.block_size or constants.USUAL_BLOCK)  # expected
        p, budget = problem_of(self, fused(A, steps), k)
        return solve(p, budget, rng).factors(A if A.costs.file_bytes else p.A, budget)

    def shape(self, k: int | float, A: Operator) -> problem.Shape:
        """Choose the number of columns of products, by k and the speed of kernels, and of the basis.

        Parameters
        ----------
        k : int, or float in (0, 1)
            Number of components, or share of the squared norm to exceed.
        A : Operator of shape (m, n)
            The matrix that is multiplied.

        Returns
        -------
        Shape
            Columns of a block, columns wanted, columns of the basis before a restart, and columns that are reserved.
        """
        shape = self._shape(k, A, A.costs.panel_columns)
        return self._shape(k, A, constants.LONG_COLUMNS) if self.on_long_side(A, k) else shape

    def on_long_side(self, A: Operator, k: int | float) -> bool:
        """Return True to put the basis on the long side, which halves the passes over data stored by the short side.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix that is multiplied.
        k : int, or float in (0, 1)
            Number of components, or share of the squared norm to exceed.

        Returns
        -------
        bool
            True if such a basis saves passes, fits into memory, and the short side is long enough for some steps.
        """
        if self.start is not None or not A.costs.long_bytes or wide(A).costs.gram_reads > 1:
            return False
        shape = self._shape(k, A, constants.LONG_COLUMNS)
        long_enough = shape.wanted + constants.STEPS * shape.block <= min(A.shape)
        return long_enough and 8 * max(A.shape) * shape.reserved <= A.costs.long_bytes

    def _shape(self, k: int | float, A: Operator, columns: tuple[int, int]) -> problem.Shape:
        least, most = columns
        # The largest multiple of 16 below 2 k: kernels take 16 columns at a time.
        width = most if isinstance(k, float) else int(np.clip((2 * k - 1) // 16 * 16, least, most))
        n, b = min(A.shape), min(self.block_size or width, *A.shape)
        wanted = min(constants.OF_SHARE + b if isinstance(k, float) else int(k), n)
        basis = problem.basis_columns(wanted, b, n, self.max_basis)
        return problem.Shape(b, wanted, basis, min(basis + (constants.SWEEPS + 1) * b, n))

    def single(self, A: Operator) -> bool:
        """Return True to start in single precision; for double data only if the tolerance is likely to allow it.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix that is multiplied.

        Returns
        -------
        bool
            True for single precision; a run continues in double precision if the residuals require it.
        """
        roundings = 1 if A.dtype == np.float32 else constants.ROUNDINGS_IN_TOL
        return A.costs.gram_in_single and self.tol >= residual_rounding(constants.SINGLE) * roundings

    def expected_passes(self, A: Operator, k: int) -> float:
        shape = self.shape(k, A)
        return Work.of(A).lanczos(k, shape.block, shape.columns).n_passes * self._reads(A, k)

    def _reads(self, A: Operator, k: int) -> int:
        return 1 if self.on_long_side(A, k) else passes_per_step(tall(A))

    def passes_range(self, A: Operator, k: int) -> tuple[int, int]:
        n, (block, _, columns, _), reads = min(A.shape), self.shape(k, A), self._reads(A, k)
        whole = -(-n // block) + 1  # passes until the basis spans the whole space, and the last reading
        least = min(-(-k // block) + constants.QUICKEST, whole)
        slower = 1 + np.log10(TOL / max(self.tol, A.costs.gram_eps)) / constants.DIGITS
        noise = round((constants.NOISE + constants.RESTARTED * k / block) * (n / block) ** (1 / 3) * max(slower, 1))
        most = max(noise, round(self.expected_passes(A, k)) // reads)
        return least * reads, max(
            least, min(most, whole + constants.MEASURING_PASSES) if columns == n else most
        ) * reads

    def peak_bytes(self, A: Operator, k: int) -> int:
        side = max if self.on_long_side(A, k) else min
        n, b, _, _, reserved = side(A.shape), *self.shape(k, A)
        threads = A.costs.n_threads or default_threads()
        panels = (threads + 9) * (k + b if k > b else 2 * b)  # the last reading shares a product with a block
        return 8 * n * (reserved + panels) + overhead_bytes(A, k + b) + long_vector_bytes(A, k)


def problem_of(
    solver: BlockLanczos, A: Operator, k: int | float, multiplied: Operator | None = None
) -> tuple[problem.Problem, problem.Budget]:
    shape, probing, X = solver.shape(k, A), (solver.missed_tol, solver.miss_probability), multiplied or A
    start = None if solver.start is None else _checked(solver.start, X)
    p = problem.Problem(A, X, k, solver.tol, *probing, shape, _total(A, k), start, solver.single(X), cancelled(A))
    return p, problem.Budget(solver.max_passes or problem.most_passes(min(A.shape), shape.block))


def _checked(start: Panel, A: Operator) -> Panel:
    start, n, dtype = np.asarray(start), A.shape[1], panel_dtype(A.dtype)
    if start.ndim != 2 or start.shape[0] != n:
        raise refuse("start", f"have {n} rows, one for each entry of the short side", start.shape)
    if not np.isfinite(start).all():
        raise Refused(Setting("start"), " must be finite, got NaN or infinite entries. Remove these columns.")
    if np.iscomplexobj(start) and dtype.kind == "f":
        start = np.hstack([start.real, start.imag])
    largest = np.max(np.abs(start), axis=0)
    return np.asarray(start / np.where(largest > 0, largest, 1), dtype)


def _total(A: Operator, k: int | float) -> float:
    if not isinstance(k, float):
        return 0.0
    norm = A.frobenius_norm()
    if norm is None:
        raise ValueError(
            "a share of the variance needs the total variance, which this operator does not provide. "
            "Define frobenius_norm, or pass a number of components."
        )
    return norm**2


# ---- Block Lanczos for the largest eigenvalues of an indefinite Hermitian matrix


class Eigenpairs(NamedTuple):
    """Largest eigenvalues of a Hermitian matrix, with error bounds."""

    values: Vector  # descending
    vectors: Panel
    value_errors: Vector  # relative, of ``sqrt(lambda)``; of a value of at most 0, its residual over the largest
    converged: bool
    n_passes: int
    negative: float  # the sum of the absolute negative eigenvalues, estimated from the first block
    lowest: float  # an upper bound of the lowest eigenvalue


@dataclass(frozen=True)
class HermitianLanczos:
    """Block Lanczos with thick restart on A itself, because ``A^2`` would mix positive and negative eigenvalues.

    `tol` bounds the relative errors of the square roots of the eigenvalues; 0 means down to rounding. The other
    settings are those of `BlockLanczos`. Each step takes one pass.
    """

    tol: float = TOL
    block_size: int | None = None
    max_basis: int | None = None
    max_passes: int | None = None

    def block(self, n: int) -> int:
        return min(self.block_size or constants.USUAL_BLOCK, n)

    def basis_columns(self, k: int, n: int) -> int:
        return problem.basis_columns(k, self.block(n), n, self.max_basis)

    def __call__(self, A: Operator, k: int, rng: Generator) -> Eigenpairs:
        n, b, dtype = A.shape[0], self.block(A.shape[0]), panel_dtype(A.dtype)
        budget = problem.Budget(self.max_passes or problem.most_passes(n, b))
        G = problem.Products(A.matmat, dtype, budget, reads=1, last_reads=1, double_eps=A.costs.eps)
        F = Factorization.of(rng.standard_normal((n, b)).astype(dtype), self.basis_columns(k, n), rng)
        # `_negative` needs the first block, which is in the basis until the first restart or probe. Check before both.
        first_epoch, steps = F.epoch, min(max(2, 2 * k // b) + 1, n if F.columns == n else F.columns // b - 1)
        proven, negative, lowest = Proven(b), 0.0, np.inf

        def check(pairs: RitzPairs) -> tuple[Ritz, problem.Outcome | problem.Continue]:
            nonlocal negative, lowest
            ritz = _ritz(pairs, k, G, F, proven)
            lowest = min(lowest, float(pairs.theta[-1]))
            if F.epoch == first_epoch and not proven.n_probes:
                negative = _negative(ritz, pairs.Z, F)
            if cannot_step(G, F):
                return ritz, problem.Stop.SPENT
            return ritz, problem.Stop.CONVERGED if _converged(ritz, self.tol) else problem.Continue(1)

        while True:
            ritz, outcome = converge(partial(advance, G, F, lambda theta: k), check, steps)
            if outcome is problem.Stop.SPENT or not proven.needs_probe(needs := _needs(ritz, self.tol, proven)):
                break
            proven = prove(G, F, ritz, needs, proven).proven
            steps = int(proven.needs_probe(_needs(ritz, self.tol, proven)))
        converged = _converged(ritz, self.tol) and ritz.limit <= _miss_limit(ritz, self.tol)
        found = ritz.theta[:k], F.vectors(k), _errors(ritz)
        return Eigenpairs(*found, converged, budget.n_passes, negative, lowest)


def _ritz(pairs: RitzPairs, k: int, G: problem.Products, F: Factorization, proven: Proven) -> Ritz:
    noise = rounding_of(pairs.theta, G.eps)
    return Ritz(pairs.theta, pairs.E, k, noise, proven.level_of(F), proven.limit(k))


def _converged(ritz: Ritz, tol: float) -> bool:
    return bool(np.all((_errors(ritz) <= tol) | (ritz.r[: ritz.k] <= ritz.noise)))


def _errors(ritz: Ritz) -> Vector:
    theta, noise = ritz.theta[: ritz.k], ritz.noise
    first = max(float(np.abs(ritz.theta).max(initial=0)), TINY)
    rounded = noise / (2 * np.maximum(theta, max(noise, TINY)))
    return np.where(theta > noise, value_errors(ritz) + rounded, (ritz.r[: ritz.k] + noise) / first)


def _needs(ritz: Ritz, tol: float, proven: Proven) -> list[CountBound]:
    return required_bounds(ritz, _miss_limit(ritz, tol), proven.seen)


def _miss_limit(ritz: Ritz, tol: float) -> float:
    relative = miss_limit(ritz, max(tol, constants.MISSED_TOL))
    # Values that are not positive have no relative criterion.
    if ritz.theta[ritz.k - 1] > ritz.noise:
        return relative
    return max(relative, constants.MISSED_TOL * float(np.abs(ritz.theta).max()))


def _negative(ritz: Ritz, Z: Panel, F: Factorization) -> float:
    """Estimate the sum of the negative eigenvalues from the first block (Ubaru, Chen & Saad 2017)."""
    below = np.maximum(-ritz.theta - ritz.noise, 0)
    weights = np.sum(np.abs(Z[: F.block_width]) ** 2, axis=0) * F.n / F.block_width
    return float(below.sum() if F.size == F.n else below @ weights)
