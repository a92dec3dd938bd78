"""Matrices of BPCells: what the package writes is read, what `convert` writes is what the package would write."""

import hashlib
import json
import os
import shutil
import tracemalloc
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from shiftsvd.cli import main
from shiftsvd.io import Names, convert, open_matrix
from shiftsvd.runs.messages import Notice
from shiftsvd.scanpy import bpcells

CELLS, GENES = 60, 25
BARCODES = np.array([f"cell {i}" for i in range(CELLS)])
SYMBOLS = np.array([f"gene é{j}" for j in range(GENES)])
# What bpcells 0.3.0rc2 writes of the transpose of `counts()`: the beginnings of the digests (SHA-256) of its files.
WRITTEN = {
    "idxptr": "ac44f8ee2f8f",
    "index_data": "10d6c66c2ccb",
    "index_idx": "a8839a1fe081",
    "index_idx_offsets": "1857f61ed9de",
    "index_starts": "a97cb4d0e4a4",
    "shape": "5183ec01b95f",
    "storage_order": "34d75430de60",
    "val_data": "7911c8488201",
    "val_idx": "47d20f8571d5",
    "val_idx_offsets": "1857f61ed9de",
    "version": "b10d29e21e95",
}


def counts(most: int = 7) -> Any:
    """Counts of cells by genes, with an empty cell, an empty gene, and all widths of the last chunk."""
    i, j = np.mgrid[:CELLS, :GENES]
    D = np.where((i * 7 + j * 13) % 5 == 0, (i * 31 + j * 17) % most + 1, 0)
    D[3], D[:, 4] = 0, 0
    return sparse.csr_array(D.astype(np.uint32))


def folder(path: Path, X: Any, names: Names = Names(BARCODES, SYMBOLS)) -> Path:  # noqa: B008
    bpcells.write(path, [X[:20], X[20:]], X.shape, names)
    return path


def dense(A: Any) -> np.ndarray:
    return np.asarray(A @ np.eye(A.shape[1]))


def array(path: Path) -> np.ndarray:
    kind = {b"UINT32v1": "<u4", b"UINT64v1": "<u8", b"FLOATSv1": "<f4", b"DOUBLEv1": "<f8"}[path.read_bytes()[:8]]
    return np.fromfile(path, kind, offset=8)


def put(path: Path, numbers: np.ndarray) -> None:
    header = {"<u4": b"UINT32v1", "<u8": b"UINT64v1", "<f4": b"FLOATSv1", "<f8": b"DOUBLEv1"}[numbers.dtype.str]
    path.write_bytes(header + numbers.tobytes())


def unpack(path: Path, kind: str) -> None:
    """Replace what is packed by its numbers, and counts by floats."""
    source = bpcells.read_folder(path, None, None).matrix
    X = source.read(0, source.shape[0])
    dtype = {"uint": "<u4", "float": "<f4", "double": "<f8"}[kind]
    put(path / "val", X.data.astype(dtype))
    put(path / "index", X.indices.astype("<u4"))
    (path / "row_names").write_bytes((path / "row_names").read_bytes().removesuffix(b"\n"))  # a last line need not end
    (path / "version").write_text(f"unpacked-{kind}-matrix-v2\n")


def test_convert_writes_the_bytes_of_the_package(tmp_path):
    path = folder(tmp_path / "a.bpcells", counts())
    assert {name: hashlib.sha256((path / name).read_bytes()).hexdigest()[:12] for name in WRITTEN} == WRITTEN
    assert (path / "col_names").read_text("utf-8").splitlines() == BARCODES.tolist()
    assert (path / "row_names").read_text("utf-8").splitlines() == SYMBOLS.tolist()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the package leaves files open
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("most", [1, 7, 2**24, 2**32 - 1])
def test_what_the_package_writes_is_read(most, order, tmp_path):
    package = pytest.importorskip("bpcells.experimental")
    X = counts(most)
    its_own = sparse.csr_matrix(X) if order == "row" else sparse.csc_matrix(X)
    package.DirMatrix.from_scipy_sparse(its_own, tmp_path / "a")
    for stream in (None, True):
        for orient in ("rows", "columns"):
            A, names = open_matrix(tmp_path / "a", orient=orient, stream=stream)
            np.testing.assert_array_equal(dense(A), X.toarray() if orient == "rows" else X.toarray().T)
            assert names == (None, None)
    found = package.DirMatrix(str(folder(tmp_path / "b.bpcells", X)))
    np.testing.assert_array_equal(found[:, :].toarray().T, X.toarray())


@pytest.mark.parametrize("kind", ["uint", "float", "double"])
@pytest.mark.parametrize("by_genes", [False, True])
@pytest.mark.parametrize("layout", ["packed", "unpacked", "first version", "HDF5"])
def test_every_layout_is_read(layout, by_genes, kind, tmp_path):
    X = counts()
    if kind != "uint":
        X = X.astype({"float": np.float32, "double": np.float64}[kind])
        X.data[5] = np.pi
    path = tmp_path / "a"
    if by_genes:
        folder(path, sparse.csr_array(X.T), Names(SYMBOLS, BARCODES))
        (path / "storage_order").write_text("row\n")
        shape, rows, columns = (
            array(path / "shape"),
            *((path / name).read_bytes() for name in ("row_names", "col_names")),
        )
        put(path / "shape", shape[::-1].copy())
        (path / "row_names").write_bytes(columns)
        (path / "col_names").write_bytes(rows)
    else:
        folder(path, X)
    assert (path / "version").read_text() == f"packed-{kind}-matrix-v2\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)  # that of the orientation
        if layout == "unpacked":
            unpack(path, kind)
        elif layout == "first version":
            put(path / "idxptr", array(path / "idxptr").astype("<u4"))
            (path / "version").write_text(f"packed-{kind}-matrix-v1\n")
            for file in path.glob("*_offsets"):
                file.unlink()
        elif layout == "HDF5":
            path = as_group(path, tmp_path / "a.h5")
        for stream in (None, True):
            A, names = open_matrix(path, stream=stream)
            np.testing.assert_array_equal(dense(A), X.toarray())
            np.testing.assert_array_equal(names.samples, BARCODES)
            np.testing.assert_array_equal(names.features, SYMBOLS)


def as_group(path: Path, file: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(file, "w") as root:
        group = root.create_group("counts")
        group.attrs["version"] = (path / "version").read_text().strip()
        for part in path.iterdir():
            if part.name in ("row_names", "col_names", "storage_order"):
                group.create_dataset(part.name, data=part.read_text("utf-8").splitlines(), dtype=h5py.string_dtype())
            elif part.name not in ("version", "written-by"):
                group.create_dataset(part.name, data=array(part))
    return file


def test_the_columns_are_the_samples_and_a_notice_says_so_where_it_may_be_wrong(tmp_path):
    path = folder(tmp_path / "a", counts())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_matrix(path)[0].shape == (CELLS, GENES)
    (path / "col_names").write_text("")
    (path / "written-by").unlink()
    with pytest.warns(
        Notice, match='using the 60 columns as samples, as BPCells does. To use the rows, pass orient="rows"'
    ):
        open_matrix(path)


# Values that follow counts, and the kind of the matrix.
LATER: dict[str, tuple[Any, str]] = {
    "counts": (np.float64([1, 2**32 - 1]), "uint"),
    "a fraction": (np.float32([0.1, 2]), "float"),
    "digits": (np.float64([0.1, 2]), "double"),
    "a missing value": (np.float32([np.nan, 2]), "float"),
    "infinity": (np.float64([np.inf, 2]), "double"),
    "a negative one": (np.int64([-3, 2]), "double"),
    "too much for 32 bits": (np.float64([2**32, 2]), "double"),
    "booleans": (np.array([True, True]), "uint"),
}


@pytest.mark.parametrize("case", LATER)
def test_values_are_counts_until_another_comes(case, tmp_path):
    values, kind = LATER[case]
    X = counts(1 if values.dtype == bool else 7).astype(values.dtype)
    with_zero = np.append(values, values.dtype.type(0))  # which is not stored
    later = sparse.csr_array((with_zero, [3, 9, 15], [0, 3]), shape=(1, GENES))
    path = tmp_path / "a"
    bpcells.write(path, [X, later, X], (2 * CELLS + 1, GENES), Names())
    assert (path / "version").read_text() == f"packed-{kind}-matrix-v2\n"
    assert (path / "val").exists() == (kind != "uint")
    assert (path / "val_data").exists() == (kind == "uint")
    found = bpcells.read_folder(path, None, None).matrix.read(0, 2 * CELLS + 1)
    np.testing.assert_array_equal(found.toarray(), np.vstack([X.toarray(), later.toarray(), X.toarray()]))
    assert found.nnz == 2 * X.nnz + len(values)
    assert bpcells.is_written(path)


class Late:
    """Numbers of a file that is too large for a test, from number `first` on."""

    dtype, chunks = np.dtype(np.uint32), None

    def __init__(self, numbers: np.ndarray, first: int) -> None:
        self.numbers, self.first, self.shape = numbers, first, (first + len(numbers),)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.numbers[rows.start - self.first : rows.stop - self.first]


def test_chunks_beyond_2_to_32_words_are_found(tmp_path):
    X = np.arange(1, 513, dtype=np.uint32)  # four chunks of 7 to 9 bits
    words, chunks = 2**32 - 40, 1000  # of earlier chunks
    with ExitStack() as files:
        writer = bpcells.PackedWriter(files, tmp_path, "val", differences=False)
        writer.words, writer.edges = words, 1 + chunks
        writer.write(X)
        writer.finish()
    data, idx, offsets = (array(tmp_path / f"val_{part}") for part in ("data", "idx", "idx_offsets"))
    assert offsets.tolist() == [0, 1002, 1005]
    later = Late(np.r_[words, idx[1:]], chunks)
    packed = bpcells.PackedArray("val", 128 * 1004, Late(data, words), later, offsets.astype(np.int64), None)
    vars(packed)["dtype"] = np.dtype(np.uint32)  # else all chunks are checked
    for lo, hi in ((0, 512), (100, 300), (129, 130), (384, 512)):
        np.testing.assert_array_equal(packed[128 * 1000 + lo : 128 * 1000 + hi], X[lo:hi])


def test_a_fit_is_that_of_the_file_it_was_converted_from(tmp_path):
    h5ad, path = tmp_path / "a.h5ad", tmp_path / "a.bpcells"
    pytest.importorskip("h5py")
    np.savez(tmp_path / "a.npz", X=counts().toarray().astype(np.float32), row_names=BARCODES, column_names=SYMBOLS)
    convert(tmp_path / "a.npz", path)
    convert(path, h5ad)
    scores = []
    for file in (path, h5ad):
        out = tmp_path / file.suffix[1:]
        how = "-k 3 --preprocess log-normalize --top-features 15 --seed 0 --scores npy --no-report -q"
        done = CliRunner().invoke(main, ["fit", str(file), *how.split(), "-o", str(out)])
        assert done.exit_code == 0, done.output
        scores.append(np.load(out / "scores.npy"))
    np.testing.assert_array_equal(*scores)
    found = json.loads(CliRunner().invoke(main, ["info", str(path), "--json"]).stdout)
    assert found["format"] == "bpcells"
    assert (found["samples"], found["features"], found["samples_are"]) == (CELLS, GENES, "columns")
    assert found["looks_like"].startswith("counts")
    assert CliRunner().invoke(main, ["estimate", str(path), "-k", "3"]).exit_code == 0


def test_convert_names_the_columns_that_it_drops(tmp_path):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(counts().astype(np.float32))
    adata.obs["donor"], adata.var["means"], adata.var["highly_variable"] = "a", 0.5, True
    adata.write_h5ad(tmp_path / "a.h5ad")
    with pytest.warns(Notice, match="these columns: donor of obs; highly_variable, means of var"):
        convert(tmp_path / "a.h5ad", tmp_path / "a.bpcells")
    convert(tmp_path / "a.bpcells", tmp_path / "b.h5ad")  # without columns: no notice


def test_only_an_own_folder_is_replaced(tmp_path):
    np.save(tmp_path / "a.npy", counts().toarray())
    path = folder(tmp_path / "a.bpcells", counts(3))
    with pytest.raises(FileExistsError, match="Use force=True to replace it"):
        convert(tmp_path / "a.npy", path)
    convert(tmp_path / "a.npy", path, force=True)
    np.testing.assert_array_equal(dense(open_matrix(path)[0]), counts().toarray())
    for file in ("written-by", "idxptr"):
        other = shutil.copytree(path, tmp_path / f"{file}.bpcells")
        (other / file).rename(other / f"{file}.bak")
        with pytest.raises(FileExistsError, match="a folder that shiftsvd did not write"):
            convert(tmp_path / "a.npy", other, force=True)


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), row_names=["a", "b\nc"], column_names=["d", "e"])
    np.save(tmp_path / "complex.npy", np.eye(2) * 1j)
    with pytest.raises(ValueError, match=r"the name 'b\\nc', which has a line break"):
        convert(tmp_path / "a.npz", tmp_path / "a.bpcells")
    with pytest.raises(ValueError, match="BPCells stores real numbers"):
        convert(tmp_path / "complex.npy", tmp_path / "a.bpcells")
    with pytest.raises(ValueError, match="compression must"):
        convert(tmp_path / "a.npz", tmp_path / "a.bpcells", compression="gzip")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "complex.npy"]


DAMAGED: dict[str, tuple[str, Any, str]] = {
    "another version": ("version", b"packed-uint-matrix-v3\n", "has the version 'packed-uint-matrix-v3', which is"),
    "fragments": ("version", b"packed-fragments-v2\n", "has an unknown format|the version"),
    "no version": ("version", None, "has no file 'version', so it is not a matrix of BPCells"),
    "another order": ("storage_order", b"diagonal\n", "storage_order must be 'col' or 'row', got 'diagonal'"),
    "few names": ("col_names", b"a\nb\n", "col_names must have 60 lines, got 2"),
    "many names": ("row_names", b"a\n" * 99, "row_names must have 25 lines, got 99"),
    "a long name": ("col_names", b"a" * 2000 + b"\n" * 60, "has a name of 2,000 bytes"),
    "names of another encoding": ("col_names", b"\xe9\n" * 60, "cannot be read: 'utf-8' codec"),
    "another header": ("val_data", b"UINT64v1" + bytes(80), "must begin with UINT32v1, got b'UINT64v1'"),
    "an incomplete number": ("index_starts", b"UINT32v1" + bytes(9), "truncated: its last number is incomplete"),
    "a long row": ("idxptr", None, "more than 25 entries of one line"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named(case, tmp_path):
    part, content, message = DAMAGED[case]
    path = folder(tmp_path / "a.bpcells", counts())
    if part == "version" and content is None:
        (path / part).unlink()
    elif content is None:
        put(path / part, np.r_[0, np.full(CELLS, array(path / part)[-1])].astype("<u8"))
    else:
        (path / part).write_bytes(content)
    with pytest.raises(ValueError, match=message) as found:
        open_matrix(path)
    assert str(found.value).startswith(str(path))
    assert "\n" not in str(found.value)


def test_a_file_that_became_shorter_after_it_was_opened_is_named(tmp_path):
    path = folder(tmp_path / "a.bpcells", counts())
    unpack(path, "float")
    source = bpcells.read_folder(path, None, None).matrix
    os.truncate(path / "val", 20)
    with pytest.raises(ValueError, match="val is truncated: it was changed after it was opened"):
        source.read(0, CELLS)


@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_link_out_of_the_folder_and_a_pipe_are_refused(what, tmp_path):
    path = folder(tmp_path / "a.bpcells", counts())
    part = path / "val_data"
    if what == "link":
        part.rename(tmp_path / "elsewhere")
        part.symlink_to(tmp_path / "elsewhere")
    else:
        pytest.importorskip("fcntl", reason="pipes with names")
        part.unlink()
        os.mkfifo(part)
    with pytest.raises(
        ValueError, match="a link out of its folder, val_data" if what == "link" else "not a regular file"
    ):
        open_matrix(path)
    if what == "link":
        A, _ = open_matrix(path, allow_external=True)
        np.testing.assert_array_equal(dense(A), counts().toarray())


def test_small_integers_are_compressed_in_small_parts(tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(-9, 99, (50_000, 40)).astype(np.int8)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "small.npy", X[:9])
    convert(tmp_path / "small.npy", tmp_path / "X.bpcells")
    tracemalloc.start()
    try:
        convert(tmp_path / "X.npy", tmp_path / "X.bpcells", force=True, memory_limit="1GB")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= X.nbytes + 12e6
    A, _ = open_matrix(tmp_path / "X.bpcells")
    np.testing.assert_array_equal(A @ np.eye(40), X)
