"""Model files that an older version wrote: kept as bytes, they load, and do what they did."""

import json
from pathlib import Path

import numpy as np
import pytest

import shiftsvd as ss
from tests.support.matrices import EPS

FOLDER = Path(__file__).parent / "models"  # of version 0.1.0 as it was before its modules moved
SAID = json.loads((FOLDER / "scores.json").read_text())
NEEDS = {"groups": ("groups",), "covariates": ("covariates",)}


@pytest.mark.parametrize("name", SAID["scores"])
@pytest.mark.filterwarnings("ignore:.*but not its stream")
def test_a_file_of_an_older_version_loads_and_gives_the_same_scores(name: str) -> None:
    model = ss.load_model(FOLDER / f"{name}.safetensors")
    X, want = np.array(SAID["X"]), np.array(SAID["scores"][name])
    Z = model.transform(X, **{need: np.array(SAID[need]) for need in NEEDS.get(name, ())})
    # Written with SciPy's kernels: what another order of the sums leaves of 5 products, with a margin.
    assert np.abs(Z - want).max() <= 100 * EPS * np.linalg.norm(X)


def test_the_files_are_a_few_kilobytes() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2**15


def table() -> np.ndarray:
    """What the two files with older names of settings were fitted to."""
    return np.random.default_rng(0).standard_normal((40, 6)).round(3)


def test_a_setting_that_had_another_name_is_read_from_a_file_of_then(tmp_path: Path) -> None:
    solver = ss.RandomizedSVD(
        5, 3, power_iteration_normalizer="LU", sketch=ss.sketch.SparseSign(nonzeros=3), certify=True
    )
    model = ss.load_model(
        FOLDER / "older_names.safetensors", ss.PCA
    )  # has power_iteration_normalizer="LU" and a reason
    assert model.solver == solver
    assert model.scale is False
    again = ss.PCA(**model.get_params()).fit(table())
    assert np.abs(again.transform(table()) - model.transform(table())).max() <= 1000 * EPS * np.linalg.norm(table())
    ss.save_model(model, tmp_path / "now.safetensors")
    assert ss.load_model(tmp_path / "now.safetensors", ss.PCA).solver == solver
    text = (tmp_path / "now.safetensors").read_bytes()
    assert b'\\"normalizer' not in text
    assert b"reason" not in text


def test_a_solver_that_was_chosen_loads_without_the_reason_for_it() -> None:
    model = ss.load_model(FOLDER / "auto_solver.safetensors", ss.PCA)
    assert model.solver == ss.Exact()
    assert model.solver.reason == ""
    assert b"short side 6" in (FOLDER / "auto_solver.safetensors").read_bytes()
