"""The algebra of the shift, one kind of operator a file; its names are imported from `shiftsvd.operators`."""

from shiftsvd.algebra.low_rank import Shifted  # registers what ``A - S`` is

__all__ = ["Shifted"]
