"""Sparse x panel, one range of rows at a time: compiled where it can be, else by SciPy; and the threads.

``SHIFTSVD_KERNELS`` says what to do where the compiled kernels are missing: ``auto`` (the default) takes SciPy and logs
one line, ``require`` is an error; ``off`` takes SciPy always.
"""

import logging
import os
from typing import Any, Protocol

import numpy as np

from shiftsvd.kernels import twin
from shiftsvd.kernels.groups import Array, Groups
from shiftsvd.kernels.threads import default_threads, given_threads, ordered, stepwise, thread_count, threads

__all__ = [
    "Kernels",
    "best",
    "default_threads",
    "given_threads",
    "instruction_set",
    "kernels_for",
    "lacking",
    "ordered",
    "stepwise",
    "thread_count",
    "threads",
]


class Kernels(Protocol):
    """What both the compiled kernels and their twin provide."""

    instruction_set: str

    def panel(self, V: Array, dtype: Any) -> Groups:
        """V as these kernels want it."""

    def gather(self, X: Any, rows: tuple[int, int], V: Groups, Y: Array) -> None:
        """``Y = X[rows] V``."""

    def scatter(self, X: Any, rows: tuple[int, int], W: Array, dtype: Any) -> Groups:
        """``X[rows]^H W`` for some rows of X: what a block adds to the product of the adjoint."""

    def gram(
        self, X: Any, rows: tuple[int, int], V: Groups, weights: Array | None, L: Array, C: Groups
    ) -> tuple[Groups, Groups]:
        """``X[rows]^H Y`` and ``L^H Y`` with ``Y = diag(weights) (X[rows] V - L C)``."""

    def subtract(self, X: Array, L: Array, Rt: Array, dtype: Any) -> Array:
        """``X - L R^T`` for dense rows, subtracted in double and rounded once."""

    def inner(self, B: Array, W: Array) -> Array:
        """``B^H W`` of two tall panels, in double precision."""

    def subtract_product(self, W: Array, B: Array, C: Array) -> None:
        """``W -= B C`` in place, the product in the precision of B, which C has."""

    def total(
        self, parts: list[Groups], before: Array | None, L: Array, C: Array, rows: tuple[int, int], Y: Array
    ) -> None:
        """``Y = (sum of parts - L C)[rows]``, added in double, from `before` on, and rounded once."""

    def add(self, part: Array, total: Array) -> None:
        """``total += part`` for vectors; `total` is in double precision."""

    def moments(self, X: Any, rows: tuple[int, int], parts: Array | None) -> twin.Found:
        """The moments of the stored entries of each column; weights come in parts (`numerics.moments`), or are ones."""

    def row_moments(self, X: Any, rows: tuple[int, int], parts: Array | None) -> twin.Found:
        """The same of the stored entries of each row; the weights belong to the columns."""

    def column_counts(self, X: Any, rows: tuple[int, int]) -> Array:
        """Stored entries of each column in these rows."""

    def column_squares(self, X: Any, rows: tuple[int, int], weights: Array | None, L: Array, R: Array) -> Array:
        """What the stored entries of these rows add to the squared norms of the columns of ``L R^T``."""

    def outer(self, X: Any, rows: tuple[int, int], weights: Array | None) -> Array:
        """The lower triangle of ``X[rows]^H diag(weights) X[rows]``."""

    def inspect(self, X: Any, rows: tuple[int, int]) -> tuple[int, int, int, int, bool]:
        """(NaN, infinities, least and largest index, whether each row is strictly sorted)."""


def _best() -> tuple[Kernels, str | None]:
    """The compiled kernels, if they are there and wanted; where they are wanted and missing, what to say of it."""
    wanted = os.environ.get("SHIFTSVD_KERNELS", "auto")
    if wanted not in ("auto", "require", "off"):
        raise ValueError(f"SHIFTSVD_KERNELS must be auto, require or off, got {wanted!r}")
    if wanted == "off":
        return twin, None
    try:
        from shiftsvd.kernels import compiled
    except ImportError as error:
        from shiftsvd.kernels.missing import told

        lacking = told(error)
        if wanted == "require":
            raise ImportError(lacking) from error
        logging.getLogger("shiftsvd").warning(lacking)
        return twin, lacking
    return compiled, None


best, lacking = _best()


def instruction_set() -> str:
    """What the sparse products run on."""
    return best.instruction_set


def kernels_for(dtype: np.dtype[Any]) -> Kernels:
    """The kernels for an operator of this dtype; only SciPy's take complex numbers."""
    return twin if dtype.kind == "c" else best
