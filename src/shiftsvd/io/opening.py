"""open_matrix: read files as an operator, with orientation, names and types of features."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np

from shiftsvd.backends import Incomplete, as_operator
from shiftsvd.backends.entries import Places, SomeColumns, SomeRows
from shiftsvd.backends.files import DiskRows, left_beside
from shiftsvd.backends.source import Conjugated, OnTop, RowSource, Stacked
from shiftsvd.backends.validation import SHOWN, BadValues, NotFinite
from shiftsvd.errors import Refused, Setting, plural, refuse
from shiftsvd.io.base import Features, Labels, Names, Notation, Opened, Orient, reading
from shiftsvd.io.caching import Watched, through_cache
from shiftsvd.io.choices import NOTHING, Censored, Choices, Columns, naming
from shiftsvd.io.formats.notices import Units, refuse_other_units
from shiftsvd.io.formats.table import with_classes
from shiftsvd.io.location import located
from shiftsvd.io.sniff import format_of, formats, opening_address, split_element
from shiftsvd.io.spooling import refuse_device, rereadable
from shiftsvd.io.stacking import JOINS, Join, read_stack, several
from shiftsvd.io.storage.tree import times_decoded
from shiftsvd.kernels import thread_count
from shiftsvd.names import VarNamesName, resolve
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import Resources, limit_of
from shiftsvd.runs.messages import external_files, log_notice, notice

FeatureTypes = str | Sequence[str] | None  # as `open_matrix` takes it
EVERY: Final = "all"
_SHOWN: Final = 6  # types in a message


@dataclass(frozen=True)
class MatrixOptions:
    """Options of `open_matrix` that choose the matrix in the files; no option here depends on memory or threads."""

    stack: Orient | None = None
    format: str | None = None
    key: str | None = None
    orient: Orient | None = None
    feature_types: FeatureTypes = None
    join: Join | None = None
    var_names: VarNamesName | None = None
    measurement: str | None = None
    obs_query: str | None = None

    def __post_init__(self) -> None:
        if self.orient not in (None, "rows", "columns"):
            raise refuse("orient", 'be "rows" or "columns", the axis of the samples', self.orient)
        if self.stack not in (None, "rows", "columns"):
            raise refuse("stack", 'be "rows" (different samples) or "columns" (different features)', self.stack)
        if self.var_names not in (None, *get_args(VarNamesName)):
            raise refuse("var_names", 'be "gene_symbols" or "gene_ids"', self.var_names)


def of_types(path: Path, opened: Opened, wanted: FeatureTypes) -> Opened:
    chosen, features = _listed_types(wanted), opened.features
    if features is None or features.types is None:
        if chosen not in (None, [EVERY]):
            raise Refused(f"{path} has no feature types. Remove ", Setting("feature_types", chosen), ".")
        return opened
    types = features.types
    places = _places(path, types, chosen, features.usual)
    counts, left = Counter(types[places].tolist()), Counter(np.delete(types, places).tolist())
    if chosen is None and left:
        kept = f"{path}: features are kept by type: {_counted(counts)} kept, {_counted(left)} excluded. Use "
        notice(kept, Setting("feature_types", EVERY), " to keep all.")
    elif chosen is None and len(counts) > 1:
        together = f"{path}: features of several types are combined: {_counted(counts)}. Use "
        notice(together, Setting("feature_types", "Gene Expression"), " to keep one type.")
    return some_features(opened, places) if left else opened


def _listed_types(wanted: FeatureTypes) -> list[str] | None:
    several: Any = [wanted] if isinstance(wanted, str) else wanted
    known = several is None or (isinstance(several, Sequence) and all(isinstance(each, str) for each in several))
    if not known or several in ([], ()):
        raise refuse("feature_types", f'be "{EVERY}", a type such as "Gene Expression" or a list of them', wanted)
    return None if several is None else list(several)


def _places(path: Path, types: Labels, chosen: list[str] | None, usual: str | None) -> Places:
    there = {name.casefold(): name for name in types.tolist()}
    if chosen == [EVERY] or (chosen is None and (usual or "").casefold() not in there):
        return np.arange(len(types))
    names = [usual or ""] if chosen is None else chosen
    if unknown := [name for name in names if name.casefold() not in there]:
        have = f"It has {_counted(Counter(types.tolist()))}. Choose one of these types."
        raise ValueError(f"{path} has no features of type {', '.join(map(repr, unknown))}. {have}")
    return np.flatnonzero(np.isin(types, [there[name.casefold()] for name in names]))


def _counted(counts: Counter[str]) -> str:
    each = [f"{count:,} {name or 'without a type'}" for name, count in counts.most_common(_SHOWN)]
    return ", ".join([*each, *(["..."] if len(counts) > _SHOWN else [])])


def some_features(opened: Opened, places: Places) -> Opened:
    X, known = opened.matrix, opened.features
    if isinstance(X, RowSource):
        matrix: Any = SomeRows(X, places) if opened.by_features else SomeColumns(X, places)
    else:
        matrix = X[places] if opened.by_features else X[:, places]
    names = opened.names.features
    features = None if known is None else known.at(places)
    some = None if names is None else names[places] if features is None else features.labels()
    of_file = places if opened.places is None else opened.places[places]
    return replace(opened.with_features(some), matrix=matrix, places=of_file, features=features)


# Numbers that a fit of a few components holds per column of wide data: panels, moments, right singular vectors.
PER_COLUMN = 96


def open_matrix(
    path: str | Path | Sequence[str | Path],
    *,
    stack: Orient | None = None,
    format: str | None = None,  # noqa: A002
    key: str | None = None,
    orient: Orient | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    stream: bool | None = None,
    feature_types: FeatureTypes = None,
    join: Join | None = None,
    var_names: VarNamesName | None = None,
    measurement: str | None = None,
    obs_query: str | None = None,
    ids: str | None = None,
    drop: Columns = (),
    columns: Columns = (),
    one_hot: Columns | Mapping[str, Iterable[str]] = (),
    sep: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    comment: Columns | None = None,
    skip: int = 0,
    na: Columns = (),
    censored: Censored = "missing",
    keep_total: bool = False,
    allow_external: bool = False,
) -> tuple[Operator, Names]:
    """Open a file as a matrix with samples as rows, and return the names of its samples and features.

    Parameters
    ----------
    path : str or Path, or a list of them
        A file or folder, an address such as ``"s3://bucket/x.zarr"``, or ``"-"`` for standard input. Several files
        become one matrix, with `stack`.
    stack : "rows" or "columns", needed for several files
        "rows": the files have different samples and the same features; "columns": different features and the same
        samples. Names on the shared axis must agree; a different order is corrected, or raises an error if the file is
        stored by the shared axis.
    format : str, optional
        Name of the format, such as "csv". Default: from the suffix, else from the first bytes.
    key : str, optional
        The element inside the file: a path in HDF5 or Zarr such as ``"layers/counts"`` or ``"raw/X"``, a variable of
        NetCDF, a layer of TileDB-SOMA. Default: ``"X"`` of AnnData, ``"data"`` of TileDB-SOMA; elsewhere the only
        matrix in the file.
    orient : "rows" or "columns", optional
        Axis of the samples in the file. Default: the convention of the format.
    n_threads : int, optional
        Default: the cores that this process may use.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory.
    stream : bool, optional
        Whether to keep the matrix in the file and read it in each pass. Default: if it needs more than half of
        `memory_limit`.
    feature_types : "all", a type such as "Antibody Capture", or list of them, optional
        Features to keep, for 10x matrices, and for AnnData with ``var["feature_types"]``. Default: "Gene Expression" of
        10x matrices that have this type, all features of AnnData; a notice counts excluded or combined types.
    join : "inner" or "outer", optional
        For files with ``stack="rows"``, matched by names of features: keep the features of all files, or those of any
        file, with zeros where a file lacks one; a notice counts them. Default: require the same features.
    var_names : "gene_symbols" or "gene_ids", optional
        Names of the genes, for 10x matrices, and for AnnData with both in ``var``. A symbol or id that several genes
        have, or that a gene lacks, is replaced by the other one. Default: symbols of 10x matrices and the index of
        ``var``, or the ids of all genes if any of these occurs twice.
    measurement : str, optional
        For TileDB-SOMA experiments: the measurement. Default: the only one, or "RNA".
    obs_query : str, optional
        For TileDB-SOMA experiments: a condition on columns of obs, in the syntax of its ``value_filter``, such as
        ``'cell_type == "T cell" and n_genes > 500'``. Cells that do not satisfy it are not read.
    ids : str, optional
        For tables: the column of row names. Default: the first one, if it has no name, or holds text that does not
        repeat or has a usual name such as "sample". Columns without names get their numbers, from 1.
    drop, columns : names of columns, or one
        For tables: columns to exclude; the only columns to keep. Default: keep all.
    one_hot : names of columns, or one, or a mapping from each name to its classes
        For tables: columns of classes. Indicators of the classes replace the column; that of "F" in "sex" has the name
        "sex=F". Classes that a mapping does not list raise an error. A row without a class is missing in all of them.
    sep, decimal, thousands, encoding : str, optional
        For text files: the delimiter; the decimal and the thousands separator; a codec of Python. Default: detected in
        the first lines, else decimal points and UTF-8.
    comment : str, or iterable of str, optional
        For text files: beginnings of lines to skip. Default: lines with ``#`` above the header.
    skip : int
        For text files: number of lines to skip at the beginning, such as titles.
    na : str, or iterable of str
        For text files: cells that are missing values, such as "k.A.", in addition to the usual ones.
    censored : "missing" or "half"
        For text files: value of a cell such as ``<0.5``: missing, or half of this limit.
    keep_total : bool
        For text files: whether to use a last row of totals as a sample. Default: exclude a last row that is called
        Total, Summe or the like, or that is the sum of the others; a notice names it.
    allow_external : bool
        Whether HDF5 (also .h5ad, 10x, NetCDF) and Zarr may refer to other files: by external links, virtual datasets,
        external storage, or symbolic links out of a folder. Such a reference can read any file of this machine as data:
        give True only for files that you trust.

    Returns
    -------
    A : Operator of shape (n_samples, n_features)
        The matrix, in memory or read from the file for each product. If values are missing, its products raise
        ValueError: give it to `svd`, `PCA` or `complete_matrix`, with ``missing="mean"`` or ``missing="em"``.
    names : Names
        Names of its rows and columns; None if the file has none.

    Raises
    ------
    ValueError, OSError
        If the file cannot be read, or does not hold one matrix of finite or missing values; the message begins with its
        name. If columns of a table are not numeric; the message names an argument that solves it.
    ImportError
        If the format needs a package that is not installed.

    See Also
    --------
    io.Choices : The settings for tables.
    svd : Takes what is opened.

    Notes
    -----
    Costs one read of the data if they are loaded into memory, else none. Detecting the classes of `one_hot` costs
    another read of their columns. Warnings name columns of a table that look like identifiers or classes, and a row of
    totals.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from shiftsvd.io import open_matrix
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.ones((3, 2)))
    ...     A, names = open_matrix(f"{folder}/X.npy")
    >>> A.shape, names.samples
    ((3, 2), None)
    """
    written = {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding, "skip": skip}
    choices = Choices.of(
        drop, columns, one_hot, comment, na, ids=ids, censored=censored, keep_total=keep_total, **written
    )
    where: dict[str, Any] = {"stack": stack, "format": format, "key": key, "orient": orient}
    where |= {"feature_types": feature_types, "join": join, "var_names": var_names}
    where |= {"measurement": measurement, "obs_query": obs_query}
    where |= {"stream": stream, "n_threads": n_threads, "memory_limit": memory_limit}
    with external_files(allow_external):
        return open_chosen(path, choices, incomplete=True, **where)


def open_chosen(
    path: str | Path | Sequence[str | Path],
    choices: Choices,
    *,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    stream: bool | None = None,
    incomplete: bool = False,
    **where: Any,
) -> tuple[Operator, Names]:
    which, paths = MatrixOptions(**where), listed(path)
    with ExitStack() as spool:
        given, paths = paths, spool.enter_context(rereadable(paths, which.format))
        opened = read_files(paths, memory_limit, choices, bool(stream), **where)
        A, names = operator_of(paths, opened, Resources(memory_limit, n_threads), stream, incomplete)
        if paths != given and isinstance(opened.matrix, RowSource):
            # The source reads the temporary file again: remove the file when the source is deleted.
            weakref.finalize(opened.matrix, spool.pop_all().close)
    return A, names


def read_whole(
    path: str | Path | Sequence[str | Path],
    choices: Choices,
    *,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    **where: Any,
) -> tuple[Any, Names]:
    """Read a matrix into memory as an array or sparse matrix, samples as rows."""
    with rereadable(listed(path), MatrixOptions(**where).format) as paths:
        opened, resources = read_files(paths, memory_limit, choices, **where), Resources(memory_limit, n_threads)
        opened = replace(opened, matrix=held_or_streamed(opened.matrix, resources, stream=False))
        operator_of(paths, opened, resources)  # raises ValueError for values that are not finite
    return (opened.matrix.T if opened.by_features else opened.matrix), opened.names


def listed(path: str | Path | Sequence[str | Path]) -> list[Path]:
    paths = [located(path)] if isinstance(path, str | Path) else [located(each) for each in path]
    if not paths:
        raise Refused(Setting("path"), " must name at least one file, got an empty list")
    if len(paths) > 1 and Path("-") in paths:
        raise ValueError("standard input cannot be stacked with files. Write it to a file first.")
    return paths


def operator_of(
    paths: Sequence[Path],
    opened: Opened,
    resources: Resources,
    stream: bool | None = None,
    incomplete: bool = False,  # whether to return a matrix with missing entries, whose products raise the error
) -> tuple[Operator, Names]:
    with reading(several(paths), *paths):
        X = held_or_streamed(opened.matrix, resources, stream, paths)
        try:
            with named_as(paths, opened, opened.by_features):
                A = as_operator(X, n_threads=resources.n_threads, memory_limit=left_beside(X, resources.memory_limit))
        except NotFinite as error:
            if not incomplete or error.found.n_inf:
                raise
            A = Incomplete(X, error.found)
    return (A.H if opened.by_features else A), opened.names


@contextmanager
def named_as(paths: Sequence[Path], opened: Opened, by_features: bool) -> Iterator[None]:
    try:
        yield
    except NotFinite as error:
        found = (error.turned() if by_features else error).found
        names, drop = opened.names.features, None
        if opened.table and names is not None and len(found.columns[0]) <= SHOWN:
            drop = naming("drop", [str(names[j]) for j in found.columns[0]])
        where = f"{several(_holding(paths, opened, found))}: "
        raise NotFinite(replace(found, names=names, where=where, drop=drop)) from None
    except Refused:
        raise
    except ValueError as error:
        raise Refused(str(error)) from error


def _holding(paths: Sequence[Path], opened: Opened, found: BadValues) -> Sequence[Path]:
    if not isinstance(opened.matrix, Stacked):
        return paths
    on_top = isinstance(opened.matrix, OnTop)
    lines = found.columns if on_top == opened.by_features else found.rows
    ends = np.cumsum([part.shape[0 if on_top else 1] for part in opened.matrix.parts])
    return [paths[i] for i in np.unique(np.searchsorted(ends, lines[0], "right"))]


def read_files(
    paths: Sequence[Path],
    memory_limit: int | str | None,
    choices: Choices = NOTHING,
    parts_only: bool = False,
    **where: Any,
) -> Opened:
    which = MatrixOptions(**where)
    if which.join is not None and (which.join not in JOINS or which.stack != "rows" or len(paths) < 2):
        given = f"got {which.join!r} for {plural(len(paths), 'file')}"
        raise Refused(
            *(Setting("join"), ' must be "inner" or "outer", with several files and '),
            *(Setting("stack", "rows"), f", {given}."),
        )
    if len(paths) > 1:
        choices = choices.of_parts() if which.stack == "columns" else with_classes(paths, which.format, choices)

    selection = {"measurement": which.measurement, "obs_query": which.obs_query}

    known = _units_of_fit(choices)
    found = list[Notation]()

    def read(path: Path, limit: int | str | None) -> Opened:
        opened = read_file(path, which.format, which.key, limit, choices, **selection)
        if opened.notation is not None:
            with reading(path):
                refuse_other_units(opened.notation, known)
            found.append(opened.notation)
            if which.stack == "rows":
                _add_units(known, opened.notation, path)
        return _oriented(path, opened, which)

    if len(paths) == 1:
        return read(paths[0], memory_limit)
    opened = read_stack(paths, which.stack, read, memory_limit, parts_only, which.join)
    if not found:
        return opened
    units = {name: unit for each in found for name, unit in each.units.items()}
    return replace(opened, notation=replace(found[0], units=units))


def _units_of_fit(choices: Choices) -> Units:
    units = choices.units
    return {} if units is None else {name: (units.get(name, ""), "the fit") for name in (*choices.features, *units)}


def _add_units(known: Units, found: Notation, path: Path) -> None:
    for name in found.numbers:
        if not known.get(name, ("", ""))[0]:
            known[name] = found.units.get(name, ""), str(path)


def _oriented(path: Path, opened: Opened, which: MatrixOptions) -> Opened:
    if which.orient is None and opened.unsaid:
        notice(*opened.unsaid)
    if which.orient not in (None, opened.samples):
        opened = replace(opened, samples=which.orient, features=None)  # `features` describes the samples then
    X = opened.matrix
    if opened.samples == "columns" and X.dtype.kind == "c":  # what is opened is the adjoint of rows of features
        opened = replace(opened, matrix=Conjugated(X) if isinstance(X, RowSource) else X.conj())
    opened = of_types(path, opened, which.feature_types)
    if which.var_names is None:
        return opened
    with reading(path):
        names = opened.names.features
        features = opened.features or Features(np.empty(0, str) if names is None else np.asarray(names))
        return opened.with_features(features.labels(which.var_names))


def read_file(
    path: Path,
    format: str | None,  # noqa: A002
    key: str | None,
    memory_limit: int | str | None,
    choices: Choices = NOTHING,
    **selection: str | None,
) -> Opened:
    with reading(path):
        file, element = split_element(path)
        if not opening_address(path, format):
            if not file.exists():
                raise FileNotFoundError(f"{file} does not exist")
            refuse_device(file)
        kind = format_of(path, format)
        known = formats()[kind]
        read = resolve(known.reader)
        if not known.selects:
            for name, value in selection.items():
                if value is not None:
                    raise Refused(f"{path} is no TileDB-SOMA experiment. Remove ", Setting(name, value), ".")
            selection = {}
        if known.is_table:
            return cast("Opened", read(path, key, memory_limit, choices))
        if not choices.remembered:  # ignore settings for tables that come from a model
            choices.refuse_for(kind)
        if element is not None and key is not None:
            raise Refused(f"{path} names an element of the file. Remove ", Setting("key", key), ".")
        return cast("Opened", read(file, key if element is None else element, memory_limit, **selection))


def held_bytes(source: RowSource) -> int:
    if not source.sparse:
        return source.stored * source.dtype.itemsize
    wide = max(source.stored, source.shape[1]) > np.iinfo(np.int32).max
    return source.stored * (source.dtype.itemsize + (8 if wide else 4)) + 8 * source.shape[0]


def _notice_chunks(source: RowSource, n_bytes: int) -> None:
    for part in source.parts if isinstance(source, Stacked) else [source]:
        edges = part.edges(n_bytes) if part.chunk_rows > 1 else [0, 1]
        times = times_decoded(edges, part.chunk_rows)
        if times >= 2:
            read = f"has chunks of {part.chunk_rows:,} rows and is read in blocks of {edges[1]:,}"
            slow = f"each pass decompresses each chunk about {times:,.0f} times"
            log_notice(f"{part.name} {read}, so {slow}. {part.rewrite}")
            return


def held_or_streamed(matrix: Any, resources: Resources, stream: bool | None = None, paths: Iterable[Path] = ()) -> Any:
    if not isinstance(matrix, RowSource):
        if stream:
            whole = "this format cannot be read in blocks. Convert the file to .h5ad, or remove "
            raise Refused(whole, Setting("stream", True), ".")
        return matrix
    if stream is None:
        limit = limit_of(resources.memory_limit)
        held = beside = held_bytes(matrix)
        if matrix.sparse and matrix.shape[0] < matrix.shape[1]:
            beside += held // 2 + 8 * PER_COLUMN * matrix.shape[1]
        stream = limit is not None and held + max(beside, matrix.decoding_bytes(1)) > limit
    if stream:
        source = through_cache(matrix if matrix.is_copied else Watched(matrix, paths))
        threads = thread_count(resources.n_threads)
        A = DiskRows(source, n_threads=threads, memory_limit=resources.memory_limit)
        _notice_chunks(matrix, A.block_bytes)
        return A
    return matrix.read(0, matrix.shape[0])
