"""Base class of solvers: validation, one BLAS thread, signs, rank, certificate and `Info`."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd import names
from shiftsvd.algebra.generic import shift_of
from shiftsvd.algebra.scaled import in_units
from shiftsvd.errors import Part, Refused, Setting, plural, refuse
from shiftsvd.events import set_expected_passes
from shiftsvd.kernels import given_threads, threads
from shiftsvd.numerics.powers import length
from shiftsvd.operators import Operator, Panel, Vector
from shiftsvd.result import Certificate, Info, Lazy, SVDResult, signed
from shiftsvd.runs.memory import MemoryWatch
from shiftsvd.runs.messages import warn
from shiftsvd.sketch import generator
from shiftsvd.solvers.constants import APPROXIMATED, LEAST_APPROXIMATED, MISSED_TOL, ROUNDED
from shiftsvd.solvers.factors import Factors, rank_floor, residual_norm
from shiftsvd.solvers.reading import certificate_bytes, certificate_passes, certify

TOL = names.TOL
# Start of the warnings of ``certify=True`` for solvers without a tolerance; the command filters warnings by this text.
NOT_CERTIFIED = "not certified: "
SHARE_SOLVERS = 'solver="auto", "lanczos", "gram" or "exact"'
UNTIL_CERTAIN = ", which iterates until every value has converged."
RARELY_SET = "missed_tol", "miss_probability"  # settings that are printed only if they differ from their defaults
REMEDIES = " or the number of passes, or "


@dataclass(frozen=True)
class Solver(ABC):
    """Settings of one algorithm; ``solver(A, k, rng)`` runs it.

    Parameters
    ----------
    certify : bool
        Also compute residuals of both sides, error bounds and `Info.missed_below`. This takes three more passes and
        about 5 of a random block, or one for the long-side factor of `Exact`, which computes all values. A warning
        names components that are not certain to the tolerance.

    Attributes
    ----------
    reason : str
        Reason for the choice, if `auto_solver` chose the solver.

    See Also
    --------
    BlockLanczos : The solver of `svd` for large matrices.
    auto_solver : Choose a solver.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> isinstance(ss.BlockLanczos(tol=1e-6), ss.solvers.Solver)
    True
    """

    takes_shares: ClassVar[bool] = False
    certifies_itself: ClassVar[bool] = False  # every run computes a certificate, also without `certify`
    finds_all: ClassVar[bool] = False  # computes all values
    # End of the warning of ``certify=True`` about components that did not converge.
    remedy: ClassVar[tuple[Part, ...]] = ("Use ", Setting("solver", "lanczos"), UNTIL_CERTAIN)
    certify: bool = field(default=False, kw_only=True, repr=False)
    reason: str = field(default="", init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        rare = (f.name for f in fields(self) if f.name in RARELY_SET and getattr(self, f.name) != f.default)
        names = [*(f.name for f in fields(self) if f.repr), *rare]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @abstractmethod
    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """Compute the k leading components of A, or the fewest that exceed a share k of its squared norm.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix to decompose, its shift included.
        k : int
            Number of components.
        rng : numpy.random.Generator
            Draws the test matrix.
        """

    @abstractmethod
    def peak_bytes(self, A: Operator, k: int) -> int:
        """Predict the memory beyond the data for k components and their right vectors.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix to decompose, its shift included.
        k : int
            Number of components.
        """

    def needed_bytes(self, A: Operator, k: int) -> int:
        """Predict the memory of a run beyond the data, including the certificate if `certify` is set.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix to decompose, its shift included.
        k : int
            Number of components.

        Returns
        -------
        int
            Bytes.
        """
        certificate = certificate_bytes(A, k) if self.certify and not self.certifies_itself else 0
        return max(self.peak_bytes(A, k), certificate)

    def certificate_passes(self, A: Operator, k: int) -> tuple[int, int, int]:
        """Predict the passes of the certificate.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix to decompose, its shift included.
        k : int
            Number of components.

        Returns
        -------
        (int, int, int)
            Fewest, expected and most passes; 0 if no certificate is added.
        """
        is_added = self.certify and not self.certifies_itself
        return certificate_passes(A, k, self.finds_all) if is_added else (0, 0, 0)

    @abstractmethod
    def expected_passes(self, A: Operator, k: int) -> float:
        """Predict the number of passes over the data, without those of a certificate.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix to decompose, its shift included.
        k : int
            Number of components.
        """

    def passes_range(self, A: Operator, k: int) -> tuple[int, int]:
        """Predict the fewest and most passes without a certificate; equal if they do not depend on the data.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix to decompose, its shift included.
        k : int
            Number of components.

        Returns
        -------
        (int, int)
            Fewest and most passes that are likely.
        """
        expected = round(self.expected_passes(A, k))
        return expected, expected

    def check_share(self, k: int | float) -> None:
        """Raise ValueError if k is a share of the variance and this solver does not support shares.

        Parameters
        ----------
        k : int or float
            Number of components, or share of the variance.
        """
        if _is_share(k) and not self.takes_shares:
            raise Refused("a share of the variance (", Setting("k", float(k)), f") needs {SHARE_SOLVERS}, got {self}")

    def __call__(
        self, A: Operator, k: int | float, rng: int | Generator | None = None, *, tol: float = TOL
    ) -> SVDResult:
        """Compute the k leading components of A.

        Parameters
        ----------
        A : Operator of shape (m, n)
        k : int in 1..min(m, n), or float in (0, 1)
            Number of components, or share of the variance (only with `Exact`, `Gram` and `BlockLanczos`).
        rng : int, Generator or None
        tol : float
            Tolerance by which a certificate decides `Info.converged`.

        Returns
        -------
        SVDResult

        Raises
        ------
        ValueError
            For a k out of range, or a shift that the algorithm does not support.

        Notes
        -----
        If squares could overflow or underflow, the algorithm runs on A divided by a power of two (`in_units`), so that
        its result does not depend on powers of two in the scale of A, to the last bit.
        """
        self.check_share(k)
        if not _is_share(k):
            check_rank(k, A.shape)  # type: ignore[arg-type]
            k = int(k)
        watch, started, count = MemoryWatch(), time.perf_counter(), most_components(A, k)
        set_expected_passes(self.expected_passes(A, count) + self.certificate_passes(A, count)[1])
        rng = generator(rng)
        with threads(A.costs.n_threads):
            B, unit, norm = in_units(A)  # A over a power of two, if squares could overflow or underflow
            factors = self.factorize(B, k, rng)
            F = self._result(B, len(factors.S) if isinstance(k, float) else k, factors, tol)
            if self.certify and F.info.converged is None:
                F = certify(B, F, rng, tol)
            error = residual_norm(B, F, factors, norm)
        F.info = replace(
            F.info, frobenius_error=error, seconds=time.perf_counter() - started, peak_bytes=watch.growth()
        )
        F = F.times_power(unit)
        certificate = factors.certificate
        if certificate is not None and not certificate.converged:
            _warn(certificate, float(F.S[-1]), F.info.missed_below, np.finfo(A.dtype).bits == 32)
        elif certificate is None and F.info.converged is False:
            warn(NOT_CERTIFIED + _uncertified(F.info, float(F.S[-1]), tol), *self.remedy)
        return F

    def _result(self, A: Operator, k: int, factors: Factors, tol: float) -> SVDResult:
        certificate = factors.certificate
        left = _slice(factors.U, (slice(None), slice(k)), A)
        right = _slice(factors.Vh, (slice(k), slice(None)), A)
        U, Vh = signed(left, right)
        S = factors.S[:k]
        nonzero = S > rank_floor(A, S[0], A.costs.eps if factors.eps is None else factors.eps)
        info = Info(
            solver=repr(self),
            n_passes=factors.n_passes + factors.factor_passes * (self.certify and certificate is None),
            sample_size=factors.sample_size,
            rank=int(nonzero.sum()),
            residuals=None,
            value_errors=None,
            missed_below=factors.missed_below,
            converged=None,
            frobenius_error=None,
            seconds=0.0,
            peak_bytes=None,
        )
        info = certificate.add_to(info) if certificate else info
        return SVDResult(U, np.where(nonzero, S, 0).astype(np.float64), Vh, info)


def _slice(F: Lazy, part: tuple[slice, slice], A: Operator) -> Lazy:
    if not callable(F):
        return np.asarray(F[part], A.dtype)
    n_threads = A.costs.n_threads or given_threads()

    def compute() -> Panel:
        with threads(n_threads):
            return F()[part].astype(A.dtype, copy=False)

    return compute


def _warn(certificate: Certificate, last: float, missed: float | None, single: bool) -> None:
    parts: list[Part] = []
    if len(certificate.unconverged):
        exact: tuple[Part, ...] = "use ", Setting("solver", "exact"), " if rows or columns are few."
        parts += [
            named_unconverged(certificate.value_errors, certificate.unconverged),
            "Raise ",
            Setting("tol"),
            REMEDIES,
            *(("pass data in double precision.",) if single else exact),
        ]
    if not certificate.complete:
        between = " " if parts else ""
        raise_it: tuple[Part, ...] = ". Allow more passes, or raise ", Setting("missed_tol"), "."
        parts += [between + _missed_values(missed, last), *raise_it]
    warn(*parts)


def _uncertified(info: Info, last: float, tol: float) -> str:
    assert info.value_errors is not None
    unconverged = np.flatnonzero(~(info.value_errors <= tol))
    text = named_unconverged(info.value_errors, unconverged) if len(unconverged) else ""
    if info.missed_below is None or info.missed_below > last * (1 + max(tol, MISSED_TOL)):
        text += _missed_values(info.missed_below, last) + ". "
    return text


def named_unconverged(errors: Vector, unconverged: Vector) -> str:
    return (
        f"{plural(len(unconverged), 'component')} did not converge: {_ranges(unconverged + 1)} "
        f"(relative errors bounded by {errors[unconverged].max():.1e}, see value_errors). "
    )


def _missed_values(missed: float | None, last: float) -> str:
    level = missed if missed is None or last == 0 else missed / last
    values = "Any value" if level is None else f"Values up to {level:.3g}{' sigma_k' if last else ''}"
    return f"{values} may have been missed (see missed_below)"


def _ranges(numbers: Vector) -> str:
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _is_share(k: int | float) -> bool:
    return isinstance(k, float) and 0 < k < 1


def most_components(A: Operator, k: int | float) -> int:
    # A share of the variance may need all.
    return min(A.shape) if isinstance(k, float) else int(k)


def check_rank(k: int, shape: tuple[int, int]) -> None:
    m, n = shape
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= min(m, n):
        raise refuse("k", f"be an integer in 1..{min(m, n)} for a {m} x {n} matrix", k)


def check_tol(tol: Any, any_size: bool = False) -> None:
    # The tolerance of a solver object may be 1 or more, also infinite: the solver then stops at its first check.
    is_number = isinstance(tol, int | float | np.floating) and not isinstance(tol, bool)
    if not (is_number and 0 <= tol and (any_size or tol < 1)):
        rule = "be at least 0" if any_size else "be at least 0 and less than 1"
        raise refuse("tol", rule, tol, "pass a relative accuracy such as 1e-4")


# --- matrices with approximated or rounded entries --------------------------------------------------------------------


class Perturbation(NamedTuple):
    """Error bounds of a matrix with approximated or rounded entries."""

    error: float  # bound of the norm of the approximation error, which decreases with the tolerance
    rounding: float  # bound of the norm of rounding errors of entries that are differences of larger numbers
    units: float  # relative rounding error of each entry


def solve_perturbed(
    perturbation: Perturbation, solver: Solver, A: Operator, k: int | float, rng: int | Generator | None, tol: float
) -> SVDResult:
    # Approximation takes up APPROXIMATED of the tolerance, or rounding ROUNDED, so the solver gets the rest.
    own: Any = solver
    own_tol, share = getattr(solver, "tol", tol), 1 - (APPROXIMATED if perturbation.error else ROUNDED)
    stricter = replace(own, tol=share * own_tol) if hasattr(solver, "tol") else solver
    F = stricter(A, k, rng, tol=share * tol)
    F.info = replace(F.info, solver=repr(solver))
    shift = shift_of(A)
    size = np.hypot(length(F.S), F.info.frobenius_error or 0.0) + (shift.frobenius_norm() if shift else 0.0)
    rounding = perturbation.rounding + perturbation.units * float(size)
    # Exact solvers report no errors; their results are judged by the tolerance of the call.
    without_bounds = F.info.value_errors is None
    F = widen_bounds(F, perturbation.error, tol if without_bounds else own_tol, rounding)
    if without_bounds and not solver.finds_all:  # errors of entries do not bound those of a solver that reports none
        F.info = replace(F.info, value_errors=None)
    return F


def widen_bounds(F: SVDResult, error: float, tol: float, rounding: float = 0.0) -> SVDResult:
    """Widen the bounds of components of A + E to those of A, where ``||E|| <= error + rounding``.

    Values move by at most the norm of E (Weyl); vectors by at most twice its share of the gap (Wedin 1972). Warn of
    values that `error` alone leaves uncertain to more than `tol`.
    """
    info, norm = F.info, error + rounding
    missed = None if info.missed_below is None else info.missed_below + norm
    # Exact solvers report no errors; their rounding is treated as zero.
    before = np.zeros(len(F.S)) if info.value_errors is None else info.value_errors
    with np.errstate(divide="ignore", invalid="ignore"):
        approximated, errors = (before + np.where(F.S > 0, each / F.S, 0) for each in (error, norm))
    vectors = None if info.vector_errors is None else _vectors(info.vector_errors, F.S, missed, norm)
    uncertain = approximated > max(tol, LEAST_APPROXIMATED) if error else np.zeros(len(F.S), bool)
    if uncertain.any() and info.converged is not False:
        count = int(uncertain.sum())
        warn(
            f"The error {'bound' if count == 1 else 'bounds'} of {plural(count, 'component')} "
            f"{'exceeds' if count == 1 else 'exceed'} tol={tol:g}, because the transformed entries are approximated "
            f"(norm of the approximation error: {error:.1e}). Lower ",
            *(Setting("tol"), " for a more accurate approximation."),
        )
    converged = False if uncertain.any() else info.converged
    F.info = replace(info, value_errors=errors, vector_errors=vectors, missed_below=missed, converged=converged)
    return F


def _vectors(sines: Vector, S: Vector, missed: float | None, error: float) -> Vector:
    below = np.append(S[1:], S[-1] if missed is None else missed)
    above = np.append(np.inf, S[:-1])
    gap = np.minimum(above - S, S - below) - 2 * error
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(gap > 0, 2 * error / gap, 1)
    # 1 if the gap is unknown: the bound then holds for the space of a cluster of values.
    return np.asarray(np.minimum(sines + more, 1))
