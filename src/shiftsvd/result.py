"""SVDResult and Info: the factors of a fit, with an account of how they were computed; factors on a device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.device import Arrays, DevicePanel, arrays_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.numerics.panels import on_host
from shiftsvd.numerics.powers import length
from shiftsvd.operators import LowRank, Operator, Panel

Lazy = Panel | Callable[[], Panel]


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is known of each component: see `Info`.

    `late` are the components that did not converge; `complete` says whether nothing was missed above what is allowed.
    """

    residuals: Vector
    value_errors: Vector
    late: Vector
    vector_errors: Vector
    missed_below: float | None
    complete: bool

    @property
    def converged(self) -> bool:
        return not len(self.late) and self.complete

    def told(self, info: "Info") -> "Info":
        shared = ("residuals", "value_errors", "vector_errors", "missed_below", "converged")
        return replace(info, **{name: getattr(self, name) for name in shared})


@dataclass(frozen=True, eq=False)
class Info:
    """How a factorization came about, and what is known of its accuracy.

    Parameters
    ----------
    solver : str
        The solver and its settings.
    n_passes : int
        Reads of the data by the solver; a fused gram is one. Not counted: the read for the moments, those for
        `frobenius_error`, and that for the long-side factor of `Exact` where it is asked for.
    sample_size : int
        Columns of the largest panel multiplied.
    rank : int
        How many of the k values are above ``max(m, n) eps sigma_1``, with eps that of double precision; the others are
        reported as 0. Where products were made in single precision alone, as by the randomized solvers of dense single
        precision data, they are those above ``sqrt(max(m, n)) eps sigma_1``.
    residuals : array of shape (k,), or None
        ``sqrt((||A v - sigma u||^2 + ||A^H u - sigma v||^2) / 2) / sigma_1``; None if not asked for.
    value_errors : array of shape (k,), or None
        Bounds of ``|sigma - exact| / sigma``, given that no value between the last one and `missed_below` was missed;
        of ``certify=True`` where it did not converge, and wherever too much may have been missed, given nothing.
    converged : bool or None
        Whether every value error is within the tolerance and nothing far above the last value can have been missed:
        ``missed_below <= sigma_k (1 + max(tol, 0.05))``; None if they were not asked for.
    frobenius_error : float or None
        ``||A - U S Vh||_F`` of the factors that are returned, to a hundredth down to ``10 eps ||A||_F`` with eps that
        of the data; None where the norm of A cannot be had cheaply. A difference of squares while that has the
        digits; where the rest is a tiny share of the squares (1e-10 of double precision data, 1e-4 of single ones) it
        takes a product more, or in the end a pass that forms the residual piece by piece. Operators with more than 1000
        columns that only multiply have a floor instead: some ``1e-7 ||A||_F``.
    seconds : float or None
        Wall time of the solver; None in a model that was read from a file: the same fit gives the same file.
    peak_bytes : int or None
        By how much the process grew past its size at the start; None where the system does not tell or the
        process had been larger before, and in a model that was read from a file.
    vector_errors : array of shape (k,), or None
        Bounds of the sine of the angle of each vector, left or right, to the exact space of its value and of those that
        its residual does not tell from it; 1 where no gap beyond rounding says anything, and for values reported as 0.
        Given what `value_errors` are given.
    missed_below : float or None
        No value that was not returned exceeds this, with probability 1 - 1e-9 over `rng` (see `BlockLanczos`); None
        where nothing is known.
    heldout_r2 : float or None
        With ``missing="em"``: ``1 - SSE(model) / SSE(biases)`` on 4 % of the observed entries, which neither was
        fitted to; 0 is no better than the biases that the shift names, and less is worse. See `complete_matrix`. None
        without a completion, and where there are too few entries to tell.
    n_missing : int or None
        How many entries of X are missing; None where they are an error.
    completed : bool or None
        Whether the completion came to rest; if not, `converged` is False. None without a completion.

    See Also
    --------
    svd : Gives one with its result.
    PCA : Keeps it as ``info_``.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> info = ss.svd(np.diag([3.0, 2.0, 1.0]), 2, solver="lanczos", rng=0).info
    >>> info.converged, bool(max(info.value_errors) < 1e-4)
    (True, True)
    """

    solver: str
    n_passes: int
    sample_size: int
    rank: int
    residuals: Vector | None
    value_errors: Vector | None
    converged: bool | None
    frobenius_error: float | None
    seconds: float | None
    peak_bytes: int | None
    vector_errors: Vector | None = None
    missed_below: float | None = None
    heldout_r2: float | None = None
    n_missing: int | None = None
    completed: bool | None = None


@registered
class SVDResult(Operator):
    """``U diag(S) Vh``: unpacks to its factors, and is itself an operator of shape (m, n).

    Parameters
    ----------
    U : array of shape (m, k)
        In the precision of the data, as Vh is.
    S : array of shape (k,), descending
        In double precision whatever the data are, as `info` is: its bounds hold for what is returned.
    Vh : array of shape (k, n)
        The largest entry of each row is real and positive.
    info : Info
        How it was found, and what is certain of it: bounds of errors, passes, what may have been missed.

    See Also
    --------
    svd : Makes one.
    LowRank : A matrix of low rank without an order.

    Notes
    -----
    The factor on the long side of A is computed when it is first asked for; until then the result keeps
    hold of A. Unpacking, pickling and multiplying ask for it. U of a Dask array with more rows than columns is a Dask
    array in chunks of rows, computed where its own ``compute`` or a product asks for it.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> F = ss.svd(np.diag([3.0, 2.0, 1.0]), 2, rng=0)
    >>> F.U.shape, F.S.round(6).tolist(), F.Vh.shape
    ((3, 2), [3.0, 2.0], (2, 3))
    """

    def __init__(self, U: Lazy, S: Vector, Vh: Lazy, info: Info) -> None:
        self._U, self._Vh = U, Vh
        self.S, self.info = S, info

    @property
    def U(self) -> Panel:
        """Left singular vectors, shape (m, k)."""
        self._U = on_host(self._left)
        return self._U

    @property
    def _left(self) -> Panel:
        if callable(self._U):
            self._U = self._U()
        return self._U

    @property
    def Vh(self) -> Panel:
        """Right singular vectors, conjugate-transposed, shape (k, n)."""
        if callable(self._Vh):
            self._Vh = self._Vh()
        return self._Vh

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Rows and columns (m, n) of the matrix ``U S Vh``."""
        return self._left.shape[0], self.Vh.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The kind of numbers of the factors U and Vh."""
        return np.dtype((self.Vh if not callable(self._Vh) else self.U).dtype)

    def __iter__(self) -> Iterator[Panel]:
        return iter((self.U, self.S, self.Vh))

    def matmat(self, V: Panel) -> Panel:
        return np.asarray(self.U @ (self._values[:, None] * (self.Vh @ V)))

    def rmatmat(self, W: Panel) -> Panel:
        return np.asarray(self.Vh.conj().T @ (self._values[:, None] * (self.U.conj().T @ W)))

    @property
    def _values(self) -> Vector:
        return self.S.astype(np.finfo(self.dtype).dtype, copy=False)

    def frobenius_norm(self) -> float:
        return length(self.S)

    def as_low_rank(self) -> LowRank:
        """``L R^H`` with L = U S, in double precision.

        Returns
        -------
        LowRank
            The factorization with thin factors.
        """
        return LowRank(self.U * self.S, self.Vh.conj().T)

    @property
    def H(self) -> "SVDResult":
        return SVDResult(lambda: self.Vh.conj().T, self.S, lambda: self.U.conj().T, self.info)

    def truncate(self, k: int) -> "SVDResult":
        """The first k components.

        Parameters
        ----------
        k : int
            How many components.

        Returns
        -------
        SVDResult
            The first k triplets, with their part of the account.
        """
        if not 1 <= k <= len(self.S):
            raise ValueError(f"k must be in 1..{len(self.S)}, got {k}; fit more components to have more")
        info = replace(
            self.info,
            rank=min(self.info.rank, k),
            residuals=_first(self.info.residuals, k),
            value_errors=_first(self.info.value_errors, k),
            vector_errors=_first(self.info.vector_errors, k),
            missed_below=self._missed_by(k),
            frobenius_error=self._error_of(k),
        )
        return SVDResult(lambda: self._left[:, :k], self.S[:k], lambda: self.Vh[:k], info)

    def times_power(self, e: int) -> "SVDResult":
        """The result of ``2^e A``: what is in the units of A is multiplied, and nothing is rounded.

        Parameters
        ----------
        e : int
            The exponent of the power of two.

        Returns
        -------
        SVDResult
            The same vectors; values, `Info.frobenius_error` and `Info.missed_below` are ``2^e`` times as large.
        """
        if e == 0:
            return self
        error, missed = (
            None if x is None else float(np.ldexp(x, e)) for x in (self.info.frobenius_error, self.info.missed_below)
        )
        info = replace(self.info, frobenius_error=error, missed_below=missed)
        return SVDResult(lambda: self._left, np.ldexp(self.S, e), lambda: self.Vh, info)

    def __repr__(self) -> str:
        return f"<SVDResult of {len(self.S)} components by {self.info.solver}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return SVDResult, (self.U, self.S, self.Vh, self.info)

    def _missed_by(self, k: int) -> float | None:
        missed = self.info.missed_below
        if missed is None or k == len(self.S) or self.info.value_errors is None:
            return missed
        return max(missed, float(self.S[k] * (1 + self.info.value_errors[k])))

    def _error_of(self, k: int) -> float | None:
        error = self.info.frobenius_error
        return None if error is None else float(np.hypot(error, length(self.S[k:])))


def _first(values: Vector | None, k: int) -> Vector | None:
    return None if values is None else values[:k]


def signed(U: Lazy, Vh: Lazy) -> tuple[Lazy, Lazy]:
    if not callable(Vh):
        turn = phases(Vh)
        left = (lambda: _turned(U(), turn)) if callable(U) else _turned(U, turn)
        return left, _turned(Vh, turn.conj()[:, None])

    @cache
    def right() -> tuple[Panel, Vector]:
        made = np.require(Vh(), requirements="W")  # one that is spread over a cluster is needed whole for the signs
        turn = phases(made)
        made *= turn.conj()[:, None]  # in place: this panel is on the long side, and nobody else has it
        return made, turn

    return lambda: _turned(U() if callable(U) else U, right()[1]), lambda: right()[0]


def _turned(F: Panel, turn: Vector) -> Panel:
    return (F * turn).astype(F.dtype, copy=False)


class DeviceResult(SVDResult):
    """The singular triplets of a matrix on a device: U, S and Vh lie there, the certificate in ``info`` on the host.

    Attributes
    ----------
    U, S, Vh : arrays of the library of the data, of shapes (m, k), (k,) and (k, n)
        Vh and S are copied to the device when they are first asked for; U of a tall matrix is made there.
    info : Info
        The account of the fit, in NumPy.

    See Also
    --------
    SVDResult : What `to_host` gives; an operator like this one.

    Notes
    -----
    Products with this result, such as ``ss.centered(X) - F`` needs, are those of the result on the host.
    """

    def __init__(self, host: SVDResult, arrays: Arrays) -> None:
        self._result, self._arrays = host, arrays
        self.info = host.info

    def to_host(self) -> SVDResult:
        """The same triplets as NumPy arrays.

        Returns
        -------
        SVDResult
            What `svd` gives for data on the host.
        """
        return self._result

    @cached_property
    def U(self) -> Any:
        left = self._result._left
        return left.x if isinstance(left, DevicePanel) else self._arrays.up(np.ascontiguousarray(left))

    @cached_property
    def S(self) -> Any:  # type: ignore[override]
        return self._arrays.up(np.ascontiguousarray(self._result.S))

    @cached_property
    def Vh(self) -> Any:
        return self._arrays.up(np.ascontiguousarray(self._result.Vh))

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self._result.shape

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        return self._result.dtype

    def __iter__(self) -> Iterator[Any]:
        return iter((self.U, self.S, self.Vh))

    def matmat(self, V: Panel) -> Panel:
        return self._result.matmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self._result.rmatmat(W)

    @property
    def _values(self) -> Vector:
        return self._result.S

    def frobenius_norm(self) -> float:
        return self._result.frobenius_norm()

    def as_low_rank(self) -> LowRank:
        return self._result.as_low_rank()

    @property
    def H(self) -> "DeviceResult":
        return DeviceResult(self._result.H, self._arrays)

    def truncate(self, k: int) -> "DeviceResult":
        """The first k components, on the device.

        Parameters
        ----------
        k : int
            How many components.

        Returns
        -------
        DeviceResult
            The first k triplets, with their part of the account.
        """
        return DeviceResult(self._result.truncate(k), self._arrays)

    def times_power(self, e: int) -> "DeviceResult":
        return DeviceResult(self._result.times_power(e), self._arrays)

    def __repr__(self) -> str:
        return f"<SVDResult of {len(self._result.S)} components by {self.info.solver}, {self._arrays!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._result.__reduce__()


def native(F: SVDResult, X: Any) -> SVDResult:
    arrays = arrays_of(X)
    return F if arrays is None else DeviceResult(F, arrays)
