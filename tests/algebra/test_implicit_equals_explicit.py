"""The claim of the library: an implicit shift gives the randomized SVD of the explicitly shifted matrix."""

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import shiftsvd as ss
from tests.support.containers import CONTAINERS, content
from tests.support.matrices import Array, in_double, values

SIDE = st.integers(2, 60)
SHAPES = {
    "tall": st.tuples(st.integers(21, 80), st.integers(2, 20)),
    "wide": st.tuples(st.integers(2, 20), st.integers(21, 80)),
    "square": SIDE.map(lambda n: (n, n)),
    "1 x n": SIDE.map(lambda n: (1, n)),
    "n x 1": SIDE.map(lambda n: (n, 1)),
}
STORES = {
    "C": "array {}",
    "Fortran": "fortran",
    "strided": "strided",
    "CSR": "csr {}",
    "CSC": "csc {}",
    "unsorted": "csr unsorted",
    "duck": "duck {}",
}
DTYPES = ("float32", "float64", "complex64", "complex128")


@st.composite
def cases(draw) -> dict:
    """One matrix in its container, its shift, its scale, and the settings of a run."""
    shape = draw(SHAPES[draw(st.sampled_from(list(SHAPES)))])
    store, dtype = draw(st.sampled_from(list(STORES))), draw(st.sampled_from(DTYPES))
    return {
        "shape": shape,
        "make": CONTAINERS[STORES[store].format(dtype)].make,
        "dtype": np.dtype(dtype),
        "density": draw(st.sampled_from([0.05, 0.3, 0.7, 1.0])),
        "offset": 10.0 ** draw(st.integers(-3, 4)),
        "shift": draw(st.sampled_from(["mean", "vector", "rank 1", "rank 2", "rank 3", "none"])),
        "scaled": draw(st.booleans()),
        "k": draw(st.integers(1, min(shape))),
        "n_oversamples": draw(st.integers(0, 12)),
        "n_iter": draw(st.integers(0, 3)),
        "seed": draw(st.integers(0, 2**20)),
    }


def shifted(case: dict) -> tuple[ss.Operator, Array, float, list[bytes], object]:
    """(implicit, explicit, ||X|| + ||shift||, content and container before) of a case."""
    (m, n), seed, rng = case["shape"], case["seed"], np.random.default_rng(case["seed"])
    D = values((m, n), case["dtype"], seed, case["density"])
    D = (D + (D != 0) * case["offset"] * (1 + 0.1 * rng.random(n))).astype(case["dtype"])
    X = case["make"](D)
    before = content(X)
    E, kind = in_double(D), case["shift"]
    A = ss.as_operator(X)
    if kind == "mean":
        shift = ss.LowRank(np.ones(m), A.moments().mean.conj())
        L, R = np.ones((m, 1)), E.mean(axis=0).conj()[:, None]
    elif kind == "vector":
        R = case["offset"] * values((n, 1), E.dtype, seed + 1, 1.0)
        L, shift = np.ones((m, 1)), ss.LowRank(np.ones(m), R[:, 0])
    elif kind == "none":
        L, R, shift = np.zeros((m, 1)), np.zeros((n, 1)), None
    else:
        L, R = (values((side, int(kind[-1])), E.dtype, seed + side, 1.0) for side in (m, n))
        R = R * case["offset"]
        shift = ss.LowRank(L, R)
    S = L @ R.conj().T
    scale = rng.uniform(0.5, 2, n) if case["scaled"] else np.ones(n)
    A = A if shift is None else A - shift
    A = ss.operators.Scaled(A, cols=scale) if case["scaled"] else A
    size = (np.linalg.norm(E, 2) + np.linalg.norm(S, 2)) * scale.max()
    return A, (E - S) * scale, float(size), before, X


def randomized_svd(Xbar: Array, k: int, ell: int, q: int, Omega: Array) -> tuple[Array, Array, Array]:
    """Halko, Martinsson & Tropp (2011), algorithms 4.4 and 5.1, on a matrix that is there: all ell components."""
    Q, _ = np.linalg.qr(Xbar @ Omega)
    for _ in range(q):
        Z, _ = np.linalg.qr(Xbar.conj().T @ Q)
        Q, _ = np.linalg.qr(Xbar @ Z)
    U, S, Vh = np.linalg.svd(Q.conj().T @ Xbar, full_matrices=False)
    return Q @ U, S, Vh


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases())
def test_implicit_shift_equals_explicit_shift(case: dict) -> None:
    A, Xbar, size, before, X = shifted(case)
    m, n, k, q = *A.shape, case["k"], case["n_iter"]
    ell = min(k + case["n_oversamples"], m, n)
    solver = ss.RandomizedSVD(n_iter=q, n_oversamples=case["n_oversamples"], power_iteration_normalizer="QR")
    F = solver(A, k, case["seed"])
    Omega = np.random.default_rng(case["seed"]).standard_normal((min(m, n), ell))
    tall = Xbar if m >= n else Xbar.conj().T
    U, S, Vh = randomized_svd(tall, k, ell, q, Omega)
    U, V = (U, Vh.conj().T) if m >= n else (Vh.conj().T, U)

    bound = 20 * float(np.finfo(A.dtype).eps) * size
    assert np.abs(F.S - S[:k]).max() <= bound
    # The subspace is defined as well as the gap behind it, in the sample itself: nothing is said at ties.
    gap = S[k - 1] - (S[k] if k < ell else 0)
    # Without iterations the sample is as good as the test matrix: its weakest direction is rounded like its strongest.
    lost = 20 * float(np.finfo(A.dtype).eps) * np.linalg.cond(Omega) if q == 0 else 0.0
    if gap > 100 * bound:
        event("projectors compared")
        for P, W in ((F.U, U[:, :k]), (F.Vh.conj().T, V[:, :k])):
            distance = np.linalg.norm(P @ P.conj().T - W @ W.conj().T, 2)
            assert distance <= bound / gap + lost
    assert content(X) == before


@pytest.mark.one_in(3)
@pytest.mark.parametrize("normalizer", ["auto", "LU", "CholeskyQR2"])
@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_implicit_values_equal_explicit_ones_with_every_normalizer(normalizer: str, case: dict) -> None:
    A, Xbar, size, _, _ = shifted(case)
    k = case["k"]
    solver = ss.RandomizedSVD(
        n_iter=case["n_iter"], n_oversamples=case["n_oversamples"], power_iteration_normalizer=normalizer
    )
    found = solver(A, k, case["seed"]).S
    want = solver(ss.as_operator(Xbar), k, case["seed"]).S
    assert np.abs(found - want).max() <= 20 * float(np.finfo(A.dtype).eps) * size


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_exact_values_are_those_of_the_explicit_matrix(case: dict) -> None:
    A, Xbar, size, _, _ = shifted(case)
    found = ss.Exact()(A, case["k"]).S
    want = np.linalg.svd(Xbar, compute_uv=False)[: case["k"]]
    assert np.abs(found - want).max() <= 20 * float(np.finfo(A.dtype).eps) * size


@pytest.mark.parametrize(
    "sketch", [ss.sketch.Gaussian(), ss.sketch.Rademacher(), ss.sketch.SparseSign(), ss.sketch.SRFT()], ids=repr
)
@pytest.mark.parametrize("name", ["array float64", "csr float64", "csc float64", "fortran", "duck float64"])
def test_every_sketch_samples_the_shifted_matrix(sketch, name: str) -> None:
    for shape in ((60, 25), (25, 60)):
        D = values(shape) + (values(shape) != 0) * 50
        for finish in ("project", "last"):
            solver = ss.RandomizedSVD(n_iter=2, sketch=sketch, finish=finish)
            implicit = solver(ss.centered(CONTAINERS[name].make(D)), 4, 3)
            explicit = solver(ss.as_operator(D - D.mean(axis=0)), 4, 3)
            bound = 20 * np.finfo(float).eps * 2 * np.linalg.norm(D, 2)
            assert np.abs(implicit.S - explicit.S).max() <= bound
