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


def neighbours(da: Any, over: Dims, along: Hashable | None) -> tuple[Places, Places]:
    """Places of samples, in the order of the matrix, and of those that come next along the time."""
    time = time_of(da, over, along)
    places = np.arange(int(np.prod([da.sizes[dim] for dim in over]))).reshape([da.sizes[dim] for dim in over])
    axis = over.index(time)
    n = da.sizes[time]
    return places.take(range(n - 1), axis).ravel(), places.take(range(1, n), axis).ravel()


def time_of(da: Any, over: Dims, along: Hashable | None) -> Hashable:
    """Along which samples follow each other: as it is said, or what has times, or is called so, or the last."""
    if along is not None:
        if along not in over:
            raise ValueError(f"along must be a dimension of the samples, {over}, got {along!r}")
        return along
    dated = [dim for dim in over if dim in da.coords and da[dim].dtype.kind in "MO"]
    named = [dim for dim in over if str(dim).lower() == "time"]
    return (dated or named or list(over[-1:]))[0]


def unbiased(r: Any, n: Any) -> Vector:
    """Lag-one autocorrelations without the bias of series of n values about their own mean (Marriott & Pope 1954)."""
    return np.asarray(np.clip((n * r + 1) / np.maximum(n - 3, 1), -MOST, MOST))


def effective_size(n: Any, product: Any) -> Vector:
    """Independent pairs that n pairs of red series are worth; `product` is that of their autocorrelations.

    ``n (1 - r s) / (1 + r s)`` (Bartlett 1935; Bretherton et al. 1999): for a correlation with r and s of the two
    series, for a variance with both of the same. Never more than n.
    """
    return np.asarray(np.clip(n * (1 - product) / (1 + product), 1, n))
