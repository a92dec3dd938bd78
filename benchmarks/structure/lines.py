"""Print the size of the package: lines of code (no blank lines, comments, docstrings), all lines, files, circles.

Run: python -m benchmarks.structure.lines [--by-folder]
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.places import ROOT as HOME

ROOT = HOME / "src" / "shiftsvd"
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER)


def code_lines(text: str) -> int:
    """Count the lines that hold a token of code."""
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


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_at_the_top(file: Path, modules: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a file imports when it is imported."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules else node.module


def circles(files: list[Path]) -> list[str]:
    """Return the modules that import themselves, by way of others."""
    modules = {module_name(file) for file in files}
    graph = {module_name(file): set(imports_at_the_top(file, modules)) & modules for file in files}

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        todo = list(graph[start])
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += graph[name]
        return found

    return sorted(name for name in graph if name in reached(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by-folder", action="store_true")
    by_folder = parser.parse_args().by_folder
    files = sorted(file for file in ROOT.rglob("*.py") if "docs" not in file.relative_to(ROOT).parts)
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    code = {file: code_lines(text) for file, text in texts.items()}
    physical = {file: len(text.splitlines()) for file, text in texts.items()}
    print(f"{sum(code.values()):,} lines of code, {sum(physical.values()):,} lines in all, {len(files)} files")
    longest = sorted(files, key=lambda file: -physical[file])[:5]
    print("longest: " + ", ".join(f"{file.relative_to(ROOT)} {physical[file]}" for file in longest))
    print(f"files of fewer than 80 lines: {sum(lines < 80 for lines in physical.values())}")
    found = circles(files)
    print(f"modules in circles of imports: {len(found)}" + (f": {', '.join(found)}" if found else ""))
    if by_folder:
        folders = Counter(file.relative_to(ROOT).parts[0] for file in files)
        for folder, count in sorted(folders.items()):
            own = [file for file in files if file.relative_to(ROOT).parts[0] == folder]
            print(f"{folder:16} {count:4} files {sum(code[f] for f in own):6} {sum(physical[f] for f in own):6}")


if __name__ == "__main__":
    main()
