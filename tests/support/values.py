"""Counts, and what honest work makes of them; logarithms of counts, and of other abundances."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array


def counted(rng: Any, m: int = 120, n: int = 300, mean: float = 0.6) -> Any:
    """Counts of cells: overdispersed, of depths that vary threefold, mostly 0."""
    depth, rate = rng.gamma(4.0, 0.25, (m, 1)), rng.gamma(0.5, 2.0, n) * mean
    return rng.poisson(depth * rate * rng.gamma(2.0, 0.5, (m, n))).astype(np.float64)


def bulk(rng: Any, m: int = 24, n: int = 400) -> Any:
    """Estimated abundances of bulk samples: fractions over six orders of magnitude, few zeros."""
    X = rng.lognormal(3.0, 2.0, n) * rng.lognormal(0.0, 0.4, (m, n))
    return np.where(X > 0.5, X, 0)


def per(X: Any, total: float) -> Any:
    return X * (total / np.maximum(X.sum(axis=1, keepdims=True), 1e-12))


def corrected(rng: Any, X: Any) -> Any:
    """Less a part of the ambient profile of each gene, as SoupX leaves it."""
    return np.maximum(X - rng.uniform(0.02, 0.3, (len(X), 1)) * X.mean(axis=0) - 0.1 * rng.random(X.shape) * X, 0)


def most_variable(X: Any, n: int = 60) -> Any:
    return X[:, np.sort(np.argsort(-X.var(axis=0))[:n])]


Made = Callable[[Any], Any]
LOGARITHMS: dict[str, Made] = {
    "of shares": lambda r: np.log1p(per(counted(r), 1e4)),
    "of shares, single precision": lambda r: np.log1p(per(counted(r), 1e4)).astype(np.float32),
    "of shares, CSR": lambda r: csr_array(np.log1p(per(counted(r), 1e4))),
    "of shares, CSC": lambda r: csc_array(np.log1p(per(counted(r), 1e4))),
    "of shares, wide": lambda r: np.log1p(per(counted(r, 40, 900), 1e4)),
    "of shares, with three digits": lambda r: np.log1p(per(counted(r), 1e4)).round(3),
    "of shares, of some genes": lambda r: most_variable(np.log1p(per(counted(r), 1e4))),
    "of shares, of some genes, CSC": lambda r: csc_array(most_variable(np.log1p(per(counted(r), 1e4)))),
    "of median depths": lambda r: np.log1p(per(counted(r), 200.0)),
    "of counts": lambda r: np.log1p(counted(r)),
    "of base 2 of counts": lambda r: np.log2(1 + counted(r, mean=2.0)),
    "of base 2 of size factors": lambda r: np.log2(1 + counted(r) / r.uniform(0.3, 3.0, (120, 1))),
    "of base 10 of millions": lambda r: np.log10(1 + per(counted(r), 1e6)),
    "of corrected counts": lambda r: np.log1p(per(corrected(r, counted(r)), 1e4)),
    "of base 2 of bulk": lambda r: np.log2(1 + per(bulk(r), 1e6)),
    "of base 2 of bulk, of some genes": lambda r: np.log2(1 + per(bulk(r), 1e6))[:, 100:300],
    "of intensities": lambda r: r.uniform(4.0, 13.0, 300) + r.normal(0.0, 0.4, (40, 300)),
    "of few cells": lambda r: np.log1p(per(counted(r), 1e4))[:3],
}
HONEST: dict[str, Made] = {
    "counts": counted,
    "counts, single precision": lambda r: counted(r).astype(np.float32),
    "counts, whole numbers": lambda r: counted(r).astype(np.int32),
    "counts, CSR": lambda r: csr_array(counted(r)),
    "counts, CSC": lambda r: csc_array(counted(r)),
    "counts, wide": lambda r: counted(r, 40, 900),
    "few counts": lambda r: counted(r, mean=0.05),
    "many counts": lambda r: counted(r, mean=50.0),
    "counts of some genes": lambda r: most_variable(counted(r)),
    "Poisson counts": lambda r: r.poisson(3.0, (100, 40)).astype(float),
    "counts below 20": lambda r: np.minimum(counted(r), 19),
    "corrected counts": lambda r: corrected(r, counted(r)),
    "corrected counts, CSC": lambda r: csc_array(corrected(r, counted(r))),
    "corrected counts of some genes": lambda r: most_variable(corrected(r, counted(r))),
    "corrected Poisson counts": lambda r: r.poisson(3.0, (100, 40)) * r.uniform(0.7, 1.0, (100, 40)),
    "counts, a share of each cell": lambda r: counted(r) * r.uniform(0.7, 1.0, (120, 1)),
    "counts, of which few are shared": lambda r: (
        counted(r) + np.where(r.random((120, 300)) < 0.02, r.random((120, 300)), 0)
    ),
    "counts and a half": lambda r: counted(r, mean=0.2) + 0.5,
    "halves of counts": lambda r: counted(r) / 2,
    "expected counts of bulk": bulk,
    "parts per million": lambda r: per(bulk(r), 1e6),
    "shares of ten thousand": lambda r: per(counted(r), 1e4),
    "shares of median depths": lambda r: per(counted(r), 200.0),
    "shares": lambda r: per(counted(r), 1.0),
    "percentages of deep cells": lambda r: per(counted(r, mean=80.0), 100.0),
    "thousandths of deep cells": lambda r: counted(r, mean=400.0) / r.uniform(900.0, 1100.0, (120, 1)),
    "percentages of twelve oxides": lambda r: per(r.lognormal(0.0, 1.0, (60, 12)), 100.0),
    "percentages of many taxa": lambda r: per(r.lognormal(0.0, 1.5, (60, 200)), 100.0),
    "flags": lambda r: (r.random((100, 60)) < 0.2).astype(float),
    "one row": lambda r: counted(r)[:1],
    "one row of corrected counts": lambda r: corrected(r, counted(r))[:1],
    "nothing": lambda r: np.zeros((30, 20)),
}
