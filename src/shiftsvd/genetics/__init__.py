"""Compute principal components of genotypes in PLINK files, scaled as in Patterson, Price & Reich (2006).

The genotypes are read from the file in every pass unless they fit in memory. Missing genotypes are replaced by the mean
of their variant, and genotypes are centred and scaled, block by block.
"""

from typing import TYPE_CHECKING

from shiftsvd.extend import lazy

if TYPE_CHECKING:
    from shiftsvd.genetics.analysis import GenotypePCA as GenotypePCA
    from shiftsvd.genetics.analysis import pca as pca
    from shiftsvd.genetics.components import SelectionScan as SelectionScan
    from shiftsvd.genetics.components import TracyWidom as TracyWidom
    from shiftsvd.genetics.components import tracy_widom as tracy_widom
    from shiftsvd.genetics.fitted import GenotypeModel as GenotypeModel
    from shiftsvd.genetics.kinship import Kinship as Kinship
    from shiftsvd.genetics.projection import Projection as Projection
    from shiftsvd.genetics.selection import Selection as Selection
    from shiftsvd.genetics.selection import unrelated as unrelated
    from shiftsvd.genetics.variants import Samples as Samples
    from shiftsvd.genetics.variants import Variants as Variants


if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    _homes = {
        "shiftsvd.genetics.analysis": ("GenotypePCA", "pca"),
        "shiftsvd.genetics.components": ("SelectionScan", "TracyWidom", "tracy_widom"),
        "shiftsvd.genetics.fitted": ("GenotypeModel",),
        "shiftsvd.genetics.projection": ("Projection",),
        "shiftsvd.genetics.kinship": ("Kinship",),
        "shiftsvd.genetics.selection": ("Selection", "unrelated"),
        "shiftsvd.genetics.variants": ("Samples", "Variants"),
    }
    __getattr__, __dir__ = lazy(__name__, _homes)
    __all__ = sorted(name for names in _homes.values() for name in names)
