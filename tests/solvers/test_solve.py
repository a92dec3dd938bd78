"""The parts of the loop, each alone: steps, convergence, the probe, the last reading, and what crosses between them."""

from itertools import pairwise

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.numerics.bounds import Ritz, rounding_of
from shiftsvd.solvers import solve as loop
from shiftsvd.solvers.constants import MISSED_TOL
from shiftsvd.solvers.krylov import Factorization, RitzPairs
from shiftsvd.solvers.lanczos import problem_of
from shiftsvd.solvers.probe import Proof, Proven, miss_limit, prove, required_bounds
from shiftsvd.solvers.problem import Budget, Continue, Leaders, Outcome, Products, Stop
from shiftsvd.solvers.reading import Snapshot, read
from tests.support.closeness import assert_close
from tests.support.containers import Held
from tests.support.matrices import EPS, Array, with_values

N, K = 200, 5


def diagonal(d: Array, limit: int = 100) -> Products:
    """Products with diag(d), one read each."""
    return Products(lambda V: d[:, None] * V, np.dtype(d.dtype), Budget(limit), 1, 1, EPS)


def from_ritz(d: Array, places: list[int], off: float = 0.0, seed: int = 0) -> Factorization:
    """A factorization that holds eigenvectors of diag(d), turned by `off`."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(np.eye(len(d))[:, places] + off * rng.standard_normal((len(d), len(places))))[0]
    theta, w = np.linalg.eigh(V.T @ (d[:, None] * V))
    theta, V = theta[::-1].copy(), V @ w[:, ::-1]
    F = Factorization.from_ritz(V, theta, d[:, None] * V - V * theta, rng)
    F.block_width = 8
    return F


def known(F: Factorization, k: int, proven: Proven) -> Ritz:
    theta, _, E = F.ritz()
    return Ritz(theta, E, k, rounding_of(theta, EPS), proven.level_of(F), proven.limit(k))


def probed(d: Array, F: Factorization, proven: Proven, G: Products, **options) -> tuple[Ritz, list, Proof]:
    ritz = known(F, K, proven)
    needs = required_bounds(ritz, miss_limit(ritz, MISSED_TOL), proven.seen)
    return ritz, needs, prove(G, F, ritz, needs, proven, **options)


# --- steps and checks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [3, 8, 100])
def test_steps_are_as_many_as_are_asked_for_and_end_with_the_budget(limit: int) -> None:
    d, rng = np.linspace(2, 1, N), np.random.default_rng(0)
    G, F = diagonal(d, limit), Factorization.of(rng.standard_normal((N, 4)), 60, rng)
    steps = []
    for due in (2, 1, 4, 0, 3):
        theta = loop.advance(G, F, lambda theta: K, due).theta
        steps.append(G.n_steps)
        B = F.B[:, : F.size]
        assert_close(theta, np.linalg.eigvalsh(B.T @ (d[:, None] * B))[::-1], 1e-12)
    assert steps == np.minimum(np.cumsum([2, 1, 4, 0, 3]), limit).tolist()


def test_ritz_values_are_computed_once_for_each_epoch_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    d, rng = np.linspace(2, 1, N), np.random.default_rng(0)
    G, F = diagonal(d), Factorization.of(rng.standard_normal((N, 4)), 40, rng)
    made, original = [], Factorization._residual_coordinates

    def watched(F, Z):
        made.append((F.epoch, F.size))
        return original(F, Z)

    monkeypatch.setattr(Factorization, "_residual_coordinates", watched)
    seen = set()
    for due in [1] + 30 * [0, 1]:
        loop.advance(G, F, lambda theta: K, due)
        seen.add((F.epoch, F.size))
        F.ritz()
    assert F.epoch > 3  # restarts
    # One more for the border of each restart.
    assert len(made) == len(set(made)) + F.epoch - 1
    assert seen <= set(made)


def test_convergence_asks_for_steps_until_the_judge_has_an_outcome() -> None:
    asked: list[int] = []

    def advance(steps: int) -> RitzPairs:
        asked.append(steps)
        size = sum(asked)
        return RitzPairs(np.arange(size, 0, -1.0), np.eye(size), np.zeros((1, size)))

    def measure_rounding(pairs: RitzPairs) -> tuple[Ritz, Outcome | Continue]:
        ritz = Ritz(pairs.theta, pairs.E, 1, 0.0)
        return ritz, Stop.CONVERGED if len(pairs.theta) > 5 else Continue(len(pairs.theta))

    ritz, outcome = loop.converge(advance, measure_rounding, 1)
    assert (len(ritz.theta), outcome, asked) == (8, Stop.CONVERGED, [1, 1, 2, 4])


# --- the probe --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_probe_proves_that_nothing_was_missed(seed: int) -> None:
    d = np.r_[np.linspace(9, 5, K), 4.0, 3.5, np.linspace(2, 0, N - K - 2)]
    F, G, before = from_ritz(d, list(range(7)), 1e-6, seed), diagonal(d), Proven(8)
    V = F.vectors(K)
    ritz, needs, proof = probed(d, F, before, G, V=V)
    after = proof.proven
    assert before.needs_probe(needs)
    assert not after.needs_probe(needs)
    assert (after.seen, after.n_probes, after.epoch) == (16, 1, F.epoch)
    # The level bounds what is orthogonal to the basis, and the next value lies between the bounds of both sides.
    assert 2 <= after.level <= after.limit(K) <= 1.05**2 * d[K - 1]
    assert d[K] <= after.limit(K)
    # The components went along in one of the products, which is that of the vectors of before.
    assert proof.product is not None
    assert_close(proof.product.panel, d[:, None] * V, 1e-12)
    assert np.array_equal(proof.kept.theta, ritz.theta[: len(proof.kept.theta)])
    assert proof.kept.level == after.level
    # What is proven outside of the basis is void after a restart; what it says of G stays.
    assert known(F, K, after).level == after.level
    F.restart(K)
    assert known(F, K, after).level == np.inf
    assert known(F, K, after).limit == after.limit(K)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_probe_finds_a_value_that_was_missed(place: int) -> None:
    d = np.r_[np.linspace(9, 5, K), 4.0, np.linspace(2, 0, N - K - 1)]
    F, G = from_ritz(d, [j for j in range(8) if j != place]), diagonal(d)
    ritz, needs, proof = probed(d, F, Proven(8), G)
    assert proof.proven.needs_probe(needs)  # more than k eigenvalues exceed what was allowed
    assert F.ritz().theta[:K].sum() > ritz.theta[:K].sum()
    # What the probe has begun to find is found by a few steps from where it has left the basis.
    theta = loop.advance(G, F, lambda theta: K, 5).theta
    assert theta[:K] == pytest.approx(d[:K], rel=1e-6)


def test_copies_of_a_value_that_fill_the_columns_seen_ask_for_a_probe_of_their_own() -> None:
    d = np.r_[np.full(12, 3.0), 2.5, np.linspace(2, 0, N - 13)]
    F, k, G = from_ritz(d, [*range(8), 12, 13]), 9, diagonal(d)
    ritz = known(F, k, Proven(8))
    needs = required_bounds(ritz, miss_limit(ritz, MISSED_TOL), 8)
    assert needs[1:] == [(8, pytest.approx(2.75))]
    assert required_bounds(ritz, miss_limit(ritz, MISSED_TOL), 9) == needs[:1]
    proof = prove(G, F, ritz, needs, Proven(8))
    assert proof.proven.needs_probe(needs)
    theta = loop.advance(G, F, lambda theta: k, 5).theta
    assert theta[:13] == pytest.approx(d[:13], rel=1e-6)


def test_no_probe_begins_while_residuals_are_too_large_for_any_level() -> None:
    d = np.linspace(2, 1, N)
    F, G = from_ritz(d, list(range(20)), 0.3), diagonal(d)
    ritz = known(F, K, Proven(8))
    needs = [(2, float(ritz.theta[1:3].mean()))]  # at most two between the second and the third, which are not found
    assert prove(G, F, ritz, needs, Proven(8))[:2] == (Proven(8), ritz)
    assert (G.n_steps, F.epoch, F.suspended) == (0, 0, None)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_probe_ends_with_the_budget_and_says_what_it_has_proven(limit: int) -> None:
    d = np.linspace(2, 1, N)  # flat: that nothing above 1.05 sigma_k was missed takes more products
    F, G = from_ritz(d, list(range(20))), diagonal(d, limit)
    _, needs, proof = probed(d, F, Proven(8), G)
    assert G.budget.n_passes == limit
    assert proof.proven.needs_probe(needs)
    assert d[20] <= proof.proven.level < np.inf


# --- the last reading -------------------------------------------------------------------------------------------


def toy_engine(A: ss.Operator, k: int, size: int, rng: np.random.Generator) -> Snapshot:
    """Lanczos in a few lines of NumPy, without a probe, which hands over what `read` needs."""
    n, b = A.shape[1], 8
    B, block = np.zeros((n, 0)), np.linalg.qr(rng.standard_normal((n, b)))[0]
    while B.shape[1] < size:
        B, W = np.hstack([B, block]), A.gram(block)
        for _ in range(2):
            W = W - B @ (B.T @ W)
        block, C = np.linalg.qr(W)
    theta, Z = np.linalg.eigh(B.T @ A.gram(B))
    theta, Z = theta[::-1], Z[:, ::-1]
    ritz = Ritz(theta, C @ Z[-b:], k, rounding_of(theta, EPS))
    parts = (B[:, : size // 2], B[:, size // 2 :])
    return Snapshot(ritz, B @ Z[:, :k], block, parts, Proven(b), EPS, 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_components_are_read_off_what_another_engine_has_found(dtype: type) -> None:
    values = np.r_[10.0, 8, 5, 4, 3, 0.8 ** np.arange(N - 5.0)]
    A = ss.as_operator(with_values((300, N), values, dtype))
    exact = np.linalg.svd(A.matmat(np.eye(N)), compute_uv=False)
    found = toy_engine(A, K, 80, np.random.default_rng(0))
    p, budget = problem_of(ss.BlockLanczos(1e-6), A, K)
    G = Products.of(p, budget)
    G.precise = True
    reading = read(p, G, found, np.random.default_rng(1))
    known = reading.certificate
    assert reading.values_converged
    assert np.all(np.abs(reading.S - exact[:K]) <= known.value_errors * exact[:K] + 1e-14 * exact[0])
    assert_close(reading.V.T @ reading.V, np.eye(K), 1e-12)
    assert (known.missed_below, known.complete) == (None, False)  # nothing was proven of what it has missed
    assert budget.n_passes == 1


@pytest.mark.parametrize("split", [False, True])
def test_the_basis_may_come_in_panels(split: bool) -> None:
    """Double data multiplied in single precision: how V is coupled to the basis is a part of every bound."""
    A = ss.as_operator(with_values((300, N), 0.9 ** np.arange(float(N))))
    found = toy_engine(A, K, 80, np.random.default_rng(0))
    single = float(np.finfo(np.float32).eps)
    whole = found.panels if split else (np.hstack(found.panels),)
    found = Snapshot(**{**vars(found), "panels": whole, "eps": single, "extra_noise": 1e-6})
    p, budget = problem_of(ss.BlockLanczos(1e-2), A, K)
    reading = read(p, Products.of(p, budget), found, np.random.default_rng(1))
    exact = 0.9 ** np.arange(float(K))
    assert reading.values_converged
    assert np.all(np.abs(reading.S - exact) <= reading.certificate.value_errors * exact)


def test_components_of_a_file_are_computed_from_the_basis_only_if_its_rounding_allows() -> None:
    A = DiskRows(Held(with_values((300, N), 0.9 ** np.arange(float(N))), 100))
    found, exact = toy_engine(A, K, 80, np.random.default_rng(0)), 0.9 ** np.arange(float(K))
    for noise, reads in ((1e-9, 0), (1e-4, 0), (1e-1, 1), (None, 1)):
        p, budget = problem_of(ss.BlockLanczos(1e-2), A, K)
        G = Products.of(p, budget)
        G.precise = True
        reading = read(p, G, Snapshot(**{**vars(found), "basis_noise": noise}), np.random.default_rng(1))
        assert budget.n_passes == reads
        assert np.all(np.abs(reading.S - exact) <= reading.certificate.value_errors * exact + 1e-15)
        assert reads or np.all(reading.certificate.value_errors >= noise / (2 * exact**2))


# --- why runs stop ----------------------------------------------------------------------------------------------

SPECTRA = {
    "falling": (0.9 ** np.arange(float(N)), np.float64, {}),
    "steep in single": (0.3 ** np.arange(float(N)), np.float32, {}),
    "a leader": (np.r_[1e8, 0.9 ** np.arange(N - 1.0)], np.float64, {}),
    "flat, few passes": (np.linspace(1, 0.9, N), np.float64, {"max_passes": 4, "block_size": 4}),
    "down to rounding": (np.r_[np.full(3, 2.0), 0.5 ** np.arange(N - 3.0)], np.float64, {"tol": 1e-17}),
}


@pytest.mark.filterwarnings("ignore:.*(did not converge|may have been missed)")
@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("falling", {Stop.CONVERGED}),
        ("steep in single", {Stop.ROUNDED, Stop.CONVERGED}),
        ("a leader", {Leaders, Stop.CONVERGED}),
        ("flat, few passes", {Stop.SPENT}),
        ("down to rounding", {Stop.STUCK}),
    ],
)
def test_a_run_stops_for_reasons_that_have_names(name: str, outcomes: set, monkeypatch: pytest.MonkeyPatch) -> None:
    S, dtype, settings = SPECTRA[name]
    seen: list[Outcome] = []
    converge = loop.converge

    def watched(*asked) -> tuple[Ritz, Outcome]:
        ritz, outcome = converge(*asked)
        seen.append(outcome)
        return ritz, outcome

    monkeypatch.setattr(loop, "converge", watched)
    F = ss.svd(with_values((300, N), S, dtype), K, solver=ss.BlockLanczos(**settings), rng=0)
    assert {Leaders if isinstance(outcome, Leaders) else outcome for outcome in seen} == outcomes
    exact = np.linalg.svd(with_values((300, N), S, dtype).astype(float), compute_uv=False)[:K]
    assert not F.info.converged or np.all(np.abs(F.S - exact) <= 1e-4 * exact)


def test_deflation_passes_on_half_of_the_tolerance_and_of_the_probability_and_the_one_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved: list[tuple[float, float, int, int]] = []
    solve = loop.solve

    def watched(p, budget, rng):
        solved.append((p.tol, p.miss_probability, p.k, id(budget)))
        return solve(p, budget, rng)

    monkeypatch.setattr(loop, "solve", watched)
    A = ss.as_operator(with_values((300, N), np.r_[1e8, 1e4, 0.9 ** np.arange(N - 2.0)]))
    p, budget = problem_of(ss.BlockLanczos(1e-6), A, K)
    reading = loop.solve(p, budget, np.random.default_rng(0))
    assert reading.values_converged
    assert len(solved) >= 2
    for (tol, probability, k, at), (tol2, probability2, k2, at2) in pairwise(solved):
        assert (tol2, probability2, at2) == (tol / 2, probability / 2, at)
        assert k2 < k
    assert budget.max_passes == problem_of(ss.BlockLanczos(1e-6), A, K)[1].max_passes
