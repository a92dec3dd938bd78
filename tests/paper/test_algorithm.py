"""Algorithm 1 of Basirat (2019): the solver follows it line by line; what it promises, and where it errs."""

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW
from tests.support.matrices import EPS, Array, in_double, values, with_values
from tests.support.operators import Minimal, panel
from tests.support.subspaces import angle


def algorithm_1(X: Array, mu: Array, k: int, K: int, q: int, Omega: Array) -> tuple[Array, Array, Array]:
    """Shifted-Randomized-SVD of X (m x n, columns are samples) as printed, on dense arrays."""
    one_n, one_K = np.ones(X.shape[1]), np.ones(K)
    X1 = X @ Omega  # line 3
    Q, R = np.linalg.qr(X1)  # line 4
    if np.any(mu != 0):  # line 5
        Q, R = np.linalg.qr(Q @ R - np.outer(mu, one_K))  # line 6
    for _ in range(q):  # line 8
        Q1, _ = np.linalg.qr(X.conj().T @ Q - np.outer(one_n, mu.conj() @ Q))  # line 9
        Q, _ = np.linalg.qr(X @ Q1 - np.outer(mu, one_n @ Q1))  # line 10
    Y = Q.conj().T @ X - np.outer(Q.conj().T @ mu, one_n)  # line 12
    U1, S, Vh = np.linalg.svd(Y, full_matrices=False)  # line 13
    return (Q @ U1)[:, :k], S[:k], Vh[:k].conj().T  # lines 14 and 15


def compare(F: ss.SVDResult, want: tuple[Array, Array, Array], bound: float) -> None:
    """Same values and, where a gap defines them, same subspaces; F has samples as its rows."""
    U, S, V = want
    assert_close(F.S, S, bound, "values")
    for j in range(1, len(S) + 1):
        gap = S[j - 1] - (S[j] if j < len(S) else 0)
        if gap > 1e3 * bound and j < len(S):
            assert angle(F.Vh[:j].conj().T, U[:, :j]) <= 3 * bound / gap
            assert angle(F.U[:, :j], V[:, :j]) <= 3 * bound / gap


SHAPES = ((20, 90), (90, 20), (30, 30), (1, 12), (12, 1), (2, 3))


@pytest.mark.parametrize("q", [0, 1, 3])
@pytest.mark.parametrize("shift", ["mean", "none", "vector", "first sample"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "name", ["array float64", "fortran", "csr float64", "csc float64", "array complex128", "duck float64"]
)
def test_solver_is_algorithm_1_line_by_line(name: str, shape, shift: str, q: int) -> None:
    m, n = shape
    dtype = CONTAINERS[name].dtype
    X = (2 + values(shape, dtype, 5, 1.0)) * (values(shape, seed=6, density=0.8) != 0)
    X = X.astype(dtype)
    mu = {"mean": X.mean(axis=1), "none": np.zeros(m), "vector": panel(m, 1, dtype)[:, 0], "first sample": X[:, 0]}[
        shift
    ]
    A = ss.as_operator(CONTAINERS[name].make(X.conj().T.copy()))
    Abar = A if shift == "none" else A - ss.LowRank(np.ones(n), mu)  # (X - mu 1^T)^H = X^H - 1 mu^H
    for k in {1, 2, min(3, m, n), min(m, n)}:
        if k > min(m, n):
            continue
        K = min(2 * k, m, n)
        Omega = np.random.default_rng(k).standard_normal((n, K))
        F = ss.ShiftedRandomizedSVD(n_iter=q)(Abar, k, k)
        assert F.info.sample_size == K
        size = np.linalg.norm(X, 2) + np.linalg.norm(mu) * np.sqrt(n)
        condition = np.linalg.cond(X @ Omega - np.outer(mu, np.ones(K))) if q == 0 else 1.0
        compare(F, algorithm_1(X, mu, k, K, q, Omega), 50 * EPS * size * max(1.0, min(condition, 1e3)))


@pytest.mark.parametrize(
    ("k", "oversamples", "K"), [(5, None, 10), (5, 0, 5), (5, 3, 8), (12, None, 20), (20, None, 20), (15, 99, 20)]
)
def test_sample_is_twice_k_unless_told_otherwise_and_clipped(k: int, oversamples, K: int) -> None:
    for shape in ((20, 90), (90, 20)):
        X = values(shape, density=1.0)
        F = ss.ShiftedRandomizedSVD(n_oversamples=oversamples)(ss.centered(X.T), k, 3)
        assert F.info.sample_size == K
        Omega = np.random.default_rng(3).standard_normal((shape[1], K))
        compare(F, algorithm_1(X, X.mean(axis=1), k, K, 0, Omega), 1e4 * EPS * np.linalg.norm(X, 2))


@pytest.mark.parametrize("name", FEW)
def test_shift_of_a_vector_reaches_the_algorithm_from_the_front_door(name: str) -> None:
    D = values((40, 12), CONTAINERS[name].dtype, 1)
    E = in_double(D)
    X = CONTAINERS[name].make(D)
    single = np.finfo(ss.as_operator(X).dtype).eps > 1e-10
    for shift, mu in (("mean", E.mean(axis=0)), (np.arange(12.0), np.arange(12.0)), (None, np.zeros(12))):
        F = ss.svd(X, 3, shift=shift, solver=ss.ShiftedRandomizedSVD(n_iter=2), rng=9)
        Omega = np.random.default_rng(9).standard_normal((40, 6))
        _, S, _ = algorithm_1(E.conj().T, mu.conj(), 3, 6, 2, Omega)
        eps = np.finfo(np.float32).eps if single else EPS
        assert_close(F.S, S, 100 * float(eps) * (np.linalg.norm(E) + np.linalg.norm(mu) * np.sqrt(40)))


def test_scaled_features_are_the_paper_s_algorithm_on_the_scaled_matrix() -> None:
    X = 3 + values((12, 50), density=1.0)  # columns are samples
    scale = X.std(axis=1)
    F = ss.svd(X.T, 3, shift="mean", scale="std", solver=ss.ShiftedRandomizedSVD(n_iter=1), rng=4)
    Z = X / scale[:, None]
    Omega = np.random.default_rng(4).standard_normal((50, 6))
    compare(F, algorithm_1(Z, Z.mean(axis=1), 3, 6, 1, Omega), 1e3 * EPS * np.linalg.norm(Z, 2))


def test_without_a_shift_it_is_the_plain_randomized_svd() -> None:
    X = values((20, 90), density=1.0)
    for q in (0, 2):
        F = ss.ShiftedRandomizedSVD(n_iter=q)(ss.as_operator(X.T.copy()), 4, 1)
        G = ss.ShiftedRandomizedSVD(n_iter=q)(ss.as_operator(X.T.copy()) - ss.LowRank(np.ones(90), np.zeros(20)), 4, 1)
        assert_close(F.S, G.S, 100 * EPS * np.linalg.norm(X))
        # Its sample is that of RandomizedSVD: Omega is drawn on the side of the samples, which is the long one here.
        Omega = np.random.default_rng(1).standard_normal((90, 8))
        Q, _ = np.linalg.qr(np.linalg.matrix_power(X @ X.T, q) @ X @ Omega)
        assert_close(F.S, np.linalg.svd(Q.T @ X, compute_uv=False)[:4], 1e4 * EPS * np.linalg.norm(X))


@pytest.mark.parametrize(
    "shift",
    [
        ss.LowRank(panel(40, 2), panel(12, 2)),
        ss.LowRank(np.arange(40.0), np.ones(12)),
        ss.LowRank(np.r_[np.ones(39), 1 + 1e-12], np.ones(12)),
    ],
    ids=["rank 2", "rank 1, rows differ", "rows differ slightly"],
)
def test_shifts_of_another_form_are_refused_and_the_remedy_named(shift) -> None:
    for make in (np.asarray, sparse.csr_array, sparse.csc_array):
        X = make(values((40, 12)))
        A = ss.as_operator(X)
        with pytest.raises(ValueError, match=r"1 mu\^T.*RandomizedSVD"):
            ss.ShiftedRandomizedSVD()(A - shift, 3, 0)
        with pytest.raises(ValueError, match=r"1 mu\^T.*RandomizedSVD"):
            ss.svd(X, 3, shift=shift, solver="shifted-randomized")
        assert ss.RandomizedSVD()(A - shift, 3, 0).S.shape == (3,)
        with pytest.raises(ValueError, match="RandomizedSVD"):
            ss.ShiftedRandomizedSVD()(A - ss.Exact()(A, 2, 0), 3, 0)


def test_shift_on_the_other_side_is_refused() -> None:
    # mu 1^T has the samples as columns: that is the adjoint's business.
    A = ss.as_operator(values((40, 12)))
    columns = ss.LowRank(panel(40, 1), np.ones(12))
    with pytest.raises(ValueError, match="RandomizedSVD"):
        ss.ShiftedRandomizedSVD()(A - columns, 3, 0)
    assert ss.ShiftedRandomizedSVD()((A - columns).H, 3, 0).S.shape == (3,)


def test_shift_that_cannot_be_looked_into_is_refused() -> None:
    A, S = ss.as_operator(values((40, 12))), Minimal(np.ones((40, 1)) * panel(12, 1).T)
    for B in (A - S, ss.operators.Scaled(A - S, cols=np.ones(12)), (A.H - S.H).H):
        with pytest.raises(ValueError, match="RandomizedSVD"):
            ss.ShiftedRandomizedSVD()(B, 3, 0)


def test_any_way_to_write_one_mu_transposed_is_taken() -> None:
    D, mu = values((40, 12)), np.arange(12.0)
    want = ss.ShiftedRandomizedSVD(n_iter=1)(ss.as_operator(D) - ss.LowRank(np.ones(40), mu), 3, 0).S
    half = ss.LowRank(np.ones(40), mu / 2)
    for A in (
        ss.as_operator(D) - ss.LowRank(np.full(40, 2.0), mu / 2),
        (ss.as_operator(D).H - ss.LowRank(np.ones(40), mu).H).H,
        ss.as_operator(D) - half - half,
    ):
        found = ss.ShiftedRandomizedSVD(n_iter=1)(A, 3, 0).S
        assert_close(found, want, 100 * EPS * (np.linalg.norm(D) + np.linalg.norm(mu) * np.sqrt(40)))


# --- PAPER.md section 4, check 6 --------------------------------------------------------------------------------


def mse(F: ss.SVDResult, Xbar: Array) -> float:
    """Mean squared distance of the samples (columns of Xbar) from the span of the components."""
    U = F.Vh.conj().T
    return float(np.sum((Xbar - U @ (U.T @ Xbar)) ** 2) / Xbar.shape[1])


def exact_rank_10(seed: int) -> tuple[Array, Array]:
    """(X, mu): 200 features, 1000 samples, rank 10 after centring, ||mu|| ten times the spread."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((1000, 10))
    V, _ = np.linalg.qr(V - V.mean(axis=0))
    U, _ = np.linalg.qr(rng.standard_normal((200, 10)))
    mu = rng.standard_normal(200)
    mu *= 10 * np.sqrt(10 / 1000) / np.linalg.norm(mu)
    return U @ V.T + mu[:, None], mu


def relative_error(F: ss.SVDResult, Xbar: Array) -> float:
    return float(np.linalg.norm(Xbar.T - (F.U * F.S) @ F.Vh) / np.linalg.norm(Xbar))


def test_as_many_samples_as_the_rank_are_one_too_few_for_line_6() -> None:
    direct, paper, one_more, iterated = [], [], [], []
    for seed in range(10):
        X, _ = exact_rank_10(seed)
        A, Xbar = ss.centered(X.T), X - X.mean(axis=1)[:, None]
        direct.append(relative_error(ss.RandomizedSVD(n_oversamples=0, n_iter=0)(A, 10, seed), Xbar))
        paper.append(relative_error(ss.ShiftedRandomizedSVD(n_oversamples=0)(A, 10, seed), Xbar))
        one_more.append(relative_error(ss.ShiftedRandomizedSVD(n_oversamples=1)(A, 10, seed), Xbar))
        iterated.append(relative_error(ss.ShiftedRandomizedSVD(n_oversamples=0, n_iter=1)(A, 10, seed), Xbar))
    assert max(direct) < 1e-11
    assert max(iterated) < 1e-11
    assert max(one_more) < 1e-11
    assert min(paper) > 0.1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("factor", [1.0, 10.0, 1000.0])
def test_shift_that_is_not_the_mean_misleads_line_6_and_not_the_exact_sample(factor: float) -> None:
    direct, paper, ratios, direct_ratios, iterated = [], [], [], [], []
    k, K = 10, 20
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.random((100, 1000))
        X -= X.mean(axis=1)[:, None]
        mu = factor * X[:, 0]
        Xbar = X - mu[:, None]
        A = ss.as_operator(X.T) - ss.LowRank(np.ones(1000), mu)
        bound = ss.halko_bound(np.linalg.svd(Xbar, compute_uv=False), k, 0, X.shape)
        whole = ss.RandomizedSVD(n_iter=0, n_oversamples=0)(A, K, seed)
        direct.append(mse(ss.RandomizedSVD(n_iter=0, n_oversamples=10)(A, k, seed), Xbar))
        direct_ratios.append(np.linalg.norm(Xbar.T - (whole.U * whole.S) @ whole.Vh, 2) / bound)
        whole = ss.ShiftedRandomizedSVD(n_oversamples=0)(A, K, seed)
        paper.append(mse(ss.ShiftedRandomizedSVD()(A, k, seed), Xbar))
        ratios.append(np.linalg.norm(Xbar.T - (whole.U * whole.S) @ whole.Vh, 2) / bound)
        if seed < 5:
            iterated.append(mse(ss.ShiftedRandomizedSVD(n_iter=1)(A, k, seed), Xbar))
    assert np.mean(direct) < 8.5
    assert max(direct_ratios) < 1
    assert np.mean(iterated) < 8.5
    if factor == 1.0:
        assert 11 < np.mean(paper) < 16
    else:
        assert np.mean(paper) > 100
        assert np.mean(ratios) > 1  # the published bound does not hold for Algorithm 1 with such a shift


@pytest.mark.long
def test_bound_holds_for_both_samples_when_the_shift_is_the_mean() -> None:
    k, K = 10, 20
    draws = {
        "uniform": lambda rng: rng.random((100, 1000)),
        "normal": lambda rng: rng.normal(1, 1, (100, 1000)),
        "poisson": lambda rng: rng.poisson(1.0, (100, 1000)).astype(float),
        "zipf": lambda rng: rng.zipf(3.0, (100, 1000)).astype(float),
    }
    for draw in draws.values():
        for seed in range(3):
            X = draw(np.random.default_rng(seed))
            A, Xbar = ss.centered(X.T), X - X.mean(axis=1)[:, None]
            S = np.linalg.svd(Xbar, compute_uv=False)
            for q in (0, 1, 2):
                for solver in (
                    ss.RandomizedSVD(n_iter=q, n_oversamples=0),
                    ss.ShiftedRandomizedSVD(n_iter=q, n_oversamples=0),
                ):
                    F = solver(A, K, seed)
                    assert np.linalg.norm(Xbar.T - (F.U * F.S) @ F.Vh, 2) < ss.halko_bound(S, k, q, X.shape)


def test_paper_sample_is_never_worse_than_an_exact_one_of_a_column_less() -> None:
    # The lemma of PAPER.md section 4: range(Q) holds Xbar (Omega N), N a basis of the complement of w = Omega^T 1 - 1.
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = 5 + rng.standard_normal((40, 120))
        mu = X.mean(axis=1)
        K = 12
        F = ss.ShiftedRandomizedSVD(n_oversamples=0)(ss.centered(X.T), K, seed)
        Omega = np.random.default_rng(seed).standard_normal((120, K))
        w = Omega.T @ np.ones(120) - 1
        N = np.linalg.svd(w[None])[2][1:].T
        inside = (X - mu[:, None]) @ (Omega @ N)
        Q = F.Vh.T
        assert_close(Q @ (Q.T @ inside), inside, 1e3 * EPS * np.linalg.norm(X) * np.linalg.norm(Omega))


# --- PAPER.md section 4, check 8 --------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_array, np.asfortranarray])
@pytest.mark.parametrize("shape", [(1000, 100), (100, 1000)], ids=str)
def test_invariants_of_centred_results(shape, make, offset: float) -> None:
    for seed in range(2):
        X = np.random.default_rng(seed).random(shape) + offset * np.random.default_rng(seed + 100).standard_normal(
            shape[1]
        )
        Xbar = X - X.mean(axis=0)
        ratio = max(1.0, float(np.linalg.norm(X.mean(axis=0)) / np.sqrt(np.mean(np.sum(Xbar**2, axis=1)))))
        solver = ss.RandomizedSVD(n_iter=1, power_iteration_normalizer="QR")
        F, G = solver(ss.centered(make(X)), 10, seed), solver(ss.as_operator(Xbar), 10, seed)
        ones = np.ones(shape[0])
        assert np.linalg.norm(F.U.T @ ones) / np.sqrt(shape[0]) <= 1e-14 * ratio
        for Q in (F.U, F.Vh.T):
            assert np.abs(Q.T @ Q - np.eye(10)).max() <= 1e-13
        assert np.abs(F.S / G.S - 1).max() <= 1e-14 * ratio
        for P, Q in ((F.U, G.U), (F.Vh.T, G.Vh.T)):
            assert np.linalg.norm(P @ P.T - Q @ Q.T, 2) <= 1e-12 * ratio


def test_update_of_the_factorization_stays_orthonormal_in_hard_cases() -> None:
    rng = np.random.default_rng(0)
    low = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 200))
    cases = {
        "mu in the span": (X := rng.standard_normal((50, 200)), X[:, :5].sum(axis=1)),
        "rank deficient": (low, rng.standard_normal(50)),
        "zero columns": (np.where(np.arange(200) < 190, 0, rng.standard_normal((50, 200))), rng.standard_normal(50)),
        "huge mu": (rng.standard_normal((50, 200)), 1e12 * rng.standard_normal(50)),
        "K = m": (rng.standard_normal((12, 200)), rng.standard_normal(12)),
        "zero matrix": (np.zeros((50, 200)), rng.standard_normal(50)),
    }
    for name, (X, mu) in cases.items():
        A = ss.as_operator(X.T.copy()) - ss.LowRank(np.ones(200), mu)
        F = ss.ShiftedRandomizedSVD()(A, 8, 0)
        for Q in (F.U, F.Vh.T):
            assert np.abs(Q.T @ Q - np.eye(8)).max() <= 1e-13, name


def test_spectra_of_section_4_order_paper_and_exact_samples() -> None:
    # K = k: the column that line 6 spends on mu is missing; with one iteration both come back.
    S = np.r_[np.ones(10), np.full(90, 1e-2)]
    paper, direct = [], []
    for seed in range(10):
        X = with_values((100, 600), S, seed=seed)
        X = X - X.mean(axis=1)[:, None] + 0.1 * np.random.default_rng(seed).standard_normal(100)[:, None]
        A, Xbar = ss.centered(X.T), X - X.mean(axis=1)[:, None]
        paper.append(mse(ss.ShiftedRandomizedSVD(n_oversamples=0)(A, 10, seed), Xbar))
        direct.append(mse(ss.RandomizedSVD(n_oversamples=0, n_iter=0)(A, 10, seed), Xbar))
    assert np.mean(paper) > 1.3 * np.mean(direct)
