"""Print every user-facing message and help string of the package: `python -m tests.house.catalogue [FOLDER ...]`."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import shiftsvd

ROOT = Path(shiftsvd.__file__).parent
SPEAKERS = {
    "refuse",
    "warn",
    "warn_once",
    "warning",
    "info",
    "print_message",
    "echo",
    "notice",
    "log_notice",
    "Refused",
}
DECLARATIONS = {"option", "out", "_columns", "_labels", "_limit", "_list"}


def files(*folders: str) -> list[Path]:
    named = (file for file in ROOT.rglob("*.py") if file.relative_to(ROOT).as_posix().startswith(folders or ("",)))
    return sorted(named)


WORDS = 5  # of a string that is listed although no call above speaks it: part of a message, such as a rule or a remedy


def text(node: ast.AST) -> str:
    """Return the words of an expression: its string constants, with {...} for what is computed, also settings."""
    if isinstance(node, ast.Call) and called(node) == "Setting":
        return f" {{{', '.join(map(ast.unparse, node.args))}}}"
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    parts = (text(child) for child in ast.iter_child_nodes(node))
    return " | ".join(part for part in parts if " " in part)


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def messages(file: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and words of each message of a file: raised, spoken, help of options, and other long strings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    listed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):  # calls before their arguments
        is_message = True
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node.lineno, "raise", text(node.exc)
        elif isinstance(node, ast.Call) and called(node) in SPEAKERS:
            yield node.lineno, called(node), " | ".join(filter(None, map(text, node.args)))
        elif isinstance(node, ast.Call) and called(node) in DECLARATIONS:
            told = [*node.args, *(word.value for word in node.keywords if word.arg == "help")]
            yield node.lineno, "help", " | ".join(filter(None, map(text, told)))
        elif isinstance(node, ast.FunctionDef) and any(map(is_command, node.decorator_list)):
            yield node.lineno, "help", ast.get_docstring(node) or ""
            is_message = False
        elif (
            isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in listed and text(node).count(" ") >= WORDS
        ):
            yield node.lineno, "text", text(node)
        else:
            is_message = isinstance(node, ast.Raise | ast.JoinedStr)
        if is_message:
            listed.update(map(id, ast.walk(node)))


def is_command(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and called(decorator) in ("verb", "group", "command")


def main() -> None:
    for file in files(*sys.argv[1:]):
        found = sorted(message for message in messages(file) if " " in message[2])
        if found:
            print(f"\n# {file.relative_to(ROOT).as_posix()}")
        for line, kind, said in found:
            print(f"{line:4} {kind}: {' '.join(said.split())}")


if __name__ == "__main__":
    main()
