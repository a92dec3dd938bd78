"""Files of donors, one below another: genes are matched by name, those of all files or those of any, and counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from shiftsvd.cli import main
from shiftsvd.io import open_matrix
from shiftsvd.runs.messages import Notice

anndata = pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
GENES = {"a": ["g0", "g1", "g2", "g3", "g4"], "b": ["g4", "x0", "g2", "g0"], "c": ["g0", "g2", "g3", "g4", "x1"]}
EVERY = ["g0", "g1", "g2", "g3", "g4", "x0", "x1"]
COMMON = ["g0", "g2", "g4"]
CONTAINERS = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "dense": np.array}


def counts(donor: str) -> np.ndarray:
    rng = np.random.default_rng(ord(donor))
    return rng.poisson(2.0, (9, len(GENES[donor]))).astype(np.float32)


def donors(folder: Path, kinds: list[str]) -> list[Path]:
    paths = []
    for donor, kind in zip(GENES, kinds, strict=True):
        adata = anndata.AnnData(CONTAINERS[kind](counts(donor)))
        adata.obs_names, adata.var_names = [f"{donor}{i}" for i in range(9)], GENES[donor]
        paths.append(folder / f"{donor}.h5ad")
        adata.write_h5ad(paths[-1])
    return paths


def joined(names: list[str]) -> np.ndarray:
    """By place, in a dense array of zeros."""
    X = np.zeros((27, len(names)))
    for i, (donor, own) in enumerate(GENES.items()):
        for j, name in enumerate(names):
            if name in own:
                X[9 * i : 9 * i + 9, j] = counts(donor)[:, own.index(name)]
    return X


@pytest.mark.parametrize("stream", [None, True])
@pytest.mark.parametrize(
    "kinds", [["csr"] * 3, ["dense"] * 3, ["csc"] * 3, ["csr", "dense", "csr"], ["csc", "csr", "csr"]]
)
@pytest.mark.parametrize(("join", "names"), [("inner", COMMON), ("outer", EVERY)])
def test_genes_are_matched_by_name_and_counted(
    join: Any, names: list[str], kinds: list[str], stream: bool | None, tmp_path: Path
) -> None:
    counted = "4 other features are excluded" if join == "inner" else "All 7 are kept, with 0 where a file lacks"
    with pytest.warns(Notice, match=f"3 files have 4 to 5 features each, 3 of 7 in common. {counted}"):
        A, found = open_matrix(donors(tmp_path, kinds), stack="rows", join=join, stream=stream)
    np.testing.assert_array_equal(A @ np.eye(len(names)), joined(names))
    assert found.features.tolist() == names
    assert found.samples.tolist() == [f"{donor}{i}" for donor in GENES for i in range(9)]


def test_files_of_the_same_genes_are_joined_without_a_word_in_another_order_with_one(tmp_path: Path) -> None:
    paths = donors(tmp_path, ["csr"] * 3)
    copy = tmp_path / "a2.h5ad"
    copy.write_bytes(paths[0].read_bytes())
    A, _ = open_matrix([paths[0], copy], stack="rows", join="outer")
    np.testing.assert_array_equal(A @ np.eye(5), np.vstack([counts("a")] * 2))
    anndata.read_h5ad(copy)[:, ::-1].copy().write_h5ad(tmp_path / "turned.h5ad")
    with pytest.warns(Notice, match="have 5 features each, 5 of 5 in common, in different orders"):
        A, _ = open_matrix([paths[0], tmp_path / "turned.h5ad"], stack="rows", join="inner")
    np.testing.assert_array_equal(A @ np.eye(5), np.vstack([counts("a")] * 2))


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_ids_that_differ_in_their_version_only_are_the_same_gene_if_one_gene_has_the_id(
    join: Any, tmp_path: Path
) -> None:
    # Two genes of the second file have the last id: only the same version is the same gene.
    named = [[f"ENSG0000{j}.{j}" for j in range(5)], [*(f"ENSG0000{j}" for j in (2, 0)), "ENSG00004.4", "ENSG00004.5"]]
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    for path, names, donor in zip(paths, named, "ab", strict=True):
        adata = anndata.AnnData(sparse.csr_matrix(counts(donor)))
        adata.obs_names, adata.var_names = [f"{donor}{i}" for i in range(9)], names
        adata.var["marked"] = np.arange(len(names)) % 2 == 0
        adata.write_h5ad(path)
    with pytest.warns(Notice) as told:
        A, found = open_matrix(paths, stack="rows", join=join)
    assert "the versions of 2 ids differ from those of an earlier file" in str(told[0].message)
    common = ["ENSG00000.0", "ENSG00002.2", "ENSG00004.4"]
    assert found.features.tolist() == (common if join == "inner" else [*named[0], "ENSG00004.5"])
    X = A @ np.eye(A.shape[1])
    at = [found.features.tolist().index(name) for name in common]
    np.testing.assert_array_equal(X[:9, at], counts("a")[:, [0, 2, 4]])
    np.testing.assert_array_equal(X[9:, at], counts("b")[:, [1, 0, 2]])
    how = ["--stack", "rows", "--join", join, "-k", "2", "--mask", "marked", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["fit", *map(str, paths), *how])
    assert "different values of 'ENSG00000.0' in the column 'marked'" in result.output


def test_files_whose_ids_differ_in_their_version_only_keep_the_order(tmp_path: Path) -> None:
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    for path, version in zip(paths, ("", ".7"), strict=True):
        adata = anndata.AnnData(sparse.csr_matrix(counts("a")))
        adata.obs_names, adata.var_names = [f"{path}{i}" for i in range(9)], [f"g{j}" for j in range(5)]
        adata.var["gene_ids"] = [f"ENSG0000{j}{version}" for j in range(5)]
        adata.write_h5ad(path)
    with pytest.warns(Notice, match="the versions of 5 ids differ"):
        A, found = open_matrix(paths, stack="rows", join="inner", var_names="gene_ids")
    np.testing.assert_array_equal(A @ np.eye(5), np.vstack([counts("a")] * 2))
    assert found.features.tolist() == [f"ENSG0000{j}" for j in range(5)]


def test_what_cannot_be_joined_is_refused_with_a_line(tmp_path: Path) -> None:
    paths = donors(tmp_path, ["csr"] * 3)
    for how in ({"stack": "columns", "join": "inner"}, {"stack": "rows", "join": "left"}):
        with pytest.raises(ValueError, match='join must be "inner" or "outer", with several files and stack="rows"'):
            open_matrix(paths, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='join must be "inner" or "outer"'):
        open_matrix(paths[0], join="inner")
    with pytest.raises(
        ValueError, match=r'b\.h5ad must have the features of .*a\.h5ad.*join="inner" to keep the common'
    ):
        open_matrix(paths, stack="rows")
    twice = anndata.AnnData(counts("a"))
    twice.var_names = ["g0", "g1", "g1", "g2", "g3"]
    twice.write_h5ad(tmp_path / "twice.h5ad")
    with pytest.raises(ValueError, match=r"twice\.h5ad must have unique feature names .* 'g1' twice"):
        open_matrix([paths[0], tmp_path / "twice.h5ad"], stack="rows", join="outer")
    other = anndata.AnnData(counts("a"))
    other.var_names = [f"ENS{j}" for j in range(5)]
    other.write_h5ad(tmp_path / "other.h5ad")
    with pytest.raises(ValueError, match="have no feature in common"):
        open_matrix([paths[0], tmp_path / "other.h5ad"], stack="rows", join="inner")
    np.save(tmp_path / "X.npy", counts("a"))
    with pytest.raises(ValueError, match="has no feature names to match"):
        open_matrix([paths[0], tmp_path / "X.npy"], stack="rows", join="inner")


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_the_command_joins_donors_and_says_how_many_genes(join: str, tmp_path: Path) -> None:
    paths = [str(path) for path in donors(tmp_path, ["csr"] * 3)]
    out = tmp_path / "out"
    line = [
        "fit",
        *paths,
        "--stack",
        "rows",
        "--join",
        join,
        "-k",
        "2",
        "--tol",
        "1e-8",
        "--no-report",
        "--scores",
        "npy",
    ]
    result = CliRunner().invoke(main, [*line, "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "3 files have 4 to 5 features each, 3 of 7 in common" in result.stderr
    X = joined(COMMON if join == "inner" else EVERY)
    _, S, Vh = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    Z, want = np.load(out / "scores.npy"), (X - X.mean(axis=0)) @ Vh[:2].T
    np.testing.assert_allclose(np.abs(Z), np.abs(want), atol=1e-4 * S[0])
    model = str(out / "model.safetensors")
    again = ["transform", model, *paths, "--stack", "rows", "--join", join, "-o", str(out / "again.npy")]
    assert CliRunner().invoke(main, again).exit_code == 0
    np.testing.assert_allclose(np.load(out / "again.npy"), Z, atol=1e-5 * S[0])
    result = CliRunner().invoke(main, ["fit", paths[0], "--join", "inner", "-k", "2"])
    assert result.exit_code == 2
    assert "--join needs several files and --stack rows" in result.stderr


def test_masks_and_columns_of_several_donors_go_by_name(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    kept = {"g0", "g2"}
    paths = []
    for donor, own in GENES.items():
        adata = anndata.AnnData(sparse.csr_matrix(counts(donor)))
        adata.obs_names, adata.var_names = [f"{donor}{i}" for i in range(9)], own
        adata.var["highly_variable"] = [name in kept for name in own]
        adata.obs["donor"] = pandas.Categorical([donor] * 9)
        paths.append(tmp_path / f"{donor}.h5ad")
        adata.write_h5ad(paths[-1])
    line = [
        "fit",
        *map(str, paths),
        "--stack",
        "rows",
        "--join",
        "outer",
        "-k",
        "2",
        "--tol",
        "1e-8",
        "--groups",
        "donor",
    ]
    result = CliRunner().invoke(main, [*line, "--no-report", "--scores", "npy", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "Using the 2 of 7 features" in result.stderr
    X = joined(["g0", "g2"])
    X = np.vstack([part - part.mean(axis=0) for part in np.split(X, 3)])
    _, S, Vh = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(np.abs(np.load(tmp_path / "out/scores.npy")), np.abs(X @ Vh.T), atol=1e-4 * S[0])
    other = anndata.read_h5ad(paths[1])
    other.var["highly_variable"] = ~other.var["highly_variable"]
    other.write_h5ad(paths[1])
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0
    assert (
        "var['highly_variable'] is ignored, because it differs between files. All features are used." in result.stderr
    )
    result = CliRunner().invoke(main, [*line, "--mask", "highly_variable"])
    assert result.exit_code == 1
    assert "have different values of 'g4' in the column 'highly_variable' of var" in result.stderr
    del other.var["highly_variable"]
    other.write_h5ad(paths[1])
    result = CliRunner().invoke(main, line)
    assert (
        "var['highly_variable'] is ignored, because this column is in only 2 of 3 files. All features are used."
        in result.stderr
    )


def test_files_that_disagree_about_a_feature_without_a_name_are_refused(tmp_path: Path) -> None:
    anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    annotations = pytest.importorskip("shiftsvd.scanpy.annotations")
    for name, first in (("a", True), ("b", False)):
        var = pd.DataFrame({"used": [first, True]}, index=["", "g1"])
        anndata.AnnData(np.eye(2, dtype=np.float32), var=var).write_h5ad(tmp_path / f"{name}.h5ad")
    stacked = annotations.io.MatrixOptions(stack="rows")
    source = annotations.AnnotationSource([tmp_path / "a.h5ad", tmp_path / "b.h5ad"], stacked)
    with pytest.raises(annotations.Disagreement, match="have different values of '' in the column 'used'"):
        annotations.feature_column(source, "used")


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_folders_of_10x_are_joined_by_their_genes_alone(join: Any, tmp_path: Path) -> None:
    from tests.support.tenx import GENES as N_GENES
    from tests.support.tenx import NAMES, X, market, put, write_folder

    a, b = write_folder(tmp_path / "a"), write_folder(tmp_path / "b")
    places = np.array([11, 3, 5, 0, 7])  # the genes of the second one, in another order
    put(b / "matrix.mtx.gz", market(X.T[places]))
    rows = "".join(f"ENS{j:05}\t{NAMES[j]}\tGene Expression\n" for j in places)
    put(b / "features.tsv.gz", rows)
    with pytest.warns(Notice, match="5 of 12 in common"):
        A, names = open_matrix([a, b], stack="rows", join=join, feature_types="Gene Expression")
    kept = np.sort(places) if join == "inner" else np.arange(N_GENES)
    assert names.features.tolist() == NAMES[kept].tolist()
    second = np.where(np.isin(kept, places), X[:, kept], 0)
    np.testing.assert_array_equal(A @ np.eye(len(kept)), np.vstack([X[:, kept], second]))
