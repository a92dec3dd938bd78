"""Calls of scanpy that a type checker must let pass, and that it must name: see tests/house/typed_calls.py."""

import shiftsvd as ss


def calls(X: object) -> None:
    ss.scanpy.pca(X, 5, solver="gram")
    ss.scanpy.pca(X, 5, solver="grams")  # wrong
