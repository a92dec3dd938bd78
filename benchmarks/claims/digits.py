"""Transformations beside the same at 50 digits: entries and singular values, errors over what is told of them.

Random small matrices: counts of 1 to 1e100, near what their margins expect and far from it, scales from 1e-295 to 1e290
where a transformation knows none, weights of 1e-12 to 1e12, fractions and zeros among them, weighted totals below 1,
empty rows and columns; dense, CSR and CSC; tolerances of 1e-4, 1e-8 and 1e-12. All ratios must be at most 1: it exits
with 1 else.

Run: python -m benchmarks.claims.digits [--seed 0] [--cases 25]
"""

import sys
import warnings

import click
import numpy as np

from tests.support.many_digits import CASES, Ratios, compare, draw


@click.command()
@click.option("--seed", default=0)
@click.option("--cases", default=25, help="matrices for each transformation")
def main(seed: int, cases: int) -> None:
    """The largest error over what is told, of each transformation."""
    warnings.simplefilter("ignore", UserWarning)  # some values do not reach so small a tolerance, and are named
    print(f"{'transformation':30} {'matrices':>8} {'columns: error / told':>22} {'values: error / told':>22}")
    worst = 0.0
    for name in CASES:
        found = [_ratios(name, seed, case) for case in range(cases)]
        columns, values = (max(ratios) for ratios in zip(*found, strict=True))
        worst = max(worst, columns, values)
        print(f"{name:30} {cases:8} {columns:22.2f} {values:22.2f}", flush=True)
    print(f"largest: {worst:.2f}")
    sys.exit(int(not worst <= 1))


def _ratios(name: str, seed: int, case: int) -> Ratios:
    """Of one random matrix."""
    rng = np.random.default_rng([seed, case])
    return compare(CASES[name], draw(rng, CASES[name]), rng)


if __name__ == "__main__":
    main()
