"""Names beside points of a plot, but for those that would overlap others."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.operators import Panel
from shiftsvd.plot.fitted import short

LETTER: Final = np.array([0.06, 0.14])  # inches of a letter, and of a line, of small names


class Box(NamedTuple):
    """Where a name is, in shares of the axes."""

    left: float
    right: float
    bottom: float
    height: float

    def meets(self, other: "Box") -> bool:
        beside = self.left >= other.right or other.left >= self.right
        return not beside and abs(self.bottom - other.bottom) < self.height


def write_names(ax: Any, points: Panel, names: npt.NDArray[Any]) -> None:
    limits = np.array([ax.get_xlim(), ax.get_ylim()])
    low, spans = limits[:, 0], limits[:, 1] - limits[:, 0]
    extent = ax.get_window_extent()
    width, height = LETTER * ax.figure.dpi / (extent.width, extent.height)
    taken: list[Box] = []
    for point, full in zip(points, names, strict=True):
        name = short(full)
        x, y = np.clip((point - low) / spans, 0, (1, 1 - height))
        side, offset, left = ("right", -4, x - width * len(name)) if x > 0.5 else ("left", 4, x)
        box = Box(left, left + width * len(name), y, height)
        if not any(box.meets(other) for other in taken):
            taken.append(box)
            place = {"xytext": (offset, 3), "textcoords": "offset points", "ha": side}
            ax.annotate(name, low + (x, y) * spans, **place, fontsize="x-small", parse_math=False)
