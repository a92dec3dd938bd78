"""The contestants: each finds the k leading components of X minus its column means, in its best way.

A peer that cannot subtract the means itself gets them: inside an operator where X is sparse, beforehand where it is
dense. What a function imports is installed in the environment that its entry in CONTESTANTS names.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_matrix, issparse

THREADS = 2
ROOM = 6e9  # bytes that a densified copy, with what is made of it, may take
SMALL_SIDE = 5_000  # up to here an n x n matrix is solved
OURS = ""  # the environment that runs the benchmark


class Answer(NamedTuple):
    """k values, descending; k components as rows, if there are any; reads of X and the certificate, if told."""

    values: np.ndarray
    components: np.ndarray | None = None
    passes: int | None = None
    converged: bool | None = None


@dataclass(frozen=True)
class Case:
    """A row of the benchmark set: a matrix in a file, and how many components are wanted."""

    name: str
    k: int
    m: int
    n: int
    stored: int
    dtype: str
    sparse: bool
    about: str = ""

    @property
    def dense_bytes(self) -> int:
        """What the matrix takes when every entry is stored."""
        return self.m * self.n * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Search:
    """Values of a setting, the cheapest first: the first that reaches the accuracy is used."""

    setting: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Contestant:
    """One line of a table. `obstacle` says why a case is not for it, or nothing; `named` is run in every round."""

    run: Callable[..., Answer]
    environment: str = OURS
    obstacle: Callable[[Case], str] = field(default=lambda case: "")
    search: Search | None = None
    named: bool = False
    centred: bool = True


def ours(X, k, **settings):
    """`shiftsvd.PCA`."""
    import shiftsvd as ss

    pca = ss.PCA(k, random_state=0, n_threads=THREADS, **settings).fit(X)
    return Answer(pca.singular_values_, pca.components_, pca.info_.n_passes, pca.info_.converged)


def ours_stopped(X, k, max_passes):
    """Block Lanczos stopped after so many products, before it could know how good it is."""
    import shiftsvd as ss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ours(X, k, solver=ss.BlockLanczos(max_passes=max_passes))


def sklearn_pca(X, k, **settings):
    """`sklearn.decomposition.PCA`."""
    from sklearn.decomposition import PCA

    pca = PCA(k, random_state=0, **settings).fit(X)
    return Answer(pca.singular_values_, pca.components_)


def sklearn_dense(X, k, **settings):
    """The same on a dense copy, which is part of what is measured."""
    return sklearn_pca(X.toarray() if issparse(X) else X, k, **settings)


def truncated(X, k):
    """`TruncatedSVD`, which does not subtract the means."""
    from sklearn.decomposition import TruncatedSVD

    svd = TruncatedSVD(k, random_state=0).fit(X)
    return Answer(svd.singular_values_, svd.components_)


def fbpca(X, k):
    """`fbpca.pca`, which subtracts the means by itself; 2 iterations."""
    import fbpca

    np.random.seed(0)  # noqa: NPY002  (the only seed that it takes)
    _, S, Vh = fbpca.pca(X, k)
    return Answer(S, Vh)


def scranpy(X, k, extra_work=7):
    """`scranpy.run_pca`: C++ irlba. It wants features as rows, and takes no tolerance."""
    import scranpy

    pcs = scranpy.run_pca(csc_matrix(X.T) if issparse(X) else X.T, number=k, extra_work=extra_work, num_threads=THREADS)
    return Answer(np.sqrt(np.asarray(pcs["variance_explained"]) * (X.shape[0] - 1)), np.asarray(pcs["rotation"]).T)


def scranpy_wide(X, k):
    """The same with a work space of 2 k, which its authors found to be faster."""
    return scranpy(X, k, extra_work=k)


def primme(X, k, tol=0):
    """`primme.svds` of the centred matrix."""
    import primme

    _, S, Vh = primme.svds(centred(X), k, tol=tol)
    return descending(S, Vh)


def svds(solver):
    """SciPy's `svds` of the centred matrix by one of its solvers."""

    def run(X, k):
        """Defaults, without the left vectors, and with steps enough for propack."""
        from scipy.sparse.linalg import svds

        steps = min(20 * k, *X.shape) if solver == "propack" else None
        _, S, Vh = svds(centred(X), k, solver=solver, maxiter=steps, return_singular_vectors="vh", rng=0)
        return descending(S, Vh)

    return run


def randomized_svd(X, k):
    """`randomized_svd.rpca`, which subtracts the means by itself; no power iterations."""
    from randomized_svd import rpca

    np.random.seed(0)  # noqa: NPY002  (the only seed that it takes)
    _, S, Vh = rpca(X, k)
    return Answer(S, Vh)


def torch(X, k):
    """`torch.pca_lowrank` on a dense copy (its sparse mode makes one of the means); 2 iterations, 10 extra columns."""
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    dense = torch.from_numpy(X.toarray() if issparse(X) else X)
    _, S, V = torch.pca_lowrank(dense, q=min(k + 10, *X.shape))
    return Answer(S[:k].numpy(), V[:, :k].numpy().T)


def centred(X):
    """X minus its column means: an operator if X is sparse, else an array."""
    from scipy.sparse.linalg import LinearOperator

    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel().astype(X.dtype)
    if not issparse(X):
        return X - mean
    XT = X.T  # a view, as columns

    def product(V):
        """X V - 1 (mean V)."""
        return X @ V - mean @ V

    def adjoint(W):
        """X^T W - mean (1^T W)."""
        return XT @ W - (mean * W.sum() if W.ndim == 1 else np.outer(mean, W.sum(axis=0)))

    return LinearOperator(X.shape, product, adjoint, product, dtype=X.dtype, rmatmat=adjoint)


def descending(S, Vh):
    """The largest value first."""
    order = np.argsort(S)[::-1]
    return Answer(S[order], Vh[order])


def densified(copies):
    """Whether so many dense copies of a sparse matrix fit."""

    def obstacle(case):
        """The bytes, if they do not."""
        need = copies * case.dense_bytes
        return f"a dense copy takes {need / 1e9:.0f} GB" if case.sparse and need > ROOM else ""

    return obstacle


def square(side, of=min):
    """Whether an n x n matrix is small enough; `of` picks the n that is meant from the shape."""
    return lambda case: (
        f"{of(case.m, case.n):,} x {of(case.m, case.n):,} is too large" if of(case.m, case.n) > side else ""
    )


def columns(m, n):
    """The n of an m x n matrix."""
    return n


def fewer(case):
    """Iterative solvers cannot find them all."""
    return "" if 2 * case.k < min(case.m, case.n) else f"not meant for {case.k} of {min(case.m, case.n)} components"


TOLERANCES = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 3e-3, 1e-3, 1e-4, 1e-6, 0.0)
ITERATIONS = (2, 4, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320)
DEFAULT = "shiftsvd PCA()"
GOAL = 1e-4  # the largest relative error of a singular value that a search settles for, and of the best peer
PASSES = Search("max_passes", tuple(range(2, 130)))

CONTESTANTS: dict[str, Contestant] = {
    DEFAULT: Contestant(ours, named=True),
    "shiftsvd lanczos": Contestant(lambda X, k: ours(X, k, solver="lanczos"), obstacle=fewer, named=True),
    "shiftsvd gram": Contestant(lambda X, k: ours(X, k, solver="gram"), obstacle=square(10_000), named=True),
    "shiftsvd exact": Contestant(lambda X, k: ours(X, k, solver="exact"), obstacle=square(SMALL_SIDE)),
    "shiftsvd lanczos, measured 1e-4": Contestant(ours_stopped, obstacle=fewer, search=PASSES, named=True),
    "scikit-learn PCA()": Contestant(sklearn_pca, "scikit-learn", named=True),
    "scikit-learn PCA(arpack)": Contestant(
        lambda X, k: sklearn_pca(X, k, svd_solver="arpack"), "scikit-learn", fewer, named=True
    ),
    "scikit-learn PCA(arpack), loosest tol": Contestant(
        lambda X, k, tol: sklearn_pca(X, k, svd_solver="arpack", tol=tol),
        "scikit-learn",
        fewer,
        Search("tol", TOLERANCES),
        named=True,
    ),
    "scikit-learn PCA(covariance_eigh)": Contestant(
        lambda X, k: sklearn_pca(X, k, svd_solver="covariance_eigh"), "scikit-learn", square(SMALL_SIDE, columns)
    ),
    "scikit-learn PCA(randomized)": Contestant(
        lambda X, k: sklearn_dense(X, k, svd_solver="randomized"), "scikit-learn", densified(2), named=True
    ),
    "scikit-learn PCA(randomized), to 1e-4": Contestant(
        lambda X, k, iterated_power: sklearn_dense(X, k, svd_solver="randomized", iterated_power=iterated_power),
        "scikit-learn",
        densified(2),
        Search("iterated_power", ITERATIONS),
        named=True,
    ),
    "scikit-learn TruncatedSVD": Contestant(truncated, "scikit-learn", named=True, centred=False),
    "scranpy": Contestant(scranpy, "scranpy", fewer, named=True),
    "scranpy, extra_work = k": Contestant(scranpy_wide, "scranpy", fewer, named=True),
    "primme svds": Contestant(primme, "primme", fewer),
    "primme svds, loosest tol": Contestant(primme, "primme", fewer, Search("tol", TOLERANCES)),
    "SciPy svds(arpack)": Contestant(svds("arpack"), "scipy", fewer),
    "SciPy svds(propack)": Contestant(svds("propack"), "scipy", fewer),
    "SciPy svds(lobpcg)": Contestant(svds("lobpcg"), "scipy", fewer),
    "fbpca": Contestant(fbpca, "fbpca"),
    "randomized-svd rpca": Contestant(randomized_svd, "randomized-svd"),
    "torch pca_lowrank": Contestant(torch, "torch", densified(2)),
}
