"""Functions of fields in other units: the same results in these units, or an error that names the range."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shiftsvd.xarray import bootstrap, correlation, coupled, extended, pca
from tests.support.fields import monthly

xarray = pytest.importorskip("xarray")

POWERS = (-480, -330, 330, 480)  # of two: about 1e-144 to 1e144


def found(call: Callable[[Any], Any], power: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return call(monthly() * 2.0**power)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("center", [True, False])
def test_sequences_scale_with_the_field(power: int, center: bool) -> None:
    def call(da: Any) -> Any:
        return extended(da, 3, lags=4, center=center, rng=0)

    modes, usual = found(call, power), found(call, 0)
    for name, times in {"components": 0, "explained_variance_ratio": 0, "singular_values": 1, "scores": 1}.items():
        np.testing.assert_allclose(modes[name] * 2.0 ** (-power * times), usual[name], rtol=1e-6, atol=1e-9)
    if center:
        np.testing.assert_allclose(modes.score_means * 2.0**-power, usual.score_means, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("power", POWERS)
def test_pairs_whose_squared_covariances_are_no_numbers_are_refused(power: int) -> None:
    def pairs(da: Any) -> Any:
        return coupled(da, da.rename(lat="y"), 2, rng=0)

    with pytest.raises(ValueError, match=r"singular values of X\^H Y must be between .* Change the units"):
        found(pairs, power)


@pytest.mark.parametrize("power", POWERS)
def test_standard_errors_of_a_bootstrap_scale_with_the_field(power: int) -> None:
    def call(da: Any) -> Any:
        return bootstrap(pca(da, 3, rng=0), da, 20, rng=0)

    errors, usual = (np.ldexp(found(call, e).standard_error, -2 * e) for e in (power, 0))
    np.testing.assert_allclose(errors, usual, rtol=1e-6)


@pytest.mark.parametrize("power", POWERS)
def test_correlations_have_no_units(power: int) -> None:
    def call(da: Any) -> Any:
        return correlation(da, da[:, 4, 5])

    for name, values in found(call, 0).items():
        np.testing.assert_array_equal(found(call, power)[name], values)


@pytest.mark.parametrize("times", [1e-170, 1e160])
def test_correlations_of_fields_whose_squares_are_no_numbers_are_refused(times: float) -> None:
    with pytest.raises(ValueError, match=r"values of da must be between .* Change the units"):
        correlation(monthly() * times, monthly()[:, 4, 5])
