"""The kernels on processors of another kind, which an emulator stands for: a program of C++ beside plain loops."""

import shutil
import subprocess

import pytest

from tests.support.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

CPP = ROOT / "src" / "shiftsvd" / "kernels" / "cpp"
# The compiler, what runs its programs, and what the compiler is told besides.
PROCESSORS = {
    "this one": ("g++", None, ("-static",)),
    "this one, watched by ThreadSanitizer": ("g++", None, ("-fsanitize=thread",)),
    "ARM": ("aarch64-linux-gnu-g++", "qemu-aarch64", ("-static",)),
    "ARM, no fused operations": ("aarch64-linux-gnu-g++", "qemu-aarch64", ("-static", "-ffp-contract=off")),
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_kernels_are_plain_loops(processor, tmp_path):
    compiler, emulator, options = PROCESSORS[processor]
    for program in filter(None, (compiler, emulator)):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    kernels = (str(CPP / name) for name in ("rows.cpp", "panels.cpp", "team.cpp"))
    sources = [str(ROOT / "tests" / "kernels" / "kernels_elsewhere.cpp"), *kernels]
    settings = ("-std=c++17", "-O3", "-ffp-contract=fast", *options, "-Wno-psabi", "-pthread", "-DISA=Baseline")
    built = subprocess.run(
        [compiler, *settings, f"-I{CPP}", *sources, "-o", str(tmp_path / "check")], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run([*filter(None, [emulator]), str(tmp_path / "check")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("0 of ")
