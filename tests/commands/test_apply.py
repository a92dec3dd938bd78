"""`shiftsvd transform`, `influence`, `inverse` and `report`: a model applied to files."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse

import shiftsvd
from tests.support.commands import done, invoke, told

FEATURES = [f"gene {j}" for j in range(20)]


def write_table(path: Path, X: np.ndarray, features: list[str]) -> Path:
    rows = [f"cell {i}," + ",".join(map(repr, row)) for i, row in enumerate(X.tolist())]
    path.write_text("\n".join(["," + ",".join(features), *rows]) + "\n")
    return path


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((60, 20)) * np.arange(1, 21) + 5


@pytest.fixture
def model(tmp_path: Path, X: np.ndarray) -> Path:
    pytest.importorskip("pyarrow")
    done("fit", write_table(tmp_path / "X.csv", X, FEATURES), "-k", 4, "-o", tmp_path / "out", "--no-report", "--scale")
    return tmp_path / "out" / "model.safetensors"


def test_transform_agrees_with_the_library(model: Path, X: np.ndarray, tmp_path: Path) -> None:
    new = X[::-1] + 1
    np.save(tmp_path / "new.npy", new)
    done("transform", model, tmp_path / "new.npy", "-o", tmp_path / "Z.npy")
    pca = shiftsvd.load_model(model)
    expected = ((new - pca.mean_) / pca.scale_) @ pca.components_.T
    np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), expected, atol=1e-12)


def test_transform_of_the_training_data_is_what_fit_wrote(model: Path, tmp_path: Path) -> None:
    done("transform", model, tmp_path / "X.csv", "-o", tmp_path / "Z.csv")
    assert (tmp_path / "Z.csv").read_bytes() == (model.parent / "scores.csv").read_bytes()


def test_models_of_batches_are_applied_too(X: np.ndarray, tmp_path: Path) -> None:
    ipca = shiftsvd.IncrementalPCA(3, batch_size=20).fit(X)
    ipca.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "X.npy", X)
    done("transform", tmp_path / "model.safetensors", tmp_path / "X.npy", "-o", tmp_path / "Z.npy")
    Z = np.load(tmp_path / "Z.npy")
    np.testing.assert_allclose(Z, ipca.transform(X), atol=1e-12)
    done("inverse", tmp_path / "model.safetensors", tmp_path / "Z.npy", "-o", tmp_path / "back.npy")
    np.testing.assert_allclose(np.load(tmp_path / "back.npy"), ipca.inverse_transform(Z), atol=1e-12)
    assert "IncrementalPCA" in done("info", tmp_path / "model.safetensors").stdout


def test_features_in_another_order_are_put_in_order_by_their_names(model: Path, X: np.ndarray, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(20)
    other = write_table(tmp_path / "other.csv", X[:, order], [FEATURES[j] for j in order])
    done("transform", model, tmp_path / "X.csv", "-o", tmp_path / "Z.npy")
    done("transform", model, other, "-o", tmp_path / "other.npy")
    np.testing.assert_allclose(np.load(tmp_path / "other.npy"), np.load(tmp_path / "Z.npy"), atol=1e-12)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ([*FEATURES[:-2], "a", "b"], "lacks 2 of the model's 20 features (limit 0 %): gene 18, gene 19"),
        ([*FEATURES, "extra"], "has features that the model does not have: extra"),
        (
            [f"x{j}" for j in range(20)],
            "lacks 20 of the model's 20 features (limit 0 %): gene 0, gene 1, gene 2 and 17 more",
        ),
        ([FEATURES[1], *FEATURES], "duplicate feature names"),
    ],
)
def test_other_features_are_an_error_that_names_them(
    features: list[str], said: str, model: Path, X: np.ndarray, tmp_path: Path
) -> None:
    other = write_table(tmp_path / "other.csv", np.hstack([X, X])[:, : len(features)], features)
    result = invoke("transform", model, other, "-o", tmp_path / "Z.npy")
    assert result.exit_code == 1
    assert f"{other}" in result.stderr
    assert said in result.stderr
    assert ("Raise the limit" in result.stderr) is ("lacks 2 " in said)  # no limit helps if all features are absent
    assert not (tmp_path / "Z.npy").exists()


def test_the_wrong_number_of_features_is_an_error(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "new.npy", np.ones((3, 19)))
    result = invoke("transform", model, tmp_path / "new.npy", "-o", tmp_path / "Z.npy")
    assert result.exit_code == 1
    assert "19 features, but the model was fitted on 20" in result.stderr


def test_scores_go_to_standard_output_and_come_from_standard_input(model: Path, X: np.ndarray, tmp_path: Path) -> None:
    io.mmwrite(tmp_path / "X.mtx", sparse.csr_array(X))
    text = (tmp_path / "X.mtx").read_bytes()
    printed = done("transform", model, "-", "--format", "mtx", "-o", "-", input=text).stdout
    assert printed.splitlines()[0] == "PC1,PC2,PC3,PC4"
    done("transform", model, tmp_path / "X.csv", "-o", tmp_path / "Z.npy")
    np.testing.assert_allclose(
        np.loadtxt(printed.splitlines(), delimiter=",", skiprows=1), np.load(tmp_path / "Z.npy"), atol=1e-10
    )
    back = done("inverse", model, "-", "-o", "-", input=printed.encode()).stdout
    assert back.splitlines()[0] == ",".join(FEATURES)
    assert len(back.splitlines()) == 61


@pytest.mark.parametrize("kind", ["parquet", "csv", "npy"])
def test_inverse_gives_the_projections_in_the_units_of_the_data(
    kind: str, model: Path, X: np.ndarray, tmp_path: Path
) -> None:
    pd = pytest.importorskip("pandas")
    pca = shiftsvd.load_model(model)
    done("transform", model, tmp_path / "X.csv", "-o", tmp_path / f"Z.{kind}")
    done("inverse", model, tmp_path / f"Z.{kind}", "-o", tmp_path / "back.csv")
    index = None if kind == "npy" else 0
    back = pd.read_csv(tmp_path / "back.csv", index_col=index)
    V = pca.components_.T
    np.testing.assert_allclose(back, ((X - pca.mean_) / pca.scale_) @ V @ V.T * pca.scale_ + pca.mean_)
    assert list(back.columns) == FEATURES
    assert index is None or back.index[3] == "cell 3"


def test_inverse_in_blocks_is_inverse_at_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("inverse", model, model.parent / "scores.csv", "-o", tmp_path / "once.npy")
    monkeypatch.setattr("shiftsvd.commands.applying.ENTRIES", 140)
    done("inverse", model, model.parent / "scores.csv", "-o", tmp_path / "blocks.npy")
    np.testing.assert_allclose(np.load(tmp_path / "blocks.npy"), np.load(tmp_path / "once.npy"), rtol=1e-12)


def test_inverse_computes_small_blocks(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "Z.npy", np.zeros((60_000, 4)))
    sizes, compute = [], shiftsvd.PCA.inverse_transform
    monkeypatch.setattr(
        shiftsvd.PCA, "inverse_transform", lambda self, Z: sizes.append(20 * len(Z)) or compute(self, Z)
    )
    done("inverse", model, tmp_path / "Z.npy", "-o", tmp_path / "back.npy")
    assert sum(sizes) == 20 * 60_000
    assert 8 * max(sizes) <= 4e6  # bytes, whatever the memory limit


def test_inverse_refuses_scores_of_another_model(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "Z.npy", np.ones((5, 3)))
    result = invoke("inverse", model, tmp_path / "Z.npy", "-o", tmp_path / "back.npy")
    assert result.exit_code == 1
    assert "3 columns of numbers, but the model has 4" in result.stderr


@pytest.mark.parametrize("subcommand", ["transform", "inverse"])
def test_an_unknown_kind_of_output_is_a_usage_error(subcommand: str, model: Path) -> None:
    result = invoke(subcommand, model, model.parent / "scores.csv", "-o", "Z.xlsx")
    assert result.exit_code == 2
    assert "must end in .parquet, .csv or .npy" in result.stderr
    assert ".eigenvec for scores of genotypes" in result.stderr
    folder = invoke(subcommand, model.parent, model.parent / "scores.csv", "-o", "Z.csv")
    assert folder.exit_code == 2
    assert f"is a folder. Pass {model}." in folder.stderr.replace("\n", " ")


@pytest.mark.long
def test_a_report_is_made_of_a_model_alone_or_with_its_scores(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    done("report", model, "-o", tmp_path / "bare.html")
    known = model.parent / "scores.csv"
    done("report", model, known, "-o", tmp_path / "full.html")
    done("transform", model, tmp_path / "X.csv", "-o", tmp_path / "new.csv")
    done("report", model, known, tmp_path / "new.csv", "-o", tmp_path / "new.html")
    assert "projected samples are drawn as diamonds" in (tmp_path / "new.html").read_text(encoding="utf-8")
    result = invoke("report", model, known, known, known, "-o", tmp_path / "three.html")
    assert result.exit_code == 1
    assert "at most two files, the scores of the fit" in result.stderr
    bare, full = ((tmp_path / name).read_text(encoding="utf-8") for name in ("bare.html", "full.html"))
    assert re.search(r"gene \d", bare)
    assert "Scores of components 1 and 2" in full
    assert "Scores of components 1 and 2" not in bare
    assert invoke("report", model, "-o", tmp_path / "bare.html").exit_code == 1


def test_a_model_that_is_damaged_is_an_error_with_its_name(model: Path, tmp_path: Path) -> None:
    model.write_bytes(model.read_bytes()[:-10])
    for line in (("transform", model, tmp_path / "X.csv", "-o", "-"), ("info", model)):
        result = invoke(*line)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {model}")
        assert result.stderr.count("\n") == 1


def test_precision_of_the_output_can_be_chosen(model: Path, tmp_path: Path) -> None:
    done("transform", model, tmp_path / "X.csv", "-o", tmp_path / "Z.npy", "--dtype", "float32")
    assert np.load(tmp_path / "Z.npy").dtype == np.float32


def test_transform_tells_of_its_progress(model: Path, tmp_path: Path) -> None:
    result = done("transform", model, tmp_path / "X.csv", "-o", tmp_path / "Z.npy", "--progress", "json")
    events = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert events[-1]["done"] >= 1


@pytest.mark.parametrize("order", [np.arange(19), np.random.default_rng(3).permutation(20)[:19]])
def test_samples_that_lack_features_get_the_scores_of_least_squares(
    order: np.ndarray, model: Path, X: np.ndarray, tmp_path: Path
) -> None:
    names = [FEATURES[j] for j in order]
    few = write_table(tmp_path / "few.csv", X[:, order], names)
    refused = invoke("transform", model, few, "-o", tmp_path / "Z.npy")
    assert refused.exit_code == 1
    assert "--max-absent" in refused.stderr
    result = invoke("transform", model, few, "-o", tmp_path / "Z.npy", "--max-absent", 0.05)
    assert "lacks 1 of the model's 20 features" in result.stderr
    pandas = pytest.importorskip("pandas")
    pca = shiftsvd.load_model(model)
    D = (X[:, order] - pca.mean_[order]) / pca.scale_[order]
    want = np.linalg.lstsq(pca.components_[:, order].T, D.T, rcond=None)[0].T
    np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), want, atol=1e-9)
    with pytest.warns(UserWarning, match="1 of the model's 20 features"):
        again = pca.on_features(names, max_absent=0.05)
    frame = pandas.DataFrame(X[:, order], columns=names)
    np.testing.assert_allclose(again.transform(frame), want, atol=1e-9)


def test_a_direction_that_would_be_lost_is_refused_however_few_features_are_absent(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(50, 20)) * np.r_[100, np.ones(19)]
    done("fit", write_table(tmp_path / "X.csv", X, FEATURES), "-k", 2, "-o", tmp_path / "o", "--no-report", "--quiet")
    few = write_table(tmp_path / "few.csv", X[:, 1:], FEATURES[1:])
    result = invoke("transform", tmp_path / "o" / "model.safetensors", few, "-o", "-", "--max-absent", 0.5)
    assert result.exit_code == 1
    assert "mainly component 1, the features that are present hold only 0%" in result.stderr
    assert f"(at least 50% are needed). The most important absent features are {FEATURES[0]}." in result.stderr
    assert "Fit a model on the features that both data sets have." in result.stderr
    X[:, :2] = np.random.default_rng(1).normal(size=(50, 2)) * [50, 100]  # the second component is lost, not the first
    done("fit", write_table(tmp_path / "Y.csv", X, FEATURES), "-k", 2, "-o", tmp_path / "p", "--no-report", "--quiet")
    few = write_table(tmp_path / "few.csv", X[:, 1:], FEATURES[1:])
    model = tmp_path / "p" / "model.safetensors"
    result = invoke("transform", model, few, "-o", "-", "--max-absent", 0.5)
    assert "Fit a model with at most 1 component, or on the features that both data sets have." in result.stderr


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_transform_counts_missing_values_and_names_samples_without_any(missing: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"s{i},{a:.3f},{b:.3f},{'xy'[i % 2]},on time" for i, (a, b) in enumerate(rng.standard_normal((30, 2)))]
    (tmp_path / "X.csv").write_text("\n".join(["id,a,b,c,note", *lines]) + "\n")
    more = ("--drop", "note", "--missing", missing, *(("--penalty", 1) if missing == "em" else ()))
    done("fit", tmp_path / "X.csv", "-k", 1, "--one-hot", "c", *more, "-q", "--no-report", "-o", tmp_path / "out")
    model = tmp_path / "out" / "model.safetensors"
    (tmp_path / "new.csv").write_text("id,a,b,c,note\nn1,1,,x,\nn2,,,,late\nn3,2,1,y,\nn4,3,1,,\n")
    said = done("transform", model, tmp_path / "new.csv", "-o", tmp_path / "a.csv").stderr
    assert "new.csv: 5 missing values (41.7%)" in said  # the indicators of c are one column
    assert "warning: " in said
    assert "new.csv: 1 sample has no values: n2. Without values, scores are those of the means of the features." in said
    assert abs(pd.read_csv(tmp_path / "a.csv", index_col=0).loc["n2", "PC1"]) < 1e-9
    (tmp_path / "new.csv").write_text("id,a,b,c\nn1,1,2,x\n")
    said = done("transform", model, tmp_path / "new.csv", "-o", tmp_path / "b.csv").stderr
    assert "missing value" not in said
    assert "no values" not in said


def test_influence_names_the_sample_without_which_a_component_turns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5)) * [9, 5, 1, 1, 1]
    X[16] = [0, 0, 0, 0, 30]
    frame = pd.DataFrame(X, columns=list("abcde"), index=pd.Index([f"s{i + 1}" for i in range(60)], name="id"))
    frame.assign(donor=[f"d{i % 5}" for i in range(60)]).to_csv(tmp_path / "X.csv")
    done("fit", tmp_path / "X.csv", "-k", 3, "--drop", "donor", "-q", "--no-report", "-o", tmp_path / "out")
    model = tmp_path / "out" / "model.safetensors"
    result = done("influence", model, tmp_path / "X.csv", "--widest", 1, "-o", tmp_path / "influence.csv")
    expected = shiftsvd.PCA(3, random_state=0).fit(X).influence(X, widest=1)
    at_least, at_most = expected.angles[16, 2]
    assert f"Without sample s17, PC3 turns by {np.floor(10 * at_least) / 10:.1f} to " in result.stdout
    assert result.stdout.count(" degrees, and the space of all components by ") == 3
    written = pd.read_csv(tmp_path / "influence.csv", index_col="sample")
    assert list(written)[-4:] == ["PC3_at_least", "PC3_at_most", "space_at_least", "space_at_most"]
    assert np.allclose(written.loc["s17", ["PC3_at_least", "PC3_at_most"]], [at_least, at_most], atol=1e-6)
    ends = written.to_numpy()[:, :6].reshape(60, 3, 2)  # refits may have made them narrower
    assert np.all(
        (ends[:, :, 0] >= expected.angles[:, :, 0] - 1e-6) & (ends[:, :, 1] <= expected.angles[:, :, 1] + 1e-6)
    )
    for turn in told("influence", model, tmp_path / "X.csv", "-q")["turns"]:  # the angles that are printed are known
        assert turn["at_most"] - turn["at_least"] < 0.1
    found = told("influence", model, tmp_path / "X.csv", "--leave-out", "donor", "-q")
    by_donor = shiftsvd.PCA(3, random_state=0).fit(X).influence(X, np.arange(60) % 5, widest=0)
    assert [turn["component"] for turn in found["turns"]] == ["PC1", "PC2", "PC3", "space"]
    first = int(by_donor.angles[:, 0, 0].argmax())
    space = found["turns"][0]["space_at_least"], found["turns"][0]["space_at_most"]  # without the same donor
    assert space[0] - 1e-6 <= by_donor.subspace[first, 1]
    assert by_donor.subspace[first, 0] <= space[1] + 1e-6
    assert not {"space_at_least", "space_at_most"} & {*found["turns"][3]}
    assert found["turns"][0]["without"] == f"d{first}"
    least, most = by_donor.angles[first, 0]
    assert found["turns"][0]["at_least"] <= most + 1e-6
    assert found["turns"][0]["at_most"] >= least - 1e-6
    assert found["n_left_out"] == 5


def test_influence_refits_small_data_until_it_is_known_which_sample_turns_a_component_most(tmp_path: Path) -> None:
    X = np.random.default_rng(5).standard_normal((40, 6)) * [3, 2, 1.5, 1.2, 1, 1]
    np.save(tmp_path / "X.npy", X)
    done("fit", tmp_path / "X.npy", "-k", 3, "-q", "--no-report", "-o", tmp_path / "out")
    words = ("influence", tmp_path / "out" / "model.safetensors", tmp_path / "X.npy")
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    turned = []
    for i in range(40):
        other = np.delete(X, i, axis=0)
        W = np.linalg.svd(other - other.mean(axis=0), full_matrices=False)[2][:3]
        space = np.linalg.svd(V @ W.T)[1].min()
        turned.append(np.degrees(np.arccos(np.minimum([*np.abs(np.sum(V * W, axis=1)), space], 1))))
    bounds = shiftsvd.load_model(words[1]).influence(X)
    ends = np.concatenate([bounds.angles, bounds.subspace[:, None]], axis=1)
    wanted = np.argmax(turned, axis=0)
    assert (ends[:, :, 0].argmax(axis=0) != wanted).any()  # bounds without refits would name another
    for turn, row in zip(told(*words, "-q")["turns"], wanted, strict=True):
        assert (turn["without"], turn["others"]) == (f"row {row + 1}", 0)
    refused = invoke(*words, "--memory", "9k")
    assert refused.exit_code == 1
    assert "influence of 40 rows needs about " in refused.stderr
    assert "more than the limit of 9 kB. Raise --memory, or use fewer components." in refused.stderr


def test_influence_names_a_width_that_refits_all_samples_that_may_turn_a_component_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftsvd.estimators.evidence.SETTLING", 0)  # as for large data
    X = np.random.default_rng(5).standard_normal((40, 6)) * [3, 2, 1.5, 1.2, 1, 1]
    np.save(tmp_path / "X.npy", X)
    done("fit", tmp_path / "X.npy", "-k", 3, "-q", "--no-report", "-o", tmp_path / "out")
    words = ("influence", tmp_path / "out" / "model.safetensors", tmp_path / "X.npy", "-q")
    lines = done(*words).stdout.splitlines()
    found = [re.search(r"Without \d+ others?, .* may turn more: add --widest (\S+) to refit", line) for line in lines]
    assert any(found)
    for j, each in enumerate(found):
        if each:
            assert "may turn more" not in done(*words, "--widest", each[1]).stdout.splitlines()[j]


def test_influence_without_a_proven_angle_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.estimators.evidence.SETTLING", 0)  # as for large data
    X, model = np.random.default_rng(2).standard_normal((400, 60)) * np.linspace(9, 3, 60), tmp_path / "m.safetensors"
    np.save(tmp_path / "X.npy", X)

    def lines(tol: float, *more: object) -> list[str]:
        solver = shiftsvd.BlockLanczos(tol, block_size=4, missed_tol=0.3)
        shiftsvd.PCA(5, solver=solver, random_state=0).fit(X).save(model, force=True)
        return done("influence", model, tmp_path / "X.npy", "-q", *more).stdout.splitlines()

    of_fit = (
        r"PC3: no angle is proven, because its own error in the fit may be \d+\.\d degrees\. Fit with a smaller --tol"
    )
    assert re.match(of_fit, lines(0.01)[2])
    accurate = lines(1e-8)
    assert accurate[2].startswith("Without row ")
    of_gap = (
        r"PC5: no angle is proven, because the singular values are too close to others: add --widest (\S+) to refit\."
    )
    found = re.fullmatch(of_gap, accurate[4])
    assert found
    assert lines(1e-8, "--widest", found[1])[4].startswith("Without row ")


def test_influence_counts_samples_without_names_from_1(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 5)) * [9, 5, 1, 1, 1]
    X[16] = [0, 0, 0, 0, 30]
    np.save(tmp_path / "X.npy", X)
    done("fit", tmp_path / "X.npy", "-k", 3, "-q", "--no-report", "-o", tmp_path / "out")
    words = ("influence", tmp_path / "out" / "model.safetensors", tmp_path / "X.npy", "--widest", 5)
    assert "Without row 17 (counted from 1), PC3 turns by" in done(*words, "-o", tmp_path / "a.csv").stdout
    written = pd.read_csv(tmp_path / "a.csv", index_col="row")
    assert (list(written.index), written["PC3_at_least"].idxmax()) == (list(range(1, 61)), 17)
    assert told(*words, "-q")["turns"][2]["without"] == "row 17"


def test_influence_refuses_other_samples_and_empty_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).random((20, 3)), columns=list("abc")).assign(g=list("xy") * 10)
    frame.to_csv(tmp_path / "X.csv", index=False)
    done("fit", tmp_path / "X.csv", "-k", 2, "--drop", "g", "-q", "--no-report", "-o", tmp_path / "out")
    model = tmp_path / "out" / "model.safetensors"
    frame.iloc[1:].to_csv(tmp_path / "few.csv", index=False)
    frame.assign(g=["", *frame.g[1:]]).to_csv(tmp_path / "gap.csv", index=False)
    for line, message in (
        (("few.csv",), "influence needs the 20 rows of the fit, got 19"),
        (("gap.csv", "--leave-out", "g"), "The column 'g' is empty for 1 sample: "),
        (("X.csv", "--leave-out", "h"), "has no column 'h'"),
    ):
        result = invoke("influence", model, tmp_path / line[0], *line[1:], "-o", tmp_path / "out.csv")
        assert (result.exit_code, message in result.stderr) == (1, True), result.stderr
        assert not (tmp_path / "out.csv").exists()
