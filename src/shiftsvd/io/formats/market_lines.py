"""The lines of a MatrixMarket file, each held against what its header says before SciPy reads them.

SciPy takes as much of a cell as is a number: 1,5 would be 1, 0x10 would be 0, and 1.0D+05, as Fortran writes it, 1.
"""

import re
import zlib
from typing import IO, Final

_PIECE: Final = 1 << 20  # bytes that are looked at in one go
_LONGEST: Final = 1 << 16  # bytes of a line
_SHOWN: Final = 40  # bytes of a line in an error
_GAP: Final = rb"[ \t]++"
_WHOLE: Final = rb"[+-]?+\d++"
_REAL: Final = rb"[+-]?+(?:(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eEdD][+-]?+\d++)?+|(?i:nan|inf(?:inity)?))"
_VALUES: Final = {"pattern": [], "integer": [_WHOLE], "unsigned-integer": [_WHOLE], "complex": [_REAL, _REAL]}
_FORTRAN: Final = re.compile(rb"(?<=[\d.])[dD](?=[+\-\d])")
_PLUS: Final = re.compile(rb"(?<=[ \t\n])\+(?=[\d.])|\A\+(?=[\d.])")


def line_of(field: str, sparse: bool) -> re.Pattern[bytes]:
    cells = [rb"\d++"] * (2 if sparse else 0) + _VALUES.get(field, [_REAL])
    return re.compile(rb"(?:[ \t]*+(?:" + _GAP.join(cells) + rb")?+[ \t\r]*+\n)*+")


class CheckedLines:
    """An open file that can only be read, by the lines, keeps its error, and ends with a line end.

    SciPy's reader ends the interpreter where a read or a seek fails, and runs past the last line if a number in it is
    followed by something else than a line end: a letter, or a zero byte.
    """

    def __init__(self, stream: IO[bytes], n_header: int, lines: re.Pattern[bytes]) -> None:
        self._stream, self._lines, self._number = stream, lines, n_header
        self._ready = b"".join(stream.readline() for _ in range(n_header))
        self._rest, self._ended = b"", False
        self.error: Exception | None = None

    def read(self, size: int) -> bytes:
        while len(self._ready) < size and not self._ended:
            try:
                self._ready += self._checked()
            except (OSError, EOFError, ValueError, zlib.error) as error:
                self.error, self._ready, self._ended = error, b"", True
        text, self._ready = self._ready[:size], self._ready[size:]
        return text

    def _checked(self) -> bytes:
        text = self._stream.read(_PIECE)
        self._ended = not text
        text = self._rest + text
        end = text.rfind(b"\n") + 1
        if self._ended and end < len(text):
            text, end = text + b"\n", len(text) + 1
        text, self._rest = text[:end], text[end:]
        found = self._lines.match(text)
        if len(self._rest) > _LONGEST or found is None or found.end() < len(text):
            self._refuse(text + self._rest, 0 if found is None else found.end())
        self._number += text.count(b"\n")
        return _as_scipy(text)

    def _refuse(self, text: bytes, at: int) -> None:
        number = self._number + text.count(b"\n", 0, at) + 1
        line = text[at : at + _SHOWN].partition(b"\n")[0].decode("utf-8", "replace")
        raise ValueError(f"line {number} is not of the numbers that the header promises: {line!r}")


def _as_scipy(text: bytes) -> bytes:
    if b"d" in text or b"D" in text:
        text = _FORTRAN.sub(b"e", text)
    return _PLUS.sub(b"", text) if b"+" in text else text
