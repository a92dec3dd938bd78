"""Worker processes with memory of their own: the same bits for any number of them, and after any of them is killed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.events import Event, listening
from tests.support.matrices import decaying

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from shiftsvd.backends.dask import DaskRows
from tests.support.dask_arrays import CHUNKS, ROWS, counts, in_rows, same_components
from tests.support.dask_fits import array, fit, forked_workers
from tests.support.places import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def same_bits(F: ss.SVDResult, G: ss.SVDResult) -> None:
    np.testing.assert_array_equal(F.S, G.S)
    np.testing.assert_array_equal(F.Vh, G.Vh)


@pytest.fixture(scope="module")
def alone() -> ss.SVDResult:
    """The fit by threads of this process."""
    with dask.config.set(scheduler="threads"):
        return fit(array())


@contextmanager
def cluster_of(n_workers: int, threads: int = 1) -> Iterator[Any]:
    """So many worker processes."""
    with (
        # A worker that is not there so long after it was lost is given up, even if it was back and was killed again.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        forked_workers(),
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=threads, dashboard_address=":0") as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Any]:
    """The cluster of most tests: processes take seconds to start. Those that are killed come back."""
    with cluster_of(2, threads=2) as cluster:
        yield cluster


@pytest.fixture
def client(two_workers: Any) -> Iterator[Any]:
    """A client of two workers of two threads each."""
    with distributed.Client(two_workers) as client:
        yield client


@pytest.fixture
def client_of(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of a cluster of its own, of so many workers."""
    with cluster_of(request.param) as cluster, distributed.Client(cluster) as client:
        yield client


def same_as_by_threads(alone: ss.SVDResult) -> None:
    """Whoever has a client gets from its workers the bits of this process."""
    same_bits(fit(array()), alone)
    dense, _ = chunked("dense", (450, 13))
    same_bits(to_the_end(dense), by_threads(dense))


CHUNKINGS = [("dense", chunks) for chunks in CHUNKS] + [("sparse", rows) for rows in ROWS]


def chunked(kind: str, chunks: Any) -> tuple[Any, Any]:
    """A matrix as a Dask array, and in memory."""
    if kind == "sparse":
        X = counts(dtype=np.float64)
        return in_rows(X, chunks), X
    D = decaying((3000, 60), 0.8) + 3
    return da.from_array(D, chunks=chunks), D


def to_the_end(X: Any) -> ss.SVDResult:
    return ss.svd(X, 4, shift="mean", solver=ss.BlockLanczos(tol=1e-11), rng=0)


def by_threads(X: Any) -> ss.SVDResult:
    """The same by threads of this process."""
    with dask.config.set(scheduler="threads"):
        return to_the_end(X)


@pytest.mark.long
def test_result_of_two_workers_is_that_of_this_process(client: Any, alone: ss.SVDResult) -> None:
    same_as_by_threads(alone)


@pytest.mark.long
@pytest.mark.parametrize("client_of", [pytest.param(n, marks=pytest.mark.long) for n in (1, 3)], indirect=True)
def test_result_does_not_depend_on_the_number_of_workers(client_of: Any, alone: ss.SVDResult) -> None:
    same_as_by_threads(alone)


@pytest.mark.long
@pytest.mark.parametrize("client_of", [1, 2, 4], indirect=True)
def test_every_chunking_gives_the_bits_of_any_number_of_workers_and_the_values_in_memory(client_of: Any) -> None:
    for chunking in CHUNKINGS:
        Y, X = chunked(*chunking)
        same_bits(to_the_end(Y), by_threads(Y))
        if len(client_of.scheduler_info()["workers"]) == 2:
            same_components(Y, X)  # values to 1e-10, subspaces and left vectors too


@pytest.mark.long
def test_the_caller_s_cluster_is_used_and_chunks_that_are_there_are_not_made_again(
    client: Any, alone: ss.SVDResult, tmp_path: Path
) -> None:
    X = array(tmp_path / "fuse").persist()
    distributed.wait(X)
    (tmp_path / "fuse").touch()  # whoever made a chunk now would die
    with distributed.get_task_stream(client) as stream:
        same_bits(fit(X), alone)
    assert any("shiftsvd-gram" in str(task["key"]) for task in stream.data)
    assert isinstance(ss.as_operator(X), DaskRows)


@pytest.mark.long
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
    assert fuse.exists()  # lit after the last read: all others have burnt
    np.testing.assert_allclose(np.asarray(F.U), np.asarray(alone.U), atol=1e-6)
    assert not fuse.exists()


@pytest.mark.long
def test_data_that_travel_in_every_read_are_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.backends.dask.LARGE", 10**5)
    D = decaying((2000, 20), 0.8)
    X = da.from_array(D, chunks=(500, 20))
    ss.svd(X, 2, shift="mean", solver="gram")  # threads: nothing travels
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0"):
        with pytest.warns(UserWarning, match=r"contains 0 MB of data.*X\.persist\(\) to send the data once"):
            ss.svd(X, 2, shift="mean", solver="gram")
        ss.svd(X.persist(), 2, shift="mean", solver="gram")
        ss.svd(array(), 2, shift="mean", solver="gram")


SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import distributed
import numpy as np
import shiftsvd as ss
from shiftsvd.events import listening
from tests.support.dask_fits import array, fit

address, reads, stop, out = sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5]
fuse = Path(reads).with_name("fuse")

def light(done):
    if done == stop:
        part = fuse.with_name("part")
        part.write_text(str(os.getpid()))
        part.rename(fuse)

if __name__ == "__main__":
    light(0)
    with distributed.Client(address), ss.checkpoint(reads), listening(lambda event: light(event.done)):
        F = fit(array(fuse))
    np.savez(out, S=F.S, Vh=F.Vh)
"""


class Killed:
    """A client in a process of its own, which a worker kills in the midst of a read."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.address, self.folder, self.out = client.scheduler.address, folder / "reads", folder / "out.npz"
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT)

    def __call__(self, stop: int) -> int:
        """Go on, to be killed in the read after `stop` of this run; the exit code."""
        args = (ROOT, self.address, self.folder, stop, self.out)
        return subprocess.run([sys.executable, self.script, *map(str, args)], check=False).returncode

    def kept(self) -> int:
        """Reads that need not be made again."""
        return len(list(self.folder.glob("read-*.npz")))

    def ended_with(self, F: ss.SVDResult) -> None:
        """The bits of an unbroken run."""
        assert not self.folder.exists()
        with np.load(self.out) as found:
            np.testing.assert_array_equal(found["S"], F.S)
            np.testing.assert_array_equal(found["Vh"], F.Vh)


@pytest.mark.long
def test_a_client_that_is_killed_goes_on_where_it_was(client: Any, alone: ss.SVDResult, tmp_path: Path) -> None:
    run = Killed(client, tmp_path)
    assert run(3) == -signal.SIGKILL
    assert run.kept() == 3
    assert run(-1) == 0
    run.ended_with(alone)


@pytest.mark.long
def test_a_client_that_is_killed_in_each_read_in_turn_ends_with_the_same_bits(
    client: Any, alone: ss.SVDResult, tmp_path: Path
) -> None:
    run, reads = Killed(client, tmp_path), alone.info.n_passes + 1  # one more for the moments
    assert run(0) == -signal.SIGKILL
    for read in range(1, reads):  # what was read before is replayed: each run makes one read, and dies in the next
        assert run(1) == -signal.SIGKILL
        assert run.kept() == read
    assert run(-1) == 0
    run.ended_with(alone)


@pytest.mark.long
def test_twenty_exact_fits_by_workers_with_threads_have_the_bits_of_one_by_this_process(client: Any) -> None:
    X = da.random.default_rng(0).standard_normal((900, 200), chunks=(100, 200))
    with dask.config.set(scheduler="threads"):
        want = ss.svd(X, 5, shift="mean", solver="exact")
    for _ in range(20):
        same_bits(ss.svd(X, 5, shift="mean", solver="exact"), want)
