"""The tests of the kernels, operators and determinism on a wheel for ARM, whose processor qemu stands for.

Python for ARM and its C library are packages of Debian, unpacked in build/aarch64 and not installed; what the package
needs comes as wheels of PyPI for ARM. Needs Debian or Ubuntu with apt and qemu-user.
Run: python tools/emulated.py WHEEL [TEST...]
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build" / "aarch64"
RELEASE, PYTHON = "trixie", "python3.13"
# One that there is. With all that qemu knows of, which is its default, tests take six times as long, and OpenBLAS picks
# kernels for SME whose products are wrong there (qemu 7.2, OpenBLAS 0.3.34).
PROCESSOR = "neoverse-n1"
TESTS = ["tests/kernels", "tests/algebra/test_operators.py", "tests/runs/test_determinism.py"]
NEEDED = ["numpy", "scipy", "scikit-learn", "threadpoolctl", "click", "rich", "filelock"]
TESTING = ["pytest", "pytest-timeout", "hypothesis", "pandas", "polars"]


def apt(*arguments: str) -> None:
    """apt-get with lists and archives of its own, for ARM, knowing of nothing installed."""
    (HOME / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (HOME / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    sources = HOME / "sources.list"
    sources.write_text(f"deb [arch=arm64 trusted=yes] http://deb.debian.org/debian {RELEASE} main\n")
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": HOME / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": HOME,
        "Dir::Cache::Archives": HOME / "archives",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "0",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    subprocess.run(["apt-get", "-qq", *options, *arguments], check=True)


def unpack() -> Path:
    """A root folder with Python for ARM in it, made on first use."""
    root = HOME / "root"
    if not (root / "lib").exists():
        apt("update")
        apt("install", "-y", "--download-only", PYTHON, "libstdc++6")
        for archive in (HOME / "archives").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(root)], check=True)
        (root / "lib").symlink_to("usr/lib")
    return root


def site(wheel: str) -> Path:
    """A folder with the wheel and all that it and the tests need, for ARM."""
    folder = HOME / "site"
    tags = [f"--platform=manylinux{tag}_aarch64" for tag in ("2014", "_2_17", "_2_27", "_2_28")]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(folder)]
    version = PYTHON.removeprefix("python")
    foreign = [*pip, *tags, "--python-version", version, "--implementation=cp", "--only-binary=:all:"]
    if not folder.exists():
        subprocess.run([*foreign, *NEEDED, *TESTING], check=True)
    subprocess.run([*foreign, "--no-deps", wheel], check=True)
    return folder


def emulated(root: Path, folder: Path) -> str:
    """A script that is Python for ARM: what it starts as `sys.executable` runs in qemu, too, which no kernel does."""
    script = HOME / "python"
    script.write_text(f'#!/bin/sh\nexec qemu-aarch64 -cpu {PROCESSOR} -L "{root}" "{root}/usr/bin/{PYTHON}" "$@"\n')
    script.chmod(0o755)
    (folder / "sitecustomize.py").write_text(f"import sys\n\nsys.executable = {str(script)!r}\n")
    return str(script)


def main(wheel: str, tests: list[str]) -> int:
    """Run the tests; what pytest returns."""
    root, folder = unpack(), site(str(Path(wheel).resolve()))
    python = emulated(root, folder)
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "SHIFTSVD_KERNELS": "require",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    told = (
        "import shiftsvd, platform, shiftsvd.kernels as k; print(platform.machine(), k.instruction_set(), k.__file__)"
    )
    subprocess.run([python, "-c", told], env=environment, check=True, cwd=HOME)
    options = ["-q", "-p", "no:cacheprovider", "-o", "timeout=1800", "-m", "not long and not slow"]
    return subprocess.run([python, "-m", "pytest", *options, *tests], env=environment, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] or TESTS))
