"""Rules for the number of components: the spectrum, permuted data, held-out data."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array, issparse

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.backends.validation import from_frame, is_frame, sound_places
from shiftsvd.front import decompose
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import check_size, largest_of, length
from shiftsvd.operators import Adjoint, Operator, Scaled
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.shifts import Plain
from shiftsvd.result import SVDResult
from shiftsvd.runs.memory import Resources
from shiftsvd.solvers.base import TOL
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.chains import learn_all

EPS = float(np.finfo(np.float64).eps)

Found = tuple[int, dict[str, Vector]]  # a number of components, and the table of the evidence


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Leading singular values, the length of what they leave over, and the degrees of freedom of rows and columns."""

    S: Vector
    rest: float | None
    shape: tuple[int, int]

    def first(self, k: int) -> "Spectrum":
        rest = None if self.rest is None else float(np.hypot(self.rest, length(self.S[k:])))
        return Spectrum(self.S[:k], rest, self.shape)

    def noise(self, k: int) -> float:
        rest = self.first(k).rest
        if rest is None:
            raise ValueError('this needs the Frobenius norm, which the operator does not know; use "elbow"')
        (m, n), floor = self.shape, EPS * length(self.S)  # rounding is not noise
        return max(rest, floor) / float(np.sqrt(max(m - k, 1) * max(n - k, 1)))


def spectrum_of(fitted: Any) -> Spectrum | None:
    if isinstance(fitted, SVDResult):
        return of_result(fitted)
    return of_estimator(fitted) if hasattr(fitted, "singular_values_") else None


def of_result(F: SVDResult, centred: bool = False) -> Spectrum:
    return Spectrum(F.S.astype(np.float64), F.info.frobenius_error, (F.shape[0] - centred, F.shape[1]))


def of_estimator(fitted: Any) -> Spectrum:
    S = np.asarray(fitted.singular_values_, np.float64)
    share = float(np.sum(fitted.explained_variance_ratio_, dtype=np.float64))
    centred = isinstance(getattr(fitted, "shift", "mean"), str)
    error = getattr(getattr(fitted, "info_", None), "frobenius_error", None)
    of_shares = length(S) * float(np.sqrt(max(1 / share - 1, 0))) if share > 0 else 0.0
    rest = of_shares if error is None or not len(S) else error
    return Spectrum(S, rest, (fitted.n_samples_ - centred, fitted.n_features_in_))


def elbow(known: Spectrum) -> Found:
    S = known.S[known.S > 0]
    if len(S) < 3:
        raise ValueError(f"an elbow needs at least 3 values that are not 0, got {len(S)}; give more components")
    chord = np.exp(np.linspace(np.log(S[0]), np.log(S[-1]), len(S)))
    return int(np.argmax(chord / S)), evidence(S, chord=chord)


def hard_threshold(known: Spectrum) -> Found:
    (m, n), S = known.shape, known.S
    b = min(m, n) / max(m, n)
    factor = np.sqrt(2 * (b + 1) + 8 * b / (b + 1 + np.sqrt(b * b + 14 * b + 1)))
    above, k = 0, -1
    while above > k:  # each step leaves out more of the signal, so that the threshold falls
        k = above
        threshold = factor * np.sqrt(max(m, n)) * known.noise(k)
        above = int(np.sum(threshold < S))
    return k, evidence(S, threshold=np.full(len(S), threshold))


def evidence(S: Vector, **beside: Vector) -> dict[str, Vector]:
    return {"component": np.arange(1, len(S) + 1), "value": S, **beside}


UNLIMITED: Final = Resources()
ENOUGH: Final = 1e-3  # relative accuracy of a permuted value: far below its standard deviation


@dataclass(frozen=True, eq=False)
class Rows:
    """Data whose rows and columns can be taken and permuted, with the shift and scale of their columns."""

    X: Any  # a NumPy array or a CSR
    mean: Vector | None
    scale: Vector | None
    resources: Resources

    def operator(self, i: Vector | None = None, j: Vector | None = None) -> Operator:
        X = self.X if i is None else self.X[i][:, j]
        columns = slice(None) if j is None else j
        A = as_operator(X, **vars(self.resources))
        shift = Plain(np.zeros(A.shape[1]) if self.mean is None else self.mean[columns])
        return Prepared(shift, None if self.scale is None else self.scale[columns]).of(A)

    def permuted(self, share: Vector, rng: Generator) -> Operator:
        return Scaled(replace(self, X=permuted(self.X, rng)).operator(), cols=share)

    def svd(self, A: Operator, k: int, rng: Generator, tol: float = TOL) -> SVDResult:
        return decompose(A, k, "auto", tol, rng, self.resources.memory_limit)


def rows_of(
    X: Any, shift: Any, scale: Any, entries: tuple[Transform, ...] = (), resources: Resources = UNLIMITED
) -> Rows:
    if isinstance(X, Operator) or is_lazy(X) or (hasattr(X, "matmat") and not issparse(X)):
        raise ValueError(f'"parallel" and "cv" need an array or a sparse matrix in memory, got {X}; use "elbow"')
    X = from_frame(X) if is_frame(X) else X
    known_zeros = issparse(X)
    sound_places(X)
    X = csr_array(X) if known_zeros else np.asarray(X)
    check_size('the entries for "parallel" and "cv"', largest_of(X))
    A = as_operator(X, **vars(resources))
    if entries:
        A, X = _transformed(A, X, entries)
    if not (shift is None or (isinstance(shift, str) and shift == "mean") or isinstance(shift, list | np.ndarray)):
        raise ValueError(f'"parallel" and "cv" take shift="mean", None or a vector, got {shift!r}')
    prepared = Preparation(shift, scale).learn(A)
    return Rows(X, None if shift is None else prepared.points(1)[0], prepared.scale, resources)


def _transformed(A: Operator, X: Any, entries: tuple[Transform, ...]) -> tuple[Operator, Any]:
    if changes := [each for each in entries if not each.keeps_zeros]:
        raise ValueError(
            f'"parallel" and "cv" take stored entries apart, and {changes[0]} makes zeros into other numbers; '
            'use "elbow" or "gavish-donoho"'
        )
    B = learn_all(entries, A, None, TOL).B
    stored = B.H if isinstance(B, Adjoint) else B
    if not hasattr(stored, "X"):
        raise ValueError('"parallel" and "cv" need room for the transformed entries; raise memory_limit')
    return B, stored.X if stored is B else csr_array(stored.X.T) if issparse(X) else stored.X.T


def permuted(X: Any, rng: Generator) -> Any:
    return rng.permuted(X, axis=0) if isinstance(X, np.ndarray) else _permuted_places(X.tocsc(), rng)


def _permuted_places(X: Any, rng: Generator) -> Any:
    counts = np.diff(X.indptr)
    rows = [rng.choice(X.shape[0], count, replace=False) for count in counts]
    return csr_array((X.data, (np.concatenate(rows), np.repeat(np.arange(X.shape[1]), counts))), shape=X.shape)


def parallel(rows: Rows, most: int, n_draws: int, n_deviations: float, rng: Generator) -> Found:
    if not (isinstance(n_draws, int | np.integer) and n_draws >= 2 and n_deviations >= 0):
        raise ValueError(f"n_draws must be at least 2 and n_deviations 0, got {n_draws!r} and {n_deviations!r}")
    if rows.mean is None:
        raise ValueError('"parallel" needs shift="mean": permuted columns keep their means, which would hide the rest')
    (m, n), A = rows.X.shape, rows.operator()
    F = rows.svd(A, most, rng)
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
    return k, evidence(S, threshold=np.full(len(S), threshold))


def bi_cross_validation(rows: Rows, most: int, folds: int, rng: Generator) -> Found:
    m, n = rows.X.shape
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or not 2 <= folds <= min(m, n):
        raise ValueError(f"folds must be an integer in 2..{min(m, n)} for a {m} x {n} matrix, got {folds!r}")
    k = min(most, m - -(-m // folds), n - -(-n // folds))
    parts = [(i, j) for i in _folds(m, folds, rng) for j in _folds(n, folds, rng)]
    errors = sum(_held_out(rows, i, j, k, rng) for i, j in parts) / (m * n)
    return int(np.argmin(errors)), {"components": np.arange(k + 1), "error": np.asarray(errors)}


def _held_out(rows: Rows, i: Vector, j: Vector, k: int, rng: Generator) -> Vector:
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
    part = rng.permutation(size) % folds
    return (part != fold for fold in range(folds))
