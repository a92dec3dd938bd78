"""Extended EOFs: modes of a field together with itself some steps later, whose lags are never stacked."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shiftsvd.algebra.deflated import Deflated
from shiftsvd.algebra.lagged import Lagged
from shiftsvd.front import svd
from shiftsvd.names import MAX_ITER, MissingName, SolverName
from shiftsvd.runs.memory import Resources
from shiftsvd.sketch import generator
from shiftsvd.solvers import Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.anomalies import all_there, anomalies, check_modes, steps
from shiftsvd.xarray.hilbert import by_steps
from shiftsvd.xarray.preparing import Asked
from shiftsvd.xarray.results import mode_labels, scores_of, told_of_fit, variances


def extended(
    da: Any,
    n_modes: int = 10,
    *,
    lags: int | Sequence[int],
    dim: Any = "time",
    weights: Any = None,
    center: bool = True,
    standardize: bool = False,
    missing: MissingName = "error",
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
    """Extended EOFs (multichannel singular spectrum analysis): sequences of patterns, for what travels or swings.

    Parameters
    ----------
    da : xarray.DataArray
        As for `pca`; its samples follow each other in equal steps.
    n_modes : int
        How many modes to find.
    lags : int, or sequence of them
        How many steps are taken together, 0 to lags - 1; or which, such as ``range(0, 60, 5)``.
    dim : hashable
        The dimension of time.
    weights : None, "coslat", DataArray, array or float, optional
        As in `pca`.
    center : bool
        Subtract the mean over the samples.
    standardize : bool
        Divide by the standard deviation over the samples, before the weights.
    missing : "error", "mean" or "em"
        As in `pca`, of steps without any values, too.
    groups, covariates : optional
        What is removed before lags are taken, as in `pca`; `project` has to be given those that are no coordinates.
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
        The variables of `pca`, with ``components (mode, lag, *space)`` of length 1 over all lags, and ``scores (mode,
        dim)`` at the first step of each sequence, of which there are ``max(lags)`` fewer than steps; ``score_means
        (mode)`` is what was subtracted from them.

    Raises
    ------
    ValueError
        For lags that do not fit, samples without values, or out of order, and as in `pca`.
    TypeError
        If `da` is no DataArray.

    See Also
    --------
    xarray.hilbert : Complex modes, for what travels.
    xarray.pca : Modes of single steps.

    Notes
    -----
    ``sum over modes of scores(t) * components(lag)`` is the weighted anomaly at t + lag, minus its mean over all t. The
    matrix of all lags is never formed: a product with it is one of the field with a panel that is as many times as wide
    as there are lags. Of up to 4000 steps the Gram matrix between steps is formed in one read, and its windows summed.

    References
    ----------
    Weare & Nasstrom (1982), Examples of extended empirical orthogonal function analyses; Broomhead & King (1986).

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> t, x = np.arange(80)[:, None], np.arange(12)
    >>> da = xarray.DataArray(np.cos(2 * np.pi * (t / 20 - x / 12)), dims=("time", "lon"))
    >>> modes = shiftsvd.xarray.extended(da, 2, lags=5)
    >>> modes.components.dims, modes.scores.shape
    (('mode', 'lag', 'lon'), (2, 76))
    """
    resources = Resources(memory_limit, n_threads)
    asked = Asked(center, standardize, weights, missing, groups, covariates, penalty, max_iter, resources)
    asked.check()
    da = fields.as_field(da)
    if "lag" in da.dims:
        raise ValueError("the name lag is taken by the result; rename that dimension")
    dim = steps(da, dim, "a lag")
    field = fields.stacked(da, dim, missing, every=True)
    all_there(field.rows, "a lag")
    m, cells = field.X.shape
    taken = _lags(lags, m)
    n = m - max(taken)
    check_modes(n_modes, min(cells * len(taken), n), f"{n} sequences of {len(taken)} lags of {cells} cells")
    random = generator(rng)
    of = anomalies(da, field, asked, n_modes, random)
    E = Lagged(of.A.H, taken)
    level = np.full((n, 1), n**-0.5)
    C = Deflated(E, level) if center else E
    chosen, given = by_steps(solver, tol, n)
    F = svd(C, n_modes, solver=chosen, rng=random, **vars(resources), **given)
    centre = E.matmat(level) if center else np.zeros((E.shape[0], 1))
    squares = float(E.column_squares().sum()) - float(np.linalg.norm(centre)) ** 2  # type: ignore[union-attr]
    found = _dataset(of, F, taken, squares).assign(score_means=("mode", (F.U.T @ centre)[:, 0] * n**-0.5))
    return found.assign_attrs(told_of_fit(F.info, of) | asked.told)


def _lags(lags: Any, m: int) -> tuple[int, ...]:
    count = isinstance(lags, int | np.integer) and not isinstance(lags, bool)
    taken = tuple(range(lags)) if count else tuple(np.atleast_1d(lags).tolist())
    whole = all(isinstance(lag, int) and not isinstance(lag, bool) for lag in taken)
    if not taken or not whole or sorted(set(taken)) != list(taken) or taken[0] < 0 or taken[-1] > m - 2:
        raise ValueError(
            f"lags must be a number of steps of at least 1, or steps that ascend from 0 on, at most {m - 2} for {m} "
            f"samples, got {lags!r}"
        )
    return taken


def _dataset(of: Any, F: Any, lags: tuple[int, ...], squares: float) -> Any:
    from xarray import concat

    from shiftsvd.xarray.dataset import Dataset

    modes, n = mode_labels(len(F.S)), F.Vh.shape[1]
    patterns = F.U.T.reshape(len(F.S), len(lags), -1)
    each = [of.in_space(patterns[:, j], modes).expand_dims(lag=[lag], axis=1) for j, lag in enumerate(lags)]
    first = {of.field.over[0]: slice(0, n)}
    scores = fields.labelled(scores_of(F.H).conj().T, of.da.isel(first), of.field.over, modes)
    found = {"components": concat(each, "lag"), "scores": scores} | variances(F.S, n, squares)
    # Groups and covariates at the first steps of sequences alone, where there are scores.
    found |= {name: values.isel(first, missing_dims="ignore") for name, values in of.subtracted().items()}
    return Dataset(found, coords={"mode": modes}, attrs=of.said)
