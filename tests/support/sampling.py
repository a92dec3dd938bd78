"""Samples of cross products: few combinations in which every two values still meet."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

Combination = tuple[Any, ...]


def pairs(*axes: Iterable[Any]) -> list[Combination]:
    """Combinations of one value of each axis, such that any two values of two axes are together in one of them."""
    lists = [list(axis) for axis in axes]
    rows = {row: _met(row) for row in product(*(range(len(values)) for values in lists))}
    left: set[frozenset[tuple[int, int]]] = set().union(*rows.values())
    taken = []
    while left:  # the first of those with the most pairs that are not there yet
        best = max(rows, key=lambda row: len(left & rows[row]))
        left -= rows[best]
        taken.append(tuple(values[i] for values, i in zip(lists, best, strict=True)))
    return taken


def _met(row: Combination) -> set[frozenset[tuple[int, int]]]:
    """The pairs that a combination has."""
    return {frozenset(pair) for pair in combinations(enumerate(row), 2)}


def in_turn(each: Iterable[Any], others: Iterable[Any], count: int) -> list[Combination]:
    """Each of the first with `count` of the others, which take turns: neighbours have different ones."""
    ring = list(others)
    return [(one, ring[(i * count + j) % len(ring)]) for i, one in enumerate(each) for j in range(count)]
