"""Steps in one compiled call: the same bits as steps one by one."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.kernels import shared
from shiftsvd.solvers import solve

pytestmark = pytest.mark.skipif(not shared, reason="no compiled kernels")


def _data(kind: str, seed: int) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    shape = (400, 900) if kind == "wide" else (900, 400)
    X = sparse.random_array(shape, density=0.05, rng=rng, format="csr", dtype=np.float32)
    if kind == "low rank":  # blocks that lose columns in the middle of a call
        X = X[rng.integers(0, 40, shape[0])]
    return sparse.csr_array(X, dtype=np.float64 if kind == "double" else np.float32)


def _fit(X: sparse.csr_array, seed: int, **settings: Any) -> tuple[Any, ...]:
    A: Any = X
    if settings.pop("weighted", False):
        A = ss.operators.Scaled(ss.as_operator(X), np.random.default_rng(seed).random(X.shape[0]) + 0.1, None)
    F = ss.svd(A, 12, shift="mean", solver=ss.BlockLanczos(tol=1e-7, block_size=16), rng=seed, **settings)
    return F.U, F.S, F.Vh, F.info.value_errors, F.info.n_passes


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("settings", [{}, {"scale": "std"}, {"weighted": True}, {"n_threads": 3}])
@pytest.mark.parametrize("kind", ["tall", "wide", "double", "low rank"])
@pytest.mark.filterwarnings("ignore:.*columns are constant")
def test_same_bits_as_steps_one_by_one(
    kind: str, settings: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, calls, original = _data(kind, seed), [], solve.take_steps

    def counted(*args: Any) -> int:
        calls.append(original(*args))
        return calls[-1]

    monkeypatch.setattr(solve, "take_steps", counted)
    found = _fit(X, seed, **settings)
    assert max(calls) > 1
    monkeypatch.setattr(solve, "take_steps", lambda *_: 0)
    for got, wanted in zip(found, _fit(X, seed, **settings), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_budget_counts_each_step() -> None:
    X = _data("tall", 0)
    for passes in range(4, 12):
        with pytest.warns(UserWarning, match="did not converge"):
            F = ss.svd(X, 12, shift="mean", solver=ss.BlockLanczos(tol=1e-7, max_passes=passes), rng=0)
        assert F.info.n_passes <= passes + 1
