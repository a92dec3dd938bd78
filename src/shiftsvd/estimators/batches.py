"""PCA of batches of rows: `PCA.partial_fit`, `IncrementalPCA` and `merge_pca`."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import gen_batches

from shiftsvd.backends import as_operator
from shiftsvd.backends.validation import named
from shiftsvd.errors import Refused, Setting, plural
from shiftsvd.estimators.diagnostics import DiagnosablePCA
from shiftsvd.estimators.features import checked, is_unread
from shiftsvd.estimators.settings import random_generator
from shiftsvd.front import integer
from shiftsvd.kernels import threads
from shiftsvd.operators import Operator, Vector
from shiftsvd.preparation.shifts import finite_vector, is_named, resolve_scale, row_weights
from shiftsvd.runs.messages import warn
from shiftsvd.solvers.base import TOL, named_unconverged
from shiftsvd.streaming import Stream

if TYPE_CHECKING:
    from shiftsvd.estimators.pca import PCA


class BatchPCA(DiagnosablePCA):
    """Base class of PCA estimators that are fitted batch by batch."""

    _stream: Stream | None = None  # statistics of all batches of `partial_fit` so far

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch of one or more rows to those of earlier calls; sparse X stays sparse.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The batch.
        y : ignored
            For scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Frequencies, as in `fit`; in one batch all may be 0.

        Returns
        -------
        PCA
            Fitted from the second row on. Mean and total variance are exact.

        Raises
        ------
        ValueError
            For invalid data or settings, such as a named scale or a share of the variance.

        Notes
        -----
        Up to 4096 features, if `memory_limit` allows, the whole scatter matrix S is stored: a triangular factor of
        dense rows, the squares of sparse batches of more than 256 rows, and rows not yet added. With the workspace this
        takes ``8 n_features ((n_threads + 9) n_features + 512)`` bytes: 1.5 GB for 4096 features and 2 threads. The
        rounding error of each column is relative to its norm, so columns of very different sizes keep their digits,
        also in sums of squares, unless such columns are nearly linearly dependent. ``info_.value_errors`` bound the
        error of each singular value. A value at rounding level is reported as 0, with an infinite error unless it is
        below ``2 max(m, n) eps`` times the norm of the data.

        Otherwise, as a warning says, 4 n_features x ell numbers are kept, with ``ell = k + max(k, n_oversamples)``: the
        sketch ``S Omega``, which depends on the order and size of batches by rounding alone, and the `ell` leading
        directions found so far, as in IncrementalPCA. These directions depend on the order of batches, since `ell`
        directions do not represent all rows. Each exact variance lies between `explained_variance_` and
        `explained_variance_` plus `unseen_variance_`; ``info_.value_errors`` include this interval.
        `shiftsvd.merge_pca` merges separate fits, and `refine` improves the components. Each batch is read twice; with
        a sketch, a batch of more than ell rows is read at most six times. The settings of the solver are ignored. The
        first `partial_fit` after `fit` discards the earlier fit.

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
            got = f", got {self.missing!r}. Fill the missing values before the call."
            raise Refused("partial_fit needs ", Setting("missing", "error"), got)
        if self.preprocess is not None:
            raise Refused(
                *("partial_fit does not support ", Setting("preprocess", self.preprocess)),
                ", because the transformation would change with every batch. Use fit, or pass transformed batches.",
            )
        return self._add(X, sample_weight)

    def _add(self, X: Any, sample_weight: Any = None) -> Self:
        stream = self._stream
        A = self._operator(X, reset=stream is None)
        weights = row_weights(sample_weight, A.shape[0], of_a_batch=True)
        with threads(self.n_threads):
            if stream is None:
                stream = self._begin(self._checked_n_components(A.shape))
                _warn_sketched(stream)
            stream.update(A, weights)
        self._keep(stream)
        return self

    def refine(self, X: Any, passes: int = 1, sample_weight: Any = None) -> Self:
        """Improve the components of a stream by further passes over all its rows, in any order.

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
            The estimator itself, which can be fitted and merged further. A fit without a sketch is exact already, and
            X is not read.
        """
        stream = self._stream
        if stream is None:
            raise ValueError("refine needs an estimator fitted by partial_fit. Call partial_fit for each batch first.")
        passes = integer("passes", passes, 1)
        A = self._operator(X)
        weights = row_weights(sample_weight, A.shape[0], of_a_batch=True)
        with threads(self.n_threads):
            for _ in range(passes):
                stream.refine(A, weights)
            self._keep(stream)
            if stream.is_sketched and stream.moments.count > 1:
                self._recover(stream)
        return self

    def _recover(self, stream: Stream) -> None:
        vars(self).update(self._made(stream))
        errors = self.info_.value_errors
        unconverged = np.flatnonzero(~(errors <= TOL))
        # Without a sketch these are values at rounding level, which are reported as 0.
        if stream.is_sketched and len(unconverged):
            warn(named_unconverged(errors, unconverged), *stream.more_exactly())

    def __getattr__(self, name: str) -> Any:
        stream = self._stream
        if _is_fitted(name) and "info_" not in vars(self) and stream is not None and stream.moments.count > 1:
            with threads(self.n_threads):
                vars(self).update(self._made(stream))
        if name not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return vars(self)[name]

    def _made(self, stream: Stream) -> dict[str, Any]:
        n = self.n_features_in_
        return stream.fitted(self._checked_n_components((n, n)), self._vector(n))

    def _keep(self, stream: Stream) -> None:
        # Recovery takes longer than a small batch: measured 30 ms beside 5 ms for 60 rows of 2000 features.
        self._forget()
        self._stream = stream

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name in ("_stream", "_freedom") or _is_fitted(name)]:
            del self.__dict__[name]

    def _begin(self, k: int) -> Stream:
        n = self.n_features_in_
        if is_named(self.scale):
            raise Refused(
                *("partial_fit does not support ", Setting("scale", self.scale)),
                ", because the scale would change with every batch. Pass the scale as a vector, or use fit.",
            )
        self._vector(n)
        scale, rng = resolve_scale(self.scale, n, None), partial(random_generator, self.random_state)
        return Stream.begin(n, k, self.n_oversamples, scale, rng, self.memory_limit)

    def _checked_n_components(self, shape: tuple[int, int]) -> int:
        n, k = shape[1], self.n_components
        return n if k is None else integer("n_components", k, 1, n, f" or None for partial_fit with {n} features")

    def _vector(self, n: int) -> Vector | None:
        if isinstance(self.shift, str) and self.shift == "mean":
            return None
        if self.shift is None:
            return np.zeros(n)
        if isinstance(self.shift, str | Operator) or not hasattr(self.shift, "__len__"):
            raise Refused(
                *("partial_fit supports ", Setting("shift", "mean"), ", None or a vector, "),
                f"got {self.shift!r}. Use fit for other shifts.",
            )
        return finite_vector("shift", self.shift, n, "feature")


BATCH = 5  # rows of a batch for each feature by default, as in scikit-learn


@dataclass(eq=False, repr=False)
class IncrementalPCA(BatchPCA):
    """Incremental PCA with the parameters and attributes of scikit-learn's class of the same name.

    `fit` takes `batch_size` rows at a time, or a file of `shiftsvd.io.open_matrix` in its own blocks. The first batch
    of `partial_fit` needs as many rows as components; it takes no weights, and always checks its input.

    Parameters
    ----------
    n_components : int or None
        Number of components. None is ``min(n_samples, n_features)`` of the first batch.
    whiten, copy : bool
        As in `PCA`.
    batch_size : int, optional
        Rows per batch in `fit`. Default: ``5 * n_features``. Without a sketch the batch size changes memory, time and
        rounding, but not the result.
    n_oversamples : int
        Extra columns of the sketch, which replaces exact sums of more than 4096 features, or of fewer that
        `memory_limit` leaves no room for (see `PCA.partial_fit`); at least `n_components` are used.
    random_state, n_threads, memory_limit : optional
        As in `PCA`; the seed is used for the sketch.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, noise_variance_, info_
        As in `PCA`; so are `n_components_`, `n_features_in_` and `feature_names_in_`.
    mean_, var_ : array of shape (n_features,)
        Means and variances (over n) of the columns of all rows so far, exact.
    n_samples_seen_ : int
    batch_size_ : int
        Rows per batch in `fit`.
    unseen_variance_ : float
        Bound of the amount by which exact variances exceed `explained_variance_`; 0 without a sketch.

    See Also
    --------
    PCA : ``partial_fit`` with sample weights, shifts and scales.
    merge_pca : Merge separate fits.

    Notes
    -----
    Without a sketch the components equal those of a PCA of all rows; scikit-learn's class truncates after every
    batch. Sparse rows stay sparse, also in `partial_fit`. Each batch is read twice.

    References
    ----------
    Ross, Lim, Lin & Yang (2008), Incremental learning for robust visual tracking.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> from scipy.sparse import random_array
    >>> X = random_array((1000, 50), density=0.05, format="csr", rng=0)
    >>> ipca = ss.IncrementalPCA(n_components=3, batch_size=200)
    >>> ipca.fit_transform(X).shape, ipca.partial_fit(X[:10]).n_samples_seen_
    ((1000, 3), 1010)
    """

    n_components: int | None = None
    _: KW_ONLY
    whiten: bool = False
    copy: bool = True
    batch_size: int | None = None
    n_oversamples: int = 10
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    # Settings of `PCA` that are none here.
    shift: ClassVar[Any] = "mean"
    scale: ClassVar[Any] = None
    missing: ClassVar[Any] = "error"
    unobserved: ClassVar[bool] = False
    preprocess: ClassVar[Any] = None

    def fit(self, X: Any, y: Any = None) -> Self:
        size = self.batch_size if self.batch_size is None else integer("batch_size", self.batch_size, 1, of=" or None")
        X = checked(self, X, reset=True)
        size = BATCH * X.shape[1] if size is None else size
        with threads(self.n_threads), named(vars(self).get("feature_names_in_")):
            stream = None
            for A in self._batches(X, size):
                stream = stream or self._begin(self._first(A.shape))
                stream.update(A)
            assert stream is not None
            self._keep(stream)
            if stream.moments.count > 1:
                self._recover(stream)
        self.batch_size_ = size
        return self

    def partial_fit(self, X: Any, y: Any = None, check_input: bool = True) -> Self:
        stream = self._stream
        if stream is not None and self.n_components not in (None, stream.k):
            raise Refused(
                *(Setting("n_components"), f" changed from {stream.k} to {self.n_components!r} between calls to "),
                f"partial_fit. Set n_components back to {stream.k}, or start again with fit.",
            )
        return self._add(X)

    def _batches(self, X: Any, size: int) -> Iterator[Operator]:
        if is_unread(X):
            yield X
            return
        for batch in gen_batches(X.shape[0], size, min_batch_size=self.n_components or 0):
            yield as_operator(X[batch], **vars(self._resources))

    def _first(self, shape: tuple[int, int]) -> int:
        m, n = shape
        if self.n_components is None:
            return min(m, n)
        k = integer("n_components", self.n_components, 1, of=" or None")
        if k > n:
            raise Refused(
                # scikit-learn's sentence, which its tests of estimators require (test_incremental_pca_validation).
                *(Setting("n_components", k), f" invalid for n_features={n}, need more rows than columns for "),
                f"IncrementalPCA processing. Use at most {plural(n, 'component')}.",
            )
        if k > m:
            raise Refused(
                *(Setting("n_components", k), f" must be less or equal to the batch number of samples {m} for the "),
                f"first partial_fit call. Pass more rows in the first batch, or use at most {plural(m, 'component')}.",
            )
        return k

    def _checked_n_components(self, shape: tuple[int, int]) -> int:
        k = None if self._stream is None else self._stream.k
        return self._first(shape) if k is None else k

    def _made(self, stream: Stream) -> dict[str, Any]:
        moments = stream.moments
        assert moments.M2 is not None
        seen = {"var_": moments.M2 / moments.count, "n_samples_seen_": round(moments.count)}
        return super()._made(stream) | seen


def merge_pca(a: "PCA", b: "PCA") -> "PCA":
    """Merge two fits by `partial_fit` into one `PCA` of the rows of both.

    Parameters
    ----------
    a, b : PCA
        Estimators with the same features, `shift` and `scale`, and with the same integer `random_state`, so that their
        sketches have the same test matrix. Neither is modified.

    Returns
    -------
    PCA
        A PCA with the settings of `a`, which can be merged and fitted further. The result depends on the order of
        merges only as far as `PCA.partial_fit` depends on the order of batches.

    Raises
    ------
    ValueError
        If one was not fitted by `partial_fit`, or if shifts, scales, test matrices or features differ.

    See Also
    --------
    PCA : ``partial_fit`` takes batches one after the other.

    Notes
    -----
    No data are read; O(n_features^2) operations, O(n_features ell^2) with a sketch.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((300, 20))
    >>> parts = [ss.PCA(2, random_state=0).partial_fit(part) for part in (X[:100], X[100:])]
    >>> ss.merge_pca(*parts).n_samples_
    300
    """
    first, second = (getattr(one, "_stream", None) for one in (a, b))
    if first is None or second is None:
        wrong = a if first is None else b
        raise ValueError(f"merge_pca needs estimators fitted by partial_fit, and {wrong!r} was not. Call partial_fit.")
    n, m = a.n_features_in_, b.n_features_in_
    if n != m:
        raise ValueError(
            f"merge_pca needs fits of the same features, got {n:,} and {m:,} features. Fit both on the same columns."
        )
    names, others = (getattr(one, "feature_names_in_", None) for one in (a, b))
    if names is not None and others is not None and not np.array_equal(names, others):
        raise ValueError(
            f"merge_pca needs the same features in the same order, got {_short(list(names))} and "
            f"{_short(list(others))}. Select the same columns before both fits."
        )
    if not np.array_equal(a._vector(n), b._vector(n)):  # type: ignore[arg-type]  # both may be None
        raise Refused(
            f"merge_pca needs fits with the same shift, got shift={_short(a.shift)} and shift={_short(b.shift)}. Call "
            "set_params(shift=...) on one estimator, which keeps its batches."
        )
    both: PCA = clone(a)
    both.n_features_in_ = n
    if names is not None or others is not None:
        both.feature_names_in_ = others if names is None else names
    both._keep(first.merged(second))
    return both


# Once for a stream, not once for each of its batches: the errors of a stream that goes on are not final.
def _warn_sketched(stream: Stream) -> None:
    if stream.is_sketched:
        n, ell = len(stream.moments.mean), stream.scatter.size
        warn(
            f"The components of {plural(n, 'feature')} come from a sketch of {plural(ell, 'column')}, and may be "
            "inaccurate. Check info_.value_errors after the last batch. ",
            *stream.more_exactly(),
        )


def _short(setting: Any) -> str:
    return " ".join(f"{setting!r:.80}".split())


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and not name.endswith(("_in_", "batch_size_"))
