"""Runs on a device keep their panels there: functions of panels give what they give on the host, and little crosses."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra import generic
from shiftsvd.backends import device
from shiftsvd.backends.device.arrays import DevicePanel
from shiftsvd.numerics import orth, panels
from shiftsvd.numerics.moments import PARTS
from shiftsvd.solvers import constants
from tests.backends.device.test_device import DTYPES, MAKE, kinds, numbers, torch_of
from tests.support import fake_device
from tests.support.closeness import assert_close
from tests.support.fake_device import FakeArrays, Far, FarCSR

EPS = float(np.finfo(float).eps)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device.ADAPTERS, "tests", fake_device.__name__)
    monkeypatch.setattr(constants, "HOST_ROWS", 0)  # bases of any size lie on the device


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch with one thread: with several, small products wait for each other where processors are busy."""
    if find_spec("torch") is None:
        yield
        return
    torch = import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


PLACES = pytest.mark.parametrize(
    "kind", [kind for kind in MAKE if kind.endswith("dense") or kind in ("strict", "torch")]
)


def there(kind: str, x: np.ndarray) -> Any:
    """A panel on a device."""
    X = MAKE[kind](x)
    arrays = device.arrays_of(X)
    assert arrays is not None
    return DevicePanel(X, arrays)


def panel(n: int, b: int, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, b)) + (1j * rng.standard_normal((n, b)) if dtype[0] == "c" else 0)).astype(dtype)


def test_panels_on_a_device_have_a_method_for_each_function_that_goes_by_place() -> None:
    assert {name for name in panels.DEVICE_METHODS if not hasattr(DevicePanel, name)} == set()


@PLACES
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_panels_give_there_what_they_give_on_the_host(
    kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftsvd.backends.device.arrays.ROWS", 16)
    b, w, c = panel(50, 4, dtype), panel(50, 3, dtype, 1), panel(4, 3, dtype, 2)
    eps = 1e3 * float(np.finfo(dtype).eps)
    B, W = there(kind, b), there(kind, w)
    assert (B.shape, B.ndim, len(B), B.dtype) == (b.shape, 2, 50, b.dtype)
    assert_close(orth.inner(B, W), b.conj().T @ w, eps)
    assert orth.inner(B, W).dtype == np.result_type(b, float)
    assert orth.inner(B, W[:, :0]).shape == (4, 0)
    assert orth.inner(B[:, :0], W).shape == (0, 3)
    for found, wanted in zip(
        orth.project(W.copy(), B / 100, 2, 2.0, 0.1, None, 0.0, 0.0),
        orth.project(w.copy(), b / 100, 2, 2.0, 0.1, None, 0.0, 0.0),
        strict=True,
    ):
        if wanted is not None:
            assert_close(panels.on_host(found), wanted, 10 * eps)
    assert_close(panels.on_host(orth.times(B, c)), b @ c, eps)
    assert orth.times(B, c).dtype == b.dtype
    assert_close(panels.lengths(B), np.linalg.norm(b, axis=0), eps)
    assert_close(panels.norms(B), np.linalg.norm(b, axis=0), eps)
    assert np.isclose(panels.largest(B), np.abs(b).max())
    assert_close(panels.on_host(panels.hstack(B, W)), np.hstack([b, w]), 0)
    assert_close(panels.on_host(panels.to_device_of(B, w)), w, 0)
    assert_close(orth.triangle(B).conj().T @ orth.triangle(B), b.conj().T @ b, 10 * eps)
    for found, wanted in (
        (B[:, 1:3], b[:, 1:3]),
        (B[7:], b[7:]),
        (B @ c, b @ c),
        (B @ c - W, b @ c - w),
        (B / 2, b / 2),
    ):
        assert_close(panels.on_host(found), wanted, eps)
    assert_close(panels.on_host(B * np.arange(4.0)), b * np.arange(4.0), eps)
    assert_close(panels.on_host(np.arange(50.0)[:, None] * B), np.arange(50.0)[:, None] * b, 50 * eps)
    assert (np.arange(50.0)[:, None] * B).dtype == np.result_type(b, float)
    Q, R = orth.qr(B)
    assert_close(panels.on_host(Q @ R), b, eps)
    held = panels.empty_columns(B, 6, b.dtype)
    panels.set_columns(held, 1, W)
    held[:, 4:6] = B[:, :2].astype(float if dtype[0] == "f" else complex)
    assert_close(panels.on_host(held[:, 1:6]), np.hstack([w, b[:, :2]]), eps)
    part, other = held[:, 1:4], W.copy()
    orth.subtract_product(part, B, c)
    assert_close(panels.on_host(held[:, 1:4]), w - b @ c, eps)  # a part of a panel is no copy
    assert_close(panels.on_host(other), w, 0)


@PLACES
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6, 1e9, np.inf])
def test_bases_there_are_orthonormal_and_lose_nothing_of_the_span(kind: str, dtype: str, condition: float) -> None:
    Q, P = (np.linalg.qr(panel(n, 5, dtype, n))[0] for n in (60, 5))
    y = (Q * np.r_[np.geomspace(1, 10 / condition, 4) if condition < np.inf else np.ones(4), 1 / condition]) @ P
    found = panels.on_host(orth.orth(there(kind, y)))
    assert found.shape == (60, 5)
    assert_close(found.conj().T @ found, np.eye(5), 1e2 * EPS)
    # As near as by Householder reflections, whatever the condition.
    assert_close(found @ (found.conj().T @ y), y, 1e2 * EPS)
    # Columns that each lean on those before: a product with the inverse of the factor alone is off by some 1e2 eps.
    leaning = np.linalg.qr(panel(60, 16, dtype))[0] @ (np.eye(16) - 0.9 * np.triu(np.ones((16, 16)), 1))
    found = panels.on_host(orth.orth(there(kind, leaning)))
    assert_close(found @ (found.conj().T @ leaning), leaning, 20 * EPS * np.linalg.norm(leaning))
    S = np.geomspace(1, 1e-5, 5)
    graded = panels.on_host(orth.graded_basis(there(kind, Q * S)))
    assert_close(graded, Q, 1e2 * EPS / S[-1])


def test_after_the_start_no_panel_as_long_as_the_data_crosses() -> None:
    m, n, k, b = 1200, 900, 6, 8
    X = sparse.random_array((m, n), density=0.02, rng=np.random.default_rng(0), dtype=np.float32)
    X = sparse.csr_array(X * np.exp(-np.arange(n) / 30).astype(np.float32))
    A = ss.as_operator(FarCSR(X))
    A.moments()
    crossings = A.arrays.crossings  # type: ignore[attr-defined]
    rng = Counting(0)
    before = len(crossings)
    solver = ss.BlockLanczos(block_size=b, max_basis=40, max_passes=200)
    F = ss.svd(A, k, shift="mean", scale=True, sample_weight=np.linspace(1, 2, m), solver=solver, rng=rng)
    assert F.info.converged
    assert F.info.n_passes > 15  # restarts, and a probe
    wide = [shape for shape in crossings[before:] if len(shape) == 2 and min(shape) > 1 and max(shape) >= n]
    drawn = [shape for shape in rng.drawn if len(shape) == 2 and shape[0] == n]
    # The weights, in parts of which no sum rounds, and their sums; random numbers, and the vectors that were found.
    assert wide == [(m, PARTS), (n, PARTS), *drawn, (n, k)]
    each = sum(np.prod(shape) for shape in crossings[before:] if max(shape) < n) / F.info.n_passes
    assert each < 16 * b * 40
    thin = [shape for shape in crossings[before:] if np.prod(shape) == max(shape) >= n]
    assert len(thin) <= 20  # moments, shift, scales and weights, once
    assert np.allclose(F.S, ss.svd(X, k, shift="mean", scale=True, sample_weight=np.linspace(1, 2, m)).S, rtol=1e-4)


class Counting(np.random.Generator):
    """A generator that takes down what has been drawn."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.drawn: list[tuple[int, ...]] = []

    def standard_normal(self, size: Any = None, *args: Any, **named: Any) -> Any:
        self.drawn.append(size if isinstance(size, tuple) else ())
        return super().standard_normal(size, *args, **named)


GRADED = {
    "steep": 10.0 ** -np.linspace(0, 6, 40),
    "flat": np.linspace(1, 0.9, 40),
    "low rank": np.r_[np.ones(8), np.zeros(32)],
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [kind for kind in MAKE if not kind.endswith(("csc", "coo"))])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spectrum", GRADED)
def test_bounds_hold_and_values_are_those_of_the_host(kind: str, dtype: str, spectrum: str) -> None:
    S, k = GRADED[spectrum], 10
    U, V = (np.linalg.qr(panel(n, 40, dtype.replace("4", "8").replace("c8", "c16"), n))[0] for n in (130, 60))
    X = ((U * S) @ V.conj().T).astype(dtype)
    solver = ss.BlockLanczos(tol=1e-5, block_size=4, max_basis=40)
    F, G = (ss.svd(given, k, solver=solver, rng=0) for given in (MAKE[kind](X), X))
    exact = np.linalg.svd(X.astype(np.result_type(X, float)), compute_uv=False)[:k]
    found = F.to_host()  # type: ignore[attr-defined]
    assert F.info.converged is G.info.converged is True
    assert np.all(np.abs(found.S - exact) <= F.info.value_errors * exact + 1e-14)
    assert_close(found.S, G.S, 2e-5)
    A = ss.as_operator(X)
    assert np.allclose(ss.residuals(A, found), ss.residuals(A, G), atol=1e-2)


@pytest.mark.parametrize("kind", ["strict", *(kind for kind in MAKE if kind.endswith("csr"))])
def test_starts_shares_and_leaders_work_there(kind: str) -> None:
    rng = np.random.default_rng(0)
    Q, P = (np.linalg.qr(rng.standard_normal((n, 50)))[0] for n in (90, 50))
    S = np.r_[1e6, 1e5, np.linspace(2, 1, 48)]  # leaders whose squares drown the rest
    X = (Q * S) @ P.T
    lanczos = ss.BlockLanczos(tol=1e-4, block_size=4, max_basis=30)
    F = ss.svd(MAKE[kind](X), 5, solver=lanczos, rng=0)
    assert np.allclose(F.to_host().S, S[:5], rtol=1e-4)  # type: ignore[attr-defined]
    Y = (Q * np.linspace(4, 0.1, 50) ** 2) @ P.T
    share = ss.svd(MAKE[kind](Y), 0.5, solver=lanczos, rng=0).to_host()  # type: ignore[attr-defined]
    assert_close(share.S, ss.svd(Y, 0.5, solver=lanczos, rng=0).S, 1e-6)
    for start in (P.T[:3].T + 1e-3, np.ones((50, 9)), P.astype(complex)):
        warm = ss.svd(MAKE[kind](Y), 3, solver=ss.BlockLanczos(start=start, block_size=4), rng=0)
        assert_close(warm.to_host().S, np.linspace(4, 0.1, 50)[:3] ** 2, 1e-3)  # type: ignore[attr-defined]


@kinds
def test_what_is_not_sorted_for_it_is_multiplied_there_too(make: Any) -> None:
    X = numbers((24, 150), "f8")
    X[:, 5] += 3  # a full column of a wide matrix
    A = ss.centered(ss.as_operator(make(X)))
    V = generic.placed(A.H, np.eye(24)[:, :3])
    assert isinstance(V, DevicePanel)
    D = X - X.mean(axis=0)
    assert_close(panels.on_host(A.H.gram(V)), D @ (D.T @ np.eye(24)[:, :3]), 1e-8)
    F = ss.svd(make(X), 4, shift="mean", solver="lanczos", rng=0)
    assert np.allclose(F.to_host().S, np.linalg.svd(D, compute_uv=False)[:4], rtol=1e-4)  # type: ignore[attr-defined]


def test_weights_that_may_change_are_sent_each_time_and_others_once() -> None:
    X = numbers((150, 24), "f8")
    A = ss.as_operator(Far(X))
    V, w = np.random.default_rng(2).standard_normal((24, 3)), np.ones(150)
    for factor in (1.0, 2.0, 3.0):
        w[:] = factor
        assert_close(A.gram(V, w), X.T @ (w[:, None] * (X @ V)), 1e-4)
    fixed = np.arange(150.0)
    fixed.flags.writeable = False
    crossings = A.arrays.crossings  # type: ignore[attr-defined]
    crossings.clear()
    for _ in range(3):
        assert_close(A.gram(V, fixed), X.T @ (fixed[:, None] * (X @ V)), 1e-2)
    assert crossings.count((150, 1)) == 1


def test_gram_matrices_and_blocks_of_rows_are_made_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    X = numbers((150, 24), "f4")
    for given in (FarCSR(sparse.csr_array(X)), Far(X)):
        A = ss.centered(ss.as_operator(given))
        monkeypatch.setattr(type(A), "gram", None)  # not a product with all columns of the identity
        D = X.astype(float) - X.mean(axis=0, dtype=float)
        assert_close(generic.gram_matrix(A), D.T @ D, 1e-3)
        assert [lo for lo, _ in generic.row_blocks(A, 60)] == [0, 60, 120]


def test_what_the_adapter_keeps_is_bounded() -> None:
    arrays = FakeArrays()
    for i in range(30):
        x = np.full(5, float(i))
        x.flags.writeable = False
        assert np.all(arrays.column(x, np.dtype(float)).near == i)
    assert len(arrays._kept) <= 8


@pytest.mark.slow
def test_errors_of_sixty_spectra_are_within_their_bounds() -> None:
    for i in range(60):
        rng = np.random.default_rng(i)
        S = np.exp(-(10 ** rng.uniform(-3, 0)) * np.arange(80)) * 10 ** rng.uniform(-3, 3)
        U, V = (np.linalg.qr(rng.standard_normal((n, 80)))[0] for n in (600, 120))
        X = ((U * S) @ V.T).astype(np.float32 if i % 2 else np.float64)
        F = ss.svd(torch_of(X, "dense"), 5, rng=0, solver="lanczos").to_host()  # type: ignore[attr-defined]
        exact = np.linalg.svd(X.astype(np.float64), compute_uv=False)[:5]
        assert F.info.converged
        assert np.all(np.abs(F.S - exact) / exact <= F.info.value_errors + 1e-14)


@kinds
@pytest.mark.parametrize("solver", ["lanczos", "gram", "exact"])
def test_left_vectors_of_a_tall_matrix_are_made_where_it_lies(make: Any, solver: str) -> None:
    X = numbers((150, 24), "f4")
    A = ss.as_operator(make(X))
    F, G = (ss.svd(given, 4, shift="mean", solver=solver, rng=0) for given in (make(X), X))
    U = panels.on_host(DevicePanel(F.U, A.arrays))  # type: ignore[attr-defined]
    assert U.dtype == np.float32
    assert np.allclose(np.abs(np.sum(U * G.U, axis=0)), 1, atol=1e-3)
    assert np.allclose(np.sum(U * G.U, axis=0) > 0, True)  # the signs, too
    assert np.array_equal(F.to_host().U, U)  # type: ignore[attr-defined]
    part = F.truncate(2)
    assert np.array_equal(panels.on_host(DevicePanel(part.U, A.arrays)), U[:, :2])  # type: ignore[attr-defined]
    assert F.shape == (150, 24)


def test_left_vectors_cross_where_the_host_asks_for_them_alone() -> None:
    X = Far(numbers((150, 24), "f4"))
    A = ss.as_operator(X)
    crossings = A.arrays.crossings  # type: ignore[attr-defined]
    F = ss.svd(A, 4, shift="mean", solver="lanczos", rng=0)
    crossings.clear()
    assert F.truncate(3).shape == (150, 24)
    assert (150, 4) not in crossings
    assert F.U.shape == (150, 4)
    assert crossings.count((150, 4)) == 1
