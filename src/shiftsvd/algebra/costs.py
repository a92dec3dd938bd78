"""What the products of a matrix cost, and how they round: what solvers plan by."""

from abc import ABC
from typing import Any

import numpy as np

PANEL_CACHE = 2**20  # bytes of one panel that stays in the cache of a core beside another


class Costs(ABC):
    """The costs of a matrix of which nothing else is known than that it is dense; backends say theirs."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def eps(self) -> float:
        """Rounding unit of the products."""
        return float(np.finfo(self.dtype).eps)

    @property
    def gram_reads(self) -> int:
        """How often `gram` reads the data."""
        return 2

    @property
    def panel_columns(self) -> tuple[int, int]:
        """The fewest and the most columns of a panel that products are at their best with."""
        if self.stored == self.shape[0] * self.shape[1]:
            return 16, 32
        # Where two panels leave the cache, 8 columns take as long each as 16, and a run needs fewer of them.
        return (8, 8) if 16 * self.dtype.itemsize * min(self.shape) > PANEL_CACHE else (8, 16)

    @property
    def gram_in_single(self) -> bool:
        """Whether `gram` is quicker for a panel in single precision."""
        return self.dtype == np.float32

    @property
    def working_bytes(self) -> int:
        """Memory that a product takes beside its panels."""
        return 0

    @property
    def file_bytes(self) -> int:
        """How much one pass reads from a file; 0 where the data are in memory."""
        return 0

    @property
    def square_bytes(self) -> float:
        """How much travels where a matrix as wide and as high as the columns is formed; infinite: it must not."""
        return 0.0

    @property
    def gram_pairs(self) -> float:
        """How many products of two numbers `gram_matrix` takes, about."""
        return self.stored**2 / self.shape[0]

    @property
    def gram_eps(self) -> float:
        """Rounding unit of `gram` for panels in double precision."""
        return self.eps

    @property
    def stored(self) -> int:
        """How many numbers one pass reads."""
        return self.shape[0] * self.shape[1]

    @property
    def strain(self) -> int:
        """How far from 1 the scales that panels are multiplied by are, as an exponent of two."""
        return 0

    @property
    def n_threads(self) -> int | None:
        """Threads that a solver may use; None: the cores that this process may use."""
        return None
