"""A run that is broken off in any of its reads goes on where it stopped, and ends with the same bits."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.runs import checkpoints
from shiftsvd.runs.outputs import stage_of
from tests.support.containers import Held
from tests.support.sampling import in_turn
from tests.support.sparse_rows import sparse_rows

ROWS = 1000  # three blocks


class Dying(Held):
    """Is interrupted at a given read of a block."""

    def __init__(self, X: Any, last: int) -> None:
        super().__init__(X, ROWS)
        self.last = last

    def read(self, lo: int, hi: int) -> Any:
        if self.n_reads >= self.last:
            raise KeyboardInterrupt
        return super().read(lo, hi)


def settings(solver: str) -> dict[str, Any]:
    return {"n_components": 6, "random_state": 3, "solver": solver}


@pytest.mark.parametrize("solver", ["lanczos", "gram", "randomized", "exact"])
def test_killed_in_each_pass_in_turn_and_resumed_gives_the_same_bits(solver: str, tmp_path: Path) -> None:
    X = sparse_rows()
    whole = Held(X, ROWS)
    want = ss.PCA(**settings(solver)).fit(DiskRows(whole, n_threads=1))
    for last in range(1, whole.n_reads, 9 if solver == "randomized" else 3):
        folder = tmp_path / str(last)
        dying, again = Dying(X, last), Held(X, ROWS)
        with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
            ss.PCA(**settings(solver)).fit(DiskRows(dying, n_threads=1))
        assert len(list(folder.glob("read-*.npz"))) == last // 3 or solver == "randomized"
        with ss.checkpoint(folder):
            found = ss.PCA(**settings(solver)).fit(DiskRows(again, n_threads=1))
        # What was read in whole passes is not read again.
        assert again.n_reads <= whole.n_reads - 3 * (last // 3) or solver == "randomized"
        for name in ("components_", "singular_values_", "explained_variance_ratio_", "mean_"):
            np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
        assert found.info_.n_passes == want.info_.n_passes
        assert not folder.exists()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.filterwarnings("ignore:.*constant and w")
def test_exact_on_a_file_is_not_read_again_where_it_was_read(wide: bool, scale: str | None, tmp_path: Path) -> None:
    X = sparse_rows(40, 120) if wide else sparse_rows()
    how: dict[str, Any] = {"shift": "mean", "scale": scale, "solver": "exact"}
    source = lambda: Held(X, 20 if wide else ROWS)  # noqa: E731
    blocks = len(source().edges(0)) - 1
    want = ss.svd(DiskRows(source()), 4, **how)
    folder = tmp_path / "broken"

    def killed() -> None:
        with ss.checkpoint(folder):
            ss.svd(DiskRows(source()), 4, **how)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    again = source()
    with ss.checkpoint(folder):
        found = ss.svd(DiskRows(again), 4, **how)
        assert again.n_reads == 0 or again.n_reads == blocks, "at most the long factor, which is not kept"
    for part, whole in zip(found, want, strict=True):
        np.testing.assert_array_equal(part, whole)


def broken_off(folder: Path, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
        ss.PCA(**settings("lanczos") | changes).fit(DiskRows(Dying(sparse_rows(), 8), n_threads=1))


@pytest.mark.parametrize("changes", [{"random_state": 4}, {"solver": "gram"}, {"scale": True}])
def test_checkpoint_of_another_run_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    broken_off(folder)
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(folder):
        ss.PCA(**settings("lanczos") | changes).fit(DiskRows(Held(sparse_rows(), ROWS)))
    assert list(folder.glob("read-*.npz")), "what was there is kept"


def test_checkpoint_of_another_name_or_version_is_refused(tmp_path: Path) -> None:
    broken_off(tmp_path / "run")
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path / "run", "other settings"):
        pass
    (tmp_path / "run" / "run.json").write_text('{"shiftsvd checkpoint": 99, "run": ""}')
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path / "run"):
        pass


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"), ss.checkpoint(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob("read-*.npz"))


def flipped(content: bytes, at: float) -> bytes:
    place = int(at * (len(content) - 1))
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGE: dict[str, Any] = {
    "empty": lambda old, others: b"",
    "a start": lambda old, others: b"PK",
    "truncated": lambda old, others: old[:-1],
    "half": lambda old, others: old[: len(old) // 2],
    "longer": lambda old, others: old + b"\0",
    "zeros": lambda old, others: bytes(len(old)),
    "NaN": lambda old, others: old.replace(old[-900:-892], np.array([np.nan]).tobytes()),
    "another place": lambda old, others: others[-1],
    "another version": lambda old, others: blake2b(old[32:], digest_size=32, person=b"1 1").digest() + old[32:],
    "no checksum": lambda old, others: old[32:],
} | {f"flipped at {at}": lambda old, others, at=at: flipped(old, at) for at in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)}


@pytest.mark.parametrize(("damage", "which"), in_turn(DAMAGE, [0, 1], 1))
def test_a_damaged_record_is_named_and_its_read_is_made_again(damage: str, which: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    broken_off(folder)
    others = [file.read_bytes() for file in records(folder)]
    assert len(others) == 2
    broken = DAMAGE[damage](others[which], others if which == 0 else others[::-1])
    assert broken != others[which]
    records(folder)[which].write_bytes(broken)
    with pytest.warns(UserWarning, match=f"read-0000{which}.npz is damaged .* repeated"), ss.checkpoint(folder):
        found = ss.PCA(**settings("lanczos")).fit(DiskRows(Held(sparse_rows(), ROWS), n_threads=1))
    np.testing.assert_array_equal(found.components_, unbroken().components_)
    assert not folder.exists()


@cache
def unbroken() -> ss.PCA:
    return ss.PCA(**settings("lanczos")).fit(DiskRows(Held(sparse_rows(), ROWS), n_threads=1))


@pytest.mark.parametrize("kind", ["a link to a file", "a link to nothing", "a folder", "not to be read"])
def test_no_link_or_folder_in_the_place_of_a_record_is_followed(kind: str, tmp_path: Path) -> None:
    folder, mine = tmp_path / "run", tmp_path / "mine.txt"
    broken_off(folder)
    mine.write_text("mine")
    second, part = records(folder)[1], folder / ".read-00002.npz.shiftsvd-0123456789abcdef"
    if kind == "a folder":
        second.unlink()
        second.mkdir()
    elif kind == "not to be read":
        second.chmod(0)
    else:
        for place in (second, part):
            place.unlink(missing_ok=True)
            place.symlink_to(mine if kind == "a link to a file" else tmp_path / "nowhere")
    with catch_warnings():
        simplefilter("ignore")
        with suppress(OSError), ss.checkpoint(folder):
            found = ss.PCA(**settings("lanczos")).fit(DiskRows(Held(sparse_rows(), ROWS), n_threads=1))
            np.testing.assert_array_equal(found.components_, unbroken().components_)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"shiftsvd checkpoint": 2}', "\x00"])
def test_a_damaged_head_is_refused_in_a_line(content: str, tmp_path: Path) -> None:
    broken_off(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path / "run"):
        pass


def test_a_second_process_and_a_second_thread_are_refused_and_told_who_works(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys, shiftsvd as ss; ss.checkpoint(sys.argv[1]).__enter__()",
        str(tmp_path),
    ]
    with ss.checkpoint(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True)
        assert f"in use by process {os.getpid()} on " in done.stderr
        with pytest.raises(BlockingIOError, match="in use by"), ss.checkpoint(tmp_path):
            pass
        with ThreadPoolExecutor(1) as pool, pytest.raises(BlockingIOError, match="in use by"):
            pool.submit(ss.checkpoint(tmp_path).__enter__).result()
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_a_killed_process_leaves_the_folder_free(tmp_path: Path) -> None:
    script = "import os, sys, shiftsvd as ss; ss.checkpoint(sys.argv[1]).__enter__(); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)]).returncode == -9
    stage_of(tmp_path / "read-00007.npz").write_bytes(b"broken off")
    with ss.checkpoint(tmp_path):
        assert not list(tmp_path.glob(".read*"))


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_where_the_file_system_has_no_locks_a_file_stands_for_one(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refused(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    folder = tmp_path / "run"
    with ss.checkpoint(folder):
        with pytest.raises(BlockingIOError, match="in use by"), ss.checkpoint(folder):
            pass
        assert list(folder.glob(".shiftsvd-lock*"))
    assert not folder.exists()


def test_a_read_inside_of_one_that_is_kept_is_not_kept_itself(tmp_path: Path) -> None:
    with ss.checkpoint(tmp_path / "run"):
        checkpoints.once("outer", (), lambda: checkpoints.once("inner", (), lambda: {"x": np.ones(1)}))
        assert len(list((tmp_path / "run").glob("read-*.npz"))) == 1


def test_a_full_disk_is_named_as_that_of_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fit() -> ss.PCA:
        with ss.checkpoint(folder):
            return ss.PCA(**settings("lanczos")).fit(DiskRows(Held(sparse_rows(), ROWS), n_threads=1))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.outputs, "sync", full)
        with pytest.raises(OSError, match="run has no room for the checkpoint: No space"):
            fit()
    assert [file.name for file in folder.glob(".*")] == []
    np.testing.assert_array_equal(fit().components_, unbroken().components_)


# ---- transformations

RAW = sparse_rows()
HOW = {
    "pearson": ss.PearsonResiduals(10),
    "composed": [ss.LogNormalize(), ss.CLR()],
    "two reads": ss.TfIdf(),
    "ranks": ss.Ranks(),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", HOW)
def test_a_broken_run_of_a_transformed_file_goes_on_with_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = Held(RAW, ROWS)
    how = settings("lanczos") | {"preprocess": HOW[name]}
    want = ss.PCA(**how).fit(DiskRows(whole, n_threads=1))
    for last in (1, 4, 7, whole.n_reads - 4):
        folder = tmp_path / str(last)
        with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
            ss.PCA(**how).fit(DiskRows(Dying(RAW, last), n_threads=1))
        with ss.checkpoint(folder):
            found = ss.PCA(**how).fit(DiskRows(again := Held(RAW, ROWS), n_threads=1))
        assert again.n_reads <= whole.n_reads - last // 3 * 3 + 3 * (len(want.preprocess_) - 1)
        for attribute in ("components_", "singular_values_", "mean_"):
            np.testing.assert_array_equal(getattr(found, attribute), getattr(want, attribute))


@pytest.mark.parametrize(
    "other", [None, ss.PearsonResiduals(11), ss.PearsonResiduals(10, clip=3), ss.DevianceResiduals("nb", 10), ss.Sqrt()]
)
@pytest.mark.parametrize("last", [1, 3, 5])
def test_reads_of_another_transformation_are_refused(other: Any, last: int, tmp_path: Path) -> None:
    first = settings("lanczos") | {"preprocess": ss.PearsonResiduals(10)}
    with pytest.raises(KeyboardInterrupt), ss.checkpoint(tmp_path):
        ss.PCA(**first).fit(DiskRows(Dying(RAW, 3 * last), n_threads=1))
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path):
        ss.PCA(**settings("lanczos") | {"preprocess": other}).fit(DiskRows(Held(RAW, ROWS), n_threads=1))


def test_a_fit_that_fails_before_its_first_read_leaves_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no read"), ss.checkpoint(tmp_path / "run"):
        raise ValueError("no read")
    assert not (tmp_path / "run").exists()
