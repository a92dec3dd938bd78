"""Formats that are read range by range: every reader gives back one matrix, its names, and its orientation."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.io import open_matrix
from shiftsvd.io.opening import read_file

M, N = 37, 11
CELLS = np.array([f"cell {i}" for i in range(M)])
GENES = np.array([f"gene-{j} \u03b1" for j in range(N)])
Write = Callable[[Path], Path]


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


@dataclass(frozen=True)
class Case:
    write: Write
    names: bool = True
    dtype: str = "f4"
    tall: bool = True  # whether the file itself speaks of samples as rows


CHUNKED = {"chunks": (7,), "compression": "gzip", "shuffle": True}
CASES = {
    "npy": Case(write_npy, names=False),
    "npy, Fortran": Case(lambda p: write_npy(p, order="F"), names=False),
    "npy, big-endian": Case(lambda p: write_npy(p, matrix().toarray().astype(">f4")), names=False),
    "npy, complex, Fortran": Case(lambda p: write_npy(p, matrix("c16").toarray(), "F"), names=False, dtype="c16"),
    "h5ad": Case(write_h5ad),
    "h5ad, gzip": Case(lambda p: write_h5ad(p, **CHUNKED)),
    "h5ad, lzf": Case(lambda p: write_h5ad(p, chunks=(8,), compression="lzf")),
    "h5ad, CSC": Case(lambda p: write_h5ad(p, matrix().tocsc())),
    "h5ad, CSC, complex": Case(lambda p: write_h5ad(p, matrix("c16").tocsc()), dtype="c16"),
    "h5ad, dense": Case(lambda p: write_h5ad(p, matrix().toarray())),
    "zarr": Case(write_zarr),
    "zarr 3": Case(lambda p: write_zarr(p, zarr_format=3, chunks=(5,))),
    "zarr, CSC": Case(lambda p: write_zarr(p, matrix().tocsc(), chunks=(9,))),
    "zarr, dense": Case(lambda p: write_zarr(p, matrix().toarray())),
    "10x": Case(write_tenx, dtype="i4", tall=False),
    "hdf5": Case(write_hdf5, names=False),
    "hdf5, gzip": Case(lambda p: write_hdf5(p, chunks=(10, 4), compression="gzip", shuffle=True), names=False),
    "hdf5, gzip, big-endian": Case(
        lambda p: write_hdf5(
            p, matrix().toarray().astype(">f4"), chunks=(40, 20), compression="gzip", maxshape=(None, 99)
        ),
        names=False,
    ),
    "hdf5, bools": Case(lambda p: write_hdf5(p, matrix().toarray() > 0, compression="gzip"), names=False, dtype="?"),
    "netcdf": Case(write_netcdf),
    "netcdf, classic": Case(lambda p: write_netcdf(p, "scipy")),
}


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def same(A: Any, X: Any) -> bool:
    return bool(np.array_equal(A.matmat(np.eye(A.shape[1])), X)) and bool(
        np.array_equal(A.rmatmat(np.eye(A.shape[0])), X.T.conj())
    )


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("stream", [False, True, None])
@pytest.mark.parametrize("orient", [None, "rows", "columns"])
def test_a_file_gives_back_its_matrix_and_names(tmp_path: Path, case: Case, orient: Any, stream: bool | None) -> None:
    A, names = open_matrix(case.write(tmp_path), orient=orient, stream=stream, n_threads=2)
    X, samples, features = matrix(case.dtype).toarray(), CELLS, GENES
    if orient is not None and (orient == "rows") != case.tall:
        X, samples, features = X.T.conj(), GENES, CELLS
    assert same(A, X)
    if case.names:
        np.testing.assert_array_equal(names.samples, samples)
        np.testing.assert_array_equal(names.features, features)
    else:
        assert names == (None, None)
    if stream:
        assert isinstance(A if isinstance(A, DiskRows) else A.H, DiskRows)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_a_source_gives_the_same_rows_however_it_is_cut(tmp_path: Path, case: Case) -> None:
    source = read_file(case.write(tmp_path), None, None, None).matrix
    assert isinstance(source, RowSource)
    whole = dense(source.read(0, source.shape[0]))
    for n_bytes in (1, 50, 300, 10**6):
        edges = source.edges(n_bytes)
        assert edges[0] == 0
        assert edges[-1] == source.shape[0]
        assert all(lo < hi for lo, hi in pairwise(edges))
        with ThreadPoolExecutor(4) as pool:
            blocks = list(pool.map(lambda rows: dense(source.read(*rows)), pairwise(edges)))
        np.testing.assert_array_equal(np.concatenate(blocks), whole)
    np.testing.assert_array_equal(dense(source.read(3, 9)), whole[3:9])
    assert whole.dtype == source.dtype
    assert source.stored == (source.read(0, source.shape[0]).nnz if source.sparse else whole.size)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_a_source_can_be_sent_to_another_process(tmp_path: Path, case: Case) -> None:
    source = read_file(case.write(tmp_path), None, None, None).matrix
    again = pickle.loads(pickle.dumps(source))
    m = source.shape[0]
    np.testing.assert_array_equal(dense(again.read(0, m)), dense(source.read(0, m)))
    assert again.fingerprint == source.fingerprint


def dense(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else X.toarray()
