"""Our own products of sparse rows on a card: entries in chunks of rows, by rows and by columns; the same bits anywhere.

The order of every sum follows from the data and the width of the panel, whatever the card: see chunks.cu. The sums of a
row, and of a column inside of a chunk, are in the precision of the panel; everything from there on is double.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shiftsvd.backends.device.card import Card, Options

# Rows of a chunk: 768 of them, with the widest rows of a panel, fill what shared memory every card has since 2020;
# fewer are for small data, which keep all of a card busy that way. How many entries a column of a chunk should have on
# average, since lanes share it, and must have. Threads of a block: two fit on a processor. Bytes of a row of panels.
ROWS, MANY, FEW, THREADS = (192, 384, 768), 8, 1, 512
ROW_BYTES = (32, 64, 128)
# Blocks of threads, each with sums of its own: enough for any card, on every card as many; fewer where the sums would
# take more than this many bytes and than an eighth of the entries.
BLOCKS, SUMS = 256, 2**26
DOUBLE = np.dtype(np.float64)
NAMES = {"f4": "float", "f8": "double", "i4": "int", "i8": "long long", "u2": "unsigned short"}


class Chunks:
    """The entries of a CSR matrix without duplicates on a card, and their products.

    Parameters
    ----------
    card : Card
    parts : three contiguous arrays on the card
        Entries of float32 or float64, their columns, and where rows begin, in int64.
    types : (dtype, dtype)
        Of the entries, and of the columns.
    shape : (int, int)
    rows, threads : int
        Of a chunk, and of a block.

    Notes
    -----
    With eps of the panels' precision, rows of r entries at most and s dense columns beside, a number of ``X^T X V`` is
    off by at most ``(r / 4 + rows / 4 + s + 8) eps / 2`` of what ``|X|^T |X| |V|`` has there: sums inside of a chunk
    round, in shares of a quarter or less, and sums of chunks are double. However many rows there are, it does not grow.
    """

    def __init__(
        self,
        card: Card,
        parts: tuple[Any, Any, Any],
        types: tuple[np.dtype[Any], np.dtype[Any]],
        shape: tuple[int, int],
        *,
        rows: int = ROWS[-1],
        threads: int = THREADS,
    ) -> None:
        self.card, self.shape, self.rows, self.threads = card, shape, rows, threads
        self.data, named, self.begins = parts
        self.dtype, self.index = types
        (m, n), stored = shape, int(self.data.shape[0])
        self.chunks = -(-m // rows)
        self.named = np.dtype(np.uint16 if n <= 2**16 else np.int32)
        self.columns = card.empty((stored,), self.named)
        self.by_columns, self.rows_of = card.empty((stored,), self.dtype), card.empty((stored,), np.dtype(np.uint16))
        self.ends = card.empty((self.chunks, n), np.dtype(np.uint32))
        self.bytes = stored * (2 * self.dtype.itemsize + 2 + self.named.itemsize)
        arrays = (self.data, named, self.begins, self.columns, self.by_columns, self.rows_of, self.ends)
        options = self._options(self.dtype, ROW_BYTES[1] // self.dtype.itemsize)
        card.launch(options, "order", min(self.chunks, BLOCKS), threads, 4 * threads, *arrays, m, n)

    def gathered(self, V: Sequence[Any], sides: Any, dtype: np.dtype[Any]) -> Any:
        return self._multiplied(V, sides, dtype, kept=True)

    def scattered(self, W: Any, sides: Any, dtype: np.dtype[Any]) -> Any:
        return self._multiplied([W], sides, dtype, given=True)

    def gram(self, V: Sequence[Any], sides: Any, weights: Any, dtype: np.dtype[Any]) -> Any:
        return self._multiplied(V, sides, dtype, weights=weights)

    def _multiplied(
        self,
        panels: Sequence[Any],
        sides: Any,
        dtype: np.dtype[Any],
        *,
        weights: Any = None,
        given: bool = False,
        kept: bool = False,
    ) -> Any:
        wide, height = int(panels[0].shape[1]), self.shape[0] if kept else self.shape[1] + width_of(sides)
        product = self.card.empty((height, wide), dtype if kept else DOUBLE)
        for lo, hi, width in cut(wide, dtype):
            here = self._stacked([panel[:, lo:hi] for panel in panels], width, dtype)
            operands = (None, sides, weights, here) if given else (here, sides, weights, None)
            part = self._rows(operands, width, dtype) if kept else self._sums(operands, (height, width), dtype)
            product[:, lo:hi] = part[:, : hi - lo]
        return product

    def _stacked(self, panels: Sequence[Any], width: int, dtype: np.dtype[Any]) -> Any:
        stacked = self.card.empty((sum(int(panel.shape[0]) for panel in panels), width), dtype)
        lo = 0
        for panel in panels:
            hi = lo + int(panel.shape[0])
            stacked[lo:hi, : width_of(panel)] = panel
            lo = hi
        return stacked

    def _rows(self, operands: tuple[Any, ...], width: int, dtype: np.dtype[Any]) -> Any:
        found = self.card.empty((self.shape[0], width), dtype)
        self._launch(min(self.chunks, BLOCKS), (*operands, found, None), width, dtype)
        return found

    def _sums(self, operands: tuple[Any, ...], shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        count = shape[0] * shape[1]
        blocks = max(1, min(self.chunks, BLOCKS, max(SUMS, self.bytes // 8) // (8 * count)))
        sums, total = self.card.empty((blocks, *shape), DOUBLE), self.card.empty(shape, DOUBLE)
        self._launch(blocks, (*operands, None, sums), shape[1], dtype)
        options, adding = self._options(dtype, shape[1]), -(-count // self.threads)
        self.card.launch(options, "add_up", adding, self.threads, 0, sums, total, blocks, count)
        return total

    def _launch(self, blocks: int, operands: tuple[Any, ...], width: int, dtype: np.dtype[Any]) -> None:
        data = self.data, self.columns, self.begins, self.by_columns, self.rows_of, self.ends
        sizes, shared = (*self.shape, width_of(operands[1])), self.rows * width * dtype.itemsize
        self.card.launch(
            self._options(dtype, width), "multiply", blocks, self.threads, shared, *data, *operands, *sizes
        )

    def _options(self, dtype: np.dtype[Any], width: int) -> Options:
        kinds = {"DATA": self.dtype, "PANEL": dtype, "INDEX": self.index, "COLUMN": self.named}
        sizes = {"WIDTH": width, "ROWS": self.rows, "THREADS": self.threads}
        named = {key: NAMES[kind.str[1:]] for key, kind in kinds.items()} | sizes
        return tuple(f"-D{key}={value}" for key, value in named.items())


def rows_of(m: int, n: int, stored: int) -> int | None:
    """How many rows a chunk of such data has; None where columns of chunks are so empty that where they end costs most.

    It goes by the data alone, so that cards agree.
    """
    each = stored / (m * n)
    if each * ROWS[-1] < FEW or ROWS[-1] * n >= 2**32:  # more than the entries of a chunk are counted to
        return None
    return next((rows for rows in ROWS if each * rows >= MANY and m <= 2 * BLOCKS * rows), ROWS[-1])


def width_of(panel: Any) -> int:
    return 0 if panel is None else int(panel.shape[1])


def cut(wide: int, dtype: np.dtype[Any]) -> list[tuple[int, int, int]]:
    widths, found, lo = [row // dtype.itemsize for row in ROW_BYTES], [], 0
    while lo < wide:
        width = next((width for width in widths if width >= wide - lo), widths[-1])
        found.append((lo, min(lo + width, wide), width))
        lo += width
    return found
