"""Files that are made to do harm, of some sixty classes: refused or read, and nothing of other files is said."""

import os
import subprocess
import sys

import pytest

from tests.support.hostile_files import CASES
from tests.support.places import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are those of Linux")
def test_hostile_files_neither_crash_nor_hang_nor_reach_other_files() -> None:
    for package in ("h5py", "zarr", "pyarrow", "xarray", "h5netcdf", "bed_reader", "pgenlib", "pandas"):
        pytest.importorskip(package)
    assert len(CASES) >= 40
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.hostile_run", str(len(CASES))],
        cwd=ROOT,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stdout + child.stderr[-2000:]
