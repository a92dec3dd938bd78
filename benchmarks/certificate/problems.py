"""Hard cases for a certificate, seeded: values that crowd, repeat, hide or vanish, and what they are exactly.

Every family is a function of a generator; whether a matrix is tall or wide, and single or double, is drawn as well.
Exact values are those of the matrix as it is stored: of diagonal ones the entries, of all others by LAPACK in double.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

EPS = float(np.finfo(float).eps)


@dataclass
class Problem:
    """X minus `shift`, divided by `scale`, of which k components are wanted."""

    X: Any
    k: int
    shift: str | None = None
    scale: str | None = None

    @cached_property
    def exact(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(U, all values, V), by columns, in double."""
        if sparse.issparse(self.X) and self.X.nnz <= min(self.X.shape) and self.shift is None:
            return _of_diagonal(self.X)
        D = (self.X.toarray() if sparse.issparse(self.X) else self.X).astype(float)
        if self.shift:
            D = D - D.mean(axis=0)
        if self.scale:
            D = D / np.where((sd := D.std(axis=0)) > 1e-12 * sd.max(), sd, 1)
        U, S, Vh = np.linalg.svd(D, full_matrices=False)
        return U, S, Vh.T

    @property
    def rounding(self) -> np.ndarray:
        """What the reference itself may be off by, relative to each value."""
        S = self.exact[1]
        return 4 * EPS * np.sqrt(len(S)) * S[0] / np.maximum(S, 1e-300)


def _of_diagonal(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a matrix with one entry in a row and in a column."""
    X = sparse.coo_array(X)
    order = np.argsort(-np.abs(X.data), kind="stable")[: min(X.shape)]
    U, V = (np.zeros((side, min(len(order), 200))) for side in X.shape)
    top = order[: U.shape[1]]
    U[X.coords[0][top], np.arange(len(top))] = 1
    V[X.coords[1][top], np.arange(len(top))] = np.sign(X.data[top])
    S = np.zeros(min(X.shape))
    S[: len(order)] = np.abs(X.data[order].astype(float))
    return U, S, V


def rotated(shape: tuple[int, int], S: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Dense, with these singular values and random vectors."""
    U, V = (np.linalg.qr(rng.standard_normal((side, len(S))))[0] for side in shape)
    return (U * S) @ V.T


def diagonal(S: np.ndarray, rng: np.random.Generator, more: int = 0) -> sparse.csr_array:
    """Sparse, these values at random places of a square, or taller by `more` rows."""
    n = len(S)
    rows, columns = rng.permutation(n + more)[:n], rng.permutation(n)
    return sparse.csr_array((S, (rows, columns)), shape=(n + more, n))


def _either(S: np.ndarray, rng: np.random.Generator) -> Any:
    """Rotated where LAPACK can follow, else, and sometimes, diagonal."""
    n = len(S)
    if n > 400 or rng.random() < 0.3:
        return diagonal(S, rng, int(rng.integers(0, 50)))
    return rotated((n + int(rng.integers(0, 300)), n), S, rng)


def _side(rng: np.random.Generator, most: int = 3000) -> int:
    """Between 50 and `most`, small ones more often."""
    return int(np.exp(rng.uniform(np.log(50), np.log(most))))


def _k(rng: np.random.Generator, n: int) -> int:
    return int(rng.integers(1, max(2, min(50, n // 4))))


def power_law(rng: np.random.Generator) -> Problem:
    """j^-p: tails that crowd."""
    n = _side(rng)
    return Problem(_either(np.arange(1, n + 1.0) ** -rng.choice([0.05, 0.1, 0.3, 0.5, 1.0]), rng), _k(rng, n))


def noise(rng: np.random.Generator) -> Problem:
    """Sparse Poisson noise, after the means, with or without their deviations."""
    m, n = int(rng.integers(300, 1200)), int(rng.integers(60, 500))
    X = rng.poisson(rng.choice([0.02, 0.1, 0.5]), (m, n)).astype(float)
    X[rng.integers(0, m, n), np.arange(n)] += 1  # no column is constant
    return Problem(sparse.csr_array(X), _k(rng, n), "mean", rng.choice([None, "std"]))


def flat(rng: np.random.Generator) -> Problem:
    """diag(sqrt(linspace(.5, 1, n)))."""
    n = _side(rng)
    return Problem(_either(np.sqrt(np.linspace(1, rng.choice([0.5, 0.1]), n)), rng), _k(rng, n))


def clusters(rng: np.random.Generator) -> Problem:
    """Several clusters, tight or loose, over a falling rest."""
    n, width = _side(rng, 1000), 10.0 ** -rng.integers(2, 13)
    size = int(rng.integers(2, 13))
    centres = np.array([10.0, 5.0, 4.9, 2.0, 1.0])[: max(1, n // (2 * size))]
    top = np.concatenate([c * (1 + width * rng.random(size)) for c in centres])
    S = np.sort(np.concatenate([top, 0.5 * 0.97 ** np.arange(n - len(top))]))[::-1]
    return Problem(_either(S, rng), min(int(rng.integers(2, len(top) + 10)), n // 2))


def copies(rng: np.random.Generator) -> Problem:
    """Exact copies, fewer or more than a block has columns, of one value or of several."""
    n = _side(rng, 1500) + 100
    S, place = 0.95 ** np.arange(float(n)) + 1e-3, 0
    for _ in range(rng.integers(1, 4)):
        place, count = place + int(rng.integers(0, 12)), int(rng.choice([3, 8, 9, 17, 20, 40]))
        S[place : place + count] = S[place]
        place += count
    return Problem(_either(np.sort(S)[::-1], rng), int(rng.integers(5, 50)))


def outlier(rng: np.random.Generator) -> Problem:
    """One value just above a full bulk; more components are wanted than stand out, or as many."""
    n = _side(rng)
    S = np.append(1 + rng.choice([0.003, 0.01, 0.05, 0.3]), np.linspace(1, rng.choice([0.999, 0.9, 0.5]), n - 1))
    return Problem(_either(S, rng), int(rng.choice([1, 1, 2, 5])))


def bulk_edge(rng: np.random.Generator) -> Problem:
    """k values that stand out, and a bulk that begins right below."""
    n, k = _side(rng), int(rng.integers(2, 12))
    edge = rng.choice([0.9, 0.98, 0.999])
    S = np.concatenate([np.linspace(rng.choice([1.5, 3, 20]), 1, k), edge * np.linspace(1, 0.8, n - k)])
    return Problem(_either(S, rng), k)


def counts(rng: np.random.Generator) -> Problem:
    """Counts of groups of cells, log1p, after the means."""
    m, n = int(rng.integers(400, 1000)), int(rng.integers(100, 500))
    rate = rng.gamma(0.3, 0.5, n) * rng.lognormal(0, 0.7, (6, n))
    X = np.log1p(rng.poisson(rate[rng.integers(0, 6, m)]))
    return Problem(sparse.csr_array(X), _k(rng, n), "mean")


def deficient(rng: np.random.Generator) -> Problem:
    """Fewer values than are wanted."""
    n, rank = int(rng.integers(50, 300)), int(rng.integers(1, 20))
    S = np.zeros(n)
    S[:rank] = rng.choice([0.8, 0.99, 0.3]) ** np.arange(rank)
    return Problem(rotated((n + 50, n), S, rng), rank + int(rng.integers(0, 8)))


def graded(rng: np.random.Generator) -> Problem:
    """Values that fall by four orders until the k-th."""
    n, k = _side(rng, 400) + 20, int(rng.integers(5, 20))
    return Problem(_either(10.0 ** (-4 * np.arange(n) / (k - 1)), rng), k)


FAMILIES: dict[str, Callable[[np.random.Generator], Problem]] = {
    "power law": power_law,
    "poisson": noise,
    "flat": flat,
    "clusters": clusters,
    "copies": copies,
    "outlier": outlier,
    "bulk edge": bulk_edge,
    "counts": counts,
    "deficient": deficient,
    "graded": graded,
}


def problem(family: str, seed: int) -> Problem:
    """One of a family: in single or double precision, some of them turned on their side."""
    rng = np.random.default_rng([list(FAMILIES).index(family), seed])
    made = FAMILIES[family](rng)
    if rng.random() < 0.5:
        made.X = made.X.astype(np.float32)
    if made.shift is None and rng.random() < 0.4:
        made.X = sparse.csr_array(made.X.T) if sparse.issparse(made.X) else np.ascontiguousarray(made.X.T)
    made.k = max(1, min(made.k, min(made.X.shape)))
    return made


def given(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(A, V): orthonormal V near the leading vectors of A, whose values cluster, with errors of very unequal size.

    Seed 0 is A = [[1, 0, p1], [0, 1, p2], [p1, p2, .2]] with p = (1e-3, .3), and the first two axes.
    """
    if seed == 0:
        return np.array([[1, 0, 1e-3], [0, 1, 0.3], [1e-3, 0.3, 0.2]]), np.eye(3, 2)
    rng = np.random.default_rng([99, seed])
    n, k = int(rng.integers(10, 80)), int(rng.integers(2, 9))
    width = rng.choice([0, 1e-12, 1e-6, 1e-3, 1e-1])
    S = np.concatenate([np.sort(1 + width * rng.random(k))[::-1], 0.5 * np.sort(rng.random(n - k))[::-1]])
    U, V = (np.linalg.qr(rng.standard_normal((side, n)))[0] for side in (n + 5, n))
    off = 10.0 ** rng.uniform(-9, -0.7, k) / np.sqrt(k)
    # All errors along one direction of the rest is the worst case; along random ones the usual one.
    rest = V[:, k:] @ rng.standard_normal((n - k, 1 if rng.random() < 0.5 else k))
    turn = np.linalg.qr(rng.standard_normal((k, k)))[0] if rng.random() < 0.5 else np.eye(k)
    Q = np.linalg.qr(V[:, :k] @ turn + rest / np.linalg.norm(rest, axis=0) * off)[0]
    return (U * S) @ V.T, Q


def dissimilarities(seed: int, n: int | None = None) -> np.ndarray:
    """Distances that are not Euclidean: a few strong directions, then noise of both signs."""
    rng = np.random.default_rng([98, seed])
    n = n or int(rng.integers(120, 500))
    X = rng.poisson(rng.gamma(0.5, 2, (n, 40)) * rng.lognormal(0, 1, 40)) + (np.arange(40) == 0)
    kind = seed % 3
    if kind == 0:  # Bray & Curtis
        D = np.abs(X[:, None] - X[None]).sum(axis=2) / (X.sum(axis=1)[:, None] + X.sum(axis=1)[None])
    elif kind == 1:  # random: as many negative as positive eigenvalues
        D = 1 + 0.3 * rng.random((n, n))
    else:  # Manhattan, with noise
        D = np.abs(X[:, None] - X[None]).sum(axis=2) * (1 + 0.2 * rng.random((n, n)))
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    return D
