"""Genotypes with linkage, relatives, gaps and families, as files of PLINK."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

bed_reader = pytest.importorskip("bed_reader")


def linked(samples: int, variants: int, seed: int = 0, gaps: float = 0.02, switch: float = 0.05) -> Any:
    """Genotypes of mosaics of twelve haplotypes, so that variants near each other are alike."""
    rng = np.random.default_rng(seed)
    haplotypes = rng.random((12, variants)) < rng.uniform(0.02, 0.98, variants)
    G = np.zeros((samples, variants))
    for _ in range(2):
        source = rng.integers(0, 12, samples)
        for j in range(variants):
            source = np.where(rng.random(samples) < switch, rng.integers(0, 12, samples), source)
            G[:, j] += haplotypes[source, j]
    G[rng.random(G.shape) < gaps] = np.nan
    return G


def write(path: Path, G: Any, founders: float = 1.0, chromosomes: int = 3, **properties: Any) -> Path:
    """A .bed of these genotypes on some chromosomes, of whose samples some have a father."""
    m, n = G.shape
    rng = np.random.default_rng(m)
    father = np.where(rng.random(m) < founders, "0", "him").tolist()
    chromosome = 1 + np.arange(n) * chromosomes // n
    position = np.concatenate(
        [np.cumsum(rng.integers(1, 4000, np.count_nonzero(chromosome == c))) for c in range(1, chromosomes + 1)]
    )
    own = {
        "fid": [f"f{i // 3}" for i in range(m)],
        "iid": [f"p{i}" for i in range(m)],
        "father": father,
        "sid": [f"rs{j}" for j in range(n)],
        "chromosome": [str(c) for c in chromosome],
        "bp_position": position.tolist(),
        "allele_1": ["A"] * n,
        "allele_2": ["G"] * n,
    }
    bed_reader.to_bed(path, G, properties={**own, **properties})
    return path


def ran(program: str, *words: object) -> str:
    """What a program of others says; the test is skipped where it is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
