"""Missing entries: what stands for them, and that a completion finds what was hidden."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse import csr_array
from sklearn.base import clone

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.missing import completion
from shiftsvd.missing.completion import complete_matrix
from shiftsvd.missing.gaps import gaps_of
from tests.support.blocks import cut_small
from tests.support.closeness import assert_close
from tests.support.containers import Held, streamed
from tests.support.holes import holed, mean_filled, rms, stored_nan
from tests.support.matrices import EPS, values
from tests.support.operators import assert_is

# --- what stands for them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(23, 7), (7, 23), (9, 9)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("kind", ["dense", "fortran", "csr", "csc", "unobserved"])
def test_a_filled_matrix_is_an_operator_like_any_other(kind, dtype, shape, monkeypatch):
    cut_small(monkeypatch)
    X = holed(shape, dtype=dtype)
    S = ss.LowRank(values((shape[0], 2), dtype, 5, 1.0), values((shape[1], 2), dtype, 6, 1.0))
    D, given = X, X
    if kind == "fortran":
        given = np.asfortranarray(X)
    elif kind in ("csr", "csc"):
        D, given = stored_nan(X, csr_array if kind == "csr" else sparse.csc_array)
    elif kind == "unobserved":
        given = csr_array(np.nan_to_num(X))
    gaps = gaps_of(given, unobserved=kind == "unobserved")
    want = np.where(np.isnan(D), S.L @ S.R.conj().T, D)
    size = np.linalg.norm(want) + np.linalg.norm(S.L) * np.linalg.norm(S.R)
    A = gaps.filled(S)
    assert_close(A @ np.eye(shape[1]), want, 20 * EPS * size, "filled")
    assert_is(A, want, 2 * size)
    E = gaps.residual(S)
    assert_close(E @ np.eye(shape[1]), want - S.L @ S.R.conj().T, 20 * EPS * size, "residual")


@pytest.mark.parametrize("shape", [(40, 30), (30, 40)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_memory_for_residuals_changes_no_bits(shape, order):
    X = np.asarray(holed(shape), order=order)
    S = ss.LowRank(values((shape[0], 2), np.float64, 5, 1.0), values((shape[1], 2), np.float64, 6, 1.0))
    W, hidden = values((shape[1], 3), np.float64, 7, 1.0), (np.array([0, 7]), np.array([3, 1]))
    a, b = (gaps_of(X, memory_limit=limit).without(*hidden).residual(S) for limit in (None, 1))
    assert isinstance(a.A.X if shape[0] < shape[1] else a.X, np.ndarray)
    assert np.array_equal(a @ W, b @ W)
    assert np.array_equal(a.H @ (a @ W), b.H @ (b @ W))
    X[hidden] = np.nan
    want = np.where(np.isnan(X), 0, X - S.L @ S.R.T)
    assert_close(a @ np.eye(shape[1]), want, 20 * EPS * np.linalg.norm(want), "residual with hidden entries")


@pytest.mark.parametrize("kind", ["dense", "csr", "csc", "unobserved"])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_those_of_the_observed_entries(kind, weighted):
    X = holed((40, 6)) + 1e3
    D, given = (X, X) if kind in ("dense", "unobserved") else stored_nan(X, getattr(sparse, f"{kind}_array"))
    given = csr_array(np.nan_to_num(X)) if kind == "unobserved" else given
    w = np.random.default_rng(3).integers(0, 3, 40) + np.eye(40)[0] if weighted else None
    moments = gaps_of(given, unobserved=kind == "unobserved").moments(w)
    for j in range(6):
        seen = ~np.isnan(D[:, j])
        x, u = D[seen, j], np.ones(seen.sum()) if w is None else w[seen]
        mean = u @ x / u.sum()
        assert moments.count[j] == u.sum()
        assert abs(moments.mean[j] - mean) <= 20 * EPS * abs(mean)
        assert abs(moments.M2[j] - u @ (x - mean) ** 2) <= 1e-9 * u.sum()


@pytest.mark.parametrize("make", [np.asarray, csr_array])
def test_data_without_gaps_have_the_moments_that_they_always_had(make):
    X = values((30, 5), seed=2)
    found, want = gaps_of(make(X)).moments(), ss.as_operator(make(X)).moments()
    assert_close(found.mean, want.mean, 1e-14, "mean")
    assert_close(found.M2, want.M2, 1e-12, "M2")


# --- "mean" ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shape", [(60, 8), (8, 60)])
@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_mean_is_pca_of_the_matrix_filled_with_its_means(kind, shape, scale):
    X = holed(shape)
    D, given = (X, X) if kind == "dense" else stored_nan(X, getattr(sparse, f"{kind}_array"))
    E = mean_filled(D)
    deviation = np.nanstd(D, axis=0)  # of the observed entries
    pca = ss.PCA(3, missing="mean", scale=scale, tol=1e-10, random_state=0).fit(given)
    off = (E - E.mean(axis=0)) / (deviation if scale else 1)
    assert_close(pca.mean_, np.nanmean(D, axis=0), 1e-13, "mean")
    assert_close(pca.singular_values_, np.linalg.svd(off)[1][:3], 1e-8, "values")
    assert_close(pca.transform(given), off @ pca.components_.T, 1e-11, "scores")
    ratio = pca.singular_values_**2 / np.linalg.norm(off) ** 2
    assert_close(pca.explained_variance_ratio_, ratio, 1e-12, "ratio")


@pytest.mark.parametrize("kind", ["dense", "csr", "unobserved"])
@pytest.mark.parametrize("ddof", [0, 1])
def test_columns_with_one_observed_entry_have_no_variance_and_are_not_scaled(kind, ddof):
    X = holed((30, 6))
    X[1:, [1, 4]] = np.nan
    given = {"dense": X, "csr": csr_array(X), "unobserved": csr_array(np.nan_to_num(X))}[kind]
    pca = ss.PCA(2, missing="mean", scale=True, scale_ddof=ddof, unobserved=kind == "unobserved", random_state=0)
    with pytest.warns(
        UserWarning, match=r"^2 columns are constant and were not scaled: [\d, ]+ \(counted from 0\)\.$"
    ) as told:
        pca.fit(given)
    assert len(told) == 1
    others = [0, 2, 3, 5]
    assert_close(pca.scale_[[1, 4]], np.ones(2), 0, "columns without variance")
    assert_close(pca.scale_[others], np.nanstd(X[:, others], axis=0, ddof=ddof), 1e-13, "the others")
    assert_close(pca.mean_, np.nanmean(X, axis=0), 1e-13, "mean")
    off = np.nan_to_num((X - pca.mean_) / pca.scale_)
    assert_close(pca.singular_values_, np.linalg.svd(off)[1][:2], 1e-4, "values")


def test_missing_entries_of_new_rows_equal_the_training_mean():
    pca = ss.PCA(2, missing="mean", random_state=0).fit(holed((50, 6)))
    new = holed((9, 6), seed=4)
    filled = np.where(np.isnan(new), pca.mean_, new)
    assert_close(pca.transform(new), (filled - pca.mean_) @ pca.components_.T, 1e-13, "scores")
    assert_close(pca.transform(np.full((1, 6), np.nan)), np.zeros((1, 2)), 0, "a row of which nothing is known")


@pytest.mark.parametrize(("missing", "allowed"), [("mean", 'shift="mean", got'), ("em", 'shift="mean" or None, got')])
def test_a_refused_shift_names_the_shifts_that_are_accepted(missing, allowed):
    with pytest.raises(ValueError, match=allowed):
        ss.PCA(2, missing=missing, shift="rows").fit(holed((50, 6)))


def test_a_missing_entry_is_zero_after_the_shift_whatever_the_mean():
    X = (holed((50, 6)).astype(np.float32) + np.float32(1e6)).astype(np.float32)
    gaps = gaps_of(X)
    mu = gaps.moments().mean
    A = gaps.filled(ss.LowRank(np.ones(50), mu)) - ss.LowRank(np.ones(50), mu)
    off = np.concatenate([block for _, block in A.row_blocks(7)])
    assert np.all(off[np.isnan(X)] == 0)


def test_weights_of_rows_repeat_them_gaps_and_all():
    X, w = holed((30, 5)), np.random.default_rng(0).integers(0, 3, 30)
    a = ss.PCA(2, missing="mean", scale=True, tol=1e-10, random_state=0).fit(X, sample_weight=w)
    b = ss.PCA(2, missing="mean", scale=True, tol=1e-10, random_state=0).fit(np.repeat(X, w, axis=0))
    assert_close(a.explained_variance_, b.explained_variance_, 1e-9, "variances")
    assert_close(a.components_, b.components_, 1e-7, "components")


@pytest.mark.parametrize("scale", [False, True])
def test_mean_of_ratings_is_that_of_the_ratings_given(scale):
    X = holed((60, 8), 0.5) + 100
    E = mean_filled(X)
    pca = ss.PCA(3, missing="mean", unobserved=True, scale=scale, tol=1e-10, random_state=0)
    Z = pca.fit_transform(csr_array(np.nan_to_num(X)))
    off = (E - E.mean(axis=0)) / (np.nanstd(X, axis=0) if scale else 1)
    assert_close(pca.singular_values_, np.linalg.svd(off)[1][:3], 1e-8, "values")
    assert_close(Z, off @ pca.components_.T, 1e-10, "scores")


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.bool_])
@pytest.mark.parametrize("make", [np.asarray, csr_array, sparse.csc_array, sparse.coo_array])
def test_any_numbers_in_any_container_do(make, dtype):
    D = values((30, 6), dtype, 3)
    a = ss.svd(make(D), 2, shift="mean", missing="mean", tol=1e-6, rng=0)
    b = ss.svd(D.astype(np.float64), 2, shift="mean", tol=1e-6, rng=0)
    assert_close(a.S, b.S, 1e-3, "values")


def test_data_frames_with_gaps_keep_their_names():
    frame = pd.DataFrame(holed((30, 4)), columns=list("abcd"))
    pca = ss.PCA(2, missing="mean", random_state=0).fit(frame)
    assert list(pca.feature_names_in_) == list("abcd")
    assert_close(pca.transform(frame), pca.fit(frame.to_numpy()).transform(frame.to_numpy()), 1e-12, "scores")


def test_svd_takes_the_same_treatment():
    X = holed((60, 8))
    E = mean_filled(X)
    F = ss.svd(X, 3, shift="mean", scale="std", missing="mean", tol=1e-10, rng=0)
    assert_close(F.S, np.linalg.svd((E - E.mean(axis=0)) / np.nanstd(X, axis=0))[1][:3], 1e-8, "values")


def test_gaps_of_a_file_are_filled_as_it_is_read():
    X = holed((40, 6))
    for kind, D in ((np.ndarray.copy, X), (csr_array, stored_nan(X)[0])):
        pca = ss.PCA(3, missing="mean", scale=True, tol=1e-10, random_state=0).fit(streamed(kind)(D))
        want = ss.PCA(3, missing="mean", scale=True, tol=1e-10, random_state=0).fit(D)
        assert_close(pca.singular_values_, want.singular_values_, 1e-9, "values")
        assert_close(pca.transform(streamed(kind)(D)), pca.transform(D), 1e-10, "scores")


@pytest.mark.parametrize("index", [-1, 6])
def test_damaged_indices_of_a_file_with_gaps_are_refused_before_they_are_followed(index):
    class Damaged(Held):
        def read(self, lo, hi):
            X = super().read(lo, hi)
            X.indices[7] = index
            return X

    A = DiskRows(Damaged(stored_nan(holed((40, 6)))[1], rows=20), n_threads=1)
    with pytest.raises(ValueError, match=r"^held, rows 0 to 20: corrupt CSR structure: indices must be in 0\.\.5"):
        ss.PCA(2, missing="mean", random_state=0).fit(A)


def test_a_stored_nan_among_ratings_is_as_if_it_were_not_stored():
    X = holed((60, 8), 0.5)
    without, with_nan = csr_array(np.nan_to_num(X)), csr_array(X)
    assert with_nan.nnz > without.nnz
    for missing in ("mean", "em"):
        a, b = (ss.PCA(2, missing=missing, unobserved=True, random_state=0).fit(given) for given in (without, with_nan))
        assert_close(a.mean_, b.mean_, 1e-12 if missing == "mean" else 0.1, "mean")
        assert_close(a.transform(without), a.transform(with_nan), 1e-12, "scores")


def test_pca_with_gaps_finds_the_components_of_the_whole_matrix():
    rng = np.random.default_rng(0)
    full = rng.standard_normal((400, 3)) * [9, 6, 4] @ np.linalg.qr(rng.standard_normal((20, 3)))[0].T + 5
    full += 0.1 * rng.standard_normal(full.shape)
    X = np.where(rng.random(full.shape) < 0.3, np.nan, full)
    whole = ss.PCA(3, random_state=0).fit(full)
    em, mean = (ss.PCA(3, missing=name, random_state=0).fit(X) for name in ("em", "mean"))
    assert_close(np.abs(np.sum(em.components_ * whole.components_, axis=1)), np.ones(3), 1e-3, "components")
    assert_close(em.singular_values_ / whole.singular_values_, np.ones(3), 0.03, "values")
    Z = whole.transform(full)
    assert rms(em.transform(X) - Z) < 0.2 * rms(mean.transform(X) - Z)
    assert_close(em.transform(full), (full - em.mean_) @ em.components_.T, 1e-10, "rows without gaps")
    assert np.array_equal(em.fit_transform(X), em.fit(X).transform(X))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr", "unobserved"])
def test_new_rows_with_gaps_are_projected_by_regression(kind, scale):
    X = holed((80, 8), 0.2)
    pca = ss.PCA(3, missing="em", scale=scale, random_state=0).fit(X)
    new = holed((6, 8), 0.3, seed=5)
    given = {"dense": new, "csr": csr_array(new), "unobserved": csr_array(np.nan_to_num(new))}[kind]
    found = clone(pca).set_params(unobserved=kind == "unobserved")
    vars(found).update({name: value for name, value in vars(pca).items() if name.endswith("_")})
    s = pca.scale_ if scale else np.ones(8)
    ridge = pca.noise_variance_ / (pca.explained_variance_ - pca.noise_variance_)
    for z, x in zip(found.transform(given), new, strict=True):
        seen = ~np.isnan(x)
        V, off = pca.components_[:, seen].T, ((x - pca.mean_) / s)[seen]
        y = np.linalg.solve(V.T @ V + np.diag(ridge), V.T @ off)
        assert_close(z, y * (1 + ridge), 1e-9, "scores")


def test_without_components_there_are_no_scores():
    assert ss.PCA(0, missing="em", random_state=0).fit_transform(holed((20, 5))).shape == (20, 0)


def test_a_row_of_which_nothing_is_known_has_the_scores_of_the_mean():
    pca = ss.PCA(2, missing="em", random_state=0).fit(holed((50, 6)))
    assert_close(pca.transform(np.full((2, 6), np.nan)), np.zeros((2, 2)), 1e-12, "scores")


# --- what is refused ------------------------------------------------------------------------------------------

X = holed((20, 5))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("8 NaN", lambda: ss.svd(np.where(np.arange(40.0).reshape(8, 5) % 5 == 1, np.nan, 1.0), 2)),
        (
            "needs an observed entry, got none in column 3 (counted from 0)",
            lambda: gaps_of(np.where(np.arange(5) == 3, np.nan, X)).moments(),
        ),
        ("got 1 inf", lambda: gaps_of(np.array([[1.0, np.inf], [np.nan, 2.0]]))),
        ("got 1 inf", lambda: gaps_of(csr_array(np.array([[1.0, np.inf], [np.nan, 2.0]])))),
        ("unobserved=True requires a sparse", lambda: complete_matrix(X, 2, unobserved=True)),
        ('unobserved=True requires missing="mean"', lambda: ss.svd(csr_array(np.eye(3)), 1, unobserved=True)),
        ('"mean" requires shift="mean"', lambda: ss.svd(X, 2, missing="mean")),
        ('PCA needs shift="mean" or None', lambda: ss.PCA(2, missing="em", shift="both").fit(X)),
        ("does not support sample_weight", lambda: ss.PCA(2, missing="em").fit(X, sample_weight=np.ones(20))),
        ("an integer number of components", lambda: ss.PCA(0.5, missing="em").fit(X)),
        ("biases must be one of", lambda: complete_matrix(X, 2, biases="users")),
        ("penalty must be", lambda: complete_matrix(X, 2, penalty=-1)),
        ("penalty must be", lambda: complete_matrix(X, 2, penalty="cv")),
        ("requires observed entries", lambda: complete_matrix(csr_array((9, 4)), 2, unobserved=True)),
        ("k must be an integer in 1..5", lambda: complete_matrix(X, 6)),
    ],
)
def test_what_cannot_be_is_refused(message, call):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def test_operators_have_no_entries_to_be_missing():
    with pytest.raises(TypeError, match="an array in memory, a sparse matrix or a file"):
        gaps_of(ss.centered(np.eye(3)))
    with pytest.raises(ValueError, match="a sparse matrix in memory, got a file that is read in blocks"):
        gaps_of(DiskRows(Held(csr_array(np.eye(3)))), unobserved=True)


def test_a_completion_that_ran_out_of_steps_says_so():
    with pytest.warns(
        UserWarning, match="did not converge in 2 steps: the last step changed it by more than tol=1e-09"
    ):
        assert not complete_matrix(X, 2, tol=1e-9, max_iter=2, penalty=0, rng=0).converged


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, csr_array])
def test_input_is_not_written(make):
    given = make(X)
    before = given.copy()
    for missing in ("mean", "em"):
        ss.PCA(2, missing=missing, random_state=0).fit(given).transform(given)
    a, b = (given.data, before.data) if sparse.issparse(given) else (given, before)
    assert np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("biases", ["rows", "columns", "both"])
def test_a_step_of_the_biases_leaves_no_mean(biases: str) -> None:
    E = values((12, 7), np.float64, 3, 1.0) + 5
    row, column = completion._mean_errors(ss.as_operator(E), biases)
    left = E - row[:, None] - column
    for axis, name in enumerate(("columns", "rows")):
        if biases in (name, "both"):
            np.testing.assert_allclose(left.mean(axis=axis), 0, atol=100 * EPS)
