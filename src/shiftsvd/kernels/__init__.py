"""Products of sparse matrices and panels, by compiled kernels if available, else by SciPy (`twin`); and threads."""

import json
import logging
import os
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from shiftsvd.kernels import twin
from shiftsvd.kernels.threads import default_threads as default_threads
from shiftsvd.kernels.threads import given_threads as given_threads
from shiftsvd.kernels.threads import ordered as ordered
from shiftsvd.kernels.threads import stepwise as stepwise
from shiftsvd.kernels.threads import thread_count as thread_count
from shiftsvd.kernels.threads import threads as threads
from shiftsvd.kernels.twin import CSR, Array, Groups, Packed, Range, RawMoments

# Do not use the cache, which may contain a package that was built without kernels.
PIP = "pip install --force-reinstall --no-cache-dir --no-deps"
UV = "uv pip install --reinstall --no-cache --no-deps"


def missing_kernels_message(error: ImportError) -> str:
    what = "are missing" if isinstance(error, ModuleNotFoundError) else f"do not load ({error})"
    remedy = f"Install a C++ compiler, then run: {reinstall_command()}"
    return f"the compiled kernels {what}, so sparse products are several times slower. {remedy}"


def reinstall_command() -> str:
    try:
        package = distribution("shiftsvd")
    except PackageNotFoundError:
        return f"{PIP} shiftsvd"
    installer = UV if (package.read_text("INSTALLER") or "").strip() == "uv" else PIP
    return f"{installer} {_origin(package)}"


def _origin(package: Distribution) -> str:
    direct = package.read_text("direct_url.json")
    release = f"--no-binary shiftsvd shiftsvd=={package.version}"
    if direct is None:
        return release
    origin: dict[str, Any] = json.loads(direct)
    url = str(origin["url"])
    if url.endswith(".whl"):
        return release
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(url)


class Kernels(Protocol):
    """Interface of the compiled kernels and of their twin in SciPy."""

    instruction_set: str

    def panel(self, V: Array, dtype: npt.DTypeLike) -> Groups: ...

    def gather(self, X: CSR, rows: Range, V: Groups, Y: Array) -> None: ...

    def scatter(self, X: CSR, rows: Range, W: Array, dtype: npt.DTypeLike) -> Groups: ...

    def gram(
        self, X: CSR, rows: Range, V: Groups, weights: Array | None, L: Array, C: Groups
    ) -> tuple[Groups, Groups]: ...

    def subtract(self, X: Array, L: Array, Rt: Array, dtype: npt.DTypeLike) -> Array: ...

    def dense_moments(self, X: Array, weights: Array | None, total: float) -> tuple[Array, Array, Array]: ...

    def total(self, parts: list[Groups], before: Array | None, L: Array, C: Array, rows: Range, Y: Array) -> None: ...

    def add(self, part: Array, total: Array) -> None: ...

    def moments(self, X: CSR, rows: Range, parts: Array | None) -> RawMoments: ...

    def row_moments(self, X: CSR, rows: Range, parts: Array | None) -> RawMoments: ...

    def column_counts(self, X: CSR, rows: Range) -> Array: ...

    def column_squares(self, X: CSR, rows: Range, weights: Array | None, L: Array, R: Array) -> Array: ...

    def outer(self, X: CSR, rows: Range, weights: Array | None) -> Array: ...

    def inspect(self, X: CSR, rows: Range) -> tuple[int, int, int, int, bool]: ...

    def unpack_counts(self, words: Array, edges: Array, first: int, out: Array) -> None: ...

    def unpack_differences(self, words: Array, edges: Array, starts: Array, first: int, out: Array) -> None: ...

    def pack(self, numbers: Array, differences: bool) -> Packed: ...


def _compiled() -> tuple[Any, str | None]:
    wanted = os.environ.get("SHIFTSVD_KERNELS", "auto")
    if wanted not in ("auto", "require", "off"):
        raise ValueError(f"SHIFTSVD_KERNELS must be auto, require or off, got {wanted!r}")
    if wanted == "off":
        return None, None
    try:
        from shiftsvd.kernels import compiled
    except ImportError as error:
        lacking = missing_kernels_message(error)
        if wanted == "require":
            raise ImportError(lacking) from error
        logging.getLogger("shiftsvd").warning(lacking)
        return None, lacking
    return compiled, None


if TYPE_CHECKING:
    from shiftsvd.kernels import compiled

    shared = compiled
    lacking: str | None
else:
    shared, lacking = _compiled()  # the compiled kernels, some of which split a call among their own threads, or None
best: Kernels = shared or twin


def instruction_set() -> str:
    return best.instruction_set


def kernels_for(dtype: np.dtype[Any]) -> Kernels:
    return twin if dtype.kind == "c" else best
