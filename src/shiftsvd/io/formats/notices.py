"""Notices about tables: identifiers, categories, totals, repeated names, each with a remedy."""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Labels, Opened
from shiftsvd.io.choices import Choices, said
from shiftsvd.io.formats.columns import says_identifiers
from shiftsvd.io.formats.text import Marks
from shiftsvd.runs.messages import NOTICE, warn

LOG = logging.getLogger("shiftsvd")
_SHOWN = 5  # names in a notice
_RUN, _SHUFFLED = 5, 20  # rows from which 1, 2, 3, ... in order, and in any order, are no chance
_ABREAST = 16  # columns that are summed at once, the first few of which settle it
_KINDS = 20  # values of a column of classes at most
_CLASS: Final = re.compile(
    r"(.*[_\W])?(class|classes|label|labels|target|cluster|group|species|outcome|y)", re.IGNORECASE
)
_TOTAL: Final = re.compile(
    r"\W*((grand|sub)[- ]?)?(totals?|sums?|summe|gesamt(summe)?|insgesamt|total général|somme|suma|totale|totaal|"
    r"means?|averages?|mittelwert|durchschnitt|moyenne)\W*",
    re.IGNORECASE,
)


def called(path: Path) -> str:
    return path.name if path.name == "standard input" else str(path)


def tell(path: Path, opened: Opened, choices: Choices) -> None:
    tell_repeated(path, opened)
    if choices.remembered:
        return  # a model says which columns count
    matrix = opened.matrix
    names = [str(j + 1) for j in range(matrix.shape[1])] if opened.columns is None else opened.columns.tolist()
    free = [j for j, name in enumerate(names) if name not in choices.columns and not _is_indicator(name, choices)]
    tell_columns(path, {names[j]: matrix[:, j] for j in _whole(matrix, free)})
    if not tell_total(path, opened.rows) and len(matrix) > 3 and _is_sum(matrix):
        warn(
            f"{called(path)}: the last row is the sum of the others, and would count as a sample; "
            "remove it from the file"
        )


def _is_indicator(name: str, choices: Choices) -> bool:
    return any(name.startswith(f"{column}=") for column in choices.one_hot)


def _whole(matrix: npt.NDArray[Any], columns: Sequence[int]) -> list[int]:
    few = matrix[: _SHUFFLED + 1]
    likely = np.all(few == np.floor(few), axis=0)
    return [j for j in columns if likely[j] and np.array_equal(matrix[:, j], np.floor(matrix[:, j]))]


def tell_columns(path: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    identifiers = [name for name, values in columns.items() if looks_like_identifiers(name, values)]
    if identifiers:
        warn(
            f"{called(path)}: {_named(identifiers)} like identifiers or dates, and would count as numbers: "
            f"{said('ids', identifiers[:1])} names the rows by it, {said('drop', identifiers[:_SHOWN])} leaves it out"
        )
    classes = [name for name, values in columns.items() if _CLASS.fullmatch(name.strip()) and _few(values)]
    if classes:
        warn(
            f"{called(path)}: {_named(classes)} like classes, and would count as numbers: "
            f"{said('one_hot', classes[:_SHOWN])} makes a column of each class, "
            f"{said('drop', classes[:_SHOWN])} leaves it out, "
            f"{said('label_column', classes[:1])} colours the report of `shiftsvd fit`"
        )


def looks_like_identifiers(name: str, values: npt.NDArray[Any]) -> bool:
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


def tell_total(path: Path, rows: Labels | None) -> bool:
    ends = () if rows is None or len(rows) < 2 else (("last", str(rows[-1])), ("first", str(rows[0])))
    for where, name in ends:
        if _TOTAL.fullmatch(name):
            warn(
                f"{called(path)}: the {where} row is called {name!r}, and would count as a sample; "
                f"comment={name!r} leaves it out"
            )
            return True
    return False


def is_telling(name: str) -> bool:
    return says_identifiers(name) or _CLASS.fullmatch(name.strip()) is not None


def _is_sum(matrix: npt.NDArray[Any]) -> bool:
    if not np.any(matrix[-1]):
        return False
    parts = (matrix[:, lo : lo + _ABREAST] for lo in range(0, matrix.shape[1], _ABREAST))
    return all(np.all(np.abs(X[:-1].sum(axis=0) - X[-1]) <= 1e-9 * np.abs(X[:-1]).sum(axis=0)) for X in parts)


def tell_repeated(path: Path, opened: Opened) -> None:
    for what, names in (("columns", opened.columns), ("rows", opened.rows)):
        if names is None or len(set(names.tolist())) == len(names):
            continue
        counts = Counter(names.tolist())
        twice = [name for name, count in counts.items() if count > 1]
        n_alike = sum(counts[name] for name in twice)
        told = f"names of {what} are not unique: {n_alike:,} {what} are called {_listed(twice)}"
        LOG.log(NOTICE, "%s: %s; %s", called(path), told, _remedy(what, twice))


def _remedy(what: str, twice: Sequence[str]) -> str:
    if what == "rows":
        return "all of them count; let another column name the rows (ids), if these are to be told apart"
    return f"all of them count; rename them, or {said('drop', twice[:_SHOWN])} leaves out all of that name"


def tell_label(path: Path, name: str, why: str | None) -> None:
    if why is not None:
        LOG.log(NOTICE, "%s: the first column%s names the rows: %s", called(path), f" {name!r}" if name else "", why)


def tell_empty(path: Path, count: int) -> None:
    if count:
        rows, are = ("row", "is") if count == 1 else (f"{count:,} rows", "are")
        LOG.log(NOTICE, "%s: the last %s of empty cells %s left out", called(path), rows, are)


def tell_header(path: Path, names: Sequence[str] | None) -> None:
    if names is None:
        LOG.log(
            NOTICE, "%s: has no header, as its first line is numbers; columns are called by their numbers", called(path)
        )
    elif len(names) > 1 and names[0] and all(Marks().is_number(name) for name in names[1:]):
        LOG.log(NOTICE, "%s: the first line is taken for the header, though %r is a number", called(path), names[1])


def _named(names: Sequence[str]) -> str:
    return f"column {_listed(names)} looks" if len(names) == 1 else f"columns {_listed(names)} look"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
