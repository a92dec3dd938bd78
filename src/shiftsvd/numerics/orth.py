"""Orthonormal bases: QR, LU and Cholesky steps with their guard; the sign convention of singular vectors."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy import linalg

from shiftsvd.kernels import default_threads, ordered, shared, twin
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Elsewhere, Panel, by_place, lengths

# Rows of a panel that are worked on at once: they stay in cache, where one Householder QR of the whole does not.
ROWS = 8192
# Past condition 1e8 the Cholesky factor of a Gram matrix fails or, worse, does not; a digit of margin.
REACH = 1e-7
# Columns shorter than this, or longer than its inverse, have squares that are no numbers or have lost digits.
SHORTEST = 2.0**-480


def orth(Y: Panel) -> Panel:
    # Orthonormal columns that span those of Y, of any rank. L of an LU factorization is well conditioned whatever Y is,
    # so two Cholesky steps suffice (Terao, Ozaki & Ogita 2020); measured ten times faster than Householder QR on 200
    # 000 x 100.
    Q = _cholesky_steps(Y, 2)
    return Q if Q is not None else _or_householder(lu(Y))


def _or_householder(Y: Panel) -> Panel:
    Q = _cholesky_steps(Y, 2)
    return qr(Y)[0] if Q is None else Q


@by_place
def qr(Y: Panel) -> tuple[Panel, Panel]:
    Q, R = linalg.qr(Y, mode="economic", check_finite=False)
    return Q, R


@by_place
def lu(Y: Panel) -> Panel:
    return np.asarray(linalg.lu(Y, permute_l=True, check_finite=False)[0])


def well_conditioned(Y: Panel) -> Panel:
    Q = _cholesky_steps(Y, 1)
    return lu(Y) if Q is None else Q


def _cholesky_steps(Y: Panel, steps: int, overwrite: bool = False) -> Panel | None:
    # Y times the inverse of the Cholesky factor of its Gram matrix, `steps` times; None past REACH. With `overwrite`, Y
    # may hold the result of any step afterwards: columns of the same span and order.
    Q = Y
    for _ in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):
            G = inner(Q, Q)
            lengths = np.sqrt(np.diagonal(G).real)
        # Squares out of range are left to Householder's steps, which LAPACK takes at any scale.
        if not SHORTEST < lengths.min() <= lengths.max() < 1 / SHORTEST:
            return None
        try:
            C = np.linalg.cholesky(G / np.outer(lengths, lengths))  # columns of any lengths
        except np.linalg.LinAlgError:
            return None
        # The diagonal of C tells nothing: it is large at any condition where each column leans on the one before.
        condition = np.linalg.cond(C)
        if not condition < 1 / REACH:
            return None
        free = overwrite or Q is not Y
        if condition < 4:  # orthonormal to eps at once, since the error is eps times the condition squared
            return times_inverse(Q, C, lengths, free)
        Q = solved(Q, C, lengths, free)
    return Q


@by_place
def inner(B: Panel, W: Panel) -> Panel:
    if shared and shared.thin(B, W):
        return shared.inner(B, W, default_threads())
    parts = ordered(lambda rows: twin.inner(B[rows], W[rows]), _blocks(W), default_threads())
    return np.asarray(reduce(np.add, parts))


@by_place
def subtract_product(W: Panel, B: Panel, C: Panel) -> None:
    C = _factor(C, B)
    if shared and shared.thin(B, W):
        shared.subtract_product(W, B, C, default_threads())
    else:
        _each_block(W, lambda rows: twin.subtract_product(W[rows], B[rows], C))


class Projected(NamedTuple):
    """A panel less its projection, with the squares of what is left, or as orthonormal columns Q with ``Q^H W``."""

    W: Panel
    coefficients: Panel
    squares: Panel
    below: Panel | None


def subtract_multiples(W: Panel, B: Panel, factors: Vector) -> None:
    # ``W -= B diag(factors)``
    if isinstance(W, Elsewhere):
        subtract_product(W, B, np.diag(factors))
    else:
        _each_block(W, lambda rows: np.subtract(W[rows], B[rows] * factors, out=W[rows]))


def project(
    W: Panel, B: Panel, near: int, factor: float, twice: float, Q: Panel | None, unit: float, scale: float
) -> Projected:
    # ``factor W`` projected against the columns of B from `near` on, then against all; its coefficients along them, and
    # the squares of what is left. A projection that leaves less than `twice` of a column is repeated. If all columns
    # are longer than rounding errors, `unit` times the largest norm of a product, which is at least `scale`, they are
    # made orthonormal and copied to Q.
    if shared and not isinstance(W, Elsewhere) and shared.thin(B, W):
        return Projected(*shared.project(W, B, near, factor, twice, Q, unit, scale, default_threads()))
    if factor != 1:
        W *= W.dtype.type(factor)
    # What W has in common with the last blocks is large and known beforehand; the rest is rounding.
    first = subtract_projection(W, B[:, near:])
    coefficients = subtract_projection(W, B)
    squares, taken = inner(W, W), lengths(coefficients)
    coefficients[near:] += first
    left = np.sqrt(np.diagonal(squares).real)
    if np.any(left < twice * np.hypot(left, taken)):
        subtract_projection(W, B)  # for orthogonality: its coefficients are below the rounding of those before
        squares = inner(W, W)
    return Projected(W, coefficients, squares, None)


def subtract_projection(W: Panel, B: Panel) -> Panel:
    coefficients = inner(B, W)
    subtract_product(W, B, coefficients)
    return coefficients


@by_place
def times(B: Panel, Z: Panel) -> Panel:
    Z = _factor(Z, B)
    if shared and Z.dtype == B.dtype and shared.narrow(B):
        return shared.combine(B, Z, default_threads())
    out = np.empty((B.shape[0], Z.shape[1]), np.result_type(B, Z), order="F")
    # Transposed, BLAS neither copies the rows of contiguous columns nor those of the result.
    _each_block(B, lambda rows: np.matmul(Z.T, B[rows].T, out=out[rows].T))
    return out


def _factor(C: Panel, B: Panel) -> Panel:
    return C.astype(np.result_type(B, np.float32 if C.dtype.kind == "f" else np.complex64), copy=False)


@by_place
def solved(Y: Panel, C: Panel, lengths: Vector, overwrite: bool) -> Panel:
    out = _result(Y, C, overwrite)

    def solve(rows: slice) -> None:
        # A product with the inverse would be faster, and would leave the span of Y by eps times the condition.
        part = linalg.solve_triangular(C, (Y[rows] / lengths).conj().T, lower=True, check_finite=False)
        out[rows] = part.conj().T

    _each_block(Y, solve)
    return out


@by_place
def times_inverse(Y: Panel, C: Panel, lengths: Vector, overwrite: bool) -> Panel:
    inverse, out = inverted(C, lengths), _result(Y, C, overwrite)

    def multiply(rows: slice) -> None:
        out[rows] = Y[rows] @ inverse

    _each_block(Y, multiply)
    return out


def inverted(C: Panel, lengths: Vector) -> Panel:
    return linalg.solve_triangular(C, np.eye(len(C)), lower=True, check_finite=False).conj().T / lengths[:, None]


def _result(Y: Panel, C: Panel, overwrite: bool) -> Panel:
    dtype = np.result_type(Y, C)
    return Y if overwrite and Y.dtype == dtype else np.empty(Y.shape, dtype)


def _blocks(Y: Panel) -> list[slice]:
    return [slice(lo, lo + ROWS) for lo in range(0, len(Y), ROWS)]


def _each_block(Y: Panel, work: Callable[[slice], object]) -> None:
    for _ in ordered(work, _blocks(Y), default_threads()):
        pass


NORMALIZERS: dict[str, Callable[[Panel], Panel]] = {
    "auto": well_conditioned,
    "QR": lambda Y: qr(Y)[0],
    "LU": lu,
    "CholeskyQR2": _or_householder,
    "none": lambda Y: Y,  # at most one power iteration survives it
}


@by_place
def triangle(Y: Panel) -> Panel:
    return stacked(ordered(lambda rows: r_factor(Y[rows]), _blocks(Y), default_threads()))


def stacked(triangles: Iterable[Panel]) -> Panel:
    return reduce(folded, triangles)


def folded(R: Panel, S: Panel) -> Panel:
    return r_factor(np.vstack([R, S]))


def r_factor(Y: Panel) -> Panel:
    return np.asarray(np.linalg.qr(Y, mode="r"))


def phases(Vh: Panel) -> Vector:
    step = max(1, ROWS // max(Vh.shape[1], 1))  # rows at a time, so that long ones are not copied
    parts = [_largest(Vh[lo : lo + step]) for lo in range(0, len(Vh), step)]
    largest = np.concatenate(parts) if parts else np.ones(0, Vh.dtype)
    if np.iscomplexobj(largest):  # signs are exact
        largest = largest.astype(np.complex128)
    size = np.abs(largest)
    return np.where(size > 0, largest / np.where(size > 0, size, 1), 1)


def _largest(rows: Panel) -> Vector:
    return np.asarray(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])


def graded_basis(Y: Panel, overwrite: bool = False) -> Panel:
    # Orthonormal columns along ``Y = U diag(S)``, whose lengths fall; columns of length 0 are filled up. With
    # `overwrite` they may take the place of Y: a long factor is held once then. Y / S would not be orthonormal where S
    # is small: its errors are eps S_1 / S_j. The triangular factor of two Cholesky steps has a positive diagonal, so
    # each column keeps its direction.
    Q = _cholesky_steps(Y, 2, overwrite)
    if Q is not None:
        return Q
    Q, R = qr(Y)  # the same Q, also where a step has overwritten Y
    d = np.diagonal(R)
    return Q * np.where(d == 0, 1, d / np.where(d == 0, 1, np.abs(d)))
