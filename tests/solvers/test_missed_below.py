"""info.missed_below: what every solver says of the values that it did not return."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.numerics.bounds import Ritz
from shiftsvd.solvers import reading
from shiftsvd.solvers.constants import PROBES
from shiftsvd.solvers.probe import Proven
from tests.support.matrices import EPS, Array, in_double, with_values
from tests.support.sampling import pairs

SPECTRA = {
    "geometric": 0.9 ** np.arange(100.0),
    "slow": np.arange(1, 101.0) ** -0.3,
    "copies": np.r_[np.full(30, 2.0), np.linspace(1, 0.5, 70)],
    "rank 20": np.r_[np.linspace(3, 1, 20), np.zeros(80)],
}
SOLVERS = {
    "lanczos": ss.BlockLanczos(),
    "lanczos, certified": ss.BlockLanczos(certify=True),
    "lanczos, small blocks": ss.BlockLanczos(block_size=4),
    "gram": ss.Gram(),
    "exact": ss.Exact(),
    "exact, certified": ss.Exact(certify=True),
    "randomized": ss.RandomizedSVD(n_iter=8, certify=True),
    "randomized, last": ss.RandomizedSVD(n_iter=8, finish="last", certify=True),
    "shifted-randomized": ss.ShiftedRandomizedSVD(n_iter=8, certify=True),
}


def next_value(D: Array, k: int) -> float:
    """The (k+1)-th singular value by LAPACK, 0 where there is none."""
    return float(np.append(np.linalg.svd(in_double(D), compute_uv=False), 0.0)[k])


@cache
def known(spectrum: str, shape: tuple[int, int], dtype: type) -> tuple[Array, Array]:
    """A matrix, and its values by LAPACK with 0 after the last."""
    D = with_values(shape, SPECTRA[spectrum], dtype, 3)
    return D, np.append(np.linalg.svd(in_double(D), compute_uv=False), 0.0)


# Values of rounding, of single precision data whose rank ends, are none that squares could tell.
@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("solver", "spectrum", "dtype"), pairs(SOLVERS, SPECTRA, [np.float32, np.float64, np.complex128])
)
def test_no_value_that_was_not_returned_exceeds_what_is_said(solver: str, spectrum: str, dtype) -> None:
    eps = float(np.finfo(dtype).eps)
    for k, shape, make in pairs([1, 25, 60], [(160, 100), (100, 160)], [np.asarray, sparse.csr_array]):
        D, values = known(spectrum, shape, dtype)
        F = SOLVERS[solver](ss.as_operator(make(D)), k, k, tol=1e-2)
        if F.info.missed_below is None:
            assert F.info.converged is not True
            continue
        assert F.info.missed_below >= values[k] * (1 - 1e-12) - 10 * eps
        if F.info.converged:
            assert F.info.missed_below <= 1.05 * F.S[-1] * (1 + 1e-6) + 1e3 * np.sqrt(eps) * F.S[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_nothing_is_missed_where_everything_is_asked_for(solver: str, dtype) -> None:
    for shape in ((50, 20), (20, 50)):
        D = with_values(shape, np.linspace(2, 1, 20), dtype)
        F = SOLVERS[solver](ss.as_operator(D), 20, 0, tol=1e-3)
        assert F.info.missed_below == 0.0


def test_solvers_that_know_nothing_of_the_rest_say_so() -> None:
    D = with_values((300, 100), SPECTRA["geometric"])
    for solver in (ss.RandomizedSVD(), ss.ShiftedRandomizedSVD()):
        F = solver(ss.as_operator(D), 8, 0)
        assert F.info.missed_below is None
        assert F.info.converged is None


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("shape", [(500, 300), (300, 500)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sample_that_missed_a_value_is_not_converged(shape: tuple[int, int], dtype) -> None:
    # A sketch that never sees the last column: it holds a value of its own, above the last of those that are found.
    D = np.zeros(shape, dtype)
    n = 40
    D[:n, :n] = np.diag(np.r_[np.linspace(5, 3, 10), np.linspace(0.5, 0.1, 29), 4.0])

    class Blind(ss.sketch.Sketch):
        def draw(self, rows: int, columns: int, rng: np.random.Generator) -> Array:
            Omega = rng.standard_normal((rows, columns))
            Omega[n - 1] = 0
            return Omega

        def apply(self, A: ss.Operator, ell: int, rng: np.random.Generator) -> Array:
            return A.matmat(self.draw(A.shape[1], ell, rng))

    for finish in ("project", "last"):
        solver = ss.RandomizedSVD(n_iter=3, n_oversamples=5, finish=finish, sketch=Blind(), certify=True)
        for seed in range(2):
            F = solver(ss.as_operator(D), 10, seed)
            assert np.all(np.abs(F.S - np.linspace(5, 3, 10)) <= 1e-3)  # the value 4 is not among them
            assert not F.info.converged
            level = F.info.missed_below  # nothing is known where the probe found what is wrong at once
            assert level is None or level >= next_value(D, 10) * (1 - 10 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("make", [ss.BlockLanczos, ss.Gram])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"missed_tol": -0.1}, "missed_tol must be at least 0"),
        ({"missed_tol": float("nan")}, "missed_tol must be at least 0"),
        ({"miss_probability": 0.0}, "miss_probability must be at least 1e-100 and below 1"),
        ({"miss_probability": 1e-101}, "miss_probability must be at least 1e-100 and below 1"),
        ({"miss_probability": 1.0}, "miss_probability must be at least 1e-100 and below 1"),
        ({"miss_probability": float("nan")}, "miss_probability must be at least 1e-100 and below 1"),
    ],
)
def test_settings_of_the_probe_that_cannot_be_are_refused(make, settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)(ss.as_operator(np.eye(50, 30)), 2, 0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(1200, 800), (800, 1200)])
def test_a_stricter_tolerance_leaves_less_room_for_what_was_missed(shape: tuple[int, int]) -> None:
    S = np.r_[np.linspace(2, 1.05, 10), np.linspace(1.04, 0.7, 790)]
    A = ss.as_operator(with_values(shape, S))
    found = [ss.BlockLanczos(missed_tol=t)(A, 10, 0).info for t in (0.3, 0.05, 0.01)]
    for info, t in zip(found, (0.3, 0.05, 0.01), strict=True):
        assert info.converged
        assert S[10] * (1 - 10 * EPS) <= info.missed_below <= S[9] * (1 + t) * (1 + 1e-6)
    assert found[0].missed_below > found[2].missed_below
    assert found[0].n_passes <= found[2].n_passes
    loose = replace(ss.BlockLanczos(missed_tol=0.05), miss_probability=0.1)(A, 10, 0).info
    assert loose.n_passes <= found[1].n_passes


def test_settings_of_the_probe_are_named_where_they_differ_from_the_defaults() -> None:
    for kind in (ss.BlockLanczos, ss.Gram):
        usual, strict = kind(), kind(missed_tol=0.01, miss_probability=1e-12)
        assert "miss" not in repr(usual)
        assert repr(strict) == repr(usual)[:-1] + ", missed_tol=0.01, miss_probability=1e-12)"
        assert strict(ss.as_operator(np.eye(50, 30)), 2, 0).info.solver == repr(strict)


def test_the_chances_that_the_probes_of_a_run_are_wrong_add_up_to_no_more_than_is_said() -> None:
    chances = [Proven(8, 1e-3, n_probes=n).failure_probability for n in range(PROBES)]
    assert not Proven(8, n_probes=PROBES).needs_probe([(1, 0.0)])
    assert sum(chances) <= 1e-3
    assert min(chances) > 0


@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_fit_is_complete_up_to_the_limit_of_missed_values_and_no_further(share: float) -> None:
    ritz = Ritz(np.array([4.0]), np.zeros((1, 1)), 1, 0.0, proven_limit=(2 * 1.05 * share) ** 2)
    nothing, none = np.zeros(1), np.zeros(0, np.intp)
    found = reading.certified(ss.as_operator(np.eye(3)), ritz, np.array([2.0]), nothing, nothing, none, 0.05, nothing)
    assert found.complete == (share < 1)
    assert found.missed_below == pytest.approx(2 * 1.05 * share)


@pytest.mark.parametrize("seed", [445, 831, 1713, 2473])
def test_a_reading_that_lowers_the_last_value_by_rounding_stays_complete(seed: int) -> None:
    m, n = 1200, 900
    X = sparse.random_array((m, n), density=0.02, rng=np.random.default_rng(0), dtype=np.float32)
    X = sparse.csr_array(X * np.exp(-np.arange(n) / 30).astype(np.float32))
    F = ss.svd(X, 6, shift="mean", scale=True, sample_weight=np.linspace(1, 2, m), rng=seed)
    assert F.info.missed_below <= 1.05 * F.S[-1] * (1 + 1e-9)
