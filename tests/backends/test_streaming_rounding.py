"""Streams: what rounding did to the singular values is within the bounds, for columns and spectra of any grading."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import shiftsvd as ss
from tests.support.graded import exact_values, graded, within

# Cases with a sketch have few columns on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The components of .* come from a sketch")

EXAMPLE = np.array([3e8, 2.0, 1.0, 0.5])


def streamed(parts: list, **how: object) -> ss.PCA:
    pca = ss.PCA(random_state=0, **how)
    for part in parts:
        pca.partial_fit(part)
    return pca


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rows", [1, 7, 100, 400])
@pytest.mark.parametrize("rotated", [False, True])
def test_deviations_far_below_the_largest_are_kept(rows: int, rotated: bool) -> None:
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((400, 4)))[0] * EXAMPLE
    X = X @ np.linalg.qr(rng.standard_normal((4, 4)))[0] if rotated else X[:, [1, 0, 3, 2]]
    pca = streamed([X[lo : lo + rows] for lo in range(0, 400, rows)], n_components=4)
    exact = exact_values(X)
    assert np.allclose(pca.singular_values_, exact, rtol=1e-6 if rotated else 1e-12)
    assert within(pca, exact)
    assert pca.info_.converged or rows == 1  # every join of means adds to the bound


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_error_of_a_stream_is_within_its_bound(seed: int) -> None:
    case = graded(np.random.default_rng(seed))
    assert within(case.fit(), case.exact), case


def test_squares_of_sparse_rows_say_what_they_lost() -> None:
    rng = np.random.default_rng(1)
    mixing = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = rng.standard_normal((2000, 6)) * np.logspace(0, 11, 6) @ mixing * (rng.random((2000, 1)) < 0.5)
    pca = ss.PCA(6).partial_fit(sparse.csr_array(X))
    exact = exact_values(X)
    assert within(pca, exact)
    assert not pca.info_.converged
    # In columns of their own the same deviations are found, since rounding is relative to each column.
    graded_columns = X @ mixing.T
    pca = ss.PCA(6).partial_fit(sparse.csr_array(graded_columns))
    assert within(pca, exact_values(graded_columns))
    assert pca.info_.converged


def test_the_root_of_squares_tells_what_it_lost() -> None:
    # Columns that are nearly orthogonal have close eigenvalues in units of their lengths.
    rng = np.random.default_rng(174)
    X = rng.standard_normal((300, 12)) * 10.0 ** rng.uniform(-8, 8, 12) * (rng.random((300, 12)) < 0.02)
    assert within(ss.PCA(5).partial_fit(sparse.csr_array(X)), exact_values(X))


def test_columns_of_zeros_get_no_rounding_of_other_sparse_columns() -> None:
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((600, 20)), np.zeros((600, 10))])[:, rng.permutation(30)]
    X *= rng.random((600, 30)) < 0.3
    pca = ss.PCA(30, shift=None).partial_fit(sparse.csr_array(X))
    assert pca.info_.rank == 20
    assert np.all(pca.singular_values_[20:] == 0)
    assert pca.info_.converged
    # A column of zeros in the sparse rows only.
    dense = rng.standard_normal((300, 30))
    pca.partial_fit(dense)
    np.testing.assert_allclose(pca.singular_values_, np.linalg.svd(np.vstack([X, dense]))[1], rtol=1e-12)


def test_columns_that_repeat_are_of_lower_rank_and_converge() -> None:
    X = np.random.default_rng(2).standard_normal((900, 5)) @ np.eye(5)[:, [0, 1, 2, 3, 4, 0, 1]]
    pca = streamed(np.array_split(X, 9), n_components=7)
    assert pca.info_.rank == 5
    assert np.all(pca.singular_values_[5:] == 0)
    assert pca.info_.converged


def test_batches_that_are_near_the_rows_so_far_lose_nothing() -> None:
    # Rows of the first batches are folded by reflections, later ones by squares of what R leaves of them.
    rng = np.random.default_rng(4)
    X = rng.standard_normal((6000, 5)) * [1e8, 1, 1e4, 0, 0.5] @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    X = np.hstack([X, np.full((6000, 1), 3.0), X[:, :1]])
    X[5500:, 5] = 4.0  # what was constant is not any more
    parts = np.array_split(X, 6)
    one, two = streamed(parts), ss.merge_pca(streamed(parts[:4]), streamed(parts[4:]))
    for pca in (one, two, streamed([X])):
        assert within(pca, exact_values(X))
        assert pca.info_.rank == 5


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_the_number_of_threads_changes_no_bit(n_threads: int) -> None:
    X = np.random.default_rng(5).standard_normal((20_000, 30))
    alone, many = (streamed([X[:12_000], X[12_000:]], n_components=5, n_threads=n) for n in (1, n_threads))
    assert np.array_equal(alone.components_, many.components_)
    assert np.array_equal(alone.singular_values_, many.singular_values_)


def test_an_older_model_file_tells_what_its_squares_lost() -> None:
    with pytest.warns(UserWarning, match="not its stream"):
        older = ss.load_model(Path(__file__).parents[1] / "model_file" / "models" / "batches.safetensors")
    assert older.info_.solver.startswith("Streaming(ell=")
    assert np.all(older.info_.value_errors > 0)
    assert older.info_.converged


def test_an_older_model_in_single_precision_counts_the_rounding_of_its_values(tmp_path: Path) -> None:
    pca = streamed([np.random.default_rng(6).standard_normal((40, 6)).astype(np.float32)], n_components=2)
    pca.singular_values_ = pca.singular_values_.astype(np.float32)
    pca.info_ = replace(pca.info_, solver="Streaming(ell=5)")
    pca.save(tmp_path / "older")
    with pytest.warns(UserWarning, match="not its stream"):
        older = ss.load_model(tmp_path / "older")
    assert np.all(older.info_.value_errors >= np.finfo(np.float32).eps)


def merged(one: dict, other: dict, columns: int = 3) -> None:
    X = np.arange(12.0).reshape(4, 3)
    ss.merge_pca(streamed([X], n_components=2, **one), streamed([X[:, :columns]], n_components=2, **other))


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"shift": None}, {}, "shift=None and shift='mean'.*set_params"),
        ({}, {"shift": np.ones(3)}, "shift='mean' and shift=array"),
        ({"shift": np.zeros(3)}, {"shift": np.ones(3)}, "same shift"),
    ],
)
def test_fits_about_different_shifts_do_not_merge(one: dict, other: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merged(one, other)


def test_fits_merge_about_shifts_that_are_equal_and_of_equal_columns() -> None:
    merged({"shift": None}, {"shift": np.zeros(3)})
    merged({"shift": [1, 2, 3]}, {"shift": np.array([1.0, 2.0, 3.0])})
    with pytest.raises(ValueError, match="got 3 and 2 features"):
        merged({}, {}, columns=2)


def test_the_noise_is_no_difference_of_large_numbers() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((500, 6)) * [1e10, 1, 1, 1, 1, 1]
    pca = streamed(np.array_split(X, 5), n_components=1)
    assert np.isclose(pca.noise_variance_, (exact_values(X)[1:] ** 2).sum() / 499 / 5, rtol=1e-5)
