"""Model files of every kind of model and shift: the loaded model does the same to new rows, to the last bit."""

import json
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.exceptions import NotFittedError

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.model_file import describe, save_model
from shiftsvd.model_file.kinds import check_type, kinds
from tests.support.model_files import data, first_version, written_by_hand
from tests.support.transformed import ROWS, counts

pd = pytest.importorskip("pandas")
from tests.support.kinds import GROUPS, MODELS, assert_same, table, truncated, words

T = TypeVar("T")


def through_file(model: Any, folder: Path, **options: Any) -> Any:
    path = folder / "model.safetensors"
    save_model(model, path, force=True, **options)
    json.dumps(describe(path), allow_nan=False)
    return ss.load_model(path)


# ---- PCA and its shifts


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_group_means_survive(tmp_path: Path, kind: str, dtype: Any, weighted: bool) -> None:
    X, new, labels = data(dtype=dtype), data((7, 9), dtype, seed=1), GROUPS[kind]
    groups, theirs = np.resize(labels, 60), labels[[0, 1, 2, 3, 0, 2, 1]]
    weights = 1 + np.arange(60) % 3 if weighted else None
    model = ss.PCA(3, shift=ss.GroupMeans(), scale="std", whiten=True, random_state=0)
    Z = model.fit_transform(X, groups=groups, sample_weight=weights)
    again = through_file(model, tmp_path)
    assert_same(again, model, "PCA")
    assert again.transform(X, groups=groups).tobytes() == Z.tobytes()
    assert again.transform(new, groups=theirs).tobytes() == model.transform(new, groups=theirs).tobytes()
    assert again.inverse_transform(Z, groups=groups).tobytes() == model.inverse_transform(Z, groups=groups).tobytes()
    assert again.score(new, groups=theirs) == model.score(new, groups=theirs)
    with pytest.raises(ValueError, match="labels that did not occur in the training data"):
        again.transform(new[:1], groups=["never seen"])
    with pytest.raises(ValueError, match="needs groups"):
        again.transform(new)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [False, "pareto", "vector"])
def test_covariates_survive(tmp_path: Path, columns: int, intercept: bool, weighted: bool, scale: Any) -> None:
    X, new = data(), data((7, 9), seed=1)
    C, theirs = data((60, columns), seed=2), data((7, columns), seed=3)
    model = ss.PCA(
        3, shift=ss.Covariates(intercept=intercept), scale=np.linspace(1, 2, 9) if scale == "vector" else scale
    )
    Z = model.fit_transform(X, covariates=C, sample_weight=np.arange(60) % 3 if weighted else None)
    again = through_file(model, tmp_path)
    assert_same(again, model, "PCA")
    assert again.transform(X, covariates=C).tobytes() == Z.tobytes()
    assert again.transform(new, covariates=theirs).tobytes() == model.transform(new, covariates=theirs).tobytes()
    assert again.shift.intercept == intercept


@pytest.mark.parametrize("shift", ["rows", "both", (1.0,) * 9, [1] * 9])
def test_other_shifts_survive(tmp_path: Path, shift: Any) -> None:
    X, new = data(), data((7, 9), seed=1)
    model = ss.PCA(3, shift=shift, random_state=0).fit(X, sample_weight=np.arange(60) % 4)
    again = through_file(model, tmp_path)
    assert again.transform(new).tobytes() == model.transform(new).tobytes()


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_rows_with_gaps_are_treated_as_before(tmp_path: Path, missing: str) -> None:
    X, new = data(), data((7, 9), seed=1)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    new[np.eye(7, 9, dtype=bool)] = np.nan
    model = ss.PCA(3, missing=missing, scale="std", random_state=0).fit(X)
    again = through_file(model, tmp_path)
    assert_same(again, model, "PCA")
    assert again.transform(new).tobytes() == model.transform(new).tobytes()


def test_groups_that_a_file_cannot_hold_are_refused(tmp_path: Path) -> None:
    for labels, message in (
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), "items must be texts or numbers, got date"),
        (np.array([2**70, 1], object), "an integer of more than 64 bits"),
        (np.array([b"a", b"b"]), "items must be texts or numbers, got bytes"),
    ):
        model = ss.PCA(2, shift=ss.GroupMeans()).fit(data(), groups=np.resize(labels, 60))
        with pytest.raises(
            ValueError, match=rf"was not written: shift_\.groups cannot be stored: .*{message}|{message}"
        ):
            save_model(model, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_shift_that_was_not_fitted_is_refused(tmp_path: Path) -> None:
    model = ss.PCA(2).fit(data()).set_params(shift=ss.GroupMeans())
    with pytest.raises(ValueError, match=r"shift_ must be LearnedGroups for shift=GroupMeans\(\), got NoneType"):
        save_model(model, tmp_path / "m.safetensors")


def test_what_partial_fit_found_survives_without_its_stream(tmp_path: Path) -> None:
    X = data((300, 40))
    model = ss.PCA(3, random_state=0)
    for lo in range(0, 300, 60):
        model.partial_fit(X[lo : lo + 60])
    with pytest.warns(UserWarning, match=r"model\.safetensors holds the components of partial_fit, but not its stream"):
        again = through_file(model, tmp_path)
    assert again.transform(X).tobytes() == model.transform(X).tobytes()
    assert (again.n_samples_, again.unseen_variance_) == (300, model.unseen_variance_)
    for go_on in (lambda: again.refine(X), lambda: ss.merge_pca(again, model), lambda: ss.merge_pca(model, again)):
        with pytest.raises(ValueError, match="partial_fit"):
            go_on()
    assert again.partial_fit(X[:60]).n_samples_ == 60  # anew, as the warning said
    ours = ss.IncrementalPCA(3, batch_size=60).fit(X)
    with pytest.warns(UserWarning, match="but not its stream"):
        again = through_file(ours, tmp_path)
    assert (again.n_samples_seen_, again.batch_size_) == (300, 60)
    for name in ("components_", "explained_variance_ratio_", "mean_", "var_", "noise_variance_"):
        assert_same(getattr(again, name), getattr(ours, name), name)
    assert again.transform(X).tobytes() == ours.transform(X).tobytes()
    assert again.partial_fit(X[:60]).n_samples_seen_ == 60
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        through_file(ss.PCA(3).fit(X), tmp_path)  # others do not warn


# ---- the other estimators


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:the first component is the mean")
@pytest.mark.parametrize("name", MODELS)
def test_every_estimator_survives(tmp_path: Path, name: str) -> None:
    model, asked = MODELS[name]()
    again = through_file(model, tmp_path, source="a test")
    if isinstance(model, ss.LSA):
        ours, theirs = vars(again.vectorizer_), vars(model.vectorizer_)
        assert again.vectorizer_.get_params() == model.vectorizer_.get_params()
        assert ours["vocabulary_"] == theirs["vocabulary_"]
        again.vectorizer_ = model.vectorizer_
        assert_same(again, model, name)
        again = ss.load_model(tmp_path / "model.safetensors")
    else:
        assert_same(again, model, name)
    for found, expected in zip(asked(again), asked(model), strict=True):
        assert_same(found, expected, name)
    said = describe(tmp_path / "model.safetensors")
    assert said["kind"] == type(model).__name__
    assert said["provenance"]["source"] == "a test"
    assert b"pickle" not in (tmp_path / "model.safetensors").read_bytes()
    if name != "genotypes":
        assert_same(through_file(again, tmp_path).get_params(), again.get_params(), name)


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"

    class LSA:  # of the name of one of ours
        pass

    for other in (LSA(), object(), None, data()):
        with pytest.raises(ValueError, match=r"the model must be one of PCA, IncrementalPCA, .*, got "):
            save_model(other, path)
    for one in (ss.LSA(), ss.PCoA(), ss.TruncatedSVD(), ss.CorrespondenceAnalysis()):
        with pytest.raises(NotFittedError):
            save_model(one, path)
    with pytest.raises(ValueError, match=r"settings\.metric cannot be stored: .* got function\. Apply the function"):
        save_model(ss.PCoA(2, metric=lambda a, b: np.abs(a - b).sum()).fit(data()), path)
    with pytest.raises(ValueError, match="names must be None for LSA, which has no feature names"):
        save_model(words()[0], path, names=["a"])
    dates = pd.DataFrame(table("array"), index=pd.date_range("2020", periods=30), columns=list("abcdef"))
    with pytest.raises(ValueError, match=r"row_coordinates_\.rows cannot be stored: .*datetime64"):
        save_model(ss.CorrespondenceAnalysis().fit(dates), path)
    pairs = dates.set_index(pd.MultiIndex.from_product([range(5), range(6)]))
    with pytest.raises(ValueError, match="names must be all texts or all numbers"):
        save_model(ss.CorrespondenceAnalysis().fit(pairs), path)
    assert list(tmp_path.iterdir()) == []


def test_the_kind_that_is_wanted_is_the_kind_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(truncated(data())[0], path)
    assert type(ss.load_model(path, ss.TruncatedSVD)) is ss.TruncatedSVD
    with pytest.raises(ValueError, match=r"m\.safetensors: the model must be PCA, got TruncatedSVD"):
        ss.PCA.load(path)


def test_a_file_of_the_first_version_needs_no_new_entry(tmp_path: Path) -> None:
    tensors, texts = first_version()
    written_by_hand(tmp_path / "first.safetensors", tensors, texts)
    model = ss.load_model(tmp_path / "first.safetensors")
    assert not {"shift_", "unseen_variance_"} & set(vars(model))
    known, now = set(texts["fitted"]["info_"]["fields"]), {field.name for field in fields(model.info_)}
    assert known <= now
    assert {getattr(model.info_, name) for name in now - known} == {None}


def test_every_estimator_of_the_package_has_an_entry() -> None:
    estimators = {
        name for name in ss.__all__ if isinstance(getattr(ss, name), type) and hasattr(getattr(ss, name), "fit")
    }
    assert "PCA" in estimators
    assert estimators <= set(kinds())
    assert {type(made()[0]).__name__ for made in MODELS.values()} == set(kinds()) - {
        *("PCA", "IncrementalPCA"),  # of batches: above
        "GenotypeModel",  # a PCA with `variants_`: tests/genetics/test_command.py
    }


def test_the_command_tells_of_every_kind_and_applies_those_of_pca(tmp_path: Path) -> None:
    path = tmp_path / "words.safetensors"
    save_model(words()[0], path)
    told = CliRunner().invoke(main, ["info", str(path), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["kind"] == "LSA"
    assert CliRunner().invoke(main, ["info", str(path)]).exit_code == 0
    np.save(tmp_path / "X.npy", data())
    refused = CliRunner().invoke(main, ["transform", str(path), str(tmp_path / "X.npy"), "-o", "-"])
    assert refused.exit_code == 1
    assert "words.safetensors: the model must be PCA or IncrementalPCA" in refused.stderr


# ---- transformations


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("cls", [ss.PCA, ss.TruncatedSVD])
@pytest.mark.filterwarnings("ignore:the first component is the mean")
def test_what_transformations_have_learned_survives(tmp_path: Path, name: str, cls: Any) -> None:
    X, new, how = counts(), 2 * counts(31, seed=3), ROWS[name].how
    model = cls(3, preprocess=how, random_state=0).fit(X)
    loaded = through_file(model, tmp_path)
    assert loaded.preprocess == how
    np.testing.assert_array_equal(loaded.transform(new), model.transform(new))
    several = [ss.LogNormalize(), ss.Sqrt(), ss.CLR()]
    model = cls(3, preprocess=several, random_state=0).fit(X)
    loaded = through_file(model, tmp_path)
    assert loaded.preprocess == several
    np.testing.assert_array_equal(loaded.transform(new), model.transform(new))


@pytest.mark.parametrize("how", ["pearson:theta=10", ["log-normalize", ss.Ranks()], ("sqrt", "ranks")])
def test_names_of_transformations_stay_names(tmp_path: Path, how: Any) -> None:
    model = ss.PCA(2, preprocess=how, random_state=0).fit(counts())
    loaded = through_file(model, tmp_path)
    assert loaded.preprocess == how
    np.testing.assert_array_equal(loaded.transform(counts()), model.transform(counts()))


def test_a_function_of_ones_own_cannot_be_stored(tmp_path: Path) -> None:
    model = ss.PCA(2, preprocess=ss.Elementwise(lambda x: x**2)).fit(counts())
    with pytest.raises(ValueError, match="cannot be stored"):
        save_model(model, tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"how": ss.PearsonResiduals(10)}, "agree with the setting preprocess="),
        ({"columns": np.ones((23, 3))}, "for 24 columns"),
        ({"columns": np.full((24, 3), np.nan)}, "for 24 columns"),
        ({"known": np.ones(3)}, "for 24 columns"),
        ({"right": None}, "values of transformed zeros"),
        ({"right": np.full((24, 1), np.inf)}, "values of transformed zeros"),
    ],
)
def test_what_cannot_have_been_learned_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    model = ss.PCA(2, preprocess=ss.PearsonResiduals()).fit(counts())
    model.preprocess_ = (replace(model.preprocess_[0], **change),)
    with pytest.raises(ValueError, match=message):
        save_model(model, tmp_path / "model")


def test_an_annotation_that_names_a_type_means_that_type() -> None:
    # As NDArray[...] of NumPy does since 2.5.
    named = pytest.importorskip("typing_extensions").TypeAliasType
    array = named("array", np.ndarray[Any, np.dtype[T]], type_params=(T,))  # type: ignore[type-var]
    for hint in (array[Any], float | array[Any], array[Any] | None):
        check_type("theta", np.ones(2), hint)
        with pytest.raises(ValueError, match="theta must be"):
            check_type("theta", "a text", hint)
