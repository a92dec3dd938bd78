"""Time, memory and error of PCA on sparse counts, ours and scikit-learn's; draws the chart of the README.

Every contestant runs in a process of its own, one after the other; the rounds alternate, and medians are
reported. Memory is the growth of the process while it fits (Linux tells). The error is the largest relative
error of the k singular values of the centred matrix: against the exact solver, and that one against
scikit-learn's arpack. TruncatedSVD does not centre: its first value is another one. Two threads.

Run: python benchmarks/peers.py [--rows 60000] [--rounds 3]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from scipy.sparse import load_npz, save_npz

from data import counts

HERE = Path(__file__).resolve().parent
K = 50
FLOOR = 2e-6  # the solvers return float32 for float32 data


def _sklearn_pca(X, **settings):
    from sklearn.decomposition import PCA

    return PCA(K, random_state=0, **settings).fit(X).singular_values_


def _truncated(X):
    from sklearn.decomposition import TruncatedSVD

    return TruncatedSVD(K, random_state=0).fit(X).singular_values_


def _ours(X, **settings):
    import shiftsvd as ss

    return ss.PCA(K, random_state=0, **settings).fit(X).singular_values_


CONTESTANTS = {
    "shiftsvd PCA()": lambda X: _ours(X),
    "shiftsvd, 20 iterations": lambda X: _ours(X, solver="randomized", iterated_power=20),
    "shiftsvd, arpack": lambda X: _ours(X, svd_solver="arpack"),
    "shiftsvd, exact": lambda X: _ours(X, solver="exact"),
    "sklearn PCA(arpack)": lambda X: _sklearn_pca(X, svd_solver="arpack"),
    "sklearn PCA(covariance_eigh)": lambda X: _sklearn_pca(X, svd_solver="covariance_eigh"),
    "sklearn PCA(randomized), densified": lambda X: _sklearn_pca(X.toarray(), svd_solver="randomized"),
    "sklearn TruncatedSVD (no centring)": _truncated,
}


@click.command()
@click.option("--rows", default=60_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--chart", type=click.Path(path_type=Path), default=HERE.parent / "docs" / "peers.png")
@click.option("--one", nargs=2, help="Run one contestant on a file; for the processes that this starts.")
def main(rows: int, rounds: int, chart: Path, one: tuple[str, str] | None) -> None:
    """Print the table, and draw the chart."""
    if one:
        run_one(*one)
        return
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "counts.npz"
        X = counts(rows)
        save_npz(file, X)
        runs = {name: [] for name in CONTESTANTS}
        for _ in range(rounds):
            for name in CONTESTANTS:
                runs[name].append(measured(name, file))
    table = summary(runs)
    (m, n), fill = X.shape, X.nnz / X.shape[0] / X.shape[1]
    title = f"{m:,} x {n:,} counts, {fill:.1%} nonzero, float32, {K} components"
    print(f"{title}; medians of {rounds}, {os.cpu_count()} cores\n")
    print("| | seconds | growth of the process, MB | largest error of a singular value |")
    print("|---|---|---|---|")
    for name, (seconds, megabytes, error) in table.items():
        print(f"| {name} | {seconds:.1f} | {megabytes:,.0f} | {_error(error)} |")
    draw(table, title, chart)
    print(f"\n{chart.relative_to(HERE.parent) if chart.is_relative_to(HERE.parent) else chart}")


def measured(name: str, file: Path) -> dict:
    """What one process prints."""
    command = [sys.executable, __file__, "--one", name, str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def run_one(name: str, file: str) -> None:
    """Fit, and print seconds, peak memory and singular values."""
    import sklearn.decomposition  # noqa: F401  (imports are not what is measured)

    X = load_npz(file)
    X.sum_duplicates()
    Path("/proc/self/clear_refs").write_text("5")  # reading a file takes more than it leaves: forget that peak
    before = _status("VmRSS")
    started = time.perf_counter()
    S = CONTESTANTS[name](X)
    seconds = time.perf_counter() - started
    megabytes = (_status("VmHWM") - before) / 1024
    print(json.dumps({"seconds": seconds, "megabytes": megabytes, "S": np.asarray(S, float).tolist()}))


def _status(name: str) -> int:
    """Kilobytes from the process status (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def summary(runs: dict) -> dict:
    """Medians of the rounds, and the error against the exact values (theirs against scikit-learn's arpack)."""
    exact, arpack = (np.array(runs[name][0]["S"]) for name in ("shiftsvd, exact", "sklearn PCA(arpack)"))
    table = {}
    for name, rounds in runs.items():
        reference = arpack if name == "shiftsvd, exact" else exact
        table[name] = (
            float(np.median([run["seconds"] for run in rounds])),
            float(np.median([run["megabytes"] for run in rounds])),
            float(np.max(np.abs(np.array(rounds[0]["S"]) - reference) / reference)),
        )
    return table


def _error(error: float) -> str:
    """The error, or that it is below what float32 results can show."""
    return f"{error:.0e}" if error > FLOOR else f"< {FLOOR:.0e}"


def draw(table: dict, title: str, chart: Path) -> None:
    """Three bars for each contestant."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    names = list(table)[::-1]
    colours = ["C0" if name.startswith("shiftsvd") else "0.65" for name in names]
    labels = ("seconds", "growth of the process, MB", "largest error of a singular value")
    for i, label in enumerate(labels):
        axes = figure.add_subplot(1, 3, i + 1)
        values = [max(table[name][i], FLOOR if i == 2 else 1) for name in names]
        bars = axes.barh(range(len(names)), values, color=colours)
        axes.bar_label(
            bars,
            [_error(v) if i == 2 else f"{v:,.0f}" if v >= 10 else f"{v:.1f}" for v in values],
            fontsize=7,
            padding=2,
        )
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 3, max(values) * 8)
        axes.set_yticks(range(len(names)), names if i == 0 else [""] * len(names), fontsize=8)
        axes.set_title(label, fontsize=9)
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=9)
    chart.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(chart, dpi=130)


if __name__ == "__main__":
    main()
