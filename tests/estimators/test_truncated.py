"""TruncatedSVD equals scikit-learn's and the dense computation, and says when a component is only the mean."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import decomposition
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss
from tests.support.containers import streamed
from tests.support.operators import Minimal


def data(seed=0, m=300, n=40, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 6)) * 3.0 ** -np.arange(6) @ rng.standard_normal((6, n))
    return np.where(rng.random((m, n)) < 0.4, X, 0) + offset


@pytest.mark.parametrize("make", [np.array, sparse.csr_array, sparse.csc_array, ss.as_operator, streamed(np.copy)])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_equals_the_dense_computation(make, offset):
    D = data(offset=offset)
    X, k = make(D), 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if offset else "error")
        svd = ss.TruncatedSVD(k, tol=1e-12, random_state=0).fit(X)
    U, S, _ = np.linalg.svd(D, full_matrices=False)
    assert svd.singular_values_ == pytest.approx(S[:k], rel=1e-9)
    Z = svd.transform(X)
    np.testing.assert_allclose(np.abs(Z), np.abs(U * S)[:, :k], atol=1e-6 * S[0])
    # The scores are about their mean, which the explicit computation must subtract before it multiplies.
    centred = (D - D.mean(axis=0)) @ svd.components_.T
    assert svd.explained_variance_ == pytest.approx(np.mean(centred**2, axis=0), rel=1e-8)
    total = np.mean((D - D.mean(axis=0)) ** 2, axis=0).sum()
    assert svd.explained_variance_ratio_ == pytest.approx(np.mean(centred**2, axis=0) / total, rel=1e-8)
    mean = D.mean(axis=0) / np.linalg.norm(D.mean(axis=0))
    assert svd.mean_alignment_ == pytest.approx(np.abs(svd.components_ @ mean), abs=1e-12)


@pytest.mark.parametrize("algorithm", ["arpack", "randomized"])
def test_swaps_in_for_scikit_learn(algorithm):
    X = sparse.csr_array(data())
    settings = {"n_components": 4, "algorithm": algorithm, "n_iter": 8, "random_state": 0, "tol": 0.0}
    ours, theirs = (cls(**settings).fit(X) for cls in (ss.TruncatedSVD, decomposition.TruncatedSVD))
    for name in ("singular_values_", "explained_variance_", "explained_variance_ratio_", "components_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-5)
    Z = theirs.transform(X)
    np.testing.assert_allclose(ours.inverse_transform(Z), theirs.inverse_transform(Z), atol=1e-4)
    names = set(vars(theirs)) - {"n_features_in_"}
    assert {name for name in names if name.endswith("_")} <= set(vars(ours))


def test_a_component_that_is_only_the_mean_is_named():
    counts = np.random.default_rng(0).poisson(5, (500, 30)).astype(float)
    with pytest.warns(UserWarning, match=r"first component is the mean of the rows \(\|cos\| = 1\.0000\)") as seen:
        svd = ss.TruncatedSVD(4, random_state=0).fit(counts)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = ss.TruncatedSVD(3, random_state=0).fit(counts)  # it was said to this process
    assert "Pass warn_mean=False to silence it" in str(seen[0].message)
    assert other.mean_alignment_[0] > 0.99
    assert svd.mean_alignment_[0] > 0.99
    assert np.all(svd.mean_alignment_[1:] < 0.2)
    assert svd.explained_variance_ratio_[0] < svd.explained_variance_ratio_[1]


def test_the_warning_of_the_mean_can_be_left_out():
    counts = np.random.default_rng(0).poisson(5, (500, 30)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ss.TruncatedSVD(4, random_state=0, warn_mean=False).fit(counts).mean_alignment_[0] > 0.99
    with pytest.warns(UserWarning, match="The first component is the mean"):
        ss.TruncatedSVD(4, random_state=0).fit(counts)


def test_centred_data_have_no_such_component():
    X = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svd = ss.TruncatedSVD(3, tol=1e-10).fit(X - X.mean(axis=0))
    pca = ss.PCA(3, tol=1e-10).fit(X)
    assert svd.singular_values_ == pytest.approx(pca.singular_values_, rel=1e-8)
    assert svd.explained_variance_ratio_ == pytest.approx(pca.explained_variance_ratio_, rel=1e-8)


@pytest.mark.long
def test_values_come_with_a_certificate():
    X = sparse.random_array((4000, 1500), density=0.01, rng=np.random.default_rng(0), format="csr")
    X.data -= 0.5
    svd = ss.TruncatedSVD(10, random_state=0).fit(X)
    assert svd.info_.converged
    assert np.all(svd.info_.value_errors <= 1e-4)
    exact = np.linalg.svd(X.toarray(), compute_uv=False)[:10]
    assert np.all(np.abs(svd.singular_values_ - exact) <= svd.info_.value_errors * exact + 1e-12)


def test_a_share_takes_the_fewest_components():
    X = data()
    squares = np.cumsum(np.linalg.svd(X, compute_uv=False) ** 2)
    svd = ss.TruncatedSVD(0.9).fit(X)
    assert len(svd.singular_values_) == np.searchsorted(squares / squares[-1], 0.9, side="right") + 1


def test_a_second_fit_without_a_transformation_forgets_the_first():
    X = np.abs(data())
    svd, plain = (ss.TruncatedSVD(3, preprocess=how, warn_mean=False, random_state=0).fit(X) for how in ("sqrt", None))
    again = svd.set_params(preprocess=None).fit(X)
    np.testing.assert_array_equal(again.transform(X), plain.transform(X))


def test_frames_and_precision_are_kept():
    X = data()
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(X.shape[1])])
    svd = ss.TruncatedSVD(2, random_state=0).set_output(transform="pandas").fit(frame)
    assert list(svd.transform(frame).columns) == ["truncatedsvd0", "truncatedsvd1"]
    assert list(svd.feature_names_in_) == list(frame.columns)
    single = ss.TruncatedSVD(2, random_state=0).fit(X.astype(np.float32))
    assert single.transform(X.astype(np.float32)).dtype == single.components_.dtype == np.float32


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (data(), {"n_components": 41}, r"1\.\.40"),
        (data(), {"n_components": 0}, r"1\.\.40"),
        (data(), {"n_components": 2.5}, "share"),
        (data(), {"algorithm": "lobpcg"}, "algorithm must be"),
        (data(), {"algorithm": "arpack", "solver": "exact"}, "not both"),
        (data(), {"algorithm": "randomized", "n_iter": -1}, "n_iter"),
        (data(), {"algorithm": "randomized", "power_iteration_normalizer": "qr"}, "normalizer"),
        (data(), {"tol": -1}, "at least 0"),
        (data(), {"tol": 1e-3, "solver": ss.Exact()}, "solver object"),
        (data(), {"solver": "magic"}, "solver must be"),
        (np.full((3, 3), np.nan), {}, "9 NaN"),
        (Minimal(np.ones((3, 1001))), {}, "variances"),
        (Minimal(data().astype(complex)), {}, "Complex"),
    ],
)
def test_what_cannot_be_is_refused(X, settings, message):
    with pytest.raises(ValueError, match=message):
        ss.TruncatedSVD(**settings).fit(X)


def test_variances_of_what_only_multiplies_are_made_by_products():
    svd, known = (ss.TruncatedSVD(2, solver="exact").fit(X) for X in (Minimal(data()), data()))
    np.testing.assert_allclose(svd.explained_variance_ratio_, known.explained_variance_ratio_, rtol=1e-10)


def test_scores_need_the_right_shape():
    svd = ss.TruncatedSVD(2).fit(data())
    with pytest.raises(ValueError, match=r"\(n_samples, 2\)"):
        svd.inverse_transform(np.ones((3, 3)))
    with pytest.raises(ValueError, match="expecting 40 features"):
        svd.transform(ss.as_operator(np.ones((3, 5))))


@pytest.mark.filterwarnings("ignore:the first component is the mean")
@parametrize_with_checks([ss.TruncatedSVD()])
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the first component is the mean")
@parametrize_with_checks([ss.TruncatedSVD(algorithm="randomized"), ss.TruncatedSVD(algorithm="arpack")])
def test_every_check_of_scikit_learn_passes_with_its_other_algorithms(estimator, check):
    check(estimator)
