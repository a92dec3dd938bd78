"""Genotypes in a file: variants as rows, samples as columns, all of them or some."""

from abc import abstractmethod
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.backends.source import RowSource
from shiftsvd.io.base import Opened
from shiftsvd.io.storage.chunked import fingerprint_of

Places = npt.NDArray[np.intp]
Calls = npt.NDArray[np.int8]  # counts of the first allele, 0 to 2; whatever is negative is missing


class Genotypes(RowSource):
    """Counts of the first allele of variants, of all variants and samples of a file or those at some places.

    Places of variants ascend, those of samples are in any order. A missing genotype is the mean given for its variant,
    or that of the other samples here.
    """

    sparse = False
    dtype = np.dtype(np.float32)

    def __init__(
        self,
        path: Path,
        in_file: tuple[int, int],
        places: Places | None = None,
        means: npt.NDArray[Any] | None = None,
        samples: Places | None = None,
    ) -> None:
        self._path, self._in_file, self._means, self._samples = path, in_file, means, samples
        self._places = np.arange(in_file[0]) if places is None else places
        self.shape = len(self._places), in_file[1] if samples is None else len(samples)
        self.name = str(path)
        chosen = [places, means, samples]
        self.fingerprint = fingerprint_of(path, "" if all(part is None for part in chosen) else _told(chosen))

    @property
    def places(self) -> Places:
        return self._places

    @abstractmethod
    def _numbers(self, places: Places) -> npt.NDArray[np.float32]: ...

    @abstractmethod
    def _calls(self, places: Places) -> Calls: ...

    def some(self, kept: npt.NDArray[np.bool_]) -> Self:
        means = None if self._means is None else self._means[kept]
        return type(self)(self._path, self._in_file, self._places[kept], means, self._samples)

    def of_samples(self, kept: npt.NDArray[np.bool_] | Places) -> Self:
        samples = np.arange(self.shape[1])[kept] if self._samples is None else self._samples[kept]
        return type(self)(self._path, self._in_file, self._places, self._means, samples)

    def filled(self, means: npt.NDArray[Any]) -> Self:
        return type(self)(self._path, self._in_file, self._places, means, self._samples)

    def edges(self, n_bytes: int) -> list[int]:
        step = max(1, n_bytes // (4 * max(1, self.shape[1])))
        return [*range(0, self.shape[0], step), self.shape[0]]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        G = self._numbers(self._places[lo:hi])
        missing = np.isnan(G)
        np.copyto(G, 0, where=missing)
        means = _means(G, missing) if self._means is None else self._means[lo:hi]
        np.copyto(G, means[:, None], where=missing, casting="same_kind")
        return G

    def calls(self, lo: int, hi: int) -> Calls:
        return self._calls(self._places[lo:hi])


def some(opened: Opened, kept: npt.NDArray[np.bool_]) -> Opened:
    assert opened.rows is not None
    return replace(opened, matrix=opened.matrix.some(kept), rows=opened.rows[kept])


def of_samples(opened: Opened, kept: npt.NDArray[np.bool_]) -> Opened:
    assert opened.columns is not None
    return replace(opened, matrix=opened.matrix.of_samples(kept), columns=opened.columns[kept])


def of_places(opened: Opened, places: Places) -> Opened:
    if np.array_equal(places, np.arange(len(places))):
        return opened
    assert opened.columns is not None
    return replace(opened, matrix=opened.matrix.of_samples(places), columns=opened.columns[places])


def filled(opened: Opened, means: npt.NDArray[Any]) -> Opened:
    return replace(opened, matrix=opened.matrix.filled(means))


def _means(G: npt.NDArray[np.float32], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    means: npt.NDArray[np.float64] = G.sum(axis=1, dtype=np.float64)
    means /= np.maximum(G.shape[1] - missing.sum(axis=1), 1)
    return means


def _told(parts: list[npt.NDArray[Any] | None]) -> str:
    content = b"|".join(b"" if part is None else part.tobytes() for part in parts)
    return blake2b(content, digest_size=8).hexdigest()
