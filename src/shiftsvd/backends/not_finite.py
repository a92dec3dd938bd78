"""Values that are no numbers: how many, in which columns, and what helps; who knows the names of columns says them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
SHOWN: Final = 5  # columns in an error
FILL: Final = 'drop or fill them first, or take missing="mean" or missing="em" of svd and PCA'
REPLACE: Final = "drop or replace them first"
IN_GAPS: Final = "drop them or set them NaN"  # of what is infinite where NaN marks what is missing
DROP: Final = "drop them"  # of columns without any number


@dataclass(frozen=True, eq=False)
class Found:
    """What is not finite in a matrix.

    Attributes
    ----------
    n_nan, n_inf : int
    rows, columns : arrays of shape (2, j)
        Which of them hold such values, from 0, and how many each.
    gaps : bool
        Whether NaN marks what is missing, and is not counted.
    nothing_else : bool
        Whether all that these columns have is missing, so that nothing can stand for it.
    where : str
        Which rows of which file were looked at.
    names : array of str, mapping of int, or None
        What the columns are called: names, or numbers that people count by.
    drop : str, or None
        How a column is left out, where it can be.
    remedy : str, or None
        What helps; None: what helps in Python.
    """

    n_nan: int
    n_inf: int
    rows: Counts
    columns: Counts
    gaps: bool = False
    nothing_else: bool = False
    where: str = ""
    names: Any = None
    drop: str | None = None
    remedy: str | None = None

    @property
    def at(self) -> str:
        places, counts = self.columns
        more = len(places) - SHOWN
        if self.names is not None:
            some = (
                _called(self.names[j]) + ("" if self.nothing_else else f" ({n:,})")
                for j, n in zip(places[:SHOWN], counts, strict=False)
            )
            return ", ".join(some) + (f" and {more:,} more columns" if more > 0 else "")
        first = ", ".join(map(str, places[:SHOWN])) + (", ..." if more > 0 else "")
        return f"{len(places)} column{'s' if len(places) > 1 else ''} (first: {first})"

    @property
    def text(self) -> str:
        if self.nothing_else:
            said = f"every column needs an observed entry, got none in {self.at}"
        elif self.names is not None and not self.n_inf:
            said = f"{self.n_nan:,} entr{'ies are' if self.n_nan > 1 else 'y is'} missing (NaN), in {self.at}"
        elif self.gaps:
            said = f"the matrix must be finite where it is observed, got {self.n_inf} inf in {self.at}"
        else:
            said = f"the matrix must be finite, got {self.n_nan} NaN and {self.n_inf} inf in {self.at}"
        usual = DROP if self.nothing_else else IN_GAPS if self.gaps else REPLACE if self.n_inf else FILL
        without = "" if self.drop is None else f"; {self.drop} leaves out what lacks them"
        return f"{self.where}{said}; {usual if self.remedy is None else self.remedy}{without}"


class NotFinite(ValueError):
    """NaN or infinite values where there must be none."""

    def __init__(self, found: Found) -> None:
        super().__init__(found)  # which is pickled, as by workers of a cluster
        self.found = found

    def __str__(self) -> str:
        return self.found.text

    def but(self, **known: Any) -> "NotFinite":
        return NotFinite(replace(self.found, **known))

    def turned(self) -> "NotFinite":
        return self.but(rows=self.found.columns, columns=self.found.rows)


def _called(name: Any) -> str:
    return f"column {name}" if isinstance(name, int) else repr(str(name))


@contextmanager
def named(names: Any) -> Iterator[None]:
    try:
        yield
    except NotFinite as error:
        texts = names is not None and all(isinstance(name, str) for name in names)  # others are places
        raise (error.but(names=names) if error.found.names is None and texts else error) from None
