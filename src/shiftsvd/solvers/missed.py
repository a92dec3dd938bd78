"""What a run may have missed: the levels that its probes have proven, and what is left to prove."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from shiftsvd.operators import Panel
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import probe
from shiftsvd.solvers.ritz import Needs, Ritz

# Probes that may find something, each as likely to be wrong as all after it.
PROBES = 20


class Missed:
    """The books of the probes of one run.

    A level holds for what is orthogonal to the basis, so a restart voids it (`forget`); what it said of the number of
    eigenvalues above some mu is a fact of the matrix, and stays.

    Attributes
    ----------
    level : float
        What no eigenvalue exceeds orthogonal to the basis.
    seen : int
        Random columns that have been through the run: so many copies of a value can be there.
    """

    def __init__(self, columns: int, probability: float) -> None:
        self.columns, self.probability = columns, probability
        self.level, self.seen = np.inf, columns
        self.n_probes = 0
        self._proven: Needs = []

    @property
    def used_up(self) -> bool:
        """Whether there have been as many probes as may be."""
        return self.n_probes >= PROBES

    def forget(self) -> None:
        """The basis was restarted."""
        self.level = np.inf

    def limit(self, k: int) -> float:
        """What the (k+1)-th eigenvalue is at most, by all probes so far."""
        return min((mu for count, mu in self._proven if count <= k), default=np.inf)

    def lacks(self, needs: Needs) -> bool:
        """Whether any of these, at most `count` eigenvalues above mu, is not proven yet."""
        return not all(self.limit(count) <= mu for count, mu in needs)

    def seek(
        self,
        basis: Basis,
        product: Callable[[Panel], Panel],
        ritz: Ritz,
        k: int,
        needs: Needs,
        at_end: Callable[[], bool],
        heard: Callable[[float, float], None] = lambda level, top: None,
    ) -> Ritz:
        """Let a fresh random block look for what is orthogonal to the basis, until nothing can be missing.

        `ritz` are the values of all of the basis. `heard` is told, after every product, the level and the largest Ritz
        value of the probe. Gives `ritz` with the level that holds beside them.
        """

        def done(level: float, top: float) -> bool:
            heard(level, top)
            # Where even its largest Ritz value is too high for a level, something was found: it is in the basis now.
            return ritz.meets(needs, level) or at_end() or not ritz.meets(needs, top)

        self.n_probes += 1
        probability = self.probability * 0.5**self.n_probes
        self.level = probe(basis, product, self.columns, probability, ritz.noise(), done)
        self.seen += self.columns
        above = replace(ritz, level=self.level)
        self._proven += [fact for fact in [(k, above.limit(k)), *needs] if ritz.at_most(*fact, self.level)]
        return above


def reduced(basis: Basis, ritz: Ritz, Z: Panel, count: int) -> Ritz:
    """Keep so many vectors in the basis: what a probe is orthogonal to."""
    if count == len(ritz.theta):
        return ritz
    basis.restart(ritz.theta[:count], Z[:, :count])
    return ritz.first(count)
