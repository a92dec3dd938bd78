"""Other fields on modes in time: on those of analytic signals, and on sequences of patterns."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.runs.messages import Notice
from shiftsvd.xarray import extended, hilbert, patterns, project, reconstruct
from tests.support.fields import monthly, with_gaps

xarray = pytest.importorskip("xarray")


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("lags", [4, [2], range(1, 12, 5)])
def test_sequences_of_the_fit_and_parts_of_it_have_its_scores(lags: Any, center: bool) -> None:
    da = monthly()
    modes = extended(da, 3, lags=lags, center=center, weights="coslat", rng=0)
    atol = 1e-9 * float(abs(modes.scores).max())
    np.testing.assert_allclose(project(modes, da), modes.scores, atol=atol)
    some = project(modes, da[20:60])
    np.testing.assert_allclose(some, modes.scores.sel(time=some.time), atol=atol)
    np.testing.assert_array_equal(some.time, da.time[20 : 60 - max(range(lags) if lags == 4 else lags)])
    one = project(modes.sel(mode=2), da[:, ::-1, ::-1])
    np.testing.assert_allclose(one, modes.scores.sel(mode=[2]), atol=atol)


@pytest.mark.parametrize("padding", ["exp", None])
@pytest.mark.parametrize("center", [True, False])
def test_a_signal_of_the_fit_has_its_scores(padding: Any, center: bool) -> None:
    da = monthly()
    modes = hilbert(da, 3, padding=padding, center=center, weights="coslat", rng=0)
    atol = 1e-9 * float(abs(da).max())
    np.testing.assert_allclose(project(modes, da), modes.scores, atol=atol)
    np.testing.assert_allclose(project(modes, da[:, ::-1]).sel(mode=2), modes.scores.sel(mode=2), atol=atol)


def test_a_stretch_of_a_travelling_wave_has_its_amplitude_and_phase() -> None:
    t, x = np.arange(120)[:, None], np.arange(12)
    wave = np.cos(2 * np.pi * (t / 20 - x / 12))
    da = xarray.DataArray(wave, dims=("time", "lon"), coords={"time": np.arange(120)})
    modes = hilbert(da, 1, padding=None)
    stretch = project(modes, da[17:57])
    np.testing.assert_allclose(stretch, modes.scores.sel(time=stretch.time), atol=1e-9)


def test_the_level_of_a_stretch_stays_in_the_field_that_its_scores_make_up() -> None:
    da = monthly(noise=0)
    modes = hilbert(da, 6, weights="coslat")
    xarray.testing.assert_allclose(reconstruct(modes, project(modes, da[:30])), da[:30], atol=1e-5)


@pytest.mark.parametrize(
    ("k", "how"), [(18, {}), (12, {"groups": "time.month", "covariates": "time"}), (16, {"center": False})]
)
@pytest.mark.parametrize("kept", [slice(None), [1], [3]])
def test_sequences_are_averaged_to_the_field_of_each_step(k: int, how: Any, kept: Any) -> None:
    da = monthly(season=10, trend=1e-2, noise=0)
    modes = extended(da, k, lags=range(0, 12, 3), weights="coslat", rng=0, **how).isel(lag=kept)
    first = int(modes.lag[0])
    made = reconstruct(modes)
    np.testing.assert_array_equal(made.time, modes.scores.time)
    assert made.dims == da.dims
    assert np.isnan(made[:first]).all()
    assert float(abs(made - da)[first:].max()) < 0.2  # months differ by up to 20 K
    xarray.testing.assert_allclose(reconstruct(modes, modes.scores[:, 20:50])[12:], made[32:50], atol=1e-9)


def test_one_lag_is_a_map_but_no_sequence() -> None:
    modes = extended(monthly(), 2, lags=[0, 3], weights="coslat")
    maps = patterns(modes)
    assert maps.dims == ("mode", "lag", "lat", "lon")
    assert maps.attrs["units"] == "K"
    one = modes.isel(lag=1, drop=True)
    xarray.testing.assert_allclose(patterns(one), maps.isel(lag=1, drop=True))
    for call in (reconstruct, lambda eofs: project(eofs, monthly())):
        with pytest.raises(ValueError, match=r"eofs must have the dimension lag of modes of extended"):
            call(one)


@pytest.mark.parametrize("call", [hilbert, lambda da, k, **how: extended(da, k, lags=3, **how)])
def test_seasons_gaps_chunks_and_files_go_along(call: Any, tmp_path: Path) -> None:
    pytest.importorskip("dask.array")
    da = with_gaps(monthly(season=5, trend=1e-3), 0.1)
    modes = call(da, 2, missing="mean", groups="time.month", covariates="time", weights="coslat", tol=1e-9, rng=0)
    np.testing.assert_allclose(project(modes, da.chunk(time=30, lat=3)), modes.scores, atol=1e-6)
    if not np.iscomplexobj(modes.scores):
        pytest.importorskip("h5netcdf")
        modes.to_netcdf(tmp_path / "modes.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "modes.nc", engine="h5netcdf") as again:
            np.testing.assert_allclose(project(again, da), modes.scores, atol=1e-6)


def test_a_step_without_values_has_no_sequence_and_no_signal() -> None:
    da = monthly()
    modes = extended(da, 2, lags=[0, 3])
    found = project(modes, da.where(da.time != da.time[10]))
    assert np.flatnonzero(np.isnan(found[0])).tolist() == [7, 10]
    with pytest.raises(
        ValueError, match="a Hilbert transform requires values at every step, but there are none at 1 of 96 samples"
    ):
        project(hilbert(da, 2), da.where(da.time != da.time[10]))


@pytest.mark.parametrize("calendar", [None, "noleap", "numbers"])
def test_unequal_steps_are_told(calendar: str | None) -> None:
    da = monthly()
    if calendar == "noleap":
        pytest.importorskip("cftime")
        da = da.assign_coords(time=xarray.date_range("2001-01-15", periods=96, freq="MS", calendar="noleap"))
    elif calendar:
        da = da.assign_coords(time=np.arange(96.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        modes = extended(da, 2, lags=2)  # months differ by 3 days
    told = r"takes the steps along time as equal, but the one from \S+ to \S+ is [1-9][0-9.]+ times the smallest"
    with pytest.warns(Notice, match=told):
        hilbert(da.drop_isel(time=20), 2)
    winters = da.isel(time=np.flatnonzero(np.isin(np.arange(96) % 12, [0, 1, 11])))
    for call in (lambda: extended(winters, 2, lags=2), lambda: project(modes, winters)):
        with pytest.warns(Notice, match=told):
            call()


def test_what_is_no_series_is_refused() -> None:
    da = monthly()
    sequences, signals = extended(da, 2, lags=5), hilbert(da, 2)
    for modes in (sequences, signals):
        with pytest.raises(
            ValueError, match="a projection onto modes in time requires ascending samples, but time is not sorted"
        ):
            project(modes, da[::-1])
        with pytest.raises(ValueError, match="a projection onto modes in time requires a single dimension"):
            project(modes, da.expand_dims(member=2))
        with pytest.raises(ValueError, match="must have values in all cells of the components, but 1 value is missing"):
            project(modes, da.where((da.time != da.time[3]) | (da.lat > -70) | (da.lon > 0)))
    with pytest.raises(ValueError, match="da must have at least 5 steps for the lags of eofs, got 4"):
        project(sequences, da[:4])


def test_some_of_the_lags_of_a_fit_give_no_scores() -> None:
    da = xarray.DataArray(np.random.default_rng(0).standard_normal((40, 6)), dims=("time", "lon"))
    modes = extended(da, 2, lags=[0, 2, 4])
    assert project(modes, da).shape == (2, 36)
    with pytest.raises(ValueError, match="eofs has 2 of the 3 lags of the fit, which do not give its scores"):
        project(modes.isel(lag=[0, 1]), da)
