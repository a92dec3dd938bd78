"""Several transformations, one after another: learned, applied to other rows, and what of columns they leave out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shiftsvd.backends.columns import some_columns
from shiftsvd.backends.entries import bytes_kept
from shiftsvd.backends.selection import Places
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator
from shiftsvd.transforms.base import Fitted, Transform, checked, frequencies, held_as
from shiftsvd.transforms.count_data import warn_unless_counts

# The rank of what zeros become, about, where it is interpolated; and vectors of rows that are held while it is made.
RANK, VECTORS = 16, 6


def kept_bytes(how: tuple[Transform, ...], A: Operator, tol: float) -> int:
    if not how:
        return 0
    # Two copies while one is made of another, in double precision; and L of what zeros become, of some rank.
    several = len(how) > 1
    entries = bytes_kept(A, held_as(A, 0.0 if several else tol).itemsize) * (2 if several else 1)
    return entries + 8 * A.shape[0] * (VECTORS + (0 if all(each.keeps_zeros for each in how) else RANK))


@dataclass(frozen=True, eq=False)
class Own:
    """The rows that transformations were learned from, transformed, and how far off they may be."""

    fitted: tuple[Fitted, ...]
    B: Operator
    errors: Vector | float = 0.0  # of the columns, as `Fitted.errors`
    rounding: Vector | float = 0.0  # likewise
    rounded: Operator | None = None  # the changed entries alone, where they were rounded to single precision


def learn_all(how: tuple[Transform, ...], A: Operator, weights: Vector | None, tol: float) -> Own:
    if not how:
        return Own((), A)
    warn_unless_counts(how, checked(A))
    w = frequencies(weights, A)
    known: list[Fitted] = []
    several = sum(not each.selects for each in how) > 1
    B = checked(A)
    errors: Any = 0.0
    rounding: Any = 0.0
    for each, selection in stages(how):
        fitted, R = each.learn_rows(B, w, tol)
        # What one rounds to single precision, the next might make more of.
        fitted = replace(fitted, tol=0.0 if several else tol)
        known.append(fitted)
        if selection is not None:
            known.append(selection.learn_rows(B, w, tol)[0])
            fitted, B = fitted.at(known[-1].kept), some_columns(B, known[-1].kept)
        stored, zeros = fitted.parts(B, R)
        B = stored if zeros is None else stored - zeros
        if fitted.selects:
            errors, rounding = (part[fitted.kept] if np.ndim(part) else part for part in (errors, rounding))
        else:
            errors, rounding = fitted.errors(R, weights), fitted.rounding(R, weights)
    rounded = stored if stored.dtype == np.float32 and not all(each.selects for each in how) else None
    return Own(tuple(known), B, errors, rounding, rounded)


def apply_all(fitted: tuple[Fitted, ...], A: Operator) -> Operator:
    warn_unless_counts([each.how for each in fitted], checked(A) if fitted else A)
    for each, selection in stages(fitted):
        if selection is None:
            A = each.of(A)
        else:
            R = each.rows(checked(A))
            A = each.at(selection.kept).of(some_columns(A, selection.kept), R)
    return A


def stages(steps: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for before, step, after in zip((None, *steps), steps, (*steps[1:], None), strict=False):
        selection = after if after is not None and after.selects and not step.selects else None
        if not step.selects or before is None or before.selects:
            yield step, selection


def kept_of(fitted: Sequence[Fitted], n: int) -> Places:
    places = np.arange(n)
    for each in fitted:
        places = places[each.kept] if each.selects else places
    return places


def width(how: Sequence[Transform], n: int) -> int:
    for each in how:
        n = each.n_columns(n)
    return n


def reordered(fitted: Sequence[Fitted], order: Places) -> tuple[tuple[Fitted, ...], Places]:
    """Fitted steps for rows with other columns, or in another order; and the order of columns that are left.

    ``order[j]`` is the place that column j of such rows had.
    """
    moved = []
    for each in fitted:
        moved.append(each.at(order))
        if each.selects:
            rank = np.cumsum(each.columns[:, 0] != 0) - 1
            order = rank[order[moved[-1].kept]]
    return tuple(moved), order
