"""Plots of a fit: each function returns a Display, which holds the plotted numbers and the axes.

Displays follow scikit-learn: they draw on `ax` or on a new figure, keep ``ax_`` and ``figure_``, and leave the call of
``matplotlib.pyplot.show()`` to the user.
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
