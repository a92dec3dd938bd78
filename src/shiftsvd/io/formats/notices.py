"""Notices about tables: identifiers, categories, totals, repeated names, each with a remedy."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Setting
from shiftsvd.io.base import Labels, Opened, called
from shiftsvd.io.choices import JOIN, Choices, naming, shown
from shiftsvd.io.formats.columns import says_identifiers
from shiftsvd.io.formats.text import Marks
from shiftsvd.runs.messages import log_notice, warn

_SHOWN = 5  # names in a notice
_RUN, _SHUFFLED = 5, 20  # rows from which consecutive integers, sorted and in any order, count as identifiers
_ABREAST = 16  # columns that are summed at once; the first block usually decides
_KINDS = 20  # maximum number of values of a column of classes
_CLASS: Final = re.compile(
    r"(.*[_\W])?(class|classes|label|labels|target|cluster|group|species|outcome|y)", re.IGNORECASE
)
_TOTAL: Final = re.compile(
    r"\W*((grand|sub)[- ]?)?(totals?|sums?|summe|gesamt(summe)?|insgesamt|total général|somme|suma|totale|totaal|"
    r"means?|averages?|mittelwert|durchschnitt|moyenne)\W*",
    re.IGNORECASE,
)


def check_table(path: Path, opened: Opened, choices: Choices, suspects: Iterable[tuple[str, npt.NDArray[Any]]]) -> None:
    # `suspects` are columns of whole numbers, which may be identifiers or categories.
    _notice_repeated(path, opened)
    if choices.remembered:
        return  # the model selects the columns
    _warn_of_columns(path, dict(suspects))
    matrix = opened.matrix
    if not _warn_of_total(path, opened.rows) and isinstance(matrix, np.ndarray) and len(matrix) > 3 and _is_sum(matrix):
        is_sum = "the last row is the sum of the others and is used as a sample. If it is a total, remove it."
        warn(f"{called(path)}: {is_sum}")


def suspects_of(opened: Opened, choices: Choices) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    matrix = opened.matrix
    names = [str(j + 1) for j in range(matrix.shape[1])] if opened.columns is None else opened.columns.tolist()
    indicators = tuple(f"{column}{JOIN}" for column in choices.one_hot)
    few = matrix[: _SHUFFLED + 1]
    for j in np.flatnonzero(np.all(few == np.floor(few), axis=0)):
        is_free = names[j] not in choices.columns and not names[j].startswith(indicators)
        if is_free and np.array_equal(matrix[:, j], np.floor(matrix[:, j])):
            yield names[j], matrix[:, j]


def _warn_of_columns(path: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    identifiers = [name for name, values in columns.items() if _looks_like_identifiers(name, values)]
    if identifiers:
        warn(
            f"{called(path)}: {_named(identifiers)} like identifiers or dates, but {_used(identifiers)} as numbers. ",
            "Use ",
            *(Setting("ids", identifiers[0]), " for row names, or "),
            *(naming("drop", identifiers[:_SHOWN]), f" to exclude {_these(identifiers)}."),
        )
    classes = [name for name, values in columns.items() if _CLASS.fullmatch(name.strip()) and _few(values)]
    if classes:
        warn(
            f"{called(path)}: {_named(classes)} like categories, but {_used(classes)} as numbers. Use ",
            *(naming("one_hot", classes[:_SHOWN]), " to encode each category as a column, "),
            *(naming("drop", classes[:_SHOWN]), f" to exclude {_these(classes)}, or "),
            *(Setting("label_column", classes[0]), " to colour the report of `shiftsvd fit`."),
        )


def _used(names: Sequence[str]) -> str:
    return "is used" if len(names) == 1 else "are used"


def _these(names: Sequence[str]) -> str:
    return "this column" if len(names) == 1 else "these columns"


def _looks_like_identifiers(name: str, values: npt.NDArray[Any]) -> bool:
    m = len(values)
    if m < 2:
        return False
    if np.all(are_dates(values)):
        return True
    if says_identifiers(name):
        return len(np.unique(values)) == m
    if m >= _RUN and np.all(np.diff(values) == 1):
        return True
    return m >= _SHUFFLED and np.ptp(values) == m - 1 and len(np.unique(values)) == m


def are_dates(values: Any) -> Any:
    return (values > 19000100) & (values < 21001232) & (values // 100 % 100 < 13) & (values % 100 < 32)


def _few(values: npt.NDArray[Any]) -> bool:
    return len(np.unique(values)) <= min(_KINDS, len(values) // 2)


def _warn_of_total(path: Path, rows: Labels | None) -> bool:
    ends = () if rows is None or len(rows) < 2 else (("last", str(rows[-1])), ("first", str(rows[0])))
    for where, name in ends:
        if _TOTAL.fullmatch(name):
            is_called = f"{called(path)}: the {where} row has the name {name!r} and is used as a sample. Use "
            warn(is_called, Setting("comment", name), " to skip this row.")
            return True
    return False


def has_suspect_name(name: str) -> bool:
    return says_identifiers(name) or _CLASS.fullmatch(name.strip()) is not None


def _is_sum(matrix: npt.NDArray[Any]) -> bool:
    if not np.any(matrix[-1]):
        return False
    parts = (matrix[:, lo : lo + _ABREAST] for lo in range(0, matrix.shape[1], _ABREAST))
    return all(np.all(np.abs(X[:-1].sum(axis=0) - X[-1]) <= 1e-9 * np.abs(X[:-1]).sum(axis=0)) for X in parts)


def _notice_repeated(path: Path, opened: Opened) -> None:
    for what, names in (("columns", opened.columns), ("rows", opened.rows)):
        if names is None or len(set(names.tolist())) == len(names):
            continue
        counts = Counter(names.tolist())
        twice = [name for name, count in counts.items() if count > 1]
        n_alike = sum(counts[name] for name in twice)
        repeated = f"{n_alike:,} {what} have repeated names: {shown(twice, _SHOWN)}. All of them are used. "
        log_notice(f"{called(path)}: {repeated}", *_remedy(what, twice))


def _remedy(what: str, twice: Sequence[str]) -> tuple[Part, ...]:
    if what == "rows":
        return "To distinguish them, use another column for row names (", Setting("ids"), ")."
    return "Rename them, or use ", naming("drop", twice[:_SHOWN]), " to exclude all of them."


def notice_label(path: Path, name: str, why: str | None) -> None:
    if why is not None:
        log_notice(f"{called(path)}: the first column{f' {name!r}' if name else ''} is used for row names: {why}.")


def notice_empty(path: Path, count: int) -> None:
    if count:
        rows = "row of empty cells is" if count == 1 else f"{count:,} rows of empty cells are"
        log_notice(f"{called(path)}: the last {rows} ignored.")


def notice_header(path: Path, names: Sequence[str] | None) -> None:
    if names is None:
        no_header = "the first line holds numbers, so the file has no header. Columns are named by their numbers."
        log_notice(f"{called(path)}: {no_header}")
    elif len(names) > 1 and names[0] and all(map(Marks().is_number, names[1:])):
        log_notice(f"{called(path)}: the first line is used as the header, although {names[1]!r} is a number.")


def _named(names: Sequence[str]) -> str:
    return f"column {shown(names)} looks" if len(names) == 1 else f"columns {shown(names, _SHOWN)} look"
