"""The tutorial, the recipes and the pages beside them run from top to bottom as they are printed."""

from pathlib import Path

import pytest

from tests.support.pages import WALKS, blocks, pasted, play, understood
from tests.support.places import DOCS, pages


@pytest.mark.long
@pytest.mark.parametrize("name", WALKS)
def test_page_runs_as_it_is_printed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / f"{name}.rst"
    assert page.read_text(encoding="utf-8").count(".. code-block:: ") == len(blocks(page))
    assert play(page) > 3


def test_every_page_can_be_pasted_into_a_plain_python() -> None:
    for page in pages():
        for block in blocks(page):
            if block.kind == "pycon":
                understood(pasted(block), f"{page.name}, line {block.line}")
