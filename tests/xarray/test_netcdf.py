"""Fields in files of NetCDF: cells by their labels, times as dates, several files as one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.cli import main
from shiftsvd.io import open_matrix

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")


def decade(folder: Path, year: int, turned: bool = False) -> tuple[Path, Any]:
    """Twelve months in a file, which counts days from its own year; `turned`: latitudes rise, longitudes from -180."""
    time = np.arange(f"{year}-01", f"{year + 1}-01", dtype="datetime64[M]").astype("datetime64[ns]")
    values = np.random.default_rng(year).standard_normal((12, 3, 4)) + np.arange(12).reshape(3, 4)
    coords = {"time": time, "lat": [60.0, 0.0, -60.0], "lon": [0.0, 90.0, 180.0, 270.0]}
    da = xarray.DataArray(values, coords, ("time", "lat", "lon"), "t2m")
    written = da.sortby("lat") if turned else da
    written.to_netcdf(
        folder / f"{year}.nc", engine="h5netcdf", encoding={"time": {"units": f"days since {year}-01-01"}}
    )
    return folder / f"{year}.nc", da


@pytest.mark.parametrize("stream", [False, True])
def test_files_of_other_years_are_one_field(tmp_path: Path, stream: bool) -> None:
    (first, a), (second, b) = decade(tmp_path, 2001), decade(tmp_path, 2002, turned=True)
    A, names = open_matrix([first, second], stack="rows", stream=stream)
    want = np.concatenate([a.values, b.values]).reshape(24, 12)
    np.testing.assert_allclose(A @ np.eye(12), want)
    assert names.samples is not None
    assert names.features is not None
    assert names.samples[[0, 12, 23]].tolist() == ["2001-01-01", "2002-01-01", "2002-12-01"]
    assert names.features[[0, 5]].tolist() == ["lat=60.0 lon=0.0", "lat=0.0 lon=90.0"]


def test_samples_of_one_day_have_names_with_their_hours(tmp_path: Path) -> None:
    file, da = decade(tmp_path, 2001)
    times = da.time[0].values + 6 * np.arange(12, dtype="timedelta64[h]")
    da.assign_coords(time=times).to_netcdf(file, engine="h5netcdf")
    samples = open_matrix(file)[1].samples
    assert samples is not None
    assert samples[:3].tolist() == ["2001-01-01", "2001-01-01T06:00", "2001-01-01T12:00"]


def test_files_on_other_cells_are_refused(tmp_path: Path) -> None:
    first, a = decade(tmp_path, 2001)
    a.assign_coords(lat=[61.0, 0.0, -60.0]).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"must have the features of .*2001\.nc, but lacks lat=60\.0 lon=0\.0"):
        open_matrix([first, tmp_path / "b.nc"], stack="rows")


def test_bounds_of_coordinates_are_no_field(tmp_path: Path) -> None:
    _, da = decade(tmp_path, 2001)
    data = da.to_dataset().assign(
        edges=(("lat", "side"), np.ones((3, 2))), time_bnds=(("time", "side"), np.zeros((12, 2)))
    )
    data.lat.attrs["bounds"] = "edges"
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert open_matrix(tmp_path / "a.nc")[0].shape == (12, 12)
    assert open_matrix(tmp_path / "a.nc", key="edges")[0].shape == (3, 2)
    data.drop_vars("t2m").to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    data.assign(d2m=data.t2m).to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    for name, known in (("b.nc", "time_bnds, edges|edges, time_bnds"), ("c.nc", "t2m, d2m|d2m, t2m")):
        with pytest.raises(
            ValueError, match=rf"has 2 numeric variables with at least 2 dimensions: ({known})\. Choose"
        ):
            open_matrix(tmp_path / name)


def test_the_command_fits_several_files_of_a_field(tmp_path: Path) -> None:
    files = [str(decade(tmp_path, year, year == 2002)[0]) for year in (2001, 2002, 2003)]
    how = ["--stack", "rows", "-k", "2", "--scores", "csv", "-q", "-o", str(tmp_path / "out")]
    main(["fit", *files, *how], standalone_mode=False)
    lines = (tmp_path / "out" / "scores.csv").read_text().splitlines()
    assert len(lines) == 37
    assert lines[1].startswith("2001-01-01,")
    assert (tmp_path / "out" / "components.csv").read_text().splitlines()[1].startswith("lat=60.0 lon=0.0,")
    model = str(tmp_path / "out" / "model.safetensors")
    main(["transform", model, files[1], "-o", str(tmp_path / "again.csv"), "-q"], standalone_mode=False)
    again = np.loadtxt((tmp_path / "again.csv").read_text().splitlines()[1:], delimiter=",", usecols=(1, 2))
    whole = np.loadtxt(lines[13:25], delimiter=",", usecols=(1, 2))
    np.testing.assert_allclose(again, whole, rtol=1e-6)


def test_times_of_unknown_calendars_stay_numbers(tmp_path: Path) -> None:
    values = xarray.DataArray(np.eye(4, 3), dims=("time", "x"), name="v")
    values = values.assign_coords(time=("time", [0.0, 1, 2, 3], {"units": "days since 1-1-1", "calendar": "lunar"}))
    values.to_netcdf(tmp_path / "v.nc", engine="h5netcdf")
    names = open_matrix(tmp_path / "v.nc")[1]
    assert names.samples is not None
    assert names.samples.tolist() == ["0.0", "1.0", "2.0", "3.0"]
    assert names.features is None


def test_chunks_that_are_decompressed_many_times_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    da = xarray.DataArray(np.zeros((64, 64, 256)), dims=("time", "lat", "lon"), name="z")
    for name, chunks in (("space.nc", (64, 8, 32)), ("time.nc", (2, 64, 256))):
        da.to_netcdf(tmp_path / name, engine="h5netcdf", encoding={"z": {"chunksizes": chunks, "zlib": True}})
    caplog.set_level(25, "shiftsvd")
    open_matrix(tmp_path / "time.nc", stream=True, memory_limit="64M")
    assert not caplog.messages
    open_matrix(tmp_path / "space.nc", stream=True, memory_limit="64M")
    (told,) = caplog.messages
    assert (
        "has chunks of 64 rows and is read in blocks of 8, so each pass decompresses each chunk about 8 times" in told
    )
    assert "nccopy -c time/32,lat/64,lon/256 IN.nc OUT.nc" in told
