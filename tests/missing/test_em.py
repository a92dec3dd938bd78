"""Completion: a low-rank model of the observed entries finds what was hidden."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import shiftsvd as ss
from shiftsvd.missing.completion import complete_matrix, regressed_rows
from shiftsvd.missing.gaps import gaps_of
from tests.support.closeness import assert_close
from tests.support.holes import holed, planted, rms


def soft_impute_als(X: csr_array, k: int, penalty: float, steps: int) -> np.ndarray:
    """The completed matrix by Hastie et al. (2015), algorithm 3.1: ridge regressions on the filled matrix, in turns."""
    seen, x = csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape).toarray() > 0, X.toarray()
    U, D, V = np.linalg.qr(np.random.default_rng(0).standard_normal((X.shape[0], k)))[0], np.ones(k), None
    M = np.zeros(X.shape)
    for _ in range(2 * steps):
        B = (np.where(seen, x, M).T @ U) * D / (D**2 + penalty)
        V, squares, R = np.linalg.svd(B * D, full_matrices=False)
        U, D, V = V, np.sqrt(squares), U @ R.T  # the sides change their roles
        seen, x, M = seen.T, x.T, (U * D**2) @ V.T
    return M


@pytest.mark.long
def test_completion_is_as_good_as_alternating_least_squares():
    X, (i, j, x), _ = planted(800, 300, 0.15, 1.0)
    C = complete_matrix(X, 5, biases=None, unobserved=True, rng=0)
    assert C.converged
    assert C.penalty > 0
    theirs = rms(soft_impute_als(X, 5, C.penalty, 40)[i, j] - x)
    assert rms(C.predict(i, j) - x) <= 1.05 * theirs
    assert theirs <= 1.3  # of a noise of 1: both have found it
    assert C.held_out_rmse == pytest.approx(rms(C.predict(i, j) - x), rel=0.1)


@pytest.mark.long
def test_a_component_far_above_the_others_does_not_hide_them_from_the_choice_of_the_penalty():
    X, (i, j, x), _ = planted(800, 300, 0.15, 1.0)
    R = csr_array((X.data + 500, X.indices, X.indptr), shape=X.shape)
    C = complete_matrix(R, 6, biases=None, unobserved=True, tol=1e-6, max_iter=1000, rng=0)
    assert rms(C.predict(i, j) - x - 500) <= 1.3


@pytest.mark.long
@pytest.mark.parametrize(("seed", "penalty"), [(0, 0.0), (1, "auto")])
def test_completion_is_as_good_with_95_percent_missing(seed, penalty):
    X, (i, j, x), _ = planted(2000, 800, 0.05, 1.0, seed)
    C = complete_matrix(X, 5, biases=None, penalty=penalty, unobserved=True, rng=seed)
    assert C.converged
    theirs = rms(soft_impute_als(X, 5, C.penalty, 100)[i, j] - x)
    assert rms(C.predict(i, j) - x) <= 1.05 * theirs
    assert theirs <= 1.2  # of a noise of 1: both have found it


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["dense", "csr", "unobserved"])
def test_without_noise_the_matrix_is_found(kind):
    X, _, M = planted(120, 60, 0.5, 0.0, rank=2)
    given = X.toarray()
    given[given == 0] = np.nan
    given = {"dense": given, "csr": csr_array(given), "unobserved": X}[kind]
    C = complete_matrix(
        given, 2, biases=None, penalty=0, unobserved=kind == "unobserved", tol=1e-9, max_iter=2000, rng=0
    )
    assert_close(C.model @ np.eye(60), M, 1e-6 * np.linalg.norm(M), "model")
    assert_close(C.A @ np.eye(60), M, 1e-6 * np.linalg.norm(M), "completed")


@pytest.mark.long
@pytest.mark.parametrize("biases", [None, "columns", "rows", "both"])
@pytest.mark.parametrize("penalty", [0, 3.0])
def test_a_completion_is_the_shrunken_svd_of_itself(biases, penalty):
    X = holed((60, 30), 0.3)
    C = complete_matrix(X, 3, biases=biases, penalty=penalty, tol=1e-10, max_iter=5000, rng=0)
    A = np.where(np.isnan(X), C.model @ np.eye(30), X)
    assert_close(C.A @ np.eye(30), A, 1e-12 * np.linalg.norm(A), "completed")
    M = C.U @ np.diag(C.S) @ C.V.T
    B = C.row_bias[:, None] + C.column_bias
    assert_close(C.model @ np.eye(30), B + M, 1e-12 * np.linalg.norm(A), "model")
    U, S, Vh = np.linalg.svd(A - B, full_matrices=False)
    assert_close((U[:, :3] * np.maximum(S[:3] - penalty, 0)) @ Vh[:3], M, 1e-6 * np.linalg.norm(A), "shrunken SVD")
    rest = np.where(np.isnan(X), 0, X - B - M)
    assert_close(rest.sum(axis=0) * (biases in ("columns", "both")), np.zeros(30), 1e-5 * np.linalg.norm(A), "columns")
    assert_close(rest.sum(axis=1) * (biases in ("rows", "both")), np.zeros(60), 1e-5 * np.linalg.norm(A), "rows")


@pytest.mark.long
def test_biases_of_users_and_items_are_told_from_what_they_have_in_common():
    X, (i, j, x), _ = planted(300, 150, 0.3, 0.5, rank=2)
    rng = np.random.default_rng(1)
    users, items = 3 * rng.standard_normal(300), 5 + 2 * rng.standard_normal(150)
    rows = np.repeat(np.arange(300), np.diff(X.indptr))
    R = csr_array((X.data + users[rows] + items[X.indices], X.indices, X.indptr), shape=X.shape)
    completed = {
        biases: complete_matrix(R, 2, biases=biases, unobserved=True, rng=0) for biases in (None, "columns", "both")
    }
    errors = {biases: rms(C.predict(i, j) - x - users[i] - items[j]) for biases, C in completed.items()}
    assert errors["both"] <= 0.6
    assert errors["both"] < errors["columns"] < errors[None]
    F = ss.svd(R, 2, shift="both", missing="em", unobserved=True, rng=0)
    A = completed["both"].A @ np.eye(150)
    off = A - A.mean(axis=0) - A.mean(axis=1)[:, None] + A.mean()
    assert_close(F.S, np.linalg.svd(off)[1][:2], 1e-8 * np.linalg.norm(A), "values")


@pytest.mark.long
def test_completion_takes_memory_for_what_is_observed():
    import tracemalloc

    X, *_ = planted(3000, 2000, 0.01, 1.0, rank=2)
    tracemalloc.start()
    try:
        complete_matrix(X, 2, biases="both", penalty=10.0, unobserved=True, tol=5e-2, rng=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 10 * 8 * X.nnz + 40 * 8 * 5000 * 10 < 8 * 3000 * 2000 / 2


@pytest.mark.long
def test_the_same_seed_gives_the_same_completion_whatever_the_threads():
    X, *_ = planted(300, 100, 0.3, 1.0)
    a, b = (complete_matrix(X, 3, unobserved=True, rng=7, n_threads=n) for n in (1, 2))
    assert a.penalty == b.penalty
    assert np.array_equal(a.V, b.V)


@pytest.mark.parametrize("kind", ["array", "stored", "file"])
def test_a_completion_is_in_the_units_of_the_scale(kind: str, tmp_path):
    rng = np.random.default_rng(4)
    scale, X = rng.uniform(0.2, 5, 12), holed((60, 12))
    X = 100 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 12)) + 0.1 * X
    penalty = 0.5
    known = ss.PCA(2, missing="em", penalty=penalty, random_state=0).fit(X / scale)
    given = X
    if kind == "stored":
        given = csr_array(X)
    elif kind == "file":
        np.save(tmp_path / "X.npy", X)
        given = gaps_of(ss.io.open_matrix(tmp_path / "X.npy", stream=True)[0])
    found = ss.PCA(2, missing="em", penalty=penalty, scale=scale, random_state=0).fit(given)
    np.testing.assert_allclose(found.singular_values_, known.singular_values_, rtol=1e-6)
    np.testing.assert_allclose(found.mean_, known.mean_ * scale, rtol=1e-7)
    if kind != "file":  # a file has no held-out values
        assert found.info_.heldout_r2 == pytest.approx(known.info_.heldout_r2, rel=1e-6)


@pytest.mark.parametrize("kind", ["clicks", "array"])
def test_that_all_observed_entries_are_equal_is_told(kind):
    rng = np.random.default_rng(0)
    clicks = csr_array((rng.random((60, 20)) < 0.3).astype(float))
    X = clicks if kind == "clicks" else np.where(clicks.toarray() > 0, 3.0, np.nan)
    said = r"All observed entries are equal \((1|3)\), so no model of them can tell the missing entries apart\."
    said += " Without unobserved=True, entries that are not stored are zeros." if kind == "clicks" else "$"
    with pytest.warns(UserWarning, match=said):
        ss.PCA(2, missing="em", unobserved=kind == "clicks", random_state=0).fit(X)


def test_scores_of_rows_that_hardly_determine_them_are_those_of_the_same_numbers_in_double_precision() -> None:
    # The two observed columns have nearly the same components, so the regression divides by 1e-6.
    V = np.array([[0.6, 0.6, 0.5, 0.16], [0.3, 0.301, -0.9, 0.1]])
    V = np.linalg.qr(V.T)[0].T.astype(np.float32)
    X = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32) * 1e3
    X[:, 2:] = np.nan
    found = [
        regressed_rows(gaps_of(X.astype(dtype)), np.zeros(4), None, V, np.array([1e7, 1e6]), 1e-3).matmat(np.eye(4))
        for dtype in (np.float32, np.float64)
    ]
    assert np.allclose(*found, rtol=1e-5, atol=1e-5 * np.abs(found[1]).max())
