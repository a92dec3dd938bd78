"""Where the repository and its pages are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Folders of the pages of extensions, which are built with those of docs/.
OF_EXTENSIONS = sorted((ROOT / "src" / "shiftsvd").glob("*/docs"))
_MADE = {"auto_gallery", "generated", "uses", "_build"}


def pages() -> list[Path]:
    """All pages that are written by hand."""
    copies = {DOCS / "fields" / folder.parent.name for folder in OF_EXTENSIONS}
    ours = [page for page in DOCS.rglob("*.rst") if not _MADE & {*page.parts} and not copies & {*page.parents}]
    return sorted(ours + [page for folder in OF_EXTENSIONS for page in folder.rglob("*.rst")])


def references() -> list[Path]:
    """The pages that list what is public."""
    return [DOCS / "api" / "index.rst", *(folder / "index.rst" for folder in OF_EXTENSIONS)]
