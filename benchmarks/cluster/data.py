"""The matrix of the cluster benchmarks: CSR chunks that are made inside the tasks, and its exact singular values.

Needs NumPy, SciPy and Dask only: the environments of the peers import this file, too.
"""

from functools import cache, partial

import dask.array as da
import numpy as np
from scipy.sparse import csr_array, csr_matrix

from benchmarks import data

POOL, COLUMNS = 20_000, 2_000
ROW_ENTRIES = 175  # that are stored of a row, on average
CHUNK_BYTES = 64e6
PIECES = 6  # dense parts of a chunk, of about as many bytes each


@cache
def pool() -> csr_array:
    """The rows that chunks are drawn from; made once in a process."""
    return data.counts(POOL, COLUMNS, seed=7)


def drawn(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of the pool a chunk has, and what they are multiplied by: no two rows of the matrix are the same."""
    rng = np.random.default_rng((7, number))
    return rng.integers(0, POOL, rows), rng.lognormal(0, 0.2, rows).astype(np.float32)


def chunk(rows: int, block_id: tuple[int, int]) -> csr_matrix:
    """One chunk, made where it is needed."""
    return _rows(*drawn(block_id[0], rows))


def piece(rows: int, block_id: tuple[int, int]) -> np.ndarray:
    """A dense part of a chunk: so many of them are as large as the others altogether, and hold the same rows."""
    number, part = divmod(block_id[0], PIECES)
    which, scale = (np.array_split(all_, PIECES)[part] for all_ in drawn(number, rows))
    return _rows(which, scale).toarray()


def _rows(which: np.ndarray, scale: np.ndarray) -> csr_matrix:
    """Rows of the pool times their factors."""
    block = pool()[which]
    block.data *= np.repeat(scale, np.diff(block.indptr))
    return csr_matrix(block)


def sizes(gigabytes: float) -> tuple[int, int]:
    """Rows of a chunk, and how many chunks."""
    return int(CHUNK_BYTES / (8 * ROW_ENTRIES)), max(1, round(gigabytes * 1e9 / CHUNK_BYTES))


def array(gigabytes: float, kind: type = csr_array) -> da.Array:
    """The matrix, of which nothing is there; its chunks are of a class of SciPy, or dense."""
    rows, n_chunks = sizes(gigabytes)
    if kind is np.ndarray:
        lengths = [len(part) for part in np.array_split(np.empty(rows), PIECES)]
        chunks = tuple(lengths * n_chunks), (COLUMNS,)
        return da.map_blocks(partial(piece, rows), chunks=chunks, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    chunks = (rows,) * n_chunks, (COLUMNS,)
    X = da.map_blocks(partial(chunk, rows), chunks=chunks, dtype=np.float32, meta=csr_matrix((0, 0), dtype=np.float32))
    return X if kind is csr_matrix else X.map_blocks(kind, dtype=np.float32, meta=kind((0, 0), dtype=np.float32))


def exact_values(gigabytes: float, centred: bool = True) -> np.ndarray:
    """Singular values of the rows, minus their mean or as they are, by the Gram matrix of the pool in double."""
    rows, n_chunks = sizes(gigabytes)
    squares, sums = np.zeros(POOL), np.zeros(POOL)
    for number in range(n_chunks):
        which, scale = drawn(number, rows)
        np.add.at(squares, which, scale.astype(np.float64) ** 2)
        np.add.at(sums, which, scale.astype(np.float64))
    m = rows * n_chunks
    G, mean = np.zeros((COLUMNS, COLUMNS)), sums @ pool() / m
    for lo in range(0, POOL, 5_000):
        part = pool()[lo : lo + 5_000].toarray().astype(np.float64)
        G += part.T @ (part * squares[lo : lo + 5_000, None])
    G -= centred * m * np.outer(mean, mean)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(G)[::-1], 0))
