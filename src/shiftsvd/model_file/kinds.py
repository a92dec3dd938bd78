"""Kinds of models and of frozen values in model files, with checks of each.

Add an estimator to `KINDS`, and a frozen dataclass to `VALUES`; transformations come from `shiftsvd.transforms`.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import signature
from itertools import repeat
from types import UnionType
from typing import Any, Concatenate, Final, Literal, ParamSpec, Union, get_args, get_origin, get_type_hints

import numpy as np

from shiftsvd.errors import plural
from shiftsvd.extend import tables
from shiftsvd.missing.completion import MISSING
from shiftsvd.names import TOL, SupportsArray, resolve
from shiftsvd.numerics.bounds import rounding_bounds
from shiftsvd.preparation.covariates import Design
from shiftsvd.result import Info
from shiftsvd.shifts import Covariates, GroupMeans
from shiftsvd.transforms import Fitted, places
from shiftsvd.transforms.chains import as_transforms

ByName = dict[str, Any]  # settings or attributes
# Sizes of the axes by letter, and the type of the data as "dtype": set by the first array, and checked for the others.
Sizes = dict[str, Any]
Check = Callable[[str, Any, Sizes], None]  # (name, value, sizes) -> None; raises ValueError
P = ParamSpec("P")

_POSITIVE: Final = float(np.nextafter(0.0, 1.0))


# ---- a value by its annotation


def must(fits: bool, name: str, rule: str, value: Any) -> None:
    if not fits:
        got = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else f"{value!r:.80}"
        raise ValueError(f"{name} must {rule}, got {got}")


def check_type(name: str, value: Any, hint: Any, any_text: bool = False) -> None:
    if not _is(value, hint, any_text):
        wanted = hint.__name__ if isinstance(hint, type) else re.sub(r"\b(\w+\.)+", "", str(hint))
        must(False, name, f"be {wanted}", value)


def _is(value: Any, hint: Any, any_text: bool) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    # Since NumPy 2.5, NDArray[...] is a type alias.
    if (named := getattr(origin or hint, "__value__", None)) is not None:
        return _is(value, named, any_text)
    if origin in (Union, UnionType):
        return any(_is(value, part, any_text) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and (any_text or value in parts)
    if origin in (dict, tuple):
        return isinstance(value, origin) and _are(value, parts, any_text)
    if hint is Any:
        return value is None or isinstance(value, bool | int | float | str | list | dict | np.ndarray)
    known = {float: float | int, Sequence: list | tuple, SupportsArray: np.ndarray}
    return isinstance(value, known.get(origin or hint, origin or hint))


def _are(value: Any, hints: tuple[Any, ...], any_text: bool) -> bool:
    if isinstance(value, dict):
        return all(_is(key, hints[0], any_text) and _is(item, hints[1], any_text) for key, item in value.items())
    hints = hints[:1] * len(value) if hints[-1] is ... else hints
    return len(value) == len(hints) and all(map(_is, value, hints, repeat(any_text)))


def check_finite(name: str, value: Any) -> None:
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        got = plural(int((~np.isfinite(array)).sum()), "NaN or infinite value")
        raise ValueError(f"{name} must be finite, got {got}. Fit the model again.")


# ---- arrays and numbers, by sizes that must agree


def _check(function: Callable[Concatenate[str, Any, Sizes, P], None]) -> Callable[P, Check]:
    def made(*args: P.args, **kwargs: P.kwargs) -> Check:
        return lambda name, value, sizes: function(name, value, sizes, *args, **kwargs)

    return made


def _sized(name: str, value: Any, dtype: str, letters: str, sizes: Sizes) -> None:
    there = isinstance(value, np.ndarray) and value.ndim == len(letters)
    for letter, size in zip(letters, value.shape if there else (), strict=False):
        sizes.setdefault(letter, size)
    shape = tuple(sizes.get(letter, letter) for letter in letters)
    wanted = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
    fits = there and dtype == str(value.dtype) and value.shape == shape
    must(fits, name, f"be an array of {dtype} and shape {wanted}", value)


@_check
def numbers(
    name: str,
    value: Any,
    sizes: Sizes,
    letters: str = "",  # one per axis; "" for a single number
    # "data": float32 or float64, as in the first such array; "values": float64, or in old files the type of the data
    dtype: str = "float64",
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    own = str(getattr(value, "dtype", None))
    if dtype == "data":
        dtype = sizes.setdefault("dtype", own if own in ("float32", "float64") else "float32 or float64")
    elif dtype == "values":
        dtype = "float32" if own == sizes.get("dtype") == "float32" else "float64"
    if letters:
        _sized(name, value, dtype, letters, sizes)
    else:
        must(isinstance(value, float), name, "be a number", value)
    check_finite(name, value)
    entries = np.asarray(value, np.float64)
    low, high = float(np.min(entries, initial=math.inf)), float(np.max(entries, initial=-math.inf))
    must(low >= least, name, f"be at least {least:g}", low)
    must(high <= most, name, f"be at most {most:g}", high)


@_check
def texts(name: str, value: Any, sizes: Sizes, letter: str, fixed: bool = False) -> None:
    own = getattr(value, "dtype", np.dtype(object))
    _sized(name, value, str(own) if fixed and own.kind == "U" else "str" if fixed else "object", letter, sizes)


@_check
def count(name: str, value: Any, sizes: Sizes, letter: str | None = None, least: int = 1) -> None:
    must(type(value) is int and value >= least, name, f"be an integer of at least {least}", value)
    if letter is not None:
        must(sizes.setdefault(letter, value) == value, name, f"be {sizes[letter]}, as the arrays are", value)


@_check
def optional(name: str, value: Any, sizes: Sizes, inner: Check) -> None:
    if value is not None:
        inner(name, value, sizes)


@_check
def framed(name: str, value: Any, sizes: Sizes, inner: Check) -> None:
    inner(name, value.to_numpy() if hasattr(value, "to_numpy") else value, sizes)


@_check
def fields(name: str, value: Any, sizes: Sizes, /, **checks: Check) -> None:
    for field_name, check in checks.items():
        check(f"{name}.{field_name}", getattr(value, field_name), sizes)


@_check
def instance_of(name: str, value: Any, sizes: Sizes, *types: str) -> None:
    own = type(value).__name__
    must(own in types, name, f"be {' or '.join(types)}", value)
    if own in values():
        values()[own].check(name, value, sizes)


@_check
def flag(name: str, value: Any, sizes: Sizes) -> None:
    must(isinstance(value, bool), name, "be true or false", value)


def same_check(check: Check, names: str) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


# ---- kinds and values


def _estimator(cls: type[Any], settings: ByName, fitted: ByName) -> Any:
    model = cls(**settings)
    vars(model).update(fitted)
    return model


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes
    ----------
    module : str
        The module of its class, imported when a model of the kind is read or written.
    fitted, sometimes : dict
        Checks of the attributes that every fitted model has, in order, and of optional attributes.
    sizes : dict
        Attributes that are sizes of axes, with the letters of the axes.
    agree : callable
        Raises ValueError if the settings and the fitted attributes are inconsistent.
    taken : callable
        Returns the attributes of a model by name.
    made : callable
        Returns a model of the class with these settings and attributes.
    """

    module: str
    fitted: Mapping[str, Check]
    sometimes: Mapping[str, Check] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    agree: Callable[[ByName, ByName], None] = lambda settings, fitted: None
    taken: Callable[[Any, list[str]], ByName] = lambda model, names: {name: getattr(model, name) for name in names}
    made: Callable[[type[Any], ByName, ByName], Any] = _estimator


@dataclass(frozen=True)
class Value:
    """A frozen dataclass: its module, and a check in addition to the annotations of its fields."""

    module: str
    check: Check = lambda name, value, sizes: None


# ---- checks of one value


def _info(name: str, value: Info, sizes: Sizes) -> None:
    for known in (value.residuals, value.value_errors, value.vector_errors):
        if known is not None and known.shape != (max(sizes["k"], 1),):
            raise ValueError(f"{name} must have one residual and one bound per component ({sizes['k']} components)")
    fields(missed_below=optional(numbers(least=0)), n_missing=optional(count(least=0)))(name, value, sizes)
    if value.heldout_r2 is not None:
        numbers(most=1)(f"{name}.heldout_r2", float(value.heldout_r2), sizes)
    if value.completed is False and value.converged is not False:
        raise ValueError(f"{name}.converged must be False if the completion did not converge, got {value.converged}")


def _design(name: str, value: Design, sizes: Sizes) -> None:
    labelled = len(value.names) == len(value.sizes) and min(value.sizes, default=0) >= 0
    fits = labelled and sum(value.sizes) == len(value.levels) and value.width == sizes.get("p")
    ranged = len(value.ranges) in (0, 2 * value.sizes.count(0))
    must(fits and ranged, name, f"have labels for the {sizes.get('p', 'known')} columns of the regression", value)


def _distinct(name: str, value: Any, sizes: Sizes) -> None:
    must(len(value) == len(set(value)) == sizes["g"], name, f"be {sizes['g']} distinct labels", value)


def _loadings(name: str, value: Any, sizes: Sizes) -> None:
    numbers("kn", "data")(name, value, sizes)
    sizes["i"] = sizes["n"]  # features of the input, unless a transformation selects features


def _transformations(name: str, value: Any, sizes: Sizes) -> None:
    learned = isinstance(value, tuple) and value and all(isinstance(each, Fitted) for each in value)
    must(bool(learned), name, "be a tuple of fitted transformations", value)
    left = sizes["i"] = len(value[0].columns) if any(each.selects for each in value) else sizes["n"]
    for each in value:
        each.check(left)
        left = len(each.kept) if each.selects else left
    must(left == sizes["n"], name, f"keep {sizes['n']} columns, as the components have", left)


@_check
def _categories(name: str, value: Any, sizes: Sizes, numeric: bool = False) -> None:
    # `numeric`: columns without categories hold numbers, and are one encoded column each.
    must(isinstance(value, list), name, "be a list of vectors", value)
    sizes["c"] = len(value)
    for one in value:
        check_finite(name, np.asarray(one))
    known = [len({*np.asarray(one).ravel().tolist()}) for one in value]
    encoded = sum(known) + numeric * known.count(0)
    differ = (numeric or all(known)) and sum(known) == sum(map(len, value)) and encoded == sizes["n"]
    must(differ, name, f"be {sizes['n']} distinct categories, at least one per column", known)


def _column_names(name: str, value: Any, sizes: Sizes) -> None:
    fits = isinstance(value, list) and len(value) == sizes["n"] and all(isinstance(x, str) for x in value)
    must(fits, name, f"be a list of {sizes['n']} texts", value)


# ---- consistency of settings and attributes


def _transforms_agree(settings: ByName, fitted: ByName) -> None:
    steps, learned = as_transforms(settings.get("preprocess")), fitted.get("preprocess_", ())
    if tuple(each.how for each in learned) != steps:
        raise ValueError(f"preprocess_ must agree with the setting preprocess={settings.get('preprocess')!r:.80}")


def _shifts_agree(settings: ByName, fitted: ByName) -> None:
    _transforms_agree(settings, fitted)
    missing, unobserved = settings.get("missing", "error"), settings.get("unobserved", False)
    if missing not in MISSING or (unobserved and missing == "error"):
        raise ValueError(f"the settings missing={missing!r} and unobserved={unobserved!r} contradict each other")
    wanted = {GroupMeans: "LearnedGroups", Covariates: "LearnedCovariates"}.get(type(settings.get("shift")), "NoneType")
    learned = type(fitted.get("shift_")).__name__
    if learned != wanted:
        raise ValueError(f"the fitted shift_ must be {wanted} for shift={settings.get('shift')!r}, got {learned}")


def _encoding_agrees(settings: ByName, fitted: ByName) -> None:
    pca, shape = fitted["pca_"], np.asarray(fitted["column_coordinates_"]).shape
    if pca.components_.shape[::-1] != shape:
        raise ValueError(f"pca_ must have components of shape {shape[::-1]}, got {pca.components_.shape}")


def _points_agree(settings: ByName, fitted: ByName) -> None:
    points = fitted.get("_points")
    if (points is None) != (settings.get("metric", "precomputed") == "precomputed"):
        metric = settings.get("metric")
        raise ValueError(f"_points must be given for a metric only, got metric={metric!r} and _points={points!r:.80}")
    n_features = len(fitted["_means"]) if points is None else points.shape[1]
    must(fitted["n_features_in_"] == n_features, "n_features_in_", f"be {n_features}", fitted["n_features_in_"])


# ---- models with other attributes


def _lsa_attributes(model: Any, names: list[str]) -> ByName:
    weights = model.vectorizer_.idf_ if model.use_idf else None
    return {"terms_": model.terms_, "idf_": weights, "svd_": model.svd_}


def _made_lsa(cls: type[Any], settings: ByName, fitted: ByName) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    model, svd, terms = cls(**settings), fitted["svd_"], fitted["terms_"]
    place = {term: j for j, term in enumerate(terms)}
    if not len(place) == len(terms) == svd.n_features_in_ or model.use_idf == (fitted["idf_"] is None):
        raise ValueError(f"terms_ must be {svd.n_features_in_} distinct terms, with weights in idf_ if use_idf is True")
    try:
        re.compile(model.token_pattern)
    except re.error as error:
        raise ValueError(f"token_pattern must be a regular expression, got {model.token_pattern!r:.80}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fit` has warned about these settings
        vectorizer = model._with_settings(TfidfVectorizer, vocabulary=place).fit([""])
    if model.use_idf:
        vectorizer.idf_ = fitted["idf_"]
    vectorizer.vocabulary, vectorizer.fixed_vocabulary_ = model.vocabulary, model.vocabulary is not None
    model.vectorizer_, model.svd_, model.terms_ = vectorizer, svd, terms
    for name in ("components_", "singular_values_", "explained_variance_ratio_", "info_"):
        setattr(model, name, getattr(svd, name))
    return model


def _made_of_batches(cls: type[Any], settings: ByName, fitted: ByName) -> Any:
    info, S = fitted["info_"], fitted["singular_values_"]
    if info.solver.startswith("Streaming(ell="):  # an older version, whose bounds ignored the rounding of squares
        scale = 1.0 if fitted["scale_"] is None else fitted["scale_"]
        shares, freedom = fitted["explained_variance_ratio_"].sum(), fitted["explained_variance_"].sum()
        count = 1 + (S @ S / freedom if freedom > 0 else 0)
        # Squares were summed about the mean or about 0: |x|^2 <= 2 |x - shift|^2 + 2 |shift|^2.
        size = 2 * (S @ S / shares + count * np.sum((fitted["mean_"] / scale) ** 2)) if shares > 0 else 0.0
        squares = float(max(fitted["n_samples_"], len(fitted["mean_"])) * np.finfo(np.float64).eps * size)
        errors = np.full(len(S), np.inf if size > 0 else 0.0)
        rounded = rounding_bounds(S.astype(np.float64), 0.0, squares) + np.finfo(S.dtype).eps * S
        errors[S > 0] = (info.value_errors + rounded / np.where(S > 0, S, 1))[S > 0]
        fitted["info_"] = replace(info, value_errors=errors, converged=bool(np.all(errors <= TOL)))
    return _estimator(cls, settings, fitted)


# ---- the kinds

_SPECTRA: Final = {
    "components_": _loadings,
    **same_check(numbers("k", "values", least=0), "singular_values_ explained_variance_ explained_variance_ratio_"),
}
_PRINCIPAL: Final = {
    **_SPECTRA,
    "mean_": numbers("n"),
    "scale_": optional(numbers("n", least=_POSITIVE)),
    "noise_variance_": numbers(least=0),
    "n_samples_": count("m"),
    "info_": instance_of("Info"),
}
_TABLE: Final = {
    "components_": numbers("kn", "data"),
    **same_check(numbers("k", least=0), "singular_values_ eigenvalues_ percentage_of_variance_"),
    "total_inertia_": numbers(least=0),
    "row_masses_": numbers("m", least=0),
    "column_masses_": numbers("n", least=0),
    "row_coordinates_": framed(numbers("mk", "data")),
    "column_coordinates_": framed(numbers("nk", "data")),
    "row_contributions_": framed(numbers("mk", "data", least=0)),
    "column_contributions_": framed(numbers("nk", "data", least=0)),
    "info_": instance_of("Info"),
}

_GRAPH: Final[dict[str, Check]] = {
    "embedding_": numbers("mk"),
    "eigenvalues_": numbers("k"),
    **same_check(numbers("k", least=0), "eigenvalue_errors_ vector_errors_"),
    "degrees_": numbers("m", least=0),
    "component_labels_": numbers("m", dtype="int64", least=0),
    "converged_": flag(),
    "n_products_": count(least=0),  # 0 if all components are trivial
    "n_features_in_": count(),
}

KINDS: Final = {
    "PCA": Kind(
        "shiftsvd.estimators.pca",
        _PRINCIPAL,
        {
            "variants_": instance_of("Variants"),
            "table_": instance_of("Choices"),
            "preprocess_": _transformations,
            "feature_names_in_": texts("i"),
            "genes_": instance_of("GeneNames"),
            "shift_": instance_of("LearnedGroups", "LearnedCovariates"),
            "design_": instance_of("Design"),
            "unseen_variance_": numbers(least=0),
            "n_iter_": count(),
        },
        {"n_components_": "k", "n_features_in_": "i"},
        agree=_shifts_agree,
        made=_made_of_batches,
    ),
    "IncrementalPCA": Kind(
        "shiftsvd.estimators.batches",
        {
            **_PRINCIPAL,
            "var_": numbers("n", least=0),
            "n_samples_seen_": count("m"),
            "unseen_variance_": numbers(least=0),
        },
        {"feature_names_in_": texts("i"), "batch_size_": count()},
        {"n_components_": "k", "n_features_in_": "i"},
        made=_made_of_batches,
    ),
    "TruncatedSVD": Kind(
        "shiftsvd.estimators.truncated",
        {**_SPECTRA, "mean_alignment_": numbers("k", least=0), "info_": instance_of("Info")},
        {"preprocess_": _transformations, "feature_names_in_": texts("i")},
        {"n_features_in_": "i"},
        agree=_transforms_agree,
    ),
    "LSA": Kind(
        "shiftsvd.estimators.lsa",
        {"terms_": texts("n"), "idf_": optional(numbers("n")), "svd_": instance_of("PCA", "TruncatedSVD")},
        taken=_lsa_attributes,
        made=_made_lsa,
    ),
    "CorrespondenceAnalysis": Kind(
        "shiftsvd.estimators.correspondence", _TABLE, {"feature_names_in_": texts("n")}, {"n_features_in_": "n"}
    ),
    "MultipleCorrespondenceAnalysis": Kind(
        "shiftsvd.estimators.correspondence",
        {**_TABLE, "categories_": _categories(), "column_names_": _column_names},
        {"feature_names_in_": texts("c")},
        {"n_features_in_": "c"},
    ),
    "FAMD": Kind(
        "shiftsvd.estimators.famd",
        {
            "pca_": instance_of("PCA"),
            "mean_": numbers("n"),
            "scale_": numbers("n", least=_POSITIVE),
            "categories_": _categories(numeric=True),
            "column_names_": _column_names,
            **same_check(numbers("k", least=0), "eigenvalues_ percentage_of_variance_"),
            "total_inertia_": numbers(least=0),
            "column_coordinates_": framed(numbers("nk")),
            "column_contributions_": framed(numbers("nk", least=0)),
            "correlation_ratios_": framed(numbers("ck", least=0)),
        },
        {"feature_names_in_": texts("c")},
        {"n_features_in_": "c"},
        agree=_encoding_agrees,
    ),
    "PCoA": Kind(
        "shiftsvd.estimators.pcoa",
        {
            "eigenvalues_": numbers("k"),
            "coordinates_": framed(numbers("mk")),
            "proportion_explained_": numbers("k", least=0),
            "value_errors_": optional(numbers("k", least=0)),
            "negative_share_": numbers(least=0),
            **same_check(numbers(), "lowest_eigenvalue_ trace_"),
            **same_check(count(), "n_passes_ n_features_in_"),
            "_means": numbers("m"),
            "_vectors": numbers("mk"),
        },
        {"feature_names_in_": texts("q"), "_points": numbers("mp")},
        agree=_points_agree,
    ),
    "ContrastivePCA": Kind(
        "shiftsvd.estimators.contrastive",
        {
            "components_": numbers("kn"),
            **same_check(numbers("k"), "eigenvalues_ target_variance_ background_variance_"),
            **same_check(numbers("k", least=0), "eigenvalue_errors_ vector_errors_"),
            "mean_": numbers("n"),
            "converged_": flag(),
            "n_passes_": count(),
        },
        {"feature_names_in_": texts("n"), "table_": instance_of("Choices")},
        {"n_features_in_": "n"},
    ),
    "SpectralEmbedding": Kind("shiftsvd.estimators.graphs", _GRAPH, {"feature_names_in_": texts("i")}),
    "DiffusionMap": Kind(
        "shiftsvd.estimators.graphs",
        {**_GRAPH, "_psi": numbers("mk"), "_factors": numbers("m", least=0)},
        {"feature_names_in_": texts("m")},
        {"n_features_in_": "m"},
    ),
}

_MODULES: Final = {
    "shiftsvd.sketch": "Gaussian Rademacher SparseSign SRFT",
    "shiftsvd.solvers": "BlockLanczos Exact Gram RandomizedSVD ShiftedRandomizedSVD",
    "shiftsvd.shifts": "Covariates GroupMeans",
    "shiftsvd.transforms": "Elementwise Select Fitted",
    "shiftsvd.transforms.smooth": "Smooth",
    "shiftsvd.io.choices": "Choices",
}
VALUES: Final = {
    **{name: Value(module) for module, names in _MODULES.items() for name in names.split()},
    "LearnedCovariates": Value(
        "shiftsvd.shifts", fields(mean=numbers("n"), centre=numbers("p"), coefficients=numbers("pn"))
    ),
    "LearnedGroups": Value("shiftsvd.shifts", fields(means=numbers("gn"), groups=_distinct)),
    "Design": Value("shiftsvd.preparation.covariates", _design),
    "Info": Value("shiftsvd.result", _info),
}


# ---- all kinds and values, including those of extensions


@cache
def kinds() -> dict[str, Kind]:
    return KINDS | tables("kinds")


@cache
def values() -> dict[str, Value]:
    transforms = (place.split(":") for place in places().values())
    return VALUES | {name: Value(module) for module, name in transforms} | tables("values")


def class_of(name: str) -> type[Any]:
    found: type[Any] = resolve(f"{(kinds() | values())[name].module}:{name}")
    return found


@cache
def arguments(name: str) -> dict[str, Any]:
    cls = class_of(name)
    hints = get_type_hints(cls)
    return {argument: hints[argument] for argument in signature(cls).parameters}
