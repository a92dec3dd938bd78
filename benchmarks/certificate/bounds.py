"""Whether bounds bound: errors against exact values beside `value_errors`, over hundreds of hard problems and solvers.

Each seed of each family (problems.py) is solved by two settings of `BlockLanczos`, by `Gram`, and with certify=True by
`Exact`, `RandomizedSVD` and `ShiftedRandomizedSVD`; `given` certifies chosen vectors near a cluster, and `pcoa` has
negative eigenvalues.

runs       solver runs, and how many of them said that they converged
viol       components whose error is above its bound, and the runs these are in; `round` of them only because the
           values are returned in single precision, `order` of them in runs that did not converge, where an exact
           value is within the bound, but not the one of this number; `hard` is the rest
silent     runs that said that they converged, with an error above tol
err/bound  the largest; bound/err the median, over errors above the rounding of the reference and of what is returned
missed     runs with more than k exact values above `missed_below`; level: the median of missed_below / sigma_k
sine       components whose vector is further from the exact space of its cluster than `vector_errors`
Some minutes. Run: python -m benchmarks.certificate.bounds [--seeds 30] [--only "flat:7"]
"""

import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np

import shiftsvd as ss
from benchmarks.certificate.counted import Counted, counted
from benchmarks.certificate.problems import EPS, FAMILIES, Problem, dissimilarities, given, problem
from shiftsvd.estimators import pcoa
from shiftsvd.solvers.base import Factors

SINGLE = float(np.finfo(np.float32).eps)
FAILURES = (
    ValueError,
    TypeError,
    RuntimeError,
    ArithmeticError,
    IndexError,
    AssertionError,
)  # LinAlgError is the first


@dataclass
class Outcome:
    """One run of one solver."""

    label: str
    solver: str
    converged: bool = False
    errors: np.ndarray = field(default_factory=lambda: np.empty(0))
    nearest: np.ndarray = field(default_factory=lambda: np.empty(0))  # errors against the nearest exact value
    bounds: np.ndarray = field(default_factory=lambda: np.empty(0))
    slack: np.ndarray = field(default_factory=lambda: np.empty(0))  # the rounding of the reference
    rounded: bool = False  # whether values came in single precision
    tol: float = 1e-4
    columns: int = 0
    widths: str = ""
    passes: int = 0
    missed: float | None = None  # by how much a value that was not returned is above missed_below, relative
    level: float | None = None
    sines: np.ndarray = field(default_factory=lambda: np.empty(0))  # over their bounds
    raised: str = ""

    @property
    def late(self) -> np.ndarray:
        """The components that are further off than their bounds."""
        return np.flatnonzero(self.errors > self.bounds + self.slack)

    @property
    def ulp(self) -> float:
        """What values in single precision may be off by."""
        return SINGLE if self.rounded else 0.0

    @property
    def hard(self) -> np.ndarray:
        """Those of them that nothing excuses."""
        return np.setdiff1d(self.late, np.union1d(self.out_of_order, self.only_rounded))

    @property
    def only_rounded(self) -> np.ndarray:
        """Those of them that are off by the rounding of what is returned."""
        return np.flatnonzero(
            (self.errors > self.bounds + self.slack) & (self.errors <= self.bounds + self.slack + self.ulp)
        )

    @property
    def out_of_order(self) -> np.ndarray:
        """Those of them that belong to another value, in a run that does not say that it has found all."""
        allowed = self.bounds + self.slack
        other = np.flatnonzero((self.errors > allowed + self.ulp) & (self.nearest <= allowed + self.ulp))
        return other[:0] if self.converged else other

    @property
    def ratio(self) -> np.ndarray:
        """Errors over their bounds, where they are more than rounding."""
        known = self.errors > 4 * (self.slack + self.ulp)
        return np.where(known, self.errors / np.maximum(self.bounds, 1e-300), np.nan)

    @property
    def silent(self) -> bool:
        """Whether it said that it converged, and did not."""
        return self.converged and bool(np.any(self.errors > self.tol + self.slack + self.ulp))


class Given(ss.solvers.Solver):
    """Certifies the vectors it is given: as they are, or after Rayleigh and Ritz."""

    V: np.ndarray
    ritz: bool

    def factorize(self, A, k, rng):
        U, S, Wh = np.linalg.svd(A.matmat(self.V), full_matrices=False)
        if self.ritz:
            return Factors(U, S, Wh @ self.V.T, 1, k)
        AV = A.matmat(self.V)
        S = np.linalg.norm(AV, axis=0)
        order = np.argsort(-S)
        return Factors((AV / S)[:, order], S[order], self.V.T[order], 1, k)

    def expected_passes(self, A, k):
        return 1.0

    def peak_bytes(self, A, k):
        return 0


def solvers(seed: int, k: int, n: int, scaled: bool) -> Iterator[ss.solvers.Solver]:
    """Those that one problem is given to: two of block Lanczos and one of each other kind, drawn by the seed."""
    rng = np.random.default_rng([97, seed])
    for _ in range(2):
        block, basis = rng.choice([None, 4, 8, 16, 32]), rng.choice([None, 2 * k + 40])
        tol = float(rng.choice([1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10]))
        yield ss.BlockLanczos(tol, block_size=block, max_basis=basis)
    yield ss.Gram(float(rng.choice([1e-2, 1e-4, 1e-8])))
    if n <= 700:
        yield ss.Exact(certify=True)
    yield ss.RandomizedSVD(n_iter=rng.choice([1, 4, 12]).item(), certify=True)
    if not scaled:
        yield ss.ShiftedRandomizedSVD(n_iter=rng.choice([1, 4]).item(), certify=True)


def _sines(F, exact: np.ndarray, V: np.ndarray, bounds: np.ndarray, eps: float) -> np.ndarray:
    """Sine of the angle of each v to the exact space of its cluster, over its bound; 0 where nothing is claimed.

    Clusters are those of the values returned, chained by their residuals and what products of unit `eps` round, with
    all exact values between their ends.
    """
    S = F.S.astype(float)
    r = np.sqrt(2 * len(S)) * F.info.residuals * S[0] * S + 16 * eps * S[0] ** 2
    low, high = S**2 - r, S**2 + r
    ratios = np.zeros(len(S))
    for j in range(len(S)):
        if not bounds[j] < 1:
            continue
        lo, hi, before = low[j], high[j], None
        while (lo, hi) != before:
            before = lo, hi
            there = (high >= lo) & (low <= hi)
            lo, hi = low[there].min(), high[there].max()
        inside = np.flatnonzero((exact**2 >= lo) & (exact**2 <= hi))
        inside = inside if len(inside) else np.array([np.abs(exact - S[j]).argmin()])
        if inside[-1] >= V.shape[1]:
            continue  # the reference of a diagonal matrix has not so many vectors
        v, Q = F.Vh[j].conj().astype(float), V[:, inside]
        sine = np.linalg.norm(v - Q @ (Q.T @ v)) / np.linalg.norm(v)
        single = 4 * SINGLE * np.sqrt(len(v)) if F.Vh.dtype.itemsize == 4 else 0.0
        ratios[j] = max(sine - 1e-14 * np.sqrt(len(v)) - single, 0) / max(float(bounds[j]), 1e-300)
    return ratios


def _unreturned(S: np.ndarray, exact: np.ndarray) -> float:
    """The largest exact value but for as many as were returned."""
    return float(exact[len(S)]) if len(exact) > len(S) else 0.0


def judged(label: str, made: Problem, solver: ss.solvers.Solver, seed: int) -> Outcome:
    """One run, held against the exact values."""
    A: Counted = counted(made.X)
    outcome = Outcome(label, repr(solver), tol=getattr(solver, "tol", 1e-4))
    _, exact, V = made.exact
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            F = ss.svd(A, made.k, shift=made.shift, scale=made.scale, solver=solver, rng=seed)
    except FAILURES as error:
        outcome.raised = f"{type(error).__name__}: {str(error)[:80]}"
        return outcome
    S, top = F.S.astype(float), exact[: made.k]
    there = top > max(made.X.shape) * np.finfo(made.X.dtype).eps * exact[0]  # the others are reported as 0
    outcome.errors = np.where(there, np.abs(S - top) / np.where(there, top, 1), 0)
    nearest = np.abs(S[:, None] - exact).min(axis=1)
    outcome.nearest = np.where(there, nearest / np.where(there, top, 1), 0)
    outcome.bounds, outcome.slack = np.nan_to_num(F.info.value_errors, nan=0, posinf=np.inf), made.rounding[: made.k]
    outcome.converged, outcome.rounded = bool(F.info.converged), F.S.dtype == np.float32
    outcome.columns, outcome.passes, outcome.widths = A.tally.columns(), F.info.n_passes, str(A.tally)
    level = getattr(F.info, "missed_below", None)
    if level is not None and len(exact) > made.k:
        outcome.level = float(level / S[-1]) if S[-1] > 0 else None  # no ratio to a value that is reported as 0
        outcome.missed = _unreturned(S, exact) / max(float(level), 1e-300) - 1 - 1e-12
    claimed = getattr(F.info, "vector_errors", None)
    if claimed is not None:
        eps = SINGLE / 4 if A.tally.columns(True) else EPS
        outcome.sines = _sines(F, exact, V, np.asarray(claimed).reshape(-1, made.k)[0], eps)
    return outcome


def _given(seed: int) -> Iterator[Outcome]:
    A, V = given(seed)
    made = Problem(A, V.shape[1])
    for ritz in (False, True):
        solver = Given(certify=True)
        object.__setattr__(solver, "V", V)
        object.__setattr__(solver, "ritz", ritz)
        outcome = judged(f"given:{seed}", made, solver, 0)
        outcome.solver = f"Given(ritz={ritz})"
        yield outcome


def _pcoa(seed: int) -> Iterator[Outcome]:
    """The iterative way, which is for many points, on few."""
    D = dissimilarities(seed)
    rng = np.random.default_rng([96, seed])
    k, tol, n = int(rng.integers(2, 25)), float(rng.choice([1e-2, 1e-4, 1e-6, 1e-9])), len(D)
    J = np.eye(n) - 1 / n
    exact = np.linalg.eigvalsh(-J @ D**2 @ J / 2)[::-1]
    A = counted(D**2)
    outcome = Outcome(f"pcoa:{seed}", f"PCoA({k}, tol={tol:.0e})", tol=tol)
    with warnings.catch_warnings(record=True) as caught, patch.object(pcoa, "SMALL", 40):
        warnings.simplefilter("always")
        try:
            found = ss.PCoA(k, tol=tol, random_state=seed).fit(A)
        except FAILURES as error:
            outcome.raised = f"{type(error).__name__}: {str(error)[:80]}"
            yield outcome
            return
    outcome.converged, outcome.columns, outcome.passes = not caught, A.tally.columns(), found.n_passes_
    outcome.widths = str(A.tally)
    values, positive = found.eigenvalues_, exact[:k] > 1e-9 * exact[0]
    roots = np.abs(np.sqrt(np.maximum(values, 0)) - np.sqrt(np.maximum(exact[:k], 0)))
    lengths = np.sqrt(np.where(positive, exact[:k], 1))
    outcome.errors = np.where(positive, roots / lengths, np.abs(values - exact[:k]) / exact[0])
    outcome.nearest = outcome.errors
    outcome.bounds = np.asarray(found.value_errors_)
    outcome.slack = np.where(positive, 64 * EPS * np.abs(exact).max() / np.maximum(exact[:k], 1e-300), 64 * EPS)
    yield outcome


def outcomes(family: str, seed: int) -> Iterator[Outcome]:
    """All runs on one problem."""
    if family in ("given", "pcoa"):
        yield from (_given if family == "given" else _pcoa)(seed)
        return
    made = problem(family, seed)
    for solver in solvers(seed, made.k, min(made.X.shape), made.scale is not None):
        yield judged(f"{family}:{seed}", made, solver, seed)


def line(name: str, runs: list[Outcome]) -> str:
    """Totals of some runs."""
    late = [run for run in runs if len(run.late)]
    kinds = ("late", "only_rounded", "out_of_order", "hard")
    violations, rounded, order, hard = (sum(len(getattr(run, kind)) for run in runs) for kind in kinds)
    ratio = np.concatenate([run.ratio for run in runs])
    ratio = ratio[~np.isnan(ratio)]
    missed, levels = (
        [run for run in runs if run.missed is not None],
        [run.level for run in runs if run.level is not None],
    )
    sines = np.concatenate([run.sines for run in runs]) if any(len(run.sines) for run in runs) else None
    told = f"{sum(run.missed > 0 for run in missed)}/{len(missed)}" if missed else "-"
    return (
        f"{name:22} {len(runs):5} {sum(run.converged for run in runs):5} {violations:6} {len(late):5} "
        f"{rounded:6} {order:5} {hard:5} {sum(run.silent for run in runs):6} {ratio.max(initial=0):9.2g} "
        f"{1 / np.median(np.maximum(ratio, 1e-30)) if len(ratio) else np.nan:9.3g} "
        f"{sum(run.columns for run in runs):8} {sum(run.passes for run in runs):7} {told:>8} "
        f"{f'{np.median(levels):.5g}' if levels else '-':>7} "
        f"{f'{np.sum(sines > 1)} ({sines.max(initial=0):.2g})' if sines is not None else '-':>12} "
        f"{sum(bool(run.raised) for run in runs):6}"
    )


def told(run: Outcome) -> str:
    """What is wrong with a run, and how to have it again."""
    if run.raised:
        return f"{run.label:16} {run.solver}: {run.raised}"
    said = "converged" if run.converged else "not converged"
    parts = []
    if len(run.late):
        among = run.hard if len(run.hard) else run.late
        j = among[np.argmax(run.errors[among] / np.maximum(run.bounds[among], 1e-300))]
        kind = "hard" if len(run.hard) else "rounded or out of order"
        parts.append(f"{len(among)} {kind}, component {j + 1} off by {run.errors[j]:.2e}, bound {run.bounds[j]:.2e}")
    if run.silent:
        parts.append(f"silent: off by {run.errors.max() / max(run.tol, 1e-300):.2g} tol")
    if run.missed is not None and run.missed > 0:
        parts.append(f"a value {run.missed:.2e} above missed_below")
    if len(run.sines) and run.sines.max() > 1:
        parts.append(f"a sine {run.sines.max():.2g} times its bound")
    return f"{run.label:16} {run.solver}, {said}: {'; '.join(parts)}"


def wrong(run: Outcome) -> bool:
    """Whether there is something to tell."""
    worse = run.silent or (run.missed or 0) > 0 or (len(run.sines) and run.sines.max() > 1)
    return bool(run.raised or len(run.late) or worse)


HEAD = f"{'':22} {'runs':>5} {'conv':>5} {'viol':>6} {'runs':>5} {'round':>6} {'order':>5} {'hard':>5} {'silent':>6} "
HEAD += f"{'err/bound':>9} {'bound/err':>9} {'columns':>8} {'passes':>7} {'missed':>8} {'level':>7} {'sine':>12} "
HEAD += f"{'raised':>6}"


@click.command()
@click.option("--seeds", default=30, help="Problems of a family.")
@click.option("--first", default=0, help="Their first seed.")
@click.option("--families", default=",".join([*FAMILIES, "given", "pcoa"]))
@click.option("--only", default=None, help="FAMILY:SEED, one problem.")
@click.option("--lines", default=80, help="Most violations that are told, the worst first.")
@click.option("--widths", type=click.Path(path_type=Path), help="Write the widths of all products of all runs there.")
def main(seeds: int, first: int, families: str, only: str | None, lines: int, widths: Path | None) -> None:
    """The tables."""
    started = time.perf_counter()
    which = [(family, seed) for family in families.split(",") for seed in range(first, first + seeds)]
    if only:
        family, seed = only.rsplit(":", 1)
        which = [(family, int(seed))]
    by_family: dict[str, list[Outcome]] = defaultdict(list)
    print(HEAD, flush=True)
    for i, (family, seed) in enumerate(which):
        by_family[family] += outcomes(family, seed)
        if i + 1 == len(which) or which[i + 1][0] != family:
            print(line(family, by_family[family]), flush=True)
    runs = [run for each in by_family.values() for run in each]
    print(line("all", runs), "\n")
    by_solver: dict[str, list[Outcome]] = defaultdict(list)
    for run in runs:
        by_solver[run.solver.split("(")[0]].append(run)
        by_solver["tol " + f"{run.tol:.0e}"].append(run)
    print("\n".join(line(name, by_solver[name]) for name in sorted(by_solver)))
    bad = sorted(filter(wrong, runs), key=lambda run: -np.nanmax([0, *run.ratio[run.hard]]))
    print(f"\n{len(which)} problems, {len(bad)} runs with something wrong, {time.perf_counter() - started:.0f} s")
    print("\n".join(told(run) for run in (runs if only else bad[:lines])))
    if widths:
        each = (
            f"{run.label}\t{run.solver}\t{run.converged}\t{run.passes}\t{run.columns}\t{run.widths}\n" for run in runs
        )
        widths.write_text("".join(each))


if __name__ == "__main__":
    main()
