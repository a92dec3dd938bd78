"""Which columns of a text are names, numbers, classes, or nothing: as it was said, or for a reason that is told."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from shiftsvd.io.choices import Choices
from shiftsvd.io.formats.marks import Marks, is_gap, looks_like_number
from shiftsvd.io.formats.refusals import not_numbers

Cells = Sequence[Sequence[str]]  # rows of cells
# Names of columns that say that they tell one row from another; those of the last are texts.
_IDENTIFIERS: Final = re.compile(
    r"(.*[_\W])?(ids?|idx|index|key|uuid|guid|barcodes?|row|rows?_?(id|nr|no|num|number)|rownames?|nr|no|num|number|"
    r"serial|code|record|unnamed: 0)",
    re.IGNORECASE,
)
_CAMEL: Final = re.compile(r".*[a-z](Id|ID|Nr|No|Key|Index)")
_NAMES: Final = re.compile(
    r"(names?|genes?|symbols?|samples?|cells?|features?|probes?|subjects?|patients?)", re.IGNORECASE
)


class Roles(NamedTuple):
    """Positions of the columns.

    Attributes
    ----------
    label : int or None
        Of the column that names the rows.
    why : str or None
        The reason why it does, where nobody said so.
    features : list of int
        Of numbers and classes, in the order of the table.
    classes : list of int
        Of those that are classes.
    """

    label: int | None
    why: str | None
    features: list[int]
    classes: list[int]


def roles_of(names: Sequence[str], rows: Cells, short: bool, marks: Marks, choices: Choices) -> Roles:
    """The roles of columns by their names and first rows; `short` where the header lacks the first name.

    Raises
    ------
    ValueError
        If columns that are said are not there, or features are no numbers.
    """
    choices.check_names(names)
    label, why = _label(names, rows, short, marks, choices)
    empty = {j for j, name in enumerate(names) if name == "" and all(row[j].strip() == "" for row in rows)}
    features = [j for j, name in enumerate(names) if j not in (label, *empty) and not choices.leaves_out(name)]
    classes = [j for j in features if names[j] in choices.one_hot]
    if not features:
        raise ValueError("it has no column of numbers" + (" left" if choices.given else ""))
    numbers = set(features) - set(classes)
    wrong = [j for j in sorted(numbers) if not all(is_gap(row[j]) or marks.is_number(row[j]) for row in rows)]
    if wrong:
        uncut = ("", "; are its columns separated by something else? sep=' ' says by what")[len(names) == 1]
        raise ValueError(not_numbers({names[j]: [row[j] for row in rows] for j in wrong}, marks) + uncut)
    return Roles(label, why, features, classes)


def _label(
    names: Sequence[str], rows: Cells, short: bool, marks: Marks, choices: Choices
) -> tuple[int | None, str | None]:
    if choices.ids is not None and choices.ids in names:
        return list(names).index(choices.ids), None
    name = names[0]
    if len(names) == 1 or name in (*choices.drop, *choices.columns, *choices.one_hot):
        return None, None
    if short:
        return 0, "the header has no name for it"
    if name == "":
        return 0, "it has no name"
    cells = [row[0].strip() for row in rows]
    if all(is_gap(cell) or marks.is_number(cell) for cell in cells):
        return None, None
    if len(set(cells)) == len(cells) and not any(map(looks_like_number, cells)):
        return 0, "it is text, and no two rows have the same"
    return (0, "it is text, and called so") if says_names(name) else (None, None)


def says_names(name: str) -> bool:
    return says_identifiers(name) or _NAMES.fullmatch(name.strip()) is not None


def says_identifiers(name: str) -> bool:
    name = name.strip()
    return _IDENTIFIERS.fullmatch(name) is not None or _CAMEL.fullmatch(name) is not None
