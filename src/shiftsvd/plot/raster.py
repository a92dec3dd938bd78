"""Rasters of many points: counts on a grid, added block by block, and a uniform sample of the rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import plural
from shiftsvd.operators import Panel, Vector
from shiftsvd.plot.fitted import beyond_range, read, real

Counts = npt.NDArray[np.int64]
NAMED = 15  # outermost points that may have names


@dataclass(frozen=True)
class Grid:
    """A square grid of cells over a rectangle; points outside count in the nearest cell at the edge."""

    low: Vector  # of x and y
    high: Vector
    bins: int

    @classmethod
    def around(cls, points: Panel, bins: int, reach: float = 6.0) -> "Grid":
        mean, deviation = points.mean(axis=0), points.std(axis=0)
        low = np.maximum(points.min(axis=0), mean - reach * deviation)
        high = np.minimum(points.max(axis=0), mean + reach * deviation)
        return cls(low, np.where(high > low, high, low + 1), bins)

    def cells(self, points: Panel) -> Counts:
        scaled = (points - self.low) * (self.bins / (self.high - self.low))
        columns, rows = np.clip(scaled, 0, self.bins - 1).astype(np.int64).T
        return np.asarray(rows * self.bins + columns)

    def outside(self, points: Panel) -> int:
        return int(np.any((points < self.low) | (points > self.high), axis=1).sum())

    def count(self, points: Panel) -> Counts:
        return np.bincount(self.cells(points), minlength=self.bins**2).reshape(self.bins, self.bins)


class ScoreRaster:
    """The scores of any number of rows in bounded memory: counts on a grid, and a uniform sample of the rows.

    Parameters
    ----------
    deviations : pair of floats
        Standard deviations of the two components; the grid covers `reach` of them on both sides of 0.
    components : pair of int
        The two components, counted from 1.
    bins : int
        Number of cells along each side.
    reach : float
        Half of the width of the grid, in standard deviations; points farther out are counted at the edge, and in
        `clipped`.
    size : int
        Number of rows in the sample.
    rng : int, Generator or None
        Seed of the sample, which does not depend on the division of the rows into blocks.

    Attributes
    ----------
    counts : array of shape (bins, bins)
        Number of points in each cell; the first row is the lowest.
    n : int
        Number of rows added.
    n_fitted : int
        Number of these that took part in the fit.
    clipped : int
        Number of rows outside the grid.
    deviations : array of shape (2,)
        Standard deviations of the scores, or 1 for those that are 0.
    squares : array of shape (2,)
        Sums of the squared scores of the rows of the fit, in units of the squared standard deviations.
    farthest : array of shape (at most 15, 2), and array of row numbers
        The outermost points of the fit, which `scores` labels with names.

    See Also
    --------
    plot.scores : Draws points, or such a raster of many.

    References
    ----------
    Vitter (1985), Random sampling with a reservoir (Algorithm R).

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.plot import ScoreRaster
    >>> Z = np.random.default_rng(0).standard_normal((100_000, 3))
    >>> raster = ScoreRaster((1.0, 1.0))
    >>> for block in np.split(Z, 10):
    ...     raster.add(block)
    >>> raster.n, raster.sample.shape
    (100000, (20000, 2))
    """

    def __init__(
        self,
        deviations: tuple[float, float],
        *,
        components: tuple[int, int] = (1, 2),
        bins: int = 400,
        reach: float = 6.0,
        size: int = 20_000,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        self.deviations = np.array([float(one) if one > 0 else 1.0 for one in deviations])
        half = np.where(np.asarray(deviations) > 0, reach * self.deviations, 1.0)
        self.grid = Grid(-half, half, bins)
        self.components = components
        self.counts = np.zeros((bins, bins), np.int64)
        self.n = self.n_fitted = 0
        self.clipped = 0
        self.squares = np.zeros(2)
        self._sample = np.empty((size, 2))
        self._rows = np.empty(size, np.int64)
        self._rng = np.random.default_rng(rng)
        self.farthest: tuple[Panel, Counts] = np.empty((0, 2)), np.empty(0, np.int64)

    @classmethod
    def of(cls, estimator: Any, *, components: tuple[int, int] = (1, 2), **settings: Any) -> Self:
        """Return an empty raster for the scores of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator such as `PCA`, or SVDResult
            The fit whose standard deviations set the size of the grid.
        components : pair of int
            The two components, counted from 1.
        **settings
            The other parameters of `ScoreRaster`.

        Returns
        -------
        ScoreRaster
            A grid without points; `add` counts them.
        """
        fit = read(estimator)
        places = fit.places(components)
        plain = estimator._deviations() if beyond_range(estimator) else np.sqrt(fit.variances)
        spread = np.ones(fit.k) if getattr(estimator, "whiten", False) else plain
        return cls((float(spread[places[0]]), float(spread[places[1]])), components=components, **settings)

    def add(self, block: Any, projected: Any = None) -> None:
        """Count the next rows of the scores.

        Parameters
        ----------
        block : array of shape (rows, k)
            The scores of all components, in order.
        projected : array of bool, of shape (rows,), optional
            Mask of the rows that took no part in the fit. Default: none.

        Raises
        ------
        ValueError
            For a block with too few columns, or scores that are not finite.
        """
        block = np.asarray(block)
        last = max(self.components)
        if block.ndim != 2 or block.shape[1] < last:
            raise ValueError(f"a block of scores must have at least {last} columns, got shape {block.shape}")
        points = finite(block[:, [one - 1 for one in self.components]])
        self.counts += self.grid.count(points)
        self.clipped += self.grid.outside(points)
        rows = np.arange(self.n, self.n + len(points))
        fitted = slice(None) if projected is None else ~np.asarray(projected)
        self.n_fitted += len(points[fitted])
        self.squares += np.sum((points[fitted] / self.deviations) ** 2, axis=0)
        known, numbers = np.vstack([self.farthest[0], points[fitted]]), np.append(self.farthest[1], rows[fitted])
        far = _farthest(known / self.deviations)
        self.farthest = known[far], numbers[far]
        size = len(self._rows)
        # Row t replaces the entry at a place drawn from 0..t, if the sample has that place; later rows win.
        places = np.where(rows < size, rows, (self._rng.random(len(rows)) * (rows + 1)).astype(np.int64))
        kept = places < size
        self._sample[places[kept]], self._rows[places[kept]] = points[kept], rows[kept]
        self.n += len(points)

    @property
    def sample(self) -> Panel:
        """Uniform sample of the rows, shape (at most size, 2), in order of the rows."""
        return self._sample[self._order()]

    @property
    def sample_rows(self) -> Counts:
        """Numbers of the sampled rows, from 0."""
        return self._rows[self._order()]

    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self._rows[: min(self.n, len(self._rows))])


def farthest(points: Panel | ScoreRaster) -> tuple[Panel, Counts]:
    if isinstance(points, ScoreRaster):
        return points.farthest
    spread = points.std(axis=0)
    rows = _farthest((points - points.mean(axis=0)) / np.where(spread > 0, spread, 1))
    return points[rows], rows


def _farthest(points: Panel) -> Counts:
    return np.argsort(-(points**2).sum(axis=1), kind="stable")[:NAMED]


def finite(scores: Any) -> Panel:
    points = real(scores, "scores")
    wrong = int(np.count_nonzero(~np.isfinite(points)))
    if wrong:
        found = plural(wrong, "NaN or infinite value")
        raise ValueError(f"scores must be finite, got {found}. Remove the rows with such values.")
    return points
