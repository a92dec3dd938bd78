"""Sparse input, with NaN or without: one canonical CSR, and the same refusals."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends import as_operator
from shiftsvd.backends.validation import canonical
from shiftsvd.missing.gaps import gaps_of
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, values

DOORS = {"without gaps": as_operator, "with gaps": gaps_of}


def scrambled(X: sparse.csr_array) -> sparse.csr_array:
    """The same matrix, its rows stored backwards, the first entry of the first row in two halves."""
    order = np.concatenate([np.arange(hi - 1, lo - 1, -1) for lo, hi in zip(X.indptr[:-1], X.indptr[1:], strict=True)])
    data, indices = X.data[order], X.indices[order]
    data = np.concatenate([[data[0] / 2, data[0] / 2], data[1:]])
    return sparse.csr_array((data, np.r_[indices[0], indices], np.r_[0, X.indptr[1:] + 1]), shape=X.shape)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("X", "message"),
    {
        "one dimension": (sparse.coo_array(np.ones(4)), r"must have two dimensions, got shape \(4,\)"),
        "no rows": (sparse.csr_array((0, 4)), r"at least one row and one column, got shape \(0, 4\)"),
    }.values(),
)
def test_what_is_no_matrix_is_refused_with_the_same_words(door: str, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DOORS[door](X)


@pytest.mark.parametrize("fmt", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int16, bool])
def test_rows_are_sorted_and_without_duplicates_whatever_they_were(fmt: str, dtype: type) -> None:
    X = sparse.csr_array(values((30, 20), density=0.3))
    X = sparse.csr_array((X.data * (1j if dtype is np.complex128 else 1), X.indices, X.indptr), shape=X.shape)
    given = scrambled(X)
    given = (given.T if fmt == "csc" else given).astype(dtype)
    C, is_adjoint = canonical(given, 2, None)
    assert is_adjoint == (fmt == "csc")
    assert np.all(np.diff(C.indices)[np.diff(np.repeat(np.arange(30), np.diff(C.indptr))) == 0] > 0)
    assert C.dtype == dtype
    want = given.toarray().conj().T if fmt == "csc" else given.toarray()
    assert_close(C.toarray().astype(complex), want.astype(complex), EPS * np.linalg.norm(want), "the same matrix")


@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("unobserved", [False, True])
def test_gaps_are_where_they_were_in_any_format_and_order(fmt: str, dtype: type, unobserved: bool) -> None:
    X = sparse.csr_array(values((30, 20), dtype, density=0.4))
    X.data[5::7] = np.nan
    S = ss.LowRank(values((30, 2), dtype, seed=1), values((20, 2), dtype, seed=2))
    want = gaps_of(X, unobserved).filled(S) @ np.eye(20)
    found = gaps_of(scrambled(X).asformat(fmt), unobserved).filled(S) @ np.eye(20)
    assert_close(found, want, 4 * EPS * np.linalg.norm(want), "filled")


def test_numbers_with_gaps_are_in_floating_point_so_that_more_can_be_missing() -> None:
    X = sparse.csr_array(np.arange(12).reshape(4, 3))
    assert canonical(X, 1, None, allow_nan=True)[0].dtype == np.float64
    assert canonical(X, 1, None)[0].dtype == X.dtype


def test_rows_in_order_take_no_room_to_be_sorted() -> None:
    X = sparse.csr_array(values((2000, 50), density=0.5))
    X.data[::9] = np.nan
    gaps_of(X, memory_limit="10K")
    with pytest.raises(ValueError, match="sorting the sparse rows needs"):
        gaps_of(scrambled(X), memory_limit="10K")
    with pytest.raises(ValueError, match="converting CSC to CSR needs"):
        gaps_of(X.tocsc(), memory_limit="10K")
    with pytest.raises(ValueError, match="converting int64 to float64 needs"):
        gaps_of(sparse.csr_array(np.ones((2000, 50), np.int64)), memory_limit="10K")


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="long doubles are doubles here")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fmt", ["csr", "csc"])
def test_a_long_double_beyond_doubles_is_not_finite(door: str, fmt: str) -> None:
    X = sparse.coo_array(([np.longdouble("1e400"), 1], ([0, 3], [1, 2])), shape=(5, 4)).asformat(fmt)
    with pytest.raises(ValueError, match=r"must be finite.*1 inf"):
        DOORS[door](X)


@pytest.mark.parametrize("r", [0, 1, 3, 40])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_entries_of_a_low_rank_matrix_are_those_of_its_product(r: int, dtype: type, monkeypatch) -> None:
    monkeypatch.setattr("shiftsvd.algebra.low_rank.GATHERED", 100)
    S = ss.LowRank(values((50, r), dtype, seed=1, density=1.0), values((40, r), dtype, seed=2, density=1.0))
    i, j = np.random.default_rng(0).integers(0, 40, (2, 1000))
    bound = r * EPS * np.linalg.norm(S.L) * np.linalg.norm(S.R)
    assert_close(S.at(i, j), (S.L @ S.R.conj().T)[i, j], bound, "entries")
