"""Every measured number of the README and of the pages, and what prints it; a test looks that none is left out.

A claim is a passage, from its first words to its last, and the command that prints its numbers, or why none does: it is
arithmetic, a setting of the library, or of somebody else.

Run: python -m benchmarks.claims.numbers      (prints the table)
"""

import re
from pathlib import Path
from typing import NamedTuple

from benchmarks.places import ROOT

UNITS = "s|ms|ns|µs|seconds?|minutes?|hours?|GB|MB|kB|GiB|MiB|times|passes|reads|steps|GFlop/s|%|per cent"
MEASURED = re.compile(
    rf"(?<![\w.=<>-])\d[\d,.]*\s(?:to\s[\d.,]+\s)?(?:{UNITS})(?![\w/])|(?<![\w.=<>-])\d[\d.,]*%|\d(?:\.\d+)?e-\d+"
)
ARITHMETIC, SETTING = "arithmetic", "a setting"


class Claim(NamedTuple):
    """A passage of a page, and where its numbers come from."""

    page: str
    begins: str
    ends: str
    source: str


def script(name: str) -> str:
    """How a script of this folder is run."""
    return f"python -m benchmarks.{name}"


CLAIMS: list[Claim] = []


def pages() -> list[Path]:
    """The README and the pages that are written by hand."""
    docs = ROOT / "docs"
    return [
        ROOT / "README.md",
        *sorted(docs.glob("*.rst")),
        *sorted(docs.glob("guide*/*.rst")),
        *sorted(docs.glob("migrate/*.rst")),
    ]


def prose(page: Path) -> str:
    """What a page says, in one line, without its examples of code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        text = re.sub(r"^```(?:python|sh|bash)\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    else:
        text = re.sub(r"^\.\. (?:code-block|math|doctest)::.*\n(?:\n|[ \t]+.*\n)+", "", text, flags=re.MULTILINE)
        text = re.sub(r"(?<=::)\n\n(?:\n|[ \t]+.*\n)+", "", text)
        text = re.sub(r"^(?:>>>|\.\.\.) .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"``[^`]*``", "``", text)
    return " ".join(text.split())


def unclaimed(page: Path) -> list[str]:
    """Numbers of a page that no claim covers, with the words around them."""
    text, name = prose(page), str(page.relative_to(ROOT))
    spans = [span(text, claim) for claim in CLAIMS if claim.page == name]
    found = [match for match in MEASURED.finditer(text) if not any(a <= match.start() < b for a, b in spans)]
    return [text[max(0, match.start() - 60) : match.end() + 40] for match in found]


def span(text: str, claim: Claim) -> tuple[int, int]:
    """Where a passage begins and ends; an error if it is not there any more."""
    begin = text.find(claim.begins)
    end = text.find(claim.ends, begin)
    if begin < 0 or end < 0:
        raise LookupError(f"{claim.page} no longer says '{claim.begins} ... {claim.ends}'")
    return begin, end + len(claim.ends)


def main() -> None:
    """The table, as Markdown."""
    print("| Page | Passage | Printed by |\n|---|---|---|")
    for claim in CLAIMS:
        print(f"| {claim.page} | {claim.begins} ... {claim.ends} | {claim.source} |")


if __name__ == "__main__":
    main()
