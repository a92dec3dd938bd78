"""A fit whose chunks can be made to fail, for processes of their own."""

import os
import signal
from multiprocessing import get_all_start_methods
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

HEIGHT, COLUMNS, BLOCKS = 300, 400, 12


def chunk(block_id: tuple[int, int], fuse: str = "") -> sparse.csr_array:
    """Counts of one chunk, made where they are needed; whoever finds the fuse kills the process that it names."""
    try:
        whom = int(Path(fuse).read_text() or os.getpid())
        os.unlink(fuse)
    except OSError:
        pass
    else:
        os.kill(whom, signal.SIGKILL)
    rng = np.random.default_rng(block_id[0])
    rates = np.random.default_rng(99).gamma(0.3, 1.0, (6, COLUMNS))[rng.integers(0, 6, HEIGHT)]
    return sparse.csr_array(rng.poisson(rates).astype(np.float32))


def array(fuse: Path | str = "") -> Any:
    """A sparse Dask array whose chunks are nowhere until a task makes them."""
    shape = ((HEIGHT,) * BLOCKS, (COLUMNS,))
    meta = sparse.csr_array((0, 0), dtype=np.float32)
    return da.map_blocks(chunk, fuse=str(fuse), chunks=shape, dtype=np.float32, meta=meta)


def fit(X: Any) -> ss.SVDResult:
    return ss.svd(X, 5, shift="mean", solver="lanczos", tol=1e-3, rng=0)


def forked_workers() -> Any:
    """Settings by which worker processes begin as copies of one that has imported Dask: sooner, where there is fork."""
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    return dask.config.set({"distributed.worker.multiprocessing-method": method})
