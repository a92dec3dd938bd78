"""A fitted PCA in the classes of scikit-learn."""

from copy import deepcopy
from typing import Any

from sklearn import decomposition, pipeline, preprocessing

from shiftsvd.preparation.shifts import of_each_row

OURS = {"scale_", "info_", "n_iter_", "unseen_variance_"}  # fitted attributes that scikit-learn has no place for

VALUES = ("singular_values_", "explained_variance_", "explained_variance_ratio_")


def as_sklearn(model: Any) -> Any:
    if hasattr(model, "shift_") or of_each_row(model.shift):
        raise ValueError(f"classes of scikit-learn subtract one vector from all rows, got shift={model.shift!r}")
    if model.preprocess is not None:
        raise ValueError(f"classes of scikit-learn do not transform entries, got preprocess={model.preprocess!r}")
    pca = decomposition.PCA(model.n_components_, whiten=model.whiten)
    vars(pca).update({name: deepcopy(x) for name, x in vars(model).items() if name.endswith("_") and name not in OURS})
    for name in VALUES:  # there they have the type of the data, which its products take theirs from
        setattr(pca, name, getattr(pca, name).astype(pca.components_.dtype))
    return pca if model.scale_ is None else _behind_a_scaler(pca, model)


def _behind_a_scaler(pca: Any, model: Any) -> Any:
    scaler = preprocessing.StandardScaler(with_mean=False)
    scaler.mean_, scaler.scale_, scaler.var_ = model.mean_.copy(), model.scale_.copy(), model.scale_**2
    scaler.n_samples_seen_, scaler.n_features_in_ = model.n_samples_, model.n_features_in_
    pca.mean_ = model.mean_ / model.scale_
    if hasattr(pca, "feature_names_in_"):  # what the scaler gives has no names
        scaler.feature_names_in_ = vars(pca).pop("feature_names_in_")
    return pipeline.Pipeline([("scale", scaler), ("pca", pca)])
