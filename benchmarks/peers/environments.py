"""A virtual environment for every peer, made on first use."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SCIPY = "scipy==1.17.1"
ENVIRONMENTS = {
    "scikit-learn": ["scikit-learn==1.9.1", SCIPY],
    "scipy": [SCIPY],
    "fbpca": ["fbpca==1.0", SCIPY],
    "scranpy": ["scranpy==0.3.1", SCIPY],
    "primme": ["primme==3.2.3", SCIPY],
    "randomized-svd": ["randomized-svd==0.5.0", SCIPY],
    "torch": ["torch==2.13.0", SCIPY],
}
# primme is compiled on the spot and links BLAS and LAPACK: these come from here, whatever the system has.
MKL = ["mkl==2025.2.0"]


class Unavailable(Exception):
    """A peer that could not be installed; says why."""


@cache
def interpreter(name: str, folder: Path) -> Path:
    """The Python of an environment; the running one where no name is given."""
    if not name:
        return Path(sys.executable)
    home, wanted = folder / name, "\n".join(ENVIRONMENTS[name])
    python, stamp = home / "bin" / "python", home / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(ENVIRONMENTS[name])}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", home])
        environment = _with_mkl(python, home / "lib") if name == "primme" else None
        _run([python, "-m", "pip", "install", "-q", *ENVIRONMENTS[name]], environment)
        stamp.write_text(wanted)
    return python


def _with_mkl(python: Path, libraries: Path) -> dict[str, str]:
    """Install MKL, give it the names that a linker looks for, and say where it is."""
    _run([python, "-m", "pip", "install", "-q", *MKL])
    for name in ("libblas.so", "liblapack.so"):
        (libraries / name).symlink_to("libmkl_rt.so.2")
    return {**os.environ, "LDFLAGS": f"-L{libraries} -Wl,-rpath,{libraries}"}


def _run(command: list[str | Path], environment: dict[str, str] | None = None) -> None:
    """Run it, or say what it said last."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        errors = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
        raise Unavailable(f"not installed: {(errors or ['no reason given'])[-1][:200]}")
