"""Read TileDB-SOMA experiments: layers of X by ranges of cells, names, and columns of obs for cells of a query."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from shiftsvd.extend import files as io
from shiftsvd.extend.running import Refused, Setting, few, is_address, limit_of, told
from shiftsvd.scanpy.gene_names import features_of_var

USUAL: Final = "RNA"  # name of the measurement of genes
_LAYER: Final = "data"
_JOINED: Final = "soma_joinid"
_INDEX: Final = {"obs": ("obs_id", "cell_id", "barcode"), "var": ("var_id", "feature_id", "gene_id")}
Identifiers = np.ndarray[Any, np.dtype[np.int64]]
_BUFFER, _LEAST, _SHARE = 2**26, 2**20, 32  # bytes of a buffer of TileDB: default, minimum, share of the memory limit
_GROUP: Final = ("__group", "__tiledb_group.tdb")


class Selection(NamedTuple):
    """Location of a matrix in an experiment."""

    uri: str  # of the array
    measurement: str
    layer: str
    query: str | None
    timestamp: int  # in ms: every pass reads the experiment as it was then


def is_soma(path: Path) -> bool:
    return any((path / name).exists() for name in _GROUP)


def read(
    path: Path,
    key: str | None,
    memory_limit: int | str | None,
    measurement: str | None = None,
    obs_query: str | None = None,
) -> io.Opened:
    with opened(path, memory_limit) as experiment:
        where = _selected(path, experiment, key, measurement, obs_query)
        cells, samples = _cells(path, experiment, obs_query, memory_limit)
        frame = _Frame(path, experiment.ms[where.measurement].var, None)
        names = frame.names("var", memory_limit)
        array = experiment.ms[where.measurement].X[where.layer]
        sparse = isinstance(array, io.optional("tiledbsoma", "soma").SparseNDArray)
        files = "" if is_address(_uri(path)) else io.fingerprint_of(path)
        source = SomaRows(path, where, _dtype(path, array), cells, frame.joined, sparse, memory_limit, files)
        io.plausible_shape(source.name, source.shape, memory_limit)
        features = features_of_var(path, names, frame.columns, frame.read, memory_limit)
        columns = {"obs": _Frame(path, experiment.obs, None).others("obs"), "var": frame.others("var")}
        names = names if features is None else features.labels()
        return io.Opened(source, samples, names, features=features, annotations=columns)


def obs_columns(path: Path, memory_limit: int | str | None) -> list[str]:
    with opened(path, memory_limit) as experiment:
        return _Frame(path, experiment.obs, None).columns


def obs_column(path: Path, name: str, obs_query: str | None, memory_limit: int | str | None) -> io.Column:
    with opened(path, memory_limit) as experiment:
        return _Frame(path, experiment.obs, obs_query).read(name)


def _uri(path: Path) -> str:
    return str(getattr(path, "address", path))


def _buffer(memory_limit: int | str | None) -> int:
    limit = limit_of(memory_limit)
    if limit is None:
        return _BUFFER
    return 1 << int(np.clip(limit // _SHARE, _LEAST, _BUFFER)).bit_length() - 1  # few sizes, as each has a context


@cache
def _context(buffer: int) -> Any:
    # Each context has threads of its own, so objects of one process share it.
    return io.optional("tiledbsoma", "soma").SOMATileDBContext(tiledb_config={"soma.init_buffer_bytes": buffer})


@contextmanager
def opened(path: Path, memory_limit: int | str | None) -> Iterator[Any]:
    soma = io.optional("tiledbsoma", "soma")
    with _soma_errors(path), soma.open(_uri(path), context=_context(_buffer(memory_limit))) as experiment:
        if not isinstance(experiment, soma.Experiment):
            raise ValueError(f"{path} must be an Experiment of TileDB-SOMA, got a {type(experiment).__name__}.")
        yield experiment


@contextmanager
def _soma_errors(path: Path | str) -> Iterator[None]:
    soma = io.optional("tiledbsoma", "soma")
    with io.reading(path):
        try:
            yield
        except soma.SOMAError as error:
            raise OSError(_first_line(error)) from error


def _selected(path: Path, experiment: Any, key: str | None, measurement: str | None, query: str | None) -> Selection:
    there = list(experiment.ms)
    chosen = measurement or (there[0] if len(there) == 1 else USUAL)
    if chosen not in there:
        have = f"{path} has no measurement {chosen!r}. Choose one of {few(map(repr, there))} by "
        raise Refused(have, Setting("measurement"), ".")
    layers = list(experiment.ms[chosen].X) if "X" in experiment.ms[chosen] else []
    if not layers:
        have = f"{path} has no matrix in {chosen!r}. Choose another measurement by "
        raise Refused(have, Setting("measurement"), ".")
    layer = (key or _LAYER).strip("/").removeprefix("X/")
    if layer not in layers:
        have = f"{path} has no layer {layer!r} in X of {chosen!r}. Choose one of {few(map(repr, layers))} by "
        raise Refused(have, Setting("key"), ".")
    uri = experiment.ms[chosen].X[layer].uri
    return Selection(uri, chosen, layer, query, experiment.tiledb_timestamp_ms)


def _cells(
    path: Path, experiment: Any, query: str | None, memory_limit: int | str | None
) -> tuple[Identifiers, io.Labels]:
    frame = _Frame(path, experiment.obs, query)
    if not len(frame.joined):
        every = "no cells" if query is None else "no cells that satisfy "
        asked = () if query is None else (Setting("obs_query", query), ". Change this condition")
        raise Refused(f"{path} has {every}", *asked, ".")
    io.bounded(f"{path}: names of {len(frame.joined):,} cells", 100 * len(frame.joined), memory_limit)
    return frame.joined, frame.names("obs", memory_limit)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


class _Frame:
    """A data frame of an experiment, in the order of soma_joinid."""

    def __init__(self, path: Path, frame: Any, query: str | None) -> None:
        self.path, self._frame, self._query = path, frame, query
        self.columns = [name for name in frame.schema.names if name != _JOINED]

    def _values(self, *names: str) -> Any:
        soma = io.optional("tiledbsoma", "soma")
        try:
            table = self._frame.read(column_names=[_JOINED, *names], value_filter=self._query).concat()
        except (soma.SOMAError, SyntaxError, ValueError, KeyError) as error:
            if self._query is None:
                raise
            why = f" cannot be evaluated: {_first_line(error)}. Columns: {few(self.columns, 20)}."
            raise Refused(f"{self.path}: ", Setting("obs_query", self._query), why) from error
        return table.sort_by(_JOINED)

    @cached_property
    def joined(self) -> Identifiers:
        return np.asarray(self._values().column(_JOINED).to_numpy(), np.int64)

    def read(self, name: str) -> io.Column:
        if name not in self.columns:
            raise ValueError(f"{self.path} has no column {name!r} in obs. Its columns: {few(self.columns, 20)}.")
        column = self._values(name).column(name)
        dictionary = io.optional("pyarrow", "soma").types.is_dictionary(column.type)
        return np.asarray(column.to_pandas().astype(object) if dictionary else column.to_pandas())

    def others(self, frame: str) -> list[str]:
        return [name for name in self.columns if name not in _INDEX[frame]]

    def names(self, frame: str, memory_limit: int | str | None) -> io.Labels:
        found = next((name for name in _INDEX[frame] if name in self.columns), None)
        texts = self.joined if found is None else self.read(found)
        return io.labels(self.path, map(str, texts.tolist()), memory_limit)


def _dtype(path: Path, array: Any) -> np.dtype[Any]:
    kind = array.schema.field("soma_data").type
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    if len(array.shape) != 2 or dtype.kind not in "fiub":
        raise ValueError(f"{path} must hold a matrix of numbers, got {len(array.shape)} dimensions of {kind}.")
    return dtype


@dataclass(eq=False)
class SomaRows(io.RowSource):
    """Cells of a layer of X; places of cells and genes follow soma_joinid."""

    path: Path
    where: Selection
    dtype: np.dtype[Any]
    cells: Identifiers
    genes: Identifiers
    sparse: bool
    memory_limit: int | str | None
    files: str = ""

    def __post_init__(self) -> None:
        self.shape = len(self.cells), len(self.genes)
        self.copies = 5 if self.sparse else 2  # sparse: the coordinates, their places, and the block
        self.name = f"{self.path}:ms/{self.where.measurement}/X/{self.where.layer}"

    def __reduce__(self) -> Any:  # without the open array
        return SomaRows, tuple(getattr(self, each.name) for each in fields(self))

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        # An address has no list of its objects: the number of entries of each cell stands for them.
        chosen = told((self.where._replace(timestamp=0), self.cells, self.genes))
        return f"{self.files or self.path}:{chosen}:{told(self._counts) if self.sparse and not self.files else ''}"

    @cached_property
    def _array(self) -> Any:
        soma = io.optional("tiledbsoma", "soma")
        with _soma_errors(self.name):
            context = _context(_buffer(self.memory_limit))
            return soma.open(self.where.uri, context=context, tiledb_timestamp=self.where.timestamp)

    @cached_property
    def _counts(self) -> Identifiers:
        # Entries of each cell: TileDB stores none of these numbers, so this reads the matrix once.
        counts = np.zeros(self.shape[0], np.int64)
        with _soma_errors(self.name):
            for rows, columns, _ in self._triplets(0, self.shape[0]):
                counts += np.bincount(rows[columns >= 0], minlength=self.shape[0])
        return counts

    @cached_property
    def stored(self) -> int:
        if not self.sparse:
            return self.shape[0] * self.shape[1]
        if self.where.query is None:
            with _soma_errors(self.name):
                return int(self._array.nnz)
        return int(self._counts.sum())

    def edges(self, n_bytes: int) -> list[int]:
        if not self.sparse:
            return io.row_edges(self.shape, self.dtype.itemsize, 1, n_bytes)
        read = np.cumsum(np.r_[0, self._counts]) * (self.dtype.itemsize + 8) + np.arange(self.shape[0] + 1) * 8
        cuts = np.searchsorted(read, np.arange(n_bytes, int(read[-1]), n_bytes))
        return [0, *np.unique(cuts[(cuts > 0) & (cuts < self.shape[0])]).tolist(), self.shape[0]]

    def decoding_bytes(self, readers: int) -> int:
        return readers * 3 * _buffer(self.memory_limit)

    def read(self, lo: int, hi: int) -> csr_array | np.ndarray[Any, Any]:
        with _soma_errors(self.name):
            if not self.sparse:
                return self._dense(lo, hi)
            parts = [(rows - lo, columns, values) for rows, columns, values in self._triplets(lo, hi)]
            rows, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True)) if parts else _NONE
            known = columns >= 0
            shape = hi - lo, self.shape[1]
            X = coo_array((values[known].astype(self.dtype), (rows[known], columns[known])), shape=shape).tocsr()
            X.sort_indices()  # the order of entries depends on the threads of TileDB
            return csr_array(X)

    def _triplets(self, lo: int, hi: int) -> Iterator[Sequence[np.ndarray[Any, Any]]]:
        cells = self.cells[lo:hi]
        whole = cells[-1] - cells[0] == hi - lo - 1
        coordinates = slice(int(cells[0]), int(cells[-1])) if whole else cells
        for table in self._array.read((coordinates, slice(None))).tables():
            joined, columns, values = (table.column(f"soma_{part}").to_numpy() for part in ("dim_0", "dim_1", "data"))
            yield lo + np.searchsorted(cells, joined), _places(self.genes, columns), values

    def _dense(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        cells = self.cells[lo:hi]
        first, last = int(cells[0]), int(cells[-1])
        block = self._array.read((slice(first, last), slice(None))).to_numpy()
        return np.ascontiguousarray(block[cells - first][:, self.genes], self.dtype)


_NONE: Final = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def _places(known: np.ndarray[Any, Any], joined: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    places = np.minimum(np.searchsorted(known, joined), len(known) - 1)
    return np.where(known[places] == joined, places, -1)
