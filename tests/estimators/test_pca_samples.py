"""What PCA takes for samples: operators are held to the rules that arrays are held to."""

import numpy as np
import pytest

import shiftsvd as ss

X = np.random.default_rng(0).standard_normal((30, 6))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform", "score_samples"])
def test_complex_operators_are_refused_as_complex_arrays_are(method: str) -> None:
    # The scores of complex data need conjugated components, and their variances would come out as complex numbers.
    pca = ss.PCA(2, random_state=0)
    pca = pca if "fit" in method else pca.fit(X)
    for data in (1j * X, ss.as_operator(1j * X)):
        with pytest.raises(ValueError, match="Complex data not supported"):
            getattr(pca, method)(data)


def test_one_row_is_no_sample_of_anything_and_leaves_no_trace() -> None:
    pca = ss.PCA(1)
    for data in (X[:1], ss.as_operator(X[:1])):
        with pytest.raises(ValueError, match=r"Found array with 1 sample\(s\)"):
            pca.fit(data)
    assert not hasattr(pca, "n_features_in_")


def test_operators_must_have_the_features_of_the_fit() -> None:
    pca = ss.PCA(2).fit(ss.as_operator(X))
    for data in (X[:, :5], ss.as_operator(X[:, :5])):
        with pytest.raises(ValueError, match="X has 5 features, but PCA is expecting 6 features as input"):
            pca.transform(data)


def test_scores_are_the_same_whatever_holds_the_rows_and_however_they_come() -> None:
    pca = ss.PCA(2, whiten=True, random_state=0).fit(X)
    Z = pca.transform(X)
    assert np.array_equal(pca.transform(ss.as_operator(X)), Z)
    assert np.array_equal(np.concatenate([part for _, part in pca.iter_scores(X)]), Z)
    assert pca.transform(X.astype(np.float32)).dtype == np.float32
