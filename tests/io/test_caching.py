"""Copies of blocks: the same bits from fewer bytes, within a limit, and nothing left of a process that was killed."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import InMemory
from shiftsvd.io import cache, caching, open_matrix
from shiftsvd.io.caching import through_cache
from tests.support.chunked import write_h5ad
from tests.support.commands import invoke, told
from tests.support.server import serving

M, N = 400, 300


def counts() -> csr_array:
    X = csr_array(random_array((M, N), density=0.2, rng=0, format="csr", dtype=np.float32))
    X.data = np.ceil(9 * X.data)
    return X


def edited(values: list[float]) -> csr_array:
    X = counts()
    X.data[: len(values)] = values
    return X


MATRICES: dict[str, Any] = {
    "counts": counts(),
    "large counts": edited([2**24, 2**31, 2**31 + 256]),
    "negative": edited([-1, -0.0, 0.0]),
    "not finite": edited([np.nan, np.inf, -np.inf]),
    "fractions": counts() * np.float32(0.3),
    "double": counts().astype(np.float64) * 2.0**40,
    "complex": counts() * 1j,
    "integers": counts().astype(np.int16),
    "unsorted": csr_array(([1.0, 2.0, 3.0], [2, 0, 1], [0, 2, 3]), (2, 3)),
    "wrong indices": counts(),
    "no entries": csr_array((M, N)),
    "int64 indices": counts(),
    "dense": np.random.default_rng(0).standard_normal((M, N)),
    "dense bytes": np.asfortranarray(np.arange(M * N, dtype=np.uint8).reshape(M, N)),
}
MATRICES["wrong indices"].indices[:3] = [-1, N + 5, 2**31 - 1]
MATRICES["int64 indices"].indices = MATRICES["int64 indices"].indices.astype(np.int64)
MATRICES["int64 indices"].indptr = MATRICES["int64 indices"].indptr.astype(np.int64)


class Counted(InMemory):
    """A source that counts its reads, and does not check them, as a file."""

    n_reads = 0

    def read(self, lo: int, hi: int) -> Any:
        self.n_reads += 1
        return rows_of(self.X, lo, hi)


def rows_of(X: Any, lo: int, hi: int) -> Any:
    if not isinstance(X, csr_array):
        return X[lo:hi].copy(order="K")
    own = slice(X.indptr[lo], X.indptr[hi])
    indptr = X.indptr[lo : hi + 1] - X.indptr[lo]
    return csr_array((X.data[own], X.indices[own], indptr), (hi - lo, X.shape[1]))


def parts_of(X: Any) -> list[Any]:
    return [X.data, X.indices, X.indptr] if isinstance(X, csr_array) else [X]


@pytest.mark.parametrize("name", MATRICES)
def test_copies_have_the_bits_and_types_of_what_was_read(name: str, tmp_path: Path) -> None:
    source = Counted(MATRICES[name])
    with cache(tmp_path):
        cached = through_cache(source)
        m = source.shape[0]
        for lo, hi in ((0, m // 2), (m // 2, m), (0, m // 2), (m // 2, m)):
            found, expected = parts_of(cached.read(lo, hi)), parts_of(rows_of(source.X, lo, hi))
            for own, other in zip(found, expected, strict=True):
                assert own.dtype == other.dtype
                assert own.tobytes() == np.ascontiguousarray(other).tobytes() if own.ndim == 1 else True
                assert np.array_equal(own, other, equal_nan=own.dtype.kind in "fc")
    assert source.n_reads == 2
    assert list(tmp_path.iterdir()) == []


def test_copies_of_counts_are_a_third_of_what_was_read(tmp_path: Path) -> None:
    X = MATRICES["counts"]
    with cache(tmp_path):
        through_cache(Counted(X)).read(0, M)
        (copy,) = tmp_path.rglob("*.npz")
        assert copy.stat().st_size < 8 * X.nnz / 3


@pytest.mark.parametrize("limit", [1, 30_000, None])
def test_copies_keep_their_limit_and_the_rest_is_read_again(limit: int | None, tmp_path: Path) -> None:
    source = Counted(MATRICES["counts"])
    with cache(tmp_path, limit):
        cached = through_cache(source)
        for _ in range(3):
            for lo in range(0, M, 20):
                cached.read(lo, lo + 20)
        copies = list(tmp_path.rglob("*.npz"))
        assert sum(copy.stat().st_size for copy in copies) <= (limit or np.inf)
    assert 20 == len(copies) if limit is None else (len(copies) > 0) == (limit > 1)
    assert source.n_reads == 20 + 2 * (20 - len(copies))


def test_two_matrices_do_not_share_copies(tmp_path: Path) -> None:
    with cache(tmp_path):
        one, two = through_cache(Counted(MATRICES["counts"])), through_cache(Counted(MATRICES["fractions"]))
        for _ in range(2):
            assert one.read(0, 9).data.max() > 1 > two.read(0, 9).data.min()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone", "folder gone"])
def test_damaged_copies_are_not_used(damage: str, tmp_path: Path) -> None:
    source = Counted(MATRICES["counts"])
    with cache(tmp_path):
        cached = through_cache(source)
        first = cached.read(0, M)
        (copy,) = tmp_path.rglob("*.npz")
        content = bytearray(copy.read_bytes())
        content[len(content) // 2] ^= 1
        copy.write_bytes({"cut": content[: len(content) // 2], "flipped": content}.get(damage, b""))
        if damage == "gone":
            copy.unlink()
        if damage == "folder gone":
            for file in copy.parent.iterdir():
                file.unlink()
            copy.parent.rmdir()
        for _ in range(2):
            assert np.array_equal(cached.read(0, M).data, first.data)


def test_a_full_disk_ends_the_copies_and_not_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = Counted(MATRICES["counts"])
    monkeypatch.setattr(caching.np, "savez", full)
    with cache(tmp_path):
        cached = through_cache(source)
        assert [cached.read(0, M).nnz for _ in range(2)] == 2 * [MATRICES["counts"].nnz]
        assert not [*tmp_path.rglob("*.npz"), *tmp_path.rglob("*.part")]
    assert source.n_reads == 2


def test_other_processes_get_the_source_itself(tmp_path: Path) -> None:
    with cache(tmp_path):
        cached = through_cache(InMemory(MATRICES["counts"]))
        assert type(pickle.loads(pickle.dumps(cached))) is InMemory


def test_the_second_pass_moves_nothing_and_fits_have_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("requests")
    pytest.importorskip("h5py")
    write_h5ad(tmp_path)
    expected = None
    with serving(tmp_path) as server, cache(tmp_path / "copies", "1GB"):
        (file,) = tmp_path.glob("*.h5ad")
        expected, _ = open_matrix(file, stream=True)
        A, _ = open_matrix(f"{server.address}/{file.name}?token=secret", stream=True)
        assert isinstance(A, DiskRows)
        V = np.ones((A.shape[1], 2))
        first = A.gram(V)
        moved = server.n_bytes
        assert np.array_equal(A.gram(V), first)
        assert np.array_equal(first, expected.gram(V))
        assert server.n_bytes == moved
        names = [str(each) for each in (tmp_path / "copies").rglob("*")]
        texts = [each.read_bytes() for each in (tmp_path / "copies").rglob("*.npz")]
        assert texts
        assert not any("secret" in name for name in names)
        assert not any(b"secret" in text or b"127.0.0.1" in text for text in texts)
    assert not (tmp_path / "copies").exists()


READER = """
import sys, time
import numpy as np
from shiftsvd.backends.source import InMemory
from shiftsvd.io import cache
from shiftsvd.io.caching import through_cache
with cache(sys.argv[1]):
    through_cache(InMemory(np.ones((4, 3)))).read(0, 4)
    print("read", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_copies_of_a_killed_process_are_removed_and_those_of_a_running_one_are_not(tmp_path: Path) -> None:
    (tmp_path / "shiftsvd-cache-mine").mkdir()
    (tmp_path / "shiftsvd-cache-mine" / "notes.txt").write_text("mine")
    (tmp_path / "other.npz").write_text("mine")
    readers = [subprocess.Popen([sys.executable, "-c", READER, tmp_path], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"read\n"
        assert len(list(tmp_path.rglob("[0-9]*.npz"))) == 2
        os.kill(readers[0].pid, signal.SIGKILL)
        readers[0].wait()
        with cache(tmp_path):
            assert len(list(tmp_path.rglob("[0-9]*.npz"))) == 1
    finally:
        for reader in readers:
            reader.kill()
            with reader:  # waits, and closes its output
                pass
    with cache(tmp_path):
        pass
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["notes.txt", "other.npz", "shiftsvd-cache-mine"]


def test_the_command_keeps_copies_within_a_fit_and_removes_them(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((20_000, 100)))
    words = ("fit", tmp_path / "X.npy", "-k", 3, "--memory", "16M", "-q")
    plain = told(*words)
    cached = told(*words, "--cache", tmp_path / "copies", "--cache-size", "10M")
    assert cached["singular_values"] == plain["singular_values"]
    assert not (tmp_path / "copies").exists()


def test_estimate_tells_that_copies_save_bytes(tmp_path: Path) -> None:
    pytest.importorskip("requests")
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((20_000, 100)))
    with serving(tmp_path) as server:
        words = ("estimate", f"{server.address}/X.npy", "-k", 3, "--solver", "lanczos", "--memory", "16M", "-q")
        plain = told(*words)
        limits = {size: told(*words, "--cache", tmp_path / "c", "--cache-size", size) for size in ("1G", "8M", "1")}
    moved = {size: facts["moved_bytes"] for size, facts in limits.items()}
    once = plain["moved_bytes"] / plain["n_passes"]
    assert plain["n_passes"] > 2
    assert moved["1G"] == pytest.approx(once, rel=1e-6)
    assert moved["1G"] < moved["8M"] < moved["1"] <= plain["moved_bytes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cache-size", "1G"), "--cache-size limits the copies of --cache"),
        (("--cache", "c", "--workers", "2"), "Worker processes keep no copies"),
        (("--cache", "c", "--cache-size", "much"), "--cache-size"),
        (("--cache", "s3://bucket/c"), "--cache"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.eye(3))
    result = invoke("fit", "X.npy", "-k", 1, *words)
    assert result.exit_code == 2
    assert message in result.output
    assert not Path("c").exists()
