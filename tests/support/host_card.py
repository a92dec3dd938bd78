"""A card made of the host, for our own kernels: their text is compiled by the C++ compiler that is there."""

import ctypes
import shutil
import subprocess
import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from shiftsvd.backends.device import kernel
from shiftsvd.backends.device.kernel import Card, Chunks, Options
from tests.support.fake_device import FakeArrays, Far

EMULATION = Path(__file__).with_suffix(".cpp")
FORWARDS, BACKWARDS, RANDOM = range(3)
GUARD = 2**14  # bytes before and after each array, which nobody may write to


@cache
def built(options: Options) -> ctypes.CDLL:
    """The kernels behind the functions of a driver; skips where they cannot be built."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C++ compiler, and the fibers of Linux")
    room = Path(mkdtemp(prefix="host-card-"))
    flags = ["-O1", "-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-w", "-U_FORTIFY_SOURCE"]
    library = room / f"{blake2b(repr(options).encode(), digest_size=8).hexdigest()}.so"
    named = [*options, f'-DCHUNKS="{kernel.SOURCE}"']
    subprocess.run([compiler, *flags, *named, "-o", str(library), str(EMULATION)], check=True)
    found = ctypes.CDLL(str(library))
    shutil.rmtree(room)
    return found


class HostCard(Card):
    """The card.

    Parameters
    ----------
    turns, seed : int
        In which order threads come.
    filling : int
        The byte that memory is full of at first; by default numbers are NaN.
    without : int
        The line of a barrier that is left out.
    """

    def __init__(self, turns: int = FORWARDS, seed: int = 0, filling: int = 0xFF, without: int = 0) -> None:
        super().__init__(0, "sm_90")
        self.turns, self.seed, self.filling, self.without = turns, seed, filling, without
        self.guarded: list[np.ndarray] = []
        self.asked: list[Options] = []  # what was compiled
        self._library: ctypes.CDLL | None = None

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Far:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.full(size + 2 * GUARD + 16, self.filling, np.uint8)
        memory = memory[-memory.ctypes.data % 16 :][: size + 2 * GUARD]
        self.guarded.append(memory)
        return Far(memory[GUARD : GUARD + size].view(dtype).reshape(shape))

    def pointer(self, x: Any) -> int:
        assert x.near.flags.c_contiguous
        return int(x.near.ctypes.data)

    def stream(self) -> int:
        return 0

    def launch(self, options: Options, *given: Any) -> None:
        """The kernel in the library that was built for these options."""
        self._library = built(options)
        for name in ("turns", "seed", "filling"):
            ctypes.c_int.in_dll(self._library, name).value = getattr(self, name)
        self._library.leave_out(self.without)
        super().launch(options, *given)
        if any((part != self.filling).any() for memory in self.guarded for part in (memory[:GUARD], memory[-GUARD:])):
            raise MemoryError("a kernel wrote beyond its arrays")

    def driver(self) -> ctypes.CDLL:
        assert self._library is not None
        return self._library

    def compiled(self, options: Options) -> bytes:
        self.asked.append(options)
        return b"the library"

    def contexts(self) -> int:
        """How many contexts the last launch has left current."""
        return ctypes.c_int.in_dll(self.driver(), "contexts").value


class CardArrays(FakeArrays):
    """The adapter of the fake device, on which our kernels run."""

    def __init__(self, there: HostCard) -> None:
        super().__init__()
        self.there = there

    def card(self) -> Card:
        return self.there

    def by_rows(self, x: Any) -> Any:
        return Far(np.ascontiguousarray(x.near))


def chunks_of(X: sparse.csr_array, there: HostCard, rows: int, threads: int, index: Any = np.int64) -> Chunks:
    """A CSR on the card."""
    parts = Far(X.data), Far(X.indices.astype(index)), Far(X.indptr.astype(np.int64))
    return Chunks(there, parts, (X.dtype, np.dtype(index)), X.shape, rows=rows, threads=threads)
