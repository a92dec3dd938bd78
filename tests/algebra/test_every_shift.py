"""Every shift, scale, weight, kind and shape: the values are those of the matrix that is there."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from shiftsvd.preparation.prepare import Preparation
from tests.support.closeness import assert_close
from tests.support.containers import Duck, streamed
from tests.support.matrices import Array, values
from tests.support.sampling import pairs

KINDS = {
    "csr": csr_array,
    "csc": csc_array,
    "dense": np.array,
    "operator": Duck,
    "streamed csr": streamed(csr_array),
    "streamed dense": streamed(np.ndarray.copy),
}
SHIFTS = ("none", "mean", "rows", "both", "vector", "low rank", "covariates", "no intercept", "groups")
OF_PCA = tuple(shift for shift in SHIFTS if shift != "low rank")
SCALES = ("none", "std", "pareto", "vector")
SHAPES = {"tall": (23, 7), "wide": (9, 26)}
BOUND = {np.float64: 1e-10, np.float32: 2e-5}


def prepared(A: ss.Operator, shift: Any, scale: Any, weights: Array | None = None) -> ss.Operator:
    return Preparation(shift, scale, weights).learn(A).of(A)


class Case:
    """A matrix, and all that could be known of its rows."""

    def __init__(self, shape: tuple[int, int], dtype: Any, seed: int = 0, density: float = 0.6, offset: float = 2.0):
        (m, n), rng = shape, np.random.default_rng(seed)
        there = values(shape, seed=seed, density=density) != 0
        self.X = (there * (rng.standard_normal(shape) + offset * rng.standard_normal(n))).astype(dtype)
        self.D = self.X.astype(np.float64)
        self.weights = rng.uniform(0.5, 3, m) * (np.arange(m) != 1)
        self.labels = np.array(["a", "b", "c"])[rng.permutation(m) % 3]
        self.C = np.column_stack([rng.standard_normal((m, 2)), 3 * rng.standard_normal(m) + 50])
        self.vector, self.divisor = rng.standard_normal(n), rng.uniform(0.5, 2, n)
        self.L, self.R = rng.standard_normal((m, 2)), rng.standard_normal((n, 2))

    def svd_shift(self, shift: str) -> Any:
        """What `svd` takes."""
        return {
            "none": None,
            "vector": self.vector,
            "low rank": ss.LowRank(self.L, self.R),
            "covariates": ss.Covariates(self.C),
            "no intercept": ss.Covariates(self.C, intercept=False),
            "groups": ss.GroupMeans(self.labels),
        }.get(shift, shift)

    def pca_shift(self, shift: str) -> tuple[Any, dict[str, Array]]:
        """What `PCA` takes, and its methods."""
        covariates = {"covariates": self.C}
        return {
            "covariates": (ss.Covariates(), covariates),
            "no intercept": (ss.Covariates(intercept=False), covariates),
            "groups": (ss.GroupMeans(), {"groups": self.labels}),
        }.get(shift, (self.svd_shift(shift), {}))

    def explicit(self, shift: str, w: Array) -> Array:
        """The shift that the rows get when rows with these weights are fitted, by textbook formulae on the matrix."""
        return explicit_shift(self, self, shift, w)

    def scale(self, shift: str, scale: str, w: Array, ddof: int = 0) -> Array:
        E = self.D - self.explicit(shift, w)
        variance = w @ (E - w @ E / w.sum()) ** 2 / (w.sum() - ddof)
        ones = np.ones(E.shape[1])
        return {"none": ones, "std": np.sqrt(variance), "pareto": variance**0.25, "vector": self.divisor}[scale]


def explicit_shift(train: Case, new: Case, shift: str, w: Array) -> Array:
    """The shift of new rows, learned of the training rows."""
    mu, rows = w @ train.D / w.sum(), new.D.mean(axis=1)[:, None]
    if shift in ("covariates", "no intercept"):
        C, C_new = (np.column_stack([np.ones(len(c.D)) * (shift == "covariates"), c.C]) for c in (train, new))
        root = np.sqrt(w)[:, None]
        return C_new @ np.linalg.lstsq(root * C, root * train.D)[0]
    if shift == "groups":
        means = {g: np.average(train.D, axis=0, weights=w * (train.labels == g)) for g in set(train.labels)}
        return np.array([means[g] for g in new.labels])
    return {
        "none": lambda: np.zeros_like(new.D),
        "mean": lambda: mu + 0 * new.D,
        "rows": lambda: rows + 0 * new.D,
        "both": lambda: rows + mu - w @ train.D.mean(axis=1) / w.sum(),
        "vector": lambda: new.vector + 0 * new.D,
        "low rank": lambda: new.L @ new.R.T,
    }[shift]()


def scale_argument(case: Case, scale: str) -> Any:
    return {"none": None, "vector": case.divisor}.get(scale, scale)


def assert_same_components(F: ss.SVDResult, E: Array, bound: float) -> None:
    """Values to the bound, subspaces as far as the gap behind them allows."""
    U, S, Vt = np.linalg.svd(E, full_matrices=False)
    k = len(F.S)
    assert np.abs(F.S - S[:k]).max() <= bound
    gap = S[k - 1] - S[k]
    if gap > 10 * bound:
        for P, Q in ((F.U, U[:, :k]), (F.Vh.T, Vt[:k].T)):
            assert np.linalg.norm(P @ P.T - Q @ Q.T, 2) <= 10 * bound / gap


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_combination_equals_the_explicit_matrix(kind: str, shift: str, dtype: Any) -> None:
    for shape, scale, weighted in pairs(SHAPES, ("none", "std", "vector"), (False, True)):
        case = Case(SHAPES[shape], dtype)
        w = case.weights if weighted else np.ones(len(case.D))
        E = np.sqrt(w)[:, None] * (case.D - case.explicit(shift, w)) / case.scale(shift, scale, w)
        F = ss.svd(
            KINDS[kind](case.X),
            3,
            shift=case.svd_shift(shift),
            scale=scale_argument(case, scale),
            sample_weight=w if weighted else None,
            solver="exact",
        )
        size = np.linalg.norm(case.D, 2) * np.sqrt(w.max()) / min(1, case.scale(shift, scale, w).min())
        assert_same_components(F, E, BOUND[dtype] * size)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shift", OF_PCA)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "operator"])
def test_held_out_rows_get_the_training_shift(kind: str, shift: str, dtype: Any) -> None:
    for shape, (scale, weighted) in product(SHAPES, [("none", False), ("std", False), ("std", True), ("vector", True)]):
        case, new = Case(SHAPES[shape], dtype), Case((13, SHAPES[shape][1]), dtype, seed=1)
        new.vector = case.vector
        w = case.weights if weighted else np.ones(len(case.D))
        s = case.scale(shift, scale, w)
        spec, data = case.pca_shift(shift)
        pca = ss.PCA(3, shift=spec, scale=scale_argument(case, scale), solver="exact")
        pca.fit(KINDS[kind](case.X), sample_weight=w if weighted else None, **data)
        E = np.sqrt(w)[:, None] * (case.D - case.explicit(shift, w)) / s
        bound = 4 * BOUND[dtype] * (np.linalg.norm(case.D, 2) + np.linalg.norm(new.D, 2)) / min(1, s.min())
        S = np.linalg.svd(E, compute_uv=False)
        assert np.abs(pca.singular_values_ - S[:3]).max() <= bound
        total = (S**2).sum()
        assert np.abs(pca.explained_variance_ratio_ - S[:3] ** 2 / total).max() <= 4 * bound / S[0]

        _, new_data = new.pca_shift(shift)
        want = ((new.D - explicit_shift(case, new, shift, w)) / s) @ pca.components_.T.astype(float)
        assert_close(pca.transform(KINDS[kind](new.X), **new_data), want, 10 * bound)
        parts = [part for _, part in pca.iter_scores(KINDS[kind](new.X), **new_data)]
        assert_close(np.concatenate(parts), want, 10 * bound)
        known = 0 if shift in ("rows", "both") else explicit_shift(case, new, shift, w)
        if shift == "both":
            known = w @ case.D / w.sum() - (w @ case.D).mean() / w.sum()
        back = pca.inverse_transform(want, **new_data)
        assert_close(back, (want @ pca.components_) * s + known, 100 * bound * max(1, s.max()))


CASES = {
    "shape": st.sampled_from([(12, 5), (5, 12), (40, 11), (11, 40), (9, 9), (200, 3)]),
    "kind": st.sampled_from(sorted(KINDS)),
    "dtype": st.sampled_from([np.float64, np.float32]),
    "shift": st.sampled_from(SHIFTS),
    "scale": st.sampled_from(SCALES),
    "weighted": st.booleans(),
    "seed": st.integers(0, 2**20),
    "density": st.sampled_from([0.2, 0.6, 1.0]),
    "offset": st.sampled_from([0.0, 1.0, 100.0]),
    "k": st.integers(1, 2),
    "solver": st.sampled_from([ss.Exact, ss.Gram, ss.BlockLanczos, ss.RandomizedSVD]),
}


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(**CASES)
def test_drawn_combinations_equal_the_explicit_matrix(
    shape, kind, dtype, shift, scale, weighted, seed, density, offset, k, solver
) -> None:
    case = Case(shape, dtype, seed, density, offset)
    w = case.weights if weighted else np.ones(shape[0])
    s = case.scale(shift, scale, w)
    if s.min() <= 1e-6:  # columns without variance have tests of their own
        return
    E = np.sqrt(w)[:, None] * (case.D - case.explicit(shift, w)) / s
    A = prepared(
        ss.as_operator(KINDS[kind](case.X)),
        case.svd_shift(shift),
        scale_argument(case, scale),
        weights=w if weighted else None,
    )
    size = np.sqrt(w.max()) * np.linalg.norm(case.D, 2) / min(1, s.min())
    bound = BOUND[dtype] * size
    S = np.linalg.svd(E, compute_uv=False)
    if S[k - 1] <= 1e-3 * size:  # what squared products can tell from 0
        return
    options = {ss.Exact: {}, ss.RandomizedSVD: {"n_oversamples": 60}}.get(solver, {"tol": BOUND[dtype] / 10})
    assert np.abs(solver(**options)(A, k, seed).S - S[:k]).max() <= bound
