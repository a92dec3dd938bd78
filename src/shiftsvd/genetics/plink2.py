"""Variants and samples of .pgen files, as those of .bed files are known."""

from pathlib import Path

import numpy as np

from shiftsvd.genetics.alleles import Samples, Variants
from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.io.formats.pvar import columns
from shiftsvd.io.limits import labels

_NOBODY = ("0", "0")


def pvar_variants(path: Path) -> Variants:
    told = columns(path, ("CHROM", "ID", "POS", "ALT", "REF"))
    chromosomes, names, positions = (labels(path, told[name], None) for name in ("CHROM", "ID", "POS"))
    return Variants(chromosomes, names, positions, np.array(told["ALT"], object), np.array(told["REF"], object))


def psam_samples(path: Path) -> Samples:
    told = columns(path, ("FID", "IID"))
    families = told.get("FID", ["0"] * len(told["IID"]))
    return Samples(labels(path, families, None), labels(path, told["IID"], None))


def psam_founders(path: Path) -> Mask:
    told = columns(path, ("IID", "PAT", "MAT"))
    nobody = ["0"] * len(told["IID"])
    parents = zip(told.get("PAT", nobody), told.get("MAT", nobody), strict=True)
    return np.array([both == _NOBODY for both in parents], bool)
