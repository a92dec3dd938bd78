"""The oldest versions that pyproject.toml allows, as constraints for pip: `numpy>=2.0` becomes `numpy==2.0`.

Of the dependencies, all extras and what the package is built with, and of what those need.
Run: python tools/oldest.py > constraints.txt
"""

import re
import tomllib
from itertools import chain
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

# What those need in turn, and what tests need, comes as new as it may; but Matplotlib 3.10.0 calls what pyparsing 3.3
# warns of, and scikit-learn knows the names of columns of Polars 2 from 1.9 on.
BESIDE = {"pyparsing": "3.2", "polars": "1.20"}


def bounds() -> dict[str, str]:
    """The lower bound of each package that has one."""
    said = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    extras = said["project"]["optional-dependencies"].values()
    requirements = chain(said["build-system"]["requires"], said["project"]["dependencies"], *extras)
    found = [re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement) for requirement in requirements]
    return {match[1]: match[2] for match in found if match}


def main() -> None:
    """Print a line for each package."""
    for name, version in (bounds() | BESIDE).items():
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
