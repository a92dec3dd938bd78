"""Matrices of every shape, with chosen spectra."""

from typing import Any

import numpy as np

EPS = float(np.finfo(np.float64).eps)


Array = np.ndarray


KINDS = ("tall", "wide", "square", "row", "column", "single", "empty lines", "zero")


_SHAPES = {
    "tall": (23, 7),
    "wide": (7, 23),
    "square": (9, 9),
    "row": (1, 8),
    "column": (8, 1),
    "single": (1, 1),
    "empty lines": (12, 6),
    "zero": (6, 4),
}


def values(shape: tuple[int, int], dtype: Any = np.float64, seed: int = 0, density: float = 0.6) -> Array:
    """A matrix of the given dtype, about `density` of whose entries are not 0."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    there = rng.random(shape) < density
    if dtype.kind == "b":
        return there
    if dtype.kind in "iu":
        return (rng.integers(0 if dtype.kind == "u" else -9, 10, shape) * there).astype(dtype)
    X = rng.standard_normal(shape)
    X = X + 1j * rng.standard_normal(shape) if dtype.kind == "c" else X
    return (X * there).astype(dtype)


def matrix(kind: str, dtype: Any = np.float64, seed: int = 0) -> Array:
    """A matrix of one of the `KINDS`."""
    D = values(_SHAPES[kind], dtype, seed)
    if kind == "zero":
        D[:] = 0
    if kind == "empty lines":
        D[[0, 4, 5, 11]] = 0
        D[:, [0, 3]] = 0
    return D


def decaying(shape: tuple[int, int], decay: float = 0.6, dtype: Any = np.float64, seed: int = 0) -> Array:
    """A dense matrix with singular values 1, decay, decay^2, ..."""
    return with_values(shape, decay ** np.arange(min(shape), dtype=float), dtype, seed)


def with_values(shape: tuple[int, int], S: Array, dtype: Any = np.float64, seed: int = 0) -> Array:
    """A dense matrix with these singular values and random singular vectors."""
    U, V = (
        np.linalg.qr(values((side, len(S)), np.result_type(dtype, np.float64), seed + 7 * i, 1.0))[0]
        for i, side in enumerate(shape)
    )
    return ((U * S) @ V.conj().T).astype(dtype)


def in_double(D: Array) -> Array:
    """The values as float64 or complex128."""
    return D.astype(np.complex128 if D.dtype.kind == "c" else np.float64)
