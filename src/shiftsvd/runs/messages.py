"""Warnings that name the user's line, and consent to external files."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Final

from shiftsvd.errors import Part, Worded

HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep


# Whose frames lie between a user's line and ours: what calls our methods, and what wraps our functions.
BETWEEN = ("sklearn", "joblib", "numpy", "contextlib")


# A level of the log between INFO and WARNING, for what is as it should be and yet good to know: the command shows it.
NOTICE: Final = 25


said: set[tuple[str, int]] = set()  # the lines that warn once, and have


class Advice(Worded, UserWarning):
    """A warning about data or settings: what warnings of the library are, unless they have a class of their own."""


class Notice(Advice):
    """What was decided where nothing was said, and what decides otherwise: the command tells it as a line."""


class ValuesWarning(Advice):
    """The entries look like logarithms where counts are needed, or like raw counts where logarithms are usual.

    ``warnings.simplefilter("ignore", shiftsvd.transforms.ValuesWarning)`` silences it, `--trust-values` in the command.

    Parameters
    ----------
    *parts : str or Setting
        What it says.

    See Also
    --------
    LogNormalize : One of the transformations that take counts.

    Examples
    --------
    >>> import warnings, numpy as np, shiftsvd as ss
    >>> logarithms = np.log1p(np.random.default_rng(0).poisson(3.0, (50, 20)))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ss.transforms.ValuesWarning)
    ...     A = ss.preprocess(logarithms, "log-normalize")
    """


class ValuesNotice(ValuesWarning, Notice):
    """Raw counts where logarithms are usual: a fit of them as they are may be meant."""


def notice(*parts: Part) -> None:
    warn(*parts, category=Notice)


def warn_once(*parts: Part) -> None:
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    if place not in said:
        said.add(place)
        warn(*parts)


def warn(*parts: Part, category: type[Advice] = Advice) -> None:
    message, prefixes = category(*parts).plain(), _own()
    if sys.version_info >= (3, 12):
        warnings.warn(message, stacklevel=2, skip_file_prefixes=prefixes)
    else:
        warnings.warn(message, stacklevel=_depth(sys._getframe(), prefixes))


def _own() -> tuple[str, ...]:
    files = (getattr(sys.modules.get(name), "__file__", None) or "" for name in BETWEEN)
    return (HERE, *(file.removesuffix("__init__.py") for file in files if file))


def _depth(frame: FrameType | None, prefixes: tuple[str, ...]) -> int:
    depth = 1
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(prefixes):
        frame, depth = frame.f_back, depth + 1
    return depth


_ALLOWED: ContextVar[bool] = ContextVar("shiftsvd_allow_external", default=False)


@contextmanager
def external_files(allowed: bool) -> Iterator[None]:
    before = _ALLOWED.set(allowed or _ALLOWED.get())
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def external_allowed() -> bool:
    return _ALLOWED.get()
