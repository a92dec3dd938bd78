"""Plots of a fit: each function returns a Display, which holds the plotted numbers and the axes.

Displays follow scikit-learn: they draw on `ax` or on a new figure, keep ``ax_`` and ``figure_``, and leave the call of
``matplotlib.pyplot.show()`` to the user.
"""

from typing import TYPE_CHECKING

from shiftsvd.names import lazy

if TYPE_CHECKING:
    from shiftsvd.plot.features import BiplotDisplay as BiplotDisplay
    from shiftsvd.plot.features import LoadingsDisplay as LoadingsDisplay
    from shiftsvd.plot.features import biplot as biplot
    from shiftsvd.plot.features import loadings as loadings
    from shiftsvd.plot.points import ScoresDisplay as ScoresDisplay
    from shiftsvd.plot.points import scores as scores
    from shiftsvd.plot.raster import ScoreRaster as ScoreRaster
    from shiftsvd.plot.variance import NorthDisplay as NorthDisplay
    from shiftsvd.plot.variance import ReconstructionErrorDisplay as ReconstructionErrorDisplay
    from shiftsvd.plot.variance import ScreeDisplay as ScreeDisplay
    from shiftsvd.plot.variance import north as north
    from shiftsvd.plot.variance import reconstruction_error as reconstruction_error
    from shiftsvd.plot.variance import scree as scree

if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    __getattr__, __dir__, __all__ = lazy(__name__)
