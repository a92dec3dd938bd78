"""A release as it happens: a tag in a clean clone, a local index, and every extra installed from there on every Python.

The index is pypiserver, which sends pip to PyPI for other packages; wheels are built by tools/wheels.py, and a Python that
none of them fits gets the sdist. Prints a line for each installation, and fails if one is not as it should be: the file is
the one that was built, `pip check` finds nothing, what the extra installs and all modules of shiftsvd can be imported, the
kernels are compiled, and the README's first example prints what it shows.
Run: python tools/rehearsal.py --python python3.11 python3.14 [--dist FOLDER] [--extras "" hdf5]
"""

import argparse
import hashlib
import json
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from installs import ROOT, environment, run

TARGET = "manylinux_2_17_x86_64"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What the extra in sys.argv[1] requires is imported, and what of shiftsvd cannot be imported is printed.
IMPORTED = """
import pkgutil, re, sys, warnings
from importlib import import_module, metadata
warnings.simplefilter("error")
import shiftsvd, shiftsvd.kernels
warnings.simplefilter("default")
needed = [line for line in metadata.requires("shiftsvd") if f'extra == "{sys.argv[1]}"' in line]
names = {re.match(r"[\\w.-]+", line)[0].lower() for line in needed} - {"shiftsvd"}
found = {name: {owner.lower() for owner in owners} for name, owners in metadata.packages_distributions().items()}
for name in sorted(name for name, owners in found.items() if owners & names and name.isidentifier() and name[0] != "_"):
    import_module(name)
if sys.argv[1] == "all":
    for module in pkgutil.walk_packages(shiftsvd.__path__, "shiftsvd."):
        import_module(module.name)
"""


def release(folder: Path, pythons: list[str]) -> Path:
    """Build what a tag releases in a clean clone, in its folder dist/."""
    clone, tag = folder / "clone", f"v{PROJECT['version']}"
    run("git", "clone", "-q", "--no-local", ROOT, clone)
    changes = clone / "CHANGELOG.md"
    changes.write_text(changes.read_text("utf-8").replace("(unreleased)", time.strftime("(%Y-%m-%d)"), 1), "utf-8")
    git = ("git", "-C", clone, "-c", "user.name=release", "-c", "user.email=release@localhost")
    run(*git, "commit", "-qam", f"Release {PROJECT['version']}")
    run(*git, "tag", tag)
    first = next((python for python in pythons if version(python) != "3.11"), pythons[0])
    run("make", "-C", clone, "check-tag", "dist", f"TAG={tag}", f"PYTHON={first}")
    for python in {first, *(python for python in pythons if version(python) == "3.11")}:
        own = [f"PYTHON={python}", f"VENV=.venv-{version(python)}"]
        run("make", "-C", clone, "wheels-elsewhere", f"ELSEWHERE={TARGET}", *own)
    print(run("make", "-C", clone, "check-dist", f"PYTHON={first}").stdout, flush=True)
    return clone / "dist"


def version(python: str) -> str:
    """Such as 3.11, with a t for a free-threaded Python."""
    return run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2] + sys.abiflags)").stdout.strip()


@contextmanager
def served(dist: Path, server: Path) -> Iterator[str]:
    """The address of an index of the files in `dist`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    index = subprocess.Popen([server, "run", "-i", "127.0.0.1", "-p", str(port), dist], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/simple/"
    finally:
        index.terminate()
        index.wait()


def installed(python: str, extra: str, index: str, hashes: dict[str, str]) -> list[str]:
    """Install it in a clean environment, and return what is not as it should be."""
    wanted = f"shiftsvd[{extra}]=={PROJECT['version']}"
    with environment(python) as bin_:
        report, own = bin_.parent / "report.json", bin_ / "python"
        pip = [own, "-m", "pip"]
        got = run(*pip, "install", "-q", "--report", report, "--index-url", index, wanted, check=False)
        if got.returncode:
            print(f"{version(python):6} {extra:10} NOT INSTALLED", flush=True)
            return [f"{version(python)} {extra}: {got.stderr.strip().splitlines()[-1]}"]
        installs = json.loads(report.read_text("utf-8"))["install"]
        (ours,) = (each["download_info"] for each in installs if each["metadata"]["name"] == "shiftsvd")
        name = ours["url"].rpartition("/")[2]
        checks = {
            "another file": ours["archive_info"]["hashes"]["sha256"] == hashes.get(name),
            "no kernels": json.loads(run(bin_ / "shiftsvd", "info", "--json").stdout)["kernels"] != "SciPy",
        }
        tried = {
            "pip check": [*pip, "check"],
            "imports": [own, "-c", IMPORTED, extra],
            "README": [own, "-m", "doctest", ROOT / "README.md"],
        }
        for complaint, command in tried.items():
            done = run(*command, check=False)
            checks[f"{complaint}: {' '.join((done.stdout + done.stderr).split())[-300:]}"] = not done.returncode
    wrong = [complaint for complaint, right in checks.items() if not right]
    print(
        f"{version(python):6} {extra:10} {name}, {len(installs)} packages: {'; '.join(wrong) or 'as it should be'}",
        flush=True,
    )
    return [f"{version(python)} {extra}: {complaint}" for complaint in wrong]


def main() -> int:
    """How many things are not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["python3.11", "python3.12", "python3.13", "python3.14"])
    parser.add_argument("--dist", type=Path, help="what was built before, in place of a clone")
    parser.add_argument("--extras", nargs="+", default=["", *PROJECT["optional-dependencies"]])
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        dist = given.dist or release(Path(folder), given.python)
        hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dist.iterdir()}
        with environment(given.python[0]) as bin_:
            run(bin_ / "python", "-m", "pip", "install", "-q", "pypiserver")
            with served(dist, bin_ / "pypi-server") as index:
                pairs = [(python, extra) for python in given.python for extra in given.extras]
                wrong = [line for python, extra in pairs for line in installed(python, extra, index, hashes)]
    print(f"{len(pairs)} installations, {len(wrong)} things not as they should be", *wrong, sep="\n  ")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
