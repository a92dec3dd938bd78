"""Panels: precision, functions that devices replace, and products with diagonal matrices."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Refused, Setting, sentence

Panel = npt.NDArray[Any]  # a tall thin 2-D array in memory
Vector = npt.NDArray[Any]
MIRRORED = 256  # rows of a square matrix that `mirror` copies at a time


class Mixer(Protocol):
    """A structured test matrix of shape (n, ell), which multiplies a block without being formed."""

    def mix(self, block: Panel) -> Panel: ...

    def to_array(self) -> Panel: ...


def unmasked(what: str, values: Any, *remedy: Part) -> Any:
    if type(values) is np.ndarray:
        return values
    parts = values if isinstance(values, list | tuple) else (values,)
    masks = (np.ma.getmaskarray(part) for part in parts if isinstance(part, np.ma.MaskedArray))
    if masked := sum(int(np.count_nonzero(mask)) for mask in masks):
        rule = f" must have no masked entries, got {masked:,}."
        raise Refused(Setting(what), rule, *sentence(*(remedy or ("fill them",))))
    return values


def panel_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    # Double precision: rounding errors of float32 products are relative to sigma_1^2 (65 % of sigma_k at
    # sigma_1/sigma_k = 1e4).
    return np.dtype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)


def field_of(dtype: np.dtype[Any], *parts: npt.NDArray[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64) if any(p.dtype.kind == "c" for p in parts) else dtype


def as_real(V: Panel) -> Panel:
    V = np.ascontiguousarray(V, np.complex128)
    return V.view(np.float64)


def as_complex(V: Panel) -> Panel:
    return np.ascontiguousarray(V).view(np.complex128)


def mirror(G: Panel) -> None:
    # Copy the lower triangle to the upper one.
    for lo in range(0, len(G), MIRRORED):
        hi = lo + MIRRORED
        square = np.tril(G[lo:hi, lo:hi])
        G[lo:hi, lo:hi] = square + np.tril(square, -1).conj().T
        G[lo:hi, hi:] = G[hi:, lo:hi].conj().T


# Rows that are written at a time into a panel with contiguous columns, so that they stay in the first-level cache.
TRANSPOSED = 512


class ForeignPanel:
    """A panel outside NumPy's memory, such as on a device; solvers use it like an array."""

    # Subclasses have a shape, NumPy's dtype, slices to read and to write, ``astype`` and ``copy``; ``@``, ``-``, ``*``
    # and ``/`` with panels on the same device and with small arrays of the host, which are copied to the device; and a
    # method for each function in DEVICE_METHODS. Type checkers see a `Panel`.

    __array_ufunc__ = None  # so that NumPy calls the panel's method for ``array * panel``


Function = TypeVar("Function", bound=Callable[..., Any])
DEVICE_METHODS: set[str] = set()  # names of the functions of `by_device`


def by_device(on_host: Function) -> Function:
    # Call the method of the same name if the first argument is a `ForeignPanel`.
    name = on_host.__name__
    DEVICE_METHODS.add(name)

    @wraps(on_host)
    def dispatched(V: Any, *others: Any) -> Any:
        return getattr(V, name)(*others) if isinstance(V, ForeignPanel) else on_host(V, *others)

    return cast("Function", dispatched)


@by_device
def empty_columns(V: Panel, columns: int, dtype: np.dtype[Any]) -> Panel:
    return np.empty((len(V), columns), dtype, order="F")


@by_device
def to_device_of(V: Panel, x: Panel) -> Panel:
    return x


@by_device
def on_host(V: Panel) -> Panel:
    return V


@by_device
def hstack(V: Panel, W: Panel) -> Panel:
    return np.hstack([V, W])


@by_device
def set_columns(B: Panel, at: int, Q: Panel) -> None:
    for lo in range(0, len(Q), TRANSPOSED):
        B[lo : lo + TRANSPOSED, at : at + Q.shape[1]] = Q[lo : lo + TRANSPOSED]


@by_device
def in_dtype(W: Panel, dtype: np.dtype[Any]) -> Panel:
    return np.asarray(W, dtype)


@by_device
def may_overwrite(product: Panel, given: Panel) -> bool:
    # An operator of another package may return its argument, or an array that it keeps.
    return bool(product.flags.writeable) and not np.may_share_memory(product, given)


@by_device
def largest(W: Panel) -> float:
    return float(np.max(np.abs(W)))


@by_device
def norms(W: Panel) -> Vector:
    return np.asarray(np.linalg.norm(W, axis=0))


@by_device
def lengths(W: Panel) -> Vector:
    W = W.astype(np.result_type(W, np.float64), copy=False)
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", W.conj(), W).real))


def scaled(scale: Vector | None, V: Panel) -> Panel:
    if scale is None:
        return V
    product: Panel = scale[:, None] * V if V.ndim == 2 else scale * V
    return product


def unscaled(scale: Vector | None, F: Panel) -> Panel | None:
    if scale is None:
        return F
    zero = scale == 0
    return None if np.any(F[zero]) else np.asarray(F / np.where(zero, 1, scale)[:, None])


def conj(scale: Vector | None) -> Vector | None:
    return scale if scale is None or scale.dtype.kind != "c" else np.conj(scale)


def power(scale: Vector | None, weights: Vector | None = None) -> Vector | None:
    if scale is None:
        return weights
    squares = np.abs(scale) ** 2
    return squares if weights is None else squares * weights


def read_only(scale: Vector | None) -> Vector | None:
    if scale is None:
        return None
    view: Vector = unmasked("scales", scale).view()
    view.flags.writeable = False
    return view
