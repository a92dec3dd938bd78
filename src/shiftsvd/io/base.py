"""What a reader of a file gives, and how it fails: names, `Opened`, and errors that begin with the name of the file."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

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


class Names(NamedTuple):
    """The names of the samples and of the features; None where the file has none."""

    samples: Labels | None = None
    features: Labels | None = None


@dataclass(frozen=True, eq=False)
class Opened:
    """What a reader finds in a file.

    Attributes
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
    table : bool
        Whether it is a table, whose columns can be left out.
    """

    matrix: Any
    rows: Labels | None = None
    columns: Labels | None = None
    samples: Orient = "rows"
    transposed: bool = False
    table: bool = False

    @property
    def by_features(self) -> bool:
        """Whether the rows of `matrix` are features."""
        return self.transposed == (self.samples == "rows")

    @property
    def names(self) -> Names:
        """Of the samples and the features."""
        return Names(*((self.rows, self.columns) if self.samples == "rows" else (self.columns, self.rows)))


@contextmanager
def reading(path: Path | str, *parts: Path) -> Iterator[None]:
    """Turn what libraries raise on a damaged file into ValueError or OSError that begins with its name, or a part's."""
    try:
        yield
    except (OSError, *_DAMAGED) as error:
        if str(error).startswith((str(path), *map(str, parts))):
            raise
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise kind_of(error)(f"{path} cannot be read: {why}") from error


def kind_of(error: Exception) -> type[Exception]:
    """ValueError, or OSError, or the kinds of OSError that say what to do."""
    kinds = (FileNotFoundError, PermissionError, IsADirectoryError, OSError)
    return next((kind for kind in kinds if isinstance(error, kind)), ValueError)


def optional(module: str, extra: str) -> Any:
    """A module of an optional package, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package, remedy = module.partition(".")[0], f"pip install 'shiftsvd[{extra}]'"
        raise ImportError(f"this file needs the package {package}, which is not installed: {remedy}") from error
