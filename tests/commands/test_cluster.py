"""`shiftsvd fit` on Dask workers: what one process would write, whoever is killed, and nobody is left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.commands.cluster import workers
from shiftsvd.io import convert, open_matrix
from tests.support.matrices import decaying

pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")  # comes with distributed

from shiftsvd.backends.dask import on_workers
from tests.support.commands import invoke
from tests.support.dask_fits import forked_workers

pytestmark = pytest.mark.timeout(600)  # processes that start others take their time on a machine that is busy

# The least memory that cuts into blocks of 1 MiB.
SMALL = ("--memory", "32M")


@pytest.fixture(autouse=True, scope="module")
def sooner() -> Iterator[None]:
    """Workers that this process starts begin sooner; those of commands in processes of their own begin as always."""
    with forked_workers():
        yield


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same counts in three kinds of files, each of several blocks."""
    pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(5)
    X = rng.poisson(rng.gamma(0.3, 1.0, (6, 60))[rng.integers(0, 6, 8000)]).astype(np.float64)
    np.save(folder / "X.npy", X)
    sparse.save_npz(folder / "X.npz", sparse.csr_array(X))
    convert(folder / "X.npz", folder / "X.zarr")
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dense data of some twenty blocks, whose values fall slowly."""
    path = tmp_path_factory.mktemp("large") / "X.npy"
    np.save(path, decaying((20_000, 120), 0.97) + 1)
    return path


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("X.npy", "--workers", 2, "--scheduler", "tcp://127.0.0.1:1"), "exclude each other"),
        (("-", "--format", "npy", "--workers", 2), "cannot read standard input"),
        (("X.npy", "--workers", 0), "x>=1"),
    ],
)
def test_wrong_options_are_refused(args: tuple[Any, ...], message: str, stores: Path) -> None:
    args = tuple(stores / arg if arg == "X.npy" else arg for arg in args)
    result = invoke("fit", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_file_that_can_only_be_read_whole_is_refused_with_the_remedy(stores: Path) -> None:
    result = invoke("fit", stores / "X.npz", "--workers", 2)
    assert result.exit_code == 1
    assert "cannot be read in blocks. Convert the file to .h5ad, or remove --scheduler and --workers" in result.stderr


def test_dask_that_is_not_there_is_named(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.commands.cluster.find_spec", lambda name: None)
    result = invoke("fit", stores / "X.npy", "--workers", 2)
    assert result.exit_code == 1
    assert "pip install 'shiftsvd[dask]'" in result.stderr


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "foo://bar:3"])
def test_a_scheduler_that_is_not_there_is_named_at_once(
    address: str, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftsvd.commands.cluster.PATIENCE", 0.5)
    result = invoke("fit", stores / "X.npy", "--scheduler", address)
    assert result.exit_code == 1
    assert f"No Dask scheduler answers at {address}" in result.stderr
    assert result.stderr.count("\n") == 1


# --- processes of the command's own ---------------------------------------------------------------------------


@pytest.mark.long
def test_workers_write_what_one_process_writes(stores: Path, tmp_path: Path) -> None:
    # The bits of dense data: below. Other kinds of files: tests/backends/dask/test_dask_sources.py
    line = ("fit", stores / "X.zarr", "-k", 4, "--tol", 1e-12, "--scores", "npy", "--no-report", "--json")
    plain = invoke(*line, "-o", tmp_path / "plain")
    spread = invoke(*line, "-o", tmp_path / "spread", "--workers", 2, *SMALL, "--progress", "json", "--quiet")
    assert (plain.exit_code, spread.exit_code) == (0, 0), spread.stderr
    told, want = json.loads(spread.stdout), json.loads(plain.stdout)
    assert told["shape"] == want["shape"]
    assert told["stored"] == want["stored"]
    assert [path.name for path in sorted((tmp_path / "spread").iterdir())] == [
        path.name for path in sorted((tmp_path / "plain").iterdir())
    ]
    np.testing.assert_allclose(told["singular_values"], want["singular_values"], rtol=1e-10)
    models = [ss.load_model(tmp_path / out / "model.safetensors") for out in ("spread", "plain")]
    np.testing.assert_allclose(models[0].components_, models[1].components_, atol=1e-10)
    Z = [np.load(tmp_path / out / "scores.npy") for out in ("spread", "plain")]
    np.testing.assert_allclose(Z[0], Z[1], atol=1e-8)


def line_of(file: Path, *more: object) -> list[str]:
    """The command in a process of its own, telling of every read."""
    args = ("fit", file, "-k", 5, "--tol", 1e-6, "--solver", "lanczos", "--json", "--progress", "json", *SMALL, *more)
    return [sys.executable, "-c", "from shiftsvd.cli import main; main()", *map(str, args)]


def bits(told: dict[str, Any]) -> list[float]:
    return list(told["singular_values"])


@pytest.fixture(scope="module")
def unbroken(large: Path) -> list[float]:
    """The values by threads of this process, from the same blocks."""
    A = on_workers(open_matrix(large, stream=True, memory_limit=SMALL[1])[0])
    pca = ss.PCA(5, solver="lanczos", tol=1e-6, random_state=0, memory_limit=SMALL[1]).fit(A)
    return [float(value) for value in pca.singular_values_]


@contextmanager
def running(line: list[str], after: float, act: Callable[[Any], None]) -> Iterator[tuple[Any, list[Any]]]:
    """A command, its descendants as they were after so many reads, when `act` was done to it."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for told in process.stderr:
                if told.startswith("{") and json.loads(told)["done"] >= after:
                    break
            else:
                pytest.fail("the command told of no reads")
            family = psutil.Process(process.pid).children(recursive=True)
            assert process.poll() is None
            act(process)
            yield process, family
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
    ],
)
def test_no_worker_outlives_its_command_which_goes_on_when_repeated(
    number: signal.Signals, code: int, large: Path, tmp_path: Path, unbroken: list[float]
) -> None:
    reads = tmp_path / "reads"
    line = line_of(large, "--workers", 2, "--checkpoint", reads)
    with running(line, 2, lambda process: process.send_signal(number)) as (process, family):
        _, stderr = process.communicate()
        assert process.returncode == code, stderr
        assert len(family) >= 2
        assert psutil.wait_procs(family, timeout=60)[1] == []
    assert len(list(reads.glob("read-*.npz"))) >= 1
    with running(line, 2, lambda _: None) as (process, family):
        stdout, stderr = process.communicate()
        assert process.returncode == 0, stderr
        assert psutil.wait_procs(family, timeout=60)[1] == []
    assert bits(json.loads(stdout)) == unbroken
    assert not reads.exists()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_worker_that_takes_its_time_to_come_back_is_not_given_up() -> None:
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}), workers(None, 1):
        os.kill(dask.delayed(os.getpid)().compute(), signal.SIGKILL)
        assert dask.delayed(abs)(-3).compute() == 3


@pytest.mark.long
@pytest.mark.timeout(120)
def test_workers_that_do_not_start_again_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.commands.cluster.NO_WORKERS", "1s")
    delayed = pytest.importorskip("dask").delayed

    def lose_the_worker() -> None:
        with workers(None, 1):
            (nanny,) = pytest.importorskip("distributed").default_client().cluster.workers.values()
            monkeypatch.setattr(nanny, "instantiate", None)
            os.kill(delayed(os.getpid)().compute(), signal.SIGKILL)
            delayed(abs)(-3).compute()

    with pytest.raises(OSError, match="All workers died, and none has started"):
        lose_the_worker()


@pytest.mark.long
def test_workers_that_are_killed_while_they_start_are_an_error_in_words(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(**_: object) -> None:
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", killed)
    result = invoke("fit", stores / "X.npy", "-k", 2, *SMALL, "--workers", 2)
    assert result.exit_code == 1
    assert "Error: The worker processes did not start (Nanny failed to start). Repeat the command." in result.stderr
    assert "Traceback" not in result.stderr


def test_two_commands_at_once_warn_of_nothing() -> None:
    with workers(None, 1), workers(None, 1):
        assert pytest.importorskip("dask").delayed(abs)(-3).compute() == 3


# --- a scheduler that is there --------------------------------------------------------------------------------


@contextmanager
def started(*args: object) -> Iterator[Any]:
    """A part of a cluster, by the command line of Dask."""
    line = [sys.executable, "-m", *map(str, args)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def address() -> Iterator[str]:
    """Of a scheduler without workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"):
        for _ in range(1200):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"tcp://127.0.0.1:{port}"


@contextmanager
def worker(address: str, folder: Path) -> Iterator[Any]:
    """One that is not started again when it is killed."""
    alone = ("--nthreads", 1, "--no-nanny", "--no-dashboard", "--local-directory", folder)
    with started("distributed.cli.dask_worker", address, *alone) as process:
        yield process


@pytest.mark.long
def test_a_scheduler_without_workers_is_named(address: str, stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.commands.cluster.PATIENCE", 5)
    result = invoke("fit", stores / "X.npy", "--scheduler", address)
    assert result.exit_code == 1
    assert f"has no workers. Start one with `dask worker {address}`" in result.stderr


@pytest.mark.long
def test_workers_of_a_scheduler_do_it_and_one_that_is_killed_costs_only_time(
    address: str, large: Path, tmp_path: Path, unbroken: list[float]
) -> None:
    distributed = pytest.importorskip("distributed")
    with worker(address, tmp_path / "a") as doomed, worker(address, tmp_path / "b") as other:
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2)
        with running(line_of(large, "--scheduler", address), 2, lambda _: doomed.kill()) as (process, _):
            stdout, stderr = process.communicate()
            assert process.returncode == 0, stderr
        assert other.poll() is None  # it is not ours to end
        told = json.loads(stdout)
    assert bits(told) == unbroken
    assert told["n_passes"] >= 3  # and the read of the means; the worker was killed after two
