"""Shifts from names, groups and covariates: how they merge, what they refuse, and how new rows get theirs."""

import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, load_npz
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import shiftsvd as ss
from shiftsvd.algebra.generic import fused
from shiftsvd.preparation.prepare import Preparation
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, values
from tests.support.operators import Counting, Minimal, assert_is, panel

X = values((40, 6), density=1.0) + 3
GROUPS = np.array(["x", "y", "z", "y"] * 10)
C = values((40, 2), seed=5, density=1.0)


def residuals(D, *columns):
    """What a regression on these columns leaves."""
    design = np.column_stack(columns)
    return D - design @ np.linalg.lstsq(design, D)[0]


def dense(A):
    return A @ np.eye(A.shape[1])


# --- the algebra ----------------------------------------------------------------------------------------------


def low_rank(r, seed=0):
    return ss.LowRank(panel(40, r, seed=seed), panel(6, r, seed=seed + 9))


def test_sums_and_differences_of_low_rank_shifts_are_low_rank():
    S, T = low_rank(2), low_rank(3, seed=1)
    for found, want in ((S + T, dense(S) + dense(T)), (S - T, dense(S) - dense(T)), (-S, -dense(S))):
        assert isinstance(found, ss.LowRank)
        assert_is(found, want, S.frobenius_norm() + T.frobenius_norm())


def test_factors_that_repeat_count_once():
    ones, S = np.ones(40), low_rank(2)
    mean, more = ss.LowRank(ones, X.mean(axis=0)), ss.LowRank(ones, np.arange(6.0))
    assert (mean + more).L.shape == (40, 1)
    assert_close(dense(mean + more), dense(mean) + dense(more), 20 * EPS * 100)
    assert (S + S).L.shape == (40, 2)
    assert (ss.LowRank(C[:, 0], np.ones(6)) + ss.LowRank(C[:, 1], np.ones(6))).L.shape == (40, 1)
    assert (S - S).L.shape == (40, 1)
    assert not dense(S - S).any()
    both = (ss.as_operator(X) - mean - more).unshifted()[1]
    assert both.L.shape == (40, 1)


def test_shifts_of_another_shape_do_not_merge():
    with pytest.raises(ValueError, match="the shift must have the shape"):
        low_rank(1) + low_rank(1).H


@pytest.mark.parametrize("make", [np.array, csr_array, Minimal])
def test_shifted_over_scaled_over_adjoint_in_any_order_is_the_dense_matrix(make):
    S, r, c = low_rank(2), np.linspace(1, 2, 40), np.linspace(3, 1, 6)
    A, D, E = ss.as_operator(make(X)), X, dense(S)
    size = 10 * (np.linalg.norm(D) + np.linalg.norm(E))
    assert_is(ss.operators.Shifted(ss.operators.Scaled(A.H, c, r), S.H), (r[:, None] * D * c - E).T, size)
    assert_is(ss.operators.Scaled(ss.operators.Shifted(A, S).H, c, r), (r[:, None] * (D - E) * c).T, size)
    assert_is(
        ss.operators.Adjoint(ss.operators.Shifted(ss.operators.Scaled(A, r, c), S)), (r[:, None] * D * c - E).T, size
    )
    assert_is(ss.operators.Shifted(ss.operators.Shifted(A, S), S) - S, D - 3 * E, size)


@pytest.mark.parametrize("shift", ["mean", "rows", "both", ss.Covariates(C), ss.GroupMeans(GROUPS)])
@pytest.mark.parametrize("make", [np.array, csr_array])
def test_every_shift_and_scale_keeps_the_gram_of_one_read(make, shift):
    A = Preparation(shift, "std", np.linspace(1, 2, 40)).learn(B := ss.as_operator(make(X))).of(B)
    assert A.costs.gram_reads == 1
    assert fused(ss.operators.Shifted(ss.as_operator(make(X)), low_rank(2)), 50).costs.gram_reads == 1


@pytest.mark.parametrize("make", [np.array, csr_array])
def test_a_scale_of_0_keeps_the_gram_of_one_read_where_the_shift_is_0_too(make):
    r, c = np.arange(40.0) % 4, np.arange(6.0)
    S = ss.LowRank(r[:, None] * panel(40, 2), c[:, None] * panel(6, 2))
    A = ss.operators.Scaled(ss.as_operator(make(X)), r, c)
    assert (A - S).costs.gram_reads == 1
    for shift in (S, low_rank(2), ss.LowRank(S.L, panel(6, 2)), ss.LowRank(panel(40, 2), S.R)):
        assert_is(A - shift, r[:, None] * X * c - dense(shift), 10 * np.linalg.norm(dense(A)) + shift.frobenius_norm())


@pytest.mark.parametrize("size", [1e2, 1e5])
@pytest.mark.parametrize("intercept", [True, False])
def test_covariates_of_single_data_far_off_centre_explain_what_they_do_in_double(intercept, size):
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((5000, 3))
    far = rng.standard_normal((5000, 20)) + size * (Z @ rng.standard_normal((3, 20)) + rng.random(20))
    for X in (far.astype(np.float32), csr_array(far.astype(np.float32))):
        D = np.asarray(X.toarray() if isinstance(X, csr_array) else X, np.float64)
        basis = np.linalg.qr(np.column_stack([np.ones(5000), Z]) if intercept else Z)[0]
        left = D
        for _ in range(3):  # what is left by the first is rounding of D
            left = left - basis @ (basis.T @ left)
        S = ss.Covariates(Z, intercept=intercept).resolve(ss.as_operator(X), ss.as_operator(X).moments())
        assert np.abs(D - S.L @ S.R.T - left).max() <= 2e2 * EPS * size


@pytest.mark.parametrize("shift", [ss.Covariates(C), ss.GroupMeans(GROUPS)])
def test_regressions_of_single_data_leave_no_more_than_rounding_of_doubles(shift):
    # A fit computes values down to this rounding, and bounds the errors of their vectors.
    single = (100 + X).astype(np.float32)
    A = ss.as_operator(single)
    S = shift.resolve(A, A.moments(), None)
    basis = np.linalg.qr(S.L)[0]
    assert np.abs(basis.T @ (single.astype(np.float64) - S.L @ S.R.T)).max() <= 1e2 * EPS * np.linalg.norm(single)


@pytest.mark.parametrize("shift", [ss.Covariates(C), ss.GroupMeans(GROUPS)])
def test_covariates_and_groups_take_one_read_beside_the_moments(shift):
    A = Counting(X)
    shift.resolve(A, A.moments(), None)
    assert A.calls == ["rmatmat", "rmatmat"]


# --- what the shifts are --------------------------------------------------------------------------------------


def test_double_centring_leaves_no_mean_in_rows_and_columns():
    A = Preparation("both").learn(B := ss.as_operator(csr_array(X))).of(B)
    assert np.abs(A @ np.ones(6)).max() <= 100 * EPS * np.linalg.norm(X)
    assert np.abs(A.H @ np.ones(40)).max() <= 100 * EPS * np.linalg.norm(X)


def test_covariates_that_depend_on_each_other_are_no_error():
    hot = (GROUPS[:, None] == np.unique(GROUPS)).astype(float)
    want = ss.svd(X, 4, shift=ss.GroupMeans(GROUPS), solver="exact").S
    for design in (hot, hot[:, 1:], np.column_stack([hot, hot, np.full(40, 7.7)]), np.column_stack([1e9 * hot, hot])):
        assert_close(ss.svd(X, 4, shift=ss.Covariates(design), solver="exact").S, want, 1e-12 * np.linalg.norm(X))
    without = ss.svd(X, 4, shift=ss.Covariates(hot, intercept=False), solver="exact").S
    assert_close(without, want, 1e-12 * np.linalg.norm(X))


@pytest.mark.parametrize("intercept", [True, False])
def test_constant_covariates_are_the_mean(intercept):
    want = ss.svd(X, 4, shift="mean", solver="exact").S
    found = ss.svd(X, 4, shift=ss.Covariates(np.full(40, 0.1), intercept=intercept), solver="exact").S
    assert_close(found, want, 1e-12 * np.linalg.norm(X))


@pytest.mark.parametrize("make", [np.array, csr_array])
def test_covariates_of_zeros_remove_nothing(make):
    found = ss.svd(make(X), 4, shift=ss.Covariates(np.zeros((40, 2)), intercept=False), solver="exact").S
    assert_close(found, np.linalg.svd(X, compute_uv=False)[:4], 1e-12 * np.linalg.norm(X))


def test_years_are_told_from_the_intercept():
    year = 2000.0 + np.arange(40)
    want = np.linalg.svd(residuals(X, np.ones(40), year - 2020), compute_uv=False)
    found = ss.svd(X, 4, shift=ss.Covariates(year), solver="exact").S
    assert_close(found, want[:4], 1e-12 * np.linalg.norm(X))


def test_complex_data_lose_what_complex_covariates_explain():
    D, Z = values((30, 5), np.complex128, 3), values((30, 2), np.complex128, 4, 1.0)
    want = np.linalg.svd(residuals(D, np.ones(30), Z), compute_uv=False)
    for make in (np.array, csr_array):
        assert_close(ss.svd(make(D), 3, shift=ss.Covariates(Z), solver="exact").S, want[:3], 1e-12 * np.linalg.norm(D))


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6])
def test_no_shift_loses_digits_far_off_centre(ratio):
    # Residuals of 1 beside means of `ratio`, in single precision: to what the data themselves are rounded to.
    rng = np.random.default_rng(0)
    D = (ratio + rng.standard_normal((60, 8))).astype(np.float32)
    E, groups = D.astype(float), np.arange(60) % 3
    covariate = rng.standard_normal(60)
    means = np.array([E[groups == g].mean(axis=0) for g in range(3)])
    for shift, R in (
        (ss.GroupMeans(groups), E - means[groups]),
        (ss.Covariates(covariate), residuals(E - E.mean(axis=0), covariate - covariate.mean())),
        (ss.Covariates(np.eye(3)[groups], intercept=False), E - means[groups]),
        ("rows", E - E.mean(axis=1)[:, None]),
        ("both", E - E.mean(axis=1)[:, None] - E.mean(axis=0) + E.mean()),
    ):
        want = np.linalg.svd(R, compute_uv=False)
        for make in (np.array, csr_array):
            found = ss.svd(make(D), 5, shift=shift, solver="exact").S
            assert np.abs(found - want[:5]).max() <= 20 * np.finfo(np.float32).eps * want[0]


@pytest.mark.parametrize(
    "labels",
    [
        GROUPS.tolist(),
        GROUPS.astype(object),
        pd.Series(GROUPS),
        pd.Series(GROUPS).astype("category"),
        np.searchsorted(np.unique(GROUPS), GROUPS),
        [{"x": 1, "y": "one", "z": True}[g] if g != "z" else 2.5 for g in GROUPS],
    ],
    ids=["list", "objects", "series", "categories", "integers", "mixed"],
)
def test_any_labels_make_groups(labels):
    want = ss.svd(X, 3, shift=ss.GroupMeans(GROUPS), solver="exact").S
    assert_close(ss.svd(X, 3, shift=ss.GroupMeans(labels), solver="exact").S, want, 100 * EPS * np.linalg.norm(X))


def test_more_groups_than_the_memory_holds_are_refused():
    D = np.zeros((400_000, 1), np.float32)
    with pytest.raises(ValueError, match=r"400,000 groups of 400,000 rows need about 3.84 TB, .*\. Merge rare"):
        ss.svd(D, 1, shift=ss.GroupMeans(np.arange(400_000)))


class Controls:
    """The mean of the first three rows."""

    def resolve(self, A, moments, weights):
        controls = (np.arange(A.shape[0]) < 3) / 3
        return ss.LowRank(np.ones(A.shape[0]), A.rmatmat(controls[:, None]))


def test_a_shift_of_ones_own_takes_five_lines():
    want = np.linalg.svd(X - X[:3].mean(axis=0), compute_uv=False)
    assert_close(ss.svd(csr_array(X), 4, shift=Controls(), solver="exact").S, want[:4], 100 * EPS * np.linalg.norm(X))
    with pytest.raises(ValueError, match="must apply to new rows"):
        ss.PCA(2, shift=Controls()).fit(X)


def test_a_shift_of_ones_own_that_returns_no_operator_is_refused():
    class Wrong:
        def resolve(self, A, moments, weights):
            return 3

    with pytest.raises(TypeError, match="must return a LowRank, got int"):
        ss.svd(X, 2, shift=Wrong())


# --- scales ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ddof", [0, 1])
def test_the_degrees_of_freedom_of_the_scale_are_a_setting(ddof):
    std = X.std(axis=0, ddof=ddof)
    want = np.linalg.svd((X - X.mean(axis=0)) / std, compute_uv=False)
    found = ss.svd(csr_array(X), 4, shift="mean", scale=True, scale_ddof=ddof, solver="exact").S
    assert_close(found, want[:4], 1000 * EPS * want[0])
    pca = ss.PCA(4, scale=True, scale_ddof=ddof, solver="exact").fit(X)
    assert_close(pca.scale_, std, 100 * EPS * np.linalg.norm(X))
    for refused in (2, -1, True, "1"):
        with pytest.raises(ValueError, match="scale_ddof must be 0 or 1"):
            ss.svd(X, 2, shift="mean", scale=True, scale_ddof=refused)


@pytest.mark.parametrize("make", [np.array, csr_array])
def test_columns_that_are_constant_within_groups_are_counted_and_left_as_they_are(make):
    D = X.copy()
    D[:, 2], D[:, 4] = np.where(GROUPS == "x", 0.1, 1e6 / 3), 0.0
    with pytest.warns(UserWarning, match="2 columns are constant and were not scaled") as caught:
        pca = ss.PCA(3, shift=ss.GroupMeans(), scale=True).fit(make(D), groups=GROUPS)
    assert len(caught) == 1
    assert np.array_equal(pca.scale_[[2, 4]], [1, 1])


def test_a_scale_after_a_shift_is_the_deviation_of_what_is_left():
    E = residuals(X, np.ones(40), C)
    pca = ss.PCA(3, shift=ss.Covariates(), scale="std").fit(X, covariates=C)
    assert_close(pca.scale_, E.std(axis=0), 100 * EPS * np.linalg.norm(X))


# --- PCA ------------------------------------------------------------------------------------------------------


def test_the_training_shift_is_that_of_new_rows():
    pca = ss.PCA(3, shift=ss.GroupMeans(), solver="exact").fit(X[:30], groups=GROUPS[:30])
    means = {g: X[:30][GROUPS[:30] == g].mean(axis=0) for g in "xyz"}
    want = (X[30:] - [means[g] for g in GROUPS[30:]]) @ pca.components_.T
    assert_close(pca.transform(csr_array(X[30:]), groups=GROUPS[30:]), want, 1e-12 * np.linalg.norm(X))
    assert pca.shift_.groups == ("x", "y", "z")
    assert_close(pca.mean_, X[:30].mean(axis=0), 100 * EPS * 10)
    scores = pca.fit_transform(X, groups=GROUPS)
    assert_close(scores, pca.transform(X, groups=GROUPS), 100 * EPS * np.linalg.norm(X))
    assert pickle.loads(pickle.dumps(pca)).transform(X[:1], groups=["y"]) == pytest.approx(scores_of(pca, X[:1], "y"))


def scores_of(pca, rows, group):
    return pca.transform(rows, groups=[group] * len(rows))


def test_labels_that_were_not_seen_are_refused_by_name():
    pca = ss.PCA(2, shift=ss.GroupMeans()).fit(X, groups=GROUPS)
    for call in (pca.transform, pca.score_samples, pca.score):
        with pytest.raises(
            ValueError, match=r"groups has labels that did not occur in the training data: 'new'\. Fit on"
        ):
            call(X[:2], groups=["x", "new"])
    # A row without weight is no row: nothing was learned of a group that has no others.
    w = np.where(GROUPS == "z", 0.0, 1.0)
    weighted = ss.PCA(2, shift=ss.GroupMeans(), solver="exact").fit(X, sample_weight=w, groups=GROUPS)
    without = ss.PCA(2, shift=ss.GroupMeans(), solver="exact").fit(X[w > 0], groups=GROUPS[w > 0])
    assert_close(weighted.singular_values_, without.singular_values_, 100 * EPS * np.linalg.norm(X))
    with pytest.raises(ValueError, match="'z'"):
        weighted.transform(X, groups=GROUPS)


REFUSED = {
    "no groups": (
        ss.GroupMeans(),
        {},
        r"shift=GroupMeans\(\) needs groups\. Pass groups=\.\.\., with one entry per row",
    ),
    "no covariates": (ss.Covariates(), {}, r"shift=Covariates\(intercept=True\) needs covariates"),
    "groups for a mean": ("mean", {"groups": GROUPS}, r"groups requires shift=GroupMeans\(\), got shift=.mean."),
    "both": (ss.GroupMeans(), {"groups": GROUPS, "covariates": C}, r"covariates requires shift=Covariates\(\)"),
    "labels inside": (
        ss.GroupMeans(GROUPS),
        {"groups": GROUPS},
        r"PCA needs GroupMeans\(\) without labels, .*fit\(X, groups=",
    ),
    "values inside": (ss.Covariates(C), {}, r"PCA needs Covariates\(\) without values, .*fit\(X, covariates="),
    "too few labels": (ss.GroupMeans(), {"groups": GROUPS[:9]}, r"one label per row, shape \(40,\), got shape \(9,\)"),
    "missing labels": (
        ss.GroupMeans(),
        {"groups": [None, np.nan, pd.NA] + ["a"] * 37},
        "groups must not hold missing labels, got 3",
    ),
    "texts": (ss.Covariates(), {"covariates": GROUPS}, r"covariates must be a numeric array .*\. One-hot encode"),
    "too few rows": (ss.Covariates(), {"covariates": C[:9]}, r"of shape \(40, p\) or \(40,\), got float64 \(9, 2\)"),
    "NaN": (ss.Covariates(), {"covariates": np.full(40, np.nan)}, "covariates must be finite, got 40 NaN"),
    "complex": (ss.Covariates(), {"covariates": 1j * C}, "covariates of PCA must be real"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_do_not_fit_the_shift_are_refused_with_the_remedy(name):
    shift, data, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        ss.PCA(2, shift=shift).fit(X, **data)


def test_specs_without_data_are_refused_by_svd():
    with pytest.raises(ValueError, match="GroupMeans needs a label per row"):
        ss.svd(X, 2, shift=ss.GroupMeans())
    with pytest.raises(ValueError, match="Covariates needs a design matrix"):
        ss.svd(X, 2, shift=ss.Covariates())


def test_new_rows_have_as_many_covariates_as_the_training_rows():
    pca = ss.PCA(2, shift=ss.Covariates()).fit(X, covariates=C)
    with pytest.raises(ValueError, match="covariates must have 2 columns, as in the training data, got 1"):
        pca.transform(X, covariates=C[:, 0])


def test_a_refit_forgets_the_shift_of_the_fit_before():
    pca = ss.PCA(2, shift=ss.GroupMeans(), solver="exact").fit(X, groups=GROUPS)
    again = pca.set_params(shift="mean").fit(X)
    assert not hasattr(again, "shift_")
    assert_close(again.transform(X), ss.PCA(2, solver="exact").fit_transform(X), 100 * EPS * np.linalg.norm(X))


@pytest.mark.parametrize("shift", ["rows", "both", ss.GroupMeans(), ss.Covariates()])
def test_likelihoods_are_those_of_the_shifted_rows(shift):
    data = {"groups": GROUPS} if shift == ss.GroupMeans() else {}
    data = {"covariates": C} if isinstance(shift, ss.Covariates) else data
    pca = ss.PCA(2, shift=shift, solver="exact").fit(X, **data)
    E = dense(pca._minus_shift(ss.as_operator(X), data.get("groups"), data.get("covariates")))
    want = ss.PCA(2, shift=None, solver="exact").fit(E)
    assert_close(pca.score_samples(X, **data), want.score_samples(E), 1e-9 * 40)
    assert pca.score(X, **data) == pytest.approx(want.score(E), rel=1e-9)


def test_classes_of_scikit_learn_cannot_say_what_they_do_not_know():
    for shift, data in (("both", {}), (ss.GroupMeans(), {"groups": GROUPS})):
        with pytest.raises(ValueError, match="scikit-learn's classes subtract the same vector from every row"):
            ss.PCA(2, shift=shift).fit(X, **data).to_sklearn()


def test_specs_print_compare_and_clone():
    assert repr(ss.GroupMeans(GROUPS)) == "GroupMeans()"
    assert ss.Covariates(C) == ss.Covariates() != ss.Covariates(intercept=False)
    assert clone(ss.PCA(2, shift=ss.Covariates(intercept=False))).shift == ss.Covariates(intercept=False)


def test_pipelines_and_cross_validation_bring_the_groups_of_their_rows():
    with config_context(enable_metadata_routing=True):
        pca = ss.PCA(2, shift=ss.GroupMeans(), solver="exact")
        for request in (pca.set_fit_request, pca.set_transform_request, pca.set_score_request):
            request(groups=True)
        pipe = make_pipeline(MaxAbsScaler(), pca)
        Z = pipe.fit_transform(X, groups=GROUPS)
        scaled = MaxAbsScaler().fit_transform(X)
        want = ss.PCA(2, shift=ss.GroupMeans(), solver="exact").fit_transform(scaled, groups=GROUPS)
        assert_close(Z, want, 100 * EPS * np.linalg.norm(X))
        assert_close(pipe.transform(X, groups=GROUPS), want, 100 * EPS * np.linalg.norm(X))
        scores = cross_val_score(pca, X, cv=KFold(4), params={"groups": GROUPS})
        by_hand = [
            ss.PCA(2, shift=ss.GroupMeans(), solver="exact")
            .fit(X[train], groups=GROUPS[train])
            .score(X[test], groups=GROUPS[test])
            for train, test in KFold(4).split(X)
        ]
        assert scores == pytest.approx(by_hand, rel=1e-9)


# --- real data ------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("shift", ["covariates", "groups"])
def test_removal_equals_explicit_regression_on_counts_of_cells(shift):
    folder = os.environ.get("SHIFTSVD_TEST_DATA")
    if not folder:
        pytest.skip("SHIFTSVD_TEST_DATA names no folder")
    counts = load_npz(Path(folder) / "pbmc10k_counts.npz").astype(np.float64)
    depth = np.asarray(counts.sum(axis=1)).ravel()
    D = counts.toarray()
    if shift == "covariates":
        design = np.column_stack([np.log1p(depth), np.diff(counts.indptr)])
        spec, E = ss.Covariates(design), residuals(D, np.ones(len(D)), design - design.mean(axis=0))
    else:
        groups = np.digitize(depth, np.quantile(depth, [0.25, 0.5, 0.75]))
        spec = ss.GroupMeans(groups)
        E = D - np.array([D[groups == g].mean(axis=0) for g in range(4)])[groups]
    want = np.sqrt(np.linalg.eigvalsh(E.T @ E)[::-1][:20])
    found = ss.svd(counts, 20, shift=spec, tol=1e-12, rng=0)
    assert np.abs(found.S - want).max() <= 1e-8 * want[0]
    A = ss.as_operator(counts) - spec.resolve(ss.as_operator(counts), ss.as_operator(counts).moments())
    V = panel(D.shape[1], 3)
    assert np.linalg.norm(A @ V - E @ V) <= 1e-8 * np.linalg.norm(E @ V)


@pytest.mark.parametrize("places", [[3, 0, 4], [2, 1, 0, 4, 3]])
def test_a_learned_shift_of_some_columns_in_any_order_has_these_columns(places: list[int]) -> None:
    rng = np.random.default_rng(0)
    X, groups, C = rng.random((12, 5)), np.repeat(["a", "b", "c"], 4), rng.random((12, 2))
    A, part = ss.as_operator(X), ss.as_operator(X[:, places])
    for shift, data in ((ss.GroupMeans(groups), groups), (ss.Covariates(C), C)):
        _, learned = shift.learn(A, A.moments())
        want = learned.points(12, data)[:, places]
        np.testing.assert_array_equal(learned.at(places).points(12, data), want)
        np.testing.assert_allclose(learned.at(places).of(part, data).matmat(np.eye(len(places))), want, rtol=1e-13)
