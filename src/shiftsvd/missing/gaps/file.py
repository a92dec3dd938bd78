"""Files in which NaN is a missing entry, filled as they are read."""

from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import Changed, RowSource
from shiftsvd.backends.validation import sound_structure
from shiftsvd.missing.gaps.base import TENTH, Gaps, Hidden
from shiftsvd.missing.gaps.memory import ArrayGaps, Patched, StoredGaps
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel


@dataclass(frozen=True, eq=False)
class FileGaps(Gaps):
    """A matrix in a file in which NaN is a missing entry; what is not stored is 0."""

    X: DiskRows

    @property
    def stored(self) -> int:
        return self.X.source.stored

    def filled(self, S: LowRank) -> Operator:
        return replace(self.X, source=PatchedSource(self.X.source, S), memo={})

    def absent(self, W: Panel, rows: Rows) -> Panel:
        return self._read(*rows).absent(W, (0, rows[1] - rows[0]))

    def absent_below(self, w: Vector) -> Vector:
        return np.asarray(sum(self._read(lo, hi).absent_below(w[lo:hi]) for lo, hi in self.X.blocks()))

    def observed_moments(self, w: Vector) -> Moments:
        parts = self.X._each(lambda rows: self._read(*rows).observed_moments(w[slice(*rows)]))
        merged: Moments = reduce(Moments.merge, (part for _, part in parts))
        return merged

    def row_blocks(self, width: int = 1) -> list[Rows]:
        return self.X.blocks()

    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden:
        raise ValueError(
            f'penalty="auto" needs the matrix in memory, got {self.X.source.name}; give a number, or missing="mean"'
        )

    def _read(self, lo: int, hi: int) -> Gaps:
        X = sound_rows(self.X.source, lo, hi)
        return StoredGaps(X) if isinstance(X, csr_array) else ArrayGaps(X)


class PatchedSource(Changed):
    """A file whose missing entries are replaced by those of a low-rank matrix."""

    def __init__(self, source: RowSource, S: LowRank) -> None:
        # What is kept of a read belongs to what it was filled with.
        super().__init__(source, f"filled {blake2b(S.L.tobytes() + S.R.tobytes(), digest_size=16).hexdigest()}")
        self.S = S

    def read(self, lo: int, hi: int) -> Any:
        X, S = sound_rows(self.source, lo, hi), LowRank(self.S.L[lo:hi], self.S.R)
        if not isinstance(X, csr_array):
            return Patched(X, S)[:]
        X.data = StoredGaps(X).patched(S)
        return X


def sound_rows(source: RowSource, lo: int, hi: int) -> Any:
    X = source.read(lo, hi)
    if isinstance(X, csr_array):
        try:
            sound_structure(X)
        except ValueError as error:
            raise ValueError(f"{source.name}, rows {lo} to {hi}: {error}") from None
    return X
