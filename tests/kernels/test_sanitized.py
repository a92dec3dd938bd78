"""The tests of the compiled kernels again, by kernels that AddressSanitizer watches."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

KERNELS = ROOT / "tests" / "kernels"
NAME = "shiftsvd.kernels._compiled"
SETS = ("avx512", "avx2", "baseline")

# Python reads this when it starts, in every process; it puts the watched extension in place of the installed one.
FINDER = """
import sys
from importlib.util import spec_from_file_location

class Watched:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return spec_from_file_location(name, {path!r}) if name == {name!r} else None

sys.meta_path.insert(0, Watched)
"""

OVERRUN = """
import numpy as np
from numpy.lib.stride_tricks import as_strided
from shiftsvd.kernels import _compiled
data = as_strided(np.ones(4), (5000,))  # says that it is longer than it is
V, Y = np.ones((1, 4)), np.empty((1, 4))
_compiled.gather(data, np.zeros(5000, np.int32), np.array([0, 5000], np.int32), 0, 1, V, Y)
print("nobody saw it")
"""


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def _library(compiler: str, name: str) -> str | None:
    """The path of a runtime library of the compiler, if it has that."""
    found = _run(compiler, f"-print-file-name={name}").stdout.strip()
    return found if os.path.isabs(found) else None


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A folder with the extension, built once under AddressSanitizer."""
    # CMake may be installed beside Python, where PATH does not lead.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    compiler, cmake = shutil.which("g++"), shutil.which("cmake", path=path)
    if not sys.platform.startswith("linux") or compiler is None or cmake is None:
        pytest.skip("needs Linux with g++ and cmake")
    if find_spec("nanobind") is None:
        pytest.skip("needs nanobind")
    if _library(compiler, "libasan.so") is None:
        pytest.skip("needs libasan")
    folder = tmp_path_factory.mktemp("sanitized")
    options = ("-DSHIFTSVD_SANITIZE=ON", f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_CXX_COMPILER={compiler}")
    for command in (("-S", str(ROOT), "-B", str(folder), *options), ("--build", str(folder), "-j2")):
        done = _run(cmake, *command)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def watched(build):
    """Runs Python with the sanitized extension."""
    (extension,) = build.glob("_compiled*.so")
    (build / "sitecustomize.py").write_text(FINDER.format(path=str(extension), name=NAME))
    # The runtime of C++ too: without it the sanitizer finds no function that throws an exception.
    libraries = [_library("g++", name) for name in ("libasan.so", "libstdc++.so")]
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(build), os.environ.get("PYTHONPATH")])),
        "LD_PRELOAD": " ".join(filter(None, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return _run(sys.executable, *arguments, **environment, **more)

    where = run("-c", f"import {NAME} as extension; print(extension.__file__)")
    assert where.stdout.strip() == str(extension), where.stdout + where.stderr
    return run


@pytest.mark.parametrize("isa", SETS)
def test_the_sanitizer_sees_a_read_past_the_end(watched, isa):
    done = watched("-c", OVERRUN, SHIFTSVD_ISA=isa)
    assert done.returncode != 0
    assert "ERROR: AddressSanitizer" in done.stderr
    assert "nobody saw it" not in done.stdout


@pytest.mark.parametrize("isa", SETS)
def test_no_kernel_reads_or_writes_outside_its_arrays(watched, isa):
    apart = ("test_sanitized.py", "test_elsewhere.py")  # which compile them on their own
    tests = [str(path) for path in sorted(KERNELS.glob("test_*.py")) if path.name not in apart]
    options = ("-q", "-p", "no:cacheprovider", "-o", "timeout=900")
    done = watched("-m", "pytest", *options, *tests, SHIFTSVD_ISA=isa, SHIFTSVD_KERNELS="require")
    output = done.stdout + done.stderr
    assert "AddressSanitizer" not in output, output[-5000:]
    assert done.returncode == 0, output[-5000:]
    assert " passed" in output
    assert " skipped" not in output


def test_no_instruction_set_lends_another_its_code(build):
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    shared = {}
    for path in build.glob("CMakeFiles/kernels_*.dir/**/*.cpp.o"):
        lines = [line.split() for line in _run("nm", "--defined-only", str(path)).stdout.splitlines()]
        # The linker keeps one of all weak functions of a name, whichever set it was compiled for.
        for name in (line[-1] for line in lines if line[-2] in "TWu"):
            shared.setdefault(name, []).append(path.parts[-5])
    assert len(shared) >= 10
    assert {name: where for name, where in shared.items() if len(where) > 1} == {}
