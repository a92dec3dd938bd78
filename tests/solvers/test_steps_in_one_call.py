"""Steps in one compiled call: the same bits as steps one by one."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.kernels import shared
from shiftsvd.solvers import solve

pytestmark = pytest.mark.skipif(not shared, reason="no compiled kernels")


def _data(kind: str) -> sparse.csr_array:
    rng = np.random.default_rng(0)
    shape = (400, 900) if kind == "wide" else (900, 400)
    X = sparse.random_array(shape, density=0.05, rng=rng, format="csr", dtype=np.float32)
    if kind == "low rank":  # blocks that lose columns in the middle of a call
        X = X[rng.integers(0, 40, shape[0])]
    return sparse.csr_array(X, dtype=np.float64 if kind == "double" else np.float32)


def _fit(X: sparse.csr_array, **settings: Any) -> tuple[Any, ...]:
    A: Any = X
    if settings.pop("weighted", False):
        A = ss.operators.Scaled(ss.as_operator(X), np.random.default_rng(1).random(X.shape[0]) + 0.1, None)
    F = ss.svd(A, 12, shift="mean", solver=ss.BlockLanczos(tol=1e-7, block_size=16), rng=0, **settings)
    return F.U, F.S, F.Vh, F.info.value_errors, F.info.n_passes


CASES: list[tuple[str, dict[str, Any]]] = [
    ("tall", {"scale": "std"}),
    ("tall", {"weighted": True}),
    ("wide", {}),
    ("wide", {"scale": "std", "n_threads": 3}),
    ("double", {"scale": "std"}),
    ("double", {"weighted": True}),
    ("low rank", {"n_threads": 3}),
]


@pytest.mark.parametrize(("kind", "settings"), CASES)
@pytest.mark.filterwarnings("ignore:.*columns are constant")
def test_same_bits_as_steps_one_by_one(kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    X, calls, original = _data(kind), [], solve.take_steps

    def counted(*args: Any) -> int:
        calls.append(original(*args))
        return calls[-1]

    monkeypatch.setattr(solve, "take_steps", counted)
    found = _fit(X, **settings)
    assert max(calls) > 1
    monkeypatch.setattr(solve, "take_steps", lambda *_: 0)
    for got, wanted in zip(found, _fit(X, **settings), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_budget_counts_each_step() -> None:
    X = _data("tall")
    for passes in range(4, 12):
        with pytest.warns(UserWarning, match="did not converge"):
            F = ss.svd(X, 12, shift="mean", solver=ss.BlockLanczos(tol=1e-7, max_passes=passes), rng=0)
        assert F.info.n_passes <= passes + 1
