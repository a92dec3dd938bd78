"""The tests that need packages of other fields, each set in an environment of its own, made on first use.

oldest: the oldest AnnData that is supported with what goes with it, on Python 3.11. newest: the newest, on 3.13.
fields: xeofs and eofs. ordination: prince and scikit-bio. A test that is skipped because a package is missing counts as
failed. Run: python -m benchmarks.peers.companions [oldest] [newest] [fields] [ordination]
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.places import ROOT, WORK

FOLDER = WORK / "environments"
EXTRAS = "hdf5,zarr,xarray,anndata,dask,plot"
# With a later pynndescent, neighbours and ingest of scanpy 1.11 fail.
SCANPY = ["scanpy==1.11.5", "pynndescent<0.6"]


class Companions(NamedTuple):
    """An environment, and the tests that are for it."""

    python: str  # found on the path
    packages: list[str]
    tests: list[str]


SETS = {
    "oldest": Companions(
        "python3.11",
        ["anndata==0.12.0", "numpy==2.0.*", "scikit-learn==1.7.*", "pandas==2.2.*", *SCANPY],
        ["scanpy/test_scanpy.py", "scanpy/test_stored.py", "scanpy/test_projection.py"],
    ),
    "newest": Companions(
        "python3.13",
        ["anndata", "scanpy", "scikit-bio", "scikit-misc"],
        [
            "scanpy/test_scanpy.py",
            "scanpy/test_stored.py",
            "scanpy/test_projection.py",
            "scanpy/test_covariates.py",
            "scanpy/test_preprocess.py",
            "scanpy/test_genes.py",
            "scanpy/test_ranking.py",
            "transforms/test_peers.py",
        ],
    ),
    "fields": Companions(
        sys.executable,
        ["xeofs==3.0.6", "statsmodels", "eofs==2.0.0", "cftime"],
        ["xarray/test_xarray.py", "xarray/test_rotation.py", "xarray/test_labels.py", "xarray/test_several.py"],
    ),
    "ordination": Companions(
        sys.executable,
        ["prince==0.23.0", "scikit-bio==0.7.4"],
        ["estimators/test_correspondence.py", "estimators/test_multiple.py", "estimators/test_pcoa.py"],
    ),
    "tutorial": Companions(sys.executable, SCANPY, ["scanpy/test_scanpy.py"]),
}


def interpreter(name: str) -> Path:
    """The Python of an environment with this package, as it stands here, in it."""
    wanted = SETS[name]
    home = FOLDER / name
    python, stamp = home / "bin" / "python", home / "installed.txt"
    # A changed line is seen where the package lies, a new file only after an installation.
    files = sorted(str(path) for path in (ROOT / "src").rglob("*.[pch]*") if path.suffix != ".pyc")
    told = "\n".join([wanted.python, EXTRAS, *wanted.packages, *files])
    if not stamp.exists() or stamp.read_text() != told:
        print(f"installing {', '.join(wanted.packages)} for {wanted.python}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([wanted.python, "-m", "venv", home], check=True)
        pip = [python, "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "pip>=25.1"], check=True)
        subprocess.run([*pip, "-e", f".[{EXTRAS}]", "--group", "test", *wanted.packages], check=True, cwd=ROOT)
        stamp.write_text(told)
    return python


def passed(name: str) -> bool:
    """Run the tests of a set, and print what they say."""
    files = [f"tests/{file}" for file in SETS[name].tests]
    print(f"\n{name}: {', '.join(SETS[name].packages)}", flush=True)
    try:
        command = [interpreter(name), "-m", "pytest", "-q", *files]
    except (OSError, subprocess.CalledProcessError) as error:  # the other sets can still tell something
        print(f"not installed: {error}", flush=True)
        return False
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    return done.returncode == 0 and "could not import" not in done.stdout


def main(names: list[str]) -> int:
    """How many of these sets failed."""
    return sum(not passed(name) for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["oldest", "newest", "fields", "ordination"]))
