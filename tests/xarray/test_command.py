"""NetCDF fields: weights of cells by their latitude, and samples without values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.model_file import load_model
from tests.support.fields import monthly

xr = pytest.importorskip("xarray")
WITHOUT = "latitudes, and its cells differ in area. Add --weights coslat to weight cells by area, or --weights no"

SHORT = {"sst": {"dtype": "int16", "scale_factor": 0.001, "_FillValue": -32768}}


def invoked(*words: Any) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def told(*words: Any) -> str:
    """What a command that succeeds says on stderr, without the lines of outputs."""
    done = invoked(*words)
    assert done.exit_code == 0, done.stderr
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("written: "))


def field(seed: int = 0, times: int = 60, **renamed: str) -> Any:
    values = np.random.default_rng(seed).standard_normal((times, 7, 9)) * [[[3.0]], [[1.0]]][seed % 2]
    coords = {"time": np.arange(times), "lat": np.linspace(-90, 90, 7), "lon": np.arange(0, 360, 40.0)}
    return xr.DataArray(values, dims=("time", "lat", "lon"), coords=coords, name="sst").rename(renamed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    field().to_netcdf(tmp_path / "sst.nc")
    return tmp_path / "sst.nc"


def test_a_field_without_weights_is_told_in_a_line(path: Path) -> None:
    said = told("fit", path, "-k", 2)
    assert said == f"{path} is a field on 7 {WITHOUT}ne to weight all cells equally and silence this notice."
    for words in (["--weights", "coslat"], ["--weights", "none"], ["--quiet"]):
        assert told("fit", path, "-k", 2, *words) == ""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("stored", ["sst", "latitude", "scaled", "several"])
def test_weights_are_those_of_xarray(stored: str, tmp_path: Path) -> None:
    da = field(lat="latitude") if stored == "latitude" else field()
    fields = [da, field(1).assign_coords(lon=da.lon + 1)] if stored == "several" else [da]
    for j, each in enumerate(fields):
        each.to_netcdf(tmp_path / f"{j}.nc", encoding=SHORT if stored == "scaled" else None)
    files = [tmp_path / f"{j}.nc" for j in range(len(fields))]
    stack = ["--stack", "columns"] if len(files) > 1 else []
    words = ["-k", 3, "--weights", "coslat", "--tol", 1e-9, "--scores", "npy", "--no-report", "-o", tmp_path / "out"]
    assert told("fit", *files, *stack, *words) == ""
    opened = [xr.open_dataset(file)["sst"] for file in files]
    if len(opened) > 1:
        want = ss.xarray.joint({"a": opened[0], "b": opened[1]}, 3, weights="coslat", normalize=False, tol=1e-9, rng=0)
    else:
        want = ss.xarray.pca(opened[0], 3, weights="coslat", tol=1e-9, rng=0)
    Z = np.load(tmp_path / "out" / "scores.npy")
    theirs = want.scores.values.T
    np.testing.assert_allclose(Z * np.sign((Z * theirs).sum(axis=0)), theirs, atol=1e-4 * np.abs(theirs).max())
    model: Any = load_model(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(model.explained_variance_, want.explained_variance, rtol=1e-5)
    if len(files) == 1:  # and the model weights other fields in the same way
        told("transform", tmp_path / "out" / "model.safetensors", files[0], "-o", tmp_path / "again.npy")
        np.testing.assert_allclose(np.load(tmp_path / "again.npy"), Z, atol=1e-4 * np.abs(Z).max())


def test_samples_are_reconstructed_at_the_poles_as_elsewhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    da = field(times=500) * 0.1 + (rng.standard_normal((500, 4)) * [8, 4, 2, 1] @ rng.standard_normal((4, 63))).reshape(
        500, 7, 9
    )
    da.to_netcdf(tmp_path / "a.nc")
    out = tmp_path / "out"
    told("fit", tmp_path / "a.nc", "-k", 4, "--weights", "coslat", "--solver", "lanczos", "--tol", 1e-6, "-o", out)
    told("inverse", out / "model.safetensors", out / "scores.parquet", "-o", tmp_path / "back.npy")
    back = np.load(tmp_path / "back.npy").reshape(da.shape)
    near = np.abs(back - da.values).max(axis=(0, 2))
    assert np.all(near <= 2 * near[1:-1].max())


def test_files_of_several_times_have_the_weights_of_one(tmp_path: Path) -> None:
    for j in range(2):
        field(j).assign_coords(time=np.arange(60) + 60 * j).to_netcdf(tmp_path / f"{j}.nc")
    files = (tmp_path / "0.nc", tmp_path / "1.nc", "--stack", "rows", "-k", 2)
    assert WITHOUT in told("fit", *files)
    assert told("fit", *files, "--weights", "coslat") == ""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("coords", [("time", "station"), ("time", "y", "x"), ("time", "lat", "lon")])
def test_what_has_no_latitudes_needs_no_weights(coords: tuple[str, ...], tmp_path: Path) -> None:
    """Stations, a projection in kilometres, one band of latitude."""
    sizes = {"time": 40, "station": 12, "y": 5, "x": 6, "lat": 1, "lon": 12}
    shape = tuple(sizes[name] for name in coords)
    da = xr.DataArray(np.random.default_rng(0).standard_normal(shape), dims=coords, name="t")
    known = {name: (name, np.arange(sizes[name]) * 10.0, {"units": "km"} if name in "xy" else {}) for name in coords}
    da.assign_coords(known).to_netcdf(tmp_path / "a.nc")
    assert told("fit", tmp_path / "a.nc", "-k", 2) == ""
    if "lat" not in coords:
        assert "requires a coordinate lat" in invoked("fit", tmp_path / "a.nc", "-k", 2, "--weights", "coslat").stderr


def test_weights_of_what_is_no_field_are_refused(path: Path, tmp_path: Path) -> None:
    np.savetxt(tmp_path / "a.csv", np.random.default_rng(0).random((20, 4)), delimiter=",")
    done = invoked("fit", tmp_path / "a.csv", "-k", 2, "--weights", "coslat")
    assert done.exit_code == 1
    assert "--weights coslat requires a NetCDF file" in done.stderr
    done = invoked("fit", path, "-k", 2, "--weights", "coslat", "--scale", "std")
    assert done.exit_code == 2
    assert "conflicts with --scale" in done.stderr


def test_longitudes_of_new_fields_may_start_elsewhere(path: Path, tmp_path: Path) -> None:
    """In single precision, too."""
    told("fit", path, "-k", 2, "--weights", "coslat", "-o", tmp_path / "out")
    da = field()
    turned = da.assign_coords(lon=((da.lon + 180) % 360 - 180).astype(np.float32)).sortby("lon")
    turned.to_netcdf(tmp_path / "turned.nc")
    model, scores = tmp_path / "out" / "model.safetensors", []
    for file in (path, tmp_path / "turned.nc"):
        told("transform", model, file, "-o", tmp_path / "z.npy", "--force")
        scores.append(np.load(tmp_path / "z.npy"))
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-6 * np.abs(scores[0]).max())
    da.assign_coords(lon=da.lon + 1).to_netcdf(tmp_path / "other.nc")
    done = invoked("transform", model, tmp_path / "other.nc", "-o", tmp_path / "no.npy")
    assert "lacks 63 of the model's 63 features" in done.stderr


@pytest.mark.parametrize("option", ["groups", "covariates"])
def test_groups_of_fields_need_python(option: str, path: Path) -> None:
    done = invoked("fit", path, "-k", 2, f"--{option}", "time.month")
    assert done.exit_code == 2
    assert f"Use shiftsvd.xarray.pca(da, {option}=...) in Python" in done.stderr


def joined() -> Any:
    """What an outer join leaves: half of the times of each field."""
    return xr.merge([field(0), field(1).rename("slp").assign_coords(time=np.arange(30, 90))], join="outer")


def test_the_command_says_how_many_times_are_used(tmp_path: Path) -> None:
    joined().to_netcdf(tmp_path / "both.nc")
    words = ("fit", tmp_path / "both.nc", "--key", "sst", "--weights", "coslat", "-k", 2, "--missing")
    for missing in ("mean", "em"):
        said = told(*words, missing)
        assert (
            f"{tmp_path / 'both.nc'}: only 60 of 90 samples have values. The other samples are replaced by the mean."
            in said
        )
        assert "\n" not in said
    field(0).to_netcdf(tmp_path / "one.nc")
    assert told("fit", tmp_path / "one.nc", "--weights", "coslat", "-k", 2, "--missing", "mean") == ""


def test_xarray_says_how_many_times_are_used() -> None:
    both = joined()
    with pytest.warns(UserWarning, match=r"60 of 90 samples along time have values. The other samples are excluded"):
        ss.xarray.pca(both.sst, 2)
    with pytest.warns(UserWarning, match=r"30 of 90 samples along time have values in all fields. The other samples"):
        ss.xarray.joint(both, 2)
    with pytest.warns(UserWarning, match=r"30 of 90 samples along time have values in all fields. The other samples"):
        ss.xarray.coupled(both.sst, both.slp, 2)
    da = monthly()  # with land
    ss.xarray.pca(da, 2, weights="coslat")
    ss.xarray.coupled(da, field(0, times=96).assign_coords(time=da.time), 2)


@pytest.mark.parametrize("gaps", [0.0, 0.1])
def test_a_field_with_land_is_fitted_as_its_messages_say(gaps: float, tmp_path: Path) -> None:
    da = field()
    whole = np.random.default_rng(3).random(da.shape) >= gaps
    whole[:, 2, 3] = False
    da.where(xr.DataArray(whole, dims=da.dims)).to_netcdf(tmp_path / "land.nc")
    words = ("fit", tmp_path / "land.nc", "-k", 2, "--weights", "coslat")
    said = invoked(*words).stderr
    assert "Use --missing em, because 1 column has no values, and gets components of 0." in said
    assert "--missing mean" not in said
    done = invoked(*words, "--missing", "mean")
    assert "Remove this column, or use --missing em, which gives components of 0." in done.stderr
    told(*words, "--missing", "em", "--penalty", 5, "-o", tmp_path / "out")
    model: Any = load_model(tmp_path / "out" / "model.safetensors")
    assert np.abs(model.components_[:, 2 * 9 + 3]).max() < 1e-12
    assert np.abs(model.components_).max() > 0.1


def test_predictions_and_their_r2_are_those_of_weighted_cells(tmp_path: Path) -> None:
    rng, lat = np.random.default_rng(3), np.linspace(85, -85, 12)
    waves = np.tensordot(rng.normal(size=(90, 3)) * [5, 3, 2], rng.normal(size=(3, 12, 10)), 1)
    noise = rng.normal(size=waves.shape) * np.where(abs(lat) > 60, 15, 0.5)[:, None]
    coords = {"time": np.arange(90), "lat": lat, "lon": np.arange(0, 360, 36.0)}
    da = xr.DataArray(waves + noise, coords, ("time", "lat", "lon"), "t").where(rng.random(waves.shape) > 0.2)
    da.to_netcdf(tmp_path / "t.nc")
    how = {"missing": "em", "penalty": 3.0}
    eofs = ss.xarray.pca(da, 3, weights="coslat", rng=0, **how)
    words = [word for name, value in how.items() for word in (f"--{name}", value)]
    told("fit", tmp_path / "t.nc", "-k", 3, "--weights", "coslat", *words, "--seed", 0, "-o", tmp_path / "out")
    model: Any = load_model(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(model.singular_values_, eofs.singular_values, rtol=1e-3)
    assert model.info_.heldout_r2 == pytest.approx(eofs.attrs["heldout_r2"], abs=0.02)
