"""What is told of a fit follows the scale of the data: what was left over, what can have been missed, what to keep."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from tests.support.matrices import EPS
from tests.support.scaled import SINGLE, SOLVERS, _dask, _file, same_bits

POWERS = (-940, -300, -70, 110, 530, 990)
MAKERS: dict[str, Any] = {
    "dense": lambda X, path: X,
    "wide": lambda X, path: np.ascontiguousarray(X.T),
    "csr": lambda X, path: sparse.csr_array(X),
    "csc": lambda X, path: sparse.csc_array(X),
    "wide csr": lambda X, path: sparse.csr_array(X.T),
    "file": _file,
    "sparse file": lambda X, path: _file(sparse.csr_array(X), path),
    "dask": _dask,
}


def flat(m: int = 900, n: int = 400) -> np.ndarray:
    """A spectrum in which products tell little of the values that follow: a block has to look for what was missed."""
    return np.random.default_rng(5).standard_normal((m, n))


def nearly_of_rank(k: int, noise: float) -> np.ndarray:
    """A matrix that k components leave next to nothing of."""
    rng = np.random.default_rng(6)
    return rng.standard_normal((300, k)) @ rng.standard_normal((k, 40)) + noise * rng.standard_normal((300, 40))


@cache
def of_flat(solver: Any) -> ss.SVDResult:
    return ss.svd(flat(), 4, solver=solver, rng=0, n_threads=1)


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("power", POWERS)
def test_what_can_have_been_missed_is_in_the_units_of_the_values(power: int, solver: Any) -> None:
    X, G = flat(), of_flat(solver)
    F = ss.svd(np.ldexp(X, power), 4, solver=solver, rng=0, n_threads=1)
    same_bits(F, G, power)
    if G.info.missed_below is None:
        assert F.info.missed_below is None
        return
    # Levels are looked at in steps of a power that is not two.
    assert np.ldexp(F.info.missed_below, -power) == pytest.approx(G.info.missed_below, rel=100 * EPS)
    assert G.info.missed_below >= np.linalg.svd(X)[1][4]
    if G.info.vector_errors is not None:
        assert np.allclose(F.info.vector_errors, G.info.vector_errors, rtol=100 * EPS, atol=0)


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("solver", [ss.Exact(), ss.Gram(), ss.BlockLanczos(), ss.RandomizedSVD()], ids=repr)
def test_a_tiny_rest_is_told_at_any_scale(kind: str, solver: Any, scale: Any, tmp_path: Path) -> None:
    X, settings = nearly_of_rank(4, 1e-11), {"shift": "mean", "scale": scale, "solver": solver, "rng": 0}
    C = X - X.mean(axis=0) if kind not in ("wide", "wide csr") else X.T - X.T.mean(axis=0)
    left = np.linalg.norm(np.linalg.svd(C / (C.std(axis=0) if scale else 1))[1][4:])
    for power in (0, *POWERS):
        F = ss.svd(MAKERS[kind](np.ldexp(X, power), tmp_path), 4, **settings)
        told = F.info.frobenius_error if scale else np.ldexp(F.info.frobenius_error, -power)
        assert told == pytest.approx(left, rel=0.01), power


@pytest.mark.parametrize("solver", [ss.Gram(), ss.BlockLanczos(), ss.RandomizedSVD()], ids=repr)
@pytest.mark.parametrize("kind", SINGLE)
def test_a_tiny_rest_of_single_precision_data_is_told_at_any_scale(kind: str, solver: Any, tmp_path: Path) -> None:
    X = nearly_of_rank(4, 1e-5).astype(np.float32)
    make = MAKERS[kind]
    G = ss.svd(make(X, tmp_path), 4, solver=solver, rng=0)
    for power in (-100, -30, 50, 110):
        F = ss.svd(make(np.ldexp(X, power), tmp_path), 4, solver=solver, rng=0)
        assert np.ldexp(F.info.frobenius_error, -power) == pytest.approx(G.info.frobenius_error, rel=1e-3)


@pytest.mark.parametrize("power", POWERS)
def test_a_truncated_result_tells_what_it_leaves_over_at_any_scale(power: int) -> None:
    X = flat(200, 30)
    F, G = (ss.svd(np.ldexp(X, e), 6, rng=0).truncate(3).info for e in (power, 0))
    assert np.ldexp(F.frobenius_error, -power) == pytest.approx(G.frobenius_error, rel=100 * EPS)
    assert np.ldexp(F.missed_below, -power) == G.missed_below


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.filterwarnings("ignore:Some variances are outside the range")
def test_as_many_components_are_suggested_at_any_scale(power: int) -> None:
    X = nearly_of_rank(5, 0.1)
    for rule in ("elbow", "gavish-donoho"):
        for fit in (lambda Y: ss.svd(Y, 15, shift="mean", rng=0), lambda Y: ss.PCA(15, random_state=0).fit(Y)):
            far, near = (ss.suggest_k(fit(np.ldexp(X, e)), method=rule).k for e in (power, 0))
            assert far == near


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.filterwarnings("ignore:Some variances are outside the range")
def test_the_noise_of_pca_that_is_next_to_nothing_follows_the_scale(power: int) -> None:
    X = nearly_of_rank(4, 1e-11)
    far, near = (ss.PCA(4, random_state=0).fit(np.ldexp(X, e)).noise_variance_ for e in (power, 0))
    exact = np.linalg.svd(X - X.mean(axis=0))[1][4:]
    assert near == pytest.approx(float(exact @ exact) / 299 / 36, rel=0.02)
    with np.errstate(over="ignore"):
        want = min(float(np.ldexp(near, 2 * power)), np.finfo(float).max)
    assert far == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize("model", [ss.PCA(2, random_state=0), ss.TruncatedSVD(2, random_state=0)], ids=repr)
def test_the_warning_of_variances_beyond_the_range_names_the_line_of_the_fit(model: Any) -> None:
    with pytest.warns(UserWarning, match="are outside the range") as told:
        model.fit(np.ldexp(flat(60, 8), 990))
    assert {warning.filename for warning in told} == {__file__}


@pytest.mark.parametrize("power", POWERS)
def test_what_is_warned_of_is_the_same_at_any_scale(power: int) -> None:
    def told(X: np.ndarray) -> list[str]:
        with pytest.warns(UserWarning, match="may have been missed") as warned:
            ss.svd(X, 4, solver=ss.BlockLanczos(max_passes=8), rng=0, n_threads=1)
        return [str(warning.message) for warning in warned]

    assert told(np.ldexp(flat(), power)) == told(flat())
