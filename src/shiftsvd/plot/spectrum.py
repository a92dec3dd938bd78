"""Variances of the modes of a field with their sampling errors: North's bars."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.plot.fitted import BLUE, GREY, ORANGE, given_or_new


@dataclass(eq=False, repr=False, kw_only=True)
class NorthDisplay:
    """Shares of the variance of modes, with bars as long as their standard errors; made by `north`.

    Parameters
    ----------
    modes : array of shape (k,)
    shares, errors, nominal : arrays of shape (k,)
        Shares of the total variance, their standard errors, and those that they would have of independent samples.
    separated : array of shape (k,)
        Whether a mode is told from its neighbours.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    plot.north : Draws one.
    """

    modes: Vector
    shares: Vector
    errors: Vector
    nominal: Vector
    separated: Vector

    def plot(self, *, ax: Any = None) -> Self:
        """Draw on `ax`, or on a new figure."""
        self.ax_ = given_or_new(ax)
        self.figure_ = self.ax_.figure
        for mask, colour, label in (
            (self.separated, BLUE, "told from its neighbours"),
            (~self.separated, ORANGE, "mixed with a neighbour"),
        ):
            if mask.any():
                bars = {"yerr": self.errors[mask], "fmt": "o", "color": colour, "capsize": 3, "label": label}
                self.ax_.errorbar(self.modes[mask], self.shares[mask], **bars)
        self.ax_.errorbar(
            *(self.modes, self.shares, self.nominal), fmt="none", ecolor=GREY, elinewidth=4, alpha=0.5, zorder=1
        )
        self.ax_.set(
            title="Variances with North's bars", xlabel="mode", ylabel="share of the variance", xticks=self.modes
        )
        self.ax_.set_ylim(bottom=min(0.0, float(np.min(self.shares - self.errors))))
        self.ax_.legend(frameon=False)
        return self


def north(errors: Any, ax: Any = None) -> NorthDisplay:
    """The variances of the modes of a field with North's bars, one standard error to each side.

    Parameters
    ----------
    errors : xarray.Dataset
        What `shiftsvd.xarray.north` gave. Thick grey bars are those of independent samples.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    NorthDisplay
        The plot, with its axes as ``ax_``.

    Raises
    ------
    ValueError
        For anything else, such as the modes themselves.

    See Also
    --------
    plot.NorthDisplay : What is returned.
    xarray.north : The errors.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> from shiftsvd.plot import north
    >>> values = np.random.default_rng(0).standard_normal((100, 4, 5))
    >>> eofs = sx.pca(xarray.DataArray(values, dims=("time", "lat", "lon")), 3)
    >>> north(sx.north(eofs)).ax_.get_ylabel()
    'share of the variance'
    """
    needed = ("explained_variance", "explained_variance_ratio", "standard_error", "nominal_error", "separated")
    if missing := [name for name in needed if name not in getattr(errors, "data_vars", ())]:
        raise ValueError(f"errors must be what shiftsvd.xarray.north gives, but {', '.join(missing)} is missing")
    known = {name: np.asarray(errors[name].values) for name in needed}
    unit = known["explained_variance_ratio"][0] / known["explained_variance"][0]
    return NorthDisplay(
        modes=errors.mode.values,
        shares=known["explained_variance_ratio"],
        errors=known["standard_error"] * unit,
        nominal=known["nominal_error"] * unit,
        separated=known["separated"].astype(bool),
    ).plot(ax=ax)
