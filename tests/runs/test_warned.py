"""Warnings name the line of the user, and what to do; what certify=True finds is no secret."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

import shiftsvd as ss
from shiftsvd.runs import messages
from tests.support.matrices import Array

STOPPED = ss.BlockLanczos(tol=1e-12, max_passes=1, block_size=4)


def noise(shape: tuple[int, int] = (300, 80)) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


WAYS: dict[str, Callable[[Array], Any]] = {
    "svd": lambda X: ss.svd(X, 5, solver=STOPPED, rng=0),
    "svd of what is shifted": lambda X: ss.svd(sparse.csr_array(X), 5, shift="mean", scale=True, solver=STOPPED, rng=0),
    "the solver": lambda X: STOPPED(ss.as_operator(X), 5, 0),
    "fit": lambda X: ss.PCA(5, solver=STOPPED, random_state=0).fit(X),
    "fit_transform": lambda X: ss.PCA(5, solver=STOPPED, random_state=0).fit_transform(X),
    "a pipeline": lambda X: make_pipeline(ss.PCA(5, solver=STOPPED, random_state=0)).fit(X),
    "certify": lambda X: ss.svd(X, 5, solver="randomized", certify=True, rng=0),
    "TruncatedSVD": lambda X: ss.TruncatedSVD(2, random_state=0).fit(X + 100),
    "scale": lambda X: ss.svd(X * (np.arange(80) > 0), 2, shift="mean", scale="std", rng=0),
    "suggest_k": lambda X: ss.suggest_k(X + 9 * np.outer(X[:, 0], X[0]), method="parallel", max_k=1, rng=0),
    "completion": lambda X: ss.complete_matrix(np.where(X > 0.5, np.nan, X), 3, max_iter=1, rng=0),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_warning_names_the_line_of_the_user(way: str) -> None:
    X, call = noise(), WAYS[way]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call(X)
    assert told
    assert {warning.filename for warning in told} == {__file__}
    assert {warning.lineno for warning in told} == {inspect.getsourcelines(call)[1]}


def test_a_warning_from_the_outermost_line_is_no_error() -> None:
    frame = inspect.currentframe()
    assert messages._depth(frame, (__file__,)) > 1
    assert messages._depth(frame, ("",)) < 1000  # all lines are of the library: the outermost one is named


@pytest.mark.parametrize(
    "solver", [*(ss.RandomizedSVD(n_iter=n, certify=True) for n in (0, 4)), ss.ShiftedRandomizedSVD(certify=True)]
)
def test_what_is_not_certified_is_named_with_a_remedy(solver: ss.solvers.Solver) -> None:
    with pytest.warns(
        UserWarning, match=r"not certified: .* components did not converge: 1-5 .* bounded by .* n_iter .* solver="
    ) as told:
        F = solver(ss.as_operator(noise()), 5, 0)
    assert len(told) == 1
    assert F.info.converged is False
    near = F.info.missed_below is not None and F.info.missed_below <= 1.05 * F.S[-1]
    assert ("may have been missed" in str(told[0].message)) != near


def test_what_is_certified_warns_of_nothing() -> None:
    X = noise() * 0.5 ** np.arange(80)
    F = ss.RandomizedSVD(certify=True)(ss.as_operator(X), 5, 0)
    assert F.info.converged
