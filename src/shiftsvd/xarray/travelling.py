"""Modes of what travels: extended EOFs and Hilbert EOFs."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from shiftsvd.algebra.generic import gram_matrix, row_blocks
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.algebra.time_series import AnalyticSignal, Lagged
from shiftsvd.front import svd
from shiftsvd.names import MAX_ITER, MissingName, SolverName
from shiftsvd.operators import Operator, Product
from shiftsvd.runs.memory import Resources
from shiftsvd.sketch import generator
from shiftsvd.solvers import Gram, Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.datasets import mode_labels, modes_of, scores_of, told_of_fit, variances
from shiftsvd.xarray.preparing import Asked, all_there, anomalies, check_modes, steps


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

    from shiftsvd.xarray.fields import Dataset

    modes, n = mode_labels(len(F.S)), F.Vh.shape[1]
    patterns = F.U.T.reshape(len(F.S), len(lags), -1)
    each = [of.in_space(patterns[:, j], modes).expand_dims(lag=[lag], axis=1) for j, lag in enumerate(lags)]
    first = {of.field.over[0]: slice(0, n)}
    scores = fields.labelled(scores_of(F.H).conj().T, of.da.isel(first), of.field.over, modes)
    found = {"components": concat(each, "lag"), "scores": scores} | variances(F.S, n, squares)
    # Groups and covariates at the first steps of sequences alone, where there are scores.
    found |= {name: values.isel(first, missing_dims="ignore") for name, values in of.subtracted().items()}
    return Dataset(found, coords={"mode": modes}, attrs=of.said)


DECAY = 0.2
# Up to so many steps the Gram matrix of a field between its steps is formed, by one read.
FORMED = 4000
# Entries of a block of cells that is transformed at once.
ENTRIES = 2**22


def hilbert(
    da: Any,
    n_modes: int = 10,
    *,
    dim: Any = "time",
    padding: Literal["exp"] | None = "exp",
    decay: float = DECAY,
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
    """Complex EOFs of a field and its Hilbert transform in time: one mode for a wave that travels, not two.

    Parameters
    ----------
    da : xarray.DataArray
        As for `pca`; its samples follow each other in equal steps.
    n_modes : int
        How many modes to find.
    dim : hashable
        The dimension of time.
    padding : "exp" or None
        What the series is taken to do beyond its ends. "exp": as many steps more on either side, where the linear trend
        of each cell goes on and what its first and last value are off it decays. None: to begin anew, so that a
        difference of its ends rings in the first and last steps.
    decay : float
        With "exp", in how many lengths of the series what is off the trend decays to 1/e.
    weights : None, "coslat", DataArray, array or float, optional
        As in `pca`.
    center : bool
        Subtract the mean over the samples.
    standardize : bool
        Divide by the standard deviation over the samples, before the weights.
    missing : "error", "mean" or "em"
        As in `pca`, of steps without any values, too; with "em" the model has twice as many components as `n_modes`:
        what travels takes two.
    groups, covariates : optional
        What is removed before the transform, as in `pca`.
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
        The variables of `pca`; ``components`` and ``scores`` are complex: ``abs`` of them are amplitudes, and
        ``numpy.angle`` phases. The largest entry of each component is real and positive. The weighted anomalies are the
        real part of ``sum over modes of scores * components``, which are the conjugates of xeofs's. ``score_means
        (mode)`` is what was subtracted from the scores, whose mean is 0.

    Raises
    ------
    ValueError
        For samples without values, or out of order, and as in `pca`.
    TypeError
        If `da` is no DataArray.

    See Also
    --------
    xarray.pca : Modes that stand.
    xarray.extended : Modes with lags, for what travels or swings.

    Notes
    -----
    The analytic signal ``x + i H(x)`` of the weighted anomalies, minus its mean, is never formed: products with it are
    products with the field, and Fourier transforms of panels. Cost: as `pca`, and a read for the total variance; of up
    to 4000 steps, the Gram matrix between them is formed in one read.

    References
    ----------
    Horel (1984), Complex principal component analysis; the padding is that of xeofs's HilbertEOF.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> t, x = np.arange(80)[:, None], np.arange(12)
    >>> da = xarray.DataArray(np.cos(2 * np.pi * (t / 20 - x / 12)), dims=("time", "lon"))  # a travelling wave
    >>> modes = shiftsvd.xarray.hilbert(da, 2, padding=None)
    >>> modes.explained_variance_ratio.values.round(6).tolist()
    [1.0, 0.0]
    """
    if padding not in ("exp", None):
        raise ValueError(f'padding must be "exp" or None, got {padding!r}')
    if not decay > 0:
        raise ValueError(f"decay must be positive, got {decay}")
    resources = Resources(memory_limit, n_threads)
    asked = Asked(center, standardize, weights, missing, groups, covariates, penalty, max_iter, resources)
    asked.check()
    da = fields.as_field(da)
    dim = steps(da, dim, "a Hilbert transform")
    field = fields.stacked(da, dim, missing, every=True)
    all_there(field.rows, "a Hilbert transform")
    check_modes(n_modes, min(field.X.shape), f"{len(field.X)} samples of {field.X.shape[1]} cells")
    random = generator(rng)
    of = anomalies(da, field, asked, 2 * n_modes, random)
    m = len(field.rows)
    T = AnalyticSignal(m, decay if padding else None, np.result_type(of.A.dtype, np.complex64))
    C = Product(T, of.A)
    chosen, given = by_steps(solver, tol, m)
    F = svd(C, n_modes, solver=chosen, rng=random, **vars(resources), **given)
    found = modes_of(of, F.Vh, scores_of(F), F.S, total_squares(C))
    told = told_of_fit(F.info, of) | asked.told | {"padding": str(padding)} | ({"decay": decay} if padding else {})
    # Anomalies that were centred have no mean left.
    means = np.zeros(len(F.S)) if center else of.A.rmatmat(np.ones((m, 1)))[:, 0] @ F.Vh.conj().T / m
    return found.assign(score_means=("mode", means)).assign_attrs(told)


def by_steps(solver: Any, tol: float, m: int) -> tuple[Any, dict[str, Any]]:
    if isinstance(solver, Solver):
        return solver, {}
    return (Gram(tol, last_pass=False), {}) if solver == "auto" and m <= FORMED else (solver, {"tol": tol})


def total_squares(C: Product) -> float:
    """The sum of all squared entries; one read of the field.

    ``trace(T G T^H)`` with the Gram matrix G between steps, or of very many steps from dense blocks of cells.
    """
    T, A = C.A, C.B
    if T.shape[0] <= FORMED:
        half = T.matmat(gram_matrix(A.H))
        return float(np.trace(T.matmat(half.conj().T)).real)
    columns = max(1, ENTRIES // T.shape[0])
    return float(sum(np.linalg.norm(T.matmat(block)) ** 2 for block in _cells(A, columns)))


def _cells(A: Operator, columns: int) -> Iterator[Any]:
    for _, block in row_blocks(A.H, columns):
        yield block.conj().T
