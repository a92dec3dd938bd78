"""The scores: one dot for each sample, or a raster where there are many."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.operators import Panel
from shiftsvd.plot.colours import Classes, Colouring, Scale, colouring, scale_colours
from shiftsvd.plot.fitted import BLUE, GREY, Fit, checked_component, given_or_new, percent, read, short
from shiftsvd.plot.naming import write_names
from shiftsvd.plot.raster import Grid, ScoreRaster, farthest, finite

MANY: Final = 20_000  # more points are a raster
CRISP: Final = 500  # more points are an image, also in vector formats
BINS: Final = 256


@dataclass(eq=False, repr=False)
class ScoresDisplay:
    """Scores of two components, coloured by a column; made by `scores`.

    Parameters
    ----------
    points : array of shape (m, 2), or ScoreRaster
        The scores of each sample, or what was counted of many.
    components : pair of int
        Their numbers, from 1.
    shares : pair of floats, optional
        Of the variance, for the labels of the axes.
    color : array of shape (m,), optional
        A number or a class for each sample.
    labels : sequence of m names, optional
        Names of the samples, written beside few points.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    plot.scores : Draws one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((100, 3)) * [1, 9, 3]
    >>> fit = ss.PCA(n_components=2).fit(X)
    >>> ss.plot.ScoresDisplay.from_estimator(fit, X).points.shape
    (100, 2)
    """

    points: Panel | ScoreRaster
    _: KW_ONLY
    components: tuple[int, int] = (1, 2)
    shares: tuple[float, float] | None = None
    color: Any = None
    labels: Any = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        Z: Any = None,
        components: tuple[int, int] = (1, 2),
        color: Any = None,
        labels: Any = None,
        ax: Any = None,
    ) -> Self:
        """The plot of the rows of X, of the scores Z, or of the rows behind an SVDResult.

        Parameters
        ----------
        estimator : fitted estimator such as `PCA`, or SVDResult
            The fit that is drawn.
        X : array, sparse matrix or Operator of shape (m, n_features), optional
            Rows whose scores are drawn; one pass.
        Z : array of shape (m, k), optional
            Scores, where they are there already.
        components : pair of int
            Which two, counted from 1.
        color : array of shape (m,), optional
            A number or a class for each row.
        labels : sequence of m names, optional
            Names of the rows, written beside few points.
        ax : matplotlib Axes, optional
            Default: those of a new figure.

        Returns
        -------
        ScoresDisplay
            The plot, drawn.
        """
        fit = read(estimator)
        places = [checked_component(component, fit.k) - 1 for component in components]
        if isinstance(Z, ScoreRaster) and tuple(components) != tuple(Z.components):
            raise ValueError(f"the raster holds components {Z.components}, got components={components}")
        points = Z if isinstance(Z, ScoreRaster) else finite(_scores_of(fit, X, Z, max(components))[:, places])
        known = fit.shares
        shares = None if known is None else (float(known[places[0]]), float(known[places[1]]))
        display = cls(points, components=components, shares=shares, color=color, labels=labels)
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw what this display holds, on `ax` or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Default: those of a new figure.

        Returns
        -------
        ScoresDisplay
            This plot, with `ax_` and `figure_`.
        """
        m = self.points.n if isinstance(self.points, ScoreRaster) else len(self.points)
        colours = colouring(self.color, m)
        if self.labels is not None and len(self.labels) != m:
            raise ValueError(f"labels must have one name for each of the {m} samples, got {len(self.labels)}")
        self.ax_ = given_or_new(ax)
        self.figure_ = self.ax_.figure
        self.ax_.set_title(f"Scores of {m:,} samples")
        shares = self.shares or (None, None)
        self.ax_.set(xlabel=_axis(self.components[0], shares[0]), ylabel=_axis(self.components[1], shares[1]))
        self.ax_.ticklabel_format(scilimits=(-3, 3))  # longer labels would overlap
        if isinstance(self.points, ScoreRaster):
            self._raster(self.points, colours)
        else:
            self._draw(self.points, colours)
            if self.labels is not None:
                self._name(*farthest(self.points))
        return self

    def _raster(self, raster: ScoreRaster, colours: Colouring | None) -> None:
        points, rows, labels = raster.sample, raster.sample_rows, self.labels
        if colours is None and len(points) < raster.n:
            self._density(raster.counts, raster.grid, raster.clipped)
        else:
            if len(points) < raster.n:
                self.ax_.set_title(f"Scores of {len(points):,} of {raster.n:,} samples")
            self._draw(points, None if colours is None else colours.take(rows))
        if labels is not None:
            self._name(*raster.farthest)

    def _draw(self, points: Panel, colours: Colouring | None) -> None:
        (self._cells if len(points) > MANY else self._dots)(points, colours)

    def _name(self, points: Panel, rows: npt.NDArray[Any]) -> None:
        write_names(self.ax_, points, np.array([str(self.labels[row]) for row in rows], object))

    def _dots(self, points: Panel, colours: Colouring | None) -> None:
        size = float(np.clip(4e4 / max(len(points), 1), 3, 25))
        look = {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": len(points) > CRISP}
        if isinstance(colours, Scale):
            dots = self.ax_.scatter(*points.T, c=colours.values, cmap=scale_colours(GREY), plotnonfinite=True, **look)
            self._bar(dots, colours.title)
        elif colours is not None:
            self.ax_.scatter(*points.T, c=colours.palette()[colours.codes], **look)
            self._legend(colours)
        else:
            self.ax_.scatter(*points.T, color=BLUE, **look)

    def _cells(self, points: Panel, colours: Colouring | None) -> None:
        grid = Grid.around(points, BINS)
        counts = grid.count(points)
        if isinstance(colours, Scale):
            image = self._image(_means(grid, points, colours), grid, counts, cmap=scale_colours())
            self._bar(image, f"{colours.title} (mean)".strip())
        elif colours is not None:
            self._image(_majority(grid, points, colours, counts), grid, counts)
            self._legend(colours)
        else:
            self._density(counts, grid, grid.outside(points))
            return
        self._say_clipped(grid.outside(points))

    def _density(self, counts: npt.NDArray[np.int64], grid: Grid, clipped: int) -> None:
        from matplotlib.colors import LogNorm

        norm = LogNorm(1, max(2, int(counts.max(initial=0))))
        image = self._image(np.ma.array(counts, mask=counts == 0), grid, counts, cmap=scale_colours(), norm=norm)
        bar = self._bar(image, "samples in a cell")
        bar.minorticks_off()
        bar.ax.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        self._say_clipped(clipped)

    def _image(self, pixels: Any, grid: Grid, counts: npt.NDArray[np.int64], **how: Any) -> Any:
        spans = []
        for axis, limits in ((0, grid.x), (1, grid.y)):
            filled = np.flatnonzero(counts.any(axis=axis))
            low, high = (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (0, grid.bins)
            step = (limits[1] - limits[0]) / grid.bins
            spans.append((low, high, limits[0] + low * step, limits[0] + high * step))
        (left, right, *x), (bottom, top, *y) = spans
        how |= {"origin": "lower", "extent": (*x, *y), "aspect": "auto", "interpolation": "nearest"}
        image = self.ax_.imshow(pixels[bottom:top, left:right], **how)
        self.ax_.margins(0.03)
        return image

    def _bar(self, colours: Any, title: str) -> Any:
        bar = self.figure_.colorbar(colours, ax=self.ax_, pad=0.02, aspect=30)
        bar.set_label(short(title), parse_math=False)
        bar.outline.set_visible(False)
        return bar

    def _legend(self, classes: Classes) -> None:
        from matplotlib import rcParams
        from matplotlib.lines import Line2D
        from matplotlib.transforms import offset_copy

        longest = max((len(name) for name in classes.names), default=1)
        columns = min(5 if longest <= 4 else 3 if longest <= 12 else 2, len(classes.names))
        below = offset_copy(self.ax_.transAxes, self.figure_, y=-3.6 * rcParams["font.size"], units="points")
        marks = [Line2D([], [], linestyle="", marker="o", markersize=5, color=one) for one in classes.palette()]
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": below, "ncols": max(columns, 1)}
        looks = {"frameon": False, "handletextpad": 0.2, "columnspacing": 1.0, "fontsize": "small"}
        legend = self.ax_.legend(marks, classes.names, title=short(classes.title), **place, **looks)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set_parse_math(False)

    def _say_clipped(self, clipped: int) -> None:
        if clipped:
            said = f"{self.ax_.get_title()}\n{clipped:,} lie farther out, drawn at the edge"
            self.ax_.set_title(said, fontsize="medium")


def scores(
    estimator_or_result: Any,
    X: Any = None,
    *,
    Z: Any = None,
    components: tuple[int, int] = (1, 2),
    color: Any = None,
    labels: Any = None,
    ax: Any = None,
) -> ScoresDisplay:
    """The samples in the plane of two components: dots, or a raster for more than 20 000.

    Parameters
    ----------
    estimator_or_result : fitted estimator such as `PCA`, or SVDResult
        The scores of an SVDResult are ``U S``.
    X : array or sparse matrix of shape (m, n_features), optional
        Rows for an estimator to transform.
    Z : array of shape (m, k), or ScoreRaster, optional
        Scores, where they have been computed already, at least of the components drawn; X or Z, not both.
    components : pair of int
        Counted from 1.
    color : array of shape (m,), optional
        Numbers are drawn on a scale with a bar. Text, categories, and integers of at most 20 different values are
        classes with a legend: the 20 most frequent, and "other". Where there are many points, a cell has the
        mean of its numbers, or its most frequent class; of a ScoreRaster the sampled rows are drawn.
    labels : sequence of m names, optional
        Written beside the 15 samples farthest from the middle, but for those that would overlap.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    ScoresDisplay
        The plot, with its axes as ``ax_``.

    Raises
    ------
    ValueError
        If there are no rows to draw, or their number is not that of the colours or labels.

    See Also
    --------
    plot.ScoresDisplay : What is returned.
    plot.biplot : With the features.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.plot import scores
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> scores(ss.PCA(n_components=2).fit(X), X, color=X[:, 0]).ax_.get_title()
    'Scores of 100 samples'
    """
    return ScoresDisplay.from_estimator(
        estimator_or_result, X, Z=Z, components=components, color=color, labels=labels, ax=ax
    )


def _scores_of(fit: Fit, X: Any, Z: Any, least: int) -> Panel:
    if X is not None and Z is not None:
        raise ValueError("give rows X or scores Z, not both")
    if Z is not None:
        given = np.asarray(Z)
        if given.ndim != 2 or not least <= given.shape[1] <= fit.k:
            columns = f"{least} to {fit.k} columns, the components in order"
            raise ValueError(f"scores Z must have {columns}, got shape {given.shape}; rows to transform go in as X")
        return given
    if not fit.is_estimator:
        if X is not None:
            raise ValueError("an SVDResult holds its own scores; leave X out, or use PCA for new rows")
        return np.asarray(fit.model.U * fit.model.S)
    if X is None:
        raise ValueError("an estimator does not keep its scores; give the rows as X, or scores as Z")
    return np.asarray(fit.model.transform(X))


def _axis(component: int, share: float | None) -> str:
    return f"PC{component}" if share is None else f"PC{component} ({percent(share)})"


def _means(grid: Grid, points: Panel, numbers: Scale) -> Any:
    known = np.isfinite(numbers.values)
    counts = grid.count(points[known])
    sums = np.bincount(grid.cells(points[known]), weights=numbers.values[known], minlength=counts.size)
    return np.ma.array(sums.reshape(counts.shape) / np.maximum(counts, 1), mask=counts == 0)


def _majority(grid: Grid, points: Panel, classes: Classes, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    size, kinds = grid.bins**2, len(classes.names)
    votes = np.bincount(classes.codes * size + grid.cells(points), minlength=kinds * size)
    winners = votes.reshape(kinds, grid.bins, grid.bins).argmax(axis=0)
    pixels = classes.palette()[winners]
    pixels[..., 3] = np.where(counts > 0, 0.45 + 0.55 * np.log1p(counts) / np.log1p(counts.max()), 0)
    return np.asarray(pixels)
