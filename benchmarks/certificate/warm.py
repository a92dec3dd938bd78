"""Warm starts: what they miss, silently or not, when leading components are absent from them, and what they cost.

First table: `start=` holds exact leading right vectors but 1, 2 or 5 of them, each turned by an error of 1e-7 to 1e-3:
either the others of the k that are wanted (k-c), or k of them, as where new components have come in (k). The rest of
the spectrum begins at .9 or .98 of the k-th value and falls evenly, by .3 of itself or to 0; 2 000 and 20 000 columns.
Diagonal matrices and such whose singular vectors are mixed in blocks of 8; the absent ones lead, or are in the middle,
or are the last.
silent: runs that converged with a value off by more than tol; unconv: runs that say that they did not converge.

Second table: columns, passes and seconds of cold fits and of warm ones that start from the right vectors of a fit to a
random half of the long side, and to the same data. Four minutes in all.

Run: python -m benchmarks.certificate.warm [--seeds 2] [--sets pbmc10k,bladder,counts]
"""

import itertools
import time
import warnings
from collections import defaultdict

import click
import numpy as np
from scipy import sparse

import shiftsvd as ss
from benchmarks.certificate import sets
from benchmarks.certificate.counted import counted
from benchmarks.certificate.sets import K

COMPONENTS = 10
SIZES, EDGES, ABSENT, ERRORS = (2_000, 20_000), (0.9, 0.98), (1, 2, 5), (1e-7, 1e-5, 1e-3)
LOWS = 0.7, 0.0


def mixed(n: int, rng: np.random.Generator) -> sparse.csr_array:
    """Orthogonal: random rotations of 8 columns each, which a permutation has thrown together."""
    blocks = [np.linalg.qr(rng.standard_normal((8, 8)))[0] for _ in range(n // 8)]
    Q = sparse.csr_array(sparse.block_diag(blocks, format="csr"))
    return sparse.csr_array(Q[rng.permutation(n)][:, rng.permutation(n)])


def made(n: int, edge: float, low: float, more: int, rotated: bool, rng: np.random.Generator):
    """(A, its k leading values, the right vectors of `more` besides); the rest falls from `edge` to `low` of that."""
    near = np.linspace(1, edge, more + 1)[1:]
    S = np.concatenate([np.linspace(2, 1, COMPONENTS), near, edge * np.linspace(1, low, n - COMPONENTS - more)])
    V = mixed(n, rng) if rotated else sparse.csr_array(sparse.eye_array(n))[rng.permutation(n)]
    U = mixed(n, rng) if rotated else sparse.eye_array(n)
    A = sparse.csr_array(U @ sparse.diags_array(S) @ V.T)
    return A, S[:COMPONENTS], V[:, : COMPONENTS + more].toarray()


def absent(count: int, seed: int) -> list[int]:
    """Which of the components the start lacks: the first, some in the middle, or the last."""
    places = {0: range(count), 1: range(3, 3 + count), 2: range(COMPONENTS - count, COMPONENTS)}
    return list(places[seed % 3])


def misses(seeds: int, tol: float) -> None:
    """The first table."""
    print(f"{'n':>6} {'edge':>5} {'absent':>6} {'start':>5} {'runs':>5} {'silent':>6} {'unconv':>6} {'worst/tol':>9} "
          f"{'columns':>8} {'cold':>6} {'passes':>6} {'cold':>6} {'missed/s_k':>10}  silent at errors of")  # fmt: skip
    total: dict[str, int] = defaultdict(int)
    for n, edge, count, full in itertools.product(SIZES, EDGES, ABSENT, (False, True)):
        found = [
            _run(n, edge, count, full, *each, tol)
            for each in itertools.product(ERRORS, LOWS, (False, True), range(seeds))
        ]
        silent = [run for run in found if run["silent"]]
        levels = [run["missed"] for run in found if run["missed"] is not None]
        cold = [run["cold"] for run in found if run["cold"]]
        unconverged = sum(not run["converged"] for run in found)
        print(
            f"{n:6} {edge:5} {count:6} {'k' if full else 'k-c':>5} {len(found):5} {len(silent):6} {unconverged:6} "
            f"{max(run['worst'] for run in found if run['converged']) / tol if unconverged < len(found) else 0:9.2g} "
            f"{np.median([run['columns'] for run in found]):8.0f} {np.median([each[0] for each in cold]):6.0f} "
            f"{np.median([run['passes'] for run in found]):6.0f} {np.median([each[1] for each in cold]):6.0f} "
            f"{f'{np.median(levels):.4f}' if levels else '-':>10}  "
            f"{', '.join(sorted({str(run['error']) for run in silent}))}",
            flush=True,
        )
        total["runs"] += len(found)
        total["silent"] += len(silent)
        total["unconverged"] += unconverged
    print(f"{total['runs']} runs, {total['silent']} silent, {total['unconverged']} not converged\n", flush=True)


def _run(
    n: int, edge: float, count: int, full: bool, error: float, low: float, rotated: bool, seed: int, tol: float
) -> dict:
    """One warm fit; for the least error a cold one beside it."""
    rng = np.random.default_rng([n, int(100 * edge), count, seed, rotated])
    A, S, V = made(n, edge, low, count * full, rotated, rng)
    W = np.delete(V, absent(count, round(10 * low) + rotated + seed), axis=1)
    start = W + error * rng.standard_normal(W.shape) / np.sqrt(n)
    F, tally, _ = fit(A, COMPONENTS, None, ss.BlockLanczos(tol=tol, start=start), seed)
    errors = np.abs(F.S - S) / S
    missed = getattr(F.info, "missed_below", None)
    run = {"error": error, "converged": F.info.converged, "worst": float(errors.max()), "cold": None}
    run |= {"silent": F.info.converged and errors.max() > tol, "columns": tally.columns(), "passes": F.info.n_passes}
    run["missed"] = None if missed is None else float(missed / F.S[-1])
    if error == ERRORS[0]:
        G, cold, _ = fit(A, COMPONENTS, None, ss.BlockLanczos(tol=tol), seed)
        run["cold"] = cold.columns(), G.info.n_passes
    return run


def fit(X, k: int, shift: str | None, solver: ss.BlockLanczos, seed: int):
    """(result, tally, seconds)."""
    A, started = counted(X), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = ss.svd(A, k, shift=shift, solver=solver, rng=seed)
    return F, A.tally, time.perf_counter() - started


def short_vectors(F: ss.SVDResult) -> np.ndarray:
    """The vectors on the short side, as columns in double."""
    m, n = F.shape
    return np.asarray(F.U if m < n else F.Vh.conj().T, float)


def costs(name: str, tol: float, seed: int) -> None:
    """The lines of one set in the second table."""
    X, exact = sets.load(name), sets.exact(name)[:K]
    rng = np.random.default_rng(seed)
    m, n = X.shape
    half = np.sort(rng.permutation(max(m, n))[: max(m, n) // 2])
    part = X[half] if m >= n else sparse.csr_array(X.tocsc()[:, half])
    cold = ss.BlockLanczos(tol=tol)
    of_half, of_all = (short_vectors(fit(Y, K, "mean", cold, seed + 1)[0]) for Y in (part, X))
    solvers = {"cold": cold, "of a half": ss.BlockLanczos(tol=tol, start=of_half)}
    solvers["of all"] = ss.BlockLanczos(tol=tol, start=of_all)
    solvers["random"] = ss.BlockLanczos(tol=tol, start=np.random.default_rng(7).standard_normal(of_all.shape))
    for told, solver in solvers.items():
        F, tally, seconds = fit(X, K, "mean", solver, seed)
        missed = getattr(F.info, "missed_below", None)
        print(
            f"{name:8} {tol:6.0e} {told:10} {tally.columns(True):7} {tally.columns(False):7} {F.info.n_passes:6} "
            f"{seconds:8.3f} {np.max(np.abs(F.S - exact) / exact):9.1e} {F.info.converged!s:>5} "
            f"{'-' if missed is None else f'{missed / F.S[-1]:.4f}':>10}  {tally}",
            flush=True,
        )


@click.command()
@click.option("--seeds", default=1, help="Matrices of a kind; there are 288 kinds.")
@click.option("--tol", default=1e-4)
@click.option("--sets", "names", default="pbmc10k,bladder,counts")
@click.option("--tols", default="1e-2,1e-4,1e-6")
def main(seeds: int, tol: float, names: str, tols: str) -> None:
    """Both tables."""
    if seeds:
        misses(seeds, tol)
    print(f"{'set':8} {'tol':>6} {'start':10} {'single':>7} {'double':>7} {'passes':>6} {'seconds':>8} {'error':>9} "
          f"{'conv':>5} {'missed/s_k':>10}  widths")  # fmt: skip
    for name in filter(None, names.split(",")):
        for each in tols.split(","):
            costs(name, float(each), 0)


if __name__ == "__main__":
    main()
