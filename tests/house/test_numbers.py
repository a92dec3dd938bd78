"""Every measured number of the README and of the pages has a script that prints it, or is said to be none."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.claims.numbers import ARITHMETIC, CLAIMS, SETTING, pages, prose, span, unclaimed
from tests.support.places import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_number_of_a_page_is_without_a_source(page: Path) -> None:
    assert unclaimed(page) == []


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page}: {claim.begins}")
def test_every_claim_is_still_made_and_its_script_is_there(claim) -> None:
    span(prose(ROOT / claim.page), claim)
    words = shlex.split(claim.source)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "python":
        assert (ROOT / words[2].replace(".", "/")).with_suffix(".py").is_file()
    else:
        assert claim.source in (ARITHMETIC, SETTING)


def test_numbers_are_seen_as_people_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.claims.numbers.ROOT", tmp_path)
    for said in ("took 3.5 s", "8 MB more", "2 to 3 times as fast", "errs by 1e-7", "99.9% of it", "12 ms"):
        (tmp_path / "page.rst").write_text(f"It {said}, ``not 9 MB``.\n\n.. code-block:: text\n\n   9 MB\n\nThe end.\n")
        assert len(unclaimed(tmp_path / "page.rst")) == 1
