"""A matrix without some of its right vectors: ``A (I - V V^H)``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shiftsvd.algebra.derived import Derived
from shiftsvd.algebra.generic import gram_matrix, matmat_in_double, placed, registered, rmatmat_in_double, unshifted
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Operator
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner
from shiftsvd.numerics.panels import Panel


@registered
@dataclass(frozen=True, eq=False, repr=False)
class Deflated(Derived):
    """``A P`` with ``P = I - V V^H`` for orthonormal columns V: what is left when leaders have been found.

    Panels are projected before they are multiplied and after they come back, so that what the leaders would do to them
    is never there to be subtracted; nothing of the length of A is formed.
    """

    V: Panel

    def placed(self, V: Panel) -> Panel:
        return placed(self.A, V)

    def matmat(self, V: Panel) -> Panel:
        return self.A.matmat(self._projected(V))

    def matmat_in_double(self, V: Panel) -> Panel:
        return matmat_in_double(self.A, self._projected(V))

    def rmatmat(self, W: Panel) -> Panel:
        return self._projected(self.A.rmatmat(W))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._projected(rmatmat_in_double(self.A, W))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return self._projected(self.A.gram(self._projected(V), weights))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        return self._projected(self._projected(gram_matrix(self.A, weights)).conj().T).conj().T

    def known_costs(self) -> dict[str, Any]:
        return {"gram_reads": self.A.costs.gram_reads}

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self.A.row_products(self._projected(V))

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        return unshifted(self.A)

    def _projected(self, V: Panel) -> Panel:
        for _ in range(2):
            V = V - self.V @ inner(self.V, V)
        return V
