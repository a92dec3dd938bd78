"""Small dense data: squares where they are as good as the matrix itself, and what a fit asks the system."""

import os
import subprocess
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import hstack, random_array
from scipy.sparse.linalg import aslinearoperator
from sklearn import decomposition

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.operators import LowRank
from shiftsvd.runs import memory
from shiftsvd.solvers.constants import SQUARES_SHARE
from shiftsvd.solvers.direct import Gram, _krylov
from shiftsvd.solvers.factors import squares_rounding
from tests.support.blocks import cut_small
from tests.support.containers import Held
from tests.support.matrices import EPS, Array, with_values

SINGLE = float(np.finfo(np.float32).eps)


def centred(X: np.ndarray, shift: str | None) -> np.ndarray:
    """X minus its means, in extended precision, rounded once."""
    wide = X.astype(np.clongdouble if np.iscomplexobj(X) else np.longdouble)
    off = wide if shift is None else wide - wide.mean(axis=0)
    return off.astype(np.complex128 if np.iscomplexobj(X) else np.float64)


@st.composite
def problems(draw: st.DrawFn, steepest: float = 8.0) -> tuple[np.ndarray, int, str | None, float]:
    """(X, k, shift, tol): any shape, precision, decay over so many digits, distance from the origin."""
    short, long = draw(st.integers(4, 60)), draw(st.integers(0, 200))
    shape = (short, short + long) if draw(st.booleans()) else (short + long, short)
    digits, seed = draw(st.floats(0, steepest)), draw(st.integers(0, 2**16))
    S = 10.0 ** -np.sort(np.append(np.random.default_rng(seed).uniform(0, digits, short - 1), 0.0))
    X = with_values(shape, S, draw(st.sampled_from([np.float64, np.float32, np.complex128])), seed)
    X = X + X.dtype.type(draw(st.sampled_from([0.0, 1.0, 30.0, 1e4])))
    X = np.asfortranarray(X) if draw(st.booleans()) else X
    scale = 2.0 ** draw(st.sampled_from([0, -40, 40]))
    k, tol = draw(st.integers(1, max(1, short - 2))), draw(st.sampled_from([1e-2, 1e-4, 1e-7, 1e-11]))
    return X * X.dtype.type(scale), k, draw(st.sampled_from([None, "mean"])), tol


@settings(deadline=None)
@given(problems())
def test_values_from_squares_are_within_a_tenth_of_the_tolerance(problem) -> None:
    X, k, shift, tol = problem
    D = centred(X, shift)
    exact = np.linalg.svd(D, compute_uv=False)
    F = ss.svd(X, k, shift=shift, solver=ss.Exact(tol), rng=0)
    # What any way of computing them may be off by: as the reference, and the rounding of the means that are subtracted.
    size = max(X.shape) * EPS * exact[0] + 4 * EPS * float(np.linalg.norm(X))
    squared = F.info.n_passes == 1
    assert np.all(np.abs(F.S - exact[:k]) <= (SQUARES_SHARE * tol if squared else 0.0) * exact[:k] + size)
    if k < len(exact):
        assert F.info.missed_below >= exact[k] - size
        assert not squared or F.info.missed_below <= 2 * exact[k] + tol * exact[k - 1]


@settings(deadline=None)
@given(problems(5.0))
def test_factors_from_squares_are_those_of_the_matrix(problem) -> None:
    X, k, shift, tol = problem
    F = ss.svd(X, k, shift=shift, solver=ss.Exact(tol), rng=0)
    assume(F.info.n_passes == 1)
    D, unit = centred(X, shift), SINGLE if X.dtype == np.float32 else EPS
    size = float(np.linalg.norm(D)) + 30 * float(np.linalg.norm(X)) * EPS / unit
    assert F.info.rank == k
    for Q in (F.U, F.Vh.conj().T):
        assert np.abs(Q.conj().T @ Q - np.eye(k)).max() <= 40 * unit * np.sqrt(k)
    left = float(np.linalg.norm(D - (F.U.astype(D.dtype) * F.S) @ F.Vh.astype(D.dtype)))
    assert abs(F.info.frobenius_error - left) <= 0.01 * left + 10 * unit * size
    # A v = sigma u holds as far as the tolerance lets couplings of columns be.
    assert np.abs(D @ F.Vh.conj().T - F.U * F.S).max() <= tol * F.S[-1] + 20 * unit * size


@settings(deadline=None)
@given(problems())
def test_auto_keeps_the_tolerance(problem) -> None:
    X, k, shift, tol = problem
    tol = max(tol, 100 * SINGLE**2 if X.dtype != np.float32 else 1e-4)
    D = centred(X, shift)
    exact = np.linalg.svd(D, compute_uv=False)
    F = ss.svd(X, k, shift=shift, tol=tol, rng=0)
    assert np.all(
        np.abs(F.S - exact[:k]) <= tol * exact[:k] + max(X.shape) * EPS * exact[0] + 4 * EPS * np.linalg.norm(X)
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*did not converge")  # some of these tolerances are beyond squares
@settings(deadline=None)
@given(problems(6.0))
def test_certificates_of_the_formed_gram_matrix_hold_without_a_last_pass(problem) -> None:
    X, k, shift, tol = problem
    D = centred(X, shift)
    exact = np.linalg.svd(D, compute_uv=False)
    F = ss.svd(X, k, shift=shift, solver=ss.Gram(tol, last_pass=False), rng=0)
    assume(F.info.n_passes == 1)
    size = max(X.shape) * EPS * exact[0] + 4 * EPS * float(np.linalg.norm(X))
    assert F.info.converged
    assert F.info.value_errors.max() <= tol
    assert np.all(np.abs(F.S - exact[:k]) <= F.info.value_errors * exact[:k] + size)
    assert F.info.missed_below >= exact[k] - size
    # The sines of vectors to the spaces of values that differ by more than rounding can blur.
    U, _, Vh = np.linalg.svd(D, full_matrices=False)
    noise = max(X.shape) * EPS * (float(np.linalg.norm(D)) ** 2 + float(np.linalg.norm(X)) ** 2)
    for j in np.flatnonzero(F.info.vector_errors < 0.1):
        near = np.abs(exact**2 - exact[j] ** 2) <= 64 * noise
        for mine, theirs in ((F.Vh[j].conj(), Vh[near]), (F.U[:, j], U.T[near].conj())):
            outside = float(np.linalg.norm(mine - (theirs @ mine) @ theirs.conj()))
            unit = SINGLE if X.dtype == np.float32 else EPS
            assert outside <= F.info.vector_errors[j] + 8 * unit * np.sqrt(len(mine))


STEEP = 10.0 ** -np.linspace(0, 12, 60)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(150, 60), (60, 150)])
def test_data_whose_squares_lose_their_digits_go_the_exact_way(shape: tuple[int, int], dtype: type) -> None:
    X = with_values(shape, STEEP, dtype)
    tried, exact = (ss.svd(X, 40, shift="mean", solver=solver) for solver in (ss.Exact(1e-4), ss.Exact()))
    assert (tried.info.n_passes, exact.info.n_passes) == (2, 1)
    assert [np.array_equal(a, b) for a, b in zip(tried, exact, strict=True)] == [True] * 3
    assert (tried.info.missed_below, tried.info.frobenius_error) == (
        exact.info.missed_below,
        exact.info.frobenius_error,
    )


@pytest.mark.filterwarnings("ignore:.*(did not converge|may have been missed)")
@pytest.mark.parametrize("k", [4, 20, 39, 60])
def test_the_gram_way_does_as_ever_where_its_squares_lose_their_digits(k: int) -> None:
    X = with_values((300, 200), 10.0 ** -np.linspace(0, 30, 200))
    asked, named = (ss.svd(X, k, solver=solver, rng=0) for solver in (ss.Gram(last_pass=False), ss.Gram()))
    squares_do = 10.0 ** (-30 * (k - 1) / 199 * 2) > 300 * EPS * 1.5 / 2e-5
    assert asked.info.n_passes == (1 if squares_do else named.info.n_passes)
    assert squares_do or [np.array_equal(a, b) for a, b in zip(asked, named, strict=True)] == [True] * 3


@pytest.mark.parametrize("tol", [0.0, 1e-4])
def test_values_without_a_digit_have_not_converged(tol: float) -> None:
    values = np.append(1e8, np.linspace(3, 1, 39))
    with pytest.warns(UserWarning, match="components did not converge"):
        F = ss.svd(with_values((300, 60), values), 6, solver=ss.Gram(tol=tol))
    assert not F.info.converged


@pytest.mark.parametrize("rank", [0, 1, 7, 33])
def test_values_that_are_zero_come_out_as_zero(rank: int) -> None:
    X = with_values((200, 40), np.append(np.ones(rank), np.zeros(40 - rank)))
    for k in {max(rank, 1), rank + 2, 39}:
        tried, exact = (ss.svd(X, k, solver=solver) for solver in (ss.Exact(1e-4), ss.Exact()))
        assert np.array_equal(tried.S == 0, np.arange(k) >= rank)
        assert tried.info.rank == exact.info.rank == min(rank, k)
        assert [np.array_equal(a, b) for a, b in zip(tried, exact, strict=True)] == [True] * 3  # nothing is left over


def test_all_components_and_certificates_go_the_exact_way() -> None:
    X = with_values((90, 40), np.linspace(2, 1, 40))
    for k, certify in ((40, False), (5, True)):
        tried, exact = (ss.svd(X, k, solver=solver, certify=certify, rng=0) for solver in (ss.Exact(1e-4), ss.Exact()))
        assert np.array_equal(tried.S, exact.S)
        assert tried.info.n_passes == exact.info.n_passes


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_share_takes_as_many_components_by_squares(share: float) -> None:
    X = with_values((120, 50), 1 / np.arange(1.0, 51))
    tried, exact = (ss.svd(X, share, solver=solver) for solver in (ss.Exact(1e-4), ss.Exact()))
    assert len(tried.S) == len(exact.S)
    assert tried.info.n_passes == 1
    assert np.abs(tried.S - exact.S).max() <= 1e-12


def test_no_bit_depends_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    X = with_values((200, 48), 1 / np.arange(1.0, 49)) + 3
    for solver in ("auto", ss.Exact(1e-3), ss.Gram(1e-3)):
        first, *others = (tuple(ss.svd(X, 4, shift="mean", solver=solver, n_threads=n, rng=0)) for n in (1, 2, 3))
        assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_squares_are_tried_by_auto_alone_and_only_where_they_save_time() -> None:
    X = np.random.default_rng(0).standard_normal((1000, 64))
    assert repr(ss.auto_solver(X, 5, 1e-3)) == "Exact(tol=0.001)"
    assert "Gram" in ss.auto_solver(X, 5).reason
    assert ss.svd(X, 5, solver="exact", tol=1e-3).info.solver == repr(ss.Exact()) == "Exact()"
    assert ss.auto_solver(X, 5, 0.0) == ss.auto_solver(X[:, :8], 5) == ss.auto_solver(X, 64) == ss.Exact()
    assert ss.auto_solver(aslinearoperator(X), 5) == ss.Exact()  # which only multiplies
    assert ss.PCA(svd_solver="full").fit(X).info_.solver == "Exact()"


@pytest.mark.parametrize("tol", [-1, "tight", np.nan])
@pytest.mark.parametrize("solver", [ss.Exact, ss.Gram, ss.BlockLanczos])
def test_tolerances_of_solvers_are_checked_by_one_rule(solver: type, tol: object) -> None:
    with pytest.raises(ValueError, match=f"tol must be at least 0, got {tol!r}"):
        solver(tol)
    assert solver(np.inf).tol == np.inf


@pytest.mark.parametrize("k", [1, 10, 50])
def test_the_gram_way_misses_nothing_where_all_eigenvalues_are_quick(k: int) -> None:
    S = 1 / np.arange(1.0, 201)
    F = ss.svd(with_values((500, 200), S), k, solver=ss.Gram(1e-8))
    assert F.info.n_passes == 2
    assert F.info.converged
    assert S[k] * (1 - 1e-12) <= F.info.missed_below <= S[k] * (1 + 1e-9)
    assert np.all(np.abs(F.S - S[:k]) <= F.info.value_errors * S[:k] + 10 * EPS)


# Of a short side of 300 to 1000, the few leading eigenvalues of squares alone.
TAILS = {
    "falling": np.linspace(3, 0.5, 400),
    "flat": np.append([3.0, 2.0], np.ones(398)),
    "copies across k": np.concatenate([np.full(12, 2.0), np.linspace(1, 0.5, 388)]),
    "a copy below k": np.concatenate([np.linspace(3, 2, 9), [2.0, 1.9999999], np.linspace(1, 0, 389)]),
    "of rank 30": np.append(np.linspace(3, 2, 30), np.zeros(370)),
}


@cache
def with_tail(tail: str, dtype: type) -> tuple[Array, Array]:
    X = with_values((450, 400), TAILS[tail], dtype)
    return X, np.linalg.svd(X.astype(np.result_type(dtype, np.float64)), compute_uv=False)


@pytest.mark.parametrize("last_pass", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("tail", TAILS)
def test_leading_eigenvalues_alone_tell_what_may_be_missed(tail: str, dtype: type, last_pass: bool) -> None:
    k, (X, exact) = 10, with_tail(tail, dtype)
    F = ss.svd(X, k, solver=ss.Gram(1e-6, last_pass=last_pass), rng=0)
    assert F.info.converged
    error = np.abs(F.S - exact[:k]) / exact[:k]
    assert np.all(error <= F.info.value_errors + 10 * EPS)
    assert np.all(F.info.value_errors <= 1e-6)
    assert exact[k] * (1 - 10 * EPS) <= F.info.missed_below <= exact[k] * (1 + 1e-9) + 1e-6 * exact[0]
    apart = exact[k - 1] > 1.01 * exact[k]
    V = F.Vh.conj().T
    sines = np.linalg.norm(X.conj().T @ (X @ V) - V * F.S**2, axis=0)
    assert np.all(sines <= 1e-5 * exact[0] ** 2)
    assert not apart or np.all(F.info.vector_errors < 1)


# --- what a fit asks the system -------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="the system tells nothing of its memory")
def test_the_system_is_read_right() -> None:
    with open("/proc/meminfo") as lines:
        told = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    assert memory._kilobytes("/proc/meminfo", "MemTotal", "NoSuchLine") == [told["MemTotal"], None]
    free = memory.available_memory()
    assert free is not None
    assert 0 < free <= told["MemTotal"] * 1024


def test_no_system_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, *names: str) -> list[int | None]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(memory, "_kilobytes", refused)
    assert memory.peak_bytes() is None
    assert memory.MemoryWatch().growth() is None
    assert memory.available_memory() is None or memory.available_memory() > 0


@given(st.integers(-290, 290), st.integers(-290, 290), st.integers(1, 3), st.integers(0, 99), st.booleans())
def test_the_norm_of_a_shift_is_that_of_its_entries(left: int, right: int, rank: int, seed: int, level: bool) -> None:
    assume(-140 <= left + right <= 140)  # where squares of the norm are numbers
    rng = np.random.default_rng(seed)
    L = np.broadcast_to(rng.random(rank) + 1, (9, rank)) if level else rng.standard_normal((9, rank))
    R = rng.standard_normal((5, rank))
    norm = float(np.linalg.norm(L @ R.T))
    scaled = LowRank(np.broadcast_to(L[:1] * 10.0**left, L.shape) if level else L * 10.0**left, R * 10.0**right)
    size = float(np.linalg.norm(L) * np.linalg.norm(R))
    assert abs(scaled.frobenius_norm() / 10.0**left / 10.0**right - norm) <= 20 * EPS * size


@pytest.mark.long
def test_the_first_pca_imports_no_more_than_a_base_class_of_scikit_learn_does() -> None:
    code = (
        "import sys, numpy, scipy.sparse, sklearn.base; before = set(sys.modules); import shiftsvd; shiftsvd.PCA;"
        "print([m for m in set(sys.modules) - before if m.partition('.')[0] in ('sklearn', 'pandas', 'joblib')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --- plain arrays, which scikit-learn need not look at --------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_plain_arrays_are_refused_and_remembered_as_scikit_learn_does(dtype: type) -> None:
    X = np.random.default_rng(0).standard_normal((30, 5)).astype(dtype)
    frame = pd.DataFrame(X, columns=list("abcde"))
    ours, theirs = ss.PCA(2), decomposition.PCA(2)
    for bad in (X[:, :0], X[0], X[None]):
        messages = []
        for model in (ours, theirs):
            with pytest.raises(ValueError) as refused:
                model.fit(bad)
            messages.append(str(refused.value).splitlines()[0])
        assert messages[0] == messages[1]
    with pytest.raises(ValueError, match=r"Found array with 1 sample.* while a minimum of 2 is required by PCA"):
        ours.fit(X[:1])
    for model in (ours, theirs):
        model.fit(frame)
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            model.transform(X)
        assert not hasattr(model.fit(X), "feature_names_in_")
        assert model.n_features_in_ == 5
        with pytest.warns(UserWarning, match="X has feature names"):
            model.transform(frame)
        with pytest.raises(ValueError, match="X has 4 features, but PCA is expecting 5 features as input"):
            model.transform(X[:, :4])


def test_values_read_off_a_formed_matrix_own_up_to_its_rounding():
    """A sum of many squares rounds by more than a product does, and nothing else is read afterwards."""
    D = np.random.default_rng(1).standard_normal((4000, 20))
    A = ss.as_operator(D)
    F = Gram(last_pass=False)(A, 5, 0)
    assert F.info.n_passes == 1
    assert np.all(2 * F.S**2 * F.info.value_errors >= squares_rounding(A, D.T @ D) * (1 - 1e-9))


# --- leading eigenvalues of a Gram matrix ---------------------------------------------------------------------


SPECTRA = {
    "graded": 0.9 ** np.arange(300.0),
    "flat": np.sqrt(np.linspace(2, 1, 300)),
    "low rank": np.append(np.linspace(2, 1, 15), np.full(285, 1e-3)),
    "pairs": np.repeat(0.8 ** np.arange(150.0), 2),
    "edge": np.append([3.0, 2.0, 2.0, 2.0], np.linspace(1, 0.5, 296)),
    "near": np.append([3.0, 2.0, 2.0 - 1e-7, 2.0 - 2e-7], np.linspace(1, 0.5, 296)),
}


@pytest.mark.parametrize("k", [1, 2, 3, 9])
@pytest.mark.parametrize("name", SPECTRA)
def test_no_leading_eigenvalue_is_missed(name: str, k: int) -> None:
    S = SPECTRA[name]
    X = with_values((400, 300), S, seed=k)
    found = _krylov(X.T @ X, k + 1, 1e-6, np.random.default_rng(k))
    if found is not None:  # None is right, too: LAPACK takes over
        theta, V, level = found
        assert np.all(np.abs(theta - S[: k + 1] ** 2) <= 1e-9 * S[: k + 1] ** 2)
        Q = np.linalg.qr(V)[0]
        D = X - (X @ Q) @ Q.T
        assert np.linalg.norm(D, 2) ** 2 <= level + 100 * EPS * S[0] ** 2
        assert level <= theta[-1] * (1 + 1e-5)
    assert found is None or name not in ("pairs", "edge") or np.allclose(theta, S[: k + 1] ** 2)
    F = ss.svd(X, k, solver=Gram(last_pass=False), rng=0)
    assert F.info.converged
    assert np.all(np.abs(F.S / S[:k] - 1) <= F.info.value_errors + 100 * EPS)
    assert S[k] * (1 - 100 * EPS) <= F.info.missed_below <= S[k] * (1 + 1e-5)


def test_most_leading_eigenvalues_need_no_lapack() -> None:
    X = with_values((400, 300), SPECTRA["graded"])
    assert _krylov(X.T @ X, 10, 1e-6, np.random.default_rng(0)) is not None


def test_files_are_read_less_often_where_a_gram_matrix_is_small() -> None:
    X = random_array((20_000, 1200), density=0.04, format="csr", dtype=np.float32, rng=0)
    assert isinstance(ss.auto_solver(X, 50), ss.BlockLanczos)
    assert isinstance(ss.auto_solver(DiskRows(Held(X, 5000)), 50), ss.Gram)
    wide = hstack([X[:10_000, :1000]] * 4, format="csr")  # each thread would store 4000 x 4000 numbers
    assert isinstance(ss.auto_solver(DiskRows(Held(wide, 5000)), 50), ss.BlockLanczos)
