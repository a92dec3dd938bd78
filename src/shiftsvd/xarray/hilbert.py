"""Hilbert EOFs: complex modes of the analytic signal of a field, for what travels."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from shiftsvd.algebra.analytic import AnalyticSignal
from shiftsvd.algebra.generic import gram_matrix, row_blocks
from shiftsvd.front import svd
from shiftsvd.names import MAX_ITER, MissingName, SolverName
from shiftsvd.operators import Operator, Product
from shiftsvd.runs.memory import Resources
from shiftsvd.sketch import generator
from shiftsvd.solvers import Gram, Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.anomalies import all_there, anomalies, check_modes, steps
from shiftsvd.xarray.preparing import Asked
from shiftsvd.xarray.results import modes_of, scores_of, told_of_fit

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
