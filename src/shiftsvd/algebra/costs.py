"""What the products of a matrix cost, and how they round: what solvers plan by."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from shiftsvd.algebra.operator import Operator


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a solver plans by.

    Parameters
    ----------
    eps : float
        Rounding unit of the products.
    stored : int
        How many numbers one pass reads.
    gram_eps : float
        Rounding unit of `gram` for panels in double precision.
    gram_in_single : bool
        Whether `gram` is quicker for a panel in single precision.
    gram_pairs : float
        How many products of two numbers a formed Gram matrix takes, about.
    panel_columns : (int, int)
        The fewest and the most columns of a panel that products are at their best with.
    gram_reads : int
        How often `gram` reads the data.
    working_bytes : int
        Memory that a product takes beside its panels.
    column_bytes : int
        Memory that a product holds for each column of its panel, beside that panel and the result: of products of
        operators, whose inner panels are as long as the side that these share.
    adjoint_bytes : int
        Memory that a product of the adjoint holds for each column, beside its panel and the result: of data that are
        read by their short side, the parts of the blocks, each as long as the long one.
    long_bytes : int
        Memory that a Lanczos basis on the long side may take; 0 where that side saves no read. Data that are read by
        their short side take one read for a `gram` on the long side, and two on the short one.
    square_columns : int
        Columns of the panels by which a matrix as wide and as high as the columns is formed; 0: blocks are squared.
    block_bytes : int
        Of a dense block in double precision that threads work on; 0: as of an array in memory.
    file_bytes : int
        How much one pass reads from a file; 0 where the data are in memory.
    square_bytes : float
        How much travels where a matrix as wide and as high as the columns is formed; infinite: it must not.
    strain : int
        How far from 1 the scales that panels are multiplied by are, as an exponent of two.
    n_threads : int or None
        Threads that a solver may use; None: the cores that this process may use.

    See Also
    --------
    estimate : Foresees by them.
    Operator : ``costs`` gives them.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.ones((3, 2))).costs.stored
    6
    """

    eps: float
    stored: int
    gram_eps: float
    gram_in_single: bool
    gram_pairs: float
    panel_columns: tuple[int, int]
    gram_reads: int = 2
    working_bytes: int = 0
    column_bytes: int = 0
    adjoint_bytes: int = 0
    long_bytes: int = 0
    square_columns: int = 0
    block_bytes: int = 0
    file_bytes: int = 0
    square_bytes: float = 0.0
    strain: int = 0
    n_threads: int | None = None

    @classmethod
    def of(cls, A: "Operator", **known: Any) -> "Costs":
        """The costs of A by what is known of it; by itself, those of a dense matrix.

        Parameters
        ----------
        A : Operator
            The operator, whose shape and dtype are looked at.
        **known
            Fields of `Costs` that are known.

        Returns
        -------
        Costs
            What is known, and guesses of the rest.
        """
        (m, n), dtype = A.shape, A.dtype
        eps, stored = known.get("eps", float(np.finfo(dtype).eps)), known.get("stored", m * n)
        guessed = {
            "eps": eps,
            "stored": stored,
            "gram_eps": eps,
            "gram_in_single": dtype == np.float32,
            "gram_pairs": stored**2 / m,
            "panel_columns": (16, 32) if stored == m * n else (8, 16),
        }
        return cls(**guessed | known)
