"""The memory and threads that a caller allows arrive where they are taken, whichever way the data come in."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.io import open_matrix
from shiftsvd.missing.opening import open_with_gaps
from shiftsvd.runs.memory import Resources, affordable

X = np.random.default_rng(0).standard_normal((40, 12))
HOLED = sparse.csr_array(np.where(np.arange(12) == np.arange(40)[:, None], np.nan, X))
TEXTS = ["red apple", "green apple", "blue sky", "red sky"] * 5
WORDS = np.array([text.split() for text in TEXTS], object)
FITS: dict[str, Callable[..., Any]] = {
    "svd": lambda **how: ss.svd(X, 2, **how),
    "PCA": lambda **how: ss.PCA(2, **how).fit(X),
    "TruncatedSVD": lambda **how: ss.TruncatedSVD(2, **how).fit(sparse.csr_array(X)),
    "correspondence": lambda **how: ss.CorrespondenceAnalysis(2, **how).fit(abs(X)),
    "categories": lambda **how: ss.MultipleCorrespondenceAnalysis(2, **how).fit(WORDS),
    "mixed": lambda **how: ss.FAMD(2, **how).fit(WORDS),
    "LSA": lambda **how: ss.LSA(2, **how).fit(TEXTS),
    "centred LSA": lambda **how: ss.LSA(2, center=True, **how).fit(TEXTS),
    "spectrum": lambda **how: ss.suggest_k(X, "elbow", **how),
    "permuted": lambda **how: ss.suggest_k(X, "parallel", n_draws=2, rng=0, **how),
    "held out": lambda **how: ss.suggest_k(X, "cv", rng=0, **how),
}
APPLIED: dict[str, Any] = {
    "PCA": ss.PCA(2).fit(X),
    "TruncatedSVD": ss.TruncatedSVD(2).fit(X),
    "correspondence": ss.CorrespondenceAnalysis(2).fit(abs(X)),
}


@pytest.mark.parametrize("fit", FITS)
def test_every_fit_is_given_the_threads(fit: str) -> None:
    for n_threads in (-1, 0, 1.5):
        with pytest.raises(ValueError, match=f"n_threads must be a positive integer or None, got {n_threads}"):
            FITS[fit](n_threads=n_threads)
    FITS[fit](n_threads=1)


@pytest.mark.parametrize("n_threads", [-1, 0, 1.5, "2"])
def test_what_opens_files_fills_gaps_or_takes_distances_refuses_the_same_threads(
    n_threads: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "X.npy", X)
    fits: list[Callable[[], Any]] = [
        lambda: ss.PCoA(2, n_threads=n_threads).fit(np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))),
        lambda: ss.PCA(2, missing="mean", n_threads=n_threads).fit(HOLED),
        lambda: ss.PCA(2, missing="em", n_threads=n_threads).fit(HOLED.toarray()),
        lambda: open_matrix(tmp_path / "X.npy", stream=True, n_threads=n_threads),
        lambda: open_matrix(tmp_path / "X.npy", n_threads=n_threads),
        lambda: open_with_gaps([tmp_path / "X.npy"], n_threads=n_threads),
    ]
    for fit in fits:
        with pytest.raises(ValueError, match=f"n_threads must be a positive integer or None, got {n_threads!r}"):
            fit()


@pytest.mark.parametrize("name", APPLIED)
def test_what_is_fitted_is_given_the_threads_of_its_settings(name: str) -> None:
    with pytest.raises(ValueError, match="n_threads must be a positive integer or None, got -1"):
        APPLIED[name].set_params(n_threads=-1).transform(abs(X))


@pytest.mark.parametrize("fit", FITS)
def test_every_fit_is_given_the_memory_limit(fit: str) -> None:
    with pytest.raises(ValueError, match="memory_limit must be bytes or a text such as \"2GB\", got '2XB'"):
        FITS[fit](memory_limit="2XB")
    with pytest.raises(ValueError, match=r"more than the limit of 10 bytes\. Raise memory_limit"):
        FITS[fit](memory_limit=10)
    FITS[fit](memory_limit="1GB")


def test_rows_that_are_put_in_order_take_no_more_than_the_limit() -> None:
    Y = sparse.csr_array(X)
    Y = sparse.csr_array((Y.data[::-1], Y.indices[::-1], Y.indptr), shape=Y.shape)  # each row backwards
    fits = (
        lambda limit: ss.svd(Y, 2, memory_limit=limit),
        lambda limit: ss.svd(Y, 2, shift="mean", missing="mean", memory_limit=limit),
        lambda limit: APPLIED["TruncatedSVD"].set_params(n_threads=None, memory_limit=limit).transform(Y),
        lambda limit: ss.TruncatedSVD(2, memory_limit=limit).fit(Y),
    )
    for fit in fits:
        with pytest.raises(ValueError, match="sorting the sparse rows needs"):
            fit(1000)
        fit("1GB")
    with pytest.raises(ValueError, match="filling the missing entries of a sparse matrix needs"):
        ss.svd(HOLED, 2, shift="mean", missing="mean", memory_limit=1000)


def test_a_file_that_stays_where_it_is_keeps_both(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    A, _ = open_matrix(tmp_path / "X.npy", n_threads=3, memory_limit=5000)
    assert isinstance(A, DiskRows)
    assert (A.n_threads, A.memory_limit) == (3, 5000)
    gaps, _ = open_with_gaps(tmp_path / "X.npy", n_threads=3, memory_limit=5000)
    assert (gaps.X.n_threads, gaps.X.memory_limit) == (3, 5000)  # type: ignore[attr-defined]


def test_resources_are_keywords_of_what_takes_both() -> None:
    takers = (ss.svd, ss.as_operator, ss.complete_matrix, ss.suggest_k, ss.PCA, ss.TruncatedSVD, open_matrix)
    for taker in takers:
        defaults = {name: signature(taker).parameters[name].default for name in vars(Resources())}
        assert defaults == vars(Resources()), taker


@pytest.mark.parametrize("given", [{}, {"memory_limit": "2GB"}, {"n_threads": 3}, {"memory_limit": -1}])
def test_resources_are_what_was_given(given: dict[str, Any]) -> None:
    assert vars(Resources(**given)) == {"memory_limit": None, "n_threads": None} | given  # refused where they are taken
    assert Resources(**given) == Resources(**given)
    assert hash(Resources(**given)) == hash(Resources(**given))
    for kind in (ss.PCA, ss.TruncatedSVD, ss.CorrespondenceAnalysis, ss.LSA):
        assert kind(2, **given)._resources == Resources(**given)


def test_a_step_is_refused_beyond_the_limit_and_not_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    affordable(10**6, "1MB", "a step")
    with pytest.raises(ValueError, match=r"a step needs about 1\.0+1 MB, more than the limit of 1 MB.*fewer samples"):
        affordable(10**6 + 1, "1MB", "a step", "samples")
    monkeypatch.setattr("shiftsvd.runs.memory.available_memory", lambda: 2 * 10**8)
    affordable(10**8, None, "a step")
    with pytest.raises(ValueError, match="a step needs about"):
        affordable(10**8 + 1, None, "a step")
    monkeypatch.setattr("shiftsvd.runs.memory.available_memory", lambda: None)  # where the system does not tell
    affordable(10**15, None, "a step")
