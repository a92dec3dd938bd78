"""Seconds and peak memory of all filters and ten components of 2,000 x 100,000 genotypes, beside plink2's steps.

Run: python -m benchmarks.claims.cohort [SAMPLES VARIANTS]   (plink2 on the path: apt-get install plink2)
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from bed_reader import to_bed

from benchmarks.places import WORK

FOLDER = WORK / "cohort"
FILTERS = ["--mind", "0.1", "--geno", "0.05", "--hwe", "1e-6", "--maf", "0.01"]
MAKE = "from benchmarks.claims.cohort import made; made"
PRUNED = ["--indep-pairwise", "50", "5", "0.2"]


def made(samples: int, variants: int) -> Path:
    """Mosaics of 40 haplotypes of two populations, with families of three, and 2 % missing."""
    path = FOLDER / f"{samples}x{variants}"
    if path.with_suffix(".fam").exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 1.0, variants)
    G = np.zeros((samples, variants), np.int8, order="F")
    sources = rng.integers(0, 20, (2, samples)) + 20 * (np.arange(samples) % 2)
    for j in range(variants):
        own = np.clip(p[j] + rng.normal(0, 0.05, 2), 0, 1).repeat(20)
        carriers = rng.random(40) < own
        for source in sources:
            new = rng.random(samples) < 0.02
            source[new] = rng.integers(0, 20, int(new.sum())) + 20 * (np.flatnonzero(new) % 2)
            G[:, j] += carriers[source]
    for i in range(0, samples - 8, 40):  # a child of two of the same population
        parents = G[[i, i + 2]].astype(float) / 2
        G[i + 4] = (rng.random(parents.shape) < parents).sum(axis=0)
    for j in range(variants):
        G[rng.random(samples) < 0.02, j] = -127
    properties = {
        "sid": [f"rs{j}" for j in range(variants)],
        "chromosome": [str(1 + 22 * j // variants) for j in range(variants)],
        "bp_position": [1000 * (1 + j) for j in range(variants)],
    }
    to_bed(path.with_suffix(".bed"), G, properties=properties)
    return path


def measured(name: str, *commands: list[str]) -> None:
    """Print the seconds of commands after each other, those of all processors, and the peak of the largest."""
    seconds, work, peak = 0.0, 0.0, 0
    for command in commands:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"failed: {' '.join(command)}")
        seconds, work = seconds + time.perf_counter() - started, work + usage.ru_utime + usage.ru_stime
        peak = max(peak, usage.ru_maxrss)
    print(f"{name:45} {seconds:7.1f} s   of processors {work:7.1f} s   peak {peak / 1024:6.0f} MB", flush=True)


def main(samples: int, variants: int) -> None:
    """Both, step by step and all at once."""
    bed = str(FOLDER / f"{samples}x{variants}")
    # In a process of its own: what a new process reports as its peak begins with the size of the one that started it.
    subprocess.run([sys.executable, "-c", f"{MAKE}({samples}, {variants})"], check=True)
    fit = [str(Path(sys.executable).with_name("shiftsvd")), "fit", f"{bed}.bed", "-k", "10", "--no-report", "--force"]
    out = str(FOLDER / "out")
    measured("shiftsvd: no filter", [*fit, "-o", out])
    measured("shiftsvd: filters", [*fit, *FILTERS, "-o", out])
    measured("shiftsvd: filters, pruning", [*fit, *FILTERS, *PRUNED, "-o", out])
    everything = [*FILTERS, "--exclude-long-range", "hg38", "--unrelated", "0.0884", *PRUNED]
    measured("shiftsvd: all, Tracy-Widom, scan", [*fit, *everything, "--tracy-widom", "--scan", "-o", out])
    measured("shiftsvd: the same with --memory 500M", [*fit, *everything, "--memory", "500M", "-o", out])
    print(json.loads((FOLDER / "out" / "result.json").read_text())["removed"])
    if shutil.which("plink2") is None:
        return
    plink, theirs = ["plink2", "--bfile", bed], str(FOLDER / "theirs")
    related = [*plink, *FILTERS, "--king-cutoff", "0.0884", "--out", theirs]
    kept = ["--keep", f"{theirs}.king.cutoff.in.id"]
    pruned = [*plink, *FILTERS, *kept, *PRUNED, "--out", theirs]
    components = [*plink, *kept, "--extract", f"{theirs}.prune.in", "--pca", "10", "allele-wts", "--out", theirs]
    for threads in ("1", "2"):
        more = ["--threads", threads]
        measured(f"plink2: filters, king-cutoff, {threads} threads", [*related, *more])
        measured(f"plink2: filters, pruning, {threads} threads", [*pruned, *more])
        measured(f"plink2: pca of what is left, {threads} threads", [*components, *more])


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:] or (2000, 100_000)))
