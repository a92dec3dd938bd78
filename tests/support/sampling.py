"""Samples of cross products: few combinations in which every two values still meet."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

Combination = tuple[Any, ...]


def pairs(*axes: Iterable[Any]) -> list[Combination]:
    """Combinations of one value of each axis, such that any two values of two axes are together in one of them."""
    lists = [list(axis) for axis in axes]
    sizes = [range(len(values)) for values in lists]
    left: set[frozenset[tuple[int, int]]] = set().union(*map(_met, product(*sizes)))
    rows = []
    for candidate in product(*sizes):  # in the order of the cross product: those that start new pairs come first
        if left & _met(candidate):
            row = _completed(candidate, sizes, left)
            left -= _met(row)
            rows.append(tuple(values[i] for values, i in zip(lists, row, strict=True)))
    return rows


def _met(row: Combination) -> set[frozenset[tuple[int, int]]]:
    """The pairs that a combination has."""
    return {frozenset(pair) for pair in combinations(enumerate(row), 2)}


def _completed(row: Combination, sizes: list[range], left: set[frozenset[tuple[int, int]]]) -> Combination:
    """The combination with its later values changed for such as have more pairs that are not there yet."""
    for axis in range(2, len(sizes)):
        row = max(((*row[:axis], i, *row[axis + 1 :]) for i in sizes[axis]), key=lambda each: len(left & _met(each)))
    return row


def in_turn(each: Iterable[Any], others: Iterable[Any], count: int) -> list[Combination]:
    """Each of the first with `count` of the others, which take turns: neighbours have different ones."""
    ring = list(others)
    return [(one, ring[(i * count + j) % len(ring)]) for i, one in enumerate(each) for j in range(count)]
