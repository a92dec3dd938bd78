"""Tables: CSV, TSV, Parquet and Arrow files, each a matrix of numbers or triplets (row, column, value)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd.io.base import Labels, Opened, optional, reading
from shiftsvd.io.formats import delimited, parquet, triplets
from shiftsvd.io.formats.columns import Layout, layout, texts, to_numbers
from shiftsvd.io.limits import bounded, labels, plausible_shape

_KEYS = (None, "matrix", "triplets")


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    """The matrix of a table.

    A table of numbers has the names of its rows in its first column if that is text, and those of its columns
    in its header. A table of three columns called row, column, value (or row, col; i, j; user, item; and x, rating)
    is triplets: their rows and columns are positions that count from 0, or names, in the order of their first use;
    values of the same place are summed. The key "matrix" or "triplets" decides for itself.
    """
    if key not in _KEYS:
        raise ValueError(f'{path}: the key of a table must be "matrix" or "triplets", got {key!r}')
    with reading(path):
        with open(path, "rb") as file:
            magic = file.read(6)
        if magic[:4] == b"PAR1":
            return parquet.read(path, key, memory_limit)
        if magic == b"ARROW1" or magic[:4] == b"\xff\xff\xff\xff":
            return _read_arrow(path, key, memory_limit, stream=magic != b"ARROW1")
        return _read_text(path, key, memory_limit)


def _read_arrow(path: Path, key: str | None, memory_limit: int | str | None, *, stream: bool) -> Opened:
    """The table of an Arrow file (Feather) or stream."""
    pa, ipc = optional("pyarrow", "parquet"), optional("pyarrow.ipc", "parquet")
    with pa.OSFile(str(path)) as source:
        table = ipc.open_stream(source) if stream else ipc.open_file(source)
        batches = table if stream else (table.get_batch(i) for i in range(table.num_record_batches))
        positions = triplets.positions(table.schema.names, key)
        if positions:
            return triplets.gather(path, batches, positions, memory_limit)
        return _gather(path, batches, layout(path, table.schema), table.schema.names, memory_limit)


def _read_text(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    """The table of a text."""
    head = delimited.head(path, key)
    with delimited.batches(path, head) as batches:
        if head.triplets:
            return triplets.gather(path, batches, head.triplets, memory_limit, digits=True)
        numbers = [j for j in range(head.width) if j != head.label]
        return _gather(path, batches, Layout(head.label, numbers, np.dtype(np.float64)), head.names, memory_limit)


def _gather(
    path: Path, batches: Iterable[Any], form: Layout, names: Sequence[str] | None, memory_limit: int | str | None
) -> Opened:
    """The matrix of all batches."""
    blocks, rows, n_bytes = [], [], 0
    for batch in batches:
        batch.validate(full=True)  # else damaged offsets are followed out of the file
        n_bytes += batch.num_rows * len(form.numbers) * form.dtype.itemsize
        bounded(path, 2 * n_bytes, memory_limit)
        blocks.append(to_numbers(batch, form))
        if form.label is not None:
            rows += texts(batch.column(form.label))
    if not blocks:
        raise ValueError(f"{path} has no rows")
    matrix = np.concatenate(blocks)
    plausible_shape(path, matrix.shape, memory_limit)
    columns: Labels | None = None
    if names is not None:
        columns = labels(path, [names[j] for j in form.numbers], memory_limit)
    return Opened(matrix, None if form.label is None else labels(path, rows, memory_limit), columns)
