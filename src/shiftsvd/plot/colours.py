"""What a column of the samples is as colour: numbers on a scale, or classes with a legend."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.plot.fitted import GREY, short

MOST: Final = 20  # classes with a colour of their own
OTHER: Final = "other"


@dataclass(frozen=True, eq=False)
class Scale:
    """A number for each sample."""

    values: Vector
    title: str

    def take(self, rows: npt.NDArray[Any]) -> "Scale":
        return Scale(self.values[rows], self.title)


@dataclass(frozen=True, eq=False)
class Classes:
    """A class for each sample; the last may be the rest of them."""

    codes: npt.NDArray[np.int64]
    names: list[str]
    title: str

    def take(self, rows: npt.NDArray[Any]) -> "Classes":
        return Classes(self.codes[rows], self.names, self.title)

    def palette(self) -> npt.NDArray[Any]:
        from matplotlib import colormaps
        from matplotlib.colors import to_rgba

        rest = self.names[-1:] == [OTHER]
        count = len(self.names) - rest
        colours = colormaps["tab10"](range(10))
        if count > len(colours):  # tab20 has a pair of greys, which would be taken for the rest
            more = colormaps["tab20"](range(20))
            colours = np.vstack([more[:14], more[16:], colormaps["tab20b"]([1, 3])])
        return np.vstack([colours[:count], [to_rgba(GREY)]]) if rest else colours[:count]


Colouring = Scale | Classes


def colouring(color: Any, m: int) -> Colouring | None:
    """The colours of m samples.

    Numbers are a scale, but for categories and for integers of at most 20 different values, which are classes.
    """
    if color is None:
        return None
    title = str(getattr(color, "name", None) or "")
    category = str(getattr(color, "dtype", "")).lower().startswith(("categor", "enum"))
    values = np.asarray(unmasked("color", color))
    if values.shape != (m,):
        raise ValueError(f"color must have one value for each of the {m} samples, got shape {values.shape}")
    if values.dtype.kind == "f" and not category:
        return Scale(values.astype(np.float64), title)
    numbers = values.dtype.kind in "iu" and not category
    found, codes = np.unique(values if numbers else values.astype(str), return_inverse=True)
    if numbers and len(found) > MOST:
        return Scale(values.astype(np.float64), title)
    return _most_frequent(codes, [short(name) for name in found], title)


def _most_frequent(codes: npt.NDArray[Any], names: list[str], title: str) -> Classes:
    if len(names) <= MOST:
        return Classes(codes.astype(np.int64), names, title)
    kept = np.sort(np.argsort(-np.bincount(codes), kind="stable")[:MOST])
    number = np.full(len(names), MOST)
    number[kept] = np.arange(MOST)
    return Classes(number[codes], [*(names[one] for one in kept), OTHER], title)


def scale_colours(missing: str = "none") -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0.3, 0.88, 256))).with_extremes(bad=missing)
