"""The walk of a fit through the source: calls, files, depth, files that call each other, and those entered again.

    python -m benchmarks.structure.walk [--path] [--show]

With --path, the functions in the order of their first calls, indented by depth.

Calls of functions of the package by the calling thread; changes of file, where the caller is in another one. Depth:
the most frames of the package on its stack. Both ways: pairs of files of which each calls functions of the other.
Entered again: a file that calls another, which calls it back, both still on the stack.
"""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import scipy.sparse as sp

import shiftsvd as ss

ROOT = str(Path(ss.__file__).parent)


class Walk:
    """What a profiler sees of the frames of the package."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.functions: Counter[str] = Counter()
        self.path: list[str] = []
        self.changes = 0
        self.deepest: list[str] = []
        self.calls: set[tuple[str, str]] = set()
        self.again: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        stack = []
        here: FrameType | None = frame
        while here is not None:
            if here.f_code.co_filename.startswith(ROOT):
                stack.append(f"{here.f_code.co_filename[len(ROOT) + 1 :]}:{here.f_code.co_name}")
            here = here.f_back
        stack.reverse()
        self.n_calls += 1
        if stack[-1] not in self.functions:
            self.path.append(f"{'  ' * (len(stack) - 1)}{stack[-1]}")
        self.functions[stack[-1]] += 1
        self.changes += len(stack) > 1 and stack[-1].split(":")[0] != stack[-2].split(":")[0]
        files = [name for name, _ in groupby(entry.split(":")[0] for entry in stack)]
        if len(stack) > len(self.deepest):
            self.deepest = stack
        if len(files) > 1:
            self.calls.add((files[-2], files[-1]))
            if files[-1] in files[:-1]:
                self.again.add(" > ".join(files[files.index(files[-1]) :]))

    def both_ways(self) -> list[str]:
        return sorted(f"{a} <-> {b}" for a, b in self.calls if a < b and (b, a) in self.calls)


def walked(fit: Callable[[], object]) -> Walk:
    """The walk of the second fit: imports and caches are those of the first."""
    fit()
    walk = Walk()
    sys.setprofile(walk)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return walk


def fits(folder: Path) -> dict[str, Callable[[], object]]:
    """Fits of a sparse matrix, a file, a Dask array, and the command's of a file; `transform` of 100 rows."""
    import anndata
    import dask.array as da
    from click.testing import CliRunner

    from shiftsvd.cli import main

    rng = np.random.default_rng(0)
    X = sp.random_array((3000, 400), density=0.05, rng=rng, format="csr")
    anndata.AnnData(X).write_h5ad(folder / "x.h5ad")
    D = da.from_array(rng.standard_normal((2000, 300)), chunks=(500, 300))

    def command() -> object:
        args = [
            "fit",
            str(folder / "x.h5ad"),
            "-k",
            "5",
            "--solver",
            "lanczos",
            "--memory",
            "12M",
            "-o",
            str(folder / "out"),
        ]
        ran = CliRunner().invoke(main, [*args, "--force", "--no-report"])
        assert ran.exit_code == 0, ran.output
        return ran

    np.save(folder / "x.npy", rng.standard_normal((2000, 300)))
    pca, rows = ss.PCA(50, random_state=0).fit(X), X[:100]

    def of_file() -> object:
        A, _ = ss.io.open_matrix(folder / "x.npy", memory_limit="3M")
        return ss.svd(A, 5, shift="mean", solver="lanczos", rng=0)

    return {
        "transform of 100 rows": lambda: pca.transform(rows),
        "svd(file)": of_file,
        'PCA(50, solver="lanczos").fit(csr)': lambda: ss.PCA(50, solver="lanczos", random_state=0).fit(X),
        "svd(dask)": lambda: ss.svd(D, 5, shift="mean", solver="lanczos", rng=0),
        "shiftsvd fit x.h5ad": command,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", action="store_true", help="the functions in the order of their first calls")
    parser.add_argument("--show", action="store_true", help="the deepest stack, and what is entered again")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name, fit in fits(Path(folder)).items():
            walk = walked(fit)
            pairs = walk.both_ways()
            files = {name.split(":")[0] for name in walk.functions}
            print(
                f"{name}: {walk.n_calls:,} calls of {len(walk.functions)} functions in {len(files)} files, "
                f"{walk.changes:,} changes of file, depth {len(walk.deepest)}, {len(pairs)} pairs both ways, "
                f"{len(walk.again)} entered again"
            )
            print("".join(f"    {pair}\n" for pair in pairs), end="")
            print("".join(f"    {line}\n" for line in walk.path if args.path), end="")
            if args.show:
                print("".join(f"    {n:,} times {name}\n" for name, n in walk.functions.most_common(30)), end="")
                print("".join(f"    again: {way}\n" for way in sorted(walk.again)), end="")
                print("".join(f"    {depth:2} {entry}\n" for depth, entry in enumerate(walk.deepest, 1)), end="")


if __name__ == "__main__":
    main()
