"""The kinds of models that a file may hold, and what belongs to each.

Another estimator is one entry of `KINDS`; another frozen value that one may keep, such as a learned shift, is one name
in `shiftsvd.model_file.coding.VALUES`.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final

import numpy as np

from shiftsvd.missing import MISSING
from shiftsvd.model_file.checking import (
    POSITIVE,
    Check,
    Sizes,
    account,
    count,
    named,
    names,
    number,
    numbers,
    optional,
    record,
    texts,
    vectors,
)
from shiftsvd.names import TOL
from shiftsvd.numerics.bounds import rounding_bounds
from shiftsvd.shifts import Covariates, GroupMeans
from shiftsvd.transforms import Fitted
from shiftsvd.transforms.chains import as_transforms

Values = dict[str, Any]


def _attributes(model: Any, names: list[str]) -> Values:
    return {name: getattr(model, name) for name in names}


def _estimator(cls: type[Any], settings: Values, fitted: Values) -> Any:
    model = cls(**settings)
    vars(model).update(fitted)
    return model


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes
    ----------
    module : str
        Where its class lives, which is imported when a model of the kind arrives.
    fitted : dict
        What every fitted one has, and what that must be, in the order in which it is checked.
    sometimes : dict
        What it may have besides.
    sizes : dict
        Attributes that are sizes, by the letters that they have in the checks.
    agree : callable
        Raises a ValueError where settings and fitted attributes do not fit together.
    taken : callable
        What `fitted` and `sometimes` name, of a model.
    made : callable
        A model of the class with these settings and attributes.
    """

    module: str
    fitted: Mapping[str, Check]
    sometimes: Mapping[str, Check] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    agree: Callable[[Values, Values], None] = lambda settings, fitted: None
    taken: Callable[[Any, list[str]], Values] = _attributes
    made: Callable[[type[Any], Values, Values], Any] = _estimator


def kind_class(name: str) -> type[Any]:
    found: type[Any] = getattr(import_module(KINDS[name].module), name)
    return found


def _learned_as_asked(settings: Values, fitted: Values) -> None:
    asked, learned = as_transforms(settings.get("preprocess")), fitted.get("preprocess_", ())
    if tuple(each.how for each in learned) != asked:
        raise ValueError(f"preprocess_ must be learned as preprocess={settings.get('preprocess')!r:.80} asks for")


def loadings(name: str, value: Any, sizes: Sizes) -> None:
    numbers("kn", "data")(name, value, sizes)
    sizes["i"] = sizes["n"]


def transformations(name: str, value: Any, sizes: Sizes) -> None:
    if not isinstance(value, tuple) or not value or not all(isinstance(each, Fitted) for each in value):
        raise ValueError(f"{name} must be what some transformations have learned, got {value!r:.80}")
    left = sizes["i"] = len(value[0].columns) if any(each.selects for each in value) else sizes["n"]
    for each in value:
        each.check(left)
        left = len(each.kept) if each.selects else left
    if left != sizes["n"]:
        raise ValueError(f"{name} must leave the {sizes['n']} columns of the components, got {left}")


# ---- what belongs to one kind only


def _shift_as_set(settings: Values, fitted: Values) -> None:
    _learned_as_asked(settings, fitted)
    missing, unobserved = settings.get("missing", "error"), settings.get("unobserved", False)
    if missing not in MISSING or (unobserved and missing == "error"):
        raise ValueError(f"missing={missing!r} with unobserved={unobserved!r} is no way to treat missing entries")
    wanted = {GroupMeans: "LearnedGroups", Covariates: "LearnedCovariates"}.get(type(settings.get("shift")), "NoneType")
    learned = type(fitted.get("shift_")).__name__
    if learned != wanted:
        raise ValueError(f"the fitted shift_ must be {wanted} for shift={settings.get('shift')!r}, got {learned}")


def _columns(name: str, value: Any, sizes: Sizes) -> None:
    record(Design={})(name, value, sizes)
    alike = len(value.names) == len(value.sizes) and all(isinstance(x, str) for x in (*value.names, *value.levels))
    if not alike or any(type(size) is not int or size < 0 for size in value.sizes):
        raise ValueError(f"{name} must be names with their numbers of labels, got {value!r:.80}")
    if sum(value.sizes) != len(value.levels) or value.width != sizes.get("p"):
        raise ValueError(f"{name} must have {sizes.get('p', 'the')} columns of the regression, got {value.width}")


def _distinct(name: str, value: Any, sizes: Sizes) -> None:
    if len(value) != sizes["g"] or len(set(value)) < len(value):
        raise ValueError(f"{name} must be {sizes['g']} labels that differ, got {len(value)}")


def _categories_as_columns(settings: Values, fitted: Values) -> None:
    n_known, n_columns = [len(set(known.tolist())) for known in fitted["categories_"]], len(fitted["column_masses_"])
    if not sum(n_known) == sum(map(len, fitted["categories_"])) == n_columns or not all(n_known):
        raise ValueError(f"categories_ must be {n_columns} that differ, some of each column, got {n_known!r:.80}")


def _points_as_metric(settings: Values, fitted: Values) -> None:
    points = fitted.get("_points")
    if (points is None) != (settings.get("metric", "precomputed") == "precomputed"):
        raise ValueError(f"points are for a metric, got metric={settings.get('metric')!r} and _points={points!r:.80}")
    n_features = len(fitted["_means"]) if points is None else points.shape[1]
    if fitted["n_features_in_"] != n_features:
        raise ValueError(f"n_features_in_ must be {n_features}, got {fitted['n_features_in_']}")


def _used_as_frequent(settings: Values, fitted: Values) -> None:
    p = fitted["frequencies"][fitted["used"]]
    if np.any((p <= 0) | (p >= 1)):
        raise ValueError("frequencies of the variants that are used must be between 0 and 1")
    gone = fitted.get("n_left_out", 0) + fitted.get("n_filtered", 0)
    if gone > np.count_nonzero(~fitted["used"]):
        raise ValueError(f"n_left_out and n_filtered must not be more than are not used, got {gone}")


def _words_taken(model: Any, names: list[str]) -> Values:
    weights = model.vectorizer_.idf_ if model.use_idf else None
    return {"terms_": model.terms_, "idf_": weights, "svd_": model.svd_}


def _words_made(cls: type[Any], settings: Values, fitted: Values) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    model, svd, terms = cls(**settings), fitted["svd_"], fitted["terms_"]
    place = {term: j for j, term in enumerate(terms)}
    if not len(place) == len(terms) == svd.n_features_in_ or model.use_idf == (fitted["idf_"] is None):
        raise ValueError(f"terms_ must differ, {svd.n_features_in_} of them, with weights in idf_ where they are used")
    try:
        re.compile(model.token_pattern)
    except re.error as error:
        raise ValueError(f"token_pattern must be a regular expression, got {model.token_pattern!r:.80}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what fit had to say of these settings, it said
        vectorizer = model._with_settings(TfidfVectorizer, vocabulary=place).fit([""])
    if model.use_idf:
        vectorizer.idf_ = fitted["idf_"]
    vectorizer.vocabulary, vectorizer.fixed_vocabulary_ = model.vocabulary, model.vocabulary is not None
    model.vectorizer_, model.svd_, model.terms_ = vectorizer, svd, terms
    for name in ("components_", "singular_values_", "explained_variance_ratio_", "info_"):
        setattr(model, name, getattr(svd, name))
    return model


def _batches_made(cls: type[Any], settings: Values, fitted: Values) -> Any:
    info, S = fitted["info_"], fitted["singular_values_"]
    if info.solver.startswith("Streaming(ell="):
        scale = 1.0 if fitted["scale_"] is None else fitted["scale_"]
        shares, freedom = fitted["explained_variance_ratio_"].sum(), fitted["explained_variance_"].sum()
        count = 1 + (S @ S / freedom if freedom > 0 else 0)
        # Squares were summed about the mean or about 0: |x|^2 <= 2 |x - shift|^2 + 2 |shift|^2.
        size = 2 * (S @ S / shares + count * np.sum((fitted["mean_"] / scale) ** 2)) if shares > 0 else 0.0
        squares = float(max(fitted["n_samples_"], len(fitted["mean_"])) * np.finfo(np.float64).eps * size)
        errors = np.full(len(S), np.inf if size > 0 else 0.0)
        told = rounding_bounds(S.astype(np.float64), 0.0, squares) + np.finfo(S.dtype).eps * S
        errors[S > 0] = (info.value_errors + told / np.where(S > 0, S, 1))[S > 0]
        fitted["info_"] = replace(info, value_errors=errors, converged=bool(np.all(errors <= TOL)))
    return _estimator(cls, settings, fitted)


# ---- the kinds

SPECTRA: Final = {
    "components_": loadings,
    "singular_values_": numbers("k", "values", least=0),
    "explained_variance_": numbers("k", "values", least=0),
    "explained_variance_ratio_": numbers("k", "values", least=0),
}
TABLE: Final = {
    "components_": numbers("kn", "data"),
    "singular_values_": numbers("k", least=0),
    "eigenvalues_": numbers("k", least=0),
    "total_inertia_": number(least=0),
    "percentage_of_variance_": numbers("k", least=0),
    "row_masses_": numbers("m", least=0),
    "column_masses_": numbers("n", least=0),
    "row_coordinates_": named(numbers("mk", "data")),
    "column_coordinates_": named(numbers("nk", "data")),
    "row_contributions_": named(numbers("mk", "data", least=0)),
    "column_contributions_": named(numbers("nk", "data", least=0)),
    "info_": account,
}
VARIANTS: Final = record(
    Variants={
        **dict.fromkeys(("chromosomes", "names", "positions"), texts("n", fixed=True)),
        **dict.fromkeys(("first", "second"), texts("n")),
    }
)
LEARNED: Final = record(
    LearnedGroups={"means": numbers("gn"), "groups": _distinct},
    LearnedCovariates={"mean": numbers("n"), "centre": numbers("p"), "coefficients": numbers("pn")},
)


def choices(name: str, value: Any, sizes: Sizes) -> None:
    record(Choices={})(name, value, sizes)
    if not all(isinstance(each, str) for each in (*value.named, *sum(map(tuple, value.one_hot.values()), ()))):
        raise ValueError(f"{name} must name columns and classes by texts, got {value!r:.80}")


PRINCIPAL: Final = {
    **SPECTRA,
    "mean_": numbers("n"),
    "scale_": optional(numbers("n", least=POSITIVE)),
    "noise_variance_": number(least=0),
    "n_samples_": count("m"),
    "info_": account,
}

KINDS: Final = {
    "PCA": Kind(
        "shiftsvd.estimators.pca",
        PRINCIPAL,
        {
            "variants_": VARIANTS,
            "table_": choices,
            "preprocess_": transformations,
            "feature_names_in_": texts("i"),
            "shift_": LEARNED,
            "design_": _columns,
            "unseen_variance_": number(least=0),
            "n_iter_": count(),
        },
        {"n_components_": "k", "n_features_in_": "i"},
        agree=_shift_as_set,
        made=_batches_made,
    ),
    "IncrementalPCA": Kind(
        "shiftsvd.estimators.batches",
        {
            **PRINCIPAL,
            "var_": numbers("n", least=0),
            "n_samples_seen_": count("m"),
            "unseen_variance_": number(least=0),
        },
        {"feature_names_in_": texts("i"), "batch_size_": count()},
        {"n_components_": "k", "n_features_in_": "i"},
        made=_batches_made,
    ),
    "TruncatedSVD": Kind(
        "shiftsvd.estimators.truncated",
        {**SPECTRA, "mean_alignment_": numbers("k", least=0), "info_": account},
        {"preprocess_": transformations, "feature_names_in_": texts("i")},
        {"n_features_in_": "i"},
        agree=_learned_as_asked,
    ),
    "LSA": Kind(
        "shiftsvd.estimators.lsa",
        {"terms_": texts("n"), "idf_": optional(numbers("n")), "svd_": record(PCA={}, TruncatedSVD={})},
        taken=_words_taken,
        made=_words_made,
    ),
    "CorrespondenceAnalysis": Kind(
        "shiftsvd.estimators.correspondence", TABLE, {"feature_names_in_": texts("n")}, {"n_features_in_": "n"}
    ),
    "MultipleCorrespondenceAnalysis": Kind(
        "shiftsvd.estimators.correspondence",
        {**TABLE, "categories_": vectors("c"), "column_names_": names("n")},
        {"feature_names_in_": texts("c")},
        {"n_features_in_": "c"},
        agree=_categories_as_columns,
    ),
    "PCoA": Kind(
        "shiftsvd.estimators.pcoa",
        {
            "eigenvalues_": numbers("k"),
            "coordinates_": named(numbers("mk")),
            "proportion_explained_": numbers("k", least=0),
            "negative_share_": number(least=0),
            "lowest_eigenvalue_": number(),
            "trace_": number(),
            "value_errors_": optional(numbers("k", least=0)),
            "n_passes_": count(),
            "n_features_in_": count(),
            "_means": numbers("m"),
            "_vectors": numbers("mk"),
        },
        {"feature_names_in_": texts("q"), "_points": numbers("mp")},
        agree=_points_as_metric,
    ),
    "GenotypePCA": Kind(
        "shiftsvd.genetics",
        {
            "eigenvalues": numbers("k", least=0),
            "eigenvectors": numbers("mk"),
            "loadings": numbers("nk"),
            "explained_variance_ratio": numbers("k", least=0),
            "frequencies": numbers("n", least=0, most=1),
            "samples": record(Samples={"families": texts("m", fixed=True), "names": texts("m", fixed=True)}),
            "variants": VARIANTS,
            "used": numbers("n", "bool"),
            "info": account,
        },
        {"n_left_out": count(least=0), "n_filtered": count(least=0), "learned": numbers("m", "bool")},
        agree=_used_as_frequent,
        made=lambda cls, settings, fitted: cls(**fitted),
    ),
}
