"""Run the tests with each fault in the sources, and print which of them they see.

    python -m tests.mutations [--ref REV] [--tests-ref REV] [--every 3] [--only solvers] > tests/mutations/results.md

Each fault is put into a worktree of its own; the tests of the faulty part run with ``-x`` until one fails, or the time
is up. That all tests can be collected is looked at first.
"""

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutations.faults import FAULTS, Fault
from tests.mutations.sources import Tree, checkout, fits, moved
from tests.support.places import ROOT

CAP = 180.0  # seconds of the processor for the tests of one fault
GRACE = 10  # seconds of the processor between being told to end and being killed
SEEN = (1, 2)  # exit codes of pytest: a test has failed, or cannot be collected any more


class Seen(NamedTuple):
    """What the tests made of a fault: the first test that failed, or none in so many seconds of the processor."""

    fault: Fault
    test: str | None
    seconds: float
    ended: bool  # whether all tests ran within the time


def main() -> None:
    asked = _parsed()
    chosen = [fault for fault in FAULTS if asked.only in fault.file][asked.first :: asked.every]
    if asked.seen is not None:
        chosen = _by_table(chosen, asked.seen)
    places = {} if asked.tests_ref == "HEAD" else moved(asked.tests_ref)
    print(f"Sources of {asked.ref}, tests of {asked.tests_ref}; {len(chosen)} of {len(FAULTS)} faults.\n")
    print("| fault | file | seen by | s |\n|---|---|---|---|", flush=True)
    started, seen = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder, checkout(Path(folder, "tree"), asked.ref, asked.tests_ref) as tree:
        if (test := _run(tree, ["--collect-only", "tests"], asked.cap)[0]) is not None:
            raise SystemExit(f"the tests cannot be collected without a fault: {test}")
        for fault in chosen:
            if not fits((tree.sources / fault.file).read_text(), fault):
                print(f"| {fault.what} | `{fault.file}` | not in these sources | |", flush=True)
                continue
            seen.append(found := _seen(tree, fault, places, asked.cap))
            print(_row(found), flush=True)
    caught = sum(each.test is not None for each in seen)
    print(f"\n{caught} of {len(seen)} are seen, in {(time.monotonic() - started) / 60:.0f} minutes.")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ref", default="HEAD", help="revision of the sources")
    parser.add_argument("--tests-ref", default="HEAD", help="revision of the tests")
    parser.add_argument("--only", default="", help="a part of the paths of the faulty files")
    parser.add_argument("--every", type=int, default=1, help="every so many of the faults")
    parser.add_argument("--first", type=int, default=0, help="the place of the first one")
    parser.add_argument("--seen", type=Path, help="a table of before: the tests that saw the faults run first")
    parser.add_argument("--cap", type=float, default=CAP, help="seconds of the processor for the tests of one fault")
    return parser.parse_args()


def _by_table(faults: list[Fault], table: Path) -> list[Fault]:
    """The faults of a table, each with the test that saw it then before the others."""
    cells = [line.strip("| ").split(" | ") for line in table.read_text().splitlines() if line.startswith("| ")]
    tests = {row[0]: row[2].split("`")[1] for row in cells if "::" in row[2]}
    tests = {what: test for what, test in tests.items() if (ROOT / "tests" / test.partition("::")[0]).exists()}
    asked = {row[0] for row in cells}
    return [
        fault._replace(tests=(tests[fault.what], *fault.tests)) if fault.what in tests else fault
        for fault in faults
        if fault.what in asked
    ]


def _seen(tree: Tree, fault: Fault, places: dict[str, list[str]], cap: float) -> Seen:
    """Run the tests of a fault, those that are named first before the others, until one fails."""
    used, ended = 0.0, True
    with tree.with_fault(fault):
        for wanted in fault.tests:
            paths = places.get(f"tests/{wanted}", [f"tests/{wanted}"])
            if not paths:  # a file that was not there then
                continue
            test, seconds, ended = _run(tree, paths, cap - used)
            used += seconds
            if test is not None or not ended:
                return Seen(fault, test, used, ended)
    return Seen(fault, None, used, ended)


def _run(tree: Tree, paths: list[str], left: float) -> tuple[str | None, float, bool]:
    """The first test that fails, the seconds of the processor, and whether the tests came to their end."""
    environment = os.environ | {"SHIFTSVD_KERNELS": "require", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(tree.python), "-m", "pytest", "-q", "-x", "-m", "not long", "-p", "no:cacheprovider", *paths]
    seconds = max(1, round(left))
    limited = [
        "prlimit",
        f"--cpu={seconds}:{seconds + GRACE}",
        *command,
    ]
    before = os.times()
    done = subprocess.run(
        limited,
        cwd=tree.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    if done.returncode < 0 and done.returncode != -signal.SIGXCPU:
        return "a crash", seconds, True
    if done.returncode in SEEN:
        return next(_failed(done.stdout), "before any test"), seconds, True
    if done.returncode > max(SEEN):  # there are no such tests
        raise SystemExit(f"pytest {' '.join(paths)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr}")
    return None, seconds, done.returncode == 0


def _failed(output: str) -> Iterator[str]:
    """The tests that a summary of pytest names."""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            yield line.split(" ")[1].partition("[")[0].removeprefix("tests/")


def _row(seen: Seen) -> str:
    where = f"`{seen.test}`" if seen.test else "**nothing**" if seen.ended else "**nothing in the time**"
    return f"| {seen.fault.what} | `{seen.fault.file}` | {where} | {seen.seconds:.0f} |"


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
