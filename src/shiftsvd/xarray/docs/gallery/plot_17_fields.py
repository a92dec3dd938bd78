"""
A field with missing values: modes, rotation, and sampling errors
=================================================================

Satellite data of sea surface temperature have a seasonal cycle and a trend that dominate other variability, land, and
clouds, which here hide 40 % of the values. `shiftsvd.xarray` computes the modes, tests which of them are separated, and
rotates them to regional patterns.
"""

# %%
# Simulate 25 years of monthly data on a grid of 6 degrees: four regions that oscillate, each with its own red time
# series, plus seasons, a trend and noise. Clouds vary in time and are more frequent in some regions.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from scipy.ndimage import gaussian_filter

import shiftsvd.plot as plot
import shiftsvd.xarray as sx

rng, MONTHS = np.random.default_rng(3), 300
time = pd.date_range("1982-01-01", periods=MONTHS, freq="MS")
lat, lon = np.arange(57.0, -60, -6.0), np.arange(3.0, 360, 6.0)
y, x = np.meshgrid(lat, lon, indexing="ij")


def region(at_lat, at_lon, height, width):
    """Return a smooth spot on the map."""
    away = (x - at_lon + 180) % 360 - 180
    return np.exp(-(((y - at_lat) / height) ** 2) - (away / width) ** 2)


truth = np.stack([region(0, 230, 12, 45), region(42, 190, 16, 40), region(-38, 330, 16, 40), region(-15, 75, 14, 35)])
series = rng.standard_normal((MONTHS, 4))
for t in range(1, MONTHS):
    series[t] = 0.85 * series[t - 1] + np.sqrt(1 - 0.85**2) * series[t]
swings = np.tensordot(series, truth, 1)
seasons = -5 * np.sin(np.deg2rad(y)) * np.cos(2 * np.pi * (time.month.to_numpy()[:, None, None] - 2) / 12)
years = ((time - time[0]).days.to_numpy() / 365.25)[:, None, None]
noise = gaussian_filter(rng.standard_normal(swings.shape), (0, 1, 1)) * 0.7
whole = xr.DataArray(
    288 + 12 * np.cos(np.deg2rad(2 * y)) + seasons + 0.02 * years + swings + noise,
    {"time": time, "lat": lat, "lon": lon},
    ("time", "lat", "lon"),
    "sst",
    {"units": "K", "long_name": "sea surface temperature"},
)
land = gaussian_filter(rng.standard_normal(y.shape), (2, 3), mode=("nearest", "wrap")) > 0.11
cover = gaussian_filter(rng.standard_normal(swings.shape), (0, 2, 2), mode=("constant", "nearest", "wrap"))
clouds = cover > np.quantile(cover, 0.6) + 0.03 * np.cos(np.deg2rad(3 * y))
whole = whole.where(~land)
seen = whole.where(~clouds)
print(f"{float(seen.isnull().sum() / whole.notnull().sum() - land.mean() / (1 - land.mean())):.0%} hidden by clouds")

# %%
# One call removes the mean of each calendar month and the trend, weights cells by area, and fits a model of six modes
# to the observed values. ``heldout_r2`` is the R2 of its predictions of held-out values. In this simulation we can also
# compare the predictions with the true values beneath the clouds.

how = {"weights": "coslat", "groups": "time.month", "covariates": "time"}
eofs = sx.pca(seen, 6, missing="em", rng=0, **how)
filled = seen.fillna(sx.reconstruct(eofs))
hidden = seen.isnull() & whole.notnull()
off = (filled - whole).where(hidden)
by_month = (seen.groupby("time.month").mean().sel(month=whole.time.dt.month) - whole).where(hidden)
print(f"held-out R2 {eofs.heldout_r2:.2f}")
errors = [float((each**2).mean() ** 0.5) for each in (off, by_month)]
print("RMSE beneath clouds: {:.2f} K; of monthly means: {:.2f} K".format(*errors))

figure, axes = plt.subplots(1, 3, figsize=(10, 2.3), layout="constrained", sharey=True)
anomaly = whole - whole.groupby("time.month").mean().sel(month=whole.time.dt.month)
month = 150
for ax, field, title in zip(
    axes,
    (anomaly, anomaly.where(~clouds), anomaly.where(~hidden, anomaly + off)),
    ("truth", "seen", "filled"),
    strict=True,
):
    ax.set_facecolor("0.75")
    image = ax.pcolormesh(lon, lat, field[month], cmap="RdBu_r", vmin=-3, vmax=3)
    ax.set(title=f"{title}, {time[month]:%B %Y}", xlabel="longitude")
axes[0].set_ylabel("latitude")
figure.colorbar(image, ax=axes, label="anomaly, K")

# %%
# The rule of North et al. estimates the standard error of each variance. Months are autocorrelated, so the effective
# number of samples is smaller than the number of months. Thick grey bars assume independent samples; thin bars use the
# effective number. Modes with overlapping bars may be any mixture of each other.

bars = sx.north(eofs)
print("samples", eofs.sizes["time"], "effective", bars.effective_size.values.round().astype(int)[:4])
figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
plot.north(bars, ax=ax)

# %%
# Maps of the leading four modes show the anomaly of the field for a score of one standard deviation. Modes are
# orthogonal, so each of them mixes several regions. Varimax rotation recovers the four regions.

turned = sx.rotate(eofs, 4)
figure, axes = plt.subplots(4, 2, figsize=(10, 7.6), layout="constrained", sharex=True, sharey=True)
for column, modes, title in ((0, eofs, "mode"), (1, turned, "rotated mode")):
    for ax, one, share in zip(
        axes[:, column], sx.patterns(modes)[:4], modes.explained_variance_ratio.values, strict=False
    ):
        ax.set_facecolor("0.75")
        image = ax.pcolormesh(lon, lat, one, cmap="RdBu_r", vmin=-1.3, vmax=1.3)
        ax.contour(lon, lat, truth.max(axis=0), levels=[0.5], colors="black", linewidths=0.8)
        ax.set_title(f"{title} {int(one.mode)}: {share:.0%}")
figure.colorbar(image, ax=axes, label="K at one standard deviation")

# %%
# The scores of each rotated mode correlate with one of the four simulated time series.

found = np.corrcoef(turned.scores.values, series.T)[:4, 4:]
print(np.abs(found).max(axis=1).round(2))

# %%
# P values of a correlation with an index account for the autocorrelation of both series. An unrelated index correlates
# with the field by chance. Without the effective sample size, far too many cells would appear significant.

index = np.zeros(MONTHS)
for t in range(1, MONTHS):
    index[t] = 0.9 * index[t - 1] + rng.standard_normal()
maps = sx.correlation(whole - sx.reconstruct(eofs, modes=[]), xr.DataArray(index, {"time": time}, "time"))
there = maps.p_value.notnull()
print(f"{float((maps.p_value < 0.05).sum() / there.sum()):.0%} of cells below 0.05")
plt.show()
