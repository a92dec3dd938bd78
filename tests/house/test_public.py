"""What is public: the modules come with the package, and the reference lists every name once."""

import ast
import importlib
import inspect
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import shiftsvd
from benchmarks.structure.docstrings import public
from shiftsvd.extend import public_modules

SOURCE = Path(shiftsvd.__file__).parents[1]


def said_by(code: str) -> str:
    """What a fresh interpreter prints."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", shiftsvd._MODULES)
def test_public_module_comes_with_the_package_in_a_fresh_interpreter(name: str) -> None:
    said = said_by(
        f"import sys, shiftsvd as ss; print('shiftsvd.{name}' in sys.modules); print(ss.{name}.__name__);"
        f"print(sorted(set(ss.{name}.__all__) - set(dir(ss.{name}))))"
    )
    assert said.split("\n")[:3] == ["False", f"shiftsvd.{name}", "[]"]


def test_public_modules_are_those_that_the_guides_name() -> None:
    wanted = "events extend io plot report shifts sketch solvers testing transforms"
    assert set(wanted.split()) <= set(shiftsvd._MODULES)


def test_other_modules_do_not_come_with_the_package() -> None:
    assert (
        said_by("import shiftsvd as ss; print(hasattr(ss, 'numerics'), hasattr(ss, 'front'))").split() == ["False"] * 2
    )


def test_a_module_and_a_name_of_it_are_the_same_by_both_ways() -> None:
    code = "import shiftsvd as ss, shiftsvd.solvers; print(ss.solvers is shiftsvd.solvers, ss.solvers.Gram is ss.Gram)"
    assert said_by(code).split() == ["True", "True"]


# What `shiftsvd.operators` hands to the rest of the house, and is no promise.
HOUSE = {"Derived", "Mixer", "Panel", "Vector", "field_of", "panel_dtype", "repeated"}


def listed() -> list[str]:
    """The names of the reference, in full: the one list of what is public."""
    return [name for name, member in public() if not member]


def test_the_reference_lists_what_is_public_and_nothing_else() -> None:
    top = {f"shiftsvd.{name}" for name in shiftsvd.__all__}
    known = {id(getattr(shiftsvd, name)) for name in shiftsvd.__all__}
    within = {
        f"shiftsvd.{module}.{name}"
        for module in (*shiftsvd._MODULES, *public_modules())
        for name in getattr(shiftsvd, module).__all__
        if id(getattr(getattr(shiftsvd, module), name)) not in known  # which is listed where it is imported from
        and not (module == "operators" and name in HOUSE)
    }
    assert sorted(listed()) == sorted(top | within)


@pytest.mark.parametrize("name", listed())
def test_what_the_reference_lists_is_there_and_says_what_it_is(name: str) -> None:
    module, _, own = name.rpartition(".")
    value = getattr(importlib.import_module(module), own)
    assert (inspect.getdoc(value) or "").strip()
    for method, of in vars(value).items() if inspect.isclass(value) else ():
        if inspect.isfunction(of) and not method.startswith("_"):  # an override inherits the docstring
            said = pydoc.render_doc(of, renderer=pydoc.plaintext).split("\n", 3)[3:]
            assert said, f"help({name}.{method}) says nothing"
            assert said[0].strip(), f"help({name}.{method}) says nothing"


def test_type_checkers_see_the_names_where_they_are() -> None:
    tree = ast.parse(Path(shiftsvd.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname: node.module.removeprefix("shiftsvd").lstrip(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("shiftsvd")
        for alias in node.names
    }
    assert seen == shiftsvd._HOME | dict.fromkeys((*shiftsvd._MODULES, "genetics", "scanpy", "xarray"), "")


def test_internals_are_not_at_the_top() -> None:
    for name in ("Adjoint", "Scaled", "Shifted", "Moments", "Gaussian", "Rademacher", "SparseSign", "SRFT", "Estimate"):
        assert not hasattr(shiftsvd, name), name
    for name in ("center", "complete", "merge", "load"):  # each says now what it does, and to what
        assert not hasattr(shiftsvd, name), name


def test_no_solver_is_given_a_reason() -> None:
    for solver in (shiftsvd.Exact, shiftsvd.Gram, shiftsvd.BlockLanczos, shiftsvd.RandomizedSVD):
        assert "reason" not in inspect.signature(solver).parameters
    assert "predicted times for 1 component of a 5 x 3 matrix" in shiftsvd.auto_solver([[1.0, 2.0, 4.0]] * 5, 1).reason


def parameters() -> dict[str, set[str]]:
    """Parameters of what is public: functions, classes, and methods of classes."""
    found = {}
    for name in listed():
        module, _, own = name.rpartition(".")
        value = getattr(importlib.import_module(module), own)
        methods = [each for each in vars(value) if not each.startswith("_")] if inspect.isclass(value) else []
        for part, one in {"": value, **{f".{each}": getattr(value, each) for each in methods}}.items():
            if callable(one) and not (inspect.isclass(one) and issubclass(one, tuple | Warning)):
                found[name + part] = set(inspect.signature(one).parameters)
    return found


# Parameters that the documentation calls ignored: those of scikit-learn's pipelines, and of scanpy's blocks.
IGNORED = {"y", "check_input", "chunked", "chunk_size"}


def test_a_parameter_of_a_public_function_is_read() -> None:
    for name in listed():
        module, _, own = name.rpartition(".")
        value = getattr(importlib.import_module(module), own)
        several = vars(value).values() if hasattr(value, "get_params") else [value]  # methods of other classes override
        for function in map(inspect.unwrap, filter(inspect.isfunction, several)):
            args, *others = inspect.getargs(function.__code__)  # of the code: a signature may show keywords one by one
            given = {*args, *others} - {"self", None} - IGNORED
            if function.__code__.co_filename == "<string>":  # made by dataclass
                continue
            body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function))).body[0].body  # type: ignore[attr-defined]
            read = {each.id for part in body for each in ast.walk(part) if isinstance(each, ast.Name)}
            if "locals" not in read and not any(isinstance(part, ast.Raise) for part in body[:2]):
                assert not given - read, f"{name}: {function.__name__}"


def test_one_word_for_one_thing() -> None:
    # Words of packages that are swapped out for ours stay where those have them, and words of PCA in a PCA.
    theirs = ("shiftsvd.scanpy.pca", "shiftsvd.scanpy.diffmap", "shiftsvd.genetics.GenotypeModel")
    for name, taken in parameters().items():
        estimator = hasattr(getattr(shiftsvd, name.split(".")[1], None), "get_params")
        assert not taken & {"normalizer", "k_max", "seed", "reason", "iterations", "q"}, name
        if not estimator and name not in theirs:
            assert not taken & {"n_components", "random_state", "iterated_power"}, name
        if estimator:
            assert not taken & {"rng"}, name


def test_randomness_is_fresh_unless_it_is_given() -> None:
    # SPEC 7; scanpy's own default stays in the function that stands in for scanpy's.
    for name in listed():
        module, _, own = name.rpartition(".")
        value = getattr(importlib.import_module(module), own)
        plain = inspect.isclass(value) and issubclass(value, Warning)  # which has no signature
        given = inspect.signature(value).parameters if callable(value) and not plain else {}
        for word in {"rng", "random_state"} & set(given):
            default = given[word].default
            assert default is (inspect.Parameter.empty if default is inspect.Parameter.empty else None) or name in (
                "shiftsvd.scanpy.pca",
                "shiftsvd.scanpy.diffmap",
            ), name


def test_none_is_the_word_for_no_scale() -> None:
    for name in ("svd", "PCA", "suggest_k"):
        assert inspect.signature(getattr(shiftsvd, name)).parameters["scale"].default is None
