"""`import shiftsvd` loads the standard library only; every public name resolves; every example runs."""

import doctest
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import shiftsvd
from tests.support.places import needs

SOURCE = Path(shiftsvd.__file__).parents[1]


def loaded_by(code: str) -> set[str]:
    """Top-level modules loaded in a fresh interpreter after running `code`."""
    script = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_import_loads_the_standard_library_only() -> None:
    extra = loaded_by("import shiftsvd") - loaded_by("") - set(sys.stdlib_module_names)
    assert extra == {"shiftsvd"}


def test_listing_the_names_loads_nothing_either() -> None:
    assert "numpy" not in loaded_by("import shiftsvd; dir(shiftsvd); shiftsvd.__all__")


def test_svd_does_not_load_what_it_does_not_need() -> None:
    loaded = loaded_by("import shiftsvd, numpy; shiftsvd.svd(numpy.eye(4), 2)")
    assert "numpy" in loaded
    assert not loaded & {"pandas", "polars", "matplotlib", "sklearn", "click", "rich", "dask", "filelock", "asyncio"}


def run_of(*words: object) -> str:
    return f"from shiftsvd.cli import main; main({[*map(str, words)]}, standalone_mode=False)"


@pytest.mark.parametrize("verb", ["info", "convert"])
def test_verbs_without_a_model_load_no_packages_that_only_fits_need(tmp_path: Path, verb: str) -> None:
    (tmp_path / "t.csv").write_text("id,x,y,z,kind\na,1,2,3,u\nb,2,1,5,v\nc,7,8,3,u\nd,1,4,6,v\n")
    more = () if verb == "info" else (tmp_path / "t.bpcells", "--drop", "kind")
    assert not loaded_by(run_of(verb, tmp_path / "t.csv", *more)) & {"pandas", "sklearn", "rich"}


class Told:
    """Print the name of scikit-learn when it is imported."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "sklearn":
            print("imports sklearn")


def test_fit_prints_what_it_read_before_it_loads_scikit_learn(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,z\n1,2,3\n2,1,5\n7,8,3\n1,4,6\n")
    told = f"import sys\n{inspect.getsource(Told)}\nsys.meta_path.insert(0, Told)\n"
    command = [sys.executable, "-W", "error", "-c", told + run_of("fit", tmp_path / "t.csv", "-k", 2)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[:2] == [f"{tmp_path / 't.csv'}: 4 samples x 3 features, 12 numbers, float64", "imports sklearn"]
    assert lines[2].startswith("Exact(); ")


@pytest.mark.parametrize("name", shiftsvd.__all__)
def test_public_name_resolves_in_a_fresh_interpreter_and_is_documented(name: str) -> None:
    value = getattr(shiftsvd, name)
    assert value.__name__ == name
    assert (value.__doc__ or "").strip()
    assert getattr(shiftsvd, name) is value


def test_names_are_listed_once_and_sorted_with_their_homes() -> None:
    assert set(shiftsvd.__all__) == set(shiftsvd._HOME)
    assert len(shiftsvd.__all__) == len(set(shiftsvd.__all__))
    assert set(dir(shiftsvd)) == {*shiftsvd.__all__, "__version__"}
    for name, home in shiftsvd._HOME.items():
        assert getattr(importlib.import_module(f"shiftsvd.{home}"), name) is getattr(shiftsvd, name)


def test_star_import_brings_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from shiftsvd import *", namespace)
    assert set(shiftsvd.__all__) <= set(namespace)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = shiftsvd.nonsense
    with pytest.raises(ImportError):
        exec("from shiftsvd import nonsense")
    assert not hasattr(shiftsvd, "np")


MODULES = [
    module.name for module in pkgutil.walk_packages([str(SOURCE / "shiftsvd")], "shiftsvd.") if "._" not in module.name
]


def text_of(name: str) -> str:
    place = SOURCE.joinpath(*name.split("."))
    return (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text()


def test_every_module_can_be_imported_and_says_what_is_in_it() -> None:
    for name in ["shiftsvd", *MODULES]:
        library = name.removeprefix("shiftsvd.backends.device.")
        if library not in ("torch", "cupy") or find_spec(library):
            assert (importlib.import_module(name).__doc__ or "").strip(), name


@pytest.mark.parametrize("name", [name for name in ["shiftsvd", *MODULES] if ">>>" in text_of(name)])
def test_examples_of_the_docstrings_run(name: str) -> None:
    if name == "shiftsvd.plot.variance":
        needs("xarray")  # whose error bars it draws
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        runner.run(example)
    assert runner.failures == 0


def test_public_functions_and_solvers_have_an_example() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in (
        "svd",
        "as_operator",
        "centered",
        "spectral_norm",
        "auto_solver",
        "Exact",
        "RandomizedSVD",
        "PCA",
        "ShiftedRandomizedSVD",
    ):
        examples = finder.find(getattr(shiftsvd, name), name)
        assert any(example.examples for example in examples), name


def test_no_module_hides_a_name_of_the_package() -> None:
    modules = {info.name for info in pkgutil.iter_modules(shiftsvd.__path__)}
    assert not modules & set(shiftsvd.__all__)
