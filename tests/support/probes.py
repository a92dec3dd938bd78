"""A probe that runs to its end, and eigenvalues that a chain cannot exclude."""

from collections.abc import Callable

import numpy as np
from scipy.special import gammainc

from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Chain, Probe
from tests.support.matrices import Array


def probe(
    basis: Factorization,
    product: Callable[[Array], Array],
    columns: int,
    probability: float,
    noise: float,
    done: Callable[[float, float], bool],
    joint: bool = False,
) -> float:
    """A probe that goes on until ``done(level, top)``, or the space is at its end; gives the last level."""
    found = Probe(basis, columns, probability, noise, joint)
    while True:
        found.add_product(product(basis.block))
        if basis.width == 0 or done(found.level, found.top):
            break
    found.finish()
    basis.end_probe()
    return found.level


def chain_of(R: Array, parts: list[tuple[Array, Array]], p: float) -> Chain:
    """Return the chain of a first block with this R, of these coefficients, that holds with probability 1 - p."""
    chain = Chain(R, p)
    for A, B in parts:
        chain.add(A, B)
    return chain


def longest(chain: Chain, lambdas: Array) -> Array:
    """Return the largest ``||u^H Omega||`` that an eigenvector u of each of these eigenvalues can have.

    ``y = w B E^H (lambda - T)^-1`` for the part w of u in the next block, and the squared lengths of y and w sum to at
    most 1: the norm of ``D^{-1/2} M``, from one system of equations for each lambda.
    """
    sizes, B = [len(A) for A, _ in chain.parts], chain.parts[-1][1]
    T = np.zeros((sum(sizes), sum(sizes)), B.dtype)
    for j, (A, C) in enumerate(chain.parts):
        lo, hi = sum(sizes[:j]), sum(sizes[: j + 1])
        T[lo:hi, lo:hi] = A
        if hi < len(T):
            T[hi : hi + len(C), lo:hi], T[lo:hi, hi : hi + len(C)] = C, C.conj().T
    E = np.eye(len(T))[:, len(T) - sizes[-1] :]
    Y = np.linalg.solve(lambdas[:, None, None] * np.eye(len(T)) - T, E @ B.conj().T)  # y^H = Y w^H
    D = np.eye(len(B)) + Y.conj().swapaxes(1, 2) @ Y
    M = (chain.R.conj().T @ Y[:, : len(chain.R)]).conj().swapaxes(1, 2)
    return np.linalg.norm(np.linalg.solve(np.linalg.cholesky(D), M), 2, axis=(1, 2))


def just_below(R: Array, parts: list[tuple[Array, Array]], grid: Array, rng: np.random.Generator) -> tuple[Chain, bool]:
    """Return a chain whose quantile is just below a length that a lambda of the grid has, and whether that is a hump.

    The grid is of distances from the largest Ritz value, in units of the spread. A hump is a maximum above that value,
    where a lambda is not excluded though smaller ones are.
    """
    chain = chain_of(R, parts, 1e-9)
    lengths = longest(chain, chain.top + grid * chain.spread)
    humps = np.flatnonzero((lengths[1:-1] > lengths[:-2]) & (lengths[1:-1] > lengths[2:])) + 1
    near = humps[-1] if len(humps) else rng.integers(len(grid))
    p = gammainc(R.shape[1] / 2, (0.99 * lengths[near]) ** 2 / 2)
    return chain_of(R, parts, float(np.clip(p, 1e-15, 0.5))), len(humps) > 0
