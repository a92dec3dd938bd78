"""Principal components of genotypes, scaled as Patterson, Price & Reich (2006) do it, from PLINK 1 files.

The genotypes stay in the file, 2 bits for each, unless there is room for them; centring, scaling and the means in place
of what is missing are applied block by block.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from shiftsvd.genetics.alleles import Alignment, Samples, Variants, aligned
from shiftsvd.genetics.components import check_rank, decomposed, everybody, patterson_matrix, placed, scanned, tested
from shiftsvd.genetics.plink_files import eigenval, eigenvec, eigenvec_allele
from shiftsvd.genetics.relatives import Kinship, unrelated
from shiftsvd.genetics.scan import SelectionScan
from shiftsvd.genetics.selection import Cohort, Filters, Selection, selected
from shiftsvd.genetics.several import (
    Beds,
    beds,
    joined,
    of_samples,
    parts_of,
    samples_of,
    some_of,
    variants_at,
    variants_of,
)
from shiftsvd.genetics.tracy_widom import TracyWidom, tracy_widom
from shiftsvd.io.base import optional, reading
from shiftsvd.io.opening import operator_of, read_file
from shiftsvd.io.stacking import several
from shiftsvd.names import Chromosomes, SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.result import Info
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.outputs import Outputs
from shiftsvd.sketch import generator
from shiftsvd.solvers import Solver

__all__ = [
    "GenotypePCA",
    "Kinship",
    "Projection",
    "Samples",
    "Selection",
    "SelectionScan",
    "TracyWidom",
    "Variants",
    "pca",
    "tracy_widom",
    "unrelated",
]

_BLOCK = 2**25  # bytes of genotypes in memory while new samples are projected
# Singular values below this share of the first are rounding: genotypes are multiplied in single precision.
_NOTHING = float(np.finfo(np.float32).eps)


class Projection(NamedTuple):
    """New samples on the components of others.

    Attributes
    ----------
    eigenvectors : array of shape (n_samples, k)
        In the units of `GenotypePCA.eigenvectors`.
    samples : Samples
    n_used, n_flipped, n_absent, n_mismatched : int
        Variants of the components that were used (of which so many with their alleles swapped), that the new file does
        not have, and that have other alleles there. The last two count as the mean of the training samples.
    """

    eigenvectors: Panel
    samples: Samples
    n_used: int
    n_flipped: int
    n_absent: int
    n_mismatched: int


@dataclass(frozen=True, eq=False)
class GenotypePCA:
    """Components of genotypes, with the names of samples and variants; `shiftsvd.save_model` keeps all of it.

    Attributes
    ----------
    eigenvalues : array of shape (k,)
        Of the relationship matrix ``Z Z^T / n_used``, where Z holds ``(g - 2p) / sqrt(2 p (1 - p))``.
    eigenvectors : array of shape (n_samples, k)
        Of length 1, over the samples that they were learned from.
    loadings : array of shape (n_variants, k)
        Of length 1; 0 for variants that take no part.
    explained_variance_ratio : array of shape (k,)
        0 where no sample differs from another.
    frequencies : array of shape (n_variants,)
        p: how often the first allele of the .bim occurs among the samples.
    samples : Samples
        Arrays `families` and `names`.
    variants : Variants
        Arrays `chromosomes`, `names`, `positions`, `first` and `second` (alleles).
    used : array of bool, of shape (n_variants,)
        The variants that take part: they are on the chromosomes asked for, and not monomorphic.
    info : Info
    n_left_out : int
        How many variants are on other chromosomes than those asked for.
    n_filtered : int
        How many variants other filters removed.
    learned : array of bool, of shape (n_samples,), or None
        The samples that components were learned on, where the others were projected.
    removed : dict
        How many variants or samples each filter removed, in their order; not kept in files of models.
    tracy_widom : TracyWidom, or None
    scan : SelectionScan, or None
        What `pca` was asked for besides; not kept in files of models.
    """

    eigenvalues: Vector
    eigenvectors: Panel
    loadings: Panel
    explained_variance_ratio: Vector
    frequencies: Vector
    samples: Samples
    variants: Variants
    used: npt.NDArray[np.bool_]
    info: Info
    n_left_out: int = 0
    n_filtered: int = 0
    learned: npt.NDArray[np.bool_] | None = None
    removed: Mapping[str, int] = field(default_factory=dict)
    tracy_widom: TracyWidom | None = None
    scan: SelectionScan | None = None

    @property
    def n_used(self) -> int:
        """How many variants take part."""
        return int(np.count_nonzero(self.used))

    @property
    def n_monomorphic(self) -> int:
        """How many variants on the chromosomes asked for have one allele only."""
        return len(self.used) - self.n_used - self.n_left_out - self.n_filtered

    def __repr__(self) -> str:
        m, k = self.eigenvectors.shape
        dropped = f"{self.n_monomorphic} monomorphic and {self.n_left_out} not on autosomes dropped"
        dropped += f", {self.n_filtered} filtered" * (self.n_filtered > 0)
        return f"<{k} components of {m} samples x {self.n_used} variants ({dropped})>"

    def project(self, bed: Beds) -> Projection:
        """New samples on these components, by the frequencies of the training samples.

        Parameters
        ----------
        bed : path, or a list of them
            A file, or one for each chromosome, of the same samples. Variants are matched by their names (by
            chromosome and position where the name is "."; chr1 is 1), and where the two alleles are swapped the
            genotypes are counted the other way round; a is A. A missing genotype is the mean of the training samples.

        Raises
        ------
        ValueError
            If no variant matches, or names that are needed occur twice.

        Notes
        -----
        New samples are 0 on components along which the training samples do not differ (their eigenvalue is 0).

        One read of the variants in common. With many more variants than training samples, new samples come out nearer
        to 0 than the training samples among which they belong (Lee, Zou & Wright 2010); compare projected samples with
        projected samples.
        """
        paths = beds(bed)
        samples, variants = samples_of(paths), variants_of(paths)
        match = aligned(self.variants, self.used, variants)
        if not len(match.here):
            raise ValueError(
                f"{several(paths)} has none of the {self.n_used} variants of the components: {match.n_absent} are not "
                "there by name (name variants alike: plink2 --set-all-var-ids), "
                f"{match.n_mismatched} have other alleles "
                "there (bring both files to the same strand of the same reference: plink2 --ref-from-fa)"
            )
        Z = np.zeros((len(samples.names), len(self.eigenvalues)))
        scale = np.sqrt(2 * self.frequencies * (1 - self.frequencies))
        for block, G in _genotypes(paths, len(samples.names), match):
            known = self.frequencies[block.here]
            centred = np.where(block.swapped, 2 - G, G) - 2 * known
            np.copyto(centred, 0, where=np.isnan(centred))
            Z += centred @ (self.loadings[block.here] / scale[block.here, None])
        lengths = np.sqrt(self.eigenvalues * self.n_used)
        Z = np.divide(Z, lengths, out=np.zeros_like(Z), where=lengths > _NOTHING * lengths[0])
        flipped = int(np.count_nonzero(match.swapped))
        return Projection(Z, samples, len(match.here), flipped, match.n_absent, match.n_mismatched)

    def save(self, prefix: str | PathLike[str], *, force: bool = False) -> None:
        """Write PREFIX.eigenvec (with a header), PREFIX.eigenval and PREFIX.eigenvec.allele, as plink2 --pca does.

        Parameters
        ----------
        prefix : path
        force : bool
            Replace files of these names.

        Raises
        ------
        OSError
            If a file exists and `force` is false.
        """
        vectors, values, weights = (Path(f"{prefix}.{kind}") for kind in ("eigenvec", "eigenval", "eigenvec.allele"))
        with Outputs([vectors, values, weights], force) as outputs:
            with eigenvec(outputs.part(vectors), self.samples, self.eigenvectors.shape[1]) as write:
                write(0, self.eigenvectors)
            eigenval(outputs.part(values), self.eigenvalues)
            used = variants_at(self.variants, self.used)
            eigenvec_allele(outputs.part(weights), used, self.loadings[self.used])


def pca(
    bed: Beds,
    k: int = 10,
    *,
    chromosomes: Chromosomes = "autosomes",
    solver: SolverName | Solver = "auto",
    tol: float = 1e-6,
    rng: int | np.random.Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    stream: bool | None = None,
    tracy_widom: bool = False,
    scan: bool = False,
    **filters: Unpack[Filters],
) -> GenotypePCA:
    """Principal components of the genotypes in a PLINK 1 file: samples x variants, ``(g - 2p) / sqrt(2 p (1 - p))``.

    Parameters
    ----------
    bed : path, or a list of them
        A .bed file, beside which are its .bim and .fam; the suffix may be left out. Several are files of the same
        samples and other variants, such as one for each chromosome.
    k : int
        Number of components: less than there are samples, and not more than variants take part.
    chromosomes : "autosomes" or "all"
        "autosomes" leaves out variants on X, Y, XY, MT, M, PAR1, PAR2 and 23 to 26 (with or without "chr", in small
        letters or capitals), which tell the sexes apart; where numbers above 26 occur, they are those of another
        species, and all numbers stay. "all" leaves out none.
    solver, tol, rng, n_threads, memory_limit
        As in `shiftsvd.svd`; `tol` is the relative accuracy of the singular values.
    stream : bool, optional
        Whether the genotypes stay in the file. Default: where they would take more than half of `memory_limit`, as
        4 bytes each.
    tracy_widom : bool
        Also the Tracy-Widom test of each component, `GenotypePCA.tracy_widom`.
    scan : bool
        Also how much each variant stands out along the components, `GenotypePCA.scan`.
    **filters
        Which samples and variants take part, by PLINK's names: `keep`, `remove`, `extract`, `exclude`,
        `extract_range`, `exclude_range`, `exclude_long_range`, `mind`, `geno`, `hwe`, `hwe_midp`, `maf`, `unrelated`
        and `indep_pairwise`, as in `Selection`, which also says in what order. With `unrelated` components are learned
        on samples of which no two are related, and the others are projected.

    Returns
    -------
    GenotypePCA

    Raises
    ------
    ValueError, OSError
        If the files cannot be read or do not fit together, or there are fewer than two samples, or no variants of
        which samples have both alleles; the message begins with a name.
    ImportError
        Without the package bed-reader.

    Notes
    -----
    A missing genotype is the mean of its variant, p the frequency among those that are not missing. Monomorphic
    variants are dropped. Nothing is thinned out unasked: variants in strong linkage should be pruned, by
    `indep_pairwise`.

    Passes: one for the frequencies, those of the solver (`Info.n_passes`), one for the loadings. Variants that are left
    out are read once, for their frequencies, and never multiplied.

    References
    ----------
    Patterson, Price & Reich (2006), Population structure and eigenanalysis.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> G = np.random.default_rng(0).integers(0, 3, (20, 50)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     shiftsvd.genetics.pca(f"{folder}/a.bed", 2)
    <2 components of 20 samples x 50 variants (0 monomorphic and 0 not on autosomes dropped)>
    """
    selection, resources = Selection(chromosomes, **filters), Resources(memory_limit, n_threads)
    paths = beds(bed)
    cohort = selected(paths, parts_of(paths, None, memory_limit), selection, resources)
    matrix, rng = patterson_matrix(cohort, resources, stream), generator(rng)
    check_rank(cohort, matrix, k)
    F = decomposed(matrix, k, resources, solver=solver, rng=rng, tol=tol)
    kept = cohort.kept
    used, p = placed(kept, matrix.both, False), placed(kept, matrix.mean / 2, 0.0)
    V = placed(kept, F.Vh.T, 0.0)
    V[~used] = 0
    if not kept.all():
        p[~kept] = _other_frequencies(cohort, resources)
    S, U = F.S.astype(np.float64), F.U.astype(np.float64)
    S2, n_used, n_left_out = S**2, int(used.sum()), cohort.removed.get("chromosomes", 0)
    return GenotypePCA(
        S2 / n_used,
        everybody(cohort, matrix, F, resources, stream),
        V,
        S2 / matrix.total if matrix.total > 0 else np.zeros(k),
        p,
        cohort.samples,
        cohort.variants,
        used,
        F.info,
        n_left_out,
        int(np.count_nonzero(~kept)) - n_left_out,
        cohort.learned,
        cohort.removed,
        tested(matrix, U, S, n_used, rng, resources) if tracy_widom else None,
        scanned(cohort, matrix, F, resources) if scan else None,
    )


def _other_frequencies(cohort: Cohort, resources: Resources) -> Vector:
    """How often the first allele occurs where variants take no part, among the samples that do; one read."""
    parts = some_of(parts_of(cohort.paths, None, resources.memory_limit), ~cohort.kept)
    rows = np.flatnonzero(cohort.rows)[slice(None) if cohort.learned is None else cohort.learned]
    training = np.isin(np.arange(len(cohort.rows)), rows)
    others, _ = operator_of(cohort.paths, joined(of_samples(parts, training)), resources, stream=True)
    frequencies: Vector = np.clip(others.moments().mean / 2, 0, 1)
    return frequencies


def _genotypes(paths: list[Path], m: int, match: Alignment) -> Iterator[tuple[Alignment, Panel]]:
    """Blocks of the variants in common, samples x variants, with NaN where they are missing."""
    optional("bed_reader", "genetics")
    from bed_reader import open_bed

    first = 0
    for path in paths:
        # The shape is checked, and the file too, where it is opened as a matrix; the numbers come with their gaps here.
        n = read_file(path, "bed", None, None).matrix.shape[0]
        begin, end = np.searchsorted(match.there, [first, first + n])
        with reading(path):
            file = open_bed(path, iid_count=m, sid_count=n)
            step = max(_BLOCK // (8 * m), 1)
            for lo in range(begin, end, step):
                block = match.part(lo, min(lo + step, end))
                yield block, file.read(np.s_[:, block.there - first], dtype="float64")
        first += n
