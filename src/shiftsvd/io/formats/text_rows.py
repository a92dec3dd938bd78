"""The rows of a text, many at a time: by Arrow, or one by one where there are very many columns."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional
from shiftsvd.io.formats.columns import Layout, found_classes, texts, to_numbers
from shiftsvd.io.formats.delimited import Head
from shiftsvd.io.formats.marks import GAPS, is_gap
from shiftsvd.io.formats.refusals import not_numbers
from shiftsvd.io.formats.written import OTHER_ENCODING, for_arrow, opened
from shiftsvd.io.limits import bounded_lines
from shiftsvd.runs.memory import limit_of

Part = tuple[npt.NDArray[Any], list[str]]  # rows, and their names if they have some
# Bytes of text that are parsed at once, and their part of the limit: Arrow reads 32 of them ahead, whose numbers take
# several times the text.
_BLOCK, _LEAST, _SHARE = 1 << 24, 1 << 16, 1024
_WIDEST = 32  # bytes of text of one number
_CUT = 12  # bytes of memory for each byte of a row that is cut into cells
_WIDE = 1 << 13  # columns; Arrow takes some ten kilobytes for each


def parts(path: Path, head: Head, memory_limit: int | str | None) -> tuple[list[str] | None, Iterator[Part]]:
    places = {j: place for place, j in enumerate(_read_columns(head))}
    classes = _classes(path, head, places, memory_limit)
    label = None if head.roles.label is None else places[head.roles.label]
    form = Layout(label, [places[j] for j in head.roles.features], np.dtype(np.float64), classes)
    names = None if head.names is None and not classes else form.named([head.called[j] for j in places])
    if head.width > _WIDE and not classes:
        return names, _wide(path, head, memory_limit)
    return names, _narrow(path, head, form, memory_limit)


def _read_columns(head: Head) -> list[int]:
    roles = head.roles
    return sorted({*roles.features, *(() if roles.label is None else (roles.label,))})


def _narrow(path: Path, head: Head, form: Layout, memory_limit: int | str | None) -> Iterator[Part]:
    numbers = [j for j in form.numbers if j not in form.classes]
    with batches(path, head, _read_columns(head), memory_limit) as found:
        for batch in found:
            batch.validate(full=True)  # else damaged offsets are followed out of the file
            if head.marks.thousands is not None:
                batch = _read_numbers(path, head, batch, numbers)
            names = [] if form.label is None else texts(batch.column(form.label))
            yield to_numbers(batch, form), names


def _read_numbers(path: Path, head: Head, batch: Any, numbers: Sequence[int]) -> Any:
    for j in numbers:
        name = batch.schema.names[j]
        with _naming(path, head, int(name)):
            batch = batch.set_column(j, name, head.marks.numbers(batch.column(j)))
    return batch


def _classes(
    path: Path, head: Head, places: dict[int, int], memory_limit: int | str | None
) -> dict[int, Sequence[str]]:
    said = {j: head.classes.get(head.called[j], ()) for j in head.roles.classes}
    unknown = [j for j, classes in said.items() if not classes]
    if unknown:
        with batches(path, head, unknown, memory_limit) as found:
            classes = found_classes(found, range(len(unknown)))
        said |= {j: classes[i] for i, j in enumerate(unknown)}
    return {places[j]: classes for j, classes in said.items()}


def block_bytes(memory_limit: int | str | None) -> int:
    limit = limit_of(memory_limit)
    return _BLOCK if limit is None else int(np.clip(limit // _SHARE, _LEAST, _BLOCK))


@contextmanager
def batches(
    path: Path, head: Head, columns: Sequence[int], memory_limit: int | str | None = None, *, as_text: bool = False
) -> Iterator[Iterator[Any]]:
    pa, arrow_csv = optional("pyarrow", "parquet"), optional("pyarrow.csv", "parquet")
    words = {*head.roles.classes, head.roles.label, *(head.triplets[:2] if head.triplets else ())}
    names = [str(j) for j in range(head.width)]
    number = pa.float64() if head.marks.thousands is None else pa.string()
    with for_arrow(path, head.written, head.skip, memory_limit) as stream, _naming(path, head):
        yield arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(
                column_names=names, block_size=max(block_bytes(memory_limit), _WIDEST * head.width), use_threads=False
            ),
            arrow_csv.ParseOptions(delimiter=head.separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types={names[j]: pa.string() if as_text or j in words else number for j in columns},
                include_columns=[names[j] for j in columns],
                null_values=GAPS,
                decimal_point=head.marks.decimal,
            ),
        )


def _wide(path: Path, head: Head, memory_limit: int | str | None) -> Iterator[Part]:
    label, features = head.roles.label, head.roles.features
    step = max(1, block_bytes(memory_limit) // (8 * len(features)))
    block, names = [], []
    for cells in _rows(path, head, memory_limit):
        block.append(_row(path, head, cells))
        names += [] if label is None else [cells[label]]
        if len(block) == step:
            yield np.array(block), names
            block, names = [], []
    if block:
        yield np.array(block), names


def _rows(path: Path, head: Head, memory_limit: int | str | None) -> Iterator[list[str]]:
    with opened(path, head.written, memory_limit) as stream:
        stream.read(head.skip)
        lines = (line.decode() for line in bounded_lines(path, stream, memory_limit, _CUT, kept=False))
        for number, cells in enumerate(csv.reader(lines, delimiter=head.separator, strict=True), start=1):
            if cells and len(cells) != head.width:
                raise ValueError(f"{path}: row {number} has {len(cells)} cells, where the first has {head.width}")
            if cells:
                yield cells


def _row(path: Path, head: Head, cells: Sequence[str]) -> npt.NDArray[np.float64]:
    features, marks = head.roles.features, head.marks
    chosen = cells if len(features) == len(cells) else [cells[j] for j in features]
    if "_" not in "".join(chosen):  # 1_0 is 10 to Python alone
        try:
            return np.array([cell or "nan" for cell in chosen], np.float64)
        except ValueError:
            pass
    wrong = [j for j, cell in zip(features, chosen, strict=True) if not (is_gap(cell) or marks.is_number(cell))]
    if wrong:
        raise ValueError(f"{path}: {not_numbers({head.called[j]: [cells[j]] for j in wrong}, marks)}")
    return np.array([marks.number(cell) for cell in chosen])


@contextmanager
def _naming(path: Path, head: Head, j: int | None = None) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not {head.written.encoding.upper()}; {OTHER_ENCODING}") from error
    except ValueError as error:
        text = str(error)
        if text.startswith(str(path)):
            raise
        if "invalid UTF8" in text:
            raise ValueError(f"{path} is not UTF-8; {OTHER_ENCODING}") from error
        found = re.search(r"(?:column #(\d+).*?)?invalid value '(.*)'", text, re.DOTALL)
        if not found:
            raise
        name = head.called[int(found[1]) if found[1] else j or 0]
        raise ValueError(f"{path}: {not_numbers({name: [found[2]]}, head.marks)}") from error
