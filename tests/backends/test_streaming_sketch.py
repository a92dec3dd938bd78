"""The sketch of a scatter matrix: linear whatever the order, and never more than the matrix."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import shiftsvd as ss
from shiftsvd.numerics.nystrom import krylov, nystrom
from shiftsvd.streaming import Scatter, SketchedScatter, Stream, WholeScatter
from tests.support.graded import exact_values
from tests.support.matrices import EPS, decaying


def sketch(n: int = 60, ell: int = 6) -> SketchedScatter:
    return SketchedScatter.empty(n, ell, np.random.default_rng(0))


def stream_of(scatter: Scatter, parts: list) -> Stream:
    stream = Stream.empty(scatter)
    for part in parts:
        stream.update(ss.as_operator(part))
    return stream


def kept(scatter: Scatter) -> np.ndarray:
    """All that is kept of S, formed."""
    values, vectors, *_ = scatter.leading(3 * scatter.size, np.zeros(len(scatter.B)))
    return (vectors * values**2) @ vectors.T


def lowest(S: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(S)[0])


ORDERS = {
    "one": [300],
    "few": [100, 103, 203],
    "many": list(range(5, 300, 5)),
    "rows": list(range(1, 300)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_sketch_is_the_scatter_times_the_test_matrix(order: str) -> None:
    D = np.random.default_rng(0).random((300, 60)) + 1e6
    stream = stream_of(sketch(), [part for part in np.split(D, ORDERS[order]) if len(part)])
    C = D - D.mean(axis=0)
    Y = C.T @ C @ stream.scatter.Omega
    assert np.linalg.norm(stream.scatter.Y - Y) <= 1e-9 * np.linalg.norm(Y)  # the data are rounded to 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_sketches_add_up_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    D = rng.random((300, 60))
    parts = [stream_of(sketch(), [part]) for part in np.array_split(D, 7)]
    while len(parts) > 1:
        a, b = (parts.pop(rng.integers(len(parts))) for _ in range(2))
        parts.append(a.merged(b))
    Y = stream_of(sketch(), [D]).scatter.Y
    assert np.linalg.norm(parts[0].scatter.Y - Y) <= 100 * EPS * np.linalg.norm(Y)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ratio", [0.3, 0.9, 1.0])
def test_what_is_kept_lies_between_the_plain_sketch_and_the_matrix(order: str, ratio: float) -> None:
    D = decaying((300, 60), ratio, seed=1)
    C = D - D.mean(axis=0)
    S = C.T @ C
    stream = stream_of(sketch(), [part for part in np.split(D, ORDERS[order]) if len(part)])
    T = kept(stream.scatter)
    values, vectors, _ = nystrom(S @ stream.scatter.Omega, stream.scatter.Omega, EPS * np.trace(S))
    rounding = 1e-10 * np.linalg.norm(S)
    assert lowest(S - T) >= -rounding
    assert lowest(T - (vectors * values) @ vectors.T) >= -rounding
    some = stream.scatter.leading(5, np.zeros(60))
    assert np.isclose(some.values @ some.values + some.rest, np.trace(T))


def test_the_slack_holds_the_rounding_of_every_batch_at_the_level_of_its_numbers() -> None:
    D = np.random.default_rng(0).random((300, 60))
    alone, both = (stream_of(sketch(), parts).scatter.slack for parts in ([1e3 * D], [1e3 * D, D]))
    assert np.all(both >= alone)
    far = np.where(np.arange(300)[:, None] > 0, D + 1e6, 0)  # products of sparse rows subtract the means from sums
    slack = stream_of(sketch(), [csr_array(far)]).scatter.slack
    assert np.all(slack >= 100 * EPS * (far**2).sum(axis=0))


@pytest.mark.parametrize("seed", [3, 90, 306])
@pytest.mark.parametrize("rank", [2, 7])
@pytest.mark.parametrize("refined", [False, True])
def test_values_exceed_the_exact_ones_by_their_rounding_bounds_at_most(seed: int, rank: int, refined: bool) -> None:
    # The test matrix has nearly as many columns as rows, so its least singular value is far below its norm.
    rng = np.random.default_rng(seed)
    D = rng.standard_normal((40, rank))
    D = D @ rng.standard_normal((rank, 7)) if rank < 7 else D * np.geomspace(1, 1e6, 7)
    stream = stream_of(SketchedScatter.empty(7, 6, np.random.default_rng(seed)), np.array_split(D, 20))
    if refined:
        stream.refine(ss.as_operator(D))
    found, exact = stream.spectrum(6), exact_values(D)
    assert np.all(found.values - exact[:6] <= found.errors)


@pytest.mark.long
def test_directions_that_come_late_in_small_parts_are_not_lost() -> None:
    # Each row of the second kind is too small for the directions that are kept of the first: alone they would drop it
    # every time, and the largest direction of all would never be found.
    rng = np.random.default_rng(0)
    first = rng.standard_normal((200, 60)) * np.r_[np.ones(12), np.zeros(48)] * 10
    second = np.zeros((4000, 60))
    second[:, 40] = rng.choice([-1.0, 1.0], 4000) * 3
    D = np.vstack([first, second])
    stream = stream_of(sketch(), [first, *np.array_split(second, 2000)])
    C = D - D.mean(axis=0)
    exact = np.linalg.eigvalsh(C.T @ C)[::-1]
    found = stream.spectrum(1)
    assert abs(found.vectors[40, 0]) >= 0.9
    assert 0.9 * exact[0] <= found.values[0] ** 2 <= exact[0] * (1 + 1e-12)


def test_a_pending_column_counts_at_once() -> None:
    D = decaying((40, 9), 0.8)
    C = D - D.mean(axis=0)
    scatter = WholeScatter.empty(9)
    stream = stream_of(scatter, np.split(D, 40))
    assert scatter.used > 0
    assert np.allclose(stream.spectrum(9).values ** 2, np.linalg.eigvalsh(C.T @ C)[::-1], atol=1e-12)


def test_more_columns_than_wait_at_once_are_all_added() -> None:
    P = np.random.default_rng(0).standard_normal((9, 2000))
    for scatter in (WholeScatter.empty(9), sketch(9, 9)):
        scatter.add_columns(P)
        assert np.allclose(scatter.leading(9, np.zeros(9)).values ** 2, np.linalg.eigvalsh(P @ P.T)[::-1])


@pytest.mark.parametrize("n", [6, 30])
def test_nystrom_recovers_a_matrix_of_low_rank(n: int) -> None:
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((n, 3)))[0]
    S = (V * [4.0, 2.0, 1.0]) @ V.T
    Omega = np.random.default_rng(1).standard_normal((n, 6))
    values, vectors, _ = nystrom(S @ Omega, Omega, 4 * EPS)
    assert np.allclose(values[:3], [4, 2, 1], rtol=1e-10)
    assert np.all(values[3:] <= 1e-10)
    assert np.allclose(np.abs(vectors[:, :3].T @ V), np.eye(3), atol=1e-6)


@pytest.mark.parametrize("rank", [0, 2, 20])
@pytest.mark.parametrize("columns", [5, 12, 20])
def test_a_krylov_basis_is_orthonormal_whatever_the_rank(rank: int, columns: int) -> None:
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0][:, :rank]
    S = (V * 0.5 ** np.arange(rank)) @ V.T
    SW, W = krylov(lambda W: S @ W, S @ np.random.default_rng(1).standard_normal((20, 5)), columns)
    assert W.shape == (20, columns)
    assert np.allclose(W.T @ W, np.eye(columns), atol=1e-12)
    assert np.allclose(SW, S @ W, atol=1e-12)


def test_a_stream_with_a_sketch_warns_once_and_names_a_limit_that_is_exact() -> None:
    D = decaying((300, 60), 0.9, seed=1)
    pca = ss.PCA(5, random_state=0, memory_limit="150kB", n_threads=2)
    with pytest.warns(UserWarning, match=r"sketch of 15 columns.*Set memory_limit to \S+ kB for exact") as said:
        pca.partial_fit(D[:30])
    for part in np.array_split(D[30:], 9):
        pca.partial_fit(part)  # without a warning
    assert len(said) == 1
    limit = str(said[0].message).partition("memory_limit to ")[2].partition(" for")[0]
    exact = ss.PCA(5, random_state=0, memory_limit=limit.replace(" ", ""), n_threads=2).partial_fit(D)
    assert exact.info_.converged
    assert exact.info_.sample_size == 60


def test_more_features_than_are_kept_whole_are_told_of_other_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.streaming.WHOLE", 8)
    with pytest.warns(UserWarning, match=r"Raise n_oversamples, or call refine with all rows\.$"):
        ss.PCA(1, n_oversamples=3, random_state=0).partial_fit(decaying((30, 20), 0.9))


def test_a_fit_and_a_refinement_name_the_components_that_did_not_converge() -> None:
    D = decaying((300, 60), 0.9, seed=1)
    ipca = ss.IncrementalPCA(5, batch_size=50, random_state=0, memory_limit="150kB", n_threads=2)
    with pytest.warns(UserWarning, match=r"^5 components did not converge: 1-5 .* or call refine") as said:
        ipca.fit(D)
    assert len(said) == 1
    with pytest.warns(UserWarning, match=r"^\d components? did not converge: "):
        ipca.refine(D)
