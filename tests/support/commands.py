"""The command inside this process: what it prints, and how it ends."""

import json
from typing import Any

import click
from click.testing import CliRunner, Result

from shiftsvd.cli import main


def verbs() -> dict[str, click.Command]:
    """All verbs, those of extensions too."""
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def invoke(*words: object, **options: Any) -> Result:
    """What comes of a command."""
    return CliRunner().invoke(main, [str(word) for word in words], **options)


def done(*words: object, **options: Any) -> Result:
    """What comes of a command that has to succeed."""
    result = invoke(*words, **options)
    assert result.exit_code == 0, result.output
    return result


def told(*words: object, **options: Any) -> dict[str, Any]:
    """What a command that has to succeed tells a program."""
    found: dict[str, Any] = json.loads(done(*words, "--json", **options).stdout)
    return found
