"""What a probe tells of a fit to come: how quick this machine is beside the model of costs, and how many passes."""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from shiftsvd.algebra.generic import gram_seconds
from shiftsvd.backends import centered
from shiftsvd.backends.columns import some_rows
from shiftsvd.events import unheard
from shiftsvd.kernels import threads
from shiftsvd.operators import Operator
from shiftsvd.solvers.base import Solver
from shiftsvd.solvers.cost import Work
from shiftsvd.solvers.lanczos import BlockLanczos

PROBED: Final = 400_000  # numbers of the larger of two parts of a matrix of which the passes are counted
LEAST: Final = 4  # rows of such a part for each component, at the least
# Of what passes grow by from one part to twice its rows, what they grow by at each doubling beyond.
FLATTENS: Final = 0.6


def timed_pass(A: Operator, k: int | float) -> tuple[float, float]:
    tall = A if A.shape[0] >= A.shape[1] else A.H
    block, work = BlockLanczos().shape(k, A).block, Work.of(A)
    V = np.ones((tall.shape[1], block), A.dtype)
    with threads(A.costs.n_threads):
        rounds = 1 if A.costs.file_bytes else 2  # in memory the first product also starts what later ones find started
        seconds = min(gram_seconds(tall, V) for _ in range(rounds))
    return seconds, seconds / (work.product(block) + work.reading(1))


def counted_passes(A: Operator, solver: Solver, k: int | float) -> int | None:
    """How many passes block Lanczos is likely to take of a matrix in memory, by those of two parts of its rows.

    Each doubling of the rows sharpens the spectrum, and adds passes, the fewer the more rows there are. None where
    that cannot be told: of other solvers, shares, files, and what is shifted already.
    """
    m = A.shape[0]
    if not isinstance(solver, BlockLanczos) or isinstance(k, float) or A.costs.file_bytes:
        return None
    rows = min(m, max(m * PROBED // A.costs.stored, LEAST * int(k)))
    of_some, of_half = (_passes(A, solver, int(k), count) for count in (rows, rows // 2))
    if of_some is None or of_half is None:
        return None
    return round(of_some + FLATTENS * max(of_some - of_half, 0) * math.log2(m / rows))


def _passes(A: Operator, solver: BlockLanczos, k: int, count: int) -> int | None:
    places = np.unique(np.linspace(0, A.shape[0] - 1, count).astype(np.intp))
    if len(places) < max(k, 2):
        return None
    try:
        part = some_rows(A, places) if len(places) < A.shape[0] else A
    except (TypeError, ValueError):  # of kinds that have no rows to take
        return None
    whole = replace(solver, block_size=solver.shape(k, A).block)
    with unheard(), threads(A.costs.n_threads):
        B = centered(part)
        return whole.factorize(B, min(k, *B.shape), np.random.default_rng(0)).n_passes
