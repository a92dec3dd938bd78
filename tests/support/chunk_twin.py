"""What our kernel on a card computes, by NumPy, in its order: the same bits."""

from typing import Any

import numpy as np
from scipy import sparse

from shiftsvd.backends.device import kernel
from shiftsvd.backends.device.kernel import Chunks

Array = np.ndarray


def lines(x: Array, named: Array, firsts: Array, lasts: Array, panel: Array, groups: int) -> Array:
    """Of each line, its entries times the rows of a panel that they name.

    Each group of lanes adds every so-manieth entry, from the first one on, and then pairs of groups are added.
    """
    sums = np.zeros((len(firsts), groups, panel.shape[1]), panel.dtype)
    for step in range(0, int(max(lasts - firsts, default=0)), groups):
        k = firsts[:, None] + step + np.arange(groups)
        there = k < lasts[:, None]
        sums[there] += x[k[there]].astype(panel.dtype)[:, None] * panel[named[k[there]]]
    while sums.shape[1] > 1:
        sums = sums[:, 0::2] + sums[:, 1::2]
    return sums[:, 0]


def full_lines(D: Array, panel: Array, groups: int) -> Array:
    """The same of the columns of a dense array."""
    rows, sides = D.shape
    firsts = np.arange(sides) * rows
    return lines(D.T.reshape(-1), np.tile(np.arange(rows), sides), firsts, firsts + rows, panel, groups)


def gathered(C: Chunks, X: sparse.csr_array, V: Array, D: Array) -> Array:
    """``[X D] V``, in the precision of V."""
    groups, n = _groups(C, V), X.shape[1]
    Y = lines(X.data, X.indices, X.indptr[:-1], X.indptr[1:], V[:n], groups)
    for s in range(D.shape[1]):
        Y = Y + D[:, s : s + 1] * V[n + s]
    return Y


def scattered(C: Chunks, X: sparse.csr_array, Y: Array, D: Array) -> Array:
    """``[X D]^T Y``: chunks in the precision of Y, their sums in double."""
    groups, sums = _groups(C, Y), []
    for lo in range(0, len(Y), C.rows):
        part = sparse.csc_array(X[lo : lo + C.rows])
        part.sort_indices()
        here = Y[lo : lo + C.rows]
        of_columns = lines(part.data, part.indices, part.indptr[:-1], part.indptr[1:], here, groups)
        sums.append(np.vstack([of_columns, full_lines(D[lo : lo + C.rows], here, groups)]).astype(np.float64))
    height, width = len(sums[0]), _width(Y)
    blocks = C.blocks(height * width)
    return _in_order([_in_order(sums[b::blocks]) for b in range(blocks)])


def gram(C: Chunks, X: sparse.csr_array, V: Array, D: Array, w: Array | None) -> Array:
    """``[X D]^T diag(w) [X D] V``."""
    Y = gathered(C, X, V, D)
    return scattered(C, X, Y if w is None else Y * w[:, None], D)


def _in_order(parts: list[Array]) -> Array:
    """A sum from the first one on."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _width(panel: Array) -> int:
    """How wide the rows of a panel are made; of one that is not cut."""
    ((_, _, width),) = kernel.cut(panel.shape[1], panel.dtype)
    return width


def _groups(C: Chunks, panel: Any) -> int:
    """How many groups of lanes share a line."""
    return 32 * 16 // (_width(panel) * panel.dtype.itemsize)
