"""What is public: the modules come with the package, and the reference lists every name once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shiftsvd

SOURCE = Path(shiftsvd.__file__).parents[1]


def said_by(code: str) -> str:
    """What a fresh interpreter prints."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("name", shiftsvd._MODULES)
def test_public_module_comes_with_the_package_in_a_fresh_interpreter(name: str) -> None:
    said = said_by(
        f"import sys, shiftsvd as ss; print('shiftsvd.{name}' in sys.modules); print(ss.{name}.__name__);"
        f"print(sorted(set(ss.{name}.__all__) - set(dir(ss.{name}))))"
    )
    assert said.split("\n")[:3] == ["False", f"shiftsvd.{name}", "[]"]


def test_public_modules_are_those_that_the_guides_name() -> None:
    wanted = "events genetics io plot report scanpy shifts sketch solvers testing xarray"
    assert set(wanted.split()) <= set(shiftsvd._MODULES)


def test_other_modules_do_not_come_with_the_package() -> None:
    assert (
        said_by("import shiftsvd as ss; print(hasattr(ss, 'numerics'), hasattr(ss, 'front'))").split() == ["False"] * 2
    )


def test_a_module_and_a_name_of_it_are_the_same_by_both_ways() -> None:
    code = "import shiftsvd as ss, shiftsvd.solvers; print(ss.solvers is shiftsvd.solvers, ss.solvers.Gram is ss.Gram)"
    assert said_by(code).split() == ["True", "True"]
