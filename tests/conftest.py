"""Fixtures of all tests, and one BLAS thread for each worker: those of several would only wait for each other."""

import pytest
from threadpoolctl import threadpool_limits

from shiftsvd.runs import warned
from tests.support.blocks import cut_small

threadpool_limits(1, "blas")


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    """What a process says once, every test may hear."""
    warned.said.clear()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blocked loop of the library takes a few rows at a time, so that small matrices have many blocks."""
    cut_small(monkeypatch)
