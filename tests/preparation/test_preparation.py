"""Preparation: learned from rows once, and the same for any rows, whatever holds them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.choosing import resampling
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.shifts import MeanShift
from shiftsvd.solvers import Exact
from tests.support.closeness import assert_close
from tests.support.containers import Held
from tests.support.matrices import EPS
from tests.support.operators import Counting
from tests.support.sampling import pairs

M, N = 60, 7
RNG = np.random.default_rng(11)
X = np.where(RNG.random((M, N)) < 0.6, RNG.gamma(1.5, 2.0, (M, N)), 0)
NEW = np.where(RNG.random((9, N)) < 0.6, RNG.gamma(1.5, 2.0, (9, N)), 0)
W = RNG.integers(0, 4, M).astype(float)
GROUPS, NEW_GROUPS = np.arange(M) % 3, np.arange(9) % 3
C, NEW_C = RNG.standard_normal((M, 2)), RNG.standard_normal((9, 2))
VECTOR = np.linspace(-1, 2, N)
# Each of the shifts that mean something for other rows, and what it has to know of the new ones.
SHIFTS: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "mean": ("mean", None),
    "rows": ("rows", None),
    "both": ("both", None),
    "vector": (VECTOR, None),
    "groups": (ss.GroupMeans(GROUPS), NEW_GROUPS),
    "covariates": (ss.Covariates(C), NEW_C),
}
SCALES: dict[str, Any] = {"none": None, "std": "std", "pareto": "pareto", "vector": np.linspace(0.5, 2, N)}
SIZE = 100 * EPS * float(np.linalg.norm(X))  # rounding of a pass, with a margin
EVERY = pytest.mark.parametrize("shift", SHIFTS)
SCALED = pytest.mark.parametrize("scale", SCALES)
EVERY_WAY = pytest.mark.parametrize(("shift", "scale", "weighted"), pairs(SHIFTS, SCALES, [False, True]))


def in_a_file(folder: Path) -> ss.Operator:
    from shiftsvd.io import open_matrix

    np.save(folder / "x.npy", X)
    return open_matrix(folder / "x.npy", stream=True)[0]


HELD = {
    "dense": lambda _: ss.as_operator(X),
    "sparse": lambda _: ss.as_operator(sparse.csr_array(X)),
    "columns": lambda _: ss.as_operator(sparse.csc_array(X)),
    "blocks": lambda _: DiskRows(Held(sparse.csr_array(X)), n_threads=2),
    "file": in_a_file,
}


def dense(A: ss.Operator) -> np.ndarray:
    return A @ np.eye(A.shape[1])


def explicit_shift(name: str, w: np.ndarray) -> np.ndarray:
    """What each name says, by its definition."""
    mu = w @ X / w.sum()
    if name == "groups":
        return np.stack([np.average(X[GROUPS == g], axis=0, weights=w[GROUPS == g]) for g in GROUPS])
    if name == "covariates":
        D, root = np.column_stack([np.ones(M), C]), np.sqrt(w)[:, None]
        return D @ np.linalg.lstsq(root * D, root * X, rcond=None)[0]
    row = X.mean(axis=1)[:, None]
    plain = {"none": 0 * mu, "mean": mu, "rows": row, "both": mu + row - mu.mean(), "vector": VECTOR}
    return np.broadcast_to(plain[name], X.shape)


# --- what it is -----------------------------------------------------------------------------------------------


@EVERY_WAY
def test_the_rows_it_was_learned_from_are_the_weighted_shifted_scaled_matrix(
    shift: str, scale: str, weighted: bool
) -> None:
    w = W if weighted else np.ones(M)
    prepared = Preparation(SHIFTS[shift][0], SCALES[scale], W if weighted else None).learn(A := ss.as_operator(X))
    E = X - explicit_shift(shift, w)
    deviation = np.sqrt(w @ (E - w @ E / w.sum()) ** 2 / w.sum())
    s = {"none": np.ones(N), "std": deviation, "pareto": np.sqrt(deviation), "vector": SCALES["vector"]}[scale]
    assert_close(dense(prepared.of(A)), np.sqrt(w)[:, None] * E / s, SIZE * np.sqrt(w.max()) / s.min())


@EVERY_WAY
def test_the_total_variance_is_that_of_the_matrix_it_makes(shift: str, scale: str, weighted: bool) -> None:
    prepared = Preparation(SHIFTS[shift][0], SCALES[scale], W if weighted else None).learn(A := ss.as_operator(X))
    variance, unit = prepared.total_variance
    want = np.linalg.norm(dense(prepared.of(A))) ** 2 / ((W.sum() if weighted else M) - 1)
    assert unit == 0
    assert variance == pytest.approx(want, rel=1000 * EPS)
    assert prepared.total_variance == (variance, unit)


@pytest.mark.parametrize("power", [-900, 0, 900])
def test_the_total_variance_is_told_at_any_scale(power: int) -> None:
    variance, unit = Preparation("mean").learn(ss.as_operator(np.ldexp(X, power))).total_variance
    plain = X.var(axis=0).sum() * M / (M - 1)
    assert np.log2(variance) + 2 * unit == pytest.approx(np.log2(plain) + 2 * power, abs=1e-12)


# --- the same again, wherever the rows are --------------------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("shift", "scale", "held"), pairs(SHIFTS, SCALES, HELD))
def test_of_twice_gives_the_same_bits(shift: str, scale: str, held: str, tmp_path: Path) -> None:
    A = HELD[held](tmp_path)
    kind, data = SHIFTS[shift]
    prepared = Preparation(kind, SCALES[scale]).learn(A)
    new = ss.as_operator(NEW)
    assert np.array_equal(dense(prepared.of(A)), dense(prepared.of(A)))
    assert np.array_equal(dense(prepared.of(new, data)), dense(prepared.of(new, data)))


@pytest.mark.one_in(3)
@EVERY_WAY
def test_what_is_learned_does_not_depend_on_what_holds_the_rows(
    shift: str, scale: str, weighted: bool, tmp_path: Path
) -> None:
    kind, data = SHIFTS[shift]
    how = Preparation(kind, SCALES[scale], W if weighted else None)
    want = how.learn(ss.as_operator(X))
    least = 1 if want.scale is None else want.scale.min()
    for name, make in HELD.items():
        found = how.learn(A := make(tmp_path))
        assert_close(dense(found.of(A)), dense(want.of(want.own.A)), 2 * SIZE / least, name)
        assert_close(
            dense(found.of(ss.as_operator(NEW), data)), dense(want.of(ss.as_operator(NEW), data)), SIZE / least, name
        )
        assert_close(found.points(9, data), want.points(9, data), SIZE, name)
        assert found.total_variance[0] == pytest.approx(want.total_variance[0], rel=1e4 * EPS), name
        if want.scale is not None:
            assert_close(found.scale, want.scale, SIZE, name)


@EVERY
@SCALED
def test_rows_one_at_a_time_are_prepared_as_all_together(shift: str, scale: str) -> None:
    kind, data = SHIFTS[shift]
    prepared = Preparation(kind, SCALES[scale], W).learn(ss.as_operator(X))
    together = dense(prepared.of(ss.as_operator(NEW), data))
    for i in range(9):
        own = None if data is None else data[i : i + 1]
        alone = dense(prepared.of(ss.as_operator(NEW[i : i + 1]), own))
        assert_close(alone, together[i : i + 1], SIZE / (1 if prepared.scale is None else prepared.scale.min()))


@EVERY
def test_other_rows_have_no_weights_and_the_same_shift(shift: str) -> None:
    kind, _ = SHIFTS[shift]
    data = {"groups": GROUPS, "covariates": C}.get(shift)
    prepared = Preparation(kind, "std", W).learn(A := ss.as_operator(X))
    again = dense(prepared.of(ss.as_operator(X), data))  # equal rows, but not those that it was learned from
    assert_close(np.sqrt(W)[:, None] * again, dense(prepared.of(A)), 4 * SIZE / prepared.scale.min())


@EVERY
@SCALED
def test_an_integer_weight_is_repetition(shift: str, scale: str) -> None:
    kind, _ = SHIFTS[shift]
    times = W.astype(int)
    repeated = {
        "groups": ss.GroupMeans(np.repeat(GROUPS, times)),
        "covariates": ss.Covariates(np.repeat(C, times, axis=0)),
    }.get(shift, kind)
    weighted = Preparation(kind, SCALES[scale], W).learn(A := ss.as_operator(X))
    plain = Preparation(repeated, SCALES[scale]).learn(B := ss.as_operator(np.repeat(X, times, axis=0)))
    G, H = (p.of(rows).gram_matrix() for p, rows in ((weighted, A), (plain, B)))
    assert_close(G, H, 100 * EPS * M * float(np.abs(np.diag(H)).sum()) * 10)
    assert weighted.count == plain.count
    assert weighted.total_variance[0] == pytest.approx(plain.total_variance[0], rel=1e4 * EPS)


def test_a_vector_scale_is_taken_as_it_is_and_std_makes_variances_1() -> None:
    A = ss.as_operator(X)
    assert np.array_equal(Preparation(None, SCALES["vector"]).learn(A).scale, SCALES["vector"])
    E = dense(Preparation("mean", "std", ddof=1).learn(A).of(A))
    assert_close(E.var(axis=0, ddof=1), np.ones(N), SIZE)


# --- what it costs, and what is refused -----------------------------------------------------------------------


def test_nothing_is_read_for_what_is_known() -> None:
    A = Counting(X)
    for shift in (None, VECTOR, ss.LowRank(np.ones(M), VECTOR)):
        Preparation(shift, SCALES["vector"], W).learn(A).of(A)
    assert A.calls == []
    assert Preparation().learn(A).of(A) is A


def test_what_was_learned_of_the_own_rows_is_not_made_twice() -> None:
    A = ss.as_operator(X)
    prepared = Preparation("rows").learn(A)
    counted = Counting(X)
    of_others = Prepared(prepared.shift)
    of_others.of(counted)
    assert counted.calls == ["matmat"]  # the means of rows that nobody has seen
    own = Preparation("rows").learn(counted)
    reads = counted.reads
    own.of(counted), own.of(counted)
    assert counted.reads == reads


def test_a_matrix_is_subtracted_from_the_rows_that_it_was_made_for_alone() -> None:
    S = ss.LowRank(np.arange(M, dtype=float), VECTOR)
    prepared = Preparation(S).learn(A := ss.as_operator(X))
    assert_close(dense(prepared.of(A)), X - dense(S), SIZE)
    assert_close(prepared.points(M), dense(S), SIZE)
    with pytest.raises(ValueError, match=r"must have the shape .* of the matrix"):
        prepared.of(ss.as_operator(NEW))


@pytest.mark.parametrize(
    "how", [{"shift": "median"}, {"shift": VECTOR[1:]}, {"scale": "x"}, {"scale": -np.ones(N)}, {"ddof": 2}]
)
def test_what_cannot_be_is_refused_before_anything_is_read(how: dict[str, Any]) -> None:
    A = Counting(X)
    with pytest.raises(ValueError, match="must be"):
        Preparation(**how).check(N)
    assert A.calls == []


# --- a place for what is done to the entries ------------------------------------------------------------------


@EVERY
def test_entries_are_changed_before_anything_is_learned_in_their_order(shift: str) -> None:
    kind, data = SHIFTS[shift]
    how = (ss.Sqrt(), ss.Elementwise(np.cos))
    found = Preparation(kind, "std", W, entries=how).learn(A := ss.as_operator(X))
    want = Preparation(kind, "std", W).learn(B := ss.as_operator(np.cos(np.sqrt(X))))
    assert_close(dense(found.of(A)), dense(want.of(B)), 10 * SIZE / want.scale.min())
    changed = dense(want.of(ss.as_operator(np.cos(np.sqrt(NEW))), data))
    assert_close(dense(found.of(ss.as_operator(NEW), data)), changed, 10 * SIZE / want.scale.min())


# --- who uses it ----------------------------------------------------------------------------------------------


USERS = {
    "svd": lambda: ss.svd(X, 2, shift="mean", scale="std", solver="exact"),
    "PCA": lambda: ss.PCA(2, scale=True, solver="exact").fit(X),
    "TruncatedSVD": lambda: ss.TruncatedSVD(2, solver="exact").fit(X),
    "suggest_k": lambda: ss.suggest_k(X, "gavish-donoho", scale="std", max_k=3),
    "resampling": lambda: resampling(X, "mean", "std").operator(),
}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.filterwarnings("ignore:the first component is the mean")
def test_everybody_learns_one_preparation(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, learn = [], Preparation.learn

    def watched(self: Preparation, *args: Any) -> Prepared:
        made.append(self)
        return learn(self, *args)

    monkeypatch.setattr(Preparation, "learn", watched)
    USERS[user]()
    assert len(made) == {"TruncatedSVD": 2}.get(user, 1)  # of X as it is, and about the mean for the variances


def test_the_rows_of_a_stream_and_of_transform_are_prepared_by_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pca = ss.PCA(2, shift="both", scale=True, solver="exact").fit(X)
    known, of = [], Prepared.of

    def watched(self: Prepared, *args: Any) -> ss.Operator:
        known.append(self)
        return of(self, *args)

    monkeypatch.setattr(Prepared, "of", watched)
    pca.transform(NEW)
    ss.PCA(2).partial_fit(X)
    assert [one.own for one in known] == [None, None]
    assert all(isinstance(one.shift, MeanShift) for one in known)


@EVERY_WAY
def test_pca_decomposes_the_matrix_that_svd_does(shift: str, scale: str, weighted: bool) -> None:
    kind, _ = SHIFTS[shift]
    w = W if weighted else None
    F = ss.svd(X, 3, shift=kind, scale=SCALES[scale], sample_weight=w, solver=Exact())
    bare = {"groups": (ss.GroupMeans(), {"groups": GROUPS}), "covariates": (ss.Covariates(), {"covariates": C})}
    setting, data = bare.get(shift, (kind, {}))
    pca = ss.PCA(3, shift=setting, scale=SCALES[scale], solver=Exact()).fit(X, sample_weight=w, **data)
    assert np.array_equal(pca.singular_values_, F.S)
    assert np.array_equal(pca.components_, F.Vh)


def test_errors_of_entries_count_twice_where_the_scale_is_computed_from_them() -> None:
    A = ss.as_operator(np.random.default_rng(0).poisson(2.0, (60, 8)).astype(float))
    entries = (ss.transforms.PearsonResiduals(theta=5.0),)
    by_name = Preparation("mean", "std", entries=entries).learn(A)
    by_vector = Preparation("mean", by_name.scale, entries=entries).learn(A)
    assert by_name.perturbation == pytest.approx(2 * np.array(by_vector.perturbation), rel=1e-6)


def test_rows_without_weight_are_shifted_by_the_regression_too() -> None:
    rng = np.random.default_rng(0)
    X, C, w = rng.standard_normal((20, 5)), rng.standard_normal((20, 2)), np.r_[np.zeros(4), np.ones(16)]
    A = ss.as_operator(X)
    S, learned = ss.Covariates(C).learn(A, A.moments(w), w)
    np.testing.assert_allclose(S.rows(0, 20), learned.points(20, C), atol=100 * EPS)


@pytest.mark.parametrize("scale", ["std", "pareto"])
@pytest.mark.parametrize("solver", ["lanczos", "gram"])
def test_bounds_hold_the_rounding_of_deviations_about_means_that_a_shift_leaves(scale: str, solver: str) -> None:
    data = np.random.default_rng(0).standard_normal((40, 7)) + 1e8 * np.linspace(0.5, 1, 7)
    F = ss.svd(data, 1, shift="rows", scale=scale, solver=solver, rng=0)
    own = data.astype(np.longdouble)
    own = own - own.mean(axis=1, keepdims=True)
    own = own / own.std(axis=0) ** (1 if scale == "std" else 0.5)
    exact = np.linalg.svd(own.astype(float), compute_uv=False)[0]
    assert F.info.value_errors is not None
    assert abs(F.S[0] - exact) <= (F.info.value_errors[0] + 8 * EPS) * exact
    assert F.info.value_errors[0] <= 1e-6


@pytest.mark.parametrize("shift", ["both", "groups", "covariates", "mean"])
def test_shifts_that_leave_no_means_leave_bounds_as_they_are(shift: str) -> None:
    far = Preparation(SHIFTS[shift][0], "std").learn(ss.as_operator(X + 1e6))
    assert far.perturbation is None
