"""Plots of explained variance: scree plot, reconstruction error, variances with North's error bars."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.operators import Vector, repeated
from shiftsvd.plot.fitted import BLUE, GREY, ORANGE, Display, Fit, FitDisplay, is_dominated, read

BARS = 40  # draw a line instead of bars for more components
ROUNDING = 1e-8  # relative to the largest value: a logarithmic axis excludes smaller values

Band = tuple[Vector, Vector]


@dataclass(eq=False, repr=False, kw_only=True)
class ScreeDisplay(FitDisplay):
    """Variance of each component, its share of the total, and the certificate; made by `scree`.

    Parameters
    ----------
    values : array of shape (k,)
        Shares of the total variance; squared singular values if the total is unknown.
    bounds : pair of arrays of shape (k,), optional
        Lower and upper bound of the values.
    cumulative : array of shape (k,), optional
        Cumulative sum of the values, if the total is known.
    cumulative_bounds : pair of arrays of shape (k,), optional
        Lower and upper bound of the cumulative sum.
    whole : str
        Name of the total, for the label of the axis.

    Attributes
    ----------
    cumulative_ax_ : matplotlib Axes
        None if the total is unknown.

    See Also
    --------
    plot.scree : Draws one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> fit = ss.PCA(n_components=2).fit(X)
    >>> ss.plot.ScreeDisplay.from_estimator(fit).values.round(2).tolist()
    [0.9, 0.09]
    """

    values: Vector
    bounds: Band | None = None
    cumulative: Vector | None = None
    cumulative_bounds: Band | None = None
    whole: str = "variance"

    def _draw(self) -> None:
        at = np.arange(1, len(self.values) + 1)
        if len(at) <= BARS:
            self.ax_.bar(at, self.values, color=BLUE)
        else:
            self.ax_.fill_between(at, self.values, color=BLUE, alpha=0.8, step="mid", linewidth=0)
        if self.bounds is not None:
            _error_bars(self.ax_, at, self.values, self.bounds)
        whole = self.cumulative is not None
        self.ax_.set(
            title=f"Explained {self.whole.partition(',')[0]}" if whole else "Squared singular values",
            xlabel="component",
            ylabel=f"share of the {self.whole}" if whole else "squared singular value",
            xlim=(0.3, len(at) + 0.7),
        )
        _scaled(self.ax_, self.values, in_percent=whole)
        self.cumulative_ax_ = self._cumulative(at) if whole else None

    def _cumulative(self, at: Vector) -> Any:
        ax = self.ax_.twinx()
        _draw_line(ax, at, self.cumulative, ORANGE, self.cumulative_bounds, linewidth=1.3)
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(_in_percent)
        ax.set_ylabel("cumulative", color=ORANGE)
        ax.tick_params(axis="y", colors=ORANGE)
        self.ax_.yaxis.label.set_color(BLUE)
        self.ax_.tick_params(axis="y", colors=BLUE)
        return ax


@dataclass(eq=False, repr=False, kw_only=True)
class ReconstructionErrorDisplay(FitDisplay):
    """Relative error of the reconstruction from the first 0, 1, ..., k components; made by `reconstruction_error`.

    Parameters
    ----------
    errors : array of shape (k + 1,)
        Frobenius norms relative to the norm of the shifted, scaled data.
    bounds : pair of arrays of shape (k + 1,), optional
        Lower and upper bound of the errors.
    new_errors : array of shape (k + 1,), optional
        Errors for rows that were not in the fit.
    whole : str, optional
        Name of the matrix that the errors are relative to, if not the data.

    See Also
    --------
    plot.reconstruction_error : Draws one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> fit = ss.PCA(n_components=2).fit(X)
    >>> ss.plot.ReconstructionErrorDisplay.from_estimator(fit).errors.shape
    (3,)
    """

    errors: Vector
    bounds: Band | None = None
    new_errors: Vector | None = None
    whole: str = ""

    def _draw(self) -> None:
        at = np.arange(len(self.errors))
        _draw_line(self.ax_, at, self.errors, BLUE, self.bounds, label="fitted rows")
        if self.new_errors is not None:
            _draw_line(self.ax_, at, self.new_errors, ORANGE, label="rows given")
            self.ax_.legend(frameon=False)
        relative = f"error relative to {self.whole}" if self.whole else "relative error"
        self.ax_.set(title="Error of the reconstruction", xlabel="components", ylabel=relative)
        _scaled(self.ax_, self.errors, in_percent=True)


@dataclass(eq=False, repr=False, kw_only=True)
class NorthDisplay(Display):
    """Variance shares of modes, with their standard errors as error bars; made by `north`.

    Parameters
    ----------
    modes : array of shape (k,)
        Numbers of the modes, from 1.
    shares, errors, nominal : arrays of shape (k,)
        Shares of the total variance, their standard errors, and the standard errors for independent samples.
    separated : array of shape (k,)
        Whether a mode is separated from its neighbours.

    See Also
    --------
    plot.north : Draws one.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.plot import NorthDisplay
    >>> shares, errors = np.array([0.5, 0.2]), np.array([0.05, 0.02])
    >>> bars = {"errors": errors, "nominal": errors / 2, "separated": np.array([True, True])}
    >>> NorthDisplay(modes=np.array([1, 2]), shares=shares, **bars).plot().ax_.get_xlabel()
    'mode'
    """

    modes: Vector
    shares: Vector
    errors: Vector
    nominal: Vector
    separated: Vector

    def _draw(self) -> None:
        for mask, colour, label in (
            (self.separated, BLUE, "separated from its neighbours"),
            (~self.separated, ORANGE, "perhaps mixed with a neighbour"),
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


def scree(result_or_estimator: Any, ax: Any = None) -> ScreeDisplay:
    """Plot the variance of each component and the cumulative sum, as shares of the total, with their bounds.

    The axis is logarithmic if the second variance is below 5 % of the first.

    Parameters
    ----------
    result_or_estimator : SVDResult, or fitted estimator such as `PCA`
        The fit. An SVDResult without the norm of its matrix is drawn as squared singular values.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    ScreeDisplay
        The plot, with its axes as ``ax_``.

    See Also
    --------
    plot.ScreeDisplay : The class of the plot.
    suggest_k : Choose the number of components.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.plot import scree
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> scree(ss.PCA(n_components=3).fit(X)).ax_.get_title()
    'Explained variance'
    """
    fit = read(result_or_estimator)
    known, bounds = fit.cumulative(), fit.bounds()
    if known is None:
        return ScreeDisplay(values=fit.variances, bounds=bounds).plot(ax=ax)
    return ScreeDisplay(
        values=fit.share_of(fit.variances),
        bounds=bounds and (fit.share_of(bounds[0]), fit.share_of(bounds[1])),
        cumulative=known[0],
        cumulative_bounds=bounds and known[1:],
        whole=fit.whole + ", with missing entries by the model" * fit.is_completed,
    ).plot(ax=ax)


ScreeDisplay._function = scree


def reconstruction_error(estimator_or_result: Any, X: Any = None, ax: Any = None) -> ReconstructionErrorDisplay:
    """Plot the error of the first 0, 1, ..., k components, ``||A - A_j||_F / ||A||_F`` of the shifted, scaled A.

    Parameters
    ----------
    estimator_or_result : SVDResult, or fitted estimator such as `PCA`
        The fit whose error is drawn.
    X : array or sparse matrix of shape (m, n_features), optional
        Other rows, to plot their error as well; needs an estimator, and two passes.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    ReconstructionErrorDisplay
        The plot, with its axes as ``ax_``.

    Raises
    ------
    ValueError
        If the norm of the matrix is unknown, or `X` is given with an SVDResult.

    See Also
    --------
    plot.ReconstructionErrorDisplay : The class of the plot.
    plot.scree : The variances.

    Notes
    -----
    Errors below 1e-8 are rounding errors: each is the root of a difference of squares.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.plot import reconstruction_error
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> display = reconstruction_error(ss.PCA(n_components=8, tol=0).fit(X[:50]), X[50:])
    >>> bool(display.errors[0] == 1), bool(display.errors[-1] < 1e-6)
    (True, True)
    """
    fit = read(estimator_or_result)
    known = fit.cumulative()
    if known is None:
        raise ValueError("The norm of the matrix was not computed (info.frobenius_error is None). Fit it with PCA.")
    share, lower, upper = (np.concatenate([[0.0], values]) for values in known)
    bounds = None if fit.errors is None else (_left(upper), _left(lower))
    new = None if X is None else _errors_of(fit, X)
    whole = "the completed matrix" if fit.is_completed else ""
    return ReconstructionErrorDisplay(errors=_left(share), bounds=bounds, new_errors=new, whole=whole).plot(ax=ax)


ReconstructionErrorDisplay._function = reconstruction_error


def north(errors: Any, ax: Any = None) -> NorthDisplay:
    """Plot the variances of the modes of a field with North's bars, one standard error to each side.

    Parameters
    ----------
    errors : xarray.Dataset
        The result of `shiftsvd.xarray.north`. Thick grey bars are the standard errors for independent samples.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    NorthDisplay
        The plot, with its axes as ``ax_``.

    Raises
    ------
    ValueError
        If `errors` lacks a variable, as modes do.

    See Also
    --------
    plot.NorthDisplay : The class of the plot.
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
        raise ValueError(f"errors must be a result of shiftsvd.xarray.north, but it lacks {', '.join(missing)}")
    known = {name: np.asarray(errors[name].values) for name in needed}
    unit = known["explained_variance_ratio"][0] / known["explained_variance"][0]
    return NorthDisplay(
        modes=errors.mode.values,
        shares=known["explained_variance_ratio"],
        errors=known["standard_error"] * unit,
        nominal=known["nominal_error"] * unit,
        separated=known["separated"].astype(bool),
    ).plot(ax=ax)


def _draw_line(ax: Any, at: Vector, values: Any, color: str, bounds: Band | None = None, **look: Any) -> None:
    ax.plot(at, values, "o-" if len(at) <= BARS else "-", color=color, markersize=3, **look)
    if bounds is not None:
        ax.fill_between(at, *bounds, color=color, alpha=0.25, linewidth=0)


def _scaled(ax: Any, values: Vector, *, in_percent: bool) -> None:
    there = values[values > ROUNDING * values.max(initial=0)]
    if is_dominated(there):
        ax.set_yscale("log", nonpositive="clip")
        ax.set_ylim(there.min() / 2, 2 * there.max())
    else:
        ax.set_ylim(bottom=0)
    if in_percent:
        ax.yaxis.set_major_formatter(_in_percent)
    ax.xaxis.get_major_locator().set_params(integer=True)


def _in_percent(share: float, place: int | None = None) -> str:
    return f"{100 * share:.6f}".rstrip("0").rstrip(".") + " %"


def _left(share: Vector) -> Vector:
    return np.asarray(np.sqrt(np.maximum(1 - share, 0)))


def _error_bars(ax: Any, at: Vector, values: Vector, bounds: Band) -> None:
    spread = np.maximum([values - bounds[0], bounds[1] - values], 0)
    seen = spread.max(axis=0) > 5e-3 * np.max(values, initial=0)
    if seen.any():
        ax.errorbar(at[seen], values[seen], yerr=spread[:, seen], fmt="none", ecolor=ORANGE, elinewidth=1.2, capsize=2)


def _errors_of(fit: Fit, X: Any) -> Vector:
    if not fit.is_estimator:
        raise ValueError("New rows need an estimator, which stores the shift, got an SVDResult. Use PCA.")
    model = fit.model
    Z = np.asarray(model.transform(X), np.float64)
    if getattr(model, "whiten", False):
        Z = Z * np.sqrt(fit.variances)
    A = as_operator(X)
    if hasattr(model, "_minus_shift"):  # an estimator of shiftsvd, whose shift may have more than the mean
        squares = model._minus_shift(A, None, None).row_squares()
    else:
        squares = (A - repeated(np.asarray(model.mean_, np.float64), A.shape[0])).row_squares()
    total = 0.0 if squares is None else float(squares.sum())
    if total == 0:
        raise ValueError("All new rows equal the mean of the fit, so relative errors are undefined. Pass other rows.")
    return _left(np.concatenate([[0.0], np.cumsum((Z**2).sum(axis=0))]) / total)
