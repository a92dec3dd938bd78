"""The algebra of the shift: matrices that can only multiply a panel, and what is built of them."""

from shiftsvd.algebra.base import Adjoint, Derived, Operator, Shifted
from shiftsvd.algebra.costs import Costs
from shiftsvd.algebra.low_rank import LowRank, repeated
from shiftsvd.algebra.scaled import Scaled
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.panels import Mixer, Panel, field_of, panel_dtype

__all__ = [
    "Adjoint",
    "Costs",
    "Derived",
    "LowRank",
    "Mixer",
    "Moments",
    "Operator",
    "Panel",
    "Scaled",
    "Shifted",
    "field_of",
    "panel_dtype",
    "repeated",
]
