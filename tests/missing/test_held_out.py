"""What a completion explains of entries that it has not seen, and that nothing is claimed of one that was not done."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.missing.completion import LEAST, SHARE, complete_matrix, kept_apart
from shiftsvd.missing.gaps import HeldGaps, gaps_of
from tests.support.closeness import assert_close
from tests.support.containers import Held
from tests.support.holes import holed, planted, rms, stored_nan
from tests.support.matrices import EPS
from tests.support.sampling import in_turn

KINDS = ["dense", "csr", "unobserved"]
UNFINISHED = "did not converge in 2 steps: the last step changed it by more than tol=0.0001. Raise max_iter or penalty"


def given(X: np.ndarray, kind: str):
    """X as it is passed to a fit, and whether what it does not store is missing."""
    if kind == "csr":
        return csr_array(X), False
    return (csr_array(np.nan_to_num(X)), True) if kind == "unobserved" else (X, False)


def noise(seed: int, m: int = 300, n: int = 80, share: float = 0.1) -> np.ndarray:
    """Independent entries, most of them missing."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    X[rng.random((m, n)) >= share] = np.nan
    return X


# --- what heldout_r2 is ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "seed"), in_turn(KINDS, range(3), 1))
def test_of_noise_nothing_is_explained_whatever_the_shares_of_the_completed_matrix_are(seed, kind):
    X, unobserved = given(noise(seed, 200, 60), kind)
    pca = ss.PCA(8, missing="em", unobserved=unobserved, random_state=seed).fit(X)
    assert pca.explained_variance_ratio_.sum() > 0.5  # of a matrix of which nine tenths are its own
    # 4 % of 1200 entries: of a model that explains nothing R^2 is -v^2 + 2 v N(0, 1/48) for some v.
    assert pca.info_.heldout_r2 <= 0.1


@pytest.mark.long
def test_penalty_0_overfits_noise_and_it_is_told():
    with pytest.warns(UserWarning, match="did not converge .* Raise max_iter"):
        info = ss.svd(noise(0), 8, shift="mean", missing="em", penalty=0, rng=0).info
    assert info.heldout_r2 < -0.5


def against_never_observed(seed: int, m: int, n: int, share: float, sd: float, biases: str | None = "columns") -> float:
    """heldout_r2 less the R^2 on all entries never observed, in standard errors of the former."""
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((m, 5)) @ rng.standard_normal((5, n)) + sd * rng.standard_normal((m, n))
    seen = rng.random((m, n)) < share
    C = complete_matrix(np.where(seen, full, np.nan), 5, biases=biases, rng=seed)
    mean = np.nanmean(np.where(seen, full, np.nan), axis=0) if biases else 0.0
    e, b = (((full - S) ** 2)[~seen] for S in (C.model @ np.eye(n), mean))
    true = 1 - e.sum() / b.sum()
    error = np.std(e - (1 - true) * b) / b.mean() / np.sqrt(SHARE * seen.sum())
    assert C.heldout_r2 is not None
    return float((C.heldout_r2 - true) / error)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("sd", "biases"), [(0.5, None), (2.0, "columns")])
def test_it_is_the_r2_on_entries_never_observed(sd, biases):
    assert abs(against_never_observed(1, 600, 150, 0.25, sd, biases)) <= 3


LARGE = [pytest.param(3000, 400, seed, marks=pytest.mark.long) for seed in range(3)]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Completing")
@pytest.mark.parametrize(("m", "n", "seed"), [(1000, 250, 0), *LARGE])
@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0])
def test_it_is_the_r2_on_entries_never_observed_with_90_percent_missing(sd, m, n, seed):
    assert abs(against_never_observed(seed, m, n, 0.1, sd)) <= 3


BIASES = {None: None, "mean": "columns", "rows": "rows", "both": "both"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("shift", "kind"), in_turn(BIASES, KINDS, 1))
def test_the_baseline_is_the_biases_of_the_other_entries(shift, kind):
    biases = BIASES[shift]
    X, _, _ = planted(120, 60, 0.5, 1.0, rank=3)
    D = np.where(X.toarray() == 0, np.nan, X.toarray()) + 2
    X, unobserved = given(D, kind)
    info = ss.svd(X, 3, shift=shift, missing="em", unobserved=unobserved, penalty=2.0, rng=5).info
    apart, i, j, x = kept_apart(gaps_of(X, unobserved), np.random.default_rng(5))
    R = np.where(np.isnan(D), np.nan, D)
    R[i, j] = np.nan
    row, column = np.zeros(120), np.zeros(60)
    for _ in range(200):  # alternating least squares
        column = np.nanmean(R - row[:, None], axis=0) if biases in ("columns", "both") else column
        row = np.nanmean(R - column, axis=1) if biases in ("rows", "both") else row
    C = complete_matrix(apart, 3, biases=biases, penalty=2.0, tol=1e-7, max_iter=3000, rng=0)
    want = 1 - rms(x - C.predict(i, j)) ** 2 / rms(x - row[i] - column[j]) ** 2
    # Both models are within some tol of their optimum, and five rounds of biases within 1e-3 of theirs.
    assert info.heldout_r2 == pytest.approx(want, abs=5e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_judge_are_others_than_those_that_choose(kind, monkeypatch):
    X, unobserved = given(holed((80, 30), 0.3), kind)
    hidden, before = [], HeldGaps.hide

    def hide(self, *settings):
        hidden.append(before(self, *settings))
        return hidden[-1]

    monkeypatch.setattr(HeldGaps, "hide", hide)
    C = complete_matrix(X, 2, unobserved=unobserved, rng=0)
    assert C.held_out_rmse is not None
    judge, choose = ({*zip(i.tolist(), j.tolist(), strict=True)} for _, i, j, _ in hidden)
    assert len(judge) >= LEAST
    assert len(choose) > len(judge)
    assert not judge & choose
    i, j = hidden[0][1:3]
    assert np.isnan(hidden[1][0].at(i, j)).all()  # those that judge were out of sight of the choice, too


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_hidden_is_observed_and_nothing_else_is_changed(kind):
    D = holed((50, 20), 0.4)
    X, unobserved = given(D, kind)
    gaps = gaps_of(X, unobserved)
    rest, i, j, x = gaps.hide(np.random.default_rng(0), 0.2)
    R = D.copy()
    R[i, j] = np.nan
    seen = np.count_nonzero(~np.isnan(D))
    assert 0.1 * seen <= len(x) <= 0.25 * seen  # a place that is drawn twice counts once
    assert len({*zip(i.tolist(), j.tolist(), strict=True)}) == len(x)
    assert np.array_equal(x, D[i, j])
    assert not np.isnan(x).any()
    a, b = np.divmod(np.arange(1000), 20)
    at = rest.at(*np.nonzero(~np.isnan(D)))
    assert np.array_equal(at, R[~np.isnan(D)], equal_nan=True)
    if kind != "unobserved":
        assert np.array_equal(rest.at(a, b).reshape(50, 20), R, equal_nan=True)
    assert rest.n_missing() == np.isnan(R).sum()
    assert gaps.n_missing() == np.isnan(D).sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_and_columns_keep_an_entry(kind, seed):
    rng = np.random.default_rng(seed)
    D = np.where(rng.random((60, 40)) < 0.04, rng.standard_normal((60, 40)), np.nan)
    X, unobserved = given(D, kind)
    gaps = gaps_of(X, unobserved)
    for share in (0.05, 0.3, 1.0):
        rest, *_ = gaps.hide(rng, share)
        for before, after in zip(gaps.observed(), rest.observed(), strict=True):
            assert np.array_equal(after > 0, before > 0)


def test_zeros_that_are_not_stored_are_held_out_as_often_as_other_entries():
    D, X = stored_nan(holed((100, 40), 0.1), csr_array)
    _, _, _, x = gaps_of(X).hide(np.random.default_rng(0), 0.5)
    zeros = np.mean(D[~np.isnan(D)] == 0)
    assert abs(np.mean(x == 0) - zeros) <= 4 * np.sqrt(zeros * (1 - zeros) / len(x))


def test_ratings_of_0_that_are_stored_stay_ratings():
    X = csr_array((np.array([0.0, 2, 0, 4, 5, 6]), ([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 0, 2])), shape=(3, 3))
    gaps = gaps_of(X, unobserved=True)
    rest, i, *_ = gaps.hide(np.random.default_rng(0), 0.5)
    assert len(i)
    assert rest.n_missing() == 3 + len(i)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_too_few_entries_tell_nothing(kind):
    for shape in ((2, 2), (4, 3), (2, 30), (30, 2), (12, 8)):
        X, unobserved = given(holed(shape, 0.2), kind)
        assert ss.svd(X, 1, missing="em", unobserved=unobserved, rng=0).info.heldout_r2 is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_the_biases_explain_all_there_is_nothing_to_tell(kind, dtype):
    D = np.broadcast_to(np.arange(1, 21) / 3, (60, 20)).astype(dtype)
    D = np.where(np.random.default_rng(0).random(D.shape) < 0.3, dtype(np.nan), D)
    X, unobserved = given(D, kind)
    assert ss.svd(X, 2, shift="mean", missing="em", unobserved=unobserved, rng=0).info.heldout_r2 is None
    assert ss.svd(X, 2, missing="em", unobserved=unobserved, rng=0).info.heldout_r2 > 0.9


@pytest.mark.parametrize("dtype", [np.complex128, np.float32])
def test_it_is_of_any_numbers(dtype):
    rng = np.random.default_rng(0)
    M = (rng.standard_normal((80, 2)) @ rng.standard_normal((2, 30)) * (1 + 1j)).astype(
        dtype if dtype == np.complex128 else complex
    )
    M = (M if dtype == np.complex128 else M.real).astype(dtype)
    M[rng.random(M.shape) < 0.3] = np.nan
    assert ss.svd(M, 2, missing="em", rng=0).info.heldout_r2 > 0.9


@pytest.mark.long
def test_the_same_seed_gives_the_same_bits_whatever_the_threads():
    X = noise(0, 150, 40, share=0.4)
    a, b = (ss.svd(X, 3, shift="mean", missing="em", rng=7, n_threads=n).info.heldout_r2 for n in (1, 2))
    assert a == b
    assert a != ss.svd(X, 3, shift="mean", missing="em", rng=8).info.heldout_r2


def test_without_a_model_there_is_none():
    X = holed((60, 30))
    info = ss.svd(X, 2, shift="mean", missing="mean", rng=0).info
    assert (info.heldout_r2, info.completed, info.n_missing) == (None, None, np.isnan(X).sum())
    info = ss.svd(np.nan_to_num(X), 2, rng=0).info
    assert (info.heldout_r2, info.completed, info.n_missing) == (None, None, None)


def test_a_matrix_that_stays_in_its_file_is_fitted_once():
    X = holed((200, 12), 0.2)
    A = DiskRows(Held(X), n_threads=1)
    info = ss.svd(A, 2, shift="mean", missing="em", penalty=1.0, rng=0).info
    assert (info.heldout_r2, info.completed, info.n_missing) == (None, True, np.isnan(X).sum())
    with pytest.raises(ValueError, match='penalty="auto" requires a matrix in memory'):
        ss.svd(A, 2, shift="mean", missing="em", rng=0)


# --- how many there are ---------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("missing", ["mean", "em"])
@pytest.mark.parametrize("kind", KINDS)
def test_missing_entries_are_counted(kind, missing):
    D = holed((40, 12), 0.3)
    X, unobserved = given(D, kind)
    for F in (
        ss.svd(X, 2, shift="mean", missing=missing, unobserved=unobserved, rng=0).info,
        ss.PCA(2, missing=missing, unobserved=unobserved, random_state=0).fit(X).info_,
    ):
        assert F.n_missing == np.isnan(D).sum()
    if missing == "mean":
        weights = np.arange(40) % 3 + np.eye(40)[0] + np.eye(40)[1]
        info = ss.svd(X, 2, shift="mean", missing="mean", unobserved=unobserved, sample_weight=weights, rng=0).info
        assert info.n_missing == np.isnan(D).sum()


# --- a completion that is not done ----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("solver", ["exact", "lanczos", "gram", "randomized", ss.RandomizedSVD(certify=True)])
def test_a_completion_that_stopped_unfinished_has_not_converged(solver):
    X = noise(0, 150, 40, share=0.3)
    with pytest.warns(UserWarning, match=UNFINISHED):
        F = ss.svd(X, 3, shift="mean", missing="em", solver=solver, max_iter=2, rng=0)
    assert (F.info.converged, F.info.completed) == (False, False)
    with pytest.warns(UserWarning, match=UNFINISHED):
        pca = ss.PCA(3, missing="em", solver=solver, max_iter=2, random_state=0).fit(X)
    assert (pca.info_.converged, pca.info_.completed, pca.n_iter_) == (False, False, 2)
    assert F.truncate(2).info.converged is False
    pca.set_params(max_iter=300).fit(X)
    assert pca.info_.completed
    assert pca.info_.converged is not False
    assert 2 < pca.n_iter_ < 300


@pytest.mark.long
def test_settings_of_the_completion_reach_it():
    X = noise(0, 150, 40, share=0.4)
    large = ss.PCA(3, missing="em", penalty=1e6, random_state=0).fit(X)
    assert large.info_.heldout_r2 == pytest.approx(0, abs=1e-12)  # all that is left is the means
    small = ss.PCA(3, missing="em", penalty=0.5, random_state=0).fit(X)
    assert small.info_.heldout_r2 < large.info_.heldout_r2
    C = complete_matrix(X, 3, penalty=0.5, rng=0)
    F = ss.svd(X, 3, shift="mean", missing="em", penalty=0.5, solver="exact", rng=0)
    A = C.A @ np.eye(40)
    assert_close(F.S, np.linalg.svd(A - A.mean(axis=0))[1][:3], 1e4 * EPS * np.linalg.norm(A), "values")
    assert F.info.heldout_r2 == C.heldout_r2


@pytest.mark.parametrize(
    "setting", [{"penalty": -1.0}, {"penalty": "cv"}, {"penalty": None}, {"max_iter": 0}, {"max_iter": 2.5}]
)
def test_settings_that_cannot_be_are_refused(setting):
    X = holed((30, 9))
    message = f"{next(iter(setting))} must be"
    for call in (
        lambda: ss.svd(X, 2, missing="em", **setting),
        lambda: ss.PCA(2, missing="em", **setting).fit(X),
        lambda: complete_matrix(X, 2, **setting),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_svd_refuses_settings_of_a_completion_that_there_is_none_of():
    for setting in ({"penalty": 1.0}, {"max_iter": 7}):
        with pytest.raises(ValueError, match='penalty and max_iter require missing="em"'):
            ss.svd(np.eye(5), 2, **setting)


def test_pca_treats_them_as_scikit_learn_treats_settings():
    pca = ss.PCA(2, missing="em", penalty=3.0, max_iter=50, random_state=0)
    assert {"penalty": 3.0, "max_iter": 50}.items() <= clone(pca).get_params().items()
    assert "penalty=3.0" in repr(pca)
    X = holed((60, 9))
    again = pickle.loads(pickle.dumps(pca.fit(X)))
    assert again.info_.heldout_r2 == pca.info_.heldout_r2
    assert (again.info_.n_missing, again.n_iter_) == (np.isnan(X).sum(), pca.n_iter_)
    assert ss.PCA(2, random_state=0).fit(np.nan_to_num(X)).n_iter_ == 1  # what has max_iter has n_iter_
    assert not hasattr(again.set_params(missing="error").partial_fit(np.nan_to_num(X)), "n_iter_")


def test_accounts_that_were_pickled_before_these_fields_can_be_read():
    info = ss.svd(np.eye(5), 2, rng=0).info
    state = {name: value for name, value in vars(info).items() if name not in ("heldout_r2", "n_missing", "completed")}
    old = object.__new__(ss.Info)
    vars(old).update(state)
    assert (old.heldout_r2, old.n_missing, old.completed) == (None, None, None)
