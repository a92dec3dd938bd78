"""Calls that a type checker must let pass, and calls that it must name: the lines that end in ``# wrong``.

Nothing here runs: `test_types.py` gives it, and the files like it beside the tests of extensions, to mypy and to
basedpyright.
"""

import os
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import shiftsvd as ss

Array = npt.NDArray[Any]


class DaskArray:
    """Stands for a Dask array, which has no types of its own."""

    def __dask_graph__(self) -> dict[str, Any]:
        return {}

    def compute(self) -> Array:
        return np.zeros(2)


def decompositions(X: Array, sparse: csr_array, column: "list[float]") -> None:
    assert_type(ss.svd(X, 5), ss.SVDResult)
    ss.svd(sparse, 5, shift="mean", scale="std", solver="lanczos", rng=np.random.default_rng(0))
    ss.svd(sparse, 0.9, shift=column, scale=X[0], solver=ss.BlockLanczos(tol=1e-8), sample_weight=np.ones(3))
    ss.svd(X, 5, shift=ss.LowRank(X[:, 0], X[0]), scale=True, missing="mean", penalty="auto")
    ss.svd(X, 5, shift=ss.GroupMeans(["a", "b"]))
    ss.svd(X, 5, solver="lanzos")  # wrong
    ss.svd(X, 5, shift="means")  # wrong
    ss.svd(X, 5, scale="sd")  # wrong
    ss.svd(X, 5, missing="EM")  # wrong
    ss.svd(X, 5, penalty="automatic")  # wrong
    ss.svd(X, 5, solvers="lanczos")  # wrong
    ss.svd(X, "5")  # wrong
    ss.svd(X, 5, rng="0")  # wrong
    assert_type(ss.estimate(X, 5, "gram").peak_bytes, int)
    ss.estimate(X, 5, "grams")  # wrong
    ss.RandomizedSVD(n_iter="seven")  # wrong
    ss.suggest_k(X, "parallel", rng=0)
    ss.suggest_k(X, "paralel")  # wrong


def estimators(X: Array, sparse: csr_array, lazy: DaskArray) -> None:
    assert_type(ss.PCA(5).fit(X), ss.PCA)
    assert_type(ss.PCA(5).fit_transform(X), Array)
    assert_type(ss.PCA(5).fit(X).transform(sparse), Array)
    assert_type(ss.PCA(5).fit_transform(lazy), DaskArray)
    assert_type(ss.TruncatedSVD(5).fit_transform(X), Array)
    assert_type(ss.TruncatedSVD(5).fit_transform(lazy), DaskArray)
    assert_type(ss.PCoA(2).fit_transform(X), Array)
    assert_type(ss.CorrespondenceAnalysis(2).fit_transform(X), Array)
    assert_type(ss.MultipleCorrespondenceAnalysis(2).fit_transform(X), Array)
    assert_type(ss.FAMD(2).fit_transform(X), Array)
    assert_type(ss.supplementary(X, X), ss.Supplementary)
    assert_type(ss.LSA.load("lsa.safetensors"), ss.LSA)
    assert_type(ss.LSA(2).fit_transform(["a text", "another one"]), Array)
    ss.PCA("mle", solver="exact", shift=None, scale="pareto", svd_solver="full", iterated_power="auto")
    ss.PCA(0.9, shift=ss.Covariates(), scale=[1.0, 2.0], power_iteration_normalizer="QR")
    ss.PCA(5, solver="lanzos")  # wrong
    ss.PCA(5, svd_solver="arpak")  # wrong
    ss.PCA(5, shift="colums")  # wrong
    ss.PCA(5, scale="standard")  # wrong
    ss.PCA(5, missing="mean value")  # wrong
    ss.PCA("mles")  # wrong
    ss.PCA(5, power_iteration_normalizer="qr")  # wrong
    ss.PCA(5, iterated_power="many")  # wrong
    ss.TruncatedSVD(5, solver="exactly")  # wrong
    ss.CorrespondenceAnalysis(2, solver="lanzos")  # wrong
    ss.MultipleCorrespondenceAnalysis(2, solver="lanzos")  # wrong
    ss.FAMD(2, missing="em")  # wrong
    ss.LSA(2, solver="lanzos")  # wrong


def models(path: "os.PathLike[str]", a: ss.PCA, b: ss.PCA) -> None:
    assert_type(ss.load_model(path, ss.PCA), ss.PCA)
    found = ss.load_model(path)
    print(found.components_)
    assert_type(ss.merge_pca(a, b), ss.PCA)
    ss.merge_pca(a, 5)  # wrong


def modules(X: Array) -> None:
    ss.io.open_matrix("counts.mtx", orient="rows")
    ss.io.open_matrix("counts.mtx", orient="row")  # wrong
    ss.plot.scree(ss.PCA(5).fit(X))
    ss.plot.screen(X)  # wrong
    ss.testing.check_operator(X)
    assert_type(ss.__version__, str)
    print(ss.nonsense)  # wrong
    ss.svds(X, 5)  # wrong


def operators_of_ones_own(X: Array) -> None:
    A = ss.as_operator(X)
    assert_type(A @ X, Array)
    assert_type(A.H, ss.Operator)
    ss.BlockLanczos(tol="small")  # wrong
    print(ss.Exact()(A, 5, 0).U.shape)
