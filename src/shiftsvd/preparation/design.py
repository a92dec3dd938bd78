"""The design matrix of named columns: numbers as they are, labels one-hot, and the same for other rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.operators import Panel
from shiftsvd.runs.memory import beyond, limit_of

Column = npt.NDArray[Any]  # numbers, truth values, or objects: labels
Lookup = Callable[[str], Column]  # a column by its name
_SHOWN = 5  # labels in an error


@dataclass(frozen=True)
class Design:
    """Columns that stand for what is known of each row.

    Attributes
    ----------
    names : tuple of str
    sizes : tuple of int
        How many labels each of them has; 0 for numbers.
    levels : tuple of str
        The labels of all of them, one after another.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    levels: tuple[str, ...] = ()

    @classmethod
    def learn(cls, covariates: Sequence[str], groups: Sequence[str], column: Lookup) -> "Design":
        """Numbers and labels as the columns are; those of `groups` are labels also where they are numbers.

        Raises
        ------
        ValueError
            If a column is named twice, or has a label for every row.
        """
        names = (*covariates, *groups)
        if twice := [name for j, name in enumerate(names) if name in names[:j]]:
            raise ValueError(f"covariates and groups must be different columns, got {twice[0]!r} twice")
        sizes, levels = [], list[str]()
        for name in names:
            values = column(name)
            known = _levels(name, values) if name in groups or values.dtype == object else []
            if len(known) == len(values) > 1:
                raise ValueError(f"{name!r} has another label for each of {len(values)} rows: nothing would be left")
            sizes.append(len(known))
            levels += known
        return cls(names, tuple(sizes), tuple(levels))

    @property
    def width(self) -> int:
        return sum(max(size, 1) for size in self.sizes)

    def of(self, column: Lookup) -> Panel:
        """The matrix of these rows, shape (m, width), in double precision.

        Raises
        ------
        ValueError
            For missing values, labels that no row had that it was learned from, and what takes too much memory.
        """
        parts, first = list[Panel](), 0
        for name, size in zip(self.names, self.sizes, strict=True):
            values = column(name)
            self._affordable(len(values))
            known = self.levels[first : first + size]
            parts.append(_one_hot(name, values, known) if size else _numbers(name, values)[:, None])
            first += size
        return np.concatenate(parts, axis=1)

    def _affordable(self, m: int) -> None:
        needed, limit = 3 * 8 * m * self.width, limit_of(None)
        if limit is not None and needed > limit:
            raise ValueError(
                f"{self.width} covariates of {m} rows need about {beyond(needed, limit)}; put rare groups together"
            )


def _texts(name: str, values: Column) -> list[str]:
    items = values.tolist()
    if missing := sum(item is None or type(item).__name__ == "NAType" or item != item for item in items):
        raise ValueError(f"{name!r} must have a label for every row, {missing} of {len(items)} have none")
    return [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in items]


def _levels(name: str, values: Column) -> list[str]:
    return sorted(set(_texts(name, values)))


def _one_hot(name: str, values: Column, levels: Iterable[str]) -> Panel:
    place = {label: j for j, label in enumerate(levels)}
    texts = _texts(name, values)
    if unseen := sorted(set(texts) - place.keys()):
        few = ", ".join(map(repr, unseen[:_SHOWN]))
        raise ValueError(
            f"{name!r} has {len(unseen)} labels that no row had that was learned from, whose share is unknown: "
            f"{few}; fit with rows of every label"
        )
    L = np.zeros((len(texts), len(place)))
    L[np.arange(len(texts)), [place[text] for text in texts]] = 1
    return L


def _numbers(name: str, values: Column) -> Column:
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name!r} must be numbers, as in the rows that were learned from, got {values.dtype}")
    numbers = values.astype(np.float64)
    if bad := int((~np.isfinite(numbers)).sum()):
        raise ValueError(f"{name!r} must be finite numbers, {bad} of {len(numbers)} are not; fill them")
    return numbers
