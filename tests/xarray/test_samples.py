"""What is known of samples is removed without a copy: months, trends, indices; and comes back in reconstructions."""

from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.xarray import coupled, extended, hilbert, joint, patterns, pca, project, reconstruct, rotate
from tests.support.fields import MONTHS, monthly, with_gaps

xarray = pytest.importorskip("xarray")


def anomalies(da: Any) -> Any:
    """The field less the mean of its month, by xarray."""
    return da.groupby("time.month") - da.groupby("time.month").mean()


@pytest.mark.filterwarnings("ignore:Degrees of freedom")  # xarray's own, of cells that are always missing
@pytest.mark.parametrize("chunks", [None, {"time": 40, "lat": 3}])
@pytest.mark.parametrize("standardize", [False, True])
def test_months_are_removed_as_xarray_does(chunks: Any, standardize: bool) -> None:
    if chunks is not None:
        pytest.importorskip("dask.array")
    da = monthly(season=5)
    want = pca(anomalies(da), 3, standardize=standardize, weights="coslat")
    eofs = pca(
        da if chunks is None else da.chunk(chunks), 3, groups="time.month", standardize=standardize, weights="coslat"
    )
    np.testing.assert_allclose(eofs.explained_variance, want.explained_variance, rtol=1e-9)
    np.testing.assert_allclose(eofs.scores, want.scores, atol=1e-4)
    np.testing.assert_allclose(eofs.standard_deviation, anomalies(da).std("time", ddof=1), rtol=1e-9)
    np.testing.assert_allclose(eofs.group_means, da.groupby("time.month").mean(), rtol=1e-9)
    assert eofs.group_means.dims == ("group", "lat", "lon")
    assert eofs.groups.values.tolist() == da.time.dt.month.values.tolist()


def test_groups_are_matched_by_their_labels() -> None:
    da = monthly(season=5)
    want = pca(da, 2, groups="time.month")
    labels = da.time.dt.month.isel(time=np.random.default_rng(0).permutation(MONTHS))
    for groups in (labels, labels.drop_vars("time").copy(data=da.time.dt.month.values), da.time.dt.month.values):
        xarray.testing.assert_allclose(pca(da, 2, groups=groups).drop_attrs(), want.drop_attrs())
    named = da.assign_coords(phase=("time", np.array(["dry", "wet", "dry"] * (MONTHS // 3))))
    assert pca(named, 2, groups="phase").group.values.tolist() == ["dry", "wet"]
    with pytest.raises(
        ValueError,
        match=r"one value for each label of da along time, got none or several for 3 labels, such as 2001-01",
    ):
        pca(da, 2, groups=labels.sortby("time")[3:])
    with pytest.raises(
        ValueError,
        match=r'groups must be the name of a coordinate, or of a part .* such as "time.month", got',
    ):
        pca(da, 2, groups="time.moon")
    with pytest.raises(ValueError, match="groups must have only dimensions of the samples"):
        pca(da, 2, groups=da.lat)
    with pytest.raises(
        ValueError, match=r"groups must have one value for each sample, shape \(96,\), got shape \(5,\)"
    ):
        pca(da, 2, groups=np.arange(5))
    with pytest.raises(ValueError, match="groups must have a label for every sample, got 1 missing label"):
        pca(da, 2, groups=labels.where(labels.time != labels.time[0]))


def test_a_trend_and_an_index_are_removed_as_by_regression() -> None:
    da = monthly(season=5, trend=2e-3)
    index = xarray.DataArray(np.sin(np.arange(MONTHS) / 5), {"time": da.time}, "time", "nino")
    eofs = pca(da, 3, covariates=["time", index[::-1]], groups="time.month")
    assert eofs.covariate.values.tolist() == ["time", "nino"]
    months = (da.time.dt.month.values[:, None] == np.arange(1, 13)) * 1.0
    days = (da.time.values - da.time.values[0]) / np.timedelta64(1, "D")
    D = np.column_stack([months, days, index])
    X = da.values.reshape(MONTHS, -1)
    X = X[:, ~np.isnan(X[0])]
    coefficients = np.linalg.lstsq(D, X, rcond=None)[0]
    S = np.linalg.svd(X - D @ coefficients, compute_uv=False)[:3]
    np.testing.assert_allclose(eofs.singular_values, S, rtol=1e-6)
    slopes = eofs.slopes.values.reshape(2, -1)
    np.testing.assert_allclose(slopes[:, ~np.isnan(slopes[0])], coefficients[12:], rtol=1e-6, atol=1e-9)


def test_what_was_removed_comes_back() -> None:
    da = monthly(season=5, trend=2e-3)
    eofs = pca(da, 74, groups="time.month", covariates={"trend": "time"}, weights="coslat")
    xarray.testing.assert_allclose(reconstruct(eofs), da, rtol=1e-9)
    assert reconstruct(eofs).attrs == da.attrs
    assert reconstruct(eofs).name == "sst"
    later = eofs.scores.isel(time=[90, 3])
    xarray.testing.assert_allclose(reconstruct(eofs, later), da.isel(time=[90, 3]), rtol=1e-9)
    xarray.testing.assert_allclose(reconstruct(eofs, eofs.scores.isel(time=7)), da.isel(time=7), rtol=1e-9)
    assert float(abs(reconstruct(eofs, modes=[]) - da).max()) < 20


def test_new_samples_lose_the_mean_of_their_month_and_the_trend() -> None:
    da = monthly(season=5, trend=2e-3)
    first, last = da[:72], da[72:]
    eofs = pca(first, 3, groups="time.month", covariates="time", weights="coslat")
    xarray.testing.assert_allclose(project(eofs, first), eofs.scores)
    scores = project(eofs, last)
    left = reconstruct(eofs, scores) - last
    assert float((left**2).mean()) < 0.5
    labels = first.time.dt.month.values
    unnamed = pca(first, 3, groups=labels)
    with pytest.raises(
        ValueError, match=r"for each label of da along time, got none or several for 24 labels, such as \S+ \S+\.$"
    ):
        project(unnamed, last)
    xarray.testing.assert_allclose(
        project(unnamed, last, groups=last.time.dt.month.values), project(pca(first, 3, groups="time.month"), last)
    )
    with pytest.raises(ValueError, match="groups has labels that did not occur in the training data: 13"):
        project(unnamed, last, groups=last.time.dt.month.values + 1)
    with pytest.raises(ValueError, match="The fit had no covariates"):
        project(unnamed, first, covariates="time")


def test_members_share_the_months_of_their_time() -> None:
    da = monthly(season=5)
    members = xarray.concat([da, da + 1, monthly(1, season=5)], "member")
    eofs = pca(members, 3, dim=("member", "time"), groups="time.month")
    want = members.groupby("time.month") - members.groupby("time.month").mean(("member", "time"))
    np.testing.assert_allclose(
        eofs.explained_variance, pca(want, 3, dim=("member", "time")).explained_variance, rtol=1e-9
    )
    assert eofs.groups.dims == ("member", "time")
    xarray.testing.assert_allclose(project(eofs, members[:, ::-1]), eofs.scores[..., ::-1])


def test_a_share_of_the_variance_is_exceeded_by_the_fewest_modes() -> None:
    da = monthly(season=5)
    for groups in (None, "time.month"):
        eofs = pca(da, 0.9, groups=groups)
        ratio = eofs.explained_variance_ratio
        assert float(ratio.sum()) > 0.9 >= float(ratio[:-1].sum())
        assert eofs.mode.values.tolist() == list(range(1, len(ratio) + 1))
    with pytest.raises(ValueError, match=r"For a share of the variance, pass a number in \(0, 1\)"):
        pca(da, 1.5)


def test_covariates_that_cannot_be_are_refused() -> None:
    da = monthly()
    with pytest.raises(ValueError, match="covariates must be finite, got 1 NaN or infinite value in 'covariate'"):
        pca(da, 2, covariates=np.where(np.arange(MONTHS) == 5, np.nan, 1.0))
    with pytest.raises(
        ValueError, match=r"covariates must be numbers or times, but 'covariate' has dtype <U1. Pass labels as groups"
    ):
        pca(da, 2, covariates=np.array(["a", "b"] * (MONTHS // 2)))
    with pytest.raises(ValueError, match="center=False conflicts with groups"):
        pca(da, 2, center=False, groups="time.month")
    with pytest.raises(ValueError, match="covariates must have unique names, got 'time' twice"):
        pca(da, 2, covariates=["time", da.time])
    with pytest.raises(ValueError, match="groups has a different label for each of the 96 samples"):
        pca(da, 2, groups="time")


def test_covariates_are_given_as_people_have_them() -> None:
    da, numbers = monthly(), np.random.default_rng(0).standard_normal((MONTHS, 2))
    want = pca(da, 2, covariates={"a": numbers[:, 0], "b": numbers[:, 1]})
    both = xarray.Dataset({name: ("time", column) for name, column in zip("ab", numbers.T, strict=True)})
    for given in (numbers, list(numbers.T), both, [both.a, both.b]):
        np.testing.assert_allclose(pca(da, 2, covariates=given).scores, want.scores, atol=1e-8)
    assert pca(da, 2, covariates=numbers).covariate.values.tolist() == ["covariate 1", "covariate 2"]
    assert pca(da, 2, covariates=numbers[:, 0].tolist()).covariate.values.tolist() == ["covariate"]
    mixed = np.array(["a", 1, "b", 2] * (MONTHS // 4), object)
    assert pca(da, 2, groups=mixed).group.values.tolist() == [1, 2, "a", "b"]


def test_units_and_names_are_kept_through() -> None:
    da = monthly(season=5)
    for eofs in (pca(da, 2, groups="time.month", weights="coslat"), pca(with_gaps(da, 0.1), 2, missing="mean")):
        assert eofs.mean_field.attrs == da.attrs
        assert eofs.scores.attrs["units"] == eofs.standard_deviation.attrs["units"] == "K"
        assert eofs.explained_variance.attrs["units"] == "(K)^2"
        assert eofs.components.attrs == {"long_name": "EOFs of sea surface temperature", "units": "1"}
        assert reconstruct(eofs, modes=1).attrs == da.attrs
        assert project(eofs, da).attrs == eofs.scores.attrs
    assert eofs.lat.attrs == da.lat.attrs
    assert pca(da, 2, standardize=True).scores.attrs["units"] == "1"
    plain = pca(da, 2, weights=np.ones((8, 10)))
    unitless = pca(da.drop_attrs(deep=False), 2, standardize=True)
    turned = rotate(plain)
    others = (patterns(plain, "scaled"), patterns(unitless), reconstruct(unitless), turned.duals, turned.structure)
    for maps in (plain.scores, *others):  # whose units are not known
        assert "units" not in maps.attrs


def test_fields_are_made_of_chosen_modes() -> None:
    da = monthly()
    eofs = pca(da, 4)
    for modes in (2, [1, 3], slice(2, 4)):
        chosen = eofs.scores.sel(mode=modes if not isinstance(modes, int) else [modes])
        xarray.testing.assert_allclose(reconstruct(eofs, modes=modes), reconstruct(eofs, chosen))
    with pytest.raises(ValueError, match=r"modes must be modes of eofs \(1, 2, 3 and 1 more\), got mode 5"):
        reconstruct(eofs, modes=[1, 5])


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_truth_values_are_told_and_written(tmp_path: Any, engine: Any) -> None:
    if engine == "h5netcdf":
        pytest.importorskip("h5netcdf")
    eofs = pca(monthly(season=5), 2, groups="time.month", covariates="time")
    assert eofs.attrs["converged"] is None
    eofs.to_netcdf(tmp_path / "exact.nc", engine=engine)
    with xarray.open_dataset(tmp_path / "exact.nc", engine=engine) as again:
        assert "converged" not in again.attrs
    eofs = pca(monthly(season=5), 2, groups="time.month", covariates="time", solver="gram")
    assert eofs.attrs["converged"] is True
    eofs.isel(time=slice(50)).to_netcdf(tmp_path / "eofs.nc", engine=engine)
    with xarray.open_dataset(tmp_path / "eofs.nc", engine=engine) as again:
        assert again.attrs["converged"] == 1
        assert again.attrs["missed_below"] == eofs.attrs["missed_below"]
        np.testing.assert_array_equal(again.value_errors, eofs.value_errors)
        np.testing.assert_allclose(project(again, monthly(season=5)), eofs.scores)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", ["exact", "randomized", "gram", "lanczos"])
def test_accuracy_is_that_of_a_fit_of_the_matrix(solver: Any) -> None:
    da = monthly()
    X = da.stack(cell=("lat", "lon")).dropna("cell").values
    for certify in (False, True):
        info = ss.svd(ss.centered(X), 3, solver=solver, tol=1e-6, certify=certify, rng=0).info
        modes = [
            pca(da, 3, solver=solver, certify=certify, rng=0),
            hilbert(da, 3, solver=solver, certify=certify, rng=0),
        ]
        modes += [extended(da, 3, lags=2, solver=solver, certify=certify, rng=0)]
        modes += [joint([da, da.rename("b")], 3, solver=solver, certify=certify, rng=0)]
        modes += [coupled(da, da, 3, solver=solver, certify=certify, rng=0)]
        assert {eofs.attrs["converged"] for eofs in modes} == {info.converged}
        for eofs in modes:
            assert ("value_errors" in eofs) == (info.value_errors is not None)
            assert ("missed_below" in eofs.attrs) == (info.missed_below is not None)
            if "value_errors" in eofs:
                assert eofs.value_errors.dims == eofs.vector_errors.dims == ("mode",)
        if certify:
            np.testing.assert_allclose(modes[0].attrs["missed_below"], info.missed_below, rtol=1e-6)
            turned = rotate(modes[0], 2)  # the bounds are those of other modes
            assert "value_errors" not in turned
            assert "missed_below" not in turned.attrs
    both = coupled(da, da, 2, method="cca", leading=3, solver=solver, rng=0)
    assert both.attrs["converged"] == (None if solver in ("exact", "randomized") else True)
    assert "value_errors" not in both


@pytest.mark.parametrize(("extra", "want"), [({}, "K day-1"), ({"index": np.sin(np.arange(MONTHS))}, None)])
def test_slopes_of_dates_are_per_day(extra: Any, want: str | None) -> None:
    da = monthly(trend=1e-3).assign_attrs(units="K")
    assert pca(da, 2, covariates={"time": "time"} | extra).slopes.attrs.get("units") == want
    assert pca(da, 2, covariates={"index": np.sin(np.arange(MONTHS))}).slopes.attrs["units"] == "K"


def test_months_that_are_labelled_with_other_days_are_told_how_to_match() -> None:
    da = monthly()
    first = da.resample(time="MS").mean()
    told = r'apply resample\(time="MS"\).mean\(\) to both'
    with pytest.raises(ValueError, match=f"no label along time is common: .*{told}"):
        joint({"a": da, "b": first}, 2)
    with pytest.raises(ValueError, match=f"none or several for 96 labels, such as .*{told}"):
        pca(da, 2, covariates=first[:, 5, 5])
    pca(first, 2, covariates=first[:, 5, 5])


@pytest.mark.filterwarnings("ignore:.* samples along .* have values")
@pytest.mark.parametrize("chunks", [None, {"time": 20}])
@pytest.mark.parametrize("labels", ["time.year", "names"])
def test_samples_without_values_need_no_group_and_no_covariate(labels: str, chunks: Any) -> None:
    """A year without values has no mean, and an index may be shorter than the field."""
    if chunks is not None:
        pytest.importorskip("dask.array")
    da = monthly()
    lost = da.time.dt.year == da.time.dt.year[-1]
    index = xarray.DataArray(np.sin(np.arange(MONTHS)), {"time": da.time}).where(~lost)
    groups = labels if labels == "time.year" else np.array(list("abcdefgh"))[da.time.dt.year.values % 8]
    da, values = da.where(~lost) if chunks is None else da.where(~lost).chunk(chunks), da
    eofs = pca(da, 2, groups=groups, covariates={"index": index})
    xarray.testing.assert_allclose(project(eofs, da), eofs.scores)
    np.testing.assert_array_equal(reconstruct(eofs)[-12:].isnull(), True)
    np.testing.assert_allclose(reconstruct(eofs, project(eofs, da)), reconstruct(eofs))
    with pytest.raises(ValueError, match="groups has labels that did not occur in the training data"):
        project(eofs, values, covariates={"index": index.fillna(0)})
    with pytest.raises(ValueError, match="covariates must be finite, got 12 NaN or infinite values in 'index'"):
        project(eofs, values)


def test_times_whose_names_have_spaces_are_dates() -> None:
    da = monthly(trend=5e-3).rename(time="the time")
    eofs = pca(da, 2, dim="the time", covariates="the time")
    assert float(abs(reconstruct(eofs) - da).mean()) < 1
    xarray.testing.assert_allclose(project(eofs, da), eofs.scores)
    eofs.covariates.attrs["dates"] = "time"  # as in files of the first versions
    renamed = eofs.rename({"the time": "time"}).assign_coords(covariate=["time"])
    np.testing.assert_allclose(project(renamed, da.rename({"the time": "time"})), eofs.scores)
