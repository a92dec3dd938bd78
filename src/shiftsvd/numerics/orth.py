"""Orthonormal bases by QR, LU and guarded Cholesky steps; the sign convention of singular vectors."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy import linalg

from shiftsvd.kernels import default_threads, ordered, shared, twin
from shiftsvd.numerics.panels import ForeignPanel, Panel, Vector, by_device, lengths

# Rows of a panel that are processed at once, so that they stay in cache.
ROWS = 8192
# Inverse of the largest condition number of a Cholesky step: beyond 1e8 the factor of a Gram matrix may not exist, or
# may be inaccurate. One digit of margin.
LEAST_RCOND = 1e-7
# Squares of columns that are shorter than this, or longer than its inverse, overflow or underflow.
SHORTEST = 2.0**-480


def orth(Y: Panel) -> Panel:
    # Orthonormal columns whose span contains that of Y, of any rank. L of an LU factorization is well conditioned for
    # every Y, so two Cholesky steps suffice (Terao, Ozaki & Ogita 2020): ten times faster than Householder QR on
    # 200,000 x 100.
    Q = _cholesky_steps(Y, 2)
    return Q if Q is not None else _or_householder(lu(Y))


def _or_householder(Y: Panel) -> Panel:
    Q = _cholesky_steps(Y, 2)
    return qr(Y)[0] if Q is None else Q


@by_device
def qr(Y: Panel) -> tuple[Panel, Panel]:
    Q, R = linalg.qr(Y, mode="economic", check_finite=False)
    return Q, R


@by_device
def lu(Y: Panel) -> Panel:
    return np.asarray(linalg.lu(Y, permute_l=True, check_finite=False)[0])


def well_conditioned(Y: Panel) -> Panel:
    Q = _cholesky_steps(Y, 1)
    return lu(Y) if Q is None else Q


def _cholesky_steps(Y: Panel, steps: int, overwrite: bool = False) -> Panel | None:
    # Multiply Y by the inverse of the Cholesky factor of its Gram matrix, `steps` times; return None if a condition
    # number exceeds 1 / LEAST_RCOND. With `overwrite`, any step may store its result, columns of the same spans, in Y.
    Q = Y
    for _ in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):
            G = inner(Q, Q)
            lengths = np.sqrt(np.diagonal(G).real)
        # LAPACK's Householder QR, the caller's fallback, works at any scale.
        if not SHORTEST < lengths.min() <= lengths.max() < 1 / SHORTEST:
            return None
        try:
            C = np.linalg.cholesky(G / np.outer(lengths, lengths))  # columns of any lengths
        except np.linalg.LinAlgError:
            return None
        # The diagonal of C does not bound the condition: the entries can all be large for an ill-conditioned C.
        condition = np.linalg.cond(C)
        if not condition < 1 / LEAST_RCOND:
            return None
        reuse = overwrite or Q is not Y
        if condition < 4:  # one step is orthonormal to eps: its error is eps times the square of the condition
            return times_inverse(Q, C, lengths, reuse)
        Q = solved(Q, C, lengths, reuse)
    return Q


@by_device
def inner(B: Panel, W: Panel) -> Panel:
    if shared and shared.thin(B, W):
        return shared.inner(B, W, default_threads())
    parts = ordered(lambda rows: twin.inner(B[rows], W[rows]), _blocks(W), default_threads())
    return np.asarray(reduce(np.add, parts))


@by_device
def subtract_product(W: Panel, B: Panel, C: Panel) -> None:
    C = _factor(C, B)
    if shared and shared.thin(B, W):
        shared.subtract_product(W, B, C, default_threads())
    else:
        _each_block(W, lambda rows: twin.subtract_product(W[rows], B[rows], C))


class Projected(NamedTuple):
    """Panel after a projection; if `below` is not None, its columns were made orthonormal."""

    W: Panel
    coefficients: Panel  # of the projection, along the columns of B
    squares: Panel  # ``W^H W`` after the projection
    below: Panel | None  # ``Q^H W`` for the orthonormal columns Q and the W before that step


def subtract_multiples(W: Panel, B: Panel, factors: Vector) -> None:
    # ``W -= B diag(factors)``
    if isinstance(W, ForeignPanel):
        subtract_product(W, B, np.diag(factors))
    else:
        _each_block(W, lambda rows: np.subtract(W[rows], B[rows] * factors, out=W[rows]))


def project(
    W: Panel, B: Panel, recent: int, factor: float, repeat_below: float, Q: Panel | None, unit: float, scale: float
) -> Projected:
    # Project ``factor W`` against the columns of B from `recent` on, then against all of B. Repeat the second
    # projection if it shortens a column to less than `repeat_below` of its length. If all columns are longer than
    # rounding errors (`unit` times the largest norm of a product, which is at least `scale`), the compiled kernel makes
    # them orthonormal and copies them to Q.
    if shared and not isinstance(W, ForeignPanel) and shared.thin(B, W):
        return Projected(*shared.project(W, B, recent, factor, repeat_below, Q, unit, scale, default_threads()))
    if factor != 1:
        W *= W.dtype.type(factor)
    first, coefficients, squares = subtract_two_projections(W, B, recent)
    subtracted = lengths(coefficients)
    coefficients[recent:] += first
    remaining = np.sqrt(np.diagonal(squares).real)
    if np.any(remaining < repeat_below * np.hypot(remaining, subtracted)):
        subtract_projection(W, B)  # for orthogonality; coefficients below the rounding of the earlier ones are dropped
        squares = inner(W, W)
    return Projected(W, coefficients, squares, None)


@by_device
def subtract_two_projections(W: Panel, B: Panel, recent: int) -> tuple[Panel, Panel, Panel]:
    # In exact arithmetic only the last blocks have coefficients; those of the other columns are rounding errors.
    first = subtract_projection(W, B[:, recent:])
    return first, subtract_projection(W, B), inner(W, W)


def subtract_projection(W: Panel, B: Panel) -> Panel:
    coefficients = inner(B, W)
    subtract_product(W, B, coefficients)
    return coefficients


@by_device
def times(B: Panel, Z: Panel) -> Panel:
    Z = _factor(Z, B)
    if shared and Z.dtype == B.dtype and shared.narrow(B):
        return shared.combine(B, Z, default_threads())
    out = np.empty((B.shape[0], Z.shape[1]), np.result_type(B, Z), order="F")
    # By transposes, because BLAS then copies neither the rows of B, which has contiguous columns, nor those of the
    # result.
    _each_block(B, lambda rows: np.matmul(Z.T, B[rows].T, out=out[rows].T))
    return out


def _factor(C: Panel, B: Panel) -> Panel:
    return C.astype(np.result_type(B, np.float32 if C.dtype.kind == "f" else np.complex64), copy=False)


@by_device
def solved(Y: Panel, C: Panel, lengths: Vector, overwrite: bool) -> Panel:
    out = _result(Y, C, overwrite)

    def solve(rows: slice) -> None:
        # A product with the inverse would be faster, but would change the span of Y by eps times the condition.
        part = linalg.solve_triangular(C, (Y[rows] / lengths).conj().T, lower=True, check_finite=False)
        out[rows] = part.conj().T

    _each_block(Y, solve)
    return out


@by_device
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
    "none": lambda Y: Y,  # usable for at most one power iteration
}


@by_device
def triangle(Y: Panel) -> Panel:
    return triangle_of_stacked(ordered(lambda rows: r_factor(Y[rows]), _blocks(Y), default_threads()))


def triangle_of_stacked(triangles: Iterable[Panel]) -> Panel:
    return reduce(folded, triangles)


def folded(R: Panel, S: Panel) -> Panel:
    # The R factor of two matrices, one below the other, from their R factors.
    return r_factor(np.vstack([R, S]))


def r_factor(Y: Panel) -> Panel:
    return np.asarray(np.linalg.qr(Y, mode="r"))


def phases(Vh: Panel) -> Vector:
    step = max(1, ROWS // max(Vh.shape[1], 1))  # some rows at a time, which bounds the temporary ``abs(rows)``
    parts = [_largest(Vh[lo : lo + step]) for lo in range(0, len(Vh), step)]
    largest = np.concatenate(parts) if parts else np.ones(0, Vh.dtype)
    if np.iscomplexobj(largest):  # signs of real numbers are exact in every precision
        largest = largest.astype(np.complex128)
    size = np.abs(largest)
    return np.where(size > 0, largest / np.where(size > 0, size, 1), 1)


def _largest(rows: Panel) -> Vector:
    return np.asarray(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])


def graded_basis(Y: Panel, overwrite: bool = False) -> Panel:
    # Return U of ``Y = U diag(S)`` for descending S, with arbitrary orthonormal columns where S is 0. With `overwrite`,
    # U may be stored in Y, so that memory holds one long factor. Y / S would have errors of eps S_1 / S_j. The
    # triangular factors of Cholesky steps have a positive diagonal, so columns keep their signs.
    Q = _cholesky_steps(Y, 2, overwrite)
    if Q is not None:
        return Q
    Q, R = qr(Y)  # if a Cholesky step has overwritten Y, its columns have the same Q
    d = np.diagonal(R)
    return Q * np.where(d == 0, 1, d / np.where(d == 0, 1, np.abs(d)))
