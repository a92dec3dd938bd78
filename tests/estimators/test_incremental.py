"""IncrementalPCA means what scikit-learn's means: its own tests pass with ours, and batches change nothing."""

import inspect
import itertools

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss
from shiftsvd.io import open_matrix

theirs = pytest.importorskip("sklearn.decomposition.tests.test_incremental_pca")
# What scikit-learn's tests want that we do otherwise.
OTHERWISE = {"test_incremental_pca_sparse": "partial_fit takes sparse rows, which scikit-learn's refuses"}
X = load_digits().data


@pytest.mark.parametrize(
    "name", [name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if name.startswith("test_")]
)
def test_every_test_of_scikit_learn_passes_but_those_that_are_named(name, monkeypatch):
    monkeypatch.setattr(theirs, "IncrementalPCA", ss.IncrementalPCA)
    test = getattr(theirs, name)
    given = {"global_random_seed": 0, "sparse_container": sparse.csr_array}
    arguments = {key: given[key] for key in inspect.signature(test).parameters}
    if name not in OTHERWISE:
        test(**arguments)
        return
    with pytest.raises(pytest.fail.Exception, match=r"DID NOT RAISE .*TypeError"):
        test(**arguments)


@pytest.mark.long
@parametrize_with_checks([ss.IncrementalPCA(n_components=2)])
def test_every_check_of_an_estimator_passes(estimator, check):
    check(estimator)


def test_it_has_the_settings_and_attributes_of_scikit_learn():
    ours, other = ss.IncrementalPCA(5, batch_size=300), theirs.IncrementalPCA(5, batch_size=300)
    assert set(other.get_params()) <= set(ours.get_params())
    assert inspect.signature(type(ours).partial_fit).parameters.keys() >= {"X", "y", "check_input"}
    ours.fit(X)
    other.fit(X)
    for name in (name for name in vars(other) if name.endswith("_")):
        assert np.shape(getattr(ours, name)) == np.shape(getattr(other, name)), name
    for name in ("mean_", "var_", "n_samples_seen_", "batch_size_", "n_components_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(other, name), rtol=1e-10)
    np.testing.assert_allclose(ours.explained_variance_, other.explained_variance_, rtol=0.05)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.csc_array, sparse.lil_array])
def test_the_result_is_that_of_all_rows_at_once(container):
    exact = ss.PCA(6, solver="exact").fit(X)
    for size in (None, 97, 1797):
        ipca = ss.IncrementalPCA(6, batch_size=size)
        Z = ipca.fit_transform(container(X))
        np.testing.assert_allclose(ipca.singular_values_, exact.singular_values_, rtol=1e-10)
        np.testing.assert_allclose(Z, exact.transform(X), atol=1e-8 * np.abs(Z).max())
        np.testing.assert_allclose(ipca.var_, X.var(axis=0), atol=1e-10)
    parts = ss.IncrementalPCA(6)
    for lo, hi in itertools.pairwise([0, 500, 501, 1797]):
        parts.partial_fit(container(X)[lo:hi] if container is not sparse.csc_array else sparse.csc_array(X[lo:hi]))
    assert parts.n_samples_seen_ == 1797
    np.testing.assert_allclose(parts.singular_values_, exact.singular_values_, rtol=1e-10)


def test_names_files_and_memory(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"pixel{j}" for j in range(64)])
    ipca = ss.IncrementalPCA(3, batch_size=100).fit(frame)
    assert list(ipca.feature_names_in_[:2]) == ["pixel0", "pixel1"]
    ipca.partial_fit(frame[:10])
    assert (ipca.n_samples_seen_, ipca.batch_size_) == (1807, 100)
    assert ss.IncrementalPCA(3).fit(frame).batch_size_ == 5 * 64
    assert list(ipca.feature_names_in_[:2]) == ["pixel0", "pixel1"]
    np.save(tmp_path / "X.npy", X)
    A, _ = open_matrix(tmp_path / "X.npy", stream=True)
    np.testing.assert_allclose(
        ss.IncrementalPCA(3).fit(A).singular_values_, ss.PCA(3).fit(X).singular_values_, rtol=1e-4
    )


def test_what_cannot_be_is_refused_and_leaves_what_was_there():
    ipca = ss.IncrementalPCA(3).fit(X)
    before = ipca.singular_values_
    for settings, message in (
        ({"batch_size": 0}, "batch_size must be a positive integer or None, got 0"),
        ({"n_components": 0}, "n_components must be a positive integer or None, got 0"),
        ({"n_components": 65}, "n_components=65 invalid for n_features=64"),
    ):
        with pytest.raises(ValueError, match=message):
            ipca.set_params(**settings).fit(X)
        ipca.set_params(n_components=3, batch_size=None)
        assert ipca.singular_values_ is before
    bad = X.copy()
    bad[1700, 3] = np.nan
    with pytest.raises(ValueError, match="got 1 NaN in column"):
        ipca.set_params(batch_size=100).fit(bad)
    assert ipca.n_samples_seen_ == 1797
    with pytest.raises(
        ValueError, match=r"n_components changed from 3 to 2 between calls to partial_fit\. Set n_components back to 3"
    ):
        ipca.set_params(n_components=2).partial_fit(X)


def test_a_merge_keeps_the_number_of_components():
    three, of_first = (ss.IncrementalPCA(k).partial_fit(X[:10]) for k in (3, None))
    rest = ss.IncrementalPCA(3).partial_fit(X[10:])
    assert np.allclose(ss.merge_pca(three, rest).singular_values_, ss.IncrementalPCA(3).fit(X).singular_values_)
    assert ss.merge_pca(of_first, rest).n_components_ == of_first.n_components_ == 10


def test_a_stream_in_memory_that_may_not_be_written_to_goes_on(tmp_path):
    joblib = pytest.importorskip("joblib")
    for fitted in (ss.IncrementalPCA(3).fit(X), ss.PCA(3).partial_fit(X)):
        joblib.dump(fitted, tmp_path / "fitted")
        mapped = joblib.load(tmp_path / "fitted", mmap_mode="r")
        assert np.array_equal(mapped.transform(X), fitted.transform(X))
        assert np.array_equal(mapped.partial_fit(X[:9]).components_, fitted.partial_fit(X[:9]).components_)
