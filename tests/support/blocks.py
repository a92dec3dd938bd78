"""Blocks of a few rows, so that small matrices have many."""

import pytest

from shiftsvd.algebra import generic as base
from shiftsvd.backends import dense as array
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.missing import gaps
from shiftsvd.numerics import orth


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows in every loop that is cut into blocks."""
    for module in (array, gaps):
        monkeypatch.setattr(module, "BLOCK", 48)
    monkeypatch.setattr(SparseRows, "blocks", lambda self: cut(self.shape[0], 3 if self.shape[0] < 99 else 80))
    monkeypatch.setattr(orth, "ROWS", 5)
    monkeypatch.setattr(base, "QR_ENTRIES", 32)
