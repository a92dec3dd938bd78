"""Files that lead to other files, pipes and devices: refused before they are followed, or read if they are trusted."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_equal

from shiftsvd.cli import main
from shiftsvd.io import convert, open_matrix
from shiftsvd.missing.opening import open_with_gaps
from tests.support import hostile_trees as trees
from tests.support.hostile_run import NUMBER, canary_at

h5py = pytest.importorskip("h5py")
LEADING = {
    "external link": trees.external_link,
    "soft link": trees.soft_link_through_external,
    "virtual": trees.virtual,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    canary_at(tmp_path)
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def made(folder: Path, case: str, seed: int = 3) -> Path:
    return LEADING[case](folder, np.random.default_rng(seed), folder.parent / "canary.bin")


@pytest.mark.parametrize("case", LEADING)
def test_files_that_lead_elsewhere_are_read_only_if_they_are_trusted(folder: Path, case: str) -> None:
    path = made(folder, case)
    key = "X" if case == "soft link" else None
    for opener in (open_matrix, open_with_gaps):
        with pytest.raises(
            ValueError, match=r"a\.h5:/.* is .*, which is not read for safety\. Use allow_external=True"
        ):
            opener(path, key=key)
    with pytest.raises(ValueError, match="allow_external=True"):
        convert(path, folder / "b.h5ad", key=key)
    with h5py.File(path) as file:
        inside = [name for name in ("X", "g/X", "g/h/X") if name in file]
    A, _ = open_matrix(path, key=inside[0], allow_external=True, stream=True)
    assert np.all(A.matmat(np.eye(A.shape[1])) == NUMBER)
    convert(path, folder / "b.h5ad", key=inside[0], allow_external=True)
    assert np.all(open_matrix(folder / "b.h5ad")[0].matmat(np.eye(5)) == NUMBER)


def test_the_command_follows_links_where_it_is_told(folder: Path) -> None:
    path = made(folder, "virtual")
    refused = CliRunner().invoke(main, ["info", str(path)])
    assert refused.exit_code == 1
    assert "Use --allow-external to read it" in refused.stderr
    assert CliRunner().invoke(main, ["info", str(path), "--allow-external"]).exit_code == 0
    assert CliRunner().invoke(main, ["info", str(path)]).exit_code == 1  # it was for one command


def test_links_within_a_file_are_followed_and_circles_end(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(4, 3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        groups = [file.create_group(f"g{i}") for i in range(30)]
        for group in groups:
            for i, other in enumerate(groups):
                group[f"h{i}"] = other
        groups[-1]["deep"] = X
        file["soft"] = h5py.SoftLink("/g29/deep")
    A, _ = open_matrix(tmp_path / "a.h5", key="soft")
    np.testing.assert_array_equal(A.matmat(np.eye(3)), X)
    with pytest.raises(ValueError, match="2 matrices: 'soft', 'g29/deep'"):
        open_matrix(tmp_path / "a.h5")


def test_chunks_that_are_links_out_of_their_folder_are_refused(folder: Path) -> None:
    path = trees.zarr_folder(folder, np.random.default_rng(0), compressors=None)
    chunk = trees.chunks_of(path)[0]
    chunk.symlink_to(chunk.rename(path / "kept"))
    assert open_matrix(path)[0].shape == (trees.M, trees.N)
    chunk.unlink()
    chunk.symlink_to((path / "kept").rename(folder / "kept"))
    with pytest.raises(ValueError, match="has a link out of its folder"):
        open_matrix(path)
    assert open_matrix(path, allow_external=True)[0].shape == (trees.M, trees.N)


def test_columns_in_circles_are_not_copied(folder: Path) -> None:
    path = trees.columns_in_circles(folder, np.random.default_rng(0), folder)
    with h5py.File(folder / "b.h5", "w") as file, pytest.raises(ValueError, match="must be a column"):
        pytest.importorskip("shiftsvd.scanpy.annotations").AnnotationSource([path]).copy_columns(file, "samples")


def test_a_pipe_is_read_as_the_file_that_comes_through_it(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(4, 3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        content = (tmp_path / "a.h5").read_bytes()
        with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            pipe.write(content[:100])
            time.sleep(0.1)  # as of a process that computes what it writes
            pipe.write(content[100:])

    for line in ("info", "fit -k 2 --json"):
        writer = threading.Thread(target=write)
        writer.start()
        found = CliRunner().invoke(main, [*line.split(), str(tmp_path / "pipe")])
        writer.join()
        assert (found.exit_code, str(tmp_path / "pipe") in found.stdout) == (0, True), found.stderr
    writer = threading.Thread(target=write)
    writer.start()
    A, _ = open_matrix(tmp_path / "pipe", stream=True)
    np.testing.assert_array_equal(A.matmat(np.eye(3)), X)
    writer.join()


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.io.spooling._PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="is a pipe, and no process has written to it"):
        open_matrix(tmp_path / "pipe.csv")
    found = CliRunner().invoke(main, ["info", str(tmp_path / "pipe.csv")])
    assert (found.exit_code, "no process has written to it" in found.stderr) == (1, True)


def test_devices_hold_no_matrix() -> None:
    with pytest.raises(ValueError, match="/dev/zero is a device"):
        open_matrix("/dev/zero", format="csv")


def test_chunks_that_are_packed_twice_are_read(folder: Path) -> None:
    pytest.importorskip("zarr")
    codecs = pytest.importorskip("numcodecs")
    how = {"zarr_format": 2, "filters": [codecs.Zstd()], "compressors": codecs.BZ2()}
    path = trees.zarr_folder(folder, np.random.default_rng(0), **how)
    A, _ = open_matrix(path)
    assert_equal(A.matmat(np.eye(5)), pytest.importorskip("zarr").open(str(path))[:])
