"""The probe: levels that are exceeded as rarely as is said, and a basis that keeps its relation around them."""

from collections.abc import Callable

import numpy as np
import pytest

from shiftsvd.numerics.bounds import Ritz
from shiftsvd.solvers.constants import NEAREST, PRECISION
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Chain, Proven, required_bounds
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, Array
from tests.support.probes import chain_of, just_below, longest, probe
from tests.support.sampling import pairs


def of(theta: Array, n: int, dtype: type, rng: np.random.Generator) -> Factorization:
    """A basis that knows the first unit vectors, which are eigenvectors of any diagonal matrix."""
    V = np.eye(n, len(theta), dtype=dtype)
    return Factorization.from_ritz(V, theta, np.zeros((n, len(theta)), dtype), rng)


def levels(d: Array, p: float, seed: int, columns: int = 4, sweeps: int = 6, dtype: type = float) -> list[float]:
    """The levels after each sweep over diag(d), two of whose vectors are known."""
    seen: list[float] = []

    def done(level: float, top: float) -> bool:
        seen.append(level)
        return len(seen) == sweeps

    basis = of(d[:2], len(d), dtype, np.random.default_rng(seed))
    probe(basis, lambda X: d[:, None] * X, columns, p, 1e-15 * np.abs(d).max(), done)
    return seen


def chain(G: Array, columns: int, sweeps: int, seed: int, known: int = 2) -> tuple[Array, list[tuple[Array, Array]]]:
    """R of the first block, and what each product adds, for ``P G P`` with the first unit vectors set apart."""
    basis = of(np.diag(G)[:known].real, len(G), G.dtype.type, np.random.default_rng(seed))
    R, parts = basis.begin_probe(columns), []
    for _ in range(sweeps):
        old = basis.size
        basis.reserve(min(old + 2 * basis.width, len(G)))
        basis.extend(G @ basis.block)
        parts.append((basis.H[old : basis.size, old : basis.size].copy(), basis.C))
        if basis.width == 0:
            break
    return R, parts


# --- how often a level is exceeded ----------------------------------------------------------------------------


OTHERS = [row for row in pairs([0.9, 0.0, -1.0], [0.1, 0.01], [float, complex]) if row != (0.9, 0.1, float)]
HARD = [(0.9, 0.1, float), *(pytest.param(*row, marks=pytest.mark.long) for row in OTHERS)]


@pytest.mark.parametrize(("low", "p", "dtype"), HARD)
def test_a_level_is_exceeded_no_more_often_than_is_said(dtype: type, p: float, low: float) -> None:
    """One value above a full bulk, where it is the hardest to tell: near the levels that there are without it."""
    runs, sweeps, n = 400, 4, 150
    bulk = np.linspace(low, 1, n)
    typical = np.array([levels(bulk, p, 10_000 + seed, 4, sweeps, dtype) for seed in range(20)])[:, -1]
    missed = 0
    for seed in range(runs):
        d = bulk.copy()
        d[7] = np.quantile(typical, (seed % 4 + 0.5) / 4)
        found = levels(d, p, seed, 4, sweeps, dtype)[-1]
        missed += found < d[7]
    # 4 standard deviations of a binomial number.
    assert missed <= runs * p + 4 * np.sqrt(runs * p * (1 - p))


@pytest.mark.parametrize("dtype", [float, complex])
def test_random_columns_have_less_of_a_direction_than_is_counted_on_as_rarely_as_is_said(dtype: type) -> None:
    n, columns, p = 20_000, 4, 0.2
    Omega = of(np.ones(1), n, dtype, np.random.default_rng(0))._random_normal(columns)
    short = np.linalg.norm(Omega, axis=1) < Chain(np.eye(columns, dtype=dtype), p).shortest
    assert abs(np.mean(short) - p) <= 4 * np.sqrt(p * (1 - p) / n)


def test_a_probe_looks_for_more_copies_of_a_value_that_as_many_random_columns_have_found() -> None:
    theta = np.array([3.0, 2.0, 2.0, 2.0, 1.0, 0.5])
    ritz = Ritz(theta, np.full((1, 6), 1e-9), 5, 1e-12)
    assert required_bounds(ritz, 0.6, 3) == [(5, 0.6), (4, 1.5)]
    assert required_bounds(ritz, 0.6, 4) == [(5, 0.6)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [float, complex])
def test_levels_that_may_be_wrong_once_in_a_billion_never_are(dtype: type) -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        d = rng.uniform(rng.choice([-3.0, 0.0, 0.99]), 1, rng.integers(8, 200))
        d[-1] = 1 + 10 ** rng.uniform(-6, 1)
        columns, sweeps = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        for found in levels(d, 1e-9, seed, columns, sweeps, dtype):
            assert found >= d[2:].max() - 1e-13 * np.abs(d).max()


@pytest.mark.parametrize("dtype", [float, complex])
def test_a_probe_that_shares_the_products_of_steps_bounds_what_the_basis_lacked_before(dtype: type) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, known, columns, sweeps = (int(rng.integers(*ends)) for ends in ((20, 120), (1, 6), (1, 9), (1, 6)))
        d = np.sort(rng.uniform(rng.choice([-3.0, 0.0, 0.99]), 1, n))[::-1].copy()
        d[: known + 1] += 10 ** rng.uniform(-6, 1)
        basis = with_residuals(d, known, 10 ** rng.uniform(-12, -1), dtype, rng)
        V, seen = basis.B[:, :known].copy(), []
        lacked = d[:, None] * np.eye(n) - V @ (V.conj().T * d)
        lacked = lacked - (lacked @ V) @ V.conj().T
        top, scale = np.linalg.eigvalsh((lacked + lacked.conj().T) / 2)[-1], np.abs(d).max()

        def done(level: float, below: float, seen: list[float] = seen, sweeps: int = sweeps) -> bool:
            seen.append(level)
            return len(seen) == sweeps

        probe(basis, lambda X, d=d: d[:, None] * X, columns, 1e-9, 1e-15 * scale, done, joint=True)
        assert all(level >= top - 1e-13 * scale for level in seen)
        B, H, Q = basis.B[:, : basis.size], basis.H[: basis.size, : basis.size], basis.block
        assert_close(B.conj().T @ B, np.eye(basis.size), 1e-12)
        rest = d[:, None] * B - B @ H
        assert_close(rest - Q @ (Q.conj().T @ rest), 0 * rest, 1e-11 * scale)  # the products were steps, too


def test_a_joint_block_spans_the_normal_columns_outside_of_the_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    d, rng = np.linspace(2, 1, 40), np.random.default_rng(0)
    basis, Omega = with_residuals(d, 3, 0.1, float, rng), rng.standard_normal((40, 5))
    monkeypatch.setattr(basis, "_random_normal", lambda columns: Omega[:, :columns])
    V, Q = basis.B[:, :3].copy(), basis.block.copy()
    R = basis.begin_probe(5, joint=True)
    assert_close(basis.block[:, : Q.shape[1]], Q, 0)
    assert_close(basis.block @ R, Omega - V @ (V.T @ Omega), 1e-12)


def with_residuals(d: Array, known: int, off: float, dtype: type, rng: np.random.Generator) -> Factorization:
    V = np.eye(len(d), known) + off * rng.standard_normal((len(d), known))
    V = np.linalg.qr(V if dtype is float else V + 1j * off * rng.standard_normal(V.shape))[0]
    theta, W = np.linalg.eigh(V.conj().T @ (d[:, None] * V))
    theta, V = theta[::-1].copy(), V @ W[:, ::-1]
    return Factorization.from_ritz(V, theta, d[:, None] * V - V * theta, rng)


def test_a_block_of_more_columns_and_more_sweeps_comes_closer() -> None:
    d = np.linspace(0, 1, 400)
    for seed in range(5):
        by_columns = [levels(d, 1e-9, seed, columns)[-1] for columns in (8, 16, 32)]
        assert by_columns[0] > by_columns[1] > by_columns[2] > 1
        assert levels(d, 1e-9, seed, 16, 9)[-1] <= 1.1


# --- levels ---------------------------------------------------------------------------------------------------

MATRICES: dict[str, Callable[[np.random.Generator], Array]] = {
    "bulk": lambda rng: rng.uniform(0, 1, 120),
    "indefinite": lambda rng: rng.uniform(-5, 1, 120),
    "negative": lambda rng: rng.uniform(-2, -1, 120),
    "decaying": lambda rng: 0.9 ** np.arange(120.0),
    "tiny": lambda rng: 1e-30 * rng.uniform(0, 1, 120),
    "huge": lambda rng: 1e30 * rng.uniform(0, 1, 120),
}


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("name", MATRICES)
def test_a_level_falls_with_the_probability_that_it_may_be_wrong(name: str, dtype: type) -> None:
    for seed in range(2):
        d = MATRICES[name](np.random.default_rng(seed))
        noise = 1e-15 * np.abs(d).max()
        R, parts = chain(np.diag(d).astype(dtype), 4, 5, seed)
        found = np.array([chain_of(R, parts, p).bound(noise) for p in (1e-12, 1e-9, 1e-5, 1e-2, 0.1, 0.5)])
        top = chain_of(R, parts, 0.5).top
        assert np.all(np.diff(found) <= RESOLUTION * (found[:-1] - top))
        assert found[-1] < found[0]
        assert np.all(found >= top)


# To which part of its distance from the largest Ritz value a level is sought.
RESOLUTION = 6 * PRECISION


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("name", MATRICES)
def test_a_level_falls_with_every_sweep(name: str, dtype: type) -> None:
    for seed in range(2):
        d = MATRICES[name](np.random.default_rng(seed))
        found = np.array(levels(d, 1e-9, seed, 4, 10, dtype))
        # As far as it is sought, and it is never less than a share of the spread above the largest Ritz value.
        slack = RESOLUTION * (found - d[2:].max()) + 2 * NEAREST * np.abs(d).max()
        assert np.all(found[1:] <= (found + slack)[:-1])
        assert np.all(found >= d[2:].max())
        assert found[-1] < found[1]


@pytest.mark.parametrize("dtype", [float, complex])
def test_levels_scale_with_the_matrix(dtype: type) -> None:
    d = np.random.default_rng(0).uniform(-1, 1, 100)
    once = np.array(levels(d, 1e-6, 1, 3, 5, dtype))
    for scale in (2.0**-300, 2.0**40, 2.0**300):
        assert_close(np.array(levels(scale * d, 1e-6, 1, 3, 5, dtype)) / scale, once, 1e-10)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("rank", [0, 1, 3, 11])
def test_a_chain_that_comes_to_its_end_knows_the_largest_value(rank: int, dtype: type) -> None:
    rng = np.random.default_rng(rank)
    n, columns = 60, 4
    X = np.linalg.qr(np.vstack([np.zeros((2, rank)), rng.standard_normal((n - 2, rank))]))[0].astype(dtype)
    d = np.linspace(2, 1, rank)
    G, known = (X * d) @ X.conj().T, np.zeros(2)
    basis = of(known, n, dtype, rng)
    sweeps = 0

    def product(B: Array) -> Array:
        nonlocal sweeps
        sweeps += 1
        return G @ B

    found = probe(basis, product, columns, 1e-9, 1e-15, lambda level, top: False)
    assert sweeps <= rank // columns + 3
    # What is rounding for the probe is exceeded by what its improbable first block leaves of it.
    assert found == pytest.approx(d.max(initial=0), abs=1e4 * n * EPS)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("n", [3, 5, 6, 10, 17])
def test_a_probe_of_a_space_that_is_nearly_known_ends_with_all_of_it(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    d = np.r_[5.0, 5.0, rng.uniform(-2, 2, n - 2)]
    basis = of(d[:2], n, dtype, rng)
    found = probe(basis, lambda X: d[:, None] * X, 4, 1e-9, 1e-15, lambda level, top: False)
    assert basis.size == n
    assert basis.width == 0
    assert found == pytest.approx(d[2:].max(), abs=1e3 * EPS)
    assert_close(basis.ritz()[0], np.sort(d)[::-1], 1e3 * EPS)


def test_a_probe_finds_what_was_missed() -> None:
    d = np.r_[5.0, 5.0, 4.0, np.linspace(1, 0, 97)]
    basis = of(d[:2], 100, float, np.random.default_rng(0))
    probe(basis, lambda X: d[:, None] * X, 4, 1e-9, 1e-15, lambda level, top: level < 4.4)
    assert basis.ritz()[0][2] == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("columns", [1, 2, 8])
def test_no_eigenvalue_above_a_level_is_possible_where_exclusion_is_not_monotone(columns: int, dtype: type) -> None:
    """Random chains, their quantiles just below the last maximum of ``||u^H Omega||`` above the Ritz values."""
    grid = np.geomspace(1e-4, 30, 300)
    humps = 0
    for seed in range(60 if columns == 2 else 12):
        rng = np.random.default_rng(seed)
        M = rng.standard_normal((int(rng.integers(2, 7)), 2, columns, columns)).astype(dtype)
        if dtype is complex:
            M = M + 1j * rng.standard_normal(M.shape)
        chain, hump = just_below(np.eye(columns, dtype=dtype), [((A + A.conj().T) / 2, B) for A, B in M], grid, rng)
        level = chain.bound(1e-15 * chain.spread)
        above = chain.top + grid * chain.spread
        above = np.concatenate([above[above > level], level + (level - chain.top) * np.geomspace(1e-6, 1e3, 100)])
        assert np.all(longest(chain, above) < chain.shortest)
        humps += hump
    assert humps or columns != 2 or dtype is complex  # exclusion was not monotone for some


# --- the basis around it --------------------------------------------------------------------------------------


def assert_relation(basis: Factorization, G: Array) -> None:
    """``G B = B H + Q C J^H``, with orthonormal B and Q."""
    B, Q = basis.B[:, : basis.size], basis.block
    both, size = np.hstack([B, Q]), np.linalg.norm(G)
    assert_close(both.conj().T @ both, np.eye(both.shape[1]), 1e3 * EPS)
    H = basis.H[: basis.size, : basis.size]
    assert_close(H, H.conj().T, 1e3 * EPS * size)
    assert_close(B.conj().T @ G @ B, H, 1e3 * EPS * size)
    J = np.eye(basis.size)[:, basis.size - basis.last :]
    assert basis.C.shape == (basis.width, basis.last)
    assert_close(G @ B - B @ H, Q @ basis.C @ J.T, 1e3 * EPS * size)


def hermitian(n: int, dtype: type, rng: np.random.Generator, rank: int | None = None) -> Array:
    M = rng.standard_normal((n, rank or n)).astype(dtype)
    if dtype is complex:
        M = M + 1j * rng.standard_normal(M.shape)
    return M @ M.conj().T


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("rank", [None, 9])
@pytest.mark.parametrize(("n", "first", "probing"), [(80, 6, 4), (80, 4, 9), (24, 5, 5), (21, 7, 4), (80, 6, 1)])
def test_the_lanczos_relation_holds_after_a_probe(n: int, first: int, probing: int, rank: int | None, dtype) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        G = hermitian(n, dtype, rng, rank)
        basis = Factorization.of(rng.standard_normal((n, first)).astype(dtype), n, rng)
        for sweeps in (1, 2, 3):
            if basis.width:
                basis.extend(G @ basis.block)
            assert_relation(basis, G)
            if basis.size + basis.width >= n:
                return
            left = []

            def done(level: float, top: float, left: list[float] = left, sweeps: int = sweeps) -> bool:
                left.append(level)
                return len(left) == sweeps

            probe(basis, lambda X, G=G: G @ X, probing, 1e-9, 1e-15 * np.linalg.norm(G), done)
            assert_relation(basis, G)
            theta, _, E = basis.ritz()
            B = basis.vectors(len(theta))
            size = np.linalg.norm(G)
            assert_close(np.linalg.norm(G @ B - B * theta, axis=0), np.linalg.norm(E, axis=0), 1e3 * EPS * size)
        basis.restart(min(first, basis.size))
        assert_relation(basis, G)


def test_a_level_holds_until_a_restart_removes_vectors() -> None:
    basis = of(np.array([4.0, 3.0]), 5, float, np.random.default_rng(0))
    proven = Proven(1, level=2.0, epoch=basis.epoch)
    assert proven.level_of(basis) == 2
    basis.restart(1)  # the value 3, which exceeds the level, is outside of the basis now
    assert proven.level_of(basis) == np.inf


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("grade", [1e-6, 1e-9, 1e-12, 1e-30])
def test_the_lanczos_relation_holds_where_a_block_has_more_digits_than_its_squares(grade: float, dtype: type) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        scale = np.geomspace(1, np.sqrt(grade), 60)
        G = scale[:, None] * hermitian(60, dtype, rng) * scale
        basis = Factorization.of(rng.standard_normal((60, 12)).astype(dtype), 60, rng)
        for probing in (False, True, False):
            if probing:
                basis.begin_probe(5)
            basis.reserve(60)
            basis.extend(G @ basis.block)
            if probing:
                basis.end_probe()
            assert_relation(basis, G)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("n", range(13, 25))
def test_a_block_that_waits_keeps_what_is_new_of_it_at_the_end_of_a_space(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    G = hermitian(n, dtype, rng)
    basis = Factorization.of(rng.standard_normal((n, 6)).astype(dtype), 12, rng)
    basis.extend(G @ basis.block)
    basis.begin_probe(4)
    for _ in range(n):
        if not basis.width:
            break
        basis.reserve(min(basis.size + 2 * basis.width, n))
        basis.extend(G @ basis.block)
    basis.end_probe()
    assert_relation(basis, G)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("off", [1e-2, 1e-7, 1e-12, 1e-15])
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_residuals_of_any_size_and_rank_are_told_around_given_vectors(off: float, rank: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    n, k = 60, 5
    d = np.r_[np.linspace(9, 5, k), np.linspace(2, 0, n - k)]
    V = np.eye(n, k, dtype=dtype)
    V[k:] += off * rng.standard_normal((n - k, rank)) @ rng.standard_normal((rank, k))
    V = np.linalg.qr(V)[0]
    theta, w = np.linalg.eigh(V.conj().T @ (d[:, None] * V))
    theta, V = theta[::-1], V @ w[:, ::-1]
    R = d[:, None] * V - V * theta
    basis = Factorization.from_ritz(V, theta, R, rng)
    G = np.diag(d).astype(dtype)
    assert basis.width <= k
    assert_relation(basis, G)
    E = basis.ritz()[2]
    assert_close(np.linalg.norm(R, axis=0), np.linalg.norm(E, axis=0), 1e2 * n * EPS)
    for sweeps in (1, 2):
        basis.begin_probe(3)
        for _ in range(sweeps):
            basis.reserve(min(basis.size + 2 * basis.width, n))
            basis.extend(G @ basis.block)
        basis.end_probe()
        assert_relation(basis, G)
        theta = basis.ritz()[0]
        assert_close(theta[:k], d[:k], np.linalg.norm(R) ** 2 / 3 + 1e3 * EPS)  # 3: the gap below them


def test_nothing_comes_next_where_the_given_vectors_are_exact_or_are_all() -> None:
    rng = np.random.default_rng(0)
    exact = Factorization.from_ritz(np.eye(20, 3), np.array([3.0, 2.0, 1.0]), np.zeros((20, 3)), rng)
    assert (exact.size, exact.width, exact.C.shape) == (3, 0, (0, 3))
    whole = Factorization.from_ritz(np.eye(4), np.array([4.0, 3.0, 2.0, 1.0]), 1e-16 * np.ones((4, 4)), rng)
    assert (whole.size, whole.width) == (4, 0)
    assert np.array_equal(whole.ritz()[0], [4, 3, 2, 1])
