"""A folder of results is of one run, or named; the same fit writes the same model; what a checkpoint keeps is said."""

import json
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import shiftsvd as ss
from shiftsvd.backends import blocked
from tests.support.commands import invoke


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix, and a folder of its components."""
    home = tmp_path_factory.mktemp("home")
    np.save(home / "X.npy", np.random.default_rng(0).standard_normal((300, 20)))
    assert fit(home, "out").exit_code == 0
    return home


def fit(home: Path, out: str, *words: object) -> Result:
    return invoke("fit", home / "X.npy", "-k", 3, "-o", home / out, "--no-report", *words)


def test_the_result_has_the_hash_of_every_file_beside_it(home: Path) -> None:
    told = json.loads((home / "out" / "result.json").read_text())["sha256"]
    files = {file.name: file for file in (home / "out").iterdir()}
    assert set(told) == set(files) - {"result.json"}
    assert all(sha256(files[name].read_bytes()).hexdigest() == known for name, known in told.items())


@pytest.mark.long
@pytest.mark.parametrize("command", ["transform", "report", "info", "inverse"])
def test_a_folder_of_two_runs_is_named(command: str, home: Path, tmp_path: Path) -> None:
    for name, shift in (("one", "mean"), ("two", "none")):
        assert fit(home, tmp_path / name, "--shift", shift).exit_code == 0
    model, scores = tmp_path / "one" / "model.safetensors", next((tmp_path / "one").glob("scores.*"))
    line = {
        "transform": ["transform", model, home / "X.npy", "-o", tmp_path / "new.npy"],
        "report": ["report", model, "-o", tmp_path / "new.html"],
        "info": ["info", model],
        "inverse": ["inverse", model, scores, "-o", tmp_path / "new.csv"],
    }[command]
    whole = invoke(*line)
    assert whole.exit_code == 0, whole.output
    assert "warning" not in whole.stderr
    model.write_bytes((tmp_path / "two" / model.name).read_bytes())
    found = invoke(*line, *(["--force"] if command != "info" else []))
    assert found.exit_code == 0, found.output
    assert re.search(r"warning: model.safetensors in .*one does not match the hashes in result.json", found.stderr)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sha256": 3}', '{"sha256": {"../X.npy": "0"}}', '{"k": 1}'])
def test_a_result_of_another_program_says_nothing_of_a_model(content: str, home: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes((home / "out" / "model.safetensors").read_bytes())
    (tmp_path / "result.json").write_text(content)
    found = invoke("info", model)
    assert found.exit_code == 0
    assert found.stderr == ""


def test_files_that_are_gone_or_somebody_elses_are_nobodys_concern(home: Path, tmp_path: Path) -> None:
    assert fit(home, tmp_path / "out").exit_code == 0
    (tmp_path / "out" / "components.csv").unlink()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert invoke("info", tmp_path / "out" / "model.safetensors").stderr == ""
    assert fit(home, tmp_path / "out", "--force").exit_code == 0
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.long
def test_the_same_fit_writes_the_same_bytes_of_the_model(home: Path, tmp_path: Path) -> None:
    assert fit(home, tmp_path / "again").exit_code == 0
    elsewhere = [sys.executable, "-c", "from shiftsvd.cli import main; main()"]
    line = ["fit", home / "X.npy", "-k", 3, "-o", tmp_path / "other", "--no-report", "-q"]
    subprocess.run([*elsewhere, *map(str, line)], check=True, capture_output=True)
    folders = (home / "out", tmp_path / "again", tmp_path / "other")
    assert len({(folder / "model.safetensors").read_bytes() for folder in folders}) == 1
    told = json.loads((home / "out" / "result.json").read_text())
    assert told["seconds"] > 0
    info = ss.load_model(home / "out" / "model.safetensors", ss.PCA).info_
    assert (info.seconds, info.peak_bytes) == (None, None)


def test_a_checkpoint_of_data_in_memory_says_where_nothing_is_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("--checkpoint", tmp_path / "kept", "--memory", "1G")
    assert "After an interruption the fit starts again" in fit(home, tmp_path / "a", *line).stderr
    assert "starts again" not in fit(home, tmp_path / "b", *line, "-q").stderr
    monkeypatch.setattr(blocked, "WORTH", -1e9)
    assert "starts again" not in fit(home, tmp_path / "c", *line).stderr


def test_a_checkpoint_without_reads_is_taken_by_the_next_run(home: Path, tmp_path: Path) -> None:
    refused = fit(home, tmp_path / "out", "--checkpoint", tmp_path / "kept", "--memory", "1K")
    assert refused.exit_code == 1
    (tmp_path / "kept").mkdir(exist_ok=True)
    assert fit(home, tmp_path / "out", "--checkpoint", tmp_path / "kept").exit_code == 0
