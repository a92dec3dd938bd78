"""Plots of features: the largest loadings of a component, and a biplot of samples and features."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from shiftsvd.operators import Panel, Vector
from shiftsvd.plot.fitted import BLUE, GREEN, GREY, ORANGE, FitDisplay, largest, read, short
from shiftsvd.plot.points import ScoresDisplay, write_names

FEW = 6  # minimum number of bars that the axis has room for
VISIBLE = 0.05  # shortest arrow, relative to the longest
REACH = 0.85  # of the longest arrow, relative to the room along its axis


@dataclass(eq=False, repr=False, kw_only=True)
class LoadingsDisplay(FitDisplay):
    """The largest entries of a component, by name; made by `loadings`.

    Parameters
    ----------
    values : array of shape (top,)
        The loadings, descending.
    names : list of str
        Names of the features.
    component : int
        Number of the component, from 1.

    See Also
    --------
    plot.loadings : Draws one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> fit = ss.PCA(n_components=2).fit(X)
    >>> ss.plot.LoadingsDisplay.from_estimator(fit, 2, top=1, names=["a", "b", "c"]).names
    ['c']
    """

    values: Vector
    names: list[str]
    component: int

    def _draw(self) -> None:
        at = np.arange(len(self.values))
        self.ax_.barh(at, self.values, color=np.where(self.values >= 0, BLUE, ORANGE))
        names = [short(name) for name in self.names]
        roomy = len(at) <= 15 and max((len(name) for name in names), default=0) <= 14
        size = "medium" if roomy else "small" if len(at) <= 20 else "x-small"
        self.ax_.set_yticks(at, names, parse_math=False, fontsize=size)
        self.ax_.set(title=f"Loadings of PC{self.component}", xlabel="loading")
        self.ax_.set_ylim(max(len(at), FEW) - 0.4, -0.6)
        self.ax_.axvline(0, color=GREY, linewidth=0.8)


@dataclass(eq=False, repr=False)
class BiplotDisplay(FitDisplay):
    """Samples as dots and features as arrows; made by `biplot`.

    Parameters
    ----------
    points : ScoresDisplay
        The samples, drawn first.
    arrows : array of shape (top, 2)
        The loadings of the features on both components.
    names : list of str
        The features, one for each arrow.
    places : array of shape (n, 2)
        Supplementary columns: barycentres of categories, drawn as squares; correlations of numbers, as dashed arrows.
    place_names : list of str
        Names of these.
    are_arrows : array of bool, shape (n,)
        True for numbers.

    Attributes
    ----------
    factor_ : array of shape (2,)
        Factors that scale the arrows to the two axes.

    See Also
    --------
    plot.biplot : Draws one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> fit = ss.PCA(n_components=2).fit(X)
    >>> sorted(ss.plot.BiplotDisplay.from_estimator(fit, X, names=["a", "b", "c"], top=2).names)
    ['b', 'c']
    """

    points: ScoresDisplay
    _: KW_ONLY
    arrows: Panel
    names: list[str]
    places: Panel = field(default_factory=lambda: np.empty((0, 2)))
    place_names: list[str] = field(default_factory=list)
    are_arrows: Vector = field(default_factory=lambda: np.empty(0, bool))

    def _draw(self) -> None:
        self.points.plot(ax=self.ax_)
        for dots in self.ax_.collections:
            dots.set_alpha(0.4)  # so that arrows and names stand out
        limits = np.array([self.ax_.get_xlim(), self.ax_.get_ylim()])
        room = np.min(np.abs(limits), axis=1)  # to the nearer side of the origin
        self.factor_ = _factors(self.arrows) * REACH * room
        tips, places = self.arrows * self.factor_, self.places.copy()
        places[self.are_arrows] *= REACH * room  # a correlation of 1 is as long as the longest arrow
        squares = places[~self.are_arrows]
        if len(squares):
            self.ax_.scatter(*squares.T, s=26, marker="s", color=GREEN, zorder=3)
        dashed = {"linestyle": (0, (3, 2)), "color": GREEN}
        for tip, more in [*((tip, {}) for tip in tips), *((tip, dashed) for tip in places[self.are_arrows])]:
            look = {"arrowstyle": "->", "color": ORANGE, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0} | more
            self.ax_.annotate("", tip, (0, 0), arrowprops=look)
        colors = [GREEN] * len(places) + [ORANGE] * len(tips)
        write_names(self.ax_, np.vstack([places, tips]), [*self.place_names, *self.names], colors)
        x, y = self.factor_
        self.ax_.set_title(f"{self.ax_.get_title()}\narrows: loadings × ({x:.2g}, {y:.2g})", fontsize="small")


def _factors(arrows: Panel) -> Vector:
    longest = np.max(np.abs(arrows), axis=0, initial=0)
    return 1 / np.where(longest > 0, longest, 1)


def loadings(
    estimator_or_result: Any, component: int = 1, top: int = 20, names: Any = None, ax: Any = None
) -> LoadingsDisplay:
    """Plot the loadings of largest magnitude of a component, with the names of their features.

    Parameters
    ----------
    estimator_or_result : fitted estimator such as `PCA`, or SVDResult
        The fit whose components are drawn.
    component : int
        Counted from 1.
    top : int
        Number of features.
    names : sequence of n_features names, optional
        Default: names from the fitted data frame, else numbers from 1.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    LoadingsDisplay
        The plot, with its axes as ``ax_``.

    See Also
    --------
    plot.LoadingsDisplay : The class of the plot.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.plot import loadings
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> loadings(ss.PCA(n_components=2).fit(X), names=["a", "b", "c"], top=1).names
    ['b']
    """
    fit = read(estimator_or_result)
    values = fit.components[fit.places((component,))[0]]
    chosen = largest(np.abs(values), top)
    chosen = chosen[np.argsort(-values[chosen], kind="stable")]
    labels = fit.feature_names(names)
    return LoadingsDisplay(values=values[chosen], names=[labels[j] for j in chosen], component=component).plot(ax=ax)


LoadingsDisplay._function = loadings


def biplot(
    estimator_or_result: Any,
    X: Any = None,
    *,
    Z: Any = None,
    components: tuple[int, int] = (1, 2),
    top: int = 10,
    names: Any = None,
    color: Any = None,
    supplementary: Any = None,
    ax: Any = None,
) -> BiplotDisplay:
    """Plot samples as dots and the features with the largest loadings as arrows.

    Dots are scores, arrows are loadings (times the standard deviations, if scores are whitened), so that
    ``point . arrow`` is the rank-two approximation of the shifted, scaled entry. One factor for each axis scales the
    arrows, so that the largest loading of each component has the longest arrow along it; the title gives both factors.
    Names that would overlap other names are omitted.

    Parameters
    ----------
    estimator_or_result : fitted estimator such as `PCA`, or SVDResult
        The fit whose scores and components are drawn.
    X : array, sparse matrix or Operator of shape (m, n_features), optional
        Rows whose scores are drawn; one pass.
    Z : array of shape (m, k), optional
        Scores, if they are known already.
    components : pair of int
        The two components, counted from 1.
    top : int
        Largest number of features: those with the longest arrows.
    names : sequence of n_features names, optional
        Names of the features.
    color : array of shape (m,), optional
        A number or a class for each row, as in `scores`.
    supplementary : Supplementary, optional
        Columns that took no part, which `supplementary` placed: categories are squares at the mean of their rows,
        numbers are dashed arrows: their correlations.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    BiplotDisplay
        The plot, with its axes as ``ax_``.

    See Also
    --------
    plot.BiplotDisplay : The class of the plot.
    plot.scores : Without features.

    References
    ----------
    Gabriel (1971), The biplot graphic display of matrices.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.plot import biplot
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> sorted(biplot(ss.PCA(n_components=2).fit(X), X, names=["a", "b", "c"], top=2).names)
    ['b', 'c']
    """
    fit = read(estimator_or_result)
    places = fit.places(components)
    arrows = fit.components[places].T
    if getattr(estimator_or_result, "whiten", False):
        arrows = arrows * np.sqrt(fit.variances[places])
    length = np.hypot(*(arrows * _factors(arrows)).T)
    chosen = largest(length, top)
    chosen = chosen[length[chosen] >= VISIBLE]
    labels = fit.feature_names(names)
    points = ScoresDisplay._of(fit, X, Z, components, color=color)
    more: dict[str, Any] = {}
    if supplementary is not None:
        at = np.asarray(supplementary.coordinates)[:, places]
        numbers = np.array([one is None for one in supplementary.categories])
        more = {"places": at, "place_names": supplementary.names, "are_arrows": numbers}
    return BiplotDisplay(points, arrows=arrows[chosen], names=[labels[j] for j in chosen], **more).plot(ax=ax)


BiplotDisplay._function = biplot
