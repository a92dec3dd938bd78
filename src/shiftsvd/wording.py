"""Settings of estimators, solvers and facts about data in words, for reports."""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shiftsvd.estimators.settings import TO_ROUNDING
from shiftsvd.io.choices import JOIN
from shiftsvd.plot.fitted import short
from shiftsvd.runs.memory import parse_bytes, shown_bytes
from shiftsvd.solvers.base import TOL

LONGEST: Final = 500  # characters of a setting or a fact

# Descriptions of the settings of estimators, and of their values that are not numbers.
SETTINGS: Final = {
    "n_components": "components requested",
    "shift": "subtracted from the data",
    "scale": "features divided by",
    "scale_ddof": "ddof of standard deviations",
    "preprocess": "transformations",
    "missing": "missing values",
    "unobserved": "entries not stored are missing",
    "penalty": "penalty of the completion",
    "max_iter": "largest number of iterations of the completion",
    "whiten": "scores of unit variance",
    "solver": "solver setting",
    "svd_solver": "scikit-learn's name of the solver",
    "algorithm": "scikit-learn's name of the solver",
    "tol": "tolerance (relative error)",
    "random_state": "seed",
    "n_threads": "threads",
    "memory_limit": "memory limit",
    "iterated_power": "power iterations of randomized solvers",
    "n_iter": "power iterations of randomized solvers",
    "n_oversamples": "extra samples of randomized solvers",
    "power_iteration_normalizer": "normalizer of power iterations",
    "batch_size": "rows per batch",
}
WITHOUT_EFFECT: Final = ("copy", "verbose")  # settings for compatibility with scikit-learn only
_NOTHING: Final = {"None": "nothing"}
VALUES: Final = {
    "shift": {"mean": "the mean of each feature", "rows": "the mean of each sample", "both": "both means"} | _NOTHING,
    "scale": {"pareto": "square roots of their standard deviations"}
    | dict.fromkeys(("std", "True"), "their standard deviations")
    | _NOTHING,
    "preprocess": _NOTHING,
    "missing": {"error": "not allowed", "mean": "replaced by the mean of the feature", "em": "predicted by the model"},
    "n_components": {"None": "all"},
    "random_state": {"None": "random"},
    "n_threads": {"None": "all cores"},
    "memory_limit": {"None": "half of the available memory"},
    "tol": {"None": f"{TOL:g}, the default"},
    "solver": {"auto": "the cheapest accurate solver (auto)"} | _NOTHING,
}
SOLVERS: Final = {
    **dict.fromkeys(("BlockLanczos", "lanczos"), "block Lanczos"),
    **dict.fromkeys(("Gram", "gram"), "Gram matrix of the short side"),
    **dict.fromkeys(("Exact", "exact"), "exact factorization"),
    "RandomizedSVD": "randomized",
    **dict.fromkeys(
        ("ShiftedRandomizedSVD", "shifted-randomized"), "shifted randomized, Algorithm 1 of Basirat (2019)"
    ),
    "Streaming": "streaming of batches",
}
ARGUMENTS: Final = {
    "tol": "relative accuracy",
    "n_oversamples": "extra samples",
    "n_iter": "power iterations",
    "power_iteration_normalizer": "normalized by",
    "block_size": "columns of a block",
    "ell": "directions kept",
    "missed_tol": "relative limit of missed values",
    "miss_probability": "probability of missed values",
}
_MADE: Final = re.compile(r"(\w+)\((.*)\)")
_ARGUMENT: Final = re.compile(r"(\w+)=('[^']*'|[^,()]+(?:\([^()]*\))?)")


def categories_of(model: Any) -> dict[str, str]:
    one_hot = getattr(getattr(model, "table_", None), "one_hot", {})
    return {short(f"{name}{JOIN}{one}", 60): short(f"{name} = {one}", 60) for name in one_hot for one in one_hot[name]}


def is_mixed(model: Any) -> bool:
    return isinstance(getattr(model, "scale", None), np.ndarray)  # `fit --mixed` computes the divisors


def settings_of(model: Any) -> dict[str, dict[str, str]]:
    if not hasattr(model, "get_params"):
        return {"chosen": {}, "usual": {}}
    now, usual = model.get_params(deep=False), type(model)().get_params(deep=False)
    settings: dict[str, dict[str, str]] = {"chosen": {}, "usual": {}}
    for name, value in ((name, now[name]) for name in now if name not in WITHOUT_EFFECT):
        kind = "usual" if repr(value) == repr(usual[name]) else "chosen"
        settings[kind][SETTINGS.get(name, name.replace("_", " "))] = setting(name, value)
    steps = now.get("preprocess")
    for each in steps if isinstance(steps, list | tuple) else ():
        if hasattr(each, "max_value"):  # a step of cells that scales and clips
            settings["usual"].pop(SETTINGS["scale"], None)
            settings["chosen"][SETTINGS["scale"]] = f"their standard deviations, then clipped at {each.max_value:g}"
    solvers = (now.get(name) for name in ("solver", "svd_solver", "algorithm"))
    if now.get("tol") is None and any(name in TO_ROUNDING for name in solvers):
        settings["usual"] |= {SETTINGS["tol"]: "down to rounding, the default of this solver"}
    if is_mixed(model) and categories_of(model):
        settings["chosen"][SETTINGS["scale"]] = "their standard deviations; categories by roots of their frequencies"
    return settings


def setting(name: str, value: Any) -> str:
    if (said := VALUES.get(name, {}).get(str(value))) is not None:
        return said
    if isinstance(value, list | tuple) and name == "preprocess":
        return ", then ".join(solver(each) for each in value)
    if name == "memory_limit":
        return shown_bytes(parse_bytes(value))
    return solver(value) if name in ("solver", "preprocess") else shown(value)


def solver(made: Any) -> str:
    text = " ".join(str(made).split())
    found = _MADE.fullmatch(text)
    name, given = (text, "") if found is None else found.groups()
    said = [(key, value.strip("'")) for key, value in _ARGUMENT.findall(given) if value != "None"]
    arguments = [f"{ARGUMENTS.get(key, key.replace('_', ' '))} {value}" for key, value in said]
    called = SOLVERS.get(name, name)
    return short(f"{called} ({', '.join(arguments)})" if arguments else called, LONGEST)


def verdicts(facts: Mapping[str, Any], k: int, tol: float) -> list[bool | None]:
    """Return which of k components converged, by the facts of `Info` or result.json; None if that is unknown."""
    if facts["completed"] is False:  # the bounds refer to a completed matrix that had not converged
        return [False] * k
    if facts["converged"] is None or facts["value_errors"] is None:
        return [None] * k
    if facts["converged"]:
        return [True] * k
    late = ~(np.array(facts["value_errors"], np.float64) <= tol)
    # If no bound exceeds tol, a value may have been missed, at an unknown position.
    return [False if one else True if late.any() else None for one in late]


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, np.ndarray):
        return f"{' × '.join(f'{side:,}' for side in value.shape)} numbers"
    if isinstance(value, tuple) and all(isinstance(one, int | np.integer) for one in value):
        return " × ".join(f"{one:,}" for one in value)
    return short(value, LONGEST)
