"""Fields that are opened lazily: as few reads and as many digits as in memory, however far from zero they are."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.xarray import joint, pca
from shiftsvd.xarray.fields import stacked
from tests.support.fields import monthly

xarray = pytest.importorskip("xarray")
pytest.importorskip("dask.array")
TIMES, CELLS, FILES, LEVEL = 420, 600, 6, 280.0


def field(seed: int) -> Any:
    """Anomalies of some kelvins about a level far from zero, in single precision; fewer times than cells."""
    rng = np.random.default_rng(seed)
    amplitudes = rng.standard_normal((TIMES, 30)) * 3 * 0.8 ** np.arange(30)
    values = LEVEL + amplitudes @ rng.standard_normal((30, CELLS)) + 0.3 * rng.standard_normal((TIMES, CELLS))
    cells = {"lat": np.linspace(-80, 80, 20), "lon": np.arange(0, 360, 12.0)}
    return xarray.DataArray(
        values.reshape(TIMES, 20, 30).astype(np.float32), {"time": np.arange(TIMES), **cells}, ("time", *cells), "t2m"
    )


def exact(da: Any, k: int) -> Any:
    X = da.values.reshape(TIMES, -1).astype(np.float64)
    return np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:k]


@pytest.mark.long
@pytest.mark.parametrize("k", [3, 10])
def test_a_lazy_field_takes_as_many_passes_as_one_in_memory(k: int, tmp_path: Path) -> None:
    da = field(k)
    for i in range(FILES):
        da.isel(time=slice(i * TIMES // FILES, (i + 1) * TIMES // FILES)).to_netcdf(tmp_path / f"{i}.nc")
    with xarray.open_mfdataset(str(tmp_path / "*.nc"), combine="by_coords") as files:
        lazy, memory = (pca(each, k, solver="lanczos", rng=0, tol=1e-10) for each in (files.t2m, da))
    assert lazy.attrs["converged"]
    assert lazy.attrs["n_passes"] <= 1.3 * memory.attrs["n_passes"]
    np.testing.assert_allclose(lazy.singular_values, exact(da, k), rtol=1e-10)


@pytest.mark.parametrize("memory_limit", [None, "4MB"])
def test_a_file_of_few_rows_has_all_digits_with_either_basis(memory_limit: str | None, tmp_path: Path) -> None:
    da = field(1)
    X = da.values.reshape(TIMES, -1)
    np.save(tmp_path / "X.npy", X)
    A, _ = ss.io.open_matrix(tmp_path / "X.npy", stream=True, memory_limit=memory_limit)
    solver = ss.BlockLanczos(1e-11)
    assert solver.on_long_side(A, 10) == (memory_limit is None)
    F = ss.svd(A, 10, shift="mean", solver=solver, rng=0)
    memory = ss.svd(X, 10, shift="mean", solver=solver, rng=0)
    assert F.info.converged
    assert F.info.n_passes <= (1.3 if memory_limit is None else 2) * memory.info.n_passes
    np.testing.assert_allclose(F.S, exact(da, 10), rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(F.U * memory.U, axis=0)), 1, atol=1e-5)


def test_chunks_that_slow_down_a_fit_are_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zarr")
    monkeypatch.setattr("shiftsvd.xarray.fields.LEAST_TOLD", 0)
    da = monthly().rename("sst")
    for name, chunks in (("space", (96, 2, 5)), ("time", (12, 8, 10)), ("both", (24, 4, 5))):
        path = tmp_path / f"{name}.zarr"
        da.to_dataset().to_zarr(path, consolidated=False, encoding={"sst": {"chunks": chunks}})

    def told(name: str, chunks: Any, later: Any = None) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            lazy = xarray.open_zarr(tmp_path / f"{name}.zarr", chunks=chunks, consolidated=False).sst
            lazy = lazy if later is None else lazy.chunk(later)
            stacked(lazy, "time")
        return [str(each.message) for each in found if "chunks that slow down" in str(each.message)]

    assert not told("time", {})
    assert not told("time", {"time": 24})
    assert not told("both", {}, {"time": 24, "lat": -1, "lon": -1})
    assert not told("space", {"time": -1, "lat": 2, "lon": -1})
    (cut,) = told("space", {"time": 8, "lat": -1, "lon": -1})
    assert (
        "decompresses each chunk of the file about 12 times. Open the file with chunks={'time': -1, 'lat': 2, " in cut
    )
    (kept,) = told("space", {}, {"time": 8, "lat": -1, "lon": -1})
    assert "each pass cuts and joins all chunks" in kept
    (joined,) = told("both", {})
    assert "each pass cuts and joins all chunks" in joined
    assert "Use da.chunk({'time': 24, 'lat': -1, 'lon': -1})" in joined


@pytest.mark.parametrize("chunks", [(-1, 7, 4), (100, 7, 4), (100, 20, 4), (-1, 20, 30)])
def test_chunks_of_parts_of_maps_are_not_joined_across_cells(chunks: tuple[int, ...]) -> None:
    da = field(2)
    land = da.isel(time=0, drop=True).copy(data=np.random.default_rng(0).random((20, 30))) < 0.3
    da = da.where(~land)
    lazy = da.chunk(dict(zip(da.dims, chunks, strict=True)))
    X = stacked(lazy, "time").X
    assert not any("merge" in layer or "split" in layer for layer in X.dask.layers)
    found, known = (pca(each, 3, weights="coslat", rng=0, missing="mean", tol=1e-9) for each in (lazy, da))
    for name in ("components", "mean_field", "weights", "standard_deviation", "singular_values"):
        np.testing.assert_allclose(found[name], known[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("chunks", [{"time": 1}, {"time": 1, "lat": 4, "lon": 5}])
def test_other_chunks_of_coordinates_do_not_matter(chunks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.xarray.fields.LEAST_TOLD", 10**9)
    da = monthly()
    issued = xarray.DataArray(np.arange(96.0), dims="time").chunk(time=96)
    lazy = da.chunk(chunks).assign_coords(issued=issued)
    np.testing.assert_allclose(pca(lazy, 2, rng=0).explained_variance, pca(da, 2, rng=0).explained_variance, rtol=1e-6)
    monkeypatch.setattr("shiftsvd.xarray.fields.LEAST_TOLD", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pca(lazy, 2, rng=0)


def test_chunks_beyond_the_memory_limit_are_told() -> None:
    import dask

    lazy = field(3).chunk({"lat": 10})
    of_all = "Dask loads 3 chunks of up to 504 kB"
    with dask.config.set(num_workers=3), pytest.warns(UserWarning, match=of_all):
        ss.estimate(ss.as_operator(lazy.data.reshape(TIMES, -1), memory_limit="1MB"), 3)
    with dask.config.set(num_workers=1), warnings.catch_warnings():
        warnings.simplefilter("error")
        ss.as_operator(lazy.data.reshape(TIMES, -1), memory_limit="1MB")


@pytest.mark.parametrize("limit", ["2MB", "4MB", "6MB"])
def test_a_limit_that_a_message_names_is_enough_for_chunks_of_dask(limit: str) -> None:
    values = np.random.default_rng(0).standard_normal((600, 1800)).astype(np.float32)
    lazy = xarray.DataArray(values, dims=("time", "cell"), name="t2m").chunk({"time": 30})
    for fit in (pca, lambda da, *k, **known: joint([da, da.rename("sst")], *k, **known)):
        with pytest.raises(ValueError, match=r"Raise memory_limit\.$") as found:
            fit(lazy, 1, rng=0, memory_limit=limit)
        (needed,) = re.findall(r"needs about ([0-9.]+ MB), more than the limit of", str(found.value))
        assert fit(lazy, 1, rng=0, memory_limit=needed).sizes["mode"] == 1


def test_estimate_takes_a_reshaped_field_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    da = field(0)
    for each in (da, da.chunk({"time": 100})):
        with pytest.raises(
            ValueError, match=r"shape \(420, 20, 30\)\. Use reshape\(420, -1\), or, .*shiftsvd.xarray.pca"
        ):
            ss.estimate(each, 3)
        assert ss.estimate(each.data.reshape(len(each), -1), 3, tol=1e-6).n_passes > 1
    da.to_dataset(name="t2m").to_zarr(tmp_path / "t2m.zarr", consolidated=False)
    for given in ({}, {"key": "t2m"}):
        with pytest.raises(ValueError, match=r"Save X.reshape\(420, -1\).*use shiftsvd.xarray.pca in Python\.$"):
            ss.io.open_matrix(tmp_path / "t2m.zarr", **given)
