"""Cells of a table: missing values, and numbers with their marks, units, currencies and limits."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Optional

pa, pc = Optional("pyarrow", "parquet"), Optional("pyarrow.compute", "parquet")
# Missing values in a column of numbers.
GAPS: Final = (
    *("", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-nan", "-NaN", "<NA>", "None", "none", "NONE"),
    *("NULL", "null", "Null", "(null)", "\\N", ".", "-", "--", "?", "*", "#N/A", "#N/A N/A", "#NA", "#DIV/0!"),
    *("#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("missing", "Missing", "MISSING"),
)
# Missing values in a column of classes, in which signs and "none" may be classes.
NO_CLASS: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "#N/A", "NULL", "null")
_GAPS: Final = frozenset(GAPS)

_MONEY: Final = {"US$": "$", "USD": "$", "EUR": "€", "Euro": "€", "GBP": "£", "JPY": "¥", "R$": "R$"} | {
    sign: sign
    for sign in (
        *("$", "€", "£", "¥", "₹", "₩", "₽", "₺", "₪", "₴", "kr", "zł", "Kč", "Ft", "円", "元", "원"),
        *("CHF", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "CNY", "RUB"),
    )
}
_UNITS: Final = frozenset(
    (
        *("%", "‰", "kg", "g", "mg", "µg", "μg", "ug", "ng", "t", "lb", "lbs", "oz", "km", "m", "cm", "mm", "µm", "μm"),
        *("um", "nm", "ft", "in", "l", "L", "dl", "dL", "ml", "mL", "µl", "μl", "µL", "uL", "mol", "mmol", "µmol"),
        *("umol", "nmol", "pmol", "M", "mM", "µM", "nM", "s", "sec", "min", "h", "hr", "d", "y", "ms", "µs", "Hz"),
        *("kHz", "MHz", "GHz", "Pa", "hPa", "kPa", "bar", "mbar", "mmHg", "V", "mV", "A", "mA", "W", "kW", "MW", "kWh"),
        *("J", "kJ", "kcal", "cal", "K", "°C", "°F", "°", "C", "N", "Nm", "ppm", "ppb", "IU", "U", "dB", "px", "ha"),
        *("bpm", "kB", "MB", "GB"),
    )
)
_SPACED: Final = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:[\s'`\u2019]\d{3})+(?![\d ])")
_HIDDEN: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]")  # characters without width
_NARROW: Final = {0xFF01 + i: 0x21 + i for i in range(94)}  # letters, digits and signs of full width
_AS_TEXT: Final = re.compile(r"""=?"(.*)"|['=](.*)""")  # ="12.5" and '12.5 of spreadsheets
_SIGN: Final = r"[+\-\u2010-\u2013\u2212]"  # also hyphens and the en dash, which publishers write for minus
_CELL: Final = re.compile(
    rf"(?P<limit>[<>≤≥]=?)?\s*(?P<open>\()?(?P<sign>{_SIGN})?\s*"
    rf"(?P<money>{'|'.join(map(re.escape, sorted(_MONEY, key=len, reverse=True)))})?\s*(?P<inner>{_SIGN})?"
    r"(?P<digits>\d[\d.,]*|[.,]\d+)(?P<exponent>[eE][+\-\u2212]?\d{1,3}|[dD][+-]\d{1,3})?(?P<behind>[-\u2212])?"
    r"(?P<blank>[\s\u00a0\u202f]*)(?P<unit>[^\d\s<>()=+\-][^()]{0,15}?)?(?P<close>\))?",
    re.ASCII,
)
_INFINITE: Final = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_WHOLE: Final = r"[+-]?[1-9]\d{0,2}"
_PLAIN: Final = {
    ".": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    ",": r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$",
}
OTHER: Final = {".": ",", ",": "."}  # decimal marks
_USUAL: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_LONGEST: Final = 60  # characters of a number with its unit
_TRIED: Final = 100  # cells that are parsed before a whole column
Mask = npt.NDArray[np.bool_]


class Number(NamedTuple):
    """The number in a cell: its value, unit and limit, and whether its only mark may also be the decimal mark."""

    value: float
    unit: str = ""
    limit: str = ""  # "<" or ">"
    unclear: bool = False


def is_gap(cell: str) -> bool:
    return cell.strip() in _GAPS


def number(cell: str, decimal: str = ".") -> Number | None:
    """Parse a cell with this decimal mark; the other mark may separate thousands."""
    if decimal == "." and _USUAL.fullmatch(cell):
        return Number(float(cell))
    return _number(cell.strip(), decimal) if len(cell) <= _LONGEST else None


@lru_cache(1 << 16)
def _number(cell: str, decimal: str) -> Number | None:
    cell = _HIDDEN.sub("", cell).translate(_NARROW).strip()
    cell = next(filter(None, found.groups()), cell) if (found := _AS_TEXT.fullmatch(cell)) else cell
    found = _CELL.fullmatch(_SPACED.sub(lambda group: re.sub(r"\D", "", group[0]), cell))
    if found is None:
        return Number(float(cell)) if _INFINITE.fullmatch(cell) else None
    unit = _unit(found)
    read = _digits(found["digits"], decimal)
    negative = _is_negative(found)
    if unit is None or read is None or negative is None:
        return None
    digits, unclear = read
    exponent = (found["exponent"] or "").replace("\u2212", "-").lower().replace("d", "e")
    limit = (found["limit"] or "")[:1].translate({ord("≤"): "<", ord("≥"): ">"})
    return Number(float(digits + exponent) * (-1 if negative else 1), unit, limit, unclear)


def values_of(marks: Iterable[str], decimal: str = ".") -> list[float]:
    """Return the numbers among marks of missing values; they stand for all cells of equal value."""
    # With this decimal mark only: "1.5" among numbers such as 1,5 stands for cells with this text, not for 1,5.
    found = (number(mark, decimal) for mark in marks)
    return [each.value for each in found if each and not each.unit and not each.limit]


@lru_cache(1 << 16)
def any_number(cell: str) -> bool:
    return number(cell) is not None or number(cell, ",") is not None


def _unit(found: re.Match[str]) -> str | None:
    money, unit = found["money"], (found["unit"] or "").strip()
    if not unit:
        return _MONEY[money] if money else ""
    if money:
        return None
    if unit in _MONEY:
        return _MONEY[unit]
    return unit if is_unit(unit) and (found["blank"] or len(unit) > 1 or not unit.isalpha()) else None


def is_unit(text: str) -> bool:
    """Return True for units such as "kg", "%", "mg/dL" and "kg/m²"."""
    return all(re.sub(r"\^?[-\u207b]?[23²³]$", "", each) in _UNITS for each in re.split(r"\s*[/·*]\s*", text))


def same_unit(one: str, other: str) -> bool:
    """Return True for two spellings of a unit, such as "mg/dl" and "mg / dL", or "ug" and "µg"."""
    return _spelled(one) == _spelled(other)


def _spelled(unit: str) -> str:
    unit = re.sub("[uµ]", "μ", re.sub(r"\s", "", unit))
    return re.sub(r"(?<![a-zA-Z])([dmμ]?)l(?![a-zA-Z])", r"\1L", unit)


def _digits(digits: str, decimal: str) -> tuple[str, bool] | None:
    other = OTHER[decimal]
    if re.fullmatch(rf"{_WHOLE}({re.escape(other)}\d{{3}})+({re.escape(decimal)}\d*)?", digits):
        n_groups = digits.count(other)
        return digits.replace(other, "").replace(decimal, "."), n_groups == 1 and decimal not in digits
    plain = other not in digits and digits.count(decimal) < 2
    return (digits.replace(decimal, "."), False) if plain else None


def _is_negative(found: re.Match[str]) -> bool | None:
    behind = "" if found["digits"][-1] in ".," else found["behind"]  # a price of 12 is 12,- in Dutch and German
    signs = [sign for sign in (found["sign"], found["inner"], behind) if sign]
    brackets = bool(found["open"]), bool(found["close"])
    is_amount = bool(found["money"]) or (found["unit"] or "").strip() in _MONEY
    # SAP writes 12,50-; "2-" may be a grade. Accountants write ($12.50); (0.05) may be a standard error.
    is_grade = bool(behind) and not any(mark in found["digits"] for mark in ".,")
    if brackets[0] != brackets[1] or (brackets[0] and not is_amount) or len(signs) + brackets[0] > 1 or is_grade:
        return None
    return brackets[0] or (bool(signs) and signs[0] != "+")


class Cells(NamedTuple):
    """A column of cells as numbers: NaN where a cell is missing or no plain number; `odd` are the latter."""

    values: npt.NDArray[np.float64]
    texts: Any  # trimmed; null where a value is missing
    odd: npt.NDArray[np.intp]


# `pyarrow.array`, `pyarrow.scalar` and `to_numpy` of Arrow import pandas, which takes a third of the time of `info`; so
# do functions of `pyarrow.compute` that get a text of Python in place of a scalar.


def strings(cells: Iterable[str]) -> Any:
    cells = list(cells)
    sizes: Iterable[int] = map(len, cells)
    try:
        data = "".join(cells).encode("ascii")
    except UnicodeEncodeError:
        encoded = [cell.encode(errors="replace") for cell in cells]
        data, sizes = b"".join(encoded), map(len, encoded)
    ends = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(np.fromiter(sizes, np.int32, len(cells)), out=ends[1:])
    return pa.StringArray.from_buffers(len(cells), pa.py_buffer(ends), pa.py_buffer(data))


def is_empty(column: Any) -> Any:
    return pc.equal(column, strings([""])[0])


@lru_cache(64)
def gaps_of(texts: tuple[str, ...]) -> Any:
    return strings(texts)


def arrow(values: npt.NDArray[Any], there: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return numbers as an Arrow column, null where not `there`."""
    bits = None if there is None or np.all(there) else np.packbits(there, bitorder="little")
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    buffers = [part if part is None else pa.py_buffer(part) for part in (bits, data)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def as_numpy(column: Any) -> npt.NDArray[Any]:
    """Return numbers or truth values as an array, NaN or False where they are null."""
    is_mask, (valid, data) = pa.types.is_boolean(column.type), column.buffers()
    rows = slice(column.offset, column.offset + len(column))
    there = None if valid is None else _bits(valid)[rows]
    if is_mask:
        return _bits(data)[rows] if there is None else _bits(data)[rows] & there
    values: npt.NDArray[Any] = np.frombuffer(data or b"", column.type.to_pandas_dtype())[rows]
    return values if there is None or np.all(there) else np.where(there, values, np.nan)


def _bits(buffer: Any) -> npt.NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(buffer or b"", np.uint8), bitorder="little").view(np.bool_)


def filled(column: Any, gaps: Any) -> Any:
    """Return trimmed texts, null where they are missing values."""
    trimmed = pc.utf8_trim_whitespace(column)
    return nulled(trimmed, pc.is_in(trimmed, gaps))


def nulled(texts: Any, mask: Any) -> Any:
    return pc.if_else(mask, pa.nulls(1, pa.string())[0], texts)


def plain_numbers(column: Any, decimal: str, gaps: Any) -> Cells:
    values = _values(column, decimal)
    if values is not None and len(gaps) == len(GAPS) and not np.any(np.isnan(values)):
        return Cells(values, column, np.empty(0, np.intp))  # all cells are numbers
    texts = filled(column, gaps)
    is_plain = pc.match_substring_regex(texts, _PLAIN[decimal])
    odd = np.flatnonzero(as_numpy(pc.invert(is_plain)))
    values = _values(nulled(texts, pc.invert(is_plain)), decimal)
    return Cells(np.full(len(column), np.nan) if values is None else values, texts, odd)


def _values(texts: Any, decimal: str) -> npt.NDArray[np.float64] | None:
    """Return the numbers of a column of texts, or None if one is no plain number."""
    # Arrow formats an error message for each cell that is no number.
    if len(texts) > _TRIED and _values(texts[:_TRIED], decimal) is None:
        return None
    if decimal == ",":
        if pc.any(pc.match_substring(texts, ".")).as_py():
            return None
        texts = pc.replace_substring(texts, ",", ".")
    try:
        return np.array(as_numpy(texts.cast(pa.float64())))
    except pa.ArrowInvalid:
        return None


def numbers_like(cell: str, texts: Any, decimal: str) -> tuple[npt.NDArray[np.float64], Mask, Mask]:
    """Return the numbers among texts with the unit of `cell` in the same place; masks of these, and of unclear ones."""
    found = _CELL.fullmatch(cell)
    before, after = ("", "") if found is None else (found["money"] or "", (found["unit"] or "").strip())
    has_unit = pc.and_(pc.starts_with(texts, before), pc.ends_with(texts, after))
    bare = pc.utf8_slice_codeunits(texts, len(before), -len(after) or None)
    bare = nulled(pc.utf8_trim_whitespace(bare), pc.invert(has_unit))
    if (values := _values(bare, decimal)) is not None:
        return values, as_numpy(has_unit), np.zeros(len(texts), bool)
    other = re.escape(OTHER[decimal])  # separates thousands in 1,234.5 and in 1,234,567
    is_grouped = pc.match_substring_regex(bare, rf"^{_WHOLE}({other}\d{{3}})+({re.escape(decimal)}\d*)?$")
    is_unclear = pc.match_substring_regex(bare, rf"^{_WHOLE}{other}\d{{3}}$")
    bare = pc.if_else(is_grouped, pc.replace_substring(bare, OTHER[decimal], ""), bare)
    is_plain = pc.match_substring_regex(bare, _PLAIN[decimal])
    values = _values(nulled(bare, pc.invert(is_plain)), decimal)
    mask = as_numpy(is_plain) & (values is not None)
    return np.full(len(texts), np.nan) if values is None else values, mask, mask & as_numpy(is_unclear)


def has_leading_zeros(texts: Any) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, r"^-?0\d")).as_py())


def proves(texts: Any, decimal: str) -> tuple[bool, npt.NDArray[np.intp]]:
    """Return True if a cell proves its decimal mark, as 59.4 does, and the places of unclear cells, such as 1.234."""
    unclear = pc.match_substring_regex(texts, rf"^[^\d.,]*[1-9]\d{{0,2}}{re.escape(decimal)}\d{{3}}[^\d.,]*$")
    marked = pc.match_substring(texts, decimal)
    if not pc.any(marked).as_py():
        return False, np.empty(0, np.intp)
    places = np.flatnonzero(as_numpy(unclear))
    return bool(pc.any(pc.and_(marked, pc.invert(unclear))).as_py()), places


_IN_HEADER: Final = re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$|\bin\s+(\S+)$|[,_]\s*(\S+)$")


def unit_of_header(name: str) -> str:
    found = _IN_HEADER.search(name.strip())
    unit = next(filter(None, found.groups()), "") if found else ""
    return unit if unit and (is_unit(unit) or number(f"1 {unit}") is not None) else ""


def without_unit(name: str) -> str:
    return _IN_HEADER.sub("", name.strip()).strip() if unit_of_header(name) else name.strip()


def are_dates(values: Any) -> Any:
    with np.errstate(invalid="ignore"):  # infinite values are no dates, and are refused later
        return (values > 19000100) & (values < 21001232) & (values // 100 % 100 < 13) & (values % 100 < 32)


def rows_in_all(masks: Iterable[Any]) -> Any:
    """Return the rows in which all masks hold, or None as soon as no row is left."""
    left: Any = None
    for mask in masks:
        left = mask if left is None else pc.and_(left, mask)
        if not pc.any(left).as_py():
            return None
    return left


def value_of(cell: Any, decimal: str) -> float | None:
    if isinstance(cell, str):
        found = number(cell, decimal)
        return None if found is None else found.value
    return float(cell) if isinstance(cell, int | float) else None  # stored cells are also dates
