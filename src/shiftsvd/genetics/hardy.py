"""The exact test of Hardy-Weinberg proportions, for many variants at once."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

_TIED: Final = 1 + 1e-9  # relative: tables as likely as the observed one, but for rounding
_NEGLIGIBLE: Final = 1e-20  # of a sum: terms that fall from here on do not change it


def exact_p(first: Counts, both: Counts, second: Counts, mid_p: bool = False) -> npt.NDArray[np.float64]:
    """P values of heterozygote counts given the allele counts: of all tables that are not likelier than the observed.

    With `mid_p`, half of what is as likely as the observed is left out (Graffelman & Moreno 2013).

    Notes
    -----
    Wigginton, Cutler & Abecasis (2005), "A note on exact tests of Hardy-Weinberg equilibrium", AJHG 76, 887-893: from
    the observed table the likelihoods of those beside it follow by ratios, downwards and upwards in heterozygotes.
    """
    sums = np.zeros((3, len(both)))  # likelihoods over the observed: below it, as likely, above it
    sums[1] = 1
    with np.errstate(over="ignore"):
        for step in (2, -2):
            _walk(sums, first.astype(np.float64), both.astype(np.float64), second.astype(np.float64), step)
    below, tied, above = sums
    taken: npt.NDArray[np.float64] = (below + (tied / 2 if mid_p else tied)) / (below + tied + above)
    return taken


def _walk(sums: Any, first: Any, both: Any, second: Any, step: int) -> None:
    active, term = np.arange(len(both)), np.ones(len(both))
    first, both, second = first.copy(), both.copy(), second.copy()
    while len(active):
        if step > 0:
            ratio = 4 * first * second / ((both + 2) * (both + 1))
        else:
            ratio = both * (both - 1) / (4 * (first + 1) * (second + 1))
        term = term * ratio
        kind = np.where(term * _TIED < 1, 0, np.where(term > _TIED, 2, 1))
        sums[kind, active] += term
        first, both, second = first - step / 2, both + step, second - step / 2
        # Ratios fall from table to table: where they are below 1 and the term is nothing, so is all that follows.
        going = (term > 0) & ~((ratio < 1) & (term < _NEGLIGIBLE)) & np.isfinite(sums[2, active])
        active, term, first, both, second = (part[going] for part in (active, term, first, both, second))
