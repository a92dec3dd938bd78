"""
Two fields that vary together, and a wave that travels
======================================================

Which pattern in one field goes with which in another? Maximum covariance analysis finds pairs of patterns, one in each
field, whose scores have the most covariance: singular vectors of the cross-covariance matrix, which is never formed.
"""

# %%
# Twenty-five simulated years: an ocean whose temperature swings with a period of four years, and winds on a coarser
# grid that answer to it, each under noise of its own. The ocean has land in it.

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import shiftsvd.xarray as sx

rng = np.random.default_rng(0)
months = np.arange(300)
swing = np.cos(2 * np.pi * months / 48 + 0.6 * np.cumsum(rng.standard_normal(300)) / 12)
slow = np.convolve(rng.standard_normal(311), np.ones(12) / 3, "valid")


def field(name, rows, columns, pole, centres, noise):
    """A sum of patterns around centres (latitude, longitude) with their series, and smooth noise."""
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
# One pair has most of the squared covariance. Maps of correlation show it in units that both fields share: of
# each field with the scores of the other one, which is what the other one tells of it.

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
# A wave that travels is two modes of a field alone. Of its analytic signal it is one complex mode: the amplitude says
# where it is strong, and its phase, in rings of colour, which way it goes.

x, t = np.linspace(0, 2 * np.pi, 72, endpoint=False), months[:, None]
strong = np.exp(-(((x - np.pi) / 1.5) ** 2))
wave = xr.DataArray(
    strong * np.cos(2 * np.pi * t / 30 - 2 * x) + 0.3 * rng.standard_normal((300, 72)),
    {"time": months, "lon": np.rad2deg(x)},
    ("time", "lon"),
)
alone, travelling = sx.pca(wave, 4, rng=0), sx.hilbert(wave, 4, rng=0)
print("modes of the field ", alone.explained_variance_ratio.values.round(2))
print("of its analytic one", travelling.explained_variance_ratio.values.round(2))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
first = travelling.components.sel(mode=1)
left.plot(wave.lon, np.abs(first), color="black")
left.scatter(wave.lon, np.abs(first), c=np.angle(first), cmap="twilight", vmin=-np.pi, vmax=np.pi, s=30, zorder=3)
left.set(xlabel="lon", ylabel="amplitude", title="the first component; colour: its phase")
made = sx.reconstruct(travelling, modes=1).isel(time=slice(0, 90))
right.pcolormesh(made.lon, made.time, made, cmap="RdBu_r")
right.set(xlabel="lon", ylabel="month", title="the field that it makes up")
plt.show()
