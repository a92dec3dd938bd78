"""Text files: encoding, comments, lines, and blocks of whole rows."""

import codecs
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Refused, Setting
from shiftsvd.io.base import bounded_lines, longest_line, open_bytes, too_long
from shiftsvd.io.formats.cells import any_number, arrow, as_numpy
from shiftsvd.runs.memory import limit_of

_CHUNK = 1 << 20  # bytes decoded at a time
LINES, _BYTES = 200, 1 << 18  # size of the sample from which the layout is detected; two lines at least
_DECODED = 8  # bytes of memory for each byte of the sample: raw, joined, decoded, and split into lines
# Bytes of text in a block, and its share of the memory limit. Its text, its cells and its numbers, with the memory that
# allocators keep, take 25 times its text; blocks of 8 MB took as long as those of 2 MB (benchmarks.claims.sheets).
_BLOCK, _LEAST, _SHARE = 1 << 22, 1 << 16, 256
_LONGEST_ROW = 1 << 24  # bytes
_OTHERS = "utf-16, cp932 (Japanese), gb18030 (Chinese), cp1250 (Polish, Czech) or cp1251 (Russian)"
_BLANKS = re.compile(" +")
_OPEN = re.compile(r'(^|[,;|\t])"([^"]|"")*$')  # the end of a line with a cell in quotes that goes on below
NOTE = re.compile(r"\W*[^\W\d][^,;\t|:=]*[:=]")  # Source: registry
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
    comments: tuple[str, ...] = ()  # beginnings of lines to skip
    blanks: bool = False  # whether runs of blanks are the delimiter; each becomes a tab

    @property
    def plain(self) -> bool:
        return self.encoding == "utf-8" and not self.comments and not self.blanks


def text_form(path: Path, encoding: str | None, comments: tuple[str, ...]) -> TextForm:
    with open_bytes(path) as stream:
        begin = stream.read(4096)
    mark = next((mark for mark in _MARKS if begin.startswith(mark)), b"")
    name = codecs.lookup(encoding or _MARKS.get(mark) or _without_mark(path, begin)).name.removesuffix("-sig")
    n_marked = len(mark) if name == "utf-8" and mark == codecs.BOM_UTF8 else 0
    return TextForm(name, n_marked, comments)


def _without_mark(path: Path, begin: bytes) -> str:
    even, odd = begin[::2].count(0), begin[1::2].count(0)
    if b"\0" not in begin.rstrip(b"\0"):
        return "utf-8"
    if max(even, odd) < len(begin) // 4:
        said = (
            f"{path} contains zero bytes, so it is not a text file in UTF-8. Save it as CSV, or name its encoding with "
        )
        raise Refused(said, Setting("encoding"), ".")
    return f"utf-16-{'le' if odd > even else 'be'}"


def is_utf8(path: Path) -> bool:
    """Return True for valid UTF-8 beyond ASCII; text in another encoding is almost never valid UTF-8."""
    decoder, is_ascii = codecs.getincrementaldecoder("utf-8")(), True
    with open_bytes(path) as stream:
        try:
            while chunk := stream.read(_CHUNK):
                is_ascii &= chunk.isascii()
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return not is_ascii


def opened(path: Path, how: TextForm, memory_limit: int | str | None = None) -> IO[bytes]:
    stream = open_bytes(path)
    stream.read(how.mark)
    if how.plain:
        return stream
    return io.BufferedReader(_PieceStream(_cleaned(path, stream, how, longest_line(memory_limit, _DECODED)), stream))


def beginning(path: Path, how: TextForm, memory_limit: int | str | None = None) -> tuple[str, bool]:
    lines: list[bytes] = []
    size, filled = 0, 0
    with opened(path, how, memory_limit) as stream:
        for line in bounded_lines(path, stream, memory_limit, _DECODED):
            lines.append(line)
            size += len(line)
            filled += bool(line.strip())
            if filled >= 2 and (len(lines) >= LINES or size >= _BYTES):
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
    # Without the bytes 0x80 to 0x9f, both read the same. With them, Latin-1 reads the sign of the euro as no text.
    best = "latin-1" if how.encoding == "cp1252" else "cp1252"
    return Refused(is_not, Setting("encoding", best), f", or another encoding such as {_OTHERS}.")


def block_bytes(memory_limit: int | str | None) -> int:
    limit = limit_of(memory_limit)
    return _BLOCK if limit is None else int(np.clip(limit // _SHARE, _LEAST, _BLOCK))


class TextRows(NamedTuple):
    """The rows of a text file, from a byte on."""

    path: Path
    form: TextForm
    separator: str
    skip: int  # bytes before the first row, after the conversion by `form`
    row_bytes: float = 8.0  # mean size of a row among the first ones

    def pieces(self, size: int, memory_limit: int | str | None) -> Iterator[bytes]:
        """Yield the text in pieces of whole rows of about `size` bytes."""
        with opened(self.path, self.form, memory_limit) as stream:
            stream.read(self.skip)
            rest, chunk = b"", stream.read(size)
            while chunk:
                text, chunk = rest + chunk, stream.read(size)
                end = _end_of_rows(text) if chunk else len(text)
                if end:
                    yield text[:end]
                rest = text[end:]


def _end_of_rows(text: bytes) -> int:
    # The end of the last line with as many quotes that begin cells as quotes that end them. A quote within a cell, as
    # in 5" pipe, makes their number odd on all lines below; rows do not have as many bytes as a block.
    mark = b"\n" if b"\n" in text else b"\r"
    last = end = text.rfind(mark) + 1
    n_quotes = text.count(b'"', 0, end)
    while n_quotes % 2:
        before = text.rfind(mark, 0, end - 1) + 1
        n_quotes -= text.count(b'"', before, end)
        end = before
    return end or (last if len(text) > _LONGEST_ROW else 0)


class Block(NamedTuple):
    """Consecutive rows: numbers, names of rows, and all cells by columns."""

    numbers: npt.NDArray[np.float64]
    names: Sequence[str]
    cells: Any


class TextBatch(NamedTuple):
    """Rows of a wide text as one array of cells, with the methods of an Arrow batch, which takes 10 kB per column."""

    cells: Any
    num_columns: int

    @property
    def num_rows(self) -> int:
        return len(self.cells) // self.num_columns

    @property
    def kinds(self) -> list[Any]:
        return [self.cells.type] * self.num_columns

    def column(self, j: int) -> Any:
        return self.cells.take(arrow(np.arange(j, len(self.cells), self.num_columns)))

    def columns(self, places: Sequence[int]) -> Any:
        """Return the cells of some columns, row by row."""
        if len(places) == self.num_columns:
            return self.cells
        starts = np.arange(0, len(self.cells), self.num_columns)
        return self.cells.take(arrow((starts[:, None] + np.array(places)).ravel()))

    def slice(self, first: int, n_rows: int | None = None) -> "TextBatch":
        end = len(self.cells) if n_rows is None else n_rows * self.num_columns
        return self._replace(cells=self.cells.slice(first * self.num_columns, end))

    def filter(self, mask: Any) -> "TextBatch":
        return self._replace(cells=self.cells.filter(arrow(np.repeat(as_numpy(mask), self.num_columns))))


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
    # Encode as UTF-8; remove comments; write a tab for each run of blanks.
    decoder = codecs.getincrementaldecoder(how.encoding)()
    rest, inside, chunk = "", "", b"before the first one"
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
        if how.comments:
            kept, inside = _without(kept, how.comments, inside)
        if how.blanks:
            kept = tabbed(kept)
        yield kept.encode("utf-8")


def tabbed(text: str) -> str:
    return "\n".join("\t".join(line.split()) for line in text.split("\n"))


def _without(text: str, comments: tuple[str, ...], inside: str) -> tuple[str, str]:
    # `inside`: whether the lines begin in quotes, in a row that is "kept" or in one that is a "comment".
    kept, bare = [], tuple(comment for comment in comments if '"' not in comment)
    for line in text.split("\n"):
        # Cells in quotes begin with their text, unless the comment has quotes itself.
        plain = _BLANKS.sub(" ", line.replace('"', "")).strip()
        begins = line.startswith(comments) or line.lstrip('"').startswith(comments) or plain.startswith(bare)
        is_comment = inside == "comment" or (not inside and begins)
        if not is_comment:
            kept.append(line)
        if line.count('"') % 2 and (inside or not is_comment or _OPEN.search(line)):
            inside = "" if inside else "comment" if is_comment else "kept"
    return "\n".join(kept), inside


# --- blocks of text or of stored columns ---


def filled_rows(batch: Any, end: int) -> int:
    """Return the number of rows up to the last one before `end` that has a filled cell."""
    return next((i + 1 for i in reversed(range(end)) if any(cell != "" for cell in row_of(batch, i))), 0)


def row_of(batch: Any, i: int) -> list[str | float]:
    if isinstance(batch, TextBatch):
        return [cell.strip() for cell in batch.slice(i, 1).cells.to_pylist()]
    return [cell_of(column[i].as_py()) for column in batch.columns]


def kinds_of(batch: Any) -> list[Any]:
    return batch.kinds if isinstance(batch, TextBatch) else batch.schema.types


def stored_value(value: Any) -> Any:
    if isinstance(value, dict) and "number" in value:  # of a column with texts and numbers
        return value["text"] if value["number"] is None else value["number"]
    return value


def cell_of(value: Any) -> str | float:
    value = stored_value(value)
    return value.strip() if isinstance(value, str) else "" if value is None else value


def plain_names(names: Iterable[str]) -> list[str]:
    return [name.replace("\ufeff", "").strip().lower() for name in names]


def is_note(text: str, n_cells: int) -> bool:
    return bool(text.strip()) and not any_number(text) and (n_cells == 1 or NOTE.match(text.lstrip('"')) is not None)
