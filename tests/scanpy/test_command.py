"""`shiftsvd fit` of single cells: masks, covariates and groups by the columns of the file, and what other cells get."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.scanpy import pca, project
from tests.support.cells import (
    CELLS,
    GENE_NAMES,
    GENES,
    MASK,
    Dense,
    annotated,
    assert_alike,
    counts,
    design,
    known,
    logs,
    written,
)
from tests.support.commands import invoke

anndata = pytest.importorskip("anndata")
pytest.importorskip("h5py")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
USUAL = ("-k", 3, "--tol", 1e-8, "--no-report", "--scores", "npy")


def fitted(out: Path, *args: object) -> tuple[dict[str, Any], np.ndarray, str]:
    """What is told, the scores, and what stderr had."""
    result = invoke("fit", *args, *USUAL, "-o", out)
    assert result.exit_code == 0, result.output
    return json.loads((out / "result.json").read_text()), np.load(out / "scores.npy"), result.stderr


ONES = design(known(), ())


def test_a_matrix_of_varm_has_no_annotation_of_its_columns(tmp_path: Path) -> None:
    adata = annotated(counts().astype(float))
    adata.varm["Z"] = np.random.default_rng(0).standard_normal((adata.n_vars, 4))
    adata.write_h5ad(tmp_path / "X.h5ad")
    _, Z, _ = fitted(tmp_path / "out", tmp_path / "X.h5ad", "--key", "varm/Z")
    assert Z.shape == (adata.n_vars, 3)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_an_element_is_named_in_the_path_or_by_key(suffix: str, tmp_path: Path) -> None:
    file = written(tmp_path / f"X.{suffix}")
    of_path = fitted(tmp_path / "a", f"{file}::X", "--preprocess", "log-normalize")
    by_key = fitted(tmp_path / "b", file, "--key", "X", "--preprocess", "log-normalize")
    np.testing.assert_array_equal(of_path[1], by_key[1])


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:The entries look like raw counts")
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize("how", [(), ("--preprocess", "log-normalize")], ids=["as it is", "logs"])
def test_highly_variable_genes_are_taken_where_nothing_is_said_and_it_is_said(
    how: tuple[str, ...], suffix: str, tmp_path: Path
) -> None:
    file = written(tmp_path / f"X.{suffix}")
    D = (logs(counts()) if how else counts().astype(float))[:, MASK]
    want = Dense(D, ONES, 3)
    told, Z, stderr = fitted(tmp_path / "out", file, *how)
    assert f"Using the {MASK.sum()} of {GENES} features that var['highly_variable'] marks" in stderr
    assert "add --mask none" in stderr
    assert told["features"] == {"mask": "highly_variable", "taken": int(MASK.sum()), "of": GENES}
    assert_alike(Z, want.scores(D, ONES))
    np.testing.assert_allclose(told["explained_variance"], want.variance, rtol=1e-6)
    lines = (tmp_path / "out" / "components.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == GENE_NAMES[MASK].tolist()
    adata = annotated()
    pca(adata, 3, preprocess="log-normalize" if how else None, tol=1e-8)
    assert_alike(Z, adata.obsm["X_pca"])


def test_a_mask_is_a_column_or_none_and_quiet_says_nothing(tmp_path: Path) -> None:
    adata = annotated()
    adata.var["mine"] = np.arange(GENES) < 20
    file = written(tmp_path / "X.h5ad", adata)
    for option, mask in (("mine", np.arange(GENES) < 20), ("none", np.ones(GENES, bool))):
        D = counts()[:, mask].astype(float)
        told, Z, stderr = fitted(tmp_path / option, file, "--mask", option)
        assert_alike(Z, Dense(D, ONES, 3).scores(D, ONES))
        assert "Using the" not in stderr
        assert told["settings"]["mask"] == option
    result = invoke("fit", file, "-k", 2, "--quiet")
    assert result.stderr == ""
    result = invoke("fit", file, "-k", 2, "--mask", "hvg")
    assert result.exit_code == 1
    assert "no column 'hvg' in var. Its columns: highly_variable, mean, mine" in result.stderr
    np.save(tmp_path / "X.npy", counts())
    result = invoke("fit", tmp_path / "X.npy", "-k", 2, "--mask", "hvg")
    assert result.exit_code == 1
    assert "no annotation of its features" in result.stderr


def test_missing_values_are_not_answered_by_an_option_that_the_others_exclude(tmp_path: Path) -> None:
    adata = annotated()
    adata.X = adata.X.toarray() if hasattr(adata.X, "toarray") else np.array(adata.X)
    adata.X = adata.X.astype(np.float64)
    adata.X[0, 0] = np.nan
    file = written(tmp_path / "X.h5ad", adata)
    assert "--missing mean" in invoke("fit", file, "-k", 2, "--mask", "none").stderr
    for options in (("--mask", "highly_variable"), ("--top-features", 5)):
        said = invoke("fit", file, "-k", 2, *options).stderr
        assert "Fill missing values in the file, because the other options need complete data" in said, said
        assert "--missing" not in said


@pytest.mark.parametrize("gap", ["all false", "numbers", "gaps"])
def test_a_mask_that_is_none_is_refused_with_the_remedy(gap: str, tmp_path: Path) -> None:
    adata = annotated()
    column = {"all false": MASK & False, "numbers": MASK.astype(int), "gaps": np.where(MASK, True, None)}[gap]
    adata.var["highly_variable"] = column if gap != "gaps" else adata.var["highly_variable"].astype("boolean")
    if gap == "gaps":
        adata.var.loc["gene0", "highly_variable"] = None
    result = invoke("fit", written(tmp_path / "X.h5ad", adata), "-k", 2)
    assert result.exit_code == 1
    assert "--mask must be" in result.stderr
    if gap != "numbers":
        assert "--mask none" in result.stderr


@pytest.mark.parametrize("scale", [False, True])
def test_covariates_and_groups_are_regressed_out_of_the_masked_logs(scale: bool, tmp_path: Path) -> None:
    file = written(tmp_path / "X.h5ad")
    D, C = logs(counts())[:, MASK], design(known(), ("pct_mito", "phase"), ("batch",))
    args = ("--preprocess", "log-normalize", "--covariates", "pct_mito,phase", "--groups", "batch")
    told, Z, _ = fitted(tmp_path / "out", file, *args, *(["--scale"] if scale else []))
    want = Dense(D, C, 3, scale)
    assert_alike(Z, want.scores(D, C))
    assert told["regressed_out"] == {"columns": ["pct_mito", "phase", "batch"], "regressors": 6}
    adata = annotated()
    pca(adata, 3, preprocess="log-normalize", covariates=["pct_mito", "phase"], groups="batch", scale=scale, tol=1e-8)
    assert_alike(Z, adata.obsm["X_pca"])
    np.testing.assert_allclose(adata.uns["pca"]["variance"], want.variance, rtol=1e-6)
    # Other cells, by the command and by what it has written for scanpy.
    N = counts(30, seed=5)
    other = annotated(N, seed=5)
    written(tmp_path / "new.h5ad", other)
    model = tmp_path / "out" / "model.safetensors"
    assert invoke("transform", model, tmp_path / "new.h5ad", "-o", tmp_path / "new.npy").exit_code == 0
    E = want.scores(logs(N)[:, MASK], design(known(30, 5), ("pct_mito", "phase"), ("batch",)))
    assert_alike(np.load(tmp_path / "new.npy"), E)


def test_fit_h5ad_keeps_obs_and_var_and_takes_new_cells(tmp_path: Path) -> None:
    file = written(tmp_path / "X.h5ad")
    N = counts(30, seed=5)
    new = annotated(N, seed=5)[:, ::-1].copy()
    written(tmp_path / "new.h5ad", new)
    for name, args in {
        "plain": (),
        "logs": ("--preprocess", "log-normalize", "--scale"),
        "pearson": ("--preprocess", "pearson", "--covariates", "pct_mito", "--groups", "phase"),
        "all": ("--mask", "none", "--preprocess", "sqrt"),
    }.items():
        out = tmp_path / name
        _, Z, _ = fitted(out, file, *args, "--anndata")
        again = anndata.read_h5ad(out / "fit.h5ad")
        given = anndata.read_h5ad(file)
        for frame in ("obs", "var"):
            assert getattr(again, frame).equals(getattr(given, frame)), frame
        np.testing.assert_array_equal(again.obsm["X_pca"], Z)
        assert again.uns["pca"]["params"]["use_highly_variable"] == (name != "all")
        assert again.uns["pca"]["params"]["zero_center"]
        assert again.varm["PCs"].shape == (GENES, 3)
        assert np.array_equal(again.varm["PCs"].any(axis=1), MASK if name != "all" else np.ones(GENES, bool))
        project(new, again)
        assert invoke("transform", out / "model.safetensors", tmp_path / "new.h5ad", "-o", out / "n.npy").exit_code == 0
        scores = np.load(out / "n.npy")
        np.testing.assert_allclose(new.obsm["X_pca"], scores, atol=1e-4 * np.abs(scores).max())
        whole = annotated()
        project(whole, again)
        np.testing.assert_allclose(whole.obsm["X_pca"], Z, atol=1e-4 * np.abs(Z).max())


@pytest.mark.long
def test_zarr_and_columns_with_gaps_come_along_too(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    adata = annotated()
    adata.obs["maybe"] = pandas.array([1, None, *range(CELLS - 2)], dtype="Int64")
    adata.obs["kind"] = pandas.Categorical([None, *["a"] * (CELLS - 1)])
    adata.obs["empty name"] = [f"é{i}" for i in range(CELLS)]
    fitted(tmp_path / "out", written(tmp_path / "X.zarr", adata), "--anndata")
    again, given = anndata.read_h5ad(tmp_path / "out" / "fit.h5ad"), anndata.read_zarr(tmp_path / "X.zarr")
    assert again.obs.equals(given.obs)
    assert again.var.equals(given.var)


def test_other_files_are_matched_by_name_with_the_same_mask_and_margins(tmp_path: Path) -> None:
    told = fitted(tmp_path / "out", written(tmp_path / "X.h5ad"), "--preprocess", "log-normalize")
    assert told[0]["shape"] == [CELLS, GENES]
    D, N = logs(counts())[:, MASK], counts(30, seed=5)
    want = Dense(D, ONES, 3).scores(logs(N)[:, MASK], np.ones((30, 1)))
    model = tmp_path / "out" / "model.safetensors"
    adata = annotated(N, seed=5)
    more = anndata.concat(
        [adata, anndata.AnnData(N[:, :5], adata.obs, {"_index": [f"x{j}" for j in range(5)]})], axis=1
    )
    order = np.random.default_rng(0).permutation(GENES + 5)
    written(tmp_path / "more.h5ad", more[:, order].copy())
    result = invoke("transform", model, tmp_path / "more.h5ad", "-o", tmp_path / "more.npy")
    assert result.exit_code == 0, result.output
    assert "Removed 5 features that the model does not have." in result.stderr
    assert "lacks" not in result.stderr
    assert_alike(np.load(tmp_path / "more.npy"), want)
    # A gene outside the mask has a part in library sizes alone.
    few = adata[:, np.arange(GENES) != 1].copy()
    result = invoke("transform", model, written(tmp_path / "few.h5ad", few), "-o", tmp_path / "few.npy")
    assert (
        "The file lacks 1 of the 40 features that library sizes and other sums of the fit include: gene1."
        in result.stderr
    )
    assert "emoved" not in result.stderr
    L = np.log1p(N * 1e4 / np.delete(N, 1, axis=1).sum(axis=1, keepdims=True))[:, MASK]
    assert_alike(np.load(tmp_path / "few.npy"), Dense(D, ONES, 3).scores(L, np.ones((30, 1))))
    few = adata[:, 1:].copy()  # of the components, and of the sums of cells
    written(tmp_path / "few.h5ad", few)
    result = invoke("transform", model, tmp_path / "few.h5ad", "-o", tmp_path / "lsq.npy", "--max-absent", 0.1)
    assert "Absent features are treated as missing." in result.stderr
    reference = anndata.read_h5ad(tmp_path / "X.h5ad")
    pca(reference, 3, preprocess="log-normalize", tol=1e-10, dtype="float64")
    with pytest.warns(UserWarning, match="The new cells lack"):
        project(few, reference)
    assert_alike(np.load(tmp_path / "lsq.npy"), few.obsm["X_pca"])
    # The limit of 10 % holds for the selected features and for all.
    result = invoke("transform", model, tmp_path / "few.h5ad", "-o", tmp_path / "usual.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "usual.npy"), np.load(tmp_path / "lsq.npy"))
    for genes, message in (
        ([0, 2, 3], "lacks 3 of the model's 27 selected features (limit 10 %, --max-absent): gene0, gene2, gene3."),
        (np.flatnonzero(~MASK)[:5], "lacks 5 of the model's 40 features (limit 10 %, --max-absent): gene1"),
    ):
        lacking = adata[:, np.setdiff1d(np.arange(GENES), genes)].copy()
        result = invoke("transform", model, written(tmp_path / "no.h5ad", lacking), "-o", tmp_path / "no.npy")
        assert result.exit_code == 1
        assert message in result.stderr


def test_what_columns_cannot_be_is_refused_with_a_line(tmp_path: Path) -> None:
    adata = annotated()
    adata.obs["holes"] = np.where(np.arange(CELLS) < 2, np.nan, 1.0)
    adata.obs["gaps"] = adata.obs["phase"].where(np.arange(CELLS) > 2)
    adata.obs["barcode"] = adata.obs_names
    file = written(tmp_path / "X.h5ad", adata)
    for args, code, message in (
        (("--covariates", "holes"), 1, "'holes' must be finite, got NaN or infinity in 2 of 120 rows"),
        (("--groups", "gaps"), 1, "'gaps' must have a label in every row, got none in 3 of 120 rows"),
        (("--covariates", "barcode"), 1, "'barcode' has a different label in each of 120 rows"),
        (("--covariates", "nobody"), 1, "no column 'nobody' in obs. Its columns: "),
        (("--covariates", "phase", "--groups", "phase"), 1, "different columns, got 'phase' twice"),
        (("--covariates", "phase,"), 2, "must be names separated by commas"),
        (("--covariates", "phase", "--shift", "none"), 2, "Remove --shift none"),
        (("--mask", "highly_variable", "--missing", "mean"), 2, "Remove --missing"),
    ):
        result = invoke("fit", file, "-k", 2, *args)
        assert result.exit_code == code, result.output
        assert message in result.stderr
    result = invoke("fit", file, "-k", 2, "--missing", "mean")
    assert result.exit_code == 0, result.output
    assert (
        "var['highly_variable'] is ignored, because the data have missing values. All features are used."
        in result.stderr
    )


def test_cells_of_a_batch_that_no_cell_was_of_are_refused(tmp_path: Path) -> None:
    fitted(tmp_path / "out", written(tmp_path / "X.h5ad"), "--groups", "batch")
    other = annotated()
    other.obs["batch"] = 7
    model = tmp_path / "out" / "model.safetensors"
    result = invoke("transform", model, written(tmp_path / "b.h5ad", other), "-o", tmp_path / "Z.npy")
    assert result.exit_code == 1
    assert "'batch' has labels that did not occur in the training data: '7'" in result.stderr
    del other.obs["batch"]
    result = invoke("transform", model, written(tmp_path / "c.h5ad", other), "-o", tmp_path / "Z.npy")
    assert "no column 'batch' in obs" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_matrix, np.asarray])
def test_data_that_stay_in_their_file_give_the_same(
    container: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.genotype_files import streamed as in_file

    file = written(tmp_path / "X.h5ad", annotated(container=container))
    args = ("--preprocess", "log-normalize", "--covariates", "pct_mito", "--groups", "batch", "--scale")
    _, Z, _ = fitted(tmp_path / "held", file, *args)
    in_file(monkeypatch)
    _, streamed, _ = fitted(tmp_path / "streamed", file, *args, "--checkpoint", tmp_path / "kept")
    assert_alike(streamed, Z)


@pytest.mark.long
@pytest.mark.parametrize("name", ["pbmc10k", pytest.param("bladder", marks=pytest.mark.long)])
def test_real_cells_are_those_of_the_formula_by_every_way(name: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = Path(os.environ.get("SHIFTSVD_TEST_DATA", "")) / f"{name}_counts.npz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    X = sparse.csr_matrix(sparse.load_npz(path))[:2000]
    X = X[np.asarray(X.sum(axis=1)).ravel() > 0]
    m, n = X.shape
    what = {**known(m), "batch": np.arange(m) // 100 % 3}
    obs = pandas.DataFrame(what, index=[f"cell{i}" for i in range(m)])
    totals = np.asarray(X.sum(axis=0)).ravel()
    var = pandas.DataFrame({"highly_variable": totals >= np.sort(totals)[-150]}, index=[f"gene{j}" for j in range(n)])
    adata = anndata.AnnData(X, obs, var)
    mask = var["highly_variable"].to_numpy()
    sizes = np.asarray(X.sum(axis=1, dtype=np.float64))
    D = np.log1p(X[:, mask].toarray().astype(np.float64) * 1e4 / sizes)
    C = design(what, ("pct_mito", "phase"), ("batch",))
    want = Dense(D, C, 3, scale=True)
    line = ("--preprocess", "log-normalize", "--covariates", "pct_mito,phase", "--groups", "batch", "--scale")
    for suffix in ("h5ad", "zarr"):
        told, Z, _ = fitted(tmp_path / suffix, written(tmp_path / f"X.{suffix}", adata), *line)
        np.testing.assert_allclose(told["explained_variance"], want.variance, rtol=1e-6)
        assert_alike(Z, want.scores(D, C), 2e-4)
    backed = anndata.read_h5ad(tmp_path / "X.h5ad", backed="r")
    for each in (adata, backed):
        options = {"covariates": ["pct_mito", "phase"], "groups": "batch", "scale": True, "tol": 1e-8}
        pca(each, 3, preprocess="log-normalize", **options)
        assert_alike(each.obsm["X_pca"], want.scores(D, C), 2e-4)
    backed.file.close()


def test_estimate_is_of_what_a_fit_takes(tmp_path: Path) -> None:
    file = written(tmp_path / "X.h5ad")
    for args, n in (((), MASK.sum()), (("--mask", "none"), GENES)):
        result = invoke("estimate", file, "-k", 2, "--json", *args)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["features"] == n


@pytest.mark.parametrize("version", ["0.7", pytest.param("0.6", marks=pytest.mark.long)])
def test_columns_are_read_as_older_versions_wrote_them(version: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    what = known()
    codes, labels = np.arange(CELLS) % 2, np.array(["G1", "S"], "S")
    with h5py.File(tmp_path / "X.h5ad", "w") as root:
        root["X"] = counts()
        if version == "0.7":
            for frame, names in (("obs", [f"cell{i}" for i in range(CELLS)]), ("var", GENE_NAMES)):
                root.create_group(frame).attrs.update({"_index": "index", "encoding-type": "dataframe"})
                root[frame]["index"] = np.array(names, "S")
            root["obs"].attrs["column-order"] = np.array(["pct", "phase"], h5py.string_dtype())
            root["var/highly_variable"], root["obs/pct"], root["obs/phase"] = MASK, what["pct_mito"], codes.astype("i1")
            root["obs/__categories/phase"] = labels
            root["obs/phase"].attrs["categories"] = root["obs/__categories/phase"].ref
        else:
            obs = np.zeros(CELLS, [("index", "S8"), ("pct", "f8"), ("phase", "i4")])
            obs["index"], obs["pct"], obs["phase"] = [f"cell{i}" for i in range(CELLS)], what["pct_mito"], codes
            var = np.zeros(GENES, [("index", "S8"), ("highly_variable", "?")])
            var["index"], var["highly_variable"] = GENE_NAMES, MASK
            root["obs"], root["var"], root["uns/phase_categories"] = obs, var, labels
    args = ("--covariates", "pct,phase", "--anndata")
    told, Z, _ = fitted(tmp_path / "out", tmp_path / "X.h5ad", *args)
    columns = {"pct": what["pct_mito"], "phase": labels.astype(str)[codes]}
    D, C = counts()[:, MASK].astype(float), design(columns, ("pct", "phase"))
    assert_alike(Z, Dense(D, C, 3).scores(D, C))
    assert told["regressed_out"]["regressors"] == 3
    again = anndata.read_h5ad(tmp_path / "out" / "fit.h5ad")
    assert again.obs["phase"].tolist() == labels.astype(str)[codes].tolist()
    np.testing.assert_array_equal(again.obs["pct"], what["pct_mito"])
    np.testing.assert_array_equal(again.var["highly_variable"], MASK)


def test_points_of_a_model_that_has_regressed_something_out_are_not_to_be_had(tmp_path: Path) -> None:
    fitted(tmp_path / "out", written(tmp_path / "X.h5ad"), "--groups", "batch")
    np.savetxt(tmp_path / "Z.csv", np.load(tmp_path / "out/scores.npy"), delimiter=",", header="a,b,c", comments="")
    result = invoke("inverse", tmp_path / "out/model.safetensors", tmp_path / "Z.csv", "-o", tmp_path / "X.csv")
    assert result.exit_code == 1
    assert "because the fit regressed out batch" in result.stderr


def test_a_model_with_columns_is_told_by_info(tmp_path: Path) -> None:
    fitted(tmp_path / "out", written(tmp_path / "X.h5ad"), "--groups", "batch")
    model = ss.load_model(tmp_path / "out" / "model.safetensors", ss.PCA)
    assert model.design_.names == ("batch",)
    assert model.design_.levels == ("0", "1")
    result = invoke("info", tmp_path / "out" / "model.safetensors")
    assert result.exit_code == 0, result.output


def test_the_help_lists_what_is_for_cells() -> None:
    shown = invoke("fit", "--help").stdout
    for option in (
        "--mask COLUMN",
        "--covariates COLUMNS",
        "--groups COLUMNS",
        "--feature-types NAMES",
        "--join",
        "--anndata",
    ):
        assert option in shown
    for command in ("transform", "info", "estimate", "convert"):
        assert "--feature-types NAMES" in invoke(command, "--help").stdout
    assert "--join" in invoke("transform", "--help").stdout
    assert "--mask COLUMN" in invoke("estimate", "--help").stdout


@pytest.mark.long
@pytest.mark.figures
def test_a_column_of_obs_colours_the_report(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    adata = annotated()
    adata.obs["phase"] = adata.obs["phase"].where(np.arange(CELLS) > 0)  # a cell without a label
    file = written(tmp_path / "X.h5ad", adata)
    assert invoke("fit", file, "-k", 2, "--label-column", "phase", "-o", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f">{word}<" in page for word in ("phase", *map(str, adata.obs["phase"].cat.categories)))
    assert json.loads((tmp_path / "out" / "result.json").read_text())["shape"] == [CELLS, GENES]
    refused = invoke("fit", file, "-k", 2, "--label-column", "nobody", "-o", tmp_path / "none")
    assert refused.exit_code == 1
    assert "has no column 'nobody' in obs" in refused.stderr


def test_estimate_of_the_features_that_vary_most_is_of_as_many(tmp_path: Path) -> None:
    file = written(tmp_path / "X.h5ad")
    # "auto" goes by measured times, which other tests change
    line = ("estimate", file, "-k", 3, "--preprocess", "log-normalize", "--solver", "exact", "--json")
    choices = (("--mask", "none"), ("--top-features", 10), ("--top-features", GENES))
    invoke(*line)  # memory of imports belongs to the first
    whole, some, ranked = (json.loads(invoke(*line, *choice).stdout) for choice in choices)
    assert (some["features"], ranked["features"]) == (10, GENES)
    assert some["n_passes"] >= 3  # two that rank, and a fit
    assert ranked["n_passes"] == whole["n_passes"] + 2
    assert ranked["peak_bytes"] >= whole["peak_bytes"]
    assert invoke(*line, "--mask", "mine", "--top-features", 10).exit_code == 2


def test_verbs_without_a_transformation_tell_of_raw_counts(tmp_path: Path) -> None:
    file = written(tmp_path / "X.h5ad")
    lines = (("embed", file, "--neighbors", 9), ("contrast", file, "--background", file))
    for line in lines:
        told = invoke(*line)
        assert told.exit_code == 0
        assert "The entries look like raw counts: integers up to" in told.stderr
        assert "raw counts" not in invoke(*line, "--trust-values").stderr
    adata = annotated(logs(counts()))
    adata.obsp["raw"] = np.ones((CELLS, CELLS), np.float32)
    written(tmp_path / "logs.h5ad", adata)
    for line in (("embed", tmp_path / "logs.h5ad"), ("diffmap", tmp_path / "logs.h5ad", "--key", "obsp/raw")):
        assert "raw counts" not in invoke(*line).stderr
    done = invoke("fit", file, "-k", 5, "--preprocess", "log-normalize", "--anndata", "-o", tmp_path / "out")
    assert done.exit_code == 0
    embedded = invoke("embed", tmp_path / "out" / "fit.h5ad", "--key", "obsm/X_pca", "-q")
    assert (embedded.exit_code, embedded.stderr) == (0, "")


def test_ids_and_symbols_in_two_files_are_refused_with_the_option_that_matches_them(tmp_path: Path) -> None:
    ids, symbols = annotated(), annotated(counts(seed=5))
    ids.var_names = [f"ENSG{j:011}" for j in range(GENES)]
    symbols.var["gene_ids"] = ids.var_names.to_numpy()
    ids.var["gene_symbols"] = GENE_NAMES
    del ids.var["highly_variable"], symbols.var["highly_variable"]
    a, b = written(tmp_path / "a.h5ad", ids), written(tmp_path / "b.h5ad", symbols)
    contrasts, stack = ("contrast", a, "--background", b), ("fit", a, b, "-k", 2, "--stack", "rows")
    for line in (contrasts, stack, (*stack, "--join", "inner")):
        refused = invoke(*line)
        assert refused.exit_code == 1
        assert "--var-names gene_ids" in refused.stderr
        assert invoke(*line, "--var-names", "gene_ids").exit_code == 0
