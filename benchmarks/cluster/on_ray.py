"""A matrix in a file on a cluster of Ray: an adapter of `Reread`, and a fit on it beside the same fit in memory.

The workers read their own blocks: the file has the same path on all machines. Prints errors of values and vectors,
whether one worker, and a fit during which a worker is killed, give the same bits, and the lines of the adapter. Needs
ray. Run: python -m benchmarks.cluster.on_ray [--cells 20000] [--workers 2]
"""

import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np
import ray
from scipy import sparse

import shiftsvd as ss
from benchmarks import data
from benchmarks.structure.lines import code_lines
from shiftsvd.backends.files import DiskRows, Merge, Panels, Reread, block_part, in_double, rows_operator
from shiftsvd.backends.source import rows_of
from shiftsvd.events import record_read
from shiftsvd.io import convert, open_matrix
from shiftsvd.numerics.orth import folded
from shiftsvd.operators import LowRank, Operator, Vector

ARITY = 4  # results that a task adds
AT_ONCE = 32  # blocks whose rows are collected by the client at once


@ray.remote  # a task of a worker that dies is repeated by another one
def part_of(shared: tuple[Any, ...], rows: tuple[int, int], left: Any, own: Panels) -> Any:
    """Read rows and compute their part of a result."""
    source, what, panels, right, full, room = shared
    shift = None if left is None else LowRank(left, right)
    A = rows_operator(rows_of(source, *rows), shift, full, *source.place(rows[0]), room)
    return block_part(what, A, *panels, *own)


@ray.remote
def merged(merge: Merge | None, *parts: Any) -> Any:
    """Add results in double, or merge them, in the order of their rows."""
    total = parts[0] if merge else parts[0].astype(np.result_type(parts[0], np.float64))
    for part in parts[1:]:
        total = merge(total, part) if merge else total + part
    return total


@dataclass(frozen=True, eq=False, repr=False)
class RayRows(Reread):
    """Matrix in a file minus its shift, whose blocks are read and multiplied by tasks of Ray."""

    file: DiskRows  # without a shift
    shift: LowRank | None = None
    memory_limit: int | str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    n_threads: int | None = field(default=None, init=False)
    most_columns: ClassVar[int] = 64

    def __post_init__(self) -> None:
        """Take shape and types from the file."""
        self.hold(self.file.shape, self.file.stored_dtype, self.file.sparse)

    stored = property(lambda self: self.file.stored)
    fingerprint = property(lambda self: f"Ray {self.file.fingerprint}")

    def blocks(self) -> list[tuple[int, int]]:
        """Return the blocks of the file."""
        return self.file.blocks()

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "RayRows":
        """Return ``diag(2^rows) A diag(2^cols)``."""
        shift = self.shift and self.shift.ldexp(rows, cols)
        return replace(self, file=self.file.ldexp(rows, cols), shift=shift, memo=self.memo_of("counts"))

    def triangle(self, weights: Vector | None = None) -> Any:
        """Return R of a QR decomposition, from those of the blocks."""
        return self._total("triangle", (), (in_double(weights),), folded)

    def _block(self, rows: tuple[int, int]) -> Operator:
        return replace(self.file, shift=self.shift)._block(rows)

    def _parts(self, what: str, panels: Panels, own: Panels) -> Iterator[Any]:
        full = self.full if self.sparse and self.shift is not None else None
        right = None if self.shift is None else self.shift.R
        shared = ray.put((self.file.source, what, panels, right, full, 4 * self.file.block_bytes))
        for lo, hi in self.blocks():
            left = None if self.shift is None else self.shift.L[lo:hi]
            yield part_of.remote(shared, (lo, hi), left, tuple(None if P is None else P[lo:hi] for P in own))

    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any:
        # The shape of the tree depends on the number of blocks alone, and so do the bits.
        parts = [*self._parts(what, panels, own)]
        while len(parts) > 1:
            groups = [parts[first : first + ARITY] for first in range(0, len(parts), ARITY)]
            parts = [merged.remote(merge, *group) for group in groups]
        total = ray.get(parts[0])
        record_read(1.0)
        return total if merge else np.asarray(total, np.result_type(total, np.float64))

    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]:
        waiting: deque[Any] = deque()
        blocks = self.blocks()
        parts, firsts = self._parts(what, panels, ()), iter(blocks)
        for part in parts:
            waiting.append(part)
            if len(waiting) == AT_ONCE:
                yield next(firsts)[0], ray.get(waiting.popleft())
                record_read(1 / len(blocks))
        for part in waiting:
            yield next(firsts)[0], ray.get(part)
            record_read(1 / len(blocks))


def on_ray(A: Operator) -> RayRows:
    """Return a matrix that is read from its file, transformed or not, as one that Ray reads."""
    if not isinstance(A, DiskRows):
        raise TypeError(
            f"expected a matrix that is read from its file, got {type(A).__name__}. Open it with stream=True."
        )
    return RayRows(replace(A, shift=None), A.shift, A.memory_limit)


def pca() -> ss.PCA:
    """Return the estimator of all fits; Lanczos, which reads the file for each step."""
    return ss.PCA(50, solver="lanczos", tol=1e-6, random_state=0)


def fitted(A: Any, workers: int, killing: bool = False) -> tuple[ss.PCA, float]:
    """Fit on new workers, of which one is killed after a second, and return the seconds too."""
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        pid = ray.get(ray.remote(lambda: os.getpid()).remote())
        if killing:
            threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
        begun = time.monotonic()
        return pca().fit(on_ray(A)), time.monotonic() - begun
    finally:
        ray.shutdown()


@click.command()
@click.option("--cells", default=20_000)
@click.option("--workers", default=2)
def main(cells: int, workers: int) -> None:
    """Fit on Ray, on one worker, and while a worker dies, beside the fit in memory."""
    X = data.counts(cells)
    memory = pca().fit(X)
    with tempfile.TemporaryDirectory() as folder:
        sparse.save_npz(f"{folder}/X.npz", X)
        convert(f"{folder}/X.npz", f"{folder}/X.h5ad")
        A, _ = open_matrix(f"{folder}/X.h5ad", stream=True, memory_limit="100MB")
        found, seconds = fitted(A, workers)
        others = [fitted(A, 1)[0], fitted(A, workers, killing=True)[0]]
    error = np.abs(found.singular_values_ / memory.singular_values_ - 1).max()
    apart = np.abs(found.components_ @ memory.components_.T - np.eye(50)).max()
    alike = [np.array_equal(found.components_, other.components_) for other in others]
    print(f"{X.shape[0]:,} x {X.shape[1]:,} in {len(A.blocks())} blocks, {workers} workers, Ray {ray.__version__}:")
    print(f"  relative error of the values {error:.1e}, V^T V - 1 between both at most {apart:.1e}, {seconds:.1f} s")
    print(f"  same bits on one worker: {alike[0]}; after a worker was killed: {alike[1]}")
    lines = code_lines(Path(__file__).read_text("utf-8").partition("\ndef pca")[0])
    print(f"  lines of the adapter: {lines}")


if __name__ == "__main__":
    main()
