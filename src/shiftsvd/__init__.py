"""Leading singular vectors of a matrix minus a low-rank shift, without ever forming it."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from shiftsvd import events as events
    from shiftsvd import genetics as genetics
    from shiftsvd import io as io
    from shiftsvd import operators as operators
    from shiftsvd import plot as plot
    from shiftsvd import report as report
    from shiftsvd import scanpy as scanpy
    from shiftsvd import shifts as shifts
    from shiftsvd import sketch as sketch
    from shiftsvd import solvers as solvers
    from shiftsvd import testing as testing
    from shiftsvd import xarray as xarray
    from shiftsvd.accuracy import frobenius_error, halko_bound, residuals, spectral_norm
    from shiftsvd.backends import as_operator, center
    from shiftsvd.choosing.suggest import Suggestion, suggest_k, warm_start
    from shiftsvd.estimators.batches import merge
    from shiftsvd.estimators.correspondence import CorrespondenceAnalysis
    from shiftsvd.estimators.lsa import LSA
    from shiftsvd.estimators.multiple import MultipleCorrespondenceAnalysis
    from shiftsvd.estimators.pca import PCA
    from shiftsvd.estimators.pcoa import PCoA
    from shiftsvd.estimators.truncated import TruncatedSVD
    from shiftsvd.front import svd
    from shiftsvd.missing import Completion, complete
    from shiftsvd.model_file import load
    from shiftsvd.numerics.moments import Moments
    from shiftsvd.operators import Adjoint, LowRank, Operator, Scaled, Shifted
    from shiftsvd.result import Info, SVDResult
    from shiftsvd.runs.checkpoints import checkpoint
    from shiftsvd.shifts import Covariates, GroupMeans
    from shiftsvd.sketch import SRFT, Gaussian, Rademacher, SparseSign
    from shiftsvd.solvers import (
        BlockLanczos,
        Estimate,
        Exact,
        Gram,
        RandomizedSVD,
        ShiftedRandomizedSVD,
        auto_solver,
        estimate,
    )

# Where each public name lives. Nothing is imported before it is asked for: `import shiftsvd` costs a
# millisecond, and the command answers `--help` at once.
_HOME = {
    "Adjoint": "operators",
    "BlockLanczos": "solvers",
    "Completion": "missing",
    "CorrespondenceAnalysis": "estimators.correspondence",
    "Covariates": "shifts",
    "Estimate": "solvers",
    "Exact": "solvers",
    "Gaussian": "sketch",
    "Gram": "solvers",
    "GroupMeans": "shifts",
    "Info": "result",
    "LSA": "estimators.lsa",
    "LowRank": "operators",
    "Moments": "numerics.moments",
    "MultipleCorrespondenceAnalysis": "estimators.multiple",
    "Operator": "operators",
    "PCA": "estimators.pca",
    "PCoA": "estimators.pcoa",
    "Rademacher": "sketch",
    "RandomizedSVD": "solvers",
    "SRFT": "sketch",
    "SVDResult": "result",
    "Scaled": "operators",
    "Shifted": "operators",
    "ShiftedRandomizedSVD": "solvers",
    "SparseSign": "sketch",
    "Suggestion": "choosing.suggest",
    "TruncatedSVD": "estimators.truncated",
    "as_operator": "backends",
    "auto_solver": "solvers",
    "center": "backends",
    "checkpoint": "runs.checkpoints",
    "complete": "missing",
    "estimate": "solvers",
    "frobenius_error": "accuracy",
    "halko_bound": "accuracy",
    "load": "model_file",
    "merge": "estimators.batches",
    "residuals": "accuracy",
    "spectral_norm": "accuracy",
    "suggest_k": "choosing.suggest",
    "svd": "front",
    "warm_start": "choosing.suggest",
}

# Modules whose names are public too: `shiftsvd.plot` is there without an import of its own.
_MODULES = (
    "events",
    "genetics",
    "io",
    "operators",
    "plot",
    "report",
    "scanpy",
    "shifts",
    "sketch",
    "solvers",
    "testing",
    "xarray",
)

__all__ = [
    "LSA",
    "PCA",
    "SRFT",
    "Adjoint",
    "BlockLanczos",
    "Completion",
    "CorrespondenceAnalysis",
    "Covariates",
    "Estimate",
    "Exact",
    "Gaussian",
    "Gram",
    "GroupMeans",
    "Info",
    "LowRank",
    "Moments",
    "MultipleCorrespondenceAnalysis",
    "Operator",
    "PCoA",
    "Rademacher",
    "RandomizedSVD",
    "SVDResult",
    "Scaled",
    "Shifted",
    "ShiftedRandomizedSVD",
    "SparseSign",
    "Suggestion",
    "TruncatedSVD",
    "as_operator",
    "auto_solver",
    "center",
    "checkpoint",
    "complete",
    "estimate",
    "frobenius_error",
    "halko_bound",
    "load",
    "merge",
    "residuals",
    "spectral_norm",
    "suggest_k",
    "svd",
    "warm_start",
]


if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version("shiftsvd")
        if name in _MODULES:
            return import_module(f"shiftsvd.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'shiftsvd' has no attribute {name!r}")
        value = getattr(import_module(f"shiftsvd.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
