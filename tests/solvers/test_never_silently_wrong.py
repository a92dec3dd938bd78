"""Every singular value is within tol of the exact one, or is named in a warning: a hundred seeds of hard cases."""

import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.solvers import Solver
from tests.support.matrices import Array, with_values

TOL, K = 1e-4, 20
BLOCK = 16


def _counts(rng: np.random.Generator) -> sparse.csr_array:
    rate = rng.gamma(0.3, 0.5, 500) * rng.lognormal(0, 0.7, (6, 500))
    return sparse.csr_array(np.log1p(rng.poisson(rate[rng.integers(0, 6, 1000)])).astype(np.float32))


def _spectrum(S: Array, dtype: type = np.float64) -> Callable[[np.random.Generator], Array]:
    def made(rng: np.random.Generator) -> Array:
        return with_values((700, 500), S, dtype, int(rng.integers(2**31)))

    return made


def _copies(count: int, place: int) -> Array:
    """A falling spectrum in which one value comes `count` times, from the given place on."""
    S = 0.93 ** np.arange(100.0)
    S[place : place + count] = S[place]
    return S


def _clustered() -> Array:
    centres = np.array([10.0, 5.0, 2.0, 1.0])
    return np.concatenate([c * (1 + 1e-6 * np.arange(12)[::-1]) for c in centres] + [0.5 * 0.95 ** np.arange(40)])


def _far_off(rng: np.random.Generator) -> Array:
    X = rng.standard_normal((700, 30)) @ rng.standard_normal((30, 400)) + 0.1 * rng.standard_normal((700, 400))
    return X + 1e5 * X.std() * rng.choice([-1, 1], 400)


def _huge_row(rng: np.random.Generator) -> sparse.csr_array:
    X = sparse.random_array((700, 500), density=0.02, rng=rng).tolil()
    X[7] = 50 * rng.random(500)
    return sparse.csr_array(X)


def _empty_lines(rng: np.random.Generator) -> sparse.csr_array:
    X = sparse.random_array((700, 500), density=0.05, rng=rng).tolil()
    X[100:200] = 0
    X[:, 50:90] = 0
    return sparse.csr_array(X)


CASES: dict[str, Callable[[np.random.Generator], Array | sparse.csr_array]] = {
    "counts": _counts,
    "flat": _spectrum(np.arange(1, 501.0) ** -0.1),
    "clustered": _spectrum(_clustered()),
    "b + 4 copies of the largest": _spectrum(_copies(BLOCK + 4, 0)),
    "20 copies inside": _spectrum(_copies(20, 5)),
    "20 copies across k": _spectrum(_copies(20, 12)),
    "rank deficient": _spectrum(0.8 ** np.arange(12.0)),
    "mean/sd 1e5": _far_off,
    "one huge row": _huge_row,
    "sigma_1/sigma_k 1e4 in single": _spectrum(1e-4 ** (np.arange(60) / (K - 1)), np.float32),
    "empty rows and columns": _empty_lines,
}


@lru_cache(1)
def _known(case: str, seed: int) -> tuple[Array | sparse.csr_array, str | None, Array]:
    """Data, how they are shifted, and the leading values then, by LAPACK."""
    X = CASES[case](np.random.default_rng(seed))
    dense = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
    shift = None if case in ("clustered", "rank deficient") or "copies" in case or "sigma" in case else "mean"
    return X, shift, np.linalg.svd(dense if shift is None else dense - dense.mean(axis=0), compute_uv=False)[:K]


def _judge(case: str, solver: Solver, seed: int) -> tuple[bool, bool]:
    """(whether every value is right or named, whether anything was named)."""
    X, shift, exact = _known(case, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F = ss.svd(X, K, shift=shift, solver=solver, rng=seed)
    floor = max(X.shape) * np.finfo(X.dtype).eps * exact[0]  # what is reported as zero rank
    wrong = np.abs(F.S - exact) > np.maximum((TOL + 1e-6) * exact, floor)
    named = np.zeros(K, bool) if F.info.converged else ~(F.info.value_errors <= TOL)
    assert bool(caught) == (not F.info.converged)
    return not np.any(wrong & ~named), bool(named.any())


SOLVERS = {
    "blocks of 16": ss.BlockLanczos(TOL, block_size=BLOCK),
    "blocks of 8, many restarts": ss.BlockLanczos(TOL, block_size=8, max_basis=2 * K + 40),
    "gram": ss.Gram(TOL),
}


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(1), marks=pytest.mark.slow), pytest.param(range(1, 100), marks=pytest.mark.long)]
)
@pytest.mark.parametrize("case", CASES)
def test_no_value_is_silently_wrong(case: str, seeds: range) -> None:
    outcomes = [_judge(case, solver, seed) for seed in seeds for solver in SOLVERS.values()]
    assert all(right for right, _ in outcomes)
    # Warnings are for what cannot be had: none of these is.
    assert sum(named for _, named in outcomes) == 0


def _hidden_copies(n: int, gap: float) -> tuple[sparse.csr_array, Array]:
    """Twenty copies at the edge of the wanted values, right above a flat rest: a probe of two sweeps misses them."""
    S = np.concatenate([np.linspace(3, 1.2, 30), np.ones(20), (1 - gap) * np.arange(1, n - 49.0) ** -0.05])
    return sparse.csr_array(sparse.diags_array(S)), S


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "seeds"),
    [pytest.param(5_000, range(2), marks=pytest.mark.slow), pytest.param(20_000, range(40), marks=pytest.mark.long)],
)
@pytest.mark.parametrize("gap", [0.03, 0.1, 0.3])
def test_more_copies_of_a_value_than_a_block_has_columns_are_all_found(n: int, gap: float, seeds: range) -> None:
    X, S = _hidden_copies(n, gap)
    for seed in seeds:
        F = ss.BlockLanczos(TOL, block_size=BLOCK)(ss.as_operator(X), 50, seed)
        assert F.info.converged
        assert np.max(np.abs(F.S - S[:50]) / S[:50]) <= TOL
