"""Sparse matrices whose places lie outside: refused, whoever would have converted them."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss


def with_coordinate(axis: int, value: Any) -> Any:
    X = sparse.random_array((30, 20), density=0.3, rng=np.random.default_rng(0)).tocoo()
    coords = [np.array(each, type(value)) for each in X.coords]
    coords[axis][3] = value
    X.coords = tuple(coords)
    return X


def with_block(value: int) -> Any:
    X = sparse.random_array((30, 20), density=0.3, rng=np.random.default_rng(0)).tobsr((2, 2))
    X.indices[4] = value
    return X


def with_list() -> Any:
    X = sparse.random_array((30, 20), density=0.3, rng=np.random.default_rng(0)).tolil()
    X.data[2] = [*X.data[2], 1.0]
    return X


BAD = {
    "row": (with_coordinate(0, 10**7), r"COO .* 0\.\.29, got 0\.\.10000000"),
    "column": (with_coordinate(1, 20), r"COO .* 0\.\.19, got 0\.\.20"),
    "negative": (with_coordinate(0, -5), r"COO .* 0\.\.29, got -5"),
    "float": (with_coordinate(0, 1.5), "COO .* integers, got 180 of float64"),
    "block": (with_block(10**6), "BSR"),
    "list": (with_list(), "LIL .* as many values as column indices"),
}


@pytest.mark.parametrize("name", BAD)
def test_places_out_of_range_are_refused_before_they_are_followed(name: str) -> None:
    X, message = BAD[name]
    for fit in (
        lambda: ss.svd(X, 2, rng=0),
        lambda: ss.PCA(2, missing="mean").fit(X),
        lambda: ss.suggest_k(X, method="parallel", rng=0),
    ):
        with pytest.raises(ValueError, match=f"corrupt {message}"):
            fit()
