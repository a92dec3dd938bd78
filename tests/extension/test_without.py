"""The core does without each extension: its tests pass in a copy that lacks the folder.

Here are some of them; the nightly workflow runs all, and builds the pages.
"""

import subprocess
import sys

import pytest

from tests.support.places import ROOT, SOURCES

EXTENSIONS = sorted(file.parent.name for file in SOURCES.glob("*/extension.py"))
SOME = ("io/test_opening.py", "io/test_links.py", "commands/test_help.py", "house/test_layers.py")


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the copy is made of what git tracks")
@pytest.mark.parametrize(
    "name", [*EXTENSIONS[:1], *(pytest.param(name, marks=pytest.mark.long) for name in EXTENSIONS[1:])]
)
def test_the_core_does_without(name: str) -> None:
    tests = [f"tests/{file}" for file in SOME]
    command = [sys.executable, str(ROOT / "tools" / "without.py"), name, "-x", "-m", "not long", *tests]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
