"""The rows of each batch: their labels as numbers, and how ranks of batches become one choice, as scanpy does it."""

from typing import Any, Final, NamedTuple, Self

import numpy as np

from shiftsvd.numerics.grouped import group_sizes
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked

DIGITS: Final = 11  # of scores that are compared


class Batches(NamedTuple):
    """The batch of every row."""

    codes: Vector
    sizes: Vector  # how many rows each batch has
    given: bool  # whether there are any labels

    @classmethod
    def of(cls, labels: Any, n_rows: int) -> Self:
        if labels is None:
            codes, names = np.zeros(n_rows, np.int64), np.array(["all rows"])
        else:
            known = np.asarray(unmasked("batch", labels, "leave these rows out"))
            if known.shape != (n_rows,):
                raise ValueError(f"batch must have one label for each of the {n_rows} rows, got shape {known.shape}")
            if without := int(sum(map(_missing, known.tolist()))):
                raise ValueError(f"batch must have a label for every row, got {without} without; leave these rows out")
            names, codes = np.unique(known.astype(str) if known.dtype == object else known, return_inverse=True)
        sizes = group_sizes(codes, len(names))
        if labels is None and n_rows < 2:
            raise ValueError(f"features are ranked by at least 2 rows, got {n_rows}")
        if sizes.min() < 2:
            raise ValueError(f"every batch must have at least 2 rows, got 1 in {names[int(np.argmin(sizes))]!s}")
        return cls(codes.astype(np.int64), sizes, labels is not None)

    @property
    def n(self) -> int:
        return len(self.sizes)


def _missing(label: Any) -> bool:
    if label is None or isinstance(label, str):
        return not label
    return type(label).__name__ == "NAType" or bool(label != label)


def ranks(scores: Vector) -> Vector:
    """The place of each gene in each batch, 0 for the largest score; shape (n, batches).

    Many genes have the same counts, and scores that differ by rounding alone: these are alike, and come in the order in
    which NumPy's sort leaves them, as they do in scanpy.
    """
    with np.errstate(divide="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(scores))) - DIGITS)
    alike = np.where(scores == 0, 0, np.rint(scores / np.where(unit > 0, unit, 1)) * unit)
    return np.argsort(np.argsort(-alike.T, axis=1), axis=1).T


def chosen_by_rank(scores: Vector, n_top: int, rank_first: bool) -> dict[str, Vector]:
    """The genes of the best ranks: by their median over the batches that choose them, and by how many do.

    `rank_first` says which of the two comes first; the other one decides where that is the same.
    """
    own = ranks(scores).astype(np.float64)
    n_batches = np.sum(own < n_top, axis=1)
    own[own >= n_top] = np.nan
    median = _median(own)
    keys = (np.where(np.isnan(median), np.inf, median), -n_batches.astype(np.float64))
    order = np.lexsort(keys[::-1] if rank_first else keys)
    return {
        "highly_variable": first_of(order, n_top),
        "highly_variable_rank": median,
        "highly_variable_nbatches": n_batches,
    }


def _median(ranks: Vector) -> Vector:
    known = np.sort(ranks, axis=1)  # NaN comes last
    count = np.count_nonzero(~np.isnan(known), axis=1)
    lines = np.arange(len(known))
    lower, upper = known[lines, np.maximum(count - 1, 0) // 2], known[lines, count // 2 % known.shape[1]]
    return np.asarray(np.where(count % 2 == 1, lower, (lower + upper) / 2))


def first_of(order: Vector, n_top: int) -> Vector:
    mask = np.zeros(len(order), bool)
    mask[order[:n_top]] = True
    return mask
