"""The keeper: the command keeps --memory whatever a file holds, and what it was ended in the middle of goes on."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shiftsvd.cli import main
from shiftsvd.runs import memory
from shiftsvd.runs.memory import slack_of
from tests.support.bombs import BOMBS, Words
from tests.support.commands import done, invoke
from tests.support.meter import Measured, measured
from tests.support.places import readable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the keeper reads /proc")
SHIFTSVD = [sys.executable, "-c", "from shiftsvd.cli import main; main()"]
LIMIT = 100_000_000
BURST = 100_000_000  # bytes that threads may touch between two looks
SOME = ["HDF5: shuffle, deflate, fletcher32"]
REST = [
    "VCF: one allele",
    "Zarr: metadata that contradict",
    "BGEN: zlib",
    "h5ad: names that share a text",
    "NetCDF: deflate",
    "HDF5: deflate twice",
    "HDF5: zstd",
    "h5ad: names, deflate twice",
    "10x .h5: barcodes, zstd",
    "Zarr 2: zlib as a filter, and zstd",
    "Arrow: names that share a text",
]


def kept(words: Words, *more: object) -> Measured:
    return measured([*SHIFTSVD, *words, "--memory", LIMIT, *more], stop=4 * 10**9)


def python(code: str, *words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("names", [SOME, pytest.param(REST, marks=pytest.mark.long)], ids=["some", "rest"])
def test_the_command_keeps_its_memory_whatever_a_file_holds(names: list[str], tmp_path: Path) -> None:
    commands, names = [], list(filter(readable, names))
    for number, name in enumerate(names):
        (tmp_path / str(number)).mkdir()
        commands.append(BOMBS[name](tmp_path / str(number)))
    with ThreadPoolExecutor(2) as two:
        found = dict(zip(names, two.map(kept, commands), strict=True))
    for name, end in found.items():
        assert end.code == 1, (name, end)
        assert len(end.err.splitlines()) == 1, (name, end.err)
        assert end.err.startswith("Error: "), (name, end.err)
        assert end.peak < LIMIT + slack_of(LIMIT) + BURST, (name, end.peak)
    assert sum("a margin of 260 MB" in end.err for end in found.values()) > len(names) // 3


@pytest.mark.long
def test_an_honest_file_larger_than_the_limit_is_no_alarm(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (100_000, 100))
    for lo in range(0, len(X), 25_000):
        X[lo : lo + 25_000] = rng.standard_normal((25_000, 4)) @ rng.standard_normal((4, 100))
    found = measured([*SHIFTSVD, "fit", tmp_path / "X.npy", "-k", "2", "--memory", "30M"])
    assert (found.code, found.err) == (0, "")
    assert found.peak < 30e6 + slack_of(30_000_000)


def test_only_a_command_of_its_own_process_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((30, 5)))
    begun: list[object] = []
    monkeypatch.setattr(memory, "keep_memory", lambda *given: begun.append(given))
    assert invoke("info", tmp_path / "X.npy", "--memory", "1G").exit_code == 0
    assert not begun
    monkeypatch.setattr(sys, "argv", ["shiftsvd", "info", str(tmp_path / "X.npy"), "--memory", "1G"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert begun == [("1G", str(tmp_path / "X.npy"))]


ALLOCATES = """
import sys, time
from shiftsvd.runs.memory import keep_memory, temporary_folder
with temporary_folder("kept-", parent=sys.argv[1]) as folder:
    (folder / "file").write_text("text")
    keep_memory("10M", "data.csv")
    held = []
    while True:
        held.append(bytearray(1_000_000))
        time.sleep(0.0005)
"""


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_a_process_ends_with_one_line_and_no_temporary_folder(kernels: str, tmp_path: Path) -> None:
    found = python(ALLOCATES, tmp_path, SHIFTSVD_KERNELS=kernels)
    assert found.returncode == 1
    assert found.stderr == (
        "Error: reading data.csv took more memory than the limit of 10 MB plus a margin of 251 MB. "
        "If the file is not damaged, use a larger --memory.\n"
    )
    assert not list(tmp_path.iterdir())


HOLDS_THE_GIL = """
import ctypes
from shiftsvd.runs.memory import keep_memory
library = ctypes.PyDLL(None)
library.valloc.restype = ctypes.c_void_p
memory = ctypes.c_void_p(library.valloc(2_000_000_000))
keep_memory("10M", "data.csv")
library.memset(memory, 1, 2_000_000_000)
"""


def test_the_compiled_keeper_waits_for_no_lock_of_python() -> None:
    pytest.importorskip("shiftsvd.kernels._compiled")
    found = python(HOLDS_THE_GIL)
    assert (found.returncode, found.stderr.count("\n")) == (1, 1), found


def test_the_default_limit_does_not_grow_once_a_command_works_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_most_by_default", [2**63 - 1])
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    assert memory.limit_of(None) == 500
    memory.limit_by_default(500)
    monkeypatch.setattr(memory, "available_memory", lambda: 8000)
    assert memory.limit_of(None) == 500
    assert memory.limit_of("2K") == 2000


ENDED = """
from shiftsvd.cli import main
from shiftsvd.runs.checkpoints import _Journal as Kept
kept = Kept.keep
def keep(self, what, record):
    kept(self, what, record)
    if len(list(self.home.glob("read-*.npz"))) == 2:
        bytearray(2_000_000_000)
Kept.keep = keep
main()
"""


@pytest.mark.long
def test_an_ended_fit_leaves_no_output_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.random.default_rng(0).standard_normal((100_000, 60)))
    words = ["fit", "X.npy", "-k", "3", "--solver", "lanczos", "--memory", "30M", "--checkpoint", "reads", "-o", "out"]
    ended = python(ENDED, *words)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert ended.stderr.startswith("Error: reading X.npy took more memory")
    assert not Path("out/result.json").exists()
    assert len(list(Path("reads").glob("read-*.npz"))) == 2
    done(*words)
    assert not Path("reads").exists()
    done(*words[:-3], "others", "-o", "whole")
    out, whole = ({file.name: file for file in Path(name).iterdir()} for name in ("out", "whole"))
    assert out.keys() == whole.keys()
    assert out["model.safetensors"].read_bytes() == whole["model.safetensors"].read_bytes()
