"""Bad input is refused with the rule, the value and the remedy, before any work, and is left as it was."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, random_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import shiftsvd as ss

X = np.random.default_rng(0).standard_normal((10, 6))
X.flags.writeable = False

DOORS = {
    "PCA": lambda A, **settings: ss.PCA(2, **settings).fit(A),
    "svd": lambda A, **settings: ss.svd(A, 2, **settings),
    "PCA with weights": lambda A, **settings: ss.PCA(2, **settings).fit(A, sample_weight=np.ones(A.shape[0])),
    "transform": lambda A, **settings: ss.PCA(2, **settings).fit(X).transform(A),
    "score": lambda A, **settings: ss.PCA(2, **settings).fit(X).score(A),
}
OURS = {name: DOORS[name] for name in ("PCA", "svd")}
CONTAINERS = {
    "dense": np.array,
    "fortran": np.asfortranarray,
    "float32": lambda A: A.astype(np.float32),
    "wide": lambda A: np.hstack([A, np.zeros((10, 50))]),
    "csr": csr_array,
    "csr_matrix": csr_matrix,
    "csc": csc_array,
    "coo": coo_array,
    "pandas": pd.DataFrame,
    "polars": lambda A: pl.DataFrame(A, schema=[f"c{j}" for j in range(A.shape[1])]),
    "pandas sparse": lambda A: pd.DataFrame.sparse.from_spmatrix(csr_array(A)),
}


def refuses(message, call, error=ValueError):
    """The call raises, and its message holds these very words."""
    with pytest.raises(error, match=re.escape(message)):
        call()


# Values


@pytest.mark.parametrize("door", ["PCA", "svd", "PCA with weights"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_nan_and_infinity_are_counted_and_their_first_columns_named(container, door):
    bad = X.copy()
    bad[1, [0, 3]] = np.nan
    bad[2, 5] = np.inf
    bad[3, 5] = -np.inf
    message = "the matrix must be finite, got 2 NaN and 2 inf in 3 columns (first: 0, 3, 5); drop or fill them first"
    refuses(message, lambda: DOORS[door](CONTAINERS[container](bad)))


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_only_the_first_columns_of_many_are_named(container):
    bad = np.full((10, 60), np.nan)
    message = "got 600 NaN and 0 inf in 60 columns (first: 0, 1, 2, 3, 4, ...)"
    for door in OURS.values():
        refuses(message, lambda door=door: door(container(bad)))


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("door", ["transform", "score"])
def test_new_rows_must_be_finite_too(door, container):
    bad = X.copy()
    bad[4, 2] = np.nan
    refuses("got 1 NaN and 0 inf in 1 columns (first: 2)", lambda: DOORS[door](container(bad)))


def test_nan_in_a_nullable_column_or_an_object_is_a_nan():
    frame = pd.DataFrame(X.round().astype(int)).astype("Int64")
    frame.iloc[3, 1] = pd.NA
    objects = X.astype(object)
    objects[3, 1] = None
    for bad in (frame, objects):
        for door in OURS.values():
            refuses("got 1 NaN and 0 inf in 1 columns (first: 1)", lambda door=door, bad=bad: door(bad))


@pytest.mark.parametrize("missing", ["mask", None, 3])
def test_an_unknown_treatment_of_gaps_is_refused(missing):
    message = f'missing must be "error", "mean" or "em", got {missing!r}'
    refuses(message, lambda: ss.PCA(2, missing=missing).fit(X))


def test_masked_entries_are_refused_and_are_gaps_where_gaps_are_treated():
    hidden = np.zeros(X.shape, bool)
    hidden[[1, 2, 5], [0, 4, 4]] = True
    masked = np.ma.masked_array(np.where(hidden, 1e6, X), hidden)
    message = "the matrix must have no masked entries, got 3; fill them, or take X.astype(float).filled(np.nan) and"
    refuses(message, lambda: ss.svd(masked, 2))
    with_gaps = np.where(hidden, np.nan, X)
    for missing in ("mean", "em"):
        S = ss.svd(with_gaps, 2, shift="mean", missing=missing, rng=0).S
        assert np.array_equal(ss.svd(masked, 2, shift="mean", missing=missing, rng=0).S, S)
    counts, filled = (np.ma.masked_array(np.round(10 * X).astype(kind), hidden) for kind in (int, float))
    S = ss.svd(filled.filled(np.nan), 2, shift="mean", missing="mean").S
    assert np.array_equal(ss.svd(counts, 2, shift="mean", missing="mean").S, S)
    assert np.array_equal(ss.svd(np.ma.masked_array(X), 2).S, ss.svd(X, 2).S)


# Shapes


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_no_rows_no_columns_and_a_single_sample_are_refused(container):
    for shape in ((0, 5), (5, 0), (0, 0)):
        refuses(f"got shape {shape}", lambda shape=shape: ss.svd(container(np.zeros(shape)), 1))
    refuses("0 sample(s) (shape=(0, 5)) while a minimum of 2", lambda: ss.PCA().fit(container(np.zeros((0, 5)))))
    refuses("0 feature(s) (shape=(5, 0)) while a minimum of 1", lambda: ss.PCA().fit(container(np.zeros((5, 0)))))
    refuses("1 sample(s) (shape=(1, 5)) while a minimum of 2", lambda: ss.PCA(1).fit(container(np.zeros((1, 5)))))
    refuses("0 sample(s) (shape=(0, 6))", lambda: ss.PCA(2).fit(X).transform(container(np.zeros((0, 6)))))


def test_one_sample_has_singular_vectors_but_no_variance():
    assert ss.svd(X[:1], 1).S == pytest.approx(np.linalg.norm(X[0]))
    assert ss.svd(X[:1], 1, shift="mean").S == 0


def test_one_and_three_dimensions_are_named_with_the_remedy():
    refuses("must have two dimensions, got shape (5,); use reshape(-1, 1)", lambda: ss.svd(np.ones(5), 1))
    refuses("must have two dimensions, got shape (2, 2, 2)", lambda: ss.svd(np.ones((2, 2, 2)), 1))
    refuses("Expected 2D array, got 1D array instead", lambda: ss.PCA(1).fit(np.ones(5)))
    refuses("Found array with dim 3, while dim <= 2 is required by PCA", lambda: ss.PCA(1).fit(np.ones((2, 2, 2))))
    refuses("two dimensions of at least 1, got shape (4,)", lambda: ss.svd(coo_array(np.ones(4)), 1))


@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_new_rows_must_have_as_many_features(container):
    message = "X has 5 features, but PCA is expecting 6 features as input"
    refuses(message, lambda: ss.PCA(2).fit(container(X)).transform(container(X[:, :5])))


# Kinds of values


@pytest.mark.parametrize("nothing", [None, "text", b"bytes", 3.0, 7])
def test_what_is_no_matrix_is_named_by_its_type(nothing):
    message = f"a matrix is needed: array, sparse matrix, data frame or operator; got {type(nothing).__name__}"
    refuses(message, lambda: ss.svd(nothing, 1), TypeError)
    with pytest.raises(ValueError, match="Expected 2D array, got scalar array"):
        ss.PCA(1).fit(nothing)


def test_text_is_refused():
    words = np.array([["a", "b"], ["c", "d"]])
    refuses("the matrix must be numeric, got dtype <U1; encode its text or dates first", lambda: ss.svd(words, 1))
    refuses("dtype='numeric' is not compatible with arrays of bytes/strings", lambda: ss.PCA(1).fit(words))
    objects = np.array([["a", 1.0], ["c", 2.0]], object)
    for table in (objects, pd.DataFrame(objects), pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})):
        refuses("got objects that are strings; encode them first", lambda table=table: ss.svd(table, 1))
        with pytest.raises(ValueError, match=r"could not convert string to float|objects that are strings"):
            ss.PCA(1).fit(table)
    frame = pl.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    for door in OURS.values():
        refuses("the matrix must be numeric, got objects that are strings", lambda door=door: door(frame))


def test_numbers_written_as_text_are_text():
    digits = np.array([["1", "2"], ["3", "4"], ["5", "6"]], object)
    refuses("got objects that are strings", lambda: ss.svd(digits, 1))


def test_dates_are_refused():
    dates = np.array([["2020-01-01", "2020-01-02"]] * 3, "datetime64[D]")
    for door in OURS.values():
        refuses("the matrix must be numeric, got dtype datetime64[D]; encode its", lambda door=door: door(dates))


def test_objects_that_are_not_numbers_are_refused():
    objects = np.array([[1, {}], [3, 4]], object)
    refuses("the matrix must be numeric, got objects that are not numbers", lambda: ss.svd(objects, 1))
    refuses("argument must be a string or a real number, not 'dict'", lambda: ss.PCA(1).fit(objects), TypeError)


def test_objects_that_are_numbers_work():
    from decimal import Decimal
    from fractions import Fraction

    objects = np.array([[1, 2.5], [Decimal(3), Fraction(7, 2)], [True, np.float32(5)]], object)
    S = ss.svd(objects.astype(float), 2).S
    assert np.array_equal(ss.svd(objects, 2).S, S)
    assert np.array_equal(ss.PCA(2).fit(objects).components_, ss.PCA(2).fit(objects.astype(float)).components_)


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_complex_data_are_for_svd_and_not_for_pca(container):
    refuses("Complex data not supported", lambda: ss.PCA(2).fit(container(X * 1j)))
    refuses("Complex data not supported", lambda: ss.PCA(2).fit(container(X)).transform(container(X * 1j)))
    for A in (X + 2j * X[::-1], (X + 2j * X[::-1]).T):
        U, S, Vh = ss.svd(container(A), 2)
        assert np.allclose(S, np.linalg.svd(A, compute_uv=False)[:2], rtol=1e-13)
        assert np.abs(U.conj().T @ A @ Vh.conj().T - np.diag(S)).max() <= 100 * np.finfo(float).eps * S[0]


# Numbers of components


@pytest.mark.parametrize("k", [0, -1, 7, True, None, "3", "mle"])
def test_k_of_svd_is_an_integer_in_range(k):
    for A in (X, csr_array(X)):
        message = f"k must be an integer in 1..6 for a 10 x 6 matrix, got {k!r}"
        refuses(message, lambda A=A: ss.svd(A, k))


@pytest.mark.parametrize("k", [0.0, 1.0, 2.0, 1.5, -0.5, np.nan])
def test_a_float_k_is_a_share_between_0_and_1(k):
    refuses(f"k must be an integer, or a share of the variance between 0 and 1, got {k}", lambda: ss.svd(X, k))
    message = f"n_components must be an integer, a float in (0, 1), None or \"mle\" with svd_solver='full', got {k!r}"
    refuses(message, lambda: ss.PCA(k).fit(X))


@pytest.mark.parametrize("solver", [{}, {"solver": "exact"}, {"solver": "randomized"}, {"solver": ss.Exact()}])
@pytest.mark.parametrize("k", [-1, 7, 100])
def test_n_components_is_between_0_and_the_smaller_side(k, solver):
    message = f"n_components={k} must be between 0 and min(n_samples, n_features)=6 with svd_solver='full'"
    for A in (X, csr_array(X), X.T, csc_array(X.T)):
        refuses(message, lambda A=A: ss.PCA(k, **solver).fit(A))


@pytest.mark.parametrize("svd_solver", ["arpack", "randomized"])
def test_n_components_of_truncated_solvers_is_at_least_1(svd_solver):
    for k in (0, 7):
        message = f"n_components={k} must be between 1 and min(n_samples, n_features)=6 with svd_solver='{svd_solver}'"
        refuses(message, lambda k=k: ss.PCA(k, svd_solver=svd_solver).fit(X))
    for k in (0.5, True):
        message = f"n_components must be an integer with svd_solver='{svd_solver}', got {k}"
        refuses(message, lambda k=k: ss.PCA(k, svd_solver=svd_solver).fit(X))
    message = f"n_components='mle' cannot be a string with svd_solver='{svd_solver}'; leave svd_solver out"
    refuses(message, lambda: ss.PCA("mle", svd_solver=svd_solver).fit(X))


def test_booleans_and_words_are_no_number_of_components():
    refuses("n_components must be an integer, a float in (0, 1)", lambda: ss.PCA(True).fit(X))
    refuses("""n_components must be a number, None or "mle", got 'all'""", lambda: ss.PCA("all").fit(X))


def test_minka_needs_tall_data_of_at_most_5000_features():
    message = "n_components='mle' is only supported if n_samples >= n_features, got 6 x 10"
    refuses(message, lambda: ss.PCA("mle").fit(X.T))
    refuses("at most 5000 features, got 5001", lambda: ss.PCA("mle").fit(csr_array((5002, 5001))))


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
    "nan": (np.array([1, np.nan, 1, np.inf, 1, 1]), "must be finite, got 2 NaN or infinite entries"),
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
        refuses("scale must be positive, got 6 entries that are not", lambda door=door: door(X, scale=scale))


def test_a_complex_shift_is_for_svd_and_not_for_pca():
    assert ss.svd(X, 2, shift=1j * np.ones(6)).U.dtype == np.complex128
    refuses(
        "a shift of PCA must be real, got complex numbers; use svd instead",
        lambda: ss.PCA(2, shift=1j * np.ones(6)).fit(X),
    )


def test_factors_of_a_low_rank_matrix_fit_each_other():
    refuses(
        "LowRank needs L (m, r) and R (n, r) of equal r, got (10, 2) and (6, 3)",
        lambda: ss.LowRank(np.ones((10, 2)), np.ones((6, 3))),
    )
    refuses(
        "L holds NaN or infinite values: a shift must be finite",
        lambda: ss.LowRank(np.full((10, 2), np.nan), np.ones((6, 2))),
    )
    refuses("R holds NaN or infinite values", lambda: ss.LowRank(np.ones(10), np.full(6, np.inf)))
    refuses(
        "L must be a numeric array of one or two dimensions, got float64 (10, 2, 1)",
        lambda: ss.LowRank(np.ones((10, 2, 1)), np.ones((6, 2))),
    )
    refuses("R must be a numeric array of one or two dimensions, got <U1", lambda: ss.LowRank(np.ones(1), ["a"]))


@pytest.mark.parametrize("shape", [(10, 5), (9, 6), (6, 10)])
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_a_low_rank_shift_has_the_shape_of_the_matrix(container, shape):
    shift = ss.LowRank(np.ones(shape[0]), np.ones(shape[1]))
    message = f"the shift has shape {shape}, the matrix (10, 6): they must be equal"
    refuses(message, lambda: ss.svd(container(X), 2, shift=shift))
    refuses(message, lambda: ss.as_operator(container(X)) - shift)
    refuses("use svd instead", lambda: ss.PCA(2, shift=shift).fit(container(X)))


# Sparse structure


def corrupt(container, name, change):
    """X in a sparse container, with one of its index arrays changed behind SciPy's back."""
    A = container(X)
    setattr(A, name, change(getattr(A, name).copy()))
    return A


def put(i, value):
    def change(a):
        a[i] = value
        return a

    return change


CORRUPT = {
    "decreasing": ("indptr", put(3, 60), "indptr must start at 0 and never decrease"),
    "negative": ("indptr", put(2, -1), "indptr must start at 0 and never decrease"),
    "start": ("indptr", put(0, 2), "indptr must start at 0 and never decrease; rebuild the matrix from its triplets"),
    "long": ("indptr", lambda a: np.append(a, a[-1]), "entries, got shape ("),
    "short": ("indptr", lambda a: a[:-1], "entries, got shape ("),
    "past the end": ("indptr", put(-1, 61), "indptr ends at 61, but there are 60 indices and 60 values"),
    "too few values": ("data", lambda a: a[:-1], "indptr ends at 60, but there are 60 indices and 59 values"),
    "too few indices": ("indices", lambda a: a[:-1], "indptr ends at 60, but there are 59 indices and 60 values"),
    "huge": ("indices", put(4, 2**31 - 1), "got 0..2147483647"),
    "negative index": ("indices", put(4, -1), "indices must be in 0.."),
    "float indptr": ("indptr", lambda a: a.astype(float), "must be integers"),
    "float indices": ("indices", lambda a: a.astype(float), "must be integers"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("container", [csr_array, csr_matrix, csc_array])
@pytest.mark.parametrize("how", CORRUPT)
def test_a_corrupt_sparse_structure_is_refused_before_it_is_read(how, container, door):
    name, change, message = CORRUPT[how]
    A = corrupt(container, name, change)
    refuses(f"corrupt {A.format.upper()} structure: ", lambda: DOORS[door](A))
    refuses(message, lambda: DOORS[door](A))


@pytest.mark.parametrize("door", DOORS)
def test_an_index_one_past_the_last_column_is_refused(door):
    A = corrupt(csr_array, "indices", put(4, 6))
    refuses("corrupt CSR structure: indices must be in 0..5, got 0..6", lambda: DOORS[door](A))
    A = corrupt(csc_array, "indices", put(4, 10))
    refuses("corrupt CSC structure: indices must be in 0..9, got 0..10", lambda: DOORS[door](A))


def test_a_sound_structure_with_room_to_spare_is_read():
    # SciPy allows data and indices to be longer than indptr says.
    A = csr_array(X)
    A.data, A.indices = np.append(A.data, np.nan), np.append(A.indices, 99).astype(np.int32)
    assert np.allclose(ss.svd(A, 2).S, ss.svd(X, 2).S, rtol=1e-13)


# Weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(10), "sample_weight must not be negative, got 10 negative entries"),
        (np.append(np.ones(9), -0.5), "sample_weight must not be negative, got 1 negative entries"),
        (np.ones(9), "must be a numeric vector with one entry per sample, shape (10,), got float64 (9,)"),
        (np.ones((10, 1)), "must be a numeric vector with one entry per sample, shape (10,), got float64 (10, 1)"),
        (["a"] * 10, "must be a numeric vector with one entry per sample, shape (10,), got <U1 (10,)"),
        (np.append(np.ones(9), np.nan), "sample_weight must be finite, got 1 NaN or infinite entries"),
        (np.append(np.ones(9), np.inf), "sample_weight must be finite, got 1 NaN or infinite entries"),
        (np.zeros(10), "not all may be zero, and their sum must exceed 1, got 0"),
        (np.append(np.zeros(9), 1), "not all may be zero, and their sum must exceed 1, got 1"),
        (np.full(10, 0.05), "not all may be zero, and their sum must exceed 1, got 0.5"),
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
    ({"svd_solver": "full", "solver": "exact"}, "give svd_solver or solver, not both; got 'full' and 'exact'"),
    ({"svd_solver": "full", "solver": ss.Exact()}, "give svd_solver or solver, not both; got 'full' and Exact"),
    ({"tol": 1e-3, "solver": ss.Exact()}, "tol fills solvers given by name; set it in the solver object, got"),
    ({"tol": "tight"}, "tol must be at least 0, got tight"),
    ({"iterated_power": -1, "solver": "randomized"}, 'must be "auto" or an integer of at least 0, got -1'),
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
    ({"tol": -1}, "tol must be at least 0, got -1"),
    ({"tol": np.nan}, "tol must be at least 0, got nan"),
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


@pytest.mark.parametrize("tol", [1e-4, 1e-3])
def test_a_tolerance_beside_a_solver_object_is_refused_even_if_it_is_the_default(tol):
    message = f"tol fills solvers given by name; set it in the solver object, got tol={tol}"
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
    rule = r"components of a 2000 x 300 matrix needs? about [0-9.e+-]+ GB, more than the limit of 1e-06 GB"
    for call in (
        lambda: ss.svd(A, 20, memory_limit="1KB"),
        lambda: ss.PCA(20, memory_limit=1000).fit(A),
        lambda: ss.PCA(20, memory_limit=1000, solver="randomized").fit(A),
        lambda: ss.PCA(20, memory_limit=1000, svd_solver="arpack").fit(A),
        lambda: ss.PCA(memory_limit=1000).fit(A),
        lambda: ss.PCA(0.9, memory_limit=1000).fit(A),
    ):
        with pytest.raises(ValueError, match=rule + "; raise memory_limit or ask for fewer components"):
            call()


def test_all_components_of_a_huge_sparse_matrix_are_refused_by_default():
    # As in scikit-learn, None means min(m, n): here 400 000 components, 10 TB.
    huge = csr_array((1_000_000, 400_000))
    rule = r"400000 components of a 1000000 x 400000 matrix needs? about .* GB, more than the limit of"
    with pytest.raises(ValueError, match=rule):
        ss.PCA().fit(huge)


def test_a_conversion_past_the_limit_is_refused():
    A = random_array((2000, 2000), density=0.05, format="csr", rng=np.random.default_rng(0))
    for converted, what in ((A.tocoo(), "converting COO to CSR"), (A.tolil(), "converting LIL to CSR")):
        with pytest.raises(ValueError, match=f"{what} needs about .* GB, more than the limit of 0.001 GB; raise"):
            ss.svd(converted, 2, memory_limit="1MB")
    A.indices[:2] = A.indices[1::-1]
    A.has_sorted_indices = False
    with pytest.raises(ValueError, match=r"sorting the sparse rows needs about .* GB, more than the limit of 0.001 GB"):
        ss.svd(A, 2, memory_limit="1MB")


# Afterwards


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.where(np.arange(60).reshape(10, 6) == 7, np.nan, X),
        lambda: csr_array(np.where(np.arange(60).reshape(10, 6) == 7, np.nan, X)),
        lambda: csc_array(np.where(np.arange(60).reshape(10, 6) == 7, np.inf, X)),
        lambda: corrupt(csr_array, "indptr", put(3, 60)),
        lambda: corrupt(csr_array, "indices", put(4, -1)),
        lambda: corrupt(csc_array, "indices", put(4, 99)),
        lambda: np.array([[1.0, "a"] * 3] * 10, object),
        lambda: np.array([[{}] * 6] * 10, object),
    ],
)
def test_refused_input_is_left_as_it_was(make, door):
    A = make()
    parts = [A] if isinstance(A, np.ndarray) else [A.data, A.indices, A.indptr]
    before = [part.copy() for part in parts]
    with pytest.raises((ValueError, TypeError)):
        DOORS[door](A)
    for part, old in zip(parts, before, strict=True):
        assert part.dtype == old.dtype
        assert np.array_equal(part, old, equal_nan=part.dtype.kind == "f")


def test_settings_and_weights_of_a_refused_fit_are_left_as_they_were():
    w, mu = np.append(np.ones(9), -1.0), np.ones(6)
    pca = ss.PCA(2, shift=mu)
    refuses("negative", lambda: pca.fit(X, sample_weight=w))
    assert np.array_equal(w, np.append(np.ones(9), -1.0))
    assert np.array_equal(mu, np.ones(6))
    assert pca.shift is mu


@pytest.mark.parametrize("scale", [False, True])
def test_a_refused_fit_leaves_no_half_fitted_model(scale):
    A = np.random.default_rng(0).standard_normal((2000, 300))
    bad = A.copy()
    bad[3, 3] = np.nan
    for pca, data in ((ss.PCA(2, scale=scale), bad), (ss.PCA(20, scale=scale, memory_limit=1000), A)):
        with pytest.raises(ValueError, match=r"finite|memory_limit"):
            pca.fit(data)
        with pytest.raises(NotFittedError):
            pca.get_covariance()
        for name in ("mean_", "scale_", "components_"):
            assert not hasattr(pca, name)


@pytest.mark.parametrize("scale", [False, True])
def test_a_refused_fit_leaves_the_model_of_an_earlier_fit(scale):
    A = np.random.default_rng(0).standard_normal((2000, 300))
    pca = ss.PCA(20, scale=scale).fit(A)
    Z = pca.transform(A)
    pca.set_params(memory_limit=1000)
    refuses("memory_limit", lambda: pca.fit(A * 3 + 5))
    assert np.array_equal(pca.transform(A), Z)


@pytest.mark.parametrize("estimator", [ss.PCA(2), ss.TruncatedSVD(2), ss.CorrespondenceAnalysis(2)], ids=str)
def test_estimators_do_not_take_what_is_masked_for_data(estimator) -> None:
    M = np.ma.masked_greater(np.random.default_rng(0).random((20, 5)), 0.9)
    with pytest.raises(ValueError, match=r"no masked entries, got \d+; fill them"):
        estimator.fit(M)
    nothing = np.ma.masked_greater(M.data, 2)
    estimator.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(clone(estimator).fit_transform(nothing), clone(estimator).fit_transform(M.data))


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_what_is_masked_is_missing_where_gaps_are_allowed(missing) -> None:
    D = np.random.default_rng(0).random((40, 6))
    M = np.ma.masked_greater(D, 0.9)
    pca = ss.PCA(2, missing=missing, random_state=0)
    want = clone(pca).fit(M.filled(np.nan))
    pca.fit(M)
    np.testing.assert_array_equal(pca.components_, want.components_)
    np.testing.assert_array_equal(pca.transform(M), want.transform(M.filled(np.nan)))
