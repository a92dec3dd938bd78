"""Formats that are read range by range: every reader gives back one matrix, its names, and its orientation."""

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.io import convert, open_matrix
from shiftsvd.io.opening import read_file
from shiftsvd.io.storage.tree import CsrRows
from tests.support.chunked import (
    CELLS,
    CHUNKED,
    GENES,
    matrix,
    write_h5ad,
    write_hdf5,
    write_netcdf,
    write_npy,
    write_tenx,
    write_zarr,
)
from tests.support.places import needs_reader, readable_of

Write = Callable[[Path], Path]


@dataclass(frozen=True)
class Case:
    write: Write
    names: bool = True
    dtype: str = "f4"
    tall: bool = True  # whether the file itself speaks of samples as rows


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
CASES = readable_of(CASES)


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def same(A: Any, X: Any) -> bool:
    return bool(np.array_equal(A.matmat(np.eye(A.shape[1])), X)) and bool(
        np.array_equal(A.rmatmat(np.eye(A.shape[0])), X.T.conj())
    )


@pytest.mark.filterwarnings("ignore:The (data type|codec)")
@pytest.mark.parametrize("stream", [False, True, None])
@pytest.mark.parametrize("orient", [None, "rows", "columns"])
def test_a_file_gives_back_its_matrix_and_names(tmp_path: Path, case: Case, orient: Any, stream: bool | None) -> None:
    A, names = open_matrix(case.write(tmp_path), orient=orient, stream=stream, n_threads=2)
    X, samples, features = matrix(case.dtype).toarray(), CELLS, GENES
    if orient is not None and (orient == "rows") != case.tall:
        X, samples, features = X.T, GENES, CELLS
    assert same(A, X)
    if case.names:
        np.testing.assert_array_equal(names.samples, samples)
        np.testing.assert_array_equal(names.features, features)
    else:
        assert names == (None, None)
    if stream:
        assert isinstance(A if isinstance(A, DiskRows) else A.H, DiskRows)


@pytest.mark.parametrize("name", ["npy", "h5ad", "h5ad, CSC", "hdf5, gzip", "netcdf"])
def test_a_file_that_changes_between_passes_is_an_error(name: str, tmp_path: Path) -> None:
    needs_reader(name)
    file = CASES[name].write(tmp_path)
    A, _ = open_matrix(file, stream=True, n_threads=2)
    V = np.eye(A.shape[1])
    A.matmat(V)
    file.write_bytes(file.read_bytes())
    os.utime(file, (2e9, 2e9))
    with pytest.raises(OSError, match=r"was changed while it was read\. Start again\.") as caught:
        A.matmat(V)
    assert str(caught.value).startswith(str(file))


@pytest.mark.filterwarnings("ignore:The (data type|codec)")
@pytest.mark.parametrize("name", ["zarr", "zarr 3", "bpcells"])
def test_a_folder_that_changes_is_an_error_at_the_end_of_the_pass(name: str, tmp_path: Path) -> None:
    needs_reader(name)
    folder = write_zarr(tmp_path, zarr_format=3) if name == "zarr 3" else write_zarr(tmp_path)
    if name == "bpcells":
        convert(folder, tmp_path / "X.bpcells")
        folder = tmp_path / "X.bpcells"
    A, _ = open_matrix(folder, stream=True, n_threads=2)
    V = np.eye(A.shape[1])
    A.matmat(V)
    some = max(path for path in folder.rglob("*") if path.is_file())
    some.write_bytes(some.read_bytes())
    os.utime(some, (2e9, 2e9))
    with pytest.raises(OSError, match=r"was changed while it was read\. Start again\.") as caught:
        A.matmat(V)
    assert str(caught.value).startswith(str(folder))


@pytest.mark.filterwarnings("ignore:The (data type|codec)")
def test_a_source_gives_the_same_rows_however_it_is_cut(tmp_path: Path, case: Case) -> None:
    source = read_file(case.write(tmp_path), None, None, None).matrix
    assert isinstance(source, RowSource)
    whole = dense(source.read(0, source.shape[0]))
    for n_bytes in (1, 50, 300, 10**6):
        edges = source.edges(n_bytes)
        assert edges[0] == 0
        assert edges[-1] == source.shape[0]
        assert all(lo < hi for lo, hi in pairwise(edges))
        if isinstance(source, CsrRows):
            assert all(n_bytes_of(source.read(lo, hi - 1)) <= n_bytes for lo, hi in pairwise(edges) if hi - lo > 1)
        with ThreadPoolExecutor(4) as pool:
            blocks = list(pool.map(lambda rows: dense(source.read(*rows)), pairwise(edges)))
        np.testing.assert_array_equal(np.concatenate(blocks), whole)
    np.testing.assert_array_equal(dense(source.read(3, 9)), whole[3:9])
    assert whole.dtype == source.dtype
    assert source.stored == (source.read(0, source.shape[0]).nnz if source.sparse else whole.size)


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:The (data type|codec)")
def test_a_source_can_be_sent_to_another_process(tmp_path: Path, case: Case) -> None:
    source = read_file(case.write(tmp_path), None, None, None).matrix
    again = pickle.loads(pickle.dumps(source))
    m = source.shape[0]
    np.testing.assert_array_equal(dense(again.read(0, m)), dense(source.read(0, m)))
    assert again.fingerprint == source.fingerprint


def test_chunks_that_were_never_written_are_the_fill_value(tmp_path: Path) -> None:
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w") as file:
        X = file.create_dataset("X", (40, 6), "f8", chunks=(10, 6), compression="gzip", fillvalue=2.5)
        X[10:20] = 1.0
        want = X[:]
    for stream in (True, False):
        A, _ = open_matrix(tmp_path / "a.h5", stream=stream)
        np.testing.assert_array_equal(A.matmat(np.eye(6)), want)


def test_a_million_small_chunks_are_told_with_the_seconds_of_a_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", (1_000_000, 128), "f8", chunks=(1, 128))
    with caplog.at_level("INFO", "shiftsvd"):
        read_file(tmp_path / "a.h5", None, None, "1GB")
    assert "1,000,000 chunks of 1.02 kB, so each read takes about 100 s" in caplog.text


def test_long_metadata_of_zarr_are_held_against_the_limit_before_they_are_parsed(tmp_path: Path) -> None:
    path = write_zarr(tmp_path)
    (path / "more").mkdir()
    (path / "more" / ".zattrs").write_text('{"a": [' + "[]," * 100_000 + "0]}")
    open_matrix(path, memory_limit="20MB")
    with pytest.raises(ValueError, match=r"its metadata would take about 9\.61 MB"):
        open_matrix(path, memory_limit="8MB")


def n_bytes_of(X: Any) -> int:
    return int(X.data.nbytes + 4 * X.nnz + 8 * X.shape[0])


def dense(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else X.toarray()
