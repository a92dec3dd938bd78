"""The algebra of the shift, one kind of operator a file; its names are imported from `shiftsvd.operators`."""

# Whoever imports any of these has what `A.H` and `A - S` make: those files register it.
from shiftsvd.algebra.adjoint import Adjoint
from shiftsvd.algebra.low_rank import Shifted

__all__ = ["Adjoint", "Shifted"]
