"""How the command ends: codes for scripts, one line for people, outputs whole or not at all."""

import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from shiftsvd.commands.tables import Table, csv_table
from shiftsvd.runs.outputs import Outputs, refuse
from tests.support.commands import invoke

SHIFTSVD = [sys.executable, "-c", "from shiftsvd.cli import main; main()"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((300, 20)))
    return tmp_path / "X.npy"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "line",
    [
        ("-k", "0"),
        ("-k", "1.5"),
        ("-k", "many"),
        ("-k", "21"),
        ("-k", "nan"),
        ("-k", "0.9", "--solver", "randomized"),
        ("--tol", "-1"),
        ("--memory", "lots"),
        ("--memory", "-3G"),
        ("--solver", "magic"),
        ("--scale", "max"),
        ("--format", "docx"),
        ("--orient", "diagonal"),
        ("--dtype", "int8"),
        ("--threads", "0"),
        ("--seed", "-1"),
        ("--progress", "loud"),
        ("--scores", "csv"),
        ("--anndata",),
        ("--report",),
        ("--nonsense",),
    ],
    ids=" ".join,
)
def test_wrong_option_values_are_usage_errors(line: tuple[str, ...], file: Path) -> None:
    result = invoke("fit", file, *line)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""


def test_standard_input_needs_a_format_and_cannot_be_resumed() -> None:
    assert invoke("fit", "-").exit_code == 2
    assert invoke("fit", "-", "--format", "csv", "--checkpoint", "kept").exit_code == 2


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x93NUMPY\x01\x00"])
def test_data_that_cannot_be_used_are_one_line_and_code_1(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "X.npy").write_bytes(content)
    for line in (("fit",), ("info",), ("estimate",), ("convert",)):
        result = invoke(*line, tmp_path / "X.npy", *[tmp_path / "X.h5ad"] * (line == ("convert",)))
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {tmp_path / 'X.npy'}")
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


def test_nan_is_an_error_of_the_data(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.full((5, 3), np.nan))
    result = invoke("fit", tmp_path / "X.npy", "-k", 1)
    assert result.exit_code == 1
    assert "NaN" in result.stderr


def test_the_place_of_an_error_is_shown_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "X.npy").write_bytes(b"nonsense")
    assert "Traceback" not in invoke("fit", tmp_path / "X.npy", "-v").stderr
    assert "Traceback" in invoke("fit", tmp_path / "X.npy", "-vv").stderr


def test_outputs_that_exist_are_refused_before_any_work(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = file.parent / "out"
    out.mkdir()
    (out / "variances.csv").write_text("mine")
    (file.parent / "broken.npy").write_bytes(b"")  # would be an error if it were opened
    result = invoke("fit", file.parent / "broken.npy", "-o", out)
    assert result.exit_code == 1
    assert "variances.csv exists. Use --force" in result.stderr
    assert contents(out) == {"variances.csv": b"mine"}
    assert invoke("fit", file, "-k", 2, "-o", out, "--no-report", "--force").exit_code == 0
    assert b"mine" not in contents(out)["variances.csv"]


def test_an_error_while_writing_leaves_what_was_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = file.parent / "out"
    line = ("fit", file, "-k", 2, "-o", out, "--no-report", "--scores", "csv")
    assert invoke(*line).exit_code == 0
    before = contents(out)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shiftsvd.commands.writing.variance_table", full)
    result = invoke(*line, "--force", "--shift", "none")
    assert result.exit_code == 1
    assert result.stderr == f"Error: {out} cannot be written: No space left on device. {STILL}.\n"
    assert contents(out) == before
    result = invoke(*line[:4], "-o", file.parent / "new" / "deep")
    assert result.exit_code == 1
    assert not (file.parent / "new").exists()


def test_a_full_disk_under_a_report_is_named_by_its_place(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    out = file.parent / "out"
    assert invoke("fit", file, "-k", 2, "-o", out, "--no-report").exit_code == 0

    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = invoke("report", out / "model.safetensors", "-o", file.parent / "page.html")
    assert result.exit_code == 1
    assert f"Error: {file.parent / 'page.html'} cannot be written: No space left on device. {STILL}." in result.stderr


STILL = "Existing files are unchanged"


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("npy", "parquet", "h5ad"))]
)
def test_a_full_disk_is_a_clear_error_and_leaves_nothing_half_written(kind: str, file: Path) -> None:
    pytest.importorskip({"parquet": "pyarrow", "h5ad": "anndata"}.get(kind, "numpy"))
    out = file.parent / "out"
    scores = ["--scores", "none", "--anndata"] if kind == "h5ad" else ["--scores", kind]
    line = shlex.join([*SHIFTSVD, "fit", str(file), "-k", "15", "-o", str(out), "--no-report", *scores])
    run = subprocess.run(["bash", "-c", f"ulimit -f 20; exec {line}"], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    assert run.stderr == f"Error: {out} cannot be written: File too large. {STILL}.\n"
    assert not out.exists()


def test_what_could_not_be_written_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((12_000, 100)))
    line = ("fit", tmp_path / "X.npy", "-k", 3, "--memory", "16M", "--solver", "lanczos", "--no-report", "--json")
    plain = json.loads(invoke(*line).stdout)
    line = (*line, "--checkpoint", tmp_path / "kept", "-o", tmp_path / "out", "--progress", "json")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("shiftsvd.commands.writing.variance_table", full)
        assert invoke(*line).exit_code == 1
    assert len(list((tmp_path / "kept").iterdir())) >= plain["n_passes"]
    other = invoke(*line, "--seed", 1)
    assert other.exit_code == 1
    assert "another run" in other.stderr
    again = invoke(*line)
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["singular_values"] == plain["singular_values"]
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
@pytest.mark.parametrize("passes", [2, pytest.param(5, marks=pytest.mark.long)])
def test_a_killed_command_goes_on_where_it_was_and_gives_the_same_bits(passes: int, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((12_000, 100)))
    line = ["fit", str(tmp_path / "X.npy"), "-k", "3", "--memory", "16M", "--solver", "lanczos", "--no-report"]
    line += ["--scores", "npy", "--progress", "json"]
    assert invoke(*line, "-o", tmp_path / "unbroken").exit_code == 0
    line += ["--checkpoint", str(tmp_path / "kept"), "-o", str(tmp_path / "out")]
    with subprocess.Popen([*SHIFTSVD, *line], stderr=subprocess.PIPE, text=True) as run:
        for event in run.stderr:
            if json.loads(event)["done"] > passes:
                run.kill()
                break
    assert run.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "kept").glob("read-*.npz"))) >= passes - 1
    assert not list((tmp_path / "out").glob("[!.]*"))
    again = invoke(*line)
    assert again.exit_code == 0, again.stderr
    assert not list((tmp_path / "out").glob(".*")), "what the killed run left is removed"
    for name in ("scores.npy", "components.csv", "variances.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_says_so_and_leaves_nothing(number: int, code: int, tmp_path: Path) -> None:
    file, out = tmp_path / "X.csv", tmp_path / "out"
    os.mkfifo(file)  # whoever opens it waits
    line = [*SHIFTSVD, "fit", str(file), "-k", "1", "-o", str(out)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as run:
        for _ in range(600):
            if _waits_for(run.pid, file):
                break
            time.sleep(0.1)
        run.send_signal(number)
        _, told = run.communicate(timeout=60)
    assert run.returncode == code, told
    assert "Traceback" not in told
    assert not out.exists()


@pytest.mark.long
def test_a_command_that_is_interrupted_in_a_pass_ends_with_130_and_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((12_000, 100)))
    line = ["fit", str(tmp_path / "X.npy"), "-k", "3", "--memory", "16M", "--solver", "lanczos", "--no-report"]
    line += ["--progress", "json", "--threads", "3", "-o", str(tmp_path / "out")]
    with subprocess.Popen([*SHIFTSVD, *line], stderr=subprocess.PIPE, text=True) as run:
        for event in run.stderr:
            if json.loads(event)["done"] > 1.2:
                run.send_signal(signal.SIGINT)
                break
        told = [text for text in run.stderr.read().splitlines() if not text.startswith("{")]
    assert run.returncode == 130
    assert told == ["Interrupted. Each output file is either complete or was not written."]
    assert not list((tmp_path / "out").glob("*"))


NO_THREADS = """
import _thread, sys, threading
def refused(*_):
    raise RuntimeError("can't start new thread")
threading.Thread.start = _thread.start_new_thread = refused
from shiftsvd.cli import main
for progress in ("never", "always"):
    main([*sys.argv[1:], "--progress", progress], standalone_mode=False)
"""


@pytest.mark.long
def test_a_command_goes_on_where_no_thread_starts(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((8000, 30)) * 0.8 ** np.arange(30))
    line = ["fit", str(tmp_path / "X.npy"), "-k", "2", "--memory", "40M", "--json"]
    run = subprocess.run([sys.executable, "-c", NO_THREADS, *line], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    told, end = json.JSONDecoder().raw_decode(run.stdout)
    values = json.loads(invoke(*line).stdout)["singular_values"]
    assert told["singular_values"] == json.loads(run.stdout[end:])["singular_values"] == values


def test_where_threads_are_needed_and_none_starts_a_line_says_so(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("shiftsvd.commands.fitting.fitted", refused)
    run = invoke("fit", file, "-k", 2)
    assert run.exit_code == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith("Error: The system cannot start another thread (can't start new thread). End other programs")


def _waits_for(process: int, fifo: Path) -> bool:
    """Whether the reader of a pipe is there: only then can it be opened for writing without waiting."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.long
def test_a_reader_that_has_enough_is_no_error_message(file: Path) -> None:
    invoke("fit", file, "-k", 3, "-o", file.parent / "out", "--no-report")
    np.save(file.parent / "new.npy", np.ones((10_000, 20)))
    command = shlex.join([*SHIFTSVD, "transform", "out/model.safetensors", "new.npy", "-o", "-"]) + " | head -2"
    run = subprocess.run(command, shell=True, cwd=file.parent, capture_output=True, text=True)
    assert run.stdout.splitlines()[0] == "PC1,PC2,PC3"
    assert run.stderr == ""


def test_outputs_get_their_names_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "1", tmp_path / "a" / "b" / "2"
    with Outputs([first, second], force=False) as outputs:
        outputs.part(first).write_text("one")
        outputs.part(second).write_text("two")
        assert not first.exists()
    assert (first.read_text(), second.read_text()) == ("one", "two")

    def broken() -> None:
        with Outputs([first, second], force=True) as outputs:
            outputs.part(first).write_text("three")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert (first.read_text(), second.read_text()) == ("one", "two")
    assert len(list(first.parent.iterdir())) == 2


def test_outputs_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is a folder"):
        refuse([tmp_path], force=True)
    with pytest.raises(OSError, match="not a writable folder"):
        refuse([tmp_path / "file" / "x"], force=True)


def test_a_folder_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rename = tmp_path / "X.zarr", Path.rename
    folder.mkdir()
    (folder / "old").write_text("data")

    def refusing(part: Path, target: Path) -> Path:
        if target == folder and (part / "new").exists():
            raise PermissionError("refused")
        return rename(part, target)

    def write() -> None:
        with Outputs([folder], force=True, recognised=lambda path: True) as outputs:
            outputs.part(folder).mkdir()
            (outputs.part(folder) / "new").write_text("data")

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(PermissionError, match="refused"):
        write()
    assert [file.name for file in folder.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["X.zarr"]


def test_a_csv_of_many_rows_is_written_in_parts() -> None:
    block, names = np.arange(600_000.0).reshape(-1, 3), np.array([f"r{i}" for i in range(200_000)])
    table, file = Table(["a", "b", "c"], len(block), block.dtype, names, "row"), io.BytesIO()
    tracemalloc.start()
    with csv_table(file, table) as write:
        write(0, block)
        added = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    lines = file.getvalue().decode().splitlines()
    assert lines[0] == "row,a,b,c"
    assert lines[1:] == [f"r{i},{3.0 * i!r},{3.0 * i + 1!r},{3.0 * i + 2!r}" for i in range(200_000)]
    assert added < 3 * len(file.getvalue())
