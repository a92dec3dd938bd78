"""The file itself: tensors under a JSON header, read with suspicion, written whole or not at all."""

import json
import stat
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import version
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.runs.outputs import Outputs

Tensors = dict[str, npt.NDArray[Any]]
Metadata = dict[str, str]

FORMAT, VERSION = "shiftsvd-model", "1"
# Names are tensors, so a header is small whatever the model; what parsing one can take is bounded by this.
MAX_HEADER = 2**20


def write(path: Path, metadata: Metadata, tensors: Tensors, force: bool) -> None:
    """The file under another name first, safe on the disk, then under its own."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}; make it first")
    try:
        with Outputs([path], force) as outputs:
            part = outputs.part(path)
            part.touch()
            mode = part.stat().st_mode  # as any file of this user's; safetensors makes files for the owner alone
            save_file(tensors, part, metadata)
            _sort_header(part)
            part.chmod(mode)
    except (OSError, SafetensorError) as error:
        if isinstance(error, FileExistsError):
            raise
        raise OSError(f"{path} cannot be written: {error}") from error


def _sort_header(part: Path) -> None:
    """Have the texts of the header in one order: safetensors writes them in that of its hashes, new in each process."""
    with part.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        written = file.read(size)
        header = json.dumps(json.loads(written), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if len(header) <= size:
            file.seek(8)
            file.write(header.ljust(size))


def read(path: Path) -> tuple[Metadata, Tensors]:
    """The header and the tensors of a file, once the header is known to be sane."""
    from safetensors import SafetensorError, safe_open

    _check_header(path)
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            _check_version(metadata)
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"it is damaged, or no model file: {error}") from None


def _check_header(path: Path) -> None:
    """Refuse what safetensors would take: long headers, names that appear twice, pipes that never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    there = path.stat().st_size
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MAX_HEADER:
            raise ValueError(f"it is no model file: a header of {size} bytes, where {MAX_HEADER} is the most")
        _check_length(there, 8 + size)
        try:
            header = parsed(file.read(size).decode())
        except (UnicodeDecodeError, JSONDecodeError):
            raise ValueError("it is damaged, or no model file: it does not begin with a header of texts") from None
    ends = [tensor["data_offsets"][1] for tensor in header.values() if _is_placed(tensor)]
    _check_length(there, 8 + size + max(ends, default=0))


def _is_placed(tensor: Any) -> bool:
    """Whether a header tells where a tensor ends; what else may be wrong with it safetensors finds."""
    place = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    return isinstance(place, list) and len(place) == 2 and isinstance(place[1], int)


def _check_length(there: int, least: int) -> None:
    """Refuse a file that ends too early, as one does that was not copied or downloaded to its end."""
    if there == 0:
        raise ValueError("it is empty")
    if there < least:
        raise ValueError(
            f"it is damaged: it was cut off, {there:,} bytes are there of at least {least:,}; copy it anew"
        )


def _check_version(metadata: Metadata) -> None:
    """Refuse files of others, and of versions to come."""
    if metadata.get("format") != FORMAT:
        raise ValueError(f"it is no model file: its format is {metadata.get('format')!r:.80}, not {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"it is a model file of version {metadata.get('version')!r:.80}, and shiftsvd {own_version()} reads "
            f"version {VERSION!r}; update with pip install -U shiftsvd"
        )


def parsed(text: str) -> dict[str, Any]:
    """A JSON object, with no name twice and no number that is none."""
    found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise ValueError(f"its header is damaged: an object is wanted, got {text!r:.80}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header is damaged: a name appears twice")
    return found


def _no_constant(name: str) -> None:
    """NaN and Infinity, which are not JSON."""
    raise ValueError(f"its header is damaged: {name} is not a number")


def digest(metadata: Metadata, tensors: Tensors) -> str:
    """A checksum of all texts, and of the name, type, shape and bytes of all tensors."""
    summed = sha256()
    for name in sorted(set(metadata) - {"sha256"}):
        summed.update(f"{name}={metadata[name]}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        summed.update(f"{name} {tensor.dtype.name} {list(tensor.shape)}\n".encode())
        summed.update(np.ascontiguousarray(tensor).data.cast("B") if tensor.size else b"")
    return summed.hexdigest()


def listed(names: Iterable[str]) -> str:
    """Some names for a message."""
    ordered = sorted(names)
    return ", ".join(f"{name!r:.80}" for name in ordered[:5]) + (" ..." if len(ordered) > 5 else "")


def own_version() -> str:
    """The version of this package, which a model file carries."""
    return version("shiftsvd")
