"""Tables: CSV, TSV, Parquet and Arrow files, each a matrix of numbers or triplets (row, column, value)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Labels, Opened, Unfit, optional, reading
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats import parquet, text_rows, triplets
from shiftsvd.io.formats.columns import found_classes, layout, texts, to_numbers
from shiftsvd.io.formats.delimited import head_of
from shiftsvd.io.formats.telling import tell, tell_empty, tell_header, tell_label
from shiftsvd.io.limits import NAME, bounded, labels, plausible_shape

_KEYS = (None, "matrix", "triplets")


def read(path: Path, key: str | None, memory_limit: int | str | None, choices: Choices | None = None) -> Opened:
    """The matrix of a table.

    A table of numbers has the names of its rows in its first column if that is text, and those of its columns
    in its header. A table of three columns called row, column, value (or row, col; i, j; user, item; and x, rating)
    is triplets: their rows and columns are positions that count from 0, or names, in the order of their first use;
    values of the same place are summed. The key "matrix" or "triplets" decides for itself.
    """
    if key not in _KEYS:
        raise ValueError(f'{path}: the key of a table must be "matrix" or "triplets", got {key!r}')
    choices = choices or Choices()
    with reading(path):
        with open(path, "rb") as file:
            magic = file.read(6)
        is_parquet, is_arrow = magic[:4] == b"PAR1", magic == b"ARROW1" or magic[:4] == b"\xff\xff\xff\xff"
        if (is_parquet or is_arrow) and choices.of_texts and not choices.remembered:
            raise Unfit(f"{choices.of_texts[0]} says how a text is written, and this is none; leave it out")
        if is_parquet:
            return parquet.read(path, key, memory_limit, choices)
        if is_arrow:
            return _read_arrow(path, key, memory_limit, choices, stream=magic != b"ARROW1")
        return _read_text(path, key, memory_limit, choices)


def _read_arrow(
    path: Path, key: str | None, memory_limit: int | str | None, choices: Choices, *, stream: bool
) -> Opened:
    pa, ipc = optional("pyarrow", "parquet"), optional("pyarrow.ipc", "parquet")
    with pa.OSFile(str(path)) as source:
        # The default pool keeps what was freed for itself.
        pool = pa.system_memory_pool()
        table = ipc.open_stream(source, memory_pool=pool) if stream else ipc.open_file(source, memory_pool=pool)
        batches: Iterable[Any] = map(
            _sound, table if stream else (table.get_batch(i) for i in range(table.num_record_batches))
        )
        places = triplets.positions(table.schema.names, key)
        if places:
            choices.refuse_for("triplets")
            return triplets.gather(path, batches, places, memory_limit)
        form = layout(path, table.schema, choices)
        batches = list(batches) if form.classes else batches
        unknown = [j for j, classes in form.classes.items() if not classes]
        form = form._replace(classes={**form.classes, **found_classes(batches if unknown else (), unknown)})
        parts = (
            (to_numbers(batch, form), [] if form.label is None else texts(batch.column(form.label)))
            for batch in batches
        )
        return _gather(path, parts, form.named(table.schema.names), form.label is not None, memory_limit, choices)


def _sound(batch: Any) -> Any:
    batch.validate(full=True)
    return batch


def _read_text(path: Path, key: str | None, memory_limit: int | str | None, choices: Choices) -> Opened:
    head = head_of(path, key, choices, memory_limit)
    tell_empty(path, head.written.empty)
    if head.triplets:
        choices.refuse_for("triplets", choices.of_texts)
        with text_rows.batches(path, head, range(head.width), memory_limit) as batches:
            return triplets.gather(path, batches, head.triplets, memory_limit, digits=True)
    names, parts = text_rows.parts(path, head, memory_limit)
    tell_header(path, head.names)
    tell_label(path, head.called[0], head.roles.why)
    return _gather(path, parts, names, head.roles.label is not None, memory_limit, choices)


def _below(matrix: npt.NDArray[Any], block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if matrix.base is not None or not matrix.flags.c_contiguous:
        matrix = np.array(matrix, order="C")
    first = len(matrix)
    matrix.resize((first + len(block), matrix.shape[1]), refcheck=False)
    matrix[first:] = block
    return matrix


def _gather(
    path: Path,
    parts: Iterable[text_rows.Part],
    names: Iterable[str] | None,
    is_named: bool,
    memory_limit: int | str | None,
    choices: Choices,
) -> Opened:
    matrix, rows = None, list[str]()
    for block, called in parts:
        held = 0 if matrix is None else matrix.nbytes
        bounded(path, held + 2 * block.nbytes + NAME * (len(rows) + len(called)), memory_limit)
        matrix = block if matrix is None else _below(matrix, block)
        rows += called
    if matrix is None:
        raise ValueError(f"{path} has no rows")
    plausible_shape(path, matrix.shape, memory_limit)
    columns: Labels | None = None if names is None else labels(path, names, memory_limit)
    found = Opened(matrix, labels(path, rows, memory_limit) if is_named else None, columns, table=True)
    tell(path, found, choices)
    return found
