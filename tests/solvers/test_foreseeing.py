"""What a probe foresees: the passes that block Lanczos then takes, and a reason that says what the numbers say."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.solvers.cost import vector_bytes


def groups(m: int, n: int, density: float) -> sparse.csr_array:
    """Counts of rows in ten groups."""
    rng = np.random.default_rng(0)
    P = rng.gamma(0.3, 1, (10, n))
    of, rows = rng.integers(0, 10, m), rng.integers(0, m, int(density * m * n))
    columns = np.empty(len(rows), np.intp)
    for group in range(10):
        chosen = np.flatnonzero(of[rows] == group)
        columns[chosen] = rng.choice(n, len(chosen), p=P[group] / P[group].sum())
    return sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(m, n))


def decaying(m: int, n: int) -> np.ndarray:
    """Noise whose columns differ."""
    return np.random.default_rng(0).standard_normal((m, n)) * np.geomspace(1, 0.01, n)


MAKERS = {
    "groups": (lambda: groups(10_000, 1000, 0.03), 30),
    "wide groups": (lambda: groups(2500, 6000, 0.02), 20),
    "noise": (lambda: sparse.random_array((10_000, 5000), density=0.004, format="csr", rng=0), 10),
    "decaying": (lambda: decaying(3000, 400), 15),
}


@cache
def made(name: str) -> tuple[Any, int]:
    make, k = MAKERS[name]
    return make(), k


@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
def test_passes_are_foreseen_within_30_percent(name: str) -> None:
    X, k = made(name)
    foreseen = ss.estimate(X, k, "lanczos", probe=True)
    took = ss.svd(X, k, shift="mean", solver="lanczos", rng=1).info.n_passes
    assert abs(foreseen.n_passes - took) <= 0.3 * took, (foreseen.n_passes, took)
    least, most = foreseen.passes_range
    assert least <= foreseen.n_passes <= most


def test_the_reason_says_what_the_numbers_say() -> None:
    X, k = made("groups")
    foreseen = ss.estimate(X, k, probe=True)
    kind = type(foreseen.solver).__name__
    assert f"{kind} {foreseen.seconds:.2g} s" in foreseen.solver.reason
    assert foreseen.seconds is not None
    assert foreseen.seconds_per_pass is not None
    assert foreseen.seconds >= 0.5 * foreseen.seconds_per_pass
    assert ss.estimate(X, k).seconds is None


def test_what_has_no_rows_to_take_is_foreseen_by_the_model(tmp_path) -> None:
    X, k = made("decaying")
    np.save(tmp_path / "X.npy", X)
    A, _ = ss.io.open_matrix(tmp_path / "X.npy", stream=True)
    for given, count in ((ss.centered(X), k), (A, k), (X, 0.5)):
        probed, plain = (ss.estimate(given, count, "lanczos", probe=probe) for probe in (True, False))
        assert probed.n_passes == plain.n_passes
        assert probed.seconds is not None
    assert ss.estimate(X, k, "randomized", probe=True).seconds is not None


@pytest.mark.parametrize("shift", ["rows", "both"])
def test_all_components_of_centred_rows_take_the_memory_of_their_residual(shift: str) -> None:
    # A matrix whose rows are centred has at most n - 1 components; with all of them, the factors are merged once more.
    m, n = 1000, 12
    some, whole, more = (vector_bytes(ss.as_operator(np.ones((m, n))), k, shift, False) for k in (n - 2, n - 1, n))
    assert whole - some >= 8 * m * 2 * (n - 1)
    assert more - whole == 8 * m * 2
