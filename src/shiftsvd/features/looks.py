"""What rankings of features ask of each entry: counts, logarithms, counts that are cut off, residuals."""

from dataclasses import dataclass

import numpy as np

from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.grouped import Looked
from shiftsvd.numerics.moments import Vector
from shiftsvd.transforms.base import EntryOf


@dataclass(frozen=True, eq=False)
class Counts:
    """The moments of counts; of rows their sums, and how many of their entries are no whole numbers."""

    flavor: str

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        if x.size and x.min() < 0:
            raise ValueError(
                f"flavor {self.flavor} ranks counts, which are at least 0, got {x.min():g}; give it the raw counts"
            )
        return (x, (x != np.rint(x)).astype(np.float64)), (x,)


@dataclass(frozen=True, eq=False)
class Logarithms:
    """The moments of logarithms, or of what they are the logarithms of; of rows how much is no whole number.

    `entry` makes them of raw counts, if that is what the data are; `base` is that of the logarithms that they hold.
    """

    entry: EntryOf | None
    exponentials: bool
    base: float = 1.0

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        fractions = (x != np.rint(x)).astype(np.float64)
        y = x if self.entry is None else self.entry(x, r, c)
        with np.errstate(over="ignore"):
            return (fractions,), (np.expm1(y * self.base) if self.exponentials else y,)


@dataclass(frozen=True, eq=False)
class CutOff:
    """The moments of counts that are cut off at a number of their gene and batch."""

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        return (), (np.minimum(x, c[0]),)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Pearson residuals of counts, and their squares, less those of a zero in their place.

    Rows bring their sum r, columns by batch their rate q and where residuals are cut off: ``mu = r q``.
    """

    theta: float

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        mu, clip = r[0] * c[0], c[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(mu + mu**2 / self.theta)
            z = np.clip((x - mu) / deviation, -clip, clip)
            z_0 = np.maximum(-mu / deviation, -clip)
        there = mu > 0
        return (), (np.where(there, z - z_0, 0), np.where(there, z**2 - z_0**2, 0))
