"""Compute leading singular vectors of a matrix minus a low-rank shift, without forming the difference."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from shiftsvd import events as events
    from shiftsvd import extend as extend
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
    from shiftsvd import transforms as transforms
    from shiftsvd import xarray as xarray
    from shiftsvd.accuracy import frobenius_error as frobenius_error
    from shiftsvd.accuracy import halko_bound as halko_bound
    from shiftsvd.accuracy import residuals as residuals
    from shiftsvd.accuracy import spectral_norm as spectral_norm
    from shiftsvd.backends import as_operator as as_operator
    from shiftsvd.backends import centered as centered
    from shiftsvd.biwhitening import SignalCount as SignalCount
    from shiftsvd.biwhitening import count_signals as count_signals
    from shiftsvd.choosing import Suggestion as Suggestion
    from shiftsvd.choosing import suggest_k as suggest_k
    from shiftsvd.choosing import warm_start as warm_start
    from shiftsvd.estimators.batches import IncrementalPCA as IncrementalPCA
    from shiftsvd.estimators.batches import merge_pca as merge_pca
    from shiftsvd.estimators.contrastive import ContrastivePCA as ContrastivePCA
    from shiftsvd.estimators.correspondence import CorrespondenceAnalysis as CorrespondenceAnalysis
    from shiftsvd.estimators.correspondence import MultipleCorrespondenceAnalysis as MultipleCorrespondenceAnalysis
    from shiftsvd.estimators.evidence import Influence as Influence
    from shiftsvd.estimators.evidence import Neighbors as Neighbors
    from shiftsvd.estimators.evidence import Stability as Stability
    from shiftsvd.estimators.famd import FAMD as FAMD
    from shiftsvd.estimators.graphs import DiffusionMap as DiffusionMap
    from shiftsvd.estimators.graphs import SpectralEmbedding as SpectralEmbedding
    from shiftsvd.estimators.lsa import LSA as LSA
    from shiftsvd.estimators.pca import PCA as PCA
    from shiftsvd.estimators.pcoa import PCoA as PCoA
    from shiftsvd.estimators.rotation import Rotation as Rotation
    from shiftsvd.estimators.rotation import rotate as rotate
    from shiftsvd.estimators.supplementary import Supplementary as Supplementary
    from shiftsvd.estimators.supplementary import supplementary as supplementary
    from shiftsvd.estimators.truncated import TruncatedSVD as TruncatedSVD
    from shiftsvd.front import svd as svd
    from shiftsvd.missing.completion import Completion as Completion
    from shiftsvd.missing.completion import complete_matrix as complete_matrix
    from shiftsvd.model_file import load_model as load_model
    from shiftsvd.model_file import save_model as save_model
    from shiftsvd.operators import LowRank as LowRank
    from shiftsvd.operators import Operator as Operator
    from shiftsvd.preparation.prepare import cross as cross
    from shiftsvd.result import Info as Info
    from shiftsvd.result import SVDResult as SVDResult
    from shiftsvd.runs.checkpoints import checkpoint as checkpoint
    from shiftsvd.shifts import Covariates as Covariates
    from shiftsvd.shifts import GroupMeans as GroupMeans
    from shiftsvd.solvers import BlockLanczos as BlockLanczos
    from shiftsvd.solvers import Exact as Exact
    from shiftsvd.solvers import Gram as Gram
    from shiftsvd.solvers import RandomizedSVD as RandomizedSVD
    from shiftsvd.solvers import ShiftedRandomizedSVD as ShiftedRandomizedSVD
    from shiftsvd.solvers import auto_solver as auto_solver
    from shiftsvd.solvers import estimate as estimate
    from shiftsvd.transforms import BM25 as BM25
    from shiftsvd.transforms import CLR as CLR
    from shiftsvd.transforms import PMI as PMI
    from shiftsvd.transforms import Anscombe as Anscombe
    from shiftsvd.transforms import Binarize as Binarize
    from shiftsvd.transforms import DevianceResiduals as DevianceResiduals
    from shiftsvd.transforms import Elementwise as Elementwise
    from shiftsvd.transforms import FreemanTukey as FreemanTukey
    from shiftsvd.transforms import LogNormalize as LogNormalize
    from shiftsvd.transforms import PearsonResiduals as PearsonResiduals
    from shiftsvd.transforms import Ranks as Ranks
    from shiftsvd.transforms import Select as Select
    from shiftsvd.transforms import Sqrt as Sqrt
    from shiftsvd.transforms import TfIdf as TfIdf
    from shiftsvd.transforms import preprocess as preprocess

# The public names, by the module that each lives in. Nothing is imported before it is asked for:
# `import shiftsvd` costs a millisecond, and the command answers `--help` at once.
_NAMES = {
    "accuracy": ("frobenius_error", "halko_bound", "residuals", "spectral_norm"),
    "backends": ("as_operator", "centered"),
    "biwhitening": ("SignalCount", "count_signals"),
    "choosing": ("Suggestion", "suggest_k", "warm_start"),
    "estimators.batches": ("IncrementalPCA", "merge_pca"),
    "estimators.contrastive": ("ContrastivePCA",),
    "estimators.correspondence": ("CorrespondenceAnalysis", "MultipleCorrespondenceAnalysis"),
    "estimators.evidence": ("Influence", "Neighbors", "Stability"),
    "estimators.famd": ("FAMD",),
    "estimators.graphs": ("DiffusionMap", "SpectralEmbedding"),
    "estimators.lsa": ("LSA",),
    "estimators.pca": ("PCA",),
    "estimators.pcoa": ("PCoA",),
    "estimators.rotation": ("Rotation", "rotate"),
    "estimators.supplementary": ("Supplementary", "supplementary"),
    "estimators.truncated": ("TruncatedSVD",),
    "front": ("svd",),
    "missing.completion": ("Completion", "complete_matrix"),
    "model_file": ("load_model", "save_model"),
    "operators": ("LowRank", "Operator"),
    "preparation.prepare": ("cross",),
    "result": ("Info", "SVDResult"),
    "runs.checkpoints": ("checkpoint",),
    "shifts": ("Covariates", "GroupMeans"),
    "solvers": ("BlockLanczos", "Exact", "Gram", "RandomizedSVD", "ShiftedRandomizedSVD", "auto_solver", "estimate"),
    "transforms": (
        "BM25",
        "CLR",
        "PMI",
        "Anscombe",
        "Binarize",
        "DevianceResiduals",
        "Elementwise",
        "FreemanTukey",
        "LogNormalize",
        "PearsonResiduals",
        "Ranks",
        "Select",
        "Sqrt",
        "TfIdf",
        "preprocess",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
# Modules whose names are public too: `shiftsvd.plot` is there without an import of its own.
_MODULES = (
    "events",
    "extend",
    "io",
    "operators",
    "plot",
    "report",
    "shifts",
    "sketch",
    "solvers",
    "testing",
    "transforms",
)

__all__ = sorted(_HOME)


if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version("shiftsvd")
        if name in _MODULES:
            return import_module(f"shiftsvd.{name}")
        if name not in _HOME:
            extensions = import_module("shiftsvd.extend").public_modules()
            if name in extensions:
                return import_module(extensions[name])
            raise AttributeError(f"module 'shiftsvd' has no attribute {name!r}")
        value = getattr(import_module(f"shiftsvd.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
