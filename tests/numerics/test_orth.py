"""Orthonormal bases at every condition and rank, the sign convention, and the other half of a Gram matrix."""

import numpy as np
import pytest

from shiftsvd.numerics import orth
from shiftsvd.numerics.orth import NORMALIZERS
from shiftsvd.numerics.panels import mirror
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, values, with_values
from tests.support.subspaces import angle, assert_orthonormal, assert_same_span

SHAPES = ((1, 1), (7, 1), (7, 7), (60, 12), (300, 20))
DTYPES = (np.float64, np.complex128)


def ill(shape: tuple[int, int], condition: float, dtype=np.float64, seed: int = 0) -> np.ndarray:
    """A panel with geometric singular values from 1 to 1 / condition."""
    return with_values(shape, np.geomspace(1, 1 / condition, shape[1]), dtype, seed)


def basis(normalizer: str, Y: np.ndarray) -> np.ndarray:
    return NORMALIZERS[normalizer](Y)


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalizer", ["auto", "QR", "LU", "CholeskyQR2", "none"])
def test_normalizers_span_what_qr_spans(normalizer, shape, dtype, blocks, request) -> None:
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    Y = values(shape, dtype, 3, 1.0)
    Q = basis(normalizer, Y)
    assert Q.shape == Y.shape
    assert Q.dtype == Y.dtype
    assert_same_span(Q, Y, 100 * EPS * np.linalg.cond(Y) * np.sqrt(shape[0]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e7, 3e7, 1e8, 3e8, 1e9, 1e12, 1e15])
@pytest.mark.parametrize("name", ["orth", "QR", "CholeskyQR2"])
def test_orthonormal_at_every_condition(name, condition, dtype, request) -> None:
    request.getfixturevalue("small_blocks")
    for shape in ((200, 15), (15, 15), (40, 2)):
        Y = ill(shape, condition, dtype)
        Q = orth.orth(Y) if name == "orth" else basis(name, Y)
        assert_orthonormal(Q)
        # The directions of the panel are all there: Y - Q Q^H Y is rounding of Y.
        assert_close(Q @ (Q.conj().T @ Y), Y, 100 * EPS * np.linalg.norm(Y) * np.sqrt(shape[1]))


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e7, 3e7, 1e8, 3e8, 1e9, 1e12])
@pytest.mark.parametrize("normalizer", ["auto", "LU"])
def test_loop_normalizers_keep_every_direction_and_stay_well_conditioned(normalizer, condition) -> None:
    Y = ill((200, 15), condition)
    Q = basis(normalizer, Y)
    assert np.linalg.cond(Q) <= 1e4
    P = np.linalg.qr(Q)[0]
    assert_close(P @ (P.T @ Y), Y, 1e3 * EPS * np.linalg.norm(Y))


def test_one_cholesky_step_alone_would_not_do() -> None:
    # What the guard is for: at condition 1e12 plain CholeskyQR fails or returns what is not orthonormal.
    Y = ill((200, 15), 1e12)
    try:
        Q = Y @ np.linalg.inv(np.linalg.cholesky(Y.T @ Y).T)
    except np.linalg.LinAlgError:
        return
    assert np.abs(Q.T @ Q - np.eye(15)).max() > 1e-6


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [0, 1, 5, 14])
@pytest.mark.parametrize("name", ["orth", "QR", "CholeskyQR2"])
def test_orthonormal_whatever_the_rank(name, rank, dtype, blocks, request) -> None:
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    for scale in (1.0, 1e-200, 1e150):
        Y = scale * (values((100, rank), dtype, 1, 1.0) @ values((rank, 15), dtype, 2, 1.0))
        Q = orth.orth(Y) if name == "orth" else basis(name, Y)
        assert Q.shape == (100, 15)
        assert_orthonormal(Q)
        assert_close(Q @ (Q.conj().T @ (Y / scale)), Y / scale, 100 * EPS * max(np.linalg.norm(Y / scale), 1e-9))


@pytest.mark.parametrize("name", ["orth", "CholeskyQR2", "graded_basis"])
@pytest.mark.parametrize("k", [5, 10, 20, 30, 40, 60])
@pytest.mark.parametrize("d", [0.51, 0.6, 0.9])
def test_orthonormal_where_the_diagonal_of_the_triangle_hides_the_condition(d: float, k: int, name: str) -> None:
    # Columns of unit length, each leaning on the one before: no diagonal entry is small, the condition grows like d^-k.
    R = np.diag(np.r_[1, np.full(k - 1, d)]) + np.diag(np.full(k - 1, np.sqrt(1 - d * d)), 1)
    Y = np.linalg.qr(values((300, k), seed=k, density=1.0))[0] @ R
    Q = basis(name, Y) if name in NORMALIZERS else getattr(orth, name)(Y)
    assert_orthonormal(Q)
    assert_close(Q @ (Q.T @ Y), Y, 100 * EPS * np.linalg.norm(Y) * np.sqrt(k))


@pytest.mark.parametrize("name", ["orth", "QR", "CholeskyQR2"])
def test_orthonormal_where_cholesky_fails_now_and_then(name: str) -> None:
    # Around condition 1e8 the Gram matrix is singular to rounding: some factorizations fail, some are wrong.
    for seed, condition in enumerate(np.geomspace(1e6, 1e10, 40)):
        Y = ill((60, 8), condition, seed=seed)
        assert_orthonormal(orth.orth(Y) if name == "orth" else basis(name, Y))


@pytest.mark.parametrize("normalizer", ["auto", "LU"])
def test_loop_normalizers_take_panels_without_full_rank(normalizer) -> None:
    for Y in (np.zeros((20, 4)), np.ones((20, 4)), values((20, 2)) @ values((2, 6))):
        Q = basis(normalizer, Y)
        assert np.isfinite(Q).all()
        P = np.linalg.qr(Q)[0]
        assert_close(P @ (P.T @ Y), Y, 100 * EPS * max(np.linalg.norm(Y), 1))


def test_no_normalizer_writes_into_its_panel() -> None:
    for normalizer in NORMALIZERS:
        for Y in (values((40, 6), density=1.0), np.asfortranarray(values((40, 6), density=1.0)), np.ones((40, 6))):
            before = Y.tobytes()
            basis(normalizer, Y)
            orth.orth(Y)
            orth.triangle(Y)
            orth.graded_basis(Y)
            assert Y.tobytes() == before


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (3, 8)])
def test_triangle_has_the_gram_matrix_of_the_panel(shape, dtype, blocks, request) -> None:
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    Y = values(shape, dtype, 1, 1.0)
    R = orth.triangle(Y)
    assert R.shape == (min(shape), shape[1])
    assert_close(R, np.triu(R), 0.0)
    assert_close(R.conj().T @ R, Y.conj().T @ Y, 50 * EPS * np.linalg.norm(Y) ** 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", ["even", "graded", "steep", "lost", "zero", "all zero"])
def test_graded_basis_follows_each_column_and_is_orthonormal(lengths, dtype) -> None:
    S = {
        "even": np.ones(6),
        "graded": np.geomspace(1, 1e-6, 6),
        "steep": np.geomspace(1, 1e-14, 6),
        "lost": np.r_[1, 0.5, 1e-16, 1e-17, 1e-18, 1e-18],
        "zero": np.r_[1, 0.5, 0.1, 0, 0, 0],
        "all zero": np.zeros(6),
    }[lengths]
    U = np.linalg.qr(values((200, 6), dtype, 1, 1.0))[0]
    Y = U * S + 1e-16 * values((200, 6), dtype, 2, 1.0) * (S > 0)
    Q = orth.graded_basis(Y)
    assert Q.shape == Y.shape
    assert_orthonormal(Q)
    # Column j is known to eps S_1 / S_j.
    for j, s in enumerate(S):
        if s > 1e-12:
            assert np.linalg.norm(Q[:, j] - U[:, j]) <= 1e3 * EPS * S[0] / s


def test_graded_basis_keeps_spans_where_values_tie() -> None:
    U = np.linalg.qr(values((50, 4), seed=1, density=1.0))[0]
    assert angle(orth.graded_basis(3.0 * U), U) <= 20 * EPS


@pytest.mark.parametrize("dtype", DTYPES)
def test_phases_turn_the_largest_entry_of_each_row_real_and_positive(dtype) -> None:
    Vh = values((7, 30), dtype, 2, 1.0)
    Vh[3] = 0
    turn = orth.phases(Vh)
    assert_close(np.abs(turn), np.ones(7), 20 * EPS)
    turned = Vh * np.conj(turn)[:, None]
    for row in np.delete(turned, 3, axis=0):
        largest = row[np.argmax(np.abs(row))]
        assert largest.real > 0
        assert abs(np.imag(largest)) <= 4 * EPS * abs(largest)
    assert turn[3] == 1


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_triangle_is_mirrored_in_place(dtype: type) -> None:
    rng = np.random.default_rng(1)
    G = (rng.normal(size=(601, 601)) + 1j * rng.normal(size=(601, 601))).astype(np.complex128)
    G = (G if dtype is np.complex128 else G.real) + 0
    G = G + G.conj().T
    lower = np.tril(G)
    mirror(lower)
    assert np.array_equal(lower, G)
