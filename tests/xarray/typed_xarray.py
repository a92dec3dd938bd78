"""Calls of xarray that a type checker must let pass, and that it must name: see tests/house/typed_calls.py."""

from typing import Any

import shiftsvd as ss


def calls(X: Any) -> None:
    ss.xarray.pca(X, 5, solver="lanzos")  # wrong
