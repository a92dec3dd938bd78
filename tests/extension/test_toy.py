"""An extension from outside adds a format, a transformation, an option and a verb by an entry point alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TOY = Path(__file__).with_name("toy")
ENTRY = "[shiftsvd.extensions]\ntoy = toy:EXTENSION\n"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of an interpreter that has the toy."""
    home = tmp_path / "site"
    (home / "toy-1.dist-info").mkdir(parents=True)
    (home / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (home / "toy-1.dist-info" / "entry_points.txt").write_text(ENTRY)
    shutil.copytree(TOY, home / "toy")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 5))
    path = tmp_path / "a.pgm"
    path.write_text(f"P2 5 12 255\n{' '.join(map(str, pixels.ravel()))}\n")
    return path


def said(environment: dict[str, str], code: str, *words: object) -> list[str]:
    """What a program prints, parted where it prints a line of one dash."""
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split("\n-\n")


PROGRAM = """
import sys
import shiftsvd as ss
from shiftsvd.cli import main
image = sys.argv[1]
print(ss.toy.EXTENSION.name)
for line in (["fit", image, *sys.argv[2:]], ["--help"], ["brightness", image]):
    print("-")
    main(line, standalone_mode=False)
"""


def test_its_module_format_transformation_option_and_verb_are_there(installed: dict[str, str], image: Path) -> None:
    line = ("-k", 2, "--preprocess", "brighten", "--gamma", 2, "--json")
    name, fitted, listed, bright = said(installed, PROGRAM, image, *line)
    assert name == "toy"
    assert "brightness" in listed
    assert float(bright) == pytest.approx(np.mean(np.array(image.read_text().split()[4:], float)), abs=0.01)
    told = json.loads(fitted)
    assert told["shape"] == [12, 5]
    assert told["settings"]["gamma"] == 2.0
    X = np.log1p(np.array(image.read_text().split()[4:], float).reshape(12, 5))
    assert told["brightness"] == pytest.approx(X.mean() ** 2)
    S = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(told["singular_values"], S[:2], rtol=1e-6)


def test_an_extension_that_was_taken_out_is_none(installed: dict[str, str], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "site" / "toy")
    (listed,) = said(installed, "from shiftsvd.cli import main; main()", "--help")
    assert "brightness" not in listed


def test_an_extension_that_fails_says_so(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "site" / "toy" / "__init__.py").write_text("import nonsense_that_is_not_there\n")
    code = "from shiftsvd.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", code, "--help"], env=installed, capture_output=True, text=True)
    assert run.returncode
    assert "nonsense_that_is_not_there" in run.stderr
