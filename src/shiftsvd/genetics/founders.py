"""Founders: samples whose parents are not in the family, of whom PLINK counts alleles."""

from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.io.formats.plink_rows import fields

_NOBODY: Final = ("0", "0")


def fam_founders(path: Path) -> Mask:
    return np.array([both == _NOBODY for both in zip(*fields(path, (2, 3)), strict=True)], bool)
