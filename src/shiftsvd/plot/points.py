"""Plots of scores: a dot for each sample, or a raster of many samples; colours from a column; names of few samples."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.operators import Panel
from shiftsvd.plot.fitted import BLUE, GREY, Fit, FitDisplay, percent, read, short
from shiftsvd.plot.raster import Grid, ScoreRaster, farthest, finite

MANY: Final = 20_000  # draw a raster for more points
CRISP: Final = 500  # draw an image for more points, also in vector formats
BINS: Final = 256
MOST: Final = 20  # classes with individual colours
OTHER: Final = "other"
MOST_OF_CLASS: Final = 5.991  # 95 % quantile of chi^2 with two degrees of freedom
LEAST_OF_CLASS: Final = 5  # samples of a class with an ellipse
LETTER: Final = np.array([0.072, 0.15])  # inches: width and height of a letter of small names in wide fonts


@dataclass(frozen=True, eq=False)
class Colouring:
    """A number for each sample, or the code of its class if `names` holds the classes."""

    values: Vector
    title: str
    names: tuple[str, ...] | None = None  # the last may be OTHER: all remaining classes

    def palette(self) -> npt.NDArray[Any]:
        from matplotlib import colormaps
        from matplotlib.colors import to_rgba

        names = self.names or ()
        rest = names[-1:] == (OTHER,)
        count = len(names) - rest
        colours = colormaps["tab10"](range(10))
        if count > len(colours):  # without the greys of tab20, which look like the colour of OTHER
            more = colormaps["tab20"](range(20))
            colours = np.vstack([more[:14], more[16:], colormaps["tab20b"]([1, 3])])
        return np.vstack([colours[:count], [to_rgba(GREY)]]) if rest else colours[:count]


def colouring(color: Any) -> Colouring | None:
    # Floats are numbers on a scale; categories, texts, and integers of at most MOST different values are classes.
    if color is None:
        return None
    title = str(getattr(color, "name", None) or "")
    category = str(getattr(color, "dtype", "")).lower().startswith(("categor", "enum"))
    values = np.asarray(unmasked("color", color))
    if values.dtype.kind == "f" and not category:
        return Colouring(values.astype(np.float64), title)
    integers = values.dtype.kind in "iu" and not category
    found, codes = np.unique(values if integers else values.astype(str), return_inverse=True)
    if integers and len(found) > MOST:
        return Colouring(values.astype(np.float64), title)
    names = tuple(short(name) for name in found)
    if len(names) <= MOST:
        return Colouring(codes, title, names)
    kept = np.sort(np.argsort(-np.bincount(codes), kind="stable")[:MOST])
    number = np.full(len(names), MOST)
    number[kept] = np.arange(MOST)
    return Colouring(number[codes], title, (*(names[one] for one in kept), OTHER))


def _scale(missing: str = "none") -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0.3, 0.88, 256))).with_extremes(bad=missing)


@dataclass(eq=False, repr=False)
class ScoresDisplay(FitDisplay):
    """Scores of two components, coloured by a column; made by `scores`.

    Parameters
    ----------
    points : array of shape (m, 2), or ScoreRaster
        The scores of each sample, or the counts of many samples.
    components : pair of int
        Numbers of the components, from 1.
    shares : pair of floats, optional
        Shares of the variance, for the labels of the axes.
    color : array of shape (m,), optional
        A number or a class for each sample.
    labels : sequence of m names, optional
        Names of the samples, written next to the outermost points.
    ellipses : bool
        Draw an ellipse around each class.

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
    ellipses: bool = False
    _edge: Grid | None = field(default=None, init=False)  # where points beyond the axes are drawn, if there are any

    def __post_init__(self) -> None:
        m = self.points.n if isinstance(self.points, ScoreRaster) else len(self.points)
        if self.color is not None and np.shape(self.color) != (m,):
            shape = np.shape(self.color)
            raise Refused(Setting("color"), f" must have one value for each of the {m:,} samples, got shape {shape}")
        if self.labels is not None and len(self.labels) != m:
            raise refuse("labels", f"have one name for each of the {m:,} samples", len(self.labels))

    @classmethod
    def _of(cls, fit: Fit, X: Any, Z: Any, components: tuple[int, int], **look: Any) -> Self:
        places = fit.places(components)
        if isinstance(Z, ScoreRaster):
            if tuple(components) != tuple(Z.components):
                raise Refused(
                    *("the ScoreRaster ", Setting("Z"), f" holds components {Z.components}, got "),
                    *(Setting("components", components), ". Pass ", Setting("components", Z.components)),
                    ", or make a ScoreRaster of the other components.",
                )
            points: Any = Z
        else:
            points = finite(_scores_of(fit, X, Z, max(components))[:, places])
        shares = None if fit.shares is None else (float(fit.shares[places[0]]), float(fit.shares[places[1]]))
        return cls(points, components=components, shares=shares, **look)

    def _draw(self) -> None:
        points, colours = self.points, colouring(self.color)
        axes = [f"PC{j}" for j in self.components]
        if self.shares is not None:
            axes = [f"{name} ({percent(share)})" for name, share in zip(axes, self.shares, strict=True)]
        n_fitted = points.n_fitted if isinstance(points, ScoreRaster) else len(points)
        self.ax_.set(title=f"Scores of {n_fitted:,} samples", xlabel=axes[0], ylabel=axes[1])
        self.ax_.ticklabel_format(scilimits=(-3, 3))  # prevents overlap of tick labels
        if not isinstance(points, ScoreRaster):
            self._draw_points(points, colours)
        elif colours is None and points.n > len(points.sample_rows):
            self._draw_counts(points.counts, points.grid, points.clipped)
        else:
            sample, rows = points.sample, points.sample_rows
            if points.n > len(rows):
                self.ax_.set_title(f"Scores of {len(rows):,} of {points.n:,} samples")
            self._draw_points(sample, colours and replace(colours, values=colours.values[rows]))
        if self.labels is not None:
            outermost, rows = farthest(points)
            write_names(self.ax_, outermost, list(np.asarray(self.labels, object)[rows]))

    def _within(self, points: Panel) -> Panel:
        # Further points must not widen axes at whose edge points are drawn.
        return points if self._edge is None else np.clip(points, self._edge.low, self._edge.high)

    def _draw_points(self, points: Panel, colours: Colouring | None) -> None:
        if len(points) > MANY:
            self._draw_cells(points, colours)
            return
        size = float(np.clip(4e4 / max(len(points), 1), 3, 25))
        look = {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": len(points) > CRISP}
        if colours is None:
            self.ax_.scatter(*points.T, color=BLUE, **look)
        elif colours.names is None:
            dots = self.ax_.scatter(*points.T, c=colours.values, cmap=_scale(GREY), plotnonfinite=True, **look)
            self._draw_bar(dots, colours.title)
        else:
            self.ax_.scatter(*points.T, c=colours.palette()[colours.values], **look)
            if self.ellipses:
                self._draw_ellipses(points, colours)
            self._draw_legend(colours)

    def _draw_ellipses(self, points: Panel, classes: Colouring) -> None:
        from matplotlib.patches import Ellipse

        for code, colour in enumerate(classes.palette()):
            of_class = points[classes.values == code]
            if len(of_class) >= LEAST_OF_CLASS:
                squares, axes = np.linalg.eigh(np.cov(of_class.T))
                angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
                width, height = 2 * np.sqrt(MOST_OF_CLASS * np.maximum(squares[::-1], 0))
                look = {"angle": angle, "facecolor": "none", "edgecolor": colour, "linewidth": 1.2}
                self.ax_.add_patch(Ellipse(of_class.mean(axis=0), width, height, **look))
        self.ax_.autoscale_view()

    def _draw_cells(self, points: Panel, colours: Colouring | None) -> None:
        grid = Grid.around(points, BINS)
        counts, clipped = grid.count(points), grid.outside(points)
        if colours is None:
            self._draw_counts(counts, grid, clipped)
            return
        if colours.names is None:
            image = self._draw_image(_means(grid, points, colours.values), grid, counts, cmap=_scale())
            self._draw_bar(image, f"{colours.title} (mean)".strip())
        else:
            self._draw_image(_majority(grid, points, colours, counts), grid, counts)
            self._draw_legend(colours)
        self._say_clipped(clipped, grid)

    def _draw_counts(self, counts: npt.NDArray[np.int64], grid: Grid, clipped: int) -> None:
        from matplotlib.colors import LogNorm

        norm = LogNorm(1, max(2, int(counts.max())))
        image = self._draw_image(np.ma.array(counts, mask=counts == 0), grid, counts, cmap=_scale(), norm=norm)
        bar = self._draw_bar(image, "samples in a pixel")
        bar.minorticks_off()
        bar.ax.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        self._say_clipped(clipped, grid)

    def _draw_image(self, pixels: Any, grid: Grid, counts: npt.NDArray[np.int64], **how: Any) -> Any:
        # Exclude empty cells beyond the outermost points, so that the axes end there.
        rows, columns = (np.flatnonzero(counts.any(axis=axis))[[0, -1]] + [0, 1] for axis in (1, 0))
        edges = np.linspace(grid.low, grid.high, grid.bins + 1)
        how |= {"origin": "lower", "extent": (*edges[columns, 0], *edges[rows, 1])}
        how |= {"aspect": "auto", "interpolation": "nearest"}
        image = self.ax_.imshow(pixels[slice(*rows), slice(*columns)], **how)
        self.ax_.margins(0.03)
        return image

    def _draw_bar(self, colours: Any, title: str) -> Any:
        bar = self.figure_.colorbar(colours, ax=self.ax_, pad=0.02, aspect=30)
        bar.set_label(short(title), parse_math=False)
        bar.outline.set_visible(False)
        return bar

    def _draw_legend(self, classes: Colouring) -> None:
        from matplotlib import rcParams
        from matplotlib.lines import Line2D
        from matplotlib.transforms import offset_copy

        names = classes.names or ()
        longest = max((len(name) for name in names), default=1)
        columns = min(5 if longest <= 4 else 3 if longest <= 12 else 2, len(names))
        below = offset_copy(self.ax_.transAxes, self.figure_, y=-3.6 * rcParams["font.size"], units="points")
        marks = [Line2D([], [], linestyle="", marker="o", markersize=5, color=one) for one in classes.palette()]
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": below, "ncols": max(columns, 1)}
        looks = {"frameon": False, "handletextpad": 0.2, "columnspacing": 1.0, "fontsize": "small"}
        legend = self.ax_.legend(marks, names, title=short(classes.title), **place, **looks)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set_parse_math(False)

    def _say_clipped(self, clipped: int, grid: Grid) -> None:
        if clipped:
            self._edge = grid
            title = f"{self.ax_.get_title()}\n{clipped:,} beyond the axes, drawn at the edge"
            self.ax_.set_title(title, fontsize="medium")


def write_names(ax: Any, points: Panel, names: list[str], colors: Sequence[str] = ()) -> None:
    # Next to each point, at the first of four corners where the name overlaps no name written before; else nowhere. The
    # first corner points away from the middle for arrows from the origin, and into the axes for dots.
    limits = np.array([ax.get_xlim(), ax.get_ylim()])
    low, spans = limits[:, 0], limits[:, 1] - limits[:, 0]
    extent = ax.get_window_extent()
    size = (extent.width, extent.height)
    (width, height), (gap, rise) = LETTER * ax.figure.dpi / size, np.array([4, 3]) / 72 * ax.figure.dpi / size
    taken: list[tuple[float, float, float]] = []  # left and right ends, and the lower edge, relative to the axes
    for point, name, color in zip(points, map(short, names), colors or [""] * len(names), strict=True):
        x, y = np.clip((point - low) / spans, 0, 1)
        right, up = (point[0] >= 0, point[1] >= 0) if color else (x <= 0.5, True)
        for to_right, upwards in ((right, up), (right, not up), (not right, up), (not right, not up)):
            left = x + gap if to_right else x - gap - width * len(name)
            lower = y + rise if upwards else y - rise - height
            end = left + width * len(name)
            inside = lower >= 0 and lower + height <= 1 and left >= 0 and end <= 1
            if inside and all(left >= e or begin >= end or abs(lower - line) >= height for begin, e, line in taken):
                taken.append((left, end, lower))
                # At the base line: names at their top and bottom edges overlap by the boxes of a browser.
                below = 3 if upwards else -3 - 72 * LETTER[1]
                place = {"xytext": (4 if to_right else -4, below), "textcoords": "offset points"}
                place |= {"ha": "left" if to_right else "right", "va": "baseline"}
                ax.annotate(
                    name, low + (x, y) * spans, **place, fontsize="x-small", color=color or None, parse_math=False
                )
                break


def scores(
    estimator_or_result: Any,
    X: Any = None,
    *,
    Z: Any = None,
    components: tuple[int, int] = (1, 2),
    color: Any = None,
    labels: Any = None,
    ellipses: bool = False,
    ax: Any = None,
) -> ScoresDisplay:
    """Plot the scores of two components: a dot for each sample, or a raster of more than 20 000 samples.

    Parameters
    ----------
    estimator_or_result : fitted estimator such as `PCA`, or SVDResult
        The scores of an SVDResult are ``U S``.
    X : array or sparse matrix of shape (m, n_features), optional
        Rows that the estimator transforms.
    Z : array of shape (m, k), or ScoreRaster, optional
        Known scores, at least of the plotted components; pass X or Z, not both.
    components : pair of int
        Counted from 1.
    color : array of shape (m,), optional
        Numbers are drawn on a scale with a colour bar. Text, categories, and integers of at most 20 different values
        are classes with a legend: the 20 most frequent, and "other". A cell of a raster has the mean of its numbers, or
        its most frequent class; for a ScoreRaster, the sampled rows are drawn.
    labels : sequence of m names, optional
        Names, written next to the 15 samples farthest from the mean, except names that would overlap others.
    ellipses : bool
        Draw an ellipse around each class of at least 5 samples, if at most 20,000 samples are drawn as dots: it would
        contain 95 % of a normal distribution with the mean and the covariance of the class.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    ScoresDisplay
        The plot, with its axes as ``ax_``.

    Raises
    ------
    ValueError
        If neither rows nor scores are given, or their number differs from that of the colours or labels.

    See Also
    --------
    plot.ScoresDisplay : The class of the plot.
    plot.biplot : With the features.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.plot import scores
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> scores(ss.PCA(n_components=2).fit(X), X, color=X[:, 0]).ax_.get_title()
    'Scores of 100 samples'
    """
    look = {"color": color, "labels": labels, "ellipses": ellipses}
    return ScoresDisplay._of(read(estimator_or_result), X, Z, components, **look).plot(ax=ax)


ScoresDisplay._function = scores


def _scores_of(fit: Fit, X: Any, Z: Any, least: int) -> Panel:
    if X is not None and Z is not None:
        raise Refused("pass rows ", Setting("X"), " or scores ", Setting("Z"), ", not both")
    if Z is not None:
        given = np.asarray(Z)
        if given.ndim != 2 or not least <= given.shape[1] <= fit.k:
            columns = f"{least} to {fit.k} columns, the components in order"
            must = f" must have {columns}, got shape {given.shape}. Pass rows to transform as "
            raise Refused("scores ", Setting("Z"), must, Setting("X"), ".")
        return given
    if not fit.is_estimator:
        if X is not None:
            raise Refused("an SVDResult holds its own scores. Remove ", Setting("X"), ", or use PCA for new rows.")
        return np.asarray(fit.model.U * fit.model.S)
    if X is None:
        rows, scores = Setting("X"), Setting("Z")
        raise Refused("an estimator does not store scores. Pass rows as ", rows, " or scores as ", scores, ".")
    return np.asarray(fit.model.transform(X))


def _means(grid: Grid, points: Panel, numbers: Vector) -> Any:
    known = np.isfinite(numbers)
    counts = grid.count(points[known])
    sums = np.bincount(grid.cells(points[known]), weights=numbers[known], minlength=counts.size)
    return np.ma.array(sums.reshape(counts.shape) / np.maximum(counts, 1), mask=counts == 0)


def _majority(grid: Grid, points: Panel, classes: Colouring, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    size, kinds = grid.bins**2, len(classes.palette())
    votes = np.bincount(classes.values * size + grid.cells(points), minlength=kinds * size)
    winners = votes.reshape(kinds, grid.bins, grid.bins).argmax(axis=0)
    pixels = classes.palette()[winners]
    pixels[..., 3] = np.where(counts > 0, 0.45 + 0.55 * np.log1p(counts) / np.log1p(counts.max()), 0)
    return np.asarray(pixels)
