"""The compiled kernels: where they were not built, a test file that imports this is skipped."""

import pytest

extension = pytest.importorskip(
    "shiftsvd.kernels._compiled", reason="the compiled kernels were not built", exc_type=ImportError
)
from shiftsvd.kernels import compiled

__all__ = ["compiled", "extension"]
