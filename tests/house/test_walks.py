"""The tutorial, the recipes and the pages beside them run from top to bottom as they are printed."""

from pathlib import Path

import pytest

from tests.support.pages import WALKS, blocks, play
from tests.support.places import DOCS


@pytest.mark.parametrize("name", WALKS)
def test_page_runs_as_it_is_printed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / f"{name}.rst"
    assert page.read_text(encoding="utf-8").count(".. code-block:: ") == len(blocks(page))
    assert play(page) > 3
