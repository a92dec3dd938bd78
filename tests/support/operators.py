"""Operators that count or forbid, and what every operator must satisfy."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.algebra.generic import as_low_rank, column_blocks, registered, row_blocks, row_moments
from shiftsvd.algebra.operator import Costs
from shiftsvd.backends.dense import DenseRows
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, Array, values


class Minimal(ss.Operator):
    """The least that an operator of one's own needs."""

    def __init__(self, D: Array) -> None:
        self.D, self.shape, self.dtype = D, D.shape, D.dtype

    def matmat(self, V: Array) -> Array:
        return self.D @ V

    def rmatmat(self, W: Array) -> Array:
        return self.D.conj().T @ W


@registered
@dataclass(eq=False)
class Counting(ss.Operator):
    """An operator that counts how often the data are read."""

    A: Any
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.A = ss.as_operator(self.A)
        self.shape, self.dtype = self.A.shape, self.A.dtype

    @property
    def reads(self) -> int:
        return len(self.calls)

    def _read(self, name: str, *args: Any) -> Any:
        self.calls.append(name)
        return getattr(self.A, name)(*args)

    def matmat(self, V: Array) -> Array:
        return self._read("matmat", V)

    def rmatmat(self, W: Array) -> Array:
        return self._read("rmatmat", W)

    @property
    def costs(self) -> Costs:
        return Costs.of(self, gram_reads=1)

    def gram(self, V: Array, weights: Array | None = None) -> Array:
        return self._read("gram", V, weights)

    def row_blocks(self, rows: int) -> Any:
        return self._read("row_blocks", rows)

    def column_blocks(self, columns: int) -> Any:
        return self._read("column_blocks", columns)

    def mix(self, Omega: Any) -> Array:
        return self._read("mix", Omega)


def assert_is(A: ss.Operator, D: Array, size: float, seed: int = 0) -> None:
    """A is the matrix D in everything an operator can do.

    `size` is the sum of the norms of what A was computed from: every bound is 20 eps of it, times the panel.
    """
    assert A.shape == D.shape
    assert A.costs.eps <= np.finfo(A.dtype).eps
    for B, E in ((A, D), (A.H, D.conj().T)):
        _products(B, E, size, seed)
        _moments(B, E, size, seed + 1)
        _squares(B, E, size, seed + 2)
        _blocks(B, E, size)
    assert_close(A.H.H @ np.eye(D.shape[1]), D, 20 * A.costs.eps * max(size, 1) * D.shape[1], "A.H.H")


def panel(rows: int, columns: int, dtype: Any = np.float64, seed: int = 0) -> Array:
    return values((rows, columns), dtype, seed, density=1.0)


def _products(A: ss.Operator, D: Array, size: float, seed: int) -> None:
    (m, n), tol = D.shape, 20 * A.costs.eps * size
    for dtype in (np.float64, np.complex128):
        V, W = panel(n, 3, dtype, seed), panel(m, 2, dtype, seed + 1)
        v, w = np.linalg.norm(V), np.linalg.norm(W)
        assert_close(A.matmat(V), D @ V, tol * v, "matmat")
        assert_close(A @ V, D @ V, tol * v, "@ panel")
        assert_close(A @ V[:, 0], D @ V[:, 0], tol * v, "@ vector")
        assert_close(A.rmatmat(W), D.conj().T @ W, tol * w, "rmatmat")
        assert_close(A.H @ W, D.conj().T @ W, tol * w, "H")
        assert_close(A.gram(V), D.conj().T @ (D @ V), 60 * A.costs.gram_eps * size**2 * v, "gram")
    ell = max(1, n // 2)
    Omega = ss.sketch.SRFT().draw(n, ell, np.random.default_rng(seed))
    found = ss.sketch.SRFT().apply(A, ell, np.random.default_rng(seed))
    assert_close(found, D @ Omega, tol * np.linalg.norm(Omega), "mix")


def _moments(A: ss.Operator, D: Array, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = D.shape
    for w, u in (
        (None, None),
        (rng.random(m), rng.random(n)),
        (rng.integers(0, 3, m) + (np.arange(m) == 0.0), rng.integers(0, 3, n) + (np.arange(n) == 0.0)),
    ):
        for moments, E, weights in ((A.moments(w), D, w), (row_moments(A, u), D.T, u)):
            weights = np.ones(len(E)) if weights is None else weights
            eps = A.costs.eps if moments.M2 is None else EPS
            mean = weights @ E / weights.sum()
            assert moments.count == pytest.approx(weights.sum(), rel=len(E) * EPS)
            assert_close(moments.mean, mean, 20 * eps * size, "mean")
            assert moments.mean.dtype in (np.float64, np.complex128)
            if moments.M2 is not None:
                M2 = weights @ np.abs(E - mean) ** 2
                assert_close(moments.M2, M2, 20 * EPS * size**2 * weights.max(), "M2")
                assert moments.M2.dtype == np.float64


def _squares(A: ss.Operator, D: Array, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = D.shape
    for w, u in ((np.ones(m), np.ones(n)), (rng.random(m), rng.random(n))):
        for found, want in ((A.column_squares(w), w @ np.abs(D) ** 2), (A.row_squares(u), np.abs(D) ** 2 @ u)):
            if found is not None:
                assert_close(found, want, 20 * EPS * size**2, "squares")
    for plain, weighted in (
        (A.column_squares(), A.column_squares(np.ones(m))),
        (A.row_squares(), A.row_squares(np.ones(n))),
    ):
        assert (plain is None) == (weighted is None)
        if plain is not None:
            assert_close(plain, weighted, 20 * EPS * size**2, "weights of one")
    norm = A.frobenius_norm()
    if norm is not None:
        assert isinstance(norm, float)
        assert_close(norm**2, np.linalg.norm(D) ** 2, 20 * EPS * size**2, "Frobenius norm")


def _blocks(A: ss.Operator, D: Array, size: float) -> None:
    for rows in (1, 4, 10**6):
        for found, E, eps in (
            (row_blocks(A, rows), D, _block_eps(A, rows=True)),
            (column_blocks(A, rows), D.conj().T, _block_eps(A, rows=False)),
        ):
            next_row, parts = 0, []
            for first, block in found:
                assert first == next_row
                assert block.dtype in (np.float64, np.complex128)
                next_row += len(block)
                parts.append(block)
            assert_close(np.vstack(parts), E, 20 * eps * size, "blocks")


def _block_eps(A: ss.Operator, rows: bool) -> float:
    """Blocks are made in double; where an operator knows none they are products with the identity."""
    if isinstance(A, ss.operators.Shifted) and as_low_rank(A.S) is None:
        return A.costs.eps
    if isinstance(A, ss.operators.Adjoint | ss.operators.Scaled | ss.operators.Shifted):
        return _block_eps(A.A, rows != isinstance(A, ss.operators.Adjoint))
    return EPS if rows or not isinstance(A, DenseRows) else A.costs.eps
