"""Files of other samples whose features are not all the same: matched by name, those of all files or those of any."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from shiftsvd.backends.selection import Among, SomeColumns, SomeRows
from shiftsvd.backends.selection import Places as Indices
from shiftsvd.backends.source import RowSource
from shiftsvd.backends.stacked import HeldRows, bytes_of
from shiftsvd.io.base import Labels, Opened, reading
from shiftsvd.io.limits import bounded, labels
from shiftsvd.runs.warned import notice

Join = Literal["inner", "outer"]
JOINS = get_args(Join)
Places = dict[str, int]


def common_features(
    paths: Sequence[Path], opened: Sequence[Opened], join: Join, memory_limit: int | str | None
) -> list[Opened]:
    named = [_named(path, each) for path, each in zip(paths, opened, strict=True)]
    if all(np.array_equal(names, named[0]) for names in named):
        return list(opened)
    places = [_places(path, names) for path, names in zip(paths, named, strict=True)]
    every = dict.fromkeys(chain.from_iterable(names.tolist() for names in named))
    common = [name for name in every if all(name in known for known in places)]
    if not common:
        raise ValueError(f"{paths[0]} and {len(paths) - 1} more have no feature in common; are they named alike?")
    taken = common if join == "inner" else list(every)
    _tell(paths, named, len(common), len(every), join)
    wanted = labels(paths[0], taken, memory_limit)
    found = list(zip(paths, opened, places, strict=True))
    if all(each.by_features and _ascend(known, taken) for _, each, known in found):
        some = [SomeRows(each.matrix, _places_of(known, taken)) for _, each, known in found]
        return [_with(each, matrix, wanted) for each, matrix in zip(opened, some, strict=True)]
    return [_taken(path, each, known, wanted, memory_limit) for path, each, known in found]


def _places_of(known: Places, names: Sequence[str]) -> Indices:
    return np.array([known[name] for name in names if name in known], np.intp)


def _ascend(known: Places, names: Sequence[str]) -> bool:
    places = _places_of(known, names)
    return len(places) == len(names) and bool(np.all(np.diff(places) > 0))


def _named(path: Path, opened: Opened) -> Labels:
    names = opened.names.features
    if names is None:
        raise ValueError(f"{path} has no names of features to match by; leave out join, where sizes have to agree")
    return names


def _places(path: Path, names: Labels) -> Places:
    known = {name: j for j, name in enumerate(names.tolist())}
    if len(known) < len(names):
        twice = next(name for j, name in enumerate(names.tolist()) if known[name] != j)
        raise ValueError(f"{path} must have features with names of their own to be joined, got {twice!r} twice")
    return known


def _tell(paths: Sequence[Path], named: Sequence[Labels], n_common: int, n_all: int, join: Join) -> None:
    counts = [len(names) for names in named]
    each = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    of_all = f"{len(paths)} files have {each} features, {n_common} in common of {n_all}"
    told = (
        f"the other {n_all - n_common} are left out" if join == "inner" else f"all {n_all} are taken, 0 where one lacks"
    )
    notice(f"{of_all}: {told}" if n_common < n_all else f"{of_all}, in different orders")


def _taken(path: Path, opened: Opened, known: Places, wanted: Labels, memory_limit: int | str | None) -> Opened:
    names = wanted.tolist()
    opened = _by_samples(path, opened, memory_limit) if opened.by_features else opened
    some = SomeColumns(opened.matrix, _places_of(known, names))
    at = np.array([j for j, name in enumerate(names) if name in known], np.intp)
    return _with(opened, some if len(at) == len(names) else Among(some, at, len(names)), wanted)


def _with(opened: Opened, matrix: RowSource, names: Labels) -> Opened:
    return replace(opened.with_features(names), matrix=matrix, features=None, places=None)


def _by_samples(path: Path, opened: Opened, memory_limit: int | str | None) -> Opened:
    source = opened.matrix
    with reading(path):
        bounded(f"{path}, which is stored by features and has them in another order,", bytes_of(source), memory_limit)
        held = source if isinstance(source, HeldRows) else HeldRows(source.read(0, source.shape[0]), source.name)
    return replace(opened, matrix=held.H, transposed=not opened.transposed)
