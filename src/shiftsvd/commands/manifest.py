"""result.json as the last word of a folder: hashes of the files beside it, and whether they are those files still."""

import json
import warnings
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, TypeVar, overload

from shiftsvd.model_file import load_model
from shiftsvd.runs.outputs import Outputs

NAME: Final = "result.json"
HASHES: Final = "sha256"
# Files up to so many bytes are held against their hashes; larger ones would take longer than what is asked for.
MOST: Final = 2**26
Model = TypeVar("Model")
Other = TypeVar("Other")


def write(document: dict[str, Any], outputs: Outputs, paths: dict[str, Path]) -> None:
    if not paths:
        return
    home = paths["result"].parent
    beside = sorted(path for path in paths.values() if path.parent == home and path.name != NAME)
    document[HASHES] = {path.name: _hash(outputs.part(path)) for path in beside}
    outputs.part(paths["result"]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@overload
def model_in(path: str | Path, kind: type[Model]) -> Model: ...


@overload
def model_in(path: str | Path, kind: type[Model], other: type[Other]) -> Model | Other: ...


def model_in(path: str | Path, kind: type[Any], other: type[Any] | None = None) -> Any:
    model = load_model(path, kind if other is None else (kind, other))
    folder = Path(path).parent
    if others := _changed(folder):
        warnings.warn(
            f"{', '.join(others)} in {folder} {'is' if len(others) == 1 else 'are'} not of the run that {NAME} tells of"
            " (files were replaced, or a run was broken off); repeat the fit with --force to have them of one run",
            stacklevel=2,
        )
    return model


def _changed(folder: Path) -> list[str]:
    found = []
    for name, known in _known(folder / NAME).items():
        file = folder / Path(name).name
        try:
            if file.is_file() and file.stat().st_size <= MOST and _hash(file) != known:
                found.append(file.name)
        except OSError:  # it may not be read, as by another user
            continue
    return found


def _known(manifest: Path) -> dict[str, str]:
    try:
        if not manifest.is_file() or manifest.stat().st_size > MOST:
            return {}
        told = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    hashes = told.get(HASHES) if isinstance(told, dict) else None
    return hashes if isinstance(hashes, dict) else {}


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, HASHES).hexdigest()
