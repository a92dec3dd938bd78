"""Several files as one matrix, matched by the names of samples or features."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.backends.entries import Among, SomeColumns, SomeRows
from shiftsvd.backends.source import HeldRows, OnTop, RowSource, SideBySide, bytes_of
from shiftsvd.errors import Part, Refused, Setting, few, plural
from shiftsvd.io.base import Labels, Opened, Orient, bounded, labels, reading, without_version
from shiftsvd.io.sniff import split_element
from shiftsvd.runs.memory import parse_bytes
from shiftsvd.runs.messages import notice

Join = Literal["inner", "outer"]
JOINS = get_args(Join)
Index = dict[str, int]


def common_features(
    paths: Sequence[Path], opened: Sequence[Opened], join: Join, memory_limit: int | str | None
) -> list[Opened]:
    own = list(map(_named, paths, opened))
    if _are_equal(own):
        return list(opened)
    named = with_same_ids(own)
    if n := int(np.count_nonzero(np.concatenate(named) != np.concatenate(own))):
        versions = f"the versions of {plural(n, 'id')} differ from those of an earlier file"
        notice(f"{several(paths)}: {versions}, and are ignored.")
    if _are_equal(named):
        return [replace(each.with_features(named[0]), features=None) for each in opened]
    places = list(map(_places, paths, named))
    names = _names_to_keep(paths, opened, places, join)
    wanted = labels(paths[0], names, memory_limit)
    at = [_at(known, names) for known in places]
    if all(each.by_features for each in opened) and all(len(j) == len(names) and np.all(np.diff(j) > 0) for j in at):
        return [_with(each, SomeRows(each.matrix, j), wanted) for each, j in zip(opened, at, strict=True)]
    by_samples = [_by_samples(path, each, memory_limit) for path, each in zip(paths, opened, strict=True)]
    parts = [_columns(each.matrix, known, names) for each, known in zip(by_samples, places, strict=True)]
    return [_with(each, part, wanted) for each, part in zip(by_samples, parts, strict=True)]


def _at(known: Index, names: Sequence[str]) -> Any:
    return np.array([known[name] for name in names if name in known], np.intp)


def _columns(source: RowSource, known: Index, names: Sequence[str]) -> RowSource:
    j = _at(known, names)
    found = SomeColumns(source, j)
    among = np.flatnonzero([name in known for name in names])
    return found if len(j) == len(names) else Among(found, among, len(names))


def _are_equal(named: Sequence[Labels]) -> bool:
    return all(np.array_equal(names, named[0]) for names in named)


def _names_to_keep(paths: Sequence[Path], opened: Sequence[Opened], places: Sequence[Index], join: Join) -> list[str]:
    every = list(dict.fromkeys(chain.from_iterable(places)))
    common = [name for name in every if all(name in known for known in places)]
    if not common:
        remedy = _other_names(opened) or (" Check that all files use the same kind of names.",)
        raise Refused(f"{several(paths)} have no feature in common.", *remedy)
    _notify(sorted(map(len, places)), len(common), len(every), join)
    return common if join == "inner" else every


def with_same_ids(named: Sequence[Labels]) -> list[Labels]:
    """Replace ids by those of the first file that has them in any version, unless several features of a file do."""
    bare = [[without_version(name) for name in names.tolist()] for names in named]
    repeated = {key for keys in bare for key, n in Counter(keys).items() if n > 1}
    first: dict[str, str] = {}
    for keys, names in zip(bare, named, strict=True):
        first = dict(zip(keys, names.tolist(), strict=True)) | first
    for key in repeated:
        del first[key]
    return [
        np.array([first.get(key, name) for key, name in zip(keys, names.tolist(), strict=True)], dtype=np.str_)
        for keys, names in zip(bare, named, strict=True)
    ]


def _other_names(opened: Sequence[Opened]) -> tuple[Part, ...]:
    ids = ((each.features.ids, np.asarray(each.names.features)) for each in opened if each.features is not None)
    if all(own is None or np.array_equal(own, names) for own, names in ids):
        return ()
    return " If all files have ids of genes, use ", Setting("var_names", "gene_ids"), " to match these."


def _named(path: Path, opened: Opened) -> Labels:
    names = opened.names.features
    if names is None:
        no_names = f"{path} has no feature names to match. Remove "
        raise Refused(no_names, Setting("join"), ". Files without names must have the same number of features.")
    return names


def _places(path: Path, names: Labels) -> Index:
    known = {name: j for j, name in enumerate(names.tolist())}
    if len(known) < len(names):
        twice = next(name for j, name in enumerate(names.tolist()) if known[name] != j)
        raise ValueError(
            f"{path} must have unique feature names to be joined, got {twice!r} twice. Rename one of them."
        )
    return known


def _notify(counts: list[int], n_common: int, n_all: int, join: Join) -> None:
    each = f"{counts[0]:,} to {counts[-1]:,}" if counts[0] < counts[-1] else f"{counts[0]:,}"
    of_all = f"{len(counts):,} files have {each} features each, {n_common:,} of {n_all:,} in common"
    others = n_all - n_common
    inner = f"{plural(others, 'other feature')} {'is' if others == 1 else 'are'} excluded."
    outer = f"All {n_all:,} are kept, with 0 where a file lacks a feature."
    notice(
        f"{of_all}. {inner if join == 'inner' else outer}" if n_common < n_all else f"{of_all}, in different orders."
    )


def _with(opened: Opened, matrix: RowSource, names: Labels) -> Opened:
    return replace(opened.with_features(names), matrix=matrix, features=None, places=None)


def _by_samples(path: Path, opened: Opened, memory_limit: int | str | None) -> Opened:
    if not opened.by_features:
        return opened
    source = opened.matrix
    with reading(path):
        whole = f"{path}, which must be read whole because its features are in another order,"
        bounded(whole, bytes_of(source), memory_limit)
        held = source if isinstance(source, HeldRows) else HeldRows(source.read(0, source.shape[0]), source.name)
    return replace(opened, matrix=held.H, transposed=not opened.transposed)


Read = Callable[[Path, int | str | None], Opened]
KINDS = {"rows": "samples", "columns": "features"}
_NAMELESS = ("", ".")  # PLINK writes "." for a variant without a name


def several(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def read_stack(
    paths: Sequence[Path],
    stack: Orient | None,
    read: Read,
    memory_limit: int | str | None,
    parts_only: bool = False,
    join: Join | None = None,
) -> Opened:
    # Compare names and sizes before any computation. Sources stay in their files; with `parts_only`, refuse files that
    # can only be read whole.
    if stack not in KINDS:
        raise Refused(
            *(f"{several(paths)} need ", Setting("stack", "rows"), " (if each file has different samples) or "),
            *(Setting("stack", "columns"), f" (if each file has different features), got {stack!r}"),
        )
    for path in paths:
        if not split_element(path)[0].exists():
            raise FileNotFoundError(f"{path} does not exist")
    _refuse_duplicates(paths)
    opened, left = [], None if memory_limit is None else parse_bytes(memory_limit)
    for path in paths:
        opened.append(read(path, left))
        if not isinstance(opened[-1].matrix, RowSource):
            if parts_only:
                whole = f"{path} cannot be read in blocks. Convert it to .h5ad, or remove "
                raise Refused(whole, Setting("stream", True), ".")
            with reading(path):
                opened[-1] = replace(opened[-1], matrix=HeldRows(opened[-1].matrix, str(path)))
            left = None if left is None else max(1, left - bytes_of(opened[-1].matrix))
    if join is not None:
        opened = common_features(paths, opened, join, memory_limit)
    return stacked(paths, stack, opened)


def stacked(paths: Sequence[Path], stack: Orient, opened: Sequence[Opened]) -> Opened:
    _refuse_duplicates(paths)
    by_features = _common(paths, opened)
    by_rows = (stack == "columns") == by_features  # whether the stored rows are stacked
    for path, each in zip(paths, opened if stack == "rows" else (), strict=False):
        if each.matrix.unstackable:
            raise ValueError(f"{path}: {each.matrix.unstackable}")
    shared, along = ("features", "samples") if stack == "rows" else ("samples", "features")
    known, orders = _orders(paths, opened, shared, by_rows)
    parts = [each.matrix if each.by_features == by_features else each.matrix.H for each in opened]
    parts = [part if order is None else SomeColumns(part, order) for part, order in zip(parts, orders, strict=True)]
    joined = _joined(paths, [getattr(each.names, along) for each in opened], along)
    samples, features = (known, joined) if stack == "columns" else (joined, known)
    matrix = (OnTop if by_rows else SideBySide)(parts)
    return Opened(matrix, features, samples, "columns") if by_features else Opened(matrix, samples, features)


def _orders(paths: Sequence[Path], opened: Sequence[Opened], what: str, by_rows: bool) -> tuple[Any, list[Any]]:
    """Return the names that files share, and their places in each file (None: in the same order)."""
    named, orders = [getattr(each.names, what) for each in opened], list[Any]()
    first = next((i for i, names in enumerate(named) if names is not None), 0)
    sizes = [each.matrix.shape[(what == "features") != each.by_features] for each in opened]
    for path, names, size in zip(paths, named, sizes, strict=True):
        orders.append(_order(paths[first], named[first], path, names, what, _other_names(opened)))
        if size != sizes[0]:
            raise ValueError(f"{path} must have the {sizes[0]:,} {what} of {paths[0]}, got {size:,}.")
        if orders[-1] is not None and not by_rows:
            raise ValueError(
                f"{path} has the {what} of {paths[first]} in another order and is stored by {what}, so it cannot "
                "be reordered while it is read. Write both files in the same order."
            )
    return named[first], orders


def _refuse_duplicates(paths: Sequence[Path]) -> None:
    known: dict[Path, Path] = {}
    for path in paths:
        place = path.resolve()
        if place in known:
            raise ValueError(f"{path} and {known[place]} are the same file. Pass each file once.")
        known[place] = path


def _common(paths: Sequence[Path], opened: Sequence[Opened]) -> bool:
    in_files = ((path, each) for path, each in zip(paths, opened, strict=True) if not isinstance(each.matrix, HeldRows))
    found = {each.by_features: path for path, each in in_files}
    if len(found) > 1:
        raise ValueError(
            f"{found[True]} is stored by features and {found[False]} by samples, so their blocks cannot be combined. "
            "Convert one of them with `shiftsvd convert`."
        )
    return next(iter(found), False)


def _order(
    first: Path, known: Labels | None, path: Path, names: Labels | None, what: str, other_names: tuple[Part, ...]
) -> Any:
    if known is None or names is None or np.array_equal(known, names):
        return None
    for missing, verb in ((_only(known, names), "lacks"), (_only(names, known), "has")):
        if missing:
            remedy: tuple[Part, ...] = (f" Keep the {what} that all files have.",)
            if what == "features":
                remedy = " Use ", Setting("join", "inner"), " to keep the common features.", *other_names
            raise Refused(f"{path} must have the {what} of {first}, but {verb} {missing}.", *remedy)
    if len(known) != len(names) or len(set(names.tolist())) < len(names):
        raise ValueError(
            f"{path} has the {what} of {first} in another order, and some names occur twice, so they cannot be "
            "matched. Make the names unique."
        )
    return _at({name: j for j, name in enumerate(names.tolist())}, known.tolist())


def _joined(paths: Sequence[Path], named: Sequence[Labels | None], what: str) -> Labels | None:
    if any(names is None for names in named):
        return None
    joined: Labels = np.concatenate([names for names in named if names is not None])
    seen: dict[str, int] = {}
    for i, names in enumerate(named if what == "features" else ()):
        new = set(names.tolist()) - set(_NAMELESS)  # type: ignore[union-attr]
        if again := sorted(new & seen.keys()):
            first, both = paths[seen[again[0]]], few(again)
            raise Refused(
                f"{paths[i]} must have other features than {first}, but both have {both}. Rename them in one "
                "file, or use ",
                *(Setting("stack", "rows"), " if the files have different samples."),
            )
        seen |= dict.fromkeys(new, i)
    return joined


def _only(these: Labels, others: Labels) -> str:
    there = set(others.tolist())
    names = [name for name in these.tolist() if name not in there]
    return few(names) if names else ""
