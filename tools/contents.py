"""Whether what is released holds what it should: wheels kernels and no sources, the sdist tests and nothing built.

Prints the size of each file and how many are in it, and what is wrong. Run: python tools/contents.py dist/*
"""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

COMPILED = r"\.(so|pyd|dylib)$"
SOURCES = r"\.(cpp|hpp|c|h|o)$"
ROOMS = r"/\.(venv[^/]*|git|github|ci)/|__pycache__"


def names(path: Path) -> list[str]:
    """The files in a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.namelist()
    with tarfile.open(path) as sdist:
        return [member.name for member in sdist.getmembers() if member.isfile()]


def wrong(path: Path, held: list[str]) -> list[str]:
    """What should not be in there, and what should and is not."""
    wheel = path.suffix == ".whl"
    refused = f"{SOURCES}|{ROOMS}|^tests/" if wheel else f"{COMPILED}|{ROOMS}"
    needed = [r"/py\.typed$", r"LICENSE$", r"/device/chunks\.cu$"] + (
        [f"kernels/_compiled.*{COMPILED}", r"dist-info/sboms/.*\.json$", r"/licenses/.*LICENSES\.txt$"]
        if wheel
        else [r"/tests/conftest\.py$", r"rows\.cpp$", r"/Makefile$"]
    )
    extra = [f"{name} does not belong there" for name in held if re.search(refused, name)]
    return extra + [f"nothing is named {rule}" for rule in needed if not any(re.search(rule, name) for name in held)]


def main(paths: list[Path]) -> int:
    """How many things are wrong."""
    failed = 0
    for path in paths:
        held = names(path)
        complaints = wrong(path, held)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {len(held)} files", *complaints, sep="\n  ")
        failed += len(complaints)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
