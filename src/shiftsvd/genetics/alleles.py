"""Who the samples are and what the variants are: .fam and .bim."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Labels
from shiftsvd.io.formats.plink_rows import fields
from shiftsvd.io.limits import labels

Alleles = npt.NDArray[np.object_]  # texts: an insertion may be long, and only a few are


class Samples(NamedTuple):
    """What a .fam says, one entry for each sample.

    Parameters
    ----------
    families : array of str, of shape (n_samples,)
        The FID of each sample.
    names : array of str, of shape (n_samples,)
        The IID of each sample.

    See Also
    --------
    genetics.Variants : The other side.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Samples
    >>> Samples(families=np.array(["f1", "f1"]), names=np.array(["ann", "bob"])).names[1].item()
    'bob'
    """

    families: Labels
    names: Labels


class Variants(NamedTuple):
    """What a .bim says, one entry for each variant; genotypes count the first allele.

    Parameters
    ----------
    chromosomes : array of str, of shape (n_variants,)
        As they are written in the file.
    names : array of str, of shape (n_variants,)
        Such as "rs123".
    positions : array of str, of shape (n_variants,)
        Base pairs from the beginning of the chromosome, as they are written.
    first : array of str, of shape (n_variants,)
        The allele that genotypes count: A1 of PLINK 1.
    second : array of str, of shape (n_variants,)
        The other allele: A2 of PLINK 1.

    See Also
    --------
    genetics.Samples : The other side.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Variants
    >>> alleles = np.array(["A", "C"], object), np.array(["G", "T"], object)
    >>> variants = Variants(np.array(["1", "X"]), np.array(["rs1", "rs2"]), np.array(["100", "200"]), *alleles)
    >>> variants.at(np.array([1])).names.tolist()
    ['rs2']
    """

    chromosomes: Labels
    names: Labels
    positions: Labels
    first: Alleles
    second: Alleles

    def at(self, places: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Variants":
        """The variants at some places, in that order.

        Parameters
        ----------
        places : array of int or bool
            Which variants, by their numbers from 0 or as a mask.

        Returns
        -------
        Variants
            Those variants.
        """
        texts = (self.chromosomes[places], self.names[places], self.positions[places])
        return Variants(*texts, self.first[places], self.second[places])


def read_samples(path: Path) -> Samples:
    rows = fields(path, (0, 1))
    return Samples(*(labels(path, column, None) for column in rows))


def read_variants(path: Path) -> Variants:
    *told, first, second = fields(path, (0, 1, 3, 4, 5))
    chromosomes, names, positions = (labels(path, column, None) for column in told)
    return Variants(chromosomes, names, positions, np.array(first, object), np.array(second, object))
