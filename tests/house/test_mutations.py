"""The list of faults, which `python -m tests.mutations` puts into the sources, is of the sources as they are."""

import ast
from functools import cache
from pathlib import Path

import shiftsvd
from tests.mutations.faults import FAULTS
from tests.mutations.sources import ROOT, changed
from tests.support.sampling import seeing

PACKAGE = ROOT / "src" / "shiftsvd"


@cache
def functions(file: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]


def test_every_fault_changes_one_place():
    """What a fault replaces is there once, or it would be put elsewhere, or nowhere."""
    for fault in FAULTS:
        sound = (PACKAGE / fault.file).read_text()
        assert changed(sound, fault) != sound, fault.what


def test_every_fault_names_tests_that_are_there():
    assert all((ROOT / "tests" / name).exists() for fault in FAULTS for name in fault.tests)


def test_no_part_of_the_package_is_without_a_fault():
    """Parts that only name others, or lay out what a test compares as a whole are left out."""
    parts = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert parts <= {fault.file.partition("/")[0] for fault in FAULTS}
    assert len({fault.what for fault in FAULTS}) == len(FAULTS) >= 45
    assert shiftsvd.__version__


def test_every_test_that_sees_a_fault_is_part_of_make_test_with_all_its_cases():
    assert len(seeing()) > 150
    for test in seeing():
        path, *_, name = test.split("::")
        if not (file := ROOT / "tests" / path).parent.is_dir():
            continue  # an extension takes its tests with it
        (found,) = (function for function in functions(file) if function.name == name)
        marks = {ast.unparse(mark).partition("(")[0] for mark in found.decorator_list}
        assert not marks & {"pytest.mark.long", "pytest.mark.one_in"}, test
