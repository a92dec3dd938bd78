"""What `shiftsvd info` says of products on a card: whose they are, and whether two runs gave the same bits."""

from typing import Any

import numpy as np
from scipy.sparse import random_array

from shiftsvd.backends import as_operator
from shiftsvd.backends.device.moving import moved

# A sparse matrix that takes a card a moment, and a panel as solvers multiply.
SHAPE, DENSITY, WIDTH = (20_000, 1_000), 0.05, 16


def products(device: str) -> str:
    X: Any = random_array(SHAPE, density=DENSITY, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    try:
        return said(moved(as_operator(X), device))
    except RuntimeError as error:
        return "none: " + str(error).partition("\n")[0]


def said(A: Any) -> str:
    if A._own is not None:
        return "ours, meant to have the same bits on every card"
    V = np.random.default_rng(0).standard_normal((A.shape[1], WIDTH))
    same = all(np.array_equal(A.gram(V), A.gram(V)) for V in (V, V.astype(np.float32)))
    return f"those of the library, which gave {'the same' if same else 'other'} bits when they were repeated"
