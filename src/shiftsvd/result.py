"""SVDResult and Info: the factors of a fit and how they were computed; factors on a device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from shiftsvd.backends.device import arrays_of
from shiftsvd.backends.device.arrays import Arrays, DevicePanel
from shiftsvd.errors import refuse
from shiftsvd.numerics.orth import phases
from shiftsvd.numerics.panels import Vector, on_host
from shiftsvd.numerics.powers import length
from shiftsvd.operators import LowRank, Operator, Panel

Lazy = Panel | Callable[[], Panel]


@dataclass(frozen=True, eq=False)
class Certificate:
    """Accuracy of each component, as in `Info`, and whether it suffices."""

    residuals: Vector
    value_errors: Vector
    unconverged: Vector  # indices of components
    vector_errors: Vector
    missed_below: float | None
    complete: bool  # `missed_below` is at most the allowed level

    @property
    def converged(self) -> bool:
        return not len(self.unconverged) and self.complete

    def add_to(self, info: "Info") -> "Info":
        shared = ("residuals", "value_errors", "vector_errors", "missed_below", "converged")
        return replace(info, **{name: getattr(self, name) for name in shared})


@dataclass(frozen=True, eq=False)
class Info:
    """Solver, passes, accuracy and cost of a factorization.

    Parameters
    ----------
    solver : str
        The solver and its settings.
    n_passes : int
        Reads of the data by the solver; a fused gram product counts as one. The reads for the moments, for
        `frobenius_error`, and for the long-side factor of `Exact` are not counted.
    sample_size : int
        Columns of the largest panel multiplied.
    rank : int
        Number of the k values above ``max(m, n) eps sigma_1``, with eps of double precision; the others are reported
        as 0. For products in single precision alone, as by the randomized solvers of dense single precision data, the
        threshold is ``sqrt(max(m, n)) eps sigma_1``.
    residuals : array of shape (k,), or None
        ``sqrt((||A v - sigma u||^2 + ||A^H u - sigma v||^2) / 2) / sigma_1``; None if not computed.
    value_errors : array of shape (k,), or None
        Bounds of ``|sigma - exact| / sigma``, if no value between the last one and `missed_below` was missed; the
        tolerance where a value is so close to the next ones that its bound is inferred, not proven. Bounds by
        ``certify=True`` of a run that did not converge, or that may have missed too much, need no such condition.
    converged : bool or None
        Whether every value error is within the tolerance and no value far above the last one can have been missed:
        ``missed_below <= sigma_k (1 + max(tol, 0.05))``. None if neither was computed.
    frobenius_error : float or None
        ``||A - U S Vh||_F`` of the returned factors, to a hundredth, down to ``10 eps ||A||_F`` with eps of the data;
        None where the norm of A is expensive. Computed as a difference of squares if that difference is accurate. If
        the error is a tiny share of ``||A||_F`` (squares: 1e-10 in double precision, 1e-4 in single precision), one
        more product or a pass over the residual computes it. For operators with more than 1000 columns that only
        multiply, the smallest value is about ``1e-7 ||A||_F``.
    seconds : float or None
        Wall time of the solver; None in a model that was read from a file.
    peak_bytes : int or None
        Growth of the memory of the process since the start of the solver; None if the system does not report it, if the
        process was larger before, and in a model that was read from a file.
    vector_errors : array of shape (k,), or None
        Bounds of the sine of the angle between each vector, left or right, and the exact space of its value and of the
        values that its residual cannot tell from it; under the same condition as `value_errors`. 1 where no gap beyond
        rounding separates them, and for values reported as 0.
    missed_below : float or None
        Upper bound of all values that were not returned, with probability 1 - 1e-9 over `rng` (see `BlockLanczos`);
        None if no bound was computed.
    heldout_r2 : float or None
        With ``missing="em"``: ``1 - SSE(model) / SSE(biases)`` on 4 % of the observed entries, held out from both fits.
        0 is no better than the biases that the shift names; see `complete_matrix`. None without a completion, or with
        too few entries.
    n_missing : int or None
        Number of missing entries of X; None if missing entries are an error.
    completed : bool or None
        Whether the completion converged; if not, `converged` is False. None without a completion.

    See Also
    --------
    svd : Returns an SVDResult with an Info.
    PCA : Stores an Info as ``info_``.

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

    def __str__(self) -> str:
        lines = {"solver": self.solver, "passes": f"{self.n_passes:,}, of up to {self.sample_size:,} columns"}
        if self.seconds is not None:
            lines["seconds"] = f"{self.seconds:.3g}"
        lines["converged"] = "not measured" if self.converged is None else "yes" if self.converged else "no"
        for name in ("value_errors", "vector_errors", "residuals"):
            values = getattr(self, name)
            if values is not None and len(values):
                title = f"largest {name.replace('_', ' ').removesuffix('s')}"
                which = f"component {int(np.argmax(values)) + 1}" if np.ptp(values) > 0 else "each"
                lines[title] = f"{np.max(values):.1e} ({which} of {len(values)})"
        for name in ("missed_below", "frobenius_error", "n_missing", "heldout_r2"):
            if getattr(self, name) is not None:
                lines[name] = f"{getattr(self, name):.6g}"
        return "\n".join(f"{name:20} {text}" for name, text in lines.items())


class SVDResult(Operator):
    """``U diag(S) Vh``: unpacks to its factors, and is itself an operator of shape (m, n).

    Parameters
    ----------
    U : array of shape (m, k)
        In the precision of the data, like Vh.
    S : array of shape (k,), descending
        Always in double precision, like the bounds in `info`.
    Vh : array of shape (k, n)
        The largest entry of each row is real and positive.
    info : Info
        Solver, passes, accuracy and cost.

    See Also
    --------
    svd : Returns an SVDResult.
    LowRank : A product of two thin factors.

    Notes
    -----
    The factor on the long side of A is computed on first access, such as by unpacking, pickling or multiplying; until
    then the result keeps a reference to A. U of a Dask array with more rows than columns is a Dask array in chunks of
    rows, computed by its own ``compute`` or by a product.

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
    def _left(self) -> Panel:  # perhaps still on a device
        if callable(self._U):
            self._U = self._U()
        return self._U

    @property
    def Vh(self) -> Panel:
        """Right singular vectors, conjugate-transposed, shape (k, n)."""
        if callable(self._Vh):
            self._Vh = self._Vh()
        return self._Vh

    # All methods below work with the factors on the host; DeviceResult overrides these two methods.
    @property
    def _host(self) -> "SVDResult":
        return self

    def _beside(self, F: "SVDResult") -> "SVDResult":
        return F

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Rows and columns (m, n) of the matrix ``U S Vh``."""
        F = self._host
        return F._left.shape[0], F.Vh.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Data type of the factors U and Vh."""
        F = self._host
        return np.dtype((F.Vh if not callable(F._Vh) else F.U).dtype)

    def __iter__(self) -> Iterator[Panel]:
        return iter((self.U, self.S, self.Vh))

    def matmat(self, V: Panel) -> Panel:
        F = self._host
        return np.asarray(F.U @ (F._values[:, None] * (F.Vh @ V)))

    def rmatmat(self, W: Panel) -> Panel:
        F = self._host
        return np.asarray(F.Vh.conj().T @ (F._values[:, None] * (F.U.conj().T @ W)))

    @property
    def _values(self) -> Vector:
        return self.S.astype(np.finfo(self.dtype).dtype, copy=False)

    def frobenius_norm(self) -> float:
        return length(self._host.S)

    def as_low_rank(self) -> LowRank:
        """Return ``L R^H`` with L = U S, in double precision.

        Returns
        -------
        LowRank
            The factorization with thin factors.
        """
        F = self._host
        return LowRank(F.U * F.S, F.Vh.conj().T)

    @property
    def H(self) -> "SVDResult":
        F = self._host
        return self._beside(SVDResult(lambda: F.Vh.conj().T, F.S, lambda: F.U.conj().T, F.info))

    def truncate(self, k: int) -> "SVDResult":
        """Return the first k components.

        Parameters
        ----------
        k : int
            Number of components to keep.

        Returns
        -------
        SVDResult
            The first k triplets, with their part of `info`.
        """
        F, info = self._host, self.info
        if not 1 <= k <= len(F.S):
            raise refuse("k", f"be in 1..{len(F.S)}", k, "fit again to get more components")
        missed, error = info.missed_below, info.frobenius_error
        if missed is not None and k < len(F.S) and info.value_errors is not None:
            missed = max(missed, float(F.S[k] * (1 + info.value_errors[k])))
        error = None if error is None else float(np.hypot(error, length(F.S[k:])))
        names = "residuals", "value_errors", "vector_errors"
        first = {name: values[:k] for name in names if (values := getattr(info, name)) is not None}
        info = replace(info, rank=min(info.rank, k), missed_below=missed, frobenius_error=error, **first)
        return self._beside(SVDResult(lambda: F._left[:, :k], F.S[:k], lambda: F.Vh[:k], info))

    def times_power(self, e: int) -> "SVDResult":
        """Return the result of ``2^e A``, without rounding.

        Parameters
        ----------
        e : int
            Exponent of the power of two.

        Returns
        -------
        SVDResult
            The same vectors; values, `Info.frobenius_error` and `Info.missed_below` are ``2^e`` times as large.
        """
        if e == 0:
            return self
        F = self._host
        known = F.info.frobenius_error, F.info.missed_below
        error, missed = (None if x is None else float(np.ldexp(x, e)) for x in known)
        info = replace(F.info, frobenius_error=error, missed_below=missed)
        return self._beside(SVDResult(lambda: F._left, np.ldexp(F.S, e), lambda: F.Vh, info))

    def __repr__(self) -> str:
        return f"<SVDResult of {len(self._host.S)} components by {self.info.solver}>"

    def __reduce__(self) -> tuple[Any, ...]:
        F = self._host
        return SVDResult, (F.U, F.S, F.Vh, F.info)


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
        Vh and S are copied to the device on first access; U of a tall matrix is made there.
    info : Info
        Solver, passes, accuracy and cost, as NumPy arrays.

    See Also
    --------
    SVDResult : The result of `to_host`.

    Notes
    -----
    Products with this result, such as ``ss.centered(X) - F`` needs, are those of the result on the host.
    """

    def __init__(self, host: SVDResult, arrays: Arrays) -> None:
        self._result, self._arrays = host, arrays
        self.info = host.info

    def to_host(self) -> SVDResult:
        """Return the same triplets as NumPy arrays.

        Returns
        -------
        SVDResult
            As `svd` returns for data on the host.
        """
        return self._result

    @property
    def _host(self) -> SVDResult:
        return self._result

    def _beside(self, F: SVDResult) -> "DeviceResult":
        return DeviceResult(F, self._arrays)

    @cached_property
    def U(self) -> Any:
        left = self._result._left
        return left.x if isinstance(left, DevicePanel) else self._up(left)

    @cached_property
    def S(self) -> Any:  # type: ignore[override]
        return self._up(self._result.S)

    @cached_property
    def Vh(self) -> Any:
        return self._up(self._result.Vh)

    def _up(self, values: Panel) -> Any:
        return self._arrays.up(np.ascontiguousarray(values))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self._arrays!r}>"


def native(F: SVDResult, X: Any) -> SVDResult:
    arrays = arrays_of(X)
    return F if arrays is None else DeviceResult(F, arrays)
