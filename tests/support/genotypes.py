"""Genotypes, their files, and their components by explicit formulae."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

bed_reader = pytest.importorskip("bed_reader")


def genotypes(samples: int, variants: int, seed: int = 0, gaps: float = 0.02) -> Any:
    """Genotypes of samples from three populations that drifted apart, with gaps (NaN)."""
    shared = np.random.default_rng(50)  # frequencies are those of the populations, whatever the samples
    ancestral = shared.uniform(0.05, 0.95, variants)
    drift = 0.1
    shape = (1 - drift) / drift
    own = np.array([shared.beta(ancestral * shape, (1 - ancestral) * shape) for _ in range(3)])
    rng = np.random.default_rng(seed)
    G = rng.binomial(2, own[np.arange(samples) % 3]).astype(np.float32)
    G[rng.random(G.shape) < gaps] = np.nan
    G[0, np.nanmin(G, axis=0) == np.nanmax(G, axis=0)] = 1  # no variant is monomorphic
    return G


def write(path: Path, G: Any, **properties: Any) -> Path:
    """A .bed of these genotypes, with the files beside it."""
    n = G.shape[1]
    own = {
        "fid": [f"family{i % 3}" for i in range(len(G))],
        "iid": [f"person{i}" for i in range(len(G))],
        "sid": [f"rs{j}" for j in range(n)],
        "chromosome": ["1"] * n,
        "bp_position": list(range(1, n + 1)),
        "allele_1": ["A"] * n,
        "allele_2": ["G"] * n,
    }
    bed_reader.to_bed(path, G, properties={**own, **properties})
    return path


def explicit(G: Any) -> tuple[Any, Any]:
    """The matrix of Patterson in double precision, without monomorphic variants, and the frequencies of all."""
    G = np.asarray(G, np.float64)
    p = np.nanmean(G, axis=0) / 2
    used = (p > 0) & (p < 1)
    Z = (G[:, used] - 2 * p[used]) / np.sqrt(2 * p[used] * (1 - p[used]))
    return np.where(np.isnan(Z), 0, Z), p


def assert_same_up_to_signs(got: Any, want: Any, bound: float) -> None:
    signs = np.sign((got * want).sum(axis=0))
    assert np.abs(got * signs - want).max() <= bound
