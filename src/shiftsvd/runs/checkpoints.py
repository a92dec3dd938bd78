"""checkpoint: fits inside it write down every read of the data, and go on where a killed run stopped."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd.runs.journal import Record, kept_in

VERSION = 1
RUN = "run.json"


@contextmanager
def checkpoint(folder: str | os.PathLike[str], run: str = "") -> Iterator[None]:
    """Make fits of streamed data inside this block resumable.

    Every read of the data leaves its result in `folder`, a file each. After a kill, the same program with the same
    folder replays them and goes on with the read that was broken off; the result has the same bits as that of an
    unbroken run. The folder is emptied when the block ends without an error.

    Parameters
    ----------
    folder : path
        Made if it is not there. Takes ``8 n b`` bytes for each read of a panel of b columns.
    run : str
        What tells this run from others, such as the settings and the file.

    Raises
    ------
    ValueError
        If the folder holds the reads of another run (also one with another seed: fix `random_state` or `rng`).

    Notes
    -----
    Reads of matrices that are in memory are not kept: they are made again. On another machine type, or with other
    versions of the libraries, panels differ in their last bits, and the folder is refused.

    Examples
    --------
    >>> import tempfile, shiftsvd as ss
    >>> from sklearn.datasets import load_digits
    >>> with tempfile.TemporaryDirectory() as folder, ss.checkpoint(folder):
    ...     pca = ss.PCA(2, random_state=0).fit(load_digits().data)
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    reads = _Reads(home, run)
    with kept_in(reads):
        yield
    reads.clear()


class _Reads:
    """A folder with one file for each read."""

    def __init__(self, home: Path, run: str) -> None:
        self.home, self.number = home, 0
        about = {"shiftsvd checkpoint": VERSION, "run": run}
        file = home / RUN
        if file.exists():
            if _known(file) != about:
                raise ValueError(self._foreign())
        else:
            if any(home.iterdir()):
                raise ValueError(f"{home} is not empty and holds no checkpoint; name a new folder")
            _write(file, json.dumps(about).encode())

    def replay(self, what: str) -> Record | None:
        """The next record, if the broken run got that far."""
        file = self._file()
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as stored:
                record = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise ValueError(f"{file} is damaged ({error}); delete {self.home} and begin again") from None
        if str(record.pop("what", "")) != what:
            raise ValueError(self._foreign())
        self.number += 1
        return record

    def keep(self, what: str, record: Record) -> None:
        """One more file, complete or not there."""
        file = self._file()
        part = file.with_suffix(".part")
        arrays: dict[str, Any] = {"what": np.array(what), **record}
        with part.open("wb") as out:
            np.savez(out, **arrays)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
        self.number += 1

    def clear(self) -> None:
        """The run is over: nothing is left to resume."""
        for file in (*self.home.glob("read-*.npz"), *self.home.glob("*.part"), self.home / RUN):
            file.unlink(missing_ok=True)
        if not any(self.home.iterdir()):
            shutil.rmtree(self.home)

    def _file(self) -> Path:
        """Where the next record is."""
        return self.home / f"read-{self.number:05}.npz"

    def _foreign(self) -> str:
        """What to say of a folder that is not ours."""
        return (
            f"{self.home} holds the checkpoint of another run (other data, settings, seed, machine or versions); "
            "repeat that run, or name another folder"
        )


def _known(file: Path) -> object:
    """What a folder says it is of."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def _write(file: Path, content: bytes) -> None:
    """A small file, complete or not there."""
    part = file.with_suffix(".part")
    part.write_bytes(content)
    os.replace(part, file)
