"""scikit-learn's own checks of an estimator, for every solver."""

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss

OTHERS = [
    {"svd_solver": "randomized"},
    {"solver": "exact"},
    {"solver": "randomized"},
    {"solver": "shifted-randomized"},
    {"solver": ss.RandomizedSVD()},
    {"solver": ss.Exact()},
    {"svd_solver": "auto"},
    {"svd_solver": "full"},
    {"svd_solver": "covariance_eigh"},
    {"svd_solver": "arpack"},
]
CHANGES_RANK = "weights of 0 and repetition change min(n_samples, n_features), hence the number of components"
CANNOT_HOLD = [
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
]


@parametrize_with_checks([ss.PCA(n_components=2)])
def test_every_check_passes_with_two_components(estimator, check):
    check(estimator)


@pytest.mark.long
@parametrize_with_checks([ss.PCA(n_components=2, **solver) for solver in OTHERS])
def test_every_check_passes_with_every_solver(estimator, check):
    check(estimator)


@pytest.mark.long
@parametrize_with_checks([ss.PCA()], expected_failed_checks=lambda estimator: dict.fromkeys(CANNOT_HOLD, CHANGES_RANK))
def test_every_check_passes_with_all_components_but_those_that_cannot_hold(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", CANNOT_HOLD)
def test_what_cannot_hold_fails_by_the_number_of_components_alone(name):
    with pytest.raises(AssertionError, match=r"shapes \(15, 27\), \(15, 15\) mismatch"):
        getattr(estimator_checks, name)("PCA", ss.PCA())
    getattr(estimator_checks, name)("PCA", ss.PCA(n_components=5))
