"""Find pairs of patterns in two fields by maximum covariance analysis or canonical correlation analysis."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Unpack

import numpy as np
from xarray import DataArray

from shiftsvd import Operator, SVDResult
from shiftsvd.extend.fits import integer
from shiftsvd.extend.operators import generator
from shiftsvd.extend.running import MissingName, Refused, Setting, refuse
from shiftsvd.operators import Product
from shiftsvd.xarray.anomalies import (
    Anomalies,
    FieldOptions,
    Keywords,
    anomalies,
    check_size,
    common_samples,
    per_field,
    with_keywords,
    with_small_cells,
)
from shiftsvd.xarray.datasets import Dataset, attrs_per_field, error_bounds, fit_attrs, merge_fields, mode_labels
from shiftsvd.xarray.fields import Attrs, Panel, Vector, as_field

PROBES: Final = 64  # random vectors for the estimate of a total whose exact value would cost more than the modes


@with_keywords
def coupled(
    X: Any,
    Y: Any,
    n_modes: int = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    method: Literal["mca", "cca"] = "mca",
    leading: int | float | tuple[int | float, int | float] = 10,
    weights: Any = None,
    center: bool | tuple[bool, bool] = True,
    standardize: bool | tuple[bool, bool] = False,
    missing: MissingName | tuple[MissingName, MissingName] = "error",
    **keywords: Unpack[Keywords],
) -> Any:
    """Find pairs of patterns in two fields whose scores have the largest covariance, or the largest correlation.

    Parameters
    ----------
    X, Y : xarray.DataArray
        Fields with the dimension `dim` and any others, each on its own grid. Samples are matched by their labels: both
        fields must have the same labels, in any order. Cells and samples without values are excluded, as in `pca`, and
        so is every sample that one of the fields lacks.
    n_modes : int
        Number of pairs.
    dim : hashable, or sequence of them
        As in `pca`.
    method : "mca" or "cca"
        Maximum covariance analysis (also called SVD analysis): singular vectors of ``X^H Y``, which is never formed. Or
        canonical correlation analysis, of the scores of the leading components of each field.
    leading : int, or float in (0, 1), or a tuple of two
        With "cca", the number of components of each field, or the share of the variance. The larger this number is
        relative to the number of samples, the larger are chance correlations.
    weights, center, standardize, missing : optional
        As in `pca`; a tuple has one setting for X and one for Y. With "em" each field is completed separately, by a
        model of rank `n_modes`, or with "cca" of `leading` components.
    groups, covariates, solver, tol, certify, penalty, max_iter, rng, n_threads, memory_limit : optional
        As in `pca`, for both fields.

    Returns
    -------
    xarray.Dataset
        For each field, with the prefix x or y: ``x_components (mode, *space)``, ``x_scores (mode, dim)``,
        ``x_explained_variance_ratio (mode)``, ``x_homogeneous (mode, *space)`` and ``x_heterogeneous``: correlations of
        its cells with its own scores and with those of the other field, ``x_mean_field`` and ``x_weights``, and the
        variables that `pca` returns with `groups` and `covariates`. With "cca" the scores have variance 1,
        ``x_components`` are their patterns, and the product of the field with ``x_duals`` gives the scores. For both:
        ``correlation (mode)`` of the scores, and with "mca" ``covariance (mode)`` and
        ``squared_covariance_fraction (mode)``. Coordinates that differ between the fields have the suffix ``_x`` or
        ``_y``: `side` returns one field, under its own names.

    Raises
    ------
    ValueError
        If samples do not match; and as in `pca`.
    TypeError
        If X or Y is not a DataArray.

    See Also
    --------
    xarray.side : One of the two fields, for `project` and `reconstruct`.
    cross : The operator for any two matrices.

    Notes
    -----
    With "mca", ``covariance = x_scores . y_scores / (m - 1)`` for m samples, and
    ``squared_covariance_fraction = covariance^2 / ||X^H Y / (m - 1)||_F^2``. The norm is exact if it costs no more than
    the modes (up to some thousand samples, or cells of a field); else 64 random vectors estimate the part that the
    modes do not explain, and ``attrs["total"]`` is "estimated".

    Cost: a pass over each field that counts missing values, a pass for its moments, the solver's passes, each of which
    reads both fields, and two passes for scores and correlations. Fields may be Dask arrays.

    References
    ----------
    Bretherton, Smith & Wallace (1992), An intercomparison of methods for finding coupled patterns in climate data;
    Barnett & Preisendorfer (1987) for canonical correlations of leading components.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> X = xarray.DataArray(
    ...     values, dims=("time", "lat", "lon"), coords={"lat": [-45, -15, 15, 45]}
    ... )
    >>> pair = shiftsvd.xarray.coupled(
    ...     X, X.isel(lat=[1, 2]) ** 2, n_modes=2, weights=("coslat", None)
    ... )
    >>> pair.x_components.dims, pair.y_components.dims
    (('mode', 'lat_x', 'lon'), ('mode', 'lat_y', 'lon'))
    """
    if method not in ("mca", "cca"):
        raise refuse("method", 'be "mca" or "cca"', method)
    of_fields = map(_by_side, (weights, center, standardize, missing))
    options = FieldOptions(dim, *of_fields, **keywords).per_field(("X", "Y"))
    what, rank = ("n_modes", n_modes) if method == "mca" else ("leading", leading)
    ranks = per_field(_by_side(rank), list(options), 10, what)
    for name, rank in ranks.items():
        if options[name].missing == "em" and (isinstance(rank, bool) or not isinstance(rank, int | np.integer)):
            raise Refused(Setting(what), " must be an integer with ", Setting("missing", "em"), f", got {rank!r}")
    fields = common_samples({"X": as_field(X, "X"), "Y": as_field(Y, "Y")}, options)
    m, p, q = len(fields[0].X), *(field.X.shape[1] for field in fields)
    integer("n_modes", n_modes, 1, min(m, p, q), f" for {m:,} samples of {p:,} and {q:,} cells")
    x, y = (anomalies(field, options[name], ranks[name]) for field, name in zip(fields, "XY", strict=True))
    if method == "mca":
        found = _mca(x, y, n_modes, options["X"])
    else:
        found = _cca(x, y, n_modes, ranks, options["X"])
    return _dataset(x, y, found).assign_attrs(options["X"].attrs | {"method": method})


def _by_side(setting: Any) -> Any:
    if not isinstance(setting, tuple):
        return setting
    if len(setting) != 2:
        raise ValueError(f"a tuple must have two values, one for X and one for Y, got {len(setting)}")
    return dict(zip("XY", setting, strict=True))


class Pairs(NamedTuple):
    """Patterns and scores of X and of Y (columns), with the variables and attributes of the pair."""

    patterns: list[Panel]
    scores: list[Panel]
    duals: list[Panel] | None
    shared: dict[str, Vector]
    attrs: Attrs


def _mca(x: Anomalies, y: Anomalies, n_modes: int, options: FieldOptions) -> Pairs:
    C, m = Product(x.A.H, y.A), x.A.shape[0]
    F = options.svd(C, n_modes)
    check_size("singular values of X^H Y", float(F.S[0]))
    F = with_small_cells(C, F, y.squares)
    F = with_small_cells(C.H, F.H, x.squares).H
    U, V = F.U, F.Vh.conj().T
    total, how = _total_squares(C, F, generator(options.rng))
    shares = F.S**2 / total if total > 0 else np.zeros(n_modes)
    shared = {"covariance": F.S / (m - 1), "squared_covariance_fraction": shares} | error_bounds(F.info)
    attrs = fit_attrs([F], x, y) | {"total": how, "total_squared_covariance": total / (m - 1) ** 2}
    return Pairs([U, V], [x.A.matmat(U), y.A.matmat(V)], None, shared, attrs)


def _total_squares(C: Operator, F: SVDResult, rng: np.random.Generator) -> tuple[float, str]:
    norm = C.frobenius_norm()
    if norm is not None:
        return norm**2, "exact"
    Omega, V = rng.standard_normal((C.shape[1], PROBES)), F.Vh.conj().T.astype(np.float64)
    rest = C.matmat(Omega - V @ (V.T @ Omega))
    return float(np.sum(F.S**2) + np.linalg.norm(rest) ** 2 / PROBES), "estimated"


def _cca(x: Anomalies, y: Anomalies, n_modes: int, leading: Mapping[str, Any], options: FieldOptions) -> Pairs:
    root = np.sqrt(x.A.shape[0] - 1)
    fx, fy = (_leading(name, of, k, options) for name, of, k in zip("XY", (x, y), leading.values(), strict=True))
    P, correlations, Qh = np.linalg.svd(fx.U.T @ fy.U)
    integer("n_modes", n_modes, 1, len(correlations), f" for {len(fx.S)} and {len(fy.S)} components")
    maps = (Qh[:n_modes] * fy.S) @ fy.Vh
    signs = np.where(maps[np.arange(n_modes), np.abs(maps).argmax(axis=1)] < 0, -1, 1)  # the largest entry is positive
    sides = [(fx, P[:, :n_modes] * signs), (fy, Qh[:n_modes].T * signs)]
    attrs = fit_attrs([fx, fy], x, y) | {"leading": [len(fx.S), len(fy.S)]}
    patterns = [F.Vh.T @ (F.S[:, None] * p / root) for F, p in sides]
    duals = [F.Vh.T @ (p * root / F.S[:, None]) for F, p in sides]
    return Pairs(patterns, [F.U @ p * root for F, p in sides], duals, {}, attrs)


def _leading(name: str, of: Anomalies, k: Any, options: FieldOptions) -> SVDResult:
    F = with_small_cells(of.A, options.svd(of.A, k if isinstance(k, float) else min(k, *of.A.shape)), of.squares)
    if F.info.rank == 0:
        raise ValueError(f"all anomalies of {name} are 0. Pass a field that varies along its samples.")
    F = F.truncate(F.info.rank)
    return SVDResult(np.asarray(F.U), F.S, np.asarray(F.Vh), F.info)


def _dataset(x: Anomalies, y: Anomalies, found: Pairs) -> Dataset:
    k = found.scores[0].shape[1]
    modes = mode_labels(k)
    Z = [scores - scores.mean(axis=0) for scores in found.scores]
    lengths = [np.linalg.norm(scores, axis=0) for scores in Z]
    inner = np.real(np.sum(Z[0].conj() * Z[1], axis=0))
    shared = found.shared | {"correlation": _ratio(inner, lengths[0] * lengths[1])}
    parts = {}
    for i, (name, of) in enumerate((("x", x), ("y", y))):
        products, squares = of.A.rmatmat(np.hstack([Z[i], Z[1 - i]])), of.centred_squares * of.weights**2
        maps = _ratio(products, np.sqrt(squares)[:, None] * np.concatenate([lengths[i], lengths[1 - i]]))
        variances = np.sum(np.abs(found.patterns[i]) ** 2, axis=0) * np.sum(np.abs(Z[i]) ** 2, axis=0)
        parts[name] = {
            "components": of.field.in_space(found.patterns[i].T, modes),
            "scores": of.field.in_time(found.scores[i], modes),
            "explained_variance_ratio": DataArray(_ratio(variances, squares.sum()), dims="mode"),
            "homogeneous": of.field.in_space(maps[:, :k].T, modes),
            "heterogeneous": of.field.in_space(maps[:, k:].T, modes),
            **of.subtracted(),
            **({} if found.duals is None else {"duals": of.field.in_space(found.duals[i].T, modes)}),
        }
    of_both = {name: DataArray(values, dims="mode") for name, values in shared.items()}
    return merge_fields(parts, of_both, modes, x.field.over, found.attrs | attrs_per_field({"x": x, "y": y}))


def _ratio(values: Panel, sizes: Any) -> Panel:
    there = np.broadcast_to(sizes, np.shape(values)) > 0
    return np.asarray(np.divide(values, sizes, out=np.zeros(np.shape(values)), where=there))
