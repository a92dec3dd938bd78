"""Names for figures of a fit."""

from shiftsvd.plot.fitted import BLUE, GREY
from shiftsvd.plot.points import CRISP, LETTER, write_names
