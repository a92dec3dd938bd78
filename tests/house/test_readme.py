"""What the README shows is what happens."""

import doctest
import re

from tests.support.places import ROOT

README = ROOT / "README.md"


def test_examples_of_the_readme_print_what_it_shows():
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert tried >= 10
    assert failed == 0


def test_files_that_the_readme_names_exist():
    text = README.read_text()
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "docs/peers.png"):
        assert f"({name})" in text
        assert (README.parent / name).is_file()
    for module in re.findall(r"python -m ([a-z_.]+)", text + (ROOT / "Makefile").read_text()):
        if module.startswith("benchmarks.") and not module.endswith("."):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
