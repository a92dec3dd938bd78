"""Pages that are run as they are printed: Python, sessions, and commands with what they print, one after the other."""

import doctest
import re
import shlex
from codeop import compile_command
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from click.testing import CliRunner

from shiftsvd.cli import main

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Pages that are one walk, from their first line to their last, and make files on their way.
WALKS = ["tutorial", "recipes"]
# Of these, those whose sections stand alone: what one has made is not there in the next.
APART = ["recipes"]
BLOCK = re.compile(r"^\.\. code-block:: (python|pycon|console)\n(?:   :.*\n)*\n((?:   .*\n|\n)+)", re.MULTILINE)
TITLE = re.compile(r"^-{4,}$", re.MULTILINE)


class Block(NamedTuple):
    """What a page shows: `kind` is the language, `line` where it begins, `section` how many titles are above it."""

    kind: str
    text: str
    line: int
    section: int


def blocks(page: Path) -> list[Block]:
    """What a page shows, in its order."""
    text = page.read_text(encoding="utf-8")
    above = ((m, text[: m.start()]) for m in BLOCK.finditer(text))
    return [Block(m[1], dedent(m[2]), before.count("\n") + 3, len(TITLE.findall(before))) for m, before in above]


def play(page: Path) -> int:
    """Run all that a page shows in the folder that is current; how many lines were entered.

    The names are those of the page, or, where sections stand alone, of the section.
    """
    known: dict[int, dict[str, Any]] = {}
    entered = 0
    for block in blocks(page):
        names = known.setdefault(block.section if page.stem in APART else 0, {"__name__": "__main__"})
        if block.kind == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            entered += 1
        else:
            entered += (session if block.kind == "pycon" else terminal)(block, page, names)
    assert entered
    return entered


def session(block: Block, page: Path, names: dict[str, Any]) -> int:
    """A session of Python prints what it shows."""
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    assert failed == 0, "".join(said)
    names.update(test.globs)
    return tried


def terminal(block: Block, page: Path, names: dict[str, Any]) -> int:
    """Commands of shiftsvd end well, and print what is shown below them, if anything is, with messages or without."""
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block.text, re.MULTILINE)
    for line, shown in commands:
        words = shlex.split(line, comments=True)
        assert words[0] == "shiftsvd", f"{page.name}: {line}"
        result = CliRunner().invoke(main, words[1:])
        assert result.exit_code == 0, f"{line}: {result.output}"
        if shown.strip():
            texts = (result.stdout.strip() + "\n", result.output.strip() + "\n")
            same = any(doctest.OutputChecker().check_output(shown.strip() + "\n", text, FLAGS) for text in texts)
            assert same, f"{page.name}: {line} prints\n{result.output}"
    return len(commands)


def pasted(block: Block) -> list[str]:
    """The lines that the button of a box copies: what is behind a prompt, and empty lines, but no output."""
    lines = block.text.splitlines()
    return [line[4:] for line in lines if not line or re.match(r">>> |\.\.\. ?", line)]


def understood(lines: list[str], where: str) -> None:
    """A plain Python takes these lines one after the other, as they are pasted."""
    waiting: list[str] = []
    for line in [*lines, ""]:
        waiting.append(line)
        try:
            whole = compile_command("\n".join(waiting), where, symbol="single")
        except SyntaxError as error:
            raise AssertionError(f"{where}: an empty line is missing before {line!r}") from error
        if whole is not None:
            waiting = []
    assert not "".join(waiting).strip(), f"{where}: {waiting}"


def python_of(page: Path, but: str) -> str:
    """The Python that a page shows without a prompt, one block after the other; not what needs the package `but`."""
    blocks = page.read_text(encoding="utf-8").split(".. code-block:: python\n\n")[1:]
    return "".join(
        dedent("\n".join(takewhile(lambda line: not line or line.startswith(" "), block.splitlines()))) + "\n"
        for block in blocks
        if f"import {but}" not in block.partition(".. ")[0]
    )


def commands_of(page: Path) -> list[list[str]]:
    """What follows a prompt on a page, in words, without comments."""
    return [shlex.split(line, comments=True) for line in command_lines(page)]


def command_lines(page: Path) -> list[str]:
    """What follows a prompt on a page, with what a backslash continues."""
    text = re.sub(r" *\\\n +", " ", page.read_text(encoding="utf-8"))
    return re.findall(r"^   \$ (.*)$", text, re.MULTILINE)
