"""Bad settings are refused with the rule, the value and the remedy, before any work."""

import re

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, random_array

import shiftsvd as ss
from tests.support.doors import OURS, X, refuses

# Numbers of components


@pytest.mark.parametrize("k", [0, -1, 7, True, None, "3", "mle"])
def test_k_of_svd_is_an_integer_in_range(k):
    for A in (X, csr_array(X)):
        message = f"k must be an integer in 1..6 for a 10 x 6 matrix, got {k!r}"
        refuses(message, lambda A=A: ss.svd(A, k))


@pytest.mark.parametrize("k", [0.0, 1.0, 2.0, 1.5, -0.5, np.nan])
def test_a_float_k_is_a_share_between_0_and_1(k):
    refuses(f"k must be an integer, or a share of the variance between 0 and 1, got {k}", lambda: ss.svd(X, k))
    message = f'n_components must be an integer, a float in (0, 1), None or "mle"{{}}, got {k!r}'
    refuses(message.format(""), lambda: ss.PCA(k).fit(X))
    refuses(message.format(" with svd_solver='full'"), lambda: ss.PCA(k, svd_solver="full").fit(X))


@pytest.mark.parametrize("solver", [{}, {"solver": "exact"}, {"solver": "randomized"}, {"solver": ss.Exact()}])
@pytest.mark.parametrize("k", [-1, 7, 100])
def test_n_components_is_between_0_and_the_smaller_side(k, solver):
    message = f"n_components={k} must be between 0 and min(n_samples, n_features)=6"
    for A in (X, csr_array(X), X.T, csc_array(X.T)):
        with pytest.raises(ValueError, match=re.escape(message) + "$"):
            ss.PCA(k, **solver).fit(A)
    refuses(f"{message} with svd_solver='full'", lambda: ss.PCA(k, svd_solver="auto").fit(X))


@pytest.mark.parametrize("svd_solver", ["arpack", "randomized"])
def test_n_components_of_truncated_solvers_is_at_least_1(svd_solver):
    for k in (0, 7):
        message = f"n_components={k} must be between 1 and min(n_samples, n_features)=6 with svd_solver='{svd_solver}'"
        refuses(message, lambda k=k: ss.PCA(k, svd_solver=svd_solver).fit(X))
    for k in (0.5, True):
        message = f"n_components must be an integer with svd_solver='{svd_solver}', got {k}"
        refuses(message, lambda k=k: ss.PCA(k, svd_solver=svd_solver).fit(X))
    message = f'n_components="mle" cannot be a string with svd_solver={svd_solver!r}. Remove svd_solver.'
    refuses(message, lambda: ss.PCA("mle", svd_solver=svd_solver).fit(X))


def test_booleans_and_words_are_no_number_of_components():
    refuses("n_components must be an integer, a float in (0, 1)", lambda: ss.PCA(True).fit(X))
    refuses("""n_components must be a number, None or "mle", got 'all'""", lambda: ss.PCA("all").fit(X))


def test_minka_needs_tall_data_of_at_most_5000_features():
    message = 'n_components="mle" is only supported if n_samples >= n_features, got 6 x 10'
    refuses(message, lambda: ss.PCA("mle").fit(X.T))
    refuses("at most 5,000 features, got 5,001", lambda: ss.PCA("mle").fit(csr_array((5002, 5001))))


def test_a_share_or_mle_takes_an_exact_solution():
    message = 'needs solver="auto", "lanczos", "gram" or "exact", got'
    for solver in ("randomized", "shifted-randomized", ss.RandomizedSVD()):
        refuses(message, lambda solver=solver: ss.svd(X, 0.5, solver=solver))
        refuses(message, lambda solver=solver: ss.PCA(0.5, solver=solver).fit(X))
        refuses('needs solver="auto" or "exact", got', lambda solver=solver: ss.PCA("mle", solver=solver).fit(X))


# Shifts and scales

VECTORS = {
    "short": (np.ones(5), "must be a numeric vector with one entry per feature, shape (6,), got float64 (5,)"),
    "column": (np.ones((6, 1)), "one entry per feature, shape (6,), got float64 (6, 1)"),
    "scalar": (1.5, "one entry per feature, shape (6,), got float64 ()"),
    "text": (np.array(list("abcdef")), "one entry per feature, shape (6,), got <U1 (6,)"),
    "nan": (np.array([1, np.nan, 1, np.inf, 1, 1]), "must be finite, got 2 NaN or infinite values"),
}


@pytest.mark.parametrize("door", OURS)
@pytest.mark.parametrize("name", ["shift", "scale"])
@pytest.mark.parametrize("vector", VECTORS)
def test_a_vector_has_one_finite_number_per_feature(vector, name, door):
    value, message = VECTORS[vector]
    for A in (X, csr_array(X)):
        refuses(f"{name} must", lambda A=A: OURS[door](A, **{name: value}))
        refuses(message, lambda A=A: OURS[door](A, **{name: value}))


def test_a_shift_or_scale_that_is_misspelt_is_quoted_beside_the_choices():
    refuses(
        'shift must be None, "mean", "rows", "both", a vector, Covariates, GroupMeans, a LowRank or an Operator, '
        "got 'meen'",
        lambda: ss.svd(X, 2, shift="meen"),
    )
    refuses(
        """shift must be "mean", "rows", "both", None, a vector, GroupMeans() or Covariates(), got 'meen'""",
        lambda: ss.PCA(2, shift="meen").fit(X),
    )
    for door in OURS.values():
        message = """scale must be None, "std", "pareto" or a vector, got 'stdd'"""
        refuses(message, lambda door=door: door(X, scale="stdd"))


@pytest.mark.parametrize("scale", [np.zeros(6), -np.ones(6), 1j * np.ones(6)])
def test_a_scale_is_positive(scale):
    for door in OURS.values():
        refuses("scale must be positive, got 6 entries of 0 or less", lambda door=door: door(X, scale=scale))


def test_a_complex_shift_is_for_svd_and_not_for_pca():
    assert ss.svd(X, 2, shift=1j * np.ones(6)).U.dtype == np.complex128
    refuses(
        "a shift of PCA must be real, got complex numbers. Use shiftsvd.svd.",
        lambda: ss.PCA(2, shift=1j * np.ones(6)).fit(X),
    )


def test_factors_of_a_low_rank_matrix_fit_each_other():
    refuses(
        "LowRank needs L of shape (m, r) and R of shape (n, r) with the same r, got (10, 2) and (6, 3)",
        lambda: ss.LowRank(np.ones((10, 2)), np.ones((6, 3))),
    )
    refuses(
        "L must be finite, got NaN or infinite values. Remove",
        lambda: ss.LowRank(np.full((10, 2), np.nan), np.ones((6, 2))),
    )
    refuses("R must be finite, got NaN or infinite values", lambda: ss.LowRank(np.ones(10), np.full(6, np.inf)))
    refuses(
        "L must be a numeric array of one or two dimensions, got float64 (10, 2, 1)",
        lambda: ss.LowRank(np.ones((10, 2, 1)), np.ones((6, 2))),
    )
    refuses("R must be a numeric array of one or two dimensions, got <U1", lambda: ss.LowRank(np.ones(1), ["a"]))


@pytest.mark.parametrize("shape", [(10, 5), (9, 6), (6, 10)])
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_a_low_rank_shift_has_the_shape_of_the_matrix(container, shape):
    shift = ss.LowRank(np.ones(shape[0]), np.ones(shape[1]))
    message = f"the shift must have the shape (10, 6) of the matrix, got {shape}"
    refuses(message, lambda: ss.svd(container(X), 2, shift=shift))
    refuses(message, lambda: ss.as_operator(container(X)) - shift)
    refuses("Use shiftsvd.svd", lambda: ss.PCA(2, shift=shift).fit(container(X)))


# Weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(10), "sample_weight must not be negative, got 10 negative values"),
        (np.append(np.ones(9), -0.5), "sample_weight must not be negative, got 1 negative value"),
        (np.ones(9), "must be a numeric vector with one entry per sample, shape (10,), got float64 (9,)"),
        (np.ones((10, 1)), "must be a numeric vector with one entry per sample, shape (10,), got float64 (10, 1)"),
        (["a"] * 10, "must be a numeric vector with one entry per sample, shape (10,), got <U1 (10,)"),
        (np.append(np.ones(9), np.nan), "sample_weight must be finite, got 1 NaN or infinite value"),
        (np.append(np.ones(9), np.inf), "sample_weight must be finite, got 1 NaN or infinite value"),
        (np.zeros(10), "must not be all zero, and must sum to more than 1, since weights count rows, got a sum of 0"),
        (np.append(np.zeros(9), 1), "must sum to more than 1, since weights count rows, got a sum of 1"),
        (np.full(10, 0.05), "must sum to more than 1, since weights count rows, got a sum of 0.5"),
        (np.full(10, 2 + 1j), "sample_weight must be real"),
        (-2.0, "sample_weight must not be negative"),
    ],
    ids=str,
)
def test_weights_are_counts_of_rows(weights, message):
    for A in (X, csr_array(X), csc_array(X)):
        refuses(message, lambda A=A: ss.PCA(2).fit(A, sample_weight=weights))
        refuses("sample_weight", lambda A=A: ss.PCA(2).fit_transform(A, sample_weight=weights))


# Settings

SETTINGS = [
    ({"svd_solver": "lapack"}, "svd_solver must be one of auto, full, covariance_eigh, arpack, randomized or None"),
    ({"svd_solver": "full", "solver": "exact"}, "Pass either svd_solver or solver, not both, got 'full' and 'exact'"),
    ({"svd_solver": "full", "solver": ss.Exact()}, "Pass either svd_solver or solver, not both, got 'full' and Exact"),
    ({"tol": 1e-3, "solver": ss.Exact()}, "tol applies to solvers given by name, got"),
    ({"tol": "tight"}, "tol must be at least 0 and less than 1, got 'tight'"),
    ({"iterated_power": -1, "solver": "randomized"}, 'must be an integer of at least 0 or "auto", got -1'),
    ({"iterated_power": 1.5, "svd_solver": "randomized"}, "iterated_power must be"),
    ({"n_oversamples": -1, "solver": "randomized"}, "n_oversamples must be an integer of at least 0, got -1"),
    ({"n_oversamples": None, "solver": "shifted-randomized"}, "must be an integer of at least 0, got None"),
    ({"power_iteration_normalizer": "qr", "solver": "randomized"}, "must be one of auto, QR, LU, CholeskyQR2, none"),
    ({"random_state": "x", "solver": "randomized"}, "random_state"),
    ({"random_state": -1, "solver": "randomized"}, "random_state"),
]
SETTINGS_OF_BOTH = [
    (
        {"solver": "exakt"},
        "one of auto, lanczos, gram, exact, randomized, shifted-randomized, or a solver object, got 'exakt'",
    ),
    ({"solver": 3}, "solver must be one of auto"),
    ({"solver": None}, "solver must be one of auto"),
    ({"solver": ss.Exact}, "solver must be one of auto"),
    ({"tol": -1}, "tol must be at least 0 and less than 1, got -1"),
    ({"tol": np.nan}, "tol must be at least 0 and less than 1, got nan"),
    ({"memory_limit": "2XB"}, """memory_limit must be bytes or a text such as "2GB", got '2XB'"""),
    ({"memory_limit": "lots"}, """memory_limit must be bytes or a text such as "2GB", got 'lots'"""),
    ({"memory_limit": ""}, "memory_limit must be bytes or a text such as"),
    ({"memory_limit": -1}, "memory_limit must be positive, got -1"),
    ({"memory_limit": 0}, "memory_limit must be positive, got 0"),
    ({"memory_limit": "-2GB"}, "memory_limit must be positive"),
    ({"memory_limit": np.nan}, "memory_limit must be positive"),
    ({"n_threads": 0}, "n_threads must be a positive integer or None, got 0"),
    ({"n_threads": -1}, "n_threads must be a positive integer or None, got -1"),
    ({"n_threads": 1.5}, "n_threads must be a positive integer or None, got 1.5"),
    ({"n_threads": "2"}, "n_threads must be a positive integer or None, got '2'"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS + SETTINGS_OF_BOTH, ids=str)
def test_a_setting_of_pca_that_cannot_be_is_quoted_beside_its_rule(settings, message):
    for A in (X, csr_array(X)):
        refuses(message, lambda A=A: ss.PCA(2, **settings).fit(A))


@pytest.mark.parametrize(("settings", "message"), SETTINGS_OF_BOTH, ids=str)
def test_a_setting_of_svd_that_cannot_be_is_quoted_beside_its_rule(settings, message):
    for A in (X, csr_array(X)):
        refuses(message, lambda A=A: ss.svd(A, 2, **settings))


def test_constructing_pca_checks_nothing():
    # scikit-learn sets parameters one by one; fit is where they must fit together.
    ss.PCA(-3, solver="exakt", svd_solver="lapack", tol=-1, missing="?").set_params(scale="stdd")


@pytest.mark.parametrize("tol", [1e-4, 1e-3, ss.BlockLanczos().tol])
def test_a_tolerance_beside_a_solver_object_is_refused_even_if_it_is_the_default(tol):
    message = f"tol applies to solvers given by name, got tol={tol}"
    refuses(message, lambda: ss.svd(X, 2, solver=ss.Exact(), tol=tol))
    assert len(ss.svd(X, 2, solver=ss.Exact()).S) == 2


@pytest.mark.parametrize("rng", ["x", -1, 1.5])
def test_a_seed_that_is_none_names_the_argument(rng):
    with pytest.raises((ValueError, TypeError), match="rng must be"):
        ss.svd(X, 2, rng=rng, solver="randomized")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ss.RandomizedSVD(n_oversamples=-1), "n_oversamples must be at least 0, got -1"),
        (lambda: ss.RandomizedSVD(n_iter=-1), 'n_iter must be "auto" or an integer of at least 0, got -1'),
        (lambda: ss.RandomizedSVD(n_iter=2.5), 'n_iter must be "auto" or an integer of at least 0, got 2.5'),
        (
            lambda: ss.RandomizedSVD(power_iteration_normalizer="qr"),
            "normalizer must be one of auto, QR, LU, CholeskyQR2, none, got",
        ),
        (lambda: ss.RandomizedSVD(finish="first"), """finish must be "project" or "last", got 'first'"""),
        (lambda: ss.RandomizedSVD(n_iter=0, finish="last"), 'finish="last" needs n_iter >= 1'),
        (lambda: ss.ShiftedRandomizedSVD(n_iter=-2), "n_iter and n_oversamples must be at least 0"),
        (lambda: ss.ShiftedRandomizedSVD(n_oversamples=-2), "n_iter and n_oversamples must be at least 0"),
    ],
)
def test_a_solver_that_cannot_be_is_not_made(make, message):
    refuses(message, make)


# Memory


@pytest.mark.parametrize("text", ["300GB", "300 gb", "0.3TB", "300000MB", 300 * 10**9, 3e11])
def test_a_memory_limit_is_a_number_of_bytes_or_a_text(text):
    assert len(ss.svd(X, 2, memory_limit=text).S) == 2


def test_a_small_matrix_fits_in_a_small_limit():
    assert len(ss.svd(X, 2, memory_limit="5MB").S) == 2
    assert ss.PCA(2, memory_limit="5MB").fit(csr_array(X)).n_components_ == 2


@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_what_needs_more_than_the_limit_is_refused_with_the_bytes_and_the_remedy(container):
    A = container(np.ones((2000, 300)))
    rule = r"components of a 2,000 x 300 matrix needs? about [0-9.]+ MB, more than the limit of 1 kB"
    for call in (
        lambda: ss.svd(A, 20, memory_limit="1KB"),
        lambda: ss.PCA(20, memory_limit=1000).fit(A),
        lambda: ss.PCA(20, memory_limit=1000, solver="randomized").fit(A),
        lambda: ss.PCA(20, memory_limit=1000, svd_solver="arpack").fit(A),
        lambda: ss.PCA(memory_limit=1000).fit(A),
        lambda: ss.PCA(0.9, memory_limit=1000).fit(A),
    ):
        with pytest.raises(ValueError, match=rule + r"\. Raise memory_limit\.$"):
            call()
    with pytest.raises(ValueError, match=r"limit of 10 MB\. Raise memory_limit, or use fewer components\.$"):
        ss.svd(A, 100, memory_limit="10MB", solver="randomized")
    assert ss.svd(A, 1, memory_limit="10MB", solver="randomized").S[0] > 0


def test_all_components_of_a_huge_sparse_matrix_are_refused_by_default():
    # As in scikit-learn, None means min(m, n): here 400 000 components, 10 TB.
    huge = csr_array((1_000_000, 400_000))
    rule = r"400,000 components of a 1,000,000 x 400,000 matrix needs? about .* TB, more than the limit of"
    with pytest.raises(ValueError, match=rule):
        ss.PCA().fit(huge)


def test_a_conversion_past_the_limit_is_refused():
    A = random_array((2000, 2000), density=0.05, format="csr", rng=np.random.default_rng(0))
    for converted, what in ((A.tocoo(), "converting COO to CSR"), (A.tolil(), "converting LIL to CSR")):
        with pytest.raises(ValueError, match=f"{what} needs about .* MB, more than the limit of 1 MB. Raise"):
            ss.svd(converted, 2, memory_limit="1MB")
    A.indices[:2] = A.indices[1::-1]
    A.has_sorted_indices = False
    with pytest.raises(ValueError, match=r"sorting the sparse rows needs about .* MB, more than the limit of 1 MB"):
        ss.svd(A, 2, memory_limit="1MB")
