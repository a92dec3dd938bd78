"""Rotated modes and maps of labelled fields, beside xeofs and eofs."""

import warnings
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.estimators.rotation import varimax_criterion
from shiftsvd.xarray import patterns, pca, project, reconstruct, rotate
from tests.support.fields import monthly, with_gaps

xarray = pytest.importorskip("xarray")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["varimax", "promax"])
@pytest.mark.parametrize("chunked", [False, True])
def test_rotated_modes_make_up_the_same_field(method: Any, chunked: bool) -> None:
    da = monthly(season=4)
    eofs = pca(da, 4, weights="coslat", groups="time.month")
    if chunked:
        pytest.importorskip("dask.array")
        eofs = eofs.chunk({"lat": 3})
    turned = rotate(eofs, 3, method)
    xarray.testing.assert_allclose(reconstruct(turned).compute(), reconstruct(eofs, modes=[1, 2, 3]).compute())
    np.testing.assert_allclose(project(turned, da), turned.scores, atol=1e-8)
    np.testing.assert_allclose(project(turned.sel(mode=2), da), turned.scores.sel(mode=[2]), atol=1e-8)
    np.testing.assert_allclose(turned.scores.var("time", ddof=1), turned.explained_variance, rtol=1e-9)
    assert np.all(np.diff(turned.explained_variance) < 0)
    assert turned.attrs["rotation_converged"] is True
    assert turned.attrs["rotation"] == method
    if method == "varimax":
        np.testing.assert_allclose(turned.explained_variance.sum(), eofs.explained_variance[:3].sum())
        np.testing.assert_allclose(turned.explained_variance_ratio.sum(), eofs.explained_variance_ratio[:3].sum())


@pytest.mark.filterwarnings("ignore:Degrees of freedom")  # xarray's own, of cells that are always missing
@pytest.mark.parametrize("settings", [{}, {"weights": "coslat"}, {"standardize": True, "weights": "coslat"}])
@pytest.mark.parametrize("method", [None, "varimax", "promax"])
def test_patterns_are_covariances_and_correlations_with_the_field(settings: Any, method: Any) -> None:
    da = monthly(season=4)
    eofs = pca(da, 4, groups="time.month", **settings)
    eofs = eofs if method is None else rotate(eofs, 3, method)
    off = da.groupby("time.month") - da.groupby("time.month").mean()
    standard = eofs.scores / np.sqrt(eofs.explained_variance)
    np.testing.assert_allclose(patterns(eofs), xarray.cov(standard, off, "time", ddof=1), atol=1e-7)
    np.testing.assert_allclose(patterns(eofs, "correlation"), xarray.corr(standard, off, "time"), atol=1e-7)
    np.testing.assert_allclose(patterns(eofs, "unit"), eofs.components)
    np.testing.assert_allclose((patterns(eofs, "scaled") ** 2).sum(("lat", "lon")), eofs.explained_variance)
    assert patterns(eofs).dims == ("mode", "lat", "lon")
    assert patterns(eofs).attrs["units"] == "K"
    np.testing.assert_allclose(patterns(eofs.sel(mode=2)), patterns(eofs).sel(mode=2))


@pytest.mark.filterwarnings("ignore:The rotation did not converge")
@pytest.mark.parametrize("how", [{"kaiser": False}, {"method": "promax", "power": 2}, {"max_iter": 2}])
def test_settings_are_those_of_the_rotation_of_arrays(how: dict[str, Any]) -> None:
    eofs = pca(monthly(season=4), 4)
    turned = rotate(eofs, **how)
    before, after = (each.components.stack(cell=("lat", "lon")).dropna("cell").values for each in (eofs, turned))
    want = ss.rotate(before.T, np.sqrt(eofs.explained_variance.values), **how)
    np.testing.assert_allclose(after, want.components, atol=1e-10)
    assert np.abs(rotate(eofs).components - turned.components).max() > 1e-4


def test_what_has_no_patterns_is_refused() -> None:
    eofs = pca(monthly(), 3)
    with pytest.raises(ValueError, match=r"scaling must be one of 'covariance', .* got 'correlations'"):
        patterns(eofs, "correlations")
    with pytest.raises(ValueError, match="eofs must have the standard deviations of the field"):
        patterns(eofs.drop_vars("standard_deviation"), "correlation")
    for n_modes in (0, 4, 2.0, True):
        with pytest.raises(ValueError, match=r"n_modes must be an integer in 1\.\.3, the number of modes of eofs"):
            rotate(eofs, n_modes)
    with pytest.raises(ValueError, match="got rotated modes"):
        rotate(rotate(eofs))


def test_rotated_modes_survive_files(tmp_path: Any) -> None:
    pytest.importorskip("h5netcdf")
    da = monthly(season=4)
    pca(da, 3, groups="time.month").to_netcdf(tmp_path / "eofs.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "eofs.nc", engine="h5netcdf") as eofs:
        turned = rotate(eofs)
        turned.to_netcdf(tmp_path / "turned.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "turned.nc", engine="h5netcdf") as again:
        np.testing.assert_allclose(project(again, da), turned.scores, atol=1e-8)
        xarray.testing.assert_allclose(reconstruct(again), reconstruct(turned))


def test_cells_without_weight_do_not_count_in_a_rotation() -> None:
    da = monthly().fillna(290)
    weights = xarray.where(da.lat > 40, 0.0, 1.0)
    turned = rotate(pca(da, 3, weights=weights, tol=1e-12))
    south = rotate(pca(da.sel(lat=da.lat <= 40), 3, tol=1e-12))
    np.testing.assert_allclose(turned.components.sel(lat=south.lat), south.components, atol=1e-6)


def test_modes_of_gaps_and_of_stacked_cells_are_rotated() -> None:
    gaps = pca(with_gaps(monthly(), 0.2), 3, missing="em", rng=0)
    turned = rotate(gaps)
    xarray.testing.assert_allclose(reconstruct(turned), reconstruct(gaps))
    stacked = rotate(pca(monthly().stack(cell=("lat", "lon")), 3))
    np.testing.assert_allclose(
        stacked.components.unstack("cell").sel(lat=gaps.lat), rotate(pca(monthly(), 3)).components, atol=1e-4
    )


@pytest.mark.parametrize("method", ["varimax", "promax"])
def test_xeofs_rotates_to_the_same(method: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xeofs = pytest.importorskip("xeofs")
        da = monthly()
        model = xeofs.single.EOF(n_modes=4, use_coslat=True, solver="full").fit(da, dim="time")
        rotator = xeofs.single.EOFRotator(n_modes=4, power=1 if method == "varimax" else 4, rtol=1e-14, max_iter=5000)
        rotator.fit(model)
        components, scores = rotator.components().sel(lat=da.lat, lon=da.lon), rotator.scores()
        variances = rotator.explained_variance()
    turned = rotate(pca(da, 4, weights="coslat", tol=1e-12), method=method)
    signs = np.sign((components * turned.components).sum(("lat", "lon")))
    np.testing.assert_allclose(turned.explained_variance, variances, rtol=1e-6)
    np.testing.assert_allclose(turned.components, components * signs, atol=1e-6)
    np.testing.assert_allclose(turned.scores, (scores * signs).transpose("mode", "time"), atol=1e-5)
    if method == "varimax":
        loadings = (components * np.sqrt(variances)).values.reshape(4, -1)
        theirs = varimax_criterion(loadings[:, ~np.isnan(loadings[0])].T)
        assert turned.attrs["criterion"] >= theirs * (1 - 1e-9)


def test_eofs_has_the_same_maps() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        standard = pytest.importorskip("eofs.standard")
        da = monthly()
        w = np.sqrt(np.cos(np.deg2rad(da.lat.values)))[:, None]
        solver = standard.Eof(da.values, weights=w)
        theirs = {
            "covariance": solver.eofsAsCovariance(3, pcscaling=1),
            "correlation": solver.eofsAsCorrelation(3),
            "scaled": solver.eofs(neofs=3, eofscaling=2),
        }
        plain = standard.Eof(da.values)
        theirs["unit"] = plain.eofs(neofs=3)
    eofs, unweighted = pca(da, 3, weights="coslat", tol=1e-12), pca(da, 3, tol=1e-12)
    for scaling, maps in theirs.items():
        found = patterns(unweighted if scaling == "unit" else eofs, scaling)
        signs = np.sign(np.nansum(maps * found.values, axis=(1, 2)))
        np.testing.assert_allclose(found, maps * signs[:, None, None], atol=1e-6)
