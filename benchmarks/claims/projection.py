"""Scores of samples that lack variants or genotypes: by method, how far they are shrunk and off, and what is stated.

``python -m benchmarks.claims.projection`` prints three tables: new samples of four populations with so many of the
variants there, or so many of their genotypes missing, beside their scores of all variants; samples that were held out,
with many more variants than samples; and samples of linked variants that lack chromosomes. With EIGENSOFT's
``smartpca`` on the path, its lsqproject stands beside.
"""

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bed_reader import to_bed

from shiftsvd.genetics import GenotypePCA, pca

K = 3
SHARES = (0.1, 0.25, 0.5, 0.75)
MISSING = (0.1, 0.3, 0.6)
DRAWS = 10
LINKED = 4400  # variants on 22 chromosomes
# Debian has the program there, and a script of the same name on the path.
SMARTPCA = shutil.which("smartpca", path="/usr/lib/eigensoft") or shutil.which("smartpca")
ALIKE = {"chromosome": "1", "allele_1": "A", "allele_2": "G"}


def genotypes(samples: int, variants: int, seed: int) -> Any:
    """Samples of four populations that drifted apart by F = 0.1 (Balding & Nichols 1995), the same for any samples."""
    shared, rng = np.random.default_rng(variants), np.random.default_rng(seed)
    ancestral = shared.uniform(0.05, 0.95, variants)
    p = np.array([shared.beta(9 * ancestral, 9 * (1 - ancestral)) for _ in range(4)])
    return rng.binomial(2, p[np.arange(samples) % 4]).astype(np.float32)


def write(path: Path, G: Any, places: Any = None, chromosome: Any = None) -> Path:
    """A .bed of these variants."""
    places = np.arange(G.shape[1]) if places is None else np.flatnonzero(places)
    own = {name: [value] * len(places) for name, value in ALIKE.items()}
    own |= {"sid": [f"rs{j}" for j in places], "bp_position": (1000 + places).tolist()}
    if chromosome is not None:
        own["chromosome"] = chromosome[places].astype(str).tolist()
    to_bed(path, G[:, places], properties=own)
    return path


def smartpca(folder: Path, reference: Any, G: Any) -> Any:
    """Eigenvectors of new samples by EIGENSOFT, which takes them in one file with the training samples."""
    write(folder / "all.bed", np.vstack([reference, G]))
    groups = [1] * len(reference) + [2] * len(G)
    (folder / "all.fam").write_text("".join(f"f{i} s{i} 0 0 1 {group}\n" for i, group in enumerate(groups)))
    (folder / "pops").write_text("Control\n")
    (folder / "par").write_text(
        "genotypename: all.bed\nsnpname: all.bim\nindivname: all.fam\nevecoutname: all.evec\nevaloutname: all.eval\n"
        f"poplistname: pops\nlsqproject: YES\nnumoutevec: {K}\nnumoutlieriter: 0\naltnormstyle: NO\nhiprec: YES\n"
        "familynames: NO\n"
    )
    subprocess.run([str(SMARTPCA), "-p", "par"], cwd=folder, check=True, capture_output=True)
    rows = [line.split()[1 : K + 1] for line in (folder / "all.evec").read_text().splitlines()[1:]]
    return np.array(rows, float)[len(reference) :]


def harms(G: Any) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    """What is done to new samples, each time with several draws: genotypes, and the variants that are there."""
    n = G.shape[1]
    draws = [np.random.default_rng([seed, 1]) for seed in range(DRAWS)]  # not the seeds of genotypes
    for share in SHARES:
        yield f"{share:.0%} of the variants", [(G, rng.random(n) < share) for rng in draws]
    for share in MISSING:
        yield (
            f"{share:.0%} of the genotypes missing",
            [(np.where(rng.random(G.shape) < share, np.nan, G), None) for rng in draws],
        )


def lacking(folder: Path, components: GenotypePCA, reference: Any, G: Any) -> None:
    """The first table."""
    print("| present | method | slope | RMSE | standard error | ratio | correlation with smartpca |")
    print("|---|---|---:|---:|---:|---:|---:|")
    whole = write(folder / "whole.bed", G)
    for name, draws in harms(G):
        files = [write(folder / f"{i}.bed", *draw) for i, draw in enumerate(draws)]
        theirs = None
        if SMARTPCA is not None:
            there = np.where(draws[0][1], G, np.nan) if draws[0][1] is not None else draws[0][0]
            theirs = smartpca(folder, reference, there)
        for method in ("mean", "lsq", "oadp"):
            found = [components.project(file, project=method) for file in files]
            print(row(name, method, components.project(whole, project=method).eigenvectors, found, theirs))


def row(name: str, method: str, want: Any, found: list[Any], theirs: Any) -> str:
    """One line of the first table."""
    scores = np.array([each.eigenvectors for each in found])
    slope = np.mean(np.sum(scores * want, axis=(0, 1)) / (len(found) * np.sum(want**2, axis=0)))
    off, stated, ratio = np.sqrt(np.mean((scores - want) ** 2)), "", ""
    if found[0].standard_errors is not None:
        errors = np.sqrt(np.mean([each.standard_errors**2 for each in found]))
        stated, ratio = f"{errors:.4f}", f"{off / errors:.2f}"
    beside = ""
    if theirs is not None:
        beside = f"{min(abs(np.corrcoef(scores[0][:, j], theirs[:, j])[0, 1]) for j in range(K)):.6f}"
    return f"| {name} | {method} | {slope:.2f} | {off:.4f} | {stated} | {ratio} | {beside} |"


def held_out(folder: Path) -> None:
    """The second table: means of populations of other samples over those of the training samples."""
    print("\n| training samples x variants | mean, lsq: PC1, PC2, PC3 | oadp: PC1, PC2, PC3 |\n|---|---:|---:|")
    for m, n in ((1000, 10_000), (200, 10_000), (100, 10_000), (100, 30_000)):
        components = pca(write(folder / "reference.bed", genotypes(m, n, 0)), K)
        others = write(folder / "others.bed", genotypes(400, n, 1))
        cells = []
        for method in ("lsq", "oadp"):
            scores = components.project(others, project=method).eigenvectors
            old, new = ([U[j::4].mean(axis=0) for j in range(4)] for U in (components.eigenvectors, scores))
            cells.append(np.sum(np.multiply(old, new), axis=0) / np.sum(np.square(old), axis=0))
        print(f"| {m:,} x {n:,} |", " | ".join(", ".join(f"{slope:.2f}" for slope in cell) for cell in cells), "|")


def mosaics(samples: int, seed: int) -> Any:
    """Samples of four populations whose haplotypes are mosaics of twelve, in pieces of 20 variants on average."""
    shared, rng = np.random.default_rng(99), np.random.default_rng(seed)
    haplotypes = shared.random((12, LINKED)) < shared.uniform(0.05, 0.95, LINKED)
    shares = shared.dirichlet(np.ones(12), 4).cumsum(axis=1)[np.arange(samples) % 4]
    G = np.zeros((samples, LINKED))
    for _ in range(2):
        source = np.zeros(samples, int)
        for j in range(LINKED):
            other = (rng.random((samples, 1)) > shares[:, :-1]).sum(axis=1)
            source = np.where((rng.random(samples) < 0.05) | (j == 0), other, source)
            G[:, j] += haplotypes[source, j]
    return G


def chromosomes(folder: Path) -> None:
    """The third table: off over stated, of samples that lack chromosomes."""
    print("\n| chromosomes present | lsq: PC1, PC2, PC3 | oadp: PC1, PC2, PC3 |\n|---|---:|---:|")
    every, own = np.ones(LINKED, bool), 1 + np.arange(LINKED) * 22 // LINKED
    components = pca(write(folder / "mosaics.bed", mosaics(300, 0), every, own), K)
    G = mosaics(150, 1)
    whole = write(folder / "others.bed", G, every, own)
    for count in (6, 11, 16):
        cells = []
        for method in ("lsq", "oadp"):
            want, off, stated = components.project(whole, project=method).eigenvectors, [], []
            for seed in range(DRAWS):
                there = np.isin(own, 1 + np.random.default_rng([seed, 1]).permutation(22)[:count])
                found = components.project(write(folder / "some.bed", G, there, own), project=method)
                off.append((found.eigenvectors - want) ** 2)
                stated.append(found.standard_errors**2)
            cells.append(np.sqrt(np.mean(off, axis=(0, 1)) / np.mean(stated, axis=(0, 1))))
        print(f"| {count} of 22 |", " | ".join(", ".join(f"{ratio:.2f}" for ratio in cell) for cell in cells), "|")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", type=int, default=10_000)
    variants = parser.parse_args().variants
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference, G = genotypes(400, variants, 0), genotypes(100, variants, 1)
        components = pca(write(folder / "reference.bed", reference), K)
        lacking(folder, components, reference, G)
        held_out(folder)
        chromosomes(folder)


if __name__ == "__main__":
    main()
