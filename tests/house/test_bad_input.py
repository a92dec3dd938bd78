"""Bad data are refused with the rule, the value and the remedy, before any work, and are left as they were."""

import importlib
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import shiftsvd as ss
from tests.support.doors import CONTAINERS, DOORS, OURS, X, refuses
from tests.support.places import has, needs

# Values


@pytest.mark.parametrize("door", ["PCA", "svd", "PCA with weights"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_nan_and_infinity_are_counted_and_their_first_columns_named(container, door):
    bad = X.copy()
    bad[1, [0, 3]] = np.nan
    bad[2, 5] = np.inf
    bad[3, 5] = -np.inf
    named = "'c0' (1), 'c3' (1), 'c5' (2)" if container == "polars" else "3 columns (0, 3, 5, counted from 0)"
    message = f"the matrix must be finite, got 2 NaN and 2 inf in {named}. Remove or replace these values"
    refuses(message, lambda: DOORS[door](CONTAINERS[container](bad)))


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_only_the_first_columns_of_many_are_named(container):
    bad = np.full((10, 60), np.nan)
    message = "got 600 NaN in 60 columns (0, 1, 2, 3, 4, ..., counted from 0)"
    for door in OURS.values():
        refuses(message, lambda door=door: door(container(bad)))


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("door", ["transform", "score"])
def test_new_rows_must_be_finite_too(door, container):
    bad = X.copy()
    bad[4, 2] = np.nan
    refuses("got 1 NaN in column 2 (counted from 0)", lambda: DOORS[door](container(bad)))


def test_nan_in_a_nullable_column_or_an_object_is_a_nan():
    frame = pd.DataFrame(X.round().astype(int)).astype("Int64")
    frame.iloc[3, 1] = pd.NA
    objects = X.astype(object)
    objects[3, 1] = None
    for bad in (frame, objects):
        for door in OURS.values():
            said = "got 1 NaN in column 1 (counted from 0). Remove or fill these values, or pass missing="
            refuses(said, lambda door=door, bad=bad: door(bad))


def test_columns_are_called_by_their_names_wherever_a_frame_comes_in():
    frame = pd.DataFrame(X.copy(), columns=[f"gene {j}" for j in range(X.shape[1])])
    frame.iloc[:3, 4] = np.nan
    for door in OURS.values():
        refuses("3 entries are missing (NaN), in column 'gene 4'. Remove or fill these", lambda door=door: door(frame))
    frame.iloc[1, 2] = np.inf
    refuses("finite or NaN, got 1 infinite value in column 'gene 2'", lambda: ss.PCA(2, missing="mean").fit(frame))
    refuses("got 3 NaN and 1 inf in 'gene 2' (1), 'gene 4' (3)", lambda: ss.TruncatedSVD(2).fit(frame))
    fitted = ss.PCA(2).fit(pd.DataFrame(X, columns=frame.columns))
    refuses("got 3 NaN and 1 inf in 'gene 2' (1), 'gene 4' (3)", lambda: fitted.transform(frame))


@pytest.mark.parametrize("missing", ["mask", None, 3])
def test_an_unknown_treatment_of_gaps_is_refused(missing):
    message = f'missing must be "error", "mean" or "em", got {missing!r}'
    refuses(message, lambda: ss.PCA(2, missing=missing).fit(X))


def test_masked_entries_are_refused_and_are_gaps_where_gaps_are_treated():
    hidden = np.zeros(X.shape, bool)
    hidden[[1, 2, 5], [0, 4, 4]] = True
    masked = np.ma.masked_array(np.where(hidden, 1e6, X), hidden)
    message = "the matrix must have no masked entries, got 3. Fill them, or pass X.astype(float).filled(np.nan) with"
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
    refuses("must have two dimensions, got shape (5,). Use reshape(-1, 1)", lambda: ss.svd(np.ones(5), 1))
    refuses("must have two dimensions, got shape (2, 2, 2)", lambda: ss.svd(np.ones((2, 2, 2)), 1))
    refuses("Expected 2D array, got 1D array instead", lambda: ss.PCA(1).fit(np.ones(5)))
    refuses("Found array with dim 3, while dim <= 2 is required by PCA", lambda: ss.PCA(1).fit(np.ones((2, 2, 2))))
    refuses("must have two dimensions, got shape (4,)", lambda: ss.svd(coo_array(np.ones(4)), 1))


@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_new_rows_must_have_as_many_features(container):
    message = "X has 5 features, but PCA is expecting 6 features as input"
    refuses(message, lambda: ss.PCA(2).fit(container(X)).transform(container(X[:, :5])))


# Kinds of values


@pytest.mark.parametrize("nothing", [None, "text", b"bytes", 3.0, 7])
def test_what_is_no_matrix_is_named_by_its_type(nothing):
    message = f"the matrix must be an array, sparse matrix, data frame or operator, got {type(nothing).__name__}"
    refuses(message, lambda: ss.svd(nothing, 1), TypeError)
    with pytest.raises(ValueError, match="Expected 2D array, got scalar array"):
        ss.PCA(1).fit(nothing)


def test_text_is_refused():
    words = np.array([["a", "b"], ["c", "d"]])
    refuses("the matrix must be numeric, got dtype <U1. Encode text and dates as numbers.", lambda: ss.svd(words, 1))
    refuses("dtype='numeric' is not compatible with arrays of bytes/strings", lambda: ss.PCA(1).fit(words))
    objects = np.array([["a", 1.0], ["c", 2.0]], object)
    for table in (objects, pd.DataFrame(objects), pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})):
        refuses("got objects that are strings. Encode them as numbers.", lambda table=table: ss.svd(table, 1))
        with pytest.raises(ValueError, match=r"could not convert string to float|objects that are strings"):
            ss.PCA(1).fit(table)
    ratings = pd.DataFrame({"n": ["1", "2"], "user": ["u", "v"]})
    for door in (ss.PCA(1), ss.TruncatedSVD(1)):
        refuses("could not convert string to float: 'u' in column 'user'.", lambda door=door: door.fit(ratings))
    frame = pl.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    for door in OURS.values():
        refuses("the matrix must be numeric, got objects that are strings", lambda door=door: door(frame))


def test_numbers_written_as_text_are_text():
    digits = np.array([["1", "2"], ["3", "4"], ["5", "6"]], object)
    refuses("got objects that are strings", lambda: ss.svd(digits, 1))


def test_dates_are_refused():
    dates = np.array([["2020-01-01", "2020-01-02"]] * 3, "datetime64[D]")
    for door in OURS.values():
        refuses("the matrix must be numeric, got dtype datetime64[D]. Encode", lambda door=door: door(dates))


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
    "start": ("indptr", put(0, 2), "indptr must start at 0 and never decrease. Create the matrix again"),
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
    with pytest.raises(ValueError, match=r"no masked entries, got \d+\. Fill them"):
        estimator.fit(M)
    nothing = np.ma.masked_greater(M.data, 2)
    estimator.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(clone(estimator).fit_transform(nothing), clone(estimator).fit_transform(M.data))


def _masked(values, places=0):
    """The values as a masked array, with some of them masked."""
    masked = np.ma.masked_array(values)
    masked[places] = np.ma.masked
    return masked


ROWS, FEATURES, MASK = _masked(np.arange(1.0, 11)), _masked(np.arange(1.0, 7)), _masked(np.ones(6, bool))
COUNTS = np.random.default_rng(1).poisson(2.0, (10, 6)) + 1.0
LABELS, KINDS = _masked(np.arange(10) % 2), _masked(np.arange(20).reshape(10, 2) % 3, (3, 1))
TABLE, SCORES = _masked(COUNTS, (2, 3)), _masked(np.ones((3, 2)), (1, 1))
DISTANCES = np.abs(np.subtract.outer(np.arange(10.0), np.arange(10.0)))
APART = _masked(DISTANCES, ([0, 5], [5, 0]))
BY_AGE = ss.PCA(2, shift=ss.Covariates())
FIELD = (
    None
    if not has("xarray")
    else importlib.import_module("xarray").DataArray(np.array(X).reshape(10, 2, 3), dims=("time", "lat", "lon"))
)
WITH_MASKS = {
    "shift": lambda: ss.svd(X, 2, shift=FEATURES),
    "scale": lambda: ss.PCA(2, scale=FEATURES).fit(X),
    "sample_weight": lambda: ss.PCA(2).fit(X, sample_weight=ROWS),
    "sample_weight of a batch": lambda: ss.PCA(2).partial_fit(X, sample_weight=ROWS),
    "sample_weight of gaps": lambda: ss.PCA(2, missing="mean").fit(X, sample_weight=ROWS),
    "covariates": lambda: ss.svd(X, 2, shift=ss.Covariates(ROWS)),
    "covariates of rows": lambda: BY_AGE.fit(X, covariates=ROWS.data).transform(X, covariates=ROWS),
    "covariates of scores": lambda: BY_AGE.fit(X, covariates=ROWS.data).inverse_transform(X[:, :2], covariates=ROWS),
    "covariates in a list": lambda: ss.svd(X, 2, shift=ss.Covariates(list(np.ma.column_stack([ROWS, ROWS])))),
    "groups": lambda: ss.PCA(2, shift=ss.GroupMeans()).fit(X, groups=LABELS),
    "groups in a list": lambda: ss.svd(X, 2, shift=ss.GroupMeans(list(LABELS))),
    "rows in a list": lambda: ss.svd(list(TABLE), 2),
    "scores": lambda: ss.PCA(2).fit(X).inverse_transform(SCORES),
    "new rows": lambda: ss.PCA(2).fit(X).transform(TABLE),
    "likelihood": lambda: ss.PCA(2).fit(X).score(TABLE),
    "batch": lambda: ss.IncrementalPCA(2).partial_fit(TABLE),
    "distances": lambda: ss.PCoA(2).fit(APART),
    "distances of new points": lambda: ss.PCoA(2).fit(DISTANCES).transform(APART),
    "points": lambda: ss.PCoA(2, metric="euclidean").fit(TABLE),
    "table": lambda: ss.CorrespondenceAnalysis(2).fit(COUNTS).transform(TABLE),
    "columns of a table": lambda: ss.CorrespondenceAnalysis(2).fit(COUNTS).column_coordinates(TABLE),
    "categories": lambda: ss.MultipleCorrespondenceAnalysis(2).fit(KINDS),
    "categories of new rows": lambda: ss.MultipleCorrespondenceAnalysis(2).fit(KINDS.data).transform(KINDS),
    "mixed columns": lambda: ss.FAMD(2).fit(KINDS),
    "supplementary columns": lambda: ss.supplementary(KINDS, np.ones((len(KINDS), 2))),
    "scores of supplementary columns": lambda: ss.supplementary(X, TABLE),
    "factor": lambda: ss.LowRank(ROWS, np.ones(6)),
    "panel": lambda: ss.as_operator(X) @ FEATURES,
    "scales of an operator": lambda: ss.operators.Scaled(ss.as_operator(X), ROWS, None),
    "size factors": lambda: ss.LogNormalize(size_factors=ROWS),
    "theta": lambda: ss.PearsonResiduals(theta=FEATURES),
    "rates": lambda: ss.PearsonResiduals(log_rates=FEATURES),
    "places": lambda: ss.transforms.Select(MASK),
    "weights": lambda: ss.LogNormalize().learn(COUNTS, ROWS),
    "counts": lambda: ss.preprocess(TABLE, "pearson"),
    "cross": lambda: ss.cross(X, X, shift=(FEATURES, None)),
    "batches": lambda: ss.scanpy.highly_variable(COUNTS, 3, flavor="pearson_residuals", batch=LABELS),
    "genes": lambda: ss.scanpy.pca(X, 2, mask_var=MASK),
    "areas": lambda: ss.xarray.pca(FIELD, 2, weights=_masked(np.ones((2, 3)), (0, 1))),
    "groups of a field": lambda: ss.xarray.pca(FIELD, 2, groups=LABELS),
    "covariates of a field": lambda: ss.xarray.pca(FIELD, 2, covariates=ROWS),
    "eigenvalues": lambda: ss.genetics.tracy_widom(FEATURES, 20, 30.0, 40.0),
    "entries": lambda: ss.complete_matrix(COUNTS, 1, penalty=0.1, rng=0).predict(LABELS, 0),
    "residuals": lambda: ss.residuals(TABLE, ss.svd(X, 2)),
}


OF_EXTENSIONS = {
    "batches": "scanpy",
    "genes": "scanpy",
    "areas": "xarray",
    "groups of a field": "xarray",
    "covariates of a field": "xarray",
    "eigenvalues": "genetics",
}


@pytest.mark.parametrize("given", WITH_MASKS)
def test_no_mask_is_lost_whatever_is_given(given) -> None:
    if given in OF_EXTENSIONS:
        needs(OF_EXTENSIONS[given])
    with pytest.raises(ValueError, match=r"must have no masked entries, got \d+\. "):
        WITH_MASKS[given]()


def test_a_mask_that_hides_nothing_changes_nothing() -> None:
    weights = np.arange(1.0, 11)
    masked = ss.PCA(2).fit(X, sample_weight=np.ma.masked_array(weights))
    assert np.array_equal(masked.components_, ss.PCA(2).fit(X, sample_weight=weights).components_)


@pytest.mark.parametrize("fill", [0.0, 1.0, -2.5, np.nan])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sparse_columns_of_pandas_are_the_numbers_that_they_stand_for(fill, dense, dtype) -> None:
    """Whatever number pandas leaves out: what is not 0 is stored, and NaN stays NaN."""
    D = np.where(np.random.default_rng(0).random((30, 5)) < 0.7, 0 if np.isnan(fill) else fill, COUNTS[0, 0])
    D = (D + np.diag(np.arange(30.0))[:, :5]).astype(dtype)
    columns = {f"c{j}": pd.arrays.SparseArray(D[:, j], fill_value=np.dtype(dtype).type(fill)) for j in range(5)}
    frame = pd.DataFrame(columns)
    before = frame.copy()
    if dense:
        frame["c2"] = D[:, 2]
    A = ss.as_operator(frame)
    np.testing.assert_array_equal(A @ np.eye(5), D)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pandas.DataFrame with sparse columns")  # of scikit-learn, of both kinds
        fitted = ss.PCA(2, random_state=0).fit(frame)
        ca = ss.CorrespondenceAnalysis(2, random_state=0).fit(np.abs(frame) if not dense else np.abs(D))
    assert fitted.feature_names_in_.tolist() == list(frame)
    np.testing.assert_allclose(np.abs(fitted.components_), np.abs(ss.PCA(2).fit(D).components_), atol=1e-4)
    assert ca.components_.shape == (2, 5)
    assert before.equals(frame) or dense


def test_missing_numbers_of_sparse_columns_are_missing() -> None:
    D = np.where(np.random.default_rng(0).random((40, 5)) < 0.2, np.nan, np.random.default_rng(1).random((40, 5)))
    frame = pd.DataFrame({f"c{j}": pd.arrays.SparseArray(D[:, j]) for j in range(5)})
    assert np.isnan(frame.dtypes.iloc[0].fill_value)
    refuses("37 entries are missing (NaN), in 'c0' (6)", lambda: ss.svd(frame, 2))
    want = ss.PCA(2, missing="mean", random_state=0).fit(D)
    got = ss.PCA(2, missing="mean", random_state=0).fit(frame)
    np.testing.assert_allclose(got.singular_values_, want.singular_values_, rtol=1e-6)


def test_functions_that_write_in_place_leave_the_data_alone() -> None:
    """Of the user's own: of entries, and of a transformation that sums and changes them."""

    def halved(x):
        x /= 2
        return x

    @dataclass(frozen=True, eq=False)
    class Shares(ss.transforms.Transform):
        def terms(self, x, c):
            x *= 2
            return (x,)

        def learn_rows(self, A, weights, tol):
            fitted = ss.transforms.Fitted(self, np.zeros((A.shape[1], 0)), np.zeros(0))
            return fitted, fitted.rows(A)

        def entry(self, x, r, c, known, table):
            x /= r[0]
            return x

    sparse = csr_array(np.where(COUNTS > 2, COUNTS, 0))
    for A in (
        sparse,
        sparse.tocsc(),
        COUNTS.copy(),
        np.asfortranarray(COUNTS),
        COUNTS.astype(np.float32),
        sparse.T.tocsr(),
    ):
        before = A.copy()
        for how in (ss.Elementwise(halved), Shares(), [ss.Elementwise(halved), Shares()]):
            made = ss.preprocess(A, how) @ np.eye(A.shape[1])
            again = ss.preprocess(A, how) @ np.eye(A.shape[1])
            assert np.array_equal(made, again)
            ss.svd(A, 2, preprocess=how, rng=0)
        assert (A != before).sum() == 0


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_what_is_masked_is_missing_where_gaps_are_allowed(missing) -> None:
    D = np.random.default_rng(0).random((40, 6))
    M = np.ma.masked_greater(D, 0.9)
    pca = ss.PCA(2, missing=missing, random_state=0)
    want = clone(pca).fit(M.filled(np.nan))
    pca.fit(M)
    np.testing.assert_array_equal(pca.components_, want.components_)
    np.testing.assert_array_equal(pca.transform(M), want.transform(M.filled(np.nan)))


def test_a_matrix_with_its_names_is_refused_by_a_line_that_unpacks_it() -> None:
    for door in (lambda X: ss.svd(X, 1), ss.PCA(1).fit, ss.TruncatedSVD(1).fit, ss.as_operator):
        refuses("A, names = open_matrix(path)", lambda door=door: door((np.eye(3), None)))
