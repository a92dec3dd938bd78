"""Labelled fields as people have them: months, land, patterns that decay, and red noise."""

from functools import cache
from typing import Any

import numpy as np

MONTHS, LATITUDES, LONGITUDES = 96, 8, 10


def monthly(seed: int = 0, season: float = 0.0, trend: float = 0.0, noise: float = 0.3) -> Any:
    """Eight years of a monthly field of three red patterns, far from zero, with land; `trend` is of a day."""
    return _monthly(seed, season, trend, noise).copy()


@cache
def _monthly(seed: int, season: float, trend: float, noise: float) -> Any:
    import pandas as pd
    from xarray import DataArray

    rng = np.random.default_rng(seed)
    time = pd.date_range("2001-01-15", periods=MONTHS, freq=pd.DateOffset(months=1))
    y, x = np.meshgrid(np.linspace(0, 1, LATITUDES), np.linspace(0, 1, LONGITUDES), indexing="ij")
    patterns = np.stack([np.sin(np.pi * (j + 1) * x) * np.cos(np.pi * j * y) for j in range(3)])
    values = np.tensordot(red((MONTHS, 3), 0.6, rng) * [3, 2, 1], patterns, 1)
    values = values + noise * rng.standard_normal(values.shape) + 290
    days = (time - time[0]).days.to_numpy()[:, None, None]
    values = values + season * np.cos(2 * np.pi * (time.month.to_numpy()[:, None, None] / 12 + y)) + trend * days * y
    da = DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={"time": time, "lat": np.linspace(70, -70, LATITUDES), "lon": np.arange(0, 360, 36.0)},
        name="sst",
        attrs={"units": "K", "long_name": "sea surface temperature"},
    )
    return da.where(~((da.lat > 40) & (da.lon < 100)))


def red(shape: tuple[int, ...], r: float, rng: np.random.Generator) -> Any:
    """Red noise of unit variance along the first dimension: each value is r times the one before it, and noise."""
    values = rng.standard_normal(shape)
    for t in range(1, shape[0]):
        values[t] = r * values[t - 1] + np.sqrt(1 - r * r) * values[t]
    return values


def with_gaps(da: Any, share: float, seed: int = 1) -> Any:
    """The field without a share of its values."""
    return da.where(np.random.default_rng(seed).random(da.shape) >= share)
