"""IncrementalPCA that swaps in for scikit-learn's: the same settings and attributes, on dense and sparse batches."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Any, ClassVar, Self

from sklearn.utils import gen_batches

from shiftsvd.backends import as_operator
from shiftsvd.backends.validation import named
from shiftsvd.errors import Refused, Setting
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.features import is_unread
from shiftsvd.front import integer
from shiftsvd.kernels import threads
from shiftsvd.operators import Operator
from shiftsvd.streaming.stream import Stream

BATCH = 5  # rows of a batch for each feature by default, as in scikit-learn


@dataclass(eq=False, repr=False)
class IncrementalPCA(BatchPCA):
    """Principal components of rows that come in batches, with the settings and attributes of scikit-learn's.

    Parameters
    ----------
    n_components : int or None
        None is the smaller one of rows and columns of the first batch.
    whiten : bool
        Scale the scores to unit variance.
    copy : bool
        Accepted for compatibility; input is never written.
    batch_size : int, optional
        Rows of X that `fit` takes at once. Default: five for each feature. Up to 4096 features it changes memory and
        time, and the result only by rounding.
    n_oversamples : int
        What a sketch of more than 4096 features keeps beyond the components, at least as many more.
    random_state : int, Generator, RandomState or None
        Seed of that sketch. None is fresh entropy; the global state is never read.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. A fit that needs more is refused.

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
    merge_pca : Merge separate fits.

    Notes
    -----
    Up to 4096 features the components are those of all rows at once; scikit-learn's are of what each batch left. Sparse
    rows stay sparse, in `partial_fit`, too. Two reads of a batch.

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
        """Find the components of X in batches of `batch_size` rows; earlier fits are forgotten.

        Parameters
        ----------
        X : array, sparse matrix, data frame, or what `shiftsvd.io.open_matrix` gives
            Of shape (n_samples, n_features); a file is read in its own blocks.
        y : ignored
            For scikit-learn.

        Returns
        -------
        IncrementalPCA
            The estimator itself.

        Raises
        ------
        ValueError
            For invalid data or settings.
        """
        size = self.batch_size if self.batch_size is None else integer("batch_size", self.batch_size, 1, of=" or None")
        X = self._checked(X, reset=True, least=1)
        size = BATCH * X.shape[1] if size is None else size
        with threads(self.n_threads), named(vars(self).get("feature_names_in_")):
            batches = self._batches(X, size)
            first = next(batches)
            stream = self._begin(self._first(first.shape))
            for A in chain([first], batches):
                stream.update(A)
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
            The first batch needs at least as many rows as components.
        y : ignored
            For scikit-learn.
        check_input : bool
            Accepted for compatibility; input is always checked.

        Returns
        -------
        IncrementalPCA
            The estimator itself.

        Raises
        ------
        ValueError
            For invalid data or settings, or a changed number of components.
        """
        stream = self._stream
        if stream is not None and self.n_components not in (None, stream.k):
            raise Refused(
                *(Setting("n_components"), f" has changed from {stream.k} to {self.n_components!r} between calls to "),
                "partial_fit; set it back, or begin anew with fit",
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
                *(Setting("n_components", k), f" invalid for n_features={n}, need more rows than columns for "),
                "IncrementalPCA processing; ask for fewer",
            )
        if k > m:
            raise Refused(
                *(Setting("n_components", k), f" must be less or equal to the batch number of samples {m} for the "),
                "first partial_fit call. Give it more rows at once, or ask for fewer",
            )
        return k

    def _wanted(self, shape: tuple[int, int]) -> int:
        k = None if self._stream is None else self._stream.k
        return self._first(shape) if k is None else k

    def _made(self, stream: Stream) -> dict[str, Any]:
        moments = stream.moments
        assert moments.M2 is not None
        seen = {"var_": moments.M2 / moments.count, "n_samples_seen_": round(moments.count)}
        return super()._made(stream) | seen
