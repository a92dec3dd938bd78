"""What the README shows is what happens."""

import doctest
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from shiftsvd.cli import main
from tests.support.places import ROOT

README = ROOT / "README.md"


def test_examples_of_the_readme_print_what_it_shows():
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert tried >= 6
    assert failed == 0


def test_command_of_the_readme_makes_components_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("a,b,c,d\n" + "".join(f"{i % 7},{i % 5},{i % 3},{i}\n" for i in range(40)))
    commands = re.findall(r"`shiftsvd (fit [^`]*)`", README.read_text(encoding="utf-8"))
    assert commands
    for line in commands:
        done = CliRunner().invoke(main, line.split())
        assert done.exit_code == 0, done.output
    assert {"components.csv", "report.html"} <= {path.name for path in Path("out").iterdir()}


def test_files_that_the_readme_names_exist():
    text = README.read_text(encoding="utf-8")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "docs/curve.png", "docs/tutorial.rst"):
        assert f"({name})" in text
        assert (README.parent / name).is_file()
    for module in re.findall(r"python -m ([a-z_.]+)", text + (ROOT / "Makefile").read_text()):
        if module.startswith("benchmarks.") and not module.endswith("."):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
    for name in re.findall(r"\]\(([\w/.]+)\)", text):
        page = ROOT / name
        assert page.is_file() or not page.parent.is_dir(), name  # pages of an extension go with it
