"""Graphs over the chunks of a Dask array: one task for each chunk, and the sum of what they give in a tree."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from dask.array.optimization import optimize
from dask.base import get_scheduler
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.sizeof import sizeof

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.dask.tasks import Own, Shared, in_order, merged_here, part_of
from shiftsvd.events import read_part
from shiftsvd.runs.warned import warn

# Partial sums that one task adds; a fixed number, so that the order of the sums is that of the blocks.
ARITY = 4
# Bytes of data in a graph from which on it is worth a word that they travel in every read.
LARGE = 10**8

Graph = dict[Any, Any]


class Chunks:
    """The chunks of an array that is chunked by rows alone, and how they are loaded."""

    def __init__(self, X: Any) -> None:
        edges = np.cumsum([0, *X.chunks[0]])
        self.X = X
        # The chunks that hold rows, in order, and their numbers.
        self.numbers: dict[Rows, int] = {(int(lo), int(hi)): i for i, (lo, hi) in enumerate(pairwise(edges)) if hi > lo}

    def graph(self, name: str, own: list[Own], shared: Shared) -> tuple[Graph, list[Any]]:
        before, chunks = self._loads
        key = f"{name}-shared"
        keys = [(name, i, 0) for i in range(len(own))]
        tasks = {here: (partial(part_of, each), chunks[each.number], key) for here, each in zip(keys, own, strict=True)}
        return {**before, key: shared, **tasks}, keys

    @cached_property
    def _loads(self) -> tuple[Graph, dict[int, Any]]:
        graph = self.X.__dask_graph__()
        keys = {i: (self.X.name, i, 0) for i in self.numbers.values()}
        loads = dict(optimize(graph, list(keys.values())))
        _warn_of_data(loads)
        uses = Counter(other for task in loads.values() for other in task.dependencies)
        return loads, {i: _chunk(graph, loads, uses, key) for i, key in keys.items()}


def _chunk(graph: Any, loads: Graph, uses: Counter[Any], key: Any) -> Any:
    if key not in loads:
        return graph[key]  # a future: the chunk is on the cluster
    target = getattr(loads[key], "target", None)  # another name of a fused task
    if target in loads and uses[key] == 0 and uses[target] == 1:
        del loads[key]
        return loads.pop(target)
    return key if uses[key] else loads.pop(key)


def _warn_of_data(loads: Graph) -> None:
    client = getattr(get_scheduler(), "__self__", None)  # of Dask's own schedulers, which are functions, there is none
    held = 0 if client is None else sum(map(sizeof, loads.values()))
    if held > LARGE:
        warn(
            f"the Dask array holds {held / 1e6:.0f} MB of its data itself, and every read sends them to the workers; "
            "X = X.persist() sends them once",
        )


def named(what: str) -> str:
    return f"shiftsvd-{what}-{uuid4().hex}"


def summed(graph: Graph, name: str, keys: list[Any], merge: Callable[[Any, Any], Any]) -> Any:
    total = _tree(graph, name, keys, merge)
    with _Told(name, len(keys)) as told:
        (result,) = computed(graph, [total])
    if not told.any:  # a cluster tells nothing before it is done
        read_part(1.0)
    return result


def _tree(graph: Graph, name: str, keys: list[Any], merge: Callable[[Any, Any], Any]) -> Any:
    level = 0
    while len(keys) > 1:
        groups = [keys[first : first + ARITY] for first in range(0, len(keys), ARITY)]
        keys = [(f"{name}-sum-{level}", j) for j in range(len(groups))]
        graph.update({key: (partial(merged_here, merge), group) for key, group in zip(keys, groups, strict=True)})
        level += 1
    return keys[0]


class _Told(Callback):  # type: ignore[misc]
    """Tells of each block, where the tasks run in this process."""

    def __init__(self, name: str, n_blocks: int) -> None:
        super().__init__()
        self.name, self.n_blocks, self.any = name, n_blocks, False

    def _posttask(self, key: Any, *_: object) -> None:
        if isinstance(key, tuple) and key[0] == self.name:
            self.any = True
            read_part(1 / self.n_blocks)


def computed(graph: Graph, keys: list[Any]) -> tuple[Any, ...]:
    # A panel is in the graph once, on purpose: what a client scatters is lost with the worker that holds it.
    quiet = {"distributed.admin.large-graph-warning-threshold": "1TB"} if "distributed" in sys.modules else {}
    with dask.config.set(quiet):
        return tuple(map(in_order, dask.compute(*(Delayed(key, graph) for key in keys))))
