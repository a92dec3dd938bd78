"""The trace of the squared relationship matrix: of all pairs of up to some thousands of samples, else an estimate."""

from typing import Final, NamedTuple

import numpy as np

from shiftsvd.algebra.generic import fused, gram_matrix
from shiftsvd.kernels import threads
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources, spare

MOST_EXACT: Final = 5000  # samples whose n x n relationship matrix is formed, if it fits
PROBES: Final = 64  # of the estimate


class SquaredTrace(NamedTuple):
    """The sum of the squared eigenvalues of ``Z Z^H``, and its standard error; 0 where it was computed."""

    value: float
    standard_error: float


def squared_trace(Z: Operator, U: Panel, S: Panel, rng: np.random.Generator, resources: Resources) -> SquaredTrace:
    """``||Z Z^H||_F^2`` of samples x variants, of which U and S are the leading singular vectors and values.

    Notes
    -----
    Up to 5000 samples, where there is room, ``Z Z^H`` is formed: one read and m^2 n operations. For more, the leading
    eigenvalues are known, and the rest is the mean of ``||P Z Z^H P w||^2`` over 64 random signs w, where P takes the
    leading vectors out: two reads (Hutchinson 1990; with vectors taken out, Meyer et al. 2021).
    """
    m = Z.shape[0]
    with threads(resources.n_threads):
        if m <= MOST_EXACT and spare(4 * 8 * m * m, resources.memory_limit):
            return SquaredTrace(float((gram_matrix(fused(Z.H, np.inf)) ** 2).sum()), 0.0)
        signs = rng.choice([-1.0, 1.0], (m, PROBES))
        beyond = signs - U @ (U.T @ signs)
        product = Z.matmat(Z.rmatmat(beyond.astype(Z.dtype))).astype(np.float64)
        squares = ((product - U @ (U.T @ product)) ** 2).sum(axis=0)
        known = float((S.astype(np.float64) ** 4).sum())
        return SquaredTrace(known + float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(PROBES)))
