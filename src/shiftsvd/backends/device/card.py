"""A CUDA card as our own kernels need it: they are compiled when they are first called, and launched, by ctypes.

NVRTC, the compiler, comes with PyTorch and CuPy for CUDA; the driver with the card. What PyTorch itself has to load
kernels wants a whole CUDA toolkit beside it. On a card no line of this file has been run: tests run all but `compiled`
on a driver that is the host's (tests/support/host_card.cpp).
"""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).with_name("chunks.cu")
# The runtime compilers of CUDA 13 and 12, as Linux and Windows name them; how many bytes of shared memory are there
# without being asked for, and what asks for more.
COMPILERS = ("libnvrtc.so.13", "libnvrtc.so.12", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
SHARED, MORE_SHARED = 48 * 1024, 8

# What a card must be able to do, as CUDA counts: before, there is less shared memory.
LEAST = 8, 0

Options = tuple[str, ...]


class Card(ABC):
    """One card, and the arrays that a library has there.

    Attributes
    ----------
    ordinal : int
        Which card, as the driver counts.
    architecture : str
        What kernels are compiled for, such as "sm_90".
    """

    def __init__(self, ordinal: int, architecture: str) -> None:
        self.ordinal, self.architecture = ordinal, architecture
        self._modules: dict[Options, ctypes.c_void_p] = {}
        self._context: ctypes.c_void_p | None = None

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any: ...

    @abstractmethod
    def pointer(self, x: Any) -> int: ...

    @abstractmethod
    def stream(self) -> int: ...

    def driver(self) -> ctypes.CDLL:
        return driver()

    def compiled(self, options: Options) -> bytes:
        return compiled(SOURCE.read_text(encoding="utf-8"), (f"--gpu-architecture={self.architecture}", *options))

    def launch(self, options: Options, name: str, blocks: int, threads: int, shared: int, *given: Any) -> None:
        """Call a kernel with arrays, None for those that are left out, and integers.

        Raises
        ------
        OSError
            Where there is no compiler.
        RuntimeError
            Where it refuses the kernels, or the driver the call.
        """
        values = [_argument(self, x) for x in given]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        with self._current():
            function = self._function(options, name, shared)
            stream = ctypes.c_void_p(self.stream())
            self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, stream, places, None)

    def _function(self, options: Options, name: str, shared: int) -> ctypes.c_void_p:
        if options not in self._modules:
            module = ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(self.compiled(options)))
            self._modules[options] = module
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._modules[options], name.encode())
        if shared > SHARED:
            self._call("cuFuncSetAttribute", function, MORE_SHARED, shared)
        return function

    @contextmanager
    def _current(self) -> Iterator[None]:
        if self._context is None:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._call("cuDeviceGet", ctypes.byref(device), self.ordinal)
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._context = context
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, function: str, *given: Any) -> None:
        error = getattr(self.driver(), function)(*given)
        if error:
            name = ctypes.c_char_p()
            self.driver().cuGetErrorName(error, ctypes.byref(name))
            raise RuntimeError(f"{function}: {(name.value or b'error').decode()} ({error})")


def _argument(card: Card, x: Any) -> Any:
    if isinstance(x, int | np.integer):
        return ctypes.c_longlong(int(x))
    return ctypes.c_void_p(None if x is None else card.pointer(x))


@cache
def driver() -> ctypes.CDLL:
    return _first(("libcuda.so.1", "nvcuda.dll"))


@cache
def compiler() -> ctypes.CDLL:
    found = find_spec("nvidia")
    rooms = [] if found is None else [Path(room) for room in found.submodule_search_locations or ()]
    files = [str(file) for room in rooms for name in COMPILERS for file in sorted(room.glob(f"*/*/**/{name}"))]
    return _first((*COMPILERS, *files))


def _first(names: tuple[str, ...]) -> ctypes.CDLL:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"none of {', '.join(names)} is there")


def compiled(source: str, options: Options) -> bytes:
    nvrtc, program = compiler(), ctypes.c_void_p()
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), SOURCE.name.encode(), 0, None, None)
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            raise RuntimeError(f"{SOURCE.name}: {_got(nvrtc, program, 'ProgramLog').decode()}")
        return _got(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _got(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    held = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, held)
    return held.raw
