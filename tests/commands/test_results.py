"""The table of a fit: what it says of each component."""

from typing import Any

import pytest

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
