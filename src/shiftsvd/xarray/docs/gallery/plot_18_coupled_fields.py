"""
Two fields that vary together, and a travelling wave
====================================================

Maximum covariance analysis finds pairs of patterns, one in each field, whose scores have the largest covariance. The
patterns are the singular vectors of the cross-covariance matrix, which is never formed.
"""

# %%
# Simulate 25 years of ocean temperature that oscillates with a period of four years, and of wind on a coarser grid that
# responds to it, each with noise. The ocean field has land cells.

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import shiftsvd.xarray as sx

rng = np.random.default_rng(0)
months = np.arange(300)
swing = np.cos(2 * np.pi * months / 48 + 0.6 * np.cumsum(rng.standard_normal(300)) / 12)
slow = np.convolve(rng.standard_normal(311), np.ones(12) / 3, "valid")


def field(name, rows, columns, pole, centres, noise):
    """Return a sum of patterns around centres (latitude, longitude) times their series, plus noise."""
    lat, lon = np.linspace(-pole, pole, rows), np.linspace(120, 290, columns)
    y, x = np.meshgrid(lat, lon, indexing="ij")
    values = noise * rng.standard_normal((300, rows, columns))
    for (lat0, lon0, sign), series in centres:
        values += sign * series[:, None, None] * np.exp(-(((y - lat0) / 14) ** 2) - ((x - lon0) / 28) ** 2)
    return xr.DataArray(values, {"time": months, "lat": lat, "lon": lon}, ("time", "lat", "lon"), name)


sst = field("temperature", 25, 40, 48, [((0, 250, 2), swing), ((35, 200, -1), swing), ((-30, 160, 1.5), slow)], 0.7)
sst = sst.where(~((sst.lat > 15) & (sst.lon > 255)))
wind = field("wind", 13, 18, 40, [((5, 200, 3), swing), ((-25, 240, 2), rng.standard_normal(300))], 1.5)

pair = sx.coupled(sst, wind, n_modes=3, weights="coslat", rng=0)
print(pair.squared_covariance_fraction.values.round(3), pair.correlation.values.round(2))

# %%
# One pair explains most of the squared covariance. The maps show the correlation of each field with the scores of the
# other field, which measures how well the other field predicts it.

figure = plt.figure(figsize=(10, 6), layout="constrained")
panels = figure.subplot_mosaic([["sst", "wind"], ["scores", "scores"]], height_ratios=[1.4, 1])
for name, side in (("sst", "x"), ("wind", "y")):
    one = sx.side(pair, side)
    shown = one.heterogeneous.sel(mode=1)
    drawn = panels[name].pcolormesh(one.lon, one.lat, shown, cmap="RdBu_r", vmin=-1, vmax=1)
    panels[name].set(title=f"{one.attrs['field']}: correlation with the other's scores", xlabel="lon", ylabel="lat")
figure.colorbar(drawn, ax=[panels["sst"], panels["wind"]], shrink=0.8)
for side, colour in (("x", "tab:red"), ("y", "tab:blue")):
    one = sx.side(pair, side)
    scores = one.scores.sel(mode=1)
    panels["scores"].plot(months / 12, scores / scores.std(), color=colour, label=one.attrs["field"], linewidth=1)
panels["scores"].set(
    xlabel="years", ylabel="scores, in deviations", title=f"correlation {float(pair.correlation[0]):.2f}"
)
panels["scores"].legend(loc="upper right")

# %%
# PCA of a field represents a travelling wave by two modes. The analytic signal represents it by one complex mode, whose
# amplitude shows where the wave is strong, and whose phase (colours) shows its direction.

x, t = np.linspace(0, 2 * np.pi, 72, endpoint=False), months[:, None]
strong = np.exp(-(((x - np.pi) / 1.5) ** 2))
wave = xr.DataArray(
    strong * np.cos(2 * np.pi * t / 30 - 2 * x) + 0.3 * rng.standard_normal((300, 72)),
    {"time": months, "lon": np.rad2deg(x)},
    ("time", "lon"),
)
alone, travelling = sx.pca(wave, 4, rng=0), sx.hilbert(wave, 4, rng=0)
print("variance ratios, field          ", alone.explained_variance_ratio.values.round(2))
print("variance ratios, analytic signal", travelling.explained_variance_ratio.values.round(2))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
first = travelling.components.sel(mode=1)
left.plot(wave.lon, np.abs(first), color="black")
left.scatter(wave.lon, np.abs(first), c=np.angle(first), cmap="twilight", vmin=-np.pi, vmax=np.pi, s=30, zorder=3)
left.set(xlabel="lon", ylabel="amplitude", title="the first component; colour: its phase")
made = sx.reconstruct(travelling, modes=1).isel(time=slice(0, 90))
right.pcolormesh(made.lon, made.time, made, cmap="RdBu_r")
right.set(xlabel="lon", ylabel="month", title="the field of the first mode")
plt.show()
