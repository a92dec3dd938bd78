"""Block Lanczos with thick restart, which iterates to a given accuracy, for singular values and for eigenvalues."""

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import cancelled, fused, passes_per_step
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.bounds import residual_rounding
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers import constants, problem
from shiftsvd.solvers.base import TOL, Solver, check_tol
from shiftsvd.solvers.cost import Work, long_vector_bytes, overhead_bytes, tall, wide
from shiftsvd.solvers.factors import Factors
from shiftsvd.solvers.solve import solve


@dataclass(frozen=True, repr=False)
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
    miss_probability : float, from 1e-100 to 1
        Probability, over `rng`, that `Info.missed_below` is wrong.
    certify : bool
        No effect: every run computes error bounds and `Info.missed_below`.

    See Also
    --------
    Gram : For a short side of up to a few thousand.
    auto_solver : Choose a solver.

    Notes
    -----
    A step takes one pass if the data are stored by their long side. Files and Dask arrays that are stored by their
    short side take one pass, too, if a basis on the long side needs no more memory than the data; otherwise two. The
    last product shares the last pass of the probe, or takes a pass of its own, such as for double data in memory that
    are multiplied in single precision, or after a probe that found missed values. For files and Dask arrays, the first
    probe shares the passes of the last steps, and components are computed from the basis if its rounding errors are at
    most a twentieth of the tolerance. If k is a share of the variance, the
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
        if not constants.LEAST_PROBABILITY <= self.miss_probability < 1:
            raise refuse("miss_probability", "be at least 1e-100 and below 1", self.miss_probability)
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
        """Choose the columns of blocks and of the basis, by k and the speed of kernels.

        Parameters
        ----------
        k : int, or float in (0, 1)
            Number of components, or share of the squared norm to exceed.
        A : Operator of shape (m, n)
            The matrix that is multiplied.

        Returns
        -------
        Shape
            Columns of a block, columns wanted, columns of the basis before a restart, columns that are reserved, and
            those of a probe.
        """
        if self.on_long_side(A, k):
            return self._shape(k, A, constants.LONG_COLUMNS)
        shape = self._shape(k, A, A.costs.panel_columns)
        left = min(2 * shape.block, constants.PROBE_OF_FILES, A.costs.panel_columns[1] - shape.block)
        joint = A.costs.file_bytes > 0 and left >= constants.LEAST_COLUMNS
        return shape._replace(probe=left, joint=True) if joint else shape

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
        return problem.Shape(b, wanted, basis, min(basis + (constants.SWEEPS + 1) * b, n), b)

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
        return min(self._model_passes(A, k), self.passes_range(A, k)[1])

    def _model_passes(self, A: Operator, k: int) -> float:
        shape = self.shape(k, A)
        return Work.of(A).lanczos(k, shape.block, shape.columns).n_passes * self._reads(A, k)

    def _reads(self, A: Operator, k: int) -> int:
        return 1 if self.on_long_side(A, k) else passes_per_step(tall(A))

    def passes_range(self, A: Operator, k: int) -> tuple[int, int]:
        n, shape, reads = min(A.shape), self.shape(k, A), self._reads(A, k)
        block, columns = shape.block, shape.columns
        whole = -(-n // block) + 1  # passes until the basis spans the whole space, and the last reading
        quickest = constants.QUICKEST_OF_FILES if A.costs.file_bytes else constants.QUICKEST
        least = min(-(-k // block) + quickest, whole)
        slower = 1 + np.log10(TOL / np.clip(self.tol, A.costs.gram_eps, TOL)) / constants.DIGITS
        noise = round((constants.NOISE + constants.RESTARTED * k / block) * (n / block) ** (1 / 3) * slower)
        most = max(noise, round(self._model_passes(A, k)) // reads)
        return least * reads, max(
            least, min(most, whole + constants.MEASURING_PASSES) if columns == n else most
        ) * reads

    def peak_bytes(self, A: Operator, k: int) -> int:
        side = max if self.on_long_side(A, k) else min
        n, shape = side(A.shape), self.shape(k, A)
        b, reserved = shape.block, shape.reserved
        threads = A.costs.n_threads or default_threads()
        panels = (threads + 9) * max(k + b, 2 * b)  # the last reading shares a product with a block
        if shape.joint:  # a probe shares products with steps; the block that the read of the moments has multiplied
            panels = max(panels, (threads + 9) * (b + shape.probe)) + 3 * b
        # The basis is free when the long-side factor of a wide matrix is computed.
        largest = max(8 * n * (reserved + panels), 8 * n * 3 * k + long_vector_bytes(A, k))
        return largest + overhead_bytes(A, k + b)


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
