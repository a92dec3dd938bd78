"""PCA on every container of numbers: the same model, nothing modified, sparse never dense."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse import csc_array, csc_matrix, csr_array, csr_matrix
from sklearn.datasets import load_digits

import shiftsvd as ss
from tests.support.pca_data import EPS, SHAPES, SOLVERS, assert_same, counts
from tests.support.sampling import in_turn


def int64_indices(kind):
    def made(X):
        X = kind(X)
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        return X

    return made


def unsorted_with_duplicates(X):
    """The same matrix with each entry in two halves, columns backwards."""
    X = csr_array(X)
    indices = np.concatenate([np.tile(X.indices[a:b][::-1], 2) for a, b in zip(X.indptr, X.indptr[1:], strict=False)])
    data = np.concatenate([np.tile(X.data[a:b][::-1] / 2, 2) for a, b in zip(X.indptr, X.indptr[1:], strict=False)])
    return csr_array((data, indices, 2 * X.indptr), shape=X.shape)


def with_explicit_zeros(X):
    X = csr_array(X)
    X.data[::7] = 0
    dense = X.toarray()
    assert np.count_nonzero(dense) < X.nnz
    return X


def sparse_frame(X):
    return pd.DataFrame.sparse.from_spmatrix(csr_array(X), columns=[f"g{j}" for j in range(X.shape[1])])


CONTAINERS = {
    "csr_array": csr_array,
    "csr_matrix": csr_matrix,
    "csc_array": csc_array,
    "csc_matrix": csc_matrix,
    "csr_int64": int64_indices(csr_array),
    "csc_int64": int64_indices(csc_array),
    "coo": sparse.coo_array,
    "lil": sparse.lil_array,
    "bsr": sparse.bsr_array,
    "dok": sparse.dok_array,
    "duplicates": unsorted_with_duplicates,
    "pandas_sparse": sparse_frame,
}


CORE = ["csr_array", "csr_matrix", "csc_array", "csc_matrix", "csr_int64", "csc_int64"]
CASES = in_turn(CORE, SOLVERS, 4) + in_turn([name for name in CONTAINERS if name not in CORE], SOLVERS[:3], 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("container", "settings"), CASES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_sparse_equals_dense_for_every_solver(container, settings, shape):
    X = counts(shape)
    dense = ss.PCA(4, random_state=0, **settings).fit(X.toarray())
    A = CONTAINERS[container](X)
    pca = ss.PCA(4, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pandas.DataFrame with sparse columns found")
        Z = pca.fit_transform(A)
    assert_same(pca, dense, X)
    assert isinstance(Z, np.ndarray)
    gap = np.abs(np.diff(dense.singular_values_)).min()
    size = sparse.linalg.norm(X)
    assert np.abs(Z - dense.transform(X.toarray())).max() <= 1000 * EPS * size**2 / gap


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint8, np.int8, bool, np.float16])
@pytest.mark.parametrize("container", [csr_array, csc_array])
def test_sparse_numbers_of_every_kind_equal_their_dense_values(dtype, container):
    X = (counts((60, 25)) * 3).astype(dtype) if dtype is not np.float16 else counts((60, 25)) * 3
    dense = X.toarray().astype(dtype)
    A = container(X)
    if dtype is np.float16:
        A.data = A.data.astype(dtype)
    pca = ss.PCA(4).fit(A)
    exact = ss.PCA(4).fit(dense.astype(np.float64))
    single = dtype in (np.float32, np.float16)
    assert pca.components_.dtype == (np.float32 if single else np.float64)
    eps = np.finfo(pca.components_.dtype).eps
    assert np.abs(pca.singular_values_ - exact.singular_values_).max() <= 30 * eps * np.linalg.norm(dense.astype(float))
    assert np.abs(np.abs((pca.components_ * exact.components_).sum(axis=1)) - 1).max() <= 1000 * eps


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_explicit_zeros_change_nothing(settings):
    X = with_explicit_zeros(counts((60, 25)))
    pruned = X.copy()
    pruned.eliminate_zeros()
    a, b = (ss.PCA(3, random_state=0, **settings).fit(A) for A in (X, pruned))
    assert_same(a, b, X)


class NeverDense(csr_matrix):
    """A sparse matrix that cannot become dense."""

    def toarray(self, *args, **kwargs):
        raise AssertionError("densified")

    todense = toarray
    __array__ = toarray


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sparse_matrix_is_never_densified(settings, shape, monkeypatch):
    X = counts(shape)
    for kind in (csr_array, csc_array, csr_matrix, csc_matrix, sparse.coo_array):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, NeverDense.toarray)
    A = NeverDense(X)
    pca = ss.PCA(3, random_state=0, **settings).fit(A)
    Z = pca.transform(A)
    assert pca.fit_transform(A).shape == (shape[0], 3)
    assert np.isfinite(Z).all()
    pca.score_samples(A)
    pca.set_params(scale=True, whiten=True).fit(A, sample_weight=np.ones(shape[0])).transform(A)
    if "svd_solver" not in settings and settings["solver"] in ("auto", "exact"):
        ss.PCA(0.5).fit(A)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_of_a_dense_array_in_memory_changes_nothing(order, shape):
    X = counts(shape).toarray()
    assert_same(ss.PCA(4).fit(np.asarray(X, order=order)), ss.PCA(4).fit(X), X)
    strided = np.zeros((2 * shape[0], 3 * shape[1]))[::2, ::-3]
    strided[...] = X
    assert_same(ss.PCA(4).fit(strided), ss.PCA(4).fit(X), X)


def test_a_memory_map_and_a_read_only_array_are_read_in_place(tmp_path):
    X = load_digits().data[:200]
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    frozen = X.copy()
    frozen.flags.writeable = False
    for A in (mapped, frozen):
        pca = ss.PCA(5)
        Z = pca.fit_transform(A)
        assert np.array_equal(pca.components_, ss.PCA(5).fit(X).components_)
        assert np.array_equal(Z, pca.transform(X))


def test_read_only_sparse_arrays_are_read_in_place():
    X = counts((60, 25))
    for container in (csr_array, csc_array):
        A = container(X)
        for part in (A.data, A.indices, A.indptr):
            part.flags.writeable = False
        assert_same(ss.PCA(3).fit(A), ss.PCA(3).fit(X), X)
        assert ss.PCA(3).fit(A).transform(A).shape == (60, 3)


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("copy", [True, False])
def test_input_is_never_modified(settings, dtype, copy):
    X = (10 * counts((50, 20))).astype(dtype)
    weights = np.arange(50) % 3
    inputs = [X.toarray(), np.asfortranarray(X.toarray()), X, csc_array(X)]
    if dtype is not np.uint8:
        inputs.append(unsorted_with_duplicates(X))
    for A in inputs:
        parts = [A] if isinstance(A, np.ndarray) else [A.data, A.indices, A.indptr]
        before = [part.copy() for part in parts]
        pca = ss.PCA(3, random_state=0, scale=True, copy=copy, **settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*constant and w")
            pca.fit(A, sample_weight=weights)
        pca.transform(A)
        pca.score_samples(A)
        for part, old in zip(parts, before, strict=True):
            assert np.array_equal(part, old)
        assert parts[0].dtype == dtype


@pytest.mark.parametrize("copy", [True, False])
def test_a_vector_of_settings_is_stored_untouched(copy):
    mu, scale = np.linspace(-1, 1, 20), np.linspace(1, 2, 20)
    pca = ss.PCA(3, shift=mu, scale=scale, copy=copy)
    assert pca.get_params()["shift"] is mu
    pca.fit(counts((50, 20)))
    assert pca.shift is mu
    assert pca.scale is scale
    assert np.array_equal(mu, np.linspace(-1, 1, 20))
    # What was fitted does not follow when the caller's array changes.
    fitted = pca.mean_.copy()
    mu[:] = 7
    scale[:] = 7
    assert np.array_equal(pca.mean_, fitted)
    assert np.array_equal(pca.scale_, np.linspace(1, 2, 20))
