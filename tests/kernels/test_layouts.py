"""Arrays as users have them, of any layout, type and byte order, give the same products."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from tests.support.closeness import assert_close
from tests.support.layouts import LAYOUTS, records
from tests.support.matrices import EPS, values
from tests.support.operators import panel
from tests.support.structures import data_types, steps


def _read_only(X: Any) -> None:
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False


def _strided(*names: str) -> Any:
    def change(X: Any) -> None:
        for name in names:
            setattr(X, name, np.repeat(getattr(X, name), 2)[::2])

    return change


def _typed(name: str, dtype: str) -> Any:
    def change(X: Any) -> None:
        setattr(X, name, getattr(X, name).astype(dtype))

    return change


def _unaligned(X: Any) -> None:
    raw = bytearray(X.data.nbytes + 1)
    data = np.ndarray(X.data.shape, X.data.dtype, raw, 1)
    data[:] = X.data
    X.data = data


ARRAYS = {
    "read-only": _read_only,
    "strided data": _strided("data"),
    "strided indices": _strided("indices"),
    "strided indptr": _strided("indptr"),
    "strided everything": _strided("data", "indices", "indptr"),
    "big-endian float32": _typed("data", ">f4"),
    "big-endian float64": _typed("data", ">f8"),
    "big-endian int32": _typed("data", ">i4"),
    "big-endian indices": _typed("indices", ">i4"),
    "big-endian indptr": _typed("indptr", ">i8"),
    "unsigned indices": _typed("indices", "u4"),
    "long indptr": _typed("indptr", "i8"),
    "unaligned": _unaligned,
}


@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("container", [csr_array, csc_array])
@pytest.mark.parametrize("how", ARRAYS)
def test_arrays_of_any_layout_and_byte_order_give_the_same_products(how, container, shifted):
    D = values((40, 9), np.int32, seed=1).astype(np.float64)
    X = container(D)
    ARRAYS[how](X)
    shift = ss.LowRank(panel(40, 1, seed=2), panel(9, 1, seed=3))
    A, V, W = ss.as_operator(X), panel(9, 3, seed=4), panel(40, 3, seed=5)
    A, D = (A - shift, D - shift.L @ shift.R.T) if shifted else (A, D)
    size = np.linalg.norm(D) + np.linalg.norm(shift.L) * np.linalg.norm(shift.R)
    tol = steps(D) * EPS * size
    assert_close(A @ V, D @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(A.H @ W, D.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(A.gram(V), D.T @ (D @ V), 2 * tol * size * np.linalg.norm(V), "gram")
    assert_close(A.moments().mean, D.mean(axis=0), tol, "mean")
    assert_close(A.column_squares(), (D**2).sum(axis=0), tol * size, "column squares")
    assert_close(A.row_squares(), (D**2).sum(axis=1), tol * size, "row squares")


PANELS = {
    "fortran": np.asfortranarray,
    "backwards": lambda V: V[::-1, ::-1].copy()[::-1, ::-1],
    "strided": lambda V: np.repeat(V, 2, 0)[::2],
    "big-endian": lambda V: V.astype(">f8"),
    "long double": lambda V: V.astype(np.longdouble),
    "records": records,
    "no columns": lambda V: V[:, :0],
}


@pytest.mark.parametrize("how", PANELS)
@pytest.mark.parametrize("product", ["matmat", "rmatmat", "gram"])
def test_panels_of_any_layout_and_byte_order_give_the_same_products(product, how):
    D = values((40, 9), seed=1)
    A, V = ss.as_operator(csr_array(D)), PANELS[how](panel(40 if product == "rmatmat" else 9, 3, seed=2))
    want = {"matmat": lambda: D @ V, "rmatmat": lambda: D.T @ V, "gram": lambda: D.T @ (D @ V)}[product]()
    assert_close(getattr(A, product)(V), want, 2 * steps(D) * EPS * np.linalg.norm(D) ** 2 * np.linalg.norm(V))


VECTORS = {
    "strided": lambda w: np.repeat(w, 2)[::2],
    "big-endian": lambda w: w.astype(">f8"),
    "single": lambda w: w.astype("f4"),
    "long double": lambda w: w.astype(np.longdouble),
    "int": lambda w: (9 * w).astype(int),
    "bool": lambda w: w > 0.5,
}


@pytest.mark.parametrize("how", VECTORS)
def test_weights_of_any_layout_and_type_are_read(how):
    D, rng = values((40, 9), seed=1), np.random.default_rng(2)
    A, w, u = ss.as_operator(csr_array(D)), VECTORS[how](rng.random(40)), VECTORS[how](rng.random(9))
    V, size, tol = panel(9, 3, seed=3), np.linalg.norm(D), steps(D) * EPS * np.linalg.norm(D)
    v, wD = u.astype(float), w[:, None].astype(float) * D
    assert_close(A.moments(w).mean, wD.sum(axis=0) / w.astype(float).sum(), tol, "mean")
    assert_close(A.row_moments(u).mean, D @ v / v.sum(), tol, "row mean")
    scale = max(float(w.max()), 1.0)
    assert_close(A.column_squares(w), (wD * D).sum(axis=0), scale * tol * size, "column squares")
    assert_close(A.gram(V, w), wD.T @ (D @ V), 2 * scale * tol * size * np.linalg.norm(V), "gram")


@pytest.mark.parametrize("turned", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize("layout", LAYOUTS)
@data_types
def test_dense_rows_of_any_layout_and_byte_order_give_the_same_products(dtype, layout, turned):
    X = LAYOUTS[layout](values((40, 9), dtype, seed=1))
    L, R = panel(40, 1, seed=2), panel(9, 1, seed=3)
    A = ss.as_operator(X.T) - ss.LowRank(R, L) if turned else ss.as_operator(X) - ss.LowRank(L, R)
    A, E = A.H if turned else A, X.astype(float) - L @ R.T
    V, W = panel(9, 3, seed=4), panel(40, 3, seed=5)
    size = np.linalg.norm(X.astype(float)) + np.linalg.norm(L) * np.linalg.norm(R)
    tol = steps(E) * np.finfo(dtype).eps * size
    assert_close(A @ V, E @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(A.H @ W, E.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(A.gram(V), E.T @ (E @ V), 2 * tol * size * np.linalg.norm(V), "gram")


@pytest.mark.parametrize("container", [csr_array, np.asarray], ids=["csr", "array"])
@pytest.mark.parametrize("dtype", [">f8", "f4", "i8", "longdouble"])
def test_a_shift_of_any_type_is_subtracted(dtype, container):
    D, mu = values((40, 9), seed=1), np.arange(9).astype(dtype)
    A = ss.as_operator(container(D)) - ss.LowRank(np.ones(40, dtype), mu)
    E, V, W = D - mu.astype(float), panel(9, 3, seed=2), panel(40, 3, seed=3)
    size = np.linalg.norm(D) + np.sqrt(40) * np.linalg.norm(mu.astype(float))
    tol = steps(E) * EPS * size
    assert_close(A @ V, E @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(A.H @ W, E.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(A.gram(V), E.T @ (E @ V), 2 * tol * size * np.linalg.norm(V), "gram")
    assert_close(A.column_squares(), (E**2).sum(axis=0), tol * size, "column squares")
