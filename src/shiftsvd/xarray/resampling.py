"""Block bootstrap of modes: how variances and maps vary with the samples, without a model of the noise."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from shiftsvd.backends import is_lazy
from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import BLOCK
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import affordable
from shiftsvd.sketch import generator
from shiftsvd.xarray import fields
from shiftsvd.xarray.fields import Dims
from shiftsvd.xarray.known import anomalies_of, check_variances, with_modes
from shiftsvd.xarray.persistence import Places, time_of
from shiftsvd.xarray.sampling import north


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
        What `pca` gave.
    da : xarray.DataArray
        The field that it was given. Missing values have no anomaly.
    n_samples : int
        How many fields are drawn.
    block : int, optional
        How many samples that follow each other stay together. Default: as long as the autocorrelation of the scores
        asks for (Carlstein 1986).
    level : float in (0, 1)
        Of the intervals.
    along : hashable, optional
        As in `north`. Other dimensions of the samples are drawn as wholes.
    groups, covariates : optional
        As in `project`.
    rng : int, Generator or None
        As in `shiftsvd.svd`.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Returns
    -------
    xarray.Dataset
        ``explained_variance (sample, mode)`` of each drawn field, its ``standard_error (mode)``, ``lower (mode)`` and
        ``upper (mode)``, the quantiles of the variances; ``congruence (sample, mode)``, the size of the cosine between
        a drawn mode and that of `eofs` which it was matched to; ``component_error (mode, *space)``, the standard
        deviation of the drawn components. Attributes: ``block`` and ``level``.

    Raises
    ------
    ValueError
        For rotated modes, another field, or settings that cannot be.

    See Also
    --------
    xarray.north : Errors by a rule of thumb.

    Notes
    -----
    What was subtracted stays subtracted, and the mean of each drawn field, too. The field is read twice: for the
    products of all samples with each other (m x m), in whose space all modes are found exactly, and for the maps.
    Drawn modes are matched to known ones by the size of their cosine, and signs are turned.

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
    check_variances(eofs)
    if "rotation" in eofs.attrs:
        raise ValueError("eofs must be the modes of pca; drawn fields are not rotated")
    _check(n_samples, level, block)
    Y, over, cells = anomalies_of(eofs, da, groups, covariates)
    m = len(Y)
    affordable(8 * m * (4 * m + n_samples * 2), memory_limit, f"products of {m} samples", "samples")
    Y = np.where(np.isnan(Y), 0, Y)
    length = _block_length(eofs, along) if block is None else int(block)
    space, Q = _coordinates(Y)
    V = with_modes(eofs.components, "components")
    places = _draws(da, over, along, length, n_samples, generator(rng))
    known = np.asarray(fields.matrix(V, ("mode",), eofs.mean_field.dims), np.float64)[:, cells]
    start = _product(Y, known.T).T @ Q  # the known modes in the coordinates of the space
    drawn = [_modes_of(space[rows], start) for rows in places]
    variances, congruence = (np.array([each[j] for each in drawn]) for j in (0, 1))
    errors = _map_errors(Y, Q, np.array([each[2] for each in drawn]))
    return _dataset(eofs, variances, congruence, fields.filled(errors, cells), level, length)


def _check(n_samples: Any, level: Any, block: Any) -> None:
    for name, value, least in (("n_samples", n_samples, 2), ("block", 1 if block is None else block, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level!r}")


def _block_length(eofs: Any, along: Hashable | None) -> int:
    known = north(eofs, along=along)
    r = float(np.abs(known.autocorrelation.values).max())
    scores = with_modes(eofs.scores, "scores")
    n = scores.sizes[time_of(scores, tuple(dim for dim in scores.dims if dim != "mode"), along)]
    return int(np.clip(np.ceil((np.sqrt(6) * r / (1 - r * r)) ** (2 / 3) * n ** (1 / 3)), 1, max(1, n // 4)))


def _draws(da: Any, over: Dims, along: Any, block: int, count: int, rng: np.random.Generator) -> list[Places]:
    time = time_of(da, over, along)
    n, axis = da.sizes[time], over.index(time)
    if block > n:
        raise ValueError(f"block must be at most {n}, the samples along {time}, got {block}")
    places = np.arange(int(np.prod([da.sizes[dim] for dim in over]))).reshape([da.sizes[dim] for dim in over])
    starts = rng.integers(0, n - block + 1, (count, -(-n // block)))
    times = (starts[:, :, None] + np.arange(block)).reshape(count, -1)[:, :n]
    return [places.take(each, axis).ravel() for each in times]


def _coordinates(Y: Any) -> tuple[Panel, Panel]:
    K = fields.at_once(K=(("i", "j"), Y @ Y.T))["K"]
    squares, vectors = np.linalg.eigh(K)
    kept = squares > squares[-1] * len(K) * np.finfo(np.float64).eps
    lengths = np.sqrt(squares[kept])
    return vectors[:, kept] * lengths, vectors[:, kept] / lengths


def _modes_of(B: Panel, start: Panel) -> tuple[Vector, Vector, Panel]:
    from scipy.linalg import eigh
    from scipy.optimize import linear_sum_assignment

    off, k = B - B.mean(axis=0), len(start)
    r = off.shape[1]
    squares, vectors = eigh(off.T @ off, subset_by_index=(max(r - k, 0), r - 1))
    cosines = start @ vectors
    mine, theirs = linear_sum_assignment(-np.abs(cosines))
    found = vectors[:, theirs].T * np.sign(cosines[mine, theirs])[:, None]
    return squares[::-1] / (len(B) - 1), np.abs(cosines[mine, theirs]), found


def _map_errors(Y: Any, Q: Panel, found: Panel) -> Panel:
    off = (found - found.mean(axis=0)) / np.sqrt(len(found) - 1)
    G = Q @ off.reshape(-1, off.shape[2]).T  # samples x (draws x modes)
    return np.asarray(_product(Y.T, G, len(found), found.shape[1])).T


def _product(Y: Any, G: Panel, draws: int = 0, modes: int = 0) -> Panel:
    def squared(block: Any) -> Any:
        return np.sqrt(((block @ G).reshape(block.shape[0], draws, modes) ** 2).sum(axis=1)) if draws else block @ G

    if is_lazy(Y):
        whole = Y.rechunk({1: -1})
        found = whole.map_blocks(squared, chunks=(whole.chunks[0], (modes or G.shape[1],)), dtype=np.float64)
        return np.asarray(found.compute())
    return np.concatenate([squared(Y[lo:hi]) for lo, hi in cut(len(Y), max(1, BLOCK // G.shape[1]))])


def _dataset(eofs: Any, variances: Panel, congruence: Panel, errors: Panel, level: float, block: int) -> Any:
    low, high = np.quantile(variances, [(1 - level) / 2, (1 + level) / 2], axis=0)
    components = with_modes(eofs.components, "components").transpose("mode", *eofs.mean_field.dims)
    found = {
        "explained_variance": (("sample", "mode"), variances),
        "standard_error": ("mode", variances.std(axis=0, ddof=1)),
        "lower": ("mode", low),
        "upper": ("mode", high),
        "congruence": (("sample", "mode"), congruence),
        "component_error": components.copy(data=errors.reshape(components.shape)).assign_attrs(
            long_name="standard deviation of drawn components", units="1"
        ),
    }
    return type(eofs)(found, attrs={"block": block, "level": level})
