"""Where data come in, in the containers that they come in, for the tests of what is refused there."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

import shiftsvd as ss

X = np.random.default_rng(0).standard_normal((10, 6))
X.flags.writeable = False

DOORS = {
    "PCA": lambda A, **settings: ss.PCA(2, **settings).fit(A),
    "svd": lambda A, **settings: ss.svd(A, 2, **settings),
    "PCA with weights": lambda A, **settings: ss.PCA(2, **settings).fit(A, sample_weight=np.ones(A.shape[0])),
    "transform": lambda A, **settings: ss.PCA(2, **settings).fit(X).transform(A),
    "score": lambda A, **settings: ss.PCA(2, **settings).fit(X).score(A),
}
OURS = {name: DOORS[name] for name in ("PCA", "svd")}
CONTAINERS = {
    "dense": np.array,
    "fortran": np.asfortranarray,
    "float32": lambda A: A.astype(np.float32),
    "wide": lambda A: np.hstack([A, np.zeros((10, 50))]),
    "csr": csr_array,
    "csr_matrix": csr_matrix,
    "csc": csc_array,
    "coo": coo_array,
    "pandas": pd.DataFrame,
    "polars": lambda A: pl.DataFrame(A, schema=[f"c{j}" for j in range(A.shape[1])]),
    "pandas sparse": lambda A: pd.DataFrame.sparse.from_spmatrix(csr_array(A)),
}


def refuses(message, call, error=ValueError):
    """The call raises, and its message holds these very words."""
    with pytest.raises(error, match=re.escape(message)):
        call()
