"""Worker processes for a command: those of a scheduler that is there, or some that live as long as the command."""

import logging
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

# Seconds that a scheduler has to answer, and its workers to be there.
PATIENCE = 10
# A killed worker is started again; one that is not there so long after its death is given up for good. Dask gives up
# after 15 seconds, which a start on a busy machine may take, and without workers a command would wait forever.
COMING_BACK = "24 hours"
# Without any worker for as long as this, none will come: the machine cannot start one.
ALONE = "10 minutes"


@contextmanager
def workers(scheduler: str | None, n_workers: int | None) -> Iterator[None]:
    """Compute on the workers of the scheduler at this address, on `n_workers` new processes, or in this process."""
    if scheduler is None and n_workers is None:
        yield
        return
    if find_spec("distributed") is None:
        raise ImportError("--scheduler and --workers need Dask: pip install 'shiftsvd[dask]'")
    import distributed

    try:
        with _local(distributed, n_workers) if scheduler is None else _there(distributed, scheduler):
            yield
    except distributed.KilledWorker as error:
        raise OSError(
            f"a block was lost with {error.allowed_failures + 1} workers one after another, most likely for want of "
            "memory; give a smaller --memory, which makes blocks smaller, or fewer workers"
        ) from error
    except distributed.scheduler.NoWorkerError as error:
        raise OSError(
            "the workers were lost and do not start again; give a smaller --memory or fewer workers, and see whether "
            "other processes take the memory"
        ) from error
    except CancelledError as error:
        raise OSError("the scheduler is gone; with --checkpoint the same command goes on where it was") from error


@contextmanager
def _local(distributed: Any, n_workers: int | None) -> Iterator[None]:
    import dask

    patience = {
        "distributed.deploy.lost-worker-timeout": COMING_BACK,
        "distributed.scheduler.no-workers-timeout": ALONE,
    }
    # The port is opened without a dashboard too, and Dask warns where another command has the usual one.
    quiet = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    with (
        dask.config.set(patience),
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, silence_logs=logging.ERROR, **quiet
        ) as cluster,
        # As the default, not by the settings: a worker is started with the settings, and a client cannot be sent to it.
        distributed.Client(cluster),
    ):
        yield


@contextmanager
def _there(distributed: Any, address: str) -> Iterator[None]:
    import dask

    try:
        # Not as the default: a client that is not answered would go on being that.
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(f"no scheduler answers at {address} ({error}); start one: dask scheduler") from error
    with client, dask.config.set(scheduler=client):
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise OSError(f"the scheduler at {address} has no workers; start some: dask worker {address}") from None
        yield
