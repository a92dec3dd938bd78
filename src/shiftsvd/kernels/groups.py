"""Panels as the compiled kernels want them: groups of 2^p columns, each contiguous, in a buffer that begins a line."""

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Squares that leave the range of numbers are infinite, or 0: whoever needs them takes a power of two out of the data.
unwarned = np.errstate(over="ignore", invalid="ignore")

GROUP = 128  # bytes a row, so that two panels of 2000 rows of doubles share 1 MiB of cache
LINE = 64


@dataclass(frozen=True, eq=False)
class Groups:
    """A panel of `width` columns, cut into groups that follow each other in one buffer; padding columns are zero.

    Attributes
    ----------
    flat : array
        Everything; two panels of the same shape add by adding these.
    parts : list of arrays (rows, 2^p)
    width : int
        Columns without padding.
    """

    flat: Array
    parts: list[Array]
    width: int

    def columns(self) -> list[slice]:
        return spans([part.shape[1] for part in self.parts], self.width)

    def join(self) -> Array:
        panel = np.empty((len(self.parts[0]), self.width), self.flat.dtype)
        for part, where in zip(self.parts, self.columns(), strict=True):
            panel[:, where] = part[:, : where.stop - where.start]
        return panel

    def empty_like(self, flat: Array) -> "Groups":
        return Groups(flat, _views(flat, len(self.parts[0]), [p.shape[1] for p in self.parts]), self.width)


@cache
def widths(width: int, dtype: Any) -> list[int]:
    widest = GROUP // np.dtype(dtype).itemsize
    cut = [widest] * (width // widest)
    left = width % widest
    while left:
        above = 1 << (left - 1).bit_length()
        step = above if 3 * above <= 4 * left else above // 2
        cut.append(step)
        left -= min(step, left)
    return cut or [1]


def spans(cut: list[int], width: int) -> list[slice]:
    ends = list(accumulate(cut))
    return [slice(hi - w, min(hi, width)) for hi, w in zip(ends, cut, strict=True)]


def zeros(rows: int, width: int, dtype: Any) -> Groups:
    cut = widths(width, dtype)
    dtype = np.dtype(dtype)
    raw = np.zeros(rows * sum(cut) * dtype.itemsize + LINE, np.uint8)
    start = -raw.__array_interface__["data"][0] % LINE
    flat = raw[start : start + rows * sum(cut) * dtype.itemsize].view(dtype)
    return Groups(flat, _views(flat, rows, cut), width)


def grouped(V: Array, dtype: Any) -> Groups:
    groups = zeros(V.shape[0], V.shape[1], dtype)
    for part, where in zip(groups.parts, groups.columns(), strict=True):
        part[:, : where.stop - where.start] = V[:, where]
    return groups


def _views(flat: Array, rows: int, cut: list[int]) -> list[Array]:
    ends = accumulate(cut)
    return [flat[rows * (hi - w) : rows * hi].reshape(rows, w) for hi, w in zip(ends, cut, strict=True)]
