"""A stream of rows: its moments, exact, and its scatter matrix, centred at every moment."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.errors import Refused, Setting
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.prepare import Prepared
from shiftsvd.preparation.shifts import Plain
from shiftsvd.result import Info
from shiftsvd.runs.memory import affordable, spare
from shiftsvd.solvers.base import TOL
from shiftsvd.streaming.scatter import EPS, Scatter, SketchedScatter, WholeScatter, is_dense

# Up to so many features all of the scatter matrix is kept, in 540 MB at most.
WHOLE = 4096
LARGEST = 2.0**240  # of a column of a batch; the least is its inverse


class StreamSpectrum(NamedTuple):
    """The leading eigenpairs of the scatter matrix of a stream, and what was not seen of it."""

    values: Vector  # singular values of the centred rows, descending
    vectors: Panel  # orthonormal columns
    errors: Vector  # bounds of what rounding did to each value
    total: float  # the exact trace
    slip: float  # what rounding of the means does to each value at most, which `errors` hold
    rest: float  # of the trace, what the other values have
    unseen: float  # no eigenvalue is too small by more


@dataclass(eq=False)
class Stream:
    """What is kept of all rows so far: moments and a scatter matrix, which grow in place.

    Batches and merges add to it by the update of Chan, Golub & LeVeque (1983), so that nothing cancels however far from
    the origin the data are; the mean and the total variance are exact, whatever is kept of the scatter matrix.
    """

    scatter: Scatter  # of the centred rows, divided by the scale
    scale: Vector | None
    moments: Moments  # count (the sum of the weights), mean and squared deviations of each column
    n_rows: int = 0
    dtype: np.dtype[Any] = np.dtype(np.float32)  # of the results; float64 once a batch was
    n_passes: int = 0  # reads of each row, at most
    seconds: float = 0.0
    n_joined: int = 0  # how often the means of two groups of rows were joined, each time with a rounding error
    k: int | None = None  # components that it was begun for

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
        ell, what = min(k + max(k, n_oversamples), n), f"streaming {k} components of {n} features"
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
            raise ValueError(f"a stream takes real data and the variances of their columns, which {A} does not give")
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
                f"streams merge if they have the same scale and the same test matrix, got {self} and {other}; begin ",
                *("both with the same ", Setting("random_state")),
                ", n_components, n_oversamples, scale and memory_limit",
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
            raise ValueError(
                f"refine needs the {self.n_rows} rows that were streamed, all of them, with their weights, whose sum "
                f"was {self.moments.count:g}; got {A.shape[0]} with {count:g}"
            )
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
        # Means err by an ulp or two each time that they are made or joined, and so does what is subtracted.
        slip = EPS * (self.n_joined + 1) * np.sqrt(self._in_units(_raw_squares(self.moments)))
        found = scatter.leading(k, slip)
        kept, rest, unseen = float(found.values @ found.values), found.rest, 0.0
        if self.scatter.size < len(squares):  # a sketch: what is left of the total, with its rounding
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
        # A value that cannot be told from 0 is reported as 0, and so is every one after it.
        told = np.logical_and.accumulate(found.values > found.errors)
        values = np.where(told, found.values, 0)
        errors = np.full(k, np.inf)
        errors[told] = np.maximum(upper - values, found.errors)[told] / values[told]
        nothing = 2 * max(self.n_rows, n) * EPS * np.sqrt(found.total) + found.slip
        errors[~told & (upper <= nothing)] = 0
        left_out, V = min(n, count) - k, found.vectors.T
        components = (V / phases(V)[:, None]).astype(self.dtype)
        info = Info(
            solver=f"Streaming(sample_size={self.scatter.size})",
            n_passes=self.n_passes,
            sample_size=self.scatter.size,
            rank=int(told.sum()),
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
        return Prepared(Plain(mean), self.scale).of(A)

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
        return f"<stream of {self.n_rows} rows, {len(self.scatter.B)} features, {self.scatter.size} of them kept>"


def _raw_squares(moments: Moments) -> Vector:
    assert moments.M2 is not None
    return np.asarray(moments.M2 + moments.count * moments.mean**2)


def _check_size(moments: Moments) -> None:
    assert moments.M2 is not None
    size = float(max(np.abs(moments.mean).max(), np.sqrt(moments.M2.max())))
    if size != 0 and not 1 / LARGEST < size < LARGEST:
        raise ValueError(
            f"a stream keeps sums of squares, which leave the range of numbers here: a column is about {size:.3g}; "
            "multiply all batches by the same power of two, or use fit"
        )
