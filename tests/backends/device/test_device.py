"""Matrices on a device give what the same numbers on the host give, and nothing crosses that nobody sent."""

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra import generic
from shiftsvd.backends import device
from shiftsvd.backends.device import matrices as device_matrices
from shiftsvd.operators import Operator
from shiftsvd.solvers import constants
from tests.support import fake_device
from tests.support.fake_device import Far, FarCSR

SHAPES = {"tall": (150, 24), "wide": (24, 150)}
DTYPES = ["f4", "f8", "c8", "c16"]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device.ADAPTERS, "tests", fake_device.__name__)
    monkeypatch.setattr(constants, "HOST_ROWS", 0)  # bases of any size lie on the device


def torch_of(X: np.ndarray, layout: str) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not here: `make test-device` installs it")
    if layout == "dense":
        return torch.tensor(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(torch.tensor(X), {"coo": "to_sparse"}.get(layout, f"to_sparse_{layout}"))()


def strict(X: np.ndarray) -> Any:
    xp = pytest.importorskip("array_api_strict")
    return xp.asarray(X, device=xp.Device("device1"))


def cupy_of(X: np.ndarray, layout: str) -> Any:
    cupy, there = import_module("cupy"), import_module("cupyx.scipy.sparse")
    if layout == "dense":
        return cupy.asarray(X)
    return getattr(there, f"{layout}_matrix")(getattr(sparse, f"{layout}_matrix")(X))


def on_card(library: str) -> bool:
    """Whether the library is installed and finds a CUDA device."""
    if find_spec(library) is None:
        return False
    if library == "torch":
        return bool(import_module("torch").cuda.is_available())
    try:
        return bool(import_module("cupy").cuda.runtime.getDeviceCount())
    except RuntimeError:  # no driver
        return False


LAYOUTS = ("dense", "csr", "csc", "coo")
ON_CARD: dict[str, Callable[[np.ndarray], Any]] = {}  # empty where there is no CUDA device
for _layout in LAYOUTS:
    if on_card("torch"):
        ON_CARD[f"cuda {_layout}"] = lambda X, layout=_layout: torch_of(X, layout).cuda()
    if on_card("cupy"):
        ON_CARD[f"cupy {_layout}"] = partial(cupy_of, layout=_layout)

MAKE: dict[str, Callable[[np.ndarray], Any]] = {
    **ON_CARD,
    "fake dense": lambda X: Far(X),
    "fake csr": lambda X: FarCSR(sparse.csr_array(X)),
    "strict": strict,
    "torch": lambda X: torch_of(X, "dense"),
    "torch csr": lambda X: torch_of(X, "csr"),
    "torch csc": lambda X: torch_of(X, "csc"),
    "torch coo": lambda X: torch_of(X, "coo"),
}
kinds = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def numbers(shape: tuple[int, int], dtype: str, seed: int = 0) -> np.ndarray:
    """Sparse numbers with a full column far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    X *= rng.random(shape) < 0.3
    X[:, 3] = 1000 + rng.standard_normal(shape[0])
    return X.astype(dtype)


def shifted(A: Operator, X: np.ndarray, shift: str) -> tuple[Operator, np.ndarray]:
    """An operator and the same matrix in double precision, minus a shift."""
    rng = np.random.default_rng(1)
    D = X.astype(np.result_type(X, np.float64))
    if shift == "mean":
        return ss.centered(A), D - D.mean(axis=0)
    if shift == "rank 2":
        L, R = rng.standard_normal((len(X), 2)), rng.standard_normal((X.shape[1], 2))
        return A - ss.LowRank(L, R), D - L @ R.T
    return A, D


def near(found: Any, wanted: np.ndarray, dtype: str, parts: float = 1.0) -> None:
    """Within rounding: of single precision products where the data are single, of double ones else."""
    eps = np.finfo(dtype).eps if parts > 1 else np.finfo(np.float64).eps
    assert np.abs(np.asarray(found) - wanted).max() <= 1e4 * eps * max(1.0, np.abs(wanted).max())


@kinds
@shapes
@dtypes
@pytest.mark.parametrize("shift", ["none", "mean", "rank 2"])
def test_products_and_sums_are_those_of_the_host(make: Any, shape: tuple[int, int], dtype: str, shift: str) -> None:
    X = numbers(shape, dtype)
    A, D = shifted(ss.as_operator(make(X)), X, shift)
    rng = np.random.default_rng(2)
    V, W, w = rng.standard_normal((shape[1], 3)), rng.standard_normal((shape[0], 3)), rng.random(shape[0])
    near(A.matmat(V), D @ V, dtype)
    near(A.rmatmat(W), D.conj().T @ W, dtype)
    near(A.gram(V), D.conj().T @ (D @ V), dtype)
    near(A.gram(V, w), D.conj().T @ (w[:, None] * (D @ V)), dtype)
    near(generic.gram_matrix(A, w), D.conj().T @ (w[:, None] * D), dtype)
    near(A.column_squares(), (abs(D) ** 2).sum(axis=0), dtype)
    near(A.column_squares(w), w @ abs(D) ** 2, dtype)
    near(A.moments(w).mean, w @ D / w.sum(), dtype)
    near(np.concatenate([part for _, part in generic.row_blocks(A, 7)]), D, dtype)
    near(generic.row_moments(A).mean, D.mean(axis=1), dtype)
    if (squares := A.row_squares()) is not None:
        near(squares, (abs(D) ** 2).sum(axis=1), dtype)


@kinds
@dtypes
def test_moments_are_about_the_mean(make: Any, dtype: str) -> None:
    X = numbers(SHAPES["tall"], dtype)
    A, D = ss.as_operator(make(X)), X.astype(np.result_type(dtype, np.float64))
    for found, axis in ((A.moments(), 0), (generic.row_moments(A), 1)):
        near(found.mean, D.mean(axis=axis), dtype)
        off = D - D.mean(axis=axis, keepdims=True)
        assert np.allclose(found.M2, (abs(off) ** 2).sum(axis=axis), rtol=1e-11)


@kinds
def test_single_products_are_single_and_right(make: Any) -> None:
    X = numbers((400, 24), "f4")
    A, D = shifted(ss.as_operator(make(X)), X, "mean")
    V = np.random.default_rng(2).standard_normal((24, 3)).astype(np.float32)
    Z = A.gram(V)
    assert Z.dtype == np.float32
    near(Z, D.T @ (D @ V), "f4", parts=2)


@kinds
@shapes
@pytest.mark.parametrize("solver", ["lanczos", "gram", "exact", "randomized"])
def test_triplets_are_those_of_the_host_and_native(make: Any, shape: tuple[int, int], solver: str) -> None:
    X = numbers(shape, "f8")
    how: dict[str, Any] = {"shift": "mean", "scale": True, "solver": solver, "rng": 0}
    how |= {"sample_weight": np.linspace(0.5, 2, shape[0])}
    given = make(X)
    F, G = ss.svd(given, 4, **how), ss.svd(X, 4, **how)
    assert type(F.U) is type(F.Vh)
    assert type(given).__module__.startswith(type(F.U).__module__)  # cupyx has the sparse matrices of cupy
    U, S, Vh = F.to_host()
    assert np.allclose(S, G.S, rtol=1e-8)
    assert np.allclose(abs(np.sum(U.conj() * G.U, axis=0)), 1, atol=1e-4)
    assert F.info.converged is G.info.converged
    again = ss.svd(given, 4, **how).to_host()
    assert np.array_equal(again.S, S)
    assert np.array_equal(again.Vh, Vh)


@kinds
@pytest.mark.parametrize("exponent", [-900, 900])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_of_any_size_are_those_of_the_host(
    make: Any, exponent: int, scale: bool, shape: tuple[int, int]
) -> None:
    X = np.ldexp(numbers(shape, "f8") / 1024, exponent)
    how: dict[str, Any] = {"shift": "mean", "scale": scale, "solver": "lanczos", "rng": 0}
    F, G = ss.svd(make(X), 4, **how), ss.svd(X, 4, **how)
    assert np.allclose(F.to_host().S / G.S, 1, atol=1e-6)
    assert F.info.converged
    assert np.isclose(F.info.frobenius_error, G.info.frobenius_error, rtol=1e-6)


@kinds
def test_results_are_operators_and_can_be_cut(make: Any) -> None:
    X = numbers(SHAPES["tall"], "f8")
    F = ss.svd(make(X), 4, shift="mean", rng=0)
    A = ss.centered(make(X))
    assert np.isclose(ss.spectral_norm(A - F, rng=0), ss.svd(X, 5, shift="mean", rng=0).S[4], rtol=1e-3)
    assert F.truncate(2).to_host().U.shape == F.H.truncate(2).to_host().Vh.conj().T.shape == (150, 2)
    assert "components" in repr(F)


def test_what_crosses_is_the_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_matrices, "ROWS", 64)
    A = ss.centered(ss.as_operator(FarCSR(sparse.csr_array(numbers((400, 24), "f4")))))
    V = np.ones((24, 5), np.float32)
    A.gram(V)  # what stays is sent once
    traffic = A.arrays.traffic  # type: ignore[attr-defined]
    traffic.update(up=0, down=0)
    A.gram(V)
    assert traffic == {"up": 4 * 5 * 24, "down": 4 * 5 * 24}  # V, and the product


@kinds
def test_blocks_give_what_the_whole_gives(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X = numbers((400, 24), "f8")
    V = np.random.default_rng(2).standard_normal((24, 3))
    whole = ss.centered(ss.as_operator(make(X))).gram(V)
    monkeypatch.setattr(device_matrices, "ROWS", 64)
    monkeypatch.setattr(device_matrices, "BLOCK", 64 * 24)
    A = ss.centered(ss.as_operator(make(X)))
    near(A.gram(V), whole, "f8")
    near(A.moments().mean, 0 * V[:, 0], "f8")


@kinds
def test_bad_matrices_are_refused_in_a_line(make: Any) -> None:
    X = numbers(SHAPES["tall"], "f8")
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"must be finite, got NaN or inf\. Remove or fill them"):
        ss.svd(make(X), 2)
    X[3, 4] = 0
    with pytest.raises(TypeError, match=r"no access to its entries.* on the host"):
        ss.svd(make(X), 2, preprocess="log-normalize")
    with pytest.raises(TypeError, match="a matrix with missing entries must be"):
        ss.svd(make(X), 2, shift="mean", missing="mean")


def test_tensors_that_want_gradients_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"requires_grad=True.*detach\(\)"):
        ss.svd(torch.ones(3, 2, requires_grad=True), 1)


def test_duplicates_of_tensors_are_added_and_corrupt_ones_refused() -> None:
    torch = pytest.importorskip("torch")
    data = torch.tensor([1.0, 2.0, 4.0, 3.0, 5.0], dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = torch.sparse_csr_tensor(torch.tensor([0, 3, 5]), torch.tensor([1, 0, 1, 2, 0]), data, size=(2, 3))
        bad = torch.sparse_csr_tensor(
            torch.tensor([0, 3, 5]), torch.tensor([1, 0, 7, 2, 0]), data, size=(2, 3), check_invariants=False
        )
    D = np.array([[2.0, 5.0, 0.0], [5.0, 0.0, 3.0]])
    assert np.array_equal(ss.as_operator(X).matmat(np.eye(3)), D)
    assert np.allclose(ss.as_operator(X).column_squares(), (D**2).sum(axis=0))
    with pytest.raises(ValueError, match="corrupt: its indices lie outside"):
        ss.as_operator(bad)


def test_the_precision_that_the_caller_has_set_comes_back() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        ss.svd(torch.randn(200, 30), 3, solver="lanczos", rng=0)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("kind", ["torch", "torch csr", "fake csr"])
def test_many_entries_of_one_sign_do_not_leave_the_certificate(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((100_000, 6)).astype(np.float32) + 1
    X[:, 2] *= rng.random(len(X)) < 0.9
    F = ss.svd(MAKE[kind](X), 3, solver="lanczos", rng=0)
    S = np.linalg.svd(X.astype(np.float64), compute_uv=False)[:3]
    assert F.info.value_errors is not None
    assert np.all(abs(F.to_host().S - S) / S <= F.info.value_errors + 1e-15)
    assert F.info.converged
