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


CLAIMS = [
    Claim("README.md", "You give a tolerance", "tol=1e-4", SETTING),
    Claim("README.md", "where 1 % are stored", "numbers", ARITHMETIC),
    Claim("README.md", "50 components of 60,000 x 2,000", "below 1e-4", "make bench ROWS=counts"),
    Claim(
        "docs/recipes.rst", "Among 8,000 articles of Wikipedia", "tf-idf found 89.0 %", script("claims.centred_text")
    ),
    Claim("docs/recipes.rst", "On 467,898 check-ins", "times as long", script("claims.views")),
    Claim("docs/migrate/from_scikit_learn.rst", "`` is 1e-4 by default", "holds for every fit", SETTING),
    Claim("docs/migrate/from_scikit_learn.rst", "relative error of up to 2e-4", "2e-4", ARITHMETIC),
    Claim("docs/measurements.rst", "60,000 x 2,000 counts in", '"1.3", "152", "1e-01"', "make bench ROWS=counts"),
    Claim(
        "docs/measurements.rst",
        "Time of scikit-learn's",
        "to the same accuracy",
        'make bench ROWS="atlas genes words tfidf pixels"',
    ),
    Claim("docs/measurements.rst", "The fastest other package", "on small dense data", script("claims.middle")),
    Claim(
        "docs/measurements.rst",
        "50 components of Pearson residuals",
        "22 s and 0.8 GB",
        script("claims.transforms file --peer"),
    ),
    Claim("docs/capabilities.rst", "whose default is machine precision", "cannot be changed", SETTING),
    Claim("docs/tutorial.rst", "The first component has 99.82 %", "the variance", "make test"),
    Claim("docs/guide/solvers.rst", "may have; 1e-4", "default", SETTING),
    Claim(
        "docs/guide/files.rst",
        "the program itself takes up to 150 MB",
        "writes a report",
        script("claims.memory_promises program"),
    ),
    Claim("docs/guide/files.rst", "in 38 measured fits", "the prediction", script("claims.foreseen_memory")),
    Claim("docs/guide/files.rst", "reading an entry takes", "(Zstandard)", script("claims.atlas")),
    Claim("docs/guide/files.rst", "Reading needs 400 bytes", "of Parquet", SETTING),
    Claim("docs/how_it_works.rst", "p is 1e-9", "miss_probability", SETTING),
    Claim("docs/how_it_works.rst", "The rounding error of a vector is", "of its residual", SETTING),
    Claim("src/shiftsvd/scanpy/docs/cells.rst", "singular value is at most", "for the command", SETTING),
    Claim("src/shiftsvd/scanpy/docs/cells.rst", "by default 10 %", "selected genes", SETTING),
    Claim("docs/guide/centring.rst", "a matrix of a million rows", "it is centred", ARITHMETIC),
    Claim("docs/guide/centring.rst", "more than 99 % full)", "more than 99 % full can", SETTING),
    Claim("docs/guide/cluster.rst", "each chunk should take at least", "1,000 seconds", ARITHMETIC),
    Claim("docs/guide/gpu.rst", "at least 0.52 %", "entries are stored", SETTING),
    Claim("docs/guide/gpu.rst", "50 components, data on the GPU", "65 GB at its peak", script("device")),
    Claim("docs/guide/solvers.rst", "With probability at least 1 - 1e-9", "1 - 1e-9", SETTING),
    Claim("docs/guide/solvers.rst", "this interval is at most 5 %", "5 % wide", SETTING),
    Claim(
        "src/shiftsvd/xarray/docs/from_eofs.rst",
        "On the fields that come with eofs",
        "agree to 1e-14",
        script("peers.companions fields"),
    ),
    Claim("docs/migrate/from_irlba.rst", "At a tolerance of 1e-9", "agree to 4e-11", script("peers.irlba")),
    Claim(
        "src/shiftsvd/genetics/docs/genotypes.rst",
        "Scores from 10 % of the variants",
        "for 100 x 30,000",
        script("claims.projection"),
    ),
    Claim(
        "src/shiftsvd/scanpy/docs/from_scanpy.rst",
        "On 10,000 blood cells, 306",
        "one line",
        script("peers.tutorial"),
    ),
]
# Pages of an extension go with it.
CLAIMS = [claim for claim in CLAIMS if (ROOT / claim.page).parent.is_dir()]


def pages() -> list[Path]:
    """The README and the pages that are written by hand."""
    docs = ROOT / "docs"
    return [
        ROOT / "README.md",
        *sorted(docs.glob("*.rst")),
        *sorted(docs.glob("guide*/*.rst")),
        *sorted(docs.glob("migrate/*.rst")),
        *sorted((ROOT / "src" / "shiftsvd").glob("*/docs/*.rst")),
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
