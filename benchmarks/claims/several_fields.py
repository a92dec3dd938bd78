"""Modes of several fields beside xeofs, and the memory of extended EOFs whose lags would not fit.

Each line: the largest relative difference of values and of patterns up to a sign, and where definitions differ by what.
The second table: peak growth of a process that finds extended EOFs, beside the field and beside its stacked lags.
Run: python -m benchmarks.claims.several_fields [compare] [peak]; `compare` needs xeofs and statsmodels, as in the
environment "fields" of benchmarks.peers.companions.

| field | it, GB | its lags stacked, GB | growth of the process, GB | of that the result | passes |
|---|---:|---:|---:|---:|---:|
| 600 x 60,000, 60 lags | 0.14 | 7.79 | 0.37 | 0.07 | 1 |
| 2,000 x 100,000, 24 lags | 0.80 | 18.98 | 0.30 | 0.05 | 2 |
"""

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import xarray

import shiftsvd.xarray as sx
from shiftsvd.runs.memory import MemoryWatch

TOL = 1e-11  # of values: vectors are right to about its root
# Steps, cells, lags: the field in single precision, and with its lags stacked.
SIZES = ((600, 60_000, 60), (2_000, 100_000, 24))


def fields(steps: int = 240) -> tuple[Any, Any]:
    """Two fields that share three standing waves, on grids of their own."""
    rng, t = np.random.default_rng(0), np.arange(steps)[:, None]
    shared = np.hstack([np.cos(2 * np.pi * t / period) for period in (40, 31, 23)]) * [9, 3, 1]

    def one(rows: int, columns: int, pole: float) -> Any:
        values = shared @ rng.standard_normal((3, rows * columns)) + rng.standard_normal((steps, rows * columns)) + 280
        coords = {"time": np.arange(steps), "lat": np.linspace(-pole, pole, rows), "lon": np.arange(columns) * 2.5}
        return xarray.DataArray(values.reshape(steps, rows, columns), coords, ("time", "lat", "lon"))

    return one(18, 36, 85), one(12, 30, 60)


def off(found: Any, theirs: Any) -> float:
    """The largest difference of rows up to a number of size 1, relative to the largest entry."""
    found, theirs = (np.nan_to_num(np.asarray(values).reshape(len(values), -1)) for values in (found, theirs))
    turns = np.sum(found * theirs.conj(), axis=1)
    return float(np.abs(found - theirs * (turns / np.abs(turns))[:, None]).max() / np.abs(theirs).max())


def relative(found: Any, theirs: Any) -> float:
    """The largest relative difference of values."""
    return float(np.abs(np.asarray(found) / np.asarray(theirs) - 1).max())


def compare() -> None:
    """Print the table beside xeofs."""
    import xeofs

    X, Y = fields()
    m, full = X.sizes["time"], {"use_coslat": True, "solver": "full"}
    ordered = ("mode", "lat", "lon")
    print("| modes | values | patterns | scores | what differs by definition |")
    print("|---|---:|---:|---:|---|")
    pair = sx.coupled(X, Y, 3, weights="coslat", tol=TOL, rng=0)
    model = xeofs.cross.MCA(n_modes=3, use_pca=False, **full).fit(X, Y, dim="time")
    patterns = [
        off(pair[f"{n}_components"], c.transpose(*ordered)) for n, c in zip("xy", model.components(), strict=True)
    ]
    scores = [off(pair[f"{n}_scores"], s.transpose("mode", "time")) for n, s in zip("xy", model.scores(), strict=True)]
    values = relative(pair.squared_covariance_fraction, model.squared_covariance_fraction())
    theirs = model.cross_correlation_coefficients()
    ratio = float((theirs / pair.correlation).mean())
    _row(
        "maximum covariance",
        values,
        max(patterns),
        max(scores),
        f"their correlations are m / (m - 1) = {ratio:.6f} times ours",
    )
    cca = sx.coupled(X, Y, 3, method="cca", leading=3, weights="coslat", tol=TOL, rng=0)
    model = xeofs.cross.CCA(n_modes=3, use_coslat=True, n_pca_modes=3, random_state=0).fit(X, Y, dim="time")
    values = relative(cca.correlation, model.cross_correlation_coefficients() * (m - 1) / m)
    theirs = [s.transpose("mode", "time") * np.sqrt(m - 1) for s in model.scores(normalized=True)]
    scores = [off(cca[f"{n}_scores"], s) for n, s in zip("xy", theirs, strict=True)]
    _row(
        "canonical correlation",
        values,
        None,
        max(scores),
        "m / (m - 1) again; our patterns go with scores of variance 1",
    )
    for padding in ("exp", None):
        modes = sx.hilbert(X, 3, padding=padding, weights="coslat", tol=TOL, rng=0)
        model = xeofs.single.HilbertEOF(n_modes=3, padding=padding or "none", **full).fit(X, dim="time")
        patterns = off(modes.components, model.components().transpose(*ordered).values.conj())
        values = relative(modes.explained_variance, model.explained_variance())
        scores = off(modes.scores, model.scores().transpose("mode", "time"))
        _row(f"Hilbert, padding {padding}", values, patterns, scores, "theirs are conjugates of ours")
    modes = sx.extended(X, 3, lags=range(0, 20, 4), weights="coslat", tol=TOL, rng=0)
    model = xeofs.single.ExtendedEOF(n_modes=3, tau=4, embedding=5, **full).fit(X, dim="time")
    patterns = off(modes.components, model.components().transpose("mode", "embedding", "lat", "lon"))
    values, scores = model.explained_variance(), model.scores().transpose("mode", "time")[:, : modes.sizes["time"]]
    _row("extended, 5 lags", relative(modes.explained_variance, values), patterns, off(modes.scores, scores), "none")


def _row(name: str, values: float, patterns: float | None, scores: float, differs: str) -> None:
    """One line of the table."""
    print(f"| {name} | {values:.0e} | {'' if patterns is None else f'{patterns:.0e}'} | {scores:.0e} | {differs} |")


def peak(steps: int, cells: int, lags: int) -> None:
    """One line of the second table, in a process of its own."""
    rng = np.random.default_rng(0)
    values = np.empty((steps, cells), np.float32)
    patterns = rng.standard_normal((4, cells)).astype(np.float32)
    scores = np.cumsum(rng.standard_normal((steps, 4)), axis=0).astype(np.float32)
    for lo in range(0, steps, 50):
        values[lo : lo + 50] = scores[lo : lo + 50] @ patterns
        values[lo : lo + 50] += rng.standard_normal(values[lo : lo + 50].shape, np.float32)
    da = xarray.DataArray(values, dims=("time", "cell"))
    sx.extended(da[:, :500], 5, lags=3, rng=0)  # what is set aside at first calls is not counted
    watch = MemoryWatch()
    modes = sx.extended(da, 5, lags=lags, rng=0)
    grown, result = watch.growth() or 0, modes.components.nbytes
    stacked = 4 * (steps - lags + 1) * cells * lags
    sizes = " | ".join(f"{size / 1e9:.2f}" for size in (values.nbytes, stacked, grown, result))
    print(f"| {steps:,} x {cells:,}, {lags} lags | {sizes} | {modes.attrs['n_passes']} |", flush=True)


def main(asked: list[str]) -> None:
    """Print what is asked for."""
    if asked[:1] == ["one"]:
        peak(*map(int, asked[1:]))
        return
    if not asked or "compare" in asked:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare()
    if not asked or "peak" in asked:
        print("| field | it, GB | its lags stacked, GB | growth of the process, GB | of that the result | passes |")
        print("|---|---:|---:|---:|---:|---:|", flush=True)
        for size in SIZES:
            command = [sys.executable, "-m", "benchmarks.claims.several_fields", "one", *map(str, size)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
