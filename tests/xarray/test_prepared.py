"""Pairs, several fields, lags and travelling waves of fields with gaps, seasons and trends: prepared as for `pca`."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.xarray import (
    bootstrap,
    coupled,
    extended,
    hilbert,
    joint,
    north,
    patterns,
    pca,
    project,
    reconstruct,
    rotate,
    side,
)
from tests.support.fields import monthly, with_gaps
from tests.support.sampling import in_turn

xarray = pytest.importorskip("xarray")


KNOWN: Any = {"groups": "time.month", "covariates": "time"}


def other(da: Any) -> Any:
    """A second field that shares the series of the first, on fewer latitudes."""
    return (da.sel(lat=monthly().lat[1:6]) * 2 - 100).rename("slp")


def of_two(method: Any) -> Any:
    """The search for pairs of a field and another one, whose names begin with x."""
    return lambda da, *rest, **how: side(coupled(da, *(rest or [other(da)]), 3, method=method, leading=4, **how), "x")


CALLS: dict[str, Any] = {
    "mca": of_two("mca"),
    "cca": of_two("cca"),
    "joint": lambda da, *rest, **how: side(joint([da, *(rest or [other(da)])], 3, **how), "sst"),
    "hilbert": lambda da, *_, **how: hilbert(da, 3, **how),
    "extended": lambda da, *_, **how: extended(da, 3, lags=4, **how),
}


@pytest.fixture(params=list(CALLS))
def call(request: Any) -> Any:
    """One of the searches for modes, of a field and perhaps another one."""
    return CALLS[request.param]


def cleared(da: Any, index: Any = None) -> Any:
    """What a regression on months, and the time or an index, leaves of every cell, formed."""
    X = da.values.reshape(da.sizes["time"], -1)
    days = (da.time.values - da.time.values[0]) / np.timedelta64(1, "D")
    months = da.time.dt.month.values[:, None] == np.arange(1, 13)
    D = np.column_stack([months, days if index is None else index]).astype(float)
    return da.copy(data=(X - D @ np.linalg.lstsq(D, np.nan_to_num(X), rcond=None)[0]).reshape(da.shape))


def same_modes(found: Any, exact: Any, rtol: float = 1e-6) -> None:
    """Equal up to a number of size 1 for each mode."""
    for name in ("scores", "components"):
        a, b = (np.nan_to_num(each[name].values).reshape(3, -1) for each in (found, exact))
        turns = np.sum(a * b.conj(), axis=1)
        np.testing.assert_allclose(a, b * (turns / np.abs(turns))[:, None], atol=rtol * np.abs(b).max())


# Fields in chunks here are those of which the test of gaps has whole ones.
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "how"), in_turn(CALLS, [({"time": 40, "lat": 3}, False), (None, True)], 1))
def test_seasons_and_trends_are_removed_as_a_regression_removes_them(name: str, how: tuple[Any, bool]) -> None:
    call, (chunks, standardize) = CALLS[name], how
    da = monthly(season=5, trend=1e-3)
    given = da
    if chunks:
        pytest.importorskip("dask.array")
        given = da.chunk(chunks)
    settings: Any = {"weights": "coslat", "standardize": standardize, "tol": 1e-9, "rng": 0}
    found = call(given, **KNOWN, **settings)
    clear = cleared(da)
    same_modes(found, call(clear, other(clear), **settings), 1e-5)
    assert found.group_means.dims == ("group", "lat", "lon")
    assert found.attrs["groups"] == "time.month"
    removed = pca(da, 2, **KNOWN).sel(time=found.time)
    for name in ("group_means", "slopes", "mean_field", "covariates"):
        xarray.testing.assert_allclose(found[name].drop_vars("lat_x", errors="ignore"), removed[name])


def test_single_fields_have_no_variance_along_their_seasons() -> None:
    # With means of single precision, values of 1e-8 had vectors whose bounds of 1e-4 were wrong.
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((23, 24)) * np.geomspace(1, 1e3, 24) + 1e3).astype(np.float32)
    labels = np.arange(23) % 3
    da = xarray.DataArray(values, dims=("time", "x"))
    eofs = pca(da, 23, groups=labels, standardize=True, solver="lanczos", rng=0)
    assert np.all(eofs.singular_values[:20] > 1e-3)
    assert not eofs.singular_values[20:].any()
    assert np.all(eofs.vector_errors[20:] == 1)


def test_seasons_and_trends_come_back() -> None:
    da = monthly(season=5, trend=1e-3, noise=0)
    pair = coupled(da, other(da), 3, method="cca", leading=3, **KNOWN)
    modes = joint([da, other(da)], 3, **KNOWN)
    travelling = hilbert(da, 6, **KNOWN)
    for eofs in (side(pair, "x"), side(modes, "sst"), travelling):
        xarray.testing.assert_allclose(reconstruct(eofs), da, atol=1e-4)
    for name, field in (("sst", da), ("slp", other(da))):
        back = reconstruct(modes)[name]
        np.testing.assert_allclose(back, field, atol=1e-4)


def test_other_samples_have_their_own_months_and_trends() -> None:
    da = monthly(season=5, trend=1e-3)
    pair, modes = coupled(da, other(da), 3, **KNOWN), joint([da, other(da)], 3, **KNOWN)
    some = slice(5, 31, 3)
    np.testing.assert_allclose(project(side(pair, "y"), other(da)[some]), pair.y_scores[:, some], atol=1e-8)
    both = [da[some], other(da)[some][::-1]]
    np.testing.assert_allclose(project(modes, both), modes.scores[:, some], atol=1e-8)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "chunked"), in_turn(CALLS, [False, True], 1))
def test_missing_values_without_an_anomaly_are_those_of_the_mean(name: str, chunked: bool) -> None:
    call = CALLS[name]
    da = with_gaps(monthly(), 0.2)
    if chunked:
        pytest.importorskip("dask.array")
    given = da.chunk({"time": 40, "lat": 3}) if chunked else da
    found = call(given, missing="mean", weights="coslat", tol=1e-9, rng=0)
    same_modes(found, call(da.fillna(da.mean("time")), weights="coslat", tol=1e-9, rng=0), 1e-5)
    assert found.attrs["missing"] == "mean"
    assert found.attrs["n_missing"] == int((da.isnull() & monthly().notnull()).sum())
    np.testing.assert_array_equal(np.isnan(found.mean_field), np.isnan(monthly()[0]))


@pytest.mark.long
@pytest.mark.parametrize(("name", "chunked"), [*((name, False) for name in CALLS), ("mca", True)])
def test_a_model_of_the_gaps_comes_close_to_the_whole_field(
    name: str, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, call = monthly(season=5, noise=0.1), CALLS[name]
    da = with_gaps(whole, 0.3)
    if chunked:
        pytest.importorskip("dask.array")
        monkeypatch.setattr("shiftsvd.xarray.anomalies.spare", lambda needed, memory_limit: False)
        da = da.chunk({"time": 50, "lat": 4})
    known: Any = {"groups": "time.month", "rng": 0}
    found = call(da, other(with_gaps(whole, 0.3, 5)), missing="em", **known)
    exact, plain = call(whole, **known), call(da, other(da), missing="mean", **known)
    assert found.attrs["heldout_r2"] > 0.8

    def off(eofs: Any) -> float:
        cosines = [np.abs(np.vdot(*(np.nan_to_num(e.components[j].values) for e in (eofs, exact)))) for j in range(2)]
        lengths = [np.linalg.norm(np.nan_to_num(e.components[j])) for e in (eofs, exact) for j in range(2)]
        return 1 - min(np.array(cosines) / (np.array(lengths[:2]) * lengths[2:]))

    assert off(found) < 0.05
    assert off(found) < off(plain)


def test_values_that_stand_for_gaps_are_those_of_pca() -> None:
    da = with_gaps(monthly(), 0.3)
    how: Any = {"missing": "em", "penalty": 3.0, "weights": "coslat"}
    eofs, modes = pca(da, 3, rng=0, tol=1e-9, **how), joint({"sst": da}, 3, normalize=False, rng=0, tol=1e-9, **how)
    np.testing.assert_allclose(modes.explained_variance, eofs.explained_variance, rtol=1e-9)
    xarray.testing.assert_allclose(modes.sst_mean_field, eofs.mean_field)
    assert modes.attrs["heldout_r2_sst"] == pytest.approx(eofs.attrs["heldout_r2"])
    assert modes.attrs["missing_sst"] == "em"


def test_each_side_has_its_own_way_with_gaps() -> None:
    da = monthly()
    pair = coupled(with_gaps(da, 0.2), other(da), 2, missing=("mean", "error"), rng=0)
    assert (side(pair, "x").attrs["missing"], side(pair, "y").attrs["missing"]) == ("mean", "error")
    assert "n_missing" not in side(pair, "y").attrs
    modes = joint([with_gaps(da, 0.2), other(da)], 2, missing={"sst": "mean"}, rng=0)
    xarray.testing.assert_allclose(project(modes, [with_gaps(da, 0.2), other(da)]), modes.scores, atol=1e-8)
    with pytest.raises(ValueError, match="which have values in other samples"):
        coupled(with_gaps(da, 0.2), other(with_gaps(da, 0.2)), 2, missing=("mean", "error"))


@pytest.mark.filterwarnings("ignore:.* samples along .* have values")
def test_cells_that_have_values_only_where_the_other_field_has_none_are_left_out() -> None:
    da, late = with_gaps(monthly(), 0.1), other(monthly()).where(lambda y: y.time.dt.year > 2002)
    da = da.where((da.time.dt.year <= 2002) | (da.lat < 60) | (da.lon < 300))
    pair = coupled(da, late, 2, missing="mean", groups="time.month", rng=0)
    exact = coupled(da[24:], late[24:], 2, missing="mean", groups="time.month", rng=0)
    np.testing.assert_allclose(pair.covariance, exact.covariance, rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(pair.x_components), np.isnan(exact.x_components))
    assert np.isnan(pair.x_scores[:, :24]).all()


def test_results_of_gaps_and_seasons_survive_a_file(call: Any, tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    da = with_gaps(monthly(season=5), 0.2)
    found = call(da, missing="mean", **KNOWN)
    if np.iscomplexobj(found.scores):
        found = found.map(np.abs)
    found.to_netcdf(tmp_path / "modes.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "modes.nc", engine="h5netcdf") as again:
        xarray.testing.assert_allclose(again, xarray.Dataset(found.data_vars, found.coords))


def test_what_cannot_be_is_refused(call: Any) -> None:
    da = monthly()
    for settings, match in (
        ({"missing": "drop"}, 'missing must be "error", "mean" or "em", got \'drop\''),
        ({"missing": "mean", "center": False}, "center=False conflicts with groups"),
        ({"groups": "time.month", "center": False}, "center=False conflicts with groups"),
        ({"penalty": 2.0}, 'penalty and max_iter require missing="em"'),
        ({"groups": "time.moon"}, "groups must be the name of a coordinate"),
        ({"groups": np.arange(96)}, "groups has a different label for each of the 96 samples"),
        ({"covariates": np.full(96, np.nan)}, "covariates must be finite"),
    ):
        with pytest.raises(ValueError, match=match):
            call(da, **settings)
    with pytest.raises(ValueError, match=r'n_modes must be an integer with missing="em", got 0\.9'):
        joint([with_gaps(da, 0.1)], 0.9, missing="em")
    with pytest.raises(ValueError, match=r'leading must be an integer with missing="em", got 0\.9'):
        coupled(da, da, 2, method="cca", leading=(0.9, 3), missing="em")


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_infinite_values_are_no_gaps(call: Any, missing: Any) -> None:
    da = with_gaps(monthly(), 0.1)
    corner = (da.lat < -60) & (da.lon > 300)
    for bad, count in ((da.where(~corner, np.inf), 96), (da.where(~corner | (da.time.dt.year < 2008), -np.inf), 12)):
        with pytest.raises(ValueError, match=f"must be finite or NaN, got {count} infinite values"):
            call(bad, da.rename("slp"), missing=missing)


@pytest.mark.parametrize("name", ["hilbert", "extended"])
@pytest.mark.parametrize("missing", ["mean", "em"])
def test_steps_without_values_are_gaps_as_any_where_time_goes_on(name: str, missing: Any) -> None:
    da = monthly()
    holes = da.where(~da.time.isin(da.time[[7, 40]]))
    found = CALLS[name](holes, missing=missing, tol=1e-9, rng=0)
    assert found.attrs["n_missing"] == 2 * int(da[0].notnull().sum())
    same_modes(found, CALLS[name](holes.fillna(holes.mean("time")), tol=1e-9, rng=0), 2e-3)
    with pytest.raises(ValueError, match=r'none at 2 of 96 samples, .* or fit with missing="mean" or "em"'):
        CALLS[name](holes)


@pytest.mark.parametrize("name", ["hilbert", "extended"])
def test_times_that_are_there_twice_are_no_steps(name: str) -> None:
    da = monthly()
    with pytest.raises(ValueError, match="requires ascending samples, but time has duplicate labels"):
        CALLS[name](da.assign_coords(time=np.repeat(da.time.values[:48], 2)))


@pytest.mark.parametrize("part", [{"time": slice(0)}, {"lat": slice(0)}])
def test_fields_without_samples_or_cells_are_refused(call: Any, part: Any) -> None:
    da = monthly().isel(part)
    with pytest.raises(ValueError, match="must have samples and cells, got an empty array of sizes"):
        call(da, da.rename("slp"))


def test_what_is_wrong_with_one_of_several_fields_is_told_with_its_name() -> None:
    da = monthly()
    times = xarray.Dataset({"u": da, "flag": ("time", np.arange(96.0))})
    with pytest.raises(
        ValueError, match=r"dim must be one or several of the dimensions \('time',\) of flag, but not all"
    ):
        joint(times, 2)
    texts = xarray.Dataset({"u": da, "name": ("lat", list("abcdefgh"))})
    with pytest.raises(ValueError, match="name must hold real numbers, got <U1"):
        joint(texts, 2)
    with pytest.raises(ValueError, match="slp has no values: all are missing"):
        joint([da, other(da) * np.nan], 2)
    with pytest.raises(ValueError, match="Y must be finite or NaN, got 1 infinite value"):
        coupled(da, other(with_gaps(da, 0.1)).where(da.time != da.time[3], np.inf)[:, :1, :1], 1, missing="mean")


@pytest.mark.parametrize("ask", [north, rotate, patterns, lambda eofs: bootstrap(eofs, monthly(), 5)])
def test_what_asks_for_variances_refuses_pairs(ask: Any) -> None:
    da = monthly()
    with pytest.raises(ValueError, match="eofs must have explained variances, which one field"):
        ask(side(coupled(da, other(da), 2), "x"))


def packed(da: Any) -> Any:
    """The field as whole numbers of a file."""
    whole = ((da - 290) / 1e-4).round().fillna(-(2**31)).astype(np.int32)
    return whole.assign_attrs(scale_factor=1e-4, add_offset=290.0, _FillValue=np.int32(-(2**31)))


LAYOUTS: dict[str, Any] = {
    "dimensions in another order": lambda da: da.transpose("lon", "time", "lat"),
    "rising latitudes": lambda da: da.sortby("lat"),
    "longitudes from -180": lambda da: da.assign_coords(lon=(da.lon + 180) % 360 - 180).sortby("lon"),
    "uneven chunks": lambda da: da.chunk(time=(1, 90, 5), lat=4, lon=3),
    "single precision": lambda da: da.astype(np.float32),
    "packed": packed,
    "packed, in chunks": lambda da: packed(da).chunk(time=31),
}


@cache
def laid_out_plainly(call: Any, tol: float) -> Any:
    return call(monthly(), other(monthly()), groups="time.month", weights="coslat", tol=tol, rng=0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("layout", "name"), in_turn(LAYOUTS, CALLS, 2))
def test_modes_do_not_depend_on_how_a_field_is_laid_out(name: str, layout: str) -> None:
    call = CALLS[name]
    if "chunks" in layout:
        pytest.importorskip("dask.array")
    da = monthly()
    given = LAYOUTS[layout](da)
    slp = other(given) if "tudes" in layout else LAYOUTS[layout](other(da))
    how: Any = {"groups": "time.month", "weights": "coslat", "tol": 1e-6 if "single" in layout else 1e-9, "rng": 0}
    found, exact = call(given, slp, **how), laid_out_plainly(call, how["tol"])
    back = found.assign_coords(lon=found.lon % 360).sortby("lon").sel(lat=da.lat, lon=da.lon)
    same_modes(back.transpose(*exact.components.dims, ...), exact.transpose(*exact.components.dims, ...), 5e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "calendar"), [("mca", "noleap"), ("joint", "360_day"), ("hilbert", "noleap")])
def test_calendars_of_models_have_months_and_trends(name: str, calendar: str) -> None:
    pytest.importorskip("cftime")
    call = CALLS[name]
    da = monthly(season=5, trend=1e-3)
    months = xarray.date_range("2001-01-01", periods=96, freq="MS", calendar=calendar, use_cftime=True)
    found, exact = call(da.assign_coords(time=months), **KNOWN), call(da, **KNOWN)
    same_modes(found.drop_vars("time"), exact.drop_vars("time"), 0.01)


@pytest.mark.long
@pytest.mark.parametrize("name", ["joint", "extended"])
def test_files_that_follow_each_other_are_read_lazily(name: str, tmp_path: Path) -> None:
    pytest.importorskip("dask.array")
    pytest.importorskip("h5netcdf")
    da = monthly()
    code = {"sst": {"dtype": "int32", "scale_factor": 1e-4, "add_offset": 290.0, "_FillValue": -(2**31)}}
    for i, years in enumerate((slice(0, 40), slice(40, 70), slice(70, None))):
        da[years].to_netcdf(tmp_path / f"{i}.nc", engine="h5netcdf", encoding=code)
    with xarray.open_mfdataset(sorted(tmp_path.glob("*.nc")), engine="h5netcdf", chunks={"time": 15}) as data:
        found = CALLS[name](data.sst, **KNOWN, tol=1e-9, rng=0)
        same_modes(found, CALLS[name](da, **KNOWN, tol=1e-9, rng=0), 5e-4)
