"""Ids and symbols of genes: a model fitted with one kind of names scores files with the other kind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.io import open_matrix
from shiftsvd.runs.messages import Notice
from shiftsvd.scanpy import pca, project
from shiftsvd.scanpy.gene_names import Genes, matched, names_of_var
from tests.support.cells import CELLS, GENES, counts
from tests.support.commands import invoke
from tests.support.tenx import market, put

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
h5py = pytest.importorskip("h5py")
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:The 'future.infer_string' option is deprecated", "ignore::shiftsvd.runs.messages.Notice"
    ),
]

IDS = np.array([f"ENSG{j:011}" for j in range(GENES)])
SYMBOLS = np.array([f"G{j}" for j in range(GENES)])
TWICE = np.where(np.arange(GENES) == 7, "G6", SYMBOLS)  # two genes have the symbol G6
ORDER = np.random.default_rng(1).permutation(GENES)


def write_h5(path: Path, X: Any, ids: Any, symbols: Any) -> Path:
    C = sparse.csc_array(np.asarray(X).T.astype(np.int64))
    with h5py.File(path, "w") as root:
        group = root.create_group("matrix")
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(C, part))
        group.create_dataset("shape", data=C.shape)
        group.create_dataset("barcodes", data=[f"c{i}".encode() for i in range(C.shape[1])])
        parts = {"id": ids, "name": symbols, "feature_type": ["Gene Expression"] * len(ids)}
        for name, values in parts.items():
            group.create_dataset(f"features/{name}", data=np.asarray(values).astype("S"))
    return path


def write_folder(folder: Path, X: Any, ids: Any, symbols: Any) -> Path:
    folder.mkdir()
    put(folder / "matrix.mtx.gz", market(np.asarray(X).T.astype(np.int64)))
    put(folder / "barcodes.tsv.gz", "".join(f"c{i}\n" for i in range(len(X))))
    rows = zip(ids, symbols, strict=True)
    put(folder / "features.tsv.gz", "".join(f"{a}\t{b}\tGene Expression\n" for a, b in rows))
    return folder


def write_h5ad(path: Path, X: Any, names: Any, **columns: Any) -> Path:
    var = pandas.DataFrame(columns, index=list(names))
    adata = anndata.AnnData(sparse.csr_matrix(X), var=var)
    with np.errstate(all="ignore"):
        adata.write_h5ad(path)
    return path


def scores(model: Path, file: Path, *more: Any) -> np.ndarray:
    out = model.parent / "scores.csv"
    result = invoke("transform", model, file, "-o", out, "--force", *more)
    assert result.exit_code == 0, result.stderr
    return np.loadtxt(out, delimiter=",", skiprows=1, usecols=range(1, 4))


def fitted(folder: Path, file: Path, *more: Any) -> Path:
    line = ("fit", file, "-k", 3, "--preprocess", "log-normalize", "--no-report", "--tol", 1e-9, "-o", folder)
    result = invoke(*line, *more)
    assert result.exit_code == 0, result.stderr
    return folder / "model.safetensors"


N = counts(30, seed=5)
# Files of the same new cells, whose genes have other names, in another order.
FILES: dict[str, Any] = {
    "symbols": lambda at: write_h5ad(at / "n.h5ad", N[:, ORDER], SYMBOLS[ORDER]),
    "10x, symbols first": lambda at: write_h5(at / "n.h5", N[:, ORDER], IDS[ORDER], SYMBOLS[ORDER]),
    "folder": lambda at: write_folder(at / "n", N[:, ORDER], IDS[ORDER], SYMBOLS[ORDER]),
    "matrix in the folder": lambda at: (
        write_folder(at / "n", N[:, ORDER], IDS[ORDER], SYMBOLS[ORDER]) / "matrix.mtx.gz"
    ),
    "index of symbols": lambda at: write_h5ad(at / "n.h5ad", N[:, ORDER], SYMBOLS[ORDER], gene_ids=IDS[ORDER]),
    "index of ids": lambda at: write_h5ad(at / "n.h5ad", N, IDS, feature_name=pandas.Categorical(SYMBOLS)),
    "neither is the index": lambda at: write_h5ad(
        at / "n.h5ad", N, [f"row{j}" for j in range(GENES)], Gene_IDs=IDS, gene_symbols=SYMBOLS
    ),
    "versions": lambda at: write_h5ad(at / "n.h5ad", N, [f"{name}.{3 + j}" for j, name in enumerate(IDS)]),
    "half of each": lambda at: write_h5ad(at / "n.h5ad", N, np.where(np.arange(GENES) % 2, IDS, SYMBOLS)),
    "symbols that changed": lambda at: write_h5ad(
        at / "n.h5ad",
        N,
        np.where(np.arange(GENES) < 9, np.roll(SYMBOLS[:9], 1)[np.arange(GENES) % 9], SYMBOLS),
        gene_ids=IDS,
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of one donor by each kind of names, which both keep."""
    at = tmp_path_factory.mktemp("models")
    file = write_h5(at / "X.h5", counts(), IDS, SYMBOLS)
    return {
        "ids": fitted(at / "ids", file, "--var-names", "gene_ids"),
        "symbols": fitted(at / "symbols", file, "--var-names", "gene_symbols", "--top-features", 25),
    }


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", list(FILES))
def test_a_file_with_other_names_has_the_scores_of_the_same_cells_with_ids(
    name: str, models: dict[str, Path], tmp_path: Path
) -> None:
    file, same = FILES[name](tmp_path), write_h5ad(tmp_path / "same.h5ad", N, IDS)
    for model in models.values():
        np.testing.assert_allclose(scores(model, file), scores(model, same), rtol=1e-6, atol=1e-6)


def test_the_model_keeps_both_and_older_models_have_neither(models: dict[str, Path], tmp_path: Path) -> None:
    for kind, path in models.items():
        model: Any = ss.PCA.load(path)
        np.testing.assert_array_equal(model.feature_names_in_, IDS if kind == "ids" else SYMBOLS)
        np.testing.assert_array_equal(model.genes_.ids, IDS)
        np.testing.assert_array_equal(model.genes_.symbols, SYMBOLS)
    want = scores(path, write_h5ad(tmp_path / "same.h5ad", N, IDS))
    del model.genes_
    model.save(tmp_path / "older.safetensors")
    both = write_h5ad(tmp_path / "both.h5ad", N[:, ORDER], IDS[ORDER], gene_symbols=SYMBOLS[ORDER])
    np.testing.assert_allclose(scores(tmp_path / "older.safetensors", both), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("write", [write_h5, write_folder])
def test_repeated_symbols_become_ids_and_other_symbols_stay(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path / ("X.h5" if write is write_h5 else "X"), counts(), IDS, TWICE)
    names = open_matrix(path, var_names="gene_symbols")[1].features
    np.testing.assert_array_equal(names, np.where(np.isin(np.arange(GENES), [6, 7]), IDS, SYMBOLS))
    np.testing.assert_array_equal(open_matrix(path)[1].features, IDS)
    np.testing.assert_array_equal(open_matrix(path, var_names="gene_ids")[1].features, IDS)
    model = fitted(tmp_path / "out", path, "--var-names", "gene_symbols")
    alike = scores(model, write_h5ad(tmp_path / "n.h5ad", N[:, ORDER], IDS[ORDER]))
    named = write_h5ad(
        tmp_path / "m.h5ad", N[:, ORDER], [f"g{j}" for j in ORDER], gene_ids=IDS[ORDER], symbol=TWICE[ORDER]
    )
    np.testing.assert_allclose(scores(model, named), alike, rtol=1e-6, atol=1e-6)
    # Symbols alone cannot tell the two genes apart: both are absent, and named from both sides.
    line = ("transform", model, write_h5ad(tmp_path / "s.h5ad", N, SYMBOLS), "-o", tmp_path / "s.csv")
    refused = invoke(*line)
    assert refused.exit_code == 1
    assert (
        f"lacks 2 of the model's 40 features (limit 0 %, --max-absent): {IDS[6]} (G6), {IDS[7]} (G6). "
        in refused.stderr
    )
    assert "The file has G6, G7 that the model lacks" in refused.stderr
    assert "1 name of several genes cannot be matched: G6" in refused.stderr


def test_names_in_anndata_are_chosen_also_in_its_layers(tmp_path: Path) -> None:
    gaps = np.where(np.arange(GENES) == 3, None, SYMBOLS.astype(object))
    path = write_h5ad(tmp_path / "X.h5ad", counts(), IDS, feature_name=gaps)
    names = open_matrix(path, var_names="gene_symbols")[1].features
    np.testing.assert_array_equal(names, np.where(np.arange(GENES) == 3, IDS, SYMBOLS))
    np.testing.assert_array_equal(open_matrix(path)[1].features, IDS)
    nameless = write_h5ad(tmp_path / "Y.h5ad", counts(), SYMBOLS, n_cells=np.arange(GENES), gene_id=np.arange(GENES))
    for file in (nameless, tmp_path / "X.npy"):
        np.save(tmp_path / "X.npy", counts())
        with pytest.raises(ValueError, match=r'it has no such names\. Remove var_names="gene_ids"'):
            open_matrix(file, var_names="gene_ids")
    # Names without a column of the other kind are the kind that they look like.
    np.testing.assert_array_equal(open_matrix(nameless, var_names="gene_symbols")[1].features, SYMBOLS)
    alone = write_h5ad(tmp_path / "Z.h5ad", counts(), IDS)
    np.testing.assert_array_equal(open_matrix(alone, var_names="gene_ids")[1].features, IDS)
    with pytest.raises(ValueError, match=r'it has no such names\. Remove var_names="gene_symbols"'):
        open_matrix(alone, var_names="gene_symbols")
    with pytest.raises(ValueError, match='var_names must be "gene_symbols" or "gene_ids", got \'symbols\''):
        open_matrix(path, var_names="symbols")  # type: ignore[arg-type]


def test_what_is_not_the_same_gene_for_certain_is_absent(models: dict[str, Path], tmp_path: Path) -> None:
    other = np.where(np.arange(GENES) == 4, "ENSG99999999999", IDS)  # the symbol G4 has another id here
    file = write_h5ad(tmp_path / "n.h5ad", N, SYMBOLS, gene_ids=other)
    line = ("transform", models["ids"], file, "-o", tmp_path / "s.csv")
    refused = invoke(*line)
    assert refused.exit_code == 1
    assert (
        f"1 gene with the same symbol, but another id, cannot be matched: G4 ({IDS[4]}, {other[4]})." in refused.stderr
    )
    assert f"lacks 1 of the model's 40 features (limit 0 %, --max-absent): {IDS[4]} (G4)" in refused.stderr
    # Said to be symbols, they are matched as symbols.
    want = scores(models["ids"], write_h5ad(tmp_path / "same.h5ad", N, IDS))
    np.testing.assert_allclose(scores(models["ids"], file, "--var-names", "gene_symbols"), want, rtol=1e-6, atol=1e-6)
    lower = write_h5ad(tmp_path / "mouse.h5ad", N, [name.lower() for name in SYMBOLS])
    refused = invoke("transform", models["symbols"], lower, "-o", tmp_path / "s.csv")
    assert refused.exit_code == 1
    assert (
        "differ in case only are not matched, as in another species: g0 and G0, g1 and G1, g2 and G2" in refused.stderr
    )
    shuffled = write_h5ad(tmp_path / "other.h5ad", N, SYMBOLS, gene_ids=IDS[ORDER])
    refused = invoke("transform", models["ids"], shuffled, "-o", tmp_path / "s.csv")
    assert refused.exit_code == 1
    assert "To match by symbols alone, pass --var-names gene_symbols." in refused.stderr


def genes(names: Any, ids: Any = None, symbols: Any = None) -> Genes:
    known = (None if part is None else np.array(part, np.str_) for part in (ids, symbols))
    return Genes.of(names, *known)


@pytest.mark.parametrize(
    ("model", "file", "places"),
    [
        (genes(["a", "b"]), genes(["b", "a", "c"]), [1, 0, -1]),
        (genes(["ENSG00001.1", "ENSG00002"]), genes(["ENSG00002.7", "ENSG00001.2"]), [1, 0]),
        (genes(["ENSG00001.1"]), genes(["ENSG00001.2", "ENSG00001.3"]), [-1, -1]),  # which of them is it?
        (genes(["ENSG00001.2"]), genes(["ENSG00001.2", "ENSG00001.3"]), [0, -1]),
        (genes(["ENSG00001.2_PAR_Y", "ENSG00001.2"]), genes(["ENSG00001.5", "ENSG00001.5_PAR_Y"]), [1, 0]),
        (genes(["AC0001.1"]), genes(["AC0001.2", "AC0001"]), [-1, -1]),  # clones, not versions
        (genes(["TP53"]), genes(["Trp53", "tp53"]), [-1, -1]),
        (genes(["a", "a", "b"]), genes(["a", "b"]), [-1, 2]),
        (genes(["a", "b"]), genes(["", "nan", "b"]), [-1, -1, 1]),
        (genes(["x", "y"], ["i1", ""], ["s1", "s2"]), genes(["s2", "i1"]), [1, 0]),
        (genes(["x", "y"], ["i1", ""], ["s1", "s2"]), genes(["p", "q"], ["i2", "i3"], ["s1", "s2"]), [-1, 1]),
        (genes(["s1", "s2"], ["s1", "s2"], ["s1", "s2"]), genes(["i2", "i1"], ["i2", "i1"], ["s2", "s1"]), [1, 0]),
        (genes(["s1", "i1"]), genes(["p"], ["i1"], ["s1"]), [1]),  # an id is more certain than a symbol
    ],
)
def test_places(model: Genes, file: Genes, places: list[int]) -> None:
    np.testing.assert_array_equal(matched(model, file).places, places)


def test_numbered_symbols_are_told_unless_ids_decide() -> None:
    numbered = ["G", "G-1", "NKX2-1", "H"]
    assert "1 symbol with an appended number (G-1)" in matched(genes(numbered), genes(numbered)).notes[0]
    with_ids = genes(numbered, ["i1", "i2", "i3", "i4"], numbered)
    assert not matched(with_ids, with_ids).notes


@pytest.mark.parametrize(
    ("columns", "ids", "symbols"),
    [
        ({"gene_ids": IDS}, IDS, SYMBOLS),
        ({"Gene_Name": IDS}, None, IDS),  # as wrong as the column is: no symbol is an id here
        ({"feature_name": SYMBOLS}, None, SYMBOLS),
        ({"gene_ids": np.arange(GENES)}, None, None),
        ({"gene_ids": np.arange(GENES).astype(str)}, None, None),
        ({"gene_ids": np.full(GENES, np.nan, object), "ensembl_id": IDS}, IDS, SYMBOLS),
        ({"n_cells": IDS}, None, None),
    ],
)
def test_kinds_of_columns_and_of_the_index(columns: Any, ids: Any, symbols: Any) -> None:
    found = names_of_var(SYMBOLS, list(columns), columns.__getitem__)
    if "Gene_Name" in columns:  # the index differs from the symbols, so that it is the other kind
        ids = SYMBOLS
    for got, want in zip(found, (ids, symbols), strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_array_equal(got, want)


def test_anndata_with_the_other_names_is_projected(tmp_path: Path) -> None:
    reference = anndata.AnnData(sparse.csr_matrix(counts()), var=pandas.DataFrame(index=IDS))
    reference.var["feature_name"] = pandas.Categorical(SYMBOLS)
    reference.var["highly_variable"] = np.arange(GENES) % 3 != 1
    pca(reference, 3, preprocess="log-normalize", tol=1e-9)
    same = anndata.AnnData(sparse.csr_matrix(N), var=pandas.DataFrame(index=IDS))
    project(same, reference)
    other = anndata.AnnData(sparse.csr_matrix(N[:, ORDER]), var=pandas.DataFrame(index=SYMBOLS[ORDER]))
    project(other, reference)
    np.testing.assert_allclose(other.obsm["X_pca"], same.obsm["X_pca"], rtol=1e-6, atol=1e-6)
    with pytest.warns(
        Notice, match=r"lack 1 of the 40 genes in the library sizes, selected or not: ENSG00000000004 \(G4\)"
    ):
        project(other[:, other.var_names != "G4"].copy(), reference)


def test_fit_h5ad_of_10x_has_both(models: dict[str, Path], tmp_path: Path) -> None:
    file = write_h5(tmp_path / "X.h5", counts(), IDS, TWICE)
    fitted(tmp_path / "out", file, "--anndata", "--var-names", "gene_symbols")
    reference = anndata.read_h5ad(tmp_path / "out" / "fit.h5ad")
    np.testing.assert_array_equal(reference.var["gene_ids"], IDS)
    np.testing.assert_array_equal(reference.var["gene_symbols"], TWICE)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["settings"]["var_names"] == "gene_symbols"
    assert len(reference) == CELLS
