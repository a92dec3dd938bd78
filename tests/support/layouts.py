"""Arrays as they may lie in memory."""

from typing import Any

import numpy as np

from tests.support.matrices import Array

LAYOUTS: dict[str, Any] = {
    "rows": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "every other row": lambda D: np.repeat(D, 2, 0)[::2],
    "some columns": lambda D: np.hstack([D, D])[:, : D.shape[1]],
    "backwards": lambda D: D[::-1, ::-1].copy()[::-1, ::-1],
    "rows backwards": lambda D: D[::-1].copy()[::-1],
    "records": lambda D: records(D),
    "big-endian": lambda D: D.astype(D.dtype.newbyteorder(">")),
    "read-only": lambda D: np.broadcast_to(D, D.shape),
}


def records(V: Array) -> Array:
    """V inside records, between whose rows lies a number of bytes that no double divides."""
    table = np.zeros(len(V), [("V", V.dtype, V.shape[1:]), ("flag", "i1")])
    table["V"] = V
    return table["V"]
