"""Patterns of two fields that vary together: maximum covariance and canonical correlation analysis."""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.front import svd
from shiftsvd.names import MAX_ITER, MissingName, SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.operators import Operator, Panel, Product, panel_dtype
from shiftsvd.result import SVDResult
from shiftsvd.runs.memory import Resources
from shiftsvd.sketch import generator
from shiftsvd.solvers import Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.datasets import mode_labels, told_of_each, told_of_fit
from shiftsvd.xarray.fields import Dims
from shiftsvd.xarray.preparing import Anomalies, Asked, anomalies, check_modes
from shiftsvd.xarray.samples import at_common, in_order

_SAID = ("field", "missing", "n_missing", "heldout_r2")  # attributes that each field has for itself
Parts = Mapping[str, Mapping[str, Any]]  # DataArrays by the name of the field and of the variable


def together(parts: Parts, shared: Mapping[str, Any], modes: Any, over: Dims, told: Mapping[str, Any]) -> Any:
    from xarray import Dataset as Part

    from shiftsvd.xarray.fields import Dataset

    own = {name: Part(dict(part)) for name, part in parts.items()}
    differ = _differing(own, {*over, modes.name})
    found = {key: da.drop_vars([coord for coord in differ if coord in da.coords]) for key, da in shared.items()}
    attrs = dict(told)
    attrs["fields"] = json.dumps(list(parts))
    for name, part in own.items():
        renamed = {key: f"{key}_{name}" for key in differ if key in part.variables or key in part.dims}
        found |= {f"{name}_{key}": da.rename(_of(da, renamed)) for key, da in part.data_vars.items()}
        attrs[f"renamed_{name}"] = json.dumps({new: key for key, new in renamed.items()})
    return Dataset(found, coords={modes.name: modes}, attrs=attrs)


def side(result: Any, name: str) -> Any:
    """What a result of several fields says of one of them, as `pca` would: for `project` and `reconstruct`.

    Parameters
    ----------
    result : xarray.Dataset
        What `coupled` gave, or `pca` of several fields, perhaps from a file.
    name : str
        The field: "x" or "y" of `coupled`, else its name.

    Returns
    -------
    xarray.Dataset
        Its variables by their plain names, such as ``components``, ``scores`` and ``mean_field``, on its own
        coordinates; and what all fields share.

    Raises
    ------
    ValueError
        If `result` is of one field, or has no such field.

    See Also
    --------
    xarray.coupled : Gives a result of two fields.
    xarray.joint : Gives one of several.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> X = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> pair = shiftsvd.xarray.coupled(X, X[:, :2] ** 2, n_modes=2)
    >>> shiftsvd.xarray.side(pair, "y").components.dims
    ('mode', 'lat', 'lon')
    """
    from shiftsvd.xarray.fields import Dataset

    names = names_of(result)
    if name not in names:
        raise ValueError(f"the result must have the field {name!r}, it has {', '.join(names) or 'one without a name'}")
    back = {other: json.loads(result.attrs[f"renamed_{other}"]) for other in names}
    foreign = {key for other in names if other != name for key in back[other]}
    prefixes = tuple(f"{other}_" for other in names if other != name)
    found = {}
    for key, da in result.data_vars.items():
        own = key.startswith(f"{name}_")
        if own or not key.startswith(prefixes):
            da = da.drop_vars([coord for coord in da.coords if coord in foreign])
            found[key.removeprefix(f"{name}_") if own else key] = da.rename(_of(da, back[name]))
    of_fields = ("fields", *(f"{key}_{other}" for key in ("renamed", *_SAID) for other in names))
    told = {key: value for key, value in result.attrs.items() if key not in of_fields}
    told |= {key: result.attrs[f"{key}_{name}"] for key in _SAID if f"{key}_{name}" in result.attrs}
    return Dataset(found, attrs=told)


def names_of(result: Any) -> list[str]:
    return list(json.loads(getattr(result, "attrs", {}).get("fields", "[]")))


def renamed(result: Any, name: str, da: Any) -> Any:
    return da.rename(_of(da, {key: new for new, key in json.loads(result.attrs[f"renamed_{name}"]).items()}))


def _of(da: Any, renamed: Mapping[str, str]) -> dict[str, str]:
    return {key: new for key, new in renamed.items() if key in da.coords or key in da.dims}


def _differing(own: Mapping[str, Any], shared: set[Any]) -> list[Any]:
    keys = dict.fromkeys(key for part in own.values() for key in (*part.dims, *part.coords))
    return [key for key in keys if key not in shared and not _same([p for p in own.values() if key in _keys(p)], key)]


def _keys(part: Any) -> set[Any]:
    return {*part.dims, *part.coords}


def _same(parts: list[Any], key: Any) -> bool:
    first = parts[0]
    return all(
        part.sizes.get(key) == first.sizes.get(key)
        and (key in part.coords) == (key in first.coords)
        and (key not in part.coords or part[key].variable.equals(first[key].variable))
        for part in parts[1:]
    )


PROBES = 64  # random vectors that a total is estimated from where it would cost more than the modes


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
    groups: Any = None,
    covariates: Any = None,
    solver: SolverName | Solver = "auto",
    tol: float = 1e-6,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
    rng: int | np.random.Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Find pairs of patterns in two fields whose scores vary together: by most covariance, or by most correlation.

    Parameters
    ----------
    X, Y : xarray.DataArray
        With the dimension `dim` and any others, each on its own grid. Samples are matched by their labels: both fields
        must have the same, in any order. Cells and samples without values are left out, as in `pca`, and samples that
        either field lacks.
    n_modes : int
        How many pairs to find.
    dim : hashable, or sequence of them
        Along which there are samples.
    method : "mca" or "cca"
        Maximum covariance analysis (also called SVD analysis): singular vectors of ``X^H Y``, which is never formed. Or
        canonical correlation analysis, of the scores of the leading components of each field.
    leading : int, or float in (0, 1), or a tuple of two
        With "cca": of each field, how many components, or which share of the variance. The more there are beside the
        number of samples, the larger correlations are by chance.
    weights : None, "coslat", DataArray, array or float, optional
        As in `pca`; a tuple has one for X and one for Y.
    center : bool, or a tuple of two
        Subtract the mean over the samples.
    standardize : bool, or a tuple of two
        Divide by the standard deviation over the samples, before the weights.
    missing : "error", "mean" or "em", or a tuple of two
        As in `pca`. With "em" each field is completed by itself, by a model of rank `n_modes`, or with "cca" of as many
        components as `leading` says.
    groups, covariates : optional
        Of the samples, as in `pca`, of both fields.
    solver : str or Solver
        As in `shiftsvd.svd`.
    tol : float
        Relative accuracy of the singular values.
    penalty, max_iter : optional
        Of the completion with ``missing="em"``, as in `pca`.
    rng : int, Generator or None
        Seed of the solver; the same seed gives the same bits. None is fresh entropy.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Returns
    -------
    xarray.Dataset
        For each field, with x or y before the name: ``x_components (mode, *space)``, ``x_scores (mode, dim)``,
        ``x_explained_variance_ratio (mode)``, ``x_homogeneous (mode, *space)`` and ``x_heterogeneous``: correlations of
        its cells with its own scores and with those of the other field, ``x_mean_field`` and ``x_weights``, and what
        `pca` gives with `groups` and `covariates`. With "cca"
        components are the patterns that go with scores of variance 1, and ``x_duals`` what the field is multiplied by
        for them. For both: ``correlation (mode)`` of the scores, and with "mca" ``covariance (mode)`` and
        ``squared_covariance_fraction (mode)``. Coordinates that differ between the fields have ``_x`` and ``_y`` after
        their names: `side` gives what is of one field, under its own names.

    Raises
    ------
    ValueError
        For samples that do not match, and as in `pca`.
    TypeError
        If X or Y is no DataArray.

    See Also
    --------
    xarray.side : One of the two, for `project` and `reconstruct`.
    cross : The operator, of any two matrices.

    Notes
    -----
    With "mca", ``covariance = x_scores . y_scores / (m - 1)`` for m samples, and
    ``squared_covariance_fraction = covariance^2 / ||X^H Y / (m - 1)||_F^2``. The norm is exact where that costs no
    more than the modes (up to some thousand samples, or cells of a field); else the part that the modes leave over is
    estimated from 64 random vectors, and ``attrs["total"]`` says "estimated".

    Cost: a look for missing values and a pass for the moments of each field, the solver's passes, each of which reads
    both, and two for scores and correlations. Fields may be Dask arrays.

    References
    ----------
    Bretherton, Smith & Wallace (1992), An intercomparison of methods for finding coupled patterns in climate data;
    Barnett & Preisendorfer (1987) for canonical correlations of leading components.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> X = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": [-45, -15, 15, 45]})
    >>> pair = shiftsvd.xarray.coupled(X, X.isel(lat=[1, 2]) ** 2, n_modes=2, weights=("coslat", None))
    >>> pair.x_components.dims, pair.y_components.dims
    (('mode', 'lat_x', 'lon'), ('mode', 'lat_y', 'lon'))
    """
    if method not in ("mca", "cca"):
        raise ValueError(f'method must be "mca" or "cca", got {method!r}')
    resources = Resources(memory_limit, n_threads)
    shared = {"groups": groups, "covariates": covariates, "penalty": penalty, "max_iter": max_iter}
    asked = [
        Asked(weights=w, center=c, standardize=z, missing=gaps, **shared, resources=resources)
        for w, c, z, gaps in zip(*map(_pair, (weights, center, standardize, missing)), strict=True)
    ]
    ranks = [_rank(of, n_modes, method, k) for of, k in zip(asked, _pair(leading), strict=True)]
    X, Y = fields.as_field(X, "X"), fields.as_field(Y, "Y")
    Y = in_order(X, Y, dim, ("X", "Y"))
    both = at_common(
        [fields.stacked(da, dim, of.missing, name) for da, of, name in zip((X, Y), asked, "XY", strict=True)]
    )
    check_modes(n_modes, *_most(both))
    given = {"solver": solver, "rng": generator(rng), **vars(resources)}
    if not isinstance(solver, Solver):
        given["tol"] = tol
    x, y = (anomalies(*of, given["rng"]) for of in zip((X, Y), both, asked, ranks, strict=True))
    found = _covariances(x, y, n_modes, given) if method == "mca" else _correlations(x, y, n_modes, leading, given)
    return _dataset(x, y, found, method).assign_attrs(asked[0].told)


def _rank(asked: Asked, n_modes: Any, method: str, leading: Any) -> Any:
    asked.check()
    rank = n_modes if method == "mca" else leading
    if asked.missing == "em" and (isinstance(rank, bool) or not isinstance(rank, int | np.integer)):
        name = "n_modes" if method == "mca" else "leading"
        raise ValueError(f'{name} must be an integer with missing="em", got {rank!r}')
    return rank


def _most(both: Sequence[fields.Stacked]) -> tuple[int, str]:
    m, (p, q) = len(both[0].X), (of.X.shape[1] for of in both)
    return min(m, p, q), f"{m} samples of {p} and {q} cells"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of patterns and scores (columns), what they share (by name), and how they came about."""

    patterns: tuple[Panel, Panel]
    scores: tuple[Panel, Panel]
    duals: tuple[Panel, Panel] | None
    shared: dict[str, Vector]
    told: dict[str, Any]


def _covariances(x: Anomalies, y: Anomalies, n_modes: int, given: dict[str, Any]) -> Pairs:
    C, m = Product(x.A.H, y.A), x.A.shape[0]
    F = svd(C, n_modes, **given)
    U, V = F.U, F.Vh.conj().T
    total, how = _total(C, F, given["rng"])
    shares = F.S**2 / total if total > 0 else np.zeros(n_modes)
    shared = {"covariance": F.S / (m - 1), "squared_covariance_fraction": shares}
    told = told_of_fit(F.info, x, y) | {"total": how, "total_squared_covariance": total / (m - 1) ** 2}
    return Pairs((U, V), (x.A.matmat(U), y.A.matmat(V)), None, shared, told)


def _correlations(x: Anomalies, y: Anomalies, n_modes: int, leading: Any, given: dict[str, Any]) -> Pairs:
    m = x.A.shape[0]
    fits = [_leading(of.A, k, given) for of, k in zip((x, y), _pair(leading), strict=True)]
    P, correlations, Qh = np.linalg.svd(fits[0].U.T @ fits[1].U)
    check_modes(n_modes, len(correlations), f"{len(fits[0].S)} and {len(fits[1].S)} components")
    fx, fy = fits
    root, signs = np.sqrt(m - 1), phases((Qh[:n_modes] * fy.S) @ fy.Vh)
    px, py = P[:, :n_modes] * signs, Qh[:n_modes].T * signs
    accounts = [told_of_fit(F.info, of) for F, of in zip(fits, (x, y), strict=True)]
    told = {
        "solver": accounts[0]["solver"],
        "n_passes": sum(account["n_passes"] for account in accounts),
        "converged": all(account["converged"] for account in accounts),
        "leading": [len(F.S) for F in fits],
    }
    patterns = fx.Vh.T @ (fx.S[:, None] * px / root), fy.Vh.T @ (fy.S[:, None] * py / root)
    duals = fx.Vh.T @ (px * root / fx.S[:, None]), fy.Vh.T @ (py * root / fy.S[:, None])
    return Pairs(patterns, (fx.U @ px * root, fy.U @ py * root), duals, {}, told)


def _leading(A: Operator, k: Any, given: dict[str, Any]) -> SVDResult:
    most = min(A.shape)
    F = svd(A, k if isinstance(k, float) else min(k, most), **given)
    if F.info.rank == 0:
        raise ValueError("a field must vary along its samples, all anomalies are 0")
    F = F.truncate(F.info.rank)
    return SVDResult(np.asarray(F.U), F.S, np.asarray(F.Vh), F.info)


def _total(C: Operator, F: SVDResult, rng: np.random.Generator) -> tuple[float, str]:
    norm = C.frobenius_norm()
    if norm is not None:
        return norm**2, "exact"
    rest = Deflated(C, F.Vh.conj().T.astype(panel_dtype(C.dtype)))
    Omega = rng.standard_normal((C.shape[1], PROBES))
    return float(np.sum(F.S**2) + np.linalg.norm(rest.matmat(Omega)) ** 2 / PROBES), "estimated"


def _dataset(x: Anomalies, y: Anomalies, found: Pairs, method: str) -> Any:
    from xarray import DataArray

    k = found.scores[0].shape[1]
    modes = mode_labels(k)
    Z = [scores - scores.mean(axis=0) for scores in found.scores]
    lengths = [np.linalg.norm(scores, axis=0) for scores in Z]
    inner = np.real(np.sum(Z[0].conj() * Z[1], axis=0))
    correlation = _over(inner, lengths[0] * lengths[1])
    shared = {name: DataArray(values, dims="mode") for name, values in found.shared.items()}
    shared["correlation"] = DataArray(correlation, dims="mode")
    parts = {}
    for i, (name, of) in enumerate((("x", x), ("y", y))):
        products = of.A.rmatmat(np.hstack([Z[i], Z[1 - i]]))
        norms = _norms(of.A)
        maps = _over(products, norms[:, None] * np.concatenate([lengths[i], lengths[1 - i]]))
        variances = np.sum(np.abs(found.patterns[i]) ** 2, axis=0) * np.sum(np.abs(Z[i]) ** 2, axis=0)
        parts[name] = {
            "components": of.in_space(found.patterns[i].T, modes),
            "scores": of.in_time(found.scores[i], modes),
            "explained_variance_ratio": DataArray(_over(variances, np.sum(norms**2)), dims="mode"),
            "homogeneous": of.in_space(maps[:, :k].T, modes),
            "heterogeneous": of.in_space(maps[:, k:].T, modes),
            **of.subtracted(),
            **({} if found.duals is None else {"duals": of.in_space(found.duals[i].T, modes)}),
        }
    return together(
        parts, shared, modes, x.field.over, found.told | {"method": method} | told_of_each({"x": x, "y": y})
    )


def _norms(A: Operator) -> Vector:
    squares = A.column_squares()
    assert squares is not None  # all kinds that a field can be know them
    return np.sqrt(squares)


def _over(values: Any, sizes: Any) -> Any:
    return np.divide(values, sizes, out=np.zeros(np.shape(values)), where=np.broadcast_to(sizes, np.shape(values)) > 0)


def _pair(setting: Any) -> tuple[Any, Any]:
    if isinstance(setting, tuple) and len(setting) != 2:
        raise ValueError(f"a tuple must have one setting for X and one for Y, got {len(setting)}")
    return setting if isinstance(setting, tuple) else (setting, setting)
