"""Labels in, labels out: results carry the names of the rows and columns of the frame that came in."""

from typing import Any

from shiftsvd.operators import Panel
from shiftsvd.transforms.chains import kept_of


def labels_of(X: Any) -> tuple[Any, Any]:
    """Names of the rows and columns of a pandas frame or of a distance matrix with ids; None where there are none."""
    if is_pandas(X):
        return X.index, X.columns
    return (X.ids, X.ids) if has_ids(X) else (None, None)


def is_pandas(X: Any) -> bool:
    """Whether X is a frame or a column of pandas; told by its module, so that it is not imported."""
    return type(X).__module__.partition(".")[0] == "pandas"


def has_ids(X: Any) -> bool:
    """Whether X holds an array and names, as scikit-bio's DistanceMatrix does."""
    ids = getattr(X, "ids", None)  # masked arrays have a method of that name
    return ids is not None and not callable(ids) and hasattr(X, "data") and not is_pandas(X)


def labelled(values: Panel, names: Any) -> Any:
    """A frame whose rows have these names, the components numbered from 0; the plain array if there are none."""
    if names is None:
        return values
    import pandas as pd

    return pd.DataFrame(values, index=names)


def feature_names_of(model: Any) -> Any:
    """Names of the features that the components are of, all that were fitted but for what `Select` left out."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else names[kept_of(getattr(model, "preprocess_", ()), len(names))]
