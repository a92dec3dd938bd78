"""Transformations by name, one after another, on some or all columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.backends.columns import Places, some_columns
from shiftsvd.backends.entries import bytes_kept
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.names import TOL
from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms import by_name
from shiftsvd.transforms.base import Fitted, Transform, bounds, checked, frequencies, held_as, parts, require
from shiftsvd.transforms.count_data import warn_unless_counts


@dataclass(frozen=True, eq=False)
class Select(Transform):
    """Keep some columns, such as highly variable genes.

    Parameters
    ----------
    places : array of bool of shape (n,), or array of int
        Which of the columns stay: a mask, or places that are counted from 0. Their order is that of the data.

    See Also
    --------
    preprocess : Steps one after the other.

    Notes
    -----
    What comes before it in a list is learned from all columns, what comes after it from those that stay:
    ``[LogNormalize(), Select(kept)]`` divides by sums over all genes, and ``[Select(kept), PearsonResiduals()]`` is a
    model of those alone. Entries are changed after the others are left out, so that those cost nothing but their part
    of the sums. No read.

    Rows of the same features are expected by whatever is fitted: `n_features_in_` counts all of them, while components,
    means and scales are of those that stay.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 2.0]])
    >>> ss.preprocess(X, [ss.LogNormalize(1.0), ss.Select([0, 2])]) @ np.eye(2)
    array([[0.22314355, 0.55961579],
           [0.        , 0.40546511]])
    """

    selects: ClassVar[bool] = True
    learns: ClassVar[tuple[int, int]] = (1, 0)
    places: Vector = field(repr=False)

    def __post_init__(self) -> None:
        places = np.array(unmasked("places", self.places))
        if places.ndim != 1 or not places.size or places.dtype.kind not in "biu":
            raise Refused(
                Setting("places"), f" must be a mask or places of columns, got {places.dtype} of shape {places.shape}"
            )
        if places.dtype != bool:
            places = np.sort(places).astype(np.int64)
            if places[0] < 0 or np.any(np.diff(places) == 0):
                raise Refused(Setting("places"), " must be counted from 0, each of them once")
        elif not places.any():
            raise Refused(Setting("places"), " must keep a column at least, got a mask that is false everywhere")
        object.__setattr__(self, "places", places)

    def n_columns(self, n: int) -> int:
        if self.places.dtype != bool:
            require(self.places[-1] < n, "places", f"be in 0..{n - 1}", int(self.places[-1]))
            return len(self.places)
        if len(self.places) != n:
            raise Refused(Setting("places"), f" must be a mask of the {n} columns, got {len(self.places)} truth values")
        return int(self.places.sum())

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        m, n = A.shape
        self.n_columns(n)
        marks = np.zeros((n, 1))
        marks[self.places] = 1
        return Fitted(self, marks, np.zeros(0)), np.zeros((m, 0))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return x


# Where what zeros become is interpolated: its rank, about, and the vectors of rows that are held while it is made.
RANK, VECTORS = 16, 6


def kept_bytes(how: tuple[Transform, ...], A: Operator, tol: float) -> int:
    if not how:
        return 0
    # Two copies while one is made of another, in double precision; and L of what zeros become, of some rank.
    several = len(how) > 1
    entries = bytes_kept(A, held_as(A, 0.0 if several else tol).itemsize) * (2 if several else 1)
    return entries + 8 * A.shape[0] * (VECTORS + (0 if all(each.keeps_zeros for each in how) else RANK))


@dataclass(frozen=True, eq=False)
class Transformed:
    """The rows that transformations were learned from, transformed, and bounds of their errors."""

    fitted: tuple[Fitted, ...]
    B: Operator
    errors: Vector | float = 0.0  # of the columns; see `bounds`
    rounding: Vector | float = 0.0
    rounded: Operator | None = None  # the changed entries alone, where they were rounded to single precision


def learn_all(how: tuple[Transform, ...], A: Operator, weights: Vector | None, tol: float) -> Transformed:
    if not how:
        return Transformed((), A)
    B = checked(A)
    warn_unless_counts(how, B)
    w = frequencies(weights, B)
    known: list[Fitted] = []
    several = sum(not each.selects for each in how) > 1
    errors: Any = 0.0
    rounding: Any = 0.0
    for each, selection in stages(how):
        fitted, R = each.learn_rows(B, w, tol)
        # The next transformation might enlarge what this one rounds to single precision.
        fitted = replace(fitted, tol=0.0 if several else tol)
        known.append(fitted)
        if selection is not None:
            known.append(selection.learn_rows(B, w, tol)[0])
            fitted, B = fitted.at(known[-1].kept), some_columns(B, known[-1].kept)
        stored, zeros = parts(fitted, B, R)
        B = stored if zeros is None else stored - zeros
        if fitted.selects:
            errors, rounding = (part[fitted.kept] if np.ndim(part) else part for part in (errors, rounding))
        else:
            errors, rounding = bounds(fitted, R, weights)
    rounded = stored if stored.dtype == np.float32 and not all(each.selects for each in how) else None
    return Transformed(tuple(known), B, errors, rounding, rounded)


def apply_all(fitted: tuple[Fitted, ...], A: Operator) -> Operator:
    if not fitted:
        return A
    warn_unless_counts([each.how for each in fitted], checked(A))
    for each, selection in stages(fitted):
        if selection is None:
            A = each.of(A)
        else:
            R = each.rows(checked(A))
            A = each.at(selection.kept).of(some_columns(A, selection.kept), R)
    return A


def stages(steps: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    # Each step with the selection that follows it: entries of other columns are not changed at all.
    for before, step, after in zip((None, *steps), steps, (*steps[1:], None), strict=False):
        selection = after if after is not None and after.selects and not step.selects else None
        if not step.selects or before is None or before.selects:
            yield step, selection


def kept_of(fitted: Sequence[Fitted], n: int) -> Places:
    places = np.arange(n)
    for each in fitted:
        places = places[each.kept] if each.selects else places
    return places


def width(how: Sequence[Transform], n: int) -> int:
    for each in how:
        n = each.n_columns(n)
    return n


def reordered(fitted: Sequence[Fitted], order: Places) -> tuple[tuple[Fitted, ...], Places]:
    # For rows whose column j had the place order[j]; the second value is that order for the columns that are kept.
    moved = []
    for each in fitted:
        moved.append(each.at(order))
        if each.selects:
            rank = np.cumsum(each.columns[:, 0] != 0) - 1
            order = rank[order[moved[-1].kept]]
    return tuple(moved), order


Preprocess = Transform | str | Sequence[Transform | str]  # what settings may hold
Form = tuple[str, Callable[[str], Any]]  # a kind of value, and its reader: ValueError or KeyError for other texts
FORMS: Final[dict[Any, Form]] = {
    float: ("a number", float),
    int: ("a whole number", int),
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    NoneType: ("none", {"none": None}.__getitem__),
}


def named(text: str) -> Transform:
    # NAME, or NAME:key=value,... with the settings of the class; settings that are vectors have no text.
    name, colon, rest = text.partition(":")
    known = by_name()
    require(name in known, "preprocess", f"be one of {', '.join(known)}", text)
    forms, values = forms_of(known[name]), dict[str, Any]()
    for pair in rest.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if key not in forms:
            keys = f"one of {', '.join(forms)}" if forms else f"left out, {name} has none"
            raise ValueError(f"settings of {name} must be {keys}, got {pair!r} in {text!r}")
        if not equals or key in values:
            raise ValueError(f"settings must be key=value, each key once, got {pair!r} in {text!r}")
        values[key] = _read(f"{key} of {name}", forms[key], value)
    return known[name](**values)


def forms_of(cls: type[Transform]) -> dict[str, list[Form]]:
    known = {field.name: _forms(field.type) for field in fields(cls)}
    return {name: forms for name, forms in known.items() if any(form is not FORMS[NoneType] for form in forms)}


def _forms(kind: Any) -> list[Form]:
    if get_origin(kind) is Literal:
        return [(word, {word: word}.__getitem__) for word in get_args(kind)]
    if get_origin(kind) in (Union, UnionType):
        return [form for each in get_args(kind) for form in _forms(each)]
    return [FORMS[kind]] if kind in FORMS else []


def _read(what: str, forms: list[Form], text: str) -> Any:
    for _, read in forms:
        try:
            return read(text)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"{what} must be {' or '.join(form for form, _ in forms)}, got {text!r}")


def as_transforms(how: Preprocess | None) -> tuple[Transform, ...]:
    several = () if how is None else (how,) if isinstance(how, Transform | str) else how
    if not isinstance(several, Sequence) or not all(isinstance(each, Transform | str) for each in several):
        raise refuse("preprocess", "be a transformation such as LogNormalize(), a name or a list of them", how)
    known = tuple(named(each) if isinstance(each, str) else each for each in several)
    for first, second in pairwise(each for each in known if not each.selects):
        if not first.keeps_zeros:
            remedy = f"put {second} before it, or leave it out" if second.keeps_zeros else f"leave it or {second} out"
            raise ValueError(f"{first} makes zeros into other numbers, and can only come last: {remedy}")
    return known


def preprocess(X: Any, how: Preprocess) -> Operator:
    """Return the transformed matrix as an operator: sparse minus low rank, never dense.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        An array, a sparse matrix, a data frame, a Dask array, or a file opened by `shiftsvd.io.open_matrix`.
    how : transformation, its name, or list of them
        From `shiftsvd.transforms`; each is learned from the result of those before it. Names are those of the command,
        such as "pearson" or "log-normalize:target_sum=none".

    Returns
    -------
    Operator of shape (m, n)
        The transformed matrix; with fewer columns where `Select` is among the transformations.

    Raises
    ------
    ValueError
        For entries that a transformation has no meaning for, such as negative counts.

    See Also
    --------
    PCA : Takes the same steps as an argument.

    Notes
    -----
    One read of the data for sums of rows and columns, two for some transformations. Changed entries of matrices in
    memory are kept where half of the available memory allows.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> counts = np.random.default_rng(0).poisson(1.0, (100, 20))
    >>> A = ss.preprocess(counts, ss.PearsonResiduals(theta=100))
    >>> A.shape
    (100, 20)
    """
    A = as_operator(X)
    return learn_all(as_transforms(how), A, None, TOL).B
