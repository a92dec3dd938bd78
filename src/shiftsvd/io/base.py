"""What a reader of a file gives, and how it fails: names, `Opened`, and errors that begin with the name of the file."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.runs.plain import plain_lines

# What the libraries below raise on damaged files, beside OSError.
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
PIPED = "standard input"  # what a file is called that came that way


class Names(NamedTuple):
    """The names of the samples and of the features; None where the file has none.

    Parameters
    ----------
    samples : array of str, of shape (n_samples,), or None
        The names of the rows.
    features : array of str, of shape (n_features,), or None
        The names of the columns.

    See Also
    --------
    io.open_matrix : Gives them with the matrix.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> ss.io.Names(samples=None, features=["a", "b"]).features
    ['a', 'b']
    """

    samples: Labels | None = None
    features: Labels | None = None


@dataclass(frozen=True, eq=False)
class Features:
    """What a file of single cells says of its features.

    Attributes
    ----------
    names : array of str
    ids : array of str, or None
        Which differ where names may not.
    types : array of str, or None
        Of which kind each one is, such as "Gene Expression" or "Antibody Capture".
    usual : str, or None
        The type that is taken where nothing is said; None for all of them.
    """

    names: Labels
    ids: Labels | None = None
    types: Labels | None = None
    usual: str | None = None

    def at(self, places: Any) -> "Features":
        ids, types = (None if each is None else each[places] for each in (self.ids, self.types))
        return Features(self.names[places], ids, types, self.usual)

    def labels(self) -> Labels:
        return self.names if self.ids is None or len(set(self.names.tolist())) == len(self.names) else self.ids


@dataclass(frozen=True, eq=False)
class Opened:
    """What a reader finds in a file.

    Parameters
    ----------
    matrix : array, sparse matrix, or RowSource
        As it is stored: a `RowSource` where the file can be read a range of rows at a time.
    rows, columns : arrays of str, or None
        Names of the rows and columns that the file speaks of.
    samples : "rows" or "columns"
        Where the samples are by the convention of the format, or by what the file says.
    transposed : bool
        Whether `matrix` is the adjoint of what the file speaks of: a file in the order of its columns is a source of
        columns. `rows`, `columns` and `samples` are not concerned.
    features : Features, or None
        What the file says of its features beside their names; nothing where somebody says that they are samples.
    places : array of int, or None
        Which features of the file these are; None for all of them.
    unsaid : str, or None
        What those are to know who do not say where the samples are.
    table : bool
        Whether it is a table, whose columns can be left out.

    See Also
    --------
    io.open_matrix : Opens files, and gives an operator.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> opened = ss.io.Opened(np.ones((3, 2)), columns=np.array(["a", "b", "c"]), samples="columns")
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
    unsaid: str | None = None
    table: bool = False

    @property
    def by_features(self) -> bool:
        """Whether the rows of `matrix` are features."""
        return self.transposed == (self.samples == "rows")

    def with_features(self, names: Labels | None) -> "Opened":
        """The file with other names of features.

        Parameters
        ----------
        names : array of str, of shape (n_features,), or None
            The names.

        Returns
        -------
        Opened
            The same matrix; nothing of it is copied.
        """
        return replace(self, columns=names) if self.samples == "rows" else replace(self, rows=names)

    @property
    def names(self) -> Names:
        """The names of the samples and of the features."""
        return Names(*((self.rows, self.columns) if self.samples == "rows" else (self.columns, self.rows)))


class Unfit(ValueError):
    """Of a file that was read, and is not what was asked for: who names the file does not say that it was not read."""


@contextmanager
def reading(path: Path | str, *parts: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, *_DAMAGED) as error:
        said = str(error)
        if not said.startswith((str(path), *map(str, parts))):
            why = getattr(error, "strerror", None) or said or type(error).__name__
            what = ":" if isinstance(error, Unfit) else " cannot be read:"
            raise kind_of(error)(plain_lines(f"{path}{what} {why}")) from error
        if said != plain_lines(said):
            raise kind_of(error)(plain_lines(said)) from error
        raise


def kind_of(error: Exception) -> type[Exception]:
    kinds = (FileNotFoundError, PermissionError, IsADirectoryError, OSError)
    return next((kind for kind in kinds if isinstance(error, kind)), ValueError)


def optional(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package, remedy = module.partition(".")[0], f"pip install 'shiftsvd[{extra}]'"
        raise ImportError(f"this file needs the package {package}, which is not installed: {remedy}") from error
