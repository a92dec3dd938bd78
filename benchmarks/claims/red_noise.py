"""How often bars and p-values hold on red noise: 500 fields whose variances are known.

Run: python -m benchmarks.claims.red_noise [FIELDS]

A field has three patterns with variances 64, 16 and 4 and a little white noise; each score has the autocorrelation r at
lag one. A bar holds if the true variance is within 1.96 standard errors of the one that was found, an interval if it is
between `lower` and `upper`: 95 % of those that are known should. A p-value is of an index that has nothing to do with
the field, of the same redness: 5 % should be below 0.05.

| samples | r | bars hold: nominal | effective size | intervals hold | p < 0.05: nominal | effective size |
|---:|---:|---|---|---|---:|---:|
| 100 | 0.0 | 93.6%, 93.8%, 91.8% | 93.8%, 94.0%, 92.0% | 96.8%, 96.0%, 93.8% | 4.9% | 4.8% |
| 100 | 0.5 | 87.8%, 84.0%, 81.0% | 91.8%, 90.6%, 87.6% | 96.2%, 94.6%, 93.6% | 12.3% | 4.3% |
| 100 | 0.8 | 62.0%, 54.0%, 51.6% | 86.0%, 79.0%, 76.2% | 96.5%, 91.6%, 87.5% | 34.1% | 2.5% |
| 240 | 0.0 | 95.0%, 93.8%, 94.6% | 95.0%, 94.0%, 94.6% | 95.8%, 95.2%, 95.4% | 4.8% | 4.7% |
| 240 | 0.5 | 87.8%, 85.4%, 84.2% | 94.6%, 92.2%, 91.6% | 95.2%, 95.0%, 94.6% | 12.8% | 4.7% |
| 240 | 0.8 | 63.2%, 58.0%, 60.2% | 91.4%, 88.4%, 84.6% | 96.2%, 94.2%, 92.2% | 34.8% | 3.8% |
| 600 | 0.0 | 94.4%, 95.2%, 93.4% | 94.4%, 95.2%, 93.4% | 94.6%, 96.0%, 94.6% | 5.2% | 5.2% |
| 600 | 0.5 | 84.8%, 87.8%, 85.8% | 92.4%, 94.0%, 93.4% | 93.8%, 94.6%, 94.8% | 12.9% | 4.8% |
| 600 | 0.8 | 63.2%, 64.4%, 58.4% | 91.6%, 90.2%, 89.2% | 91.8%, 94.6%, 92.6% | 36.0% | 4.6% |

With r = 0.8 a hundred samples are worth twenty. The rule of thumb is of many samples: with so few, variances are
skewed, the mean takes a part of them, and the smaller ones mix. The intervals know of the first two; what they lack is
left by the mixing, and by r, which is not well known from so few samples.
"""

import sys
import warnings

import numpy as np
import xarray

import shiftsvd.xarray as sx
from shiftsvd.xarray.sampling import p_values

VARIANCES, CELLS, NOISE = np.array([64.0, 16.0, 4.0]), 30, 0.05


def red(shape: tuple[int, ...], r: float, rng: np.random.Generator) -> np.ndarray:
    """Red noise of unit variance along the first dimension."""
    values = rng.standard_normal(shape)
    for t in range(1, shape[0]):
        values[t] = r * values[t - 1] + np.sqrt(1 - r * r) * values[t]
    return values


def bars(n: int, r: float, fields: int) -> np.ndarray:
    """Shares of fields whose bars hold each variance: as of independent samples, with their number, known intervals."""
    patterns = np.linalg.qr(np.random.default_rng(99).standard_normal((CELLS, 3)))[0].T
    held, told = np.zeros((3, 3)), np.zeros(3)
    for seed in range(fields):
        rng = np.random.default_rng(seed)
        X = red((n, 3), r, rng) * np.sqrt(VARIANCES) @ patterns + NOISE * rng.standard_normal((n, CELLS))
        with warnings.catch_warnings(action="ignore"):  # of intervals that are not known
            known = sx.north(sx.pca(xarray.DataArray(X, dims=("time", "cell")), 3, solver="exact"))
        true = VARIANCES + NOISE**2
        off = np.abs(known.explained_variance.values - true)
        within = (known.lower.values < true) & (true < known.upper.values)
        held += [off < 1.96 * known.nominal_error.values, off < 1.96 * known.standard_error.values, within]
        told += np.isfinite(known.lower.values)
    return held / np.array([np.full(3, fields), np.full(3, fields), told])


def rejections(n: int, r: float, fields: int) -> tuple[float, float]:
    """Shares of p-values below 0.05, of independent samples and with their effective number."""
    found = np.zeros(2)
    for seed in range(fields):
        rng = np.random.default_rng(seed)
        da = xarray.DataArray(red((n, CELLS), r, rng), dims=("time", "cell"))
        maps = sx.correlation(da, xarray.DataArray(red((n,), r, rng), dims="time"))
        nominal = p_values(maps.correlation.values, np.full(CELLS, float(n)))
        found += [np.mean(nominal < 0.05), np.mean(maps.p_value.values < 0.05)]
    return float(found[0] / fields), float(found[1] / fields)


def main(fields: int) -> None:
    """Print a row for each length and redness of the series."""
    print("| samples | r | bars hold: nominal | effective size | intervals hold | p < 0.05: nominal | effective size |")
    print("|---:|---:|---|---|---|---:|---:|")
    for n in (100, 240, 600):
        for r in (0.0, 0.5, 0.8):
            shown = " | ".join(", ".join(f"{share:.1%}" for share in shares) for shares in bars(n, r, fields))
            plain, right = rejections(n, r, fields)
            print(f"| {n} | {r} | {shown} | {plain:.1%} | {right:.1%} |", flush=True)


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["500"])[0]))
