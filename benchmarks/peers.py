"""Time, memory and error of PCA on sparse counts, ours and scikit-learn's; draws the chart of the README.

Every contestant runs in a process of its own, one after the other, so that its peak memory is its own; the
rounds alternate, and medians are reported. The error is the largest relative error of the k singular
values of the centred matrix (for TruncatedSVD, which does not centre, the error of its model). Two threads.

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
    "shiftsvd, exact": lambda X: _ours(X, solver="exact"),
    "sklearn PCA(arpack)": lambda X: _sklearn_pca(X, svd_solver="arpack"),
    "sklearn PCA(covariance_eigh)": lambda X: _sklearn_pca(X, svd_solver="covariance_eigh"),
    "sklearn PCA(randomized), densified": lambda X: _sklearn_pca(X.toarray(), svd_solver="randomized"),
    "sklearn TruncatedSVD (no centring)": _truncated,
    "only reading the data": lambda X: np.zeros(K),
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
    print("| | seconds | memory beyond the data, MB | largest error of a singular value |")
    print("|---|---|---|---|")
    for name, (seconds, megabytes, error) in table.items():
        print(f"| {name} | {seconds:.1f} | {megabytes:,.0f} | {error:.0e} |")
    draw(table, title, chart)
    print(f"\n{chart.relative_to(HERE.parent) if chart.is_relative_to(HERE.parent) else chart}")


def measured(name: str, file: Path) -> dict:
    """What one process prints."""
    command = [sys.executable, __file__, "--one", name, str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def run_one(name: str, file: str) -> None:
    """Fit, and print seconds, peak memory and singular values."""
    import resource

    import sklearn.decomposition  # noqa: F401  (imports are not what is measured)

    X = load_npz(file)
    started = time.perf_counter()
    S = CONTESTANTS[name](X)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak, "S": np.asarray(S, float).tolist()}))


def summary(runs: dict) -> dict:
    """Medians; memory is what goes beyond a process that only reads the data."""
    floor = np.median([run["megabytes"] for run in runs["only reading the data"]])
    exact = np.array(runs["shiftsvd, exact"][0]["S"])
    table = {}
    for name, rounds in runs.items():
        if name == "only reading the data":
            continue
        error = np.max(np.abs(np.array(rounds[0]["S"]) - exact) / exact)
        reference = np.max(np.abs(np.array(runs["sklearn PCA(arpack)"][0]["S"]) - exact) / exact)
        error = reference if name in ("shiftsvd, exact", "sklearn PCA(arpack)") else error  # each judges the other
        table[name] = (
            float(np.median([run["seconds"] for run in rounds])),
            float(np.median([run["megabytes"] for run in rounds]) - floor),
            float(error),
        )
    return table


def draw(table: dict, title: str, chart: Path) -> None:
    """Three bars for each contestant."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    names = list(table)[::-1]
    colours = ["C0" if name.startswith("shiftsvd") else "0.65" for name in names]
    labels = ("seconds", "memory beyond the data, MB", "largest error of a singular value")
    for i, label in enumerate(labels):
        axes = figure.add_subplot(1, 3, i + 1)
        values = [table[name][i] for name in names]
        bars = axes.barh(range(len(names)), values, color=colours)
        axes.bar_label(
            bars,
            [f"{v:.0e}" if i == 2 else f"{v:,.0f}" if v >= 10 else f"{v:.1f}" for v in values],
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
