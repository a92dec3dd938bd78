"""Ten components of a simulated biobank: seconds, reads, peak memory and errors, beside plink2 --pca approx and PCAone.

Run: python -m benchmarks.claims.biobank [SAMPLES VARIANTS [PANEL.npz]]   (default 3,000 x 10,000, about a minute)

Genotypes are SIMULATED: each chromosome of a sample is a mosaic of the haplotypes of its ancestry (ten ancestries, a
tenth of the samples admixed, a tenth children of two others), resampled from PANEL.npz (`haplotypes`, 0 or 1,
haplotypes x variants, and `ancestries`, one number each), or from a panel that is simulated too. The first row is a fit
of a tiny file: Python and its packages. Errors are those of the eigenvalues, relative, and of the span of the
eigenvectors, against a fit with tol=1e-8. plink2 and PCAone are run if they are on the path.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.places import WORK

FOLDER = WORK / "biobank"
ANCESTRIES, FOUNDERS, HAPLOTYPES = 10, 24, 100  # founders and haplotypes of each ancestry
BLOCK = 50  # variants between two possible switches of a mosaic
SWITCH, ADMIXED, CHILDREN = 0.1, 0.1, 0.1
DRIFT = 0.02  # F of each of two levels of a tree of ancestries
K, MEMORY = 10, "8G"
CODES = np.array([3, 2, 0], np.uint8)  # .bed codes of 0, 1 and 2 copies of the first allele


def drifted(p: Any, rng: np.random.Generator) -> Any:
    """Frequencies after drift (Balding and Nichols 1995)."""
    return np.clip(rng.beta(p * (1 - DRIFT) / DRIFT, (1 - p) * (1 - DRIFT) / DRIFT), 0.001, 0.999)


def panels(variants: int, panel: Path | None, rng: np.random.Generator) -> Any:
    """Yield, block by block, haplotypes x variants; equal numbers of each ancestry, in order."""
    given = None if panel is None else np.load(panel)
    mosaic = np.zeros(0, int)
    for lo in range(0, variants, BLOCK):
        n = min(BLOCK, variants - lo)
        if given is not None:
            start = lo % max(1, given["haplotypes"].shape[1] - n)
            order = np.argsort(given["ancestries"], kind="stable")
            yield given["haplotypes"][order, start : start + n].astype(np.uint8)
            continue
        ancestral = rng.beta(0.6, 0.6, n).clip(0.02, 0.98)
        branches = [drifted(ancestral, rng) for _ in range(3)]
        own = np.array([drifted(branches[a % 3], rng) for a in range(ANCESTRIES)])
        founders = (rng.random((ANCESTRIES, FOUNDERS, n)) < own[:, None]).astype(np.uint8)
        new = rng.integers(0, FOUNDERS, ANCESTRIES * HAPLOTYPES)
        mosaic = new if not len(mosaic) else np.where(rng.random(len(new)) < 0.3, new, mosaic)
        yield founders[np.repeat(np.arange(ANCESTRIES), HAPLOTYPES), mosaic]


def made(samples: int, variants: int, panel: Path | None = None) -> Path:
    """Write the .bed, .bim and .fam, a block of variants at a time."""
    path = FOLDER / f"{samples}x{variants}"
    if path.with_suffix(".fam").exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    ancestry = np.tile(rng.integers(0, ANCESTRIES, samples), (2, 1))
    admixed = rng.random(samples) < ADMIXED
    ancestry[1, admixed] = rng.integers(0, ANCESTRIES, int(admixed.sum()))
    n_children = int(CHILDREN * samples)
    children = np.arange(samples - n_children, samples)
    parents = rng.integers(0, samples - n_children, (2, n_children))
    own, strands = np.zeros((2, samples), int), np.zeros((2, n_children), int)
    with path.with_suffix(".bed").open("wb") as bed, path.with_suffix(".bim").open("w") as bim:
        bed.write(b"\x6c\x1b\x01")
        for block, haplotypes in enumerate(panels(variants, panel, rng)):
            each = len(haplotypes) // ANCESTRIES
            new = (rng.random(own.shape) < SWITCH) | (block == 0)
            own[new] = (ancestry * each + rng.integers(0, each, own.shape))[new]
            crossed = (rng.random(strands.shape) < SWITCH) | (block == 0)
            strands[crossed] = rng.integers(0, 2, int(crossed.sum()))
            own[:, children] = own[strands, parents]
            G = np.zeros((haplotypes.shape[1], -(-samples // 4) * 4), np.uint8)
            for j, alleles in enumerate(haplotypes.T):
                G[j, :samples] = CODES[alleles[own[0]] + alleles[own[1]]]
            packed = G.reshape(len(G), -1, 4) << np.array([0, 2, 4, 6], np.uint8)
            bed.write(np.bitwise_or.reduce(packed, axis=2).tobytes())
            first = block * BLOCK
            bim.writelines(
                f"{1 + 22 * j // variants}\trs{j}\t0\t{1000 * (j + 1)}\tA\tG\n" for j in range(first, first + len(G))
            )
    (FOLDER / f"{samples}x{variants}.pop").write_text(
        "IID\tpop\n" + "".join(f"s{i}\tA{a}\n" for i, a in enumerate(ancestry[0]))
    )
    path.with_suffix(".fam").write_text("".join(f"f{i} s{i} 0 0 0 -9\n" for i in range(samples)))
    return path


def measured(name: str, *command: str) -> None:
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    work = usage.ru_utime + usage.ru_stime
    seconds = time.perf_counter() - started
    print(f"{name:34} {seconds:8.1f} s   processors {work:8.1f} s   peak {usage.ru_maxrss / 1024:6.0f} MB", flush=True)


def errors(values: Any, vectors: Any, true_values: Any, true_vectors: Any) -> str:
    """Largest relative error of an eigenvalue, and of the sine of the angle between the spans of all components."""
    Q = np.linalg.qr(vectors)[0]
    U = np.linalg.qr(true_vectors)[0]
    sine = np.linalg.norm(U - Q @ (Q.T @ U), 2)
    return f"eigenvalues {np.max(np.abs(values / true_values - 1)):.0e}   angle of the span {sine:.0e}"


def table(path: Path, skip: int, first: int) -> Any:
    return np.loadtxt(path, skiprows=skip, usecols=range(first, first + K), dtype=np.float64, encoding="utf-8")


def main(samples: int, variants: int, panel: Path | None) -> None:
    # In processes of their own: what a new process reports as its peak begins with the size of the one that started it.
    where = None if panel is None else f"Path({str(panel)!r})"
    make = f"from benchmarks.claims.biobank import made; from pathlib import Path; made({{}}, {{}}, {where})"
    for size in ((100, 200), (samples, variants)):
        subprocess.run([sys.executable, "-c", make.format(*size)], check=True)
    path, out = FOLDER / f"{samples}x{variants}", FOLDER / "out"
    megabytes = path.with_suffix(".bed").stat().st_size / 1e6
    print(f"simulated: {samples:,} samples x {variants:,} variants, {megabytes:,.0f} MB")
    fit = [
        str(Path(sys.executable).with_name("shiftsvd")),
        "fit",
        "--force",
        "--seed",
        "0",
        "-k",
        str(K),
        "--no-report",
        "-q",
    ]
    fit += ["-o", str(out), "--components", "none", "--memory", MEMORY]
    measured("shiftsvd, a tiny file", *fit, str(FOLDER / "100x200.bed"))
    measured("shiftsvd, tol=1e-8", *fit, "--tol", "1e-8", f"{path}.bed")
    truth = np.loadtxt(f"{out}.eigenval"), table(Path(f"{out}.eigenvec"), 1, 2)
    measured("shiftsvd", *fit, f"{path}.bed")
    document = json.loads((out / "result.json").read_text())
    print(f"{'':34} {document['n_passes']} reads; {document['solver']}")
    print(f"{'':34} {errors(np.loadtxt(f'{out}.eigenval'), table(Path(f'{out}.eigenvec'), 1, 2), *truth)}")
    theirs = str(FOLDER / "theirs")
    others = {
        "plink2": (["--bfile", str(path), "--pca", str(K), "approx", "--memory", "8000", "--out", theirs], 1, "eigenv"),
        "PCAone": (["-b", str(path), "-k", str(K), "-o", theirs, "-m", "8"], 0, "eigv"),
    }
    for name, (words, skip, ending) in others.items():
        if shutil.which(name) is None:
            print(f"{name} is not installed")
            continue
        measured(name, name, *words)
        found = np.loadtxt(f"{theirs}.{ending}al" + "s" * (name == "PCAone"))
        vectors = table(Path(f"{theirs}.{ending}ec" + "s" * (name == "PCAone")), skip, 2 * skip)
        print(f"{'':34} {errors(found[:K], vectors, *truth)}")


if __name__ == "__main__":
    given = sys.argv[1:]
    size = [int(word) for word in given[:2]] or [3_000, 10_000]
    main(size[0], size[1], Path(given[2]) if len(given) > 2 else None)
