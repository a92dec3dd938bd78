"""Samples of cross products: few combinations in which every two values still meet, or every value is."""

import re
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

from tests.support.places import TESTS

Combination = tuple[Any, ...]
MANY = 24  # cases of a test, from which on not every value meets every other
FEW = 3  # cases of all combinations of a test that is not known to see a fault


def pairs(*axes: Iterable[Any]) -> list[Combination]:
    """Combinations of one value of each axis, such that any two values of two axes are together in one of them."""
    lists = [list(axis) for axis in axes]
    rows = covering(list(product(*(range(len(values)) for values in lists))))
    return [tuple(values[i] for values, i in zip(lists, row, strict=True)) for row in rows]


def covering(rows: list[Combination]) -> list[Combination]:
    """Few of the rows, in which every two values of two columns meet that meet in any."""
    met = {row: {frozenset(pair) for pair in combinations(enumerate(row), 2)} for row in rows}
    left: set[frozenset[tuple[int, Any]]] = set().union(*met.values())
    taken = []
    while left:  # the first of those with the most pairs that are not there yet
        best = max(met, key=lambda row: len(left & met[row]))
        left -= met[best]
        taken.append(best)
    return taken


def thinned(rows: list[Combination]) -> list[Combination]:
    """Of many rows of two columns, about those in which every value meets two of the other column, or half of them."""
    places = [{value: i for i, value in enumerate(dict.fromkeys(column))} for column in zip(*rows, strict=True)]
    shorter = min(map(len, places))
    step = max(2, shorter // 2) if len(rows) > MANY and shorter > 1 else 1
    return [row for row in rows if sum(at[value] for at, value in zip(places, row, strict=True)) % step == 0]


def fewest(rows: list[Combination]) -> list[Combination]:
    """Of many rows as many as it takes for every value of every column to be in one, and FEW: those of most pairs."""
    values = {row: set(enumerate(row)) for row in rows}
    met = {row: {frozenset(pair) for pair in combinations(enumerate(row), 2)} for row in rows}
    left: set[tuple[int, Any]] = set().union(*values.values())
    together: set[frozenset[tuple[int, Any]]] = set().union(*met.values())
    taken: list[Combination] = []
    while left or len(taken) < min(FEW, len(rows)):
        best = max(met, key=lambda row: (len(left & values[row]), len(together & met[row])))
        left -= values[best]
        together -= met.pop(best)
        taken.append(best)
    return taken


def in_turn(each: Iterable[Any], others: Iterable[Any], count: int) -> list[Combination]:
    """Each of the first with `count` of the others, which take turns: neighbours have different ones."""
    ring = list(others)
    return [(one, ring[(i * count + j) % len(ring)]) for i, one in enumerate(each) for j in range(count)]


def seeing() -> set[str]:
    """The tests that are known to see a fault, which keep all their cases."""
    return set(re.findall(r"`([^` ]+::[^` ]+)`", (TESTS / "mutations" / "results.md").read_text()))
