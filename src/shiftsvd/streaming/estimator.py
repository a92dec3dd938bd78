"""`PCA` of a stream: what is kept between batches, and the fitted attributes that are made of it when asked for."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import validate_data

from shiftsvd.estimators.settings import random_generator
from shiftsvd.kernels import default_threads, threads
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import phases
from shiftsvd.operators import Operator
from shiftsvd.preparation.scales import resolve_scale
from shiftsvd.preparation.vectors import finite_vector
from shiftsvd.result import Info
from shiftsvd.runs.memory import affordable, spare
from shiftsvd.solvers.base import TOL
from shiftsvd.streaming.scatter import WholeScatter
from shiftsvd.streaming.sketch import SketchedScatter
from shiftsvd.streaming.stream import Stream

if TYPE_CHECKING:
    from shiftsvd.estimators.pca import PCA

EPS = float(np.finfo(np.float64).eps)
# Up to so many features all of the scatter matrix is kept, 134 MB at most.
WHOLE = 4096

FITTED = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "info_",
    "mean_",
    "n_components_",
    "n_iter_",
    "n_samples_",
    "noise_variance_",
    "scale_",
    "shift_",
    "singular_values_",
    "unseen_variance_",
)


def partial_fit(pca: Any, X: Any, sample_weight: Any = None) -> None:
    """The estimator with the rows of X added to those of its stream."""
    if pca.missing != "error":
        raise ValueError(f'partial_fit needs missing="error", got {pca.missing!r}; fill the gaps first')
    stream = _stream(pca)
    if stream is None:
        _take_names(pca, X)
    A = pca._operator(X, reset=False)
    weights = _weights(sample_weight, A.shape[0])
    with threads(pca.n_threads):
        stream = stream or _begin(pca)
        stream.update(A, weights)
    _keep(pca, stream)


def refine(pca: Any, X: Any, passes: int, sample_weight: Any = None) -> None:
    """The estimator after more readings of all its rows."""
    stream = _stream(pca)
    if stream is None:
        raise ValueError("refine continues a stream: call partial_fit first")
    if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes < 1:
        raise ValueError(f"passes must be a positive integer, got {passes!r}")
    A = pca._operator(X, reset=False)
    weights = _weights(sample_weight, A.shape[0])
    with threads(pca.n_threads):
        for _ in range(passes):
            stream.refine(A, weights)
    _keep(pca, stream)


def merge(a: "PCA", b: "PCA") -> "PCA":
    """One `PCA` of the rows that two were given by `partial_fit`, as if one had been given all of them.

    Parameters
    ----------
    a, b : PCA
        Of the same settings, `random_state` being a number, so that both have the same test matrix, if they have
        one. Neither is changed.

    Returns
    -------
    PCA
        With the settings of `a`. It can be merged and fitted further. What does not depend on the order of batches
        (`PCA.partial_fit`) does not depend on that of merges.

    Raises
    ------
    ValueError
        Where one was not fitted by `partial_fit`, or test matrices, scales, or the names of the features differ.

    Notes
    -----
    No data are read; O(n_features^2) operations up to 4096 features, O(n_features ell^2) beyond.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((300, 20))
    >>> parts = [ss.PCA(2, random_state=0).partial_fit(part) for part in (X[:100], X[100:])]
    >>> ss.merge(*parts).n_samples_
    300
    """
    for one in (a, b):
        if _stream(one) is None:
            raise ValueError(f"merge takes estimators fitted by partial_fit, got {one!r} without a stream")
    names, others = (getattr(one, "feature_names_in_", None) for one in (a, b))
    if names is not None and others is not None and not np.array_equal(names, others):
        raise ValueError("merge needs the same features in the same order, got two lists of names")
    both: PCA = clone(a)
    both.n_features_in_ = a.n_features_in_
    if names is not None:
        both.feature_names_in_ = names
    _keep(both, a._stream.merged(b._stream))
    return both


def forget(pca: Any) -> None:
    """The estimator without its stream, if it had one."""
    for name in ("_stream", "unseen_variance_"):
        vars(pca).pop(name, None)


def recover(pca: Any, name: str) -> Any:
    """A fitted attribute that a stream has not made yet; AttributeError where there is none."""
    stream = _stream(pca)
    if name in FITTED and "info_" not in vars(pca) and stream is not None and stream.moments.count > 1:
        with threads(pca.n_threads):
            _fill(pca, stream)
    if name not in vars(pca):
        raise AttributeError(f"{type(pca).__name__!r} object has no attribute {name!r}")
    return vars(pca)[name]


def _stream(pca: Any) -> Stream | None:
    """What `partial_fit` has kept so far."""
    stream: Stream | None = vars(pca).get("_stream")
    return stream


def _keep(pca: Any, stream: Stream) -> None:
    """The estimator with this stream, from which `recover` makes the fitted attributes when one is asked for."""
    # Recovery takes longer than a small batch: measured 30 ms beside 5 ms for 60 rows of 2000 features.
    for name in FITTED:
        vars(pca).pop(name, None)
    pca._stream = stream


def _take_names(pca: Any, X: Any) -> None:
    """The features of the first batch, whose number and names all others must have."""
    if isinstance(X, Operator):
        vars(pca).pop("feature_names_in_", None)
        pca.n_features_in_ = X.shape[1]
    else:
        validate_data(pca, X, skip_check_array=True)


def _begin(pca: Any) -> Stream:
    """A stream of no rows yet, of which as much will be kept as the settings ask for."""
    n, k, scale = pca.n_features_in_, _components(pca), _scale(pca)
    ell = min(k + max(k, pca.n_oversamples), n)
    _shift(pca, n)
    needed = WholeScatter.bytes(n, default_threads())
    if ell == n or (n <= max(WHOLE, 4 * ell) and spare(needed, pca.memory_limit)):
        affordable(needed, pca.memory_limit, f"streaming {k} components of {n} features")
        return Stream.empty(WholeScatter.empty(n), scale)
    affordable(SketchedScatter.bytes(n, ell), pca.memory_limit, f"streaming {k} components of {n} features")
    return Stream.empty(SketchedScatter.empty(n, ell, random_generator(pca.random_state)), scale)


def _weights(sample_weight: Any, m: int) -> Vector | None:
    """Frequencies of the rows of one batch, all of which may be zero."""
    if sample_weight is None:
        return None
    weights = np.full(m, sample_weight) if np.ndim(sample_weight) == 0 else sample_weight
    weights = finite_vector("sample_weight", weights, m, "sample")
    if np.iscomplexobj(weights) or np.any(weights < 0):
        raise ValueError("sample_weight must be real and not negative, got complex or negative entries")
    return weights


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


def _fill(pca: Any, stream: Stream) -> None:
    """The fitted attributes; of them only the spectrum is approximate."""
    started, count, mean = time.perf_counter(), stream.moments.count, stream.moments.mean
    n, shift = len(mean), _shift(pca, len(mean))
    k = min(_components(pca), stream.n_rows, n)
    found = stream.spectrum(k, shift)
    V = found.vectors.T
    values = np.where(found.values > n * EPS * found.values[0], found.values, 0)
    left_out, rest = min(n, count) - k, max(found.total - float(values.sum()), 0.0)
    ratio = values / found.total if found.total > 0 else np.zeros(k)
    pca.mean_, pca.scale_ = mean if shift is None else shift, stream.scale
    pca.n_samples_, pca.n_components_ = stream.n_rows, k
    pca.components_ = (V / phases(V)[:, None]).astype(stream.dtype)
    pca.singular_values_, pca.explained_variance_ = np.sqrt(values), values / (count - 1)
    pca.explained_variance_ratio_ = ratio
    pca.noise_variance_ = rest / (count - 1) / left_out if left_out > 0 else 0.0
    pca.unseen_variance_ = found.unseen / (count - 1)
    pca.info_ = _account(stream, values, found.unseen, stream.seconds + time.perf_counter() - started)


def _account(stream: Stream, values: Vector, unseen: float, seconds: float) -> Info:
    """What is known of the values: none is too small by more than the trace that was not seen."""
    there = values > 0
    errors = np.zeros(len(values))
    errors[there] = np.sqrt(1 + unseen / values[there]) - 1
    return Info(
        solver=f"Streaming(ell={stream.scatter.size})",
        n_passes=stream.n_passes,
        sample_size=stream.scatter.size,
        rank=int(there.sum()),
        residuals=None,
        value_errors=errors,
        converged=bool(np.all(errors <= TOL)),
        frobenius_error=None,
        seconds=seconds,
        peak_bytes=None,
    )
