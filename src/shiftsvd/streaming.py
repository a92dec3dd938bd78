"""Streaming PCA: a sketch of the scatter matrix that batches are added to, and that merges with others."""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import linalg
from sklearn.base import clone
from sklearn.utils.validation import validate_data

from shiftsvd.backends.memory import affordable
from shiftsvd.estimators.settings import random_generator
from shiftsvd.kernels import threads
from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel
from shiftsvd.orth import orth, phases
from shiftsvd.result import Info
from shiftsvd.shifts import finite_vector, resolve_scale
from shiftsvd.solvers.base import TOL

EPS = float(np.finfo(np.float64).eps)
SINGLE = np.dtype(np.float32)


class Spectrum(NamedTuple):
    """The leading eigenpairs of a sketched scatter matrix, and what the sketch has not seen of it."""

    values: Vector  # at most the exact ones, descending
    vectors: Panel  # orthonormal columns
    total: float  # the exact trace
    unseen: float  # the trace less that of the whole sketch: no value is too small by more


@dataclass(frozen=True, eq=False)
class ScatterSketch:
    """``Y = S Omega`` for the scatter matrix ``S = (X - 1 mean^T)^T (X - 1 mean^T)`` of all rows seen so far.

    Batches and merges add to it by the update of Chan et al., so that it is centred at every moment: nothing
    cancels however far from the origin the data are, the mean and the total variance are exact, and neither
    the order nor the size of the batches matters beyond rounding. The state is 2 n_features x ell numbers.

    Attributes
    ----------
    Omega : array of shape (n_features, ell)
        The test matrix; sketches with the same one merge.
    Y : array of shape (n_features, ell)
    moments : Moments
        Count, mean, and squared deviations of each column.
    dtype : numpy.dtype
        Of the results; float64 once a batch was.
    n_passes : int
        Reads of each row.
    seconds : float
        Spent on it so far.

    References
    ----------
    Tropp, Yurtsever, Udell & Cevher (2017), Fixed-rank approximation of a positive-semidefinite matrix from
    streaming data; Chan, Golub & LeVeque (1983).

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.streaming import ScatterSketch
    >>> from shiftsvd import as_operator
    >>> X = np.random.default_rng(0).random((100, 5))
    >>> parts = [ScatterSketch.empty(5, 4, 0).update(as_operator(part)) for part in (X[:1], X[1:])]
    >>> bool(np.allclose(parts[0].merge(parts[1]).moments.mean, X.mean(axis=0)))
    True
    """

    Omega: Panel
    Y: Panel
    moments: Moments
    dtype: np.dtype[Any] = SINGLE
    n_passes: int = 2
    seconds: float = 0.0

    @classmethod
    def empty(cls, n: int, ell: int, rng: int | Generator | None, scale: Vector | None = None) -> "ScatterSketch":
        """No rows yet; all of S is kept where `ell` reaches n. `scale` is what the columns will be divided by."""
        if ell >= n:
            return cls.seen_by(np.eye(n))
        Omega = np.random.default_rng(rng).standard_normal((n, ell))
        return cls.seen_by(Omega if scale is None else Omega / scale[:, None])

    @classmethod
    def seen_by(cls, Omega: Panel) -> "ScatterSketch":
        """No rows yet, with this test matrix."""
        n = len(Omega)
        return cls(Omega, np.zeros(Omega.shape), Moments(0.0, np.zeros(n), np.zeros(n)))

    def update(self, A: Operator) -> "ScatterSketch":
        """With the rows of A added; two reads of it."""
        started, moments = time.perf_counter(), A.moments()
        if moments.M2 is None or A.dtype.kind == "c":
            raise ValueError(f"a stream takes real data and the variances of their columns, which {A} does not give")
        Y = self._scatter(A, moments.mean)
        return self.merge(replace(self, Y=Y, moments=moments, dtype=A.dtype, seconds=time.perf_counter() - started))

    def merge(self, other: "ScatterSketch") -> "ScatterSketch":
        """Of the rows of both; the order does not matter beyond rounding."""
        if not (self.Omega is other.Omega or np.array_equal(self.Omega, other.Omega)):
            raise ValueError(
                f"sketches merge if they have the same test matrix, got two of shapes {self.Omega.shape} and "
                f"{other.Omega.shape}; begin both with the same random_state, number of components, and scale"
            )
        a, b = self.moments, other.moments
        delta = b.mean - a.mean
        between = np.outer(delta * (a.count * b.count / max(a.count + b.count, 1)), delta @ self.Omega)
        return ScatterSketch(
            self.Omega,
            self.Y + other.Y + between,
            a.merge(b),
            np.result_type(self.dtype, other.dtype),
            max(self.n_passes, other.n_passes),
            self.seconds + other.seconds,
        )

    def refined(self, A: Operator) -> "ScatterSketch":
        """The same rows, all of them in A, seen through the basis that this sketch found; one read."""
        if A.shape[0] != self.moments.count:
            raise ValueError(
                f"refine needs the {self.moments.count:.0f} rows that were streamed, all of them, got {A.shape[0]}"
            )
        if self.whole:
            return self
        started = time.perf_counter()
        seen = replace(self, Omega=orth(self.Y), n_passes=self.n_passes + 1)
        Y = seen._scatter(A, self.moments.mean)
        return replace(seen, Y=Y, seconds=self.seconds + time.perf_counter() - started)

    @property
    def whole(self) -> bool:
        """Whether this is S itself: as many columns as there are features, and no test matrix."""
        return bool(self.Omega.shape[0] == self.Omega.shape[1])

    def _scatter(self, A: Operator, mean: Vector) -> Panel:
        """``(A - 1 mean^T)^T (A - 1 mean^T) Omega``; one read where it is fused."""
        B = A - LowRank(np.ones(A.shape[0]), mean)
        return np.asarray(B.gram_matrix() if self.whole else B.gram(self.Omega))

    def spectrum(self, shift: Vector | None = None, scale: Vector | None = None) -> Spectrum:
        """Leading eigenpairs of the scatter about `shift` (default: the mean), the columns divided by `scale`."""
        Omega, Y, squares = self.Omega, self.Y, self.moments.M2
        assert squares is not None
        if shift is not None:
            delta = self.moments.mean - shift
            Y = Y + np.outer(self.moments.count * delta, delta @ Omega)
            squares = squares + self.moments.count * delta**2
        if scale is not None:
            Omega, Y, squares = Omega * scale[:, None], Y / scale[:, None], squares / scale**2
        values, vectors = nystrom(Y, Omega)
        total = float(squares.sum())
        values = np.minimum(values, total)  # which rounding may pass
        return Spectrum(values, vectors, total, max(total - float(values.sum()), 0.0))


def nystrom(Y: Panel, Omega: Panel) -> tuple[Vector, Panel]:
    """Eigenpairs of ``Y (Omega^T Y)^+ Y^T``, at most those of the S behind ``Y = S Omega`` (Tropp et al. 2017)."""
    Q, R = linalg.qr(Omega, mode="economic", check_finite=False)
    Y = linalg.solve_triangular(R, Y.T, trans="T", check_finite=False).T  # S Q
    if len(Q) == Q.shape[1]:
        w, V = linalg.eigh(Y @ Q.T, check_finite=False)
        return np.maximum(w[::-1], 0), np.asarray(V[:, ::-1])
    # The small shift makes the core definite in spite of rounding; it comes off the values again.
    nu = np.sqrt(len(Y)) * EPS * float(np.linalg.norm(Y)) or 1.0
    Y = Y + nu * Q
    B = Q.T @ Y
    w, Z = np.linalg.eigh((B + B.T) / 2)
    V, S, _ = linalg.svd((Y @ Z) / np.sqrt(np.maximum(w, nu)), full_matrices=False, check_finite=False)
    return np.maximum(S**2 - nu, 0), np.asarray(V)


FITTED = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "info_",
    "mean_",
    "n_components_",
    "n_samples_",
    "noise_variance_",
    "scale_",
    "shift_",
    "singular_values_",
    "unseen_variance_",
)


def partial_fit(pca: Any, X: Any) -> None:
    """The estimator with the rows of X added to those of its stream."""
    old = vars(pca).get("_sketch")
    if pca.missing != "error":
        raise ValueError(f'partial_fit needs missing="error", got {pca.missing!r}; fill the gaps first')
    if old is None:
        _take_names(pca, X)
    A = pca._operator(X, reset=False)
    with threads(pca.n_threads):
        _keep(pca, (old or _begin(pca)).update(A))


def refine(pca: Any, X: Any, passes: int) -> None:
    """The estimator after more readings of all its rows."""
    if vars(pca).get("_sketch") is None:
        raise ValueError("refine continues a stream: call partial_fit first")
    if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes < 1:
        raise ValueError(f"passes must be a positive integer, got {passes!r}")
    A, sketch = pca._operator(X, reset=False), pca._sketch
    with threads(pca.n_threads):
        for _ in range(passes):
            sketch = sketch.refined(A)
    _keep(pca, sketch)


def merge(a: Any, b: Any) -> Any:
    """One `PCA` of the rows that two were given by `partial_fit`, as if one had been given all of them.

    Parameters
    ----------
    a, b : PCA
        Of the same settings, `random_state` being a number, so that both have the same test matrix. Neither is
        changed.

    Returns
    -------
    PCA
        With the settings of `a`. It can be merged and fitted further; the order does not matter beyond rounding.

    Raises
    ------
    ValueError
        Where one was not fitted by `partial_fit`, or the test matrices or the names of the features differ.

    Notes
    -----
    No data are read; O(n_features ell^2) operations.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((300, 20))
    >>> parts = [ss.PCA(2, random_state=0).partial_fit(part) for part in (X[:100], X[100:])]
    >>> ss.merge(*parts).n_samples_
    300
    """
    for one in (a, b):
        if vars(one).get("_sketch") is None:
            raise ValueError(f"merge takes estimators fitted by partial_fit, got {one!r} without a stream")
    names, others = (getattr(one, "feature_names_in_", None) for one in (a, b))
    if names is not None and others is not None and not np.array_equal(names, others):
        raise ValueError("merge needs the same features in the same order, got two lists of names")
    both = clone(a)
    both.n_features_in_ = a.n_features_in_
    if names is not None:
        both.feature_names_in_ = names
    _keep(both, a._sketch.merge(b._sketch))
    return both


def forget(pca: Any) -> None:
    """The estimator without its stream, if it had one."""
    for name in ("_sketch", "unseen_variance_"):
        vars(pca).pop(name, None)


def _keep(pca: Any, sketch: ScatterSketch) -> None:
    """The estimator with this sketch, from which `recover` makes the fitted attributes when one is asked for."""
    # Recovery takes longer than a small batch: measured 30 ms beside 5 ms for 60 rows of 2000 features.
    for name in FITTED:
        vars(pca).pop(name, None)
    pca._sketch = sketch


def recover(pca: Any, name: str) -> Any:
    """A fitted attribute that a stream has not made yet; AttributeError where there is none."""
    sketch = vars(pca).get("_sketch")
    if name in FITTED and "info_" not in vars(pca) and sketch is not None and sketch.moments.count >= 2:
        with threads(pca.n_threads):
            _fill(pca, sketch)
    if name not in vars(pca):
        raise AttributeError(f"{type(pca).__name__!r} object has no attribute {name!r}")
    return vars(pca)[name]


def _take_names(pca: Any, X: Any) -> None:
    """The features of the first batch, whose number and names all others must have."""
    if isinstance(X, Operator):
        vars(pca).pop("feature_names_in_", None)
        pca.n_features_in_ = X.shape[1]
    else:
        validate_data(pca, X, skip_check_array=True)


def _begin(pca: Any) -> ScatterSketch:
    """A sketch of no rows yet, as large as the settings ask for."""
    n, k = pca.n_features_in_, _components(pca)
    ell = min(k + max(k, pca.n_oversamples), n)
    _shift(pca, n)
    affordable(8 * n * ell * 6, pca.memory_limit, f"streaming {k} components of {n} features")
    return ScatterSketch.empty(n, ell, random_generator(pca.random_state), _scale(pca))


def _components(pca: Any) -> int:
    """How many components a stream is to find."""
    k, n = pca.n_components, pca.n_features_in_
    if k is None:
        return int(n)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n:
        raise ValueError(f"partial_fit needs n_components in 1..{n} for {n} features, or None, got {k!r}")
    return int(k)


def _shift(pca: Any, n: int) -> Vector | None:
    """The vector that is subtracted; None for the mean."""
    if isinstance(pca.shift, str) and pca.shift == "mean":
        return None
    if pca.shift is None:
        return np.zeros(n)
    if isinstance(pca.shift, str | Operator) or not hasattr(pca.shift, "__len__"):
        raise ValueError(f'partial_fit takes shift="mean", None or a vector, got {pca.shift!r}; use fit')
    return finite_vector("shift", pca.shift, n, "feature")


def _scale(pca: Any) -> Vector | None:
    """What the columns are divided by, which must be known before the first batch."""
    if pca.scale is True or isinstance(pca.scale, str):
        raise ValueError(
            f"partial_fit cannot learn scale={pca.scale!r}, since the scale would change with every batch; "
            "give it as a vector, or use fit"
        )
    return resolve_scale(pca.scale, pca.n_features_in_, None)


def _fill(pca: Any, sketch: ScatterSketch) -> None:
    """The fitted attributes; of them only the spectrum is approximate."""
    started, count, mean = time.perf_counter(), int(sketch.moments.count), sketch.moments.mean
    n, shift, scale, k = len(mean), _shift(pca, len(mean)), _scale(pca), _components(pca)
    found = sketch.spectrum(shift, scale)
    k = min(k, count, n, len(found.values))
    V = found.vectors[:, :k].T
    values = np.where(found.values[:k] > n * EPS * found.values[0], found.values[:k], 0)
    left_out, rest = min(n, count) - k, max(found.total - float(values.sum()), 0.0)
    ratio = values / found.total if found.total > 0 else np.zeros(k)
    pca.mean_, pca.scale_ = mean if shift is None else shift, scale
    pca.n_samples_, pca.n_components_ = count, k
    pca.components_ = (V / phases(V)[:, None]).astype(sketch.dtype)
    pca.singular_values_ = np.sqrt(values).astype(sketch.dtype)
    pca.explained_variance_ = (values / (count - 1)).astype(sketch.dtype)
    pca.explained_variance_ratio_ = ratio.astype(sketch.dtype)
    pca.noise_variance_ = rest / (count - 1) / left_out if left_out else 0.0
    pca.unseen_variance_ = found.unseen / (count - 1)
    pca.info_ = _account(sketch, values, found.unseen, sketch.seconds + time.perf_counter() - started)


def _account(sketch: ScatterSketch, values: Vector, unseen: float, seconds: float) -> Info:
    """What is known of the values: none is too small by more than the trace that was not seen."""
    there = values > 0
    errors = np.zeros(len(values))
    errors[there] = np.sqrt(1 + unseen / values[there]) - 1
    return Info(
        solver=f"Streaming(ell={sketch.Omega.shape[1]})",
        n_passes=sketch.n_passes,
        sample_size=sketch.Omega.shape[1],
        rank=int(there.sum()),
        residuals=None,
        value_errors=errors,
        converged=bool(np.all(errors <= TOL)),
        frobenius_error=None,
        seconds=seconds,
        peak_bytes=None,
    )
