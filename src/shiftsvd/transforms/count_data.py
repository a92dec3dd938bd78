"""Detect raw counts, logarithms and weights in a sample of entries, and warn if a method expects others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.entries import entries, some_rows
from shiftsvd.backends.files import DiskRows, Reread, rows_operator
from shiftsvd.backends.source import rows_of
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.errors import Part
from shiftsvd.events import without_progress
from shiftsvd.operators import Adjoint, Operator, Vector
from shiftsvd.runs.messages import ValuesNotice, ValuesWarning, warn
from shiftsvd.transforms import SettingText, shown

if TYPE_CHECKING:
    from shiftsvd.transforms.base import Transform

# A sample has BLOCKS blocks of consecutive rows, each of at most ROWS rows and ENTRIES entries of the full matrix.
BLOCKS, ROWS, ENTRIES = 4, 64, 2**17
IGNORED: Final = SettingText("trust_values", True, "a filter of shiftsvd.transforms.ValuesWarning")
FEW: Final = 20  # smaller samples give no evidence
MOSTLY: Final = 0.5  # least share of fractions among weights of words
BASES: Final = {"natural logarithms": np.e, "logarithms of base 2": 2.0, "logarithms of base 10": 10.0}
LARGEST: Final = 30.0  # largest plausible logarithm: base 2, of a billion
# Exponentials of logarithms of counts are integer multiples of the smallest in their row: all of them, but only 6 % by
# chance for corrected counts. The ratio of the variance of a column to its mean is at least 1 for counts, 0.7 for
# corrected counts, and below 0.05 for intensities (tests/support/values.py).
MULTIPLES, VARYING = 0.9, 0.15
EQUAL: Final = 5e-3  # largest relative difference of equal row sums in single precision and rounded text files


def warn_of_logarithms(method: Part, A: Operator, logged: bool = False) -> None:
    for sample in samples_of(A):
        evidence = sample.logarithms(logged)
        if what := f"logarithms: {evidence}" if evidence else sample.weights():
            looks = f" requires counts, but the entries look like {what}."
            remedy = " Pass the raw counts, or remove the transformation. To silence this warning for counts, use "
            warn(method, looks, remedy, IGNORED, ".", category=ValuesWarning)
            return


def warn_of_counts(A: Operator, *remedy: Part) -> None:
    samples = samples_of(A)
    if samples and all(sample.raw_counts for sample in samples):
        largest = max(float(sample.x.max()) for sample in samples)
        looks = f"The entries look like raw counts: integers up to {largest:,.0f}. "
        warn(looks, *remedy, category=ValuesNotice)


def warn_unless_counts(how: "Sequence[Transform]", A: Operator, logged: bool = False) -> None:
    first = next((each for each in how if not each.selects), None)
    if first is not None and first.of_counts:
        warn_of_logarithms(shown(first), A, logged)


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample of the nonzero entries of a matrix."""

    x: Vector
    i: Vector  # row indices of the entries within the sample
    j: Vector  # column indices
    shape: tuple[int, int]  # of the sample
    whole_rows: bool  # True if the sample has all columns

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
            return "uns['log1p'] marks them as logarithms, and they are not integers"
        for name, base in BASES.items():
            y = np.expm1(x * np.log(base))
            if self.whole_rows and self._spread(y) < min(EQUAL, self._spread(x) / 4):
                return f"as {name}, their exponentials have the same sum in each row"
            if self._multiples(y) > MULTIPLES > 2 * self._multiples(x):  # small scaled counts are multiples themselves
                return f"as {name}, their exponentials are integer multiples of the smallest in each row"
        return self._narrow(share)

    def weights(self) -> str | None:
        if len(self.x) < FEW or not self.whole_rows or np.mean(self.fractional) <= MOSTLY:
            return None
        equal = self._spread(self.x**2) < min(EQUAL, self._spread(self.x) / 4)
        return "weights of words: their squares have the same sum in each row" if equal else None

    def _spread(self, y: Vector) -> float:
        sums = np.bincount(self.i, y, minlength=self.shape[0])
        sums = sums[sums > 0]
        return float(np.ptp(sums) / np.median(sums)) if len(sums) > 2 else np.inf

    def _multiples(self, y: Vector) -> float:
        least = np.full(self.shape[0], np.inf)
        np.minimum.at(least, self.i, y)
        ratio = y / least[self.i]
        some = ratio[self.fractional & (ratio > 1.02) & (ratio < 10)]
        return float(np.mean(np.abs(some - np.rint(some)) < 0.03)) if len(some) >= FEW else 0.0

    def _narrow(self, share: float) -> str | None:
        m, n = self.shape
        if m < 8 or share < 0.9 or len(self.x) < m * n / 2 or self._spread(self.x) < EQUAL or self.x.max() < 2:
            return None
        mean, squares = (np.bincount(self.j, self.x**power, minlength=n) / m for power in (1, 2))
        added = float(self.x.min()) if len(self.x) == m * n else 0.0  # the logarithm of a pseudocount
        ratio = float((squares - mean**2).sum() / max((mean - added).sum(), np.finfo(float).tiny))
        narrow = f"variances of columns are {ratio:.2g} of their means, less than those of counts"
        return narrow if ratio < VARYING else None


def samples_of(A: Operator) -> list[Sample]:
    if isinstance(A, Adjoint):
        if isinstance(A.A, DenseRows) and A.A.shift is None:
            return samples_of(DenseRows(A.A.X.T))
        return [replace(each, i=each.j, j=each.i, shape=each.shape[::-1], whole_rows=False) for each in samples_of(A.A)]
    with without_progress():
        found = [_block_sample(A, lo, hi) for lo, hi in sample_places(A.shape)]
    return [sample for sample in found if sample is not None]


def sample_places(shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Return ranges of rows to sample from a matrix."""
    m, n = shape
    rows = max(1, min(ROWS, m, ENTRIES // n))
    starts = np.unique(np.linspace(0, m - rows, min(BLOCKS, -(-m // rows))).astype(int)).tolist()
    return [(lo, lo + rows) for lo in starts]


def _block_sample(A: Any, lo: int, hi: int) -> Sample | None:
    known = isinstance(A, SparseRows | DenseRows | DiskRows | Reread)
    if not known or A.shift is not None:
        return None
    if isinstance(A, DiskRows):
        return _block_sample(rows_operator(rows_of(A.source, lo, hi), None, None, *A.source.place(lo), 0), 0, hi - lo)
    if isinstance(A, Reread):  # only its first block is cheap to read
        if lo:
            return None
        B: Any = some_rows(A, np.arange(min(hi, A.blocks()[0][1])))
        lo, hi = B.blocks()[0]
        return _block_sample(B._block((lo, hi)), 0, hi - lo)
    stored = entries(A, (lo, hi))
    there = stored[0] != 0
    x, i, j = (part[there] for part in stored)
    return Sample(x, i, j, (hi - lo, A.shape[1]), True)
