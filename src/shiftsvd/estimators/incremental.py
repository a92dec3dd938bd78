"""IncrementalPCA that swaps in for scikit-learn's: the same settings and attributes, on dense and sparse batches."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import gen_batches

from shiftsvd.backends import as_operator
from shiftsvd.backends.validation import named
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.features import is_unread
from shiftsvd.kernels import threads
from shiftsvd.operators import Operator
from shiftsvd.streaming.stream import Stream

BATCH = 5  # rows of a batch for each feature, where nothing is said, as in scikit-learn


@dataclass(eq=False, repr=False)
class IncrementalPCA(BatchPCA):
    """Principal components of rows that come in batches, with the settings and attributes of scikit-learn's.

    Parameters
    ----------
    n_components : int or None
        None is the smaller one of rows and columns of the first batch.
    whiten : bool
        Scores of unit variance.
    copy : bool
        Accepted for compatibility; input is never written.
    batch_size : int, optional
        Rows of X that `fit` takes at once. Default: five for each feature. It changes memory and time, and up to 4096
        features not the result, but for rounding.
    n_oversamples : int
        What a sketch keeps beyond the components, at least as many more, of more than 4096 features.
    random_state : int, Generator, RandomState or None
        Of that sketch. None is fresh entropy; the global state is never read.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features)
        The largest entry of each is positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : array of shape (n_components_,)
    mean_, var_ : array of shape (n_features,)
        Means and variances (over n) of the columns of all rows so far, exact.
    noise_variance_ : float
        Mean variance of the components that are left out.
    n_components_, n_samples_seen_, n_features_in_ : int
    batch_size_ : int
        Rows that `fit` took at once.
    unseen_variance_ : float
        No exact variance is larger than `explained_variance_` by more; 0 up to 4096 features.
    feature_names_in_ : array of str
        If X was a data frame.
    info_ : Info

    See Also
    --------
    PCA : ``partial_fit`` with sample weights, shifts and scales.
    merge_pca : Joins what was fitted apart.

    Notes
    -----
    Up to 4096 features the components are those of all rows at once; scikit-learn's are of what each batch left. Sparse
    rows stay sparse, in `partial_fit` too, where scikit-learn's refuses them. Two reads of a batch.

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

    # What a stream of batches also asks for, and is no setting here.
    shift: ClassVar[Any] = "mean"
    scale: ClassVar[Any] = None
    missing: ClassVar[Any] = "error"
    unobserved: ClassVar[bool] = False
    preprocess: ClassVar[Any] = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components of X, `batch_size` rows after another; what was fitted before is forgotten.

        Parameters
        ----------
        X : array, sparse matrix, data frame, or what `shiftsvd.io.open_matrix` gives
            Of shape (n_samples, n_features); a file is read in its own blocks.
        y : ignored
            Not used; there for scikit-learn.

        Returns
        -------
        IncrementalPCA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            For data or settings that cannot be.
        """
        size = self._rows_at_once()
        X = self._checked(X, reset=True, least=1)
        size = BATCH * X.shape[1] if size is None else size
        with threads(self.n_threads), named(getattr(self, "feature_names_in_", None)):
            stream = self._streamed(X, size)
            self._keep(stream)
            if stream.moments.count > 1:
                vars(self).update(self._made(stream))
        self.batch_size_ = size
        return self

    def partial_fit(self, X: Any, y: Any = None, check_input: bool = True) -> Self:
        """Add the rows of X to those before; sparse rows stay sparse.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The first batch has at least as many rows as components are wanted.
        y : ignored
            Not used; there for scikit-learn.
        check_input : bool
            Accepted for compatibility; input is always checked.

        Returns
        -------
        IncrementalPCA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            For data or settings that cannot be, or a number of components that has changed.
        """
        stream = self._stream
        A = self._operator(X, reset=stream is None)
        if stream is None:
            self._count = self._first(A.shape)
        elif self.n_components not in (None, self._count):
            raise ValueError(
                f"n_components has changed from {self._count} to {self.n_components!r} between calls to partial_fit; "
                "set it back, or begin anew with fit"
            )
        with threads(self.n_threads):
            stream = stream or self._begin()
            stream.update(A)
        self._keep(stream)
        return self

    def _rows_at_once(self) -> int | None:
        size = self.batch_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1):
            raise ValueError(f"batch_size must be a positive integer or None, got {size!r}")
        return None if size is None else int(size)

    def _streamed(self, X: Any, size: int) -> Stream:
        batches = self._batches(X, size)
        first, before = next(batches), self._count
        self._count, whole = self._first(first.shape), False
        try:
            stream = self._begin()
            stream.update(first)
            for A in batches:
                stream.update(A)
            whole = True
        finally:  # of a fit that was refused midway nothing is left
            self._count = self._count if whole else before
        return stream

    def _batches(self, X: Any, size: int) -> Iterator[Operator]:
        if is_unread(X):
            yield X
            return
        resources = vars(self._resources)
        for batch in gen_batches(X.shape[0], size, min_batch_size=self.n_components or 0):
            yield as_operator(X[batch], **resources)

    def _first(self, shape: tuple[int, int]) -> int:
        k, (m, n) = self.n_components, shape
        if k is None:
            return min(m, n)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"n_components must be a positive integer or None, got {k!r}")
        if k > n:
            raise ValueError(
                f"n_components={k} invalid for n_features={n}, need more rows than columns for IncrementalPCA "
                "processing; ask for fewer"
            )
        if k > m:
            raise ValueError(
                f"n_components={k} must be less or equal to the batch number of samples {m} for the first "
                "partial_fit call. Give it more rows at once, or ask for fewer"
            )
        return int(k)

    def _wanted(self, n: int) -> int:
        return n if self._count is None else self._count

    def _keep(self, stream: Stream) -> None:
        kept = {name: value for name, value in vars(self).items() if name == "batch_size_"}
        super()._keep(stream)
        vars(self).update(kept)

    def _made(self, stream: Stream) -> dict[str, Any]:
        moments = stream.moments
        assert moments.M2 is not None
        seen = {"var_": moments.M2 / moments.count, "n_samples_seen_": round(moments.count)}
        return super()._made(stream) | seen
