"""The samples that PCA is given: with as many features as those of the fit, whatever holds them."""

from typing import Any

from shiftsvd.backends import as_operator
from shiftsvd.estimators.features import count_columns, is_unread, validated
from shiftsvd.missing.gaps import Gaps, with_nan


def checked(pca: Any, X: Any, reset: bool) -> Any:
    """X, after its features are remembered (`reset`) or compared with those of the fit."""
    if isinstance(X, Gaps) or is_unread(X):
        A: Any = X if isinstance(X, Gaps) else as_operator(X, memory_limit=pca.memory_limit)
        if reset and A.shape[0] < 2:
            raise ValueError(f"Found array with {A.shape[0]} sample(s) while a minimum of 2 is required by PCA")
        count_columns(pca, A, reset)
        return A
    if hasattr(X, "rmatmat"):
        kind = type(X).__name__
        raise TypeError(
            f"PCA takes arrays, sparse matrices, data frames and what open_matrix gives, got {kind}; "
            "use svd, which takes any operator"
        )
    X = X if pca.missing == "error" else with_nan(X)
    return validated(pca, X, reset, ensure_min_samples=2 if reset else 1)
