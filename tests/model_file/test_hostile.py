"""Damaged and hostile model files: a clear error with the file's name, or a valid model; never anything else."""

import copy
import json
import os
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.model_file import coding, describe
from tests.support.model_files import assert_same_model, data, first_version, written_by_hand
from tests.support.mutants import JUNK, mutants, nodes

Tensors, Texts = dict[str, Any], dict[str, Any]


def refused(path: Path, message: str) -> None:
    for read in (ss.load_model, describe):
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path} cannot be read: ")
        assert len(str(caught.value)) < len(str(path)) + 1500


def usable(model: ss.PCA, path: Path) -> None:
    """What was loaded behaves like a model, whatever it says."""
    X = np.ones((2, model.n_features_in_), model.components_.dtype)
    model.set_params(n_threads=None, memory_limit=None)  # their values are judged when they are used, as in any model
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        assert model.transform(X).shape == (2, model.n_components_)
    assert model.inverse_transform(np.ones((2, model.n_components_))).shape == X.shape
    assert repr(model)
    again = path.with_name("again.safetensors")
    model.save(again, force=True)
    assert_same_model(ss.load_model(again), model)


def errors_or_model(path: Path) -> bool:
    """Whether a file loads; if not, the error says which file it was."""
    try:
        model = ss.load_model(path)
    except (ValueError, OSError) as error:
        said = str(error)
    else:
        usable(model, path)
        return True
    assert said.startswith(f"{path} cannot be read: ")
    return False


# ---- the header


def raw(header: bytes | Any, content: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + content


ONE = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
OURS = {"format": "shiftsvd-model", "version": "1"}


def raw_ours(header: dict[str, Any], content: bytes = b"") -> bytes:
    return raw({"__metadata__": OURS, **header}, content)


HEADERS = {
    "nothing": (b"", "damaged|header"),
    "half a length": (b"\1\2\3", "damaged|header"),
    "length beyond the file": (raw({}, size=1000), "damaged|header"),
    "length of exabytes": (raw({}, size=2**63), "not a model file. Pass a file"),
    "all ones": (b"\xff" * 100, "not a model file. Pass a file"),
    "no JSON": (raw(b"not json"), "Expecting value|damaged"),
    "no UTF-8": (raw(b'{"\xff": 1}'), "damaged, or not a model file"),
    "no object": (raw([1, 2]), "damaged, or not a model file"),
    "a number": (raw(b"1" * 5000), "digits|header is not"),
    "deep lists": (raw(b"[" * 500_000), "recursion"),
    "deep objects": (raw(b'{"a":' * 100_000), "recursion"),
    "many lists": (raw(b"[" + b"[]," * 300_000 + b"[]]"), "damaged, or not a model file"),
    "NaN": (raw_ours({"a": float("nan")}), "damaged, or not a model file"),
    "a name twice": (raw(b'{"__metadata__":{"format":"a","format":"b"}}'), "its format is 'b'"),
    "a tensor twice": (
        raw(raw_ours({"a": ONE, "b": ONE})[8:].replace(b'"b"', b'"a"'), bytes(16)),
        "bytes after the last tensor",
    ),
    "overlapping tensors": (raw_ours({"a": ONE, "b": ONE}, bytes(8)), "damaged"),
    "a hole": (raw_ours({"a": ONE | {"data_offsets": [8, 16]}}, bytes(16)), "damaged"),
    "bytes left over": (raw_ours({"a": ONE}, bytes(16)), "damaged"),
    "bytes missing": (raw_ours({"a": ONE}, bytes(7)), "damaged"),
    "offsets backwards": (raw_ours({"a": ONE | {"data_offsets": [8, 0]}}, bytes(8)), "damaged"),
    "negative offsets": (raw_ours({"a": ONE | {"data_offsets": [-8, 0]}}, bytes(8)), "damaged"),
    "negative shape": (raw_ours({"a": ONE | {"shape": [-1]}}, bytes(8)), "damaged"),
    "shape of exabytes": (raw_ours({"a": ONE | {"shape": [10**9, 10**9]}}, bytes(8)), "damaged"),
    "shape that overflows": (raw_ours({"a": ONE | {"shape": [2**62, 2**62, 2**62]}}, bytes(8)), "damaged"),
    "shape of gigabytes": (
        raw_ours({"a": ONE | {"shape": [10**9], "data_offsets": [0, 8 * 10**9]}}, bytes(8)),
        "damaged",
    ),
    "nothing times exabytes": (
        raw_ours({"a": ONE | {"shape": [0, 2**63], "data_offsets": [0, 0]}}),
        "dimension",
    ),
    "seventy dimensions": (raw_ours({"a": ONE | {"shape": [1] * 70}}, bytes(8)), "dimension"),
    "a type that NumPy has not": (
        raw_ours({"a": ONE | {"dtype": "BF16", "shape": [4]}}, bytes(8)),
        "damaged, or not a model file",
    ),
    "an unknown type": (raw_ours({"a": ONE | {"dtype": "F640"}}, bytes(8)), "damaged"),
    "metadata that are no text": (raw({"__metadata__": {"format": 1}}), "its format is 1"),
    "metadata that are a list": (raw({"__metadata__": [1]}), "damaged, or not a model file"),
    "no metadata": (raw({"a": ONE}, bytes(8)), "not a model file of shiftsvd: its format is None"),
    "a model of others": (raw({"__metadata__": {"format": "pt"}, "a": ONE}, bytes(8)), "its format is 'pt'"),
    "no version": (raw({"__metadata__": {"format": "shiftsvd-model"}}), "version None"),
    "nothing but a version": (raw({"__metadata__": OURS}), "its header must have the entries fitted, format, kind"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(tmp_path: Path, name: str) -> None:
    content, message = HEADERS[name]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        refused(path, f"(?i){message}")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20 + 100 * len(content)


def test_a_version_to_come_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "later.safetensors"
    written_by_hand(path, *first_version(), version="2")
    refused(path, "version '2', but shiftsvd .* reads version '1'. Update with: pip install -U shiftsvd")


def test_the_checksum_guards_every_byte_of_the_arrays(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    written_by_hand(path, *first_version())
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for place in range(start, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        refused(path, "checksum")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_what_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(pipe, "not a regular file")  # and does not wait for a writer
    refused(tmp_path, "not a regular file")
    refused(Path("/dev/zero"), "not a regular file")


# ---- what the header says, under a checksum that is right


def changed(change: Callable[[Tensors, Texts], object]) -> tuple[Tensors, Texts]:
    tensors, texts = first_version()
    change(tensors, texts)
    return tensors, texts


def put(path: str, value: Any) -> Callable[[Tensors, Texts], object]:
    """Set one entry of the texts; the path is of their keys."""
    *parents, last = path.split("/")

    def change(tensors: Tensors, texts: Texts) -> None:
        at = texts
        for parent in parents:
            at = at[parent]
        at[last] = value

    return change


def tensor(name: str, value: Any) -> Callable[[Tensors, Texts], object]:
    return lambda tensors, texts: tensors.update({name: np.asarray(value)})


LIES = {
    "a tensor is missing": (lambda t, _: t.pop("mean_"), "the tensor 'mean_' is missing"),
    "a tensor is too many": (tensor("more", [1.0]), "does not refer to the tensors 'more'"),
    "a tensor is used twice": (
        put("fitted/scale_/tensor", "mean_"),
        "'mean_' is missing, or the header refers to it twice",
    ),
    "components have one dimension": (tensor("components_", np.ones(6)), r"shape \(k, n\), got float64 \(6,\)"),
    "components are integers": (tensor("components_", np.ones((2, 3), int)), "must be an array of float32 or"),
    "components are wider": (tensor("components_", np.ones((2, 4), "f4")), r"mean_ .* \(4,\), got float64 \(3,\)"),
    "components are more": (tensor("components_", np.ones((3, 3), "f4")), r"singular_values_ must be .* shape \(3,\)"),
    "mean is single": (tensor("mean_", np.ones(3, "f4")), "mean_ must be an array of float64"),
    "mean is a matrix": (tensor("mean_", np.ones((1, 3))), r"mean_ must be .* shape \(3,\), got float64 \(1, 3\)"),
    "variances are integers": (tensor("explained_variance_", np.ones(2, int)), "variance_ must be an array of float64"),
    "variances are negative": (tensor("explained_variance_", np.array([1, -1], "f4")), "must be at least 0, got -1"),
    "components hold NaN": (tensor("components_", np.full((2, 3), np.nan, "f4")), "components_ must be finite, got 6"),
    "mean is infinite": (tensor("mean_", [1, 2, np.inf]), "mean_ must be finite"),
    "scale is zero": (tensor("scale_", [1.0, 0, 1]), "scale_ must be at least 4.9.*e-324, got 0"),
    "the given scale is NaN": (tensor("settings.scale", [1.0, np.nan, 1]), "scale must be finite"),
    "residuals are too many": (tensor("info_.residuals", np.ones(3)), "one residual and one bound per component \\(2"),
    "names are too few": (tensor("feature_names_in_.ends", np.array([1, 4])), r"feature_names_in_ must be .* \(3,\)"),
    "names go backwards": (tensor("feature_names_in_.ends", np.array([3, 1, 4])), "must be ascending"),
    "names go beyond": (tensor("feature_names_in_.ends", np.array([1, 3, 2**62])), "must be ascending"),
    "names begin before": (tensor("feature_names_in_.ends", np.array([-1, 3, 4])), "must be ascending"),
    "names are no UTF-8": (tensor("feature_names_in_.ends", np.array([2, 3, 4])), "codec can't decode"),
    "names are floats": (tensor("feature_names_in_.ends", np.ones(3)), "texts must be a vector of bytes"),
    "unknown setting": (put("settings/gpu", True), "PCA has no setting 'gpu'. A newer shiftsvd may have"),
    "unknown fitted": (put("fitted/loadings_", 1), "unknown fitted attributes: 'loadings_'"),
    "fitted is missing": (lambda _, x: x["fitted"].pop("n_samples_"), "it lacks the fitted attributes 'n_samples_'"),
    "whiten is text": (put("settings/whiten", "yes"), "whiten must be bool, got 'yes'"),
    "n_components is true or so": (put("settings/n_components", {"float": "1e5"}), "does not encode a value"),
    "n_threads is a float": (put("settings/n_threads", 1.5), "n_threads must be int | None, got 1.5"),
    "shift is a number": (put("settings/shift", 3), "shift must be .*Sequence"),
    "solver is none": (put("settings/solver", None), r"solver must be Union\[Literal"),
    "solver is a list": (put("settings/solver", ["lanczos"]), "does not encode a value"),
    "solver is not ours": (put("settings/solver", {"type": "os.system", "fields": {}}), "'os.system' is not a type"),
    "solver is a sketch": (put("settings/solver", {"type": "Gaussian", "fields": {}}), "solver must be "),
    "solver is an account": (put("settings/shift", {"type": "Info", "fields": {}}), "missing 10 required"),
    "solver has other fields": (put("settings/solver/fields/code", "1"), "RandomizedSVD has no field 'code'"),
    "solver has wrong fields": (put("settings/solver/fields/n_iter", 2.5), "RandomizedSVD.n_iter must be "),
    "solver has bad fields": (put("settings/solver/fields/n_iter", -1), "at least 0, got -1"),
    "solver has a solver": (
        put("settings/solver/fields/sketch", {"type": "Exact", "fields": {}}),
        "sketch must be Sketch",
    ),
    "info is text": (put("fitted/info_", "fine"), "does not refer to the tensors 'info_.residuals'"),
    "info is a solver": (put("fitted/info_/type", "Exact"), "Exact has no field 'converged'"),
    "info has no count": (put("fitted/info_/fields/n_passes", "ten"), "Info.n_passes must be int"),
    "info has r2 above 1": (put("fitted/info_/fields/heldout_r2", 1.5), "heldout_r2 must be at most 1, got 1.5"),
    "info has no r2": (put("fitted/info_/fields/heldout_r2", {"float": "nan"}), "heldout_r2 must be finite"),
    "info misses values below 0": (
        put("fitted/info_/fields/missed_below", -1.0),
        "missed_below must be at least 0",
    ),
    "info counts below 0": (put("fitted/info_/fields/n_missing", -1), "n_missing must be an integer of at least 0"),
    "info counts truths": (put("fitted/info_/fields/n_missing", True), "n_missing must be an integer of at least 0"),
    "info converged early": (
        lambda _, x: x["fitted"]["info_"]["fields"].update(completed=False, converged=True),
        "must be False if the completion did not converge",
    ),
    "penalty is none": (put("settings/penalty", None), r"penalty must be Union\[float, Literal"),
    "steps are none": (put("fitted/n_iter_", 0), "n_iter_ must be an integer of at least 1"),
    "info is short": (lambda _, x: x["fitted"]["info_"]["fields"].pop("rank"), "missing 1 required"),
    "noise is negative": (put("fitted/noise_variance_", -1.0), "noise_variance_ must be at least 0"),
    "noise is infinite": (put("fitted/noise_variance_", {"float": "inf"}), "noise_variance_ must be finite"),
    "noise is NaN": (put("fitted/noise_variance_", {"float": "nan"}), "noise_variance_ must be finite"),
    "samples are no number": (put("fitted/n_samples_", True), "n_samples_ must be an integer of at least 1"),
    "samples are none": (put("fitted/n_samples_", 0), "n_samples_ must be an integer of at least 1"),
    "names are a number": (
        lambda t, x: (
            x["fitted"].update(feature_names_in_=3),
            [t.pop(f"feature_names_in_.{part}") for part in ("utf8", "ends")],
        ),
        "feature_names_in_ must be ",
    ),
    "settings are a list": (lambda _, x: x.update(settings=[1]), "does not encode a value"),
    "a text is missing": (lambda _, x: x.pop("provenance"), "its header must have"),
    "a text is too many": (lambda _, x: x.update(script="import os"), "its header must have"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    change, message = LIES[name]
    path = tmp_path / "lies.safetensors"
    written_by_hand(path, *changed(change))
    refused(path, message)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kind.safetensors"
    written_by_hand(path, *first_version(), kind="os")
    refused(path, "the model must be one of PCA, .*, got 'os'")


def test_texts_within_the_header_are_guarded_too(tmp_path: Path) -> None:
    path = tmp_path / "texts.safetensors"
    tensors, texts = first_version()
    for text, message in (
        ("[" * 100_000, "recursion"),
        ('{"a": 1, "a": 2}', "does not refer to the tensors"),
        ("{", "Expecting"),
    ):
        written_by_hand(path, tensors, texts | {"settings": text})
        refused(path, message)
    deep: Any = 1
    for _ in range(300):
        deep = {"type": "RandomizedSVD", "fields": {"sketch": deep}}
    written_by_hand(path, tensors, texts | {"settings": texts["settings"] | {"solver": deep}})
    refused(path, "must be ")


# ---- generated


@pytest.mark.long
def test_any_value_of_the_header_may_be_junk(tmp_path: Path) -> None:
    path = tmp_path / "junk.safetensors"
    tensors, texts = first_version()
    places = [place for place in nodes(texts) if len(place) > 1]
    loaded = 0
    for place in places:
        for junk in (*JUNK, ...):
            mutant = copy.deepcopy(texts)
            at = mutant
            for key in place[:-1]:
                at = at[key]
            if junk is ...:
                del at[place[-1]]
            else:
                at[place[-1]] = junk
            written_by_hand(path, tensors, mutant)
            loaded += errors_or_model(path)
    assert 0 < loaded < len(places) * len(JUNK) / 2
    assert len(places) * len(JUNK) > 200


@pytest.mark.long
def test_any_tensor_may_be_junk(tmp_path: Path) -> None:
    path = tmp_path / "junk.safetensors"
    tensors, texts = first_version()
    for name, value in tensors.items():
        with np.errstate(all="ignore"):
            junk = (
                *(value.astype(dtype) for dtype in ("f4", "f8", "i8", "u1")),
                *(value[:0], value[:1], value[None], value.ravel(), value.T, np.concatenate([value, value])),
                *(np.array(0.0), np.zeros((0, 0)), np.zeros((0, 3), "f4"), -value, 0 * value, value * 1e30),
            )
        for one in junk:
            wrong = np.asarray(one, order="C")
            if wrong.dtype.name in ("float32", "float64", "int64", "uint8"):
                written_by_hand(path, tensors | {name: wrong}, texts)
                errors_or_model(path)


def test_generated_mutants_give_an_error_or_a_model(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    path = tmp_path / "mutant.safetensors"
    model = ss.PCA(2, solver="lanczos", scale="std", random_state=0).fit(
        pd.DataFrame(data(), columns=list("abcdefghi"))
    )
    model.save(path)
    content = path.read_bytes()
    loaded = 0
    for mutant in mutants(content, 0):
        path.write_bytes(mutant)
        if mutant != content and errors_or_model(path):
            loaded += 1
            assert_same_model(ss.load_model(path), model)  # the checksum leaves no other
    assert loaded < 20


@pytest.mark.parametrize("left", [0.3, 0.9])
def test_a_file_that_is_truncated_while_it_is_read_is_an_error_and_no_signal(
    tmp_path: Path, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.safetensors"
    ss.PCA(3).fit(data((50, 40_000))).save(path)  # larger than any buffer

    def cut(*_: object) -> None:
        os.truncate(path, int(left * path.stat().st_size))

    monkeypatch.setattr(coding, "_check_version", cut)  # once the header was found sane
    refused(path, "truncated")
