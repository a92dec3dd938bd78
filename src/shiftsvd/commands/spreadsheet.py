"""Texts of tables that a spreadsheet would take for formulas: how many there are is said, and they may be defused."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from shiftsvd.commands.headings import under
from shiftsvd.runs.plain import plain
from shiftsvd.runs.warned import Notice

SAFE: Final = "shiftsvd.commands.spreadsheet"  # where click keeps whether texts are to be defused
_BEGINS: Final = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")  # the last four are the same in full width


def _keep(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[SAFE] = value


option = under(
    "Output",
    click.option(
        "--spreadsheet-safe",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="Names in CSV that spreadsheets take for formulas get an apostrophe in front.",
    ),
)


@contextmanager
def texts_for(table: str) -> Iterator[Callable[[Any], str]]:
    context = click.get_current_context(silent=True)
    safe = context is not None and bool(context.meta.get(SAFE))
    found: list[str] = []  # the first one, and as many empty ones as there are others

    def text(value: Any) -> str:
        written = str(value)
        if not is_formula(written):
            return written
        found.append("" if found else written)
        return f"'{written}" if safe else written

    yield text
    if found and not safe:
        warnings.warn(
            f"{len(found):,} names of {table} begin as formulas of spreadsheets do (such as {plain(found[0])[:40]!r}); "
            "--spreadsheet-safe writes them with an apostrophe",
            Notice,
            stacklevel=2,
        )


def is_formula(text: str) -> bool:
    if not text.startswith(_BEGINS) or len(text) == 1:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
