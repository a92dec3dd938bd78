"""Operators, which are matrices that multiply panels, and their sums, products, stacks and scales."""

from shiftsvd.algebra.combined import Product, VStack, hstack
from shiftsvd.algebra.low_rank import LowRank, repeated
from shiftsvd.algebra.operator import Adjoint, Costs, Derived, Operator, Shifted
from shiftsvd.algebra.scaled import Scaled
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.panels import Mixer, Panel, Vector, field_of, panel_dtype

__all__ = [
    "Adjoint",
    "Costs",
    "Derived",
    "LowRank",
    "Mixer",
    "Moments",
    "Operator",
    "Panel",
    "Product",
    "Scaled",
    "Shifted",
    "VStack",
    "Vector",
    "field_of",
    "hstack",
    "panel_dtype",
    "repeated",
]

Above, beside = VStack, hstack  # the names of these two before they were called as in NumPy
