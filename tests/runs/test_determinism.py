"""The same seed gives the same bits, for any number of threads, and nothing else is random."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import shiftsvd as ss
from shiftsvd.algebra import generic as base
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.numerics import orth
from tests.support.containers import CONTAINERS
from tests.support.matrices import Array, values
from tests.support.operators import Counting, panel
from tests.support.sampling import in_turn

inside = sys.modules["shiftsvd.kernels.threads"]
SOLVERS = (
    ss.RandomizedSVD(n_iter=2),
    ss.RandomizedSVD(n_iter=2, finish="last", power_iteration_normalizer="CholeskyQR2"),
    ss.RandomizedSVD(n_iter=1, sketch=ss.sketch.SRFT()),
    ss.ShiftedRandomizedSVD(n_iter=1),
    ss.Exact(),
    ss.BlockLanczos(),
    ss.BlockLanczos(tol=0, block_size=3),
    ss.Gram(),
)
FORMATS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "wide": lambda D: np.ascontiguousarray(D.T),
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "csr wide": lambda D: sparse.csr_array(D.T.copy()),
}


@pytest.fixture(scope="module")
def large() -> Array:
    """Large enough for several blocks of their real size, dense (2^20 entries) and sparse (2^18 and more)."""
    return values((40_000, 60), np.float32, density=0.5) + 3 * values((1, 60), np.float32, seed=1, density=1.0) * (
        np.arange(60) % 3 == 0
    )


def bits(F: ss.SVDResult) -> bytes:
    return b"".join(np.ascontiguousarray(part).tobytes() for part in F)


@pytest.mark.parametrize("fmt", FORMATS)
def test_products_have_the_same_bits_for_any_number_of_threads(fmt: str, large: Array) -> None:
    X = FORMATS[fmt](large)
    results = []
    for n_threads in (1, 3, 8):
        A = ss.centered(X, n_threads=n_threads)
        assert len((A if hasattr(A, "blocks") else A.A).blocks()) > 2
        V, W = panel(A.shape[1], 4), panel(A.shape[0], 4)
        moments = ss.as_operator(X, n_threads=n_threads).moments()
        parts = [A @ V, A.rmatmat(W), A.gram(V), A.column_squares(), A.row_squares(), moments.mean, moments.M2]
        results.append(b"".join(part.tobytes() for part in parts))
    assert len(set(results)) == 1


@pytest.mark.parametrize(("solver", "fmt"), in_turn(SOLVERS[:5], ["C", "csr", "wide", "csc"], 1), ids=repr)
def test_factors_have_the_same_bits_for_any_number_of_threads(fmt: str, solver, large: Array) -> None:
    X = FORMATS[fmt](large)
    found = {bits(ss.svd(X, 3, shift="mean", solver=solver, rng=5, n_threads=n_threads)) for n_threads in (1, 3)}
    assert len(found) == 1


@pytest.mark.long
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("solver", "name"),
    in_turn(SOLVERS, ["array float64", "csr float64", "array float32", "csc complex64", "fortran"], 2),
    ids=repr,
)
def test_twenty_runs_over_many_blocks_have_the_same_bits(name: str, solver) -> None:
    X = CONTAINERS[name].make(values((60, 14), CONTAINERS[name].dtype))
    found = set()
    for run in range(20):
        n_threads = (1, 2, 3, 8)[run % 4]
        found.add(bits(ss.svd(X, 3, shift="mean", scale="std", solver=solver, rng=1, n_threads=n_threads)))
    assert len(found) == 1


def test_long_panels_have_the_same_bits_on_any_number_of_cores(monkeypatch) -> None:
    Y = panel(50_000, 12)
    results = []
    for cores in (1, 2, 3, 8):
        monkeypatch.setattr(orth, "default_threads", lambda cores=cores: cores)
        results.append(
            b"".join(f(Y).tobytes() for f in (orth.orth, orth.well_conditioned, orth.triangle, orth.graded_basis))
        )
    assert len(set(results)) == 1


def test_exact_has_the_same_bits_on_any_number_of_cores(monkeypatch) -> None:
    monkeypatch.setattr(base, "QR_ENTRIES", 20_000)
    A = ss.centered(values((6000, 40), density=1.0))
    results = []
    for cores in (1, 2, 3, 8):
        monkeypatch.setattr(base, "default_threads", lambda cores=cores: cores)
        results.append(bits(ss.Exact()(A, 5, 0)))
    assert len(set(results)) == 1


@pytest.mark.one_in(2)
@pytest.mark.long
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_blas_threads_do_not_change_the_bits(solver, large: Array) -> None:
    found = set()
    for limit in (1, 4):
        with threadpool_limits(limit, "blas"):
            for X in (large, large.T.copy()):
                found.add(bits(ss.svd(X, 3, shift="mean", solver=solver, rng=5)))
    assert len(found) == 2  # one for each orientation


@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_every_product_is_made_with_one_blas_thread(solver) -> None:
    seen = set()

    class Watching(Counting):
        def _read(self, name: str, *args):
            seen.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
            return super()._read(name, *args)

    with threadpool_limits(2, "blas"):
        for shape in ((30, 12), (12, 30)):
            F = solver(Watching(values(shape)), 3, 0)
            assert F.U.shape[1] == len(F.Vh) == 3
    assert seen == {1}


def test_blas_threads_are_given_back() -> None:
    def blas_threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(2, "blas"):
        before = blas_threads()
        ss.svd(values((50, 20)), 3, rng=0)
        with pytest.raises(ValueError, match="RandomizedSVD"):
            ss.svd(values((50, 20)), 3, shift=ss.LowRank(panel(50, 2), panel(20, 2)), solver="shifted-randomized")
        assert blas_threads() == before


@pytest.mark.one_in(2)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_seed_decides_and_generators_go_on(solver) -> None:
    A = ss.as_operator(values((60, 40), density=1.0))
    assert bits(solver(A, 3, 7)) == bits(solver(A, 3, 7)) == bits(solver(A, 3, np.random.default_rng(7)))
    rng = np.random.default_rng(7)
    first, second = bits(solver(A, 3, rng)), bits(solver(A, 3, rng))
    assert first == bits(solver(A, 3, 7))
    if isinstance(solver, ss.RandomizedSVD | ss.ShiftedRandomizedSVD):
        assert first != second
        assert bits(solver(A, 3, 8)) != first
        assert bits(solver(A, 3, None)) != bits(solver(A, 3, None))


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_global_random_state_is_neither_read_nor_written(solver) -> None:
    X = values((60, 40), density=1.0)
    results = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002
        before = np.random.get_state()[1].tobytes()  # noqa: NPY002
        F = ss.svd(X, 3, shift="mean", solver=solver, rng=4, certify=True)
        ss.spectral_norm(ss.centered(X) - F)
        assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002
        results.append(bits(F))
    assert results[0] == results[1]


def test_containers_agree_to_rounding_with_the_same_solver() -> None:
    D = values((50, 30), density=0.6)
    want = ss.svd(D, 4, shift="mean", solver=ss.RandomizedSVD(n_iter=2), rng=3).S
    for fmt in ("fortran", "csr float64", "csc float64", "duck float64", "pandas", "polars", "coo", "memmap"):
        found = ss.svd(CONTAINERS[fmt].make(D), 4, shift="mean", solver=ss.RandomizedSVD(n_iter=2), rng=3).S
        assert np.abs(found - want).max() <= 20 * np.finfo(float).eps * 2 * np.linalg.norm(D, 2)


def test_ordered_yields_in_order_with_few_alive_and_passes_errors_on() -> None:
    for n_threads in (1, 2, 5):
        assert list(ordered(lambda x: x * x, range(50), n_threads)) == [x * x for x in range(50)]
        assert list(ordered(lambda x: x, [], n_threads)) == []

        def fail(x: int) -> int:
            if x == 3:
                raise KeyError(x)
            return x

        with pytest.raises(KeyError):
            list(ordered(fail, range(10), n_threads))
    started = []
    parts = ordered(lambda x: started.append(x) or x, range(100), 2)
    next(parts)
    assert len(started) <= 3 + 1
    parts.close()


def test_default_threads_are_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_quota", lambda: None)
    expected = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert default_threads() == expected


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.cfs_quota_us": "400000\n", "cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_container_has_as_many_threads_as_it_may_use_cores(
    files: dict[str, str], cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    here = tuple(tuple(str(tmp_path / Path(file).name) for file in names) for names in inside.QUOTAS)
    monkeypatch.setattr(inside, "QUOTAS", here)
    monkeypatch.setattr(inside.os, "sched_getaffinity", lambda _: range(64), raising=False)
    inside._quota.cache_clear()
    assert default_threads() == (64 if cores is None else cores)
    inside._quota.cache_clear()
