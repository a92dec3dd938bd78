"""`unrelated`: kinship of all pairs of samples in a file, and a set of which no two are related."""

from typing import NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from shiftsvd.genetics.alleles import Samples
from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.genetics.kinship import kinship_matrix, unrelated_mask
from shiftsvd.genetics.selection import Filters, Selection, on_autosomes, selected
from shiftsvd.genetics.several import Beds, beds, parts_of
from shiftsvd.names import Chromosomes
from shiftsvd.runs.memory import Resources


class Kinship(NamedTuple):
    """Who is related to whom.

    Parameters
    ----------
    samples : Samples
        The samples, in the order of the file.
    kinship : array of shape (n_samples, n_samples)
        KING-robust: about 0.25 for parents, children and siblings, 0.125 and 0.0625 for the second and third degree,
        0.5 for twins and duplicates; NaN where neither sample is heterozygous anywhere.
    unrelated : array of bool, of shape (n_samples,)
        A set of samples of which no two have a kinship above the cutoff.

    See Also
    --------
    genetics.unrelated : Makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Kinship, Samples
    >>> samples = Samples(np.array(["f", "f"]), np.array(["mother", "child"]))
    >>> found = Kinship(samples, np.array([[0.5, 0.25], [0.25, 0.5]]), np.array([True, False]))
    >>> found.samples.names[found.unrelated].tolist()
    ['mother']
    """

    samples: Samples
    kinship: npt.NDArray[np.float64]
    unrelated: Mask


def unrelated(
    bed: Beds,
    cutoff: float = 0.0884,
    *,
    chromosomes: Chromosomes = "autosomes",
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    **filters: Unpack[Filters],
) -> Kinship:
    """Kinship of all pairs of samples in a PLINK 1 file, and a set of samples of which no two are related.

    Parameters
    ----------
    bed : path, or a list of them
        As in `pca`.
    cutoff : float in 0..0.5
        The largest kinship of two samples of the set: 0.177, 0.0884 and 0.0442 lie below the first, the second and the
        third degree.
    chromosomes : "autosomes" or "all"
        As in `pca`. Kinship is of variants on autosomes.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.
    **filters
        As in `pca`, but for `unrelated`. Do not prune for kinship: its authors advise against it.

    Returns
    -------
    Kinship
        Kinship, and which samples are kept.

    Raises
    ------
    ValueError, OSError
        If the files cannot be read, or there are more than 20 000 samples, or more than the memory limit allows.

    See Also
    --------
    genetics.pca : ``unrelated=`` learns from them alone.

    Notes
    -----
    KING-robust between families: Manichaikul et al. (2010), Robust relationship inference in genome-wide association
    studies, equation 11. The set is a greedy one, which need not be the largest. One read beside those of the filters,
    ``6 n^2`` operations for each variant, and ``16 n^2`` bytes.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> rng = np.random.default_rng(0)
    >>> G = rng.binomial(2, rng.uniform(0.1, 0.9, 2000), (20, 2000)).astype(np.float32)
    >>> G[7] = G[3]                                   # twins
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     found = shiftsvd.genetics.unrelated(f"{folder}/a.bed")
    >>> float(found.kinship[3, 7]), int(found.unrelated.sum())
    (0.5, 19)
    """
    if filters.get("unrelated") is not None:
        raise ValueError(f"unrelated takes its cutoff as cutoff, got unrelated={filters['unrelated']!r} besides")
    Selection(unrelated=cutoff)  # which refuses what is no kinship
    paths, resources = beds(bed), Resources(memory_limit, n_threads)
    cohort = selected(paths, parts_of(paths, None, memory_limit), Selection(chromosomes, **filters), resources)
    kinship = kinship_matrix(on_autosomes(cohort), resources)
    return Kinship(cohort.samples, kinship, unrelated_mask(kinship, cutoff))
