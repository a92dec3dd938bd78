"""as_operator and centered: every kind of matrix enters here, and is validated once."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
from scipy.sparse import issparse

from shiftsvd.backends import validation
from shiftsvd.backends.dense import DenseRows, native_dtype
from shiftsvd.backends.device import arrays_of, device_operator
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.kernels import thread_count
from shiftsvd.numerics.powers import exponents_of
from shiftsvd.operators import Adjoint, Operator, Panel, Vector, panel_dtype, repeated

FEW = 4  # random vectors for an estimate of the size of entries


@dataclass(frozen=True, eq=False, repr=False)
class Foreign(Operator):
    """A SciPy LinearOperator, or another object with its methods."""

    A: Any

    def __post_init__(self) -> None:
        if self.A.dtype is None:
            raise ValueError("The operator has no dtype. Set it, for example LinearOperator(..., dtype=float).")
        dtype = np.dtype(self.A.dtype)
        validation.check_numbers(dtype, self.A.shape)
        dtype = dtype if dtype.char in "fdFD" else panel_dtype(dtype)
        vars(self).update(shape=(int(self.A.shape[0]), int(self.A.shape[1])), dtype=dtype)

    def matmat(self, V: Panel) -> Panel:
        return _theirs(self.A.matmat(V))

    def rmatmat(self, W: Panel) -> Panel:
        return _theirs(self.A.rmatmat(W))

    def exponents(self, axis: int) -> Vector:
        return np.full(self.shape[1 - axis], self._exponent)

    @cached_property
    def _exponent(self) -> int:
        Omega = np.random.default_rng(0).standard_normal((self.shape[1], FEW))
        return int(exponents_of(self.matmat(Omega.astype(panel_dtype(self.dtype)))).max())


@dataclass(frozen=True, eq=False, repr=False)
class Incomplete(Operator):
    """A matrix in memory with missing entries, for estimators that replace them; products raise the error."""

    X: Any
    found: validation.BadValues

    def __post_init__(self) -> None:
        vars(self).update(shape=self.X.shape, dtype=native_dtype(self.X.dtype))

    @property
    def refusal(self) -> validation.NotFinite:
        return validation.NotFinite(self.found)

    def matmat(self, V: Panel) -> NoReturn:
        raise self.refusal

    def rmatmat(self, W: Panel) -> NoReturn:
        raise self.refusal


def _theirs(product: Any) -> Panel:
    view = np.asarray(product).view()
    view.flags.writeable = False
    return view


def as_operator(X: Any, *, n_threads: int | None = None, memory_limit: int | str | None = None) -> Operator:
    """Return the matrix X as an `Operator`, after validation of its shape, type, values and sparse structure.

    Parameters
    ----------
    X : array, sparse matrix or array, data frame, Dask array, LinearOperator, or Operator, of shape (m, n)
        NumPy arrays of any order, memory-mapped ones too, are read in place; integers and booleans are
        converted block by block. CSR and CSC are used as they are if their rows are sorted and without
        duplicates, else one sorted copy is made; other sparse formats are converted to CSR. Data frames
        of pandas (Sparse columns stay sparse) and polars. Dask arrays with dense chunks, or CSR ones of
        whole rows, are never computed: each read is one graph. Tensors of PyTorch and arrays of CuPy, dense or
        sparse, and dense arrays of any library that follows the array API standard are multiplied on their device.
        Any object with ``shape``, ``dtype``, ``matmat`` and ``rmatmat``.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Limit for conversions, which raise ValueError if they need more.

    Returns
    -------
    Operator
        Operator for this kind of matrix; X itself if X is an Operator.

    Raises
    ------
    ValueError
        If X is empty, not two-dimensional or not numeric, or has NaN, infinite values or a corrupt sparse structure.
    TypeError
        If X is not a matrix.

    See Also
    --------
    Operator : The type of the result.

    Notes
    -----
    Costs one read of the data, to look for NaN and infinities.

    Arrays are not copied. Do not write to them, or to the index arrays of a sparse matrix, while a fit reads them:
    values and indices are validated once, here.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.ones((3, 2)))
    <DenseRows 3 x 2 float64>
    """
    if isinstance(X, Operator):
        return X
    threads = thread_count(n_threads)
    if type(X) is np.ndarray:
        return _dense(validation.numeric_array(X), threads)
    if validation.is_frame(X):
        with validation.named(X.columns):
            return as_operator(validation.from_frame(X), n_threads=n_threads, memory_limit=memory_limit)
    if is_lazy(X):
        from shiftsvd.backends.dask import dask_operator

        return dask_operator(unwrapped(X), memory_limit)
    if issparse(X):
        C, by_columns = validation.canonical(X, threads, memory_limit)
        A = SparseRows(C, n_threads=threads, memory_limit=memory_limit)
        return Adjoint(A) if by_columns else A
    if hasattr(X, "matmat") and hasattr(X, "rmatmat"):
        return Foreign(X)
    if (arrays := arrays_of(X)) is not None:
        return device_operator(X, arrays, threads)
    return _dense(validation.numeric_array(X), threads)


def is_lazy(X: Any) -> bool:
    X = unwrapped(X)
    # AnnData's views derive from those of Dask; xarray's data sets have graphs, too.
    return hasattr(X, "__dask_graph__") and any(kind.__module__.startswith("dask.") for kind in type(X).__mro__)


def unwrapped(X: Any) -> Any:
    if type(X).__module__ == "anndata._core.sparse_dataset":  # a sparse matrix in a file, such as X of a backed AnnData
        return import_module("anndata.experimental").read_elem_lazy(X.group)
    return X.data if type(X).__module__.partition(".")[0] == "xarray" and hasattr(X, "dims") else X


def centered(X: Any, *, n_threads: int | None = None) -> Operator:
    """Return ``X - 1 mean^T``, X minus its column means, without forming the difference.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        Any matrix that `as_operator` takes.
    n_threads : int, optional
        As in `svd`.

    Returns
    -------
    Operator of shape (m, n)
        The matrix minus its column means, which is never formed.

    See Also
    --------
    svd : ``shift="mean"`` does the same within a fit.
    operators.Shifted : The type of the result.

    Notes
    -----
    Costs one pass for the means.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.centered(np.array([[1.0, 2.0], [3.0, 6.0]])) @ np.eye(2)
    array([[-1., -2.],
           [ 1.,  2.]])
    """
    A = as_operator(X, n_threads=n_threads)
    return A - repeated(A.moments().mean, A.shape[0])


def _dense(X: Any, n_threads: int) -> Operator:
    validation.finite_dense(X)
    if X.shape[0] >= X.shape[1]:
        return DenseRows(X, n_threads=n_threads)
    return Adjoint(DenseRows(X.T, conjugate=np.iscomplexobj(X), n_threads=n_threads))
