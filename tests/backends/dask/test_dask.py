"""Dask arrays: the fit of any chunking is that in memory, nothing of the data comes home, damage is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import shiftsvd as ss
from tests.support.containers import Loads
from tests.support.matrices import decaying, values
from tests.support.operators import assert_is

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from dask.sizeof import sizeof

from shiftsvd.algebra.generic import triangle
from shiftsvd.backends import dask as dask_tasks
from shiftsvd.backends.dask import DaskRows, lazy_scores
from shiftsvd.events import Event, listening
from tests.support.dask_arrays import CHUNKS, ROWS, counts, in_rows, same_components


@pytest.mark.one_in(3)
@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_dense_fit_does_not_depend_on_the_chunks(chunks: Any) -> None:
    X = decaying((3000, 60), 0.8) + 3
    same_components(da.from_array(X, chunks=chunks), X)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_sparse_fit_does_not_depend_on_the_chunks(rows: Any) -> None:
    X = counts(dtype=np.float64)
    same_components(in_rows(X, rows, sparse.csr_array if rows != 1000 else sparse.csr_matrix), X)


@pytest.mark.parametrize("kind", ["dense", "sparse", "wide", "complex", "small integers"])
def test_every_product_is_that_of_the_matrix(kind: str) -> None:
    D = values((23, 7), np.complex128 if kind == "complex" else np.float64, 3)
    if kind == "small integers":
        D = np.round(3 * D).astype(np.int8)
    D = D.T.copy() if kind == "wide" else D
    Y = in_rows(sparse.csr_array(D), 9) if kind == "sparse" else da.from_array(D, chunks=(9, 4))
    A = ss.as_operator(Y)
    D = D.astype(np.complex128 if kind == "complex" else np.float64)
    size = float(np.linalg.norm(D))
    mu = np.arange(D.shape[1]) / 7
    with dask.config.set(scheduler="synchronous"):
        assert_is(A, D, size)
        assert_is(A - ss.LowRank(np.ones(len(D)), mu), D - mu, size + float(np.linalg.norm(mu)) * len(D) ** 0.5)
        L = np.arange(len(D)) / 9
        S = np.outer(L, mu)
        assert_is(A - ss.LowRank(L, mu), D - S, size + float(np.linalg.norm(S)))


def test_chunks_of_less_precision_than_declared_are_multiplied_in_that_of_the_array() -> None:
    X = decaying((80, 8), 0.3).astype(np.float32)
    Y = da.from_array(X).map_blocks(lambda chunk: chunk, dtype=np.float64, meta=np.empty((0, 0)))
    F = ss.svd(Y, 4, shift=np.ones(8), solver="randomized", rng=0)
    exact = np.linalg.svd(X - np.ones(8))[1]
    np.testing.assert_allclose(F.S, exact[:4], rtol=1e-12)
    assert F.info.frobenius_error == pytest.approx(np.linalg.norm(exact[4:]), rel=0.01)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_fit_equals_the_fit_in_memory(kind: str) -> None:
    X = counts() if kind == "sparse" else counts().toarray()
    Y = in_rows(X, 700) if kind == "sparse" else da.from_array(X, chunks=(700, 50))
    for settings in ({}, {"solver": "lanczos", "scale": True}, {"solver": "gram"}, {"svd_solver": "randomized"}):
        found, want = (ss.PCA(5, random_state=0, **settings).fit(A) for A in (ss.as_operator(Y), X))
        np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-4)
        np.testing.assert_allclose(found.mean_, want.mean_, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(found.explained_variance_ratio_, want.explained_variance_ratio_, rtol=2e-4)


def test_weights_are_rows_repeated() -> None:
    X = counts(600, 40, np.float64)
    w = np.random.default_rng(0).integers(0, 3, 600)
    found = ss.PCA(3, solver="lanczos", tol=1e-9, random_state=0).fit(ss.as_operator(in_rows(X, 100)), sample_weight=w)
    want = ss.PCA(3, tol=1e-9, random_state=0).fit(sparse.csr_array(X[np.repeat(np.arange(600), w)]))
    np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-8)


def test_a_step_is_one_read_that_loads_each_chunk_once() -> None:
    X, loads = counts(), Loads()
    Y = in_rows(X, 500).map_blocks(loads, dtype=X.dtype, meta=sparse.csr_array((0, 0), dtype=X.dtype))
    loads.n = 0
    heard: list[Event] = []
    with dask.config.set(scheduler="synchronous"), listening(heard.append):
        pca = ss.PCA(10, solver="lanczos", random_state=0).fit(ss.as_operator(Y))
    assert loads.n == 6 * (pca.info_.n_passes + 1)  # one more for the moments
    assert heard[-1].done == pytest.approx(pca.info_.n_passes + 1)
    done = [event.done for event in heard]
    assert done == sorted(done)
    assert len(set(np.round(done, 6))) >= loads.n  # each block is told


def test_tasks_are_about_as_many_as_blocks_and_load_what_they_multiply() -> None:
    X = counts()
    sizes = []
    for rows in (100, 50):
        A = ss.as_operator(in_rows(X, rows).map_blocks(lambda c: 2 * c, meta=sparse.csr_array((0, 0), dtype=X.dtype)))
        assert isinstance(A, DaskRows)
        graph, keys = A._graph("name", "gram", A.blocks(), (np.eye(120),), (None,))
        assert len(graph) == len(keys) + 1  # the tasks, and what they share
        sizes.append(len(graph))
    assert sizes == [31, 61]


def test_persisted_and_shared_chunks_are_left_alone() -> None:
    X = counts(dtype=np.float64)
    messy = X.copy()
    for a in range(X.shape[0]):
        part = slice(X.indptr[a], X.indptr[a + 1])
        messy.indices[part], messy.data[part] = X.indices[part][::-1], X.data[part][::-1]
    messy.has_sorted_indices = False
    Y = in_rows(messy, 1000).persist()
    before = [chunk.indices.copy() for chunk in dask.compute(*Y.to_delayed().ravel())]
    found = ss.svd(Y, 3, shift="mean", rng=0, solver="lanczos")
    np.testing.assert_allclose(found.S, ss.svd(X, 3, shift="mean", rng=0).S, rtol=1e-4)
    for chunk, indices in zip(dask.compute(*Y.to_delayed().ravel()), before, strict=True):
        np.testing.assert_array_equal(chunk.indices, indices)
    twice = da.concatenate([Y, Y])
    np.testing.assert_allclose(ss.svd(twice, 3, solver="gram").S, 2**0.5 * ss.svd(X, 3).S, rtol=1e-4)


@pytest.mark.parametrize("whiten", [False, True])
def test_scores_are_lazy_and_those_of_the_estimator(whiten: bool) -> None:
    X = counts(dtype=np.float64)
    pca = ss.PCA(4, random_state=0, whiten=whiten, scale=True).fit(X)
    loads = Loads()
    Y = in_rows(X, (1700, 1300)).map_blocks(loads, dtype=X.dtype, meta=sparse.csr_array((0, 0), dtype=X.dtype))
    loads.n = 0
    Z = lazy_scores(pca, Y)
    assert loads.n == 0
    assert (Z.shape, Z.chunks) == ((3000, 4), ((1700, 1300), (4,)))
    np.testing.assert_allclose(Z.compute(), pca.transform(X), atol=1e-9)
    dense = lazy_scores(pca, da.from_array(X.toarray(), chunks=((0, 2999, 1), 50)))
    np.testing.assert_allclose(dense.compute(), pca.transform(X), atol=1e-9)
    with pytest.raises(ValueError, match="119 features, but PCA is expecting 120"):
        pca.transform(Y[:, :119])


def test_what_cannot_be_fitted_is_refused_with_the_remedy() -> None:
    X = counts()
    blocks = in_rows(X, 1000)
    across = da.concatenate([in_rows(sparse.csr_array(X[:, :50]), 1000), in_rows(sparse.csr_array(X[:, 50:]), 1000)], 1)
    unknown = da.from_array(X.toarray(), chunks=(1000, 120))
    unknown = unknown[unknown[:, 0] > -1]
    for array, message in (
        (across, r"2 chunks across the columns. Use X = X.rechunk\(\{1: -1\}\)"),
        (
            blocks.map_blocks(sparse.csc_array, meta=sparse.csc_array((0, 0))),
            "must be CSR, got CSC. Use X = X.map",
        ),
        (unknown, r"X.compute_chunk_sizes\(\)"),
        (da.ones((4, 4, 4)), "two dimensions"),
        (da.from_array(np.array([["a"]])), "numeric"),
        (da.ones((0, 4)), "at least one row"),
        (da.ma.masked_array(np.ones((4, 4)), np.eye(4)), "got MaskedArray"),
    ):
        with pytest.raises(ValueError, match=message):
            ss.as_operator(array)
    np.testing.assert_allclose(ss.svd(across.rechunk({1: -1}), 2, rng=0).S, ss.svd(X, 2, rng=0).S, rtol=1e-4)


def test_a_chunk_that_is_not_what_the_array_says_is_refused_by_its_number() -> None:
    X = counts()
    csr = sparse.csr_array((0, 0), dtype=X.dtype)
    bad = X.copy()
    bad.data[-1] = np.nan

    def wild(chunk: Any) -> Any:
        chunk = chunk.copy()
        chunk.indices[-1] = 120
        return chunk

    for array, message in (
        (in_rows(bad, 1000), r"chunk 2 of the Dask array.*must be finite, got 1 NaN"),
        (in_rows(X, 1000).map_blocks(wild, meta=csr), r"chunk \d of the Dask array.*must be in 0\.\.119"),
        (in_rows(X, 1000).map_blocks(lambda c: c[:5], meta=csr), r"chunk \d.*must be CSR of shape \(1000, 120\)"),
        (in_rows(X, 1000).map_blocks(lambda c: c.tocsc(), meta=csr), r"chunk \d.*must be CSR, got CSC"),
        (da.from_delayed(dask.delayed(X), X.shape, X.dtype), "chunk 0.*must be dense of shape"),
    ):
        with pytest.raises(ValueError, match=message), dask.config.set(scheduler="synchronous"):
            ss.svd(array, 3, shift="mean")


def test_sparse_chunks_have_the_size_of_their_arrays() -> None:
    X = counts()
    assert sizeof(X) >= X.data.nbytes + X.indices.nbytes + X.indptr.nbytes


def test_blas_has_one_thread_in_every_task_and_what_it_had_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def limits() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen: list[set[int]] = []
    made = dask_tasks.block_operator
    monkeypatch.setattr(dask_tasks, "block_operator", lambda *of: (seen.append(limits()), made(*of))[1])
    A = ss.as_operator(in_rows(counts(), 300))
    with threadpool_limits(2, "blas"), dask.config.set(scheduler="threads", num_workers=3):
        A.gram(np.ones((A.shape[1], 3)))
        assert len(seen) >= 10
        assert set.union(*seen) == {1}
        assert limits() == {2}


def test_a_broken_fit_goes_on_with_the_read_that_was_broken_off(tmp_path: Path) -> None:
    X, loads = counts(), Loads()

    def array(stop: int) -> Any:
        def load(chunk: Any) -> Any:
            loads(chunk)
            if loads.n > stop:
                raise KeyboardInterrupt
            return chunk

        return in_rows(X, 500).map_blocks(load, dtype=X.dtype, meta=sparse.csr_array((0, 0), dtype=X.dtype))

    def fit(stop: int) -> ss.PCA:
        loads.n = 0
        with dask.config.set(scheduler="synchronous"):
            return ss.PCA(10, solver="lanczos", random_state=0).fit(ss.as_operator(array(stop)))

    whole, all_loads = fit(10**6), loads.n
    with pytest.raises(KeyboardInterrupt), ss.checkpoint(tmp_path / "c"):
        fit(6 + 3 * 6 + 4)
    with ss.checkpoint(tmp_path / "c"):
        resumed = fit(10**6)
    assert loads.n == 6 + all_loads - 3 * 6  # a read to know the data; three reads were kept
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.singular_values_, whole.singular_values_)


def test_pca_takes_a_dask_array_and_transforms_it_lazily() -> None:
    D = decaying((90, 12), 0.7, np.float64) + 2
    X = da.from_array(D, chunks=(20, 12))
    pca, memory = ss.PCA(3, random_state=0, tol=1e-10).fit(X), ss.PCA(3, random_state=0).fit(D)
    np.testing.assert_allclose(pca.explained_variance_, memory.explained_variance_, rtol=1e-8)
    Z = pca.transform(X)
    assert isinstance(Z, da.Array)
    assert Z.chunks == (X.chunks[0], (3,))
    np.testing.assert_allclose(Z.compute(), pca.transform(D), atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_twenty_triangles_have_the_same_bits_with_no_fit_around_them_as_on_a_worker(dtype: Any) -> None:
    # Of 300 columns BLAS takes several threads to fold two triangles, if it may, and splits as the moment lets it.
    X = values((1200, 300), dtype, density=1.0)
    arrays = (da.from_array(X, chunks=(100, 300)) for _ in range(20))
    assert len({triangle(ss.as_operator(each)).tobytes() for each in arrays}) == 1
