"""Damaged stores and lying servers, of every kind: python -m benchmarks.endurance.stores [DAMAGES [KIND]]."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.endurance.commands import Command, Ended, forked
from benchmarks.endurance.harm import FILES, PARTS
from benchmarks.endurance.kills import told
from benchmarks.endurance.kinds import KINDS, D, G, Kind, parts
from tests.support.server import FolderServer

SECONDS, MOST, TIMEOUT = 30.0, 10**9, "1"  # time and resident bytes of a command; seconds of an answer of a server
FIT = ["-k", 3, "--memory", "300M", "--no-report", "--scores", "npy", "--components", "csv", "-q"]
LOADED = (
    "h5py zarr anndata pandas pyarrow.parquet pyarrow.csv xarray h5netcdf duckdb bed_reader pgenlib requests fsspec"
)
Result = list[Any]


def in_memory() -> None: ...


def in_blocks() -> None:
    """Read in several blocks what can be read in blocks."""
    opening, files = import_module("shiftsvd.io.opening"), import_module("shiftsvd.backends.files")
    opening.held_bytes = lambda source: 2**60  # type: ignore[attr-defined]
    files.LEAST_BLOCK = files.BLOCK = 2**10  # type: ignore[attr-defined]


def from_server() -> None:
    """Read in blocks, by small requests, with short pauses before other attempts."""
    in_blocks()
    location, servers = import_module("shiftsvd.io.location"), import_module("shiftsvd.io.servers")
    location._BLOCK, location._KEPT = 512, 2  # type: ignore[attr-defined]
    servers._PAUSES = (0.01, 0.01, 0.01)  # type: ignore[attr-defined]


def aside(work: Callable[[], object]) -> bool:
    """Do this in a process of its own, which libraries may crash, and return whether it succeeded."""
    return os.waitpid(forked(lambda: [0, work()][0]), 0)[1] == 0  # type: ignore[return-value]


def fit(path: Path | str, home: Path, how: Callable[[], None]) -> tuple[Ended, Result]:
    """Fit, and return how it ended, and the scores and loadings that it wrote, up to signs."""
    shutil.rmtree(home / "results", ignore_errors=True)
    out = home / "results" / "out"  # beside which those of genotypes have files
    ended = Command(["fit", path, *FIT, "-o", out], home / "log", how).ended(SECONDS)
    if ended.code:
        return ended, []
    lines = (out / "components.csv").read_text(errors="replace").splitlines()[1:]
    loadings = [[abs(float(cell)) for cell in line.rsplit(",", 3)[-3:]] for line in lines if line.count(",") > 1]
    return ended, [np.abs(np.load(out / "scores.npy")), np.array(loadings)]


def same(one: Result, other: Result) -> bool:
    """Return whether both are results, and equal."""
    pairs = zip(one, other, strict=False)
    return bool(one and other) and all(a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-4 * a.max()) for a, b in pairs)


def end_of(ended: Ended, right: Callable[[], str]) -> str:
    """Return what came of a command, in capitals if it breaks the promise."""
    lines = [line for line in ended.said.splitlines() if not line.startswith(("Warning:", "Notice:"))]
    if ended.code < 0 or ended.traced:
        return "HANG" if ended.code == -SIGKILL else "CRASH" if ended.code < 0 else "TRACEBACK"
    if ended.peak > MOST:
        return "MEMORY"
    if ended.code:
        return "one line" if ended.code == 2 or (ended.code == 1 and len(lines) == 1) else "NOT ONE LINE"
    return right()


def judged(got: Result, want: Result, kind: Kind, path: Path, home: Path) -> str:
    """Compare with the sound store, else with a sound store of the numbers that another reader finds."""
    if same(got, want):
        return "right"
    shutil.rmtree(home / "again", ignore_errors=True)
    (home / "again").mkdir()
    read = aside(lambda: kind.write(home / "again" / kind.name, kind.read(path)))
    return "consistent" if read and same(got, fit(home / "again" / kind.name, home, in_memory)[1]) else "WRONG"


def written(kind: Kind, folder: Path, X: Any) -> Path | None:
    """Write a store, or return None if its writer refuses."""
    folder.mkdir()
    return folder / kind.name if aside(lambda: kind.write(folder / kind.name, X)) else None


def hurt(way: str, kind: Kind, X: Any, home: Path, rng: np.random.Generator) -> Path | None:
    """Copy the sound store and damage it, or write a store from damaged parts."""
    once = home / "once"
    shutil.rmtree(once, ignore_errors=True)
    if way in PARTS:
        P = deepcopy(parts(X))
        PARTS[way](P, rng)
        return written(kind, once, P)
    shutil.copytree(home / "sound", once)
    path = once / kind.name
    files = [each for each in once.rglob("*") if each.is_file() and each.stat().st_size]
    FILES[way](sorted(files, key=lambda each: (each == path, each.stat().st_size, each)), rng)
    return path


def damaged(name: str, n: int, seed: int, home: Path) -> Counter[str]:
    """Damage a store of a kind so often, fit it in memory and in blocks in turn, and count what came of it."""
    kind, X, found = KINDS[name], G if name in ("bed", "pgen") else D, Counter[str]()
    rng, ways = np.random.default_rng([seed, crc32(name.encode())]), [*FILES, *(PARTS if KINDS[name].sparse else ())]
    sound = written(kind, home / "sound", X)
    assert sound, name
    _, want = fit(sound, home, in_memory)
    assert same(want, fit(sound, home, in_blocks)[1]), name
    for count in range(n):
        way = ways[count % len(ways)]
        if (path := hurt(way, kind, X, home, rng)) is None:
            continue
        ended, got = fit(path, home, in_blocks if count % 2 else in_memory)
        described = Command(["info", path], home / "log").ended(SECONDS)
        of_fit = end_of(ended, partial(judged, got, want, kind, path, home))
        of_info = end_of(described, lambda: "")
        found.update({"damages": 1, of_fit: 1, f"info: {of_info}": of_info.isupper()})
        if of_fit.isupper() or of_info.isupper():
            print(f"  {name}, {way}, {count}: {of_fit} {ended.said[-300:]!r} {of_info} {described.said[-300:]!r}")
            shutil.copytree(home / "once", Path("fuzz-out") / f"{name} {count}", dirs_exist_ok=True)
    return found


LIES = (
    *("401", "404", "429", "500", "503", "hang", "drip", "drip headers", "reset", "redirect", "elsewhere", "whole"),
    *("whole, no length", "packed", "etag", "range", "total", "unknown", "nonsense", "backwards", "negative", "huge"),
    *("none", "short", "shorter", "long", "length", "chunked long", "chunked short", "changed"),
)


class Server(FolderServer):
    """A server that may also put another store in the place of one, between two answers."""

    def next_fault(self, path: str, span: str) -> str:
        found = super().next_fault(path, span)
        if found == "changed" and self.n_faults == 1:
            shutil.copytree(self.folder.parent / "other", self.folder, dirs_exist_ok=True)
        return found


def served(name: str, home: Path) -> Counter[str]:
    """Fit from a server that lies, from its first answer on, from the fourth, and from the ninth."""
    kind, found, wants = KINDS[name], Counter[str](), []
    for folder, X in {"other": 2 * D + (D > 1), "sound": D}.items():
        path = written(kind, home / folder, X)
        assert path, name
        wants.append(fit(path, home, in_memory)[1])
    for lie, after in ((lie, after) for lie in LIES for after in (0, 3, 8)):
        shutil.rmtree(home / "served", ignore_errors=True)
        shutil.copytree(home / "sound", home / "served")
        with Server(home / "served") as server:
            server.fault, server.after = lie, after
            pid = forked(server.serve_forever)  # type: ignore[arg-type]
            ended, got = fit(f"{server.address}/{kind.name}", home, from_server)
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)
        right = "right" if any(same(got, want) for want in wants) else "WRONG"  # of one store, and of no mixture
        end = end_of(ended, lambda: right)  # noqa: B023
        found.update({"damages": 1, end: 1})
        if end.isupper():
            print(f"  {name}, {lie} from answer {after} on: {end} {ended.said[-300:]!r}")
    return found


def main(n: int, only: str = "", seed: int = 0) -> Counter[str]:
    """Damage stores of each kind so often, and print a line for each kind."""
    os.environ["SHIFTSVD_TIMEOUT"] = TIMEOUT
    for library in (*LOADED.split(), "shiftsvd.io.opening"):
        import_module(library)  # here, so that no child has to
    works: dict[str, Callable[[Path], Counter[str]]] = {name: partial(damaged, name, n, seed) for name in KINDS}
    works |= {f"{name} served": partial(served, name) for name in ("npy", "AnnData .h5ad", "Zarr 3", "Parquet")}
    total = Counter[str]()
    for name, work in works.items():
        if only in name:
            with TemporaryDirectory() as folder:
                found = work(Path(folder))
            print(f"{name:24} {told(found)}", flush=True)
            total += found
    print(told(total))
    return total


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 28, *sys.argv[2:3])
