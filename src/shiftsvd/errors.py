"""Errors and warnings as values: texts with settings in them, worded once for Python and once for the command.

``raise Refused("column 'id' must be numbers. Use ", Setting("drop", ["id"]), " to exclude this column.")`` reads
``Use drop=['id'] to exclude this column.`` in Python, and ``Use --drop id to exclude this column.`` in the command.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

# Control characters (C0, C1), line and paragraph separators, bidirectional marks, surrogates: unsafe in a terminal.
_STEERS: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ANY: Final = re.compile(f"[{_STEERS}]")
_IN_LINES: Final = re.compile(rf"(?![\t\n])[{_STEERS}]")


_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+://)(?:[^\s/?#'\"]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")


def is_address(text: object) -> bool:
    """Return True for an address of data on a server, such as s3://bucket/x.zarr."""
    return isinstance(text, str) and re.match("[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def without_secrets(text: str) -> str:
    """Remove the user information and the query from each address in a text: passwords, tokens, signatures."""
    return _ADDRESS.sub(r"\1\2", text) if "://" in text else text


def public_address(address: str) -> str:
    """Remove the user information and the query from an address, which may have quotes and spaces."""
    scheme, mark, rest = address.partition("://")
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def plain(text: str) -> str:
    return _ANY.sub(_written, text)


def plain_lines(text: str) -> str:
    return _IN_LINES.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def few(names: Iterable[object], most: int = 3) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more or "none"


_NO_VALUE: Final = object()


@dataclass(frozen=True)
class Setting:
    """A setting of the library, alone or with a value; the command prints its option instead."""

    name: str
    value: Any = _NO_VALUE

    @property
    def has_value(self) -> bool:
        return self.value is not _NO_VALUE

    def __str__(self) -> str:
        if not self.has_value:
            return self.name
        written = repr(self.value)
        is_plain = isinstance(self.value, str) and '"' not in self.value
        if is_plain and written == f"'{self.value}'":  # no escapes, so quotes can be replaced
            written = f'"{self.value}"'
        return f"{self.name}={written}"


Part = str | Setting
Spell = Callable[[Setting], str]


class Worded(Exception):
    """An error or warning whose text has parts; the parts are its arguments, so that it can be pickled."""

    def __init__(self, *parts: Part) -> None:
        super().__init__(*parts)

    def __str__(self) -> str:
        return self.worded(str)

    def worded(self, spell: Spell) -> str:
        """Return the text, with each setting as `spell` writes it."""
        return "".join(spell(part) if isinstance(part, Setting) else str(part) for part in self.args)

    def after(self, text: str) -> Self:
        """Return the same error, beginning with `text`, such as the name of a file."""
        return type(self)(text, *self.args)

    def plain(self) -> Self:
        """Return the same error without characters that control a terminal, which may come from a file."""
        return type(self)(*(plain_lines(part) if isinstance(part, str) else part for part in self.args))


class Refused(Worded, ValueError):
    """A ValueError about a value that the user passed: the rule, the value, and the remedy."""


def refuse(name: str, rule: str, value: Any, remedy: Part = "") -> Refused:
    """Return the error of a setting: "NAME must RULE, got VALUE. REMEDY."."""
    return Refused(Setting(name), f" must {rule}, got {value!r}", *((".", *sentence(remedy)) if remedy else ()))


def damaged(what: object, why: str) -> ValueError:
    return ValueError(f"{what} is damaged: {why}. Copy or write the file again.")


def sentence(first: Part, *more: Part) -> tuple[Part, ...]:
    """Return parts of a message as a sentence that follows another: " Raise tol."."""
    capital = first[:1].upper() + first[1:] if isinstance(first, str) else first
    return (" ", capital, *more, ".")
