"""Transformations: every one equals its explicit dense computation, in every container, on its own and other rows."""

from collections.abc import Callable
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import rankdata

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.numerics.entrywise import Change
from shiftsvd.transforms.base import zeros_of
from shiftsvd.transforms.chains import apply_all, learn_all
from shiftsvd.transforms.ranks import first_not_below
from tests.support.matrices import EPS
from tests.support.transformed import ROWS, VECTOR, counts, pearson

X, NEW = counts(), 2 * counts(31, seed=3)
DENSE: dict[str, np.ndarray] = {name: row.dense(X, X) for name, row in ROWS.items()}
EVERY = pytest.mark.parametrize("name", ROWS)
# Rounding of logarithms of numbers up to 1e3 over their sums.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Given(RowSource):
    """A matrix in memory that passes for a file, in blocks of a few rows."""

    def __init__(self, X: Any) -> None:
        self.X, self.shape, self.dtype, self.sparse = X, X.shape, X.dtype, sparse.issparse(X)
        self.name, self.fingerprint = "given", "given"
        self.stored = X.nnz if self.sparse else X.size

    def edges(self, n_bytes: int) -> list[int]:
        return [*range(0, self.shape[0], 13), self.shape[0]]

    def read(self, lo: int, hi: int) -> Any:
        return self.X[lo:hi]


def by_dask(kind: Callable[[Any], Any]) -> Callable[[np.ndarray], Any]:
    def made(X: np.ndarray) -> Any:
        da = pytest.importorskip("dask.array")
        D = da.from_array(X, chunks=(17, -1))
        return D if kind is np.asarray else D.map_blocks(kind, meta=sparse.csr_array((0, 0), dtype=X.dtype))

    return made


CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": np.asarray,
    "dense wide": lambda X: np.asfortranarray(X),
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "integers": lambda X: sparse.csr_array(X.astype(np.uint16)),
    "file": lambda X: DiskRows(Given(sparse.csr_array(X)), n_threads=2),
    "dense file": lambda X: DiskRows(Given(X)),
    "file by columns": lambda X: DiskRows(Given(sparse.csr_array(X.T))).H,
    "dask": by_dask(np.asarray),
    "sparse dask": by_dask(sparse.csr_array),
}


def formed(A: ss.Operator) -> np.ndarray:
    return A @ np.eye(A.shape[1])


@EVERY
@pytest.mark.parametrize("held", CONTAINERS)
def test_a_transformed_matrix_is_the_dense_one_also_of_other_rows(name: str, held: str) -> None:
    row, contained = ROWS[name], CONTAINERS[held]
    own = learn_all((row.how,), ss.as_operator(contained(X)), None, 0.0)
    np.testing.assert_allclose(formed(own.B), DENSE[name], **CLOSE)
    np.testing.assert_allclose(own.B.rmatmat(np.eye(len(X))).T, DENSE[name], **CLOSE)
    other = apply_all(own.fitted, ss.as_operator(contained(NEW)))
    np.testing.assert_allclose(formed(other), row.dense(X, NEW), **CLOSE)


@pytest.mark.one_in(3)
@EVERY
def test_svd_and_pca_are_those_of_the_dense_matrix(name: str) -> None:
    D, A = DENSE[name], sparse.csr_array(X)
    F = ss.svd(A, 5, preprocess=ROWS[name].how, solver="lanczos", tol=1e-10, rng=0)
    U, S, Vh = np.linalg.svd(D)
    np.testing.assert_allclose(F.S, S[:5], rtol=1e-8)
    gaps = np.minimum(S[:5] - S[1:6], np.append(np.inf, S[:4] - S[1:5])) / S[0]
    for j in np.flatnonzero(gaps > 1e-3):
        assert abs(abs(F.Vh[j] @ Vh[j]) - 1) < 1e-8
        assert abs(abs(F.U[:, j] @ U[:, j]) - 1) < 1e-8
    pca = ss.PCA(5, preprocess=ROWS[name].how, solver="exact").fit(A)
    mean = D.mean(axis=0)
    np.testing.assert_allclose(pca.singular_values_, np.linalg.svd(D - mean)[1][:5], rtol=1e-8)
    np.testing.assert_allclose(pca.mean_, mean, **CLOSE)
    explained = np.linalg.svd(D - mean)[1][:5] ** 2 / ((D - mean) ** 2).sum()
    np.testing.assert_allclose(pca.explained_variance_ratio_, explained, rtol=1e-8)
    E = ROWS[name].dense(X, NEW) - mean
    np.testing.assert_allclose(pca.transform(sparse.csr_array(NEW)), E @ pca.components_.T, rtol=1e-8, atol=1e-8)


@pytest.mark.one_in(3)
@EVERY
def test_the_bound_of_every_value_holds_at_a_loose_tolerance(name: str) -> None:
    S = np.linalg.svd(DENSE[name])[1][:6]
    F = ss.svd(sparse.csr_array(X), 6, preprocess=ROWS[name].how, solver="lanczos", tol=1e-4, rng=1)
    assert F.info.converged
    assert F.info.value_errors is not None
    assert np.all(np.abs(F.S - S) <= F.info.value_errors * F.S + 32 * EPS * S[0])  # LAPACK rounds, too
    assert F.info.value_errors.max() <= 1e-4


@pytest.mark.one_in(3)
@EVERY
def test_truncated_svd_transforms_new_rows_as_it_learned(name: str) -> None:
    A = sparse.csr_array(X)
    model = ss.TruncatedSVD(4, preprocess=ROWS[name].how, solver="exact")
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # some of these matrices are mostly their mean
        model.fit(A)
    np.testing.assert_allclose(model.singular_values_, np.linalg.svd(DENSE[name])[1][:4], rtol=1e-8)
    Z = ROWS[name].dense(X, NEW) @ model.components_.T
    np.testing.assert_allclose(model.transform(sparse.csr_array(NEW)), Z, rtol=1e-8, atol=1e-8)


@pytest.mark.one_in(3)
@EVERY
def test_weights_mean_repeated_rows(name: str) -> None:
    weights = np.random.default_rng(5).integers(0, 4, len(X))
    repeated = np.repeat(X, weights, axis=0)
    A = learn_all((ROWS[name].how,), ss.as_operator(repeated), None, 0.0)
    B = learn_all((ROWS[name].how,), ss.as_operator(X), weights.astype(float), 0.0)
    np.testing.assert_allclose(np.repeat(formed(B.B), weights, axis=0), formed(A.B), **CLOSE)
    one = ss.PCA(3, preprocess=ROWS[name].how, solver="exact").fit(repeated)
    other = ss.PCA(3, preprocess=ROWS[name].how, solver="exact").fit(X, sample_weight=weights)
    np.testing.assert_allclose(one.singular_values_, other.singular_values_, rtol=1e-8)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(ROWS)))
def test_the_order_of_rows_does_not_matter(seed: int, name: str) -> None:
    order = np.random.default_rng(seed).permutation(len(X))
    A = learn_all((ROWS[name].how,), ss.as_operator(sparse.csr_array(X[order])), None, 0.0)
    np.testing.assert_allclose(formed(A.B), DENSE[name][order], **CLOSE)


# What takes numbers of at least 0 that need not be whole, after what gives such numbers.
LAST = ["sqrt", "clr", "pmi", "anscombe", "tfidf", "binarize", "log-normalize"]


@settings(deadline=None)
@given(first=st.sampled_from(["log-normalize", "sqrt", "tfidf", "bm25", "positive pmi"]), last=st.sampled_from(LAST))
def test_composed_transformations_follow_each_other(first: str, last: str) -> None:
    how = [ROWS[first].how, ROWS[last].how]
    once, new = ROWS[first].dense(X, X), ROWS[first].dense(X, NEW)
    own = learn_all(tuple(how), ss.as_operator(sparse.csr_array(X)), None, 0.0)
    np.testing.assert_allclose(formed(own.B), ROWS[last].dense(once, once), **CLOSE)
    np.testing.assert_allclose(formed(apply_all(own.fitted, ss.as_operator(NEW))), ROWS[last].dense(once, new), **CLOSE)
    np.testing.assert_allclose(ss.preprocess(X, how) @ np.eye(24), ROWS[last].dense(once, once), **CLOSE)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.how.keeps_zeros])
def test_what_changes_zeros_can_only_come_last(name: str) -> None:
    with pytest.raises(ValueError, match="must be the last step"):
        ss.svd(X, 2, preprocess=[ROWS[name].how, ss.Sqrt()])


def test_scales_and_shifts_come_after() -> None:
    D = pearson(100)(X, X)
    centred = D - D.mean(axis=0)
    deviation = centred.std(axis=0)
    pca = ss.PCA(4, preprocess=ss.PearsonResiduals(), scale=True, solver="exact").fit(sparse.csr_array(X))
    np.testing.assert_allclose(pca.singular_values_, np.linalg.svd(centred / deviation)[1][:4], rtol=1e-8)
    F = ss.svd(sparse.csr_array(X), 4, shift="both", preprocess=ss.PearsonResiduals(), solver="exact")
    both = D - D.mean(axis=0) - D.mean(axis=1, keepdims=True) + D.mean()
    np.testing.assert_allclose(F.S, np.linalg.svd(both)[1][:4], rtol=1e-8)


def test_a_suggestion_is_of_the_transformed_matrix() -> None:
    A = sparse.csr_array(X)
    plain = ss.suggest_k(pearson(100)(X, X), max_k=9)
    assert ss.suggest_k(A, preprocess=ss.PearsonResiduals(), max_k=9).table["value"] == pytest.approx(
        plain.table["value"], rel=1e-4
    )
    logs = np.log1p(X * (1e4 / np.maximum(X.sum(axis=1, keepdims=True), 1)))
    ours = ss.suggest_k(A, "cv", preprocess=ss.LogNormalize(), max_k=4, rng=0)
    np.testing.assert_allclose(ours.table["error"], ss.suggest_k(logs, "cv", max_k=4, rng=0).table["error"], rtol=1e-6)
    with pytest.raises(ValueError, match="require transformations that keep zeros"):
        ss.suggest_k(A, "cv", preprocess=ss.PearsonResiduals())


def test_an_estimate_foresees_what_is_kept() -> None:
    A = sparse.csr_array(X)
    plain = ss.estimate(A, 3).peak_bytes
    kept = ss.estimate(A, 3, preprocess=ss.LogNormalize()).peak_bytes
    single = ss.estimate(A.astype(np.float32), 3, preprocess=ss.LogNormalize()).peak_bytes
    assert 8 * A.nnz <= kept - plain <= 8 * (A.nnz + 10 * len(X))
    assert single <= kept - 4 * A.nnz
    assert ss.estimate(A, 3, preprocess=ss.PearsonResiduals()).peak_bytes >= kept + 8 * len(X)


def test_without_room_for_a_copy_the_entries_are_changed_at_every_read() -> None:
    A = ss.as_operator(sparse.csr_array(X), memory_limit=A_LITTLE)
    own = learn_all((ss.PearsonResiduals(),), A, None, 0.0)
    stored = own.B.unshifted()[0]  # type: ignore[attr-defined]
    assert isinstance(stored, DiskRows)
    np.testing.assert_allclose(formed(own.B), DENSE["pearson"], **CLOSE)


A_LITTLE = 64  # bytes


def test_a_file_counts_the_zeros_that_a_transformation_stores() -> None:
    A = DiskRows(Given(sparse.csr_array(X)))
    assert A.counts.sum() == np.count_nonzero(X)  # which the transformed matrix must not take over
    B = learn_all((ss.PearsonResiduals(clip=2.0),), A, None, 0.0).B.unshifted()[0]
    np.testing.assert_array_equal(B.counts, DiskRows(B.source).counts)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("how", "data", "message"),
    [
        (ss.PearsonResiduals(), -X, "at least 0"),
        (ss.LogNormalize(), -X, "at least 0"),
        (ss.Sqrt(), -X, "at least 0"),
        (ss.CLR(), -X, "at least 0"),
        (ss.TfIdf(), -X, "at least 0"),
        (ss.BM25(), -X, "at least 0"),
        (ss.PMI(), -X, "at least 0"),
        (ss.PearsonResiduals(), np.where(X > 3, np.nan, X), "finite"),
        (ss.Ranks(), np.where(X > 3, np.nan, X), "finite"),
        (ss.DevianceResiduals("binomial"), X * (np.arange(24) == 3), "One column holds all counts"),
        (ss.PearsonResiduals(clip=0.1), X, "stored entries"),
        (ss.PearsonResiduals(VECTOR[1:]), X, "24 columns"),
        (ss.PearsonResiduals(), X + 1j, "real"),
        (ss.Elementwise(lambda x: np.divide(1, x - 3, out=np.full(len(x), np.inf), where=x != 3)), X, "finite"),
    ],
)
def test_what_means_nothing_is_refused(how: Any, data: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.svd(sparse.csr_array(data), 2, preprocess=how)


def test_settings_that_cannot_be_are_refused() -> None:
    for make, message in (
        (lambda: ss.PearsonResiduals(0), "theta must be"),
        (lambda: ss.PearsonResiduals("moments"), "theta must be"),
        (lambda: ss.PearsonResiduals(clip=-1), "clip must be"),
        (lambda: ss.DevianceResiduals("gauss"), "model must be"),
        (lambda: ss.DevianceResiduals("binomial", 3.0), "theta requires model"),
        (lambda: ss.PMI(-1), "smoothing must be"),
        (lambda: ss.PMI(1, positive=True), "positive=True requires"),
        (lambda: ss.CLR(0), "pseudocount must be"),
        (lambda: ss.LogNormalize(0), "target_sum must be"),
        (lambda: ss.TfIdf("l3"), "norm must be"),
        (lambda: ss.Elementwise(np.log), "one finite number"),
        (lambda: ss.svd(X, 2, preprocess="pearsn"), "preprocess must be one of log-normalize"),
        (lambda: ss.svd(X, 2, preprocess=3), "preprocess must be a transformation such as"),
        (lambda: ss.svd(X, 2, preprocess=ss.Sqrt(), shift="mean", missing="mean"), "missing"),
        (lambda: ss.PCA(2, preprocess=ss.Sqrt()).partial_fit(X), "partial_fit does not support"),
    ):
        with pytest.raises(ValueError, match=message), np.errstate(divide="ignore"):
            make()


def test_what_cannot_be_looked_at_cannot_be_transformed() -> None:
    with pytest.raises(TypeError, match="no access to its entries"):
        ss.svd(sparse.linalg.aslinearoperator(X), 2, preprocess=ss.Sqrt())
    shifted = ss.centered(sparse.csr_array(X))
    with pytest.raises(ValueError, match="must precede shifts"):
        ss.svd(shifted, 2, preprocess=ss.LogNormalize())


def test_scores_of_a_dask_array_are_lazy() -> None:
    da = pytest.importorskip("dask.array")
    pca = ss.PCA(3, preprocess=[ss.LogNormalize(), ss.CLR()], random_state=0).fit(X)
    lazy = pca.transform(da.from_array(NEW, chunks=(7, -1)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), pca.transform(NEW), rtol=1e-10, atol=1e-10)


def test_size_factors_are_those_of_the_rows_they_are_given_for() -> None:
    total = X.sum(axis=1) + 1
    some = sparse.csr_array(X[:, 3:9])  # whose sums are taken over all columns
    A = ss.preprocess(some, ss.LogNormalize(size_factors=total / 100))
    np.testing.assert_allclose(formed(A), np.log1p(X[:, 3:9] * (100 / total)[:, None]), **CLOSE)
    pca = ss.PCA(2, preprocess=ss.LogNormalize(size_factors=total)).fit(some)
    with pytest.raises(ValueError, match="must be None to transform new rows"):
        pca.transform(some[:4])
    with pytest.raises(ValueError, match="a number above 0 for each of the 80 rows"):
        ss.preprocess(some, ss.LogNormalize(size_factors=total[1:]))


def test_given_rates_take_the_place_of_those_of_the_columns() -> None:
    rates = X.sum(axis=0) / X.sum()
    A = ss.preprocess(X, ss.PearsonResiduals(log_rates=np.log(rates)))
    np.testing.assert_allclose(formed(A), DENSE["pearson"], atol=1e-7)


@pytest.mark.parametrize("name", [name for name in ROWS if "pearson" in name or "deviance" in name])
def test_rows_that_lack_columns_are_expected_to_have_been_as_large(name: str) -> None:
    # Of rows as the model expects them, those that are left say the same of the others.
    fitted = ROWS[name].how.learn(X, tol=0.0)
    rates, sizes = X.sum(axis=0) / X.sum(), np.arange(1.0, 6.0)
    model, there = np.outer(sizes, rates), np.flatnonzero(np.arange(24) % 3)
    R = sizes[:, None]
    part, whole = fitted.at(there), zeros_of(fitted, R)
    sums = model[:, there].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(part.how.quantities(sums, part), R, rtol=1e-12)
    found, wanted = zeros_of(part, R), whole
    assert found is not None
    assert wanted is not None
    np.testing.assert_allclose(formed(found), formed(wanted)[:, there], atol=1e-9)
    mask = np.isin(np.arange(24), there)
    A, B = (fitted.at(which).of(NEW[:, there]) for which in (there, mask))
    np.testing.assert_array_equal(formed(A), formed(B))
    whole_rows = fitted.of(NEW, R=(NEW[:, there].sum(axis=1) / rates[there].sum())[:, None])
    if "binomial" not in name:  # which knows how many counts a row has
        np.testing.assert_allclose(formed(A), formed(whole_rows)[:, there], atol=1e-8)


def test_quantiles_of_ranks_are_as_near_as_they_say() -> None:
    heavy = np.random.default_rng(0).standard_cauchy((5000, 3)).round(2) * np.array([1, 100, 0.01])
    heavy = np.column_stack([heavy, np.r_[np.arange(1.0, 31), np.full(4970, 31.0)]])  # values before a frequent one
    A, B = (formed(ss.preprocess(heavy, how)) for how in (ss.Ranks(), ss.Ranks(quantiles=50)))
    assert 0 < np.abs(A - B).max() <= 5000 / 50
    learned = ss.Ranks(quantiles=50).learn(heavy).table
    assert learned is not None
    assert len(learned) <= 3 * 130


def test_rows_of_weight_0_have_no_columns_that_are_highly_expressed() -> None:
    X, how = counts(30, 8), ss.LogNormalize(None, exclude_highly_expressed=True, max_fraction=0.6)
    X[0] = [1000, *np.ones(7)]
    w = np.arange(30.0) % 3
    found = learn_all((how,), ss.as_operator(X), w, 0.0).fitted[0]
    there = w > 0
    np.testing.assert_array_equal(found.columns, how.learn(X[there], w[there]).columns)
    assert not how.learn(X).columns[0]


def test_what_comes_first_of_several_is_not_rounded_to_single_precision() -> None:
    X = counts(30, 8).astype(np.float32)
    X[:, 0] += 1
    B = learn_all((ss.LogNormalize(1.0), ss.Elementwise(np.expm1)), ss.as_operator(X), None, 1e-3).B
    np.testing.assert_allclose(formed(B), X / X.sum(axis=1, keepdims=True, dtype=float), rtol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_ranks_are_the_same_whichever_way_a_matrix_is_stored_and_cut() -> None:
    X = np.random.default_rng(0).integers(-2, 5, (40, 7))
    for make in (np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array):
        for part in (X, X[:5]):
            found = formed(ss.preprocess(make(part), ss.Ranks()))
            np.testing.assert_array_equal(found, rankdata(part, axis=0))


@example([[-1e300]], [np.finfo(float).max])
@given(
    st.lists(st.lists(st.integers(-4, 9) | st.floats(-1e300, 1e300), max_size=9), min_size=1, max_size=4),
    st.lists(st.integers(-6, 12) | st.floats(allow_nan=False), min_size=1, max_size=9),
)
def test_a_value_is_found_where_its_column_has_it_or_would(columns: list[list[float]], sought: list[float]) -> None:
    kept = [np.unique(np.r_[np.asarray(column, float), 0.0]) for column in columns]
    ends = np.cumsum([len(column) for column in kept])
    values, line = np.concatenate(kept), np.arange(len(sought)) % len(kept)
    start, x = np.r_[0, ends[:-1]][line], np.asarray(sought, float)
    wanted = [lo + np.searchsorted(kept[j], one) for lo, j, one in zip(start, line, x, strict=True)]
    np.testing.assert_array_equal(first_not_below(x, values, start, ends[line]), wanted)


def test_single_precision_is_kept_where_the_tolerance_allows() -> None:
    A = sparse.csr_array(X.astype(np.float32))
    for tol, dtype in ((1e-4, np.float32), (1e-8, np.float64)):
        own = learn_all((ss.PearsonResiduals(),), ss.as_operator(A), None, tol)
        stored: Any = own.B.unshifted()[0]  # type: ignore[attr-defined]
        assert stored.X.dtype == dtype
        np.testing.assert_allclose(formed(own.B), DENSE["pearson"], atol=2e-6 if tol > 1e-5 else 1e-9)


def test_values_compare_by_what_they_ask_for() -> None:
    assert ss.PearsonResiduals(100) == ss.PearsonResiduals(100.0)
    assert ss.PearsonResiduals(100) != ss.PearsonResiduals(10)
    assert ss.PearsonResiduals(VECTOR) == ss.PearsonResiduals(VECTOR.copy())
    assert ss.PearsonResiduals(VECTOR) != ss.PearsonResiduals(VECTOR + 1)
    assert len({ss.PMI(1.0), ss.PMI(1.0), ss.PMI(0)}) == 2


def test_input_is_never_written() -> None:
    A = sparse.csr_array(X)
    before = A.copy()
    for row in ROWS.values():
        ss.preprocess(A, row.how)
    assert (A != before).nnz == 0


@pytest.mark.parametrize("tol", [1e-4, 1e-2])
@pytest.mark.parametrize("shift", [None, "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bounds_count_what_changed_entries_lose_in_single_precision(tol, shift, weighted):
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.lognormal(-1, 1.5, 150), (200, 150)).astype(np.float32)
    weights = rng.integers(1, 4, 200).astype(float) if weighted else None
    for how in (ss.LogNormalize(), ss.PearsonResiduals(), ss.CLR(2.0), [ss.LogNormalize(), ss.Sqrt()]):
        settings = {"shift": shift, "preprocess": how, "sample_weight": weights, "solver": "gram", "tol": tol}
        rounded, exact = (ss.svd(sparse.csr_array(X), 20, **settings) for X in (counts, counts.astype(float)))
        assert rounded.info.converged
        off = np.abs(rounded.S - exact.S) / exact.S
        assert (off <= rounded.info.value_errors + exact.info.value_errors).all()


def test_what_zeros_are_known_to_is_told_where_all_digits_were_computed():
    X = np.random.default_rng(0).poisson(1.0, (60, 24)).astype(float)
    F = ss.svd(X, 5, preprocess=ss.PearsonResiduals(), solver="exact")
    exact = np.linalg.svd(pearson(100.0)(X, X), compute_uv=False)[:5]
    assert (np.abs(F.S - exact) / exact <= F.info.value_errors + 100 * EPS).all()
    assert F.info.converged is None


def test_zeros_that_must_be_stored_are_counted() -> None:
    rng = np.random.default_rng(0)
    R, C = rng.lognormal(0, 2, (30, 2)), rng.lognormal(0, 2, (40, 2))
    change = Change(lambda x, r, c: x, R, C, dtype=np.float64, more=(1, 0))
    assert change.n_more() == int((np.outer(R[:, 1], C[:, 0]) > 1).sum())
