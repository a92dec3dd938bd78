"""`python -m paper` as a user runs it: outputs, messages, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from paper.__main__ import paper as main

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


def paper(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "paper", *map(str, arguments)]


def ends(group: int) -> bool:
    """Whether every process of a group ends within five seconds."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def empty_figures_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of figures without the seconds that drawing takes."""
    monkeypatch.setattr("paper.figures.rendered", lambda figure, kind: kind.encode())


@pytest.mark.long
def test_digits_are_written_whole_and_every_check_is_printed(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    result = paper("--only", "digits,fig-d", "--quick", "--jobs", 1, "--out", out, "--json", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    names = {"digits.png", "digits.svg", "random-data.png", "random-data.svg", "paper.html", "results.json"}
    assert {file.name for file in out.iterdir()} == names
    document = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert document == json.loads((out / "results.json").read_text(encoding="utf-8"))
    for check in document["checks"]:
        assert check["name"] in result.output
        assert check["measured"] in result.output
    assert "ok          digits: deterministic SVD" in result.output
    page = (out / "paper.html").read_text(encoding="utf-8")
    assert "415.7" in page
    assert "<script" not in page
    assert 'src="http' not in page


@pytest.mark.usefixtures("empty_figures_of_the_paper")
def test_outputs_are_not_replaced_without_force_and_the_same_seeds_give_the_same(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    two.mkdir()
    (two / "digits.png").write_bytes(b"mine")
    result = paper("--only", "digits", "--quick", "--jobs", 1, "--out", two)
    assert result.exit_code == 1
    assert "digits.png exists. Use --force" in result.output
    assert [file.name for file in two.iterdir()] == ["digits.png"]
    assert paper("--only", "digits", "--quick", "--jobs", 1, "--out", two, "--force").exit_code == 0
    assert (two / "digits.png").read_bytes() != b"mine"
    assert paper("--only", "digits", "--quick", "--jobs", 1, "--out", one).exit_code == 0
    assert (one / "results.json").read_bytes() == (two / "results.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "fig-a,fig-z"], "unknown experiment 'fig-z'; choose from fig-a"),
        (["--seeds", "1"], "1 is not in the range x>=2"),
        (["--normalise", "both"], "is not one of 'context', 'target'"),
        (["--corpus", "no/such/text"], "'no/such/text' does not exist"),
        (["--lfw", "no/such/folder"], "'no/such/folder' does not exist"),
        (["--faces", "no/such/file.npz"], "'no/such/file.npz' does not exist"),
    ],
)
def test_wrong_option_values_end_with_two(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = paper(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_folder_and_file_of_faces_together_are_a_usage_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", images=np.zeros((3, 4), np.uint8))
    assert paper("--lfw", tmp_path, "--faces", tmp_path / "f.npz").exit_code == 2


def test_data_that_cannot_be_used_end_with_one_before_any_output(tmp_path: Path) -> None:
    (tmp_path / "latin1.txt").write_bytes(b"caf\xe9\n")
    result = paper("--only", "words", "--corpus", tmp_path / "latin1.txt", "--out", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 1
    assert "is not UTF-8: byte 0xe9 at offset 3 (line 1)" in result.output
    (tmp_path / "empty").mkdir()
    result = paper("--only", "faces", "--lfw", tmp_path / "empty", "--out", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 1
    assert "no image under" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.usefixtures("empty_figures_of_the_paper")
def test_skipped_images_are_named_and_counted(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    (tmp_path / "lfw").mkdir()
    for number in range(12):
        Image.fromarray(rng.integers(0, 255, (25, 25), dtype=np.uint8)).save(tmp_path / "lfw" / f"{number:02}.png")
    (tmp_path / "lfw" / "bad.jpg").write_bytes(b"bad")
    result = paper("--only", "faces", "--lfw", tmp_path / "lfw", "--quick", "--jobs", 1, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "12 images of 62500 pixels" in result.output
    assert "1 unreadable files were skipped" in result.output
    assert "bad.jpg" in result.output


@pytest.mark.long
@pytest.mark.usefixtures("empty_figures_of_the_paper")
def test_failed_check_ends_with_one_after_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paper.checks.DIGITS_SVD", (314.0, 321.0))
    result = paper("--only", "digits", "--quick", "--jobs", 1, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "FAILED      digits: deterministic SVD" in result.output
    assert (tmp_path / "out" / "paper.html").exists()


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="no process groups")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_run_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = command("--only", "digits,fig-b", "--seeds", 200, "--jobs", 2, "--out", tmp_path / "out")
    process = subprocess.Popen(
        arguments, env=os.environ | {"TMPDIR": str(scratch)}, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    deadline = time.monotonic() + 60
    while not list(scratch.glob("shiftsvd-paper-*/digits.npy")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)  # into the runs, or into the start of the workers: either must end cleanly
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()
    assert not list(scratch.glob("shiftsvd-paper-*"))
    assert ends(process.pid), "a worker is left"
