"""Keep packed copies of the blocks of files that are read in blocks, so that later reads are local and small."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.backends.source import Changed, RowSource
from shiftsvd.events import set_within
from shiftsvd.io.location import Location
from shiftsvd.io.sniff import split_element
from shiftsvd.io.storage.tree import stats_of
from shiftsvd.kernels import best as kernels
from shiftsvd.kernels.twin import Packed
from shiftsvd.runs import outputs
from shiftsvd.runs.checkpoints import UNREADABLE
from shiftsvd.runs.memory import parse_bytes, shown_bytes, temporary_folder
from shiftsvd.runs.messages import log_notice
from shiftsvd.runs.outputs import held

_PREFIX: Final = f"{outputs.MARK}-cache-"
_LOCK: Final = "lock"
_COPY: Final = re.compile(rf"[0-9]+-[0-9]+-[0-9]+\.(npz|part)|{_LOCK}.*")
_HEADERS: Final = 4096  # bytes of a copy that are not those of its arrays, at most


@dataclass
class _Copies:
    folder: Path
    limit: int
    used: int = 0
    is_full: bool = False
    sources: int = 0


_within: ContextVar[_Copies | None] = ContextVar("_within", default=None)


@contextmanager
def cache(folder: str | os.PathLike[str], size: int | str | None = None) -> Iterator[None]:
    """Keep packed copies of the blocks of rows that are read from files inside this block.

    The first read of a file that does not fit in memory, or that is opened with ``stream=True``, writes each block to a
    file in `folder`, and later reads take it from there. Results have the same bits as without copies. They are removed
    at the end of the block; if the process is killed, the next one that uses the folder removes them.

    Parameters
    ----------
    folder : path
        A folder of this machine on a fast disk. Created if it does not exist, and then removed at the end; other files
        in it remain unchanged.
    size : int (bytes) or str such as "20GB", optional
        Largest size of all copies. Blocks without room are read from their file again. Default: half of the free space
        of the disk.

    Yields
    ------
    None
        Matrices that are opened inside the block use the folder.

    Raises
    ------
    ValueError
        If `folder` is an address.
    OSError
        If nothing can be written to the folder.

    See Also
    --------
    shiftsvd.io.convert : Copies a whole file once, for several fits.
    shiftsvd.checkpoint : Stores results of reads, to continue after an interruption.

    Notes
    -----
    Sorted column indices take about 7 bits each if 2 % of the entries are stored, and counts as many bits as the
    largest of 128; other numbers are stored as they are. An incomplete or damaged copy is not used. Names of copies do
    not contain addresses.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import shiftsvd as ss
    >>> with tempfile.TemporaryDirectory() as folder, ss.io.cache(f"{folder}/copies", "1GB"):
    ...     np.save(f"{folder}/X.npy", np.eye(3))
    ...     A, names = ss.io.open_matrix(f"{folder}/X.npy", stream=True)
    ...     F = ss.svd(A, 1, rng=0)
    """
    home = outputs.local(folder)
    is_new = not home.exists()
    home.mkdir(parents=True, exist_ok=True)
    try:
        _remove_left(home)
        limit = shutil.disk_usage(home).free // 2 if size is None else parse_bytes(size)
        with temporary_folder(_PREFIX, home) as own, held(own / _LOCK, own), set_within(_within, _Copies(own, limit)):
            yield
    finally:
        if is_new:
            with suppress(OSError):  # another process uses it
                home.rmdir()


def _remove_left(home: Path) -> None:
    for left in home.glob(f"{_PREFIX}*"):
        with suppress(OSError), held(left / _LOCK, left):  # raises BlockingIOError if its process still runs
            if all(_COPY.fullmatch(file.name) for file in left.iterdir()):
                shutil.rmtree(left)


def through_cache(source: RowSource) -> RowSource:
    copies = _within.get()
    return source if copies is None else Cached(source, copies)


class _Same(Changed):
    """Source of the rows of another source; other processes read that one."""

    def __reduce__(self) -> Any:
        return _itself, (self.source,)

    @property
    def chunk_rows(self) -> int:
        return self.source.chunk_rows

    def with_nan(self) -> RowSource:
        source = self.source.with_nan()
        return self if source is self.source else source


class Watched(_Same):
    """Source that raises an error if one of its files or folders was changed after it was opened."""

    def __init__(self, source: RowSource, paths: Iterable[Path]) -> None:
        super().__init__(source, "")
        local = [split_element(path)[0] for path in paths if not isinstance(path, Location)]  # which checks by itself
        self._known = {path: _changed_at(path) for path in local if path.exists()}
        self._files = [path for path in self._known if path.is_file()]

    def with_nan(self) -> RowSource:
        source = super().with_nan()
        return self if source is self else Watched(source, self._known)

    def read(self, lo: int, hi: int) -> Any:
        X = self.source.read(lo, hi)
        # A folder may have a file for each chunk: list it once in a pass.
        self._compare(self._known if hi == self.shape[0] else self._files)
        return X

    def check_unchanged(self) -> None:
        self._compare(self._known)

    def _compare(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if _changed_at(path) != self._known[path]:
                raise OSError(f"{path} was changed while it was read. Start again.")


def _changed_at(path: Path) -> tuple[int, int] | None:
    with suppress(OSError, ValueError):  # it was removed
        stats = stats_of(path)
        return sum(each.st_size for each in stats), max(each.st_mtime_ns for each in stats)
    return None


class Cached(_Same):
    """Source that keeps a packed copy of each range of rows that was read."""

    def __init__(self, source: RowSource, copies: _Copies) -> None:
        super().__init__(source, "")
        self.copies += 1  # while a block is packed
        copies.sources += 1
        self._number, self._kept = copies.sources, copies

    def read(self, lo: int, hi: int) -> Any:
        file = self._kept.folder / f"{self._number}-{lo}-{hi}.npz"
        with suppress(*UNREADABLE), file.open("rb") as copy, np.load(copy, allow_pickle=False) as stored:
            return _unpacked(dict(stored), (hi - lo, self.shape[1]))
        X = self.source.read(lo, hi)
        if not self._kept.is_full:
            self._keep(file, _packed(X))
        return X

    def _keep(self, file: Path, record: Mapping[str, Any]) -> None:
        kept, part = self._kept, file.with_suffix(".part")
        size = sum(each.nbytes for each in record.values()) + _HEADERS
        kept.used += size
        try:
            if kept.used > kept.limit:
                raise OSError(f"the limit is {shown_bytes(kept.limit)}")
            with part.open("xb") as out:
                np.savez(out, **record)
            part.replace(file)
        except FileExistsError:  # another thread writes it
            kept.used -= size
        except OSError as error:
            kept.is_full = True
            with suppress(OSError):
                part.unlink()
            no_more = f"{kept.folder.parent} stores no more copies of {self.name}: {error}."
            log_notice(f"{no_more} Each pass reads the rest from the file.")


def _itself(source: RowSource) -> RowSource:
    return source


def _packed(X: Any) -> dict[str, Any]:
    if not isinstance(X, csr_array):
        return {"X": X}
    return {"indptr": X.indptr, **_integers("indices", X.indices, True), **_integers("data", X.data, False)}


def _integers(name: str, numbers: Any, differences: bool) -> dict[str, Any]:
    with np.errstate(invalid="ignore"):
        whole = numbers.real.astype(np.uint32)
    if not whole.size or whole.min() < (not differences) or not np.array_equal(whole.astype(numbers.dtype), numbers):
        return {name: numbers}
    parts = kernels.pack(whole, differences)._asdict()
    return {f"{name}_{part}": array for part, array in parts.items()} | {f"{name}_like": numbers[:0]}


def _unpacked(record: dict[str, Any], shape: tuple[int, int]) -> Any:
    if "X" in record:
        return record["X"]
    size = int(record["indptr"][-1])
    parts = (_restored(record, name, size) for name in ("data", "indices"))
    return csr_array((*parts, record["indptr"]), shape=shape, copy=False)


def _restored(record: dict[str, Any], name: str, size: int) -> Any:
    if name in record:
        return record[name]
    packed, out = Packed(*(record[f"{name}_{part}"] for part in Packed._fields)), np.empty(size, np.uint32)
    if len(packed.starts):
        kernels.unpack_differences(packed.words, packed.edges, packed.starts, 0, out)
    else:
        kernels.unpack_counts(packed.words, packed.edges, 0, out)
    return out.astype(record[f"{name}_like"].dtype)
