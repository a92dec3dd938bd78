"""Type checkers name what is wrong in a file of calls, and nothing else; what help shows can be read."""

import importlib.util
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import shiftsvd
from shiftsvd import names
from shiftsvd.numerics.orth import NORMALIZERS
from shiftsvd.solvers.auto import BY_NAME

ROOT = Path(shiftsvd.__file__).parents[2]
CALLS = sorted(Path(__file__).parents[1].glob("*/typed_*.py"))
WRONG = {
    (file.name, number)
    for file in CALLS
    for number, line in enumerate(file.read_text().splitlines(), 1)
    if line.endswith("# wrong")
}


def needs(checker: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(checker) is None or not (ROOT / "pyproject.toml").is_file()
    return pytest.mark.skipif(missing, reason=f"needs {checker} and a clone: make lint installs it")


@pytest.mark.slow
@needs("mypy")
def test_mypy_names_the_wrong_calls_and_no_others() -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        *map(str, CALLS),
    ]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert "error: " in run.stdout, run.stdout + run.stderr
    told = re.findall(r"(typed_\w+\.py):(\d+): error", run.stdout)
    assert run.stdout.count(" error: ") == len(told), run.stdout  # none in the package itself
    assert {(file, int(line)) for file, line in told} == WRONG, run.stdout


@pytest.mark.long
@needs("basedpyright")
def test_basedpyright_names_the_wrong_calls_and_no_others(tmp_path: Path) -> None:
    settings = {
        "include": list(map(str, CALLS)),
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--level", "error", "--pythonpath", sys.executable]
    command = [sys.executable, "-m", "basedpyright", *options, "--project", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    told = json.loads(run.stdout)["generalDiagnostics"]
    found = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in told}
    assert found == WRONG, run.stdout


@pytest.mark.parametrize("name", shiftsvd.__all__)
def test_help_opens_with_a_signature_that_can_be_read(name: str) -> None:
    if not (callable(value := getattr(shiftsvd, name))):
        pytest.skip("nothing to call")
    head = str(inspect.signature(value))
    assert "numpy._typing" not in head
    assert "_NestedSequence" not in head


def test_help_of_svd_opens_with_its_names_and_what_it_does() -> None:
    page = " ".join(
        pydoc.plain(pydoc.render_doc(shiftsvd.svd)).split()
    )  # the newest Python breaks the line at each name
    head, said, _ = page.partition("Compute the k leading singular triplets of")
    head = head.replace("( X", "(X")
    assert "svd(X: 'Any', k: 'int | float', *, shift: 'ShiftName | VectorLike | Operator | Shift | None' =" in head
    assert said
    assert len(head) < 800


def test_the_names_of_the_types_are_those_that_there_are() -> None:
    assert get_args(names.SolverName) == ("auto", *BY_NAME)
    assert get_args(names.NormalizerName) == tuple(NORMALIZERS)
    for name in get_args(names.SklearnSolverName):
        assert shiftsvd.PCA(1, svd_solver=name).fit([[0.0, 1.0], [2.0, 5.0], [3.0, 3.0]]).n_components_ == 1
