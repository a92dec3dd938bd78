"""How many components: four rules, each with the evidence it decided on."""

from dataclasses import dataclass, field
from typing import Any, Final, get_args

import numpy as np
from numpy.random import Generator

from shiftsvd.backends import as_operator
from shiftsvd.choosing.rules import (
    bi_cross_validation,
    elbow,
    hard_threshold,
    of_result,
    parallel,
    rows_of,
    spectrum_of,
)
from shiftsvd.front import decompose
from shiftsvd.kernels import threads
from shiftsvd.names import RuleName, ScaleName, ShiftName, VectorLike
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.result import SVDResult
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.messages import warn
from shiftsvd.shifts import Shift
from shiftsvd.sketch import generator
from shiftsvd.solvers import BlockLanczos
from shiftsvd.solvers.base import TOL, check_rank
from shiftsvd.transforms.chains import Preprocess, as_transforms

METHODS: Final = get_args(RuleName)
MAX_K: Final = 30
SPECTRAL: Final = {"elbow": elbow, "gavish-donoho": hard_threshold}


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A number of components, and why.

    Parameters
    ----------
    k : int
        0 where nothing stands out.
    method : str
        The rule that chose it, as `suggest_k` names them.
    table : dict of str to array
        The evidence, one row for each number of components, such as ``pandas.DataFrame(suggestion.table)`` shows:
        "component" and "value" with "chord" (elbow), or "threshold" (parallel, gavish-donoho); "components" and
        "error" (cv).

    See Also
    --------
    suggest_k : Makes one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((200, 20)) @ np.diag([9.0] * 3 + [1.0] * 17)
    >>> ss.suggest_k(X, rng=0).k
    3
    """

    k: int
    method: str
    table: dict[str, Vector] = field(repr=False)

    def plot(self, ax: Any = None) -> Any:
        """Draw the evidence: the values of all components that were looked at, and which of them stand out.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Default: those of a new figure.

        Returns
        -------
        matplotlib Axes
            The axes with the evidence: a line, and a mark at `k`.

        Raises
        ------
        ImportError
            Without matplotlib: ``pip install 'shiftsvd[plot]'``.
        """
        ax = _new_axes() if ax is None else ax
        (at, numbers), *columns = self.table.items()
        for style, (name, values) in zip(("o-", "--"), columns, strict=False):
            ax.plot(numbers, values, style, label=name, markersize=4)
        ax.axvline(self.k + (at == "component") / 2, color="0.5", linewidth=1, label=f"k = {self.k}")
        ax.set(xlabel=at, ylabel=columns[0][0], title=f"How many components: {self.method}")
        if "value" in self.table and self.table["value"].min() > 0:
            ax.set_yscale("log")
        ax.legend()
        return ax


def suggest_k(
    fitted: Any,
    method: RuleName = "elbow",
    *,
    X: Any = None,
    shift: ShiftName | VectorLike | Operator | Shift | None = "mean",
    scale: bool | ScaleName | VectorLike | None = None,
    max_k: int | None = None,
    n_draws: int = 20,
    n_deviations: float = 3.0,
    folds: int = 3,
    rng: int | Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    preprocess: Preprocess | None = None,
) -> Suggestion:
    """How many components stand out, by one of four rules.

    Parameters
    ----------
    fitted : fitted estimator, SVDResult, or the data, of shape (m, n)
        A fit is reused for "elbow" and "gavish-donoho", up to the number of components that it has.
    method : {"elbow", "parallel", "gavish-donoho", "cv"}
        See the notes.
    X : array or sparse matrix of shape (m, n), optional
        The data of a fit, which "parallel" and "cv" need.
    shift, scale : str, array, Operator or None
        As in `svd`, for data, and for the data of an SVDResult; an estimator brings its own. "parallel" and "cv" take
        the mean, a vector or None.
    max_k : int, optional
        How many components are looked at. Default 30, or what the matrix or the fit has.
    n_draws : int
        Permutations of "parallel".
    n_deviations : float
        By so many of their standard deviations the values of the data must exceed the mean of the permuted ones.
    folds : int
        "cv" holds out one of so many parts of the rows together with one of so many parts of the columns.
    rng : int, Generator or None
        As in `svd`.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.
    preprocess : transformation, its name, or list of them
        Of data, and of those of an SVDResult, as in `svd`; an estimator brings its own. "parallel" and "cv" take those
        that keep zeros.

    Returns
    -------
    Suggestion
        ``.k``, ``.table`` and ``.plot()``.

    Raises
    ------
    ValueError
        For a rule that needs the data where there are none, or settings that cannot be.

    Warns
    -----
    UserWarning
        Where all `max_k` components stand out, so that there may be more.

    See Also
    --------
    Suggestion : What is returned.
    PCA : ``n_components=0.9`` takes a share of the variance.

    Notes
    -----
    - "elbow": the last component before the spectrum, on a log scale, lies farthest below its chord from first to
      last (Satopaa et al. 2011). It always finds one, and it moves with `max_k`.
    - "parallel": values well above the largest one of the same data with every column permuted on its own (Horn 1965;
      Buja & Eyuboglu 1992), sparse data among the places of their rows. Since the variance of strong components
      would hide weak ones there, the permuted columns are shrunk to what the components found so far leave of them,
      until no more are found (after the deflation of Dobriban & Owen 2019, without its dense residual). It is for
      noise whose variance may differ between columns, not between rows. Two or three times `n_draws` leading
      components, one copy of the data at a time.
    - "gavish-donoho": values above the optimal hard threshold ``lambda(b) sqrt(max(m, n)) sigma_k`` with ``b`` the
      ratio of the sides and ``lambda(b)^2 = 2 (b + 1) + 8 b / (b + 1 + sqrt(b^2 + 14 b + 1))`` (Gavish & Donoho
      2014), for noise of one variance in all entries. The median value being unknown, the noise is that of the
      trace left over, ``sigma_k^2 = (||A||_F^2 - sum_{j <= k} s_j^2) / ((m - k) (n - k))``, with the smallest k
      that agrees with itself; m is one less where the mean is subtracted.
    - "cv": bi-cross-validation (Owen & Perry 2009). With a block ``A11`` of rows and columns held out, the others
      predict it as ``A12 (A22)_k^+ A21``; the k with the least squared error over all ``folds^2`` blocks.

    To go on from a fit of k components to more, begin with what it found: `warm_start`.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 50)) + 0.5 * rng.standard_normal((200, 50))
    >>> [ss.suggest_k(X, method, rng=0).k for method in ("elbow", "parallel", "gavish-donoho", "cv")]
    [3, 3, 3, 3]
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if max_k is not None and (isinstance(max_k, bool) or not isinstance(max_k, int | np.integer) or max_k < 1):
        raise ValueError(f"max_k must be a positive integer or None, got {max_k!r}")
    rng = generator(rng)
    known = spectrum_of(fitted)
    if known is None:
        X = fitted if X is None else X
    elif not isinstance(fitted, SVDResult):
        shift, scale = _vector_shift(fitted), getattr(fitted, "scale_", None)
        preprocess = getattr(fitted, "preprocess", None)
    entries = as_transforms(preprocess)
    with threads(n_threads):
        if method in SPECTRAL:
            if known is None:
                A = as_operator(X, n_threads=n_threads, memory_limit=memory_limit)
                B = Preparation(shift, scale, entries=entries).learn(A).of(A)
                F = decompose(B, _looked_at(max_k, A.shape), "auto", TOL, rng, memory_limit)
                known = of_result(F, centred=isinstance(shift, str))
            held = len(known.S) if X is None else None
            return _told(*SPECTRAL[method](known.first(max_k or MAX_K)), method, min(known.shape), held)
        if X is None:
            raise ValueError(f'method={method!r} needs the data: suggest_k(fitted, {method!r}, X=X), or "elbow"')
        rows = rows_of(X, shift, scale, entries, Resources(memory_limit, n_threads))
        most = _looked_at(max_k, rows.X.shape)
        if method == "parallel":
            return _told(*parallel(rows, most, n_draws, n_deviations, rng), method, min(rows.X.shape))
        return _told(*bi_cross_validation(rows, most, folds, rng), method, min(rows.X.shape))


def warm_start(fitted: Any, tol: float = TOL) -> BlockLanczos:
    """The solver that begins with the components of a fit, to find more of them or those of similar data.

    Parameters
    ----------
    fitted : fitted estimator or SVDResult
        An estimator must have at least as many samples as features; an SVDResult may be of any shape.
    tol : float
        As in `BlockLanczos`.

    Returns
    -------
    BlockLanczos
        A solver for another fit of the same or similar data.

    Raises
    ------
    ValueError
        For an estimator of wide data, which does not keep the vectors on the short side.

    See Also
    --------
    BlockLanczos : Begins from these vectors.
    PCA : ``warm_start=True`` keeps them between fits.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((500, 40))
    >>> F = ss.svd(X, 5, shift="mean", rng=0)
    >>> ss.svd(X, 10, shift="mean", solver=ss.warm_start(F), rng=0).info.converged
    True
    """
    if isinstance(fitted, SVDResult):
        m, n = fitted.shape
        return BlockLanczos(tol, start=np.asarray(fitted.U if m < n else fitted.Vh.conj().T, _double(fitted.Vh)))
    if fitted.n_samples_ < fitted.n_features_in_:
        raise ValueError(
            f"an estimator of {fitted.n_samples_} samples x {fitted.n_features_in_} features does not keep the left "
            "vectors; give the SVDResult of svd"
        )
    return BlockLanczos(tol, start=fitted.components_.T.astype(np.float64))


def _double(V: Panel) -> Any:
    return np.result_type(V, np.float64)


def _new_axes() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib; pip install 'shiftsvd[plot]'") from error
    return plt.subplots(layout="constrained")[1]


def _told(k: int, table: dict[str, Vector], method: str, most: int, held: int | None = None) -> Suggestion:
    last = int(next(iter(table.values()))[-1])
    if k >= last and method != "elbow":
        more = f"max_k={min(2 * last, most)}"
        if last >= most:
            remedy = "all there are: take a share of the variance, or leave out none"
        elif held is not None and last >= held:
            remedy = f"all of this fit, and there may be more: give the data, suggest_k(X, {method!r}, {more})"
        else:
            remedy = f"and there may be more: raise max_k, such as {more}"
        warn(f"all {last} components that were looked at stand out, {remedy}")
    return Suggestion(int(k), method, table)


def _looked_at(max_k: int | None, shape: tuple[int, int]) -> int:
    if max_k is not None:
        check_rank(max_k, shape)
    return max_k or max(min(MAX_K, min(shape) - 1), 1)


def _vector_shift(fitted: Any) -> Any:
    shift = getattr(fitted, "shift", "mean")
    own = hasattr(fitted, "shift_") or (isinstance(shift, str) and shift != "mean")
    return shift if own else np.asarray(fitted.mean_, np.float64)
