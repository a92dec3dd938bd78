"""The table of a fit: what it says of each component."""

import io
from typing import Any

import numpy as np
import pytest

from shiftsvd.commands.tables import Table, csv_table
from shiftsvd.commands.writing import COLUMNS, Result


def account(**told: Any) -> Result:
    """The account of a fit of three components, with a tolerance of 1e-4."""
    known: dict[str, Any] = {"n_components": 3, "residuals": None, "completed": None, "converged": True}
    for name in ("singular_values", "explained_variance", "explained_variance_ratio"):
        known[name] = [3.0, 2.0, 1.0]
    return Result(known | told, None, 1e-4)


@pytest.mark.parametrize(
    ("told", "converged"),
    [
        ({"value_errors": [1e-6, 1e-4, 1e-9]}, [True, True, True]),
        ({"value_errors": [1e-6, 2e-4, 1e-9], "converged": False}, [True, False, True]),
        ({"value_errors": [1e-6, None, 1.0], "converged": False}, [True, False, False]),
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


def test_numbers_in_single_precision_come_back_from_their_text() -> None:
    block = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32)
    with io.BytesIO() as file:
        with csv_table(file, Table(["a", "b"], 20, block.dtype)) as write:
            write(0, block)
        found = np.loadtxt(io.StringIO(file.getvalue().decode()), np.float32, delimiter=",", skiprows=1)
    np.testing.assert_array_equal(found, block)
