"""One BLAS thread as long as any fit of this process runs; what others had set comes back with the end of the last."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import product
from threading import RLock, get_ident, local
from typing import Any, NamedTuple

from threadpoolctl import ThreadpoolController


class Library(NamedTuple):
    """A BLAS: how to read and set its number of threads, and whether every thread of ours has a number of its own."""

    path: str
    get: Callable[[], int | None]
    set: Callable[[int], object]
    by_thread: bool


def libraries() -> list[Library]:
    return _found(len(sys.modules))


@lru_cache(maxsize=1)
def _found(n_modules: int) -> list[Library]:
    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    return [
        Library(library.filepath, library.get_num_threads, _setter(library), _by_thread(library)) for library in found
    ]


def _by_thread(library: Any) -> bool:
    kind: str = library.internal_api
    return kind == "mkl" or (kind == "openblas" and str(library.threading_layer) == "openmp")


def _setter(library: Any) -> Callable[[int], object]:
    # threadpoolctl from 3.7 on obeys one thread alone where the number belongs to the process, and ignores the others
    # without a word, until that thread has left its own limit: a fit in another thread would neither have one BLAS
    # thread nor give back what there was. So OpenBLAS is asked by its own name, whatever its builder prefixed to it.
    if library.internal_api == "openblas" and not _by_thread(library):
        loaded = ctypes.CDLL(library.filepath)
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            own: Callable[[int], object] | None = getattr(loaded, f"{prefix}openblas_set_num_threads{suffix}", None)
            if own is not None:
                return own
    set_: Callable[[int], object] = library.set_num_threads
    return set_


class OneThread:
    """The limit of the process: set by whoever is first, lifted by whoever is last.

    Any number but 1 that is found while somebody holds the limit is the wish of somebody else, from before or from
    a limiter of another library that ended meanwhile: it comes back at the end.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # the garbage collector may end an abandoned fit while this thread is inside
        self.holders: dict[object, int] = {}  # and the thread of each
        self.wished: dict[str, tuple[Library, int]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        holder = object()
        try:
            self._take(holder)
            yield
        finally:
            try:
                self._drop(holder)
            except BaseException:  # an interrupt: once more from the beginning
                self._drop(holder)
                raise

    def _take(self, holder: object) -> None:
        with self.lock:
            self.holders[holder] = get_ident()
            for library in libraries():
                number = None if library.by_thread else library.get()
                if number is not None and number > 1:
                    self.wished[library.path] = library, number
                    library.set(1)

    def _drop(self, holder: object) -> None:
        with self.lock:
            self.holders.pop(holder, None)
            self._lift()

    def _lift(self) -> None:
        while self.wished and not self.holders:
            library, number = next(iter(self.wished.values()))
            if library.get() == 1:
                library.set(number)
            self.wished.pop(library.path, None)

    def after_fork(self) -> None:
        self.lock = RLock()
        self.holders = {holder: ident for holder, ident in self.holders.items() if ident == get_ident()}
        self._lift()


process = OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.after_fork)


_here = local()


def limited_here() -> bool:
    return getattr(_here, "limited", False)


def limit_here() -> None:
    _here.limited = True
    for library in libraries():
        if library.by_thread:
            library.set(1)


@contextmanager
def one_thread() -> Iterator[None]:
    before = limited_here()
    mine = [(library, number) for library in libraries() if library.by_thread and (number := library.get())]
    with process.held():
        try:
            limit_here()
            yield
        finally:
            _here.limited = before
            for library, number in mine:
                library.set(number)
