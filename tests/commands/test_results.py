"""The table of a fit: what it says of each component."""

import io
from typing import Any, cast

import numpy as np
import pytest

from shiftsvd.commands.hooks import Run
from shiftsvd.commands.tables import WRITERS, Table, csv_table, write_rows
from shiftsvd.commands.writing import COLUMNS, Result


def account(**told: Any) -> Result:
    """The account of a fit of three components, with a tolerance of 1e-4."""
    known: dict[str, Any] = {"n_components": 3, "residuals": None, "completed": None, "converged": True}
    known["settings"] = {"tol": 1e-4}
    for name in ("singular_values", "explained_variance", "explained_variance_ratio"):
        known[name] = [3.0, 2.0, 1.0]
    return Result(known | told, cast("Run", None), None)


@pytest.mark.parametrize(
    ("told", "converged"),
    [
        ({"value_errors": [1e-6, 1e-4, 1e-9]}, [True, True, True]),
        ({"value_errors": [1e-6, 2e-4, 1e-9], "converged": False}, [True, False, True]),
        ({"value_errors": [1e-6, None, 1.0], "converged": False}, [True, False, False]),
        ({"value_errors": [1e-6, 1.001e-4, 1e-9]}, [True, True, True]),  # the slack of the solver
        ({"value_errors": [1e-6, 1e-6, 1e-6], "converged": False}, [None, None, None]),  # one may be missing
        ({"value_errors": [1e-6, 1e-6, 1e-6], "completed": False}, [False, False, False]),
        ({"value_errors": None, "converged": None}, [None, None, None]),
    ],
)
def test_components_have_converged_whose_errors_are_within_the_tolerance(
    told: dict[str, Any], converged: list[bool | None]
) -> None:
    column = COLUMNS.index("converged")
    assert [row[column] for row in account(**told).rows()] == converged


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_table_of_any_format_is_the_same_however_its_blocks_are_cut(
    kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Z = np.random.default_rng(0).standard_normal((23, 2)).astype(dtype)
    names = np.array([f"s{i}" for i in range(23)])
    monkeypatch.setattr("shiftsvd.commands.tables.LINES", 3)
    monkeypatch.setattr("shiftsvd.commands.tables.ENTRIES", 2 * 7)
    file = io.BytesIO()
    with WRITERS[kind](file, Table(["a", "b"], 23, Z.dtype, names)) as write:
        write_rows([(0, Z[:9]), (9, Z[9:])], [write])
    content = io.BytesIO(file.getvalue())
    if kind == "npy":
        np.testing.assert_array_equal(np.load(content), Z)
        return
    pd = pytest.importorskip("pandas")
    read = pytest.importorskip("pyarrow.parquet").read_pandas if kind == "parquet" else None
    frame = pd.read_csv(content, float_precision="round_trip") if read is None else read(content).to_pandas()
    assert frame["sample"].tolist() == names.tolist()
    np.testing.assert_array_equal(frame[["a", "b"]].to_numpy(dtype), Z)


def test_numbers_in_single_precision_come_back_from_their_text() -> None:
    block = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32)
    with io.BytesIO() as file:
        with csv_table(file, Table(["a", "b"], 20, block.dtype)) as write:
            write(0, block)
        found = np.loadtxt(io.StringIO(file.getvalue().decode()), np.float32, delimiter=",", skiprows=1)
    np.testing.assert_array_equal(found, block)
