"""embed, diffmap and contrast: numbers of the estimators, files, names, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz

import shiftsvd as ss
from shiftsvd.estimators.contrastive import ALPHAS
from tests.support.commands import done, invoke, told

RNG = np.random.default_rng(0)
X, B = RNG.random((60, 5)) * [1, 2, 3, 1, 1], RNG.random((40, 5))
W = np.exp(-np.square(X[:, None] - X).sum(axis=2))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    names = pd.Index([f"s{i}" for i in range(60)], name="id")
    pd.DataFrame(X, columns=list("abcde"), index=names).to_csv("X.csv")
    pd.DataFrame(B[:, ::-1], columns=list("edcba")).to_csv("B.csv", index=False)
    pd.DataFrame(B * [1, 1, 1, 1, 0], columns=list("abcde")).to_csv("flat.csv", index=False)
    np.save("X.npy", X)
    save_npz("W.npz", csr_array(W))
    pd.DataFrame(W, columns=names, index=names).to_csv("W.csv")
    return tmp_path


def scores(path: str) -> Any:
    return pd.read_csv(path, index_col="sample" if "sample" in Path(path).read_text()[:9] else None)


def test_embed_writes_the_coordinates_and_their_bounds(home: Path) -> None:
    found = told("embed", "X.csv", "-k", 3, "-q", "--neighbors", 9, "-o", "out")
    model = ss.SpectralEmbedding(3, n_neighbors=9, random_state=0).fit(X)
    written = scores("out/scores.csv")
    assert list(written.index[:2]) == ["s0", "s1"]
    assert list(written) == ["SE1", "SE2", "SE3"]
    assert np.allclose(written, model.embedding_, rtol=1e-14)
    document = json.loads(Path("out/result.json").read_text())
    assert document["eigenvalues"] == model.eigenvalues_.tolist() == found["eigenvalues"]
    assert document["vector_errors"] == model.vector_errors_.tolist()
    assert document["converged"] is True
    assert document["settings"]["n_neighbors"] == 9
    assert (
        set(document["sha256"])
        == {"scores.csv", "report.html"}
        == {path.name for path in (home / "out").iterdir()} - {"result.json"}
    )


@pytest.mark.parametrize("affinity", ["cosine", "precomputed"])
def test_embed_of_cosines_and_graphs(home: Path, affinity: str) -> None:
    file = {"cosine": "X.npy", "precomputed": "W.npz"}[affinity]
    found = told("embed", file, "--affinity", affinity)
    model = ss.SpectralEmbedding(2, affinity=affinity, random_state=0).fit(X if affinity == "cosine" else W)
    assert np.allclose(found["eigenvalues"], model.eigenvalues_, rtol=1e-12)
    assert found["connected_components"] == [60]


def test_cosines_of_a_file_beyond_the_memory_are_read_in_blocks(home: Path) -> None:
    rng = np.random.default_rng(0)
    Y = rng.random((500, 3000)) * (rng.random((500, 3000)) < 0.2)
    np.save("Y.npy", Y)
    line = "embed Y.npy --affinity cosine --memory 22M -k 1 --tol 1e-9 -q -o out --scores csv"
    assert not done(*line.split()).stderr
    model = ss.SpectralEmbedding(1, affinity="cosine", tol=1e-9, random_state=0).fit(Y)
    assert np.allclose(scores("out/scores.csv"), model.embedding_, atol=1e-8)
    result = invoke("embed", "Y.npy", "--affinity", "cosine", "--memory", "12M")
    assert (result.exit_code, "finding 2 coordinates of 500 nodes needs about" in result.stderr) == (1, True)


def test_trivial_coordinates_are_kept_first(home: Path) -> None:
    np.save("two.npy", np.kron(np.eye(2), np.ones((5, 5))))
    line = "embed two.npy --affinity precomputed --keep-first -k 2 -o out --scores npy --dtype float32"
    result = done(*line.split())
    assert (
        "The graph has 2 connected components (5, 5 nodes). Each of the first 2 coordinates is constant"
        in result.stderr
    )
    assert "2 connected components" in result.stdout
    Z = np.load("out/scores.npy")
    assert (np.count_nonzero(Z), Z.dtype) == (10, np.float32)
    result = done("embed", "two.npy", "--affinity", "precomputed", "-k", 2)
    assert "Use --keep-first to begin with one coordinate per component" in result.stderr
    assert "two.npy: 10 nodes" in result.stdout


def test_a_model_of_a_diffusion_map_places_new_samples_by_the_names_of_the_fit(home: Path) -> None:
    done("diffmap", "W.csv", "-k", 2, "--steps", 3, "--alpha", 0.5, "-q", "-o", "out")
    model = ss.DiffusionMap(2, alpha=0.5, t=3, random_state=0).fit(W)
    assert np.allclose(scores("out/scores.csv"), model.embedding_, rtol=1e-14)
    pd.read_csv("W.csv", index_col=0).iloc[:4, ::-1].to_csv("new.csv")
    done("transform", "out/model.safetensors", "new.csv", "-q", "-o", "new_scores.csv")
    assert np.allclose(scores("new_scores.csv"), model.embedding_[:4], atol=1e-4)
    assert list(scores("new_scores.csv")) == ["DC1", "DC2"]
    pd.read_csv("W.csv", index_col=0).iloc[:4, 1:].to_csv("few.csv")
    result = invoke("transform", "out/model.safetensors", "few.csv", "-o", "few_scores.csv")
    assert (result.exit_code, "a column for each of the 60 samples" in result.stderr) == (1, True)


@pytest.mark.parametrize("line", ["diffmap W2.csv", "embed W2.csv --affinity precomputed"])
def test_rows_and_columns_of_a_graph_have_one_order(home: Path, line: str) -> None:
    shuffled = pd.read_csv("W.csv", index_col=0).iloc[:, ::-1]
    shuffled.to_csv("W2.csv")
    result = invoke(*line.split())
    assert (result.exit_code, "the same labels in different orders. Reorder one." in result.stderr) == (1, True)
    for kind in (ss.DiffusionMap(), ss.SpectralEmbedding(affinity="precomputed")):
        with pytest.raises(ValueError, match="the same labels in different orders"):
            kind.fit(shuffled)


def test_contrast_matches_features_by_name_and_applies_to_new_samples(home: Path) -> None:
    found = told("contrast", "X.csv", "--background", "B.csv", "-k", 3, "--alpha", 2, "-q", "-o", "out")
    model = ss.ContrastivePCA(3, alpha=2, random_state=0).fit(X, background=B)
    assert np.allclose(found["eigenvalues"], model.eigenvalues_)
    assert found["alpha"] == 2
    assert np.allclose(scores("out/scores.csv"), model.transform(X))
    done("transform", "out/model.safetensors", "B.csv", "-q", "-o", "new.csv")
    assert np.allclose(scores("new.csv"), model.transform(B))
    assert list(scores("new.csv")) == ["cPC1", "cPC2", "cPC3"]


def test_ratios_of_variances_have_a_ridge_and_no_alpha(home: Path) -> None:
    found = told("contrast", "X.csv", "--background", "B.csv", "-k", 2, "--ridge", 0.1, "-q", "-o", "out")
    model = ss.ContrastivePCA(2, ridge=0.1, random_state=0).fit(X, background=B)
    assert np.allclose(found["eigenvalues"], model.eigenvalues_)
    assert (found["ridge"], found["settings"]["ridge"], "alpha" in found) == (0.1, 0.1, False)
    assert np.allclose(scores("out/scores.csv"), model.transform(X))
    assert ss.load_model("out/model.safetensors", ss.ContrastivePCA).ridge == 0.1
    printed = done("contrast", "X.csv", "--background", "B.csv", "-k", 2, "--ridge", 0.1).stdout
    for word in ("ridge = 0.1\n", "       ratio", "in the scalar product of the background plus ridge, is at most"):
        assert word in printed


def test_several_alphas_have_a_file_each(home: Path) -> None:
    alphas = [0.0, 1.0, 1.0000001, 1e-5]
    line = [word for alpha in alphas for word in ("--alpha", alpha)]
    found = told(
        "contrast", "X.npy", "--background", "X.npy", *line, "--alpha", 1, "-q", "-o", "out", "--scores", "csv"
    )
    assert [one["alpha"] for one in found["contrasts"]] == alphas
    for name in ("0", "1", "1.0000001", "1e-05"):
        again = ss.load_model(f"out/model_alpha{name}.safetensors", ss.ContrastivePCA)
        assert again.alpha == float(name)
        assert np.allclose(scores(f"out/scores_alpha{name}.csv"), again.transform(X))


def test_chosen_alphas_have_numbered_files(home: Path) -> None:
    line = [word for alpha in (0, 0.5, 1, 20) for word in ("--alpha", alpha)]
    found = told("contrast", "X.npy", "--background", "B.csv", *line, "--choose", 2, "-q", "-o", "out")
    assert len(found["contrasts"]) == 2
    assert ss.load_model("out/model_2.safetensors").alpha == found["contrasts"][1]["alpha"]
    chosen = told("contrast", "X.npy", "--background", "B.csv", "--choose", 3, "-q")
    assert (len(chosen["contrasts"]), chosen["settings"]["alphas"]) == (3, list(ALPHAS))
    assert told("contrast", "X.npy", "--background", "B.csv", "--alpha", 1, "--choose", 3, "-q")["alpha"] == 1


def test_categories_of_the_background_are_those_of_the_target(home: Path) -> None:
    Path("a.csv").write_text("x,sex\n" + "".join(f"{i},{'FM'[i % 2]}\n" for i in range(9)))
    Path("b.csv").write_text("sex,x\n" + "".join(f"F,{i}\n" for i in range(9)))
    found = told("contrast", "a.csv", "--background", "b.csv", "--one-hot", "sex", "-q", "-o", "out")
    assert np.isclose(found["target_variance"][0], 5 / 9)  # of the categories; x does not differ
    done("transform", "out/model.safetensors", "b.csv", "-q", "-o", "new.csv")
    assert len(scores("new.csv")) == 9


def test_a_background_may_have_more_features_and_must_not_lack_any(home: Path) -> None:
    pd.DataFrame(np.hstack([B, B]), columns=list("edcbavwxyz")).to_csv("more.csv", index=False)
    result = done("contrast", "X.csv", "--background", "more.csv")
    assert "more.csv has 5 features more than the target, which are ignored" in result.stderr
    pd.DataFrame(B, columns=list("abcdz")).to_csv("other.csv", index=False)
    result = invoke("contrast", "X.csv", "--background", "other.csv")
    assert (result.exit_code, result.stderr.count("lacks 1 feature of the target: e")) == (1, 1)
    result = invoke("contrast", "X.npy", "--background", "W.npz")
    assert (result.exit_code, "W.npz has 60 features, but X.npy has 5" in result.stderr) == (1, True)


@pytest.mark.parametrize("verb", ["embed", "diffmap"])
def test_graphs_of_cells(home: Path, verb: str) -> None:
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(X, obsp={"connectivities": csr_array(W)})
    adata.obs_names = [f"cell{i}" for i in range(60)]
    adata.write_h5ad("cells.h5ad")
    more = ["--affinity", "precomputed"] if verb == "embed" else []
    done(verb, "cells.h5ad", "--key", "obsp/connectivities", *more, "-q", "-o", "out", "--scores", "csv")
    assert list(scores("out/scores.csv").index[:2]) == ["cell0", "cell1"]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("embed X.npy -k 0", 2, "'-k'"),
        (
            "embed X.npy -k 60 --neighbors 9",
            2,
            "-k must be an integer in 1..59 for a connected graph of 60 nodes, got 60",
        ),
        ("embed X.npy --neighbors 60", 2, "--neighbors must be an integer in 1..59 for 60 samples, got 60"),
        ("embed X.npy --affinity precomputed", 1, "needs a square matrix of affinities"),
        ("embed X.npy --tol 2", 2, "must be at least 0 and less than 1"),
        ("embed X.npy --scores csv", 2, "--scores needs an output folder"),
        ("diffmap W.npz --steps nan", 2, "must be a number of at least 0, got nan"),
        ("diffmap W.npz --alpha -1", 2, "must be a number of at least 0, got -1"),
        ("diffmap W.npz --alpha 1e5", 2, "--alpha 100000.0 scales affinities"),
        ("diffmap X.npy", 1, "needs a square matrix of affinities"),
        ("contrast X.npy", 2, "Missing option '--background'"),
        ("contrast X.npy --background - ", 2, "does not exist"),
        ("contrast X.npy --background B.csv --alpha inf", 2, "must be a number of at least 0, got inf"),
        ("contrast X.npy --background B.csv -k 6", 2, "-k must be an integer in 1..5 for 5 features, got 6"),
        ("contrast X.npy --background B.csv --ridge -1", 2, "must be a number of at least 0, got -1"),
        ("contrast X.npy --background B.csv --ridge 1 --alpha 1", 2, "Remove --alpha and --choose"),
        ("contrast X.npy --background B.csv --ridge 1 --choose 2", 2, "Remove --alpha and --choose"),
        ("contrast X.npy --background flat.csv --ridge 0", 2, "--ridge must be larger, because variances of this"),
        ("contrast X.npy --background B.csv --alpha x", 2, "'x' is not a valid float"),
        ("contrast - --background B.csv", 2, "Standard input needs a format"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(home: Path, line: str, code: int, message: str) -> None:
    out = [] if "--scores" in line else ["-o", "out"]
    result = invoke(*line.split(), *out)
    assert (result.exit_code, message in " ".join(result.stderr.split())) == (code, True), result.stderr
    assert not Path("out").exists()


def test_missing_values_are_named(home: Path) -> None:
    Path("gap.csv").write_text("a,b\n1,2\n,3\n4,5\n")
    for line in ("embed gap.csv", "contrast gap.csv --background gap.csv"):
        result = invoke(*line.split())
        assert (result.exit_code, "'a'" in result.stderr) == (1, True), result.stderr


def test_components_that_did_not_converge_are_named_with_the_options(home: Path) -> None:
    save_npz("path.npz", csr_array(np.diag(np.ones(999), 1) + np.diag(np.ones(999), -1)))
    result = done("diffmap", "path.npz", "-k", 3, "--max-products", 5)
    assert "Components 1, 2, 3 did not converge in 5 products" in result.stderr
    assert "raise --max-products or --tol" in result.stderr
    assert told("diffmap", "path.npz", "-k", 3, "--max-products", 5)["converged"] is False


def test_the_background_is_never_overwritten(home: Path) -> None:
    Path("out").mkdir()
    (home / "B.csv").rename(home / "out" / "scores.csv")
    before = Path("out/scores.csv").read_bytes()
    result = invoke("contrast", "X.csv", "--background", "out/scores.csv", "-o", "out", "--force")
    assert (result.exit_code, "is an input file and would be overwritten" in result.stderr) == (1, True)
    assert Path("out/scores.csv").read_bytes() == before


def page(line: str) -> str:
    pytest.importorskip("matplotlib")
    done(*line.split(), "-q", "-o", "page")
    text = Path("page/report.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://(?!www.w3.org)", text)
    return text


@pytest.mark.figures
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("embed X.csv -k 3 --neighbors 9", ["Spectral embedding: 3 components", "SE1 and SE2", "SE2 and SE3", "s17"]),
        ("diffmap W.csv -k 1", ["Diffusion map: 1 component<", "random walk", "eigenvalue"]),
        (
            "contrast X.csv --background B.csv --alpha 0 --alpha 2",
            ["Components for alpha = 2", "cPC1 and cPC2, alpha = 0", "background", "--alpha 2"],
        ),
        (
            "contrast X.csv --background B.csv --ridge 0.5",
            [
                "<h2>Components</h2>",
                "The ratio of a component is",
                "<th>ratio</th>",
                "scalar product",
                "<dt>ridge</dt>",
            ],
        ),
    ],
)
def test_a_report_shows_values_bounds_and_coordinates(home: Path, line: str, words: list[str]) -> None:
    text = page(line)
    document = json.loads(Path("page/result.json").read_text())
    first = (document if "eigenvalues" in document else document["contrasts"][0])["eigenvalues"][0]
    for word in (*words, f"<td>{first:.5g}</td>", "How to read this report"):
        assert word in text
    assert text.count('role="img"') == {"embed": 3, "diffmap": 0, "contrast": line.count("--a") or 1}[line.split()[0]]
    assert len(text) < 500_000


@pytest.mark.figures
def test_a_report_is_coloured_by_a_column_of_the_table(home: Path) -> None:
    table = pd.read_csv("X.csv", index_col=0)
    plain = told("embed", "X.csv", "--neighbors", 9)["eigenvalues"]
    table["town"] = np.where(np.arange(60) < 20, "<Pau>", "Cork")
    table.to_csv("X.csv")
    text = page("embed X.csv --neighbors 9 --label-column town")
    assert "Cork" in text
    assert "&lt;Pau&gt;" in text
    assert json.loads(Path("page/result.json").read_text())["eigenvalues"] == plain
    done("contrast", "X.csv", "--background", "B.csv", "--label-column", "town", "-q", "-o", "contrast")
    assert "Cork" in Path("contrast/report.html").read_text(encoding="utf-8")
    result = invoke("embed", "X.csv", "--label-column", "town")
    assert (result.exit_code, "--label-column needs an output folder" in result.stderr) == (2, True)


def test_a_report_warns_of_what_did_not_converge_and_may_be_left_out(home: Path) -> None:
    save_npz("path.npz", csr_array(np.diag(np.ones(999), 1) + np.diag(np.ones(999), -1)))
    text = page("diffmap path.npz -k 3 --max-products 5")
    assert "Not everything converged" in text
    assert "--max-products or --tol" in text
    done("diffmap", "W.csv", "-q", "--no-report", "-o", "bare")
    assert not Path("bare/report.html").exists()
