"""PLINK 2 genotypes: .pgen with the .pvar and .psam that lie beside it, read by pgenlib."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Opened, optional, reading
from shiftsvd.io.formats.genotypes import Calls, Genotypes, Places
from shiftsvd.io.formats.pvar import columns, table_of
from shiftsvd.io.limits import labels, plausible_shape


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
    optional("pgenlib", "pgen")
    pvar, psam = table_of(path), path.with_suffix(".psam")
    told, people = columns(pvar, ("ID", "ALT"), memory_limit), columns(psam, ("FID", "IID"), memory_limit)
    several = next((name for name, alt in zip(told["ID"], told["ALT"], strict=True) if "," in alt), None)
    if several is not None:
        raise ValueError(
            f"{path} must have variants of two alleles, got {several} of more; keep the others with plink2 "
            "--max-alleles 2 --make-pgen"
        )
    names = people["IID"]
    if len(set(names)) < len(names) and "FID" in people:
        names = ["_".join(pair) for pair in zip(people["FID"], names, strict=True)]
    shape = len(told["ID"]), len(names)
    plausible_shape(path, shape, memory_limit)
    with _reader(path, shape[1], None) as reader:
        there = reader.get_variant_ct(), reader.get_raw_sample_ct()
    if there != shape:
        raise ValueError(f"{path} must have the {shape[0]} variants and {shape[1]} samples beside it, got {there}")
    variants, samples = labels(pvar, told["ID"], memory_limit), labels(psam, names, memory_limit)
    return Opened(PgenGenotypes(path, shape), variants, samples, samples="columns")


def _reader(path: Path, n_samples: int, samples: Places | None) -> Any:
    subset = None if samples is None else np.sort(samples).astype(np.uint32)
    with reading(path):
        return optional("pgenlib", "pgen").PgenReader(str(path).encode(), raw_sample_ct=n_samples, sample_subset=subset)


class PgenGenotypes(Genotypes):
    """Variants of a .pgen file; what `read` gives are dosages where the file has them."""

    def _numbers(self, places: Places) -> npt.NDArray[np.float32]:
        G = np.empty((len(places), self.shape[1]), np.float32)
        with _reader(self._path, self._in_file[1], self._samples) as reader, reading(self._path):
            reader.read_dosages_list(places.astype(np.uint32), G)
        G[G < 0] = np.nan
        return self._in_order(G)

    def _calls(self, places: Places) -> Calls:
        G = np.empty((len(places), self.shape[1]), np.int8)
        with _reader(self._path, self._in_file[1], self._samples) as reader, reading(self._path):
            reader.read_list(places.astype(np.uint32), G)
        return self._in_order(G)

    def _in_order(self, G: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._samples is None or np.all(np.diff(self._samples) > 0):
            return G
        return G[:, np.argsort(np.argsort(self._samples))]
