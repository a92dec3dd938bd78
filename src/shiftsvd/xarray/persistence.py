"""How many independent samples a series is worth whose values resemble those before them."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.numerics.moments import Vector
from shiftsvd.xarray.fields import Dims

Places = npt.NDArray[np.intp]
# No series is taken to resemble itself more than this: a trend, say, has no number of independent samples.
MOST = 0.99
# Of how many larger modes, as a share of the samples, a score is freed: with more, what is known of r would be noise.
CORRECTED = 0.1


def neighbours(da: Any, over: Dims, along: Hashable | None) -> tuple[Places, Places]:
    time = time_of(da, over, along)
    places = np.arange(int(np.prod([da.sizes[dim] for dim in over]))).reshape([da.sizes[dim] for dim in over])
    axis = over.index(time)
    n = da.sizes[time]
    return places.take(range(n - 1), axis).ravel(), places.take(range(1, n), axis).ravel()


def time_of(da: Any, over: Dims, along: Hashable | None) -> Hashable:
    if along is not None:
        if along not in over:
            raise ValueError(f"along must be a dimension of the samples, {over}, got {along!r}")
        return along
    dated = [dim for dim in over if dim in da.coords and da[dim].dtype.kind in "MO"]
    named = [dim for dim in over if str(dim).lower() == "time"]
    return (dated or named or list(over[-1:]))[0]


def unbiased(r: Any, n: Any, larger: Any = 0) -> Vector:
    """Lag-one autocorrelations without the bias of series of n values about their own mean (Marriott & Pope 1954).

    Scores are also made uncorrelated with those of so many `larger` modes. What goes with each such series, if it is as
    red, takes 2 r / n more: ``(n - 3 - 2 larger) r / n - 1 / n`` is left.
    """
    taken = 3 + 2 * np.minimum(larger, np.asarray(n) * CORRECTED)
    return np.asarray(np.clip((n * r + 1) / np.maximum(n - taken, 1), -MOST, MOST))


def of_variance(n: int, r: float) -> tuple[float, float]:
    """(expected share, degrees of freedom) of the variance of a red series of n values about their own mean.

    Of ``x^T C x / (n - 1)``, where C centres and x has the correlations ``R = [r^|i - j|]``: ``tr(CR) / (n - 1)``, and
    ``tr(CR)^2 / tr(CRCR)`` as of the chi-square distribution with the same mean and variance (Satterthwaite 1946).
    """
    k, i = np.arange(1, n), np.arange(n)
    rows = (2 - r ** (i + 1) - r ** (n - i)) / (1 - r) - 1  # R 1
    of_mean = float(rows.sum()) / n
    squares = n + 2 * float(np.sum((n - k) * r ** (2 * k)))
    left = n - of_mean
    return left / (n - 1), left**2 / (squares - 2 / n * float(np.sum(rows**2)) + of_mean**2)


def effective_size(n: Any, product: Any) -> Vector:
    """Independent pairs that n pairs of red series are worth; `product` is that of their autocorrelations.

    ``n (1 - r s) / (1 + r s)`` (Bartlett 1935; Bretherton et al. 1999): for a correlation with r and s of the two
    series, for a variance with both of the same. Never more than n.
    """
    return np.asarray(np.clip(n * (1 - product) / (1 + product), 1, n))
