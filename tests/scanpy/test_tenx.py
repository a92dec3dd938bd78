"""Matrices of 10x: cells are the samples, genes are taken where nothing is said, and what is left out is counted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse
from scipy.io import mmwrite

from shiftsvd.cli import main
from shiftsvd.io import convert, open_matrix
from shiftsvd.runs.messages import Notice
from tests.support.tenx import BARCODES, CELLS, GENES, IDS, NAMES, OTHERS, TYPES, V3, X, market, put, write_folder

X[:, GENES:] += 500  # antibodies, which would take all components
LEFT = "12 Gene Expression kept, 3 Antibody Capture, 1 CRISPR Guide Capture excluded"


def write_h5(path: Path, version: int = 3) -> Path:
    h5py = pytest.importorskip("h5py")
    C = sparse.csc_array(X.T)
    with h5py.File(path, "w") as root:
        group = root.create_group("matrix" if version == 3 else "GRCh38")
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(C, part))
        group.create_dataset("shape", data=C.shape)
        group.create_dataset("barcodes", data=BARCODES.astype("S"))
        if version == 3:
            parts = {"id": IDS, "name": NAMES, "feature_type": TYPES, "genome": np.full(len(IDS), "GRCh38")}
            for name, values in parts.items():
                group.create_dataset(f"features/{name}", data=values.astype("S"))
        else:
            group.create_dataset("genes", data=IDS.astype("S"))
            group.create_dataset("gene_names", data=NAMES.astype("S"))
    return path


FILES: dict[str, Callable[[Path], Path]] = {
    "folder": lambda path: write_folder(path / "mtx"),
    "folder with a prefix": lambda path: write_folder(path / "mtx", prefix="GSM1_"),
    "matrix.mtx in it": lambda path: write_folder(path / "mtx") / "matrix.mtx.gz",
    "h5": lambda path: write_h5(path / "filtered.h5"),
}
OLDER: dict[str, Callable[[Path], Path]] = {
    "folder": lambda path: write_folder(path / "mtx", 2),
    "matrix.mtx in it": lambda path: write_folder(path / "mtx", 2) / "matrix.mtx",
    "h5": lambda path: write_h5(path / "filtered.h5", 2),
    "a folder of new files without types": lambda path: write_folder(path / "mtx", typed=False),
}


def dense(A: Any) -> np.ndarray:
    return np.asarray(A @ np.eye(A.shape[1]))


def opened(path: Path, **how: Any) -> tuple[np.ndarray, Any, str]:
    """The matrix, its names, and what was told."""
    with pytest.warns() as told:
        A, names = open_matrix(path, **how)
    return dense(A), names, " ".join(str(each.message) for each in told)


@pytest.mark.parametrize("name", list(FILES))
def test_genes_are_taken_and_the_others_counted(name: str, tmp_path: Path) -> None:
    D, names, told = opened(FILES[name](tmp_path))
    np.testing.assert_array_equal(D, X[:, :GENES])
    np.testing.assert_array_equal(names.samples, BARCODES)
    np.testing.assert_array_equal(names.features, NAMES[:GENES])  # which differ among themselves
    assert f'{LEFT}. Use feature_types="all" to keep all' in told


@pytest.mark.parametrize("stream", [None, True])
@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ("all", range(16)),
        ("Antibody Capture", [12, 13, 14]),
        (["crispr guide capture", "Gene Expression"], [*range(12), 15]),
    ],
)
def test_types_are_taken_by_name_and_nothing_is_told(
    wanted: Any, places: Any, stream: bool | None, tmp_path: Path
) -> None:
    files = [write_h5(tmp_path / "a.h5"), *([] if stream else [write_folder(tmp_path / "mtx")])]
    for path in files:
        A, names = open_matrix(path, feature_types=wanted, stream=stream)
        np.testing.assert_array_equal(dense(A), X[:, list(places)])
        twice = len(set(NAMES[list(places)])) < len(places)
        np.testing.assert_array_equal(names.features, (IDS if twice else NAMES)[list(places)])


@pytest.mark.parametrize("name", list(OLDER))
@pytest.mark.filterwarnings("ignore::shiftsvd.runs.messages.Notice")
def test_files_without_types_are_taken_whole(name: str, tmp_path: Path) -> None:
    path = OLDER[name](tmp_path)
    A, names = open_matrix(path)
    np.testing.assert_array_equal(dense(A), X)
    np.testing.assert_array_equal(names.features, IDS)  # of names that are there twice
    open_matrix(path, feature_types="all")
    with pytest.raises(ValueError, match=r"has no feature types\. Remove feature_types=.*Gene Expression"):
        open_matrix(path, feature_types="Gene Expression")


def test_types_that_are_not_there_are_refused_with_those_that_are(tmp_path: Path) -> None:
    told = "no features of type 'Peaks'. It has 12 Gene Expression, 3 Antibody Capture, 1 CRISPR Guide Capture"
    for path in (write_h5(tmp_path / "a.h5"), write_folder(tmp_path / "mtx")):
        with pytest.raises(ValueError, match=told):
            open_matrix(path, feature_types=["Gene Expression", "Peaks"])
        for wrong in ([], 3, [3]):
            with pytest.raises(ValueError, match='feature_types must be "all", a type such as'):
                open_matrix(path, feature_types=wrong)
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match="has no feature types"):
        open_matrix(tmp_path / "X.npy", feature_types="Gene Expression")


def test_a_file_of_antibodies_alone_is_taken_whole(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mtx")
    rows = "".join(f"{a}\t{b}\tAntibody Capture\n" for a, b in zip(IDS, NAMES, strict=True))
    put(folder / "features.tsv.gz", rows)
    A, _ = open_matrix(folder)
    np.testing.assert_array_equal(dense(A), X)


@pytest.mark.parametrize("version", [2, 3])
def test_the_matrix_in_a_folder_has_cells_as_samples_and_says_so(version: int, tmp_path: Path) -> None:
    path = write_folder(tmp_path / "mtx", version) / ("matrix.mtx.gz" if version == 3 else "matrix.mtx")
    D, names, told = opened(path, feature_types="all")
    np.testing.assert_array_equal(D, X)
    np.testing.assert_array_equal(names.samples, BARCODES)
    assert "using the 30 columns as samples, because of the 10x files in its folder" in told
    A, names = open_matrix(path, orient="columns", feature_types="all")  # said: nothing is told
    np.testing.assert_array_equal(dense(A), X)
    A, names = open_matrix(path, orient="rows")
    np.testing.assert_array_equal(dense(A), X.T)
    np.testing.assert_array_equal(names.samples, IDS)


def test_cells_as_rows_beside_the_files_of_10x_are_rows(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mtx", 2)
    put(folder / "matrix.mtx", market(X))
    A, names = open_matrix(folder / "matrix.mtx")
    np.testing.assert_array_equal(dense(A), X)
    np.testing.assert_array_equal(names.samples, BARCODES)
    np.testing.assert_array_equal(names.features, IDS)


def test_files_beside_a_matrix_that_are_not_of_it_are_no_names_and_the_side_is_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mtx", 2)
    put(folder / "matrix.mtx", market(X[:20]))
    D, names, told = opened(folder / "matrix.mtx")
    np.testing.assert_array_equal(D, X[:20])
    assert names == (None, None)
    assert "the 20 rows are used as samples" in told


def test_comments_of_10x_tell_where_the_cells_are_without_any_file_beside(tmp_path: Path) -> None:
    put(tmp_path / "copied.mtx", market(X.T, V3))
    D, _, told = opened(tmp_path / "copied.mtx")
    np.testing.assert_array_equal(D, X)
    assert "because of CellRanger's comments" in told
    put(tmp_path / "mine.mtx", market(X))
    A, _ = open_matrix(tmp_path / "mine.mtx")  # as every other MatrixMarket file: rows, and nothing is told
    np.testing.assert_array_equal(dense(A), X)


@pytest.mark.parametrize(
    ("head", "samples", "told"),
    [
        (V3, CELLS, "standard input: using the 30 columns as samples, because of CellRanger's comments"),
        (
            None,
            GENES + OTHERS,
            "standard input: the 16 rows are used as samples. Use --orient columns",
        ),
    ],
)
def test_standard_input_has_cells_as_samples_or_says_that_it_may_not(head: str | None, samples: int, told: str) -> None:
    text = (market(X.T) if head is None else market(X.T, head)).encode()
    line = ["fit", "-", "--format", "mtx", "-k", "2", "--json"]
    result = CliRunner().invoke(main, line, input=text)
    assert result.exit_code == 0, result.output
    assert told in result.stderr
    assert not result.stderr.startswith("warning")
    assert json.loads(result.stdout)["shape"][0] == samples
    result = CliRunner().invoke(main, [*line, "--orient", "columns"], input=text)
    assert result.stderr == ""
    assert json.loads(result.stdout)["shape"][0] == CELLS


@pytest.mark.parametrize("name", list(FILES))
def test_the_command_names_what_is_left_out(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path)
    result = CliRunner().invoke(main, ["fit", str(path), "-k", "2", "--json"])
    assert result.exit_code == 0, result.output
    assert f"{LEFT}. Use --feature-types all to keep all" in result.stderr
    assert json.loads(result.stdout)["shape"] == [CELLS, GENES]
    exact = np.linalg.svd(X[:, :GENES] - X[:, :GENES].mean(axis=0))[1][:2]
    np.testing.assert_allclose(json.loads(result.stdout)["singular_values"], exact, rtol=1e-3)
    result = CliRunner().invoke(
        main,
        ["info", str(path), "--feature-types", "Antibody Capture,Gene Expression", "--orient", "columns", "--json"],
    )
    assert json.loads(result.stdout)["features"] == 15


def test_several_files_and_conversions_take_the_same(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    folder, file = write_folder(tmp_path / "mtx"), write_h5(tmp_path / "a.h5")
    with pytest.warns(Notice, match="excluded"):
        A, names = open_matrix([folder, file], stack="rows")
    np.testing.assert_array_equal(dense(A), np.vstack([X[:, :GENES]] * 2))
    np.testing.assert_array_equal(names.features, NAMES[:GENES])
    with pytest.warns(Notice, match="these columns: ids of features"):
        convert(folder, tmp_path / "one.h5ad", feature_types="Antibody Capture")
    np.testing.assert_array_equal(dense(open_matrix(tmp_path / "one.h5ad")[0]), X[:, 12:15])


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
def test_anndata_of_several_types_says_that_all_are_taken(tmp_path: Path) -> None:
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    var = pandas.DataFrame({"feature_types": pandas.Categorical(TYPES), "highly_variable": np.arange(16) % 2 == 0}, IDS)
    obs = pandas.DataFrame(index=BARCODES)
    adata = anndata.AnnData(sparse.csr_matrix(X, dtype=np.float32), obs, var)
    adata.write_h5ad(tmp_path / "X.h5ad")
    D, _, told = opened(tmp_path / "X.h5ad")
    np.testing.assert_array_equal(D, X)
    assert "12 Gene Expression, 3 Antibody Capture, 1 CRISPR Guide Capture. Use feature_types=" in told
    A, _ = open_matrix(tmp_path / "X.h5ad", feature_types="Gene Expression")
    np.testing.assert_array_equal(dense(A), X[:, :GENES])
    out = str(tmp_path / "out")
    line = ["fit", str(tmp_path / "X.h5ad"), "-k", "2", "--feature-types", "Gene Expression", "--anndata", "-o", out]
    result = CliRunner().invoke(main, [*line, "--no-report"])
    assert result.exit_code == 0, result.output
    again = anndata.read_h5ad(tmp_path / "out" / "fit.h5ad")
    assert again.var.equals(anndata.read_h5ad(tmp_path / "X.h5ad").var[:GENES])
    np.testing.assert_array_equal(again.varm["PCs"].any(axis=1), np.arange(GENES) % 2 == 0)


def test_a_mmwritten_matrix_is_read_as_it_always_was(tmp_path: Path) -> None:
    mmwrite(tmp_path / "a.mtx", sparse.coo_array(X))
    np.testing.assert_array_equal(dense(open_matrix(tmp_path / "a.mtx")[0]), X)
