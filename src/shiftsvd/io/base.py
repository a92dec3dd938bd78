"""Results and errors of readers: names, `Opened`, errors that start with the file name, limits on sizes."""

import bz2
import gzip
import lzma
import re
import struct
import sys
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Refused, Setting, is_address, plain_lines, sentence
from shiftsvd.names import VarNamesName
from shiftsvd.runs.memory import beyond, limit_of

# Exceptions of libraries on damaged files, besides OSError.
_DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    SystemError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
Labels = npt.NDArray[np.str_]
Orient = Literal["rows", "columns"]  # where the samples are
PIPED = "standard input"  # name of the temporary copy of standard input


class Names(NamedTuple):
    """Names of samples and features; None if the file has none.

    Parameters
    ----------
    samples : array of str, of shape (n_samples,), or None
        Names of the rows.
    features : array of str, of shape (n_features,), or None
        Names of the columns.

    See Also
    --------
    io.open_matrix : Returns them with the matrix.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> ss.io.Names(samples=None, features=["a", "b"]).features
    ['a', 'b']
    """

    samples: Labels | None = None
    features: Labels | None = None


@dataclass(frozen=True)
class Notation:
    """Units of the columns of a table, and its column of row names, to compare with other tables."""

    units: dict[str, str]  # of columns that have one in their cells
    cells: dict[str, str]  # examples of these cells, and their rows
    numbers: frozenset[str]  # columns that hold numbers
    ids: str | None = None  # the column of row names


class TableNames(Names):
    """Names of a table, with its notation, which is no part of the tuple."""

    notation: Notation


@dataclass(frozen=True, eq=False)
class Features:
    """Metadata of the features of a single-cell file."""

    names: Labels
    ids: Labels | None = None  # identifiers, which are unique where names may not be
    types: Labels | None = None  # such as "Gene Expression" or "Antibody Capture"
    usual: str | None = None  # the type to keep by default; None keeps all types
    symbols: Labels | None = None  # "", as in `ids`, if unknown

    def at(self, places: Any) -> "Features":
        others = self.ids, self.types, self.symbols
        ids, types, symbols = (None if each is None else each[places] for each in others)
        return Features(self.names[places], ids, types, self.usual, symbols)

    def labels(self, kind: VarNamesName | None = None) -> Labels:
        """Return names of one kind; a repeated or unknown name is replaced by the name of the other kind."""
        if kind is None:
            if self.ids is None or len(set(self.names.tolist())) == len(self.names):
                return self.names
            return np.where(self.ids == "", self.names, self.ids)
        own, other = (self.ids, self.symbols) if kind == "gene_ids" else (self.symbols, self.ids)
        if own is None and other is None and len(self.names) and are_ids(self.names) == (kind == "gene_ids"):
            return self.names
        if own is None:
            raise Refused("it has no such names. Remove ", Setting("var_names", kind), ".")
        counts = Counter(own.tolist())
        alone = np.array([name != "" and counts[name] == 1 for name in own.tolist()], bool)
        others = np.where(own == "", self.names, own) if other is None else np.where(other == "", self.names, other)
        return np.where(alone, own, others)


# A version is removed from ids of Ensembl only: ".12" belongs to symbols such as AC000123.12.
VERSIONED_ID: Final = re.compile(r"(ENS[A-Z]*\d{5,})\.\d+(_PAR_Y)?")


def without_version(name: str) -> str:
    found = VERSIONED_ID.fullmatch(name)
    return f"{found[1]}{found[2] or ''}" if found else name


def are_ids(names: Labels) -> bool:
    # Most of them are ids of Ensembl.
    return 2 * sum(re.match(r"ENS[A-Z]*\d{5,}", name) is not None for name in names.tolist()) > len(names)


@dataclass(frozen=True, eq=False)
class Opened:
    """The matrix of a file, with names and orientation, as a reader returns it.

    Parameters
    ----------
    matrix : array, sparse matrix, or RowSource
        The stored matrix: a `RowSource` if ranges of rows can be read from the file.
    rows, columns : arrays of str, or None
        Names of the rows and columns of the file.
    samples : "rows" or "columns"
        Axis of the samples in the file: from its metadata, else by the convention of the format.
    transposed : bool
        Whether `matrix` is the adjoint of the matrix in the file, as for files that store columns. `rows`, `columns`
        and `samples` describe the file in either case.
    features : Features, or None
        Metadata of the features besides their names; None if the caller declares this axis to be the samples.
    places : array of int, or None
        Positions of these features in the file; None if all features are kept.
    unsaid : parts of a text, or None
        A notice for callers who do not give the axis of the samples.
    table : bool
        Whether the file is a table, from which `drop` can remove columns.
    notation : Notation or None
        Units of the columns of a table, and its column of row names.
    annotations : mapping of str to sequence of str
        Columns that describe samples or features, by the name of their data frame; `convert` does not write them.

    See Also
    --------
    io.open_matrix : Opens files, and returns an operator.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> opened = ss.io.Opened(
    ...     np.ones((3, 2)), columns=np.array(["a", "b", "c"]), samples="columns"
    ... )
    >>> opened.by_features, opened.names.samples.tolist()
    (True, ['a', 'b', 'c'])
    """

    matrix: Any
    rows: Labels | None = None
    columns: Labels | None = None
    samples: Orient = "rows"
    transposed: bool = False
    features: Features | None = None
    places: Any = None
    unsaid: Sequence[Part] | None = None
    table: bool = False
    notation: Notation | None = None
    annotations: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def by_features(self) -> bool:
        """True if the rows of `matrix` are features."""
        return self.transposed == (self.samples == "rows")

    def with_features(self, names: Labels | None) -> "Opened":
        """Return a copy with other names of features.

        Parameters
        ----------
        names : array of str, of shape (n_features,), or None
            Names to set.

        Returns
        -------
        Opened
            The copy; it shares the matrix.
        """
        return replace(self, columns=names) if self.samples == "rows" else replace(self, rows=names)

    @property
    def names(self) -> Names:
        """Names of the samples and of the features."""
        axes = (self.rows, self.columns) if self.samples == "rows" else (self.columns, self.rows)
        if self.notation is None:
            return Names(*axes)
        names = TableNames(*axes)
        names.notation = self.notation
        return names


@contextmanager
def reading(path: Path | str, *parts: Path) -> Iterator[None]:
    names = tuple(map(str, (path, *parts)))
    try:
        yield
    except Refused as error:
        raise (error if str(error).startswith(names) else error.after(f"{path}: ")).plain() from error.__cause__
    except (OSError, *_DAMAGED) as error:
        text = str(error)
        if not text.startswith(names) and not (isinstance(error, OSError) and is_address(text)):
            why = getattr(error, "strerror", None) or text or type(error).__name__
            text = f"{path} cannot be read: {why}"
        elif text == plain_lines(text):
            raise
        raise raisable(error)(plain_lines(text)) from error


def raisable(error: Exception) -> type[Exception]:
    kinds = (FileNotFoundError, PermissionError, IsADirectoryError, OSError)
    return next((kind for kind in kinds if isinstance(error, kind)), ValueError)


def optional(module: str, extra: str) -> Any:
    try:
        return sys.modules.get(module) or import_module(module)
    except ModuleNotFoundError as error:
        package, remedy = module.partition(".")[0], f"pip install 'shiftsvd[{extra}]'"
        raise ImportError(f"The package {package} is needed but not installed. Install it with: {remedy}") from error


class Optional:
    """A module that is imported when one of its names is first needed."""

    def __init__(self, module: str, extra: str) -> None:
        self._of = module, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(optional(*self._of), name)


_LONGEST_LINE = 1 << 28  # bytes of a line of a text file: a row of ten million numbers
NAME = 100  # bytes of a name, as Python holds it and in an array
_COLUMN = 400  # bytes for each column of a text: its name, and its cells in the first rows
_LONGEST_NAME = 1000  # characters; NumPy pads all names to the longest
_IN_PARTS = "convert the file, on a machine with more memory, to .h5ad, which is read in blocks"
TRANSPOSED = "store it transposed, as .h5ad, or as triplets, because each column of a table takes additional memory"


def called(path: Path) -> str:
    return path.name if path.name == PIPED else str(path)


def packing(path: Path) -> Literal["none", "gzip", "bzip2"]:
    with open(path, "rb") as file:
        magic = file.read(3)
    return "gzip" if magic[:2] == b"\x1f\x8b" else "bzip2" if magic == b"BZh" else "none"


def open_bytes(path: Path) -> IO[bytes]:
    opener: Any = {"gzip": gzip.open, "bzip2": bz2.open, "none": open}[packing(path)]
    return cast("IO[bytes]", opener(path, "rb"))


def in_rows(shape: tuple[int, ...]) -> str:
    """Return the remedy for an array of more than two dimensions, such as a stack of images."""
    return f"Save X.reshape({shape[0]}, -1), with a row for each sample."


def bounded(path: Path | str, n_bytes: int, memory_limit: int | str | None, remedy: str = _IN_PARTS) -> None:
    limit = limit_of(memory_limit)
    if limit is not None and n_bytes > limit:
        needs = f"{path} would take about {beyond(n_bytes, limit)} of memory."
        raise Refused(needs, *sentence("raise ", Setting("memory_limit"), f", or {remedy}"))


def refuse_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise Refused(f"{path} holds a single matrix without a name. Remove ", Setting("key", key), ".")


def plausible_shape(path: Path | str, shape: Sequence[int], memory_limit: int | str | None) -> None:
    if len(shape) != 2 or min(shape) < 1:
        rule = "must hold a matrix of at least one row and one column"
        raise ValueError(f"{path} {rule}, got shape {tuple(shape)}. Check that the file is complete.")
    bounded(path, 8 * sum(int(size) for size in shape), memory_limit)


def bounded_lines(
    path: Path, stream: IO[bytes], memory_limit: int | str | None, growth: int = 2, *, kept: bool = True
) -> Iterator[bytes]:
    # Each byte of a line needs `growth` bytes of memory; the next line reuses them unless lines are `kept`.
    limit, used, longest = limit_of(memory_limit), 0, longest_line(memory_limit, growth)
    while line := stream.readline(longest):
        used = growth * len(line) + (used if kept else 0)
        if len(line) == _LONGEST_LINE:
            raise too_long(path, _LONGEST_LINE)
        if limit is not None and used > limit:
            bounded(path, used, memory_limit)
        yield line


def longest_line(memory_limit: int | str | None, growth: int) -> int:
    limit = limit_of(memory_limit)
    return _LONGEST_LINE if limit is None else min(_LONGEST_LINE, limit // growth + 1)


def too_long(path: Path, longest: int) -> Refused:
    remedy = () if longest == _LONGEST_LINE else (" If it is, raise ", Setting("memory_limit"), ".")
    return Refused(f"{path} has a line of more than {longest:,} bytes. Check that it is a text file.", *remedy)


def bounded_width(path: Path, n_columns: int, memory_limit: int | str | None, each: int = _COLUMN) -> None:
    bounded(f"{path}: {n_columns:,} columns", each * n_columns, memory_limit, TRANSPOSED)


def labels(path: Path, names: Iterable[str], memory_limit: int | str | None) -> Labels:
    names = list(names)
    longest = max(map(len, names), default=0)
    if longest > _LONGEST_NAME:
        raise ValueError(f"{path} has a name of {longest:,} characters. Shorten it to at most {_LONGEST_NAME:,}.")
    bounded(path, 4 * max(longest, 1) * len(names), memory_limit)
    return np.array(names, dtype=np.str_)
