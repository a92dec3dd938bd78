"""Text files: encoding, comments, lines, and notation of numbers."""

import codecs
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from shiftsvd.errors import Part, Refused, Setting
from shiftsvd.io.base import bounded_lines, longest_line, open_bytes, optional, packing, too_long

# Missing values in a column of numbers.
GAPS: Final = (
    *("", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-nan", "-NaN", "<NA>", "None", "none", "NONE"),
    *("NULL", "null", "Null", "(null)", "\\N", ".", "-", "--", "?", "*", "#N/A", "#N/A N/A", "#NA", "#DIV/0!"),
    *("#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("missing", "Missing", "MISSING"),
)
# Missing values in a column of classes, in which signs and "none" may be classes.
NO_CLASS: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "#N/A", "NULL", "null")
_GAPS = frozenset(GAPS)
_SIGNS = str.maketrans("\u2212", "-", "€$£¥% '\u00a0\u202f\u2019")  # characters that may occur in or next to a number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_BRACKETS, _EXPONENT = re.compile(r"^\((.*)\)$"), re.compile(r"(?<=\d|\.)[dD](?=[+-]?\d)")  # accounting, Fortran
_POINT = re.compile(r"[+-]?(\d*\.\d+|\d+\.\d*)([eE][+-]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[+-]?(\d*,\d+|\d+,\d*)([eE][+-]?\d+)?", re.ASCII)
_GROUPS = r"[+-]?[1-9]\d{{0,2}}({0}\d{{3}})+"  # whole numbers in groups of thousands


class Marks(NamedTuple):
    """The marks before fractions and between thousands."""

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

    def reads(self, cell: str) -> bool:
        return is_gap(cell) or self.is_number(cell)

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
                # Arrow's words, which `delimited._naming` parses.
                raise ValueError(f"invalid value '{column.filter(wrong)[0].as_py()}'")
            texts = pc.replace_substring(texts, self.decimal, ".")
        return texts.cast(pa.float64())


def is_gap(cell: str) -> bool:
    return cell.strip() in _GAPS


def looks_like_number(cell: str) -> bool:
    bare = without_signs(cell)
    return any(marks.is_number(bare) for marks in NOTATIONS)


def without_signs(cell: str) -> str:
    bare = _BRACKETS.sub(r"-\1", cell.strip().translate(_SIGNS))
    return _EXPONENT.sub("e", bare)


def marks_of(columns: Sequence[Sequence[str]], decimal: str | None, thousands: str | None) -> Marks:
    # A column is evidence for decimal commas if all its cells are numbers with decimal commas, and at least one is no
    # number with decimal points; and vice versa. "1,234" is evidence for neither.
    if decimal is not None or thousands is not None:
        return Marks(decimal or ("," if thousands == "." else "."), thousands)
    if not any("," in cell for cells in columns for cell in cells):
        return Marks()
    examples: dict[Marks, str] = {}
    unclear = None
    for cells in columns:
        found = [cell.strip() for cell in cells if not is_gap(cell)]
        own = [marks for marks in NOTATIONS if found and all(map(marks.is_number, found))]
        telling = ((marks, cell) for marks in own for cell in found if _identifies(marks, cell))
        if first := next(telling, None):
            examples.setdefault(*first)
        elif own:
            unclear = unclear or next((cell for cell in found if "," in cell), None)
    return _marks_from(examples, unclear)


NOTATIONS = (Marks(".", None), Marks(",", None), Marks(",", "."), Marks(".", ","))


def _identifies(marks: Marks, cell: str) -> bool:
    if marks.thousands is not None:
        return marks.decimal in cell and marks.thousands in cell
    exact, other = (_POINT, ".") if marks.decimal == "." else (_COMMA, ",")
    return exact.fullmatch(cell) is not None and not re.fullmatch(_GROUPS.format(re.escape(other)), cell)


def _marks_from(examples: dict[Marks, str], unclear: str | None) -> Marks:
    decimals = {marks.decimal: cell for marks, cell in examples.items()}
    if len(decimals) > 1:
        both = f"the decimal mark is unclear, as the table has {decimals['.']!r} and {decimals[',']!r}. Use "
        raise Refused(both, Setting("decimal", "."), " or ", Setting("decimal", ","), ".")
    if not decimals and unclear is not None:
        either = f"{unclear!r} may mean {unclear.replace(',', '.', 1)} or {unclear.replace(',', '')}. Use "
        raise Refused(either, Setting("decimal", ","), " or ", Setting("thousands", ","), ", respectively.")
    if unclear is not None and "." in decimals:
        return Marks(".", ",")
    return max(examples, key=lambda marks: marks.thousands is not None, default=Marks())


_CHUNK = 1 << 20  # bytes decoded at a time
_LINES, _BYTES = 200, 1 << 20  # size of the sample from which the layout is detected; two lines at least
_DECODED = 8  # bytes of memory for each byte of the sample: raw, joined, decoded, and split into lines
_TAIL, _LONG_TAIL = 1 << 16, 1 << 26  # bytes at the end of a file in which rows of empty cells are counted
_BLANK = ",;|\t \r\n"  # characters of rows of empty cells
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class TextForm(NamedTuple):
    """Conversion of the bytes of a text file to lines."""

    encoding: str = "utf-8"
    mark: int = 0  # bytes of the byte order mark of UTF-8
    comment: str | None = None  # the beginning of lines to skip
    empty: int = 0  # rows of empty cells at the end, as spreadsheets write below a table

    @property
    def plain(self) -> bool:
        return self.encoding == "utf-8" and self.comment is None and not self.empty


def text_form(path: Path, encoding: str | None, comment: str | None) -> TextForm:
    with open_bytes(path) as stream:
        begin = stream.read(4096)
    mark = next((mark for mark in _MARKS if begin.startswith(mark)), b"")
    name = codecs.lookup(encoding or _MARKS.get(mark, "utf-8")).name.removesuffix("-sig")
    if name == "utf-8" and encoding is None and b"\0" in begin:
        raise Refused(f"{path} contains zero bytes. ", *_remedy_for_zeros(begin))
    n_marked = len(mark) if name == "utf-8" and mark == codecs.BOM_UTF8 else 0
    return TextForm(name, n_marked, comment, _empty_rows(path))


def _empty_rows(path: Path) -> int:
    if packing(path) != "none":
        return 0
    size, tail = path.stat().st_size, b""
    with path.open("rb") as file:
        for window in (_TAIL, _LONG_TAIL):  # the second if the first holds only blanks
            file.seek(max(0, size - window))
            tail = file.read().replace(b"\0", b"")  # as UTF-16 has them
            if tail.strip(_BLANK.encode()):
                break
    end = tail[len(tail.rstrip(_BLANK.encode())) :].splitlines()
    return sum(bool(line.strip()) or b"\t" in line for line in end[1:])


def _remedy_for_zeros(begin: bytes) -> tuple[Part, ...]:
    even, odd = begin[::2].count(0), begin[1::2].count(0)
    if max(even, odd) < len(begin) // 4:
        return ("It is not a text file.",)
    return "It may be UTF-16. Use ", Setting("encoding", f"utf-16-{'le' if odd > even else 'be'}"), "."


def opened(path: Path, how: TextForm, memory_limit: int | str | None = None) -> IO[bytes]:
    stream = open_bytes(path)
    stream.read(how.mark)
    if how.plain:
        return stream
    return io.BufferedReader(_PieceStream(_cleaned(path, stream, how, longest_line(memory_limit, _DECODED)), stream))


def for_arrow(path: Path, how: TextForm, skip: int, memory_limit: int | str | None = None) -> Any:
    pa = optional("pyarrow", "parquet")
    if how.plain:
        pack = {"none": None, "gzip": "gzip", "bzip2": "bz2"}[packing(path)]
        stream = pa.input_stream(str(path), compression=pack)
    else:
        stream = pa.PythonFile(opened(path, how, memory_limit), "r")
    left = skip + (how.mark if how.plain else 0)
    while left and (found := len(stream.read(min(left, _CHUNK)))):
        left -= found
    return stream


def beginning(path: Path, how: TextForm, memory_limit: int | str | None = None) -> tuple[str, bool]:
    lines: list[bytes] = []
    size, filled = 0, 0
    with opened(path, how, memory_limit) as stream:
        for line in bounded_lines(path, stream, memory_limit, _DECODED):
            lines.append(line)
            size += len(line)
            filled += bool(line.strip())
            if filled >= 2 and (len(lines) >= _LINES or size >= _BYTES):
                break
        is_all = not stream.read(1)
    try:
        return b"".join(lines).decode("utf-8"), is_all
    except UnicodeDecodeError as error:
        raise undecoded(path, how, error) from None


def undecoded(path: Path, how: TextForm, error: UnicodeDecodeError | None = None) -> Refused:
    where = ""
    if error is not None and how.plain:
        line = error.object[: error.start].count(b"\n") + 1
        where = f" (line {line} has the byte 0x{error.object[error.start]:02x})"
    is_not = f"{path} is not encoded in {how.encoding.upper()}{where}. Use "
    return Refused(is_not, Setting("encoding", "latin-1"), ", or another encoding such as cp1252 or utf-16.")


class _PieceStream(io.RawIOBase):
    """A stream of pieces that are generated from another stream."""

    def __init__(self, pieces: Iterator[bytes], source: IO[bytes]) -> None:
        self._pieces, self._source, self._left = pieces, source, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


def _cleaned(path: Path, stream: IO[bytes], how: TextForm, longest: int) -> Iterator[bytes]:
    # Encode as UTF-8; remove comments, and rows of empty cells at the end.
    decoder = codecs.getincrementaldecoder(how.encoding)()
    rest, quoted, chunk = "", False, b"before the first one"
    held = ""  # rows of empty cells that may be the end of the table
    while chunk:
        chunk = stream.read(_CHUNK)
        try:
            text = rest + decoder.decode(chunk, not chunk).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise undecoded(path, how, error) from None
        end = text.rfind("\n") + 1 if chunk else len(text)
        if len(text) - end > longest:
            raise too_long(path, longest)
        kept, rest = text[:end], text[end:]
        if how.comment is not None:
            kept, quoted = _without(kept, how.comment, quoted)
        if how.empty:
            kept, held = _split(held + kept)
        yield kept.encode("utf-8")


def _split(text: str) -> tuple[str, str]:
    there = len(text.rstrip(_BLANK))
    end = (text.find("\n", there) + 1 or len(text)) if there else 0
    return text[:end], text[end:]


def _without(text: str, comment: str, quoted: bool) -> tuple[str, bool]:
    kept = []
    for line in text.split("\n"):
        if quoted or not line.lstrip('"' if comment[0] != '"' else None).startswith(comment):
            kept.append(line)
            quoted ^= line.count('"') % 2 == 1
    return "\n".join(kept), quoted
