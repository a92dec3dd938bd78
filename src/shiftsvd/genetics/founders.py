"""Founders: samples whose parents are not in the family, of whom PLINK counts alleles."""

from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.io.base import reading
from shiftsvd.io.limits import bounded_lines, open_bytes

_NOBODY: Final = [b"0", b"0"]


def fam_founders(path: Path) -> Mask:
    """Which samples of a .fam have no parents."""
    with reading(path), open_bytes(path) as stream:
        return np.array([line.split(None, 4)[2:4] == _NOBODY for line in bounded_lines(path, stream, None)], bool)
