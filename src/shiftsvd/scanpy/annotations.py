"""Read columns of obs and var from files by name, and copy data frames between files."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from shiftsvd.extend import files as io
from shiftsvd.extend.running import Notice, few
from shiftsvd.scanpy import soma
from shiftsvd.scanpy.files import frames_of, is_anndata, tenx_features
from shiftsvd.scanpy.gene_names import IDS, SYMBOLS, GeneNames

_UNINDEXED: Final = ("categories", "__categories")  # arrays that have no entry for each row
_SKIPPED_ATTRS: Final = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # references into the source file
_BASE: Final = "uns/log1p/base"
_DEEPEST, _MOST = 2, 20  # largest depth of groups in a frame, and largest number of arrays in a column
Axis = Literal["samples", "features"]


def _entries(group: Any, depth: int) -> list[str]:
    names = list(group)
    if depth > _DEEPEST or (depth and len(names) > _MOST):
        raise ValueError(
            f"{group.name} must be a column of a data frame, got a group of {len(names):,} entries. Write the file "
            "again with anndata."
        )
    return names


def _copy(tree: io.Tree, node: Any, parent: Any, name: str, places: io.Places | None, depth: int = 1) -> None:
    if io.is_array(node):
        values = tree.values(node, None) if node.shape else np.asarray(node[()])
        new = _write(parent, name, values if places is None or not node.shape else values[places])
    else:
        new = parent.create_group(name)
        for part in _entries(node, depth):
            _copy(tree, node[part], new, part, None if part in _UNINDEXED else places, depth + 1)
    for key in node.attrs:
        if key not in _SKIPPED_ATTRS:
            new.attrs[key] = node.attrs[key]
    if io.is_array(node) and node.shape and "encoding-type" not in new.attrs:  # layout of AnnData 0.7
        io.mark(new, "array" if new.dtype.kind in "fiub" else "string-array", "0.2.0")


def _write(parent: Any, name: str, values: Any) -> Any:
    if values.dtype.kind in "fiubc":
        return parent.create_dataset(name, data=values)
    texts = [value.decode() if isinstance(value, bytes) else str(value) for value in np.ravel(values).tolist()]
    data = np.array(texts, object).reshape(values.shape)
    return parent.create_dataset(name, data=data, dtype=io.optional("h5py", "hdf5").string_dtype())


def encode(parent: Any, name: str, value: Any) -> None:
    """Write a mapping, an array, a text or a number in the encoding of AnnData."""
    if isinstance(value, dict):
        group = io.mark(parent.create_group(name), "dict", "0.1.0")
        for key, part in value.items():
            encode(group, key, part)
        return
    new = _write(parent, name, np.asarray(value))
    kinds = ("array", "string-array") if isinstance(value, np.ndarray) else ("numeric-scalar", "string")
    io.mark(new, kinds[new.dtype.kind == "O"], "0.2.0")


def _store_legacy(target: Any, name: str, values: Any, places: io.Places | None) -> None:
    values = values if places is None else values[places]
    if values.dtype.kind in "fiub":
        encode(target, name, values)
        return
    texts = [None if value is None else str(value) for value in values.tolist()]
    known = sorted({text for text in texts if text is not None})
    place = {text: code for code, text in enumerate(known)}
    group = io.mark(target.create_group(name), "categorical", "0.2.0")
    group.attrs["ordered"] = False
    encode(group, "categories", np.array(known, object))
    encode(group, "codes", np.array([-1 if text is None else place[text] for text in texts], np.int32))


_SHOWN = 20  # column names in an error
Frame = tuple[io.Tree, Any]  # a data frame and the tree of its file


class Disagreement(ValueError):
    """Raised if files have different values of a column of var for the same feature."""


@dataclass(frozen=True)
class AnnotationSource:
    """A matrix in one or several files, by the arguments of `open_matrix`."""

    paths: Sequence[Path]
    where: io.MatrixOptions = io.MatrixOptions()
    memory_limit: int | str | None = None

    @contextmanager
    def frame(self, path: Path, axis: Axis) -> Iterator[Frame | None]:
        if self._format(path) not in ("h5ad", "zarr"):
            yield None
            return
        where = self.where
        with io.opened_tree(path, self.memory_limit) as tree:
            frames = frames_of(where.key or io.split_element(path)[1])
            name = frames[(axis == "features") == (where.orient != "columns")]
            has_frame = name is not None and is_anndata(tree.root) and name in tree.root
            yield (tree, tree.root[name]) if has_frame else None

    def _format(self, path: Path) -> str | None:
        return None if str(path) == "-" else io.format_of(path, self.where.format)

    def columns(self, path: Path, axis: Axis) -> list[str]:
        if axis == "samples" and self._format(path) == "soma":
            return soma.obs_columns(path, self.memory_limit)
        with self.frame(path, axis) as found:
            return [] if found is None else io.column_names(found[1])

    @property
    def logged(self) -> bool:
        return self.where.key in (None, "X") and any(map(self._logged, self.paths))

    def _logged(self, path: Path) -> bool:
        with self.frame(path, "samples") as found:
            return found is not None and "uns/log1p" in found[0].root

    @property
    def log_of_base(self) -> float:
        """Return the natural logarithm of the base of the logarithms that scanpy noted in the files; 1 if none."""
        found = {self._log_of_base(path): path for path in self.paths}
        if len(found) > 1:
            one, other, *_ = found.values()
            raise ValueError(f"{one} and {other} hold logarithms in different bases. Compute both in the same base.")
        return next(iter(found), 1.0)

    def _log_of_base(self, path: Path) -> float:
        with self.frame(path, "samples") as found:
            if found is None or _BASE not in found[0].root:
                return 1.0
            node = found[0].root[_BASE]
            is_none = node.shape != () or io.attribute(node, "encoding-type") == "null"  # as anndata writes None
            return 1.0 if is_none else float(np.log(node[()]))

    def column(self, path: Path, axis: Axis, name: str) -> io.Column:
        if axis == "samples" and self._format(path) == "soma":
            return soma.obs_column(path, name, self.where.obs_query, self.memory_limit)
        with self.frame(path, axis) as found:
            if found is None:
                raise ValueError(
                    f"{path} has no annotation of its {axis}, so the column {name!r} cannot be read. Pass an .h5ad or "
                    "an AnnData Zarr store."
                )
            tree, frame = found
            names = io.column_names(frame)
            if name not in names:
                listed = few(names, _SHOWN)
                raise ValueError(f"{path} has no column {name!r} in {frame.name.strip('/')}. Its columns: {listed}.")
            return io.column(tree, frame, name)

    def copy_columns(
        self, target: Any, axis: Axis, genes: GeneNames | None = None, own: Mapping[str, Any] | None = None
    ) -> None:
        """Write `own` and other columns of the file, and ids and symbols of genes that these and the index lack."""
        names = list(own or ())
        for name in names:
            encode(target, name, (own or {})[name])
        names += [] if len(self.paths) > 1 else self._copied(target, axis)
        index = [text.decode() for text in target["_index"][()].tolist()]
        of_genes = () if genes is None else ((IDS[0], genes.ids, IDS), (SYMBOLS[0], genes.symbols, SYMBOLS))
        for name, texts, known in of_genes:
            if texts.tolist() != index and not {each.casefold() for each in names} & {*known}:
                encode(target, name, texts)
                names.append(name)
        dtype = io.optional("h5py", "hdf5").string_dtype()
        target.attrs["column-order"] = np.array(names, dtype) if names else np.empty(0)

    def _copied(self, target: Any, axis: Axis) -> list[str]:
        with self.frame(self.paths[0], axis) as found:
            if found is None:
                return []
            tree, frame = found
            places = self.opened(self.paths[0]).places if axis == "features" else None
            names = [name for name in io.column_names(frame) if name not in target]
            for name in names:
                if io.is_array(frame) or "__categories" in frame:  # layout of older versions
                    _store_legacy(target, name, io.column(tree, frame, name), places)
                else:
                    _copy(tree, frame[name], target, name, places)
            return names

    def opened(self, path: Path) -> io.Opened:
        with warnings.catch_warnings(action="ignore", category=Notice):
            return io.read_files([path], self.memory_limit, **vars(replace(self.where, stack=None, join=None)))

    def genes(self, names: io.Labels) -> GeneNames | None:
        """Return the ids and symbols of the features with these names, or None if no file has them."""
        known: dict[str, tuple[set[str], set[str]]] = {}
        for path in self.paths:
            features = self._features(path)
            if features is None or (features.ids is None and features.symbols is None):
                continue
            blank = np.full(len(features.names), "")
            parts = (blank if part is None else part for part in (features.ids, features.symbols))
            labels = features.labels(self.where.var_names)
            for name, *own in zip(*(part.tolist() for part in (labels, *parts)), strict=True):
                for texts, text in zip(known.setdefault(name, (set(), set())), own, strict=True):
                    texts.update({text} - {""})
        found = [known.get(name, ((), ())) for name in names.tolist()]
        # Files may disagree on one of the names: only what they agree on is known.
        agreed = ([next(iter(each)) if len(each) == 1 else "" for each in part] for part in zip(*found, strict=True))
        ids, symbols = (np.array(part, dtype=np.str_) for part in agreed)
        return GeneNames(ids, symbols) if np.any(ids != "") or np.any(symbols != "") else None

    def _features(self, path: Path) -> io.Features | None:
        kind = self._format(path)
        if kind in ("h5ad", "zarr", "10x-h5", "soma"):
            return self.opened(path).features
        features = tenx_features(path, self.where.key, self.memory_limit) if kind in ("10x", "mtx") else None
        if features is None:
            return None
        empty = io.Opened(np.empty((len(features.names), 0)), samples="columns", features=features)
        with warnings.catch_warnings(action="ignore", category=Notice):
            return io.of_types(path, empty, self.where.feature_types).features


def sample_column(source: AnnotationSource, name: str) -> io.Column:
    paths = source.paths if source.where.stack != "columns" else source.paths[:1]  # stacked by columns: same samples
    parts = [source.column(path, "samples", name) for path in paths]
    if len({"n" if part.dtype.kind in "iuf" else part.dtype.kind for part in parts}) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


def feature_column(source: AnnotationSource, name: str) -> tuple[io.Column, io.Labels | None]:
    found = [_feature_column_of(source, path, name) for path in source.paths]
    if len(found) == 1 or source.where.stack == "columns":
        names = [labels for _, labels in found if labels is not None]
        parts = [values for values, _ in found]
        return np.concatenate(parts), np.concatenate(names) if len(names) == len(found) else None
    if all(labels is not None for _, labels in found):
        named = io.with_same_ids([labels for _, labels in found if labels is not None])
        found = [(values, labels) for (values, _), labels in zip(found, named, strict=True)]
    known: dict[Any, Any] = {}
    for path, (values, labels) in zip(source.paths, found, strict=True):
        own = dict(zip(range(len(values)) if labels is None else labels.tolist(), values.tolist(), strict=True))
        if others := [feature for feature in own if known.get(feature, own[feature]) != own[feature]]:
            other = f"feature {others[0] + 1}" if labels is None else repr(others[0])
            raise Disagreement(
                f"{source.paths[0]} and {path} have different values of {other} in the column {name!r} of var. Make "
                "the values equal, or use --mask none."
            )
        known |= own
    return np.array(list(known.values())), None if found[0][1] is None else np.array(list(known))


def _feature_column_of(source: AnnotationSource, path: Path, name: str) -> tuple[io.Column, io.Labels | None]:
    values, opened = source.column(path, "features", name), source.opened(path)
    return values if opened.places is None else values[opened.places], opened.names.features
