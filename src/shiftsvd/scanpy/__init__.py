"""Principal components and diffusion maps of AnnData objects, stored as scanpy does. scanpy need not be installed.

Use ``import shiftsvd.scanpy as sv`` and ``sv.pca(adata)`` instead of ``sc.pp.pca(adata)``. Later steps, such as
``sc.pp.neighbors``, ``sc.tl.umap`` and ``sc.pl.pca``, find the results under the same keys. ``scale=True`` replaces
``sc.pp.scale`` and avoids its dense copy.
"""

from typing import TYPE_CHECKING

from shiftsvd.extend import lazy

if TYPE_CHECKING:
    from shiftsvd.scanpy.analysis import diffmap, pca, project
    from shiftsvd.scanpy.genes import highly_variable

__all__ = ["diffmap", "highly_variable", "pca", "project"]

if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "shiftsvd.scanpy.analysis": ("diffmap", "pca", "project"),
            "shiftsvd.scanpy.genes": ("highly_variable",),
        },
    )
