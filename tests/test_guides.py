"""What the pages for those who come from elsewhere print is what they show, and each of them is in the index."""

import doctest
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs" / "guides").glob("*.rst"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_examples_of_a_guide_print_what_it_shows(page: Path) -> None:
    failed, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0


def test_every_guide_is_in_the_index() -> None:
    index = next(page for page in PAGES if page.stem == "index").read_text(encoding="utf-8").split()
    assert {page.stem for page in PAGES} - set(index) == {"index"}
