"""Warnings that name the user's line, texts without terminal codes, and consent to external files."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Final

# Control characters of both blocks, marks that change the direction of what follows, breaks of lines, halves of pairs.
_STEERS: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ANY: Final = re.compile(f"[{_STEERS}]")
_IN_LINES: Final = re.compile(rf"(?![\t\n])[{_STEERS}]")


def plain(text: str) -> str:
    return _ANY.sub(_written, text)


def plain_lines(text: str) -> str:
    return _IN_LINES.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")


HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep


# Whose frames lie between a user's line and ours: what calls our methods, and what wraps our functions.
BETWEEN = ("sklearn", "joblib", "numpy", "contextlib")


# A level of the log between INFO and WARNING, for what is as it should be and yet good to know: the command shows it.
NOTICE: Final = 25


said: set[tuple[str, int]] = set()  # the lines that warn once, and have


class Notice(UserWarning):
    """What was decided where nothing was said, and what decides otherwise: the command tells it as a line."""


class ValuesWarning(UserWarning):
    """The entries look like logarithms where counts are needed, or like raw counts where logarithms are usual.

    ``warnings.simplefilter("ignore", shiftsvd.transforms.ValuesWarning)`` silences it, `--trust-values` in the command.

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


def notice(message: str) -> None:
    warn(message, Notice)


def warn_once(message: str) -> None:
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    if place not in said:
        said.add(place)
        warn(message)


def warn(message: str, category: type[UserWarning] = UserWarning) -> None:
    message, prefixes = plain_lines(message), _own()
    if sys.version_info >= (3, 12):
        warnings.warn(message, category, stacklevel=2, skip_file_prefixes=prefixes)
    else:
        warnings.warn(message, category, stacklevel=_depth(sys._getframe(), prefixes))


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
