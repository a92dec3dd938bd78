"""The trace of the squared relationship matrix: of all pairs of up to some thousands of samples, else an estimate."""

from typing import Final, NamedTuple

import numpy as np

from shiftsvd.algebra.generic import fused, gram_matrix
from shiftsvd.kernels import threads
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources, spare

MOST_EXACT: Final = 5000  # samples whose n x n relationship matrix is formed, if it fits
PROBES: Final = 256  # of the estimate


class SquaredTrace(NamedTuple):
    """The sum of the squared eigenvalues of ``Z Z^H``, and its standard error; 0 where it was computed."""

    value: float
    standard_error: float


def squared_trace(
    Z: Operator, U: Panel, S: Vector, total: float, rng: np.random.Generator, resources: Resources
) -> SquaredTrace:
    """``||Z Z^H||_F^2`` of centred samples x variants, given leading singular vectors and values, and ``||Z||_F^2``.

    Notes
    -----
    Up to 5000 samples, where there is room, ``Z Z^H`` is formed: one read and m^2 n operations. For more, the leading
    eigenvalues are known, and so is the mean c of the others, by the trace. What is estimated is the sum of their
    squared distances from c, which the effective number of markers depends on: the mean of ``||P (Z Z^H - c) P w||^2``
    over 256 random signs w, where P takes out the leading vectors and the mean. Two reads (Hutchinson 1990; with
    vectors taken out, Meyer et al. 2021).
    """
    m = Z.shape[0]
    with threads(resources.n_threads):
        if m <= MOST_EXACT and spare(4 * 8 * m * m, resources.memory_limit):
            return SquaredTrace(float((gram_matrix(fused(Z.H, np.inf)) ** 2).sum()), 0.0)
        known = np.column_stack([U, np.full(m, m**-0.5)])
        signs = rng.choice([-1.0, 1.0], (m, PROBES))
        beyond = signs - known @ (known.T @ signs)
        product = Z.matmat(Z.rmatmat(beyond.astype(Z.dtype))).astype(np.float64)
    rest, rank = total - float((S**2).sum()), m - known.shape[1]
    c = rest / max(rank, 1)
    squares = ((product - known @ (known.T @ product) - c * beyond) ** 2).sum(axis=0)
    value = float((S**4).sum() + squares.mean()) + 2 * c * rest - c**2 * rank
    return SquaredTrace(value, float(squares.std(ddof=1) / np.sqrt(PROBES)))
