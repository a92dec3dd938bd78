"""convert: the same matrix and names, samples as rows, in a file that others read too; whole or not at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import csc_array, csr_array, random_array, save_npz

from shiftsvd.backends.validation import sound_structure
from shiftsvd.io import convert, open_matrix
from shiftsvd.io.convert import adjoint_blocks
from shiftsvd.io.opening import read_file
from tests.support.places import needs

pytest.importorskip("h5py")


def matrix(m: int = 40, n: int = 13, dtype: str = "f4", seed: int = 0) -> csr_array:
    X = random_array((m, n), density=0.3, rng=np.random.default_rng(seed), format="csr")
    X.data = np.ceil(X.data * 9)
    return csr_array(X.astype(dtype) * (1 + 1j if dtype == "c16" else 1))


def read(path: Path) -> tuple[Any, Any]:
    opened = read_file(path, None, None, None)
    X = opened.matrix.read(0, opened.matrix.shape[0])
    assert not opened.transposed
    return X, (opened.rows, opened.columns)


def same(X: Any, Y: Any) -> None:
    np.testing.assert_array_equal(
        X if isinstance(X, np.ndarray) else X.toarray(), Y if isinstance(Y, np.ndarray) else Y.toarray()
    )


@pytest.fixture(params=[".h5ad", ".zarr"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == ".zarr":
        pytest.importorskip("zarr")
    return tmp_path / f"out{request.param}"


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("stored", [csr_array, csc_array])
def test_sparse_stays_sparse_and_the_same(tmp_path: Path, out: Path, stored: Any, compression: str | None) -> None:
    needs("scanpy")
    if compression == "zstd":
        pytest.importorskip("hdf5plugin")
    save_npz(tmp_path / "X.npz", stored(matrix()))
    convert(tmp_path / "X.npz", out, compression=compression)
    X, names = read(out)
    assert isinstance(X, csr_array)
    assert X.dtype == np.float32
    same(X, matrix())
    assert [len(labels) for labels in names] == [40, 13]


@pytest.mark.parametrize(
    ("order", "orient", "memory_limit"),
    [
        ("C", "rows", "17MB"),
        ("C", "columns", "17MB"),
        ("F", "rows", "17MB"),
        ("F", "rows", "1GB"),
        ("F", "columns", None),
    ],
)
def test_dense_is_turned_so_that_samples_are_rows(
    tmp_path: Path, out: Path, order: Any, orient: Any, memory_limit: str | None
) -> None:
    X = np.random.default_rng(1).standard_normal((1500, 400))  # 4.8 MB: more than a quarter of 17 MB
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    convert(tmp_path / "X.npy", out, orient=orient, memory_limit=memory_limit)
    same(read(out)[0], X if orient == "rows" else X.T)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "orient", "memory_limit"),
    [("f4", "rows", "3MB"), ("f4", "columns", "3MB"), ("c16", "columns", "3MB"), ("i8", "columns", None)],
)
def test_convert_of_a_converted_file_turns_it_in_bounded_memory(
    tmp_path: Path, out: Path, orient: Any, dtype: str, memory_limit: str | None
) -> None:
    needs("scanpy")
    X = matrix(900, 700, dtype)  # 190 000 entries: 2.3 MB or more
    save_npz(tmp_path / "X.npz", X)
    convert(tmp_path / "X.npz", tmp_path / "first.h5ad")
    convert(tmp_path / "first.h5ad", out, orient=orient, memory_limit=memory_limit)
    Y, names = read(out)
    same(Y, X if orient == "rows" else X.T)
    assert Y.dtype == X.dtype
    assert [len(labels) for labels in names] == list(Y.shape)
    assert names[0].tolist() == list(map(str, range(Y.shape[0])))


@pytest.mark.parametrize("n_bytes", [1, 200, 3000, 10**7])
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_the_blocks_of_the_adjoint_are_its_rows(tmp_path: Path, n_bytes: int, dtype: str) -> None:
    X = matrix(dtype=dtype)
    X = csr_array(X * (np.arange(13) % 7 > 0))  # columns without entries
    save_npz(tmp_path / "X.npz", X)
    convert(tmp_path / "X.npz", tmp_path / "X.h5ad")
    np.save(tmp_path / "X.npy", X.toarray())
    for name in ("X.h5ad", "X.npy"):
        source = read_file(tmp_path / name, None, None, None).matrix
        folder = tmp_path / f"buckets of {name}"
        folder.mkdir()
        blocks = list(adjoint_blocks(source, n_bytes, folder))
        rows = np.concatenate([block if isinstance(block, np.ndarray) else block.toarray() for block in blocks])
        np.testing.assert_array_equal(rows, X.conj().T.toarray())
        assert not list(folder.iterdir())
        for block in blocks:
            if not isinstance(block, np.ndarray):
                sound_structure(block)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_anndata_reads_what_was_written(tmp_path: Path, out: Path, kind: str) -> None:
    needs("scanpy")
    anndata = pytest.importorskip("anndata")
    h5py = pytest.importorskip("h5py")
    X = matrix(dtype="i4")
    with h5py.File(tmp_path / "10x.h5", "w") as root:
        for part in ("data", "indices", "indptr"):
            root[f"matrix/{part}"] = getattr(X, part)
        root["matrix/shape"] = X.shape[::-1]
        root["matrix/barcodes"] = [f"cell {i} \u00e9" for i in range(40)]
        root["matrix/features/id"] = root["matrix/features/name"] = [f"gene {j}" for j in range(13)]
    source = tmp_path / "10x.h5"
    if kind == "dense":
        np.save(tmp_path / "X.npy", X.toarray())
        source = tmp_path / "X.npy"
    convert(source, out)
    A = anndata.read_zarr(out) if out.suffix == ".zarr" else anndata.read_h5ad(out)
    same(A.X, X)
    if kind == "sparse":
        assert A.obs_names.tolist() == [f"cell {i} \u00e9" for i in range(40)]
        assert A.var_names.tolist() == [f"gene {j}" for j in range(13)]
    A.write_h5ad(tmp_path / "again.h5ad", compression="gzip")
    same(open_matrix(tmp_path / "again.h5ad")[0] @ np.eye(13), X)


def test_indices_beyond_32_bits_are_read(tmp_path: Path) -> None:
    X = csr_array((np.ones(2), (np.array([0, 1]), np.array([5, 2**31 + 5]))), shape=(2, 2**31 + 6))
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "X.hdf5", "w") as root:
        group = root.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": X.shape})
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(X, part)
    source = read_file(tmp_path / "X.hdf5", None, None, "100GB").matrix
    assert source.read(0, 2).indices.tolist() == [5, 2**31 + 5]
    assert source.read(1, 2).nnz == 1


def test_h5_is_written_like_h5ad(tmp_path: Path) -> None:
    save_npz(tmp_path / "X.npz", matrix())
    convert(tmp_path / "X.npz", tmp_path / "X.h5")
    same(read(tmp_path / "X.h5")[0], matrix())


def test_an_output_is_not_replaced_unasked(tmp_path: Path, out: Path) -> None:
    mmwrite(tmp_path / "X.mtx", matrix())
    mmwrite(tmp_path / "Y.mtx", matrix(seed=5))
    convert(tmp_path / "X.mtx", out)
    with pytest.raises(FileExistsError, match=r"out\.\w+ exists"):
        convert(tmp_path / "Y.mtx", out)
    same(read(out)[0], matrix())
    convert(tmp_path / "Y.mtx", out, force=True)
    same(read(out)[0], matrix(seed=5))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["X.mtx", "Y.mtx", out.name])


def test_a_file_can_replace_itself(tmp_path: Path, out: Path) -> None:
    mmwrite(tmp_path / "X.mtx", matrix())
    convert(tmp_path / "X.mtx", out)
    convert(out, out, orient="columns", force=True)
    same(read(out)[0], matrix().T)


def test_an_error_in_the_middle_leaves_the_earlier_output(tmp_path: Path, out: Path) -> None:
    save_npz(tmp_path / "X.npz", matrix())
    convert(tmp_path / "X.npz", out)
    convert(tmp_path / "X.npz", tmp_path / "bad.h5ad")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "bad.h5ad", "r+") as root:
        root["X/indices"][-1] = 99
    with pytest.raises(ValueError, match="indices must be in"):
        convert(tmp_path / "bad.h5ad", out, force=True)
    same(read(out)[0], matrix())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["X.npz", "bad.h5ad", out.name])


@pytest.mark.parametrize(
    ("name", "how", "error", "match"),
    [
        ("out.csv", {}, ValueError, "must end in"),
        ("out.h5ad", {"compression": "blosc"}, ValueError, "compression must be"),
        ("out.h5ad", {"orient": "across"}, ValueError, "orient must be"),
        ("no/out.h5ad", {}, FileNotFoundError, "the folder .* does not exist"),
        ("folder.h5ad", {"force": True}, FileExistsError, "is a folder"),
    ],
)
def test_what_cannot_be_written_is_said_at_once(tmp_path: Path, name: str, how: Any, error: Any, match: str) -> None:
    save_npz(tmp_path / "X.npz", matrix())
    (tmp_path / "folder.h5ad").mkdir()
    with pytest.raises(error, match=match):
        convert(tmp_path / "X.npz", tmp_path / name, **how)


FULL = """
import sys, resource
from pathlib import Path
from shiftsvd.io import convert
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    convert(sys.argv[1], sys.argv[2], force=True, compression=sys.argv[3])
except OSError as error:
    print(error)
    sys.exit(1)
"""


@pytest.mark.long
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_full_disk_leaves_the_earlier_output_and_nothing_else(tmp_path: Path, out: Path, compression: str) -> None:
    save_npz(tmp_path / "small.npz", matrix())
    save_npz(tmp_path / "large.npz", random_array((2000, 500), density=0.3, rng=np.random.default_rng(1), format="csr"))
    convert(tmp_path / "small.npz", out)
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "large.npz", out, compression],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"{out} cannot be written: ")
    assert not done.stderr
    same(read(out)[0], matrix())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["small.npz", "large.npz", out.name])
