"""A probe that runs to its end."""

from collections.abc import Callable

from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import Probe
from tests.support.matrices import Array


def probe(
    basis: Basis,
    product: Callable[[Array], Array],
    columns: int,
    probability: float,
    noise: float,
    done: Callable[[float, float], bool],
) -> float:
    """A probe that goes on until ``done(level, top)``, or the space is at its end; gives the last level."""
    found = Probe(basis, columns, probability, noise)
    while True:
        found.take(product(found.block))
        if basis.width == 0 or done(found.level, found.top):
            break
    found.end()
    return found.level
