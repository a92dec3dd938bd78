"""Names of settings as types, so that a type checker reports a misspelt name, and some defaults."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeVar

# What checks a setting, and the choices of the command, are made of these; they load the standard library only.
SolverName = Literal["auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized"]
SklearnSolverName = Literal["auto", "full", "covariance_eigh", "arpack", "randomized"]
NormalizerName = Literal["auto", "QR", "LU", "CholeskyQR2", "none"]
ShiftName = Literal["mean", "rows", "both"]
ScaleName = Literal["std", "pareto"]
MissingName = Literal["error", "mean", "em"]
BiasName = Literal["columns", "rows", "both"]
FormatName = Literal[
    "npy",
    "npz",
    "mtx",
    "zarr",
    "hdf5",
    "csv",
    "tsv",
    "parquet",
    "arrow",
    "sheet",
    "sqlite",
    "duckdb",
    "svmlight",
]
VarNamesName = Literal["gene_symbols", "gene_ids"]  # scanpy's words
RuleName = Literal["elbow", "parallel", "gavish-donoho", "cv"]
# Defaults that help of the command tells, too.
TOL: Final = 1e-4  # relative accuracy of the values
MAX_ITER: Final = 300  # steps of a completion


class SupportsArray(Protocol):
    """Anything that NumPy converts to an array, such as a column of a data frame."""

    def __array__(self) -> Any: ...


# Unlike NumPy's ArrayLike a text is none of these, so that no misspelt name passes for an array.
VectorLike = Sequence[complex] | SupportsArray
ScaleLike = bool | str | VectorLike | None


class Lazy(Protocol):
    """A Dask array, whose methods return Dask arrays."""

    def __dask_graph__(self) -> Any: ...

    def compute(self) -> Any: ...


LazyArray = TypeVar("LazyArray", bound=Lazy)


def resolve(place: str) -> Any:
    """Import the object that "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def lazy(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose public names are imported when they are first used."""
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*home, *vars(sys.modules[package])})
