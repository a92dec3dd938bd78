"""Latent semantic analysis of raw texts."""

from dataclasses import KW_ONLY, dataclass
from inspect import signature
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from shiftsvd.errors import refuse
from shiftsvd.estimators.features import Components
from shiftsvd.estimators.pca import PCA
from shiftsvd.estimators.truncated import TruncatedSVD
from shiftsvd.names import SolverName
from shiftsvd.operators import Panel
from shiftsvd.solvers import Solver


@dataclass(eq=False, repr=False)
class LSA(Components):
    """Latent semantic analysis: TF-IDF weights of texts, their truncated SVD, and rows scaled to length 1.

    `fit` and `transform` take iterables of texts; matrices and data frames raise TypeError. Weights are computed by
    scikit-learn's TfidfVectorizer. A text without any of the terms has coordinates 0, or with `center` those of an
    empty text.

    Parameters
    ----------
    n_components : int, or float in (0, 1)
        Number of components, at most that of texts and of terms; 100 to 300 is usual. Or the share of the squared norm
        of the weights, with `center` of their variance, to exceed with the fewest components.
    center : bool
        Subtract the mean of the texts, as PCA does; the weights stay sparse. Without centring, the first component is
        mostly the mean.
    normalize : bool
        Divide the coordinates of each text by their norm, so that inner products are cosines.
    strip_accents, lowercase, analyzer, stop_words, token_pattern, ngram_range, max_df, min_df, max_features : optional
        As in `sklearn.feature_extraction.text.TfidfVectorizer`, which makes terms and weights of the texts.
    preprocessor, tokenizer, vocabulary, norm, use_idf, smooth_idf, sublinear_tf : optional
        Likewise.
    solver, tol, random_state, n_threads, memory_limit : optional
        As in `PCA`.

    Attributes
    ----------
    vectorizer_ : TfidfVectorizer
    svd_ : TruncatedSVD or PCA
    components_, singular_values_, explained_variance_ratio_, info_
        As in `TruncatedSVD`, with the terms as features.
    terms_ : array of str, shape (n_terms,)

    See Also
    --------
    TruncatedSVD : SVD of a matrix of weights.
    TfIdf : The weights alone.

    References
    ----------
    Deerwester, Dumais, Furnas, Landauer & Harshman (1990), Indexing by latent semantic analysis.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> texts = [
    ...     "a cat and a dog",
    ...     "dogs chase a cat",
    ...     "stocks fell today",
    ...     "today stocks rose",
    ... ]
    >>> lsa = ss.LSA(2, random_state=0).fit(texts)
    >>> Z = lsa.transform(["the cat", "the stocks"])
    >>> abs(float(Z[0] @ Z[1])) < 1e-6
    True
    >>> sorted(lsa.top_terms(0, 2))
    ['stocks', 'today']
    """

    n_components: int | float = 100
    _: KW_ONLY
    center: bool = False
    normalize: bool = True
    strip_accents: Any = None
    lowercase: bool = True
    analyzer: Any = "word"
    stop_words: Any = None
    token_pattern: str = r"(?u)\b\w\w+\b"
    ngram_range: tuple[int, int] = (1, 1)
    max_df: int | float = 1.0
    min_df: int | float = 1
    max_features: int | None = None
    preprocessor: Any = None
    tokenizer: Any = None
    vocabulary: Any = None
    norm: str | None = "l2"
    use_idf: bool = True
    smooth_idf: bool = True
    sublinear_tf: bool = False
    solver: SolverName | Solver = "auto"
    tol: float | None = None
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    def fit_transform(self, X: Any, y: Any = None) -> Panel:
        return self._placed(self._fit(X))

    def transform(self, X: Any) -> Panel:
        check_is_fitted(self, "svd_")
        return self._placed(self.vectorizer_.transform(self._texts(X)))

    def inverse_transform(self, X: Any) -> Panel:
        """Return the weights of terms that have these coordinates.

        Parameters
        ----------
        X : array of shape (n_texts, n_components)
            Coordinates, as `transform` gives them. With `normalize` the weights are those of texts of length 1 among
            the components.

        Returns
        -------
        array of shape (n_texts, n_terms)
            Of the terms in `terms_`, dense.
        """
        check_is_fitted(self, "svd_")
        return np.asarray(self.svd_.inverse_transform(X))

    def top_terms(self, component: int, n: int = 10) -> list[str]:
        """Return the n terms of largest absolute weight in a component.

        Terms with weights of opposite signs, which `components_` has, are opposite poles of the component.

        Parameters
        ----------
        component : int
            From 0.
        n : int
            Number of terms.

        Returns
        -------
        list of str
            The terms, that of the largest absolute weight first.
        """
        check_is_fitted(self, "svd_")
        k = len(self.components_)
        if not 0 <= component < k:
            raise refuse("component", f"be in 0..{k - 1}", component)
        order = np.argsort(-np.abs(self.components_[component]), kind="stable")[:n]
        return [str(term) for term in self.terms_[order]]

    def _fit(self, X: Any) -> Any:
        vectorizer = self._with_settings(TfidfVectorizer)
        weights = vectorizer.fit_transform(self._texts(X))
        # The description of `center` replaces TruncatedSVD's warning about the mean.
        svd = self._with_settings(PCA) if self.center else self._with_settings(TruncatedSVD, warn_mean=False)
        svd.fit(weights)
        self.vectorizer_, self.svd_ = vectorizer, svd
        self.components_ = svd.components_
        self.singular_values_ = svd.singular_values_
        self.explained_variance_ratio_ = svd.explained_variance_ratio_
        self.terms_ = vectorizer.get_feature_names_out()
        self.info_ = svd.info_
        return weights

    def _texts(self, X: Any) -> Any:
        kind, shape = type(X).__name__, getattr(X, "shape", None)
        if issparse(X) or (shape is not None and len(shape) != 1):
            raise TypeError(
                f"LSA needs one text per sample, got {kind} of shape {shape}. Pass the text column of a data frame, or "
                "use TruncatedSVD or PCA for a matrix of term weights."
            )
        own = callable(self.analyzer) or self.preprocessor is not None
        if own or isinstance(X, str) or not hasattr(X, "__getitem__"):  # one text scikit-learn refuses
            return X
        wrong = next(((i, x) for i, x in enumerate(X) if not isinstance(x, str | bytes)), None)
        if wrong is not None:
            i, x = wrong
            raise TypeError(f"LSA needs texts, got {type(x).__name__} at position {i:,}: {x!r:.60}")
        return X

    def _with_settings(self, kind: Any, **fixed: Any) -> Any:
        names = signature(kind).parameters
        return kind(**{name: x for name, x in self.get_params(deep=False).items() if name in names} | fixed)

    def _placed(self, weights: Any) -> Panel:
        Z = np.asarray(self.svd_.transform(weights))
        if not self.normalize:
            return Z
        lengths = np.linalg.norm(Z, axis=1, keepdims=True)
        return np.asarray(Z / np.where(lengths > 0, lengths, 1))

    @property
    def _tags(self) -> dict[str, Any]:
        return {"string": True, "two_d_array": False}
