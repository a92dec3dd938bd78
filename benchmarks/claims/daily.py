"""Daily fields of the size of ERA5, made by simulation: seconds, passes and peak memory, and xeofs on what it can do.

    .venv/bin/python -m benchmarks.claims.daily [--days 15000] [--lat 721] [--lon 1440] [--memory 8G] [--modes 10]
        [--files zarr-time,zarr-space,zarr-both,netcdf-time,netcdf-space] [--keep]

The default size takes about a minute; that of 40 years at 0.25 degrees (15,000 x 721 x 1,440, 62 GB before compression
for each file) needs the disk. A field is the sum of 20 red series times smooth patterns and noise, in steps of 1/64, so
that it compresses as packed data do. "time": a chunk holds whole maps; "space": all days of a few cells; "both": some
days of some cells. Fits are those of `shiftsvd.xarray.pca` by Dask, and of the command on NetCDF, each in a process of
its own. xeofs runs in the environment of `python -m benchmarks.peers.companions fields`, if that is
there. Seconds are wall clock, with
imports; "cpu" is user and system time; the peak is that of the process. Then the notices that each fit gave.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.places import ROOT, WORK

MODES, STEP, CHUNK = 20, 64, 2**21  # simulated modes, digits per unit, entries of a chunk
THEIRS = WORK / "environments" / "fields" / "bin" / "python"
FILES = ("zarr-time", "zarr-space", "zarr-both", "netcdf-time", "netcdf-space")


def chunks_of(layout: str, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Chunks of about CHUNK entries."""
    days, lat, lon = shape
    if layout == "time":
        return max(1, min(days, CHUNK // (lat * lon))), lat, lon
    if layout == "space":
        side = max(1, int((CHUNK / days) ** 0.5))
        return days, min(lat, side), min(lon, side)
    side = max(1, round((CHUNK / min(days, 365)) ** 0.5))
    return min(days, 365), min(lat, side), min(lon, side)


def blocks(shape: tuple[int, int, int], chunks: tuple[int, int, int]) -> Iterator[tuple[tuple[slice, ...], Any]]:
    """Simulated values of blocks of whole chunks, the same field for all layouts up to the noise."""
    days, lat, lon = shape
    rng = np.random.default_rng(0)
    y, x = np.linspace(-1, 1, lat)[:, None], np.linspace(0, 2 * np.pi, lon, endpoint=False)
    patterns = [
        np.cos((j // 4) * np.pi * y + rng.uniform(0, 6)) * np.cos((j % 4 + 1) * x + rng.uniform(0, 6))
        for j in range(MODES)
    ]
    series = rng.standard_normal((days, MODES))
    for t in range(1, days):
        series[t] = 0.9 * series[t - 1] + np.sqrt(1 - 0.81) * series[t]
    P, Z = np.asarray(patterns, np.float32), (series * 10 * 0.8 ** np.arange(MODES)).astype(np.float32)
    for t in range(0, days, chunks[0]):
        for i in range(0, lat, chunks[1]):
            when, where = slice(t, min(t + chunks[0], days)), slice(i, min(i + chunks[1], lat))
            values = np.tensordot(Z[when], P[:, where], 1)
            values += rng.standard_normal(values.shape, np.float32) + 280
            yield (when, where, slice(0, lon)), np.round(values * STEP) / np.float32(STEP)


def write(path: Path, kind: str, layout: str, shape: tuple[int, int, int]) -> None:
    """A file of the field, with coordinates."""
    import xarray as xr

    days, lat, lon = shape
    coords = {
        "time": np.datetime64("1980-01-01", "ns") + np.arange(days) * np.timedelta64(1, "D"),
        "lat": np.linspace(90, -90, lat),
        "lon": np.arange(lon) * 360 / lon,
    }
    chunks = chunks_of(layout, shape)
    if kind == "zarr":
        import dask.array as da
        import zarr

        lazy = xr.DataArray(da.zeros(shape, dtype=np.float32, chunks=chunks), coords, ("time", "lat", "lon"), "t2m")
        lazy.to_dataset().to_zarr(path, compute=False, consolidated=False, encoding={"t2m": {"chunks": chunks}})
        target = zarr.open_group(str(path))["t2m"]
        for where, values in blocks(shape, chunks):
            target[where] = values
        return
    import h5netcdf

    xr.Dataset(coords=coords).to_netcdf(path, engine="h5netcdf")
    with h5netcdf.File(path, "a") as file:
        how = {"chunks": chunks, "compression": "gzip", "compression_opts": 1, "shuffle": True}
        target = file.create_variable("t2m", ("time", "lat", "lon"), np.float32, **how)
        for where, values in blocks(shape, chunks):
            target[where] = values


def opened(path: str) -> Any:
    """The field of a file, in Dask arrays by its chunks."""
    import xarray as xr

    if path.endswith(".zarr"):
        return xr.open_zarr(path, consolidated=False).t2m
    return xr.open_dataset(path, engine="h5netcdf", chunks={}).t2m


def fit(who: str, path: str, modes: int, memory: str) -> dict[str, Any]:
    """One fit in this process; what it found."""
    begun = time.perf_counter()
    found: dict[str, Any] = {}
    if who == "command":
        out = f"{path}-out"
        command = [
            sys.executable,
            "-c",
            "from shiftsvd.cli import main; main()",
            "fit",
            path,
            "-k",
            str(modes),
            "--force",
        ]
        command += ["--weights", "coslat", "--memory", memory, "-o", out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        known = json.loads((Path(out) / "result.json").read_text())
        found = {"passes": known.get("n_passes"), "told": done.stderr.strip().splitlines()}
        shutil.rmtree(out, ignore_errors=True)
    elif who == "pca":
        import warnings

        import shiftsvd.xarray as sx

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            eofs = sx.pca(opened(path), modes, weights="coslat", memory_limit=memory, rng=0)
        found = {"passes": eofs.attrs["n_passes"], "ratio": float(eofs.explained_variance_ratio.sum())}
        found["told"] = [str(each.message) for each in told]
    else:
        import xeofs

        model = xeofs.single.EOF(n_modes=modes, use_coslat=True, random_state=0).fit(opened(path), dim="time")
        found = {"passes": None, "ratio": float(model.explained_variance_ratio().sum()), "told": []}
        np.asarray(model.scores())
    both = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    found["seconds"] = time.perf_counter() - begun
    found["cpu"] = sum(each.ru_utime + each.ru_stime for each in both)
    found["peak_mb"] = max(each.ru_maxrss for each in both) / 1024
    return found


def measured(python: Any, *arguments: Any) -> dict[str, Any]:
    """What `fit` finds in a process of its own."""
    command = [python, "-m", "benchmarks.claims.daily", "--fit", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "src"}
    )
    last = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
    return json.loads(last[0]) if last else {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1][:100]}


def main() -> int:
    """Print a row for each file and package."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("days", 1500), ("lat", 181), ("lon", 360), ("modes", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--memory", default="8G")
    parser.add_argument("--files", default=",".join(FILES))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--fit", nargs=4)
    given = parser.parse_args()
    if given.fit:
        who, path, modes, memory = given.fit
        print(json.dumps(fit(who, path, int(modes), memory)))
        return 0
    shape = given.days, given.lat, given.lon
    folder = WORK / "daily"
    folder.mkdir(parents=True, exist_ok=True)
    size = 4e-9 * np.prod(shape)
    print(f"{given.days:,} days x {given.lat:,} x {given.lon:,}, {size:.1f} GB, --memory {given.memory}\n")
    print("| file | chunk | GB on disk | by | seconds | cpu | passes | peak, MB | share of variance |")
    print("|---|---|---:|---|---:|---:|---:|---:|---:|")
    notes = []
    for name in given.files.split(","):
        kind, layout = name.split("-")
        path = folder / f"{name}-{'x'.join(map(str, shape))}{'.zarr' if kind == 'zarr' else '.nc'}"
        if not path.exists():
            write(path, kind, layout, shape)
        size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
        contestants: list[tuple[str, Any]] = [("pca", sys.executable)]
        contestants += [("xeofs", THEIRS)] if THEIRS.exists() else []
        contestants += [("command", sys.executable)] if kind == "netcdf" else []
        for who, python in contestants:
            row = measured(python, who, path, given.modes, given.memory)
            notes += [f"{name}, {who}: {line}" for line in row.get("told", [])]
            start = f"| {name} | {' x '.join(map(str, chunks_of(layout, shape)))} | {size / 1e9:.2f} | {who} |"
            if "failed" in row:
                print(f"{start} {row['failed']} | | | | |", flush=True)
                continue
            share = "" if row.get("ratio") is None else f"{row['ratio']:.6f}"
            seconds = f"{row['seconds']:.1f} | {row['cpu']:.1f} | {row['passes'] or ''}"
            print(f"{start} {seconds} | {row['peak_mb']:,.0f} | {share} |", flush=True)
        if not given.keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    print("\n" + "\n".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
