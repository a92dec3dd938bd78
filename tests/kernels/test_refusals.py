"""What the compiled functions themselves refuse."""

from typing import Any

import numpy as np
import pytest

from tests.support.compiled import extension
from tests.support.matrices import values
from tests.support.structures import csr, index_types


def vectors(n: int) -> dict[str, Any]:
    """Room for what is found of so many columns."""
    return {name: np.empty(n) for name in ("mean", "correction", "squares")}


def _call(name: str, X: Any, rows: tuple[int, int], **change: Any) -> Any:
    """A compiled function on X with sound arrays for these rows, some of them changed."""
    m, n = rows[1] - rows[0], X.shape[1]
    own: dict[str, dict[str, Any]] = {
        "gather": {"V": np.ones((n, 4)), "Y": np.empty((m, 4))},
        "scatter": {"W": np.ones((m, 4)), "Z": np.zeros((n, 4))},
        "gram": {
            "V": np.ones((n, 4)),
            "weights": None,
            "L": np.ones((m, 2)),
            "C": np.ones((2, 4)),
            "sums": np.zeros((2, 4)),
            "Z": np.zeros((n, 4)),
        },
        "moments": {
            "weights": None,
            "stored": np.empty((n, 3)),
            **{name: np.empty(n) for name in ("mean", "correction", "squares")},
        },
        "row_moments": {
            "n": n,
            "weights": None,
            "stored": np.empty((m, 3)),
            **vectors(m),
        },
        "column_squares": {"weights": None, "L": np.ones((m, 2)), "R": np.ones((n, 2)), "squares": np.zeros(n)},
        "outer": {"weights": None, "G": np.zeros((n, n))},
        "inspect": {},
        "column_counts": {"counts": np.zeros(n, np.int64)},
    }
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "lo": rows[0], "hi": rows[1]}
    if name == "column_counts":
        del arrays["data"]
    return getattr(extension, name)(**{**arrays, **own[name], **change})


FUNCTIONS = ("gather", "scatter", "gram", "moments", "row_moments", "column_squares", "outer", "inspect")
functions = pytest.mark.parametrize("name", [*FUNCTIONS, "column_counts"])


@functions
@index_types
def test_rows_out_of_range_are_refused_by_the_kernel_itself(name, index):
    X = csr(values((6, 5), seed=1), index)
    _call(name, X, (1, 4))
    for change in ({"lo": -1}, {"lo": 5}, {"hi": 7}, {"hi": 2**40}, {"hi": -1}, {"lo": -(2**62)}):
        with pytest.raises(ValueError, match="rows out of range"):
            _call(name, X, (1, 4), **change)
    with pytest.raises(ValueError, match="rows out of range"):
        _call(name, X, (0, 0), indptr=np.zeros(0, index))


@functions
@index_types
def test_an_indptr_that_leaves_its_arrays_is_refused_by_the_kernel_itself(name, index):
    X = csr(values((6, 5), seed=1), index)
    for i, value, rule in ((0, -1, "decreases"), (0, X.nnz + 1, "decreases"), (6, X.nnz + 1, "too large")):
        indptr = X.indptr.copy()
        indptr[i] = value
        with pytest.raises(ValueError, match=rule):
            _call(name, X, (0, 6), indptr=indptr)
    with pytest.raises(ValueError, match="too large"):
        _call(name, X, (0, 6), indices=X.indices[:-1].copy())
    if name != "column_counts":
        with pytest.raises(ValueError, match="too large"):
            _call(name, X, (0, 6), data=X.data[:-1].copy())


@pytest.mark.parametrize("name", [name for name in (*FUNCTIONS, "column_counts") if name != "inspect"])
@index_types
def test_indices_that_leave_the_matrix_are_refused_by_the_kernel_itself(name, index):
    X = csr(values((6, 5), seed=1), index)
    for array, at, value in (
        ("indices", X.indptr[2], 5),
        ("indices", X.indptr[3], -1),
        ("indices", X.indptr[2], np.iinfo(index).max),
        ("indices", X.indptr[2], np.iinfo(index).min),
        ("indptr", 2, np.iinfo(index).max),
        ("indptr", 3, -1),
        ("indptr", 2, np.iinfo(index).min),
    ):
        broken = getattr(X, array).copy()
        broken[at] = value
        with pytest.raises(ValueError, match="changed after as_operator"):
            _call(name, X, (1, 5), **{array: broken})


SHAPES = {
    "gather": [{"V": (5, 3)}, {"V": (5, 32)}, {"V": (5, 0)}, {"Y": (2, 4)}, {"Y": (4, 4)}, {"Y": (3, 5)}],
    "scatter": [{"Z": (5, 3)}, {"Z": (5, 32)}, {"Z": (5, 0)}, {"W": (2, 4)}, {"W": (4, 4)}, {"W": (3, 5)}],
    "gram": [
        {"V": (5, 3), "Z": (5, 3), "C": (2, 3), "sums": (2, 3)},
        {"V": (4, 4)},
        {"Z": (4, 4)},
        {"Z": (5, 2)},
        {"L": (2, 2)},
        {"L": (3, 1)},
        {"C": (3, 4)},
        {"C": (2, 2)},
        {"sums": (1, 4)},
        {"sums": (2, 8)},
        {"weights": (2,)},
        {"weights": (6,)},
    ],
    "moments": [
        {"mean": (4,)},
        {"correction": (4,)},
        {"squares": (6,)},
        {"stored": (4, 3)},
        {"stored": (5, 2)},
        {"weights": (2, 3)},
        {"weights": (3, 2)},
    ],
    "row_moments": [{"mean": (2,)}, {"squares": (4,)}, {"stored": (4, 3)}, {"weights": (4, 3)}, {"weights": (6, 3)}],
    "column_squares": [{"L": (2, 2)}, {"L": (3, 1)}, {"R": (4, 2)}, {"squares": (4,)}, {"weights": (4,)}],
    "outer": [{"G": (5, 4)}, {"G": (4, 5)}, {"weights": (2,)}],
}


@pytest.mark.parametrize(
    ("name", "shapes"), [(name, s) for name, all_ in SHAPES.items() for s in all_], ids=lambda value: str(value)
)
def test_arrays_of_wrong_shape_are_refused_by_the_kernel_itself(name, shapes):
    X = csr(values((6, 5), seed=1))
    with pytest.raises(ValueError):
        _call(name, X, (1, 4), **{key: np.zeros(shape) for key, shape in shapes.items()})


@pytest.mark.parametrize(
    "shapes", [{"X": (3, 4)}, {"L": (2, 2)}, {"L": (3, 1)}, {"Rt": (1, 5)}, {"Rt": (2, 4)}, {"out": (3, 4)}], ids=str
)
def test_a_difference_of_wrong_shape_is_refused_by_the_kernel_itself(shapes):
    arrays = {"X": (3, 5), "L": (3, 2), "Rt": (2, 5), "out": (3, 5)}
    extension.subtract(**{name: np.zeros(shape) for name, shape in arrays.items()})
    with pytest.raises(ValueError):
        extension.subtract(**{name: np.zeros(shape) for name, shape in (arrays | shapes).items()})


def test_sums_of_different_length_are_not_added():
    with pytest.raises(ValueError, match="different length"):
        extension.add(np.zeros(4), np.zeros(5))


@functions
def test_arrays_of_wrong_type_or_layout_are_never_converted(name):
    X = csr(values((6, 5), seed=1))
    for change in (
        {"indices": X.indices.astype(np.int16)},
        {"indices": X.indices.astype(np.int64)},
        {"indptr": X.indptr.astype(np.int64)},
        {"indptr": np.repeat(X.indptr, 2)[::2]},
        {"indices": np.repeat(X.indices, 2)[::2]},
        {"data": X.data.astype(">f8")},
        {"data": X.data.astype(np.float16)},
        {"data": X.data.astype(complex)},
        {"data": X.data.astype(np.int64)},
        {"data": np.repeat(X.data, 2)[::2]},
    ):
        if "data" in change and name == "column_counts":
            continue
        with pytest.raises(TypeError, match="incompatible function arguments"):
            _call(name, X, (1, 4), **change)


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("gather", "Y"),
        ("scatter", "Z"),
        ("gram", "Z"),
        ("gram", "sums"),
        ("moments", "mean"),
        ("moments", "stored"),
        ("row_moments", "squares"),
        ("column_squares", "squares"),
        ("outer", "G"),
        ("column_counts", "counts"),
    ],
)
def test_a_result_that_cannot_be_written_is_refused(name, out):
    X = csr(values((6, 5), seed=1))
    shape = {"Y": (3, 4), "Z": (5, 4), "sums": (2, 4), "G": (5, 5), "stored": (5, 3), "mean": (5,), "counts": (5,)}.get(
        out
    )
    array = np.zeros(shape or (3 if name == "row_moments" else 5,), np.int64 if out == "counts" else np.float64)
    _call(name, X, (1, 4), **{out: array})
    array.flags.writeable = False
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _call(name, X, (1, 4), **{out: array})
