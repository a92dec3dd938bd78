"""Why a column is no feature, and which setting helps."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from shiftsvd.io.choices import said
from shiftsvd.io.formats.marks import Marks, is_gap, looks_like_number, without_signs

_SHOWN = 6  # columns in an error
_LONGEST = 40  # characters of a cell in an error
_FEW = 10  # texts that all differ, from which they are no classes
_DOES: Final = {
    "one_hot": "makes a column of each class",
    "label_column": "colours the report of `shiftsvd fit`",
    "ids": "names the rows by it",
    "drop": "leaves it out",
}
_DATE: Final = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?"
    r"|\d{1,2}[- ]?[A-Za-z]{3,9}\.?[- ,]*\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
)
_OTHER_MARKS = (
    Marks(".", None),
    Marks(",", None),
    Marks(".", ","),
    Marks(",", "."),
    *(Marks(decimal, mark) for decimal in ".," for mark in " '\u00a0\u202f\u2019"),
)


def not_numbers(columns: Mapping[str, Sequence[str]], marks: Marks) -> str:
    wrong = {
        name: [cell.strip() for cell in cells if not is_gap(cell) and not marks.is_number(cell)] or [""]
        for name, cells in columns.items()
    }
    some = {name: min(cells, key=_is_otherwise) for name, cells in list(wrong.items())[:_SHOWN]}
    many = f" and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
    shown = ", ".join(f"{name!r} ({_kind(cell)} {_short(cell)!r})" for name, cell in some.items())
    word = "column" if len(wrong) == 1 else "columns"
    return f"{word} {shown}{many} must be numbers; {_remedies(wrong, columns, marks)}"


def _remedies(wrong: Mapping[str, Sequence[str]], columns: Mapping[str, Sequence[str]], marks: Marks) -> str:
    other = {name: _other_marks(cells, marks) for name, cells in wrong.items()}
    written = next((found for found in other.values() if found is not None), None)
    told = [] if written is None else [f"{_written(written, marks)} reads them"]
    if _is_first_row(wrong, columns):
        return "the first row below the header is none: leave it out, if these are units"
    signs = [name for name, found in other.items() if found is None and all(map(looks_like_number, wrong[name]))]
    if signs:
        cell = wrong[signs[0]][0]
        told.append(f"{_short(cell)!r} may be written {_short(without_signs(cell))}, without other signs")
    left = [name for name, found in other.items() if found is None and name not in signs]
    for setting, does in _DOES.items():
        helped = [name for name in left if setting in _settings(wrong[name], columns[name])]
        if helped:
            told.append(f"{said(setting, helped[: _SHOWN if setting in ('one_hot', 'drop') else 1])} {does}")
    return ", ".join(told)


def _is_first_row(wrong: Mapping[str, Sequence[str]], columns: Mapping[str, Sequence[str]]) -> bool:
    first = [
        cells[0].strip() for name, cells in columns.items() if len(cells) > 1 and wrong[name] == [cells[0].strip()]
    ]
    return len(first) == len(columns) > 1


def _settings(wrong: Sequence[str], cells: Sequence[str]) -> tuple[str, ...]:
    there = [cell for cell in cells if not is_gap(cell)]
    if len(wrong) < len(there) or len(there) == 1:
        return ("ids", "drop") if len(set(there)) == len(cells) > 1 else ("drop",)  # a text among numbers
    all_differ = len(set(there)) == len(cells)
    if _DATE.fullmatch(wrong[0]):
        return ("ids", "drop") if all_differ else ("drop",)
    return (
        ("ids", "drop")
        if all_differ and len(there) >= _FEW
        else ("one_hot", "ids" if all_differ else "label_column", "drop")
    )


def _kind(cell: str) -> str:
    return "the date" if _DATE.fullmatch(cell) else "the text"


def _is_otherwise(cell: str) -> bool:
    return any(marks.is_number(cell) for marks in _OTHER_MARKS)


def _other_marks(cells: Sequence[str], marks: Marks) -> Marks | None:
    return next((each for each in _OTHER_MARKS if each != marks and all(map(each.is_number, cells))), None)


def _written(found: Marks, marks: Marks) -> str:
    named = {"decimal": found.decimal, "thousands": found.thousands}
    return ", ".join(
        f"{name}={mark!r}" for name, mark in named.items() if mark is not None and mark != getattr(marks, name)
    )


def _short(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…"
