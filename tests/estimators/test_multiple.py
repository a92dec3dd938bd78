"""Multiple correspondence analysis equals that of the dense indicator matrix, and prince."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss


def people(m=200, seed=0):
    """Columns that have something to do with each other: words, numbers, and declared categories."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, m)
    noisy = [np.where(rng.random(m) < 0.7, kind, rng.integers(0, 5, m)) for _ in range(4)]
    return pd.DataFrame(
        {
            "town": np.array(["Pau", "Metz", "Lens", "Albi", "Vire"])[noisy[0]],
            "rooms": noisy[1] % 3,
            "pet": pd.Categorical(np.array(["cat", "dog", "ant", "cat", "dog"])[noisy[2]], ["dog", "cat", "ant"]),
            "level": noisy[3],
        },
        index=pd.RangeIndex(1000, 1000 + m),
    )


def indicators(X):
    return pd.get_dummies(X, columns=X.columns, prefix_sep="__").astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_analysis_is_that_of_the_indicator_matrix(seed):
    X = people(seed=seed)
    Z = indicators(X)
    mca, ca = ss.MultipleCorrespondenceAnalysis(3).fit(X), ss.CorrespondenceAnalysis(3).fit(Z)
    assert mca.column_names_ == list(Z.columns)
    assert mca.eigenvalues_ == pytest.approx(ca.eigenvalues_, abs=1e-13)
    assert mca.total_inertia_ == pytest.approx(Z.shape[1] / X.shape[1] - 1, abs=1e-12)
    for name in ("row_coordinates_", "column_coordinates_", "row_contributions_", "column_contributions_"):
        pd.testing.assert_frame_equal(getattr(mca, name), getattr(ca, name), atol=1e-10)
    for name in ("row_coordinates", "column_coordinates", "row_cosine_similarities", "column_cosine_similarities"):
        pd.testing.assert_frame_equal(getattr(mca, name)(X), getattr(ca, name)(Z), atol=1e-10)
    np.testing.assert_allclose(mca.transform(X), mca.row_coordinates_, atol=1e-10)


def test_arrays_and_frames_agree():
    X = people()
    frame, array = (ss.MultipleCorrespondenceAnalysis(2).fit(D) for D in (X.astype(str), X.astype(str).to_numpy()))
    assert isinstance(array.row_coordinates_, np.ndarray)
    np.testing.assert_allclose(array.transform(X.astype(str).to_numpy()), frame.transform(X.astype(str)), atol=1e-12)
    numbers = X[["rooms", "level"]]
    for D in (numbers, numbers.to_numpy(), numbers.astype(float), numbers.to_numpy().astype(object)):
        found = ss.MultipleCorrespondenceAnalysis(2).fit(D).eigenvalues_
        assert found == pytest.approx(ss.MultipleCorrespondenceAnalysis(2).fit(numbers).eigenvalues_, abs=1e-14)


def test_frames_of_polars_keep_their_names():
    X = people()[["town", "rooms"]]
    polars = pl.DataFrame({name: X[name].to_list() for name in X})
    found, want = ss.MultipleCorrespondenceAnalysis(2).fit(polars), ss.MultipleCorrespondenceAnalysis(2).fit(X)
    assert found.column_names_ == want.column_names_
    np.testing.assert_allclose(found.transform(polars), want.transform(X), atol=1e-12)


def test_names_that_are_numbers_are_names():
    X = people().rename(columns={"town": 0, "rooms": 1, "pet": 2, "level": 3})
    assert ss.MultipleCorrespondenceAnalysis().fit(X).column_coordinates_.index[0] == "0__Albi"


def test_corrections_follow_their_formulae():
    X = people()
    plain = ss.MultipleCorrespondenceAnalysis(14).fit(X)
    J, K, values = 16, 4, plain.eigenvalues_
    adjusted = np.where(values > 1 / K, (K / (K - 1) * (values - 1 / K)) ** 2, 0)
    average = K / (K - 1) * (np.sum(values**2) - (J - K) / K**2)
    for correction, total in (("benzecri", adjusted.sum()), ("greenacre", average)):
        mca = ss.MultipleCorrespondenceAnalysis(2, correction=correction).fit(X)
        assert mca.eigenvalues_ == pytest.approx(adjusted[:2], abs=1e-12)
        assert mca.percentage_of_variance_ == pytest.approx(100 * adjusted[:2] / total, abs=1e-9)
        np.testing.assert_allclose(mca.row_coordinates_, plain.row_coordinates_.iloc[:, :2], atol=1e-10)


def test_declared_categories_that_do_not_occur_are_at_the_centre():
    X = people()
    wider = X.assign(pet=X["pet"].cat.add_categories(["newt"]))
    mca = ss.MultipleCorrespondenceAnalysis(2, correction="greenacre").fit(wider)
    without = ss.MultipleCorrespondenceAnalysis(2, correction="greenacre").fit(X)
    assert not mca.column_coordinates_.loc["pet__newt"].any()
    np.testing.assert_allclose(mca.column_coordinates_.drop("pet__newt"), without.column_coordinates_, atol=1e-10)
    assert mca.percentage_of_variance_ == pytest.approx(without.percentage_of_variance_, abs=1e-10)


def test_unknown_categories_are_refused_or_left_out():
    X = people()
    new = X.iloc[:5].copy()
    new["town"] = ["Pau", "Metz", "Rome", "Lens", "Rome"]
    with pytest.raises(ValueError, match=r"column town has categories that .* in 2 of .* rows, such as 'Rome'"):
        ss.MultipleCorrespondenceAnalysis().fit(X).transform(new)
    mca = ss.MultipleCorrespondenceAnalysis(unknown="ignore").fit(X)
    found = mca.row_coordinates(new)
    pd.testing.assert_frame_equal(found.iloc[[0, 1, 3]], mca.row_coordinates(new.iloc[[0, 1, 3]]))
    # A row is the mean of its categories in standard coordinates; here of the three that are known.
    standard = mca.column_coordinates_ / mca.singular_values_
    known = [f"{name}__{new[name].iloc[2]}" for name in ("rooms", "pet", "level")]
    np.testing.assert_allclose(found.iloc[2], standard.loc[known].mean(), atol=1e-12)
    everything_new = pd.DataFrame([["Rome", 99, "newt", 99]], columns=X.columns)
    assert not mca.transform(everything_new).any()


@pytest.mark.parametrize("gap", [np.nan, None, pd.NA])
def test_missing_values_are_named(gap):
    X = people().astype(object)
    X.iloc[3:5, 2] = gap
    for D in (X, *([] if gap is pd.NA else [X.to_numpy()])):
        with pytest.raises(ValueError, match=r"column (pet|x2) has missing .* in 2 of "):
            ss.MultipleCorrespondenceAnalysis().fit(D)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"correction": "benzekri"}, "correction must be"),
        ({"unknown": "drop"}, "unknown must be"),
        ({"n_components": 17}, r"in 1\.\.16"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ss.MultipleCorrespondenceAnalysis(**settings).fit(people())
    with pytest.raises(ValueError, match="at least 2 columns"):
        ss.MultipleCorrespondenceAnalysis(correction="benzecri").fit(people()[["town"]])


@pytest.mark.parametrize("correction", [None, "benzecri", "greenacre"])
def test_equals_prince(correction):
    prince = pytest.importorskip("prince")
    X = people()
    k = 3 if correction != "benzecri" else 11  # its percentages there are of the components asked for
    theirs = prince.MCA(n_components=k, correction=correction, engine="scipy").fit(X)
    ours = ss.MultipleCorrespondenceAnalysis(k, correction=correction).fit(X)
    assert ours.eigenvalues_ == pytest.approx(theirs.eigenvalues_, abs=1e-8)
    assert ours.percentage_of_variance_ == pytest.approx(theirs.percentage_of_variance_, abs=1e-6)
    for name in ("row_coordinates", "column_coordinates"):
        found, want = getattr(ours, name)(X).iloc[:, :3], getattr(theirs, name)(X).iloc[:, :3]
        turn = np.sign((found * want.to_numpy()).sum())
        np.testing.assert_allclose(found * turn.to_numpy(), want, atol=1e-8)
        assert list(found.index) == list(want.index)
    np.testing.assert_allclose(
        ours.row_cosine_similarities(X).iloc[:, :3], theirs.row_cosine_similarities(X).iloc[:, :3], atol=1e-8
    )


@pytest.mark.long
@parametrize_with_checks([ss.MultipleCorrespondenceAnalysis(n_components=2)])
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)
