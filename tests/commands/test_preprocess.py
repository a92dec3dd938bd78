"""--preprocess: raw counts stay in their file, and what is decomposed is what the library makes of them."""

import json
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.io import open_matrix
from shiftsvd.model_file.kinds import class_of, values
from shiftsvd.transforms import NAMED, by_name
from shiftsvd.transforms.chains import as_transforms, forms_of, named
from shiftsvd.transforms.smooth import Smooth
from tests.support.commands import invoke, told
from tests.support.places import needs
from tests.support.sampling import in_turn
from tests.support.transformed import ROWS, counts

X, NEW = counts(120, 24, seed=7), counts(31, 24, seed=8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("counts") / "X.npz"
    sparse.save_npz(path, sparse.csr_array(X))
    return path


def values_of(D: np.ndarray) -> np.ndarray:
    return np.linalg.svd(D - D.mean(axis=0), compute_uv=False)


def test_every_name_is_of_a_class_and_every_class_but_those_of_functions_has_one() -> None:
    known = by_name()
    public = {getattr(ss.transforms, name) for name in ss.transforms.__all__ if isinstance(getattr(ss, name, 0), type)}
    assert public - set(known.values()) == {ss.Elementwise, ss.Select}
    assert {*public, ss.transforms.Fitted, Smooth} <= {class_of(name) for name in values()}
    for name, cls in known.items():
        assert named(name) == cls()
        assert set(forms_of(cls)) <= {field.name for field in fields(cls)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("pearson:theta=inf,clip=3", ss.PearsonResiduals(np.inf, clip=3.0)),
        ("pearson:theta=estimate", ss.PearsonResiduals("estimate")),
        ("log-normalize:target_sum=none,exclude_highly_expressed=true", ss.LogNormalize(None, True)),
        ("deviance:model=nb,theta=3", ss.DevianceResiduals("nb", 3.0)),
        ("tfidf:norm=l1,use_idf=false", ss.TfIdf("l1", use_idf=False)),
        ("tfidf:norm=none", ss.TfIdf(None)),
        ("ranks:quantiles=50", ss.Ranks(50)),
        ("clr:kind=seurat", ss.CLR(kind="seurat")),
        ("pmi:smoothing=0,positive=true", ss.PMI(0, positive=True)),
    ],
)
def test_settings_are_those_of_the_class(text: str, value: Any) -> None:
    assert named(text) == value


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMED)
def test_values_and_scores_are_those_of_the_dense_matrix(name: str, file: Path, tmp_path: Path) -> None:
    dense = {"deviance": "deviance, poisson"}.get(name, name)
    if name == "binarize":
        D, E = (X > 0).astype(float), (NEW > 0).astype(float)
    else:
        D, E = ROWS[dense].dense(X, X), ROWS[dense].dense(X, NEW)
    out = tmp_path / "out"
    found = told("fit", file, "-k", 4, "--preprocess", name, "-o", out, "--no-report", "--tol", 1e-10)
    np.testing.assert_allclose(found["singular_values"], values_of(D)[:4], rtol=1e-8)
    assert found["settings"]["preprocess"] == [name]
    assert found["variance_of"] == "the transformed data"
    sparse.save_npz(tmp_path / "new.npz", sparse.csr_array(NEW))
    assert invoke("transform", out / "model.safetensors", tmp_path / "new.npz", "-o", tmp_path / "Z.npy").exit_code == 0
    model = ss.load_model(out / "model.safetensors")
    Z = (E - D.mean(axis=0)) @ model.components_.T
    np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), Z, atol=1e-8 * np.abs(Z).max())


def test_several_are_applied_in_their_order(file: Path) -> None:
    line = ("fit", file, "-k", 3, "--tol", 1e-10)
    found = told(*line, "--preprocess", "binarize:threshold=1", "--preprocess", "tfidf")
    D = ROWS["tfidf"].dense(*[(X > 1).astype(float)] * 2)
    np.testing.assert_allclose(found["singular_values"], values_of(D)[:3], rtol=1e-8)
    other = told(*line, "--preprocess", "tfidf", "--preprocess", "binarize")
    assert not np.allclose(other["singular_values"], found["singular_values"], rtol=1e-3)


def test_scales_and_shifts_come_afterwards(file: Path) -> None:
    D = ROWS["pearson"].dense(X, X)
    line = ("fit", file, "-k", 3, "--preprocess", "pearson", "--tol", 1e-10)
    found = told(*line, "--shift", "none")
    np.testing.assert_allclose(found["singular_values"], np.linalg.svd(D, compute_uv=False)[:3], rtol=1e-8)
    found = told(*line, "--scale", "std")
    np.testing.assert_allclose(found["singular_values"], values_of(D / D.std(axis=0))[:3], rtol=1e-8)


def test_people_are_told_what_was_done(file: Path, tmp_path: Path) -> None:
    line = ("fit", file, "-k", 2, "--preprocess", "binarize", "--preprocess", "pearson:theta=10")
    assert "\nentries transformed by binarize, then pearson:theta=10\n" in invoke(*line).stdout
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    assert invoke(*line, "-o", tmp_path, "--report").exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "PearsonResiduals (theta 10.0)" in page
    assert "--preprocess pearson:theta=10" in page
    assert "PearsonResiduals(theta=10.0" in invoke("info", tmp_path / "model.safetensors").stdout


def test_features_in_another_order_find_what_was_learned_of_them(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(24)])
    frame.to_csv(tmp_path / "X.csv")
    moved = frame.iloc[:, np.random.default_rng(0).permutation(24)]
    moved.to_csv(tmp_path / "moved.csv")
    for name in ("pearson", "ranks", "tfidf"):
        out = tmp_path / name
        told("fit", tmp_path / "X.csv", "-k", 3, "--preprocess", name, "-o", out, "--no-report")
        Z = []
        for table in ("X.csv", "moved.csv"):
            line = ("transform", out / "model.safetensors", tmp_path / table, "-o", tmp_path / "Z.npy", "--force")
            assert invoke(*line).exit_code == 0
            Z.append(np.load(tmp_path / "Z.npy"))
        np.testing.assert_allclose(Z[1], Z[0], rtol=1e-9, atol=1e-9 * np.abs(Z[0]).max())


def test_layers_of_a_file_are_transformed_and_left_as_they_are(tmp_path: Path) -> None:
    needs("scanpy")
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(sparse.csr_matrix(np.log1p(X)), layers={"counts": sparse.csr_matrix(X)})
    adata.write_h5ad(tmp_path / "X.h5ad")
    before = (tmp_path / "X.h5ad").read_bytes()
    line = ("fit", tmp_path / "X.h5ad", "-k", 3, "--preprocess", "pearson", "--tol", 1e-10)
    found = told(*line, "--key", "layers/counts")
    np.testing.assert_allclose(found["singular_values"], values_of(ROWS["pearson"].dense(X, X))[:3], rtol=1e-8)
    assert (tmp_path / "X.h5ad").read_bytes() == before
    warned = invoke(*line)
    assert warned.exit_code == 0
    assert "--preprocess pearson requires counts, but the entries look like logarithms" in warned.stderr


REFUSED = [
    (("pearsn",), "one of log-normalize, pearson, deviance"),
    (("",), "got ''"),
    (("Pearson",), "got 'Pearson'"),
    (("pearson,ranks",), "got 'pearson,ranks'"),
    (("pearson:",), "must be one of theta, clip"),
    (("pearson:thet=1",), "must be one of theta, clip, got 'thet=1'"),
    (("pearson:log_rates=1",), "must be one of theta, clip"),
    (("sqrt:x=1",), "sqrt has no settings"),
    (("pearson:theta",), "must be key=value"),
    (("pearson:theta=1,theta=2",), "each key once"),
    (("pearson:theta=abc",), "theta of pearson must be a number or estimate, got 'abc'"),
    (("pearson:theta=-1",), "theta must be a number above 0"),
    (("pearson:theta=nan",), "theta must be a number above 0"),
    (("pearson:clip=0",), "clip must be a number above 0"),
    (("deviance:model=foo",), "must be poisson or binomial or nb, got 'foo'"),
    (("tfidf:use_idf=yes",), "must be true or false, got 'yes'"),
    (("ranks:quantiles=1.5",), "must be an integer or none, got '1.5'"),
    (("log-normalize:target_sum=inf",), "must be a finite number above 0"),
    (("pmi:context_power=nan",), "must be a finite number of at least 0"),
    (("pmi:positive=true",), "positive=True requires smoothing=0"),
    (("bm25:k1=inf",), "must be a finite number above 0"),
    (("clr:pseudocount=inf",), "must be a finite number above 0"),
    (("binarize:threshold=inf",), "must be a finite number of at least 0"),
    (("pearson", "sqrt"), "must be the last step. Put Sqrt() first."),
    (("pearson", "ranks"), "must be the last step. Remove one of the steps, this or Ranks(quantiles=None)."),
]


@pytest.mark.parametrize(("case", "word"), in_turn(REFUSED, ["fit", "estimate"], 1))
def test_what_cannot_be_is_refused_as_usage(word: str, case: tuple[tuple[str, ...], str], file: Path) -> None:
    texts, said = case
    result = invoke(word, file, *(part for text in texts for part in ("--preprocess", text)))
    assert result.exit_code == 2
    assert said in result.stderr
    with pytest.raises(ValueError, match=r"must|requires|has no settings"):
        as_transforms(list(texts))


@pytest.mark.parametrize("more", [("--missing", "mean"), ("--missing", "em"), ("--scale", "patterson")])
def test_what_does_not_go_with_it_is_refused_as_usage(more: tuple[str, ...], file: Path) -> None:
    if "patterson" in more:
        needs("genetics")
    result = invoke("fit", file, "--preprocess", "pearson", *more)
    assert result.exit_code == 2
    assert "--preprocess" in result.stderr


def test_genotypes_are_refused(tmp_path: Path) -> None:
    needs("genetics")
    to_bed = pytest.importorskip("bed_reader").to_bed
    to_bed(tmp_path / "X.bed", np.random.default_rng(0).integers(0, 3, (20, 30)))
    result = invoke("fit", tmp_path / "X.bed", "-k", 2, "--preprocess", "binarize")
    assert result.exit_code == 1
    assert "Remove --preprocess" in result.stderr


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (-1.0, "pearson", "at least 0, got -1"),
        (-0.5, "deviance", "at least 0, got -0.5"),
        (np.nan, "log-normalize", "1 entry is missing (NaN)"),
        (np.inf, "ranks", "1 inf"),
    ],
)
def test_entries_without_a_meaning_are_errors_of_the_data(change: float, name: str, said: str, tmp_path: Path) -> None:
    D = X.copy()
    D[3, 4] = change
    np.save(tmp_path / "D.npy", D)
    result = invoke("fit", tmp_path / "D.npy", "-k", 2, "--preprocess", name)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", NAMED)
def test_a_file_of_zeros_has_values_of_zero_and_an_empty_one_is_refused(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "zeros.npy", np.zeros((6, 5)))
    result = invoke("fit", tmp_path / "zeros.npy", "-k", 2, "--preprocess", name, "--json")
    assert result.exit_code == 0, result.output
    assert max(json.loads(result.stdout)["singular_values"]) < 1e-12
    np.save(tmp_path / "empty.npy", np.zeros((0, 5)))
    assert invoke("fit", tmp_path / "empty.npy", "--preprocess", name).exit_code == 1


def test_estimate_tells_it_and_foresees_what_is_kept(file: Path) -> None:
    plain, more = (told("estimate", file, "-k", 3, *line) for line in ((), ("--preprocess", "sqrt")))
    assert (plain["preprocess"], more["preprocess"]) == (None, ["sqrt"])
    assert more["peak_bytes"] > plain["peak_bytes"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts that a limit of 20 MB leaves in their file, which is compressed by nobody."""
    Y = np.tile(counts(1500, 100, seed=2), (10, 1)).astype(np.float64)
    folder = tmp_path_factory.mktemp("large")
    np.save(folder / "Y.npy", Y)
    A, _ = open_matrix(folder / "Y.npy", memory_limit="20M")
    assert type(A).__name__ == "DiskRows"
    return folder / "Y.npy"


@pytest.mark.long
def test_counts_that_stay_in_their_file_give_what_those_in_memory_give(large: Path, tmp_path: Path) -> None:
    found, Z = {}, {}
    line = ("fit", large, "-k", 3, "--preprocess", "pearson", "--solver", "lanczos", "--tol", 1e-9, "--no-report")
    for memory in ("20M", "2G"):
        out = tmp_path / memory
        found[memory] = told(*line, "--memory", memory, "-o", out, "--scores", "npy")
        done = invoke("transform", out / "model.safetensors", large, "-o", out / "Z.npy", "--memory", "20M")
        assert done.exit_code == 0, done.output
        Z[memory] = np.load(out / "scores.npy")
        np.testing.assert_allclose(np.load(out / "Z.npy"), Z[memory], atol=1e-9 * np.abs(Z[memory]).max())
    np.testing.assert_allclose(found["20M"]["singular_values"], found["2G"]["singular_values"], rtol=1e-8)


@pytest.mark.long
def test_a_run_goes_on_from_its_checkpoint_and_refuses_that_of_another_transformation(
    large: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    line = ["fit", large, "-k", 3, "--solver", "lanczos", "--tol", 1e-9, "--memory", "20M", "--no-report"]
    line += ["--checkpoint", kept, "--scores", "none"]
    first = [str(word) for word in (*line, "--preprocess", "pearson", "-o", tmp_path / "out")]
    command = [sys.executable, "-c", "from shiftsvd.cli import main; main()", *first, "--progress", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for text in run.stderr:
            if text.startswith("{") and any(kept.glob("read-*.npz")):
                run.send_signal(signal.SIGKILL)
                break
    assert run.returncode == -signal.SIGKILL
    assert any(kept.glob("read-*.npz"))
    other = invoke(*line, "--preprocess", "pearson:theta=10", "-o", tmp_path / "other")
    assert other.exit_code == 1, other.output
    assert not (tmp_path / "other" / "model.safetensors").exists()
    found = told(*first)
    whole = told(*[word for word in first if word not in ("--checkpoint", str(kept))], "--force")
    np.testing.assert_array_equal(found["singular_values"], whole["singular_values"])


@pytest.mark.long
def test_workers_transform_what_they_read(large: Path) -> None:
    pytest.importorskip("distributed")
    line = ("fit", large, "-k", 2, "--preprocess", "pearson", "--solver", "lanczos", "--tol", 1e-9)
    here, there = told(*line), told(*line, "--workers", 1, "--quiet")
    np.testing.assert_allclose(there["singular_values"], here["singular_values"], rtol=1e-8)
