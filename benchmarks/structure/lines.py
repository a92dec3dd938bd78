"""Lines of code under `src/shiftsvd` (no blank lines, comments, docstrings), files, members of `Operator`."""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "shiftsvd"
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER)


def code_lines(text: str) -> int:
    """Lines that hold a token of code."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            prose |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def main() -> None:
    files = sorted(ROOT.rglob("*.py"))
    physical = {file: len(file.read_text().splitlines()) for file in files}
    longest = sorted(files, key=lambda file: -physical[file])[:5]
    beside = [file for file in files if file.parent == ROOT and file.name != "__init__.py"]
    print(f"{sum(code_lines(file.read_text()) for file in files)} lines of code in {len(files)} files")
    print("longest: " + ", ".join(f"{file.relative_to(ROOT)} {physical[file]}" for file in longest))
    print(f"{len(beside)} modules beside the packages: {', '.join(file.stem for file in beside)}")
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == "Operator":
                members = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")]
                print(
                    f"Operator ({file.relative_to(ROOT)}): {len(members)} members: {', '.join(m.name for m in members)}"
                )


if __name__ == "__main__":
    main()
