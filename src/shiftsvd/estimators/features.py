"""Features of data that scikit-learn's checks do not read: operators, whose columns are only counted."""

from typing import Any

from shiftsvd.operators import Operator


def counted(estimator: Any, A: Operator, reset: bool) -> Operator:
    """A, after its columns are remembered (`reset`) or compared with those of the fit."""
    name = type(estimator).__name__
    if A.dtype.kind == "c":
        raise ValueError(f"Complex data not supported by {name}, got {A}; use svd")
    if reset:
        estimator.n_features_in_ = A.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    elif A.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {A.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input"
        )
    return A
