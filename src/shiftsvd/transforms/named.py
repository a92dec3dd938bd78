"""Transformations by name, for settings and the command: "pearson", "log-normalize:target_sum=none", or several."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from shiftsvd.backends import as_operator
from shiftsvd.names import TOL, TransformName
from shiftsvd.operators import Operator
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.chains import learn_all
from shiftsvd.transforms.compositions import CLR
from shiftsvd.transforms.counting import BM25, PMI, LogNormalize, TfIdf
from shiftsvd.transforms.elementwise import Anscombe, Binarize, FreemanTukey, Sqrt
from shiftsvd.transforms.ranks import Ranks
from shiftsvd.transforms.residuals import DevianceResiduals, PearsonResiduals

Preprocess = Transform | str | Sequence[Transform | str]  # what settings may hold
Form = tuple[str, Callable[[str], Any]]  # what a value may be, and how it is read; ValueError or KeyError if it is not

BY_NAME: Final[dict[TransformName, type[Transform]]] = {
    "log-normalize": LogNormalize,
    "pearson": PearsonResiduals,
    "deviance": DevianceResiduals,
    "pmi": PMI,
    "tfidf": TfIdf,
    "bm25": BM25,
    "clr": CLR,
    "ranks": Ranks,
    "sqrt": Sqrt,
    "freeman-tukey": FreemanTukey,
    "anscombe": Anscombe,
    "binarize": Binarize,
}
FORMS: Final[dict[Any, Form]] = {
    float: ("a number", float),
    int: ("a whole number", int),
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    NoneType: ("none", {"none": None}.__getitem__),
}


def named(text: str) -> Transform:
    """The transformation that a text asks for: ``NAME``, or ``NAME:key=value,...`` with the settings of its class.

    Settings that are vectors have no text. ValueError for names, keys and values that there are not.
    """
    name, colon, rest = text.partition(":")
    cls = {str(known): found for known, found in BY_NAME.items()}.get(name)
    if cls is None:
        raise ValueError(f"preprocess must be one of {', '.join(BY_NAME)}, got {text!r}")
    forms, values = forms_of(cls), dict[str, Any]()
    for pair in rest.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if key not in forms:
            keys = f"one of {', '.join(forms)}" if forms else f"left out, {name} has none"
            raise ValueError(f"settings of {name} must be {keys}, got {pair!r} in {text!r}")
        if not equals or key in values:
            raise ValueError(f"settings must be key=value, each key once, got {pair!r} in {text!r}")
        values[key] = _read(f"{key} of {name}", forms[key], value)
    return cls(**values)


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
        raise ValueError(
            f"preprocess must be a transformation such as LogNormalize(), a name or a list of them, got {how!r}"
        )
    known = tuple(named(each) if isinstance(each, str) else each for each in several)
    for first, second in pairwise(each for each in known if not each.selects):
        if not first.keeps_zeros:
            remedy = f"put {second} before it, or leave it out" if second.keeps_zeros else f"leave it or {second} out"
            raise ValueError(f"{first} makes zeros into other numbers, and can only come last: {remedy}")
    return known


def preprocess(X: Any, how: Preprocess) -> Operator:
    """The transformed matrix as an operator: sparse minus low rank, never dense.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        An array, a sparse matrix, a data frame, a Dask array, or what `shiftsvd.io.open_matrix` gives.
    how : transformation, its name, or list of them
        From `shiftsvd.transforms`; each is learned from what those before it have made. Names are those of the command,
        such as "pearson" or "log-normalize:target_sum=none".

    Returns
    -------
    Operator of shape (m, n)
        The transformed matrix, as an operator.

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
