"""Scales beyond those that are promised: refused in one line by whatever takes no power of two out of its data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.numerics.powers import check_size

rng = np.random.default_rng(0)
X = rng.poisson(2.0, (40, 8)) + rng.gamma(2, 1, (40, 8))
C = rng.standard_normal((40, 2))
CA = ss.CorrespondenceAnalysis(3, random_state=0)
FITTED = ss.PCA(3, random_state=0).fit(X)
F = ss.svd(X, 3, rng=0)

REFUSED: dict[str, Callable[[Any, float], Any]] = {
    "rotate": lambda _, s: ss.rotate(F.Vh.T, s * F.S),
    "promax": lambda _, s: ss.rotate(F.Vh.T, s * F.S, "promax"),
    "covariates": lambda kind, s: ss.svd(kind(X), 3, shift=ss.Covariates(s * C), rng=0),
    "one covariate": lambda kind, s: ss.svd(kind(X), 3, shift=ss.Covariates(C * [1, s]), rng=0),
    "correspondence analysis": lambda kind, s: CA.fit(kind(s * X)),
    "rows of a table": lambda kind, s: ss.CorrespondenceAnalysis(3).fit(X).row_cosine_similarities(kind(s * X)),
    "columns of a table": lambda kind, s: ss.CorrespondenceAnalysis(3).fit(X).column_coordinates(kind(s * X)),
    "parallel": lambda kind, s: ss.suggest_k(kind(s * X), "parallel", max_k=3, rng=0),
    "cv": lambda kind, s: ss.suggest_k(kind(s * X), "cv", max_k=3, rng=0),
    "score": lambda kind, s: ss.PCA(3, random_state=0).fit(kind(s * X)).score(kind(s * X)),
}


@pytest.mark.filterwarnings("ignore:Some variances are outside the range")
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("name", REFUSED)
def test_scales_that_are_not_promised_are_refused(name: str, kind: Any, scale: float) -> None:
    with pytest.raises(ValueError, match=r"range of (numbers|float64)"):
        REFUSED[name](kind, scale)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_other_rows_and_products_beyond_the_range_are_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="range of float64"):
        FITTED.score(kind(1e160 * X))
    with pytest.raises(ValueError, match="outside the range of float64"), np.errstate(all="ignore"):
        ss.svd(ss.cross(kind(1e160 * X), kind(1e160 * X), shift="mean"), 2, rng=0)


@pytest.mark.parametrize("scale", [1e-50, 1e50])
@pytest.mark.parametrize("name", ["covariates", "rotate"])
def test_scales_within_the_range_change_nothing(name: str, scale: float) -> None:
    one, other = (REFUSED[name](np.asarray, s) for s in (1.0, scale))
    np.testing.assert_allclose(*(getattr(G, "components", getattr(G, "Vh", None)) for G in (one, other)), rtol=1e-9)


def test_zeros_are_of_any_size() -> None:
    check_size("numbers", 0.0)
    for size in (np.inf, np.nan, 2.0**201, 2.0**-201):
        with pytest.raises(ValueError, match="numbers must be between"):
            check_size("numbers", size)
