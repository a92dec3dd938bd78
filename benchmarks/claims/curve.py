"""Seconds of 50 certified components against the number of entries, ours and scikit-learn's ARPACK, and their chart.

Counts of 2,000 columns in 15 groups, 8.5 % nonzero, float32: 60,000 entries to a hundred million, as rows grow.
Contestants take turns; medians; ARPACK with one BLAS thread and with all, of which the better counts.

Run: python -m benchmarks.claims.curve [--largest 1e8] [--rounds 3] [--chart docs/curve.png]
"""

import time
import warnings
from collections.abc import Callable
from statistics import median

import click
import numpy as np
import sklearn.decomposition
from threadpoolctl import threadpool_limits

import shiftsvd as ss
from benchmarks import data
from benchmarks.claims.middle import busy

K, COLUMNS = 50, 2_000
ROWS = (350, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 580_000)


def seconds(fit: Callable[[], object]) -> float:
    """How long a call takes."""
    begun = time.perf_counter()
    fit()
    return time.perf_counter() - begun


def point(rows: int, rounds: int) -> dict[str, float]:
    """What one size takes."""
    X = data.counts(rows, COLUMNS)
    ours = ss.PCA(K, random_state=0)
    arpack = sklearn.decomposition.PCA(K, svd_solver="arpack", random_state=0)
    ours.fit(X)
    times: dict[str, list[float]] = {"ours": [], "one": [], "all": []}
    before, here = busy()
    for _ in range(rounds if rows <= 100_000 else 1):
        times["ours"].append(seconds(lambda: ours.fit(X)))
        times["all"].append(seconds(lambda: arpack.fit(X)))
        with threadpool_limits(1, "blas"):
            times["one"].append(seconds(lambda: arpack.fit(X)))
    after, there = busy()
    error = float(np.max(np.abs(ours.singular_values_ / arpack.singular_values_ - 1)))
    peer = min(median(times["one"]), median(times["all"]))
    others = max(0.0, 1 - (there - here) / max(after - before, 1e-9))
    return {"entries": X.nnz, "ours": median(times["ours"]), "arpack": peer, "error": error, "others": others}


def draw(points: list[dict[str, float]], file: str) -> None:
    """Seconds against entries, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    entries = [one["entries"] for one in points]
    axes.loglog(entries, [one["arpack"] for one in points], "s--", color="#9a6700", label="scikit-learn PCA, arpack")
    axes.loglog(entries, [one["ours"] for one in points], "o-", color="#0b5cad", label="shiftsvd PCA, tol=1e-4")
    for one in points:
        at = (one["entries"], one["arpack"])
        axes.annotate(f"{one['arpack'] / one['ours']:.1f}×", at, (0, 7), textcoords="offset points", ha="center")
    axes.set(xlabel="stored entries", ylabel="seconds", title=f"{K} components of counts with {COLUMNS:,} columns")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=160)


@click.command()
@click.option("--largest", default=1e8, show_default=True, help="Entries of the largest matrix.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each contestant; one above 100,000 rows.")
@click.option("--chart", help="A file to draw into.")
def main(largest: float, rounds: int, chart: str | None) -> None:
    """Prints a line for each size."""
    warnings.simplefilter("ignore")
    print(
        f"| {'entries':>11} | {'ours s':>7} | {'ARPACK s':>8} | {'ratio':>5} | {'error':>7} | {'others':>6} |",
        flush=True,
    )
    print("|---|---|---|---|---|---|")
    points = []
    for rows in ROWS:
        if rows * COLUMNS * 0.09 > 1.05 * largest:
            break
        one = point(rows, rounds)
        points.append(one)
        ratio = one["arpack"] / one["ours"]
        told = f"{one['ours']:.3f} | {one['arpack']:.3f} | {ratio:.2f} | {one['error']:.0e} | {one['others']:.0%}"
        print(f"| {one['entries']:,.0f} | {told} |", flush=True)
    if chart:
        draw(points, chart)


if __name__ == "__main__":
    main()
