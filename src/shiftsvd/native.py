"""Results where the data are: the vectors of a matrix on a device as arrays of its library, on that device."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from shiftsvd.backends.device import Arrays, DevicePanel, arrays_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import LowRank, Panel
from shiftsvd.result import SVDResult


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
