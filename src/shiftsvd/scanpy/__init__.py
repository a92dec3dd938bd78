"""Principal components and diffusion maps of AnnData objects, stored as scanpy does. scanpy need not be installed.

Use ``import shiftsvd.scanpy as sv`` and ``sv.pca(adata)`` instead of ``sc.pp.pca(adata)``. Later steps, such as
``sc.pp.neighbors``, ``sc.tl.umap`` and ``sc.pl.pca``, find the results under the same keys. ``scale=True`` replaces
``sc.pp.scale`` and avoids its dense copy.
"""

from typing import TYPE_CHECKING

from shiftsvd.extend import lazy

if TYPE_CHECKING:
    from shiftsvd.scanpy.analysis import pca as pca
    from shiftsvd.scanpy.diffusion import diffmap as diffmap
    from shiftsvd.scanpy.genes import highly_variable as highly_variable
    from shiftsvd.scanpy.projection import project as project

__all__ = ["diffmap", "highly_variable", "pca", "project"]

if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "shiftsvd.scanpy.analysis": ("pca",),
            "shiftsvd.scanpy.diffusion": ("diffmap",),
            "shiftsvd.scanpy.genes": ("highly_variable",),
            "shiftsvd.scanpy.projection": ("project",),
        },
    )
