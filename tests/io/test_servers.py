"""Data on servers: the same values as from the disk, and one line for each wrong answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.backends.files import DiskRows
from shiftsvd.io import open_matrix
from shiftsvd.io import servers
from tests.io.test_streaming import CASES
from tests.support.chunked import CHUNKED, M, N, matrix, write_h5ad, write_npy, write_zarr
from tests.support.server import FolderServer, serving

pytest.importorskip("requests")
pytest.importorskip("fsspec")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderServer]:
    monkeypatch.setattr(servers, "_PAUSES", (0.001, 0.001, 0.001))
    with serving(tmp_path) as made:
        yield made


def in_memory(file: Path, address: str) -> str:
    """Copy a file or folder into the memory of fsspec."""
    files = pytest.importorskip("fsspec").filesystem("memory")
    for each in (file, *file.rglob("*")) if file.is_dir() else (file,):
        if each.is_file():
            files.pipe_file(f"/{address}/{each.relative_to(file.parent)}", each.read_bytes())
    return f"memory://{address}/{file.name}"


def consolidated(file: Path) -> Path:
    if file.suffix == ".zarr":
        pytest.importorskip("zarr").consolidate_metadata(str(file))
    return file


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("store", ["http", "memory"])
def test_values_are_those_of_the_file(name: str, store: str, server: FolderServer, tmp_path: Path) -> None:
    file = consolidated(CASES[name].write(tmp_path))
    address = f"{server.address}/{file.name}" if store == "http" else in_memory(file, f"{name}/b")
    expected, names = open_matrix(file, stream=True, n_threads=2)
    A, found = open_matrix(address, stream=True, n_threads=2)
    assert isinstance(getattr(A, "A", A), DiskRows) == isinstance(getattr(expected, "A", expected), DiskRows)
    V = np.random.default_rng(0).standard_normal((A.shape[1], 3))
    assert np.array_equal(A.matmat(V), expected.matmat(V))
    for own, other in zip(found, names, strict=True):
        assert (own is None and other is None) or np.array_equal(own, other)
