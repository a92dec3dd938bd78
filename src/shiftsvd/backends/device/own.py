"""Our own products of a shifted sparse matrix on a card: whether they are taken, and what a shift puts beside X."""

import logging
import os
from itertools import pairwise
from typing import Any

import numpy as np

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.chunks import Chunks, rows_of
from shiftsvd.backends.device.factors import Factors
from shiftsvd.events import read_part


class OwnProducts:
    """Products of entries X with dense columns beside them: L of the shift, and the full columns, shifted.

    Parameters
    ----------
    chunks : Chunks
        The entries.
    arrays : Arrays
    blocks : list of (int, int)
        Ranges of rows.
    beside : two lists of arrays on the card
        L, and the full columns, of each block; empty where there are none.
    """

    def __init__(self, chunks: Chunks, arrays: Arrays, blocks: list[Rows], beside: tuple[list[Any], list[Any]]) -> None:
        self.chunks, self.arrays, self.blocks, self.beside = chunks, arrays, blocks, beside
        self.widths = [int(parts[0].shape[1]) for parts in beside if parts]
        self._sides: dict[np.dtype[Any], Any] = {}

    def gathered(self, V: Factors, dtype: np.dtype[Any]) -> Any:
        read_part(1)
        return self.chunks.gathered(self._stack(V), self._beside(dtype), dtype)

    def scattered(self, W: Any, dtype: np.dtype[Any]) -> tuple[Any, ...]:
        read_part(1)
        return self._cut(self.chunks.scattered(W, self._beside(dtype), dtype))

    def gram(self, V: Factors, weights: Any, dtype: np.dtype[Any]) -> tuple[Any, ...]:
        read_part(1)
        return self._cut(self.chunks.gram(self._stack(V), self._beside(dtype), weights, dtype))

    def _stack(self, V: Factors) -> list[Any]:
        parts = V.rest, None if V.shift is None else V.shift * -1, V.full
        return [part for part in parts if part is not None and part.shape[0]]

    def _beside(self, dtype: np.dtype[Any]) -> Any:
        if not self.widths:
            return None
        if dtype not in self._sides:
            D, at = self.chunks.card.empty((self.chunks.shape[0], sum(self.widths)), dtype), 0
            for parts, width in zip((parts for parts in self.beside if parts), self.widths, strict=True):
                for (lo, hi), part in zip(self.blocks, parts, strict=True):
                    D[lo:hi, at : at + width] = self.arrays.in_dtype(part, dtype)
                at += width
            self._sides[dtype] = D
        return self._sides[dtype]

    def _cut(self, Z: Any) -> tuple[Any, ...]:
        edges = np.cumsum([0, self.chunks.shape[1], *self.widths])
        return tuple(Z[int(lo) : int(hi)] for lo, hi in pairwise(edges))


def own_chunks(X: Any, arrays: Arrays, stored: int) -> Chunks | None:
    """A CSR matrix for our own products; None where it lies on no card, or the library's pay better or are asked for.

    ``SHIFTSVD_KERNELS`` says here what it says of the kernels of the host: "off" are the library's products, and with
    "require" it is an error where ours cannot be compiled, which else is one line in the log.
    """
    card, wanted = arrays.card(), os.environ.get("SHIFTSVD_KERNELS", "auto")
    (m, n), (data, indices, indptr) = map(int, X.shape), arrays.parts(X)
    rows, types = rows_of(m, n, stored), (arrays.dtype_of(data), arrays.dtype_of(indices))
    if card is None or wanted == "off" or rows is None or types[0] not in (np.float32, np.float64):
        return None
    begins = arrays.up(np.asarray(arrays.down(indptr), np.int64))
    try:
        return Chunks(card, (arrays.by_rows(data), arrays.by_rows(indices), begins), types, (m, n), rows=rows)
    except (OSError, RuntimeError, MemoryError) as error:
        if wanted == "require":
            raise
        line = str(error).partition("\n")[0]
        logging.getLogger("shiftsvd").warning(f"products on the card are those of its library: {line}")
        return None
