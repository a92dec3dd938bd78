"""Whether the files that are opened may lead to other files, for as long as somebody says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
