"""What every solver does around its algorithm: checks, one BLAS thread, signs, rank, certificate, account."""

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.accuracy import certificate
from shiftsvd.algebra.units import in_units
from shiftsvd.events import foresee
from shiftsvd.kernels import given_threads, threads
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.orth import graded_basis
from shiftsvd.result import Certificate, Info, Lazy, SVDResult, signed
from shiftsvd.sketch import generator
from shiftsvd.solvers.memory import MemoryWatch

TOL = 1e-4
SHARED = 'solver="auto", "lanczos", "gram" or "exact"'


class Factors(NamedTuple):
    """What an algorithm returns: at least k values and vectors, the long-side factor as a function."""

    U: Lazy
    S: Vector
    Vh: Lazy
    n_passes: int
    sample_size: int
    factor_passes: int = 0  # reads that the long-side factor takes when it is asked for
    certificate: Certificate | None = None  # of a solver that knows when to stop

    @property
    def H(self) -> "Factors":
        """The factors of the conjugate transpose."""
        return self._replace(U=_adjoint(self.Vh), Vh=_adjoint(self.U))


def _adjoint(F: Lazy) -> Lazy:
    """The conjugate transpose, as lazy as F."""
    return (lambda: F().conj().T) if callable(F) else F.conj().T


@dataclass(frozen=True)
class Solver(ABC):
    """Settings of one algorithm; ``solver(A, k, rng)`` runs it.

    Attributes
    ----------
    certify : bool
        Also compute the residuals from both sides and bounds of the value errors; three more passes, and one for
        the long-side factor of `Exact`.
    reason : str
        Why `auto_solver` chose it.
    """

    takes_shares: ClassVar[bool] = False
    certify: bool = field(default=False, kw_only=True, repr=False)
    reason: str = field(default="", kw_only=True, compare=False, repr=False)

    @abstractmethod
    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """The algorithm: k leading components of A, or as many as exceed a share k of its squared norm."""

    @abstractmethod
    def peak_bytes(self, A: Operator, k: int) -> int:
        """Memory beyond the data that k components and their right vectors take."""

    @abstractmethod
    def expected_passes(self, A: Operator, k: int) -> float:
        """Reads of the data, as far as they can be foreseen."""

    def check_share(self, k: int | float) -> None:
        """Refuse a share of the variance that this solver cannot find."""
        if _is_share(k) and not self.takes_shares:
            raise ValueError(f"a share of the variance (k={k}) needs {SHARED}, got {self}")

    def __call__(
        self, A: Operator, k: int | float, rng: int | Generator | None = None, *, tol: float = TOL
    ) -> SVDResult:
        """The k leading components of A.

        Parameters
        ----------
        A : Operator of shape (m, n)
        k : int in 1..min(m, n), or float in (0, 1)
            A share is for the solvers that find all components, or grow: `Exact`, `Gram`, `BlockLanczos`.
        rng : int, Generator or None
        tol : float
            What a certificate is judged by.

        Returns
        -------
        SVDResult

        Raises
        ------
        ValueError
            For a k out of range, or a shift that the algorithm does not take.

        Notes
        -----
        Where squares could leave the range of numbers, the algorithm sees A over a power of two (`in_units`), of which
        A times another one is the same to the last bit.
        """
        self.check_share(k)
        if not _is_share(k):
            check_rank(k, A.shape)  # type: ignore[arg-type]
        watch, started = MemoryWatch(), time.perf_counter()
        foresee(self.expected_passes(A, int(k) if k >= 1 else min(A.shape)))
        with threads(A.n_threads):
            A, unit, frobenius = in_units(A)  # from here on A over a power of two, where squares could leave the range
            factors = self.factorize(A, k if isinstance(k, float) else int(k), generator(rng))
            F = self._result(A, len(factors.S) if isinstance(k, float) else int(k), factors, tol)
        info = replace(F.info, seconds=time.perf_counter() - started, peak_bytes=watch.growth())
        if frobenius is not None:
            # ||A - F||^2 = ||A||^2 - ||S||^2 loses half of its digits: below the floor it says nothing.
            square = max(frobenius**2 - float(np.sum(F.S**2)), 1e-16 * frobenius**2)
            info = replace(info, frobenius_error=float(np.ldexp(np.sqrt(square), unit)))
        F.info = info
        if unit:
            F.S = np.ldexp(F.S.astype(np.float64), unit)
        if factors.certificate is not None and not factors.certificate.converged:
            _warn(factors.certificate)
        return F

    def _result(self, A: Operator, k: int, factors: Factors, tol: float) -> SVDResult:
        """k components with their signs, rank and certificate."""
        real = np.finfo(A.dtype).dtype
        known = factors.certificate
        left = _leading(factors.U, (slice(None), slice(k)), A)
        right = _leading(factors.Vh, (slice(k), slice(None)), A)
        U, Vh = signed(left, right)
        S = factors.S[:k]
        there = S > rank_floor(A, S[0])
        info = Info(
            solver=repr(self),
            n_passes=factors.n_passes + (3 + factors.factor_passes) * (self.certify and known is None),
            sample_size=factors.sample_size,
            rank=int(there.sum()),
            residuals=known.residuals if known else None,
            value_errors=known.value_errors if known else None,
            converged=known.converged if known else None,
            frobenius_error=None,
            seconds=0.0,
            peak_bytes=None,
        )
        F = SVDResult(U, np.where(there, S, 0).astype(real), Vh, info)
        if self.certify and known is None:
            residuals, errors = certificate(A, F)
            converged = bool(np.all(errors <= tol))
            F.info = replace(info, residuals=residuals, value_errors=errors, converged=converged)
        return F


def _leading(F: Lazy, part: tuple[slice, slice], A: Operator) -> Lazy:
    """The leading vectors of a factor in the dtype of the data; a lazy one is made in the threads of this fit."""
    if not callable(F):
        return np.asarray(F[part], A.dtype)
    n_threads = A.n_threads or given_threads()

    def made() -> Panel:
        with threads(n_threads):
            return F()[part].astype(A.dtype, copy=False)

    return made


def long_factor(A: Operator, V: Panel) -> Panel:
    """U of ``A V = U diag(S)``; a lazy array where the rows of A are spread over a cluster."""
    lazy: Panel | None = A.lazy_basis(V)
    return graded_basis(A.matmat(V)) if lazy is None else lazy


def _warn(known: Certificate) -> None:
    """Name the components that did not converge."""
    warnings.warn(
        f"{len(known.late)} components did not converge: {_ranges(known.late + 1)}; "
        f"their relative errors are bounded by {known.value_errors[known.late].max():.1e} (see info.value_errors). "
        "A larger tol, more passes, or data in double precision may help",
        stacklevel=4,
    )


def _ranges(numbers: Vector) -> str:
    """Ascending integers as "1-4, 7"."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _is_share(k: int | float) -> bool:
    """Whether k is a share of the variance, not a number of components."""
    return isinstance(k, float) and 0 < k < 1


def check_rank(k: int, shape: tuple[int, int]) -> None:
    """Refuse a k that is no number of components."""
    m, n = shape
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= min(m, n):
        raise ValueError(f"k must be an integer in 1..{min(m, n)} for a {m} x {n} matrix, got {k!r}")


def rounding(A: Operator) -> float:
    """What rounding leaves of a number that should be 0, relative to the largest value."""
    # Single precision products leave noise that grows like the root of the length, not like the length:
    # max(m, n) eps would call a tenth of sigma_1 zero on a million rows.
    double = float(np.finfo(np.float64).eps) * max(A.shape)
    return max(double, A.eps * float(np.sqrt(max(A.shape))) if A.eps > 1e-10 else 0.0)


def rank_floor(A: Operator, first: float) -> float:
    """Values up to this are rounding: of the products, whose largest value is `first`, or of the shift itself."""
    _, shift = A.unshifted()
    # Means are right to an ulp or two.
    own = 4 * float(np.finfo(np.float64).eps) * shift.frobenius_norm() if shift else 0.0
    return max(rounding(A) * float(first), own)


def components_for(squares: Vector, share: float, total: float | None = None) -> int:
    """The fewest components whose part of the sum of squares exceeds `share`."""
    total = float(squares.sum()) if total is None else total
    if total <= 0:
        return 1
    return min(int(np.searchsorted(np.cumsum(squares) / total, share, side="right")) + 1, len(squares))
