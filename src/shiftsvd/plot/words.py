"""Settings, solvers and facts in words, for people who read a report and no Python."""

import re
from typing import Any, Final

import numpy as np

from shiftsvd.plot.fitted import short

LONGEST: Final = 300  # characters of a setting

# What a setting of an estimator is, and what its values mean that are not numbers.
SETTINGS: Final = {
    "n_components": "components asked for",
    "shift": "subtracted from the data",
    "scale": "features divided by",
    "scale_ddof": "rows less than all in deviations",
    "preprocess": "entries changed first by",
    "missing": "missing entries",
    "unobserved": "what is not stored is missing",
    "penalty": "penalty of the completion",
    "max_iter": "most steps of the completion",
    "whiten": "scores of unit variance",
    "solver": "solver asked for",
    "svd_solver": "solver by its name in scikit-learn",
    "algorithm": "solver by its name in scikit-learn",
    "tol": "relative accuracy asked for",
    "random_state": "seed",
    "n_threads": "threads",
    "memory_limit": "memory allowed",
    "iterated_power": "power iterations of randomized solvers",
    "n_iter": "power iterations of randomized solvers",
    "n_oversamples": "extra samples of randomized solvers",
    "power_iteration_normalizer": "what normalizes power iterations",
    "batch_size": "rows of a batch",
}
WITHOUT_EFFECT: Final = ("copy", "verbose")  # settings that are there for scikit-learn's sake
VALUES: Final = {
    "shift": {"mean": "the mean of each feature", "rows": "the mean of each sample", "both": "both means"},
    "scale": {"std": "their standard deviations", "True": "their standard deviations", "pareto": "roots of deviations"},
    "missing": {"error": "refused", "mean": "the means of their features", "em": "a model of the others"},
    "n_components": {"None": "all"},
    "random_state": {"None": "drawn anew"},
    "n_threads": {"None": "all cores"},
    "memory_limit": {"None": "half of what was free"},
    "tol": {"None": "0.0001, the default"},
    "solver": {"auto": "the cheapest that is accurate enough"},
}
NOTHING: Final = "nothing"
SOLVERS: Final = {
    "BlockLanczos": "block Lanczos",
    "Gram": "Gram matrix of the short side",
    "Exact": "exact factorization",
    "RandomizedSVD": "randomized",
    "ShiftedRandomizedSVD": "shifted randomized, Algorithm 1 of Basirat (2019)",
    "Streaming": "batches, one after another",
    "lanczos": "block Lanczos",
    "gram": "Gram matrix of the short side",
    "exact": "exact factorization",
    "shifted-randomized": "shifted randomized, Algorithm 1 of Basirat (2019)",
}
ARGUMENTS: Final = {
    "tol": "relative accuracy",
    "n_oversamples": "extra samples",
    "n_iter": "power iterations",
    "power_iteration_normalizer": "normalized by",
    "block_size": "columns of a block",
    "ell": "directions kept",
}
_MADE: Final = re.compile(r"(\w+)\((.*)\)")
_ARGUMENT: Final = re.compile(r"(\w+)=('[^']*'|[^,()]+(?:\([^()]*\))?)")


def settings_of(model: Any) -> dict[str, dict[str, str]]:
    if not hasattr(model, "get_params"):
        return {"chosen": {}, "usual": {}}
    now, usual = model.get_params(deep=False), type(model)().get_params(deep=False)
    told: dict[str, dict[str, str]] = {"chosen": {}, "usual": {}}
    for name, value in ((name, now[name]) for name in now if name not in WITHOUT_EFFECT):
        kind = "usual" if repr(value) == repr(usual[name]) else "chosen"
        told[kind][SETTINGS.get(name, name.replace("_", " "))] = setting(name, value)
    return told


def setting(name: str, value: Any) -> str:
    if (said := VALUES.get(name, {}).get(str(value))) is not None:
        return said
    if isinstance(value, list | tuple) and name == "preprocess":
        return ", then ".join(solver(each) for each in value)
    if name in ("solver", "preprocess"):
        return NOTHING if value is None else solver(value)
    return NOTHING if value is None and name in ("shift", "scale") else shown(value)


def solver(made: Any) -> str:
    text = " ".join(str(made).split())
    found = _MADE.fullmatch(text)
    name, given = (text, "") if found is None else found.groups()
    said = [(key, value.strip("'")) for key, value in _ARGUMENT.findall(given) if value != "None"]
    arguments = [f"{ARGUMENTS.get(key, key.replace('_', ' '))} {value}" for key, value in said]
    called = SOLVERS.get(name, name)
    return short(f"{called} ({', '.join(arguments)})" if arguments else called, LONGEST)


def shown(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, np.ndarray):
        return f"{' × '.join(f'{side:,}' for side in value.shape)} numbers"
    if isinstance(value, tuple) and all(isinstance(one, int | np.integer) for one in value):
        return " × ".join(f"{one:,}" for one in value)
    return short(value, LONGEST)
