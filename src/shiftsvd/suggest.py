"""How many components: four rules, each with the evidence it decided on."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array, issparse

from shiftsvd.backends import as_operator
from shiftsvd.backends.checks import from_frame, is_frame
from shiftsvd.front import decompose, prepared
from shiftsvd.kernels import threads
from shiftsvd.moments import Vector
from shiftsvd.operators import LowRank, Operator, Panel, Scaled
from shiftsvd.result import SVDResult
from shiftsvd.shifts import finite_vector, moments_after, resolve_scale
from shiftsvd.sketch import generator
from shiftsvd.solvers import BlockLanczos
from shiftsvd.solvers.base import TOL, check_rank

METHODS: Final = ("elbow", "parallel", "gavish-donoho", "cv")
K_MAX: Final = 30
ENOUGH: Final = 1e-3  # relative accuracy of a permuted value: far below its standard deviation


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A number of components, and why.

    Attributes
    ----------
    k : int
        0 where nothing stands out.
    method : str
    table : dict of str to array
        The evidence, one row for each number of components, such as ``pandas.DataFrame(suggestion.table)`` shows:
        "component" and "value" with "chord" (elbow), or "threshold" (parallel, gavish-donoho); "components" and
        "error" (cv).
    """

    k: int
    method: str
    table: dict[str, Vector] = field(repr=False)

    def plot(self, ax: Any = None) -> Any:
        """Draw the evidence on `ax`, or on a new figure; returns the axes.

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
    method: str = "elbow",
    *,
    X: Any = None,
    shift: Any = "mean",
    scale: Any = None,
    k_max: int | None = None,
    n_draws: int = 20,
    n_deviations: float = 3.0,
    folds: int = 3,
    rng: int | Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
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
    shift, scale : as in `svd`
        For data, and for the data of an SVDResult; an estimator brings its own. "parallel" and "cv" take the mean,
        a vector or None.
    k_max : int, optional
        How many components are looked at. Default 30, or what the matrix or the fit has.
    n_draws : int
        Permutations of "parallel".
    n_deviations : float
        By so many of their standard deviations the values of the data must exceed the mean of the permuted ones.
    folds : int
        "cv" holds out one of so many parts of the rows together with one of so many parts of the columns.
    rng : int, Generator or None
    n_threads, memory_limit : as in `svd`

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
        Where all `k_max` components stand out, so that there may be more.

    Notes
    -----
    - "elbow": the last component before the spectrum, on a log scale, lies farthest below its chord from first to
      last (Satopaa et al. 2011). It always finds one, and it moves with `k_max`.
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
    if k_max is not None and (isinstance(k_max, bool) or not isinstance(k_max, int | np.integer) or k_max < 1):
        raise ValueError(f"k_max must be a positive integer or None, got {k_max!r}")
    rng = generator(rng)
    known = _spectrum(fitted)
    if known is None:
        X, fitted = fitted if X is None else X, None
    elif not isinstance(fitted, SVDResult):
        shift, scale = _vector_shift(fitted), getattr(fitted, "scale_", None)
    with threads(n_threads):
        if method in ("elbow", "gavish-donoho"):
            if known is None:
                known = _decomposed(X, shift, scale, k_max, rng, n_threads, memory_limit)
            known = replace(known, S=known.S[: k_max or K_MAX])
            return _told(*(_elbow(known) if method == "elbow" else _hard_threshold(known)), method)
        if X is None:
            raise ValueError(f'method={method!r} needs the data: suggest_k(fitted, {method!r}, X=X), or "elbow"')
        rows = _rows(X, shift, scale, n_threads, memory_limit)
        if method == "parallel":
            return _told(*_parallel(rows, k_max, n_draws, n_deviations, rng), method)
        return _told(*_bi_cross_validation(rows, k_max, folds, rng), method)


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

    Raises
    ------
    ValueError
        For an estimator of wide data, which does not keep the vectors on the short side.

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
    """The type of V in double precision."""
    return np.result_type(V, np.float64)


def _new_axes() -> Any:
    """Axes of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib; pip install 'shiftsvd[plot]'") from error
    return plt.subplots(layout="constrained")[1]


def _told(k: int, table: dict[str, Vector], method: str) -> Suggestion:
    """The suggestion, with a warning where there may be more."""
    last = int(next(iter(table.values()))[-1])
    if k >= last and method != "elbow":
        warnings.warn(f"all {last} components stand out, and there may be more: raise k_max", stacklevel=3)
    return Suggestion(int(k), method, table)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Leading singular values, the squared Frobenius norm, and the degrees of freedom of rows and columns."""

    S: Vector
    square: float | None
    shape: tuple[int, int]

    def noise(self, k: int) -> float:
        """The variance of an entry that k components leave over."""
        if self.square is None:
            raise ValueError('this needs the Frobenius norm, which the operator does not know; use "elbow"')
        (m, n), rest = self.shape, self.square - float(self.S[:k] @ self.S[:k])
        return max(rest, 1e-16 * self.square) / (max(m - k, 1) * max(n - k, 1))


def _spectrum(fitted: Any) -> _Spectrum | None:
    """What a fit knows; None where these are data."""
    if isinstance(fitted, SVDResult):
        S, error = fitted.S.astype(np.float64), fitted.info.frobenius_error
        return _Spectrum(S, None if error is None else error**2 + float(S @ S), fitted.shape)
    if not hasattr(fitted, "singular_values_"):
        return None
    S = np.asarray(fitted.singular_values_, np.float64)
    ratio = np.asarray(fitted.explained_variance_ratio_, np.float64)
    centred = isinstance(getattr(fitted, "shift", "mean"), str)
    square = float(S @ S / ratio.sum()) if ratio.sum() > 0 else 0.0
    return _Spectrum(S, square, (fitted.n_samples_ - centred, fitted.n_features_in_))


def _vector_shift(fitted: Any) -> Any:
    """What an estimator subtracts from every row, if that is all it subtracts; else its setting."""
    shift = getattr(fitted, "shift", "mean")
    own = hasattr(fitted, "shift_") or (isinstance(shift, str) and shift != "mean")
    return shift if own else np.asarray(fitted.mean_, np.float64)


def _decomposed(
    X: Any, shift: Any, scale: Any, k_max: int | None, rng: Generator, n_threads: int | None, limit: int | str | None
) -> _Spectrum:
    """The leading values of the data."""
    A = as_operator(X, n_threads=n_threads, memory_limit=limit)
    k = _looked_at(k_max, A.shape)
    known = _spectrum(decompose(prepared(A, shift, scale), k, "auto", TOL, rng, limit))
    assert known is not None
    return replace(known, shape=(A.shape[0] - isinstance(shift, str), A.shape[1]))


def _looked_at(k_max: int | None, shape: tuple[int, int]) -> int:
    """How many components are looked at, of a matrix of this shape."""
    if k_max is not None:
        check_rank(k_max, shape)
    return k_max or max(min(K_MAX, min(shape) - 1), 1)


# --- the rules: the number, and the table ---------------------------------------------------------------------


def _elbow(known: _Spectrum) -> tuple[int, dict[str, Vector]]:
    """The components before the spectrum is farthest below its chord, on a log scale."""
    S = known.S[known.S > 0]
    if len(S) < 3:
        raise ValueError(f"an elbow needs at least 3 values that are not 0, got {len(S)}; give more components")
    chord = np.exp(np.linspace(np.log(S[0]), np.log(S[-1]), len(S)))
    table = {"component": np.arange(1, len(S) + 1), "value": S, "chord": chord}
    return int(np.argmax(chord / S)), table


def _hard_threshold(known: _Spectrum) -> tuple[int, dict[str, Vector]]:
    """The values above the optimal hard threshold for the noise that the trace left over tells."""
    (m, n), S = known.shape, known.S
    b = min(m, n) / max(m, n)
    factor = np.sqrt(2 * (b + 1) + 8 * b / (b + 1 + np.sqrt(b * b + 14 * b + 1)))
    above, k = 0, -1
    while above > k:  # each step leaves out more of the signal, so that the threshold falls
        k = above
        threshold = factor * np.sqrt(max(m, n) * known.noise(k))
        above = int(np.sum(threshold < S))
    return k, {"component": np.arange(1, len(S) + 1), "value": S, "threshold": np.full(len(S), threshold)}


def _parallel(
    rows: "_Rows", k_max: int | None, n_draws: int, n_deviations: float, rng: Generator
) -> tuple[int, dict[str, Vector]]:
    """The leading values above those of data without correlations."""
    if not (isinstance(n_draws, int | np.integer) and n_draws >= 2 and n_deviations >= 0):
        raise ValueError(f"n_draws must be at least 2 and n_deviations 0, got {n_draws!r} and {n_deviations!r}")
    if rows.mu is None:
        raise ValueError('"parallel" needs shift="mean": permuted columns keep their means, which would hide the rest')
    (m, n), A = rows.X.shape, rows.operator()
    F = rows.svd(A, _looked_at(k_max, (m, n)), rng)
    S, squares = F.S.astype(np.float64), np.asarray(A.column_squares())
    parts = S[:, None] ** 2 * np.abs(F.Vh) ** 2  # what each component holds of each column
    above, k = 0, -1
    while above > k:
        k = above
        # Permutation spreads the variance of strong components over all others, which would hide the weaker ones.
        left = np.maximum(squares - parts[:k].sum(axis=0), 0) / np.where(squares > 0, squares, 1)
        share = np.sqrt(left * (m * n) / (max(m - k, 1) * max(n - k, 1)))
        draws = [float(rows.svd(rows.permuted(share, rng), 1, rng, ENOUGH).S[0]) for _ in range(n_draws)]
        threshold = float(np.mean(draws) + n_deviations * np.std(draws, ddof=1))
        above = int(np.argmin(np.append(S > threshold, False)))
    return k, {"component": np.arange(1, len(S) + 1), "value": S, "threshold": np.full(len(S), threshold)}


def _bi_cross_validation(rows: "_Rows", k_max: int | None, folds: int, rng: Generator) -> tuple[int, dict[str, Vector]]:
    """The number of components that predicts held-out blocks best."""
    m, n = rows.X.shape
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or not 2 <= folds <= min(m, n):
        raise ValueError(f"folds must be an integer in 2..{min(m, n)} for a {m} x {n} matrix, got {folds!r}")
    kept = min(m - -(-m // folds), n - -(-n // folds))
    k = min(_looked_at(k_max, (m, n)), kept)
    parts = [(i, j) for i in _folds(m, folds, rng) for j in _folds(n, folds, rng)]
    errors = sum(_held_out(rows, i, j, k, rng) for i, j in parts) / (m * n)
    return int(np.argmin(errors)), {"components": np.arange(k + 1), "error": np.asarray(errors)}


def _held_out(rows: "_Rows", i: Vector, j: Vector, k: int, rng: Generator) -> Vector:
    """``||A11 - A12 (A22)_q^+ A21||_F^2`` for q = 0..k, where `i` and `j` are the rows and columns kept."""
    F = rows.svd(rows.operator(i, j), k, rng)  # A22
    inverse = np.where(F.S > 0, 1 / np.where(F.S > 0, F.S, 1), 0)
    L = rows.operator(~i, j).matmat(F.Vh.conj().T * inverse)
    R = rows.operator(i, ~j).rmatmat(F.U)
    A11 = rows.operator(~i, ~j)
    square = A11.frobenius_norm()
    assert square is not None
    # ||A11 - L R^H||^2 for the leading columns of L and R, without forming it
    cross = np.cumsum(np.sum(L.conj() * A11.matmat(R), axis=0).real)
    G = ((L.conj().T @ L) * (R.conj().T @ R).T).real
    own = np.diagonal(np.cumsum(np.cumsum(G, axis=0), axis=1))
    return np.concatenate([[square**2], square**2 - 2 * cross + own])


def _folds(size: int, folds: int, rng: Generator) -> Iterator[Vector]:
    """Masks of what is kept when one of so many random parts is held out."""
    part = rng.permutation(size) % folds
    return (part != fold for fold in range(folds))


# --- the data ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """Data whose rows and columns can be taken and permuted, with the shift and scale of their columns."""

    X: Any  # a NumPy array or a CSR
    mu: Vector | None
    scale: Vector | None
    n_threads: int | None
    memory_limit: int | str | None

    def operator(self, i: Vector | None = None, j: Vector | None = None) -> Operator:
        """``(X - 1 mu^T) diag(1 / scale)``, or some rows and columns of it."""
        X = self.X if i is None else self.X[i][:, j]
        columns = slice(None) if j is None else j
        A = as_operator(X, n_threads=self.n_threads, memory_limit=self.memory_limit)
        A = A if self.mu is None else A - LowRank(np.ones(A.shape[0]), self.mu[columns].conj())
        return A if self.scale is None else Scaled(A, cols=1 / self.scale[columns])

    def permuted(self, share: Vector, rng: Generator) -> Operator:
        """The same with the entries of every column in an order of their own, times a share of the column."""
        return Scaled(replace(self, X=permuted(self.X, rng)).operator(), cols=share)

    def svd(self, A: Operator, k: int, rng: Generator, tol: float = TOL) -> SVDResult:
        """The k leading components of a part."""
        return decompose(A, k, "auto", tol, rng, self.memory_limit)


def _rows(X: Any, shift: Any, scale: Any, n_threads: int | None, memory_limit: int | str | None) -> _Rows:
    """The data, checked, with the vectors that shift and scale mean."""
    if isinstance(X, Operator) or (hasattr(X, "matmat") and not issparse(X)):
        raise ValueError(f'"parallel" and "cv" need an array or a sparse matrix in memory, got {X}; use "elbow"')
    X = from_frame(X) if is_frame(X) else X
    known_zeros = issparse(X)
    X = csr_array(X) if known_zeros else np.asarray(X)
    A = as_operator(X, n_threads=n_threads, memory_limit=memory_limit)
    if not (shift is None or (isinstance(shift, str) and shift == "mean") or isinstance(shift, list | np.ndarray)):
        raise ValueError(f'"parallel" and "cv" take shift="mean", None or a vector, got {shift!r}')
    moments, mu = A.moments(), None
    if shift is not None:
        mu = moments.mean if isinstance(shift, str) else finite_vector("shift", shift, A.shape[1], "feature")
    S = None if mu is None else LowRank(np.ones(A.shape[0]), mu.conj())
    divisor = resolve_scale(scale, A.shape[1], moments_after(A, S, moments), moments)
    return _Rows(X, mu, divisor, n_threads, memory_limit)


def permuted(X: Any, rng: Generator) -> Any:
    """X with the entries of every column in an order of their own; sparse X stays sparse."""
    known_zeros = issparse(X)
    if not known_zeros:
        return rng.permuted(X, axis=0)
    columns = X.tocsc()
    counts = np.diff(columns.indptr)
    # Which rows a column stores is all that a permutation of it decides.
    rows = [rng.choice(X.shape[0], count, replace=False) for count in counts]
    place = np.concatenate(rows), np.repeat(np.arange(X.shape[1]), counts)
    return csr_array((columns.data, place), shape=X.shape)
