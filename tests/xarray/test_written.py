"""Modes in files: complex numbers, attributes, and a colleague who has xarray alone."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from shiftsvd.xarray import coupled, extended, hilbert, joint, patterns, pca, project, reconstruct, rotate
from tests.support.fields import MONTHS, monthly, with_gaps

xarray = pytest.importorskip("xarray")
ENGINES = {"scipy": "scipy", "h5netcdf": "h5netcdf", "netcdf4": "netCDF4"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("dtype", "center"), [(np.float32, True), (np.float64, False)])
def test_complex_modes_come_back_from_files(tmp_path: Any, engine: Any, dtype: Any, center: bool) -> None:
    if find_spec(ENGINES[engine]) is None:
        pytest.skip(f"needs {ENGINES[engine]}")
    da = monthly(season=5).astype(dtype)
    removed = {"groups": "time.month", "covariates": "time"} if center else {}
    modes = hilbert(da, 2, center=center, **removed, weights="coslat", rng=0)
    encoding = {} if engine == "scipy" else {"components": {"zlib": True}, "scores": {"zlib": True}}
    modes.to_netcdf(tmp_path / "modes.nc", engine=engine, encoding=encoding)
    with xarray.open_dataset(tmp_path / "modes.nc", engine=engine) as again:
        assert "components" not in again
        for name in ("components", "scores", *(() if center else ("score_means",))):
            whole = again[f"{name}_real"] + 1j * again[f"{name}_imag"]
            np.testing.assert_array_equal(whole, modes[name])
        assert again.components_real.dims == ("mode", "lat", "lon")
        assert again.components_real.attrs == modes.components.attrs
        assert again.attrs["n_samples"] == MONTHS
        np.testing.assert_array_equal(project(again, da), project(modes, da))
        np.testing.assert_array_equal(reconstruct(again, modes=1), reconstruct(modes, modes=1))
        np.testing.assert_array_equal(project(again.sel(mode=2), da), project(modes.sel(mode=2), da))
        with pytest.raises(ValueError, match="eofs must be real modes, got complex modes of hilbert"):
            patterns(again)
    assert "components" in modes  # the given modes are not modified


def test_complex_modes_in_zarr_are_complex(tmp_path: Any) -> None:
    pytest.importorskip("zarr")
    modes = hilbert(monthly(), 2)
    modes.to_zarr(tmp_path / "modes.zarr", consolidated=False)
    with xarray.open_zarr(tmp_path / "modes.zarr", chunks=None, consolidated=False) as again:
        np.testing.assert_array_equal(again.components, modes.components)
        assert again.attrs == modes.attrs
        np.testing.assert_array_equal(project(again, monthly()), project(modes, monthly()))


def test_attributes_tell_the_samples_that_were_used() -> None:
    da = monthly()
    da[3] = np.nan
    other = monthly(1)
    other[7] = np.nan
    with pytest.warns(UserWarning, match="95 of 96 samples"):
        eofs = pca(da, 3)
    assert eofs.attrs["n_samples"] == MONTHS - 1 == int(eofs.scores[0].notnull().sum())
    assert rotate(eofs).attrs["n_samples"] == MONTHS - 1
    both = [da, other.rename("b")]
    for fit in (lambda: joint(both, 2), lambda: coupled(*both, 2), lambda: coupled(*both, 2, method="cca", leading=3)):
        with pytest.warns(UserWarning, match="94 of 96 samples"):
            assert fit().attrs["n_samples"] == MONTHS - 2
    gaps = with_gaps(da, 0.1)
    assert hilbert(gaps, 2, missing="mean").attrs["n_samples"] == MONTHS  # a step without values is a gap
    sequences = extended(gaps, 2, lags=5, missing="mean")
    assert sequences.attrs["n_samples"] == sequences.sizes["time"] == MONTHS - 4
