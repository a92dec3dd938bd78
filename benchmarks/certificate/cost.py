"""What an answer to a tolerance costs: columns by precision, passes, seconds, memory, and how wrong it really is.

50 components after the column means, by `BlockLanczos`, of the data in sets.py; single precision data also in double.
Columns: widths of all panels that are multiplied with the data, s in single and d in double precision, "14x16s" for
fourteen of 16. Rounds take turns, each in a fresh process; with several --python (other versions, installed elsewhere)
these take turns too. Peak memory is that of a process that does one fit. Minutes a set.

Run: python -m benchmarks.certificate.cost [--sets counts,pbmc10k] [--tols 1e-1,1e-4] [--rounds 5] [--python A ...]
"""

import json
import subprocess
import sys
import time
import warnings

import click
import numpy as np

HEAD = f"{'set':8} {'data':7} {'tol':>6} {'passes':>6} {'single':>6} {'double':>6} {'seconds':>8} {'peak MB':>7} "
HEAD += f"{'error':>8} {'bound':>8} {'conv':>5} {'missed/s_k':>10}  widths"
ALL = "pbmc10k,bladder,counts,noise,words,tfidf,genes"


def cases(tols: list[float], single: bool) -> list[tuple[float, str]]:
    """(tolerance, dtype): as the data are, and single ones in double where double precision is needed anyway."""
    dtype = "float32" if single else "float64"
    return [(tol, dtype) for tol in tols] + [(tol, "float64") for tol in tols if single and tol <= 1e-5]


def fit(X, dtype: str, tol: float, seed: int) -> tuple[object, float]:
    """One fit, and its seconds."""
    import shiftsvd as ss
    from benchmarks.certificate.sets import K

    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = ss.svd(X, K, shift="mean", solver=ss.BlockLanczos(tol=tol), rng=seed)
    return F, time.perf_counter() - started


def worker(name: str, which: list[tuple[float, str]], measure: str, seed: int) -> None:
    """The cases in this process; prints one line of JSON each."""
    from benchmarks.certificate import sets
    from benchmarks.certificate.counted import counted
    from benchmarks.certificate.sets import K

    kept = sets.load(name)
    cast = {dtype: kept.astype(dtype) for dtype in {dtype for _, dtype in which}}
    if measure == "seconds":
        fit(next(iter(cast.values())), "", 0.5, 0)  # code, threads and caches are warm then
    for tol, dtype in which:
        told: dict[str, object] = {"tol": tol, "dtype": dtype}
        if measure == "seconds":
            told["seconds"] = fit(cast[dtype], dtype, tol, seed)[1]
        elif measure == "peak":
            told["peak"] = fit(cast[dtype], dtype, tol, seed)[0].info.peak_bytes
        else:
            A, S = counted(cast[dtype]), sets.exact(name)[:K]
            info = (F := fit(A, dtype, tol, seed)[0]).info
            missed = getattr(info, "missed_below", None)
            told |= {
                "passes": info.n_passes,
                "single": A.tally.columns(True),
                "double": A.tally.columns(False),
                "widths": str(A.tally),
                "error": float(np.max(np.abs(F.S - S) / S)),
                "bound": float(np.max(info.value_errors)),
                "converged": info.converged,
                "missed": None if missed is None else float(missed / F.S[-1]),
            }
        print(json.dumps(told), flush=True)


def ask(python: str, name: str, which: list[tuple[float, str]], measure: str, seed: int) -> list[dict]:
    """What a worker says."""
    command = [python, "-m", "benchmarks.certificate.cost", "--one", json.dumps([name, which, measure, seed])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(name: str, tols: list[float], rounds: int, pythons: tuple[str, ...], peaks: bool, seed: int) -> None:
    """The lines of one set, of every version in turn."""
    from benchmarks.certificate import sets

    which = cases(tols, sets.load(name).dtype == np.float32)
    sets.exact(name)
    told = {python: ask(python, name, which, "columns", seed) for python in pythons}
    seconds: dict[str, list[list[float]]] = {python: [] for python in pythons}
    for _ in range(rounds):
        for python in pythons:
            seconds[python].append([line["seconds"] for line in ask(python, name, which, "seconds", seed)])
    for python in pythons:
        if len(pythons) > 1:
            print(python)
        for i, line in enumerate(told[python]):
            times = f"{np.median([each[i] for each in seconds[python]]):8.3f}" if rounds else f"{'-':>8}"
            peak = ask(python, name, [which[i]], "peak", seed)[0]["peak"] if peaks else None
            memory = "-" if peak is None else f"{peak / 2**20:.0f}"
            missed = "-" if line["missed"] is None else f"{line['missed']:.4f}"
            print(
                f"{name:8} {line['dtype']:7} {line['tol']:6.0e} {line['passes']:6} {line['single']:6} "
                f"{line['double']:6} {times} {memory:>7} {line['error']:8.1e} {line['bound']:8.1e} "
                f"{line['converged']!s:>5} {missed:>10}  {line['widths']}",
                flush=True,
            )


@click.command()
@click.option("--sets", "names", default=ALL)
@click.option("--tols", default="1e-1,1e-2,1e-4,1e-6,1e-8")
@click.option("--rounds", default=5)
@click.option("--peaks/--no-peaks", default=True)
@click.option("--python", "pythons", multiple=True, default=[sys.executable])
@click.option("--seed", default=0)
@click.option("--one", default=None, hidden=True)
def main(names: str, tols: str, rounds: int, peaks: bool, pythons: tuple[str, ...], seed: int, one: str | None) -> None:
    """The table."""
    if one:
        worker(*json.loads(one))
        return
    print(HEAD)
    for name in names.split(","):
        table(name, [float(tol) for tol in tols.split(",")], rounds, pythons, peaks, seed)


if __name__ == "__main__":
    main()
