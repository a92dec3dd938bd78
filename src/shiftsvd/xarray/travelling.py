"""Modes of travelling and oscillating patterns: lagged matrices, analytic signals, extended and Hilbert EOFs."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import repeat
from typing import Any, Final, Literal, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
from scipy import fft
from xarray import concat

from shiftsvd import Gram, Operator, SVDResult
from shiftsvd.extend.fits import integer
from shiftsvd.extend.operators import Deflated, Derived, Panel, Vector, generic, panel_dtype
from shiftsvd.extend.running import MissingName, Refused, Setting, notice, refuse
from shiftsvd.operators import Costs, Product
from shiftsvd.xarray.anomalies import Anomalies, FieldOptions, Keywords, anomalies, with_keywords, with_small_cells
from shiftsvd.xarray.datasets import Dataset, fit_attrs, mode_labels, modes_dataset, scores_of, variance_variables
from shiftsvd.xarray.fields import Dim, Mask, Stacked, as_dims, as_field, labelled, stacked

Part = TypeVar("Part")


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Lagged(Derived):
    """``[A S_0; A S_1; ...]``: column t holds the columns t + lag of A, one lag above the other.

    A has p rows (cells) and m columns (steps); this has ``p * len(lags)`` rows and ``m - max(lags)`` columns. A product
    reads A once, with the panels of all lags side by side.
    """

    lags: tuple[int, ...]  # steps, none negative, ascending

    def __post_init__(self) -> None:
        super().__post_init__()
        p, m = self.A.shape
        object.__setattr__(self, "shape", (p * len(self.lags), m - max(self.lags)))

    def matmat(self, V: Panel) -> Panel:
        return self._lags_as_rows(self.A.matmat(self._shifted(V)))

    def matmat_in_double(self, V: Panel) -> Panel:
        return self._lags_as_rows(generic.matmat_in_double(self.A, self._shifted(V)))

    def rmatmat(self, W: Panel) -> Panel:
        return self._summed_over_lags(self.A.rmatmat(self._lags_as_columns(W)))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._summed_over_lags(generic.rmatmat_in_double(self.A, self._lags_as_columns(W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if weights is not None:
            return self.rmatmat(weights[:, None] * self.matmat(V))
        return self._summed_over_lags(self.A.gram(self._shifted(V)))

    def _by_lag(self, of: Callable[[Vector | None], Part], weights: Vector | None) -> Iterator[tuple[int, Part]]:
        if weights is None:
            return zip(self.lags, repeat(of(None)), strict=False)
        return zip(self.lags, map(of, np.split(weights, len(self.lags))), strict=True)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        n = self.shape[1]
        G = np.zeros((n, n), panel_dtype(self.dtype))
        for lag, own in self._by_lag(partial(generic.gram_matrix, self.A), weights):
            G += own[lag : lag + n, lag : lag + n]
        return G

    def known_costs(self) -> dict[str, Any]:
        A, count = self.A.costs, len(self.lags)
        kept = {name: getattr(A, name) for name in ("gram_reads", "gram_in_single", "gram_pairs")}
        columns = count * (A.column_bytes + 2 * panel_dtype(self.dtype).itemsize * sum(self.A.shape))
        lost = {"adjoint_bytes": 0, "long_bytes": 0, "square_columns": 0}
        return kept | lost | {"stored": A.stored * count, "column_bytes": columns}

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        n = self.shape[1]
        found = np.zeros(n)
        for lag, own in self._by_lag(self.A.column_squares, weights):
            if own is None:
                return None
            found += own[lag : lag + n]
        return found

    def exponents(self, axis: int) -> Vector | None:
        e, n = None if axis else generic.exponents(self.A, 0), self.shape[1]
        return None if e is None else np.max([e[lag : lag + n] for lag in self.lags], axis=0)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Lagged | None":
        A = None if np.ndim(rows) or np.ndim(cols) else generic.ldexp(self.A, rows, cols)
        return None if A is None else Lagged(A, self.lags)

    def _shifted(self, V: Panel) -> Panel:
        n, b = V.shape
        out = np.zeros((self.A.shape[1], len(self.lags) * b), V.dtype)
        for j, lag in enumerate(self.lags):
            out[lag : lag + n, j * b : (j + 1) * b] = V
        return out

    def _summed_over_lags(self, Y: Panel) -> Panel:
        n, b = self.shape[1], Y.shape[1] // len(self.lags)
        out = np.zeros((n, b), Y.dtype)
        for j, lag in enumerate(self.lags):
            out += Y[lag : lag + n, j * b : (j + 1) * b]
        return out

    def _lags_as_rows(self, Y: Panel) -> Panel:
        count = len(self.lags)
        return np.ascontiguousarray(Y.reshape(len(Y), count, -1).transpose(1, 0, 2)).reshape(count * len(Y), -1)

    def _lags_as_columns(self, W: Panel) -> Panel:
        count, p = len(self.lags), self.A.shape[0]
        return np.ascontiguousarray(W.reshape(count, p, -1).transpose(1, 0, 2)).reshape(p, -1)


@dataclass(frozen=True, eq=False, repr=False)
class AnalyticSignal(Operator):
    """Map m steps to their analytic signal minus its mean, by Fourier transforms of the columns of panels.

    Without padding the transform treats the series as periodic, so a step from its end to its beginning rings. With
    `decay`, m steps pad either side: the linear trend of the series continues, and the distances of the first and last
    value from that trend decay as ``exp(-t / (decay m))``.
    """

    m: int
    decay: float | None  # None: no padding
    kind: npt.DTypeLike  # of the results for users: complex64 or complex128

    def __post_init__(self) -> None:
        vars(self).update(shape=(self.m, self.m), dtype=np.dtype(self.kind))

    def matmat(self, V: Panel) -> Panel:
        V = V.astype(np.result_type(V, np.float64), copy=False)
        return _centred(self._filtered(self._padded(V))[self._inside])

    def rmatmat(self, W: Panel) -> Panel:
        Y = np.zeros((len(self._response), W.shape[1]), np.complex128)
        Y[self._inside] = _centred(W)
        return self._unpadded(self._filtered(Y))

    @cached_property
    def costs(self) -> Costs:
        eps = float(np.finfo(np.float64).eps)
        return Costs.of(self, stored=self.m, eps=eps, gram_eps=eps, gram_reads=0, gram_in_single=False)

    @cached_property
    def _response(self) -> Vector:
        n = self.m + 2 * len(self._padding[0])
        h = np.zeros(n)
        h[0], h[1 : (n + 1) // 2] = 1, 2
        if n % 2 == 0:
            h[n // 2] = 1
        return h

    @property
    def _inside(self) -> slice:
        first = len(self._padding[0])
        return slice(first, first + self.m)

    @cached_property
    def _padding(self) -> tuple[Panel, Panel, Panel]:
        # The steps before and after the series are `before @ M @ V` and `after @ M @ V`.
        m, t = self.m, np.arange(self.m)
        if self.decay is None:
            return np.zeros((0, 4)), np.zeros((0, 4)), np.zeros((4, m))
        line = np.column_stack([np.ones(m), t])
        fitted = np.linalg.pinv(line)
        fading = np.exp(-t / (self.decay * m))[:, None]
        M = np.vstack([np.eye(1, m), fitted, np.eye(1, m, m - 1)])
        ends = np.zeros((m, 1))
        before = np.hstack([fading[::-1], np.column_stack([np.ones(m), t - m]) - fading[::-1] * line[:1], ends])
        after = np.hstack([ends, np.column_stack([np.ones(m), t + m]) - fading * line[-1:], fading])
        return before, after, M

    def _padded(self, V: Panel) -> Panel:
        before, after, M = self._padding
        known = M @ V
        return np.concatenate([before @ known, V, after @ known])

    def _unpadded(self, Y: Panel) -> Panel:
        before, after, M = self._padding
        ahead, inside, behind = np.split(Y, [len(before), len(before) + self.m])
        return np.asarray(inside + M.T @ (before.T @ ahead + after.T @ behind))

    def _filtered(self, Y: Panel) -> Panel:
        return np.asarray(fft.ifft(self._response[:, None] * fft.fft(Y, axis=0), axis=0))


def _centred(Y: Panel) -> Panel:
    return np.asarray(Y - Y.mean(axis=0))


# --- front doors -----------------------------------------------------------------------------------------------------


DECAY: Final = 0.2
# Ratio of the largest to the smallest time step from which on a notice tells: months, dekads and half months have up to
# 1.4, and an absent month gives at least 1.9.
UNEQUAL: Final = 1.6
# Time steps up to which the Gram matrix between steps is formed, in one read.
MAX_GRAM_STEPS = 4000
# Exponent of two of the largest cell from which on the anomalies of sequences are divided by a power of two.
MOST_EXPONENT: Final = 100
# Entries of a block of cells in one Fourier transform.
BLOCK_ENTRIES: Final = 2**22


@with_keywords
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
    **keywords: Unpack[Keywords],
) -> Any:
    """Find extended EOFs (multichannel singular spectrum analysis): sequences of patterns that travel or oscillate.

    Parameters
    ----------
    da : xarray.DataArray
        As for `pca`; the samples must be equally spaced in time.
    n_modes : int
        Number of modes.
    lags : int, or sequence of them
        Number of steps in a sequence, 0 to lags - 1; or the steps, such as ``range(0, 60, 5)``.
    dim : hashable
        The dimension of time.
    weights, center, standardize : optional
        As in `pca`.
    missing : "error", "mean" or "em"
        As in `pca`, also for steps without any values.
    groups, covariates : optional
        Removed before lags are taken, as in `pca`; pass those that are no coordinates to `project` again.
    solver, tol, certify, penalty, max_iter, rng, n_threads, memory_limit : optional
        As in `pca`.

    Returns
    -------
    xarray.Dataset
        The variables of `pca`, with ``components (mode, lag, *space)`` of length 1 over all lags, and ``scores (mode,
        dim)`` at the first step of each sequence; there are ``max(lags)`` fewer sequences than steps. ``score_means
        (mode)`` are the means that were subtracted from the scores.

    Raises
    ------
    ValueError
        If lags exceed the series, or samples have no values or are not in order; and as in `pca`.
    TypeError
        If `da` is not a DataArray.

    See Also
    --------
    xarray.hilbert : Complex modes of travelling waves.
    xarray.pca : Modes of single steps.

    Notes
    -----
    ``sum over modes of scores(t) * components(lag)`` is the weighted anomaly at t + lag, minus its mean over all t. The
    matrix of all lags is never formed: a product with it is a product of the field with a panel that has one copy of
    each column for each lag. For up to 4000 steps, the Gram matrix between steps is formed in one read, and its windows
    are summed.

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
    options = FieldOptions(dim, weights, center, standardize, missing, **keywords)
    if "lag" in getattr(da, "dims", ()):
        raise ValueError("da has a dimension 'lag', a name that results use. Rename the dimension.")
    field = _stack_series(da, options, "an extended EOF")
    m, cells = field.X.shape
    taken = _lags(lags, m)
    n = m - max(taken)
    sizes = f"{n:,} sequences of {len(taken):,} lags of {cells:,} cells"
    integer("n_modes", n_modes, 1, min(cells * len(taken), n), f" for {sizes}")
    of = anomalies(field, options, n_modes)
    # Entries of the Gram matrix are squares, which the solver squares again. The size is known without a read.
    unit = int(np.frexp(np.sqrt(of.squares.max()))[1])
    B = generic.ldexp(of.A.H, 0, -unit) if abs(unit) > MOST_EXPONENT else None
    E, unit = (Lagged(of.A.H, taken), 0) if B is None else (Lagged(B, taken), unit)
    constant = np.full((n, 1), n**-0.5)
    A = Deflated(E, constant) if center else E
    F = with_small_cells(A.H, _with_gram_solver(options, n).svd(A, n_modes).H, np.tile(of.squares, len(taken))).H
    centre = E.matmat(constant) if center else np.zeros((E.shape[0], 1))
    squares = float(E.column_squares().sum()) - float(np.linalg.norm(centre)) ** 2  # type: ignore[union-attr]
    means, F = np.ldexp((F.U.T @ centre)[:, 0] * n**-0.5, unit), F.times_power(unit)
    found = _dataset(of, F, taken, float(np.ldexp(squares, 2 * unit))).assign(score_means=("mode", means))
    return found.assign_attrs(fit_attrs([F], of) | {"n_samples": n, "n_lags": len(taken)} | options.attrs)


def _lags(lags: Any, m: int) -> tuple[int, ...]:
    count = isinstance(lags, int | np.integer) and not isinstance(lags, bool)
    taken = tuple(range(lags)) if count else tuple(np.atleast_1d(lags).tolist())
    whole = all(isinstance(lag, int) and not isinstance(lag, bool) for lag in taken)
    if not taken or not whole or sorted(set(taken)) != list(taken) or taken[0] < 0 or taken[-1] > m - 2:
        rule = "be a number of lags of at least 1, or an ascending list of lags of at least 0"
        raise refuse("lags", f"{rule}, with a largest lag of at most {m - 2:,} for {m:,} samples", lags)
    return taken


def _dataset(of: Anomalies, F: SVDResult, lags: tuple[int, ...], squares: float) -> Dataset:
    field, modes, n = of.field, mode_labels(len(F.S)), F.Vh.shape[1]
    patterns = F.U.T.reshape(len(F.S), len(lags), -1)
    each = [field.in_space(patterns[:, j], modes).expand_dims(lag=[lag], axis=1) for j, lag in enumerate(lags)]
    first = {field.over[0]: slice(0, n)}
    scores = labelled(scores_of(F.H).conj().T, field.da.isel(first), field.over, modes)
    found = {"components": concat(each, "lag"), "scores": scores} | variance_variables(F, n, squares)
    # Scores exist at the first steps of sequences only, so keep groups and covariates at these steps.
    found |= {name: values.isel(first, missing_dims="ignore") for name, values in of.subtracted().items()}
    return Dataset(found, coords={"mode": modes}, attrs=of.attrs)


@with_keywords
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
    **keywords: Unpack[Keywords],
) -> Any:
    """Find complex EOFs of a field and its Hilbert transform in time: one mode for a wave that travels, not two.

    Parameters
    ----------
    da : xarray.DataArray
        As for `pca`; the samples must be equally spaced in time.
    n_modes : int
        Number of modes.
    dim : hashable
        The dimension of time.
    padding : "exp" or None
        Continuation of the series beyond its ends. "exp": as many steps on either side, in which the linear trend of
        each cell continues, and the distances of the first and last value from the trend decay. None: periodic, so
        that a difference between the ends causes ringing in the first and last steps.
    decay : float
        With "exp", the time in which a distance from the trend decays to 1/e, in lengths of the series.
    weights, center, standardize : optional
        As in `pca`.
    missing : "error", "mean" or "em"
        As in `pca`, also for steps without any values; with "em" the model has twice as many components as `n_modes`,
        since a travelling wave needs two.
    groups, covariates : optional
        Removed before the transform, as in `pca`.
    solver, tol, certify, penalty, max_iter, rng, n_threads, memory_limit : optional
        As in `pca`.

    Returns
    -------
    xarray.Dataset
        The variables of `pca`; ``components`` and ``scores`` are complex: ``abs`` of them are amplitudes, and
        ``numpy.angle`` phases. The largest entry of each component is real and positive. The weighted anomalies are the
        real part of ``sum over modes of scores * components``, which are the conjugates of xeofs's. ``score_means
        (mode)`` are the means that were subtracted from the scores. In NetCDF complex variables become two real ones,
        with the suffixes _real and _imag, which `project` and `reconstruct` accept.

    Raises
    ------
    ValueError
        If samples have no values or are not in order; and as in `pca`.
    TypeError
        If `da` is not a DataArray.

    See Also
    --------
    xarray.pca : Modes of standing patterns.
    xarray.extended : Modes with lags, for patterns that travel or oscillate.

    Notes
    -----
    The analytic signal ``x + i H(x)`` of the weighted anomalies, minus its mean, has about twice the variance of the
    field. ``abs(components) * sqrt(explained_variance) / weights`` is the amplitude of a mode in each cell, in the
    units of the field, at the root mean square of its scores. Of the functions of modes, `project` and `reconstruct`
    accept complex ones.

    The signal is never formed: products with it are products with the field, and Fourier transforms of panels. Cost: as
    `pca`, and a read for the total variance. For up to 4000 steps, the Gram matrix between steps is formed in one read.

    References
    ----------
    Horel (1984), Complex principal component analysis; the padding is that of xeofs's HilbertEOF.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> t, x = np.arange(80)[:, None], np.arange(12)
    >>> da = xarray.DataArray(
    ...     np.cos(2 * np.pi * (t / 20 - x / 12)), dims=("time", "lon")
    ... )  # a travelling wave
    >>> modes = shiftsvd.xarray.hilbert(da, 2, padding=None)
    >>> modes.explained_variance_ratio.values.round(6).tolist()
    [1.0, 0.0]
    """
    if padding not in ("exp", None):
        raise refuse("padding", 'be "exp" or None', padding)
    if not decay > 0:
        raise refuse("decay", "be positive", decay)
    options = FieldOptions(dim, weights, center, standardize, missing, **keywords)
    field = _stack_series(da, options, "a Hilbert transform")
    m, n = field.X.shape
    integer("n_modes", n_modes, 1, min(m, n), f" for {m:,} samples of {n:,} cells")
    of = anomalies(field, options, 2 * n_modes)
    T = AnalyticSignal(m, decay if padding else None, np.result_type(of.A.dtype, np.complex64))
    C = Product(T, of.A)
    F = with_small_cells(C, _with_gram_solver(options, m).svd(C, n_modes), of.squares)
    found = modes_dataset(of, F.Vh, scores_of(F), F, total_squares(C))
    attrs = fit_attrs([F], of) | options.attrs | {"padding": str(padding)} | ({"decay": decay} if padding else {})
    # The mean of centred anomalies is 0.
    means = np.zeros(len(F.S)) if center else of.A.rmatmat(np.ones((m, 1)))[:, 0] @ F.Vh.conj().T / m
    return found.assign(score_means=("mode", means)).assign_attrs(attrs)


def _stack_series(da: Any, options: FieldOptions, what: str) -> Stacked:
    options.check()
    da = as_field(da)
    check_steps(da, options.dim, what)
    field = stacked(da, options.dim, options.missing, every=True)
    check_no_empty_steps(field.rows, what)
    return field


def check_steps(da: Any, dim: Dim, what: str) -> None:
    names = as_dims(dim)
    if len(names) != 1:
        raise Refused(f"{what} requires a single dimension of consecutive samples, got ", Setting("dim", dim))
    index = da.indexes.get(names[0])
    if index is not None and not (index.is_unique and index.is_monotonic_increasing):
        wrong = "is not sorted. Sort it with da.sortby"
        if not index.is_unique:
            wrong = "has duplicate labels. Remove them with da.drop_duplicates"
        raise ValueError(f"{what} requires ascending samples, but {names[0]} {wrong}({names[0]!r}).")
    _notice_unequal_steps(index, what, names[0])


def _notice_unequal_steps(index: Any, what: str, dim: Hashable) -> None:
    labels = np.asarray(() if index is None else index.values)
    if len(labels) < 3 or not (labels.dtype.kind in "iufMm" or hasattr(labels[0], "calendar")):
        return
    steps = np.diff(labels)
    at, ratio = int(np.argmax(steps)), float(np.max(steps) / np.min(steps))
    if ratio > UNEQUAL:
        first, last = (str(index[i]).removesuffix(" 00:00:00") for i in (at, at + 1))
        notice(
            f"{what} takes the steps along {dim} as equal, but the one from {first} to {last} is {ratio:,.1f} times "
            f"the smallest. To keep such distances, insert the absent samples as NaN with da.reindex({dim}=...), and "
            "fit with ",
            *(Setting("missing", "mean"), ' or "em".'),
        )


def check_no_empty_steps(rows: Mask, what: str) -> None:
    if absent := int(np.count_nonzero(~rows)):
        raise Refused(
            f"{what} requires values at every step, but there are none at {absent:,} of {len(rows):,} samples, first "
            f"at position {int(np.argmin(rows)):,} (counted from 0). Fill these samples, "
            "select a period without gaps, or fit with ",
            *(Setting("missing", "mean"), ' or "em".'),
        )


def _with_gram_solver(options: FieldOptions, m: int) -> FieldOptions:
    formed = options.solver == "auto" and m <= MAX_GRAM_STEPS
    return replace(options, solver=Gram(options.tol, last_pass=False)) if formed else options


def total_squares(C: Product) -> float:
    # One read of the field: trace(T G T^H) with the Gram matrix G between steps; beyond MAX_GRAM_STEPS, the squares of
    # dense blocks of cells.
    T, A = C.A, C.B
    if T.shape[0] <= MAX_GRAM_STEPS:
        half = T.matmat(generic.gram_matrix(A.H))
        return float(np.trace(T.matmat(half.conj().T)).real)
    columns = max(1, BLOCK_ENTRIES // T.shape[0])
    return float(sum(np.linalg.norm(T.matmat(block.conj().T)) ** 2 for _, block in generic.row_blocks(A.H, columns)))
