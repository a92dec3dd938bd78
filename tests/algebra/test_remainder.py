"""What is left over: the Frobenius error of the factors that are returned, and the noise of the model behind PCA."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.solvers import Solver
from tests.support.blocks import cut_small
from tests.support.containers import Held
from tests.support.matrices import Array
from tests.support.operators import Minimal
from tests.support.sampling import pairs

dask_array = pytest.importorskip("dask.array")

SHARES = (0.999, 0.3, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)  # of the squares that is left over
SOLVERS: dict[str, Solver] = {
    "exact": ss.Exact(),
    "gram": ss.Gram(),
    "lanczos": ss.BlockLanczos(),
    "unconverged": ss.BlockLanczos(tol=0, block_size=5, max_passes=1),
    "randomized": ss.RandomizedSVD(n_iter=2),
    "without iterations": ss.RandomizedSVD(n_iter=0, n_oversamples=2),
    "last": ss.RandomizedSVD(n_iter=1, finish="last"),
    "shifted": ss.ShiftedRandomizedSVD(n_iter=1),
}
STORED: dict[str, Callable[[Array], Any]] = {
    "dense": np.array,
    "by columns": np.asfortranarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "dense file": lambda D: DiskRows(Held(D)),
    "sparse file": lambda D: DiskRows(Held(sparse.csr_array(D))),
    "dask": lambda D: ss.as_operator(dask_array.from_array(D, chunks=(37, -1))),
}


def signal_and_noise(shape: tuple[int, int], share: float, dtype: Any, blocks: bool, seed: int = 0) -> Array:
    """Rank 5, of rows and columns of ones and zeros or without zeros, and as much noise as is to be left over."""
    rng = np.random.default_rng(seed)
    m, n = shape
    L, R = rng.standard_normal((m, 5)), rng.standard_normal((n, 5))
    if blocks:
        L, R = L * (rng.random((m, 5)) < 0.2), R * (rng.random((n, 5)) < 0.3)
    D = (L * [4, 3, 2.5, 2, 1.5]) @ R.T
    E = rng.standard_normal(shape) * (rng.random(shape) < (0.1 if blocks else 1))
    return (D + E * np.sqrt(share / (1 - share)) * np.linalg.norm(D) / np.linalg.norm(E)).astype(dtype)


def left_by(F: ss.SVDResult, D: Array) -> float:
    """``||D - U S Vh||_F`` in double precision."""
    wide = np.complex128 if np.iscomplexobj(D) else np.float64
    return float(np.linalg.norm(D - (np.asarray(F.U).astype(wide) * F.S) @ np.asarray(F.Vh).astype(wide)))


@pytest.mark.filterwarnings("ignore:.*components? did not converge")
@pytest.mark.parametrize(
    ("name", "stored", "dtype", "turn"), pairs(SOLVERS, STORED, [np.float64, np.float32], range(4))
)
def test_the_frobenius_error_is_that_of_the_factors_returned(name: str, dtype: Any, stored: str, turn: int) -> None:
    for share, shape, shift in pairs(SHARES[turn::4], [(150, 40), (40, 150)], [None, "mean"]):
        D = signal_and_noise(shape, share, dtype, blocks="sparse" in stored or stored[:2] == "cs")
        F = ss.svd(STORED[stored](D), 5, shift=shift, solver=SOLVERS[name], rng=1)
        want = left_by(F, D - (D.mean(axis=0, dtype=np.float64) if shift else 0.0))
        assert F.info.frobenius_error == pytest.approx(want, rel=0.01), (shape, share, shift)


@pytest.mark.parametrize("shape", [(150, 40), (40, 150)], ids=str)
def test_the_frobenius_error_includes_the_rounding_of_single_precision_products(shape: tuple[int, int]) -> None:
    # Without the part of columns of A V that are not orthogonal, it was up to 9 % too small.
    for seed in range(3):
        D = signal_and_noise(shape, 1e-14, np.float32, blocks=False, seed=seed)
        F = ss.svd(D, 5, solver="lanczos", rng=1)
        assert F.info.frobenius_error == pytest.approx(left_by(F, D), rel=0.02)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("stored", ["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_the_frobenius_error_of_complex_data_is_that_of_the_factors(dtype: Any, stored: str) -> None:
    for turn, shape in enumerate(((150, 40), (40, 150))):
        for share in SHARES[turn::2]:
            D = signal_and_noise(shape, share, np.float64, True) + 1j * signal_and_noise(shape, share, np.float64, True)
            D = D.astype(dtype)
            for solver in (ss.BlockLanczos(), ss.RandomizedSVD(n_iter=2)):
                F = ss.svd(STORED[stored](D), 5, solver=solver, rng=1)
                assert F.info.frobenius_error == pytest.approx(left_by(F, D), rel=0.01), (shape, share, solver)


@pytest.mark.parametrize("seed", range(5))
def test_phases_leave_single_vectors_as_long_as_rounding_does(seed: int) -> None:
    # Unit numbers rounded to single precision are not of length 1, and all of a vector is off by that, one way.
    D = signal_and_noise((150, 40), 1e-12, np.float64, True) + 1j * signal_and_noise((150, 40), 1e-12, np.float64, True)
    D = (D * np.exp(6j * np.random.default_rng(seed).random(40))).astype(np.complex64)
    F = ss.svd(D, 5, rng=0)
    lengths = [np.linalg.norm(np.asarray(W).astype(np.complex128), axis=0) for W in (F.U, F.Vh.T)]
    assert np.max(np.abs(np.array(lengths) - 1)) < 4e-8
    assert F.info.frobenius_error == pytest.approx(left_by(F, D), rel=0.003)


@pytest.mark.parametrize("name", ["gram", "lanczos", "randomized"])
def test_full_columns_of_sparse_data_leave_what_is_left_of_all(name: str) -> None:
    # Single data have those columns rounded after the shift, which the norm of the data knows nothing of.
    for dtype in (np.float64, np.float32):
        for share in (1e-6, 1e-10):
            D = signal_and_noise((150, 40), share, np.float64, blocks=True)
            D[:, :3] += 1000 * np.arange(1, 4)
            D = D.astype(dtype)
            F = ss.svd(sparse.csr_array(D), 5, shift="mean", solver=SOLVERS[name], rng=0)
            want = left_by(F, D - D.mean(axis=0, dtype=np.float64))
            assert F.info.frobenius_error == pytest.approx(want, rel=0.01)


def test_an_operator_that_only_multiplies_knows_its_remainder_by_products() -> None:
    class Known(Minimal):
        def frobenius_norm(self) -> float:
            return float(np.linalg.norm(self.D))

    for shape in ((150, 40), (40, 150)):
        for share in SHARES:
            D = signal_and_noise(shape, share, np.float64, blocks=False)
            F = ss.svd(Known(D), 5, solver=ss.BlockLanczos(), rng=0)
            assert F.info.frobenius_error == pytest.approx(left_by(F, D), rel=0.01), (shape, share)


@pytest.mark.parametrize("stored", [*STORED, "of one's own"])
def test_what_is_beyond_a_projection_has_the_squares_of_the_explicit_difference(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch)
    rng = np.random.default_rng(0)
    D, weights = signal_and_noise((90, 30), 1e-20, np.float64, blocks=True), rng.random(90)
    scale, rows = rng.random(30) + 0.5, rng.random(90) + 0.5
    scale[3] = 0
    X = ss.as_operator((STORED | {"of one's own": Minimal})[stored](D))
    A = ss.operators.Scaled(X - ss.LowRank(np.ones(90), D.mean(axis=0)), rows, scale)
    B = rows[:, None] * (D - D.mean(axis=0)) * scale
    V = np.linalg.svd(B)[2][:5].T
    V[3] = 0  # where the scale is 0
    W = V + 1e-9 * rng.standard_normal(V.shape) * (V != 0)
    for w in (None, weights):
        squares = A.squares_beyond(V, W, w)
        want = (np.ones(90) if w is None else w) @ (B - (B @ V) @ W.T) ** 2
        assert squares == pytest.approx(want, rel=1e-4, abs=1e-30 * np.linalg.norm(B) ** 2)


def test_ordinary_fits_read_the_data_no_more_often_than_before() -> None:
    class Known(Minimal):
        def frobenius_norm(self) -> float:
            return float(np.linalg.norm(self.D))

        def squares_beyond(self, *_: Any) -> Array:
            raise AssertionError("a difference of squares tells it")

    D = np.random.default_rng(0).standard_normal((300, 60))
    for dtype in (np.float32, np.float64):
        F = ss.svd(Known(D.astype(dtype)), 5, solver=ss.BlockLanczos(), rng=0)
        assert F.info.frobenius_error == pytest.approx(left_by(F, D.astype(dtype)), rel=1e-5)


# --- the noise of PCA -----------------------------------------------------------------------------------------


def variance_left(pca: ss.PCA, X: Array, weights: Array | None = None) -> float:
    """The variance that the components returned leave over of the shifted, scaled data, in double precision."""
    w = np.ones(len(X)) if weights is None else weights
    D = X.astype(np.float64) - pca.mean_
    D = np.sqrt(w)[:, None] * (D if pca.scale_ is None else D / pca.scale_)
    V = np.linalg.qr(pca.components_.astype(np.float64).T)[0]
    return float(np.linalg.norm(D - (D @ V) @ V.T) ** 2) / (w.sum() - 1) / (min(X.shape[1], w.sum()) - V.shape[1])


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("stored", "solver", "dtype", "share"),
    pairs(
        ["dense", "csr", "csc", "dense file", "sparse file"],
        ["auto", "exact", "gram", "lanczos", "randomized"],
        [np.float64, np.float32],
        [1e-2, 1e-6, 1e-10],
    ),
)
def test_the_noise_variance_is_what_the_components_leave_over(
    stored: str, solver: str, dtype: Any, share: float
) -> None:
    rng = np.random.default_rng(1)
    ways = (False, False), (True, False), (True, True)
    for (scale, weighted), shape in pairs(ways, [(200, 40), (40, 200)]):
        X = signal_and_noise(shape, share, dtype, blocks=True)
        X = X[:, X.any(axis=0)]
        weights = rng.integers(1, 4, shape[0]).astype(float) if weighted else None
        pca = ss.PCA(5, scale=scale, solver=solver, random_state=0)
        pca.fit(STORED[stored](X), sample_weight=weights)
        want = variance_left(pca, X, weights)
        assert pca.noise_variance_ == pytest.approx(want, rel=1e-3), (shape, share, scale)
        assert pca.noise_variance_ > 0
        assert np.isfinite(pca.score(X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_noise_of_a_weak_background_is_its_variance(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 5)) @ rng.standard_normal((5, 60)) + 1e-5 * rng.standard_normal((4000, 60))
    pca = ss.PCA(5, random_state=0).fit(X.astype(dtype))
    # 220 000 numbers tell a variance to three times a third of a percent; single data add their own rounding.
    assert pca.noise_variance_ == pytest.approx(1e-10, rel=0.01)


def test_data_of_rank_k_leave_no_noise_whatever_they_are_stored_in() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        for blocks in (False, True):
            # Small integers: what is stored is of rank 5 in single precision too.
            L, R = rng.integers(-3, 4, (300, 5)), rng.integers(-3, 4, (50, 5))
            L = L * (rng.random(L.shape) < 0.3) if blocks else L
            X = (L @ R.T).astype(dtype)
            for stored in ("dense", "csr", "csc", "dense file"):
                pca = ss.PCA(6, solver="exact").fit(STORED[stored](X))
                assert pca.noise_variance_ == 0


# --- what is not rounded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["dense", "csr"])
@pytest.mark.parametrize("solver", ["exact", "gram", "lanczos", "randomized"])
def test_values_of_single_data_are_double_and_panels_are_single(solver: str, stored: str) -> None:
    X = STORED[stored](signal_and_noise((120, 30), 0.3, np.float32, blocks=True))
    F = ss.svd(X, 4, shift="mean", solver=solver, rng=0, certify=True)
    assert F.S.dtype == F.info.residuals.dtype == F.info.value_errors.dtype == np.float64
    assert F.dtype == F.U.dtype == F.Vh.dtype == np.float32
    V = np.ones((30, 2), np.float32)
    assert F.matmat(V).dtype == F.rmatmat(np.ones((120, 1), np.float32)).dtype == np.float32
    assert F.H.dtype == F.truncate(2).dtype == np.float32
    assert (F @ V).dtype == np.float32
    for model in (ss.PCA(4, solver=solver, random_state=0), ss.TruncatedSVD(4, solver=solver, random_state=0)):
        Z = model.fit_transform(X)
        assert Z.dtype == model.components_.dtype == np.float32
        for name in ("singular_values_", "explained_variance_", "explained_variance_ratio_"):
            assert getattr(model, name).dtype == np.float64


def test_values_of_single_data_are_those_of_the_same_data_in_double_to_more_digits_than_single_has() -> None:
    X = signal_and_noise((200, 30), 0.3, np.float32, blocks=False)
    S = np.linalg.svd(X.astype(np.float64), compute_uv=False)[:4]
    for solver in ("exact", "gram"):
        assert ss.svd(X, 4, solver=solver, tol=1e-10, rng=0).S == pytest.approx(S, rel=1e-10)


def test_a_file_of_a_single_model_keeps_double_values_and_one_of_a_former_version_loads(tmp_path: Any) -> None:
    X = signal_and_noise((60, 12), 0.3, np.float32, blocks=False)
    for dtype in (np.float64, np.float32):
        pca = ss.PCA(3, random_state=0).fit(X)
        for name in ("singular_values_", "explained_variance_", "explained_variance_ratio_"):
            setattr(pca, name, getattr(pca, name).astype(dtype))
        pca.save(tmp_path / f"{np.dtype(dtype)}.safetensors")
        again = ss.load_model(tmp_path / f"{np.dtype(dtype)}.safetensors")
        assert again.singular_values_.dtype == dtype
        assert np.array_equal(again.singular_values_, pca.singular_values_)


def test_scikit_learns_class_of_a_single_model_gives_single_panels() -> None:
    X = signal_and_noise((60, 12), 0.3, np.float32, blocks=False)
    for whiten in (False, True):
        theirs = ss.PCA(3, whiten=whiten, random_state=0).fit(X).to_sklearn()
        Z = theirs.transform(X)
        assert Z.dtype == theirs.explained_variance_.dtype == np.float32


def test_the_threshold_of_a_spectrum_knows_a_weak_background() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 50)) + 1e-6 * rng.standard_normal((400, 50))
    for fitted in (ss.svd(X, 10, shift="mean", rng=0), ss.PCA(10, random_state=0).fit(X)):
        assert ss.suggest_k(fitted, "gavish-donoho").k == 3


@pytest.mark.parametrize("solver", [ss.BlockLanczos(tol=1e-10, block_size=4), ss.Gram()], ids=repr)
def test_the_norm_of_the_rest_of_a_difference_knows_the_size_of_the_shift(solver: Any) -> None:
    # The shift stays implicit, as no line of the data is full, and is 1e3 times as large as what it leaves.
    rng = np.random.default_rng(0)
    L, R = np.repeat([1.0, 0.0], 40)[:, None], np.repeat([1.0, 0.0], 20)[:, None]
    S = ss.LowRank(L, 1e3 * R * (1 + rng.random((40, 1))))
    block = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 40)) + 1e-4 * rng.standard_normal((80, 40))
    A = S.L @ S.R.T + block * (L @ R.T)
    F = ss.svd(sparse.csr_array(A), 2, shift=S, solver=solver, rng=0)
    exact = np.linalg.norm(np.linalg.svd(A - S.L @ S.R.T, compute_uv=False)[2:])
    assert F.info.frobenius_error == pytest.approx(exact, rel=1e-3)
