"""Fixtures of all tests; one BLAS thread for each worker, and children that heed an interrupt."""

import signal
import sys

import pytest
from threadpoolctl import threadpool_limits

from shiftsvd.runs import messages
from tests.support.blocks import cut_small
from tests.support.places import has

# Packages that an extension alone uses count as not installed where its folder was taken out.
USED_BY = {
    "scanpy": ("anndata", "scanpy"),
    "xarray": ("xarray", "h5netcdf"),
    "genetics": ("bed_reader", "pgenlib", "cyvcf2", "bgen"),
}
for extension, packages in USED_BY.items():
    if not has(extension):
        sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]

threadpool_limits(1, "blas")  # those of several workers would only wait for each other
# Tests interrupt what they start, which would not heed it where they themselves were started in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    """What a process says once, every test may hear."""
    messages.said.clear()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blocked loop of the library takes a few rows at a time, so that small matrices have many blocks."""
    cut_small(monkeypatch)
