"""Suggest a number of components by the spectrum, by permuted data or by held-out data."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array, issparse

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.backends.validation import from_frame, is_frame, sound_places
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.front import decompose, integer
from shiftsvd.kernels import threads
from shiftsvd.names import RuleName, ScaleName, ShiftName, VectorLike
from shiftsvd.numerics.powers import check_size, largest_of, length
from shiftsvd.operators import Adjoint, Operator, Scaled, Vector
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.shifts import MeanShift
from shiftsvd.result import SVDResult
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.messages import warn
from shiftsvd.shifts import Shift
from shiftsvd.sketch import generator
from shiftsvd.solvers import BlockLanczos
from shiftsvd.solvers.base import TOL, check_rank
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.chains import Preprocess, as_transforms, learn_all

METHODS: Final = get_args(RuleName)
MAX_K: Final = 30
MATRIX: Final = " Pass the matrix that it decomposed, and its shift (None for TruncatedSVD and LSA)."
UNLIMITED: Final = Resources()
EPS: Final = float(np.finfo(np.float64).eps)
ENOUGH: Final = 1e-3  # relative accuracy of singular values of permuted data, far below their standard deviation


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A number of components, and the evidence for it.

    Parameters
    ----------
    k : int
        Number of components; 0 if no component exceeds the threshold of the rule.
    method : str
        Name of the rule, as in `suggest_k`.
    table : dict of str to array
        The evidence, one row for each number of components; pass it to ``pandas.DataFrame``. Columns: "component",
        "value" and "chord" (elbow) or "threshold" (parallel, gavish-donoho); "components" and "error" (cv).

    See Also
    --------
    suggest_k : Suggest a number of components.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((200, 20)) @ np.diag(
    ...     [9.0] * 3 + [1.0] * 17
    ... )
    >>> ss.suggest_k(X, rng=0).k
    3
    """

    k: int
    method: str
    table: dict[str, Vector] = field(repr=False)

    def plot(self, ax: Any = None) -> Any:
        """Plot the evidence, with a vertical line at `k`.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on. Default: new axes in a new figure.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.

        Raises
        ------
        ImportError
            If matplotlib is not installed: ``pip install 'shiftsvd[plot]'``.
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError("plots require matplotlib. Install it with pip install 'shiftsvd[plot]'.") from error
            ax = plt.subplots(layout="constrained")[1]
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
    """Suggest a number of components, by one of four rules.

    Parameters
    ----------
    fitted : fitted estimator, SVDResult, or the data, of shape (m, n)
        A fit or the data. "elbow" and "gavish-donoho" reuse the components of a fit.
    method : {"elbow", "parallel", "gavish-donoho", "cv"}
        The rule; see the notes.
    X : array or sparse matrix of shape (m, n), optional
        The data of a fit, required by "parallel" and "cv".
    shift, scale : str, array, Operator or None
        As in `svd`, for data and for the data of an SVDResult; those of an estimator are known. "parallel" and "cv"
        accept the mean, a vector or None as shift.
    max_k : int, optional
        Largest number of components. Default: 30, or all components of the matrix or the fit if these are fewer.
    n_draws : int
        Number of permutations for "parallel".
    n_deviations : float
        Number of standard deviations by which values must exceed the mean of the permuted values, for "parallel".
    folds : int
        Number of parts of the rows and of the columns for "cv", which holds out one part of each at a time.
    rng : int, Generator or None
        As in `svd`.
    n_threads : int, optional
        Number of threads; the result does not depend on it. Default: the cores that this process may use.
    memory_limit : int (bytes) or str such as "2GB", optional
        Raise an error instead of allocating more memory than this. Default: half of the available memory.
    preprocess : transformation, its name, or list of them
        As in `svd`, for data and for the data of an SVDResult; that of an estimator is known. "parallel" and "cv"
        require transformations that keep zeros.

    Returns
    -------
    Suggestion
        The number of components ``.k``, with the evidence in ``.table`` and ``.plot()``.

    Raises
    ------
    ValueError
        If the rule requires the data but `X` is None, or if a setting is invalid.
    TypeError
        For a fitted estimator that does not store the number of rows, such as `TruncatedSVD`.

    Warns
    -----
    UserWarning
        If all `max_k` components exceed the threshold, so that there may be more.

    See Also
    --------
    Suggestion : The number of components and the evidence.
    PCA : Choose a share of the variance with ``n_components=0.9``.

    Notes
    -----
    - "elbow": the last component before the point where the spectrum, on a log scale, lies farthest below the chord
      from its first to its last value (Satopaa et al. 2011). The rule always finds an elbow, and the elbow depends on
      `max_k`.
    - "parallel": the number of singular values above the largest singular value of the data with each column permuted
      independently (Horn 1965; Buja & Eyuboglu 1992). The variance that the components found so far explain is removed
      from the permuted columns, until no more components are found (after Dobriban & Owen 2019). The variance of the
      noise may differ between columns, but not between rows. Cost: two or three times `n_draws` fits of one component.
    - "gavish-donoho": the number of singular values above the optimal hard threshold ``lambda(b) sqrt(max(m, n))
      sigma_k``, where ``b`` is the ratio of the shorter to the longer side and ``lambda(b)^2 = 2 (b + 1) + 8 b / (b + 1
      + sqrt(b^2 + 14 b + 1))`` (Gavish & Donoho 2014). The noise must have the same variance in all entries, estimated
      as ``sigma_k^2 = (||A||_F^2 - sum_{j <= k} s_j^2) / ((m - k) (n - k))`` with the smallest self-consistent k; m is
      one less if the mean is subtracted.
    - "cv": bi-cross-validation (Owen & Perry 2009). Each block ``A11`` of held-out rows and columns is predicted by
      ``A12 (A22)_k^+ A21``; the result is the k with the smallest squared error over all ``folds^2`` blocks.

    Use `warm_start` to extend a fit of k components.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3)) @ rng.standard_normal(
    ...     (3, 50)
    ... ) + 0.5 * rng.standard_normal((200, 50))
    >>> [
    ...     ss.suggest_k(X, method, rng=0).k
    ...     for method in ("elbow", "parallel", "gavish-donoho", "cv")
    ... ]
    [3, 3, 3, 3]
    """
    if method not in METHODS:
        raise refuse("method", f"be one of {', '.join(METHODS)}", method)
    max_k = None if max_k is None else integer("max_k", max_k, 1, of=" or None")
    rng = generator(rng)
    known = spectrum_of(fitted)
    if known is None:
        X = fitted if X is None else X
    elif not isinstance(fitted, SVDResult):
        shift, scale = _vector_shift(fitted), getattr(fitted, "scale_", None)
        preprocess = getattr(fitted, "preprocess", None)
    entries = as_transforms(preprocess)
    with threads(n_threads):
        if method in ("elbow", "gavish-donoho"):
            held = None if known is None else len(known.S)
            if known is None:
                A = as_operator(X, n_threads=n_threads, memory_limit=memory_limit)
                B = Preparation(shift, scale, entries=entries).learn(A).of_own
                F = decompose(B, _most(max_k, A.shape), "auto", TOL, rng, memory_limit)
                known = of_result(F, centred=isinstance(shift, str))
            rule = elbow if method == "elbow" else hard_threshold
            return suggested(*rule(known.first(max_k or MAX_K)), method, min(known.shape), held)
        if X is None:
            raise ValueError(
                f'method={method!r} requires the data. Call suggest_k(fitted, {method!r}, X=X), or use method="elbow".'
            )
        data = resampling(X, shift, scale, entries, Resources(memory_limit, n_threads))
        most = _most(max_k, data.X.shape)
        if method == "parallel":
            return suggested(*parallel(data, most, n_draws, n_deviations, rng), method, min(data.X.shape))
        return suggested(*bi_cross_validation(data, most, folds, rng), method, _most_held_out(data.X.shape, folds))


def warm_start(fitted: Any, tol: float = TOL) -> BlockLanczos:
    """Return a solver that starts from the components of a fit, to find more components or those of similar data.

    Parameters
    ----------
    fitted : fitted estimator or SVDResult
        A fit. An estimator must have at least as many samples as features; an SVDResult may have any shape.
    tol : float
        As in `BlockLanczos`.

    Returns
    -------
    BlockLanczos
        A solver for another fit of the same or similar data.

    Raises
    ------
    ValueError
        If an estimator has fewer samples than features, because it does not keep the left vectors.
    TypeError
        For a fitted estimator that does not store the number of rows, such as `TruncatedSVD`.

    See Also
    --------
    BlockLanczos : The solver.
    PCA : Fit with ``solver=warm_start(fitted)``.

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
        start = fitted.U if m < n else fitted.Vh.conj().T
        return BlockLanczos(tol, start=np.asarray(start, np.result_type(start, np.float64)))
    m, n = _shape_of(fitted)
    if m < n:
        raise ValueError(
            f"an estimator with {m:,} samples x {n:,} features does not keep the left vectors. Pass the SVDResult of "
            "svd instead."
        )
    return BlockLanczos(tol, start=fitted.components_.T.astype(np.float64))


def _shape_of(fitted: Any, remedy: str = "") -> tuple[int, int]:
    # Of the matrix that was decomposed: `n_features_in_` counts features that `Select` removed, too.
    if not hasattr(fitted, "n_samples_"):
        got = f"got a fitted {type(fitted).__name__}, which does not store the number of rows."
        raise TypeError(f"expected a fit by PCA or svd, {got}{remedy}")
    return fitted.n_samples_, fitted.components_.shape[1]


def suggested(k: int, table: dict[str, Vector], method: str, most: int, held: int | None = None) -> Suggestion:
    last = int(next(iter(table.values()))[-1])
    if k >= last and method != "elbow":
        more = Setting("max_k", min(2 * last, most))
        remedy: tuple[Any, ...] = (
            "Further components may, too. Pass a larger ",
            Setting("max_k"),
            ", such as ",
            more,
            ".",
        )
        if method == "cv" and last >= most:
            remedy = "A training part has no more components, but the data may have. Pass more ", Setting("folds"), "."
        elif last >= most:
            remedy = ("The matrix has no more. Keep all components, or choose a share of the variance.",)
        elif held is not None and last >= held:
            known = "The fit has no more, but the data may have. Pass the data: "
            remedy = f"{known}suggest_k(X, {method!r}, ", more, ")."
        do = ("reduces", "reduce", "the held-out error") if method == "cv" else ("exceeds", "exceed", "the threshold")
        all_of = f"The only component {do[0]}" if last == 1 else f"All {last:,} components {do[1]}"
        warn(f"{all_of} {do[2]}. ", *remedy)
    return Suggestion(int(k), method, table)


def _most(max_k: int | None, shape: tuple[int, int]) -> int:
    if max_k is not None:
        check_rank(max_k, shape)
    return max_k or max(min(MAX_K, min(shape) - 1), 1)


def _vector_shift(fitted: Any) -> Any:
    shift = getattr(fitted, "shift", "mean")
    own = shift is None or hasattr(fitted, "shift_") or (isinstance(shift, str) and shift != "mean")
    return shift if own else np.asarray(fitted.mean_, np.float64)


# ---- rules by the spectrum

Evidence = tuple[int, dict[str, Vector]]  # a number of components, and the table of `Suggestion`


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Leading singular values, the norm of the residual, and the degrees of freedom of rows and columns."""

    S: Vector
    rest: float | None
    shape: tuple[int, int]

    def first(self, k: int) -> "Spectrum":
        rest = None if self.rest is None else float(np.hypot(self.rest, length(self.S[k:])))
        return Spectrum(self.S[:k], rest, self.shape)

    def noise(self, k: int) -> float:
        rest = self.first(k).rest
        if rest is None:
            raise ValueError(
                '"gavish-donoho" requires the Frobenius norm, which the operator does not provide. Use "elbow".'
            )
        (m, n), floor = self.shape, EPS * length(self.S)  # at least the rounding error
        return max(rest, floor) / float(np.sqrt(max(m - k, 1) * max(n - k, 1)))


def spectrum_of(fitted: Any) -> Spectrum | None:
    if isinstance(fitted, SVDResult):
        return of_result(fitted)
    if not hasattr(fitted, "singular_values_"):
        return None
    S, (m, n) = np.asarray(fitted.singular_values_, np.float64), _shape_of(fitted, MATRIX)
    share = float(np.sum(fitted.explained_variance_ratio_, dtype=np.float64))
    centred = isinstance(getattr(fitted, "shift", "mean"), str)
    rest = getattr(getattr(fitted, "info_", None), "frobenius_error", None) if len(S) else None
    if rest is None:
        rest = length(S) * float(np.sqrt(max(1 / share - 1, 0))) if share > 0 else 0.0
    return Spectrum(S, rest, (m - centred, n))


def of_result(F: SVDResult, centred: bool = False) -> Spectrum:
    return Spectrum(F.S.astype(np.float64), F.info.frobenius_error, (F.shape[0] - centred, F.shape[1]))


def elbow(known: Spectrum) -> Evidence:
    S = known.S[known.S > 0]
    if len(S) < 3:
        raise ValueError(f'"elbow" requires at least 3 nonzero singular values, got {len(S)}. Fit more components.')
    chord = np.exp(np.linspace(np.log(S[0]), np.log(S[-1]), len(S)))
    return int(np.argmax(chord / S)), evidence(S, chord=chord)


def hard_threshold(known: Spectrum) -> Evidence:
    (m, n), S = known.shape, known.S
    b = min(m, n) / max(m, n)
    factor = np.sqrt(2 * (b + 1) + 8 * b / (b + 1 + np.sqrt(b * b + 14 * b + 1)))
    above, k = 0, -1
    while above > k:  # each step removes more of the signal from the noise estimate, so the threshold falls
        k = above
        threshold = factor * np.sqrt(max(m, n)) * known.noise(k)
        above = int(np.sum(threshold < S))
    return k, evidence(S, threshold=np.full(len(S), threshold))


def evidence(S: Vector, **columns: Vector) -> dict[str, Vector]:
    return {"component": np.arange(1, len(S) + 1), "value": S, **columns}


# ---- rules by permuted and held-out data


@dataclass(frozen=True, eq=False)
class Resampling:
    """Data whose rows and columns can be selected and permuted, with the shift and scale of the columns."""

    X: Any  # a NumPy array or a CSR
    mean: Vector | None
    scale: Vector | None
    resources: Resources

    def operator(self, i: Vector | None = None, j: Vector | None = None) -> Operator:
        X = self.X if i is None else self.X[i][:, j]
        columns = slice(None) if j is None else j
        A = as_operator(X, **vars(self.resources))
        shift = MeanShift(np.zeros(A.shape[1]) if self.mean is None else self.mean[columns])
        return Prepared(shift, None if self.scale is None else self.scale[columns]).of(A)

    def svd(self, A: Operator, k: int, rng: Generator, tol: float = TOL) -> SVDResult:
        return decompose(A, k, "auto", tol, rng, self.resources.memory_limit)


def resampling(
    X: Any, shift: Any, scale: Any, entries: tuple[Transform, ...] = (), resources: Resources = UNLIMITED
) -> Resampling:
    if isinstance(X, Operator) or is_lazy(X) or (hasattr(X, "matmat") and not issparse(X)):
        raise ValueError(
            f'"parallel" and "cv" require an array or a sparse matrix in memory, got {X}. Pass a sample of the rows, '
            'or use "elbow".'
        )
    X = from_frame(X) if is_frame(X) else X
    known_zeros = issparse(X)
    sound_places(X)
    X = csr_array(X) if known_zeros else np.asarray(X)
    A = as_operator(X, **vars(resources))
    check_size('the entries for "parallel" and "cv"', largest_of(X))
    if entries:
        A, X = _transformed(A, X, entries)
    if not (shift is None or (isinstance(shift, str) and shift == "mean") or isinstance(shift, list | np.ndarray)):
        raise Refused('"parallel" and "cv" require ', Setting("shift", "mean"), f", None or a vector, got {shift!r}")
    prepared = Preparation(shift, scale).learn(A)
    return Resampling(X, None if shift is None else prepared.points(1)[0], prepared.scale, resources)


def _transformed(A: Operator, X: Any, entries: tuple[Transform, ...]) -> tuple[Operator, Any]:
    if changes := [each for each in entries if not each.keeps_zeros]:
        others = 'Use "elbow" or "gavish-donoho".'
        raise ValueError(f'"parallel" and "cv" require transformations that keep zeros, got {changes[0]}. {others}')
    B = learn_all(entries, A, None, TOL).B
    stored = B.H if isinstance(B, Adjoint) else B
    if not hasattr(stored, "X"):
        raise Refused(
            '"parallel" and "cv" need all transformed entries in memory, which takes more than the limit. Raise ',
            *(Setting("memory_limit"), "."),
        )
    return B, stored.X if stored is B else csr_array(stored.X.T) if issparse(X) else stored.X.T


def permuted(X: Any, rng: Generator) -> Any:
    if isinstance(X, np.ndarray):
        return rng.permuted(X, axis=0)
    C: Any = X.tocsc()
    counts = np.diff(C.indptr)
    rows = [rng.choice(C.shape[0], count, replace=False) for count in counts]
    return csr_array((C.data, (np.concatenate(rows), np.repeat(np.arange(C.shape[1]), counts))), shape=C.shape)


def parallel(data: Resampling, most: int, n_draws: int, n_deviations: float, rng: Generator) -> Evidence:
    n_draws = integer("n_draws", n_draws, 2)
    if not n_deviations >= 0:
        raise refuse("n_deviations", "be at least 0", n_deviations)
    if data.mean is None:
        raise Refused(
            *('"parallel" requires ', Setting("shift", "mean")),
            ", because permuted columns keep their means, which would dominate the spectrum.",
        )
    (m, n), A = data.X.shape, data.operator()
    with warnings.catch_warnings():
        # The settings that the warning names are not those of `suggest_k`. The threshold tells whether it matters.
        warnings.filterwarnings("ignore", ".*(may have been missed|did not converge)", UserWarning)
        F = data.svd(A, most, rng)
    S, squares = F.S.astype(np.float64), np.asarray(A.column_squares())
    parts = S[:, None] ** 2 * np.abs(F.Vh) ** 2  # what each component holds of each column
    above, k = 0, -1
    while above > k:
        k = above
        # Permutation spreads the variance of strong components over all directions, which would mask weaker ones.
        left = np.maximum(squares - parts[:k].sum(axis=0), 0) / np.where(squares > 0, squares, 1)
        share = np.sqrt(left * (m * n) / (max(m - k, 1) * max(n - k, 1)))
        draws = []
        for _ in range(n_draws):
            drawn = replace(data, X=permuted(data.X, rng)).operator()
            draws.append(float(data.svd(Scaled(drawn, cols=share), 1, rng, ENOUGH).S[0]))
        threshold = float(np.mean(draws) + n_deviations * np.std(draws, ddof=1))
        above = int(np.argmin(np.append(S > threshold, False)))
    if k < len(S) and not _holds(F, k, threshold):
        warn(
            f"The number of components may not be {k}, because the singular values of the data are not known well "
            "enough to compare them with the threshold. Pass ",
            *((Setting("max_k", k + 1), ", or ") if k + 1 < most else ()),
            "data in double precision.",
        )
    return k, evidence(S, threshold=np.full(len(S), threshold))


def _holds(F: SVDResult, k: int, threshold: float) -> bool:
    info, S = F.info, F.S[: k + 1].astype(np.float64)
    if info.converged is not False:
        return True
    if info.value_errors is None or info.missed_below is None or info.missed_below > threshold:
        return False
    errors = info.value_errors[: k + 1]
    return bool(np.all(S[:k] * (1 - errors[:k]) > threshold) and S[k] * (1 + errors[k]) <= threshold)


def bi_cross_validation(data: Resampling, most: int, folds: int, rng: Generator) -> Evidence:
    m, n = data.X.shape
    if min(m, n) < 2:
        raise ValueError(f'"cv" requires at least 2 rows and 2 columns, got {m:,} x {n:,}. Use another method.')
    folds = integer("folds", folds, 2, min(m, n), f" for a {m:,} x {n:,} matrix")
    k = min(most, _most_held_out((m, n), folds))
    parts = [(i, j) for i in _folds(m, folds, rng) for j in _folds(n, folds, rng)]
    errors = sum(_held_out(data, i, j, k, rng) for i, j in parts) / (m * n)
    return int(np.argmin(errors)), {"components": np.arange(k + 1), "error": np.asarray(errors)}


def _most_held_out(shape: tuple[int, int], folds: int) -> int:
    return min(side - -(-side // folds) for side in shape)


def _held_out(data: Resampling, i: Vector, j: Vector, k: int, rng: Generator) -> Vector:
    F = data.svd(data.operator(i, j), k, rng)  # A22
    inverse = np.where(F.S > 0, 1 / np.where(F.S > 0, F.S, 1), 0)
    L = data.operator(~i, j).matmat(F.Vh.conj().T * inverse)
    R = data.operator(i, ~j).rmatmat(F.U)
    A11 = data.operator(~i, ~j)
    square = A11.frobenius_norm()
    assert square is not None
    # ||A11 - L R^H||^2 for the leading columns of L and R, without forming it
    cross = np.cumsum(np.sum(L.conj() * A11.matmat(R), axis=0).real)
    G = ((L.conj().T @ L) * (R.conj().T @ R).T).real
    own = np.diagonal(np.cumsum(np.cumsum(G, axis=0), axis=1))
    return np.concatenate([[square**2], square**2 - 2 * cross + own])


def _folds(size: int, folds: int, rng: Generator) -> Iterator[Vector]:
    part = rng.permutation(size) % folds
    return (part != fold for fold in range(folds))
