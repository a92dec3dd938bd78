"""What every solver does around its algorithm: checks, one BLAS thread, signs, rank, certificate, account."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.accuracy import certificate
from shiftsvd.kernels import given_threads, threads
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.result import Certificate, Info, Lazy, SVDResult, signed
from shiftsvd.sketch import generator
from shiftsvd.solvers.memory import MemoryWatch

TOL = 1e-4


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

    certify: bool = field(default=False, kw_only=True, repr=False)
    reason: str = field(default="", kw_only=True, compare=False, repr=False)

    @abstractmethod
    def factorize(self, A: Operator, k: int, rng: Generator) -> Factors:
        """The algorithm: k leading components of A."""

    @abstractmethod
    def peak_bytes(self, shape: tuple[int, int], k: int) -> int:
        """Memory of the panels, beyond the data."""

    def __call__(self, A: Operator, k: int, rng: int | Generator | None = None, *, tol: float = TOL) -> SVDResult:
        """The k leading components of A.

        Parameters
        ----------
        A : Operator of shape (m, n)
        k : int in 1..min(m, n)
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
        """
        check_rank(k, A.shape)
        watch, started = MemoryWatch(), time.perf_counter()
        with threads(A.n_threads):
            factors = self.factorize(A, int(k), generator(rng))
            F = self._result(A, int(k), factors, tol)
            frobenius = A.frobenius_norm()
        info = replace(F.info, seconds=time.perf_counter() - started, peak_bytes=watch.growth())
        if frobenius is not None:
            # ||A - F||^2 = ||A||^2 - ||S||^2 loses half of its digits: below the floor it says nothing.
            square = max(frobenius**2 - float(np.sum(F.S**2)), 1e-16 * frobenius**2)
            info = replace(info, frobenius_error=float(np.sqrt(square)))
        F.info = info
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
            residuals=known and known.residuals,
            value_errors=known and known.value_errors,
            converged=known and known.converged,
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
            return np.asarray(F()[part], A.dtype)

    return made


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
