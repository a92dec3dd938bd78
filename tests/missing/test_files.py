"""Files with missing entries: the same as the matrix in memory, whatever way round and however large."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.missing.opening import open_with_gaps
from tests.support.holes import holed, stored_nan


@pytest.fixture
def X() -> np.ndarray:
    return holed((60, 8))


def fitted(given: object, missing: str = "mean", **settings: object) -> ss.PCA:
    return ss.PCA(3, missing=missing, scale=True, tol=1e-10, random_state=0, **settings).fit(given)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("missing", ["mean", "em"])
@pytest.mark.parametrize("orient", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["npy", "npz", "csc"])
def test_a_file_with_gaps_is_fitted_as_the_matrix_in_memory(kind, orient, missing, X, tmp_path: Path):
    D, held = (X, X) if kind == "npy" else stored_nan(X)
    stored = D if orient == "rows" else D.T
    path = tmp_path / ("X.npy" if kind == "npy" else "X.npz")
    if kind == "npy":
        np.save(path, stored)
    else:
        sparse.save_npz(path, sparse.csr_array(stored) if kind == "npz" else sparse.csc_array(stored))
    gaps, names = open_with_gaps(path, whole=missing == "em", orient=orient)
    assert (gaps.shape, gaps.stored, gaps.dtype) == (X.shape, np.count_nonzero(D), np.float64)
    assert names == (None, None)
    pca, want = fitted(gaps, missing), fitted(held, missing)
    np.testing.assert_allclose(pca.singular_values_, want.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(pca.transform(gaps), want.transform(held), atol=1e-8)


def test_what_a_sparse_file_does_not_store_can_be_missing(X, tmp_path: Path):
    R = sparse.csr_array(np.nan_to_num(X))
    sparse.save_npz(tmp_path / "X.npz", R)
    gaps, _ = open_with_gaps(tmp_path / "X.npz", unobserved=True)
    pca, want = fitted(gaps, unobserved=True), fitted(R, unobserved=True)
    np.testing.assert_allclose(pca.mean_, np.nanmean(X, axis=0))
    np.testing.assert_allclose(pca.singular_values_, want.singular_values_)


def test_a_large_file_is_read_in_blocks_where_that_is_possible(tmp_path: Path):
    X = holed((4000, 50))
    path = tmp_path / "X.npy"
    np.save(path, X)
    gaps, _ = open_with_gaps(path, memory_limit="3M")
    assert type(gaps).__name__ == "FileGaps"
    np.testing.assert_allclose(fitted(gaps).singular_values_, fitted(X).singular_values_)
    weights = np.arange(4000.0) ** 2
    model, want = (ss.PCA(2, missing="mean", tol=1e-10).fit(each, sample_weight=weights) for each in (gaps, X))
    for name in ("mean_", "singular_values_"):
        np.testing.assert_allclose(getattr(model, name), getattr(want, name))
    for refused in ({"whole": True}, {"orient": "columns"}, {"unobserved": True}):
        with pytest.raises(ValueError, match=r"X\.npy.*would take 1\.6 MB, more than the limit of 1 MB of memory"):
            open_with_gaps(path, memory_limit="1M", **refused)


@pytest.mark.parametrize(
    ("message", "entry", "settings"),
    [
        ("got a dense one", np.nan, {"unobserved": True}),
        ("got 1 inf", np.inf, {}),
        ("orient must be", np.nan, {"orient": 1}),
    ],
)
def test_what_cannot_be_is_refused_with_the_name_of_the_file(message, entry, settings, X, tmp_path: Path):
    X[3, 3] = entry
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match=message):
        open_with_gaps(tmp_path / "X.npy", **settings)


@pytest.mark.parametrize("orient", ["rows", "columns"])
@pytest.mark.parametrize("missing", ["mean", "em"])
@pytest.mark.parametrize("suffix", ["csv", "npy", "npz"])
def test_a_matrix_of_a_file_is_fitted_as_the_array(suffix: str, missing: str, orient: str, tmp_path: Path) -> None:
    path, full = tmp_path / f"a.{suffix}", np.random.default_rng(0).normal(size=(9, 4)).round(2)
    for X in (full, np.where(full == full[2, 1], np.nan, full)):
        if suffix == "csv":
            path.write_text("a,b,c,d\n" + "\n".join(",".join(map(str, row)) for row in X).replace("nan", "") + "\n")
        elif suffix == "npy":
            np.save(path, X)
        else:
            sparse.save_npz(path, sparse.csr_array(X))
        settings = ss.io.profile(path).settings if suffix == "csv" else {}
        A, _ = ss.io.open_matrix(path, orient=orient, **settings)
        pca = ss.PCA(2, missing=missing, random_state=0).fit(X if orient == "rows" else X.T)
        fitted = ss.PCA(2, missing=missing, random_state=0).fit(A)
        np.testing.assert_allclose(fitted.singular_values_, pca.singular_values_, rtol=1e-6)
        pca.save(tmp_path / "m.safetensors", force=True)
        scores = ss.load_model(tmp_path / "m.safetensors").transform(A)
        np.testing.assert_allclose(scores, pca.transform(X if orient == "rows" else X.T), atol=1e-8)
    products = [lambda: ss.svd(A, 2), lambda: A @ np.eye(A.shape[1]), lambda: ss.PCA(2, preprocess="sqrt").fit(A)]
    for product in products:
        with pytest.raises(ValueError, match=r"a\.(csv|np.).* missing=\"mean\" or missing=\"em\""):
            product()


def test_a_streamed_file_of_columns_names_the_way_to_read_it(X: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    A, _ = ss.io.open_matrix(tmp_path / "a.npy", orient="columns", stream=True)
    with pytest.raises(ValueError, match="Pass stream=False to open_matrix"):
        ss.PCA(2, missing="mean").fit(A)
