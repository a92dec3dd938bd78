"""Names for transformations of entries."""

from shiftsvd.transforms import SettingText
from shiftsvd.transforms.base import FittedEntry, checked
from shiftsvd.transforms.chains import Preprocess, apply_all, as_transforms, kept_of, learn_all
from shiftsvd.transforms.count_data import (
    Sample,
    sample_places,
    warn_of_counts,
    warn_of_logarithms,
    warn_unless_counts,
)
from shiftsvd.transforms.elementwise import OfEntry
from shiftsvd.transforms.residuals import NullModel
from shiftsvd.transforms.smooth import chebyshev, interpolation
