"""No string or comment of the package has a phrase that hides its subject or its verb: `catalogue` lists messages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.catalogue import files, messages, text

# Add a phrase when no package has it any more. "be" stands for is, are, was and were.
PHRASES = (
    *("be told", "be begun", "be held against", "begins anew", "goes on where", "has to do with", "it is said"),
    *("leaves it out", "look whether", "names the rows", "who asks", "lets be", "what lacks", "whoever", "says so"),
)


def pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(rf"\b{each}\b".replace(r"\bbe ", r"\b(?:is|are|was|were) ") for each in phrases), re.I)


def words(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string and comment of a file."""
    source = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            yield node.lineno, text(node)
    yield from ((at, line.partition("#")[2]) for at, line in enumerate(source.splitlines(), 1))


def test_no_phrase_hides_what_is_meant() -> None:
    banned = pattern(PHRASES)
    found = {f"{file}:{line}: {said[:90]}" for file in files() for line, said in words(file) if banned.search(said)}
    assert not found, "\n".join(sorted(found))


def test_the_catalogue_sees_messages_and_help() -> None:
    found = {kind for file in files("commands", "io") for _, kind, _ in messages(file)}
    assert {"raise", "warn", "notice", "help"} <= found


@pytest.mark.parametrize("said", ["which is told by its name", "They were told"])
def test_phrases_are_found_in_every_tense(said: str) -> None:
    assert pattern(("be told",)).search(said)


def test_messages_about_damaged_files_name_a_remedy() -> None:
    spoken = (each for file in files() for each in messages(file) if each[1] in ("raise", "warn", "Refused"))
    damaged = [said for _, _, said in spoken if re.search("is (damaged|truncated)", said)]
    assert damaged
    assert [said for said in damaged if not re.search("again|repeated|_limit", said)] == []
