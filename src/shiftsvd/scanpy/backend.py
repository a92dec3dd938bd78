"""Backend of scanpy: ``sc.pp.pca(adata, backend="shiftsvd")``, in versions of scanpy that have backends.

Such a scanpy finds this module by the entry point group "scanpy.backends", and reads `name`, `aliases` and functions
with the names of its own (package scverse-backends; proposed for scanpy in its pull request 4108). It passes all of its
arguments by name, with its own defaults.
"""

from functools import wraps
from inspect import Parameter, signature
from typing import Any

name = "shiftsvd"
aliases = ["shifted-svd"]


def __getattr__(attribute: str) -> Any:  # a host lists its backends without importing what they compute with
    if attribute != "pca":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    return globals().setdefault("pca", _pca())


def _pca() -> Any:
    import numpy as np

    from shiftsvd.scanpy.analysis import pca as own

    @wraps(own)
    def pca(*args: Any, rng: Any = None, **given: Any) -> Any:
        if type(given.get("mask_var")).__name__ == "Empty":  # scanpy's default: highly_variable, if var has it
            del given["mask_var"]
        if rng is not None:  # the name of random_state in newer versions of scanpy
            given["random_state"] = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)
        return own(*args, **given)

    known = signature(own)
    added = Parameter("rng", Parameter.KEYWORD_ONLY, default=None)
    vars(pca)["__signature__"] = known.replace(parameters=[*known.parameters.values(), added])
    return pca
