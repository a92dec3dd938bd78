"""A model taken apart into settings and fitted attributes, and put together again, everything checked."""

from dataclasses import replace
from inspect import signature
from types import NoneType
from typing import Any, get_type_hints

import numpy as np
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence

from shiftsvd.model_file.checking import Sizes, any_text, check_finite, check_type
from shiftsvd.model_file.container import listed
from shiftsvd.model_file.kinds import KINDS, Kind, Values, kind_class
from shiftsvd.result import Info
from shiftsvd.shifts import Covariates, GroupMeans
from shiftsvd.solvers import Solver
from shiftsvd.transforms import Transform

RANDOM = (BitGenerator, Generator, RandomState, SeedSequence)  # what is not stored
PARTS = {"kind", "settings", "fitted"}
# Settings whose annotation is Any.
LOOSE = {
    "analyzer": str,
    "metric": str,
    "preprocess": Transform | str | list | tuple | None,
    "random_state": int | np.ndarray | None,
    "scale": bool | str | np.ndarray | tuple | None,
    "shift": str | np.ndarray | tuple | GroupMeans | Covariates | None,
    "solver": str | Solver,
    "stop_words": str | list | None,
    "strip_accents": str | None,
    "preprocessor": NoneType,
    "tokenizer": NoneType,
    "vocabulary": dict | list | np.ndarray | None,
}


def parts(model: Any) -> tuple[Values, Sizes]:
    name = type(model).__name__
    if name not in KINDS or type(model) is not kind_class(name):
        raise ValueError(f"a model file holds one of {', '.join(KINDS)}, got {name}")
    kind = KINDS[name]
    there = [name for name in kind.sometimes if getattr(model, name, None) is not None]
    settings = _settings(model, next(iter(kind.fitted)))
    fitted = {name: _timeless(value) for name, value in kind.taken(model, [*kind.fitted, *there]).items()}
    sizes = _check_fitted(kind, fitted)
    fitted = {name: parts(value)[0] if type(value).__name__ in KINDS else value for name, value in fitted.items()}
    return {"kind": name, "settings": settings, "fitted": fitted}, sizes


def _timeless(value: Any) -> Any:
    return replace(value, seconds=None, peak_bytes=None) if isinstance(value, Info) else value


def _settings(model: Any, attribute: str) -> Values:
    if not hasattr(model, "get_params"):
        return {}
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, attribute)
    settings: Values = model.get_params(deep=False)
    if isinstance(settings.get("random_state"), RANDOM):
        settings["random_state"] = None
    return settings


def restored(kind: str, settings: Values, fitted: Values) -> Any:
    if kind not in KINDS:
        raise ValueError(f"it holds a {kind!r:.80}, which must be one of: {', '.join(KINDS)}")
    fitted = {
        name: restored(**value) if isinstance(value, dict) and set(value) == PARTS else value
        for name, value in fitted.items()
    }
    cls, its = kind_class(kind), KINDS[kind]
    _check_settings(cls, settings)
    sizes = _check_fitted(its, fitted)
    its.agree(settings, fitted)
    model = its.made(cls, settings, fitted)
    for attribute, letter in its.sizes.items():
        setattr(model, attribute, sizes[letter])
    return model


def _check_settings(cls: type[Any], settings: Values) -> None:
    known = signature(cls).parameters if hasattr(cls, "get_params") else {}
    if unknown := set(settings) - set(known):
        raise ValueError(f"{cls.__name__} has no setting {listed(unknown)}; a newer shiftsvd may have: update it")
    hints = {**{name: any_text(hint) for name, hint in get_type_hints(cls.__init__).items()}, **LOOSE}
    for name, value in settings.items():
        check_type(name, value, hints[name])
        check_finite(name, np.asarray(value) if isinstance(value, tuple) else value)
    if isinstance(settings.get("solver"), Solver):
        check_finite("solver.start", getattr(settings["solver"], "start", None))


def _check_fitted(kind: Kind, fitted: Values) -> Sizes:
    if missing := set(kind.fitted) - set(fitted):
        raise ValueError(f"the fitted {listed(missing)} is missing")
    checks = {**kind.fitted, **kind.sometimes}
    if unknown := set(fitted) - set(checks):
        raise ValueError(f"it has the unknown fitted {listed(unknown)}; a newer shiftsvd may know: update it")
    sizes: Sizes = {}
    for name, check in checks.items():
        if name in fitted:
            check(name, fitted[name], sizes)
    return sizes
