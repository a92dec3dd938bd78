"""Meters of a cluster: memory of its processes, bytes that travel, seconds of its tasks."""

import os
import resource
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from distributed import Client, Worker
from distributed.diagnostics.plugin import SchedulerPlugin


class Tasks(SchedulerPlugin):
    """How many tasks ran, and the seconds that they took: of blocks, and of sums of their results."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.number: Counter[str] = Counter()

    def transition(self, key, start, finish, *args, startstops=(), **kwargs) -> None:
        """A task is done: what it computed and what it waited for."""
        if start != "processing" or finish != "memory" or not isinstance(key, tuple):
            return
        kind = "sum" if "-sum-" in key[0] else key[0].split("-")[1]
        self.number[kind] += 1
        for part in startstops or ():
            self.seconds[kind, part["action"]] += part["stop"] - part["start"]

    def mean(self, kind: str, action: str = "compute") -> float:
        """Seconds of one task."""
        return self.seconds[kind, action] / max(self.number[kind], 1)


class Sweeps:
    """A listener: when each read of the data was over, and the memory of this process then."""

    def __init__(self) -> None:
        self.done = 0.0
        self.moments: list[tuple[float, int]] = [(time.perf_counter(), memory())]

    def __call__(self, event) -> None:
        """One more read."""
        if event.done > self.done:
            self.done = event.done
            self.moments.append((time.perf_counter(), memory()))

    @property
    def seconds(self) -> list[float]:
        """Of each read, with what the client computes after it."""
        times = [when for when, _ in self.moments]
        return [b - a for a, b in pairwise(times)]

    @property
    def first_memory(self) -> int:
        """Bytes of this process after the first read."""
        return self.moments[1][1]

    @property
    def most_memory(self) -> int:
        """The most bytes of this process after any read."""
        return max(bytes_ for _, bytes_ in self.moments)


def process() -> int:
    """Which process this is: a worker that has been ended and started again is another one."""
    return os.getpid()


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory() -> int:
    """The memory of this process, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def sent(dask_worker: Worker) -> int:
    """Bytes of results that a worker has sent to others, or to the client."""
    return dask_worker.transfer_outgoing_bytes_total


def between_workers(client: Client) -> int:
    """Bytes of results that workers have sent so far."""
    return sum(client.run(sent).values())


def loopback() -> int:
    """Bytes that went over the network device of this machine so far, whoever sent them (Linux)."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))
