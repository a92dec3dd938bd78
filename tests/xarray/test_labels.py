"""Labels as people have them: falling latitudes, longitudes from -180, stacked dimensions, packed numbers, cftime."""

from typing import Any

import numpy as np
import pytest

from shiftsvd.xarray import hilbert, pca, project, reconstruct
from tests.support.fields import MONTHS, monthly, with_gaps

xarray = pytest.importorskip("xarray")


def turned(da: Any) -> Any:
    """The same field with rising latitudes, and longitudes from -180."""
    return da.assign_coords(lon=(da.lon + 180) % 360 - 180).sortby("lon").sortby("lat")


def test_cells_are_found_by_their_labels() -> None:
    da = monthly()
    eofs = pca(da, 3, weights="coslat")
    np.testing.assert_allclose(project(eofs, turned(da)), eofs.scores, atol=1e-9)
    back = pca(turned(da), 3, weights="coslat")
    np.testing.assert_allclose(project(back, da), back.scores, atol=1e-9)
    rounded = da.assign_coords(lat=da.lat.astype(np.float32), lon=da.lon.astype(np.float32) + np.float32(1e-3))
    np.testing.assert_allclose(project(eofs, rounded), eofs.scores, atol=1e-9)
    for other in (da.assign_coords(lon=da.lon + 1), turned(da).assign_coords(lat=da.lat[::-1].values + 3)):
        with pytest.raises(ValueError, match=r"da must have the labels of the components along .* Interpolate da to"):
            project(eofs, other)
    kilometres = da.rename(lon="x").assign_coords(x=("x", da.lon.values, {"units": "km"}))
    with pytest.raises(ValueError, match="da must have the labels of the components along x"):
        project(pca(kilometres, 2), kilometres.assign_coords(x=kilometres.x - 360))


def test_weights_are_matched_by_their_labels() -> None:
    da = monthly()
    weights = np.cos(np.deg2rad(da.lat)) * (1 + da.lon / 360)
    xarray.testing.assert_allclose(pca(da, 2, weights=weights), pca(da, 2, weights=turned(weights.where(True))))


@pytest.mark.parametrize("what", [np.arange(MONTHS) % 7, None])
def test_labels_that_are_no_numbers_are_matched_too(what: Any) -> None:
    da = monthly().stack(cell=("lat", "lon")).drop_vars(("cell", "lat", "lon"))
    da = da.assign_coords(cell=[f"station {j}" for j in range(da.sizes["cell"])])
    eofs = pca(da, 2, groups=what)
    mixed = da.isel(cell=np.random.default_rng(0).permutation(da.sizes["cell"]))
    np.testing.assert_allclose(project(eofs, mixed, groups=what), eofs.scores, atol=1e-9)


@pytest.mark.parametrize("chunked", [False, True])
def test_stacked_dimensions_are_as_any(chunked: bool) -> None:
    da = monthly()
    eofs = pca(da, 2, weights="coslat")
    cells = da.stack(cell=("lat", "lon"))
    samples = da.assign_coords(year=da.time.dt.year, month=da.time.dt.month)
    samples = samples.set_index(time=["year", "month"])
    if chunked:
        pytest.importorskip("dask.array")
        cells, samples = cells.chunk({"cell": 30}), samples.chunk({"time": 50})
    of_cells, of_samples = pca(cells, 2, weights="coslat"), pca(samples, 2, weights="coslat", groups="month")
    np.testing.assert_allclose(of_cells.scores, eofs.scores, atol=1e-4)
    np.testing.assert_allclose(
        of_cells.components.unstack("cell").sel(lat=da.lat, lon=da.lon), eofs.components, atol=1e-4
    )
    np.testing.assert_allclose(of_samples.scores, pca(da, 2, weights="coslat", groups="time.month").scores, atol=1e-4)
    assert of_samples.scores.unstack("time").sizes == {"mode": 2, "year": 8, "month": 12}
    np.testing.assert_allclose(reconstruct(of_cells).unstack("cell").sel(lat=da.lat), reconstruct(eofs), rtol=1e-6)
    np.testing.assert_allclose(project(of_cells, cells[:, ::-1]), of_cells.scores, atol=1e-8)
    np.testing.assert_allclose(project(of_samples, samples[::2]), of_samples.scores[:, ::2], atol=1e-8)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("fill", ["_FillValue", "missing_value"])
def test_packed_numbers_become_those_that_they_mean(chunked: bool, fill: str) -> None:
    da = monthly()
    packed = ((da - 290) / 1e-3).round().fillna(-32768).astype(np.int16)
    packed.attrs = da.attrs | {"scale_factor": 1e-3, "add_offset": 290.0, fill: np.int16(-32768)}
    if chunked:
        pytest.importorskip("dask.array")
        packed = packed.chunk({"time": 30})
    eofs = pca(packed, 2)
    np.testing.assert_allclose(eofs.explained_variance, pca(da, 2).explained_variance, rtol=1e-3)
    np.testing.assert_array_equal(np.isnan(eofs.components), np.isnan(pca(da, 2).components))
    assert eofs.mean_field.attrs == da.attrs
    np.testing.assert_allclose(project(eofs, packed), project(eofs, da), atol=0.05)
    assert reconstruct(eofs).attrs == da.attrs


def test_whole_numbers_without_a_code_are_as_they_are() -> None:
    da = (monthly().fillna(290) * 10).round().astype(np.int32)
    np.testing.assert_allclose(pca(da, 2).explained_variance, pca(da.astype(float), 2).explained_variance, rtol=1e-9)


def test_times_of_other_calendars_have_months_and_trends() -> None:
    pytest.importorskip("cftime")
    da = monthly(season=5, trend=1e-3)
    times = xarray.date_range("2001-01-15", periods=MONTHS, freq="MS", calendar="noleap", use_cftime=True)
    other = da.assign_coords(time=times)
    eofs = pca(other, 2, groups="time.month", covariates="time")
    np.testing.assert_allclose(eofs.group_means.values.shape, (12, 8, 10))
    np.testing.assert_allclose(project(eofs, other[::-1]), eofs.scores[:, ::-1])
    trend = pca(da, 2, groups="time.month", covariates="time")
    np.testing.assert_allclose(eofs.explained_variance, trend.explained_variance, rtol=1e-3)
    xarray.testing.assert_allclose(reconstruct(eofs, eofs.scores[:, 5:7]), reconstruct(eofs)[5:7])


@pytest.mark.long
@pytest.mark.parametrize("missing", ["error", "mean"])
def test_any_chunks_give_the_same(missing: Any) -> None:
    pytest.importorskip("dask.array")
    da = monthly() if missing == "error" else with_gaps(monthly(), 0.2)
    eofs = pca(da, 2, missing=missing, groups="time.month")
    for chunks in ({"time": 7}, {"lat": 3, "lon": 4}, {"time": (1, 90, 5), "lat": 1}, {"time": -1}):
        found = pca(da.chunk(chunks), 2, missing=missing, groups="time.month")
        np.testing.assert_allclose(found.explained_variance, eofs.explained_variance, rtol=1e-8)
        np.testing.assert_allclose(found.components, eofs.components, atol=1e-4)


@pytest.mark.parametrize("units", ["days since 1850-01-01", "months since 1850-01-01", "1"])
def test_times_that_are_numbers_are_refused_where_dates_are_needed(units: str) -> None:
    da = monthly(season=5)
    numbers = da.assign_coords(time=("time", np.arange(MONTHS) * 30.0, {"units": units}))
    remedy = r"xarray\.decode_cf\(dataset\)" if "since" in units else r"da\.assign_coords\(time=\.\.\.\)"
    message = rf'groups="time\.month" requires dates, but time holds numbers, not dates: decode with {remedy}'
    for fit in (pca, hilbert):
        with pytest.raises(ValueError, match=message):
            fit(numbers, 2, groups="time.month")
    eofs = pca(da, 2, groups="time.month")
    with pytest.raises(ValueError, match=message):
        project(eofs, numbers)
    trend = pca(da, 2, covariates="time")
    with pytest.raises(ValueError, match='covariates="time" requires dates, but time holds numbers, not dates'):
        project(trend, numbers)
    with pytest.raises(
        ValueError, match='covariates="time" was fitted to numbers, but time of the samples holds dates'
    ):
        project(pca(numbers, 2, covariates="time"), da)
    np.testing.assert_allclose(project(pca(numbers, 2, covariates="time"), numbers), trend.scores, atol=0.5)
    text = da.assign_coords(time=da.time.dt.strftime("%Y-%m").values)
    with pytest.raises(ValueError, match=r"time holds no dates that xarray decodes \("):
        pca(text, 2, groups="time.month")


def test_a_grid_moved_by_one_cell_is_refused() -> None:
    da = monthly()
    eofs = pca(da, 2)
    for name in ("lat", "lon"):
        step = float(da[name][1] - da[name][0])
        with pytest.raises(ValueError, match=f"da must have the labels of the components along {name}"):
            project(eofs, da.assign_coords({name: da[name] + step / (1 if name == "lat" else 2)}))
