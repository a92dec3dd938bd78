"""Fields with gaps: what stands for missing values, how well it does, in memory and over Dask."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import decomposition

import shiftsvd as ss
from shiftsvd.runs.messages import Notice
from shiftsvd.xarray import bootstrap, joint, patterns, pca, project, reconstruct, rotate, side
from tests.support.fields import MONTHS, monthly, red, with_gaps

xarray = pytest.importorskip("xarray")


def in_columns(da: Any) -> Any:
    """Months x cells that have values."""
    X = da.values.reshape(MONTHS, -1)
    return X[:, ~np.isnan(X).all(axis=0)]


def test_missing_values_without_an_anomaly_are_those_of_pca() -> None:
    da = with_gaps(monthly(), 0.2)
    eofs = pca(da, 3, missing="mean")
    model = ss.PCA(3, missing="mean", tol=1e-9, random_state=0).fit(in_columns(da))
    np.testing.assert_allclose(eofs.explained_variance, model.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(eofs.explained_variance_ratio, model.explained_variance_ratio_, rtol=1e-6)
    assert eofs.attrs["n_missing"] == np.isnan(in_columns(da)).sum()
    np.testing.assert_array_equal(np.isnan(eofs.components[0]), np.isnan(da).all("time"))
    np.testing.assert_allclose(eofs.mean_field, da.mean("time"), rtol=1e-12)


def test_missing_values_are_counted_in_the_samples_that_all_fields_have() -> None:
    da = with_gaps(monthly(), 0.2)
    pair = {"a": da, "b": da.where(da.time != da.time[5])}
    with pytest.warns(UserWarning, match="95 of 96 samples along time have values in all fields"):
        counted = joint(pair, 2, missing="mean", rng=0).attrs
    want = np.isnan(in_columns(da)[np.arange(MONTHS) != 5]).sum()
    assert counted["n_missing_a"] == counted["n_missing_b"] == want


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_a_model_of_the_gaps_finds_the_field_beneath_them(share: float) -> None:
    whole = monthly()
    eofs = pca(with_gaps(whole, share), 3, missing="em", solver="gram", rng=0)
    gone = np.isnan(with_gaps(whole, share)) & whole.notnull()
    left = (reconstruct(eofs) - whole).where(gone)
    by_mean = (with_gaps(whole, share).mean("time") - whole).where(gone)
    assert float((left**2).mean()) < 0.12 * float((by_mean**2).mean())
    assert 0.85 < eofs.attrs["heldout_r2"] < 1
    np.testing.assert_allclose(eofs.explained_variance, pca(whole, 3).explained_variance, rtol=0.15)
    assert eofs.attrs["converged"] is True


@pytest.mark.parametrize("chunks", [None, {"time": 12}])
def test_values_held_out_are_not_in_the_means_of_their_groups(chunks: Any) -> None:
    """Of three years: 0.66 of the squares of the gaps, where means with the held-out values find 0.81."""
    if chunks is not None:
        pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    time = xarray.date_range("2000-01-01", periods=36, freq="MS")
    values = red((36, 2), 0.9, rng) * [3, 1.5] @ rng.standard_normal((2, 300)) + 0.3 * rng.standard_normal((36, 300))
    whole = xarray.DataArray(values, {"time": time}, ("time", "cell"))
    da = with_gaps(whole, 0.3)
    eofs = pca(da if chunks is None else da.chunk(chunks), 2, missing="em", groups="time.month", rng=0)
    gone, months = da.isnull() & reconstruct(eofs).notnull(), whole.groupby("time.month")
    left, by_mean = (whole - reconstruct(eofs)).where(gone), (months - da.groupby("time.month").mean()).where(gone)
    true = 1 - float((left**2).sum() / (by_mean**2).sum())
    assert eofs.attrs["heldout_r2"] == pytest.approx(true, abs=0.05)


def test_weights_and_deviations_count_in_what_stands_for_gaps() -> None:
    """The field of one unit a cell: a model of its own numbers would be of the loud cells alone."""
    loud = xarray.where(monthly().lon > 200, 1e3, 1.0)
    whole = monthly()
    da = with_gaps(whole, 0.3)
    quiet, plain = (
        pca((da - 290) * loud, 3, standardize=True, missing="em", rng=0),
        pca(da - 290, 3, standardize=True, missing="em", rng=0),
    )
    np.testing.assert_allclose(quiet.explained_variance, plain.explained_variance, rtol=1e-3)
    np.testing.assert_allclose(reconstruct(quiet) / loud, reconstruct(plain), atol=5e-3)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("missing", ["mean", "em"])
@pytest.mark.parametrize("held", [True, False])
def test_chunked_fields_with_gaps_give_the_same(missing: Any, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask.array")
    da = with_gaps(monthly(), 0.3)
    settings = {"missing": missing, "groups": "time.month", "weights": "coslat", "rng": 0}
    if missing == "em":
        settings |= {"penalty": 5.0}
    eofs = pca(da, 2, **settings)
    if not held:
        monkeypatch.setattr("shiftsvd.xarray.anomalies.spare", lambda needed, memory_limit: False)
    chunked = pca(da.chunk({"time": 40, "lat": 3}), 2, **settings)
    np.testing.assert_allclose(chunked.explained_variance, eofs.explained_variance, rtol=1e-3)
    np.testing.assert_allclose(chunked.components, eofs.components, atol=5e-3)
    np.testing.assert_allclose(chunked.group_means, eofs.group_means, atol=2e-2)
    found = project(eofs, da.chunk({"time": 50}))
    np.testing.assert_allclose(found, eofs.scores, atol=1e-6)


def test_lazy_gaps_are_those_of_the_array() -> None:
    dask_array = pytest.importorskip("dask.array")
    from shiftsvd.missing.gaps import gaps_of
    from shiftsvd.missing.lazy import LazyGaps

    rng = np.random.default_rng(0)
    X = np.where(rng.random((30, 20)) < 0.3, np.nan, rng.standard_normal((30, 20)))
    lazy, held = LazyGaps(dask_array.from_array(X, chunks=(7, 6))), gaps_of(X)
    S = ss.LowRank(rng.standard_normal((30, 2)), rng.standard_normal((20, 2)))
    W = rng.standard_normal((20, 3))
    i, j = np.array([0, 3, 29, 8]), np.array([1, 19, 5, 6])
    for a, b in ((lazy, held), (lazy.without(i, j), held.without(i, j))):
        np.testing.assert_allclose(a.filled(S).matmat(W), b.filled(S).matmat(W), rtol=1e-12)
        np.testing.assert_allclose(a.residual(S).matmat(W), b.residual(S).matmat(W), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(a.absent(W, (3, 17)), b.absent(W, (3, 17)), rtol=1e-12)
        np.testing.assert_array_equal(a.observed()[0], b.observed()[0])
        np.testing.assert_array_equal(a.observed()[1], b.observed()[1])
        np.testing.assert_array_equal(a.at(i, j), b.at(i, j))
    assert all(
        np.array_equal(*pair)
        for pair in zip(*(gaps.hide(np.random.default_rng(1))[1:] for gaps in (lazy, held)), strict=True)
    )
    assert [hi - lo for lo, hi in lazy.row_blocks()] == [7, 7, 7, 7, 2]


def test_new_samples_with_gaps_are_treated_as_those_of_the_fit() -> None:
    whole = monthly(noise=0.05)
    for missing in ("mean", "em"):
        eofs = pca(with_gaps(whole, 0.2), 3, missing=missing, rng=0)
        xarray.testing.assert_allclose(project(eofs, with_gaps(whole, 0.2)), eofs.scores, atol=1e-8)
        assert np.isnan(project(eofs, with_gaps(whole, 0.2).where(whole.time != whole.time[3]))[:, 3]).all()
    complete = project(eofs, whole)
    some = project(eofs, with_gaps(whole, 0.7, 5))
    assert float(abs(some - complete).max()) < 0.2 * float(abs(complete).max())
    with pytest.raises(
        ValueError, match=r'must have values in all cells.* values are missing\. Fill .*\(in pca also "em"\)'
    ):
        project(pca(whole, 3), with_gaps(whole, 0.2))
    ice = (whole.time.dt.month == 4) & (whole.lat < 0) & (whole.lon > 200)
    cold = pca(whole.where(~ice), 3, missing="em", groups="time.month", penalty=5.0, rng=0)
    with pytest.raises(
        ValueError,
        match=r'but no mean is known for 128 values: .* with missing="em" before their rotation',
    ):
        project(rotate(cold), whole)
    pair = side(joint([whole.where(~ice), whole.rename("t")], 2, missing={"sst": "em"}, rng=0), "sst")
    with pytest.raises(
        ValueError, match=r'but \d+ values are missing.* or fit with missing="mean": after "em" only modes'
    ):
        project(pair, whole.where(~ice))


def test_groups_and_covariates_of_gaps_are_fitted_to_what_is_there() -> None:
    da = with_gaps(monthly(season=5, trend=1e-3), 0.4)
    index = np.sin(np.arange(MONTHS) / 5)
    eofs = pca(da, 2, missing="mean", groups="time.month", covariates={"time": "time", "index": index})
    lat, lon = 5, 7
    months = da.time.dt.month.values
    one_hot = (months[:, None] == np.arange(1, 13)) * 1.0
    days = (da.time.values - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    D = np.column_stack([one_hot, days - days.mean(), index - index.mean()])
    x = da[:, lat, lon].values
    here = ~np.isnan(x)
    want = np.linalg.lstsq(D[here], x[here], rcond=None)[0]
    np.testing.assert_allclose(eofs.group_means[:, lat, lon], want[:12], rtol=1e-9)
    np.testing.assert_allclose(eofs.slopes[:, lat, lon], want[12:], rtol=1e-7)


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_a_trend_of_gaps_is_taken_from_new_samples_as_from_those_of_the_fit(missing: Any) -> None:
    da = with_gaps(monthly(trend=5e-3, noise=0.1), 0.4)
    eofs = pca(da, 3, missing=missing, covariates="time", rng=0)
    xarray.testing.assert_allclose(project(eofs, da), eofs.scores, atol=1e-8)


@pytest.mark.parametrize("chunks", [None, {"time": 40, "lat": 3}])
@pytest.mark.parametrize("missing", ["mean", "em"])
def test_a_month_that_a_cell_never_saw_has_no_mean(missing: Any, chunks: Any) -> None:
    if chunks is not None:
        pytest.importorskip("dask.array")
    whole = monthly(season=5)
    ice = (whole.time.dt.month == 4) & (whole.lat < 0) & (whole.lon > 200)
    settings = {"missing": missing, "groups": "time.month", "rng": 0} | ({"penalty": 5.0} if missing == "em" else {})
    da = whole.where(~ice) if chunks is None else whole.where(~ice).chunk(chunks)
    eofs = pca(da, 2, **settings)
    land = whole.isnull().all("time")
    april = eofs.group_means.sel(group=4)
    np.testing.assert_array_equal(np.isnan(april), land | ((da.lat < 0) & (da.lon > 200)))
    np.testing.assert_array_equal(np.isnan(eofs.group_means.sel(group=5)), land)
    for scores in (None, project(eofs, da)):
        np.testing.assert_array_equal(np.isnan(reconstruct(eofs, scores)), (ice | land).transpose("time", "lat", "lon"))
    xarray.testing.assert_allclose(project(eofs, da), eofs.scores, atol=1e-8)
    # A value in such a month is not compared with the mean of other months.
    warm = whole.where(~ice, 400) if chunks is None else whole.where(~ice, 400).chunk(chunks)
    xarray.testing.assert_allclose(project(eofs, warm), eofs.scores, atol=1e-8)
    assert bootstrap(eofs, da, 3, rng=0).component_error.notnull().any()


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_slopes_that_a_cell_does_not_determine_are_counted(missing: Any) -> None:
    da = with_gaps(monthly(), 0.2)
    late = np.arange(MONTHS) > 40
    da[:, 5, 6] = da[:, 5, 6].where(xarray.DataArray(~late, dims="time"))
    step = {"step": late * 1.0, "index": np.sin(np.arange(MONTHS))}
    with pytest.warns(UserWarning, match="Covariate 'step' does not vary.* over the values of 1 of 74 cells") as told:
        eofs = pca(da, 2, missing=missing, covariates=step, rng=0, **({"penalty": 5.0} if missing == "em" else {}))
    assert len(told) == 1
    assert float(eofs.slopes[0, 5, 6]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_no_correlation_with_a_field_with_gaps_is_above_one(missing: Any) -> None:
    for seed in range(3):
        settings = {"penalty": 2.0} if missing == "em" else {}
        eofs = pca(with_gaps(monthly(seed)[:36], 0.7, seed), 4, missing=missing, rng=0, **settings)
        assert float(abs(patterns(eofs, "correlation")).max()) <= 1 + 1e-9


def test_what_cannot_be_of_gaps_is_refused() -> None:
    da = with_gaps(monthly(), 0.1)
    with pytest.raises(
        ValueError,
        match=r'missing values in .* cells, which have values in other samples.* or use missing="mean" or "em"',
    ):
        pca(da)
    with pytest.raises(ValueError, match='missing must be "error", "mean" or "em"'):
        pca(da, missing="drop")
    with pytest.raises(ValueError, match=r'n_modes must be an integer with missing="em", got 0\.9'):
        pca(da, 0.9, missing="em")
    with pytest.raises(ValueError, match='penalty and max_iter require missing="em"'):
        pca(da, missing="mean", penalty=1.0)
    with pytest.raises(ValueError, match="center=False conflicts with groups"):
        pca(da, missing="mean", center=False)
    with pytest.raises(ValueError, match="anomalies of a field with gaps needs about"):
        pca(da, missing="mean", memory_limit=10_000)


@pytest.mark.parametrize("missing", ["mean", "em"])
@pytest.mark.parametrize("groups", [None, "time.month"])
def test_cells_with_a_single_value_are_told_and_have_no_anomaly(missing: Any, groups: Any) -> None:
    da = with_gaps(monthly(), 0.3)
    first = da.isel(lat=5, lon=6).dropna("time").time[[0, 1]]
    da[:, 5, 6] = da.isel(lat=5, lon=6).where(da.time.isin(first if groups else first[:1]))  # of two months
    with pytest.warns(UserWarning, match="Cells of sst with no more values than .*: 1 of 74"):
        eofs = pca(da, 2, missing=missing, groups=groups, rng=0)
    assert abs(eofs.components[:, 5, 6]).max() == 0
    left = (reconstruct(eofs) - da)[:, 5, 6]
    assert float(abs(left).max()) < 1e-9 * 300


def test_deviations_of_a_field_with_gaps_are_those_of_its_values() -> None:
    values = np.random.default_rng(0).standard_normal((12, 3, 4))
    values[2, 1, 1] = values[5, 0, 3] = np.nan
    eofs = pca(xarray.DataArray(values, dims=("time", "lat", "lon")), 1, missing="mean")
    np.testing.assert_allclose(eofs.standard_deviation, np.nanstd(values, axis=0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize("fill", [1e20, -999.0, 9.96921e36])
def test_land_of_a_fill_value_that_no_attribute_names_is_told(fill: float) -> None:
    da = monthly().astype(np.float32)
    with pytest.warns(Notice, match=rf"6 of 80 cells of sst hold a usual fill value .*{abs(fill):g}".replace("+", ".")):
        pca(da.fillna(np.float32(fill)), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pca(da.fillna(270.0), 2)


def test_the_variance_of_the_noise_is_that_of_the_filled_field() -> None:
    da = with_gaps(monthly(), 0.2)
    eofs = pca(da, 3, missing="mean")
    X = in_columns(da)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    exact = decomposition.PCA(3, svd_solver="full").fit(filled).noise_variance_
    assert eofs.attrs["noise_variance"] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_deviations_too_small_for_single_precision_are_refused(share: float) -> None:
    da = with_gaps(monthly() - 290, share) * 1e-41
    with pytest.raises(ValueError, match=r"must be at most 3\.4e\+38 in the precision of the field, got .* da\.astype"):
        pca(da.astype(np.float32), 2, missing="mean", standardize=True)
    assert np.isfinite(pca(da, 2, missing="mean", standardize=True).scores).all()


@pytest.mark.parametrize("chunks", [None, {"time": 20}])
@pytest.mark.parametrize("times", [1e-25, 1e25])
def test_squares_of_single_precision_neither_underflow_nor_overflow(times: float, chunks: Any) -> None:
    if chunks is not None:
        pytest.importorskip("dask.array")
    da = with_gaps(monthly() - 290, 0.2)
    small = (da * times).astype(np.float32)
    small = small if chunks is None else small.chunk(chunks)
    eofs, want = pca(small, 2, missing="mean", standardize=True), pca(da, 2, missing="mean", standardize=True)
    np.testing.assert_allclose(eofs.standard_deviation, want.standard_deviation * times, rtol=1e-4)
    np.testing.assert_allclose(eofs.singular_values, want.singular_values, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("settings", [{}, {"groups": np.arange(MONTHS) % 3}, {"covariates": np.arange(MONTHS) * 1.0}])
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_rounding_of_cells_that_do_not_vary_is_not_standardized(gaps: float, settings: Any, dtype: Any) -> None:
    da = monthly()
    da[:, 5, 6], da[:, 6, 6], da[:, 7, 6] = 280.3, 0.1, 1 / 3
    if "groups" in settings:
        da[:, 4, 4] = np.array([0.1, 280.3, 1 / 3])[settings["groups"]]
    eofs = pca(with_gaps(da.astype(dtype), gaps), 3, missing="mean", standardize=True, **settings)
    cells = [(5, 6), (6, 6), (7, 6), *([(4, 4)] if "groups" in settings else [])]
    for lat, lon in cells:
        assert float(eofs.weights[lat, lon]) == 1
        assert float(eofs.standard_deviation[lat, lon]) == 0
        assert patterns(eofs, "correlation")[:, lat, lon].isnull().all()
    assert float(abs(eofs.components[:, 5:, 6]).max()) < 1e-9


def test_cells_whose_covariate_does_not_vary_have_anomalies() -> None:
    da = monthly()
    da[:, 5, 6] = da[:, 5, 6].where(xarray.DataArray(np.arange(MONTHS) < 2, dims="time"))
    step = {"step": (np.arange(MONTHS) > 40) * 1.0}
    with pytest.warns(UserWarning, match="does not vary") as told:
        eofs = pca(da, 2, missing="mean", covariates=step)
    assert len(told) == 1  # no notice of anomalies of 0
    assert float(eofs.standard_deviation[5, 6]) == pytest.approx(float(da[:, 5, 6].std(ddof=1)))
