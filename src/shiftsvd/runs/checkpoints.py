"""checkpoint: store the result of each read of the data, so that an interrupted fit continues where it stopped."""

import io
import json
import os
import platform
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from shiftsvd.events import set_within
from shiftsvd.kernels import instruction_set
from shiftsvd.numerics.digests import told
from shiftsvd.runs import outputs
from shiftsvd.runs.messages import warn
from shiftsvd.runs.outputs import files_of, held

Record = Mapping[str, npt.NDArray[Any]]


_journal: ContextVar["_Journal | None"] = ContextVar("_journal", default=None)


def unkept() -> AbstractContextManager[None]:
    return set_within(_journal, None)


def kept() -> bool:
    return _journal.get() is not None


def once(what: str, panels: tuple[npt.NDArray[Any] | None, ...], read: Callable[[], Record]) -> Record:
    journal = _journal.get()
    if journal is None:
        return read()
    name = f"{what} {told(panels)}"
    record = journal.replay(name)
    if record is None:
        with unkept():
            record = read()
        journal.keep(name, record)
    return record


VERSION: Final = 3
RUN: Final = "run.json"
RECORD: Final = r"read-[0-9]{5,}\.npz"
FILES: Final = rf"{RECORD}|{re.escape(RUN)}"
LOCK: Final = f".{outputs.MARK}-lock"
UNREADABLE: Final = (
    ValueError,
    KeyError,
    OSError,
    EOFError,
    AttributeError,
    NotImplementedError,
    BadZipFile,
    zlib.error,
)
DIGEST: Final = 32  # bytes of the checksum that a record begins with


@contextmanager
def checkpoint(folder: str | os.PathLike[str], run: str = "") -> Iterator[None]:
    """Make fits inside this block resumable.

    The result of each read of the data is stored in a file of `folder`. After an interruption, the same program with
    the same folder replays the stored results and continues with the next read; the final result has the same bits as
    that of an uninterrupted run. When the block ends without an error, or before the first read, the files are removed.
    The folder is removed if it is empty then, unless it existed before and was empty.

    Parameters
    ----------
    folder : path
        Created if it does not exist. Needs ``8 n b`` bytes for each read of a panel of b columns.
    run : str
        A text that identifies this run, such as the settings and the file.

    Yields
    ------
    None
        Fits inside the block use the folder automatically.

    Raises
    ------
    ValueError
        If the folder holds the checkpoint of another run, or other files and no checkpoint. A run with another seed is
        another run: set `random_state` or `rng`. The folder remains unchanged.
    BlockingIOError
        If another process, or another block of this process, uses the folder.
    OSError
        If the disk is full. The same program continues once the disk has room.

    Warns
    -----
    UserWarning
        If a record is damaged: the warning names the file, and the read is repeated.

    See Also
    --------
    PCA : A fit that can be resumed inside it.
    shiftsvd.io.open_matrix : Files that are read again for each product.

    Notes
    -----
    A record is identified by all inputs of its result: data, shift, scale, weights, values for missing entries, fitted
    transformations, the panel, the versions of this package, NumPy and SciPy, the kernels, and the type of machine. If
    any of them changes, the folder is refused. Files are identified by path, size and times, not by content: a file
    that was written, touched or restored counts as changed.

    For matrices in memory, a read is stored only if it takes longer than storing it (from about ten million products)
    and only for products with their short side; other reads are repeated. Free memory decides if a file is read in
    blocks; set `memory_limit` so that both runs make the same decision.

    Examples
    --------
    >>> import tempfile, shiftsvd as ss
    >>> from sklearn.datasets import load_digits
    >>> with tempfile.TemporaryDirectory() as folder, ss.checkpoint(folder):
    ...     pca = ss.PCA(2, random_state=0).fit(load_digits().data)
    """
    home = outputs.local(folder)
    refuse_others(home)  # before writing anything to the folder, including the lock
    was_empty = home.is_dir() and not _listed(home)
    kept = False
    try:
        with held(home / LOCK, home):
            journal = _Journal(home, run)
            try:
                with set_within(_journal, journal):
                    yield
            except BaseException:
                kept = any(re.fullmatch(RECORD, path.name) for path in _listed(home))
                raise
            finally:
                if not kept:
                    journal.clear()
    finally:
        if not (kept or was_empty):  # keep an empty folder that the user created
            with suppress(OSError):  # the folder holds other files, or the lock of a waiting process
                home.rmdir()


class _Journal:
    """One file with a record for each read of the data, in order.

    A solver is a function of its seed and of the results of its reads. Replaying the reads therefore repeats an
    interrupted run bit by bit, for every solver, without storing the state of the solver.
    """

    def __init__(self, home: Path, run: str) -> None:
        self.home, self.number = home, 0
        about = {"shiftsvd checkpoint": VERSION, "run": run, "by": _software()}
        file = home / RUN
        there = refuse_others(home)
        outputs.remove_stages(home, FILES)  # temporary files of a run that was killed while writing
        if there:
            if (known := _known(file)) == about:
                return
            if there != {file}:  # run.json without records is left by a run that ended before its first read
                raise ValueError(_foreign(home, known))
        self._write(file, json.dumps(about).encode())

    def replay(self, what: str) -> Record | None:
        file = self._file()
        if outputs.kind_of(file) is None:
            return None
        try:
            record = self._read(file)
            name = str(record.pop("what"))
        except UNREADABLE as error:
            warn(f"{file} is damaged ({error}). This read of the data is repeated.")
            return None
        if name != what:
            raise ValueError(_foreign(self.home))
        self.number += 1
        return record

    def _read(self, file: Path) -> dict[str, npt.NDArray[Any]]:
        if not file.is_file():
            raise OSError("not a regular file")  # reading a pipe would wait forever
        content = file.read_bytes()
        if content[:DIGEST] != self._digest(content[DIGEST:]):
            raise ValueError("wrong checksum")
        with np.load(io.BytesIO(content[DIGEST:]), allow_pickle=False) as stored:
            return dict(stored)

    def keep(self, what: str, record: Record) -> None:
        content = io.BytesIO()
        arrays: dict[str, Any] = {"what": np.array(what), **record}
        np.savez(content, **arrays)
        self._write(self._file(), self._digest(content.getbuffer()), content.getbuffer())
        self.number += 1

    def clear(self) -> None:
        for file in sorted(self.home.iterdir()):  # run.json last: records without it belong to no known run
            if re.fullmatch(FILES, file.name) and outputs.kind_of(file) in ("a file", "a link"):
                file.unlink(missing_ok=True)

    def _digest(self, content: bytes | memoryview) -> bytes:
        return blake2b(content, digest_size=DIGEST, person=b"%d %d" % (VERSION, self.number)).digest()

    def _write(self, file: Path, *content: bytes | memoryview) -> None:
        part = outputs.stage_of(file)
        try:
            with part.open("xb") as out:
                out.writelines(content)
            outputs.sync(part)
            outputs.rename(part, file)
            outputs.sync_folder(self.home)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            if error.errno is None:  # raised by `rename`, with the name of the file
                raise
            if error.errno not in outputs.FULL:
                raise OSError(error.errno, error.strerror, str(file)) from None
            room = f"{self.home} has no room for the checkpoint: {error.strerror}"
            raise OSError(f"{room}. Free disk space and repeat the command, or run without a checkpoint.") from None

    def _file(self) -> Path:
        return self.home / f"read-{self.number:05}.npz"


def refuse_others(home: Path) -> set[Path]:
    if outputs.kind_of(home) is not None and not home.is_dir():
        raise NotADirectoryError(f"{home} is not a folder. Use a new folder.")
    there = _listed(home) - {*files_of(home / LOCK), *outputs.left_stages(home, FILES)}
    known = _known(home / RUN)
    # A run that has just ended may have removed some.
    there = {path for path in there if outputs.kind_of(path) is not None}
    if there and "shiftsvd checkpoint" not in known:
        others = f"{home} is not empty and holds no checkpoint. Use a new folder."
        raise ValueError(_foreign(home) if home / RUN in there else others)
    return there


def _listed(home: Path) -> set[Path]:
    try:
        return set(home.iterdir())
    except FileNotFoundError:
        return set()


def _foreign(home: Path, known: Mapping[str, Any] | None = None) -> str:
    by: Any = (known or {}).get("by")
    now = _software() if isinstance(by, dict) else {}
    others = [f"made by {name} {by.get(name)}, not {mine}" for name, mine in now.items() if by.get(name) != mine]
    why = ", ".join(others) or "other data, settings, seed, machine or versions"
    return f"{home} holds the checkpoint of another run ({why}). Repeat that run, or use another folder."


@cache
def _software() -> dict[str, str]:
    versions = {name: version(name) for name in ("shiftsvd", "numpy", "scipy")}
    return versions | {"kernels": instruction_set(), "machine": platform.machine()}


def _known(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text()) if file.is_file() else {}
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
