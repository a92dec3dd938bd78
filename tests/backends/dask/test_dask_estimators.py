"""Estimators of Dask arrays: what is read, what is sent, what stays lazy, and what is refused before any of it."""

from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from tests.support.containers import Loads
from tests.support.matrices import decaying

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
cloudpickle = pytest.importorskip("cloudpickle")

from shiftsvd.backends.dask import DaskRows

D = decaying((200, 12), 0.8) + 2


@pytest.fixture
def counted() -> tuple[Any, Loads]:
    """An array of 4 chunks, and how many of them were loaded."""
    loads = Loads()
    X = da.from_array(D, chunks=(50, 12)).map_blocks(loads, dtype=D.dtype, meta=np.empty((0, 0)))
    loads.n = 0
    return X, loads


# --- scores and points are lazy -------------------------------------------------------------------------------


def test_scores_are_those_of_the_fit_at_the_time() -> None:
    pca, X = ss.PCA(2, random_state=0), da.from_array(D, chunks=50)
    first = pca.fit(D[:100]).transform(X)
    want = pca.transform(D)
    pca.set_params(whiten=True).fit(D[100:])
    np.testing.assert_allclose(first.compute(), want, atol=1e-9)
    streamed = ss.PCA(2, random_state=0).partial_fit(D[:100])
    first, want = streamed.transform(X), streamed.transform(D)
    streamed.partial_fit(D[100:])
    np.testing.assert_allclose(first.compute(), want, atol=1e-9)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(streamed.transform(D), want, atol=1e-3)


def test_components_are_sent_once_and_a_stream_is_not() -> None:
    rng = np.random.default_rng(0)
    pca = ss.PCA(20, random_state=0).partial_fit(rng.standard_normal((100, 1000)))
    Z = pca.transform(da.zeros((500, 1000), chunks=(50, 1000)))
    graph = dict(dask.optimize(Z)[0].__dask_graph__())
    sent = sum(len(cloudpickle.dumps(task)) for task in graph.values())
    assert sent < 2 * pca.components_.nbytes


@pytest.mark.parametrize("chunks", [(50, 5), ((0, 100, 100), 12), (70, 12)], ids=str)
def test_scores_have_the_chunks_of_the_rows(chunks: Any) -> None:
    X = da.from_array(D, chunks=chunks)
    pca = ss.PCA(3, random_state=0, tol=1e-12).fit(X)
    assert pca.transform(X).chunks == (X.chunks[0], (3,))
    np.testing.assert_allclose(pca.transform(X).compute(), pca.transform(D), atol=1e-9)


def test_scores_of_a_wide_array_have_the_chunks_of_its_rows() -> None:
    X = da.from_array(D.T, chunks=(5, 60))
    pca = ss.PCA(3, random_state=0, tol=1e-12).fit(X)
    assert pca.transform(X).chunks == ((5, 5, 2), (3,))
    np.testing.assert_allclose(pca.transform(X).compute(), pca.transform(D.T), atol=1e-9)


@pytest.mark.parametrize("whiten", [False, True])
def test_points_of_lazy_scores_are_lazy(whiten: bool, counted: Any) -> None:
    X, loads = counted
    pca = ss.PCA(12, random_state=0, whiten=whiten, scale=True, solver="exact").fit(D)
    back = pca.inverse_transform(pca.transform(X))
    assert isinstance(back, da.Array)
    assert (loads.n, back.chunks) == (0, (X.chunks[0], (12,)))
    np.testing.assert_allclose(back.compute(), D, atol=1e-9)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(X).rechunk(5)).compute(), D, atol=1e-9)
    with pytest.raises(ValueError, match=r"scores must have shape \(n_samples, 12\), got shape \(200, 5\)"):
        pca.inverse_transform(X[:, :5])
    some = ss.PCA(2, preprocess=ss.transforms.Select(np.arange(4)), random_state=0, whiten=whiten).fit(D)
    assert some.inverse_transform(some.transform(X)).chunks == (X.chunks[0], (4,))
    svd = ss.TruncatedSVD(12, random_state=0)
    with pytest.warns(UserWarning, match="first component is the mean"):
        svd.fit(D)
    np.testing.assert_allclose(svd.inverse_transform(svd.transform(X)).compute(), D, atol=1e-9)


# --- chunks stay where they are -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{"svd_solver": "full"}, {"n_components": "mle"}, {"n_components": 0.9}, {}], ids=str
)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_chunk_is_brought_to_the_client(
    settings: dict[str, Any], scale: bool, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = DaskRows._parts

    def watched(A: DaskRows, what: str, *more: Any) -> Any:
        assert what != "chunk"
        return parts(A, what, *more)

    monkeypatch.setattr(DaskRows, "_parts", watched)
    weights = np.random.default_rng(0).integers(0, 3, 200).astype(float) if weighted else None
    settings = {"n_components": 5, "random_state": 0, "scale": scale, **settings}
    for chunks in (50, (7, 12)):
        found = ss.PCA(**settings).fit(da.from_array(D, chunks=chunks), sample_weight=weights)
        want = ss.PCA(**settings).fit(D, sample_weight=weights)
        np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-10)
        np.testing.assert_allclose(found.components_, want.components_, atol=1e-8)


def test_no_square_is_formed_that_is_larger_than_the_chunks_or_as_long_as_the_data() -> None:
    tall = da.zeros((8000, 1500), chunks=(400, 1500), dtype=np.float32)
    assert isinstance(ss.auto_solver(tall, 50), ss.BlockLanczos)
    assert isinstance(ss.auto_solver(tall.rechunk((8000, 1500)), 50), ss.Gram)
    for wide in (da.zeros((48, 100_000), chunks=(4, 100_000)), da.zeros((2000, 40_000), chunks=(20, 40_000))):
        assert isinstance(ss.auto_solver(wide, 3), ss.BlockLanczos)


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "lancos"},
        {"scale": "stdd"},
        {"scale": np.ones(5)},
        {"shift": "meen"},
        {"shift": np.ones(5)},
        {"shift": ss.GroupMeans()},
        {"n_components": 0.5, "solver": "randomized"},
    ],
    ids=str,
)
def test_settings_are_refused_before_anything_is_read(settings: dict[str, Any], counted: Any) -> None:
    X, loads = counted
    with pytest.raises(ValueError, match=r"must be|needs"):
        ss.PCA(**{"n_components": 2, **settings}).fit(X)
    assert loads.n == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "lancos", "shift": "mean"},
        {"scale": "stdd"},
        {"shift": "meen"},
        {"k": 0.5, "shift": "mean", "solver": "randomized"},
    ],
    ids=str,
)
def test_settings_of_svd_are_refused_before_anything_is_read(settings: dict[str, Any], counted: Any) -> None:
    X, loads = counted
    with pytest.raises(ValueError, match=r"must be|needs"):
        ss.svd(X, **{"k": 2, **settings})
    assert loads.n == 0


@pytest.mark.parametrize("estimator", [ss.TruncatedSVD, ss.CorrespondenceAnalysis])
def test_a_solver_that_is_none_is_refused_before_anything_is_read(estimator: Any, counted: Any) -> None:
    X, loads = counted
    with pytest.raises(ValueError, match="solver must be one of"):
        estimator(2, solver="lancos").fit(X)
    assert loads.n == 0


def test_what_comes_in_is_judged_as_in_memory(counted: Any) -> None:
    X, loads = counted
    table = np.abs(D) + 1
    table[3, 4] = -1
    with pytest.raises(ValueError, match="at least 0, got -1"):
        ss.CorrespondenceAnalysis(2).fit(da.from_array(table, chunks=50))
    with pytest.raises(ValueError, match=r'in memory, got .*or use "elbow"'):
        ss.suggest_k(X, "cv", rng=0)
    pca = ss.PCA(2).fit(D)
    with pytest.raises(ValueError, match="Complex data not supported by PCA"):
        pca.transform(X.astype(complex))
    assert loads.n == 0


def test_a_dask_frame_is_refused_with_the_remedy() -> None:
    frame = pytest.importorskip("dask.dataframe").from_dict({"a": [1.0, 2.0]}, npartitions=1)
    with pytest.raises(TypeError, match=r"to_dask_array\(lengths=True\)"):
        ss.PCA(1).fit(frame)


@pytest.mark.parametrize("kind", [D + 1j * D, D.astype(object), D.astype(str)], ids=["complex", "object", "text"])
def test_a_chunk_that_is_not_what_the_array_says_is_named(kind: Any) -> None:
    X = da.from_delayed(dask.delayed(kind), D.shape, float)
    with pytest.raises(
        ValueError, match=r"chunk 0 of .* must hold numbers like float64, as the Dask array declares, got"
    ):
        ss.svd(X, 2, shift="mean")


def test_other_data_are_not_taken_for_those_of_a_broken_run(tmp_path: Any) -> None:
    other = D.copy()
    other[100:] *= 7
    settings = {"random_state": 0, "solver": "lanczos"}

    def broken() -> None:
        with ss.checkpoint(tmp_path / "reads"):
            ss.PCA(2, **settings).fit(da.from_array(D, chunks=50))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    again = da.from_array(other, chunks=50)
    with pytest.raises(ValueError, match="reads"), ss.checkpoint(tmp_path / "reads"):
        ss.PCA(2, **settings).fit(again)
