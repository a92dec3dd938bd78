"""Means, deviations and singular values of weighted data beside exact fractions, in every container.

Columns are constant, unix times, counts, or full but for a few rows; weights reach from 1e-3 to 1e12, with zeros among
them. Run: python -m benchmarks.claims.weighted_moments --cases 10000 --seed 0
"""

import argparse
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import InMemory
from shiftsvd.io import open_matrix
from shiftsvd.preparation.shifts import resolve_scale

EPS = float(np.finfo(np.float64).eps)
CONSTANT = 8 * EPS  # deviations below this part of the root mean square are those of a constant column
ROUNDED = 16 * EPS  # of the largest value, by which LAPACK rounds ours and the reference
Array = Any


class Found(NamedTuple):
    """What a fit says."""

    mean: Array | None
    scale: Array | None
    S: Array
    told: Array | None  # relative bounds of the errors of S, where all digits are not computed


@dataclass(frozen=True)
class Case:
    """A matrix with weights of its rows; NaN is missing."""

    X: Array
    weights: Array | None

    @cached_property
    def exact(self) -> tuple[Array, Array, Array]:
        """(means, deviations, rows about the means over the deviations times roots of weights), rounded once."""
        m, n = self.X.shape
        w = [Fraction(1)] * m if self.weights is None else list(map(Fraction, self.weights.tolist()))
        mean, deviation, E = np.zeros(n), np.zeros(n), np.zeros((m, n))
        for j, column in enumerate(self.X.T.astype(np.float64).tolist()):
            there = [(i, Fraction(x)) for i, x in enumerate(column) if x == x]
            count = sum(w[i] for i, _ in there)
            mu = sum(w[i] * x for i, x in there) / count
            variance = sum(w[i] * (x - mu) ** 2 for i, x in there) / count
            mean[j], deviation[j] = float(mu), math.sqrt(variance)
            if variance <= Fraction(CONSTANT) ** 2 * (mu * mu + variance):
                deviation[j] = 0.0
            for i, x in there:
                E[i, j] = math.sqrt(w[i]) * float(x - mu) / (deviation[j] or 1.0)
        return mean, deviation, E

    @property
    def size(self) -> Array:
        """Root mean squares of the columns."""
        mean, deviation, _ = self.exact
        return np.hypot(mean, deviation)


# --- cases ------------------------------------------------------------------------------------------------------------


def column(rng: np.random.Generator, m: int) -> Array:
    """A column of m entries, zeros being what a sparse matrix does not store."""
    x = rng.choice([3.7, 0.1, 1e8 / 3, -2.5e-7, 1.0]) * np.ones(m)
    kind = rng.choice(["constant", "times", "counts", "off centre", "normal", "sparse"])
    if kind == "times":
        x = 1.7e9 + np.round(rng.standard_normal(m) * 10 ** rng.uniform(-3, 6), 3)
    elif kind == "counts":
        x = rng.poisson(rng.uniform(0.2, 4), m).astype(float)
    elif kind == "off centre":
        x = 10 ** rng.uniform(0, 8) + rng.standard_normal(m)
    elif kind == "normal":
        x = rng.standard_normal(m) * 10 ** rng.uniform(-6, 6)
    elif kind == "sparse":
        x = rng.standard_normal(m) * (rng.random(m) < 0.2)
    if rng.random() < 0.35:
        x[rng.random(m) < rng.choice([0.02, 0.1, 0.5])] = 0  # a few rows lack it
    return x


def row_weights(rng: np.random.Generator, m: int) -> Array | None:
    """None, or weights of rows, whose sum exceeds 1."""
    kind = rng.choice(
        ["none", "uniform", "wide", "heavy", "frequencies", "zeros"], p=[0.1, 0.25, 0.25, 0.15, 0.1, 0.15]
    )
    if kind == "none":
        return None
    w = rng.uniform(0.01, 2, m)
    if kind == "wide":
        w = 10 ** rng.uniform(-3, 12, m)
    elif kind == "heavy":
        w *= 10 ** rng.uniform(0, 12)
    elif kind == "frequencies":
        w = rng.integers(0, 9, m).astype(float)
    elif kind == "zeros":
        w[rng.random(m) < 0.5] = 0
    w[rng.integers(m)] += 2
    return w


def case(rng: np.random.Generator) -> Case:
    """A random case."""
    m, n = int(rng.integers(4, 60)), int(rng.integers(2, 7))
    X = np.stack([column(rng, m) for _ in range(n)], axis=1)
    w = row_weights(rng, m)
    if w is not None and rng.random() < 0.3:
        X[np.argsort(w)[: int(rng.integers(1, 3))], rng.integers(n)] = 0  # the lightest rows lack it
    if rng.random() < 0.1:
        X = X.astype(np.float32)
    return Case(X, w)


def with_gaps(rng: np.random.Generator, given: Case) -> Case:
    """The same with missing entries; the heaviest row may be among them, and every column keeps one with a weight."""
    X = given.X.copy()
    gaps = rng.random(X.shape) < rng.choice([0.05, 0.3, 0.8])
    weighed = np.ones(len(X)) if given.weights is None else given.weights
    some = rng.choice(np.flatnonzero(weighed > 0), X.shape[1])
    gaps[some, np.arange(X.shape[1])] = False
    X[gaps] = np.nan
    return Case(X, given.weights)


# --- ways -------------------------------------------------------------------------------------------------------------


def fitted(X: Array, given: Case, **settings: Any) -> Found:
    """PCA of X, as it is, with deviations as scales."""
    k = min(2, *given.X.shape)
    solver = ("auto", "lanczos")[given.X.shape[0] % 2]
    pca = ss.PCA(k, scale="std", solver=solver, random_state=0, **settings).fit(X, sample_weight=given.weights)
    return Found(pca.mean_, pca.scale_, pca.singular_values_, pca.info_.value_errors)


def of_files(given: Case, folder: Path) -> Found:
    """A fit of several files, one below another, each read again for every product."""
    paths = []
    for i, rows in enumerate(thirds(given)):
        paths.append(str(folder / f"{i}.npy"))
        np.save(paths[-1], given.X[rows])
    return fitted(open_matrix(paths, stack="rows", stream=True)[0], given)


class Blocks(InMemory):
    """A CSR that is read in three blocks, as one in a file is."""

    def edges(self, n_bytes: int) -> list[int]:
        """Where the blocks begin and end."""
        return np.unique(np.linspace(0, self.shape[0], 4).astype(int)).tolist()


def thirds(given: Case) -> list[slice]:
    """The rows in three parts."""
    cuts = np.unique(np.linspace(0, len(given.X), 4).astype(int))
    return [slice(lo, hi) for lo, hi in pairwise(cuts)]


def of_dask(given: Case, make: Callable[[Array], Any]) -> Found:
    """A fit of a Dask array in chunks of a few rows."""
    X = da.from_array(given.X, chunks=(max(1, len(given.X) // 3), -1))
    return fitted(X if make is np.asarray else X.map_blocks(make), given)


def of_stream(given: Case) -> Found:
    """Batches of rows, one after another: their means, for a stream learns no scale."""
    pca = ss.PCA(min(2, *given.X.shape), random_state=0)
    w = np.ones(len(given.X)) if given.weights is None else given.weights
    for rows in thirds(given):
        pca.partial_fit(sparse.csr_array(given.X[rows]), sample_weight=w[rows])
    scale = resolve_scale("std", given.X.shape[1], pca._stream.moments)
    return Found(pca.mean_, scale, np.zeros(0), None)


def of_cross(given: Case) -> Found:
    """Cross products of the first column and the others."""
    X, Y = sparse.csr_array(given.X[:, :1]), sparse.csc_array(given.X[:, 1:])
    F = ss.svd(ss.cross(X, Y, shift="mean", scale="std", sample_weight=given.weights), 1, rng=0)
    return Found(None, None, F.S, F.info.value_errors)


WAYS: dict[str, tuple[float, Callable[[Case, Path], Found]]] = {
    "CSR": (0.24, lambda given, _: fitted(sparse.csr_array(given.X), given)),
    "CSC": (0.17, lambda given, _: fitted(sparse.csc_array(given.X), given)),
    "dense": (0.15, lambda given, _: fitted(given.X, given)),
    "files": (0.04, of_files),
    "blocks of CSR": (0.08, lambda given, _: fitted(DiskRows(Blocks(sparse.csr_array(given.X))), given)),
    "Dask, dense": (0.02, lambda given, _: of_dask(given, np.asarray)),
    "Dask, CSR": (0.02, lambda given, _: of_dask(given, sparse.csr_array)),
    "stream": (0.06, lambda given, _: of_stream(given)),
    "cross": (0.08, lambda given, _: of_cross(given)),
    "missing, dense": (0.07, lambda given, _: fitted(given.X, given, missing="mean")),
    "missing, CSR": (0.07, lambda given, _: fitted(sparse.csr_array(given.X), given, missing="mean")),
}


# --- errors -----------------------------------------------------------------------------------------------------------


class Errors(NamedTuple):
    """Largest errors of one case: of means and deviations in units of eps times the root mean square of the column."""

    mean: float
    deviation: float
    relative: float  # of deviations of columns that are not far from the origin
    constants: int  # columns that are constant and are not scaled by 1, or the other way round
    value: float  # of singular values, over their bounds


def errors(given: Case, found: Found, way: str) -> Errors:
    """What is found beside what is exact."""
    mean, deviation, E = given.exact
    size = given.size
    of_mean = of_deviation = relative = 0.0
    constants = 0
    if found.mean is not None:
        of_mean = largest(found.mean - mean, EPS * size)
    if found.scale is not None:
        constant = deviation == 0
        constants = int(np.count_nonzero((found.scale == 1) != constant) if not np.any(deviation == 1) else 0)
        off = np.where(constant, 0, found.scale - deviation)
        of_deviation = largest(off, EPS * (size + deviation))
        relative = largest(np.where(deviation > 0.01 * size, off, 0), deviation)
    if not len(found.S):
        return Errors(of_mean, of_deviation, relative, constants, 0.0)
    M = E[:, :1].T @ E[:, 1:] if way == "cross" else E
    S = np.linalg.svd(M, compute_uv=False)
    norm = np.linalg.norm(E[:, 0]) * np.linalg.norm(E[:, 1:]) if way == "cross" else np.linalg.norm(E)
    S = S[: len(found.S)]
    # A mean is a double: what it lacks is a matrix of rank one, which is orthogonal to the others unless entries are
    # missing, so that it adds to squares. A cross product sees it once in each factor. A value of 0 says that it is
    # below the rounding of what was subtracted.
    weight = math.sqrt(len(E) if given.weights is None else given.weights.sum())
    shift = weight * np.linalg.norm(size / np.where(deviation > 0, deviation, 1))
    between = EPS * weight * np.linalg.norm(np.where(deviation > 0, size / np.where(deviation > 0, deviation, 1), 0))
    if way == "cross":
        between *= max(np.linalg.norm(E[:, 0]), np.linalg.norm(E[:, 1:]))
    first_order = way == "cross" or way.startswith("missing")
    rounded = between if first_order else between * between / np.maximum(found.S + S, between)
    bound = (0 if found.told is None else found.told * found.S) + ROUNDED * norm + rounded
    bound = bound + np.where(found.S == 0, 4 * EPS * shift, 0)
    return Errors(of_mean, of_deviation, relative, constants, largest(found.S - S, bound))


def largest(off: Array, unit: Array) -> float:
    """The largest of errors in these units; infinite where something errs that must not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nan_to_num(np.abs(off) / unit, nan=np.inf if np.isnan(off).any() else 0.0).max(initial=0.0))


def measured(cases: int, seed: int) -> dict[str, list[Errors]]:
    """The errors of so many random cases, by the way they were fitted."""
    rng = np.random.default_rng(seed)
    ways, shares = list(WAYS), np.array([share for share, _ in WAYS.values()])
    table: dict[str, list[Errors]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(cases):
            way = str(rng.choice(ways, p=shares / shares.sum()))
            given = case(rng)
            if way.startswith("missing"):
                given = with_gaps(rng, given)
            try:
                found = WAYS[way][1](given, Path(folder))
            except Exception as error:
                raise RuntimeError(f"case {number} of seed {seed}, {way}") from error
            table[way].append(errors(given, found, way))
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    table = measured(asked.cases, asked.seed)
    print("| | cases | mean, eps | deviation, eps | deviation, relative | constants missed | S over its bound |")
    print("|---|---|---|---|---|---|---|")
    for way, found in [*table.items(), ("all", list(chain.from_iterable(table.values())))]:
        if found:
            mean, deviation, relative, constants, value = zip(*found, strict=True)
            cells = (
                f"{max(mean):.2g} | {max(deviation):.2g} | {max(relative):.1e} | {sum(constants)} | {max(value):.2g}"
            )
            print(f"| {way} | {len(found)} | {cells} |")


if __name__ == "__main__":
    main()
