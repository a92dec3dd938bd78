"""Genotype files as the command meets them."""

from typing import Any

import numpy as np
import pytest

from tests.support.genotypes import genotypes


def others() -> Any:
    """Genotypes of seven other samples, of which a third is missing."""
    G = genotypes(7, 300, seed=4, gaps=0)
    G[np.random.default_rng(5).random(G.shape) < 0.3] = np.nan
    return G


def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files stay files, in small blocks."""
    monkeypatch.setattr("shiftsvd.io.opening.held_bytes", lambda source: 2**60)
    monkeypatch.setattr("shiftsvd.backends.files.LEAST_BLOCK", 2**12)
    monkeypatch.setattr("shiftsvd.backends.files.BLOCK", 2**12)
