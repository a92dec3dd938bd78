"""Every page of the gallery runs, without a warning, and draws; what the pages of the guide print is what they show."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import DOCS

SCRIPTS = sorted((DOCS / "gallery").glob("plot_*.py"))
PAGES = sorted([*DOCS.glob("*.rst"), *(DOCS / "guide").glob("*.rst")])
# Draws as the pages do, and tells how many pictures there were.
DRAWN = """
import runpy, sys
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
sys.exit(0 if plt.get_fignums() else "no picture")
"""


def packages(script: Path) -> set[str]:
    """What a page imports at its left margin, and the package whose data it reads."""
    text = script.read_text(encoding="utf-8")
    return set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) | ({"gensim"} if "gensim" in text else set())


def test_gallery_is_there():
    assert len(SCRIPTS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_page_of_the_gallery_runs_without_a_warning(script, tmp_path):
    for package in sorted(packages(script) - {"shiftsvd"}):
        if package == "gensim":
            from shiftsvd.paper.corpus import gensim_sample

            if gensim_sample() is None:
                pytest.skip("gensim, whose texts are read, is not installed")
        elif package not in sys.stdlib_module_names:
            pytest.importorskip(package)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRAWN, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert not list(tmp_path.iterdir()), "a page leaves no files behind"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_examples_of_a_page_print_what_it_shows(page):
    failed, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0


def test_reference_names_every_public_name():
    import shiftsvd

    listed = set(re.findall(r"^   (\w+)$", (DOCS / "api" / "index.rst").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(shiftsvd.__all__) - listed == set()
