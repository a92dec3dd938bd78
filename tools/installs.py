"""Installations as they happen, each in a clean environment: of wheels, and of the sdist with compilers good and bad.

Prints what pip was given, the kernels that `shiftsvd info` names, and whether the README's lines print what it shows. A
last case runs the command that `info` names where kernels are missing. Fails if one is not as it should be.
Run: python tools/installs.py dist/*.tar.gz dist/*.whl [--python python3.11 python3.12 python3.13]
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NO_COMPILER = {"CC": "no-such-compiler", "CXX": "no-such-compiler"}
REFUSING = '#!/bin/sh\ncase "$*" in *rows.cpp*) echo "refused: rows.cpp" >&2; exit 1;; esac\nexec c++ "$@"\n'


class Case(NamedTuple):
    """An installation: what pip is given, with which variables, and whether kernels should come of it."""

    title: str
    python: str
    given: str
    environment: dict[str, str]
    compiled: bool


def run(
    *command: str | Path, check: bool = True, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it without what this environment says of kernels."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTSVD")}
    done = subprocess.run(command, env=clean | (variables or {}), capture_output=True, text=True, cwd=ROOT.parent)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


@contextmanager
def environment(python: str) -> Iterator[Path]:
    """The programs of a new virtual environment, which is removed again."""
    with TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        yield Path(folder) / "bin"


def without_headers(python: str, folder: Path) -> str:
    """A Python as it is, but for its headers."""
    prefix = Path(run(python, "-c", "import sys; print(sys.base_prefix)").stdout.strip())
    folder.mkdir()
    for name in ("bin", "lib"):
        (folder / name).mkdir()
    for part in (prefix / "lib").iterdir():
        (folder / "lib" / part.name).symlink_to(part)
    return shutil.copy(run(python, "-c", "import sys; print(sys.executable)").stdout.strip(), str(folder / "bin"))


def say(case: Case, bin_: Path) -> bool:
    """Print what came of a case; whether it is what should have."""
    facts = json.loads(run(bin_ / "shiftsvd", "info", "--json").stdout)
    readme = run(bin_ / "python", "-m", "doctest", ROOT / "README.md", check=False)
    print(f"{case.title}\n  kernels: {facts['kernels']}; README: {'as shown' if not readme.returncode else 'FAILED'}")
    first = run(bin_ / "python", "-c", "import shiftsvd; shiftsvd.svd([[1.0, 2.0], [3.0, 5.0]], 1)").stderr.strip()
    print(f"  first use: {first or '(silent)'}", flush=True)
    return (facts["kernels"] != "SciPy") == case.compiled and not readme.returncode and bool(first) != case.compiled


def installed(case: Case) -> bool:
    """Install it in a clean environment; whether what should came of it."""
    with environment(case.python) as bin_:
        run(bin_ / "python", "-m", "pip", "install", "-q", case.given, variables=case.environment)
        return say(case, bin_)


def refused(sdist: str, python: str) -> bool:
    """Whether an installation that requires kernels fails without a compiler."""
    with environment(python) as bin_:
        pip = (bin_ / "python", "-m", "pip", "install", "-q", "--no-deps", sdist)
        done = run(*pip, check=False, variables={"SHIFTSVD_KERNELS": "require", **NO_COMPILER})
    print(f"{python}, sdist, no compiler, SHIFTSVD_KERNELS=require")
    print(f"  pip: {'failed, as it should' if done.returncode else 'DID NOT FAIL'}", flush=True)
    return done.returncode != 0


def mended(sdist: str, python: str) -> bool:
    """Whether the command that `info` names builds the kernels, once there is a compiler."""
    case = Case(f"{python}, sdist, a compiler that came later", python, sdist, NO_COMPILER, compiled=True)
    with environment(python) as bin_:
        run(bin_ / "python", "-m", "pip", "install", "-q", sdist, variables=NO_COMPILER)
        lacking = json.loads(run(bin_ / "shiftsvd", "info", "--json").stdout)["kernels_lacking"]
        command = lacking.partition("then: ")[2]
        run("sh", "-c", f'PATH="{bin_}:$PATH"; {command} -q')
        print(f"  $ {command}")
        return say(case, bin_)


def cases(sdists: list[str], wheels: list[str], pythons: list[str], folder: Path) -> Iterator[Case]:
    """Each wheel on each Python that takes it; the sdist with compilers good and bad on one."""
    for python in pythons:
        tag = run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").stdout.strip()
        here = [wheel for wheel in wheels if wheel.endswith(f"{platform.machine()}.whl") and "musl" not in wheel]
        for wheel in (wheel for wheel in here if tag in wheel or (tag != "cp311" and "abi3" in wheel)):
            yield Case(f"{python}, {Path(wheel).name}, no compiler", python, wheel, NO_COMPILER, compiled=True)
    refusing = folder / "c++"
    refusing.write_text(REFUSING)
    refusing.chmod(0o755)
    for sdist in sdists:
        python, bare = pythons[-1], without_headers(pythons[-1], folder / "bare")
        yield Case(f"{python}, sdist, no compiler", python, sdist, NO_COMPILER, compiled=False)
        yield Case(f"{python}, sdist, no headers of Python", bare, sdist, {}, compiled=False)
        refusal = {"CXX": str(refusing)}
        yield Case(f"{python}, sdist, a compiler that refuses rows.cpp", python, sdist, refusal, compiled=False)
        good = {"SHIFTSVD_KERNELS": "require"}
        yield Case(f"{python}, sdist, a good compiler", python, sdist, good, compiled=True)


def main() -> int:
    """How many installations were not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", nargs="+", default=["python3.11", "python3.12", "python3.13"])
    given = parser.parse_args()
    files = [str(path.resolve()) for path in given.files]
    sdists, wheels = ([file for file in files if file.endswith(end)] for end in (".tar.gz", ".whl"))
    with TemporaryDirectory() as folder:
        failed = [case.title for case in cases(sdists, wheels, given.python, Path(folder)) if not installed(case)]
    for sdist in sdists:
        failed += [check.__name__ for check in (refused, mended) if not check(sdist, given.python[-1])]
    print(f"{len(failed)} not as they should be{': ' if failed else ''}{'; '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
