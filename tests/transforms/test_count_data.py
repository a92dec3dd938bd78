"""Logarithms and scaled data where counts are needed, raw counts where logarithms are usual: one line, or nothing."""

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.transforms import by_name
from tests.support.places import needs
from tests.support.values import HONEST, LOGARITHMS, corrected, counted, most_variable, per

BY_NAME = by_name()
OF_COUNTS = sorted(name for name, kind in BY_NAME.items() if kind.of_counts)
LOOKS = "requires counts, but the entries look like logarithms"
RAW = "The entries look like raw counts: integers up to "
WARNED = ss.transforms.ValuesWarning


def warned(what: str) -> Any:
    return pytest.warns(WARNED, match=what)


def shares(seed: int = 0) -> Any:
    return np.log1p(per(counted(np.random.default_rng(seed)), 1e4))


def cells(X: Any, marked: bool = False) -> Any:
    adata = pytest.importorskip("anndata").AnnData(X)
    adata.obs_names, adata.var_names = adata.obs_names + "c", adata.var_names + "g"
    if marked:
        adata.uns["log1p"] = {"base": None}
    return adata


def told(*words: Any) -> str:
    """What a command that succeeds says on stderr, without the lines of outputs."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("written: "))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("data", LOGARITHMS)
def test_logarithms_are_told(data: str, seed: int) -> None:
    X = LOGARITHMS[data](np.random.default_rng(seed))
    with warned(f"LogNormalize {LOOKS}"):
        ss.preprocess(X, "log-normalize")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("data", HONEST)
def test_honest_input_is_taken_in_silence(data: str, seed: int) -> None:
    """Under the rule that every warning is an error."""
    X = HONEST[data](np.random.default_rng(seed))
    for name in ("log-normalize", "deviance", "bm25", "sqrt", "clr"):
        ss.preprocess(X, name)


@pytest.mark.parametrize("data", ["of shares, CSC", "of counts", "of base 2 of bulk", "of intensities"])
def test_logarithms_as_they_are_and_their_ranks_are_no_mistake(data: str) -> None:
    X = LOGARITHMS[data](np.random.default_rng(0))
    ss.PCA(2, random_state=0).fit(X)
    for name in sorted(BY_NAME.keys() - set(OF_COUNTS)):
        ss.svd(X, 2, preprocess=name, rng=0)


def test_what_takes_counts_is_known() -> None:
    assert OF_COUNTS == sorted(BY_NAME.keys() - {"ranks", "binarize"})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", OF_COUNTS)
def test_all_transformations_of_counts_look_in_one_way(name: str) -> None:
    X, rng = shares(), np.random.default_rng(0)
    kind = BY_NAME[name].__name__
    with warned(f"{kind} {LOOKS}"):
        ss.svd(X, 2, preprocess=name, rng=0)
    with warned(f"{kind} {LOOKS}"):
        BY_NAME[name]().learn(X)
    pca = ss.PCA(2, preprocess=name, random_state=0).fit(counted(rng))
    pca.transform(counted(rng)[:9])
    with warned(f"{kind} {LOOKS}"):
        pca.transform(X[:9])
    scaled = (X - X.mean(axis=0)) / (X.std(axis=0) + 1)
    with pytest.raises(ValueError, match=f"{kind} requires counts of at least 0, got -"):
        ss.preprocess(scaled, name)
    for fractions in (corrected(rng, counted(rng)), most_variable(corrected(rng, counted(rng)))):
        assert np.isfinite(ss.svd(fractions, 2, preprocess=name, rng=0).S).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WARNED)
        warnings.filterwarnings("ignore", "Component", UserWarning)
        ss.svd(X, 2, preprocess=name, rng=0)


def test_fractions_are_taken_by_null_models_as_their_formulas_have_it() -> None:
    X = corrected(np.random.default_rng(0), counted(np.random.default_rng(0)))
    mu = np.outer(X.sum(axis=1), X.sum(axis=0)) / X.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.nan_to_num((X - mu) / np.sqrt(mu + mu**2 / 100))
    made = ss.preprocess(X, "pearson:clip=inf") @ np.eye(X.shape[1])
    np.testing.assert_allclose(made, want, atol=1e-5)


@pytest.mark.parametrize("flavor", ["seurat_v3", "seurat_v3_paper", "pearson_residuals"])
def test_rankings_of_counts_look_in_the_same_way(flavor: Any) -> None:
    needs("scanpy")
    with warned(f'flavor="{flavor}" {LOOKS}'):
        ss.scanpy.highly_variable(shares(), 20, flavor=flavor)
    rng = np.random.default_rng(0)
    ss.scanpy.highly_variable(corrected(rng, counted(rng)), 20, flavor=flavor)
    with warned(f"LogNormalize {LOOKS}"):
        ss.scanpy.highly_variable(shares(), 20, preprocess="log-normalize")


def test_chains_are_looked_at_before_their_first_step() -> None:
    rng = np.random.default_rng(0)
    ss.preprocess(counted(rng), ["log-normalize", "ranks"])
    ss.preprocess(counted(rng), [ss.transforms.Select(np.arange(50)), "log-normalize"])
    with warned(LOOKS):
        ss.preprocess(shares(), [ss.transforms.Select(np.arange(200)), "log-normalize"])
    ss.preprocess(shares(), [ss.Elementwise(np.expm1), "log-normalize"])


@pytest.mark.parametrize("layout", ["csr", "csc", "npy"])
def test_files_that_are_read_in_blocks_are_looked_at_without_a_read(layout: str, tmp_path: Path) -> None:
    X = np.tile(shares(), (40, 1))
    for values, expected in ((X, True), (np.expm1(X), False)):
        path = tmp_path / f"{expected}.{'npy' if layout == 'npy' else 'h5ad'}"
        if layout == "npy":
            np.save(path, values)
        else:
            cells({"csr": sparse.csr_array, "csc": sparse.csc_array}[layout](values)).write_h5ad(path)
        A, _ = ss.io.open_matrix(path, memory_limit="40MB", stream=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            events: list[Any] = []
            with ss.events.listening(events.append):
                ss.preprocess(A, "sqrt")
        assert [LOOKS in str(each.message) for each in found] == [True] * expected
        assert not events  # a square root learns nothing: no read is told, and few rows are read


def test_dask_arrays_are_looked_at_by_their_first_rows() -> None:
    for chunks in (7, 60, 1000):
        with warned(LOOKS):
            ss.preprocess(da.from_array(shares(), chunks=(chunks, -1)), "log-normalize")
    ss.preprocess(da.from_array(np.expm1(shares()), chunks=(50, -1)), "log-normalize")


def test_one_file_of_several_may_hold_logarithms(tmp_path: Path) -> None:
    for name, values in (("a", counted(np.random.default_rng(0))), ("b", shares())):
        cells(sparse.csr_array(values)).write_h5ad(tmp_path / f"{name}.h5ad")
    said = told("fit", tmp_path / "a.h5ad", tmp_path / "b.h5ad", "--stack", "rows", "--preprocess", "sqrt", "-k", 2)
    assert LOOKS in said


# --- AnnData ----------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_scanpy_pca_is_told_of_raw_counts_and_of_logarithms(layout: Any) -> None:
    needs("scanpy")
    raw, logged = counted(np.random.default_rng(0)), shares()
    for X in (cells(layout(raw)), layout(raw)):
        with warned(RAW + r"\d+\. PCA of cells usually uses logarithms\. Use preprocess=\"log-normalize\"\."):
            ss.scanpy.pca(X, 3)
        ss.scanpy.pca(X, 3, preprocess="log-normalize")
    for X in (cells(layout(logged)), layout(logged), cells(layout(logged), marked=True)):
        ss.scanpy.pca(X, 3)
        with warned(LOOKS):
            ss.scanpy.pca(X, 3, preprocess="pearson")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WARNED)
        ss.scanpy.pca(cells(layout(raw)), 3)


def test_counts_in_some_of_the_rows_are_no_raw_counts() -> None:
    X = np.random.default_rng(0).poisson(2.0, (300, 40)).astype(np.float64)
    pca = pytest.importorskip("shiftsvd.scanpy").pca
    with warned(RAW):
        pca(cells(X.copy()), 2)
    X[200:] /= 2
    pca(cells(X), 2)


def test_what_scanpy_marks_counts_where_entries_alone_say_nothing() -> None:
    """Logarithms of corrected counts, of some genes; and counts that were put back where logarithms were."""
    needs("scanpy")
    rng = np.random.default_rng(0)
    X = most_variable(np.log1p(corrected(rng, counted(rng)) * rng.uniform(1.0, 9.0, (120, 1))))
    ss.scanpy.pca(cells(X), 2, preprocess="log-normalize")
    reference = cells(X)
    ss.scanpy.pca(reference, 2, preprocess="log-normalize")
    for call in (
        lambda adata: ss.scanpy.pca(adata, 2, preprocess="log-normalize"),
        lambda adata: ss.scanpy.highly_variable(adata, 9, flavor="pearson_residuals"),
        lambda adata: ss.scanpy.project(adata, reference),
    ):
        with warned(r"look like logarithms: uns\['log1p'\] marks them"):
            call(cells(X, marked=True))
    ss.scanpy.pca(cells(counted(rng), marked=True), 2, preprocess="log-normalize")
    with_layer = cells(X, marked=True)
    with_layer.layers["counts"] = counted(rng, n=60)
    ss.scanpy.pca(with_layer, 2, preprocess="log-normalize", layer="counts")


def test_new_cells_of_logarithms_on_a_model_of_counts_are_told() -> None:
    needs("scanpy")
    reference = cells(counted(np.random.default_rng(0)))
    ss.scanpy.pca(reference, 3, preprocess="log-normalize")
    ss.scanpy.project(cells(counted(np.random.default_rng(0))[:40]), reference)
    with warned(LOOKS):
        ss.scanpy.project(cells(shares()[:40]), reference)


@pytest.mark.parametrize("name", ["tfidf", "bm25"])
def test_weights_in_place_of_counts_of_words_are_told(name: str) -> None:
    counts = counted(np.random.default_rng(0))
    weights = ss.preprocess(counts, "tfidf") @ np.eye(np.shape(counts)[1])
    with warned("requires counts, but the entries look like weights of words: their squares have the same sum"):
        ss.TruncatedSVD(3, preprocess=name, warn_mean=False).fit(weights)


# --- the command ------------------------------------------------------------------------------------------------------


def written(X: Any, path: Path, marked: bool = False) -> Path:
    cells(X, marked).write_h5ad(path)
    return path


def test_the_command_tells_of_logarithms_and_of_raw_counts(tmp_path: Path) -> None:
    needs("scanpy")
    rng = np.random.default_rng(0)
    raw, logged = written(counted(rng), tmp_path / "raw.h5ad"), written(shares(), tmp_path / "logged.h5ad")
    fit = ("fit", "-k", 3)
    assert told(*fit, logged) == told(*fit, raw, "--preprocess", "log-normalize") == ""
    said = told(*fit, raw)
    assert said.startswith(RAW)
    assert said.endswith("Add --preprocess log-normalize.")
    assert "\n" not in said
    said = told(*fit, logged, "--preprocess", "log-normalize")
    assert said.startswith(f"warning: --preprocess log-normalize {LOOKS}: as natural logarithms, ")
    assert said.endswith("To silence this warning for counts, use --trust-values.")
    assert "\n" not in said
    said = told(*fit, logged, "--top-features", 40, "--flavor", "seurat_v3")
    assert said.startswith(f"warning: --flavor seurat_v3 {LOOKS}")
    for words in ([raw], [logged, "--preprocess", "pearson"], [raw, "--quiet"]):
        assert told(*fit, *words, *([] if "--quiet" in words else ["--trust-values"])) == ""
    assert told(*fit, logged, "--preprocess", "pearson", "--quiet") != ""


def test_the_command_tells_of_logarithms_on_a_model_of_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw, logged = written(counted(rng), tmp_path / "raw.h5ad"), written(shares(), tmp_path / "logged.h5ad")
    told("fit", raw, "-k", 3, "--preprocess", "log-normalize", "--no-report", "-o", tmp_path / "out")
    words = ("transform", tmp_path / "out" / "model.safetensors")
    assert told(*words, raw, "-o", tmp_path / "scores.csv") == ""
    assert LOOKS in told(*words, logged, "-o", tmp_path / "others.csv")
    assert told(*words, logged, "--trust-values", "--force", "-o", tmp_path / "others.csv") == ""


def test_the_command_goes_by_what_the_file_marks(tmp_path: Path) -> None:
    needs("scanpy")
    rng = np.random.default_rng(0)
    X = most_variable(np.log1p(corrected(rng, counted(rng)) * rng.uniform(1.0, 9.0, (120, 1))))
    plain, marked = (written(X, tmp_path / f"{name}.h5ad", name == "marked") for name in ("plain", "marked"))
    words = ("fit", "-k", 2, "--preprocess", "log-normalize", "--no-report", "-o", tmp_path / "out")
    assert told(*words, plain) == ""
    assert "uns['log1p'] marks them" in told(*words, marked, "--force")
    scores = ("transform", tmp_path / "out" / "model.safetensors", "-o", tmp_path / "scores.csv")
    assert told(*scores, plain) == ""
    assert "uns['log1p'] marks them" in told(*scores, marked, "--force")


@pytest.mark.one_in(6)
@pytest.mark.parametrize("data", [name for name in HONEST if not name.startswith(("one row", "nothing"))])
def test_the_command_says_nothing_of_honest_input(data: str, tmp_path: Path) -> None:
    path = written(HONEST[data](np.random.default_rng(0)), tmp_path / "a.h5ad")
    assert told("fit", path, "-k", 2, "--preprocess", "log-normalize", "--json") == ""
