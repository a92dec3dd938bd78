"""Where Dask arrays come from: AnnData in Zarr, xarray, Zarr itself; the fit is that in memory, and loads in tasks."""

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.dask import DaskRows, on_workers
from shiftsvd.io import convert, open_matrix

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

ROWS, COLUMNS = 700, 50
TOL = 1e-12
ANGLE = TOL**0.5  # what a value that is right to TOL says of its vector


def counts(kind: str) -> Any:
    """Counts of rows of a few kinds."""
    rng = np.random.default_rng(5)
    X = rng.poisson(rng.gamma(0.3, 1.0, (6, COLUMNS))[rng.integers(0, 6, ROWS)]).astype(np.float64)
    return X if kind == "dense" else sparse.csr_array(X)


def toarray(X: Any) -> Any:
    return X.toarray() if sparse.issparse(X) else X


def write(adata: Any, path: Path) -> None:
    """As AnnData does by default, which it says will change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        adata.write_zarr(path)


def same_fit(lazy: Any, X: Any) -> None:
    """Values to 1e-10, the same components, mean and scores; the data are chunked and nowhere until asked for."""
    settings = {"n_components": 4, "solver": "lanczos", "tol": TOL, "random_state": 0}
    found, want = (ss.PCA(**settings).fit(A) for A in (lazy, X))
    np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(found.components_, want.components_, atol=ANGLE)
    np.testing.assert_allclose(found.mean_, want.mean_, rtol=1e-12, atol=1e-14)
    Z = found.transform(lazy)
    assert isinstance(Z, da.Array)
    np.testing.assert_allclose(Z.compute(), want.transform(X), atol=ANGLE * float(want.singular_values_[0]))


def test_a_labelled_array_is_read_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    xarray = pytest.importorskip("xarray")
    D = counts("dense")
    X = xarray.DataArray(da.from_array(D, chunks=(200, 7)), dims=("sample", "feature"))
    monkeypatch.setattr(xarray.DataArray, "__array__", lambda *_, **__: pytest.fail("the array was made whole"))
    same_fit(X, D)
    np.testing.assert_allclose(ss.svd(X, 3, solver="gram").S, ss.svd(D, 3, solver="gram").S, rtol=1e-10)
    pca = ss.PCA(3, random_state=0).fit(X)
    assert isinstance(pca.inverse_transform(pca.transform(X)), da.Array)


@pytest.fixture(params=["sparse", "dense"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layer", [None, "raw"])
def test_anndata_in_zarr_that_is_read_lazily(kind: str, layer: str | None, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    zarr = pytest.importorskip("zarr")
    X = counts(kind)
    adata = anndata.AnnData(2 * X if layer else X, layers={"raw": X})
    write(adata, tmp_path / "X.zarr")
    group = zarr.open_group(str(tmp_path / "X.zarr"), mode="r")
    node = group["layers/raw"] if layer else group["X"]
    # Dense data are chunked as they lie in the store; of sparse data whoever reads them says how many rows.
    chunks = (200, COLUMNS) if kind == "sparse" else None
    lazy = anndata.experimental.read_elem_lazy(node, chunks=chunks)
    assert isinstance(lazy, da.Array)
    assert sparse.issparse(lazy._meta) == (kind == "sparse")
    same_fit(lazy, X)


def test_a_whole_anndata_that_is_read_lazily(kind: str, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    X = counts(kind)
    write(anndata.AnnData(X), tmp_path / "X.zarr")
    adata = anndata.experimental.read_lazy(str(tmp_path / "X.zarr"))
    same_fit(adata.X, X)


def test_zarr_arrays(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    X = counts("dense")
    array = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(150, 20), dtype=X.dtype)
    array[:] = X
    lazy = da.from_zarr(str(tmp_path / "X.zarr"))
    assert lazy.numblocks == (5, 3)
    same_fit(lazy, X)


def test_the_array_of_a_data_array(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    X = counts("dense")
    xarray.DataArray(X, dims=("time", "place"), name="rain").to_netcdf(tmp_path / "X.nc", engine="h5netcdf")
    with xarray.open_dataarray(tmp_path / "X.nc", engine="h5netcdf", chunks={"time": 160}) as rain:
        assert isinstance(rain.data, da.Array)
        same_fit(rain.data, X)


@pytest.mark.parametrize("name", ["X.npy", "X.h5ad", "X.zarr", "X.parquet", "X.nc", "T.npy"])
def test_files_in_blocks_of_rows_are_read_in_the_tasks(name: str, tmp_path: Path) -> None:
    X = counts("dense")
    if name.endswith("npy"):
        np.save(tmp_path / name, X.copy(order="F" if name == "T.npy" else "C"))
    elif name.endswith("nc"):
        pytest.importorskip("h5netcdf")
        xarray = pytest.importorskip("xarray")
        xarray.DataArray(X, name="X").to_netcdf(tmp_path / name, engine="h5netcdf")
    elif name.endswith("parquet"):
        pytest.importorskip("pyarrow")
        pd = pytest.importorskip("pandas")
        pd.DataFrame(X, columns=[f"f{j}" for j in range(COLUMNS)]).to_parquet(tmp_path / name, row_group_size=200)
    else:
        pytest.importorskip({"X.h5ad": "h5py", "X.zarr": "zarr"}[name])
        np.save(tmp_path / "X.npy", X)
        convert(tmp_path / "X.npy", tmp_path / name)
    stored, _ = open_matrix(tmp_path / name, stream=True)
    A = on_workers(stored)
    assert isinstance(A, DaskRows)
    settings = {"n_components": 4, "solver": "lanczos", "tol": TOL, "random_state": 0}
    found, want = (ss.PCA(**settings).fit(B) for B in (A, X))
    np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(found.components_, want.components_, atol=ANGLE)
    assert A.costs.stored == stored.costs.stored
    source = stored.source
    assert on_workers(stored.in_blocks_for(10_000)).memory_limit == 10_000
    there = pickle.loads(pickle.dumps(source))  # as it comes to another process
    np.testing.assert_array_equal(toarray(there.read(0, 30)), toarray(source.read(0, 30)))
    assert len(pickle.dumps(source)) < X.nbytes / 4


def test_a_damaged_block_of_a_file_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    X = counts("dense")
    X[500, 3] = np.nan
    np.save(tmp_path / "X.npy", X)
    A = on_workers(open_matrix(tmp_path / "X.npy", stream=True)[0])
    with pytest.raises(ValueError, match=r"chunk 0 of .*X\.npy.*must be finite, got 1 NaN"):
        ss.PCA(2).fit(A)


def test_a_file_that_changes_while_workers_read_it_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", counts("dense"))
    A = on_workers(open_matrix(tmp_path / "X.npy", stream=True)[0])
    V, shifted = np.eye(COLUMNS), ss.centered(A)
    shifted.gram(V)
    os.utime(tmp_path / "X.npy", (2e9, 2e9))
    for multiply in (A.gram, A.matmat, shifted.gram):
        with pytest.raises(OSError, match=r"X\.npy was changed while it was read\. Start again\."):
            multiply(V)


def test_a_matrix_in_memory_is_not_for_workers() -> None:
    with pytest.raises(TypeError, match="Open it with stream=True"):
        on_workers(ss.as_operator(np.eye(3)))
