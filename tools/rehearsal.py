"""A release as it happens: a tag in a clean clone, a local index, and each extra installed from there on each Python.

The index is pypiserver, which sends installers to PyPI for other packages; wheels are built by tools/wheels.py, and uv
installs them, because pip takes an hour. Prints a line for each installation. It is as it should be if its files are
those of a wheel that was built, no requirement is missing, what the extra installs and all modules of shiftsvd can be
imported without warnings of shiftsvd, kernels are compiled, and the README's first example prints what it shows.
Run: python tools/rehearsal.py --python python3.11 python3.14 [--dist FOLDER] [--extras "" hdf5]
"""

import argparse
import json
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from installs import ROOT, environment, run

TARGET = "manylinux_2_17_x86_64"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED = """
import pkgutil, re, sys, warnings
from importlib import import_module, metadata
warnings.simplefilter("error")
import shiftsvd, shiftsvd.kernels
warnings.simplefilter("default")
extra = "extra ==" if sys.argv[1] == "all" else f'extra == "{sys.argv[1]}"'
needed = {re.match(r"[\\w.-]+", line)[0] for line in metadata.requires("shiftsvd") if extra in line}
there = {name for owners in metadata.packages_distributions().values() for name in owners}
for name in sorted(set.intersection(*({name.lower().replace("-", "_") for name in some} for some in (needed, there)))):
    import_module(name)
for module in pkgutil.walk_packages(shiftsvd.__path__, "shiftsvd.") if sys.argv[1] == "all" else ():
    try:
        import_module(module.name)
    except ModuleNotFoundError as error:  # of a package without an extra, such as CuPy
        if error.name.startswith("shiftsvd"):
            raise
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
    make = ("make", "-C", clone)
    versions = {version(python): python for python in pythons}
    first = next((python for name, python in versions.items() if name not in ("3.11", "3.13t", "3.14t")), pythons[0])
    run(*make, "check-tag", "dist", f"TAG={tag}", f"PYTHON={first}")
    for name in {version(first), *({"3.11"} & set(versions))}:  # one wheel for all versions from 3.12 on
        own = (f"PYTHON={versions[name]}", f"VENV=.venv{'' if versions[name] == first else f'-{name}'}")
        run(*make, "wheels-elsewhere", f"ELSEWHERE={TARGET}", *own)
    print(run(*make, "check-dist", f"PYTHON={first}").stdout, flush=True)
    return clone / "dist"


def version(python: str) -> str:
    """Such as 3.11, with a t for a free-threaded Python."""
    return run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2] + sys.abiflags)").stdout.strip()


@contextmanager
def served(dist: Path, bin_: Path) -> Iterator[str]:
    """The address of an index of the files in `dist`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [bin_ / "pypi-server", "run", "-i", "127.0.0.1", "-p", port, dist]
    index = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/simple/"
    finally:
        index.terminate()
        index.wait()


def is_of(wheel: Path, site: Path) -> bool:
    """Whether the installed files are those of the wheel."""
    with zipfile.ZipFile(wheel) as held:
        names = [name for name in held.namelist() if not name.endswith(("RECORD", "/"))]
        return all((site / name).is_file() and (site / name).read_bytes() == held.read(name) for name in names)


def installed(python: str, extra: str, index: str, dist: Path, uv: Path) -> list[str]:
    """Install it in a clean environment, and return what is not as it should be."""
    title, began = f"{version(python):6} {extra or '(none)':10}", time.monotonic()
    with TemporaryDirectory() as folder:
        own = Path(folder) / "bin" / "python"
        run(uv, "venv", "-q", "--allow-existing", "--python", python, folder)
        wanted = f"shiftsvd[{extra}]=={PROJECT['version']}"
        how = ("-q", "--python", own, "--index-url", index, "--refresh-package", "shiftsvd")
        got = run(uv, "pip", "install", *how, wanted, check=False)
        if got.returncode:
            print(f"{title}: NOT INSTALLED: {' '.join(got.stderr.split())[:300]}", flush=True)
            return [f"{title}: not installed"]
        site = Path(run(own, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").stdout.strip())
        wheels = [wheel.name for wheel in dist.glob("*.whl") if is_of(wheel, site)]
        tried = {
            "requirements": (uv, "pip", "check", "--python", own),
            "imports": (own, "-c", IMPORTED, extra),
            "README": (own, "-m", "doctest", ROOT / "README.md"),
        }
        done = {name: run(*command, check=False) for name, command in tried.items()}
        kernels = json.loads(run(own.with_name("shiftsvd"), "info", "--json").stdout)["kernels"]
    said = {name: " ".join((each.stdout + each.stderr).split()) for name, each in done.items() if each.returncode}
    wrong = [f"{name}: {text[-300:]}" for name, text in said.items()]
    wrong += [] if wheels else ["files of no wheel"]
    wrong += ["no kernels"] if kernels == "SciPy" else []
    told = "; ".join(wrong) or "as it should be"
    print(f"{title}: {', '.join(wheels)}, {kernels}, {time.monotonic() - began:.0f} s: {told}", flush=True)
    return [f"{title}: {complaint}" for complaint in wrong]


def main() -> int:
    """How many things are not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["python3.11", "python3.12", "python3.13", "python3.14"])
    parser.add_argument("--dist", type=Path, help="what was built before, in place of a clone")
    parser.add_argument("--extras", nargs="+", default=["", *PROJECT["optional-dependencies"]])
    given = parser.parse_args()
    with TemporaryDirectory() as folder, environment(given.python[0]) as bin_:
        dist = given.dist or release(Path(folder), given.python)
        run(bin_ / "python", "-m", "pip", "install", "-q", "pypiserver", "uv")
        with served(dist, bin_) as index:
            pairs = [(python, extra) for python in given.python for extra in given.extras]
            wrong = [line for python, extra in pairs for line in installed(python, extra, index, dist, bin_ / "uv")]
    print(f"{len(pairs)} installations, {len(wrong)} things not as they should be", *wrong, sep="\n  ")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
