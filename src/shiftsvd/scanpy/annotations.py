"""Columns of obs and var in files, by name, and copies of data frames."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.extend.files import (
    Column,
    FeatureTypes,
    Labels,
    Opened,
    Orient,
    Places,
    Tree,
    column,
    column_names,
    format_of,
    is_array,
    mark,
    optional,
    read_files,
)
from shiftsvd.extend.running import Notice
from shiftsvd.scanpy.files import frames_of, is_anndata, opened_tree

_WHOLE: Final = ("categories", "__categories")  # which have no value for each row
_OF_DIMENSIONS: Final = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # which point into the other file
_DEEPEST, _MOST = 2, 20  # groups within each other, of a frame, and parts of one that is a column
_TEXT: Final = 64  # bytes of a text with what a file keeps for it, about


def copy_columns(tree: Tree, frame: str, target: Any, places: Places | None) -> None:
    source = tree.root[frame]
    names = [name for name in column_names(source) if name not in target]
    for name in names:
        if is_array(source) or "__categories" in source:  # as older versions have written them
            _write_older(target, name, column(tree, source, name), places)
        else:
            _copy(tree, source[name], target, name, places)
    target.attrs["column-order"] = np.array(names, optional("h5py", "hdf5").string_dtype()) if names else np.empty(0)


def bytes_of_columns(tree: Tree, frame: str) -> int:
    return sum(_TEXT * int(np.prod(node.shape)) for node in _arrays(tree.root[frame]))


def _arrays(node: Any, depth: int = 0) -> Iterator[Any]:
    if is_array(node):
        yield node
    else:
        for name in _parts(node, depth):
            yield from _arrays(node[name], depth + 1)


def _parts(group: Any, depth: int) -> list[str]:
    names = list(group)
    if depth > _DEEPEST or (depth and len(names) > _MOST):
        raise ValueError(f"{group.name} must be a column, arrays in a group, got {len(names)} parts in level {depth}")
    return names


def _copy(tree: Tree, node: Any, parent: Any, name: str, places: Places | None, depth: int = 1) -> None:
    if is_array(node):
        values = tree.values(node, None) if node.shape else np.asarray(node[()])
        new = _write(parent, name, values if places is None or not node.shape else values[places])
    else:
        new = parent.create_group(name)
        for part in _parts(node, depth):
            _copy(tree, node[part], new, part, None if part in _WHOLE else places, depth + 1)
    for key in node.attrs:
        if key not in _OF_DIMENSIONS:
            new.attrs[key] = node.attrs[key]
    if is_array(node) and node.shape and "encoding-type" not in new.attrs:  # as AnnData 0.7 wrote them
        mark(new, "array" if new.dtype.kind in "fiub" else "string-array", "0.2.0")


def _write(parent: Any, name: str, values: Any) -> Any:
    if values.dtype.kind in "fiubc":
        return parent.create_dataset(name, data=values)
    texts = [value.decode() if isinstance(value, bytes) else str(value) for value in np.ravel(values).tolist()]
    data = np.array(texts, object).reshape(values.shape)
    return parent.create_dataset(name, data=data, dtype=optional("h5py", "hdf5").string_dtype())


def _write_older(target: Any, name: str, values: Any, places: Places | None) -> None:
    values = values if places is None else values[places]
    if values.dtype.kind in "fiub":
        mark(target.create_dataset(name, data=values), "array", "0.2.0")
        return
    texts = [None if value is None else str(value) for value in values.tolist()]
    known = sorted({text for text in texts if text is not None})
    place = {text: code for code, text in enumerate(known)}
    group = mark(target.create_group(name), "categorical", "0.2.0")
    group.attrs["ordered"] = False
    mark(_write(group, "categories", np.array(known, object)), "string-array", "0.2.0")
    codes = np.array([-1 if text is None else place[text] for text in texts], np.int32)
    mark(group.create_dataset("codes", data=codes), "array", "0.2.0")


_SHOWN = 20  # columns in an error


class Disagreement(ValueError):
    """Files that say different things of one feature."""


@dataclass(frozen=True)
class Place:
    """Which matrix of which files, as `open_matrix` takes it."""

    paths: Sequence[Path]
    stack: Orient | None = None
    format: str | None = None
    key: str | None = None
    orient: Orient | None = None
    feature_types: FeatureTypes = None
    memory_limit: int | str | None = None

    def frame(self, path: Path, axis: str) -> str | None:
        if str(path) == "-" or format_of(path, self.format) not in ("h5ad", "zarr"):
            return None
        with opened_tree(path, self.memory_limit) as tree:
            if not is_anndata(tree.root):
                return None
            frame = frames_of(self.key)[(axis == "features") == (self.orient != "columns")]
            return frame if frame is not None and frame in tree.root else None

    def columns(self, path: Path, axis: str) -> list[str]:
        frame = self.frame(path, axis)
        if frame is None:
            return []
        with opened_tree(path, self.memory_limit) as tree:
            return column_names(tree.root[frame])

    @property
    def logged(self) -> bool:
        marked = [path for path in self.paths if self.key in (None, "X") and self.frame(path, "samples") is not None]
        for path in marked:
            with opened_tree(path, self.memory_limit) as tree:
                if "uns/log1p" in tree.root:
                    return True
        return False

    def column(self, path: Path, axis: str, name: str) -> Column:
        frame = self.frame(path, axis)
        if frame is None:
            raise ValueError(f"{path} has no columns that tell of its {axis}, got {name!r}; .h5ad and AnnData-Zarr do")
        with opened_tree(path, self.memory_limit) as tree:
            there = column_names(tree.root[frame])
            if name not in there:
                more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
                told = f"{', '.join(there[:_SHOWN])}{more}" or "no column"
                raise ValueError(f"{path} has no column {name!r} in {frame}; there: {told}")
            return column(tree, tree.root[frame], name)

    def copy_columns(self, target: Any, axis: str) -> None:
        frame = self.frame(self.paths[0], axis) if len(self.paths) == 1 else None
        if frame is None:
            return
        places = self.opened(self.paths[0]).places if axis == "features" else None
        with opened_tree(self.paths[0], self.memory_limit) as tree:
            copy_columns(tree, frame, target, places)

    def bytes_of_columns(self) -> int:
        frames = [self.frame(self.paths[0], axis) for axis in ("samples", "features")] if len(self.paths) == 1 else []
        if not any(frames):
            return 0
        with opened_tree(self.paths[0], self.memory_limit) as tree:
            return sum(bytes_of_columns(tree, frame) for frame in frames if frame is not None)

    def opened(self, path: Path) -> Opened:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)
            where = self.format, self.key, self.orient, self.memory_limit
            return read_files([path], None, *where, feature_types=self.feature_types)


def of_samples(place: Place, name: str) -> Column:
    paths = place.paths if place.stack != "columns" else place.paths[:1]  # whose samples are those of the first
    parts = [place.column(path, "samples", name) for path in paths]
    return parts[0] if len(parts) == 1 else np.concatenate([_common(part, parts) for part in parts])


def _common(part: Column, parts: list[Column]) -> Column:
    kinds = {"n" if each.dtype.kind in "iuf" else each.dtype.kind for each in parts}
    return part if len(kinds) == 1 else part.astype(object)


def of_features(place: Place, name: str) -> tuple[Column, Labels | None]:
    found = [_of_features(place, path, name) for path in place.paths]
    if len(found) == 1 or place.stack == "columns":
        names = [labels for _, labels in found if labels is not None]
        values = [values for values, _ in found]
        return np.concatenate(values), np.concatenate(names) if len(names) == len(found) else None
    return _agreed(place.paths, name, found)


def _of_features(place: Place, path: Path, name: str) -> tuple[Column, Labels | None]:
    values, opened = place.column(path, "features", name), place.opened(path)
    return values if opened.places is None else values[opened.places], opened.names.features


def _agreed(
    paths: Sequence[Path], name: str, found: Sequence[tuple[Column, Labels | None]]
) -> tuple[Column, Labels | None]:
    known: dict[Any, Any] = {}
    for path, (values, names) in zip(paths, found, strict=True):
        of = range(len(values)) if names is None else names.tolist()
        own = dict(zip(of, values.tolist(), strict=True))
        if other := next((feature for feature in own if known.get(feature, own[feature]) != own[feature]), None):
            raise Disagreement(f"{paths[0]} and {path} say different things of {other!r} in {name!r}; give one for all")
        known |= own
    return np.array(list(known.values())), None if found[0][1] is None else np.array(list(known))
