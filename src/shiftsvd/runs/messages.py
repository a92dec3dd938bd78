"""Warnings that name the user's line, notices, and consent to external files."""

import logging
import os
import sys
import warnings
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from shiftsvd.errors import Part, Worded
from shiftsvd.events import set_within

HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
# Packages whose frames lie between a user's line and ours: scikit-learn calls our methods, the others wrap functions.
BETWEEN = ("sklearn", "joblib", "numpy", "contextlib")
LOG: Final = logging.getLogger("shiftsvd")
NOTICE: Final = 25  # level of the log between INFO and WARNING; the command shows it
said: set[tuple[str, int]] = set()  # file and line of each `warn_once` call that has warned


class Advice(Worded, UserWarning):
    """A warning about data or settings."""


class Notice(Advice):
    """A choice made by default, with the setting that changes it; the command prints notices as single lines."""


class ValuesWarning(Advice):
    """The entries look like logarithms or weights where counts are needed, or like counts where logarithms are usual.

    ``warnings.simplefilter("ignore", shiftsvd.transforms.ValuesWarning)`` silences it, `--trust-values` in the command.

    Parameters
    ----------
    *parts : str or Setting
        The text, and the settings that it names.

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
    """Raw counts where logarithms are usual; a fit of raw counts may be intended."""


def notice(*parts: Part) -> None:
    warn(*parts, category=Notice)


def log_notice(*parts: Part) -> None:
    LOG.log(NOTICE, Notice(*parts).plain())  # not as text: the command replaces settings by its options


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


_columns: ContextVar[Any] = ContextVar("shiftsvd_columns", default=None)


def column_names() -> Any:
    return _columns.get()


def columns_called(names: Any) -> AbstractContextManager[None]:
    return set_within(_columns, names)


_external: ContextVar[bool] = ContextVar("shiftsvd_allow_external", default=False)


def external_files(allowed: bool) -> AbstractContextManager[None]:
    return set_within(_external, allowed or _external.get())


def external_allowed() -> bool:
    return _external.get()
