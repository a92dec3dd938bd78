"""Some rows or some columns of a matrix in a file, which is not loaded for it; columns also in another order."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.source import Changed, RowSource, inside_rows_of

Places = npt.NDArray[np.intp]  # of rows: ascending, without repeats


class SomeRows(Changed):
    """The rows of a source at these places."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"rows {_told(places)}")
        self._places, self.shape = places, (len(places), source.shape[1])

    def edges(self, n_bytes: int) -> list[int]:
        """Where the source has its edges; ranges that would be empty are left out."""
        cuts = np.searchsorted(self._places, self.source.edges(n_bytes))
        return [0, *np.unique(cuts[(cuts > 0) & (cuts < self.shape[0])]).tolist(), self.shape[0]]

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        """The rows from the first to the last that is wanted, and of them the wanted ones."""
        places = self._places[lo:hi]
        first = int(places[0])
        return self.source.read(first, int(places[-1]) + 1)[places - first]


class SomeColumns(Changed):
    """The columns of a source at these places; all of it is read."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"columns {_told(places)}")
        self._places, self.shape = places, (source.shape[0], len(places))

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        """Rows lo to hi, and of them the wanted columns."""
        X = inside_rows_of(self.source, lo, hi)
        return X[:, self._places] if isinstance(X, csr_array) else np.ascontiguousarray(X[:, self._places])


def _told(places: Places) -> str:
    """Which places these are, in few letters."""
    from hashlib import blake2b

    return blake2b(places.astype(np.int64).tobytes(), digest_size=8).hexdigest()
