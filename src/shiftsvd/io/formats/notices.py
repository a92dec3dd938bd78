"""Notices and errors about tables: identifiers, categories, texts, totals, repeated names, each with a remedy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from shiftsvd.errors import Part, Refused, Setting, few, plural
from shiftsvd.io.base import Notation, Opened, called
from shiftsvd.io.choices import Choices, naming, shown
from shiftsvd.io.formats.cells import any_number, number, same_unit, unit_of_header
from shiftsvd.io.formats.columns import use
from shiftsvd.io.formats.ranges import short
from shiftsvd.io.formats.tally import FACTORS, FEW, Finding, Tally, are
from shiftsvd.runs.messages import log_notice, warn

_SHOWN = 5  # names in a notice
_COLUMNS = 6  # columns in an error
_NAMED = 5  # names in a warning
_ORDERED = "keep ordered answers, such as 1 to 5, as numbers"
PROSE = 5  # words of a text that is no category


def check_table(path: Path, opened: Opened, choices: Choices, tallies: Sequence[Tally]) -> None:
    # `tallies` are those of columns that may be identifiers or categories.
    _notice_repeated(path, opened)
    _warn_of_shifted_names(path, opened)
    # With remembered settings the model selects the columns.
    found = (each for tally in tallies for each in tally.warnings())
    for finding in found if choices.remembered else of_numbers(tallies, choices):
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


def log_findings(path: Path, findings: Iterable[Finding]) -> None:
    for finding in findings:
        log_notice(f"{called(path)}: ", *finding.parts)


def notice_header(path: Path, names: Sequence[str] | None, first: str, why: str | None) -> None:
    if names is None:
        no_header = "the first line holds numbers, so the file has no header. Columns are named by their numbers."
        log_notice(f"{called(path)}: {no_header}")
    elif len(names) > 1 and names[0] and (odd := _number_among(names[1:])):
        is_header = f"{called(path)}: the first line is used as the header, although {odd!r} is a number. "
        log_notice(f"{is_header}If this line is a sample, add a header above it.")
    if why is not None:
        used = f"the first column{f' {first!r}' if first else ''} is used for row names, because {why}. "
        log_notice(f"{called(path)}: {used}To take them from another column, use ", Setting("ids"), ".")


def _number_among(names: Sequence[str]) -> str:
    """Return the first name if all are numbers, as years are, or the first one with decimals, or ""."""
    if all(map(any_number, names)):
        return names[0]
    return next((name for name in names if (found := number(name)) and found.value % 1 and not found.unit), "")


# --- findings about several columns ---


def of_variants(name: str, categories: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding if categories differ in case or blanks only."""
    spellings = dict[str, list[str]]()
    for category in categories:
        spellings.setdefault("".join(category.split()).casefold(), []).append(category)
    several = sorted(sorted(each) for each in spellings.values() if len(each) > 1)
    if several:
        shown = few((" and ".join(map(repr, each)) for each in several), 2)
        text = f"column {name!r}: {shown} differ in case or blanks only, and are different categories."
        yield Finding(f"{text} Correct them in the file.", columns=(name,), is_error=False)


# Settings that a column of texts may need, and for how many columns each is offered.
_OF_TEXTS: Final = {"one_hot": _COLUMNS, "label_column": 1, "ids": 1, "drop": None}


def of_text_columns(tallies: Sequence[Tally], *, alone: bool = False, has_names: bool = False) -> list[Finding]:
    """Return the finding about features that hold texts: an option for each; `alone` if there is one column."""
    if not tallies:
        return []
    text, names = _told_of_texts(tallies, has_names), tuple(tally.name for tally in tallies)
    if all(tally.has_wrong_decimal for tally in tallies):
        return [Finding(text, (tallies[0].other_decimal,), names)]
    free = [tally for tally in tallies if not tally.is_needed]
    these = "this column" if len(tallies) - len(free) == 1 else "these columns"
    by_hand = f"correct {these} in the file" if len(free) < len(tallies) else ""
    another = Setting("sep", ";"), " or another character if the columns have another delimiter"
    uses: list[tuple[Part, ...]] = [another] if alone and tallies[0].choices.sep is None else []
    for setting, most in _OF_TEXTS.items():
        helped = [tally.name for tally in free if setting in _settings(tally, has_names)]
        uses += [use(setting, helped, most)] if helped else []
    return [Finding(text, tuple(uses), names, best=len(uses) - 1, by_hand=by_hand)]


def _told_of_texts(tallies: Sequence[Tally], has_names: bool) -> str:
    kinds = {"date": "the date"}
    cells = [f"{kinds.get(each.kind, 'the text')} {short(next(iter(each.examples), ''))!r}" for each in tallies]
    shown = few(f"{tally.name!r} ({cell})" for tally, cell in zip(tallies, cells, strict=True))
    text = f"{'column' if len(tallies) == 1 else 'columns'} {shown} must be numbers."
    named = [] if has_names else [tally for tally in tallies if tally.place == 0 and _are_names(tally)]
    for tally in named[:1]:
        text += f" {tally.name!r} does not hold row names, because {short(tally.repeated)!r} occurs more than once."
    if wordy := [tally.name for tally in tallies if _is_prose(tally)]:
        text += f" LSA in Python finds components of texts such as those of {few(map(repr, wordy))}."
    return text


def _are_names(tally: Tally) -> bool:
    """Return True for a column of texts of which few repeat, or which a fit did not have as a feature."""
    known = tally.choices.features
    is_new = bool(known) and tally.name not in known
    return bool(tally.repeated) and (is_new or tally.distinct is None or 3 * len(tally.distinct) > 2 * tally.n_filled)


def _is_prose(tally: Tally) -> bool:
    return len(tally.examples) > 0 and all(len(text.split()) >= PROSE for text in tally.examples)


def _settings(tally: Tally, has_names: bool) -> tuple[str, ...]:
    all_differ = not tally.repeats and tally.n_missing == 0
    ids = () if has_names else ("ids",)  # the column of row names would be the next one to refuse
    if tally.place == 0 and _are_names(tally):
        return (*ids, "drop")
    if tally.kind == "date" or (all_differ and tally.n_filled >= FEW):
        return (*ids, "drop") if all_differ else ("drop",)
    one_hot = () if _is_prose(tally) else ("one_hot",)
    return *one_hot, *(ids if all_differ else ("label_column",)), "drop"


def of_numbers(tallies: Sequence[Tally], choices: Choices, *, used: bool = True) -> Iterator[Finding]:
    """Yield warnings about numbers that look like identifiers, dates, classes or missing values."""
    free = [tally for tally in tallies if tally.name not in choices.columns]
    yield from _of_columns(free, used)
    yield from (each for tally in tallies for each in tally.warnings())


def of_codes(tallies: Sequence[Tally]) -> Iterator[Finding]:
    """Yield findings about a few whole numbers that may stand for categories: one for each column, or for many."""
    found = [tally for tally in tallies if tally.n_codes and not tally.is_class]
    names = [tally.name for tally in found]
    if len(found) > _NAMED:
        many = f"{len(found):,} columns have 2 to 5 different whole numbers"
        text = f"{many}, which may be categories: {shown(names, 3)}."
        uses = Setting("one_hot"), " for categories without an order"
        yield Finding(text, (uses,), is_error=False, applies=False, by_hand=_ORDERED)
        return
    for tally in found:
        text = f"column {tally.name!r} has {tally.n_codes} different whole numbers, which may be categories."
        one_hot, by_hand = use("one_hot", [tally.name]), _ORDERED if tally.n_codes > 2 else ""
        yield Finding(text, (one_hot,), (tally.name,), is_error=False, applies=False, by_hand=by_hand)


def _of_columns(tallies: Sequence[Tally], used: bool) -> Iterator[Finding]:
    if names := [tally.name for tally in tallies if tally.is_identifier]:
        ids = Setting("ids", names[0]), " for row names"
        but = f", but {are(len(names))} used as numbers" if used else ""
        text = f"{_named(names)} like identifiers or dates{but}."
        yield Finding(text, (ids, use("drop", names)), tuple(names), is_error=False)
    if names := [tally.name for tally in tallies if tally.is_class]:
        uses = use("one_hot", names), use("drop", names), use("label_column", names[:1])
        but = f", but {are(len(names))} used as numbers" if used else ""
        text = f"{_named(names)} like categories{but}."
        yield Finding(text, uses, tuple(names), best=1, is_error=False)


def _named(names: Sequence[str]) -> str:
    shown = few(map(repr, names), _NAMED)
    return f"column {shown} looks" if len(names) == 1 else f"columns {shown} look"


Units = dict[str, tuple[str, str]]  # of columns, "" for plain numbers, with the table that has them


def refuse_other_units(found: Notation, known: Units) -> None:
    """Raise `Refused` if a column has another unit than it has elsewhere."""
    for name, (other, where) in known.items():
        own = found.units.get(name, "")
        if name not in found.numbers or same_unit(own, other):
            continue
        if own and other:
            text = f"column {name!r} has the unit {own!r}, such as {found.cells[name]}, but {other!r} in {where}."
            remedy = f" Convert the column, or remove the units from its cells if the numbers are in {other!r}."
            raise Refused(text + remedy)
        if (own or other) in FACTORS and not unit_of_header(name):
            has = f"the unit {own!r}, such as {found.cells[name]}, but none" if own else f"no unit, but {other!r}"
            remedy = "remove the units from its cells" if own else f"add {other!r} to its cells"
            or_remedy = f"Convert the column, or {remedy} if the numbers are in the unit of {where}."
            raise Refused(f"column {name!r} has {has} in {where}. {or_remedy}")


def refused(findings: Sequence[Finding]) -> Refused:
    """Return the error of a table with these findings: a sentence about each, the first ones in full."""
    shown, others = findings[:_COLUMNS], len(findings) - _COLUMNS
    parts = [part for each in shown for part in (" ", *each.parts)][1:]
    for i, part in enumerate(parts[1:], start=1):
        if isinstance(part, str) and part.startswith("column") and parts[i - 1] == " ":
            parts[i] = part[0].upper() + part[1:]
    parts += [f" {plural(others, 'more finding')} of this kind {are(others)} not shown."] if others > 0 else []
    return Refused(*parts)
