"""Eight tables as people have them: what the command prints of each, and how far its numbers are from those by hand.

    python -m benchmarks.claims.tables [FOLDER]

By hand is `pandas.read_csv` with the settings that somebody has to find out, and scikit-learn's PCA of what that gives.
"""

import json
import shlex
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import CliRunner
from sklearn.decomposition import PCA

from shiftsvd.cli import main
from tests.support.people import PEOPLE, People, spelled


def told(line: list[str]) -> str:
    """What a command prints on stderr, its exit code, and the first numbers."""
    result = CliRunner().invoke(main, line)
    said = "".join(f"    {one}\n" for one in result.stderr.splitlines())
    return f"  $ shiftsvd {shlex.join(line)}   -> {result.exit_code}\n{said}"


def shown(each: People) -> None:
    """One table."""
    each.write(Path(each.name))
    print(each.name, f"({Path(each.name).stat().st_size:,} bytes)")
    print(told(["fit", each.name, "-k", "2"]), end="")
    if each.before:
        print(told(["fit", each.name, "-k", "2", *spelled(each.before)]), end="")
    line = ["fit", each.name, "-k", "2", *spelled(each.options)]
    if each.options:
        print(told(line), end="")
    found = json.loads(CliRunner().invoke(main, [*line, "--json"]).stdout)
    frame = each.by_hand(pd, Path(each.name))
    values = PCA(2, svd_solver="full").fit(frame.to_numpy()).singular_values_
    apart = np.max(np.abs(np.array(found["singular_values"]) / values - 1))
    print(f"  {found['shape'][0]} x {found['shape'][1]:,}; by hand {frame.shape[0]} x {frame.shape[1]:,}; ", end="")
    print(f"singular values {values[0]:.6g}, {values[1]:.6g}, apart by {apart:.0e}\n")


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(sys.argv[1] if len(sys.argv) > 1 else folder)
        for each in PEOPLE:
            shown(each)
        os.chdir("/")
