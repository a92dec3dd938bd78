"""Triplets (row, column, value) of a table, gathered into a sparse matrix."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from shiftsvd.io.base import Labels, Opened, optional
from shiftsvd.io.formats.columns import column_of_numbers, is_text
from shiftsvd.io.limits import bounded, labels, plausible_shape

_PLACES = (("row", "column"), ("row", "col"), ("i", "j"), ("user", "item"))
_VALUES = ("value", "x", "rating")
_BYTES = 48  # of memory for a triplet: as it is read, joined, and in the CSR

Positions = tuple[int, int, int]


def positions(names: Sequence[str], key: str | None) -> Positions | None:
    if key == "triplets":
        if len(names) < 3:
            raise ValueError(f"triplets need three columns, got {len(names)}: {', '.join(names)}")
        return (0, 1, 2)
    shown = [(j, name.strip().lower()) for j, name in enumerate(names) if name and not name.startswith("__index_level")]
    called = [name for _, name in shown]
    if key == "matrix" or len(called) != 3 or tuple(called[:2]) not in _PLACES or called[2] not in _VALUES:
        return None
    return (shown[0][0], shown[1][0], shown[2][0])


def gather(
    path: Path, batches: Iterable[Any], where: Positions, memory_limit: int | str | None, *, digits: bool = False
) -> Opened:
    rows, columns = _Axis(path, "row", digits=digits), _Axis(path, "column", digits=digits)
    values: list[npt.NDArray[Any]] = []
    count = 0
    for batch in batches:
        batch.validate(full=True)  # else damaged offsets are followed out of the file
        count += batch.num_rows
        bounded(path, _BYTES * count, memory_limit)
        rows.add(batch.column(where[0]))
        columns.add(batch.column(where[1]))
        values.append(column_of_numbers(batch.column(where[2])))
    if not count:
        raise ValueError(f"{path} has no triplets")
    i, j = rows.places(), columns.places()
    shape = int(i.max()) + 1, int(j.max()) + 1
    plausible_shape(path, shape, memory_limit)
    X = coo_array((np.concatenate(values), (i, j)), shape=shape).tocsr()
    return Opened(X, rows.names(memory_limit), columns.names(memory_limit))


class _Axis:
    """The rows, or the columns, that triplets name one after another."""

    def __init__(self, path: Path, what: str, *, digits: bool) -> None:
        self._path, self._what, self._digits = path, what, digits
        self._seen: dict[str, int] = {}
        self._parts: list[npt.NDArray[Any]] = []

    def add(self, column: Any) -> None:
        pa = optional("pyarrow", "parquet")
        if column.null_count:
            raise ValueError(f"{self._path} has triplets without a {self._what}; drop them first")
        if is_text(column.type):
            encoded = column.cast(pa.string()).dictionary_encode()
            codes = [self._seen.setdefault(name, len(self._seen)) for name in encoded.dictionary.to_pylist()]
            self._parts.append(np.array(codes, np.int64)[encoded.indices.to_numpy()])
        elif pa.types.is_integer(column.type):
            self._parts.append(column.to_numpy(zero_copy_only=False).astype(np.int64))
        else:
            raise ValueError(
                f"{self._path}: the {self._what}s of triplets must be positions or names, got {column.type}"
            )

    def places(self) -> npt.NDArray[np.int64]:
        places = np.concatenate(self._parts)
        if self._digits and all(map(_is_whole, self._seen)):
            places = np.array([int(text) for text in self._seen], np.int64)[places]
            self._seen = {}
        if places.min() < 0:
            raise ValueError(f"{self._path}: the positions of {self._what}s count from 0, got {places.min()}")
        return places

    def names(self, memory_limit: int | str | None) -> Labels | None:
        return labels(self._path, self._seen, memory_limit) if self._seen else None


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and (text == "0" or text.lstrip("-")[0] != "0")
