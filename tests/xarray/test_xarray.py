"""EOF analysis of labelled fields: the definition, the coordinates, the gaps, and the neighbours' numbers."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.xarray import correlation, coupled, extended, hilbert, joint, patterns, pca, project, reconstruct, side

xarray = pytest.importorskip("xarray")

TIMES, LATITUDES, LONGITUDES = 60, 9, 12


def field(dtype: Any = np.float64) -> Any:
    """A field of three patterns that decay, and noise, far off-centre; part of it is land, without values."""
    rng = np.random.default_rng(3)
    amplitudes = rng.standard_normal((TIMES, 3)) * [8, 5, 3]
    values = amplitudes @ rng.standard_normal((3, LATITUDES * LONGITUDES))
    values = values + rng.standard_normal(values.shape) + 280
    da = xarray.DataArray(
        values.reshape(TIMES, LATITUDES, LONGITUDES).astype(dtype),
        dims=("time", "lat", "lon"),
        coords={
            "time": np.arange(TIMES) * 10,
            "lat": np.linspace(-80, 80, LATITUDES),
            "lon": np.arange(0, 360, 360 / LONGITUDES),
            "season": ("time", ["dry", "wet"] * (TIMES // 2)),
            "height": 2.0,
        },
        name="t2m",
    )
    return da.where(~((da.lat > 40) & (da.lon < 100)))


def explicit(X: Any, k: int) -> tuple[Any, Any, Any]:
    """Scores, components and variances of a matrix, by the definition."""
    _, S, Vh = np.linalg.svd(X, full_matrices=False)
    Vh = Vh[:k] * np.sign(Vh[np.arange(k), np.argmax(np.abs(Vh[:k]), axis=1)])[:, None]
    return X @ Vh.T, Vh, S[:k] ** 2 / (len(X) - 1)


def matrix(da: Any) -> tuple[Any, Any]:
    """Times x cells with values, and which those are."""
    X = da.transpose("time", "lat", "lon").values.reshape(da.sizes["time"], -1).astype(np.float64)
    cells = ~np.isnan(X).all(axis=0)
    return X[:, cells], cells


def coslat(da: Any) -> Any:
    """The weight of each cell."""
    return np.repeat(np.sqrt(np.cos(np.deg2rad(da.lat.values))), LONGITUDES)


@pytest.mark.parametrize("weights", [None, "coslat", "array"])
@pytest.mark.parametrize("standardize", [False, True])
def test_results_are_those_of_the_definition(weights: Any, standardize: bool) -> None:
    da = field()
    X, cells = matrix(da)
    w = {None: np.ones(cells.size), "coslat": coslat(da), "array": np.linspace(0.5, 2, cells.size)}[weights]
    given = w.reshape(LATITUDES, LONGITUDES) if weights == "array" else weights
    eofs = pca(da, 3, weights=given, standardize=standardize)
    X = X - X.mean(axis=0)
    X = X / X.std(axis=0) if standardize else X
    X = X * w[cells]
    scores, components, variances = explicit(X, 3)
    np.testing.assert_allclose(eofs.explained_variance, variances, rtol=1e-6)
    np.testing.assert_allclose(eofs.explained_variance_ratio, variances / X.var(axis=0, ddof=1).sum(), rtol=1e-6)
    np.testing.assert_allclose(eofs.singular_values**2 / (TIMES - 1), variances, rtol=1e-6)
    np.testing.assert_allclose(eofs.components.values.reshape(3, -1)[:, cells], components, atol=1e-4)
    np.testing.assert_allclose(eofs.scores.T, scores, atol=1e-4 * np.abs(scores).max())


def test_results_have_the_dimensions_and_coordinates_of_the_field() -> None:
    da = field()
    eofs = pca(da.transpose("lon", "time", "lat"), 2)
    assert eofs.components.dims == ("mode", "lon", "lat")
    assert eofs.scores.dims == ("mode", "time")
    assert eofs.mode.values.tolist() == [1, 2]
    for name in ("lat", "lon", "time", "season", "height"):
        xarray.testing.assert_equal(eofs[name].drop_vars("height"), da[name].drop_vars("height"))
    assert "season" not in eofs.components.coords
    xarray.testing.assert_allclose(eofs.transpose("mode", "time", "lat", "lon"), pca(da, 2), atol=1e-4)


@pytest.mark.filterwarnings("ignore:.* samples along .* have values")
def test_missing_cells_and_samples_come_back_as_nan() -> None:
    da = field()
    gaps = da.where(da.time != 100)
    eofs = pca(gaps, 2)
    np.testing.assert_array_equal(np.isnan(eofs.components[0]), np.isnan(da[0]))
    np.testing.assert_array_equal(np.isnan(eofs.scores[0]), da.time == 100)
    whole = pca(da.sel(time=da.time != 100), 2)
    xarray.testing.assert_allclose(eofs.explained_variance, whole.explained_variance)


def test_values_that_are_missing_here_and_there_are_counted() -> None:
    da = field()
    da[3, 0, :2] = np.nan
    da[7, 0, 0] = np.nan
    with pytest.raises(
        ValueError, match="da has 3 missing values in 2 of 108 cells, which have values in other samples"
    ):
        pca(da)
    with pytest.raises(ValueError, match="da has no values: all are missing"):
        pca(da * np.nan)


def test_all_modes_make_up_the_field_again() -> None:
    da = field()
    eofs = pca(da, TIMES, weights="coslat", standardize=True)
    xarray.testing.assert_allclose(reconstruct(eofs), da, rtol=1e-8)
    first = reconstruct(eofs, eofs.scores.sel(mode=[1, 2]).isel(time=slice(3)))
    again = pca(da, 2, weights="coslat", standardize=True)
    np.testing.assert_allclose(first, reconstruct(again).isel(time=slice(3)), atol=1e-3)
    assert reconstruct(eofs, eofs.scores.isel(time=0)).dims == ("lat", "lon")


@pytest.mark.parametrize("weights", [None, "coslat"])
def test_other_times_are_projected_by_the_mean_of_the_first(weights: Any) -> None:
    da = field()
    first, last = da.isel(time=slice(40)), da.isel(time=slice(40, None))
    eofs = pca(first, 3, weights=weights)
    xarray.testing.assert_allclose(project(eofs, first), eofs.scores)
    X, cells = matrix(first)
    w = (coslat(da) if weights else np.ones(cells.size))[cells]
    _, components, _ = explicit((X - X.mean(axis=0)) * w, 3)
    found = project(eofs, last.transpose("lat", "time", "lon"))
    np.testing.assert_allclose(found.T, ((matrix(last)[0] - X.mean(axis=0)) * w) @ components.T, atol=1e-3)
    assert found.dims == ("mode", "time")
    assert found.season.values.tolist() == last.season.values.tolist()


def test_other_fields_must_be_on_the_same_space() -> None:
    da = field()
    eofs = pca(da, 2)
    with pytest.raises(ValueError, match="da must have the labels of the components along lat"):
        project(eofs, da.assign_coords(lat=da.lat + 1))
    with pytest.raises(
        ValueError,
        match=r"da must have 9 cells along lat, got 5\. Interpolate da .*: da.interp_like\(eofs.mean_field\)\.$",
    ):
        project(eofs, da[:, :5])
    with pytest.raises(ValueError, match="must have values in all cells of the components, but 1 value is missing"):
        project(eofs, da.where((da.time != 10) | (da.lat != -80) | (da.lon != 0)))
    with pytest.raises(ValueError, match="must be finite in all cells of the components, got 2 infinite values"):
        project(eofs, da.where(da.time != 10).where((da.time < 580) | (da.lat != -80) | (da.lon != 0), np.inf))
    on_land = da.fillna(np.inf)
    xarray.testing.assert_equal(project(eofs, on_land), project(eofs, da))
    with pytest.raises(ValueError, match=r"eofs must be a result of shiftsvd\.xarray\.pca, but it lacks weights"):
        project(eofs.drop_vars("weights"), da)


def test_samples_may_have_several_dimensions() -> None:
    da = field().fillna(280)
    members = da.values.reshape(2, TIMES // 2, LATITUDES, LONGITUDES)
    ensemble = xarray.DataArray(members, dims=("member", "time", "lat", "lon"), coords={"lat": da.lat})
    eofs = pca(ensemble, 2, dim=("member", "time"))
    assert eofs.scores.dims == ("mode", "member", "time")
    np.testing.assert_allclose(eofs.scores.values.reshape(2, -1), pca(da, 2).scores, atol=1e-4)
    xarray.testing.assert_allclose(project(eofs, ensemble), eofs.scores)


def test_single_precision_stays_and_is_centred_without_loss() -> None:
    da = field(np.float32)
    eofs = pca(da, 2)
    assert eofs.components.dtype == eofs.scores.dtype == np.float32
    X, _ = matrix(da)
    np.testing.assert_allclose(eofs.explained_variance, explicit(X - X.mean(axis=0), 2)[2], rtol=1e-5)


def test_without_centring_nothing_is_subtracted() -> None:
    da = field()
    eofs = pca(da, 2, center=False)
    assert not eofs.mean_field.fillna(0).any()
    np.testing.assert_allclose(eofs.explained_variance, explicit(matrix(da)[0], 2)[2], rtol=1e-6)


def test_cells_without_weight_take_no_part() -> None:
    da = field().isel(lat=slice(0, 5))
    poles = da.assign_coords(lat=np.array([-90, -60, -30, 0, 30], np.float32))
    eofs, inner = pca(poles, 2, weights="coslat"), pca(poles[:, 1:], 2, weights="coslat")
    np.testing.assert_allclose(eofs.components[:, 0], 0, atol=1e-3)  # cos(90 degrees) in single precision
    np.testing.assert_allclose(eofs.explained_variance, inner.explained_variance, rtol=1e-6)
    weights = np.ones((5, LONGITUDES))
    weights[2] = 0
    np.testing.assert_allclose(
        pca(da, 2, weights=weights).explained_variance, pca(da[:, [0, 1, 3, 4]], 2).explained_variance, rtol=1e-6
    )
    with pytest.raises(ValueError, match="not all 0"):
        pca(da, 2, weights=0 * weights)


def test_weights_may_lack_dimensions_of_the_space() -> None:
    da = field()
    by_latitude = np.sqrt(np.cos(np.deg2rad(da.lat)))
    xarray.testing.assert_allclose(pca(da, 2, weights=by_latitude), pca(da, 2, weights="coslat"))
    renamed = da.rename(lat="y").assign_coords(y=da.lat.values)
    renamed.y.attrs["units"] = "degrees_north"
    np.testing.assert_allclose(pca(renamed, 2, weights="coslat").scores, pca(da, 2, weights="coslat").scores)


def test_an_array_of_weights_is_spread_over_the_sides_where_it_has_one() -> None:
    da = field()
    by_latitude = np.sqrt(np.cos(np.deg2rad(da.lat.values)))
    xarray.testing.assert_allclose(pca(da, 2, weights=by_latitude[:, None]), pca(da, 2, weights="coslat"))
    np.testing.assert_allclose(pca(da, 2, weights=2).scores, 2 * pca(da, 2).scores, rtol=1e-4, atol=1e-3)


def curvilinear(units: str | None) -> Any:
    """A field on a projection: y and x in kilometres, latitudes of two dimensions."""
    da = field().fillna(280).drop_vars(["lat", "lon"]).rename(lat="yc", lon="xc")
    yc = np.linspace(-4000, 4000, LATITUDES)
    latitude = 90 - np.hypot(yc[:, None], np.linspace(-3000, 3000, LONGITUDES)) / 111.2
    return da.assign_coords(
        yc=("yc", yc, {} if units is None else {"units": units}),
        nav_lat=(("yc", "xc"), latitude),
        longitude=(("yc", "xc"), 0 * latitude),
    )


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("nav_lat", {}),
        ("LAT", {}),
        ("TLAT", {"units": "degrees_north"}),
        ("TLAT", {"units": "degreeN"}),
        ("phi", {"standard_name": "latitude"}),
    ],
)
def test_the_latitudes_are_not_a_coordinate_of_the_projection(name: str, attrs: dict[str, str]) -> None:
    da = curvilinear("km").rename(nav_lat=name)
    da[name].attrs.update(attrs)
    eofs = pca(da, 2, weights="coslat")
    np.testing.assert_allclose(eofs.weights, np.sqrt(np.cos(np.deg2rad(da[name]))), rtol=1e-12)


def test_what_says_that_it_is_a_latitude_goes_before_names() -> None:
    da = field().assign_coords(phi=("lat", np.linspace(-40, 40, LATITUDES), {"standard_name": "latitude"}))
    eofs = pca(da, 2, weights="coslat")
    weights = np.sqrt(np.cos(np.deg2rad(da.phi))).values
    np.testing.assert_allclose(eofs.weights.max("lon"), weights, rtol=1e-12)


def test_yc_is_a_latitude_in_degrees_and_not_in_kilometres() -> None:
    da = field()
    named, degrees = da.rename(lat="yc"), da.rename(lat="yc")
    degrees.yc.attrs["units"] = "degrees"
    for known in (named, degrees):
        np.testing.assert_allclose(pca(known, 2, weights="coslat").weights, pca(da, 2, weights="coslat").weights)
    with pytest.raises(ValueError, match='"coslat" requires a coordinate lat or latitude'):
        pca(curvilinear("km").drop_vars("nav_lat"), 2, weights="coslat")
    with pytest.raises(
        ValueError, match=r"requires latitudes in -90\.\.90 degrees, but the coordinate yc has values such as -4000"
    ):
        pca(curvilinear(None).drop_vars("nav_lat"), 2, weights="coslat")


def test_latitudes_are_degrees_up_to_the_poles() -> None:
    da = field()
    beyond = da.assign_coords(lat=np.nextafter(np.linspace(-90, 90, LATITUDES), [*[-np.inf] * 4, *[np.inf] * 5]))
    assert np.abs(beyond.lat).max() > 90
    assert np.isfinite(pca(beyond, 2, weights="coslat").scores).all()
    radians = da.assign_coords(lat=("lat", np.deg2rad(da.lat.values), {"units": "radian"}))
    with pytest.raises(ValueError, match="the coordinate lat has the units 'radian'"):
        pca(radians, 2, weights="coslat")


def test_coordinates_named_like_a_result_are_left_out_and_dimensions_refused() -> None:
    da = field()
    eofs = pca(da, 2)
    named = da.assign_coords(weights=da.lat, scores=da.time, mode="a", components=1.0)
    xarray.testing.assert_equal(pca(named, 2), eofs)
    xarray.testing.assert_equal(project(eofs, named), project(eofs, da))
    for name in ("weights", "scores", "mean_field", "explained_variance"):
        with pytest.raises(ValueError, match=f"has a dimension '{name}', a name that results use"):
            pca(da.rename(lon=name), 2)
    with pytest.raises(ValueError, match="has a dimension 'mode'"):
        project(eofs, da.expand_dims("mode"))


def test_a_single_mode_is_reconstructed_and_projected() -> None:
    da = field()
    eofs = pca(da, 3, weights="coslat")
    one = eofs.sel(mode=2)
    want = reconstruct(eofs, eofs.scores.sel(mode=[2]))
    for found in (reconstruct(one), reconstruct(eofs, eofs.scores.sel(mode=2)), reconstruct(one, one.scores)):
        assert found.dims == ("time", "lat", "lon")
        assert "mode" not in found.coords
        xarray.testing.assert_allclose(found, want)
    xarray.testing.assert_allclose(project(one, da), project(eofs, da).sel(mode=[2]))
    with pytest.raises(ValueError, match=r"scores must be modes of eofs \(2\), got mode 1"):
        reconstruct(one, eofs.scores)
    with pytest.raises(ValueError, match=r"components must have the coordinate mode, .* Select modes with \.sel"):
        reconstruct(eofs.isel(mode=0, drop=True), eofs.scores)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_modes": 0}, r"n_modes must be an integer in 1\.\.60 for 60 samples of 100 cells, got 0"),
        ({"n_modes": 2.0}, r"got 2\.0"),
        ({"dim": "t"}, "da has no dimension 't', only time, lat, lon. Pass the dimension of its samples as dim"),
        ({"dim": ("time", "lat", "lon")}, "but not all"),
        ({"weights": "area"}, 'weights must be "coslat", a DataArray, an array or a number'),
        ({"weights": np.ones(5)}, r"weights must have the shape \(9, 12\)"),
        ({"weights": np.ones(12)}, r"where any size may be 1, got \(12,\)"),
        ({"weights": np.ones((2, 12))}, r"got \(2, 12\)"),
        ({"weights": -1}, "weights must be finite, at least 0, and not all 0, got 100 negative or not finite values"),
        (
            {"weights": -np.ones((LATITUDES, LONGITUDES))},
            "weights must be finite, at least 0, and not all 0, got 100 negative or not finite values",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], match: str) -> None:
    da = field()
    with pytest.raises(ValueError, match=match):
        pca(da, **settings)


def test_fields_that_cannot_be_are_refused() -> None:
    da = field()
    eofs = pca(da, 2)
    for wrong in (da.to_dataset(), da.values):
        told = rf"must be an xarray\.DataArray, got {type(wrong).__name__}\. Select a variable of a Dataset"
        for call in (lambda wrong: project(eofs, wrong), lambda wrong: reconstruct(eofs, wrong)):
            with pytest.raises(TypeError, match=told):
                call(wrong)
    with pytest.raises(TypeError, match=r"must be an xarray\.DataArray, got ndarray"):
        pca(da.values)  # a Dataset is fields of several names
    with pytest.raises(TypeError, match=r"weights must be an xarray\.DataArray, got Dataset"):
        pca(da, 2, weights=da[0].to_dataset())
    with pytest.raises(ValueError, match="must hold real numbers, got complex128"):
        project(eofs, da * 1j)
    with pytest.raises(ValueError, match='"coslat" requires a coordinate lat or latitude'):
        pca(da.drop_vars("lat"), weights="coslat")
    with pytest.raises(ValueError, match="must have only dimensions of the space"):
        pca(da, weights=xarray.DataArray(np.ones(TIMES), dims="time"))
    with pytest.raises(ValueError, match="weights must have the labels of da along lat"):
        pca(da, weights=xarray.DataArray(np.ones(LATITUDES), dims="lat", coords={"lat": np.arange(LATITUDES)}))
    with pytest.raises(ValueError, match="has a dimension 'mode'"):
        pca(da.rename(lon="mode"))
    with pytest.raises(ValueError, match="must hold real numbers, got complex128"):
        pca(da * 1j)


def test_a_solver_brings_its_own_settings() -> None:
    da = field()
    eofs = pca(da, 3, solver=ss.Exact())
    assert eofs.attrs["solver"].startswith("Exact")
    xarray.testing.assert_allclose(eofs.drop_attrs(), pca(da, 3, tol=1e-9).drop_attrs(), rtol=1e-6)


@pytest.mark.parametrize("call", [pca, hilbert, lambda da, k, **how: joint([da], k, **how)])
@pytest.mark.parametrize("times", [1e-170, 1e160])
def test_fields_whose_squares_are_no_numbers_are_refused(call: Any, times: float) -> None:
    told = "anomalies and means of a field must be between .* Change the units"
    for standardize in (False, True):
        with pytest.raises(ValueError, match=told):
            call(field() * times, 2, standardize=standardize)


def test_fields_whose_squares_are_numbers_have_modes() -> None:
    large, usual = (pca(field() * times, 2).singular_values for times in (1e140, 1))
    np.testing.assert_allclose(large / 1e140, usual, rtol=1e-6)


@pytest.mark.long
def test_the_commands_do_without_xarray() -> None:
    script = "import sys, shiftsvd.xarray.commands; print('xarray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("chunks", [{"time": 20}, {"time": 25, "lat": 3}, {"lat": 4, "lon": 5}])
def test_chunked_fields_give_the_same(chunks: dict[str, int]) -> None:
    pytest.importorskip("dask.array")
    da = field()
    eofs = pca(da, 3, weights="coslat")
    chunked = pca(da.chunk(chunks), 3, weights="coslat")
    np.testing.assert_allclose(chunked.explained_variance, eofs.explained_variance, rtol=1e-9)
    np.testing.assert_allclose(chunked.components, eofs.components, atol=1e-6)
    np.testing.assert_allclose(chunked.scores, eofs.scores, atol=1e-4)
    np.testing.assert_allclose(project(eofs, da.chunk(chunks)), eofs.scores, atol=1e-9)


@pytest.mark.parametrize("chunks", [{"lat": 2}, {"mode": 1}])
def test_eofs_may_be_chunked(chunks: dict[str, int]) -> None:
    pytest.importorskip("dask.array")
    da = field()
    eofs = pca(da, 3, weights="coslat")
    xarray.testing.assert_allclose(project(eofs.chunk(chunks), da), eofs.scores)
    xarray.testing.assert_allclose(project(eofs.chunk(chunks), da.chunk({"time": 20})), eofs.scores)
    xarray.testing.assert_allclose(reconstruct(eofs.chunk(chunks)).compute(), reconstruct(eofs))


def recorded(da: Any, chunks: Any, loads: list[Any]) -> Any:
    """A chunked field that writes down the shape of each chunk when it is read."""
    dask_array = pytest.importorskip("dask.array")

    def loaded(chunk: Any) -> Any:
        loads.append(chunk.shape)
        return chunk

    return da.copy(data=dask_array.from_array(da.values, chunks=chunks).map_blocks(loaded, meta=np.empty((0, 0, 0))))


def test_gaps_of_a_chunked_field_are_looked_for_in_one_read() -> None:
    da, loads = field()[:, :, :5], []
    eofs = pca(recorded(da, da.shape, loads), 2, solver="gram")
    assert loads == [da.shape] * (1 + 1 + eofs.n_passes + 1)  # gaps, moments, solver, scores


def test_a_chunked_field_is_projected_in_one_read() -> None:
    da, loads = field(), []
    eofs = pca(da, 2)
    X = recorded(da, (20, LATITUDES, 6), loads)
    np.testing.assert_allclose(project(eofs, X), eofs.scores, atol=1e-9)
    assert loads == [(20, LATITUDES, 6)] * 6


def test_results_survive_a_file(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    da = field()
    eofs = pca(da, 2, weights="coslat")
    eofs.to_netcdf(tmp_path / "eofs.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "eofs.nc", engine="h5netcdf") as again:
        xarray.testing.assert_allclose(project(again, da), eofs.scores)


@pytest.mark.parametrize("chunks", [None, {"latitude": 7}, {"time": 10}])
def test_eofs_gives_the_same_of_measured_fields(chunks: dict[str, int] | None) -> None:
    if chunks is not None:
        pytest.importorskip("dask.array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eofs = pytest.importorskip("eofs")
        standard = pytest.importorskip("eofs.standard")
    folder = Path(eofs.__file__).parent / "examples" / "example_data"
    for file, name in (("hgt_djf.nc", "z"), ("sst_ndjfm_anom.nc", "sst")):  # to the pole; with land
        if not (folder / file).exists():
            pytest.skip("eofs is installed without its examples")
        with xarray.open_dataset(folder / file, engine="scipy", decode_times=False) as data:
            da = data[name].squeeze(drop=True).astype(np.float64).load()
        w = np.sqrt(np.cos(np.deg2rad(da.latitude.astype(np.float64))).clip(0))
        solver = standard.Eof(da.values, weights=w.values[:, None])
        found = pca(da if chunks is None else da.chunk(chunks), 4, weights=w)
        np.testing.assert_allclose(found.explained_variance, solver.eigenvalues(4), rtol=1e-6)
        np.testing.assert_allclose(np.abs(found.components), np.abs(solver.eofs(neofs=4)), atol=1e-5)


@pytest.mark.parametrize("chunks", [None, {"time": 20}, {"lat": 4, "lon": 5}])
def test_xeofs_and_eofs_give_the_same(chunks: dict[str, int] | None) -> None:
    if chunks is not None:
        pytest.importorskip("dask.array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xeofs = pytest.importorskip("xeofs")
        standard = pytest.importorskip("eofs.standard")
        da = field()
        model = xeofs.single.EOF(n_modes=3, use_coslat=True, solver="full").fit(da, dim="time")
        solver = standard.Eof(da.values, weights=coslat(da).reshape(LATITUDES, LONGITUDES))
        other = da.isel(time=slice(5)) + 3
        projected = {
            "xeofs": model.transform(other).transpose("mode", "time").values,
            "eofs": solver.projectField((other - da.mean("time")).values, neofs=3).T,  # it subtracts no mean
        }
        theirs = {
            "xeofs": (model.components().values, model.scores().values, model.explained_variance().values),
            "eofs": (solver.eofs(neofs=3), solver.pcs(npcs=3).T, solver.eigenvalues(3)),
        }
    eofs = pca(da if chunks is None else da.chunk(chunks), 3, weights="coslat")
    found = project(eofs, other)
    for name, (components, scores, variances) in theirs.items():
        np.testing.assert_allclose(eofs.explained_variance, variances, rtol=1e-6)
        signs = np.sign(np.nansum(components * eofs.components.values, axis=(1, 2)))
        np.testing.assert_allclose(eofs.components, components * signs[:, None, None], atol=1e-4)
        np.testing.assert_allclose(eofs.scores, scores * signs[:, None], atol=1e-4 * np.abs(scores).max())
        np.testing.assert_allclose(found, projected[name] * signs[:, None], atol=1e-4 * np.abs(scores).max())
    np.testing.assert_allclose(eofs.explained_variance_ratio, solver.varianceFraction(3), rtol=1e-6)


def test_what_a_file_has_beside_the_field_is_named() -> None:
    da = field()
    data = da.to_dataset(name="sst").assign(lat_bnds=(("lat", "side"), np.zeros((LATITUDES, 2))))
    named = data.rename(lat_bnds="edges")
    named.lat.encoding["bounds"] = "edges"  # as xarray decodes it with decode_coords="all"
    for each, edges in ((data, "lat_bnds"), (named, "edges")):
        rule = rf"got bounds of coordinates: {edges}\. Select one field with data\['sst'\]"
        with pytest.raises(ValueError, match=rule):
            pca(each, 2)
    radians = da.assign_coords(lat=("lat", np.deg2rad(da.lat.values), {"units": "radian"}))
    with pytest.raises(ValueError, match=r"has the units 'radian'\. Convert it to degrees"):
        pca(radians, 2, weights="coslat")
    kelvin = da.assign_attrs(units="K")
    eofs = pca(kelvin, 2)
    project(eofs, kelvin)
    with pytest.warns(UserWarning, match=r"da has the units 'degC', and the field of the fit 'K'\. Convert da"):
        project(eofs, kelvin.assign_attrs(units="degC"))


@pytest.mark.parametrize("solver", ["lanczos", "exact"])
@pytest.mark.parametrize("kind", ["pca", "joint", "coupled", "cca", "hilbert", "extended"])
def test_maps_at_the_poles_are_as_accurate_as_elsewhere(kind: str, solver: Any) -> None:
    """With more samples than cells, errors of components there were larger than the weights that divide them."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((300, 8)) * 2.0 ** -np.arange(8) @ rng.standard_normal((8, 60))
    values = values + 0.1 * rng.standard_normal(values.shape)
    lat = np.linspace(90, -90, 6).astype(np.float32)
    da = xarray.DataArray(values.reshape(300, 6, 10).astype(np.float32), {"lat": lat}, ("time", "lat", "lon"))
    small = np.sqrt(np.cos(np.deg2rad(lat)).clip(1e-6))[:, None]

    def fit(weights: Any) -> Any:
        how = {"weights": weights, "solver": solver, "rng": 0}
        match kind:
            case "joint":
                return side(joint({"a": da, "b": da[..., 2:5] ** 3}, 3, **how), "a")
            case "coupled" | "cca":
                method = {"method": "cca", "leading": 5} if kind == "cca" else {}
                return side(coupled(da, da[..., 2:5] ** 3, 3, **method, **how), "x")
            case "extended":
                return extended(da, 3, lags=2, **how)
        return (pca if kind == "pca" else hilbert)(da, 3, **how)

    eofs, want = fit("coslat"), fit(small)
    np.testing.assert_allclose(*(reconstruct(each)[:, [0, -1]] for each in (eofs, want)), atol=0.01)
    if kind == "pca":
        mine, theirs = patterns(eofs, "correlation"), correlation(da, eofs.scores).correlation
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_deviations_and_correlations_without_centring_are_about_means() -> None:
    da = field() + 5
    eofs = pca(da, 2, center=False, standardize=True)
    np.testing.assert_allclose(eofs.standard_deviation, da.std("time", ddof=1), rtol=1e-6)
    np.testing.assert_allclose((eofs.weights * da.std("time")).fillna(1), 1, rtol=1e-6)
    gaps = da.where(da.time != 3, da.where(da.lat != da.lat[0]))
    filled = pca(gaps, 2, center=False, standardize=True, missing="em", penalty=1.0, rng=0)
    np.testing.assert_allclose(filled.standard_deviation, gaps.std("time", ddof=1), rtol=1e-6)
    np.testing.assert_allclose((filled.weights * gaps.std("time")).fillna(1), 1, rtol=1e-6)
    with pytest.raises(ValueError, match=r"got modes of a fit with center=False\. Use correlation\(da, eofs\.scores\)"):
        patterns(eofs, "correlation")
    assert patterns(pca(da - da.mean("time"), 2, center=False), "correlation").max() <= 1 + 1e-6
    other = da[:, :2] ** 2 + 3
    for method in ({}, {"method": "cca", "leading": 4}):
        pair = coupled(da, other, 2, center=False, **method)
        for name, of in (("x", da), ("y", other)):
            own, opposite = (pair[f"{each}_scores"] for each in (name, "y" if name == "x" else "x"))
            maps = side(pair, name)
            np.testing.assert_allclose(maps.homogeneous, correlation(of, own).correlation, atol=1e-6)
            np.testing.assert_allclose(maps.heterogeneous, correlation(of, opposite).correlation, atol=1e-6)


@pytest.mark.parametrize("solver", ["exact", "lanczos"])
def test_maps_of_chunked_fields_are_accurate_at_cells_without_weight(solver: Any) -> None:
    pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    da = xarray.DataArray(rng.standard_normal((40, 48)) + rng.standard_normal((40, 1)), dims=("time", "x"))
    weights = np.where(np.arange(48) % 4, 1.0, 0.0)
    eofs = pca(da.chunk({"x": 32}), 10, weights=weights, solver=solver, tol=1e-9, rng=0)
    np.testing.assert_allclose(patterns(eofs, "correlation"), correlation(da, eofs.scores).correlation, atol=1e-4)
