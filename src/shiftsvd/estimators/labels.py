"""Labels in, labels out: results carry the names of the rows and columns of the frame that came in."""

from typing import Any

from shiftsvd.operators import Panel
from shiftsvd.transforms.chains import kept_of


def labels_of(X: Any) -> tuple[Any, Any]:
    if is_pandas(X):
        return X.index, X.columns
    return (X.ids, X.ids) if has_ids(X) else (None, None)


def is_pandas(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas"


def has_ids(X: Any) -> bool:
    ids = getattr(X, "ids", None)  # masked arrays have a method of that name
    return ids is not None and not callable(ids) and hasattr(X, "data") and not is_pandas(X)


def labelled(values: Panel, names: Any) -> Any:
    if names is None:
        return values
    import pandas as pd

    return pd.DataFrame(values, index=names)


def feature_names_of(model: Any) -> Any:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else names[kept_of(getattr(model, "preprocess_", ()), len(names))]
