"""Two who write the same files or work in the same folder: one does, the other is refused in a line; never a mix."""

import errno
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.runs import outputs as locks
from shiftsvd.runs.outputs import MARK, Outputs, held, lock_of, stage_of, this_process, write_all

SHIFTSVD = [sys.executable, "-c", "from shiftsvd.cli import main; main()"]


def test_a_second_writer_of_a_file_is_refused_and_the_first_one_ends(tmp_path: Path) -> None:
    file = tmp_path / "made" / "model.bin"
    with Outputs([file], force=False) as first:
        with pytest.raises(BlockingIOError, match=f"made is in use by process {os.getpid()} on "):
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
    begun = False
    with pytest.raises(FileExistsError, match="force=True"), late:
        begun = True
    assert not begun
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
    file, folder, other = (tmp_path / name for name in ("model.bin", "out", "other.bin"))
    mine = {stage_of(other).name, ".model.bin.mine.part", f"{stage_of(file).name}0", f".model.bin.{MARK}-0123abcd"}
    for name in (stage_of(file).name, stage_of(folder).name, *mine):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_text("left")
    left_by(lock_of(file))
    write_all({file: b"new"})
    write_all({folder / "model.bin": b"new"})
    assert set(os.listdir(tmp_path)) == mine | {"model.bin", "out"}


@pytest.mark.long
@pytest.mark.parametrize("shared", ["-o", "--checkpoint"])
def test_of_two_commands_at_once_one_ends_and_the_other_is_refused_in_a_line(shared: str, tmp_path: Path) -> None:
    file = tmp_path / "X.npy"
    np.save(file, np.random.default_rng(0).standard_normal((8000, 60)) * 0.7 ** np.arange(60))
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
    assert all("is in use by" in text or "exists. Use --force" in text for text in lost), told
    assert not any("Traceback" in text for text in told)
    assert shared == "--checkpoint" or codes == [0, 1], "without --force nothing is replaced"


# ---- where the file system has no locks

NUMBERS = [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS]


@pytest.fixture(params=NUMBERS, ids=lambda number: errno.errorcode[number])
def without_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose locks fail with this number, as some that are shared by machines do."""
    fcntl = pytest.importorskip("fcntl")

    def refused(*_: Any) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refused)


def test_a_file_stands_for_a_lock_that_there_is_not(without_locks: None, tmp_path: Path) -> None:
    lock, place = tmp_path / ".x.lock", tmp_path / "x"
    with held(lock, place):
        with pytest.raises(BlockingIOError, match=f"x is in use by process {os.getpid()} on .*delete .*lock-file"):
            held(lock, place).__enter__()
        assert os.listdir(tmp_path) == [".x.lock-file"]
    assert os.listdir(tmp_path) == []


def left_by(file: Path, **changes: Any) -> None:
    """The file of a lock as a process leaves it that is killed."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    file.write_text(json.dumps(this_process() | {"pid": done.pid} | changes))


def test_what_a_killed_process_of_this_machine_left_is_taken(without_locks: None, tmp_path: Path) -> None:
    left_by(tmp_path / ".x.lock-file")
    with held(tmp_path / ".x.lock", tmp_path / "x"):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "changes",
    [{"host": "elsewhere"}, {"boot": "another"}, {"processes": "others"}, {"pid": 1}, {"pid": -1}, {"pid": "x"}],
)
def test_of_others_nobody_can_know_so_they_are_named_with_the_remedy(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_of_system", no_locks)
    left_by(tmp_path / ".x.lock-file", **changes)
    with pytest.raises(BlockingIOError, match=r"x is in use by .*. If that process has ended, delete .*\.x\.lock-file"):
        held(tmp_path / ".x.lock", tmp_path / "x").__enter__()
    (tmp_path / ".x.lock-file").unlink()
    with held(tmp_path / ".x.lock", tmp_path / "x"):
        pass


def no_locks(*_: Any) -> Any:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(
    "kind", ["empty", "no JSON", "a list", "a link to nothing", "a pipe", "a folder", "being removed"]
)
def test_whatever_is_in_the_place_of_a_lock_is_refused_in_a_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_of_system", no_locks)
    file = tmp_path / ".x.lock-file"
    if kind == "a link to nothing":
        file.symlink_to(tmp_path / "nowhere")
    elif kind == "a pipe":
        os.mkfifo(file)
    elif kind == "a folder":
        file.mkdir()
    elif kind == "being removed":
        left_by(file)
        (tmp_path / ".x.lock-file-removing").touch()
    else:
        file.write_text({"empty": "", "no JSON": "{", "a list": "[1]"}[kind])
    with pytest.raises(BlockingIOError, match="x is in use by"):
        held(tmp_path / ".x.lock", tmp_path / "x").__enter__()
    assert not (tmp_path / "nowhere").exists()


def test_many_threads_that_find_a_lock_left_behind_hold_it_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_of_system", no_locks)
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(30):
            with suppress(BlockingIOError), held(tmp_path / ".x.lock", tmp_path / "x"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    for _ in range(5):
        left_by(tmp_path / ".x.lock-file")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(most) == {1}
    assert os.listdir(tmp_path) == []


# ---- new folders


def test_a_new_folder_appears_with_all_of_its_files_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "out"
    with Outputs([folder / "a", folder / "b"], force=False) as outputs:
        outputs.part(folder / "a").write_bytes(b"a")
        assert not folder.exists()
        outputs.part(folder / "b").write_bytes(b"b")
        assert not folder.exists()
    assert sorted(os.listdir(folder)) == ["a", "b"]
    assert os.listdir(tmp_path / "made") == ["out"]
    assert folder.stat().st_mode == (tmp_path / "made").stat().st_mode


def test_the_lock_that_a_run_left_beside_its_folder_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    lock_of(tmp_path / "out").touch()
    stage_of(tmp_path / "out").mkdir()
    write_all({tmp_path / "out" / "a": b"a"})
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_files_of_a_folder_that_is_there_are_replaced_in_their_order_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    paths = [tmp_path / name for name in ("model", "scores", "result.json")]
    write_all(dict.fromkeys(paths, b"old"))
    seen: list[str] = []
    replace = Path.replace

    def watched(part: Path, to: Path) -> Path:
        seen.append(to.name)
        return replace(part, to)

    monkeypatch.setattr(Path, "replace", watched)
    write_all(dict.fromkeys(paths, b"new"))
    assert seen == ["model", "scores", "result.json"]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_parts_have_names_that_nobody_knows_before_and_follow_no_link(tmp_path: Path) -> None:
    file, mine = tmp_path / "model.bin", tmp_path / "mine.txt"
    mine.write_text("mine")
    with Outputs([file], force=False) as first:
        name = first.part(file).parent.name
        first.part(file).write_bytes(b"")
    with Outputs([file], force=True) as second:
        assert second.part(file).parent.name != name
        second.part(file).write_bytes(b"second")
    file.unlink()
    file.symlink_to(mine)
    write_all({file: b"third"})
    assert (mine.read_text(), file.read_bytes(), file.is_symlink()) == ("mine", b"third", False)
