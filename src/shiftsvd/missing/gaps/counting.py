"""How many numbers of a file are missing."""

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import issparse

from shiftsvd.backends.selection import SomeColumns
from shiftsvd.backends.source import RowSource
from shiftsvd.backends.stacked import Stacked
from shiftsvd.io.formats.genotypes import Genotypes

BLOCK = 2**25  # bytes that are read at once


def n_missing(X: Any) -> int:
    if isinstance(X, Stacked):
        return sum(map(n_missing, X.parts))
    if isinstance(X, SomeColumns) and X.shape == X.source.shape:  # all of them, in another order
        return n_missing(X.source)
    if isinstance(X, Genotypes):  # which puts means in their place, unless it is given others
        X = X.filled(np.full(X.shape[0], np.nan))
    if X.dtype.kind not in "fc":
        return 0
    if isinstance(X, RowSource):
        return sum(n_missing(X.read(lo, hi)) for lo, hi in pairwise(X.edges(BLOCK)))
    values: Any = X
    return int(np.count_nonzero(np.isnan(values.data if issparse(X) else np.asarray(X))))
