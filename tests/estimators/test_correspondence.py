"""Correspondence analysis equals its definition and prince, with labels, empty lines and new rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss
from tests.support.containers import streamed
from tests.support.operators import Minimal

SEEDS = range(20)
# Hair and eye colour of 592 students (Snee 1974).
HAIR_EYES = pd.DataFrame(
    [[68, 20, 15, 5], [119, 84, 54, 29], [26, 17, 14, 14], [7, 94, 10, 16]],
    index=pd.Index(["black", "brown", "red", "blond"], name="hair"),
    columns=pd.Index(["brown", "blue", "hazel", "green"], name="eyes"),
)
FREQUENT = np.array([[20, 5, 1, 0], [6, 18, 4, 2], [2, 7, 25, 9], [1, 1, 8, 30], [3, 3, 3, 4]])


def table(seed, empty=False):
    rng = np.random.default_rng(seed)
    N = rng.poisson(rng.gamma(0.5, 4, (1, rng.integers(4, 30))) * rng.gamma(1, 2, (rng.integers(5, 60), 1)))
    N = N[N.sum(axis=1) > 0][:, N.sum(axis=0) > 0].astype(float)
    if empty:
        N = np.insert(np.insert(N, 2, 0, axis=0), [0, 3], 0, axis=1)
    return N


def explicit(N):
    """(eigenvalues, principal coordinates of rows, of columns, squared distances of rows, of columns)."""
    P = N / N.sum()
    r, c = P.sum(axis=1), P.sum(axis=0)
    B = (P - np.outer(r, c)) / np.sqrt(np.outer(r, c))
    U, S, Vh = np.linalg.svd(B, full_matrices=False)
    signs = np.sign(Vh[np.arange(len(Vh)), np.abs(Vh).argmax(axis=1)])
    F, G = U * S * signs / np.sqrt(r)[:, None], Vh.T * S * signs / np.sqrt(c)[:, None]
    return S**2, F, G, (B**2).sum(axis=1) / r, (B**2).sum(axis=0) / c


@pytest.mark.parametrize("make", [np.array, sparse.csr_array, sparse.csc_array, ss.as_operator, streamed(np.copy)])
@pytest.mark.parametrize("seed", SEEDS)
def test_analysis_equals_the_definition(make, seed):
    N, k = table(seed), 3
    X = make(N)
    ca = ss.CorrespondenceAnalysis(k).fit(X)
    values, F, G, near_rows, near_columns = explicit(N)
    assert ca.eigenvalues_ == pytest.approx(values[:k], abs=1e-13)
    assert ca.total_inertia_ == pytest.approx(values.sum(), abs=1e-13)
    assert ca.percentage_of_variance_ == pytest.approx(100 * values[:k] / values.sum(), abs=1e-10)
    for found, want in (
        (ca.row_coordinates_, F),
        (ca.row_coordinates(X), F),
        (ca.transform(X), F),
        (ca.column_coordinates_, G),
        (ca.column_coordinates(X), G),
        (ca.row_cosine_similarities(X), F**2 / near_rows[:, None]),
        (ca.column_cosine_similarities(X), G**2 / near_columns[:, None]),
        (ca.row_contributions_, N.sum(axis=1)[:, None] / N.sum() * F**2 / values),
        (ca.column_contributions_, N.sum(axis=0)[:, None] / N.sum() * G**2 / values),
    ):
        np.testing.assert_allclose(found, want[:, :k], atol=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_empty_rows_and_columns_are_at_the_centre_and_change_nothing(seed):
    full, holed = table(seed), table(seed, empty=True)
    without, ca = (ss.CorrespondenceAnalysis(3).fit(sparse.csr_array(N)) for N in (full, holed))
    rows, columns = holed.sum(axis=1) > 0, holed.sum(axis=0) > 0
    assert ca.eigenvalues_ == pytest.approx(without.eigenvalues_, abs=1e-14)
    for name, there in (("row_coordinates_", rows), ("column_coordinates_", columns), ("row_contributions_", rows)):
        found, want = getattr(ca, name), getattr(without, name)
        np.testing.assert_allclose(found[there], want, atol=1e-10)
        assert not found[~there].any()
    assert not ca.transform(holed)[~rows].any()
    assert not ca.row_cosine_similarities(holed)[~rows].any()
    assert not ca.column_cosine_similarities(holed)[~columns].any()


def test_columns_that_were_empty_do_not_move_new_rows():
    ca = ss.CorrespondenceAnalysis(2).fit(np.insert(FREQUENT, 1, 0, axis=1))
    row = np.array([[3, 0, 1, 4, 1]])
    crowded = np.array([[3, 1000, 1, 4, 1]])
    np.testing.assert_allclose(ca.transform(crowded), ca.transform(row), atol=1e-14)


def test_labels_in_labels_out():
    ca = ss.CorrespondenceAnalysis().fit(HAIR_EYES)
    for frame in (ca.row_coordinates(HAIR_EYES), ca.row_coordinates_, ca.row_contributions_):
        pd.testing.assert_index_equal(frame.index, HAIR_EYES.index)
        assert list(frame.columns) == [0, 1]
    for frame in (ca.column_coordinates_, ca.column_contributions_, ca.column_coordinates(HAIR_EYES)):
        pd.testing.assert_index_equal(frame.index, HAIR_EYES.columns)
    assert isinstance(ca.transform(HAIR_EYES), np.ndarray)
    assert list(ca.get_feature_names_out()) == ["correspondenceanalysis0", "correspondenceanalysis1"]
    assert isinstance(ss.CorrespondenceAnalysis().fit(HAIR_EYES.to_numpy()).row_coordinates_, np.ndarray)


def test_published_inertia_of_hair_and_eyes():
    # Greenacre's textbook values for these data: 0.2088, 0.0222, 0.0026; chi-square 138.29 of 592 students.
    ca = ss.CorrespondenceAnalysis(3).fit(HAIR_EYES)
    assert ca.eigenvalues_ == pytest.approx([0.2088, 0.0222, 0.0026], abs=5e-5)
    assert ca.total_inertia_ * 592 == pytest.approx(138.29, abs=5e-3)


def test_new_columns_are_placed_by_the_rows():
    ca = ss.CorrespondenceAnalysis().fit(FREQUENT)
    doubled = np.column_stack([2 * FREQUENT[:, 0], FREQUENT[:, 1] + FREQUENT[:, 2]])
    placed = ca.column_coordinates(doubled)
    np.testing.assert_allclose(placed[0], ca.column_coordinates_[0], atol=1e-12)
    masses = FREQUENT.sum(axis=0)[1:3]
    np.testing.assert_allclose(placed[1], masses @ ca.column_coordinates_[1:3] / masses.sum(), atol=1e-12)


@settings(deadline=None, derandomize=True)
@given(
    arrays(np.int64, st.tuples(st.integers(3, 9), st.integers(3, 9)), elements=st.integers(0, 50)),
    st.integers(2, 5),
    st.sampled_from([np.array, sparse.csr_array, sparse.csc_array]),
)
def test_rows_of_equal_profile_may_be_split_or_merged(N, times, make):
    # Distributional equivalence (Benzécri): what makes the chi-square distance the right one.
    assume(N.sum() > 0)
    split = np.vstack([N, times * N[:1]])
    merged = np.vstack([(1 + times) * N[:1], N[1:]])
    of_split, of_merged = (ss.CorrespondenceAnalysis(2).fit(make(X)) for X in (split, merged))
    assert of_split.total_inertia_ == pytest.approx(of_merged.total_inertia_, abs=1e-12)
    assert of_split.eigenvalues_ == pytest.approx(of_merged.eigenvalues_, abs=1e-12)
    F = of_split.row_coordinates_
    np.testing.assert_allclose(F[0], F[-1], atol=1e-7)
    assert of_split.column_contributions_.sum(axis=0) == pytest.approx(
        (of_split.eigenvalues_ > 0).astype(float), abs=1e-7
    )


@settings(deadline=None, derandomize=True)
@given(arrays(np.int64, st.tuples(st.integers(2, 9), st.integers(2, 9)), elements=st.integers(0, 3)))
def test_rows_and_columns_change_places(N):
    assume(N.sum() > 0)
    table, turned = ss.CorrespondenceAnalysis(2).fit(N), ss.CorrespondenceAnalysis(2).fit(sparse.csr_array(N.T))
    assert table.eigenvalues_ == pytest.approx(turned.eigenvalues_, abs=1e-12)
    assert table.total_inertia_ == pytest.approx(turned.total_inertia_, abs=1e-12)
    for coordinates in (table.row_coordinates_, turned.row_coordinates_):
        assert np.isfinite(coordinates).all()


def test_a_table_of_independence_has_no_inertia():
    N = np.outer([1.0, 2, 3, 4], [5.0, 1, 2])
    ca = ss.CorrespondenceAnalysis(2).fit(N)
    assert ca.total_inertia_ < 1e-28
    assert not ca.eigenvalues_.any()
    assert not ca.row_coordinates_.any()


def test_components_beyond_the_rank_are_nothing():
    ca = ss.CorrespondenceAnalysis(4).fit(FREQUENT)
    assert ca.eigenvalues_[3] == 0
    assert not ca.row_coordinates_[:, 3].any()
    assert not ca.column_contributions_[:, 3].any()


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (-FREQUENT, {}, "at least 0, got -30"),
        (sparse.csr_array(-FREQUENT), {}, "at least 0"),
        (ss.as_operator(-FREQUENT), {}, "negative row sums"),
        (0 * FREQUENT, {}, "must have a positive sum"),
        (FREQUENT, {"n_components": 5}, r"in 1\.\.4"),
        (FREQUENT, {"n_components": 0.5}, "must be an integer"),
        (FREQUENT, {"tol": -1}, "at least 0"),
        (FREQUENT, {"tol": 1e-3, "solver": ss.Exact()}, "solver object"),
        (np.where(FREQUENT == 25, np.nan, FREQUENT), {}, "1 NaN"),
        (Minimal(FREQUENT.astype(complex)), {}, "Complex data not supported"),
        (Minimal(FREQUENT.astype(float)), {}, "total inertia"),
    ],
)
def test_what_cannot_be_is_refused(X, settings, message):
    with pytest.raises(ValueError, match=message):
        ss.CorrespondenceAnalysis(**settings).fit(X)


def test_columns_need_the_rows_of_the_table():
    ca = ss.CorrespondenceAnalysis().fit(FREQUENT)
    with pytest.raises(ValueError, match="must have 5 rows"):
        ca.column_coordinates(FREQUENT[:3])
    with pytest.raises(ValueError, match="expecting 4 features"):
        ca.transform(ss.as_operator(FREQUENT[:, :3]))


def test_a_sparse_table_is_never_made_dense(monkeypatch):
    X = sparse.random_array((3000, 800), density=0.01, rng=np.random.default_rng(0), format="csr")
    for cls in (sparse.csr_array, sparse.csc_array):
        monkeypatch.setattr(cls, "toarray", lambda self: pytest.fail("made dense"))
    ca = ss.CorrespondenceAnalysis(3, solver="lanczos", random_state=0).fit(X)
    np.testing.assert_allclose(ca.transform(X), ca.row_coordinates_, atol=1e-8)
    assert ca.info_.converged


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_prince(seed):
    prince = pytest.importorskip("prince")
    elections = prince.datasets.load_french_elections()  # its documentation's own example
    N = pd.DataFrame(table(seed)).rename(index="r{}".format, columns="c{}".format)
    for X in (N, HAIR_EYES, elections):
        theirs = prince.CA(n_components=3, n_iter=30, engine="scipy").fit(X)
        ours = ss.CorrespondenceAnalysis(3).fit(X)
        assert ours.eigenvalues_ == pytest.approx(theirs.eigenvalues_, abs=1e-8)
        assert ours.total_inertia_ == pytest.approx(theirs.total_inertia_, abs=1e-8)
        assert ours.percentage_of_variance_ == pytest.approx(theirs.percentage_of_variance_, abs=1e-6)
        for name in ("row_coordinates", "column_coordinates"):
            found, want = getattr(ours, name)(X), getattr(theirs, name)(X)
            turn = np.sign((found * want.to_numpy()).sum())
            np.testing.assert_allclose(found * turn.to_numpy(), want, atol=1e-8)
            assert list(found.index) == list(want.index)
        for name in ("row_contributions_", "column_contributions_"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-8)
        for name in ("row_cosine_similarities", "column_cosine_similarities"):
            np.testing.assert_allclose(getattr(ours, name)(X), getattr(theirs, name)(X), atol=1e-8)


@pytest.mark.long
@parametrize_with_checks([ss.CorrespondenceAnalysis(n_components=2)])
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


def test_settings_are_kept_and_cloned():
    ca = ss.CorrespondenceAnalysis(3, solver=ss.Exact(), random_state=1)
    assert clone(ca).get_params() == ca.get_params()
