"""Texts that may come out of files, for terminals and pages: what steers a terminal is shown, not sent."""

import re
from typing import Final

# Control characters of both blocks, marks that change the direction of what follows, breaks of lines, halves of pairs.
_STEERS: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ANY: Final = re.compile(f"[{_STEERS}]")
_IN_LINES: Final = re.compile(rf"(?![\t\n])[{_STEERS}]")


def plain(text: str) -> str:
    return _ANY.sub(_written, text)


def plain_lines(text: str) -> str:
    return _IN_LINES.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")
