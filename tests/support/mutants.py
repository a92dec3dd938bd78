"""What damages a JSON document, node by node."""

from collections.abc import Iterator
from typing import Any

import numpy as np


def nodes(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where the values of a tree of objects are."""
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from nodes(value, (*path, key))


JUNK = (None, True, -1, 10**400, 0.5, 1e308, "", "mean_", "\ud800", [], [[1]], {}, {"tensor": "mean_", "order": "C"})


def mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """A file with something wrong somewhere; the header gets its share."""
    rng = np.random.default_rng(seed)
    header = 8 + int.from_bytes(content[:8], "little")
    for turn in range(200):
        end = header if turn % 2 else len(content)
        lo, hi = sorted(int(place) for place in rng.integers(0, end, 2))
        near = min(lo + int(rng.integers(1, 9)), end)
        yield content[:lo] + bytes([int(rng.integers(256))]) + content[lo + 1 :]
        yield content[:lo] + bytes([content[lo] ^ (1 << int(rng.integers(8)))]) + content[lo + 1 :]
        yield content[:lo]
        yield content[:lo] + content[near:]
        yield content[:lo] + bytes(near - lo) + content[near:]
        yield content[:lo] + rng.bytes(4) + content[lo:]
        yield content[:lo] + content[hi:] + content[lo:hi]
