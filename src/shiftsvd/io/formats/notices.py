"""Notices about tables: identifiers, categories, totals, repeated names, each with a remedy."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from shiftsvd.errors import Part, Setting
from shiftsvd.io.base import Opened, called
from shiftsvd.io.choices import Choices, naming, shown
from shiftsvd.io.formats.cells import any_number
from shiftsvd.io.formats.tally import Finding, Tally, of_numbers
from shiftsvd.runs.messages import log_notice, warn

_SHOWN = 5  # names in a notice


def check_table(path: Path, opened: Opened, choices: Choices, tallies: Iterable[Tally]) -> None:
    # `tallies` are those of columns that may be identifiers or categories.
    _notice_repeated(path, opened)
    _warn_of_shifted_names(path, opened)
    if choices.remembered:
        return  # the model selects the columns
    for finding in of_numbers(tallies, choices):
        warn(f"{called(path)}: ", *finding.parts)


def _notice_repeated(path: Path, opened: Opened) -> None:
    for what, names in (("columns", opened.columns), ("rows", opened.rows)):
        if names is None or len(set(names.tolist())) == len(names):
            continue
        counts = Counter(names.tolist())
        twice = [name for name, count in counts.items() if count > 1]
        n_alike = sum(counts[name] for name in twice)
        repeated = f"{n_alike:,} {what} have repeated names: {shown(twice, _SHOWN)}. All of them are used. "
        log_notice(f"{called(path)}: {repeated}", *_remedy(what, twice))


def _warn_of_shifted_names(path: Path, opened: Opened) -> None:
    # R writes no name for the column of row names; a spreadsheet then adds an empty one at the end.
    names = [] if opened.columns is None else opened.columns.tolist()
    if opened.rows is not None and names and names[-1] == "" and "" not in names[:-1]:
        warn(
            f"{called(path)}: the last column has no name. If the name of the first column is missing, as in files of "
            "R, the names may be shifted by one column. Give every column a name."
        )


def _remedy(what: str, twice: Sequence[str]) -> tuple[Part, ...]:
    if what == "rows":
        return "To distinguish them, use another column for row names (", Setting("ids"), ")."
    return "Rename them, or use ", naming("drop", twice[:_SHOWN]), " to exclude all of them."


def notice_label(path: Path, name: str, why: str | None) -> None:
    if why is not None:
        first = f"{called(path)}: the first column{f' {name!r}' if name else ''} is used for row names, because {why}. "
        log_notice(first, "To take them from another column, use ", Setting("ids"), ".")


def log_findings(path: Path, findings: Iterable[Finding]) -> None:
    for finding in findings:
        log_notice(f"{called(path)}: ", *finding.parts)


def notice_header(path: Path, names: Sequence[str] | None) -> None:
    if names is None:
        no_header = "the first line holds numbers, so the file has no header. Columns are named by their numbers."
        log_notice(f"{called(path)}: {no_header}")
    elif len(names) > 1 and names[0] and all(map(any_number, names[1:])):
        is_header = f"{called(path)}: the first line is used as the header, although {names[1]!r} is a number. "
        log_notice(f"{is_header}If this line is a sample, add a header above it.")
