"""Model files: what is loaded is what was saved, to the last bit, and nothing but data is in between."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file
from scipy.sparse import random_array
from sklearn import decomposition
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

import shiftsvd as ss
from shiftsvd.model_file import describe
from tests.support.model_files import assert_same_model, assert_same_values, data, first_version, written_by_hand
from tests.support.sampling import pairs

SOLVERS = (
    "auto",
    "gram",
    ss.BlockLanczos(tol=1e-6, block_size=4),
    ss.Exact(certify=True),
    ss.RandomizedSVD(n_iter=3, sketch=ss.sketch.SparseSign(4)),
    ss.ShiftedRandomizedSVD(sketch=ss.sketch.SRFT()),
)


def through_file(model: ss.PCA, folder: Path, **options: Any) -> ss.PCA:
    path = folder / "model.safetensors"
    model.save(path, force=True, **options)
    return ss.load_model(path)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(60, 9), (9, 60)], ids=["tall", "wide"])
def test_load_gives_what_was_saved(
    tmp_path: Path, solver: Any, dtype: Any, shape: tuple[int, int], recwarn: Any
) -> None:
    X, new = data(shape, dtype), data((5, shape[1]), dtype, seed=1)
    for whiten, scale, shift in pairs([False, True], [False, "std", 1], ["mean", None, 1]):
        vector = np.linspace(1, 2, shape[1])
        model = ss.PCA(
            3,
            whiten=whiten,
            scale=vector if scale == 1 else scale,
            shift=-vector if shift == 1 else shift,
            solver=solver,
            random_state=5,
        )
        Z = model.fit_transform(X)
        again = through_file(model, tmp_path)
        assert_same_model(again, model)
        # fit_transform = fit then transform = load(save) then transform
        assert Z.tobytes() == model.transform(X).tobytes() == again.transform(X).tobytes()
        assert again.transform(new).tobytes() == model.transform(new).tobytes()
        assert again.inverse_transform(Z).tobytes() == model.inverse_transform(Z).tobytes()
        assert again.score(new) == model.score(new)


@pytest.mark.parametrize("n", [60, 300, 1000])
def test_products_round_as_before(tmp_path: Path, n: int) -> None:
    # BLAS sums in another order where a matrix lies transposed: of such sizes some bits would differ.
    X = data((500, n))
    model = ss.PCA(8, solver="lanczos", random_state=0)
    Z = model.fit_transform(X)
    again = through_file(model, tmp_path)
    assert again.transform(X).tobytes() == Z.tobytes()
    assert again.inverse_transform(Z).tobytes() == model.inverse_transform(Z).tobytes()


@pytest.mark.parametrize("k", [0, 1, 9, 0.5, None, "mle"])
def test_any_number_of_components_survives(tmp_path: Path, k: Any) -> None:
    model = ss.PCA(k).fit(data())
    again = through_file(model, tmp_path)
    assert_same_model(again, model)
    assert again.transform(data()).shape == (60, model.n_components_)


def test_sparse_data_and_weights(tmp_path: Path) -> None:
    X = random_array((200, 30), density=0.1, format="csr", rng=0)
    model = ss.PCA(4, random_state=0).fit(X, sample_weight=np.arange(200) % 3)
    again = through_file(model, tmp_path)
    assert_same_model(again, model)
    assert again.transform(X).tobytes() == model.transform(X).tobytes()


def test_degenerate_data_survive(tmp_path: Path) -> None:
    line = np.outer(np.arange(10.0), [1.0, 2.0, 3.0])
    for X in (np.ones((10, 3)), line):
        for solver in ("auto", "lanczos", ss.RandomizedSVD(certify=True)):
            model = ss.PCA(3, solver=solver, random_state=0).fit(X)
            assert_same_model(through_file(model, tmp_path), model)


def test_every_setting_survives(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "n_components": 2,
        "copy": False,
        "whiten": True,
        "svd_solver": "randomized",
        "tol": 0.5,
        "iterated_power": 3,
        "n_oversamples": 7,
        "power_iteration_normalizer": "LU",
        "random_state": 2**40,
        "shift": None,
        "scale": "pareto",
        "n_threads": 1,
        "memory_limit": "1GB",
        "verbose": 1,
    }
    model = ss.PCA(**settings).fit(data())
    assert through_file(model, tmp_path).get_params() == model.get_params()


def test_settings_that_are_not_numbers_of_python(tmp_path: Path) -> None:
    model = ss.PCA(np.int64(2), scale=np.bool_(False) or False, shift=[1] * 9, tol=np.float64(1e-3))
    again = through_file(model.fit(data()), tmp_path)
    assert (again.n_components, again.tol) == (2, 1e-3)
    assert again.shift.tolist() == [1] * 9
    big_ends_first = np.arange(9, dtype=">f8")
    assert through_file(ss.PCA(2, shift=big_ends_first).fit(data()), tmp_path).shift.tolist() == list(range(9))
    infinite = ss.PCA(2, solver=ss.BlockLanczos(tol=np.inf)).fit(data())
    assert through_file(infinite, tmp_path).solver.tol == np.inf
    started = ss.BlockLanczos(start=data((9, 3))[:, ::2])
    again = through_file(ss.PCA(2, solver=started).fit(data()), tmp_path)
    assert again.solver.start.tobytes() == started.start.tobytes()


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_not_stored_and_the_file_says_so(tmp_path: Path, make: Any) -> None:
    model = ss.PCA(2, random_state=make(0)).fit(data())
    assert through_file(model, tmp_path).random_state is None
    seed = describe(tmp_path / "model.safetensors")["provenance"]["seed"]
    assert seed == f"not stored: {type(make(0)).__name__}"


def test_a_model_of_an_operator_survives(tmp_path: Path) -> None:
    A = ss.as_operator(data())
    model = ss.PCA(2, random_state=0).fit(A)
    again = through_file(model, tmp_path, names=list("abcdefghi"))
    assert again.transform(A).tobytes() == model.transform(A).tobytes()
    del again.feature_names_in_
    assert_same_model(again, model)


def test_names_survive(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    names = ["plain", "", "Ünïcødé 基因", "a\nb\0c", '"quoted"', "same", "same2", "7", "\N{DNA DOUBLE HELIX}"]
    frame = pd.DataFrame(data(), columns=names)
    model = ss.PCA(2).fit(frame)
    again = through_file(model, tmp_path)
    assert_same_model(again, model)
    assert again.transform(frame).tobytes() == model.transform(frame).tobytes()
    with pytest.raises(ValueError, match="feature names"):
        again.transform(frame.rename(columns={"7": "8"}))


def test_names_can_be_given_to_a_model_without(tmp_path: Path) -> None:
    model = ss.PCA(2).fit(data())
    again = through_file(model, tmp_path, names=[f"gene{i}" for i in range(9)])
    assert again.feature_names_in_.tolist() == [f"gene{i}" for i in range(9)]
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match=r"feature_names_in_ must be .* shape \(9,\), got object \(2,\)"):
        through_file(model, tmp_path, names=["a", "b"])
    with pytest.raises(ValueError, match="names must be texts, got 0"):
        through_file(model, tmp_path, names=range(9))


def test_describe_says_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    ss.PCA(2, random_state=3).fit(data()).save(path, source="counts.h5ad")
    said = describe(path)
    json.dumps(said, allow_nan=False)
    assert (said["format"], said["version"], said["kind"]) == ("shiftsvd-model", "1", "PCA")
    assert said["provenance"] == {
        "shiftsvd": ss.__version__,
        "n_samples": 60,
        "n_features": 9,
        "seed": 3,
        "source": "counts.h5ad",
    }
    assert said["settings"]["n_components"] == 2
    assert said["tensors"]["components_"] == {"dtype": "float64", "shape": [2, 9]}
    ss.PCA(2, preprocess=ss.transforms.Select([0, 3, 4])).fit(data()).save(path, force=True)
    assert describe(path)["provenance"]["n_features"] == 9


def test_the_same_fit_gives_the_same_file_whatever_it_cost(tmp_path: Path) -> None:
    model = ss.PCA(2, random_state=0).fit(data())
    for name, seconds, peak in (("a", 0.5, None), ("b", 0.25, 10**6)):
        model.info_ = replace(model.info_, seconds=seconds, peak_bytes=peak)
        model.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_any_reader_of_safetensors_finds_the_arrays(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    model = ss.PCA(2, solver="lanczos", shift=np.arange(9.0)[::-1]).fit(data())
    model.save(path)
    arrays = load_file(path)
    for name in ("components_", "mean_", "singular_values_", "explained_variance_"):
        assert np.array_equal(arrays[name], getattr(model, name))
    assert b"pickle" not in path.read_bytes()


def test_loaded_models_are_models(tmp_path: Path) -> None:
    model = ss.PCA(2, random_state=0).fit(data())
    again = through_file(model, tmp_path)
    again.components_[0] = 0  # its own memory
    assert_same_model(ss.PCA.load(tmp_path / "model.safetensors"), model)
    assert_allclose(again.fit(data()).components_, model.components_)
    assert_same_model(through_file(through_file(model, tmp_path), tmp_path), model)


# ---- writing


def test_what_exists_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    model = ss.PCA(2).fit(data())
    model.save(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"m\.safetensors exists. Use force=True"):
        ss.PCA(3).fit(data()).save(path)
    assert path.read_bytes() == before
    ss.PCA(3).fit(data()).save(str(path), force=True)
    assert ss.load_model(path).n_components_ == 3
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


class HomeMade(ss.Exact):
    pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": HomeMade()}, r"settings\.solver cannot be stored: it must be .*, got HomeMade"),
        ({"n_threads": object()}, r"settings\.n_threads cannot be stored: it must be .*, got object"),
        ({"shift": np.full(9, np.nan)}, "shift must be finite, got 9 NaN"),
        ({"scale": np.full(9, 1j)}, r"settings\.scale cannot be stored: it must be .*, got an array of complex128"),
        ({"whiten": "yes"}, "whiten must be bool, got 'yes'"),
        ({"n_components": np.ones(2)}, "n_components must be "),
    ],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    path = tmp_path / "m.safetensors"
    model = ss.PCA(2).fit(data()).set_params(**settings)
    with pytest.raises(ValueError, match=rf"m\.safetensors was not written: {message}"):
        model.save(path)
    assert list(tmp_path.iterdir()) == []


def test_a_long_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 262,144 bytes"):
        ss.PCA(2).fit(data()).save(tmp_path / "m.safetensors", source="x" * 2**20)


def test_only_a_fitted_model_has_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        ss.PCA().save(tmp_path / "m.safetensors")
    with pytest.raises(NotFittedError):
        ss.PCA().to_sklearn()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "m.safetensors"
    with pytest.raises(OSError, match=r"none/m\.safetensors cannot be written: .*the folder .* does not exist"):
        ss.PCA(2).fit(data()).save(path)
    (tmp_path / "none").write_text("a file")
    with pytest.raises(OSError, match=r"none/m\.safetensors cannot be written: "):
        ss.PCA(2).fit(data()).save(path)
    with pytest.raises(OSError, match=f"{tmp_path.name} cannot be written: "):
        ss.PCA(2).fit(data()).save(tmp_path, force=True)
    (tmp_path / "none").unlink()
    assert list(tmp_path.iterdir()) == list(tmp_path.parent.glob(".*shiftsvd*")) == []
    with pytest.raises(FileNotFoundError, match=r"m\.safetensors cannot be read: No such file"):
        ss.load_model(path)


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "m.safetensors"
    model = ss.PCA(2).fit(data())
    model.save(path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file may not grow beyond 100 bytes: the write fails as on a full disk (Python ignores the signal).
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match=r"m\.safetensors cannot be written: "):
            model.save(path, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.long
def test_import_of_the_package_does_not_load_scikit_learn() -> None:
    code = "import sys, shiftsvd, shiftsvd.model_file; print('sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert run.stdout.split() == ["False"]


# ---- versions


def test_files_of_version_1_load(tmp_path: Path) -> None:
    path = tmp_path / "first.safetensors"
    tensors, texts = first_version()
    written_by_hand(path, tensors, texts)
    model = ss.load_model(path)
    for name in (name for name in tensors if name[-1] == "_"):
        order = "F" if name == "components_" else "C"
        assert_same_values(getattr(model, name), np.asarray(tensors[name], order=order), name)
    assert (model.n_components_, model.n_features_in_, model.n_samples_, model.noise_variance_) == (2, 3, 11, 0.125)
    assert model.feature_names_in_.tolist() == ["a", "β", "c"]
    assert model.solver == ss.RandomizedSVD(n_iter=4, sketch=ss.sketch.SparseSign(4))
    assert (model.random_state, model.memory_limit, model.scale.tolist()) == (7, "2GB", [1, 2, 4])
    assert (model.info_.n_passes, model.info_.converged, model.info_.frobenius_error) == (10, False, 0.25)
    assert model.info_.value_errors.tolist() == [1e-12, np.inf]
    with pytest.warns(UserWarning, match="feature names"):
        Z = model.transform(np.array([[2.0, 4.0, 7.0]], np.float32))
    assert_allclose(Z, [[1.4, 1.0]], rtol=1e-6)
    assert_same_model(through_file(model, tmp_path), model)


def test_a_setting_that_the_file_does_not_know_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "first.safetensors"
    tensors, texts = first_version()
    del texts["settings"]["verbose"], texts["settings"]["solver"]
    written_by_hand(path, tensors, texts)
    assert (ss.load_model(path).verbose, ss.load_model(path).solver) == (0, "auto")


# ---- other packages


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("shift", ["mean", None, "vector"])
@pytest.mark.parametrize("scale", [False, "std"])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("k", [0, 4])
def test_to_sklearn_gives_the_same_transform(
    dtype: Any, sparse: bool, shift: Any, scale: Any, whiten: bool, k: int
) -> None:
    X = random_array((80, 9), density=0.4, format="csr", rng=0).astype(dtype)
    X = X if sparse else X.toarray() + dtype(1)
    model = ss.PCA(k, whiten=whiten, scale=scale, shift=np.arange(9.0) if shift == "vector" else shift).fit(X)
    theirs = model.to_sklearn()
    assert isinstance(theirs, Pipeline if scale else decomposition.PCA)
    assert type(theirs[-1] if scale else theirs) is decomposition.PCA
    Z = model.transform(X)
    # A sum of 9 products before and after the mean is taken off.
    error = 100 * np.finfo(dtype).eps * max(1.0, *(np.linalg.norm(part) for part in (model.mean_, Z.astype(float))))
    assert_allclose(theirs.transform(X), Z, rtol=0, atol=error)
    if k:  # no scores at all are no array that scikit-learn takes
        assert_allclose(theirs.inverse_transform(Z), model.inverse_transform(Z), rtol=0, atol=10 * error)
    assert theirs.transform(X).dtype == dtype
    assert theirs.n_features_in_ == 9


def test_to_sklearn_gives_the_attributes_of_sklearn() -> None:
    X = data()
    theirs, ours = decomposition.PCA(3, svd_solver="full").fit(X), ss.PCA(3, solver="exact").fit(X).to_sklearn()
    names = {name for name in vars(theirs) if name.endswith("_") and not name.startswith("_")}
    for name in names:
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-10, atol=1e-10, err_msg=name)
    assert_allclose(ours.score(X), theirs.score(X))
    assert_allclose(ours.get_covariance(), theirs.get_covariance())
    assert set(vars(ours)) <= set(vars(theirs))


@pytest.mark.parametrize("scale", [False, "std"])
def test_to_sklearn_keeps_names_and_shares_nothing(scale: Any) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(data(), columns=list("abcdefghi"))
    model = ss.PCA(3, scale=scale).fit(X)
    before = model.transform(X)
    theirs = model.to_sklearn()
    assert_allclose(theirs.transform(X), before, rtol=1e-10, atol=1e-10)
    assert theirs.feature_names_in_.tolist() == list("abcdefghi")
    (theirs[-1] if scale else theirs).components_[:] = 0
    assert model.transform(X).tobytes() == before.tobytes()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_skops_needs_to_trust_our_types_only(solver: Any) -> None:
    skops = pytest.importorskip("skops.io")
    model = ss.PCA(3, solver=solver, scale="std", random_state=0).fit(data())
    stored = skops.dumps(model)
    types = skops.get_untrusted_types(data=stored)
    assert types
    assert all(name.startswith("shiftsvd.") for name in types)
    again = skops.loads(stored, trusted=types)
    assert again.transform(data()).tobytes() == model.transform(data()).tobytes()
    assert again.get_params() == model.get_params()
    assert again.info_.solver == model.info_.solver
