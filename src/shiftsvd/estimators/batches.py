"""PCA of batches: what is kept between them, and the fitted attributes that are made of it when asked for."""

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone

from shiftsvd.estimators.fitted import FittedPCA
from shiftsvd.estimators.settings import random_generator
from shiftsvd.kernels import threads
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator
from shiftsvd.preparation.scales import finite_vector, is_named, resolve_scale
from shiftsvd.streaming.stream import Stream

if TYPE_CHECKING:
    from shiftsvd.estimators.pca import PCA


class BatchPCA(FittedPCA):
    """What `PCA` does with batches."""

    _stream: Stream | None = None  # what `partial_fit` has kept so far
    _count: int | None = None  # components, where it is the first batch that decides

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to those that it was given before, one or many from the first batch on; sparse X stays sparse.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Frequencies, as in `fit`; in one batch all may be 0.

        Returns
        -------
        PCA
            Fitted from the second row on. Mean and total variance are exact. Up to 4096 features all of the scatter
            matrix is kept where `memory_limit` allows; then ``info_.value_errors`` bound what rounding did to each
            singular value. Beyond, the components are those of a sketch of ``ell = k + max(k, n_oversamples)`` columns:
            each exact variance lies between `explained_variance_` and that plus `unseen_variance_`, but for rounding;
            ``info_.value_errors`` bound both.

        Raises
        ------
        ValueError
            For data or settings that cannot be: a scale that would have to be learned, a share of the variance.

        Notes
        -----
        Kept are a triangular factor of dense rows, the squares of sparse batches of more than 256 rows, and the rows
        that wait to be added: at most 4 n_features^2 numbers (540 MB for 4096 features). The factor errs in each
        column relative to the norm of that column, so columns of very different sizes keep their digits; squares do,
        too, unless such columns nearly depend on each other. A value that rounding does not tell from 0 is reported
        as 0, with an infinite error unless it is proven to be below ``2 max(m, n) eps`` times the norm of the data.

        A sketch has 4 n_features x ell numbers: ``S Omega`` for the scatter matrix S, to which neither the order nor
        the size of batches matters beyond rounding, and the
        `ell` directions found so far, as by IncrementalPCA but sparse and with more of them; those depend on the order
        by what `ell` directions cannot hold. Both together are at least as near to S as the sketch alone, and never
        more than S. `shiftsvd.merge_pca` joins what was fitted apart, and `refine` comes nearer to the exact
        components. Two reads of a batch; six at most of one with more than ell rows, where a sketch is kept. The solver
        settings of `fit` do not matter here, and what `fit` was given does not belong to the stream: the first
        `partial_fit` begins anew.

        Frobenius norm of what 50 components leave of sparse counts, 60 000 x 2 000, over the least there is, less 1:
        0 whole; with a sketch of 2 k columns 0.00003 in 1 batch, 0.0002 in 7, 0.0008 in 1000. IncrementalPCA of
        scikit-learn: 0.001 in 7, 0.003 in 1000 (benchmarks/claims/batches.py).

        References
        ----------
        Tropp, Yurtsever, Udell & Cevher (2017), Fixed-rank approximation of a positive-semidefinite matrix from
        streaming data; Ross, Lim, Lin & Yang (2008), Incremental learning for robust visual tracking.

        Examples
        --------
        >>> import shiftsvd as ss
        >>> from scipy.sparse import random_array
        >>> X = random_array((1000, 50), density=0.05, format="csr", rng=0)
        >>> pca = ss.PCA(n_components=3, random_state=0)
        >>> for lo in range(0, 1000, 333):
        ...     pca = pca.partial_fit(X[lo : lo + 333])
        >>> pca.n_samples_
        1000
        """
        if self.missing != "error":
            raise ValueError(f'partial_fit needs missing="error", got {self.missing!r}; fill the gaps first')
        if self.preprocess is not None:
            raise ValueError(
                f"partial_fit cannot learn preprocess={self.preprocess!r}, which would change with every batch; "
                "use fit, or give partial_fit what is transformed already"
            )
        stream = self._stream
        A = self._operator(X, reset=stream is None)
        weights = _weights(sample_weight, A.shape[0])
        with threads(self.n_threads):
            stream = stream or self._begin()
            stream.update(A, weights)
        self._keep(stream)
        return self

    def refine(self, X: Any, passes: int = 1, sample_weight: Any = None) -> Self:
        """Come nearer to the exact components of a stream by reading all its rows again, in any order.

        Parameters
        ----------
        X : array, sparse matrix, data frame, or what `shiftsvd.io.open_matrix` gives
            All rows that `partial_fit` was given.
        passes : int
            Reads of X.
        sample_weight : array of shape (n_samples,), optional
            All weights that `partial_fit` was given.

        Returns
        -------
        PCA
            It can be fitted and merged further. Without a sketch it is exact as it is, and X is not read.
        """
        stream = self._stream
        if stream is None:
            raise ValueError("refine continues a stream: call partial_fit first")
        if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes < 1:
            raise ValueError(f"passes must be a positive integer, got {passes!r}")
        A = self._operator(X)
        weights = _weights(sample_weight, A.shape[0])
        with threads(self.n_threads):
            for _ in range(passes):
                stream.refine(A, weights)
        self._keep(stream)
        return self

    def __getattr__(self, name: str) -> Any:
        stream = self._stream
        if _is_fitted(name) and "info_" not in vars(self) and stream is not None and stream.moments.count > 1:
            with threads(self.n_threads):
                self.__dict__.update(self._made(stream))
        if name not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return vars(self)[name]

    def _made(self, stream: Stream) -> dict[str, Any]:
        n = self.n_features_in_
        return stream.fitted(self._wanted(n), self._vector(n))

    def _keep(self, stream: Stream) -> None:
        # Recovery takes longer than a small batch: measured 30 ms beside 5 ms for 60 rows of 2000 features.
        self._forget()
        self._stream = stream

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name == "_stream" or _is_fitted(name)]:
            del self.__dict__[name]

    def _begin(self) -> Stream:
        n = self.n_features_in_
        k, scale = self._wanted(n), self._divisor(n)
        self._vector(n)
        rng = partial(random_generator, self.random_state)
        return Stream.begin(n, k, self.n_oversamples, scale, rng, self.memory_limit)

    def _wanted(self, n: int) -> int:
        k = self.n_components
        if k is None:
            return n
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n:
            raise ValueError(f"partial_fit needs n_components in 1..{n} for {n} features, or None, got {k!r}")
        return int(k)

    def _vector(self, n: int) -> Vector | None:
        if isinstance(self.shift, str) and self.shift == "mean":
            return None
        if self.shift is None:
            return np.zeros(n)
        if isinstance(self.shift, str | Operator) or not hasattr(self.shift, "__len__"):
            raise ValueError(f'partial_fit takes shift="mean", None or a vector, got {self.shift!r}; use fit')
        return finite_vector("shift", self.shift, n, "feature")

    def _divisor(self, n: int) -> Vector | None:
        if is_named(self.scale):
            raise ValueError(
                f"partial_fit cannot learn scale={self.scale!r}, since the scale would change with every batch; "
                "give it as a vector, or use fit"
            )
        return resolve_scale(self.scale, n, None)


def merge_pca(a: "PCA", b: "PCA") -> "PCA":
    """Put two fits by `partial_fit` together: one `PCA` of the rows of both, as if it had been given all.

    Parameters
    ----------
    a, b : PCA
        With the same features, `shift` and `scale`, and with the same number as `random_state`, so that sketches have
        the same test matrix. Neither is changed.

    Returns
    -------
    PCA
        With the settings of `a`. It can be merged and fitted further. What does not depend on the order of batches
        (`PCA.partial_fit`) does not depend on that of merges.

    Raises
    ------
    ValueError
        If one was not fitted by `partial_fit`, or if shifts, scales, test matrices or features differ.

    See Also
    --------
    PCA : ``partial_fit`` takes batches one after the other.

    Notes
    -----
    No data are read; O(n_features^2) operations up to 4096 features, O(n_features ell^2) beyond.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((300, 20))
    >>> parts = [ss.PCA(2, random_state=0).partial_fit(part) for part in (X[:100], X[100:])]
    >>> ss.merge_pca(*parts).n_samples_
    300
    """
    for one in (a, b):
        if getattr(one, "_stream", None) is None:
            raise ValueError(f"merge_pca takes estimators fitted by partial_fit, got {one!r} without a stream")
    _check_alike(a, b)
    names = getattr(a, "feature_names_in_", getattr(b, "feature_names_in_", None))
    both: PCA = clone(a)
    both.n_features_in_ = a.n_features_in_
    if names is not None:
        both.feature_names_in_ = names
    assert a._stream is not None
    assert b._stream is not None
    both._keep(a._stream.merged(b._stream))
    return both


def _check_alike(a: "PCA", b: "PCA") -> None:
    if a.n_features_in_ != b.n_features_in_:
        raise ValueError(
            f"merge_pca needs fits of the same features, got {a.n_features_in_} and {b.n_features_in_} of them. "
            "Fit both on the same columns."
        )
    names, others = (getattr(one, "feature_names_in_", None) for one in (a, b))
    if names is not None and others is not None and not np.array_equal(names, others):
        raise ValueError(
            f"merge_pca needs the same features in the same order, got {_listed(names)} and {_listed(others)}. "
            "Select the same columns before both fits."
        )
    shift, other = (one._vector(one.n_features_in_) for one in (a, b))
    alike = shift is other if shift is None or other is None else np.array_equal(shift, other)
    if not alike:
        raise ValueError(
            f"merge_pca needs fits with the same shift, got shift={_short(a.shift)} and shift={_short(b.shift)}. "
            "Call set_params(shift=...) on one of them; a stream can be read about any shift."
        )


def _short(setting: Any) -> str:
    return " ".join(f"{setting!r:.80}".split())


def _listed(names: Any) -> str:
    return ", ".join(map(str, names[:3])) + (", ..." if len(names) > 3 else "")


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and not name.endswith("_in_")


def _weights(sample_weight: Any, m: int) -> Vector | None:
    if sample_weight is None:
        return None
    weights = np.full(m, sample_weight) if np.ndim(sample_weight) == 0 else sample_weight
    weights = finite_vector("sample_weight", weights, m, "sample")
    if np.iscomplexobj(weights) or np.any(weights < 0):
        raise ValueError("sample_weight must be real and not negative, got complex or negative entries")
    return weights
