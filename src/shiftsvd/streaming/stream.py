"""A stream of rows: exact moments, and a scatter matrix that is centred after each batch."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.errors import Refused, Setting, plural
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Prepared
from shiftsvd.preparation.shifts import MeanShift
from shiftsvd.result import Info
from shiftsvd.runs.memory import affordable, spare
from shiftsvd.solvers.base import TOL
from shiftsvd.streaming.scatter import EPS, Scatter, SketchedScatter, WholeScatter, is_dense

# Keep the full scatter matrix up to this number of features (540 MB).
WHOLE = 4096
LARGEST = 2.0**240  # largest size of a column of a batch; the smallest size is its inverse


class StreamSpectrum(NamedTuple):
    """The leading eigenpairs of the scatter matrix of a stream, with error bounds."""

    values: Vector  # singular values of the centred rows, descending
    vectors: Panel  # orthonormal columns
    errors: Vector  # bounds of the rounding error of each value
    total: float  # the exact trace
    slip: float  # bound of the error of a value due to rounding of the means; included in `errors`
    rest: float  # trace minus the leading eigenvalues
    unseen: float  # largest possible underestimate of an eigenvalue by the sketch


@dataclass(eq=False)
class Stream:
    """Moments and scatter matrix of the rows so far; batches update both in place.

    Batches and merges use the update of Chan, Golub & LeVeque (1983), which avoids cancellation for data far from the
    origin. The mean and the total variance are exact even if the scatter matrix is sketched.
    """

    scatter: Scatter  # scatter matrix of the centred, scaled rows
    scale: Vector | None
    moments: Moments  # count (the sum of the weights), mean and squared deviations of each column
    n_rows: int = 0
    dtype: np.dtype[Any] = np.dtype(np.float32)  # of the results: float64 after the first batch of that type
    n_passes: int = 0  # largest number of reads of a row
    seconds: float = 0.0
    n_joined: int = 0  # number of times that two means were combined, each with a rounding error
    k: int | None = None  # number of components given to `begin`

    @classmethod
    def empty(cls, scatter: Scatter, scale: Vector | None = None, k: int | None = None) -> "Stream":
        n = len(scatter.B)
        return cls(scatter, scale, Moments(0.0, np.zeros(n), np.zeros(n)), k=k)

    @classmethod
    def begin(
        cls,
        n: int,
        k: int,
        n_oversamples: int,
        scale: Vector | None,
        rng: Callable[[], Generator],
        memory_limit: int | str | None,
    ) -> "Stream":
        ell, what = (
            min(k + max(k, n_oversamples), n),
            f"partial_fit with {plural(k, 'component')} of {plural(n, 'feature')}",
        )
        needed = WholeScatter.bytes(n, default_threads())
        if ell == n or (n <= max(WHOLE, 4 * ell) and spare(needed, memory_limit)):
            affordable(needed, memory_limit, what)
            return cls.empty(WholeScatter.empty(n), scale, k)
        affordable(SketchedScatter.bytes(n, ell), memory_limit, what)
        return cls.empty(SketchedScatter.empty(n, ell, rng()), scale, k)

    def update(self, A: Operator, weights: Vector | None = None) -> None:
        started = time.perf_counter()
        empty = weights is not None and not weights.any()
        moments = self.moments if empty else A.moments(weights)
        if moments.M2 is None or A.dtype.kind == "c":
            raise ValueError(
                f"partial_fit needs real numbers and the sums of squares of the columns, which {A} does not provide. "
                "Pass an array or a sparse matrix, or use shiftsvd.svd."
            )
        _check_size(moments)
        if not empty:
            C = self._centred(A, moments.mean)
            # Products of sparse rows subtract the shift from sums, which round at the level of the data.
            squares = self._in_units(moments.M2 if is_dense(C) else _raw_squares(moments))
            reads = 1 + self.scatter.add(C, weights, squares)
            self._join(moments)
            self.n_passes = max(self.n_passes, reads)
        self.n_rows += A.shape[0]
        self.dtype = np.result_type(self.dtype, A.dtype)
        self.seconds += time.perf_counter() - started

    def merged(self, other: "Stream") -> "Stream":
        a, b = (np.ones(1) if one.scale is None else one.scale for one in (self, other))
        if not (np.array_equal(a, b) and self.scatter.same_kind(other.scatter)):
            raise Refused(
                "merge_pca needs fits with the same scale and the same random test matrix. Fit both with the same ",
                Setting("random_state"),
                ", n_components, n_oversamples, scale and memory_limit.",
            )
        both = Stream(self.scatter.added(other.scatter), self.scale, self.moments, self.n_rows + other.n_rows)
        both.n_joined, both.k = self.n_joined + other.n_joined, self.k
        both._join(other.moments)
        both.dtype = np.result_type(self.dtype, other.dtype)
        both.n_passes, both.seconds = max(self.n_passes, other.n_passes), self.seconds + other.seconds
        return both

    def refine(self, A: Operator, weights: Vector | None = None) -> None:
        started, count = time.perf_counter(), float(A.shape[0]) if weights is None else float(weights.sum())
        if A.shape[0] != self.n_rows or not np.isclose(count, self.moments.count, rtol=1e-9):
            known, given = f"{plural(self.n_rows, 'row')}", f"{plural(A.shape[0], 'row')}"
            if A.shape[0] == self.n_rows:
                known, given = f"weights of sum {self.moments.count:g}", f"weights of sum {count:g}"
            raise ValueError(f"refine needs the same data as all calls of partial_fit: {known}, got {given}.")
        self.n_passes += self.scatter.refine(self._centred(A, self.moments.mean), weights)
        self.seconds += time.perf_counter() - started

    def spectrum(self, k: int, shift: Vector | None = None) -> StreamSpectrum:
        scatter, squares = self.scatter, self.moments.M2
        assert squares is not None
        if shift is not None:
            delta = self.moments.mean - shift
            squares = squares + self.moments.count * delta**2
            scatter = deepcopy(scatter)
            scatter.add_columns(self._column(delta, self.moments.count))
        total = float(self._in_units(squares).sum())
        # Each computation or combination of means has a rounding error of an ulp or two, and so has the centring.
        slip = EPS * (self.n_joined + 1) * np.sqrt(self._in_units(_raw_squares(self.moments)))
        found = scatter.leading(k, slip)
        kept, rest, unseen = float(found.values @ found.values), found.rest, 0.0
        if self.scatter.size < len(squares):  # sketched: the rest is total minus kept, plus rounding
            rest = max(total - kept, 0.0)
            unseen = max(rest - found.rest, 0.0) + max(self.n_rows, len(squares)) * EPS * total
        values, slip_norm = np.minimum(found.values, np.sqrt(total)), float(np.linalg.norm(slip))
        return StreamSpectrum(values, found.vectors, found.errors, total, slip_norm, rest, unseen)

    def fitted(self, k: int, shift: Vector | None) -> dict[str, Any]:
        started, count, mean = time.perf_counter(), self.moments.count, self.moments.mean
        n = len(mean)
        k = min(k, self.n_rows, n)
        found = self.spectrum(k, shift)
        upper = np.sqrt((found.values + found.errors) ** 2 + found.unseen)
        # Report 0 for the first value that does not exceed its error bound, and for all after it.
        nonzero = np.logical_and.accumulate(found.values > found.errors)
        values = np.where(nonzero, found.values, 0)
        errors = np.full(k, np.inf)
        errors[nonzero] = np.maximum(upper - values, found.errors)[nonzero] / values[nonzero]
        nothing = 2 * max(self.n_rows, n) * EPS * np.sqrt(found.total) + found.slip
        errors[~nonzero & (upper <= nothing)] = 0
        left_out, V = min(n, count) - k, found.vectors.T
        components = (V / phases(V)[:, None]).astype(self.dtype)
        info = Info(
            solver=f"Streaming(sample_size={self.scatter.size})",
            n_passes=self.n_passes,
            sample_size=self.scatter.size,
            rank=int(nonzero.sum()),
            residuals=None,
            value_errors=errors,
            converged=bool(np.all(errors <= TOL)),
            frobenius_error=None,
            seconds=self.seconds + time.perf_counter() - started,
            peak_bytes=None,
        )
        return {
            "mean_": mean if shift is None else shift,
            "scale_": self.scale,
            "n_samples_": self.n_rows,
            "n_components_": k,
            "components_": components,
            "singular_values_": values,
            "explained_variance_": values**2 / (count - 1),
            "explained_variance_ratio_": values**2 / found.total if found.total > 0 else np.zeros(k),
            "noise_variance_": found.rest / (count - 1) / left_out if left_out > 0 else 0.0,
            "unseen_variance_": found.unseen / (count - 1),
            "info_": info,
        }

    def _centred(self, A: Operator, mean: Vector) -> Operator:
        return Prepared(MeanShift(mean), self.scale).of(A)

    def _join(self, moments: Moments) -> None:
        count, more = self.moments.count, moments.count
        if count and more:
            self.n_joined += 1
            self.scatter.add_columns(self._column(moments.mean - self.moments.mean, count * more / (count + more)))
        self.moments = self.moments.merge(moments)

    def _column(self, delta: Vector, count: float) -> Panel:
        delta = np.sqrt(count) * delta
        return (delta if self.scale is None else delta / self.scale)[:, None]

    def _in_units(self, squares: Vector) -> Vector:
        return squares if self.scale is None else squares / self.scale**2

    def __repr__(self) -> str:
        return f"<stream of {self.n_rows} rows, {len(self.scatter.B)} features, sample size {self.scatter.size}>"


def _raw_squares(moments: Moments) -> Vector:
    assert moments.M2 is not None
    return np.asarray(moments.M2 + moments.count * moments.mean**2)


def _check_size(moments: Moments) -> None:
    assert moments.M2 is not None
    size = float(max(np.abs(moments.mean).max(), np.sqrt(moments.M2.max())))
    if size != 0 and not 1 / LARGEST < size < LARGEST:
        raise ValueError(
            f"partial_fit computes sums of squares of the columns, which are outside the range of float64 for a column "
            f"of size {size:.3g}. Multiply all batches by the same power of two, or use fit."
        )
