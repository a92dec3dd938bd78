"""What is changed between a kill and the next run never meets the reads of before: refused, or as without them."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends import blocked
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import HeldRows, Multiplied
from shiftsvd.io import open_matrix
from shiftsvd.missing.gaps import FileGaps
from shiftsvd.missing.opening import open_with_gaps
from shiftsvd.numerics.digests import told
from shiftsvd.runs import checkpoints

Fit = Callable[[], ss.PCA]
HOW: dict[str, Any] = {"n_components": 3, "solver": "lanczos", "random_state": 0}


def after(first: Fit, second: Fit, folder: Path, left: int = 1000) -> str:
    """What a second fit makes of the first reads that another one, killed at its end or before, has left."""

    with suppress(KeyboardInterrupt), ss.checkpoint(folder):
        first()
        assert list(folder.glob("read-*.npz")), "a fit that keeps nothing tests nothing"
        raise KeyboardInterrupt
    for later in sorted(folder.glob("read-*.npz"))[left:]:
        later.unlink()
    want = second()
    try:
        with ss.checkpoint(folder):
            found = second()
    except ValueError as error:
        return "refused" if "another run" in str(error) else str(error)
    for name in ("components_", "singular_values_", "mean_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
    return "the same"


def matrix(seed: int = 0) -> Any:
    return np.random.default_rng(seed).poisson(2.0, (300, 12)).astype(float)


def streamed(path: Path, **said: Any) -> Any:
    return open_matrix(path, stream=True, **said)[0]


def fit(open_it: Callable[[], Any], given: dict[str, Any] | None = None, **how: Any) -> ss.PCA:
    with np.errstate(all="ignore"):
        return ss.PCA(**HOW | how).fit(open_it(), **(given or {}))


def made(value: float) -> Any:
    """A function whose number is not in its code."""
    return lambda x: np.minimum(x, value)


LIMIT = 1.5


def by_name(x: Any) -> Any:
    return np.minimum(x, LIMIT)


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shift": ({"shift": "mean"}, {"shift": None}),
    "numbers of a shift": ({"shift": np.ones(12)}, {"shift": np.ones(12) * 1.5}),
    "scale": ({"scale": "std"}, {"scale": None}),
    "numbers of a scale": ({"scale": np.full(12, 2.0)}, {"scale": np.arange(1.0, 13)}),
    "seed": ({"random_state": 0}, {"random_state": 1}),
    "solver": ({"solver": "lanczos"}, {"solver": "gram"}),
    "number of components": ({"n_components": 3}, {"n_components": 4}),
    "weights": ({}, {"given": {"sample_weight": np.arange(1.0, 301)}}),
    "numbers of weights": (
        {"given": {"sample_weight": np.arange(300.0, 0, -1)}},
        {"given": {"sample_weight": np.arange(1.0, 301)}},
    ),
    "covariates": (
        {"shift": ss.Covariates(), "given": {"covariates": np.arange(300.0)[:, None]}},
        {"shift": ss.Covariates(), "given": {"covariates": np.arange(300.0)[:, None] ** 2}},
    ),
    "transformation": ({"preprocess": ss.Sqrt()}, {"preprocess": ss.FreemanTukey()}),
    "number of a transformation": ({"preprocess": ss.PMI(smoothing=1.0)}, {"preprocess": ss.PMI(smoothing=0.75)}),
    "ranks and their order": ({"preprocess": ss.Ranks()}, {"preprocess": [ss.LogNormalize(), ss.Ranks()]}),
    "name in a function": (
        {"preprocess": ss.Elementwise(lambda x: np.sqrt(x))},
        {"preprocess": ss.Elementwise(lambda x: np.log1p(x))},
    ),
    "number around a function": ({"preprocess": ss.Elementwise(made(1.5))}, {"preprocess": ss.Elementwise(made(2.5))}),
    "argument of a function": (
        {"preprocess": ss.Elementwise(partial(np.minimum, 1.5))},
        {"preprocess": ss.Elementwise(partial(np.minimum, 2.5))},
    ),
    "keyword of a partial function": (
        {"preprocess": ss.Elementwise(partial(np.clip, a_min=0, a_max=1.5))},
        {"preprocess": ss.Elementwise(partial(np.clip, a_min=0, a_max=2.5))},
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_setting_that_is_changed_never_replays_old_reads(what: str, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", matrix())
    first, second = CHANGED[what]
    data = lambda: streamed(tmp_path / "X.npy")  # noqa: E731
    found = after(lambda: fit(data, **first), lambda: fit(data, **second), tmp_path / "kept")
    # Fits of few components more take the same reads: their components are computed from the same basis.
    assert found == ("the same" if what == "number of components" else "refused")
    early = after(lambda: fit(data, **first), lambda: fit(data, **second), tmp_path / "early", left=1)
    assert early in ("refused", "the same")
    assert after(lambda: fit(data, **second), lambda: fit(data, **second), tmp_path / "again") == "the same"


def test_a_number_of_the_module_that_a_function_sees_is_one_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    before = told(by_name)
    monkeypatch.setitem(globals(), "LIMIT", 2.5)
    assert told(by_name) != before
    monkeypatch.undo()
    assert told(by_name) == before


def test_the_same_numbers_in_another_shape_or_order_are_others() -> None:
    X = matrix()
    assert len({told(each) for each in (X, X.T, X.ravel(), X.reshape(2, -1), X.astype(np.float32), X[::-1])}) == 6
    assert told(X) == told(np.asfortranarray(X)) == told(np.repeat(X, 2, axis=1)[:, ::2])


@pytest.mark.parametrize(
    "said", [{"drop": ["g1"]}, {"drop": ["g2"]}, {"columns": ["g1", "g3", "g4", "g5", "g6", "g7"]}]
)
def test_columns_of_a_table_tell_its_reads(said: dict[str, Any], tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "X.parquet"
    parquet.write_table(pyarrow.table({f"g{j + 1}": column for j, column in enumerate(matrix().T)}), file)
    data = lambda said: lambda: streamed(file, **said)  # noqa: E731
    other = {"drop": ["g3"]}
    assert after(lambda: fit(data(other)), lambda: fit(data(said)), tmp_path / "kept") == "refused"
    assert after(lambda: fit(data(said)), lambda: fit(data(said)), tmp_path / "again") == "the same"


def test_what_is_held_of_a_stack_is_told_by_its_numbers() -> None:
    X = matrix()
    parts = [X, X[:, ::-1], sparse.csr_array(X), X[:, :6], X.astype(np.float32)]
    marks = [HeldRows(part, "X.csv").fingerprint for part in parts]
    marks += [Multiplied(HeldRows(X, "X"), *powers).fingerprint for powers in ((1, 0), (0, 1), (0, np.arange(12)))]
    assert len({*marks, HeldRows(X, "X").H.fingerprint}) == len(marks) + 1
    assert HeldRows(X.copy(), "elsewhere").fingerprint == marks[0]


@pytest.mark.parametrize("kind", ["dense", "sparse", "Fortran", "streamed"])
def test_other_data_of_the_same_name_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "WORTH", 0)

    def data(seed: int) -> Any:
        X = np.random.default_rng(seed).standard_normal((900, 20)) * (10.0 - np.arange(20) / 4)
        forms = {"dense": np.asarray, "sparse": sparse.csr_array, "Fortran": np.asfortranarray}
        return DiskRows(HeldRows(X, "X")) if kind == "streamed" else forms[kind](X)

    first, second = (lambda: fit(lambda: data(1), n_components=5)), (lambda: fit(lambda: data(2), n_components=5))
    assert after(first, second, tmp_path / "kept") == "refused"
    assert after(second, second, tmp_path / "again") == "the same"


def test_a_file_that_is_written_in_place_is_another_also_where_size_and_date_are_put_back(tmp_path: Path) -> None:
    file = tmp_path / "X.npy"

    def written(seed: int) -> ss.PCA:
        before = file.stat() if file.exists() else None
        np.save(file, matrix(seed))
        if before is not None:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        return fit(lambda: streamed(file))

    assert after(lambda: written(1), lambda: written(2), tmp_path / "kept") == "refused"


def test_a_file_that_was_touched_is_refused_whatever_it_holds(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", matrix())

    def touched() -> ss.PCA:
        (tmp_path / "X.npy").touch()
        return fit(lambda: streamed(tmp_path / "X.npy"))

    assert after(lambda: fit(lambda: streamed(tmp_path / "X.npy")), touched, tmp_path / "kept") == "refused"


@pytest.mark.filterwarnings("ignore:The completion did not converge")
def test_what_stands_for_missing_entries_tells_reads(tmp_path: Path) -> None:
    X = matrix()
    X[::7, 2] = np.nan
    np.save(tmp_path / "X.npy", X)
    file = tmp_path / "X.npy"

    def opened() -> FileGaps:
        A, _ = open_with_gaps([file], memory_limit="20KB")
        assert isinstance(A, FileGaps)
        return A

    def of_file(**how: Any) -> ss.PCA:
        return ss.PCA(**HOW | how).fit(opened())

    em: dict[str, Any] = {"missing": "em", "max_iter": 3}
    first, second = (lambda: of_file(missing="mean")), (lambda: of_file(**em, penalty=1.0))
    assert after(first, second, tmp_path / "kept") == "refused"
    assert after(lambda: of_file(**em, penalty=2.0), second, tmp_path / "penalty") == "refused"
    assert after(second, second, tmp_path / "again") == "the same"
    # Nothing but the values for missing entries, or the factors of columns, differs.
    one, two = (partial(opened().filled, ss.LowRank(np.full(300, value), np.ones(12))) for value in (1.0, 2.0))
    assert after(lambda: fit(one), lambda: fit(two), tmp_path / "filled") == "refused"
    one, two = (partial(opened().times, np.full(12, value)) for value in (1.0, 2.0))
    how: dict[str, Any] = {"missing": "mean"}
    assert after(lambda: fit(one, **how), lambda: fit(two, **how), tmp_path / "factors") == "refused"


@pytest.mark.parametrize("name", ["shiftsvd", "numpy", "scipy", "kernels", "machine"])
def test_reads_of_other_versions_are_refused_with_their_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "X.npy", matrix())
    one = lambda: fit(lambda: streamed(tmp_path / "X.npy"))  # noqa: E731
    now = checkpoints._software()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "_software", lambda: now | {name: "0.0"})
        with suppress(KeyboardInterrupt), ss.checkpoint(tmp_path / "kept"):
            one()
            raise KeyboardInterrupt
    with pytest.raises(ValueError, match=f"another run .made by {name} 0.0, not "), ss.checkpoint(tmp_path / "kept"):
        pass
