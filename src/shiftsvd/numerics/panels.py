"""Panels: what operators multiply, and the precision they are in."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Panel = npt.NDArray[Any]  # a tall thin 2-D array in memory
AT_ONCE = 256  # rows of a square matrix that are copied at a time


class Mixer(Protocol):
    """A structured test matrix of shape (n, ell): it mixes the columns of a block without being formed."""

    def mix(self, block: Panel) -> Panel: ...

    def to_array(self) -> Panel: ...


def unmasked(what: str, values: Any, remedy: str = "fill them") -> Any:
    parts = values if isinstance(values, list | tuple) else (values,)
    masks = (np.ma.getmaskarray(part) for part in parts if isinstance(part, np.ma.MaskedArray))
    if masked := sum(int(np.count_nonzero(mask)) for mask in masks):
        raise ValueError(f"{what} must have no masked entries, got {masked}; {remedy}")
    return values


def panel_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    # Products of float32 panels square their rounding into sigma^2 (65 % error at sigma_1/sigma_k = 1e4).
    return np.dtype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)


def field_of(dtype: np.dtype[Any], *parts: npt.NDArray[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64) if any(np.iscomplexobj(p) for p in parts) else dtype


def apart(V: Panel) -> Panel:
    V = np.ascontiguousarray(V, np.complex128)
    return V.view(np.float64)


def joined(V: Panel) -> Panel:
    return np.ascontiguousarray(V).view(np.complex128)


def mirror(G: Panel) -> None:
    for lo in range(0, len(G), AT_ONCE):
        hi = lo + AT_ONCE
        square = np.tril(G[lo:hi, lo:hi])
        G[lo:hi, lo:hi] = square + np.tril(square, -1).conj().T
        G[lo:hi, hi:] = G[hi:, lo:hi].conj().T
