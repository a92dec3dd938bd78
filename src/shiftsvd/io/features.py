"""Features of several types in one file, such as genes and antibodies: which are taken, and what is left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.backends.selection import Places, SomeColumns, SomeRows
from shiftsvd.backends.source import RowSource
from shiftsvd.io.base import Labels, Opened
from shiftsvd.names import GENES
from shiftsvd.runs.warned import notice

FeatureTypes = str | Sequence[str] | None  # as `open_matrix` takes it
EVERY: Final = "all"
_SHOWN: Final = 6  # types in a message


def of_types(path: Path, opened: Opened, wanted: FeatureTypes) -> Opened:
    asked, features = _asked(wanted), opened.features
    if features is None or features.types is None:
        if asked not in (None, [EVERY]):
            given = ", ".join([wanted] if isinstance(wanted, str) else map(str, wanted or ()))
            raise ValueError(f"{path} has no types of features; leave out feature_types, got {given}")
        return opened
    types = features.types
    places = _places(path, types, asked, features.usual)
    counts, left = _counts(types[places]), _counts(np.delete(types, places))
    if asked is None and left:
        notice(f'{path}: {_told(left)} left out, {_told(counts)} taken; feature_types="{EVERY}" keeps all')
    elif asked is None and len(counts) > 1:
        notice(f'{path}: {_told(counts)} taken together; feature_types="{GENES}" takes some')
    return some_features(opened, places) if left else opened


def _asked(wanted: FeatureTypes) -> list[str] | None:
    several: Any = [wanted] if isinstance(wanted, str) else wanted
    known = several is None or (isinstance(several, Sequence) and all(isinstance(each, str) for each in several))
    if not known or several in ([], ()):
        raise ValueError(f'feature_types must be "{EVERY}", a type such as "{GENES}" or a list of them, got {wanted!r}')
    return None if several is None else list(several)


def _places(path: Path, types: Labels, asked: list[str] | None, usual: str | None) -> Places:
    there = {name.casefold(): name for name in types.tolist()}
    if asked == [EVERY] or (asked is None and (usual or "").casefold() not in there):
        return np.arange(len(types))
    names = [usual or ""] if asked is None else asked
    if unknown := [name for name in names if name.casefold() not in there]:
        raise ValueError(
            f"{path} has no features of type {', '.join(map(repr, unknown))}; it has {_told(_counts(types))}"
        )
    return np.flatnonzero(np.isin(types, [there[name.casefold()] for name in names]))


def _counts(types: Labels) -> Counter[str]:
    return Counter(types.tolist())


def _told(counts: Counter[str]) -> str:
    told = [f"{count} {name or 'without a type'}" for name, count in counts.most_common(_SHOWN)]
    return ", ".join([*told, *(["..."] if len(counts) > _SHOWN else [])])


def some_features(opened: Opened, places: Places) -> Opened:
    X, known = opened.matrix, opened.features
    if isinstance(X, RowSource):
        matrix: Any = SomeRows(X, places) if opened.by_features else SomeColumns(X, places)
    else:
        matrix = X[places] if opened.by_features else X[:, places]
    names = opened.names.features
    features = None if known is None else known.at(places)
    some = None if names is None else names[places] if features is None else features.labels()
    of_file = places if opened.places is None else opened.places[places]
    return replace(opened.with_features(some), matrix=matrix, places=of_file, features=features)
