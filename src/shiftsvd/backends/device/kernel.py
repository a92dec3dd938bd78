"""Our own CUDA kernel for sparse rows, compiled and launched by ctypes."""

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).with_name("chunks.cu")
# The runtime compilers of CUDA 13 and 12, as Linux and Windows name them; bytes of shared memory that a kernel has by
# default, and the attribute (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) that asks for more.
COMPILERS = ("libnvrtc.so.13", "libnvrtc.so.12", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
SHARED, MORE_SHARED = 48 * 1024, 8

# Least compute capability of a GPU: older GPUs have less shared memory.
LEAST = 8, 0

Options = tuple[str, ...]


class Card(ABC):
    """GPU, and the arrays of a library on it."""

    def __init__(self, ordinal: int, architecture: str) -> None:
        self.ordinal, self.architecture = ordinal, architecture  # as the driver counts; what kernels are compiled for
        self._modules: dict[Options, ctypes.c_void_p] = {}
        self._functions: dict[tuple[Options, str, int], ctypes.c_void_p] = {}  # with the shared memory of a block
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
        # Raises OSError if no compiler is found, and RuntimeError if the compilation or a call of the driver fails.
        values = [_argument(self, x) for x in given]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        with self._current():
            if (options, name, shared) not in self._functions:
                self._functions[options, name, shared] = self._function(options, name, shared)
            function = self._functions[options, name, shared]
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
    raise OSError(f"none of the libraries {', '.join(names)} was found")


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


# Rows of a chunk, at most: with the widest rows of a panel they fill the shared memory that every card has since 2020.
# Entries that a column of a chunk should have on average, since lanes share it, and must have, or products of the
# library are faster (benchmarks/device.py). Threads of a block; a processor holds two blocks. Bytes of rows of panels.
ROWS, MANY, FEW, THREADS = 768, 8, 4, 768
ROW_BYTES = (32, 64, 128)
# Blocks of threads, each with sums of its own: enough for any card, and the same number on all; fewer where the sums
# would take more than this many bytes and more than an eighth of the entries.
BLOCKS, SUMS = 256, 2**30
DOUBLE = np.dtype(np.float64)
NAMES = {"f4": "float", "f8": "double", "i4": "int", "i8": "long long", "u2": "unsigned short"}


class Chunks:
    """Entries of a CSR matrix on a GPU, whose columns ascend in each row, in chunks of rows, and their products."""

    # With eps of the panels' precision, rows of at most r entries and s dense columns beside, a number of X^T X V errs
    # by at most (r / 4 + rows / 4 + s + 8) eps / 2 of what |X|^T |X| |V| has there: sums inside a chunk round, in
    # shares of a quarter or less, and sums of chunks are double. The bound does not grow with the rows of X.

    def __init__(
        self,
        card: Card,
        parts: tuple[Any, Any, Any],  # contiguous: entries, their columns, and where rows begin, in int64
        types: tuple[np.dtype[Any], np.dtype[Any]],  # of the entries (float32 or float64) and of the columns
        shape: tuple[int, int],
        *,
        rows: int = ROWS,
        threads: int = THREADS,
    ) -> None:
        self.card, self.shape, self.rows, self.threads = card, shape, rows, threads
        self.data, named, self.begins = parts
        self.dtype, self.index = types
        (m, n), stored = shape, int(self.data.shape[0])
        self.chunks = -(-m // rows)
        self.named = np.dtype(np.uint16 if n <= 2**16 else np.int32)
        self.columns = card.empty((stored,), self.named)
        self.by_columns, self.rows_of = card.empty((stored,), self.dtype), card.empty((stored,), np.dtype(np.uint16))
        self.ends = card.empty((self.chunks, n), np.dtype(np.uint32))
        self.bytes = stored * (2 * self.dtype.itemsize + 2 + self.named.itemsize)
        arrays = (self.data, named, self.begins, self.columns, self.by_columns, self.rows_of, self.ends)
        options = self._options(self.dtype, ROW_BYTES[1] // self.dtype.itemsize)
        card.launch(options, "order", min(self.chunks, BLOCKS), threads, 4 * threads, *arrays, rows, m, n)

    def gathered(self, V: Sequence[Any], sides: Any, dtype: np.dtype[Any]) -> Any:
        def part(here: Any, width: int) -> Any:
            rows = self.card.empty((self.shape[0], width), dtype)
            self._launch((here, sides, None, None), rows, width, dtype, self.chunks, None)
            return rows

        return self._by_widths(V, self.card.empty((self.shape[0], width_of(V[0])), dtype), dtype, part)

    def scattered(self, W: Any, sides: Any, dtype: np.dtype[Any]) -> Any:
        return self._summed([W], sides, dtype, lambda here: (None, sides, None, here))

    def gram(self, V: Sequence[Any], sides: Any, weights: Any, dtype: np.dtype[Any]) -> Any:
        return self._summed(V, sides, dtype, lambda here: (here, sides, weights, None))

    def powers(self, W: Any, centres: Any, power: int) -> Any:
        """Multiply powers of the distances of entries from their column's centre by W, (m, 1 to 4), in double."""
        ((_, wide, width),) = cut(int(W.shape[1]), DOUBLE)
        begins, entries = self.begins, (self.by_columns, self.rows_of, self.ends)

        def launch(blocks: int, sums: Any) -> None:
            given, shared = self._stacked([W], width, DOUBLE), self.rows * width * DOUBLE.itemsize
            operands, options = (given, centres, sums, power, self.rows, *self.shape), self._options(DOUBLE, width)
            self.card.launch(options, "powers", blocks, self.threads, shared, begins, *entries, *operands)

        return self._sums(launch, (self.shape[1], width), DOUBLE)[:, :wide]

    def _summed(self, panels: Sequence[Any], sides: Any, dtype: np.dtype[Any], operands: Callable[[Any], Any]) -> Any:
        height = self.shape[1] + width_of(sides)

        def part(here: Any, width: int) -> Any:
            return self._sums(partial(self._launch, operands(here), None, width, dtype), (height, width), dtype)

        return self._by_widths(panels, self.card.empty((height, width_of(panels[0])), DOUBLE), dtype, part)

    def _by_widths(
        self, panels: Sequence[Any], product: Any, dtype: np.dtype[Any], part: Callable[[Any, int], Any]
    ) -> Any:
        for lo, hi, width in cut(width_of(product), dtype):
            here = self._stacked([panel[:, lo:hi] for panel in panels], width, dtype)
            product[:, lo:hi] = part(here, width)[:, : hi - lo]
        return product

    def _stacked(self, panels: Sequence[Any], width: int, dtype: np.dtype[Any]) -> Any:
        stacked = self.card.empty((sum(int(panel.shape[0]) for panel in panels), width), dtype)
        lo = 0
        for panel in panels:
            hi = lo + int(panel.shape[0])
            stacked[lo:hi, : width_of(panel)] = panel
            lo = hi
        return stacked

    def _sums(self, launch: Callable[[int, Any], None], shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        count = shape[0] * shape[1]
        blocks = self.blocks(count)
        sums, total = self.card.empty((blocks, *shape), DOUBLE), self.card.empty(shape, DOUBLE)
        launch(blocks, sums)
        options, adding = self._options(dtype, shape[1]), -(-count // self.threads)
        self.card.launch(options, "add_up", adding, self.threads, 0, sums, total, blocks, count)
        return total

    def blocks(self, count: int) -> int:
        # Number of blocks of threads with `count` sums each: the fewest for which the largest number of chunks per
        # block is the same.
        most = max(1, min(BLOCKS, max(SUMS, self.bytes // 8) // (8 * count)))
        return -(-self.chunks // -(-self.chunks // most))

    def _launch(
        self, operands: tuple[Any, ...], kept: Any, width: int, dtype: np.dtype[Any], blocks: int, sums: Any
    ) -> None:
        data = self.data, self.columns, self.begins, self.by_columns, self.rows_of, self.ends
        sizes, shared = (self.rows, *self.shape, width_of(operands[1])), self.rows * width * dtype.itemsize
        given, options = (*data, *operands, kept, sums, *sizes), self._options(dtype, width)
        self.card.launch(options, "multiply", blocks, self.threads, shared, *given)

    def _options(self, dtype: np.dtype[Any], width: int) -> Options:
        kinds = {"DATA": self.dtype, "PANEL": dtype, "INDEX": self.index, "COLUMN": self.named}
        sizes = {"WIDTH": width, "THREADS": self.threads}
        named = {key: NAMES[kind.str[1:]] for key, kind in kinds.items()} | sizes
        return tuple(f"-D{key}={value}" for key, value in named.items())


def rows_of(m: int, n: int, stored: int) -> int | None:
    # Choose the rows of a chunk by the data alone, so that results do not depend on the GPU. Return None if the columns
    # of chunks have so few entries that reading their bounds would take most of the time.
    each = stored / (m * n)
    if each * ROWS < FEW or ROWS * n >= 2**32:  # entries of a chunk are counted in 32 bits
        return None
    chunks = BLOCKS * -(-m // (BLOCKS * ROWS))  # a multiple of BLOCKS: equal numbers for all blocks of threads
    return max(-(-m // chunks), min(ROWS, math.ceil(MANY / each)))


def width_of(panel: Any) -> int:
    return 0 if panel is None else int(panel.shape[1])


def cut(wide: int, dtype: np.dtype[Any]) -> list[tuple[int, int, int]]:
    widths, found, lo = [row // dtype.itemsize for row in ROW_BYTES], [], 0
    while lo < wide:
        width = next((width for width in widths if width >= wide - lo), widths[-1])
        found.append((lo, min(lo + width, wide), width))
        lo += width
    return found
