"""Worker processes with memory of their own: the same bits for any number of them, and after any of them is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.dask import DaskRows
from shiftsvd.events import Event, listening

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROWS, COLUMNS, CHUNKS = 300, 400, 12


def chunk(block_id: tuple[int, int], fuse: str = "") -> sparse.csr_array:
    """Counts of one chunk, made where they are needed; the worker that finds the fuse dies of it."""
    try:
        os.unlink(fuse)
    except OSError:
        pass
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    rng = np.random.default_rng(block_id[0])
    rates = np.random.default_rng(99).gamma(0.3, 1.0, (6, COLUMNS))[rng.integers(0, 6, ROWS)]
    return sparse.csr_array(rng.poisson(rates).astype(np.float32))


def array(fuse: Path | str = "") -> Any:
    """A sparse Dask array whose chunks are nowhere until a task makes them."""
    shape = ((ROWS,) * CHUNKS, (COLUMNS,))
    meta = sparse.csr_array((0, 0), dtype=np.float32)
    return da.map_blocks(chunk, fuse=str(fuse), chunks=shape, dtype=np.float32, meta=meta)


def fit(X: Any) -> ss.SVDResult:
    return ss.svd(X, 5, shift="mean", solver="lanczos", tol=1e-3, rng=0)


def same_bits(F: ss.SVDResult, G: ss.SVDResult) -> None:
    np.testing.assert_array_equal(F.S, G.S)
    np.testing.assert_array_equal(F.Vh, G.Vh)


@pytest.fixture(scope="module")
def alone() -> ss.SVDResult:
    """The fit by threads of this process."""
    return fit(array())


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of a cluster of so many worker processes (default 2)."""
    n_workers = getattr(request, "param", 2)
    with (
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("client", [1, 2, 4], indirect=True)
def test_result_does_not_depend_on_the_number_of_workers(client: Any, alone: ss.SVDResult) -> None:
    same_bits(fit(array()), alone)


def test_the_caller_s_cluster_is_used_and_chunks_that_are_there_are_not_made_again(
    client: Any, alone: ss.SVDResult, tmp_path: Path
) -> None:
    X = array(tmp_path / "fuse").persist()
    distributed.wait(X)
    (tmp_path / "fuse").touch()  # whoever made a chunk now would die
    same_bits(fit(X), alone)
    tasks = client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.task_prefixes))
    assert "shiftsvd-gram" in tasks
    assert isinstance(ss.as_operator(X), DaskRows)


def test_a_worker_that_is_killed_in_any_sweep_costs_only_time(client: Any, alone: ss.SVDResult, tmp_path: Path) -> None:
    fuse, deaths = tmp_path / "fuse", []

    def light(event: Event) -> None:
        """After each read: in the next one a worker will die."""
        if not fuse.exists():
            deaths.append(event.done)
            fuse.touch()

    fuse.touch()
    with listening(light):
        F = fit(array(fuse))
    same_bits(F, alone)
    assert set(range(1, F.info.n_passes + 1)) <= set(deaths)


SCRIPT = """
import os, signal, sys
import distributed
sys.path.insert(0, sys.argv[1])
from test_dask_cluster import array, fit
import shiftsvd as ss
from shiftsvd.events import listening
import numpy as np

def stop(event):
    if event.done >= float(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    with distributed.Client(sys.argv[2]) as client, ss.checkpoint(sys.argv[3]), listening(stop):
        F = fit(array())
    np.savez(sys.argv[5], S=F.S, Vh=F.Vh)
"""


def test_a_client_that_is_killed_goes_on_where_it_was(client: Any, alone: ss.SVDResult, tmp_path: Path) -> None:
    out, folder = tmp_path / "out.npz", tmp_path / "reads"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    address = client.scheduler.address
    for stop in ("3", "1e9"):
        command = [sys.executable, str(script), str(Path(__file__).parent), address, str(folder), stop, str(out)]
        code = subprocess.run(command, check=False).returncode
        if stop == "3":
            assert code == -signal.SIGKILL
            assert len(list(folder.glob("read-*.npz"))) in (2, 3)
    assert code == 0
    with np.load(out) as found:
        np.testing.assert_array_equal(found["S"], alone.S)
        np.testing.assert_array_equal(found["Vh"], alone.Vh)
