"""Fields that are opened lazily beside the same fields in memory: passes, convergence, errors and their bounds.

    python -m benchmarks.claims.lazy            # 40 fields; another first seed: python -m benchmarks.claims.lazy 100

Each field is in single precision, six NetCDF files of 250 to 320 K with anomalies of 0.1 to 10 K, more cells than times
or fewer, and 1 to 10 modes are sought. It is fitted in memory, by `shiftsvd.xarray.pca` of files opened lazily, and by
`open_matrix` of one file that is streamed, all by block Lanczos. Errors are those beside LAPACK in double precision.
"""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray

import shiftsvd as ss
from shiftsvd.xarray import pca

FIELDS, FILES = 40, 6


def field(rng: np.random.Generator) -> xarray.DataArray:
    """Modes that decay, and noise, about a level far from zero."""
    times, lat, lon = int(rng.integers(100, 900)), int(rng.integers(12, 30)), int(rng.integers(15, 40))
    count, level, size = int(rng.integers(12, 60)), rng.uniform(250, 320), 10 ** rng.uniform(-1, 1)
    amplitudes = rng.standard_normal((times, count)) * rng.uniform(0.5, 0.95) ** np.arange(count)
    anomalies = amplitudes @ rng.standard_normal((count, lat * lon)) + 0.1 * rng.standard_normal((times, lat * lon))
    values = (level + size * anomalies).astype(np.float32).reshape(times, lat, lon)
    coords = {"time": np.arange(times), "lat": np.linspace(-80, 80, lat), "lon": np.arange(lon) * 360 / lon}
    return xarray.DataArray(values, coords, tuple(coords), "t2m")


def fits(da: xarray.DataArray, k: int, seed: int, folder: Path) -> dict[str, tuple[int, bool, Any, Any]]:
    """(passes, converged, singular values, their bounds or None) of the three fits."""
    for i, part in enumerate(np.array_split(np.arange(da.sizes["time"]), FILES)):
        da.isel(time=part).to_netcdf(folder / f"part-{i}.nc")
    da.to_netcdf(folder / "whole.nc")
    found = {}
    with xarray.open_mfdataset(str(folder / "part-*.nc"), combine="by_coords") as files:
        for name, each in (("memory", da), ("lazy", files.t2m)):
            fit = pca(each, k, solver="lanczos", rng=seed)
            found[name] = fit.attrs["n_passes"], bool(fit.attrs["converged"]), fit.singular_values.values, None
    A, _ = ss.io.open_matrix(folder / "whole.nc", stream=True)
    F = ss.svd(A, k, shift="mean", solver="lanczos", tol=1e-6, rng=seed)
    found["file"] = F.info.n_passes, bool(F.info.converged), F.S, F.info.value_errors
    return found


def main() -> None:
    """One line a field, and what is worst of all."""
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    worst = {"lazy": 0.0, "file": 0.0}
    unconverged = beyond = 0
    warnings.simplefilter("ignore")
    for seed in range(first, first + FIELDS):
        rng = np.random.default_rng(seed)
        da, k = field(rng), int(rng.integers(1, 11))
        X = da.values.reshape(da.sizes["time"], -1).astype(np.float64)
        exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:k]
        with tempfile.TemporaryDirectory() as folder:
            found = fits(da, k, seed, Path(folder))
        told = f"{X.shape[0]:4} x {X.shape[1]:4}  k {k:2}"
        for name, (passes, converged, S, bounds) in found.items():
            errors = np.abs(S - exact) / exact
            unconverged += not converged
            # Fields do not say their bounds; what has converged is within the tolerance.
            beyond += bool(np.any(errors > (1e-6 if bounds is None else bounds) + 1e-13))
            told += f"  {name} {passes:2} passes, error {errors.max():.0e}{'' if converged else ', not converged'}"
            if name in worst:
                worst[name] = max(worst[name], passes / found["memory"][0])
        print(told, flush=True)
    print(f"passes beside those in memory, at most: lazy {worst['lazy']:.2f}, file {worst['file']:.2f}")
    print(f"of {3 * FIELDS} fits: {unconverged} did not converge, {beyond} had errors beyond their bounds")


if __name__ == "__main__":
    main()
