"""Recognise raw counts, and logarithms of counts, by a sample of the entries; warn where a method takes the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shiftsvd.backends.columns import some_rows
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.entries import entries
from shiftsvd.backends.files import DiskRows, Reread, rows_operator
from shiftsvd.backends.source import rows_of
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.errors import Part
from shiftsvd.events import unheard
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Adjoint, Operator
from shiftsvd.runs.messages import ValuesNotice, ValuesWarning, warn
from shiftsvd.transforms import Spelled, shown

if TYPE_CHECKING:
    from shiftsvd.transforms.base import Transform

# A sample is STRETCHES stretches of rows, each of at most ROWS rows and, if dense, ENTRIES entries.
STRETCHES, ROWS, ENTRIES = 4, 64, 2**17
IGNORED: Final = Spelled("trust_values", True, "a filter of shiftsvd.transforms.ValuesWarning")
FEW: Final = 20  # samples of fewer entries say nothing
BASES: Final = {"natural logarithms": np.e, "logarithms of base 2": 2.0, "logarithms of base 10": 10.0}
LARGEST: Final = 30.0  # logarithm: of base 2, of a billion
# Exponentials of logarithms of counts are whole multiples of the least of their row: a share of 1; for corrected counts
# a share of 0.06, by chance. The variance of a column over its mean is at least 1 for counts, 0.7 for corrected counts,
# below 0.05 for intensities (tests/support/values.py).
MULTIPLES, VARYING = 0.9, 0.15
EQUAL: Final = 5e-3  # relative difference of equal sums of rows, in single precision and rounded texts


def warn_of_logarithms(method: Part, A: Operator, logged: bool = False) -> None:
    for sample in samples_of(A):
        if evidence := sample.logarithms(logged):
            looks = f" takes counts, but the entries look like logarithms: {evidence}."
            remedy = " Give the raw counts, or leave the transformation out. If these are counts, silence this with "
            warn(method, looks, remedy, IGNORED, ".", category=ValuesWarning)
            return


def warn_of_counts(A: Operator, *remedy: Part) -> None:
    samples = samples_of(A)
    if samples and all(sample.raw_counts for sample in samples):
        largest = max(float(sample.x.max()) for sample in samples)
        said = f"The entries look like raw counts: whole numbers up to {largest:,.0f}. "
        warn(said, *remedy, category=ValuesNotice)


def warn_unless_counts(how: "Sequence[Transform]", A: Operator, logged: bool = False) -> None:
    first = next((each for each in how if not each.selects), None)
    if first is not None and first.of_counts:
        warn_of_logarithms(shown(first), A, logged)


@dataclass(frozen=True, eq=False)
class Sample:
    """Some entries of a matrix that are not 0."""

    x: Vector
    i: Vector  # rows and columns of the entries, counted from 0 in the sample
    j: Vector
    shape: tuple[int, int]  # of the sample
    whole_rows: bool  # has all columns

    @cached_property
    def fractional(self) -> Vector:
        return np.asarray(self.x != np.rint(self.x))

    @property
    def raw_counts(self) -> bool:
        return len(self.x) >= FEW and not self.fractional.any() and self.x.min() > 0 and self.x.max() > 2

    def logarithms(self, logged: bool) -> str | None:
        x, share = self.x, float(np.mean(self.fractional)) if len(self.x) else 0.0
        if len(x) < FEW or x.min() < 0 or not 1 < x.max() < LARGEST or share < 0.1:
            return None
        if logged and share > 0.5:
            return "they are marked by uns['log1p'], and are no whole numbers"
        for name, base in BASES.items():
            y = np.expm1(x * np.log(base))
            if self.whole_rows and self._spread(y) < min(EQUAL, self._spread(x) / 4):
                return f"as {name}, their exponentials have the same sum in each row"
            if self._multiples(y) > MULTIPLES > 2 * self._multiples(x):  # small shares of counts are multiples, too
                return f"as {name}, their exponentials are whole multiples of the least of each row"
        return self._narrow(share)

    def _spread(self, y: Vector) -> float:
        sums = np.bincount(self.i, y, minlength=self.shape[0])
        sums = sums[sums > 0]
        return float(np.ptp(sums) / np.median(sums)) if len(sums) > 2 else np.inf

    def _multiples(self, y: Vector) -> float:
        least = np.full(self.shape[0], np.inf)
        np.minimum.at(least, self.i, y)
        ratio = y / least[self.i]
        told = ratio[self.fractional & (ratio > 1.02) & (ratio < 10)]
        return float(np.mean(np.abs(told - np.rint(told)) < 0.03)) if len(told) >= FEW else 0.0

    def _narrow(self, share: float) -> str | None:
        m, n = self.shape
        if m < 8 or share < 0.9 or len(self.x) < m * n / 2 or self._spread(self.x) < EQUAL or self.x.max() < 2:
            return None
        mean, squares = (np.bincount(self.j, self.x**power, minlength=n) / m for power in (1, 2))
        added = float(self.x.min()) if len(self.x) == m * n else 0.0  # to all entries, as a pseudocount is
        ratio = float((squares - mean**2).sum() / max((mean - added).sum(), np.finfo(float).tiny))
        return f"columns vary by {ratio:.2g} of their mean, less than counts do" if ratio < VARYING else None


def samples_of(A: Operator) -> list[Sample]:
    if isinstance(A, Adjoint):
        if isinstance(A.A, DenseRows) and A.A.shift is None:
            return samples_of(DenseRows(A.A.X.T))
        return [replace(each, i=each.j, j=each.i, shape=each.shape[::-1], whole_rows=False) for each in samples_of(A.A)]
    m, n = A.shape
    rows = max(1, min(ROWS, m, ENTRIES // n))
    starts = np.unique(np.linspace(0, m - rows, min(STRETCHES, -(-m // rows))).astype(int)).tolist()
    with unheard():
        found = [_stretch(A, lo, lo + rows) for lo in starts]
    return [sample for sample in found if sample is not None]


def _stretch(A: Any, lo: int, hi: int) -> Sample | None:
    known = isinstance(A, SparseRows | DenseRows | DiskRows | Reread)
    if not known or A.shift is not None:
        return None
    if isinstance(A, DiskRows):
        return _stretch(rows_operator(rows_of(A.source, lo, hi), None, None, *A.source.place(lo), 0), 0, hi - lo)
    if isinstance(A, Reread):  # whose first block alone is cheap
        if lo:
            return None
        B: Any = some_rows(A, np.arange(min(hi, A.blocks()[0][1])))
        lo, hi = B.blocks()[0]
        return _stretch(B._block((lo, hi)), 0, hi - lo)
    stored = entries(A, (lo, hi))
    there = stored[0] != 0
    x, i, j = (part[there] for part in stored)
    return Sample(x, i, j, (hi - lo, A.shape[1]), True)
