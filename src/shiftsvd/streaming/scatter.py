"""The scatter matrix of centred rows: what every way to keep it has in common, and all of it where that is small."""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg
from scipy.linalg.blas import dsyrk

from shiftsvd.algebra.generic import gram_matrix, row_blocks
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel

# Columns that wait: few enough to be small beside S, and many enough that one product adds them at full speed.
WAITING = 512


class ScatterPairs(NamedTuple):
    """The leading eigenpairs of what is kept of a scatter matrix, and the trace of all that is kept."""

    values: Vector  # at most those of S, descending
    vectors: Panel  # orthonormal columns
    trace: float  # of what is kept: no value is too small by more than what this lacks of the trace of S


@dataclass(eq=False)
class Scatter(ABC):
    """``S = sum of C^T C`` over batches of centred rows C; grows in place.

    A batch of few rows is a few columns of ``B B^T``, which wait until there are many.

    Attributes
    ----------
    B : array of shape (n_features, capacity), by columns
        Of which the first `used` are set.
    used : int
    """

    B: Panel
    used: int

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What was pickled; memory that may not be written to, as joblib maps it, is copied: LAPACK would not ask."""
        fixed = (name for name, value in state.items() if isinstance(value, np.ndarray) and not value.flags.writeable)
        vars(self).update(state | {name: np.array(state[name]) for name in fixed})

    @property
    def columns(self) -> Panel:
        """The columns of B that are set."""
        return self.B[:, : self.used]

    def add(self, C: Operator, weights: Vector | None) -> int:
        """``S += C^T diag(weights) C``; how often C was read. C is read before anything changes."""
        if C.shape[0] > self.B.shape[1] // 2:
            return self.add_rows(C, weights)
        self.add_columns(_rows(C, weights).T)
        return 1

    def _append(self, P: Panel) -> None:
        """The columns of P beside those of B."""
        at_once = self.B.shape[1] // 2
        for lo in range(0, P.shape[1], at_once):
            part = P[:, lo : lo + at_once]
            if self.used + part.shape[1] > self.B.shape[1]:
                self._make_room()
            self.B[:, self.used : self.used + part.shape[1]] = part
            self.used += part.shape[1]

    @abstractmethod
    def add_rows(self, C: Operator, weights: Vector | None) -> int:
        """``S += C^T diag(weights) C`` for many rows; how often C was read."""

    @abstractmethod
    def add_columns(self, P: Panel) -> None:
        """``S += P P^T`` for a thin panel."""

    @abstractmethod
    def _make_room(self) -> None:
        """Leave at most half of B in use, when `_append` finds no room for more columns."""

    @abstractmethod
    def same_kind(self, other: "Scatter") -> bool:
        """Whether the sum of both can be kept as each of them is."""

    @abstractmethod
    def added(self, other: Self) -> Self:
        """The sum of two scatter matrices, as a new one, for `merge_pca`."""

    @abstractmethod
    def refine(self, C: Operator, weights: Vector | None) -> int:
        """Come nearer to S, which is that of the rows of C; how often they were read."""

    @abstractmethod
    def leading(self, k: int) -> ScatterPairs:
        """The k leading eigenpairs of what is kept."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Columns of the test matrix."""


def _rows(C: Operator, weights: Vector | None) -> Panel:
    """``diag(sqrt(weights)) C`` for a few rows, in double precision."""
    R = np.concatenate([block for _, block in row_blocks(C, C.shape[0])])
    return R if weights is None else np.sqrt(weights)[:, None] * R


@dataclass(eq=False)
class WholeScatter(Scatter):
    """The whole scatter matrix S, kept as it is, exact to rounding; columns of B wait to be added to it.

    Attributes
    ----------
    S : array of shape (n_features, n_features), by columns
        Of which the lower triangle is kept up.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.streaming.scatter import WholeScatter
    >>> scatter = WholeScatter.empty(2)
    >>> scatter.add_columns(np.array([[3.0, 0.0], [0.0, 2.0]]))
    >>> scatter.leading(1).values
    array([9.])
    """

    S: Panel

    @classmethod
    def empty(cls, n: int) -> "WholeScatter":
        """A scatter matrix (n, n) of no rows yet."""
        return cls(np.empty((n, WAITING), order="F"), 0, np.zeros((n, n), order="F"))

    @staticmethod
    def bytes(n: int, n_threads: int) -> int:
        """Memory at most: S, what is added to it with its parts, the columns that wait."""
        return 8 * n * ((n_threads + 5) * n + WAITING)

    def add_rows(self, C: Operator, weights: Vector | None) -> int:
        """Add the Gram matrix of a batch to S: one read, over the pairs of entries of each row."""
        self.S += gram_matrix(C, weights).T  # symmetric, and by columns
        return 1

    def add_columns(self, P: Panel) -> None:
        """Let columns wait until there are enough of them for one product with BLAS."""
        self._append(P)

    def _make_room(self) -> None:
        """Add the columns that wait to S, in one product."""
        self.S = dsyrk(1.0, self.columns, beta=1.0, c=self.S, lower=1, overwrite_c=1)  # in place
        self.used = 0

    def same_kind(self, other: Scatter) -> bool:
        """Whether the other one is whole, too."""
        return isinstance(other, WholeScatter)

    def added(self, other: "WholeScatter") -> "WholeScatter":
        """The sum of two whole scatter matrices, which but for rounding is the same in any order."""
        both = deepcopy(self)
        both.S += other.S
        both._append(other.columns)
        return both

    def refine(self, C: Operator, weights: Vector | None) -> int:
        """Read nothing: a whole scatter matrix is exact already."""
        return 0

    def leading(self, k: int) -> ScatterPairs:
        """The k leading eigenpairs of the scatter matrix S, by LAPACK, and its trace."""
        self._make_room()
        n = len(self.S)
        w, V = linalg.eigh(self.S, subset_by_index=(n - k, n - 1), check_finite=False)
        return ScatterPairs(np.maximum(w[::-1], 0), V[:, ::-1], float(np.trace(self.S)))

    @property
    def size(self) -> int:
        """Columns of the test matrix: as many as features, since it is the identity."""
        return len(self.S)
