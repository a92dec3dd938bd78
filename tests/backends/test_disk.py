"""Matrices that are read in blocks: the same answer as in memory, few reads, bounded memory, damage told by name."""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra import generic
from shiftsvd.backends.entries import SomeColumns, SomeRows
from shiftsvd.backends.files import DiskRows
from shiftsvd.events import Event, listening
from tests.support.containers import Held
from tests.support.matrices import EPS, decaying
from tests.support.sparse_rows import sparse_rows


@pytest.mark.parametrize("solver", ["lanczos", "gram", "exact", "randomized"])
@pytest.mark.parametrize("kind", ["sparse", "dense", "small integers", "transposed"])
def test_streamed_fit_equals_the_fit_in_memory(kind: str, solver: str) -> None:
    X = sparse_rows()
    if kind == "dense":
        X = decaying((3000, 60), 0.9, np.float32) + 3
    if kind == "small integers":
        X = X.astype(np.uint8)
    A: ss.Operator = DiskRows(Held(X, 700))
    if kind == "transposed":
        A, X = DiskRows(Held(sparse.csr_array(X.T), 50)).H, X
    streamed = ss.PCA(5, random_state=0, solver=solver, tol=None).fit(A)
    memory = ss.PCA(5, random_state=0, solver=solver).fit(X)
    np.testing.assert_allclose(streamed.singular_values_, memory.singular_values_, rtol=1e-4)
    np.testing.assert_allclose(streamed.explained_variance_ratio_, memory.explained_variance_ratio_, rtol=2e-4)
    np.testing.assert_allclose(streamed.mean_, memory.mean_, rtol=1e-12, atol=1e-13)
    Z = np.concatenate([part for _, part in streamed.iter_scores(A)])
    np.testing.assert_allclose(Z, streamed.transform(X), atol=1e-5 * float(streamed.singular_values_[0]))


def test_a_lanczos_step_is_one_read_of_the_file() -> None:
    source = Held(sparse_rows(), 1000)
    A = DiskRows(source)
    pca = ss.PCA(10, solver="lanczos", random_state=0).fit(A)
    # The moments are one read more, and the norm comes from them.
    assert source.n_reads == 3 * (pca.info_.n_passes + 1)
    assert pca.info_.converged


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_read_of_the_means_and_the_last_steps_serve_for_the_first_block_and_the_probe(
    dtype: type, tol: float
) -> None:
    rng = np.random.default_rng(0)
    m, n, k = 1200, 600, 10
    U, V = (np.linalg.qr(rng.standard_normal((side, n)))[0] for side in (m, n))
    X = ((U / np.arange(1.0, n + 1) ** 0.7) @ V.T + 0.01 * rng.random(n)).astype(dtype)
    weights = rng.integers(1, 4, m)
    Y = np.repeat(X.astype(float), weights, axis=0)
    exact = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False)
    for given, values in ((None, np.linalg.svd(X - X.mean(axis=0, dtype=float), compute_uv=False)), (weights, exact)):
        source = Held(X, 400)
        pca = ss.PCA(k, solver=ss.BlockLanczos(tol), random_state=0).fit(DiskRows(source), sample_weight=given)
        assert source.n_reads == 3 * (pca.info_.n_passes + (1 if given is None else 2))  # weights: one for the variance
        assert pca.info_.n_passes <= (4 if tol >= 1e-4 else 5)
        assert pca.info_.converged
        assert pca.info_.missed_below >= values[k] - 1e-6
        errors = np.abs(pca.singular_values_ - values[:k]) / values[:k]
        assert np.all(errors <= pca.info_.value_errors)


def test_gram_reads_a_file_again_for_its_components() -> None:
    source = Held(sparse_rows(), 1000)
    F = ss.svd(DiskRows(source), 10, solver=ss.Gram(1e-2), rng=0)
    assert F.info.n_passes == 2
    assert source.n_reads == 3 * (2 + 1)  # and one for the norm


def test_values_computed_from_the_basis_have_its_rounding_errors_in_their_bounds() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(40, 300)), int(rng.integers(1, 12))
        S = np.repeat(0.9 ** np.arange(n), rng.integers(1, 8))[:n]
        Q, P = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
        X = ((P * S) @ Q).astype(np.float32)
        V = np.linalg.svd(X.astype(float))[2][:k].T.astype(np.longdouble)
        values = np.linalg.norm((X.astype(np.longdouble) @ V).astype(float), axis=0)
        solver = ss.BlockLanczos(10.0 ** -rng.integers(1, 9), block_size=int(rng.integers(1, 6)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            F = ss.svd(DiskRows(Held(X, 100)), k, solver=solver, rng=seed)
        assert np.all(np.abs(F.S - values) <= F.info.value_errors * F.S + 2e-16), seed
        assert F.info.n_passes < 100  # the basis has room for the wide block that follows a probe


@pytest.mark.parametrize("empty", [2, 4])
def test_rounding_errors_of_a_block_are_no_columns_of_the_basis(empty: int) -> None:
    for seed in range(30):  # products have no parts in empty columns, so the basis ends before the whole space
        rng = np.random.default_rng(seed)
        X = (rng.random((130, 62)) * (rng.random((130, 62)) < 0.3)).astype(np.float32)
        X[:, :empty] = 0
        F = ss.svd(DiskRows(Held(sparse.csr_array(X), 50)), 20, shift="mean", solver=ss.BlockLanczos(1e-2), rng=seed)
        exact = np.linalg.svd(X - X.mean(axis=0, dtype=float), compute_uv=False)
        assert np.all(np.abs(F.S - exact[:20]) <= F.info.value_errors * F.S), seed
        assert F.info.missed_below is not None
        assert exact[20] <= F.info.missed_below, seed


@pytest.mark.parametrize("k", [20, 30])
def test_rows_without_weight_leave_the_residual_of_a_wide_file_as_small_as_it_is(k: int) -> None:
    rng = np.random.default_rng(0)
    X, w = decaying((30, 60), 0.5), rng.integers(0, 3, 30).astype(float)
    F = ss.svd(DiskRows(Held(X, 10)), k, shift="mean", sample_weight=w, solver="lanczos", rng=0)
    R = np.sqrt(w)[:, None] * (X - (w @ X) / w.sum())
    residual = float(np.linalg.norm(R - F.U * F.S @ F.Vh))
    assert F.info.frobenius_error == pytest.approx(residual, rel=0.01, abs=10 * EPS * float(np.linalg.norm(R)))


def test_vectors_of_a_value_that_no_pass_tells_from_0_are_unknown() -> None:
    A = DiskRows(Held(decaying((26, 101), 0.9), 10))
    for seed in range(10):
        with pytest.warns(match="did not converge"):
            F = ss.svd(A, 26, shift="mean", solver=ss.BlockLanczos(1e-10, max_passes=1), rng=seed)
        assert F.info.vector_errors is not None
        assert F.info.vector_errors[-1] == 1, seed  # the centred rows have rank 25
        assert np.all(F.info.vector_errors[:-1] < 1e-6)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_read_is_spent_on_measuring_the_rounding(dtype: type, scale: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    total = DiskRows._total

    def noted(A: DiskRows, what: str, panels: Any = (), *rest: Any, **named: Any) -> Any:
        widths.extend(panels[0].shape[1:] if panels else ())
        return total(A, what, panels, *rest, **named)

    monkeypatch.setattr(DiskRows, "_total", noted)
    X = sparse_rows().astype(dtype)
    pca = ss.PCA(10, solver=ss.BlockLanczos(1e-2), scale=scale, random_state=0).fit(DiskRows(Held(X, 1000)))
    exact = ss.PCA(10, solver="exact", scale=scale).fit(X.toarray().astype(np.float64))
    errors = np.abs(pca.singular_values_ / exact.singular_values_ - 1)
    assert min(widths) > 2
    assert len(widths) == pca.info_.n_passes
    assert pca.info_.converged
    assert np.all(errors <= pca.info_.value_errors)


def test_panels_are_wide_but_not_wider_than_the_memory_allows() -> None:
    source = Held(sparse_rows(200, 120), 100)
    assert DiskRows(source).costs.panel_columns == (32, 128)
    assert DiskRows(source, memory_limit="2MB").costs.panel_columns[1] < 128


def test_result_does_not_depend_on_the_threads() -> None:
    X = sparse_rows()
    fits = [ss.PCA(5, random_state=0).fit(DiskRows(Held(X, 250), n_threads=n)) for n in (1, 2, 3, 8)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.components_, fits[0].components_)
        np.testing.assert_array_equal(fit.explained_variance_, fits[0].explained_variance_)


def test_full_columns_are_those_of_the_whole_file_not_of_a_block() -> None:
    X = sparse_rows(40, 30).toarray()
    X[:20, 3] = 1.0  # full in the first block alone
    A = DiskRows(Held(sparse.csr_array(X), 20)) - ss.LowRank(np.ones(40), X.mean(axis=0))
    assert A.costs.eps == np.finfo(np.float64).eps
    V = np.random.default_rng(0).standard_normal((30, 4))
    E = X.astype(float) - X.mean(axis=0)
    np.testing.assert_allclose(A.gram(V), E.T @ (E @ V), rtol=1e-12, atol=1e-10)


class Broken(Held):
    """Gives blocks that are damaged as told."""

    def __init__(self, X: Any, damage: str) -> None:
        super().__init__(X, 100)
        self.damage, self.name = damage, "counts.h5:X"

    def read(self, lo: int, hi: int) -> Any:
        X = super().read(lo, hi)
        if lo >= 200:
            if self.damage == "negative":
                X.indices[3] = -1
            elif self.damage == "beyond":
                X.indices[3] = X.shape[1]
            elif self.damage == "nan":
                X.data[3] = np.nan
            elif self.damage == "short":
                X = X[:-1]
        return X


@pytest.mark.parametrize("damage", ["negative", "beyond", "nan", "short"])
def test_damaged_block_is_refused_by_name_before_it_is_multiplied(damage: str) -> None:
    with pytest.raises(ValueError, match=r"counts\.h5:X"):
        ss.PCA(3).fit(DiskRows(Broken(sparse_rows(500, 50), damage)))


def test_unsorted_rows_with_duplicates_are_sorted() -> None:
    X = sparse_rows(300, 40)
    Y = sparse.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    for a in range(300):
        part = slice(Y.indptr[a], Y.indptr[a + 1])
        Y.indices[part] = Y.indices[part][::-1].copy()
        Y.data[part] = Y.data[part][::-1].copy()
    found, want = (ss.PCA(4, random_state=0).fit(DiskRows(Held(Z, 64))) for Z in (Y, X))
    np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-6)


def test_a_listener_hears_of_every_block_and_of_the_worst_bound() -> None:
    heard: list[Event] = []
    with listening(heard.append):
        pca = ss.PCA(5, solver="lanczos", random_state=0).fit(DiskRows(Held(sparse_rows(), 1000)))
    done = [event.done for event in heard]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(pca.info_.n_passes + 1)
    assert all(event.total is None or event.total >= event.done for event in heard)
    worst = [event.worst for event in heard if event.worst is not None]
    assert worst[-1] <= 1e-4


@pytest.mark.parametrize("wide", [False, True])
def test_a_listener_hears_of_the_reads_of_exact(wide: bool) -> None:
    heard: list[Event] = []
    source = Held(sparse_rows(60, 120), 20) if wide else Held(sparse_rows(), 1000)
    A = DiskRows(source)
    with listening(heard.append):
        F = ss.svd(A, 5, shift="mean", solver="exact")
        assert heard[-1].done == pytest.approx(F.info.n_passes + 1)  # and the moments
        F.U, F.Vh  # noqa: B018
    done = [event.done for event in heard]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(source.n_reads / len(A.blocks()))


def test_new_rows_must_have_as_many_features() -> None:
    pca = ss.PCA(2, random_state=0).fit(DiskRows(Held(sparse_rows(300, 40), 100)))
    with pytest.raises(ValueError, match="39 features, but PCA is expecting 40"):
        pca.transform(DiskRows(Held(sparse_rows(300, 39), 100)))


def test_an_operator_without_variances_is_refused() -> None:
    with pytest.raises(ValueError, match="column variances need"):
        ss.PCA(2).fit(ss.LowRank(np.ones((9, 2)), np.ones((1001, 2))))


def test_variances_of_few_columns_are_made_by_products() -> None:
    A = ss.LowRank(*(np.random.default_rng(0).standard_normal((n, 2)) for n in (9, 5)))
    found, known = (ss.PCA(2, solver="exact").fit(X) for X in (A, A @ np.eye(5)))
    np.testing.assert_allclose(found.explained_variance_ratio_, known.explained_variance_ratio_, rtol=1e-10)


def test_a_pass_is_timed_by_some_of_its_blocks() -> None:
    source = Held(sparse_rows(), 10)
    found = ss.estimate(DiskRows(source, n_threads=1), 5, "lanczos", probe=True)
    assert found.seconds_per_pass is not None
    assert found.seconds_per_pass > 0
    assert 0 < source.n_reads < 20


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("places", [[0], [4, 5, 19], [39], list(range(40))])
def test_some_rows_and_some_columns_of_a_file_are_what_indexing_gives(container: Any, places: list[int]) -> None:
    X = sparse_rows(40, 40).toarray()
    chosen = np.array(places)
    for source, want in (
        (SomeRows(Held(container(X), 7), chosen), X[chosen]),
        (SomeColumns(Held(container(X), 7), chosen), X[:, chosen]),
    ):
        edges = source.edges(1)
        assert all(lo < hi for lo, hi in pairwise(edges))
        parts = [source.read(lo, hi) for lo, hi in pairwise(edges)]
        np.testing.assert_array_equal(np.vstack([sparse.csr_array(part).toarray() for part in parts]), want)
        assert source.shape == want.shape
        assert source.fingerprint != Held(container(X)).fingerprint
    assert [SomeRows(Held(X), chosen).place(row) for row in range(len(chosen))] == [("held", row) for row in places]


def test_columns_of_a_damaged_file_are_refused() -> None:
    held = Held(sparse_rows(40, 40), 40)
    held.X.indices[5] = 10**6  # after the sum of its fingerprint, which SciPy 1.15 does not survive
    with pytest.raises(ValueError, match=r"held: column indices of the rows from 0 on must be in 0\.\.39, got 1"):
        SomeColumns(held, np.array([1, 2])).read(0, 40)


def test_products_in_double_precision_of_a_file_in_single_precision_are() -> None:
    rng = np.random.default_rng(0)
    X, V = rng.standard_normal((60, 7)).astype(np.float32), rng.standard_normal((7, 3))
    A = DiskRows(Held(X))
    assert A.costs.eps == np.finfo(np.float32).eps
    np.testing.assert_allclose(generic.matmat_in_double(A, V), X.astype(np.float64) @ V, atol=100 * EPS)


def test_passes_of_a_second_fit_are_expected_beside_those_of_the_first() -> None:
    events: list[Event] = []
    with listening(events.append):
        for _ in range(2):
            begun = len(events)
            ss.svd(DiskRows(Held(sparse_rows(), 1000)), 3, solver="gram", rng=0)
            assert events[begun].total == events[begun].done + events[0].total
