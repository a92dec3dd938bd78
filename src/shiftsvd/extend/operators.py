"""Names for operators and sums over their entries."""

from shiftsvd.algebra import generic
from shiftsvd.algebra.generic import fused, gram_matrix
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.backends.entries import group_bytes, group_moments
from shiftsvd.backends.files import larger_blocks
from shiftsvd.kernels import best as kernels
from shiftsvd.numerics.entrywise import Grouped, Terms, all_groups, with_zeros
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.operators import Derived, Panel, panel_dtype, repeated
from shiftsvd.sketch import generator
