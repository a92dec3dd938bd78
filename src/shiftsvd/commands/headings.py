"""Headings of the options in a help: each option says under which one it stands, and long helps are cut by them."""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, get_args

import click

F = TypeVar("F", bound=Callable[..., Any])
Heading = Literal[
    "Components",
    "Data",
    "Tables",
    "Features",
    "Cells",
    "Genotypes",
    "Preparation",
    "Missing entries",
    "Resources",
    "Output",
    "Messages",
]
HEADINGS: Final = get_args(Heading)  # in the order of a help
MANY: Final = 12  # options of a help that is cut


def under(heading: Heading, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator; the help lists them under this heading, in this order.

    Where the same heading stands more than once, in one command or another, its options are listed together.
    """

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            # click keeps what a function was decorated with until the command takes it; the last one is this option.
            vars(vars(function)["__click_params__"][-1])["heading"] = heading
        return function

    return decorate


def heading_of(parameter: click.Parameter) -> str:
    return str(getattr(parameter, "heading", HEADINGS[-1]))


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> bool:
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    told = [(heading_of(each), record) for each in options if (record := each.get_help_record(ctx))]
    if len(told) < MANY:
        return False
    for heading in HEADINGS:
        if lines := [record for found, record in told if found == heading]:
            with formatter.section(heading):
                formatter.write_dl(lines)
    return True
