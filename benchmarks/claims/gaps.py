"""Gaps of 20, 50 and 80 % in measured fields: held-out errors beside DINEOF as published.

Run in the environment of `python -m benchmarks.peers.companions fields`:
benchmarks/.work/environments/fields/bin/python -m benchmarks.claims.gaps

DINEOF (Beckers & Rixen 2003; Alvera-Azcarate et al. 2005) is written out below in NumPy: missing values begin as the
mean, are replaced by those of the leading k EOFs until they change by less than a thousandth of the standard deviation,
and k is the number with the least error on values that are held out for it, min(1 % + 40, 3 %) of those there are; the
last fit is to all of them. Ours is `pca(da, k, missing="em")` with the same k, and with its penalty it may be larger.
Errors are root mean squares over all values that were taken out, which neither saw, in units of the standard deviation
of the field; the mean of the cell has an error of about 1. Times are CPU seconds. Gaps are single values at random, or
what clouds are like: blocks of the map.

| field | gaps | share | cell means | DINEOF | its k | ours, same k | ours, k = 20 | heldout_r2 |
|---|---|---:|---:|---:|---:|---:|---:|---:|
| z | single | 20% | 1.074 | 0.166 | 20 | 0.157 | 0.157 | 0.977 |
| z | single | 50% | 1.084 | 0.226 | 20 | 0.202 | 0.202 | 0.962 |
| z | single | 80% | 1.113 | 0.721 | 7 | 0.560 | 0.581 | 0.773 |
| z | clouds | 20% | 1.128 | 0.252 | 20 | 0.228 | 0.228 | 0.981 |
| z | clouds | 50% | 1.121 | 0.401 | 17 | 0.335 | 0.329 | 0.957 |
| z | clouds | 80% | 1.160 | 1.068 | 2 | 0.997 | 0.865 | 0.394 |
| sst | single | 20% | 1.070 | 0.503 | 17 | 0.445 | 0.427 | 0.836 |
| sst | single | 50% | 1.099 | 0.666 | 5 | 0.638 | 0.535 | 0.684 |
| sst | single | 80% | 1.136 | 0.925 | 2 | 0.877 | 0.834 | 0.532 |
| sst | clouds | 20% | 1.130 | 0.888 | 20 | 0.546 | 0.546 | 0.860 |
| sst | clouds | 50% | 1.124 | 0.801 | 5 | 0.727 | 0.682 | 0.661 |
| sst | clouds | 80% | 1.184 | 1.093 | 2 | 1.009 | 1.035 | 0.425 |

``heldout_r2`` is of single values, whose neighbours are there: beneath large clouds less is known.
"""

import sys
import time
from typing import Any

import numpy as np

import shiftsvd.xarray as sx
from benchmarks.claims.fields import measured

MOST, STILL, STEPS = 20, 1e-3, 300


def taken_out(da: Any, share: float, clouds: bool, seed: int = 0) -> Any:
    """Which values are missing."""
    rng = np.random.default_rng(seed)
    if not clouds:
        return rng.random(da.shape) < share
    gone = np.zeros(da.shape, bool)
    _, height, width = da.shape
    for each in gone:
        while each.mean() < share:
            y, x = rng.integers(0, height), rng.integers(0, width)
            each[y : y + rng.integers(2, height // 3), x : x + rng.integers(2, width // 3)] = True
    return gone


def dineof(X: np.ndarray, seed: int = 0) -> tuple[np.ndarray, int]:
    """The filled matrix, and how many EOFs it is made of."""
    rng = np.random.default_rng(seed)
    there = np.argwhere(~np.isnan(X))
    count = int(min(0.01 * len(there) + 40, 0.03 * len(there)))
    i, j = there[rng.choice(len(there), count, replace=False)].T
    mean = np.nanmean(X, axis=0)
    Y = X - mean
    held = Y[i, j].copy()
    Y[i, j] = np.nan
    filled = np.where(np.isnan(Y), 0, Y)
    best = (np.inf, 0, filled)
    for k in range(1, MOST + 1):
        filled = _iterated(Y, filled, k)
        error = float(np.sqrt(np.mean((filled[i, j] - held) ** 2)))
        best = (error, k, filled) if error < best[0] else best
        if k > best[1] + 3:
            break
    Y[i, j] = held
    return mean + _iterated(Y, np.where(np.isnan(Y), best[2], Y), best[1]), best[1]


def _iterated(Y: np.ndarray, filled: np.ndarray, k: int) -> np.ndarray:
    """What k EOFs put in the place of missing values, when that no longer changes."""
    gone, unit = np.isnan(Y), np.nanstd(Y)
    for _ in range(STEPS):
        U, S, Vh = np.linalg.svd(filled, full_matrices=False)
        new = np.where(gone, (U[:, :k] * S[:k]) @ Vh[:k], Y)
        change = np.sqrt(np.mean((new - filled)[gone] ** 2)) / unit
        filled = new
        if change < STILL:
            break
    return filled


def main() -> int:
    """Print a row for each field, kind and share of gaps."""
    print("| field | gaps | share | cell means | DINEOF | its k, s | ours, same k | ours, k = 20 | s | heldout_r2 |")
    print("|---|---|---:|---:|---:|---|---:|---:|---:|---:|")
    for name, da in measured().items():
        for clouds in (False, True):
            for share in (0.2, 0.5, 0.8):
                print(_row(name, da, share, clouds), flush=True)
    return 0


def _row(name: str, da: Any, share: float, clouds: bool) -> str:
    """Errors of both on one field with gaps."""
    with_gaps = da.where(~taken_out(da, share, clouds))
    known = (~np.isnan(with_gaps)).sum("time") > 0
    whole, with_gaps = da.where(known), with_gaps.where(known)
    gone = np.isnan(with_gaps) & whole.notnull()
    unit = float(whole.std("time").mean())

    def error(guess: Any) -> float:
        return float(np.sqrt((((guess - whole).where(gone)) ** 2).mean())) / unit

    X = with_gaps.values.reshape(len(da), -1)
    cells = ~np.isnan(X).all(axis=0)
    begun = time.process_time()
    filled, k = dineof(X[:, cells])
    theirs = time.process_time() - begun
    full = np.full(X.shape, np.nan)
    full[:, cells] = filled
    begun = time.process_time()
    same = sx.pca(with_gaps, k, missing="em", rng=0)
    seconds = time.process_time() - begun
    more = sx.pca(with_gaps, MOST, missing="em", rng=0)
    means, shown = error(with_gaps.mean("time")), "clouds" if clouds else "single"
    return (
        f"| {name} | {shown} | {share:.0%} | {means:.3f} | {error(da.copy(data=full.reshape(da.shape))):.3f} "
        f"| {k}, {theirs:.1f} | {error(sx.reconstruct(same)):.3f} | {error(sx.reconstruct(more)):.3f} | {seconds:.1f} "
        f"| {same.attrs['heldout_r2']:.3f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
