"""Errors of variances and p-values: the formulas, the coverage of red noise, and the bootstrap."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from shiftsvd.xarray import bootstrap, correlation, north, pca, rotate
from shiftsvd.xarray.sampling import p_values, unbiased_autocorrelation, variance_distribution
from tests.support.fields import monthly, red, with_gaps

xarray = pytest.importorskip("xarray")


def red_field(seed: int, n: int = 150, r: float = 0.7, cells: int = 12) -> tuple[Any, Any]:
    """A field of three red patterns and a little white noise, and their variances."""
    rng = np.random.default_rng(seed)
    patterns = np.linalg.qr(np.random.default_rng(99).standard_normal((cells, 3)))[0].T
    variances = np.array([64.0, 16.0, 4.0])
    values = red((n, 3), r, rng) * np.sqrt(variances) @ patterns + 0.05 * rng.standard_normal((n, cells))
    return xarray.DataArray(values, dims=("time", "cell")), variances + 0.05**2


def test_errors_are_those_of_the_rule_of_thumb() -> None:
    da, _ = red_field(0)
    eofs = pca(da, 3)
    bars = north(eofs)
    Z = eofs.scores.values - eofs.scores.values.mean(axis=1, keepdims=True)
    r = unbiased_autocorrelation((Z[:, 1:] * Z[:, :-1]).mean(axis=1) / (Z**2).mean(axis=1), 150, np.arange(3))
    np.testing.assert_allclose(bars.autocorrelation, r)
    np.testing.assert_allclose(bars.effective_size, 150 * (1 - r**2) / (1 + r**2))
    np.testing.assert_allclose(bars.standard_error, eofs.explained_variance * np.sqrt(2 / bars.effective_size))
    np.testing.assert_allclose(bars.nominal_error, eofs.explained_variance * np.sqrt(2 / 150))
    assert bars.separated.values.tolist() == [True, True, True]
    close = xarray.DataArray(np.random.default_rng(0).standard_normal((100, 20)), dims=("time", "cell"))
    assert not north(pca(close, 5)).separated.any()
    np.testing.assert_allclose(north(eofs.sel(mode=2)).standard_error, bars.standard_error[1:2])
    with pytest.raises(ValueError, match="variances of rotated modes are not eigenvalues"):
        north(rotate(eofs))
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 95"):
        north(eofs, level=95)


@pytest.mark.parametrize("solver", ["exact", "gram", "randomized"])
def test_modes_are_separated_from_known_neighbours_only(solver: Any) -> None:
    """The fifth and the sixth variance are nearly equal."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((n, 12)))[0] for n in (200, 30))
    S = np.array([64, 32, 16, 8, 4, 3.99, 3.2, 3, 3, 3, 3, 3])
    da = xarray.DataArray((U - U.mean(axis=0)) * S @ V.T, dims=("time", "cell"))
    six = pca(da, 6, solver=solver, rng=0)
    assert north(pca(da, 5, solver=solver, rng=0)).separated.values.tolist() == [True] * 4 + [False]
    assert north(six).separated.values.tolist() == [True] * 4 + [False] * 2
    # A bound of the next value may show that the last mode has no close neighbour, and so may a small rest.
    assert north(pca(da, 4, solver=solver, rng=0)).separated[3] == (solver != "randomized")
    assert north(pca(da, 2, solver=solver, rng=0)).separated.all()
    assert north(pca(da[:, :3], 3, solver=solver, rng=0)).separated[2]  # nothing is left
    cases = (([1, 2], [True, True]), ([1, 3], [False, False]), ([2, 3, 4], [False, True, False]), (3, [False]))
    for modes, want in cases:
        assert north(six.sel(mode=modes)).separated.values.tolist() == want
    assert not north(six.sel(mode=slice(5))).separated[4]  # the bound of the fit is one of the seventh value


@pytest.mark.parametrize("r", [0.0, 0.8, -0.5])
def test_the_variance_of_a_red_series_has_the_moments_of_its_quadratic_form(r: float) -> None:
    n = 40
    R = r ** abs(np.subtract.outer(np.arange(n), np.arange(n)))
    CR = (np.eye(n) - 1 / n) @ R
    share, freedom = variance_distribution(n, r)
    assert share == pytest.approx(np.trace(CR) / (n - 1))
    assert freedom == pytest.approx(np.trace(CR) ** 2 / np.trace(CR @ CR))
    if r == 0:
        assert (share, freedom) == pytest.approx((1, n - 1))


def test_few_independent_samples_are_told_as_they_are() -> None:
    """Of 80 fields of 100 samples that are worth 20: more than nine in ten known intervals, and not eight and a half
    bars."""
    held, known, r = np.zeros(2), 0.0, np.zeros(3)
    for seed in range(80):
        da, variances = red_field(seed, 100, 0.8)
        with warnings.catch_warnings(action="ignore"):  # of intervals that are not known
            bars = north(pca(da, 3, solver="exact"))
        known += float(bars.lower.notnull().mean()) / 80
        within = (bars.lower < variances) & (variances < bars.upper)
        off = abs(bars.explained_variance - variances)
        held += [float(within.mean()) / 80, float((off < 1.96 * bars.standard_error).mean()) / 80]
        r += bars.autocorrelation.values / 80
    assert known > 0.9
    assert held[0] > 0.9 * known
    assert held[1] < 0.85
    np.testing.assert_allclose(r, 0.8, atol=0.03)  # 0.76 to 0.72 as they are


def test_series_that_do_not_determine_their_errors_have_none() -> None:
    """45 samples with r = 0.93 are worth 3."""
    values = red_field(0, 45, 0.93)[0]
    with pytest.warns(UserWarning, match=r"The scores of 2 of 3 modes \(1, 2\) are worth fewer than 10 indep") as told:
        bars = north(pca(values, 3))
    assert len(told) == 1
    assert np.isnan(bars.lower[:2]).all()
    assert np.isnan(bars.upper[:2]).all()
    assert not bars.separated[:2].any()
    trend = xarray.DataArray(np.linspace(0, 9, 2500)[:, None] * np.ones(4), dims=("time", "cell"))
    with pytest.warns(UserWarning, match=r"or have an autocorrelation of at least 0\.99"):
        assert np.isnan(north(pca(trend, 1)).upper).all()
    long = north(pca(red_field(0, 240, 0.7)[0], 3), level=0.01)
    assert np.all(long.lower <= long.explained_variance)


def test_red_scores_need_the_number_of_independent_samples() -> None:
    """Of 60 fields: nine in ten bars of two standard errors hold the variance with it, and not eight without."""
    held = {"standard_error": 0.0, "nominal_error": 0.0}
    for seed in range(60):
        da, variances = red_field(seed)
        bars = north(pca(da, 3, solver="exact"))
        for name in held:
            held[name] += float((abs(bars.explained_variance - variances) < 1.96 * bars[name]).mean()) / 60
    assert held["standard_error"] > 0.85
    assert held["nominal_error"] < 0.8


def test_p_values_of_independent_pairs_are_those_of_scipy() -> None:
    for n in (5, 30):
        x, z = np.random.default_rng(n).standard_normal((2, n))
        want = stats.pearsonr(x, z)
        np.testing.assert_allclose(p_values(np.array(want.statistic), np.array(n)), want.pvalue)


def test_p_values_of_red_series_are_as_often_small_as_they_say() -> None:
    effective, nominal = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        da = xarray.DataArray(red((100, 40), 0.7, rng), dims=("time", "cell"))
        maps = correlation(da, xarray.DataArray(red((100,), 0.7, rng), dims="time"))
        effective.append(float((maps.p_value < 0.05).mean()))
        t = abs(maps.correlation) * np.sqrt(98 / (1 - maps.correlation**2))
        nominal.append(float((2 * stats.t.sf(t, 98) < 0.05).mean()))
    assert 0.02 < np.mean(effective) < 0.08
    assert np.mean(nominal) > 0.15


@pytest.mark.parametrize("chunked", [False, True])
def test_correlations_are_those_of_scipy_where_series_are_white(chunked: bool) -> None:
    rng = np.random.default_rng(0)
    da = xarray.DataArray(rng.standard_normal((80, 3, 4)), dims=("time", "lat", "lon"), coords={"time": np.arange(80)})
    series = (da[:, 0, 0] + rng.standard_normal(80)).expand_dims(mode=[1, 2]) * xarray.DataArray([1, -1], dims="mode")
    if chunked:
        pytest.importorskip("dask.array")
        da = da.chunk({"time": 30, "lat": 2})
    maps = correlation(da, series[:, ::-1])
    want = stats.pearsonr(da.values[:, 1, 2], series[0].values)
    assert maps.correlation.dims == ("mode", "lat", "lon")
    np.testing.assert_allclose(maps.correlation[:, 1, 2], [want.statistic, -want.statistic])
    np.testing.assert_allclose(maps.p_value[:, 1, 2], want.pvalue, rtol=0.1)
    assert float(maps.p_value[0, 0, 0]) < 1e-6


def test_cells_are_correlated_over_what_they_have() -> None:
    da = with_gaps(monthly(), 0.3)
    series = monthly(3)[:, 5, 5].drop_vars(("lat", "lon"))
    maps = correlation(da, series.where(series.time.dt.month != 4))
    x, z = da.values[:, 4, 7], series.values
    here = ~np.isnan(x) & (series.time.dt.month.values != 4)
    np.testing.assert_allclose(maps.correlation[4, 7], stats.pearsonr(x[here], z[here]).statistic)
    np.testing.assert_array_equal(np.isnan(maps.correlation), np.isnan(da).all("time"))
    with pytest.raises(ValueError, match="series must have dimensions of da"):
        correlation(da, series.rename(time="year"))


def test_samples_follow_each_other_within_members() -> None:
    members = xarray.concat([red_field(seed)[0] for seed in range(3)], "member").transpose("time", "member", "cell")
    eofs = pca(members, 3, dim=("time", "member"))
    alone = north(pca(red_field(1)[0], 3))
    assert float(abs(north(eofs).autocorrelation - alone.autocorrelation).max()) < 0.2
    assert float(abs(north(eofs, along="member").autocorrelation).max()) < 0.2
    with pytest.raises(ValueError, match="along must be one of the dimensions of the samples"):
        north(eofs, along="cell")


@pytest.mark.parametrize("chunked", [False, True])
def test_drawn_modes_are_those_of_the_drawn_field(chunked: bool) -> None:
    if chunked:
        pytest.importorskip("dask.array")
    da, _ = red_field(2, n=60)
    eofs = pca(da, 2, tol=1e-10)
    found = bootstrap(eofs, da.chunk({"time": 25}) if chunked else da, 3, block=7, level=0.8, rng=5)
    starts = np.random.default_rng(5).integers(0, 54, (3, 9))
    modes = []
    for sample in range(3):
        rows = (starts[sample][:, None] + np.arange(7)).ravel()[:60]
        drawn = pca(da[rows], 2, tol=1e-10)
        np.testing.assert_allclose(found.explained_variance[sample], drawn.explained_variance, rtol=1e-6)
        cosines = (drawn.components * eofs.components).sum("cell")
        np.testing.assert_allclose(found.congruence[sample], abs(cosines), rtol=1e-6)
        modes.append(drawn.components * np.sign(cosines))
    errors = xarray.concat(modes, "sample").std("sample", ddof=1)
    np.testing.assert_allclose(found.component_error, errors, atol=1e-6)
    variances = found.explained_variance.values
    np.testing.assert_allclose(found.standard_error, variances.std(axis=0, ddof=1))
    np.testing.assert_allclose([found.lower, found.upper], np.quantile(variances, [0.1, 0.9], axis=0))


def test_the_bootstrap_agrees_with_the_rule_of_thumb() -> None:
    da, _ = red_field(3, n=300)
    eofs = pca(da, 3)
    drawn, bars = bootstrap(eofs, da, 100, rng=0), north(eofs)
    assert drawn.attrs["block"] > 5
    ratio = drawn.standard_error / bars.standard_error
    assert 0.5 < float(ratio.min()) < float(ratio.max()) < 1.6
    assert bool((drawn.congruence.median("sample") > 0.9).all())
    months = pca(monthly(season=5), 2, groups="time.month", weights="coslat")
    errors = bootstrap(months, monthly(season=5), 20, rng=0).component_error
    np.testing.assert_array_equal(np.isnan(errors), np.isnan(months.components))
    for settings, match in (
        ({"n_samples": 1}, "n_samples must be an integer of at least 2"),
        ({"block": 0}, "block must be a positive integer"),
        ({"block": 301}, "block must be at most 300, the number of samples along time"),
        ({"level": 95}, r"level must be in \(0, 1\), got 95"),
        ({"memory_limit": 1000}, "products of 300 samples needs about"),
    ):
        with pytest.raises(ValueError, match=match):
            bootstrap(eofs, da, **settings)


@pytest.mark.parametrize("chunked", [False, True])
def test_gaps_do_not_shrink_the_variances_of_drawn_fields(chunked: bool) -> None:
    """Of values that are missing at random, and of samples without any value."""
    da, _ = red_field(4, n=200, r=0.2)
    complete = bootstrap(pca(da, 3), da, 60, rng=0)
    for gaps, missing in ((with_gaps(da, 0.3), "em"), (da.where(np.arange(200)[:, None] % 10 > 2), "error")):
        if chunked:
            pytest.importorskip("dask.array")
            gaps = gaps.chunk({"time": 50})
        with warnings.catch_warnings(action="ignore"):
            eofs = pca(gaps, 3, missing=missing, rng=0, **({"penalty": 0.1} if missing == "em" else {}))
        drawn = bootstrap(eofs, gaps, 60, block=int(complete.attrs["block"]), rng=0)
        for name in ("lower", "upper"):
            np.testing.assert_allclose(drawn[name], complete[name], rtol=0.2)
        assert np.all((drawn.lower < eofs.explained_variance) & (eofs.explained_variance < drawn.upper))


def test_north_bars_are_drawn() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    from shiftsvd.plot import north as drawn

    da, _ = red_field(0)
    eofs = pca(da, 3)
    display = drawn(north(eofs))
    np.testing.assert_allclose(display.errors / display.shares, np.sqrt(2 / north(eofs).effective_size))
    assert display.ax_.get_legend_handles_labels()[1] == ["separated from its neighbours"]
    with pytest.raises(
        ValueError, match=r"errors must be a result of shiftsvd\.xarray\.north, but it lacks standard_error"
    ):
        drawn(eofs)
    plt.close("all")


@pytest.mark.parametrize("still", [0, 60])
def test_leading_modes_of_drawn_fields_are_those_of_a_whole_decomposition(still: int, monkeypatch: Any) -> None:
    """With a field that moves only at its end, some drawn fields have fewer modes than the fit, or none."""
    values = np.random.default_rng(0).standard_normal((80, 30)) * 0.9 ** np.arange(30)
    values[:still] = 0
    da = xarray.DataArray(values, dims=("time", "cell"))
    eofs = pca(da, 3)
    drawn = bootstrap(eofs, da, 20, block=20, rng=0)
    monkeypatch.setattr("shiftsvd.xarray.sampling.LEAST_LANCZOS", 100)
    whole = bootstrap(eofs, da, 20, block=20, rng=0)
    np.testing.assert_allclose(drawn.explained_variance, whole.explained_variance, rtol=1e-9, atol=1e-12)
    if not still:
        xarray.testing.assert_allclose(drawn, whole, rtol=1e-7)
    two = da * [1, 1, *[0] * 28]
    with pytest.raises(ValueError, match="eofs must have at most 2 modes, the rank of the anomalies, got 3"):
        bootstrap(pca(two, 3), two, 5)


def test_a_dimension_with_the_name_of_the_draws_is_refused() -> None:
    da = monthly().rename(lon="sample")
    with pytest.raises(ValueError, match=r"eofs has a dimension 'sample', a name that results use\. Rename it in eofs"):
        bootstrap(pca(da, 2), da, 3, rng=0)
    assert bootstrap(pca(da.rename(sample="lon"), 2), da.rename(sample="lon"), 3, rng=0).sizes["sample"] == 3
