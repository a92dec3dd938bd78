"""Data at any scale: a power of two is taken out, so that bits are the same, and other scales cost rounding only."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.solvers import Solver
from tests.support.matrices import EPS
from tests.support.sampling import pairs
from tests.support.scaled import SINGLE, SOLVERS, _dask, _file, dense, same_bits, thin

POWERS = (-996, -530, -300, -61, -40, 60, 101, 300, 511, 990)
SCALES = (1e-300, 1e-160, 1e-100, 1e80, 1e160, 1e300)


KINDS: dict[str, Callable[[float, Path], Any]] = {
    "dense": lambda c, path: dense() * c,
    "wide": lambda c, path: np.ascontiguousarray(dense().T) * c,
    "by columns": lambda c, path: np.asfortranarray(dense() * c),
    "complex": lambda c, path: dense() * (1 + 0.5j) * c,
    "csr": lambda c, path: thin() * c,
    "csc": lambda c, path: (thin() * c).tocsc(),
    "wide csr": lambda c, path: sparse.csr_array((thin() * c).T),
    "file": lambda c, path: _file(dense() * c, path),
    "sparse file": lambda c, path: _file(thin() * c, path),
    "dask": lambda c, path: _dask(dense() * c, path),
}


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize(
    ("kind", "solver", "shift", "scale", "turn"),
    pairs(KINDS, SOLVERS, [None, "mean"], [None, "std"], range(5)),
    ids=repr,
)
def test_powers_of_two_give_equal_bits_and_other_scales_differ_by_rounding(
    kind, shift, scale, solver, turn, tmp_path
) -> None:
    settings = {"shift": shift, "scale": scale, "solver": solver, "rng": 0, "n_threads": 1}
    if kind == "dask":
        settings.pop("n_threads")
    G = ss.svd(KINDS[kind](1.0, tmp_path), 5, **settings)
    for power in POWERS[turn::5]:
        F = ss.svd(KINDS[kind](2.0**power, tmp_path), 5, **settings)
        same_bits(F, G, 0 if scale else power)
    for c in SCALES[turn::5]:
        F = ss.svd(KINDS[kind](c, tmp_path), 5, **settings)
        assert np.allclose(F.S / (1 if scale else c), G.S, rtol=100 * EPS, atol=0)
        assert F.info.frobenius_error == pytest.approx(G.info.frobenius_error * (1 if scale else c), rel=1e-10)


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize(
    ("kind", "solver", "shift", "scale", "turn"),
    pairs(SINGLE, SOLVERS, [None, "mean"], [None, "std"], range(3)),
    ids=repr,
)
def test_single_precision_data_give_equal_bits_as_far_as_they_reach(kind, shift, scale, solver, turn, tmp_path) -> None:
    settings = {"shift": shift, "scale": scale, "solver": solver, "rng": 0, "n_threads": 1}
    G = ss.svd(SINGLE[kind](1.0, tmp_path), 5, **settings)
    for power in (-110, -60, -21, 20, 60, 120)[turn::3]:
        X = SINGLE[kind](2.0**power, tmp_path)
        with np.errstate(under="raise"):
            same_bits(ss.svd(X, 5, **settings), G, 0 if scale else power)


@pytest.mark.parametrize("scale", ["std", "pareto", "vector"])
def test_columns_at_the_ends_of_the_range_stand_beside_each_other(scale: str) -> None:
    D = dense()
    units = np.resize([-532, 0, 532, 60, -60], D.shape[1])
    given = (lambda c: np.arange(1.0, 41) * c) if scale == "vector" else lambda c: scale
    G = ss.svd(D, 5, shift="mean", scale=given(1.0), rng=0)
    if scale == "pareto":  # of one unit, since the root of a deviation keeps half of it
        units = np.full(D.shape[1], -532)
    F = ss.svd(np.ldexp(D, units), 5, shift="mean", scale=given(np.ldexp(1.0, units)), rng=0)
    if scale == "pareto":
        same_bits(F, G, -266)
        return
    same_bits(F, G, 0)
    B = ss.svd(sparse.csr_array(np.ldexp(D, units)), 5, shift="mean", scale=given(np.ldexp(1.0, units)), rng=0)
    assert np.allclose(B.S, G.S, rtol=1e-4)


@pytest.mark.parametrize("scale", [False, "std"])
@pytest.mark.parametrize("kind", ["dense", "csr", "file", "sparse file"])
@pytest.mark.parametrize("power", [-996, -530, -140, 140, 530, 990])
def test_pca_is_the_same_at_any_scale(kind: str, power: int, scale: Any, tmp_path: Path) -> None:
    settings = {"n_components": 5, "scale": scale, "random_state": 0, "n_threads": 1}
    c = 0 if scale else power
    one = ss.PCA(**settings).fit(KINDS[kind](1.0, tmp_path))
    Z = one.transform(KINDS[kind](1.0, tmp_path))
    extreme = not scale and abs(power) > 500
    X = KINDS[kind](2.0**power, tmp_path)
    with pytest.warns(UserWarning, match="are outside the range") if extreme else warnings.catch_warnings():
        pca = ss.PCA(**settings).fit(X)
    assert np.array_equal(pca.components_, one.components_)
    assert np.array_equal(np.ldexp(pca.singular_values_, -c), one.singular_values_)
    assert np.array_equal(np.ldexp(pca.mean_, -power), one.mean_)
    assert np.allclose(pca.explained_variance_ratio_, one.explained_variance_ratio_, rtol=100 * EPS)
    if scale:
        assert np.array_equal(np.ldexp(pca.scale_, -power), one.scale_)
    assert np.allclose(np.ldexp(pca.transform(X), -c), Z, rtol=0, atol=100 * EPS * np.abs(Z).max())
    back = np.ldexp(pca.inverse_transform(pca.transform(X)), -power)
    assert np.allclose(back, one.inverse_transform(Z), rtol=0, atol=1000 * EPS * np.abs(back).max())
    if extreme:
        assert (
            np.all(pca.explained_variance_ == np.finfo(float).max)
            if power > 0
            else np.all(pca.explained_variance_ < 1e-300)
        )
        with pytest.raises(ValueError, match="by a power of two"):
            pca.score(X)
    elif not scale:
        shifted = one.score_samples(KINDS[kind](1.0, tmp_path)) - len(one.mean_) * power * np.log(2)
        assert np.allclose(pca.score_samples(X), shifted, rtol=1e-9)


@pytest.mark.parametrize("power", [-996, -530, -80, 80, 530, 990])
@pytest.mark.parametrize("weights", [None, np.resize([1.0, 2.0, 3.0], 300)], ids=["plain", "weighted"])
def test_whitened_scores_have_unit_variance_at_any_scale(power: int, weights: Any) -> None:
    D = dense()
    Z = ss.PCA(5, whiten=True, random_state=0).fit(D, sample_weight=weights).transform(D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pca = ss.PCA(5, whiten=True, random_state=0).fit(np.ldexp(D, power), sample_weight=weights)
    assert np.allclose(pca.transform(np.ldexp(D, power)), Z, rtol=0, atol=1e4 * EPS)


@pytest.mark.parametrize("power", [-996, -530, 530, 990])
@pytest.mark.parametrize("X", [dense(), thin()], ids=["dense", "csr"])
def test_norms_and_residuals_follow_the_scale(X: Any, power: int) -> None:
    F, A = ss.svd(X, 5, rng=0, tol=1e-9), ss.as_operator(X)
    G, B = ss.svd(X * 2.0**power, 5, rng=0, tol=1e-9), ss.as_operator(X * 2.0**power)
    assert np.ldexp(ss.spectral_norm(B), -power) == pytest.approx(ss.spectral_norm(A), rel=1e-8)
    assert np.ldexp(ss.frobenius_error(B, G), -power) == pytest.approx(ss.frobenius_error(A, F), rel=1e-10)
    assert np.ldexp(B.frobenius_norm(), -power) == A.frobenius_norm()
    assert np.allclose(ss.residuals(B, G), ss.residuals(A, F), rtol=0, atol=100 * EPS)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("kind", [ss.as_operator, aslinearoperator], ids=["ours", "foreign"])
def test_a_solver_takes_an_operator_at_any_scale(kind: Callable[[Any], Any], solver: Solver) -> None:
    D = dense()
    G = solver(ss.as_operator(kind(D)), 5, 0)
    for power in (-900, -530, -300, 300, 530, 900):
        F = solver(ss.as_operator(kind(np.ldexp(D, power))), 5, 0)
        assert np.allclose(np.ldexp(F.S, -power), G.S, rtol=1e4 * EPS)
        assert F.info.n_passes == G.info.n_passes


@pytest.mark.parametrize("power", [-996, -530, -140, 140, 530, 990])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_truncated_svd_is_the_same_at_any_scale(kind: str, power: int, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the first component is the mean")
        warnings.filterwarnings("ignore" if abs(power) > 500 else "error", "Some variances are outside the range")
        one = ss.TruncatedSVD(4, random_state=0).fit(KINDS[kind](1.0, tmp_path))
        svd = ss.TruncatedSVD(4, random_state=0).fit(KINDS[kind](2.0**power, tmp_path))
    assert np.array_equal(svd.components_, one.components_)
    assert np.array_equal(np.ldexp(svd.singular_values_, -power), one.singular_values_)
    assert np.allclose(svd.explained_variance_ratio_, one.explained_variance_ratio_, rtol=1e-10)
    assert np.allclose(svd.mean_alignment_, one.mean_alignment_, rtol=100 * EPS)


@pytest.mark.parametrize("c", SCALES)
@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_missing_entries_at_the_mean_stay_there_at_any_scale(make: Callable[[Any], Any], scale: Any, c: float) -> None:
    D = dense()
    D[np.random.default_rng(1).random(D.shape) < 0.1] = np.nan
    settings = {"shift": "mean", "scale": scale, "missing": "mean", "rng": 0}
    F, G = ss.svd(make(D * c), 4, **settings), ss.svd(make(D), 4, **settings)
    assert np.allclose(F.S / (1 if scale else c), G.S, rtol=1e4 * EPS)


@pytest.mark.parametrize("c", [1e-300, 1e-160, 1e160, 1e300])
def test_what_sums_squares_refuses_data_whose_squares_are_no_numbers(c: float) -> None:
    D = dense()
    with pytest.raises(ValueError, match="by the same power of two"):
        ss.PCA(3).partial_fit(D * c)
    with pytest.raises(ValueError, match="by a power of two"):
        ss.PCoA(3).fit(np.abs(np.subtract.outer(D[:, 0], D[:, 0])) * c)
    D[3, 4] = np.nan
    with pytest.raises(ValueError, match="by a power of two"):
        ss.complete_matrix(D * c, 3, rng=0, n_threads=1)


def test_a_constant_column_hides_no_small_ones() -> None:
    small = np.ldexp(dense(), -400)
    G = ss.svd(np.delete(small, 7, axis=1), 5, shift="mean", rng=0)
    small[:, 7] = 1.0  # nothing is left of it once the mean is off
    F = ss.svd(small, 5, shift="mean", rng=0)
    assert np.allclose(F.S, G.S, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("power", [-996, 530, 990])
def test_the_command_writes_all_it_writes_at_any_scale(power: int, tmp_path: Path) -> None:
    for name, c in (("one", 0), ("far", power)):
        np.save(tmp_path / f"{name}.npy", np.ldexp(dense(), c))
        arguments = ["fit", str(tmp_path / f"{name}.npy"), "-k", "3", "-o", str(tmp_path / name), "--seed", "0"]
        told = CliRunner().invoke(main, arguments)
        assert told.exit_code == 0, told.output
    one, far = (ss.load_model(tmp_path / name / "model.safetensors") for name in ("one", "far"))
    assert np.array_equal(far.components_, one.components_)
    assert np.array_equal(np.ldexp(far.singular_values_, -power), one.singular_values_)
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == sorted(
        path.name for path in (tmp_path / "one").iterdir()
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e9, 1e13])
@pytest.mark.parametrize("dense", [False, True])
def test_single_precision_finds_the_same_where_squares_of_products_leave_its_range(unit: float, dense: bool) -> None:
    rng = np.random.default_rng(0)
    X = sparse.random_array((900, 300), density=0.1, rng=rng, format="csr")
    X = X.toarray() if dense else X
    G = ss.svd(X, 10, shift="mean", solver="lanczos", rng=0)
    F = ss.svd((X * unit).astype(np.float32), 10, shift="mean", solver="lanczos", rng=0)
    assert F.info.converged
    np.testing.assert_allclose(F.S / unit, G.S, rtol=1e-4)


@pytest.mark.parametrize("solver", ["exact", "lanczos", "gram", "randomized"])
@pytest.mark.parametrize("shift", [None, "mean"])
@pytest.mark.parametrize(
    "make",
    [
        np.asarray,
        sparse.csr_array,
        sparse.csc_array,
        aslinearoperator,
        lambda D: ss.LowRank(np.eye(len(D)), D.T.copy()),
    ],
)
def test_subnormal_data_are_as_accurate_as_their_digits(make: Callable[[Any], Any], shift: Any, solver: str) -> None:
    rng = np.random.default_rng(0)
    D = np.ldexp(rng.standard_normal((30, 6)), -1030)
    with warnings.catch_warnings(action="error"):
        F = ss.svd(make(D), 2, shift=shift, solver=solver, rng=0)
    G = ss.svd(np.ldexp(D, 1030), 2, shift=shift, solver="exact")
    assert np.allclose(np.ldexp(F.S, 1030), G.S, rtol=1e-6, atol=0)
    assert np.allclose(np.abs(F.Vh @ G.Vh.T), np.eye(2), atol=1e-3)


@pytest.mark.parametrize("power", [-1000, -700, 530, 1000])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_factors_at_any_scale_have_a_norm(power: int, share: float) -> None:
    D, left = dense(), int(power * share)
    A = ss.LowRank(np.ldexp(D, left), np.ldexp(np.eye(D.shape[1]), power - left))
    with warnings.catch_warnings(action="error"):
        assert A.frobenius_norm() == pytest.approx(np.ldexp(np.linalg.norm(D), power), rel=1e-12)
        assert np.allclose(np.ldexp(ss.svd(A, 2, rng=0).S, -power), ss.svd(D, 2, rng=0).S, rtol=1e-4)


@pytest.mark.parametrize("shift", ["rows", "both"])
def test_subnormal_rows_whose_means_are_zero_have_values(shift: str) -> None:
    D = np.random.default_rng(0).integers(-5, 6, (6, 4)) * 2.0**-1060
    X = np.hstack([D, -D])
    with warnings.catch_warnings(action="error"):
        S = ss.svd(X, 2, shift=shift, rng=0).S
    expected = ss.svd(np.ldexp(X, 1060), 2, shift=shift, rng=0).S
    assert np.allclose(np.ldexp(S, 1060), expected, rtol=1e-3)


@pytest.mark.parametrize("scale", ["std", "vector"])
def test_a_divisor_without_a_reciprocal_is_refused(scale: str) -> None:
    D = np.random.default_rng(0).standard_normal((10, 3))
    D[:, 1] *= 1e-310
    with pytest.raises(ValueError, match=r"column 1 .* Multiply X and a given scale by a power of two"):
        ss.svd(D, 2, scale=scale if scale == "std" else np.array([1.0, 1e-310, 1.0]))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("m", [32, 64])
def test_a_scaled_operator_of_subnormal_numbers_has_values(solver: Any, m: int) -> None:
    D, scale = np.random.default_rng(0).standard_normal((m, 38)), np.random.default_rng(1).uniform(0.5, 2, 38)
    with warnings.catch_warnings(action="error"):
        F = ss.svd(aslinearoperator(np.ldexp(D, -1030)), 3, scale=scale, solver=solver, rng=0)
    assert np.allclose(np.ldexp(F.S, 1030), ss.svd(D, 3, scale=scale, solver=solver, rng=0).S, rtol=1e-3)
