"""Some rows or some columns of a matrix in a file, which is not loaded for it; columns in any order, or among more."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.source import Changed, RowSource, inside_rows_of
from shiftsvd.numerics.digests import told

Places = npt.NDArray[np.intp]  # of rows: ascending, without repeats


class SomeRows(Changed):
    """The rows of a source at these places."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"rows {told(places)}")
        self._places, self.shape = places, (len(places), source.shape[1])

    def edges(self, n_bytes: int) -> list[int]:
        cuts = np.searchsorted(self._places, self.source.edges(n_bytes))
        return [0, *np.unique(cuts[(cuts > 0) & (cuts < self.shape[0])]).tolist(), self.shape[0]]

    def place(self, row: int) -> tuple[str, int]:
        return self.source.place(int(self._places[row]))

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        places = self._places[lo:hi]
        first = int(places[0])
        return self.source.read(first, int(places[-1]) + 1)[places - first]


class SomeColumns(Changed):
    """The columns of a source at these places; all of it is read."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"columns {told(places)}")
        self._places, self.shape = places, (source.shape[0], len(places))

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        X = inside_rows_of(self.source, lo, hi)
        return X[:, self._places] if isinstance(X, csr_array) else np.ascontiguousarray(X[:, self._places])


class Among(Changed):
    """The columns of a source at these places, which ascend, among `n` columns; the others are zeros."""

    def __init__(self, source: RowSource, places: Places, n: int) -> None:
        super().__init__(source, f"among {n} columns {told(places)}")
        self._places, self.shape = places, (source.shape[0], n)
        self.stored = source.stored if self.sparse else self.shape[0] * n

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        X = inside_rows_of(self.source, lo, hi)
        if isinstance(X, csr_array):
            return csr_array((X.data, self._places[X.indices], X.indptr), shape=(hi - lo, self.shape[1]))
        wide = np.zeros((hi - lo, self.shape[1]), X.dtype)
        wide[:, self._places] = X
        return wide
