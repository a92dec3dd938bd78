"""Where the repository and its pages are."""

from pathlib import Path
from typing import TypeVar

import pytest

Case = TypeVar("Case")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = ROOT / "src" / "shiftsvd"
TESTS = ROOT / "tests"
# Folders of the pages of extensions, which are built with those of docs/.
OF_EXTENSIONS = sorted(SOURCES.glob("*/docs"))
_MADE = {"auto_gallery", "generated", "uses", "_build"}


def pages() -> list[Path]:
    """All pages that are written by hand."""
    copies = {DOCS / "fields" / folder.parent.name for folder in OF_EXTENSIONS}
    ours = [page for page in DOCS.rglob("*.rst") if not _MADE & {*page.parts} and not copies & {*page.parents}]
    return sorted(ours + [page for folder in OF_EXTENSIONS for page in folder.rglob("*.rst")])


def references() -> list[Path]:
    """The pages that list what is public."""
    return [DOCS / "api" / "index.rst", *(folder / "index.rst" for folder in OF_EXTENSIONS)]


def has(extension: str) -> bool:
    return (SOURCES / extension).is_dir()


def needs(extension: str) -> None:
    """Skip a test that an extension has a part in if its folder was taken out."""
    if not has(extension):
        pytest.skip(f"the extension {extension} is not here")


# Words in the names of files and of cases that an extension reads.
_READ_BY = {
    "scanpy": ("h5ad", "anndata", "10x", "tenx", "bpcells"),
    "xarray": ("netcdf", ".nc", "classic"),
    "genetics": ("bed", "pgen", "vcf", "bgen", "plink"),
}


def readable(name: str) -> bool:
    """Whether what is here reads the file or the case of this name."""
    absent = (word for extension, words in _READ_BY.items() if not has(extension) for word in words)
    return not any(word in name.lower() for word in absent)


def needs_reader(name: str) -> None:
    if not readable(name):
        pytest.skip(f"the extension that reads {name} is not here")


def readable_of(cases: dict[str, Case]) -> dict[str, Case]:
    return {name: case for name, case in cases.items() if readable(name)}
