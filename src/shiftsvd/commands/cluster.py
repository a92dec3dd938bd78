"""Worker processes for a command: those of a running Dask scheduler, or new ones that end with the command."""

import logging
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

# Seconds to wait for the scheduler to answer, and then for its first worker.
PATIENCE = 10
# Time for a killed worker to restart. Dask's default is 15 seconds; a busy machine may need longer to start a process,
# and Dask would then wait forever without workers.
RESTART = "24 hours"
# Fail after this time without any worker: the machine cannot start one.
NO_WORKERS = "10 minutes"


@contextmanager
def workers(scheduler: str | None, n_workers: int | None) -> Iterator[None]:
    if scheduler is None and n_workers is None:
        yield
        return
    if find_spec("distributed") is None:
        raise ImportError("--scheduler and --workers need Dask. Install it with: pip install 'shiftsvd[dask]'")
    import distributed

    try:
        with (
            _local_cluster(distributed, n_workers) if scheduler is None else _running_scheduler(distributed, scheduler)
        ):
            yield
    except distributed.KilledWorker as error:
        raise OSError(
            f"{error.allowed_failures + 1} workers in a row died while computing the same block, probably because "
            "memory ran out. Use a smaller --memory, which makes blocks smaller, or fewer workers."
        ) from error
    except distributed.scheduler.NoWorkerError as error:
        raise OSError(
            f"All workers died, and none has started for {NO_WORKERS}. Use a smaller --memory or fewer workers, and "
            "check that other processes leave enough memory."
        ) from error
    except CancelledError as error:
        raise OSError(
            "The connection to the Dask scheduler was lost. If the command had --checkpoint, repeat it to continue "
            "where it stopped."
        ) from error


@contextmanager
def _local_cluster(distributed: Any, n_workers: int | None) -> Iterator[None]:
    import dask

    patience = {
        "distributed.deploy.lost-worker-timeout": RESTART,
        "distributed.scheduler.no-workers-timeout": NO_WORKERS,
    }
    # Port 0: Dask opens the dashboard's port even without a dashboard, and warns if another command has the default.
    quiet = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    with dask.config.set(patience):
        try:
            started = distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, silence_logs=logging.ERROR, **quiet
            )
        except RuntimeError as error:  # a process was killed while it started
            raise OSError(
                f"The worker processes did not start ({str(error).rstrip('.')}). Repeat the command. If it fails "
                "again, use fewer workers, and check that other processes leave enough memory."
            ) from error
        # Make this the default client: workers receive a copy of dask.config, and a client cannot be pickled.
        with started as cluster, distributed.Client(cluster):
            yield


@contextmanager
def _running_scheduler(distributed: Any, address: str) -> Iterator[None]:
    import dask

    try:
        # Do not make this the default client: it would remain the default if the scheduler does not answer.
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(f"No Dask scheduler answers at {address} ({error}). Start one with `dask scheduler`.") from error
    with client, dask.config.set(scheduler=client):
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise OSError(
                f"The Dask scheduler at {address} has no workers. Start one with `dask worker {address}`."
            ) from None
        yield
