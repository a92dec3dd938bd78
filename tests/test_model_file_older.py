"""Model files that an older version wrote: kept as bytes, they load, and do what they did."""

import json
from pathlib import Path

import numpy as np
import pytest

import shiftsvd as ss
from helpers import EPS

FOLDER = Path(__file__).parent / "models"  # of version 0.1.0 as it was before its modules moved
SAID = json.loads((FOLDER / "scores.json").read_text())
NEEDS = {"groups": ("groups",), "covariates": ("covariates",)}


@pytest.mark.parametrize("name", SAID["scores"])
@pytest.mark.filterwarnings("ignore:.*but not its stream")
def test_a_file_of_an_older_version_loads_and_gives_the_same_scores(name: str) -> None:
    model = ss.load(FOLDER / f"{name}.safetensors")
    X, want = np.array(SAID["X"]), np.array(SAID["scores"][name])
    Z = model.transform(X, **{need: np.array(SAID[need]) for need in NEEDS.get(name, ())})
    # Written with SciPy's kernels: what another order of the sums leaves of 5 products, with a margin.
    assert np.abs(Z - want).max() <= 100 * EPS * np.linalg.norm(X)


def test_the_files_are_a_few_kilobytes() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2**15
