"""Ours and every peer on the benchmark set: time, memory, passes and error; tables, and charts of time against error.

Every run is a process of its own, and the contestants take turns. A run is written down as soon as it is over, so
that a benchmark that was broken off goes on where it stopped. Peers live in environments of their own, made on first
use. Two threads for all.

Run: python -m benchmarks.peers.run [--rows counts,atlas] [--quick], or python -m benchmarks.peers.run --file PATH -k K
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click

from benchmarks.peers import report
from benchmarks.peers.contestants import CONTESTANTS, GOAL, THREADS, Case, Contestant, Search
from benchmarks.peers.environments import Unavailable, interpreter
from benchmarks.peers.rows import ROWS, from_file, matrix_file, prepared
from benchmarks.peers.worker import CAP
from benchmarks.places import ROOT, WORK

HERE = Path(__file__).resolve().parent
OTHER_ROUNDS = 3  # of contestants that no promise names
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Log:
    """What was measured so far: lines of JSON in a file, one for every run."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        records = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        # What could not be installed may be installed now.
        self.records = [r for r in records if not r.get("failed", "").startswith("not installed")]
        self.save()

    def find(self, row: str, name: str) -> list[dict]:
        """The rounds of a contestant on a row."""
        return [r for r in self.records if (r["row"], r["contestant"]) == (row, name) and r["round"] != "search"]

    def searched(self, row: str, name: str, settings: dict) -> dict | None:
        """A run of a search."""
        key = (row, name, settings, "search")
        return next((r for r in self.records if (r["row"], r["contestant"], r["settings"], r["round"]) == key), None)

    def add(self, record: dict) -> dict:
        """Write it down at once."""
        self.records.append(record)
        with self.file.open("a") as out:
            out.write(json.dumps(record) + "\n")
        return record

    def forget(self, row: str, names: list[str]) -> None:
        """Leave out what was measured of these."""
        self.records = [r for r in self.records if r["row"] != row or r["contestant"] not in names]
        self.save()

    def save(self) -> None:
        """Write all of it, which mends a file that broke off within a line."""
        self.file.write_text("".join(json.dumps(r) + "\n" for r in self.records))


class Bench:
    """One row after the other."""

    def __init__(self, work: Path, log: Log) -> None:
        self.work, self.log = work, log

    def row(self, case: Case, names: list[str], rounds: int) -> None:
        """All rounds of a row, the contestants in turn."""
        settings = {name: self.settings(case, name) for name in names}
        for i in range(rounds):
            for name in names:
                done = self.log.find(case.name, name)
                wanted = rounds if CONTESTANTS[name].named else min(rounds, OTHER_ROUNDS)
                if len(done) <= i < wanted and not any("failed" in r for r in done):
                    self.log.add(self.run(case, name, settings[name], i))

    def settings(self, case: Case, name: str) -> dict | str:
        """What a contestant is called with: what a search found, if it has one; or why there is nothing to call."""
        contestant = CONTESTANTS[name]
        if contestant.obstacle(case):
            return contestant.obstacle(case)
        if contestant.search is None:
            return {}
        return self.found(case, name, contestant.search)

    def found(self, case: Case, name: str, search: Search) -> dict | str:
        """The first setting that reaches the goal, by bisection; every try is written down like any run."""
        low, high, best, reason = -1, len(search.values), {}, "1e-4 was not reached"
        while high - low > 1:
            middle = (low + high) // 2
            one = {search.setting: search.values[middle]}
            record = self.log.searched(case.name, name, one) or self.log.add(self.run(case, name, one, "search"))
            reached = "failed" not in record and record["value_error"] <= GOAL
            reason = record.get("failed", reason)
            # A try that took too long is not followed by a costlier one.
            if reached or "minutes" in record.get("failed", ""):
                high = middle
            else:
                low = middle
            best = one if reached else best
        return best or reason

    def run(self, case: Case, name: str, settings: dict | str, number: int | str) -> dict:
        """One process; what it prints, or why there is nothing."""
        record = {"row": case.name, "contestant": name, "round": number, "settings": settings}
        if isinstance(settings, str):
            return {**record, "failed": settings}
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        print(f"{case.name}  {number}  {name}  {said}", end="  ", file=sys.stderr, flush=True)
        record |= self.measured(case, name, settings, CONTESTANTS[name])
        seconds = f"{record['seconds']:.2f} s, error {record['value_error']:.1e}" if "seconds" in record else ""
        print(record.get("failed") or seconds, file=sys.stderr)
        return record

    def measured(self, case: Case, name: str, settings: dict, contestant: Contestant) -> dict:
        """The answer of the worker, or the reason why there is none."""
        home = self.work / case.name
        job = {"file": str(matrix_file(home)), "reference": str(home), "k": case.k}
        job |= {"contestant": name, "settings": settings}
        try:
            python = interpreter(contestant.environment, self.work / "environments")
        except Unavailable as reason:
            return {"failed": str(reason)}
        command = [python, "-m", "benchmarks.peers.worker", json.dumps(job)]
        environment = {**os.environ, **dict.fromkeys(VARIABLES, str(THREADS)), "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode == -signal.SIGALRM:
            return {"failed": f"more than {CAP // 60} minutes"}
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            return {"failed": last[:200] or f"ended by signal {-done.returncode}"}
        return json.loads(done.stdout.splitlines()[-1])


@click.command()
@click.option("--rows", default=",".join(ROWS), help="Names, with commas between them.")
@click.option("--contestants", default="", help="Only those whose names contain one of these, with commas between.")
@click.option("--rounds", default=5, show_default=True, help=f"{OTHER_ROUNDS} at most for those that no promise names.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help=".npz, .npy or .mtx")
@click.option("-k", default=50, show_default=True, help="Components, with --file.")
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="For words and tfidf.")
@click.option("--work", type=click.Path(path_type=Path), default=WORK, help="Data, environments, records.")
@click.option("--results", type=click.Path(path_type=Path), help="Tables and charts, instead of those that are kept.")
@click.option("--quick", is_flag=True, help="A tenth of the rows of every matrix; results go to the work folder.")
@click.option("--fresh", is_flag=True, help="Forget what was measured of these before.")
@click.option("--report-only", is_flag=True, help="Measure nothing; write the tables and charts again.")
def main(rows, contestants, rounds, file, k, text, work, results, quick, fresh, report_only) -> None:
    """Measure, and write the tables and charts after each row."""
    kind = "quick" if quick else "files" if file else ""
    work = work.resolve()
    apart = results or (work / kind if kind else None)
    results, charts = apart or HERE, apart or ROOT / "docs"
    results.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    log = Log((apart or work) / "runs.jsonl")
    names = [name for name in CONTESTANTS if any(part in name for part in contestants.split(","))]
    if unknown := [] if file else [row for row in rows.split(",") if row not in ROWS]:
        raise click.BadParameter(f"no rows {', '.join(unknown)}; there are {', '.join(ROWS)}")
    for row in [] if report_only else [""] if file else rows.split(","):
        case = from_file(file, k, work) if file else prepared(row, quick, work, text)
        if fresh:
            log.forget(case.name, names)
        Bench(work, log).row(case, names, rounds)
        report.write(log.records, work, results, charts)
    if report_only:
        report.write(log.records, work, results, charts)
    print((results / "results.md").read_text())


if __name__ == "__main__":
    main()
