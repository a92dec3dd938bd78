"""What an estimator gives of the rows of a Dask array, as a Dask array: nothing is computed."""

from typing import Any

import dask
import numpy as np

from shiftsvd.backends.dask.rows import DaskRows, dask_operator
from shiftsvd.backends.dask.tasks import rows_of
from shiftsvd.backends.dense import native_dtype


def lazy_scores(estimator: Any, X: Any) -> Any:
    operator = dask_operator(X)
    by_rows = operator.X if isinstance(operator, DaskRows) else X.rechunk({0: "auto", 1: -1})
    Z = _by_rows(estimator, by_rows, "transform", len(estimator.components_), native_dtype(X.dtype))
    return Z if Z.chunks[0] == X.chunks[0] else Z.rechunk({0: X.chunks[0]})


def lazy_points(estimator: Any, Z: Any) -> Any:
    dtype = np.result_type(Z.dtype, estimator.components_.dtype)
    return _by_rows(estimator, Z.rechunk({1: -1}), "inverse_transform", estimator.n_features_in_, dtype)


def _by_rows(estimator: Any, X: Any, method: str, columns: int, dtype: Any) -> Any:
    frozen = dask.delayed(estimator, pure=False, traverse=False)
    settings = {"dtype": dtype, "chunks": (X.chunks[0], (columns,)), "meta": np.empty((0, 0), dtype)}
    return X.map_blocks(rows_of, estimator=frozen, method=method, columns=columns, **settings)
