"""Every page of the gallery runs, without a warning, and draws; what the pages of the guide print is what they show."""

import doctest
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.pages import WALKS
from tests.support.places import DOCS, OF_EXTENSIONS, references

SCRIPTS = sorted(script for folder in (DOCS, *OF_EXTENSIONS) for script in folder.glob("gallery/plot_*.py"))
# The others run as a whole: tests/house/test_walks.py.
PAGES = sorted({*DOCS.glob("*.rst"), *(DOCS / "guide").glob("*.rst")} - {DOCS / f"{name}.rst" for name in WALKS})
# One process draws several pages, each as if it were alone: to start, with all that they import, takes long.
TOGETHER = 4
# Draws as the pages do, and tells which one had no picture.
DRAWN = """
import runpy, sys
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
for page in sys.argv[1:]:
    print(page, flush=True)
    with plt.rc_context():
        runpy.run_path(page, run_name="__main__")
        if not plt.get_fignums():
            sys.exit("no picture")
        plt.close("all")
"""


def packages(script: Path) -> set[str]:
    """What a page imports at its left margin, and the package whose data it reads."""
    text = script.read_text(encoding="utf-8")
    return set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) | ({"gensim"} if "gensim" in text else set())


def test_gallery_is_there():
    assert len(SCRIPTS) >= 10


def runs_here(script: Path) -> bool:
    """Whether all that a page needs is installed."""
    needed = packages(script) - {"shiftsvd"} - sys.stdlib_module_names
    if "gensim" in needed:
        from paper.corpus import gensim_sample

        return gensim_sample() is not None and all(find_spec(package) for package in needed)
    return all(find_spec(package) for package in needed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(TOGETHER))
def test_pages_of_the_gallery_run_without_a_warning(first, tmp_path):
    scripts = [script for script in SCRIPTS[first::TOGETHER] if runs_here(script)]
    if not scripts:
        pytest.skip("what these pages need is not installed")
    command = [sys.executable, "-W", "error", "-c", DRAWN, *map(str, scripts)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout.splitlines()[-1:]}: {run.stderr}"
    assert not list(tmp_path.iterdir()), "a page leaves no files behind"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_examples_of_a_page_print_what_it_shows(page):
    failed, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8", optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_reference_names_every_public_name():
    import shiftsvd

    texts = (page.read_text(encoding="utf-8") for page in references())
    listed = {name for text in texts for name in re.findall(r"^   (\w+)$", text, re.MULTILINE)}
    assert set(shiftsvd.__all__) - listed == set()
