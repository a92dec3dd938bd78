"""cross: the operator ``X^H Y`` of two prepared matrices with the same rows."""

from typing import Any

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting
from shiftsvd.names import ScaleName, ShiftName, VectorLike
from shiftsvd.operators import Operator, Product
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.preparation.scales import row_weights


def cross(
    X: Any,
    Y: Any,
    *,
    shift: ShiftName | VectorLike | Any | None = None,
    scale: bool | ScaleName | VectorLike | Any | None = None,
    sample_weight: VectorLike | None = None,
    scale_ddof: int = 0,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Operator:
    """Return ``X^H Y`` of two matrices with the same rows as an operator of shape (p, q), which is never formed.

    With ``shift="mean"`` the operator is the matrix of cross-covariances times ``m - 1``; its singular vectors are
    those of maximum covariance analysis, also called PLS-SVD.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, p)
        Matrix with the same rows as Y. If both have row labels (pandas or xarray), these must be equal, in the same
        order.
    Y : anything that `as_operator` takes, of shape (m, q)
        Matrix with the same rows as X.
    shift : None, "mean", or as in `svd`; or a tuple of two
        Shift of X and Y; a tuple has one for X and one for Y.
    scale : None, "std" or True, "pareto", or positive array; or a tuple of two
        Divisor of the columns of X and Y after the shift; a tuple has one for X and one for Y.
    sample_weight : array of shape (m,), optional
        Frequencies of the rows, for means, standard deviations and the product ``X^H diag(w) Y``.
    scale_ddof : 0 or 1
        Standard deviations divide by ``m - scale_ddof``.
    n_threads : int, optional
        As in `svd`.
    memory_limit : int (bytes) or str such as "2GB", optional
        As in `as_operator`.

    Returns
    -------
    Operator of shape (p, q)
        A `shiftsvd.operators.Product`, for `svd` and every other function that takes operators; ``cross(X, Y).H`` is
        ``cross(Y, X)``.

    Raises
    ------
    ValueError
        If X and Y do not have the same rows, and as in `svd`.

    See Also
    --------
    svd : Compute singular vectors of the operator.
    xarray.coupled : The same for labelled fields.

    Notes
    -----
    Cost: one pass for means or standard deviations, and one for the norms of X and Y. A product with a panel of b
    columns reads X and Y once and stores m b numbers, so a step of block Lanczos takes two passes. X and Y may be
    sparse, in files, or Dask arrays. `svd` forms small cross products, to compute all components accurately.

    Products are in double precision for all data types. Their rounding errors are relative to ``||X|| ||Y||``, which
    may be far above the largest singular value if X and Y are nearly uncorrelated; the error bounds of the fit include
    them.

    References
    ----------
    Bretherton, Smith & Wallace (1992), An intercomparison of methods for finding coupled patterns in climate data.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.standard_normal((100, 8)), rng.standard_normal((100, 5))
    >>> C = ss.cross(X, Y, shift="mean")
    >>> F = ss.svd(C, 2, rng=0)
    >>> exact = np.linalg.svd((X - X.mean(0)).T @ (Y - Y.mean(0)), compute_uv=False)
    >>> C.shape, bool(np.allclose(F.S, exact[:2]))
    ((8, 5), True)
    """
    _check_labels(X, Y)
    A, B = (as_operator(F, n_threads=n_threads, memory_limit=memory_limit) for F in (X, Y))
    if A.shape[0] != B.shape[0]:
        raise ValueError(
            f"X and Y must have the same rows, got {A.shape[0]:,} and {B.shape[0]:,}. Select the rows that both have."
        )
    weights = row_weights(sample_weight, A.shape[0])
    asked = [
        Preparation(*of, weights, scale_ddof) for of in zip(_both("shift", shift), _both("scale", scale), strict=True)
    ]
    for preparation, F in zip(asked, (A, B), strict=True):
        preparation.check(F.shape[1])
    P, Q = (preparation.learn(F).of_own for preparation, F in zip(asked, (A, B), strict=True))
    return Product(P.H, Q)


def _both(name: str, setting: Any) -> tuple[Any, Any]:
    if not isinstance(setting, tuple):
        return setting, setting
    if len(setting) != 2:
        rule = f" as a tuple must have one setting for X and one for Y, got {len(setting)}. Pass a vector as an array."
        raise Refused(Setting(name), rule)
    return setting


def _check_labels(X: Any, Y: Any) -> None:
    x, y = _labels(X), _labels(Y)
    if x is None or y is None or len(x) != len(y) or x.equals(y):
        return
    plain = any(np.array_equal(index, np.arange(len(index))) for index in (x, y))
    if plain and set(x) != set(y):
        return  # a default index, 0 to m - 1, does not name the rows
    a, b = next((a, b) for a, b in zip(x, y, strict=True) if a != b)
    raise ValueError(
        f"X and Y must have the same rows, but their labels differ, such as {a!r} and {b!r}. "
        "Put their rows in the same order, such as by Y = Y.loc[X.index] for data frames."
    )


def _labels(F: Any) -> Any | None:
    index = getattr(F, "index", None)
    if hasattr(index, "equals"):
        return index
    dims: Any = getattr(F, "dims", ())
    indexes: Any = getattr(F, "indexes", None)
    return indexes.get(dims[0]) if isinstance(dims, tuple) and dims and hasattr(indexes, "get") else None
