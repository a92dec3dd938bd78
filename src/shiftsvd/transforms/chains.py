"""Parse, fit and apply lists of transformations, and select columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.backends.entries import Places, bytes_kept, some_columns
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.names import TOL
from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.messages import column_names
from shiftsvd.transforms import by_name
from shiftsvd.transforms.base import Fitted, Transform, bounds, checked, frequencies, held_as, parts, require
from shiftsvd.transforms.count_data import warn_unless_counts


@dataclass(frozen=True, eq=False)
class Select(Transform):
    """Keep some columns, such as highly variable genes.

    Parameters
    ----------
    places : array of bool of shape (n,), or array of int
        The columns to keep: a mask, or indices from 0. The order of the data is kept.

    See Also
    --------
    preprocess : Apply a list of transformations.

    Notes
    -----
    In a list, earlier transformations are fitted on all columns, and later ones on the kept columns:
    ``[LogNormalize(), Select(kept)]`` divides by sums over all genes, and ``[Select(kept), PearsonResiduals()]`` fits a
    null model to the kept genes only. Entries of removed columns are added to sums, but not transformed. No read.

    A fitted estimator expects rows with all features, and `n_features_in_` counts all of them, while its components,
    means and scales refer to the kept features.

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
            got = f"got {places.dtype} of shape {places.shape}"
            raise Refused(Setting("places"), f" must be a mask or indices of columns, {got}")
        if places.dtype != bool:
            places = np.sort(places).astype(np.int64)
            if places[0] < 0 or np.any(np.diff(places) == 0):
                raise Refused(Setting("places"), " must be nonnegative indices without duplicates")
        elif not places.any():
            raise Refused(Setting("places"), " must keep at least one column, got a mask without a true value")
        object.__setattr__(self, "places", places)

    def n_columns(self, n: int) -> int:
        if self.places.dtype != bool:
            require(self.places[-1] < n, "places", f"be in 0..{n - 1}", int(self.places[-1]))
            return len(self.places)
        if len(self.places) != n:
            raise Refused(Setting("places"), f" must be a mask of the {n:,} columns, got length {len(self.places):,}")
        return int(self.places.sum())

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        m, n = A.shape
        self.n_columns(n)
        marks = np.zeros((n, 1))
        marks[self.places] = 1
        return Fitted(self, marks, np.zeros(0)), np.zeros((m, 0))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return x


# Memory of the low-rank term of transformed zeros: its usual rank if it is interpolated, and the number of temporary
# vectors with an entry for each row.
RANK, VECTORS = 16, 6


def kept_bytes(how: tuple[Transform, ...], A: Operator, tol: float) -> int:
    if not how:
        return 0
    # With several steps, two copies of the entries in double precision. In addition, the factor L of transformed zeros.
    several = len(how) > 1
    entries = bytes_kept(A, held_as(A, 0.0 if several else tol).itemsize) * (2 if several else 1)
    return entries + 8 * A.shape[0] * (VECTORS + (0 if all(each.keeps_zeros for each in how) else RANK))


@dataclass(frozen=True, eq=False)
class Transformed:
    """The transformed training rows, and error bounds of their columns."""

    fitted: tuple[Fitted, ...]
    B: Operator
    errors: Vector | float = 0.0  # of the columns; see `bounds`
    rounding: Vector | float = 0.0
    rounded: Operator | None = None  # the transformed entries if these were rounded to single precision


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
        # Keep double precision if there are several steps: a later step may enlarge rounding errors of this one.
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
    # Yield each step with the selection that follows it, so that entries of removed columns are not transformed.
    for before, step, after in zip((None, *steps), steps, (*steps[1:], None), strict=False):
        selection = after if after is not None and after.selects and not step.selects else None
        if not step.selects or before is None or before.selects:
            yield step, selection


def kept_of(fitted: Sequence[Fitted], n: int) -> Places:
    places = np.arange(n)
    for each in fitted:
        places = places[each.kept] if each.selects else places
    return places


def kept_names(names: Any, how: Sequence[Transform], n: int) -> Any:
    names = column_names() if names is None else names
    if names is None or len(names) != n:
        return None
    for each in how:
        names = np.asarray(names)[each.places] if isinstance(each, Select) else names
    return names


def width(how: Sequence[Transform], n: int) -> int:
    for each in how:
        n = each.n_columns(n)
    return n


def reordered(fitted: Sequence[Fitted], order: Places) -> tuple[tuple[Fitted, ...], Places]:
    # Fitted steps for rows whose column j is column order[j] of the training data, and this order among kept columns.
    moved = []
    for each in fitted:
        moved.append(each.at(order))
        if each.selects:
            rank = np.cumsum(each.columns[:, 0] != 0) - 1
            order = rank[order[moved[-1].kept]]
    return tuple(moved), order


Preprocess = Transform | str | Sequence[Transform | str]  # values of the setting `preprocess`
Form = tuple[str, Callable[[str], Any]]  # name of a type, and its parser, which raises ValueError or KeyError
FORMS: Final[dict[Any, Form]] = {
    float: ("a number", float),
    int: ("an integer", int),
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    NoneType: ("none", {"none": None}.__getitem__),
}


def named(text: str) -> Transform:
    # Parse NAME or NAME:key=value,..., with settings of the class that are not vectors.
    name, colon, rest = text.partition(":")
    known = by_name()
    require(name in known, "preprocess", f"be one of {', '.join(known)}", text)
    forms, values = forms_of(known[name]), dict[str, Any]()
    for pair in rest.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if key not in forms:
            if not forms:
                raise ValueError(f"{name} has no settings, got {pair!r} in {text!r}")
            raise ValueError(f"settings of {name} must be one of {', '.join(forms)}, got {pair!r} in {text!r}")
        if not equals or key in values:
            raise ValueError(f"settings must be key=value with each key once, got {pair!r} in {text!r}")
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
        raise refuse("preprocess", "be a transformation such as LogNormalize(), its name, or a list of these", how)
    known = tuple(named(each) if isinstance(each, str) else each for each in several)
    for first, second in pairwise(each for each in known if not each.selects):
        if not first.keeps_zeros:
            remedy = f"Put {second} first" if second.keeps_zeros else f"Remove one of the steps, this or {second}"
            raise ValueError(f"{first} changes zeros to other numbers and must be the last step. {remedy}.")
    return known


def preprocess(X: Any, how: Preprocess) -> Operator:
    """Return the transformed matrix as an operator: sparse minus low rank, never dense.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        An array, a sparse matrix, a data frame, a Dask array, or a file opened by `shiftsvd.io.open_matrix`.
    how : transformation, its name, or list of them
        Transformations of `shiftsvd.transforms`. Each is fitted on the result of the previous ones. Names are those of
        the command, such as "pearson" or "log-normalize:target_sum=none".

    Returns
    -------
    Operator of shape (m, n)
        The transformed matrix, with fewer columns if `Select` is among the transformations.

    Raises
    ------
    ValueError
        If an entry is outside the domain of a transformation, such as a negative count.

    See Also
    --------
    PCA : Pass the same steps as `preprocess`.

    Notes
    -----
    Sums of rows and columns take one read of the data, and two for some transformations. Transformed entries of
    matrices in memory are kept if they take at most a quarter of the available memory.

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
