"""What a run may have missed: the levels that its probes have proven, and what is left to prove."""

from dataclasses import replace

import numpy as np

from shiftsvd.operators import Panel
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import Probe
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
        return self.n_probes >= PROBES

    def forget(self) -> None:
        self.level = np.inf

    def limit(self, k: int) -> float:
        return min((mu for count, mu in self._proven if count <= k), default=np.inf)

    def lacks(self, needs: Needs) -> bool:
        return not all(self.limit(count) <= mu for count, mu in needs)

    def probe(self, basis: Basis, noise: float) -> Probe:
        self.n_probes += 1
        self.seen += self.columns
        return Probe(basis, self.columns, self.probability * 0.5**self.n_probes, noise)

    def learn(self, probe: Probe, ritz: Ritz, k: int, needs: Needs) -> Ritz:
        probe.end()
        self.level = probe.level
        above = replace(ritz, level=self.level)
        self._proven += [fact for fact in [(k, above.limit(k)), *needs] if ritz.at_most(*fact, self.level)]
        return above


def reduced(basis: Basis, ritz: Ritz, Z: Panel, count: int) -> Ritz:
    if count == len(ritz.theta):
        return ritz
    basis.restart(ritz.theta[:count], Z[:, :count])
    return ritz.first(count)
