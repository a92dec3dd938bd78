"""Numbers as texts have them: decimal points or commas, thousands, and what stands where none is known."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shiftsvd.io.base import optional

# In a column of numbers; each is refused, or filled, as a missing entry.
GAPS: Final = (
    *(
        "",
        "NA",
        "N/A",
        "n/a",
        "na",
        "NaN",
        "nan",
        "NAN",
        "-nan",
        "-NaN",
        "<NA>",
        "None",
        "none",
        "NONE",
        "NULL",
        "null",
    ),
    *("Null", "(null)", "\\N", ".", "-", "--", "?", "*", "#N/A", "#N/A N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!"),
    *("#NUM!", "#NAME?", "#NULL!", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "missing", "Missing", "MISSING"),
)
# In a column of classes, where signs and "none" may be one.
NO_CLASS: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "#N/A", "NULL", "null")
_GAPS = frozenset(GAPS)
_BESIDE = str.maketrans("\u2212", "-", "€$£¥% '\u00a0\u202f\u2019")  # what may stand in or beside a number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_BRACKETS, _EXPONENT = re.compile(r"^\((.*)\)$"), re.compile(r"(?<=\d|\.)[dD](?=[+-]?\d)")  # of accounts, of Fortran
_POINT = re.compile(r"[+-]?(\d*\.\d+|\d+\.\d*)([eE][+-]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[+-]?(\d*,\d+|\d+,\d*)([eE][+-]?\d+)?", re.ASCII)
_GROUPS = r"[+-]?[1-9]\d{{0,2}}({0}\d{{3}})+"  # whole, as thousands are cut off


class Marks(NamedTuple):
    """What stands before fractions, and between thousands."""

    decimal: str = "."
    thousands: str | None = None

    def is_number(self, cell: str) -> bool:
        cell = cell.strip()
        if self.thousands is not None and re.fullmatch(self._grouped, cell):
            return True
        if self.decimal != ".":
            if "." in cell:
                return False
            cell = cell.replace(self.decimal, ".")
        return _NUMBER.fullmatch(cell) is not None

    def number(self, cell: str) -> float:
        if is_gap(cell):
            return float("nan")
        return float(cell.strip().replace(self.thousands or "", "").replace(self.decimal, "."))

    @property
    def _grouped(self) -> str:
        return _GROUPS.format(re.escape(str(self.thousands))) + rf"({re.escape(self.decimal)}\d*)?"

    def numbers(self, column: Any) -> Any:
        pa, pc = optional("pyarrow", "parquet"), optional("pyarrow.compute", "parquet")
        trimmed = pc.utf8_trim_whitespace(column)
        texts = pc.if_else(pc.is_in(trimmed, pa.array(GAPS)), pa.scalar(None, pa.string()), trimmed)
        grouped = pc.fill_null(pc.match_substring_regex(texts, f"^{self._grouped}$"), False)
        texts = pc.if_else(grouped, pc.replace_substring(texts, str(self.thousands), ""), texts)
        if self.decimal != ".":
            wrong = pc.fill_null(pc.match_substring(texts, "."), False)
            if pc.any(wrong).as_py():
                raise ValueError(f"invalid value '{column.filter(wrong)[0].as_py()}'")
            texts = pc.replace_substring(texts, self.decimal, ".")
        return texts.cast(pa.float64())


def is_gap(cell: str) -> bool:
    return cell.strip() in _GAPS


def looks_like_number(cell: str) -> bool:
    bare = without_signs(cell)
    return any(marks.is_number(bare) for marks in _WRITINGS)


def without_signs(cell: str) -> str:
    bare = _BRACKETS.sub(r"-\1", cell.strip().translate(_BESIDE))
    return _EXPONENT.sub("e", bare)


def marks_of(columns: Sequence[Sequence[str]], decimal: str | None, thousands: str | None) -> Marks:
    """How the numbers of these columns are written, where nobody says it.

    A column speaks for commas if all its cells are numbers then, and one is none with points; and the other way round.
    "1,234" speaks for neither.

    Raises
    ------
    ValueError
        If columns disagree, or none of them tells.
    """
    if decimal is not None or thousands is not None:
        return Marks(decimal or ("," if thousands == "." else "."), thousands)
    if not any("," in cell for cells in columns for cell in cells):
        return Marks()
    said: dict[Marks, str] = {}
    unclear = None
    for cells in columns:
        found = [cell.strip() for cell in cells if not is_gap(cell)]
        own = [marks for marks in _WRITINGS if found and all(map(marks.is_number, found))]
        told = [marks for marks in own if any(_tells(marks, cell) for cell in found)]
        if told:
            said.setdefault(told[0], next(cell for cell in found if _tells(told[0], cell)))
        elif own and any("," in cell for cell in found):
            unclear = unclear or next(cell for cell in found if "," in cell)
    return _agreed(said, unclear)


_WRITINGS = (Marks(".", None), Marks(",", None), Marks(",", "."), Marks(".", ","))


def _tells(marks: Marks, cell: str) -> bool:
    if marks.thousands is not None:
        return marks.decimal in cell and marks.thousands in cell
    exact, other = (_POINT, ".") if marks.decimal == "." else (_COMMA, ",")
    return exact.fullmatch(cell) is not None and not re.fullmatch(_GROUPS.format(re.escape(other)), cell)


def _agreed(said: dict[Marks, str], unclear: str | None) -> Marks:
    decimals = {marks.decimal: cell for marks, cell in said.items()}
    if len(decimals) > 1:
        point, comma = decimals["."], decimals[","]
        raise ValueError(f"it has both {point!r} and {comma!r}; say which is a number, decimal='.' or decimal=','")
    if not decimals and unclear is not None:
        whole = unclear.replace(",", "")
        raise ValueError(
            f"{unclear!r} may be {unclear.replace(',', '.', 1)} or {whole}; say decimal=',' or thousands=','"
        )
    if unclear is not None and "." in decimals:
        return Marks(".", ",")
    return max(said, key=lambda marks: marks.thousands is not None, default=Marks())
