"""Rankings of features: those of dense formulas, whatever holds the counts, in the reads that are told."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.scanpy.ranking import Batches, Cutoffs, HighlyVariable, _local_fit, loess, rank
from shiftsvd.transforms import LogNormalize
from tests.support.containers import streamed
from tests.support.ranked import FLAVORS, OF_LOGARITHMS, cells, frame_of, logarithms
from tests.support.sampling import in_turn

X = cells()
BATCH = np.random.default_rng(1).choice(["b", "a", "c"], len(X), p=[0.5, 0.3, 0.2])
NAMES = np.array([f"gene{j}" for j in np.random.default_rng(2).permutation(X.shape[1])])
KINDS = {
    "CSR": sparse.csr_array,
    "CSC": sparse.csc_array,
    "dense": np.asarray,
    "wide dense": np.asfortranarray,
    "single": lambda D: sparse.csr_array(D, dtype=np.float32),
    "integers": lambda D: sparse.csr_array(D, dtype=np.int32),
    "stored zeros": lambda D: sparse.csr_array((np.ones(1), ([5], [5])), D.shape) * 0 + sparse.csr_array(D),
    "file": streamed(sparse.csr_array),
    "dense file": streamed(np.asarray),
    "file by genes": lambda D: streamed(lambda T: sparse.csr_array(T))(D.T).H,
}


def steps_of(flavor: str) -> tuple[Any, ...]:
    return (LogNormalize(),) if flavor in OF_LOGARITHMS else ()


def assert_ranked(found: Any, want: Any) -> None:
    for name, values in found.columns.items():
        rtol = 1e-9 if name != "highly_variable_rank" else 0
        np.testing.assert_allclose(values, want[name].to_numpy(), rtol=rtol, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("kind", "how"), in_turn(KINDS, product(FLAVORS, [False, True]), 3))
def test_a_ranking_is_that_of_the_dense_formulas(kind: str, how: tuple[str, bool], small_blocks: None) -> None:
    flavor, batched = how
    batch = BATCH if batched else None
    A = ss.as_operator(KINDS[kind](X))
    # With few genes in a bin, the normalised dispersions of several are alike but for rounding.
    more: dict[str, Any] = {"n_bins": 5} if batched and flavor == "seurat" else {}
    found = rank(A, HighlyVariable(30, flavor, **more), steps_of(flavor), Batches.of(batch, len(X)), NAMES)
    want = frame_of(X, flavor, 30, batch, NAMES, **more)
    assert_ranked(found, want)
    assert ("highly_variable_nbatches" in found.columns) == batched
    if flavor not in OF_LOGARITHMS:
        assert found.mask.sum() == 30


@pytest.mark.parametrize("flavor", OF_LOGARITHMS)
@pytest.mark.parametrize("batched", [False, True])
def test_cutoffs_choose_where_no_number_is_asked_for(flavor: str, batched: bool) -> None:
    batch, cutoffs = BATCH if batched else None, (0.01, 6.5, 0.2, 3.0)
    asked = HighlyVariable(None, flavor, cutoffs=Cutoffs(*cutoffs))
    found = rank(ss.as_operator(X), asked, (LogNormalize(),), Batches.of(batch, len(X)), NAMES)
    assert_ranked(found, frame_of(X, flavor, None, batch, NAMES, cutoffs=cutoffs))
    assert 0 < found.mask.sum() < X.shape[1]


@pytest.mark.parametrize(
    ("flavor", "more"),
    [
        ("seurat", {"n_bins": 5}),
        ("seurat_v3", {"span": 0.6}),
        ("pearson_residuals", {"theta": 10.0}),
        ("pearson_residuals", {"theta": np.inf}),
        ("pearson_residuals", {"clip": 2.0}),
        ("pearson_residuals", {"clip": np.inf}),
        ("pearson_residuals", {"theta": np.inf, "clip": np.inf}),
    ],
)
def test_settings_are_those_of_the_formulas(flavor: Any, more: dict[str, Any]) -> None:
    found = rank(ss.as_operator(sparse.csr_array(X)), HighlyVariable(25, flavor, **more), steps_of(flavor))
    assert_ranked(found, frame_of(X, flavor, 25, **more))


def test_zeros_of_many_genes_are_summed_by_interpolation_to_rounding() -> None:
    T = np.random.default_rng(0).poisson(np.random.default_rng(1).lognormal(-3, 2, 900) * np.ones((150, 1)))
    found = rank(ss.as_operator(sparse.csr_array(T)), HighlyVariable(100, "pearson_residuals"))
    want = frame_of(T.astype(float), "pearson_residuals", 100)
    np.testing.assert_allclose(found.columns["residual_variances"], want["residual_variances"], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("flavor", OF_LOGARITHMS)
def test_logarithms_are_ranked_as_they_are_in_their_base(flavor: Any) -> None:
    L = logarithms(X)
    want = rank(ss.as_operator(X), HighlyVariable(30, flavor), (LogNormalize(),))
    assert_ranked(rank(ss.as_operator(L), HighlyVariable(30, flavor)), pd.DataFrame(want.columns))
    if flavor == "seurat":
        in_twos = rank(ss.as_operator(L / np.log(2)), HighlyVariable(30, flavor), base=np.log(2))
        assert_ranked(in_twos, pd.DataFrame(want.columns))


def test_genes_far_from_the_origin_keep_their_dispersions() -> None:
    L = 1e6 + np.random.default_rng(0).standard_normal((300, 40)) * np.linspace(0.5, 2, 40)
    found = rank(ss.as_operator(L), HighlyVariable(5, "cell_ranger"))
    np.testing.assert_allclose(found.columns["dispersions"], L.var(axis=0, ddof=1) / L.mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_the_same_bits_for_any_number_of_threads(flavor: Any) -> None:
    tables = []
    for n_threads in (1, 3):
        A = ss.as_operator(sparse.csr_array(X), n_threads=n_threads)
        tables.append(rank(A, HighlyVariable(30, flavor), steps_of(flavor), Batches.of(BATCH, len(X))).columns)
    for name, values in tables[0].items():
        np.testing.assert_array_equal(values, tables[1][name])


class Read(list):
    """Takes down how many reads of the data there were."""

    def __call__(self, event: Any) -> None:
        self.append(event.done)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_ranking_takes_two_reads_of_a_file(flavor: Any) -> None:
    from shiftsvd.events import listening

    A, heard = streamed(sparse.csr_array)(X), Read()
    assert isinstance(A, DiskRows)
    with listening(heard):
        rank(A, HighlyVariable(30, flavor), steps_of(flavor), Batches.of(BATCH, len(X)))
    assert round(heard[-1]) == 2


def test_the_regression_follows_a_parabola_and_bends_where_points_lie_on_each_other() -> None:
    x = np.sort(np.random.default_rng(0).uniform(-2, 3, 400))
    np.testing.assert_allclose(loess(x, 1 - x + 0.5 * x**2, 0.3), 1 - x + 0.5 * x**2, atol=2e-3)
    np.testing.assert_allclose(loess(x, 2 + x, 0.3), 2 + x, atol=1e-12)
    tied = np.r_[np.zeros(300), x[x > 0]]
    assert np.isfinite(loess(tied, tied**2, 0.3)).all()


def test_the_regression_is_that_of_scikit_misc() -> None:
    skmisc = pytest.importorskip("skmisc.loess")
    rng = np.random.default_rng(0)
    for n, span in ((300, 0.3), (1999, 0.3), (5000, 0.3), (777, 0.75), (20000, 0.1)):
        x = rng.gamma(0.5, 1, n) * 3 - 4
        x = np.round(x, 2) if n == 777 else x
        y = np.sin(x) + 0.3 * rng.standard_normal(n)
        theirs = skmisc.loess(x, y, span=span, degree=2)
        theirs.fit()
        np.testing.assert_allclose(loess(x, y, span), theirs.outputs.fitted_values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: HighlyVariable(10, "seurt"), "flavor must be one of seurat, cell_ranger"),  # type: ignore[arg-type]
        (lambda: HighlyVariable(0), "n_top_genes must be a positive integer, got 0"),
        (lambda: HighlyVariable(10, n_bins=0), "n_bins must be"),
        (lambda: HighlyVariable(10, "seurat_v3", span=2), "span must be above 0 and at most 1, got 2"),
        (lambda: HighlyVariable(10, "pearson_residuals", theta=-1), "theta must be above 0"),
        (lambda: HighlyVariable(10, "pearson_residuals", clip=-1), "clip must be at least 0"),
        (lambda: Batches.of(BATCH[:5], len(X)), "one label for each of the 240 rows"),
        (
            lambda: Batches.of(np.where(np.arange(240) < 9, None, BATCH), 240),
            "a label for every row, got 9 missing labels",
        ),
        (
            lambda: Batches.of(np.where(np.arange(240) < 1, "x", BATCH), 240),
            "at least 2 rows in every batch, got 1 in batch x",
        ),
        (lambda: Batches.of(None, 1), "at least 2 rows, got 1"),
        (lambda: rank(ss.as_operator(X), HighlyVariable(10)), "all entries are whole numbers"),
        (
            lambda: rank(ss.as_operator(X[:, :9]), HighlyVariable(3, "seurat_v3")),
            "at least 4 of the 7 features that vary, got 0.3. Raise span to 0.58, or pass flavor=",
        ),
        (
            lambda: rank(ss.as_operator(X[:, :3]), HighlyVariable(3, "seurat_v3")),
            r"at least 4 of the 3 features that vary, got 0.3. Pass flavor",
        ),
        (lambda: rank(ss.as_operator(0 * X), HighlyVariable(3), (LogNormalize(),)), "all features are constant"),
        (
            lambda: rank(ss.as_operator(-logarithms(X)), HighlyVariable(3)),
            "with means below 0 have no dispersion",
        ),
        (
            lambda: rank(ss.as_operator(X[:, 10:20]), HighlyVariable(3, "cell_ranger"), (LogNormalize(),)),
            "features with similar means all have the same dispersion. Pass more features, or rank raw counts",
        ),
        (
            lambda: rank(ss.as_operator(X + 0.5 + 900 * (X > 9)), HighlyVariable(10)),
            "exponentials of the entries overflow",
        ),
        (lambda: rank(ss.as_operator(-X), HighlyVariable(10, "seurat_v3")), "at least 0, got -"),
        (lambda: rank(ss.as_operator(X), HighlyVariable(10), (ss.PearsonResiduals(),)), "ranks logarithms of counts"),
        (lambda: rank(ss.as_operator(X), HighlyVariable(9, "seurat_v3"), (LogNormalize(),)), "Remove preprocess"),
        (
            lambda: rank(ss.as_operator(X), HighlyVariable(cutoffs=Cutoffs(min_mean=99)), (LogNormalize(),)),
            "no feature is highly variable",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_counts_that_are_no_whole_numbers_are_ranked_in_silence() -> None:
    rank(ss.as_operator(X + 0.25 * (np.arange(X.size).reshape(X.shape) < 3)), HighlyVariable(9, "seurat_v3"))


def test_features_of_equal_dispersion_in_a_bin_have_no_normalised_one() -> None:
    alike = np.zeros((9, 40))
    alike[4, :28] = 1 / 3
    alike[:, 28:] = np.random.default_rng(0).gamma(2.0, 1.0, (9, 12))
    norm = rank(ss.as_operator(alike), HighlyVariable(5)).columns["dispersions_norm"]
    assert np.isnan(norm[:28]).all()
    assert np.isfinite(norm[28:]).all()


def test_fewer_features_than_asked_for_are_told() -> None:
    with pytest.warns(UserWarning, match="Only 117 features can be ranked and are kept, instead of 500"):
        found = rank(ss.as_operator(X), HighlyVariable(500), (LogNormalize(),))
    assert found.mask.sum() == 117


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1] * 120),
        np.array([3.5, 1.0] * 120),
        np.array([True, False] * 120),
        np.array(["b", "a"] * 120),
        np.array(["b", "a"] * 120, dtype=object),
        pd.Categorical(["b", "a"] * 120, categories=["b", "a", "c"]),
    ],
)
def test_labels_of_any_kind_are_batches(labels: Any) -> None:
    batches = Batches.of(labels, 240)
    np.testing.assert_array_equal(batches.codes, [1, 0] * 120)
    np.testing.assert_array_equal(batches.sizes, [120, 120])


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, ""])
def test_missing_labels_of_any_kind_are_refused(gap: Any) -> None:
    labels = np.array(["a"] * 239 + [gap], dtype=object)
    with pytest.raises(ValueError, match="a label for every row, got 1 missing label"):
        Batches.of(labels, 240)


def test_a_local_fit_is_the_weighted_least_squares_parabola_with_tricube_weights() -> None:
    # Cleveland & Devlin (1988)
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.uniform(0, 3, 40)), rng.standard_normal(40)
    distances = np.abs(x - 1.2)
    near = distances < np.sort(distances)[14]
    root = (1 - (distances[near] / np.sort(distances)[14]) ** 3) ** 1.5
    curved = np.polyfit(x[near] - 1.2, y[near], 2, w=root)
    np.testing.assert_allclose(_local_fit(x, y, 1.2, 15), curved[:0:-1], rtol=1e-9)
