"""Principal components of AnnData objects, put where scanpy puts them; scanpy itself is not needed.

``import shiftsvd.scanpy as sv`` and ``sv.pca(adata)`` in place of ``sc.pp.pca(adata)``: what follows, such as
``sc.pp.neighbors``, ``sc.tl.umap`` and ``sc.pl.pca``, goes on as before. With ``scale=True`` no ``sc.pp.scale``
is needed, nor the dense copy that it makes.
"""

from typing import TYPE_CHECKING

from shiftsvd.extend import lazy

if TYPE_CHECKING:
    from shiftsvd.scanpy.analysis import pca as pca
    from shiftsvd.scanpy.genes import highly_variable as highly_variable
    from shiftsvd.scanpy.projection import project as project

__all__ = ["highly_variable", "pca", "project"]

if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "shiftsvd.scanpy.analysis": ("pca",),
            "shiftsvd.scanpy.genes": ("highly_variable",),
            "shiftsvd.scanpy.projection": ("project",),
        },
    )
