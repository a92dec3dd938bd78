"""Streams of graded data: errors beside their bounds in extended precision, and the cost beside sums of squares.

Columns, spectra and mixtures of them from 1 to 1e12, off-centre, weighted, cut and merged at random. The cost is that
of all batches and of the components, alternately with a stream that adds up Gram matrices, as streams once did.
Run: python -m benchmarks.claims.graded_streams [--sets 300] [--seed 0]
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import gram_matrix
from shiftsvd.kernels import threads
from shiftsvd.streaming import Stream, WholeScatter
from tests.support.graded import graded, within

# (features, rows of a batch, batches, components, share of entries that are stored)
SHAPES = (
    (20, 50_000, 4, 5, 1.0),
    (50, 250, 100, 10, 1.0),
    (200, 1_000, 20, 20, 1.0),
    (200, 10_000, 2, 20, 1.0),
    (1_000, 5_000, 2, 50, 1.0),
    (1_000, 100, 50, 50, 1.0),
    (1_000, 5_000, 2, 50, 0.05),
    (1_000, 100, 50, 50, 0.05),
)
ROUNDS = 5


@dataclass(eq=False)
class Squares(WholeScatter):
    """The sum of Gram matrices that a stream was before: a contestant."""

    def add_rows(self, C, weights, squares):
        self.S += gram_matrix(C, weights).T
        return 1

    def _make_room(self):
        self.S = linalg.blas.dsyrk(1.0, self.columns, beta=1.0, c=self.S, lower=1, overwrite_c=1)
        self.used = 0

    def components(self, k):
        self._make_room()
        n = len(self.S)
        return linalg.eigh(self.S, subset_by_index=(n - k, n - 1), check_finite=False)


def errors(sets: int, seed: int) -> None:
    """How many of so many sets are off by more than their bounds."""
    over, converged, shares = 0, 0, []
    for rng in np.random.default_rng(seed).spawn(sets):
        case = graded(rng)
        pca = case.fit()
        known = within(pca, case.exact, shares)
        over, converged = over + (not known), converged + pca.info_.converged
        if not known:
            print(f"error above its bound: {case.what}")
    print(f"{sets} sets, seed {seed}: {over} with an error above its bound; {converged} converged to 1e-4")
    print(f"largest error over its bound {max(shares):.2f}, median {np.median(shares):.1e}, of {len(shares)} values\n")


def cost() -> None:
    """Seconds of streams beside those of sums of squares."""
    print(f"seconds, the least of {ROUNDS} alternating rounds")
    print(f"{'':42}     now  squares  ratio")
    for n, size, count, k, share in SHAPES:
        rng = np.random.default_rng(0)
        parts = [
            rng.random((size, n))
            if share == 1
            else sparse.random_array((size, n), density=share, format="csr", rng=rng)
            for _ in range(count)
        ]
        times = [[_timed(_factor, parts, k), _timed(_squares, parts, k)] for _ in range(ROUNDS)]
        now, before = np.min(times, axis=0)
        kind = f"{count} batches of {size:,} x {n:,}" + (f", {share:.0%} stored" if share < 1 else "")
        print(f"{kind:42} {now:7.3f}  {before:7.3f}  {now / before:5.1f}", flush=True)


def _factor(parts, k):
    stream = Stream.empty(WholeScatter.empty(parts[0].shape[1]))
    for part in parts:
        stream.update(ss.as_operator(part))
    stream.spectrum(k)


def _squares(parts, k):
    n = parts[0].shape[1]
    scatter = Squares(np.empty((n, 512), order="F"), 0, np.zeros(n), np.zeros((n, n)), np.zeros((n, n), order="F"))
    stream = Stream.empty(scatter)
    for part in parts:
        stream.update(ss.as_operator(part))
    scatter.components(k)


def _timed(run, parts, k):
    with threads(None):
        started = time.perf_counter()
        run(parts, k)
        return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    errors(asked.sets, asked.seed)
    cost()
