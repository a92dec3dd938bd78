"""One matrix in every format that is read whole or as a table: the same numbers, names, and way round."""

import importlib
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from shiftsvd.backends.source import RowSource
from shiftsvd.io import Opened, open_matrix
from shiftsvd.io.formats import market, svmlight, table
from shiftsvd.io.formats.numpy_files import read_npy, read_npz
from tests.support.places import needs
from tests.support.workbooks import write_grid
from tests.support.written import (
    COLUMNS,
    ROWS,
    frame,
    triplets,
    truth,
    with_names_first,
    write_10x,
    write_csv,
    write_mtx,
    write_npz,
    write_svmlight,
    write_text,
)


def dense(opened: Opened) -> npt.NDArray[Any]:
    """All of what a reader found."""
    matrix = opened.matrix
    if isinstance(matrix, RowSource):
        matrix = matrix.read(0, matrix.shape[0])
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def as_r_does(path: Path) -> Path:
    """A header of one field fewer than the rows."""
    lines = [name + "\t" + "\t".join(map(str, row)) for name, row in zip(ROWS, truth(), strict=True)]
    return write_text(path, "\t".join(COLUMNS) + "\n" + "\n".join(lines))


def ipc_stream(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    content = pa.Table.from_pandas(with_names_first())
    with pa.ipc.new_stream(path, content.schema) as stream:
        stream.write_table(content, max_chunksize=7)
    return path


def read_tenx_folder(*of: Any) -> Any:
    needs("scanpy")
    return importlib.import_module("shiftsvd.scanpy.files").read_tenx_folder(*of)


@dataclass(frozen=True)
class Case:
    """A file: what writes and reads it, and what it knows of the names."""

    reader: Any
    name: str
    write: Callable[[Path], Any]
    rows: bool = False
    columns: bool = False
    transposed: bool = False
    key: str | None = None
    format: str | None = None


def write_polars(path: Path, how: str) -> None:
    pl = pytest.importorskip("polars")
    getattr(pl.DataFrame(with_names_first()), how)(path)


def write_frame(path: Path, how: str, frame: Callable[[], Any] = frame, **settings: Any) -> None:
    getattr(frame(), how)(path, **settings)


BOTH = {"rows": True, "columns": True}
TENX = BOTH | {"transposed": True}
FORMS = {
    "csv": ("to_csv", {"index": False}),
    "index.csv": ("to_csv", {}),
    "parquet": ("to_parquet", {"row_group_size": 50}),
    "feather": ("to_feather", {}),
}
CASES = [
    *(Case(read_npz, f"{kind}.npz", partial(write_npz, kind=kind)) for kind in ("csr", "csc", "coo", "bsr", "dia")),
    Case(read_npz, "dense.npz", partial(write_npz, kind="dense"), **BOTH),
    Case(read_npz, "key.npz", partial(write_npz, kind="dense"), key="X", **BOTH),
    *(Case(market.read, f"sparse.mtx{suffix}", write_mtx) for suffix in ("", ".gz", ".bz2")),
    Case(market.read, "array.mtx", partial(write_mtx, X=truth())),
    *(Case(read_tenx_folder, f"folder{suffix}", partial(write_10x, suffix=suffix), **TENX) for suffix in ("", ".gz")),
    Case(read_tenx_folder, "prefix", partial(write_10x, suffix=".gz", prefix="GSM1_"), format="10x", **TENX),
    *(Case(svmlight.read, f"from_0.svmlight{s}", partial(write_svmlight, zero_based=True)) for s in ("", ".bz2")),
    *(Case(svmlight.read, f"from_1.svmlight{s}", partial(write_svmlight, zero_based=False)) for s in ("", ".gz")),
    *(Case(table.read, f"index.csv{suffix}", write_csv, **BOTH) for suffix in ("", ".gz", ".bz2")),
    Case(table.read, "label.csv", partial(write_csv, index_label="cell"), **BOTH),
    Case(table.read, "crlf.csv", partial(write_csv, lineterminator="\r\n", encoding="utf-8-sig"), **BOTH),
    Case(table.read, "semicolon.csv", partial(write_csv, sep=";"), **BOTH),
    Case(table.read, "no_names.csv", partial(write_csv, index=False), columns=True),
    Case(table.read, "numbers.csv", partial(write_csv, index=False, header=False)),
    Case(table.read, "tab.tsv", partial(write_csv, sep="\t"), **BOTH),
    Case(table.read, "r.tsv", as_r_does, **BOTH),
    Case(table.read, "pandas.parquet", partial(write_frame, how="to_parquet", row_group_size=7), **BOTH),
    Case(table.read, "columns.parquet", partial(write_frame, how="to_parquet", index=False), columns=True),
    Case(table.read, "polars.parquet", partial(write_polars, how="write_parquet"), **BOTH),
    Case(table.read, "polars.arrow", partial(write_polars, how="write_ipc"), **BOTH),
    Case(table.read, "pandas.feather", partial(write_frame, how="to_feather", frame=with_names_first), **BOTH),
    Case(table.read, "stream.arrow", ipc_stream, **BOTH),
    *(Case(table.read, f"a{suffix}", write_grid, **BOTH) for suffix in (".xlsx", ".ods", ".xls", ".sqlite", ".duckdb")),
    *(
        Case(
            table.read,
            f"{'names' if named else 'positions'}.{suffix}",
            partial(write_frame, how=how, frame=partial(triplets, named=named), **settings),
            rows=named,
            columns=named,
        )
        for named in (False, True)
        for suffix, (how, settings) in FORMS.items()
    ),
    Case(
        table.read,
        "no_header.csv",
        partial(write_frame, how="to_csv", frame=partial(triplets, named=True), header=False, index=False),
        key="triplets",
        **BOTH,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reader_finds_the_matrix_its_names_and_its_orientation(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.name
    case.write(path)
    opened = case.reader(path, case.key, None)
    rows, columns = (opened.columns, opened.rows) if case.transposed else (opened.rows, opened.columns)
    np.testing.assert_array_equal(dense(opened), truth().T if case.transposed else truth())
    assert opened.samples == ("columns" if case.transposed else "rows")
    assert (None if rows is None else rows.tolist()) == (ROWS if case.rows else None)
    assert (None if columns is None else columns.tolist()) == (COLUMNS if case.columns else None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("orient", ["rows", "columns", None])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_open_matrix_puts_the_samples_in_the_rows(case: Case, orient: Any, tmp_path: Path) -> None:
    path = tmp_path / case.name
    case.write(path)
    A, names = open_matrix(path, key=case.key, orient=orient, format=case.format)
    turned = orient is not None and (orient == "columns") != case.transposed
    D = truth().T if turned else truth()
    np.testing.assert_array_equal(A @ np.eye(A.shape[1]), D)
    samples, features = names[::-1] if turned else names
    assert (None if samples is None else samples.tolist()) == (ROWS if case.rows else None)
    assert (None if features is None else features.tolist()) == (COLUMNS if case.columns else None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_larger_than_the_memory_limit_is_refused_by_name(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.name
    case.write(path)
    with pytest.raises(ValueError, match=r"would take about .*, more than the limit of .* of memory") as error:
        case.reader(path, case.key, 50)
    assert str(error.value).startswith(str(path))


# --- triplets and tables


def test_triplets_of_the_same_place_are_summed_and_order_does_not_matter(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_text(tmp_path / "a.csv", "User,Item,Rating\n1,0,2\n0,2,1.5\n1,0,3\n")
    np.testing.assert_array_equal(dense(table.read(path, None, None)), [[0, 0, 1.5], [5, 0, 0]])


@pytest.mark.parametrize(("line", "what"), [(",1,2", "row"), ("1,,2", "column")])
def test_triplets_without_a_position_are_refused(line: str, what: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for first in ("0,1,2", "a,b,2"):
        path = write_text(tmp_path / "a.csv", f"row,column,value\n{first}\n{line}\n")
        with pytest.raises(ValueError, match=f"the {what} is missing in 1 triplet. Remove such lines"):
            table.read(path, None, None)


def test_zero_padded_numbers_are_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_text(tmp_path / "a.csv", "i,j,x\n007,0,2\n01,1,3\n")
    opened = table.read(path, None, None)
    assert opened.rows is not None
    assert opened.rows.tolist() == ["007", "01"]
    assert opened.columns is None


def test_names_of_triplets_come_in_the_order_of_their_first_use_over_all_batches(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parts = [{"row": ["b", "a"], "col": ["x", "x"], "x": [1, 2]}, {"row": ["c", "a"], "col": ["y", "y"], "x": [3, 4]}]
    batches = [pa.RecordBatch.from_pydict(part) for part in parts]
    with pa.ipc.new_file(tmp_path / "a.arrow", batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)
    opened = table.read(tmp_path / "a.arrow", None, None)
    assert opened.rows is not None
    assert opened.rows.tolist() == ["b", "a", "c"]
    np.testing.assert_array_equal(dense(opened), [[1, 0], [2, 4], [0, 3]])


def test_key_matrix_keeps_columns_that_are_called_like_triplets(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_text(tmp_path / "a.csv", "i,j,x\n1,2,3\n4,5,6\n")
    np.testing.assert_array_equal(dense(table.read(path, "matrix", None)), [[1, 2, 3], [4, 5, 6]])


def test_a_header_of_positions_is_a_header(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_text(tmp_path / "a.csv", "0,1\n5,6\n")
    opened = table.read(path, None, None)
    assert opened.columns is not None
    assert opened.columns.tolist() == ["0", "1"]
    np.testing.assert_array_equal(dense(opened), [[5, 6]])


def test_gaps_of_a_table_are_nan(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = write_text(tmp_path / "a.csv", "name,a,b\ns,,1\nt,NA,2\nu,nan,3\n")
    expected = [[np.nan, 1], [np.nan, 2], [np.nan, 3]]
    np.testing.assert_array_equal(dense(table.read(path, None, None)), expected)
    pq.write_table(pa.table({"a": pa.array([None] * 3, pa.int32()), "b": [1, 2, 3]}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(dense(table.read(tmp_path / "a.parquet", None, None)), expected)


def test_integers_booleans_decimals_and_halves_are_numbers(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    kinds = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()]
    columns = {str(kind): pa.array([0, 1]).cast(pa.int64()).cast(kind) for kind in kinds}
    columns["decimal"] = pa.array([Decimal(0), Decimal(1)])
    columns["half"] = pa.array(np.array([0, 1], np.float16))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    opened = table.read(tmp_path / "a.parquet", None, None)
    assert opened.matrix.dtype == np.float64
    np.testing.assert_array_equal(dense(opened), np.repeat([[0], [1]], len(columns), axis=1))
    assert open_matrix(tmp_path / "a.parquet", stream=True)[0].shape == (2, len(columns))


def test_text_that_a_csv_says_of_its_columns_is_named_in_the_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_text(tmp_path / "a.csv", "name,weight,colour\ns,1,2\nt,3,red\n")
    with pytest.raises(
        ValueError,
        match=r"a\.csv: column 'colour' has 1 cell that is no number: 'red' \(row 3\)\. Use na=.red. to read",
    ):
        table.read(path, None, None)


def test_text_column_of_a_typed_table_is_named_in_the_error(tmp_path: Path) -> None:
    F = frame()
    F.assign(colour="red").to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: column 'colour' \(the text 'red'\) must be numbers"):
        table.read(tmp_path / "a.parquet", None, None)


BAD_TABLES = {
    "": "is empty",
    "\n\n": "is empty",
    "a,b\n": "has a header but no rows",
    "a+b\n1+2\n": "if the columns have another delimiter",
    "a,b\n1,2\n3\n": "row 3 has 1 cell, but the header has 2",
    "row,column,value\n1,-1,3\n": "positions of columns must be at least 0, got -1",
    "row,column,value\n1,100000000000000,3\n": "of memory",
    "row,column,value\n1,99999999999999999999,3\n": "cannot be read",
    "a,b\n1,2\n3,\udcff\n": "not encoded in UTF-8 \\(line 3 has the byte 0xff\\). Use encoding",
}


@pytest.mark.parametrize("text", BAD_TABLES)
def test_bad_text_is_refused_by_name(text: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=BAD_TABLES[text]) as error:
        table.read(path, None, None)
    assert str(error.value).startswith(str(path))


def test_a_table_has_two_keys(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.csv", "a,b\n1,2\n")
    with pytest.raises(ValueError, match=r'a\.csv: the key of a table must be "matrix" or "triplets", got \'X\''):
        table.read(path, "X", None)


# --- Parquet row by row


def parquet(path: Path, dtype: Any = np.float64) -> tuple[RowSource, npt.NDArray[Any]]:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    D = np.random.default_rng(3).standard_normal((100, 3)).astype(dtype)
    pq.write_table(pa.table(dict(zip("abc", D.T, strict=True))), path, row_group_size=17)
    return table.read(path, None, None).matrix, D


@pytest.mark.parametrize("n_bytes", [1, 200, 17 * 24, 1000, 10**6])
def test_parquet_edges_keep_to_the_bytes_and_to_the_row_groups(n_bytes: int, tmp_path: Path) -> None:
    source, D = parquet(tmp_path / "a.parquet")
    edges = source.edges(n_bytes)
    assert edges[0] == 0
    assert edges[-1] == len(D)
    assert edges == sorted(set(edges))
    assert max(np.diff(edges)) * 24 <= max(n_bytes, 24)
    if n_bytes >= 17 * 24:
        assert all(edge % 17 == 0 for edge in edges[:-1])
    np.testing.assert_array_equal(np.vstack([source.read(lo, hi) for lo, hi in pairwise(edges)]), D)


def test_parquet_ranges_are_read_in_any_order(tmp_path: Path) -> None:
    source, D = parquet(tmp_path / "a.parquet")
    for order in permutations([(0, 5), (5, 17), (3, 40), (34, 51), (90, 100)]):
        for lo, hi in order:
            np.testing.assert_array_equal(source.read(lo, hi), D[lo:hi])


def test_parquet_is_read_by_many_threads_at_once(tmp_path: Path) -> None:
    source, D = parquet(tmp_path / "a.parquet")
    ranges = list(pairwise(source.edges(5 * 24))) * 20
    with ThreadPoolExecutor(8) as pool:
        for (lo, hi), block in zip(ranges, pool.map(lambda rows: source.read(*rows), ranges), strict=True):
            np.testing.assert_array_equal(block, D[lo:hi])


def test_parquet_source_says_what_it_is_and_survives_a_pickle(tmp_path: Path) -> None:
    source, D = parquet(tmp_path / "a.parquet", np.float32)
    assert (source.shape, source.dtype, source.sparse, source.stored) == ((100, 3), np.float32, False, 300)
    assert source.name == str(tmp_path / "a.parquet")
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint == source.fingerprint
    np.testing.assert_array_equal(again.read(10, 60), D[10:60])
    assert source.read(10, 60).dtype == np.float32


def test_parquet_streams_like_it_loads(tmp_path: Path) -> None:
    _, D = parquet(tmp_path / "a.parquet")
    A, _ = open_matrix(tmp_path / "a.parquet", stream=True, memory_limit="1MB")
    np.testing.assert_allclose(A.rmatmat(D), D.T @ D, rtol=1e-13)


# --- archives, MatrixMarket, 10x, svmlight: what is refused


def refused(reader: Any, path: Path, match: str, key: str | None = None) -> None:
    with pytest.raises((ValueError, OSError), match=match) as error:
        reader(path, key, "2GB")
    assert str(error.value).startswith(str(path))


def test_archive_of_several_arrays_needs_a_key_and_lists_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", A=truth(), B=truth(), v=np.ones(3), t=[["x"]])
    refused(read_npz, tmp_path / "a.npz", r"got A, B\. Select one with")
    refused(read_npz, tmp_path / "a.npz", "no 2-D array of numbers named 'v'. Its 2-D arrays: A, B.$", key="v")


def test_archive_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", A=truth(), B=np.array([[{}, print]]))
    refused(read_npz, tmp_path / "a.npz", "B.npy holds Python objects, which are not loaded")


def test_archive_with_names_of_another_count(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", A=truth(), row_names=["a", "b"])
    refused(read_npz, tmp_path / "a.npz", "row_names must have 30 entries")


def test_archive_that_unpacks_to_more_than_the_memory(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", A=np.zeros((300, 10**6), np.float64)[:, :: 10**3])
    with pytest.raises(ValueError, match="of memory"):
        read_npz(tmp_path / "a.npz", None, "500KB")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_archive_of_a_preposterous_shape(kind: str, tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", kind)
    with np.load(path) as archive:
        arrays = dict(archive)
    for shape in ([10**15, 12], [30, 10**15], [-30, 12], [0, 0], [30]):
        np.savez(path, **(arrays | {"shape": shape}))
        refused(read_npz, path, "memory|at least one row|damaged|cannot be read")


def test_sparse_archive_with_an_index_outside(tmp_path: Path) -> None:
    X = sparse.csr_array(truth()).tobsr((2, 2))
    X.indices[3] = 10**6
    sparse.save_npz(tmp_path / "a.npz", X)
    refused(read_npz, tmp_path / "a.npz", "cannot be read: .*ind")


MTX = "%%MatrixMarket matrix coordinate real general\n"
BAD_MTX = {
    "hello\n": "is not a MatrixMarket file",
    MTX: "ends before the line of its sizes",
    MTX + "3 3\n": "the size line must hold the numbers of rows, columns and entries, got 3 3",
    MTX + "3 -3 1\n": "the size line must hold",
    MTX + "0 3 0\n": "at least one row and one column",
    MTX + "3 3 1000000000000000\n1 1 1\n": "which need a larger file",
    MTX + "1000000000000000 3 1\n1 1 1\n": "of memory",
    MTX + "3 3 2\n1 1 1\n": "cannot be read",
    MTX + "3 3 1\n1 1 1\n2 2 2\n": "cannot be read",
    MTX + "3 3 1\n4 1 1\n": "cannot be read",
    MTX + "3 3 1\n0 1 1\n": "cannot be read",
    MTX + "3 3 1\n1 1 x\n": "cannot be read",
    "%%MatrixMarket matrix array real general\n100000 100000\n1\n": "which need a larger file",
}


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2"])
@pytest.mark.parametrize("text", BAD_MTX)
def test_bad_matrix_market_is_refused_by_name(text: str, suffix: str, tmp_path: Path) -> None:
    path = write_text(tmp_path / f"a.mtx{suffix}", text)
    # Nothing bounds how well bzip2 packs but the memory.
    refused(market.read, path, f"{BAD_MTX[text]}|of memory" if suffix == ".bz2" else BAD_MTX[text])


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
def test_symmetric_matrix_market_is_whole(symmetry: str, tmp_path: Path) -> None:
    text = f"%%MatrixMarket matrix coordinate integer {symmetry}\n3 3 2\n2 1 5\n3 1 7\n"
    sign = 1 if symmetry == "symmetric" else -1
    D = dense(market.read(write_text(tmp_path / "a.mtx", text), None, None))
    np.testing.assert_array_equal(D, [[0, sign * 5, sign * 7], [5, 0, 0], [7, 0, 0]])


def test_pattern_of_matrix_market_is_ones(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n2 1\n")
    np.testing.assert_array_equal(dense(market.read(path, None, None)), [[1, 0], [1, 0]])


def test_folder_with_too_few_and_too_many_names(tmp_path: Path) -> None:
    path = write_10x(tmp_path / "a", "")
    barcodes = path / "barcodes.tsv"
    text = barcodes.read_text()
    for other, got in ((text + "more\nstill\n", "more than 30"), (text.split("\n", 1)[1], "29")):
        barcodes.write_text(other)
        with pytest.raises(
            ValueError, match=f"must have 30 lines, the dimension of the matrix in its folder, got {got}"
        ) as error:
            read_tenx_folder(path, None, None)
        assert str(error.value).startswith(str(barcodes))


def test_folder_without_its_parts(tmp_path: Path) -> None:
    path = write_10x(tmp_path / "a", ".gz")
    (path / "features.tsv.gz").unlink()
    refused(read_tenx_folder, path, "has no features.tsv")
    (path / "matrix.mtx.gz").unlink()
    refused(read_tenx_folder, path, "must have one matrix.mtx .*got none")


def test_folder_of_two_matrices_needs_the_prefix(tmp_path: Path) -> None:
    path = write_10x(tmp_path / "a", ".gz", "one_")
    write_10x(tmp_path / "b", ".gz", "two_")
    for file in (tmp_path / "b").iterdir():
        file.rename(path / file.name)
    refused(read_tenx_folder, path, "got one_matrix.mtx.gz, two_matrix.mtx.gz")
    np.testing.assert_array_equal(dense(read_tenx_folder(path, "two_", None)), truth().T)


def test_genes_of_the_same_name_go_by_their_ids(tmp_path: Path) -> None:
    path = write_10x(tmp_path / "a", "")
    genes = path / "genes.tsv"
    genes.write_text(genes.read_text().replace("gene.5", "gene.4"))
    opened = read_tenx_folder(path, None, None)
    assert opened.rows is not None
    assert opened.rows.tolist() == [f"ENS{j}" for j in range(12)]


def test_svmlight_leaves_labels_of_every_kind_out(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.svmlight", "# text\n1,2 1:2 3:4\n-1 qid:7 2:5 # text\n\n0.5\n")
    np.testing.assert_array_equal(dense(svmlight.read(path, None, None)), [[2, 0, 4], [0, 5, 0], [0, 0, 0]])


@pytest.mark.parametrize("pair", ["2000000000:1", "99999999999999:1", "-1:1", "x:1", "3:y", "3", "5:1 3:1"])
def test_bad_pair_of_svmlight_is_refused_by_name(pair: str, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.svmlight", f"1 1:1 2:2\n0 {pair}\n")
    refused(svmlight.read, path, "of memory|cannot be read")


@pytest.mark.parametrize("reader", [market.read, svmlight.read])
def test_a_file_of_one_matrix_takes_no_key(reader: Any, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a", "")
    refused(reader, path, "holds a single matrix without a name", key="X")


@pytest.mark.parametrize("reader", [market.read, read_npy, read_npz, svmlight.read, table.read, read_tenx_folder])
def test_a_file_that_is_not_there(reader: Any, tmp_path: Path) -> None:
    refused(reader, tmp_path / "none", "none")


def test_a_mark_in_the_header_that_quoted_cells_rule_out_is_no_delimiter(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b|c\n"1",2\n"3",4\n', encoding="utf-8")
    A, _ = open_matrix(tmp_path / "x.csv")
    assert np.array_equal(A.matmat(np.eye(2)), [[1, 2], [3, 4]])


def test_a_column_without_a_decimal_mark_of_its_own_has_that_of_the_others() -> None:
    from shiftsvd.io.choices import Choices
    from shiftsvd.io.formats.header import _decimals

    columns = [["1,25", "2,5"], ["1,234", "5,678"], ["3,5", "4,75"]]  # the second may hold thousands
    assert _decimals(columns, ["a", "b", "c"], Choices())[0] == [",", ",", ","]


def test_amounts_in_brackets_are_negative() -> None:
    from shiftsvd.io.formats.cells import number

    assert [number(cell).value for cell in ("($12.50)", "$12.50")] == [-12.5, 12.5]
