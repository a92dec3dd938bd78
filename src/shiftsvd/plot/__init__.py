"""Plots of a fit: each function returns a Display, which holds the numbers and the axes they are drawn on.

They follow scikit-learn's Displays: `ax` may be given, ``ax_`` and ``figure_`` are kept, and nothing is shown
before ``matplotlib.pyplot.show()`` is called.
"""

from shiftsvd.plot.features import BiplotDisplay, LoadingsDisplay, biplot, loadings
from shiftsvd.plot.points import ScoresDisplay, scores
from shiftsvd.plot.raster import ScoreRaster
from shiftsvd.plot.variance import (
    NorthDisplay,
    ReconstructionErrorDisplay,
    ScreeDisplay,
    north,
    reconstruction_error,
    scree,
)

__all__ = [
    "BiplotDisplay",
    "LoadingsDisplay",
    "NorthDisplay",
    "ReconstructionErrorDisplay",
    "ScoreRaster",
    "ScoresDisplay",
    "ScreeDisplay",
    "biplot",
    "loadings",
    "north",
    "reconstruction_error",
    "scores",
    "scree",
]
