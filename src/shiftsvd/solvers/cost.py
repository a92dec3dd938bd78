"""Cost model of solvers: seconds, passes and memory (measure again on other processors: claims/kernels.py)."""

from typing import Any, NamedTuple

import numpy as np

from shiftsvd.algebra.operator import Costs
from shiftsvd.kernels import default_threads
from shiftsvd.operators import LowRank, Operator

# Costs are for two threads on every machine: the choice of a solver must not depend on the number of threads.
THREADS = 2


class Cost(NamedTuple):
    """Predicted seconds on two cores of about 3 GHz, to compare solvers, and passes over the data."""

    seconds: float
    n_passes: float


# Seconds for a stored number and a column of a fused product, and for a pair of stored numbers of a row in a formed
# Gram matrix; one core, AVX-512 (benchmarks/claims/kernels.py).
SPARSE = {4: 0.12e-9, 8: 0.21e-9}
SPARSE_PAIR = 1.3e-9
# Largest panels on the short side, and largest Gram matrices, that fit into the cache, in bytes; the factor by which
# products with larger panels are slower.
CACHE = 2**20
GRAM_CACHE = 2**24
MISSES = 1.6
# Factor for larger Gram matrices, unless rows have so many entries that the kernel multiplies them by columns.
SCATTERED, LONG_ROW = 3.0, 32
# Seconds per operation of BLAS, by the bytes of a number: products of matrices, and with panels of 32 columns; and per
# operation of LAPACK's QR and eigenvalues in double precision.
BLAS = {4: 1.2e-11, 8: 2.2e-11}
THIN = {4: 2.2e-11, 8: 6e-11}
LAPACK = 1.5e-10
# Seconds to convert an entry of a dense block to double precision and subtract its shift.
FORM = 0.8e-9
# Overhead of a step of block Lanczos in seconds: calls and small matrices (benchmarks/claims/middle.py).
STEP = 7e-4
# Reads that a fit of a file saves: the read of the means multiplies the first block, and the last step the probe.
SAVED = 2
# Seconds to read a byte of a file: 1.2e-9 for HDF5 files in the page cache, 3e-9 to 4e-9 for compressed ones
# (benchmarks/claims/reads.py), 2e-9 to 1e-8 for disks and networks of 500 to 100 MB/s.
FILE = 3e-9


# Bytes that every fit takes: stacks of threads, and buffers that libraries allocate at their first call.
FIXED = 2_500_000
# Bytes of a dense block in double precision, and blocks per thread while moments are computed.
DENSE_BYTES, DENSE_BLOCKS = 2**23, 3


def overhead_bytes(A: Operator, columns: int) -> int:
    # Memory of a fit outside of the arrays of its solver, for products with panels of `columns` columns.
    costs = tall(A).costs
    size = FIXED + costs.working_bytes + columns * costs.column_bytes
    if costs.stored < A.shape[0] * A.shape[1]:
        return size
    dense_blocks = DENSE_BLOCKS * (costs.n_threads or default_threads()) * (costs.block_bytes or DENSE_BYTES)
    return size + min(dense_blocks, 8 * costs.stored)


# Vectors as long as the rows for weights: the weights, their square roots, and temporaries of moments and sums.
WEIGHTED = 6
# Vectors as long as the columns: means, sums of squares, scales and inverse scales.
OF_COLUMNS = 4


def vector_bytes(A: Operator, k: int, shift: Any, is_weighted: bool) -> int:
    """Predict the bytes of the vectors for shift, scale and weights, in addition to the memory of a solver.

    Per column: right factor of the shift, moments, scale and inverse scale. Per row: left factor of the shift, except
    for files whose rows all have the same shift; for row means, the moments of the rows of each block and of all rows.
    Centred rows have at most n - 1 components. If all of these are computed, the residual is at rounding level, and the
    factors of shift and components are merged to measure it.
    """
    by_rows = isinstance(shift, str) and shift in ("rows", "both")
    rank = 0 if shift is None else shift.L.shape[1] if isinstance(shift, LowRank) else 1 + (by_rows and shift == "both")
    vectors = rank * (by_rows or not A.costs.file_bytes) + 4 * by_rows
    if by_rows and k + 1 >= min(A.shape):
        vectors = max(vectors, 2 * (k + rank) + 3)
    return int(8 * (A.shape[0] * (vectors + WEIGHTED * is_weighted) + A.shape[1] * (rank + OF_COLUMNS)))


def tall(A: Operator) -> Operator:
    return A if A.shape[0] >= A.shape[1] else A.H


def wide(A: Operator) -> Operator:
    return A if A.shape[0] < A.shape[1] else A.H


def long_vector_bytes(A: Operator, k: int) -> int:
    # The signs need the right vectors, so the long-side factor of a wide matrix is computed during the fit: two panels
    # and a tenth as margin. That of a tall matrix is computed when it is read.
    return 0 if A.shape[0] >= A.shape[1] else int(8 * 2.2 * k * A.shape[1])


class Work(NamedTuple):
    """Sizes that determine the seconds and passes of solvers; n is the short side."""

    m: int
    n: int
    size: int  # bytes of a number
    costs: Costs  # of the matrix with its long side as rows

    @classmethod
    def of(cls, A: Operator) -> "Work":
        m, n = max(A.shape), min(A.shape)
        size = 4 if A.dtype in (np.float32, np.complex64) else 8
        return cls(m, n, size, tall(A).costs)

    @property
    def sparse(self) -> bool:
        return self.costs.stored < self.m * self.n

    def product_seconds(self, columns: float) -> float:
        if not self.sparse:
            return 4 * self.costs.stored * columns * THIN[self.size] / THREADS
        misses = MISSES if self.n * 256 > CACHE else 1.0
        return self.costs.stored * columns * SPARSE[self.size] * misses / THREADS

    def read_seconds(self, n_passes: float) -> float:
        formed = 0.0 if self.sparse else self.costs.stored * FORM / THREADS
        return (formed + self.costs.file_bytes * FILE) * n_passes

    def send_seconds(self) -> float:
        return self.costs.square_bytes * FILE

    def lanczos(self, k: int, block: int, columns: int) -> Cost:
        steps = np.ceil((5.0 * k + 100) / block) + 4
        done = min(steps * block, 1.5 * self.n + block)
        per_step = STEP + 8 * self.n * block * min(columns, self.n) * BLAS[8] / THREADS  # orthogonalization
        checks = 40 * min(columns, done) ** 3 * BLAS[8]
        algebra = done / block * per_step + checks
        reads = steps + (1 - SAVED if self.costs.file_bytes else 1)
        return Cost(self.product_seconds(done + k) + self.read_seconds(reads) + algebra, float(reads))

    def gram(self, k: int) -> Cost:
        if self.sparse:
            scattered = 8 * self.n**2 > GRAM_CACHE and self.costs.stored < LONG_ROW * self.m
            form = self.costs.gram_pairs * SPARSE_PAIR * (SCATTERED if scattered else 1.0)
        else:
            form = 2 * self.costs.stored * self.n * BLAS[8] + self.costs.stored * FORM
        solve = min(10 * self.n**3 * LAPACK / 3, (6.0 * k + 200) * 4 * self.n**2 * BLAS[8] * 2)
        reads = 2 * self.costs.file_bytes * FILE
        return Cost(form / THREADS + solve + self.product_seconds(k) + reads + self.send_seconds(), 2.0)

    def exact(self) -> Cost:
        qr = 2.0 * self.m * self.n**2 * LAPACK / THREADS
        return Cost(qr + 12 * self.n**3 * LAPACK + self.costs.file_bytes * FILE + self.send_seconds(), 1.0)
