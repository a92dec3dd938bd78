"""Sampling errors: North's rule, independent samples, correlation maps, block bootstrap."""

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from xarray import DataArray

from shiftsvd.extend.fits import integer
from shiftsvd.extend.operators import generator
from shiftsvd.extend.running import affordable, few, notice, refuse
from shiftsvd.xarray import fields
from shiftsvd.xarray.anomalies import check_size
from shiftsvd.xarray.datasets import Dataset, check_variances, with_modes
from shiftsvd.xarray.fields import Dims, Panel, Places, Vector
from shiftsvd.xarray.projection import anomalies_of, completed, in_cells
from shiftsvd.xarray.regressors import aligned

# Upper limit of an autocorrelation: a trend, for example, has no effective number of samples.
MAX_AUTOCORRELATION: Final = 0.99
# Effective number of samples below which a series does not determine its autocorrelation, and so no interval. Of 150
# fields of 45 samples with r = 0.93 (effective number 3), 59 % of the intervals would hold the variance.
LEAST_SIZE: Final = 10
# Upper limit of the number of larger modes in the bias of an autocorrelation, as a share of the samples: with more
# modes the corrected autocorrelation would be noise.
MAX_LARGER_MODES: Final = 0.1
# Multiple of the number of modes from which on the Lanczos method of ARPACK is faster than a full decomposition.
LEAST_LANCZOS: Final = 5


def north(eofs: Any, *, along: Hashable | None = None, level: float = 0.95) -> Any:
    """Estimate sampling errors of the variances of modes, and find modes that are separated from their neighbours.

    Parameters
    ----------
    eofs : xarray.Dataset
        The result of `pca`, or some of its modes.
    along : hashable, optional
        The dimension of time among those of the samples. Default: the dimension with dates, else the one named time,
        else the last.
    level : float in (0, 1)
        Probability that an interval holds the variance.

    Returns
    -------
    xarray.Dataset
        Along ``mode``: ``explained_variance`` and its ratio; ``effective_size``, the effective number of samples of the
        scores; ``standard_error = explained_variance * sqrt(2 / effective_size)``; ``nominal_error``, the error of
        independent samples; ``autocorrelation`` of the scores at lag one; ``separated``: whether the variances of the
        next modes, above and below, differ from that of the mode by more than its standard error. Modes that are not
        separated may be mixtures of their neighbours. The last mode is separated only if a bound of the variances that
        were not computed shows it: ``missed_below`` of the fit (``certify=True``), or the rest of the total variance.
        Compute one mode more than you interpret. If `eofs` lacks modes between or before its own, their neighbours are
        not separated. ``lower`` and ``upper``: an interval that holds the variance of the mode in an infinitely long
        series with the probability `level`, also with few independent samples. With fewer than 10, or an
        autocorrelation of 0.99 or more, the interval is unknown: bounds are NaN, the mode is not separated, and a
        notice counts such modes.

    Raises
    ------
    ValueError
        If modes are rotated (their variances are not eigenvalues), or the level is not in (0, 1).

    See Also
    --------
    plot.north : Plot the bars.
    xarray.bootstrap : Errors of variances and maps without a model of the noise.

    Notes
    -----
    North et al. (1982): the standard error of an eigenvalue of n independent normal samples is ``sqrt(2 / n)`` times
    the eigenvalue. For the variance of red scores with the autocorrelation r at lag one, the effective number of
    samples is ``n (1 - r^2) / (1 + r^2)``. The bias of r is removed: ``(n r + 1) / (n - 3 - 2 j)`` for a mode with j
    larger ones. Samples are assumed to be equally spaced in time; no pass.

    The rule holds for many independent samples. With few, the distribution of variances is skewed, and the subtracted
    mean removes a part of them. The intervals are those of a chi-square distribution with the mean and the variance of
    the variance of a red series about its mean. In 500 fields of 100 samples with r = 0.8, whose effective number is
    20, the known ones held the variances of three modes in 96.5, 91.6 and 87.5 %, bars of 1.96 standard errors in 86,
    79 and 76 %. With r = 0.93 and 45 samples most intervals are unknown; the others, where r seems small by chance, are
    too narrow. Modes with close variances repel each other; neither method accounts for this.

    References
    ----------
    North, Bell, Cahalan & Moeng (1982), Sampling errors in the estimation of empirical orthogonal functions; Bretherton
    et al. (1999), The effective number of spatial degrees of freedom of a time-varying field; Marriott & Pope (1954),
    Bias in the estimation of autocorrelations; Satterthwaite (1946), An approximate distribution of estimates of
    variance components.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> values = np.random.default_rng(0).standard_normal((200, 4, 5)) * [9, 5, 3, 1, 1]
    >>> bars = sx.north(sx.pca(xarray.DataArray(values, dims=("time", "lat", "lon")), 3))
    >>> bars.separated.values.tolist(), bool(np.all(bars.effective_size > 100))
    ([False, True, False], True)
    """
    _check_unrotated(eofs, "variances of rotated modes are not eigenvalues")
    _check_level(level)
    modes, (r, n) = np.atleast_1d(eofs.mode.values), _autocorrelations(eofs, along)
    variances, size = np.atleast_1d(eofs.explained_variance.values), effective_size(n, r * r)
    errors = variances * np.sqrt(2 / size)
    lower, upper = _intervals(variances, n, r, level)
    unknown = (size < LEAST_SIZE) | (np.abs(r) >= MAX_AUTOCORRELATION)
    _notice_unknown(modes[unknown], len(modes))
    found = {
        "explained_variance": variances,
        "explained_variance_ratio": np.atleast_1d(eofs.explained_variance_ratio.values),
        "standard_error": errors,
        "nominal_error": variances * np.sqrt(2 / n),
        "effective_size": size,
        "autocorrelation": r,
        "separated": _separated(modes, variances, errors, _next_variance(eofs)) & ~unknown,
        "lower": np.where(unknown, np.nan, lower),
        "upper": np.where(unknown, np.nan, upper),
    }
    return type(eofs)({name: ("mode", values) for name, values in found.items()}, coords={"mode": modes})


def _autocorrelations(eofs: Any, along: Hashable | None) -> tuple[Vector, Vector]:
    # of the scores at lag one, without bias, and the numbers of samples
    scores = with_modes(eofs.scores, "scores")
    over = tuple(dim for dim in scores.dims if dim != "mode")
    Z = np.asarray(scores.transpose("mode", *over).values, np.float64).reshape(scores.sizes["mode"], -1)
    n = np.count_nonzero(~np.isnan(Z), axis=1)
    return unbiased_autocorrelation(_lag_one(Z.T, *_neighbours(scores, over, along)), n, scores.mode.values - 1), n


def _notice_unknown(unknown: Vector, count: int) -> None:
    if len(unknown):
        notice(
            f"The scores of {len(unknown):,} of {count:,} modes ({few(unknown.tolist())}) are worth fewer than "
            f"{LEAST_SIZE} independent samples, or have an autocorrelation of at least {MAX_AUTOCORRELATION}. Their "
            "intervals are unknown (NaN), and these modes are not separated. Use a longer series, or remove its trend "
            "with covariates."
        )


def _check_unrotated(eofs: Any, why: str) -> None:
    check_variances(eofs)
    if "rotation" in eofs.attrs:
        text = f"eofs must be the unrotated modes of pca, because {why}. Pass the result of pca before rotation."
        raise ValueError(text)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise refuse("level", "be in (0, 1)", level)


def _next_variance(eofs: Any) -> float:
    # a bound of the variances after those of `eofs`, if its modes are the first ones
    variances, shares = (
        np.atleast_1d(eofs[name].values) for name in ("explained_variance", "explained_variance_ratio")
    )
    if not variances[0] > 0:
        return 0.0
    rest = variances[0] / shares[0] * max(1 - shares.sum(), 0)
    if eofs.attrs.get("n_modes") == len(variances):
        scale = np.atleast_1d(eofs.singular_values.values)[0]
        rest = min(rest, variances[0] * (eofs.attrs["missed_below"] / scale) ** 2)
    return float(rest)


def _separated(modes: Vector, variances: Vector, errors: Vector, following: float) -> Vector:
    known = dict(zip(modes.tolist(), variances, strict=True))
    if all(mode in known for mode in range(1, len(modes) + 1)):
        known[len(modes) + 1] = following
    known[0] = np.inf
    # A mode is separated only from neighbours that are known.
    gaps = [
        min(known.get(j - 1, own) - own, own - known.get(j + 1, own)) for j, own in zip(modes, variances, strict=True)
    ]
    return np.asarray(gaps) > errors


# --- red series -----------------------------------------------------------------------------------------------------


def _time_of(da: DataArray, over: Dims, along: Hashable | None) -> Hashable:
    if along is not None:
        if along not in over:
            raise refuse("along", f"be one of the dimensions of the samples, {over}", along)
        return along
    dated = [dim for dim in over if dim in da.coords and da[dim].dtype.kind in "MO"]
    named = [dim for dim in over if str(dim).lower() == "time"]
    return (dated or named or list(over[-1:]))[0]


def _positions(da: DataArray, over: Dims) -> Places:
    sizes = [da.sizes[dim] for dim in over]
    return np.arange(int(np.prod(sizes))).reshape(sizes)


def _neighbours(da: DataArray, over: Dims, along: Hashable | None) -> tuple[Places, Places]:
    time, places = _time_of(da, over, along), _positions(da, over)
    n, axis = da.sizes[time], over.index(time)
    return places.take(range(n - 1), axis).ravel(), places.take(range(1, n), axis).ravel()


def _lag_one(Z: Vector, first: Places, second: Places) -> Vector:
    off = Z - np.nanmean(Z, axis=0)
    pairs, squares = off[first] * off[second], off * off
    with np.errstate(invalid="ignore"):  # a series of one value has no variance
        return np.asarray(np.nan_to_num(_known_mean(pairs) / _known_mean(squares)))


def _known_mean(values: Vector) -> Vector:
    there = np.count_nonzero(~np.isnan(values), axis=0)
    return np.asarray(np.nansum(values, axis=0) / np.maximum(there, 1))


def unbiased_autocorrelation(r: Any, n: Any, larger: Any = 0) -> Vector:
    # Marriott & Pope (1954), for series of n values around their own mean. Scores are also uncorrelated with those of
    # larger modes, and each mode of the same autocorrelation lowers the expectation by 2 r / n. The expectation of the
    # estimate is (n - 3 - 2 larger) r / n - 1 / n.
    taken = 3 + 2 * np.minimum(larger, np.asarray(n) * MAX_LARGER_MODES)
    return np.asarray(np.clip((n * r + 1) / np.maximum(n - taken, 1), -MAX_AUTOCORRELATION, MAX_AUTOCORRELATION))


def effective_size(n: Any, rs: Any) -> Vector:
    # The effective number of independent pairs among n pairs of red series with autocorrelations r and s (Bartlett
    # 1935; Bretherton et al. 1999); for a variance r = s.
    return np.asarray(np.clip(n * (1 - rs) / (1 + rs), 1, n))


def variance_distribution(n: int, r: float) -> tuple[float, float]:
    # (expected share, degrees of freedom) of the variance x^T C x / (n - 1) of a red series x of n values, where C
    # centres and x has the correlations R = [r^|i - j|]: tr(CR) / (n - 1), and tr(CR)^2 / tr(CRCR) as of the chi-square
    # distribution with the same mean and variance (Satterthwaite 1946).
    k, i = np.arange(1, n), np.arange(n)
    rows = (2 - r ** (i + 1) - r ** (n - i)) / (1 - r) - 1  # R 1
    of_mean = float(rows.sum()) / n
    squares = n + 2 * float(np.sum((n - k) * r ** (2 * k)))
    left = n - of_mean
    return left / (n - 1), left**2 / (squares - 2 / n * float(np.sum(rows**2)) + of_mean**2)


def _intervals(variances: Vector, n: Vector, r: Vector, level: float) -> tuple[Vector, Vector]:
    from scipy.special import chdtri

    share, freedom = np.array([variance_distribution(int(m), float(own)) for m, own in zip(n, r, strict=True)]).T
    sums = variances / share * freedom
    lower, upper = (sums / chdtri(freedom, (1 + sign * level) / 2) for sign in (-1, 1))
    return np.minimum(lower, variances), upper


# --- correlation maps -----------------------------------------------------------------------------------------------


def correlation(da: Any, series: Any, *, along: Hashable | None = None) -> Any:
    """Correlate each cell of a field with series, such as scores or an index, and compute p-values.

    Parameters
    ----------
    da : xarray.DataArray
        The field. Values may be missing: each cell is correlated over its present samples.
    series : xarray.DataArray
        Series on dimensions of the samples of `da`, matched by their labels, and perhaps ``mode``: ``eofs.scores``.
    along : hashable, optional
        As in `north`.

    Returns
    -------
    xarray.Dataset
        ``correlation``, ``p_value`` and ``effective_size`` on the dimensions ``(mode, *space)``, or on the space alone.

    Raises
    ------
    ValueError
        If the series lack labels or dimensions of the samples of the field.
    TypeError
        If `da` or `series` is not a DataArray.

    See Also
    --------
    xarray.patterns : Correlations of modes with the field of the fit, without a pass.
    xarray.north : Errors of the variances.

    Notes
    -----
    Two-sided, by Student's t with ``effective_size - 2`` degrees of freedom, where two red series of n samples with the
    autocorrelations r and s at lag one are worth ``n (1 - r s) / (1 + r s)`` pairs; the bias of both is removed. Two
    reads of a Dask array. The p-value of a mode and the field of its own fit is no test: the fit maximizes the
    correlation. Many cells are many tests.

    References
    ----------
    Bretherton et al. (1999), The effective number of spatial degrees of freedom of a time-varying field; Wilks (2016),
    "The stippling shows statistically significant grid points".

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> values = np.random.default_rng(0).standard_normal((200, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> maps = sx.correlation(da, da[:, 1, 2] + 1.0)
    >>> (
    ...     float(maps.correlation[1, 2].round(6)),
    ...     bool(maps.p_value[1, 2] < 1e-9),
    ...     bool(maps.p_value.median() > 0.2),
    ... )
    (1.0, True, True)
    """
    da = fields.as_field(da)
    fields.check_labelled(series, "series")
    over = tuple(dim for dim in da.dims if dim in series.dims)
    if not over or not set(series.dims) <= {*over, "mode"}:
        raise ValueError(
            f"series must have dimensions of da, {da.dims}, and optionally mode, got dimensions {series.dims}"
        )
    space = tuple(dim for dim in da.dims if dim not in over)
    several = series if "mode" in series.dims else series.expand_dims("mode")
    columns = [aligned(da, over, several.isel(mode=j, drop=True), "series") for j in range(several.sizes["mode"])]
    found = _correlated(fields.matrix_of(da, over, space), np.column_stack(columns), _neighbours(da, over, along))
    mode = None
    if "mode" in series.dims:
        labels = series.mode.values if "mode" in series.coords else np.arange(1, len(columns) + 1)
        mode = DataArray(labels, dims="mode", name="mode")
    long_names = {"p_value": "p-value of the correlation", "effective_size": "independent pairs"}
    maps = {}
    for name, values in found.items():
        attrs = {"long_name": long_names.get(name, name), "units": "1"}
        maps[name] = fields.labelled(values if mode is not None else values[0], da, space, mode, attrs=attrs)
    return Dataset(maps)


def _correlated(X: Any, Z: Panel, pairs: tuple[Places, Places]) -> dict[str, Panel]:
    rows = np.asarray(~np.isnan(Z).any(axis=1))
    Z = np.where(rows[:, None], Z - Z[rows].mean(axis=0), 0)
    Z = np.ldexp(Z, -np.frexp(np.abs(Z).max(axis=0))[1])  # the units of the series, which cancel, with squares in range
    there = ~np.isnan(X) & rows[:, None]
    mean = fields.compute_together(
        total=("cell", np.where(there, X, 0).sum(axis=0, dtype=np.float64)),
        n=("cell", there.sum(axis=0)),
        size=("cell", np.abs(np.where(there, X, 0)).max(axis=0)),
    )
    check_size("values of da", float(mean["size"].max(initial=0)))
    count = np.maximum(mean["n"], 1)
    off = np.where(there, X - mean["total"] / count, 0)
    first, second = pairs
    sums = fields.compute_together(
        xz=(("mode", "cell"), fields.product(Z.T, off)),
        z=(("mode", "cell"), fields.product(Z.T, there)),
        zz=(("mode", "cell"), fields.product((Z * Z).T, there)),
        xx=("cell", (off * off).sum(axis=0)),
        lagged=("cell", (off[first] * off[second]).sum(axis=0)),
        pairs=("cell", (there[first] & there[second]).sum(axis=0)),
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.maximum(sums["zz"] - sums["z"] ** 2 / count, 0) * sums["xx"]
        r = np.where((mean["n"] > 2) & (squares > 0), sums["xz"] / np.sqrt(squares), np.nan).clip(-1, 1)
        own = np.nan_to_num(sums["lagged"] / np.maximum(sums["pairs"], 1) / (sums["xx"] / count))
    of_series = _lag_one(np.where(rows[:, None], Z, np.nan), first, second)
    rs = unbiased_autocorrelation(of_series, np.count_nonzero(rows))[:, None] * unbiased_autocorrelation(own, mean["n"])
    size = np.where(np.isnan(r), np.nan, effective_size(mean["n"], rs))
    return {"correlation": r, "p_value": p_values(r, size), "effective_size": size}


def p_values(r: Vector, n: Vector) -> Vector:
    from scipy.special import stdtr

    freedom = np.maximum(n - 2, 1e-3)
    with np.errstate(divide="ignore"):
        return np.asarray(2 * stdtr(freedom, -np.abs(r) * np.sqrt(freedom / (1 - r * r))))


# --- bootstrap ------------------------------------------------------------------------------------------------------


def bootstrap(
    eofs: Any,
    da: Any,
    n_samples: int = 200,
    *,
    block: int | None = None,
    level: float = 0.95,
    along: Hashable | None = None,
    groups: Any = None,
    covariates: Any = None,
    rng: int | np.random.Generator | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Estimate errors of variances and maps by a moving-block bootstrap: modes of fields made of blocks of samples.

    Parameters
    ----------
    eofs : xarray.Dataset
        The result of `pca`.
    da : xarray.DataArray
        The field of the fit.
    n_samples : int
        Number of fields to draw.
    block : int, optional
        Number of consecutive samples in a block. Default: from the autocorrelation of the scores (Carlstein 1986).
    level : float in (0, 1)
        Probability of the intervals.
    along : hashable, optional
        As in `north`. Blocks extend over all other dimensions of the samples.
    groups, covariates : optional
        As in `project`.
    rng : int, Generator or None
        As in `shiftsvd.svd`.
    memory_limit : int (bytes) or str such as "2GB", optional
        Raise an error instead of allocating more memory than this. Default: half of the available memory.

    Returns
    -------
    xarray.Dataset
        ``explained_variance (sample, mode)`` of each drawn field, its ``standard_error (mode)``, ``lower (mode)`` and
        ``upper (mode)``, the quantiles of the variances; ``congruence (sample, mode)``, the size of the cosine between
        a drawn mode and the mode of `eofs` that it was matched to; ``component_error (mode, *space)``, the standard
        deviation of the drawn components. Attributes: ``block`` and ``level``.

    Raises
    ------
    ValueError
        If modes are rotated, the field differs from that of the fit, or a setting is invalid.

    See Also
    --------
    xarray.north : Errors by a rule of thumb.

    Notes
    -----
    The anomalies are those of the fit, and the mean of each drawn field is removed. Samples without values are not
    drawn. Missing values are treated as in the fit: with "mean" their anomaly is 0, with "em" the modes of `eofs`
    predict it, and the errors of the predictions, which rise with the share of missing values, are not counted. The
    field is read twice: for the inner products of all samples (m x m), from which all modes follow exactly, and for the
    maps; with "em" also for the predictions. Drawn modes are matched to known modes by the size of their cosine, and
    their signs are aligned.

    References
    ----------
    Kuensch (1989), The jackknife and the bootstrap for general stationary observations; Carlstein (1986), The use of
    subseries values for estimating the variance of a general statistic from a stationary sequence.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> values = np.random.default_rng(0).standard_normal((100, 4, 5)) * [9, 5, 3, 1, 1]
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> drawn = sx.bootstrap(sx.pca(da, 2), da, 50, rng=0)
    >>> drawn.component_error.dims, bool(np.all(drawn.lower < drawn.upper))
    (('mode', 'lat', 'lon'), True)
    """
    _check_unrotated(eofs, "drawn fields are not rotated")
    integer("n_samples", n_samples, 2)
    integer("block", 1 if block is None else block, 1)
    _check_level(level)
    if "sample" in eofs.mean_field.dims:
        raise ValueError("eofs has a dimension 'sample', a name that results use. Rename it in eofs and da.")
    X, over, cells, _ = anomalies_of(eofs, da, groups, covariates)
    m = len(X)
    affordable(8 * m * (4 * m + n_samples * 2), memory_limit, f"products of {m:,} samples", "samples")
    length = _block_length(eofs, along) if block is None else int(block)
    V = with_modes(eofs.components, "components").transpose("mode", *eofs.mean_field.dims)
    known = in_cells(V, eofs, cells).astype(np.float64)
    Y = completed(X, eofs, known)
    Y, there = np.where(np.isnan(Y), 0, Y), ("row", (~np.isnan(X)).any(axis=1))
    products = fields.compute_together(
        samples=(("row", "column"), Y @ Y.T), scores=(("row", "mode"), Y @ known.T), there=there
    )
    present = products["there"]
    places = [rows[present[rows]] for rows in _drawn_rows(da, over, along, length, n_samples, generator(rng))]
    space, Q = _sample_coordinates(products["samples"])
    if len(V) > Q.shape[1]:
        raise ValueError(
            f"eofs must have at most {Q.shape[1]:,} modes, the rank of the anomalies, got {len(V):,}. Select "
            "fewer modes."
        )
    start = products["scores"].T @ Q  # the known modes in the coordinates of the space
    drawn = [_drawn_modes(space[rows], start) for rows in places]
    variances, congruence = (np.array([each[j] for each in drawn]) for j in (0, 1))
    errors = fields.with_absent_cells(_map_errors(Y, Q, np.array([each[2] for each in drawn])), cells)
    unit = int(np.frexp(variances.max())[1])  # the standard deviation squares the variances
    low, high = np.quantile(variances, [(1 - level) / 2, (1 + level) / 2], axis=0)
    found = {
        "explained_variance": (("sample", "mode"), variances),
        "standard_error": ("mode", np.ldexp(np.ldexp(variances, -unit).std(axis=0, ddof=1), unit)),
        "lower": ("mode", low),
        "upper": ("mode", high),
        "congruence": (("sample", "mode"), congruence),
        "component_error": V.copy(data=errors.reshape(V.shape)).assign_attrs(
            long_name="standard deviation of drawn components", units="1"
        ),
    }
    return type(eofs)(found, attrs={"block": length, "level": level})


def _block_length(eofs: Any, along: Hashable | None) -> int:
    r = float(np.abs(_autocorrelations(eofs, along)[0]).max())
    scores = with_modes(eofs.scores, "scores")
    n = scores.sizes[_time_of(scores, tuple(dim for dim in scores.dims if dim != "mode"), along)]
    return int(np.clip(np.ceil((np.sqrt(6) * r / (1 - r * r)) ** (2 / 3) * n ** (1 / 3)), 1, max(1, n // 4)))


def _drawn_rows(
    da: DataArray, over: Dims, along: Any, block: int, count: int, rng: np.random.Generator
) -> list[Places]:
    time = _time_of(da, over, along)
    n, axis = da.sizes[time], over.index(time)
    if block > n:
        raise refuse("block", f"be at most {n:,}, the number of samples along {time}", block)
    starts = rng.integers(0, n - block + 1, (count, -(-n // block)))
    times = (starts[:, :, None] + np.arange(block)).reshape(count, -1)[:, :n]
    return [_positions(da, over).take(each, axis).ravel() for each in times]


def _sample_coordinates(K: Panel) -> tuple[Panel, Panel]:
    squares, vectors = np.linalg.eigh(K)
    kept = squares > squares[-1] * len(K) * np.finfo(np.float64).eps
    lengths = np.sqrt(squares[kept])
    return vectors[:, kept] * lengths, vectors[:, kept] / lengths


def _drawn_modes(B: Panel, start: Panel) -> tuple[Vector, Vector, Panel]:
    from scipy.optimize import linear_sum_assignment

    off = B - B.sum(axis=0) / max(len(B), 1)
    squares, vectors = _leading_squares(off, min(len(start), off.shape[1]))
    cosines = start @ vectors
    mine, theirs = linear_sum_assignment(-np.abs(cosines))
    found = vectors[:, theirs].T * np.sign(cosines[mine, theirs])[:, None]
    return squares[::-1] / max(len(B) - 1, 1), np.abs(cosines[mine, theirs]), found


def _leading_squares(X: Panel, k: int) -> tuple[Vector, Panel]:
    # the k largest eigenvalues of X^T X, ascending, and their eigenvectors
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackError, aslinearoperator, eigsh

    r = X.shape[1]
    if r > LEAST_LANCZOS * k:
        A = aslinearoperator(X)
        with suppress(ArpackError):
            found: tuple[Vector, Panel] = eigsh(A.T @ A, k, v0=np.ones(r))
            return found
    return eigh(X.T @ X, subset_by_index=(r - k, r - 1))


def _map_errors(Y: Any, Q: Panel, found: Panel) -> Panel:
    draws, modes, r = found.shape
    off = (found - found.mean(axis=0)) / np.sqrt(draws - 1)
    G, cells = Q @ off.reshape(-1, r).T, Y.T  # G: samples x (draws x modes)

    def deviations(block: Panel) -> Panel:
        return np.asarray(np.sqrt(((block @ G).reshape(len(block), draws, modes) ** 2).sum(axis=1)))

    if fields.is_lazy(cells):
        whole = cells.rechunk({1: -1})
        return np.asarray(whole.map_blocks(deviations, chunks=(whole.chunks[0], (modes,)), dtype=np.float64)).T
    return np.concatenate([deviations(cells[rows]) for rows in fields.blocks(len(cells), G.shape[1])]).T
