"""Damaged and hostile model files of every kind: an error with the file's name, or a model; never anything else."""

import copy
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.model_file import save_model
from tests.support.kinds import GROUPS, MODELS, Made, assert_same
from tests.support.model_files import data, written_by_hand
from tests.support.mutants import JUNK, mutants, nodes


def parts_of(path: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Tensors, texts and kind of a file."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    texts = {name: json.loads(metadata[name]) for name in ("settings", "fitted", "provenance")}
    return tensors, texts, metadata["kind"]


def groups_model() -> Made:
    model = ss.PCA(2, shift=ss.GroupMeans()).fit(data(), groups=np.resize(GROUPS["mixed"], 60))
    return model, lambda it: [it.transform(data()[:4], groups=GROUPS["mixed"])]


def covariates_model() -> Made:
    model = ss.PCA(2, shift=ss.Covariates()).fit(data(), covariates=data((60, 2), seed=1))
    return model, lambda it: [it.transform(data()[:4], covariates=np.ones((4, 2)))]


HOSTILE = {
    "groups": groups_model,
    "covariates": covariates_model,
    **{
        name: MODELS[name]
        for name in ("genotypes", "truncated", "table, names", "categories, frame", "points", "words, settings")
        if name in MODELS  # genotypes go with their extension
    },
}


def refused_or_usable(path: Path, asked: Callable[[Any], list[Any]]) -> bool:
    """Whether a file loads; if not, the error says which file it was, and if so, the model answers or says why not."""
    try:
        model = ss.load_model(path)
    except (ValueError, OSError) as error:
        said = str(error)
    else:
        _use(model, path, asked)
        return True
    assert said.startswith((f"{path} cannot be read: ", f"{path}: "))  # a setting that cannot be
    assert len(said) < len(str(path)) + 1500
    return False


def _use(model: Any, path: Path, asked: Callable[[Any], list[Any]]) -> None:
    """What was loaded behaves like a model, whatever it says."""
    # Settings are judged when they are used, as in any model.
    with np.errstate(all="ignore"), warnings.catch_warnings(), suppress(ValueError, TypeError):
        warnings.simplefilter("ignore")
        asked(model)
    save_model(model, path.with_name("again.safetensors"), force=True)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the first component is the mean")
@pytest.mark.parametrize("name", HOSTILE)
def test_any_value_of_any_header_may_be_junk(tmp_path: Path, name: str) -> None:
    path = tmp_path / "junk.safetensors"
    model, asked = HOSTILE[name]()
    save_model(model, path)
    tensors, texts, kind = parts_of(path)
    written_by_hand(path, tensors, texts, kind=kind)
    assert refused_or_usable(path, asked)
    places = [place for place in nodes(texts) if len(place) > 1]
    loaded = 0
    for number, place in enumerate(places):
        for junk in (*JUNK, ...)[number % 3 :: 3]:
            mutant = copy.deepcopy(texts)
            at = mutant
            for key in place[:-1]:
                at = at[key]
            if junk is ...:
                del at[place[-1]]
            else:
                at[place[-1]] = junk
            written_by_hand(path, tensors, mutant, kind=kind)
            loaded += refused_or_usable(path, asked)
    assert 0 < loaded < len(places) * len(JUNK) / 6


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the first component is the mean")
@pytest.mark.parametrize("name", HOSTILE)
def test_any_tensor_of_any_kind_may_be_junk(tmp_path: Path, name: str) -> None:
    path = tmp_path / "junk.safetensors"
    model, asked = HOSTILE[name]()
    save_model(model, path)
    tensors, texts, kind = parts_of(path)
    for key, value in tensors.items():
        with np.errstate(all="ignore"):
            junk = (
                *(value.astype(dtype) for dtype in ("f4", "f8", "i8", "u1")),
                *(value[:0], value[:1], value[None], value.ravel(), value.T, np.concatenate([value, value])),
                *(np.array(0.0), np.zeros((0, 0)), -value.astype(float), 0 * value, value * 1e30),
            )
        for one in junk:
            wrong = np.asarray(one, order="C")
            if wrong.dtype.name in ("float32", "float64", "int64", "uint8"):
                written_by_hand(path, tensors | {key: wrong}, texts, kind=kind)
                refused_or_usable(path, asked)


def test_every_byte_is_guarded(tmp_path: Path) -> None:
    path = tmp_path / "mutant.safetensors"
    model, asked = HOSTILE["words, settings"]()
    save_model(model, path)
    content = path.read_bytes()
    for mutant in list(mutants(content, 0))[::5]:
        path.write_bytes(mutant)
        if mutant != content and refused_or_usable(path, asked):
            assert_same(ss.load_model(path).components_, model.components_, "components_")


def long_name(tensors: Any, texts: Any) -> None:
    """One name of the samples as long as all together: NumPy would pad every other to it."""
    ends = tensors["samples.names.ends"]
    tensors["samples.names.utf8"] = np.full(2000, 97, np.uint8)
    tensors["samples.names.ends"] = np.where(np.arange(len(ends)) < len(ends) - 1, 0, 2000)


LIES: dict[str, tuple[str, Callable[[Any, Any], object], str]] = {
    "labels twice": (
        "groups",
        lambda t, x: t.update({"shift_.groups.0": np.array([1.0]), "shift_.groups.1": np.array([1.0])}),
        "distinct labels",
    ),
    "labels too few": ("groups", lambda t, x: t.update({"shift_.means": np.ones((5, 9))}), "must be 5 distinct labels"),
    "means too narrow": ("groups", lambda t, x: t.update({"shift_.means": np.ones((4, 8))}), r"shape \(4, 9\)"),
    "means are NaN": ("groups", lambda t, x: t.update({"shift_.means": np.full((4, 9), np.nan)}), "must be finite"),
    "no learned shift": (
        "covariates",
        lambda t, x: (x["fitted"].pop("shift_"), [t.pop(key) for key in list(t) if key.startswith("shift_.")]),
        "shift_ must be LearnedCovariates",
    ),
    "a solver for a shift": (
        "covariates",
        lambda t, x: x["settings"].update(shift={"type": "Exact", "fields": {}}),
        "shift must be .*Sequence",
    ),
    "a name of Python": (
        "covariates",
        lambda t, x: x["settings"].update(shift={"type": "os.system", "fields": {}}),
        "not a type that model files may hold",
    ),
    "a model within that is none": (
        "words, settings",
        lambda t, x: x["fitted"]["svd_"]["entries"].update(kind="PCoA"),
        "PCoA has no setting",
    ),
    "words twice": (
        "words, settings",
        lambda t, x: t.update({"terms_.utf8": np.full_like(t["terms_.utf8"], 97)}),
        "distinct terms|must be ascending",
    ),
    "a pattern that is none": (
        "words, settings",
        lambda t, x: x["settings"].update(token_pattern="(("),
        "token_pattern must be a regular expression",
    ),
    "a function for words": (
        "words, settings",
        lambda t, x: x["settings"].update(analyzer=None),
        "'analyzer' parameter .* must be",
    ),
    "too many categories": (
        "categories, frame",
        lambda t, x: t.update({"categories_.1": np.arange(9)}),
        r"categories_ must be \d+ distinct categories",
    ),
    "names that NumPy would blow up": ("genotypes", long_name, "a name of 2,000 characters"),
    "frequencies of none": (
        "genotypes",
        lambda t, x: t.update(frequencies=np.zeros(4)),
        "frequencies of used variants",
    ),
    "samples too few": (
        "genotypes",
        lambda t, x: t.update(eigenvectors=np.ones((5, 2))),
        r"samples.families must be an array of <U\d and shape \(5,\)",
    ),
    "settings where there are none": (
        "genotypes",
        lambda t, x: x["settings"].update(k=2),
        "GenotypePCA has no setting",
    ),
    "no points": (
        "points",
        lambda t, x: (x["fitted"].pop("_points"), t.pop("_points")),
        "_points must be given for a metric only",
    ),
}


@pytest.mark.parametrize("name", [name for name in LIES if LIES[name][0] in HOSTILE])
def test_headers_of_every_kind_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    model_name, change, message = LIES[name]
    path = tmp_path / "lies.safetensors"
    save_model(HOSTILE[model_name]()[0], path)
    tensors, texts, kind = parts_of(path)
    change(tensors, texts)
    written_by_hand(path, tensors, texts, kind=kind)
    with pytest.raises(ValueError, match=message) as caught:
        ss.load_model(path)
    assert str(caught.value).startswith(f"{path} cannot be read: ")
