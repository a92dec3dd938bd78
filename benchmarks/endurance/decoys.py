"""Decoys: files of a user with names close to those of temporary files and outputs, and whole folders compared."""

import os
import stat
from pathlib import Path
from typing import TypeAlias

Tree: TypeAlias = dict[str, tuple[int, bytes | str]]
"""Of each path its mode, and the bytes of a file or the target of a link."""

MINE = b"mine"
FILES = """
linux.iso.part read-me.npz read-1.npz read-0001.npz read-00001.npz.bak read-00001.npz.0a1b2c3d.part run.json.part
run.json~ .lock .lock-file lock notes.lock .notes.lock 0 old faces.npy words.int32 .hidden .part part
"""
BESIDE = """
{}.part .{}.part .{}.lock .{}.lock-file {}.lock .{}.0123abcd.part .{}.a1b2c3d4 .{}.swp {}~ {}.old
.{}.shiftsvd .{}.shiftsvd-0123abcd .{}.shiftsvd-0123456789abcdef0 .{}.shiftsvd-0123456789ABCDEF
{}.shiftsvd-0123456789abcdef
"""  # an output of this name


def plant(folder: Path, *outputs: str) -> None:
    """Put files, folders, links and a pipe into a folder that names of ours could be mistaken for."""
    names = [*FILES.split(), *(pattern.format(name) for name in outputs for pattern in BESIDE.split())]
    for number, name in enumerate(names):
        path = folder / name
        if os.path.lexists(path):
            continue
        if number % 5 == 4:  # a folder with a file in it
            path.mkdir()
            path = path / "thesis.txt"
        path.write_bytes(MINE + name.encode())
        path.chmod((0o644, 0o600, 0o444)[number % 3])
    for name, target in {
        "link.part": "linux.iso.part",
        "nowhere.part": "nowhere",
        "read-00007.npz.part": ".",
        ".link.lock": ".lock",
    }.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe.part")
    (folder / "x.part").mkdir()


def tree(folder: Path) -> Tree:
    """Return everything below a folder."""
    found: Tree = {}
    for home, folders, files in os.walk(folder):
        for path in (Path(home, name) for name in (*folders, *files)):
            mode = path.lstat().st_mode
            content: bytes | str = os.readlink(path) if stat.S_ISLNK(mode) else b""
            found[str(path.relative_to(folder))] = mode, path.read_bytes() if stat.S_ISREG(mode) else content
    return found


def lost(before: Tree, after: Tree) -> list[str]:
    """Return the paths that are gone, or are not what they were."""
    return sorted(path for path, what in before.items() if after.get(path) != what)
