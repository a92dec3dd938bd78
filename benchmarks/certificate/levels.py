"""`missed_below`: how often a value above it was missed after all, and how low it comes for how many sweeps.

First table: small matrices with k leading values over a flat bulk. A first fit, of the bulk alone, reports a level;
then a value just above it is planted (place 1), or one between the bulk (0) and it.
Another fit (other seed) must return it, or report a level above it. Fits start from the exact leading vectors, so that
nothing but the fresh block can find the value (`warm`), or cold. A miss is a value that was not returned and is above
the `missed_below` of that fit: at most a share p of them may be.

Second table: levels on data by `missed_tol`, at the default probability of 1e-9.

About three minutes. Run: python -m benchmarks.certificate.levels [--runs 5000] [--sets pbmc10k,bladder,counts,noise]
"""

import time
import warnings
from dataclasses import fields

import click
import numpy as np
from scipy import sparse

import shiftsvd as ss
from benchmarks.certificate import sets
from benchmarks.certificate.counted import counted
from benchmarks.certificate.sets import K

COMPONENTS, BLOCK = 3, 4
SETTINGS = {each.name for each in fields(ss.BlockLanczos)}
WITHOUT = "this version has no missed_below: nothing to measure"


def fit(S: np.ndarray, warm: bool, p: float, missed_tol: float, seed: int) -> ss.SVDResult:
    """k components of the diagonal matrix of S, whose leading values are its first."""
    start = np.eye(len(S), COMPONENTS) if warm else None
    solver = ss.BlockLanczos(1e-4, block_size=BLOCK, start=start, missed_tol=missed_tol, miss_probability=p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solver(ss.as_operator(sparse.csr_array(sparse.diags_array(S))), COMPONENTS, seed)


def planted(warm: bool, p: float, missed_tol: float, place: float, seed: int) -> tuple[bool, bool, float]:
    """(whether the value is missed, whether it is returned, the level of the first fit by that of the bulk)."""
    rng = np.random.default_rng([seed, round(1 / p), warm])
    n, edge = int(rng.integers(100, 200)), rng.uniform(0.8, 1)
    top = edge * rng.uniform(1.1, 2) * np.linspace(1.5, 1, COMPONENTS)
    S = np.concatenate([top, edge * np.linspace(1, rng.choice([1, 0.99, 0.9]), n)])
    level = fit(S, warm, p, missed_tol, int(rng.integers(2**31))).info.missed_below
    value = edge + place * (level - edge)
    F = fit(np.append(S, value), warm, p, missed_tol, int(rng.integers(2**31)))
    returned = bool(np.min(np.abs(F.S - value)) <= 1e-3 * value)
    return not returned and value > F.info.missed_below * (1 + 1e-12), returned, level / edge


def rates(runs: int, missed_tol: float) -> None:
    """The first table."""
    print(f"{'p':>5} {'start':5} {'place':>7} {'runs':>6} {'missed':>6} {'rate':>8} {'returned':>8} {'level/bulk':>10} "
          f"{'seconds':>7}")  # fmt: skip
    for p in (0.1, 0.01):
        for warm, place, count in (
            (True, 1.0001, runs),
            (True, 0.7, runs),
            (True, 0.4, runs),
            (False, 1.0001, runs // 5),
        ):
            started = time.perf_counter()
            found = [planted(warm, p, missed_tol, place, seed) for seed in range(count)]
            missed, returned, level = (np.array(each) for each in zip(*found, strict=True))
            print(
                f"{p:5} {'warm' if warm else 'cold':5} {place:7} {count:6} {missed.sum():6} {missed.mean():8.5f} "
                f"{returned.mean():8.3f} {np.median(level):10.4f} {time.perf_counter() - started:7.0f}",
                flush=True,
            )


def reached(name: str, tol: float, missed_tols: list[float]) -> None:
    """The lines of one set in the second table."""
    X, exact = sets.load(name), sets.exact(name)
    for each in [None, *missed_tols]:
        settings = {} if each is None else {"missed_tol": each}
        if not settings.keys() <= SETTINGS:
            continue
        A, started = counted(X), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            F = ss.svd(A, K, shift="mean", solver=ss.BlockLanczos(tol=tol, **settings), rng=0)
        level = getattr(F.info, "missed_below", None)
        print(
            f"{name:8} {tol:6.0e} {'default' if each is None else each!s:>10} {F.info.n_passes:6} "
            f"{A.tally.columns(True):7} {A.tally.columns(False):7} {time.perf_counter() - started:8.3f} "
            f"{'-' if level is None else f'{level / F.S[-1]:.4f}':>10} {exact[K] / exact[K - 1]:10.4f} "
            f"{F.info.converged!s:>5}  {A.tally}",
            flush=True,
        )


@click.command()
@click.option("--runs", default=5_000)
@click.option("--missed-tol", default=0.05, help="Of the first table.")
@click.option("--sets", "names", default="pbmc10k,bladder,counts,noise")
@click.option("--tol", default=1e-4)
@click.option("--missed-tols", default=".3,.1,.05,.01")
def main(runs: int, missed_tol: float, names: str, tol: float, missed_tols: str) -> None:
    """Both tables."""
    if "miss_probability" not in SETTINGS:
        print(WITHOUT)
    elif runs:
        rates(runs, missed_tol)
    print(f"\n{'set':8} {'tol':>6} {'missed_tol':>10} {'passes':>6} {'single':>7} {'double':>7} {'seconds':>8} "
          f"{'missed/s_k':>10} {'next/s_k':>10} {'conv':>5}  widths")  # fmt: skip
    for name in filter(None, names.split(",")):
        reached(name, tol, [float(each) for each in missed_tols.split(",")])


if __name__ == "__main__":
    main()
