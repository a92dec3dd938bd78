"""Files of every format that is read in blocks, written by the tests themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from tests.support.places import needs

M, N = 37, 11


CELLS = np.array([f"cell {i}" for i in range(M)])


GENES = np.array([f"gene-{j} \u03b1" for j in range(N)])


def matrix(dtype: str = "f4", *, density: float = 0.3) -> csr_array:
    X = random_array((M, N), density=density, rng=np.random.default_rng(0), format="csr", dtype=np.float64)
    X.data = np.ceil(X.data * 9)
    if dtype == "c16":
        X = X * (1 + 2j)
    return csr_array(X.astype(dtype))


def write_npy(path: Path, X: Any = None, order: str = "C") -> Path:
    X = matrix().toarray() if X is None else X
    np.save(path / "X.npy", np.asarray(X, order=order))
    return path / "X.npy"


def h5(path: Path) -> Any:
    return pytest.importorskip("h5py").File(path, "w")


def frame(root: Any, name: str, labels: np.ndarray) -> None:
    group = root.create_group(name)
    group.attrs["_index"] = "id"
    texts(group, "id", labels)


def texts(group: Any, name: str, labels: np.ndarray) -> None:
    if type(group).__module__.startswith("zarr"):
        group.create_array(name, shape=labels.shape, dtype=str)[:] = labels.astype(object)
    else:
        group.create_dataset(name, data=labels.astype(object), dtype=pytest.importorskip("h5py").string_dtype())


def array(group: Any, name: str, data: np.ndarray, **how: Any) -> None:
    if type(group).__module__.startswith("zarr"):
        how.pop("shuffle", None)
        compression = how.pop("compression", None)
        assert compression in (None, "gzip")
        group.create_array(name, data=data, **how)
    else:
        group.create_dataset(name, data=data, **how)


def sparse(group: Any, X: Any, **how: Any) -> None:
    group.attrs["encoding-type"] = f"{X.format}_matrix"
    group.attrs["encoding-version"] = "0.1.0"
    group.attrs["shape"] = [int(size) for size in X.shape]
    for part in ("data", "indices", "indptr"):
        array(group, part, getattr(X, part), **how)


def anndata(root: Any, X: Any, **how: Any) -> None:
    root.attrs["encoding-type"] = "anndata"
    frame(root, "obs", CELLS)
    frame(root, "var", GENES)
    if isinstance(X, np.ndarray):
        array(root, "X", X, **how)
    else:
        sparse(root.create_group("X"), X, **how)
    root.create_group("layers")
    sparse(root["layers"].create_group("twice"), csr_array(X) * 2, **how)


def write_h5ad(path: Path, X: Any = None, **how: Any) -> Path:
    with h5(path / "X.h5ad") as root:
        anndata(root, matrix() if X is None else X, **how)
    return path / "X.h5ad"


def write_zarr(path: Path, X: Any = None, zarr_format: int = 2, **how: Any) -> Path:
    needs("scanpy")
    zarr = pytest.importorskip("zarr")
    root = zarr.open_group(str(path / "X.zarr"), mode="w", zarr_format=zarr_format)
    anndata(root, matrix() if X is None else X, **how)
    return path / "X.zarr"


def write_tenx(path: Path, X: Any = None) -> Path:
    X = (matrix("i4") if X is None else X).T  # genes x cells
    with h5(path / "X.h5") as root:
        group = root.create_group("matrix")
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(X, part))
        group.create_dataset("shape", data=X.shape)
        texts(group, "barcodes", CELLS)
        texts(group.create_group("features"), "name", GENES)
        texts(group["features"], "id", np.char.add("id ", GENES))
    return path / "X.h5"


def write_hdf5(path: Path, X: Any = None, **how: Any) -> Path:
    with h5(path / "X.hdf5") as root:
        root.create_dataset("deep/down/X", data=matrix().toarray() if X is None else X, **how)
        root.create_dataset("a vector", data=np.arange(3.0))
    return path / "X.hdf5"


def write_netcdf(path: Path, engine: str = "h5netcdf") -> Path:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    X = xarray.DataArray(matrix().toarray(), dims=("cell", "gene"), coords={"cell": CELLS, "gene": GENES})
    xarray.Dataset({"counts": X, "size": ("cell", np.arange(M))}).to_netcdf(path / "X.nc", engine=engine)
    return path / "X.nc"


CHUNKED = {"chunks": (7,), "compression": "gzip", "shuffle": True}
