"""Open files with missing entries, and count these entries."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from shiftsvd.backends.entries import SomeColumns
from shiftsvd.backends.source import RowSource, Stacked
from shiftsvd.errors import Refused, Setting
from shiftsvd.io.base import Names, Opened, reading
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.opening import MatrixOptions, held_bytes, held_or_streamed, listed, named_as, read_files
from shiftsvd.io.spooling import rereadable
from shiftsvd.io.stacking import several
from shiftsvd.missing.gaps import Gaps, gaps_of
from shiftsvd.runs.memory import Resources, beyond, limit_of
from shiftsvd.runs.messages import external_files

BLOCK = 2**25  # bytes to read at a time


def n_missing(X: Any) -> int:
    if isinstance(X, Stacked):
        return sum(map(n_missing, X.parts))
    if isinstance(X, SomeColumns) and X.shape == X.source.shape:  # a permutation of all columns
        return n_missing(X.source)
    if isinstance(X, RowSource):
        X = X.with_nan()
    if X.dtype.kind not in "fc":
        return 0
    if isinstance(X, RowSource):
        return sum(n_missing(X.read(lo, hi)) for lo, hi in pairwise(X.edges(min(BLOCK, X.largest_block))))
    values: Any = X
    return int(np.count_nonzero(np.isnan(values.data if issparse(X) else np.asarray(X))))


def open_with_gaps(
    path: str | Path | Sequence[str | Path],
    *,
    unobserved: bool = False,
    whole: bool = False,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    choices: Choices = NOTHING,
    allow_external: bool = False,
    **where: Any,
) -> tuple[Gaps, Names]:
    resources, given = Resources(memory_limit, n_threads), listed(path)
    with external_files(allow_external), rereadable(given, MatrixOptions(**where).format) as paths:
        piped = paths != given
        opened = read_files(paths, memory_limit, choices, **where)
        streams = not (whole or unobserved or piped or opened.by_features)
        with reading(several(paths), *paths):
            X = held_or_streamed(opened.matrix, resources, paths=paths) if streams else _held(opened, memory_limit)
            with named_as(paths, opened, by_features=False):
                gaps = gaps_of(X, unobserved, **vars(resources))
    return gaps, opened.names


def _held(opened: Opened, memory_limit: int | str | None) -> Any:
    limit, X = limit_of(memory_limit), opened.matrix
    if isinstance(X, RowSource):
        if limit is not None and held_bytes(X) > limit:
            raise Refused(
                f"the matrix would take {beyond(held_bytes(X), limit)} of memory. Raise ",
                *(Setting("memory_limit"), ", or use ", Setting("missing", "mean")),
                " with a file that has samples as rows and NaN for missing entries, which is read in blocks.",
            )
        X = X.read(0, X.shape[0])
    return X.conj().T if opened.by_features else X
