"""Which reader takes a file, which way round its matrix lies, and what its rows and columns are called."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.backends import as_operator
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.operators import Operator

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
        Names of the stored rows and columns.
    samples : "rows" or "columns"
        Where the samples are by the convention of the format, or by what the file says.
    """

    matrix: Any
    rows: Labels | None = None
    columns: Labels | None = None
    samples: Orient = "rows"
