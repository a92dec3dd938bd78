"""What a file of HDF5 must not reach beyond itself, unless that is allowed: other files, by links and by storage."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

_MOST: Final = 100_000  # links that are looked at: some seconds
_REMEDY: Final = "allow_external=True follows it, if you trust the file"


def refuse_outside(path: Path, root: Any) -> None:
    """Look at every link and dataset of an HDF5 file once, reading none, and refuse what leads out of the file.

    Raises
    ------
    ValueError
        If there is an external link, a virtual dataset (which may name any file, or itself: HDF5 2.0 crashes then), or
        one whose numbers lie in another file; or if there are too many links to look at.
    """
    h5l, h5o = (import_module(f"h5py.{part}") for part in ("h5l", "h5o"))
    inside = {h5l.TYPE_HARD, h5l.TYPE_SOFT}
    waiting, seen, count = [(b"", root.id)], {_address(h5o.get_info(root.id))}, 0
    while waiting:
        prefix, group = waiting.pop()
        for name in group:
            key, kind, count = prefix + b"/" + name, group.links.get_info(name).type, count + 1
            if kind not in inside:
                raise _refusal(path, key, "a link into another file")
            if count > _MOST:
                raise ValueError(
                    f"{path} has more than {_MOST} links, too many to see whether one leads out of the file; "
                    "allow_external=True does not look, if you trust the file"
                )
            if kind == h5l.TYPE_SOFT:
                continue  # a path within the file, whose links are all looked at
            info = h5o.get_info(group, name)
            if _address(info) in seen:
                continue
            seen.add(_address(info))
            if info.type == h5o.TYPE_GROUP:
                waiting.append((key, h5o.open(group, name)))
            elif info.type == h5o.TYPE_DATASET:
                refuse_storage(path, key, h5o.open(group, name))


def refuse_storage(path: Path, key: bytes | str, dataset: Any) -> None:
    settings = dataset.get_create_plist()
    if settings.get_layout() == import_module("h5py.h5d").VIRTUAL:
        raise _refusal(path, key, "a virtual dataset, made of parts of other files")
    if settings.get_external_count():
        raise _refusal(path, key, "a dataset whose numbers lie in another file")


def _address(info: Any) -> tuple[int, int]:
    return info.fileno, info.addr


def _refusal(path: Path, key: bytes | str, what: str) -> ValueError:
    named = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    return ValueError(f"{path}:{named} is {what}, which is not read; {_REMEDY}")
