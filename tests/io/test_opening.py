"""What a file is, which way round it lies, and whether it is read whole: by name, by content, by what is asked."""

import gzip
import io
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, save_npz

from shiftsvd.backends.files import DiskRows
from shiftsvd.io import convert, open_matrix
from shiftsvd.io.base import optional, reading
from shiftsvd.io.opening import held_bytes, read_file
from shiftsvd.io.sniff import format_of, formats
from shiftsvd.names import resolve
from tests.support.chunked import h5, matrix, write_h5ad, write_hdf5, write_npy, write_tenx, write_zarr
from tests.support.places import needs, needs_reader


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("name", formats())
def test_every_format_has_a_reader(name: str) -> None:
    assert callable(resolve(formats()[name].reader))


@pytest.mark.parametrize(
    ("write", "name", "expected"),
    [
        (write_npy, "unnamed", "npy"),
        (write_h5ad, "unnamed", "h5ad"),
        (write_h5ad, "X.h5", "h5ad"),
        (write_tenx, "X.h5", "10x-h5"),
        (write_tenx, "unnamed", "10x-h5"),
        (write_hdf5, "X.h5", "hdf5"),
        (write_hdf5, "X.dat", "hdf5"),
        (write_zarr, "unnamed", "zarr"),
    ],
)
def test_content_tells_where_the_name_does_not(tmp_path: Path, write: Any, name: str, expected: str) -> None:
    needs_reader(expected)
    needs_reader(write.__name__)
    path = write(tmp_path).rename(tmp_path / name)
    assert format_of(path, None) == expected
    assert open_matrix(path)[0].shape in ((37, 11), (11, 37))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("X.mtx.gz", gzip.compress(b"%%MatrixMarket matrix", mtime=0), "mtx"),
        ("X", gzip.compress(b"%%MatrixMarket matrix", mtime=0), "mtx"),
        ("X.CSV", b"a,b\n1,2\n", "csv"),
        ("X.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0), "csv"),
        ("X.svm", b"1 1:2\n", "svmlight"),
        ("X.bed", b"\x6c\x1b\x01", "bed"),
        ("X.parquet", b"PAR1", "parquet"),
        ("X.bin", b"ARROW1", "arrow"),
        ("X.npz", b"PK\x05\x06", "npz"),
        ("X.nc", b"CDF\x01", "netcdf"),
        ("X.nc", b"\x89HDF\r\n\x1a\n", "netcdf"),
    ],
)
def test_names_and_first_bytes_agree(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    needs_reader(name)
    (tmp_path / name).write_bytes(content)
    assert format_of(tmp_path / name, None) == expected


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("X.npy", b"PK\x03\x04", r"X\.npy: the suffix is that of 'npy' \(NumPy array\), but the content is zip"),
        ("X.h5ad", b"a,b\n", "the suffix is that of 'h5ad' .*, but the content is text, or of an unknown format"),
        ("X.mtx", b"1 2 3\n", "the suffix is that of 'mtx' .*, but the content is text, or of an unknown format"),
        ("X.csv", b"PAR1", "the suffix is that of 'csv' .*, but the content is Parquet"),
        ("X.bed", b"chr1\t1\t2\n", "PLINK 1 genotypes.*, but the content is text, or of an unknown format"),
        ("X", b"hello", "has an unknown format.* Set format to one of npy"),
        ("X.npy", b"", "but the content is text, or of an unknown format"),
    ],
)
def test_a_name_that_is_wrong_is_said(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    needs_reader(name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=match):
        open_matrix(tmp_path / name)


def test_the_format_that_is_given_decides(tmp_path: Path) -> None:
    path = write_npy(tmp_path).rename(tmp_path / "X.csv")
    assert open_matrix(path, format="npy")[0].shape == (37, 11)
    with pytest.raises(ValueError, match=r"the format is 'npz' \(SciPy sparse matrix.*but the content is npy"):
        open_matrix(path, format="npz")
    with pytest.raises(ValueError, match=r"format must be one of npy, npz.*got 'excel'"):
        open_matrix(path, format="excel")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/no.npy does not exist"):
        open_matrix(tmp_path / "no.npy")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="folder has an unknown format"):
        open_matrix(tmp_path / "folder")
    with pytest.raises(ValueError, match='orient must be "rows" or "columns"'):
        open_matrix(write_npy(tmp_path), orient="sideways")  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [write_h5ad, write_zarr])
def test_a_key_chooses_an_element_and_its_names(tmp_path: Path, write: Any) -> None:
    needs("scanpy")
    path = write(tmp_path)
    A, names = open_matrix(path, key="layers/twice")
    np.testing.assert_array_equal(A @ np.eye(11), 2 * matrix().toarray())
    assert names.features is not None
    assert names.features[3] == "gene-3 \u03b1"
    with pytest.raises(ValueError, match=r"has no 'layers/no'\. It has 2 matrices: '(X|layers/twice)'"):
        open_matrix(path, key="layers/no")
    with pytest.raises(ValueError, match="is a group, not a matrix"):
        open_matrix(path, key="obs")


def test_raw_has_names_of_its_own(tmp_path: Path) -> None:
    needs("scanpy")
    anndata = pytest.importorskip("anndata")
    full = anndata.AnnData(matrix())
    full.var_names = [f"full {j}" for j in range(11)]
    kept = full[:, 4:].copy()
    kept.raw = full
    kept.write_h5ad(tmp_path / "X.h5ad")
    A, names = open_matrix(tmp_path / "X.h5ad", key="raw/X")
    np.testing.assert_array_equal(A @ np.eye(11), matrix().toarray())
    assert names.features is not None
    assert names.features.tolist() == full.var_names.tolist()
    assert open_matrix(tmp_path / "X.h5ad")[1].features.tolist() == kept.var_names.tolist()  # type: ignore[union-attr]


def test_names_may_be_categories_numbers_or_missing(tmp_path: Path) -> None:
    needs("scanpy")
    with h5(tmp_path / "X.h5ad") as root:
        root["X"] = np.eye(3)
        obs = root.create_group("obs")
        obs.attrs["_index"] = "kind"
        obs["kind/codes"] = np.array([1, -1, 0], np.int8)
        obs["kind/categories"] = ["a", "b"]
        root["var/_index"] = [7, 8, 9]
    _, names = open_matrix(tmp_path / "X.h5ad")
    assert names.samples is not None
    assert names.features is not None
    assert names.samples.tolist() == ["b", "", "a"]
    assert names.features.tolist() == ["7", "8", "9"]


def test_anndata_of_old_is_read(tmp_path: Path) -> None:
    needs("scanpy")
    X = matrix()
    with h5(tmp_path / "X.h5ad") as root:
        group = root.create_group("X")
        group.attrs.update({"h5sparse_format": "csr", "h5sparse_shape": X.shape})
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(X, part)
        for frame, size in (("obs", 37), ("var", 11)):
            root[frame] = np.array([(f"{frame} {i}".encode(), i) for i in range(size)], [("index", "S9"), ("n", "i4")])
    A, names = open_matrix(tmp_path / "X.h5ad")
    np.testing.assert_array_equal(A @ np.eye(11), X.toarray())
    assert names.features is not None
    assert names.features[2] == "var 2"


def test_one_of_several_datasets_must_be_chosen(tmp_path: Path) -> None:
    with h5(tmp_path / "X.hdf5") as root:
        root["a"], root["b/c"] = np.ones((2, 3)), np.ones((3, 2))
        root["a vector"] = np.ones(3)
    with pytest.raises(ValueError, match=r"has 2 matrices: 'a', 'b/c'\. Select one with key"):
        open_matrix(tmp_path / "X.hdf5")
    assert open_matrix(tmp_path / "X.hdf5", key="/b/c")[0].shape == (3, 2)
    with pytest.raises(ValueError, match=r"a vector must be a matrix of numbers, got shape \(3,\)"):
        open_matrix(tmp_path / "X.hdf5", key="a vector")


def test_what_takes_more_than_half_of_the_limit_stays_in_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.zeros((1000, 250)))  # 2 MB
    assert held_bytes(read_file(tmp_path / "X.npy", None, None, None).matrix) == 2_000_000
    assert isinstance(open_matrix(tmp_path / "X.npy", memory_limit="3.9MB")[0], DiskRows)
    assert not isinstance(open_matrix(tmp_path / "X.npy", memory_limit="4.1MB")[0], DiskRows)
    assert isinstance(open_matrix(tmp_path / "X.npy", stream=True)[0], DiskRows)
    assert not isinstance(open_matrix(tmp_path / "X.npy", memory_limit="3.9MB", stream=False)[0], DiskRows)
    save_npz(tmp_path / "X.npz", matrix())
    with pytest.raises(ValueError, match=r"X\.npz: this format cannot be read in blocks"):
        open_matrix(tmp_path / "X.npz", stream=True)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("stream", [True, False])
def test_samples_that_are_columns_keep_their_complex_numbers(tmp_path: Path, order: str, stream: bool) -> None:
    X = np.arange(12.0).reshape(4, 3) * (1 + 2j)
    path = write_npy(tmp_path, X.T, order)
    A, _ = open_matrix(path, orient="columns", stream=stream)
    np.testing.assert_array_equal(A.matmat(np.eye(3)), X)
    other = shutil.copy(path, tmp_path / "copy.npy")
    B, _ = open_matrix([path, other], stack="rows", orient="columns", stream=stream)
    np.testing.assert_array_equal(B.matmat(np.eye(3)), np.vstack([X, X]))
    convert(path, tmp_path / "X.h5ad", orient="columns")
    C, _ = open_matrix(tmp_path / "X.h5ad")
    np.testing.assert_array_equal(C.matmat(np.eye(3)), X)


@pytest.mark.parametrize("stream", [True, False])
def test_standard_input_is_read_and_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    content = write_npy(tmp_path).read_bytes()
    (tmp_path / "X.npy").unlink()
    stdin(monkeypatch, content)
    A, _ = open_matrix("-", format="npy", stream=stream)
    np.testing.assert_array_equal(A @ np.eye(11), matrix().toarray())
    assert bool(list(tmp_path.iterdir())) == stream
    del A
    assert not list(tmp_path.iterdir())


def test_standard_input_is_what_errors_call_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("scanpy")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stdin(monkeypatch, b"no matrix")
    with pytest.raises(ValueError, match=r"^standard input: the format is 'npy'"):
        open_matrix("-", format="npy")
    with pytest.raises(ValueError, match=r"standard input needs a format, got .*Use one of npy"):
        open_matrix("-")
    with pytest.raises(ValueError, match="standard input cannot be 10x, which is a folder"):
        open_matrix("-", format="10x")
    assert not list(tmp_path.iterdir())


def test_standard_input_may_be_compressed_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mmwrite(tmp_path / "X.mtx", matrix())
    stdin(monkeypatch, gzip.compress((tmp_path / "X.mtx").read_bytes()))
    A, _ = open_matrix("-", format="mtx", orient="rows")
    np.testing.assert_array_equal(A @ np.eye(11), matrix().toarray())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("x"), ValueError),
        (RuntimeError("x"), ValueError),
        (MemoryError(), ValueError),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), ValueError),
        (OSError("x"), OSError),
        (FileNotFoundError(2, "x"), FileNotFoundError),
    ],
)
def test_every_error_of_a_reader_begins_with_the_name(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^counts cannot be read: ") as caught, reading("counts"):
        raise error
    assert caught.value.__cause__ is error


def test_a_missing_package_comes_with_its_remedy() -> None:
    with pytest.raises(ImportError, match=r"The package nosuch is needed.*pip install 'shiftsvd\[extra\]'"):
        optional("nosuch.module", "extra")


@pytest.mark.parametrize("part", ["shape", "indptr", "data", "indices"])
def test_sizes_that_cannot_be_are_refused_before_anything_is_allocated(tmp_path: Path, part: str) -> None:
    path = write_h5ad(tmp_path)
    with pytest.importorskip("h5py").File(path, "r+") as root:
        group = root["X"]
        if part == "shape":
            group.attrs["shape"] = [10**18, 11]
        else:
            dtype = group[part].dtype
            del group[part]
            group.create_dataset(part, (10**15,), dtype, chunks=(1000,))
    with pytest.raises(ValueError, match="X"):
        open_matrix(path)


@pytest.mark.parametrize(
    ("indptr", "match"),
    [
        ([0, 2, 1, 3], "never decrease"),
        ([1, 1, 2, 3], "start at 0"),
        ([0, 1, 2, 4], "indptr ends at 4, but data has 3"),
        ([0, 1, 3], "indptr must have 4 entries, got 3"),
    ],
)
def test_an_indptr_that_is_wrong_is_refused(tmp_path: Path, indptr: list[int], match: str) -> None:
    with h5(tmp_path / "X.hdf5") as root:
        group = root.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [3, 2]})
        group["data"], group["indices"], group["indptr"] = np.ones(3), np.zeros(3, int), indptr
    with pytest.raises(ValueError, match=f"X.hdf5:X.*{match}"):
        open_matrix(tmp_path / "X.hdf5")


def test_indices_out_of_range_and_gaps_are_named_with_the_file(tmp_path: Path) -> None:
    X = csr_array(np.eye(3))
    for name, spoil in (("indices", 9), ("data", np.nan)):
        path = tmp_path / f"{name}.hdf5"
        with h5(path) as root:
            group = root.create_group("X")
            group.attrs.update({"encoding-type": "csr_matrix", "shape": [3, 3]})
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(X, part)
            group[name][1] = spoil
        with pytest.raises(ValueError, match=f"^{path}: "):
            open_matrix(path, stream=False)[0].matmat(np.eye(3))
        with pytest.raises(ValueError, match=f"^{path}:X"):
            open_matrix(path, stream=True)[0].matmat(np.eye(3))


def test_a_stack_of_images_is_refused_with_its_shape_and_the_rows_to_make_of_it(tmp_path: Path) -> None:
    stack = np.zeros((9, 4, 5), np.float32)
    np.save(tmp_path / "stack.npy", stack)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "stack.h5", "w") as file:
        file["entry/data"], file["entry/times"] = stack, np.zeros(9)
    remedy = r"\. Save X\.reshape\(9, -1\), with a row for each sample\.$"
    with pytest.raises(ValueError, match=rf"got shape \(9, 4, 5\) of float32{remedy}"):
        open_matrix(tmp_path / "stack.npy")
    with pytest.raises(ValueError, match=rf"no matrix of numbers, but 'entry/data' of shape \(9, 4, 5\){remedy}"):
        open_matrix(tmp_path / "stack.h5")
    with pytest.raises(ValueError, match=rf"got shape \(9, 4, 5\) of float32{remedy}"):
        open_matrix(tmp_path / "stack.h5", key="entry/data")
