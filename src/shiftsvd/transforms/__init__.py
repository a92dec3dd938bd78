"""Transformations of entries, such as residuals of null models, as lazy matrices: sparse minus low rank."""

from shiftsvd.runs.messages import ValuesWarning
from shiftsvd.transforms.base import Fitted, Transform
from shiftsvd.transforms.chains import Select, preprocess
from shiftsvd.transforms.counting import BM25, CLR, PMI, LogNormalize, TfIdf
from shiftsvd.transforms.elementwise import Anscombe, Binarize, Elementwise, FreemanTukey, Sqrt
from shiftsvd.transforms.ranks import Ranks
from shiftsvd.transforms.residuals import DevianceResiduals, PearsonResiduals

__all__ = [
    "BM25",
    "CLR",
    "PMI",
    "Anscombe",
    "Binarize",
    "DevianceResiduals",
    "Elementwise",
    "Fitted",
    "FreemanTukey",
    "LogNormalize",
    "PearsonResiduals",
    "Ranks",
    "Select",
    "Sqrt",
    "TfIdf",
    "Transform",
    "ValuesWarning",
    "preprocess",
]
