"""Two who write the same files or work in the same folder: one does, the other is refused in a line; never a mix."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from shiftsvd.runs.outputs import Outputs, write_all

SHIFTSVD = [sys.executable, "-c", "from shiftsvd.cli import main; main()"]


def test_a_second_writer_of_a_file_is_refused_and_the_first_one_ends(tmp_path: Path) -> None:
    file = tmp_path / "made" / "model.bin"
    with Outputs([file], force=False) as first:
        with pytest.raises(BlockingIOError, match=f"model.bin is in use by process {os.getpid()} on "):
            write_all({file: b"second"})
        first.part(file).write_bytes(b"first")
    assert file.read_bytes() == b"first"
    assert os.listdir(file.parent) == ["model.bin"]


def test_of_several_files_that_two_share_one_is_enough_and_nothing_is_left(tmp_path: Path) -> None:
    shared = tmp_path / "b"
    with Outputs([shared], force=True) as first:
        with pytest.raises(BlockingIOError):
            write_all({tmp_path / "new" / "a": b"", shared: b"second", tmp_path / "c": b""})
        first.part(shared).write_bytes(b"first")
    assert os.listdir(tmp_path) == ["b"]
    write_all({tmp_path / "a": b"later", shared: b"later"})
    assert shared.read_bytes() == b"later"


def test_who_comes_when_the_first_has_just_ended_does_not_replace_its_file(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    late = Outputs([file], force=False)  # finds nothing there yet
    write_all({file: b"first"}, force=False)
    with pytest.raises(FileExistsError, match="--force"), late:
        pass
    assert file.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["model.bin"]


def test_many_threads_write_one_file_and_every_one_writes_it_whole_or_is_refused(tmp_path: Path) -> None:
    file, outcomes = tmp_path / "model.bin", []

    def write(number: int) -> None:
        for _ in range(20):
            try:
                write_all({file: bytes([number]) * 10_000, tmp_path / "other": bytes([number])})
                outcomes.append("written")
            except BlockingIOError:
                outcomes.append("refused")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 80
    assert "written" in outcomes
    content = file.read_bytes()
    assert len(content) == 10_000
    assert set(content) == set((tmp_path / "other").read_bytes()), "both files are of one writer"
    assert sorted(os.listdir(tmp_path)) == ["model.bin", "other"]


def test_what_a_killed_writer_left_is_removed_by_the_next_and_other_files_stay(tmp_path: Path) -> None:
    for name in (".123.part.model.bin", ".model.bin.lock", ".123.part.other.bin", "mine.txt"):
        (tmp_path / name).write_text("left")
    write_all({tmp_path / "model.bin": b"new"})
    assert sorted(os.listdir(tmp_path)) == [".123.part.other.bin", "mine.txt", "model.bin"]


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["-o", "--checkpoint"])
def test_of_two_commands_at_once_one_ends_and_the_other_is_refused_in_a_line(shared: str, tmp_path: Path) -> None:
    file = tmp_path / "X.npy"
    np.save(file, np.random.default_rng(0).standard_normal((20_000, 100)))
    runs = []
    for name in ("a", "b"):
        folders = {"-o": tmp_path / name, "--checkpoint": tmp_path / f"kept-{name}"}
        folders[shared] = tmp_path / "shared"
        line = [*SHIFTSVD, "fit", str(file), "-k", "3", "--memory", "80M", "--no-report", "--scores", "npy"]
        line += [str(word) for pair in folders.items() for word in pair]
        runs.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    told = [run.communicate()[1] for run in runs]
    codes = sorted(run.returncode for run in runs)
    assert codes in ([0, 1], [0, 0]), told
    lost = [text for run, text in zip(runs, told, strict=True) if run.returncode]
    assert all("is in use by process" in text or "exists; give --force" in text for text in lost), told
    assert not any("Traceback" in text for text in told)
    assert shared == "--checkpoint" or codes == [0, 1], "without --force nothing is replaced"
