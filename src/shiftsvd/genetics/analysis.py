"""`shiftsvd.genetics.pca`: principal components of genotypes in files, and what they hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from shiftsvd import Info, SVDResult, svd
from shiftsvd.extend.operators import Panel, Vector, generator
from shiftsvd.extend.running import Outputs, Refused, Resources, Setting, SolverName, refuse
from shiftsvd.genetics.components import Patterson, TracyWidom
from shiftsvd.genetics.extension import Chromosomes, MatchName, ProjectName
from shiftsvd.genetics.files import RESULTS, Beds, Fileset, eigenval, eigenvec, eigenvec_allele, listed
from shiftsvd.genetics.projection import Basis, Projection, projected
from shiftsvd.genetics.scan import SelectionScan, selection_scan
from shiftsvd.genetics.selection import Cohort, Filters, Selection, selected
from shiftsvd.genetics.variants import Mask, Samples, Variants
from shiftsvd.solvers import Solver


@dataclass(frozen=True, eq=False)
class GenotypePCA:
    """Components of genotypes, with the names of samples and variants; `shiftsvd.save_model` writes it to a file.

    Parameters
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
        The frequencies p: how often the first allele of the .bim occurs among the samples.
    samples : Samples
        Arrays `families` and `names`.
    variants : Variants
        Arrays `chromosomes`, `names`, `positions`, `first` and `second` (alleles).
    used : array of bool, of shape (n_variants,)
        The variants that take part: on the chosen `chromosomes`, not filtered, and not monomorphic.
    info : Info
        Solver, passes, and bounds of the errors of the singular values.
    n_left_out : int
        How many variants are not on the chosen `chromosomes`.
    n_filtered : int
        How many variants other filters removed.
    learned : array of bool, of shape (n_samples,), or None
        The samples that components were learned on, where the others were projected.
    removed : dict
        How many variants or samples each filter removed, in their order; not kept in files of models.
    tracy_widom : TracyWidom, or None
        The test of each component, by ``pca(..., tracy_widom=True)``; not kept in files of models.
    scan : SelectionScan, or None
        The scan of all variants, by ``pca(..., scan=True)``; not kept in files of models.

    See Also
    --------
    genetics.pca : Makes one.
    genetics.Projection : New samples on its components.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> G = np.random.default_rng(0).integers(0, 3, (20, 50)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     fit = shiftsvd.genetics.pca(f"{folder}/a.bed", 2)
    >>> fit.eigenvectors.shape, fit.loadings.shape, fit.samples.names.shape
    ((20, 2), (50, 2), (20,))
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
        """How many variants have one allele only, of those that the filters keep."""
        return len(self.used) - self.n_used - self.n_left_out - self.n_filtered

    def __repr__(self) -> str:
        m, k = self.eigenvectors.shape
        dropped = f"{self.n_monomorphic} monomorphic and {self.n_left_out} not on autosomes dropped"
        dropped += f", {self.n_filtered} filtered" * (self.n_filtered > 0)
        return f"<{k} components of {m} samples x {self.n_used} variants ({dropped})>"

    def project(
        self,
        bed: Beds,
        *,
        project: ProjectName = "lsq",
        match: MatchName = "auto",
        trust_ambiguous: bool = False,
        memory_limit: int | str | None = None,
    ) -> Projection:
        """Project new samples onto these components, with the frequencies of the training samples.

        Parameters
        ----------
        bed : path, or a list of them
            A file, or one for each chromosome, of the same samples. Variants are matched by chromosome, position and
            alleles, whatever their order; swapped alleles, or those of the other strand, are counted as in the
            training.
        project : "lsq", "oadp" or "mean"
            "lsq": least squares on the genotypes that a sample has, as EIGENSOFT's lsqproject. "oadp": these scores
            beside those of the training samples, by online augmentation, decomposition and Procrustes, which takes
            away the shrinkage of more variants than samples. "mean": the mean of the training samples in place of what
            is absent or missing, which shrinks scores by that share.
        match : "auto", "position" or "name"
            "auto": by position; by name where a position is not known (0), or where positions are those of another
            build of the genome. "position" and "name" go by one of them alone.
        trust_ambiguous : bool
            Keep variants with alleles A and T, or C and G, for which both files must be of the same strand.
        memory_limit : int (bytes) or str such as "2GB", optional
            Samples are taken so many at a time as fit; each time files are read again. Default: half of what is free.

        Returns
        -------
        Projection
            Scores of the new samples, and how their variants were matched.

        Raises
        ------
        ValueError
            If no variant is in common, or names and positions point to different variants and alleles do not tell which
            are right.

        Notes
        -----
        New samples are 0 on components along which the training samples do not differ (their eigenvalue is 0).

        One read of the variants in common, and where any are absent or missing another one, for the standard errors,
        which take missing genotypes to be missing whatever they are. What linked variants have in common is estimated
        within stretches of the genome, 50 of equal numbers of variants.

        With many more variants than training samples, new samples come out nearer to 0 than the training samples among
        which they belong (Lee, Zou & Wright 2010), but with "oadp".

        References
        ----------
        Patterson, Price & Reich (2006), Population structure and eigenanalysis (EIGENSOFT); Zhang, Dey & Lee (2020),
        Fast and robust ancestry prediction using principal component analysis; Privé, Luu, Blum, McGrath &
        Vilhjálmsson (2020), Efficient toolkit implementing best practices for principal component analysis of
        population genetic data.
        """
        return projected(self.basis, Fileset.of(listed(bed)), project, match, trust_ambiguous, memory_limit)

    @property
    def basis(self) -> Basis:
        """The components as projections take them."""
        p = self.frequencies
        scale = np.where(self.used, np.sqrt(2 * p * (1 - p)), 1)
        lengths = np.sqrt(self.eigenvalues * self.n_used)
        return Basis(self.variants, self.used, 2 * p, scale, self.loadings, lengths)

    def save(self, prefix: str | PathLike[str], *, force: bool = False) -> None:
        """Write PREFIX.eigenvec (with a header), PREFIX.eigenval and PREFIX.eigenvec.allele, as plink2 --pca does.

        Parameters
        ----------
        prefix : path
            Path of the files without ``.eigenvec`` and ``.eigenval``.
        force : bool
            Replace files of these names.

        Raises
        ------
        OSError
            If a file exists and `force` is false.
        """
        vectors, values, weights = paths = [Path(f"{prefix}.{kind}") for kind in RESULTS]
        with Outputs(paths, force) as outputs:
            with eigenvec(outputs.part(vectors), self.samples, np.ones(len(self.eigenvalues))) as write:
                write(0, self.eigenvectors)
            eigenval(outputs.part(values), self.eigenvalues)
            eigenvec_allele(outputs.part(weights), self.variants.at(self.used), self.loadings[self.used])


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
    """Compute principal components of genotypes in PLINK files, samples x variants, ``(g - 2p) / sqrt(2 p (1 - p))``.

    Parameters
    ----------
    bed : path, or a list of them
        A .bed with its .bim and .fam beside it, or a .pgen with .pvar and .psam; the suffix .bed is optional. Several
        files have the same samples and other variants, such as one file for each chromosome.
    k : int
        Number of components: less than there are samples, and not more than variants take part.
    chromosomes : "autosomes" or "all"
        "autosomes" removes variants on X, Y, XY, MT, M, PAR1, PAR2 and 23 to 26 (with or without "chr", in small
        letters or capitals), which tell the sexes apart; where numbers above 26 occur, they are those of another
        species, and all numbers are kept. "all" removes none.
    solver : str or Solver
        As in `shiftsvd.svd`.
    tol : float
        Relative accuracy of the singular values.
    rng : int, Generator or None
        Seed of the solver; the same seed gives the same bits. None is fresh entropy.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.
    stream : bool, optional
        Whether to read the genotypes from the file in every pass. Default: where they would take more than half of
        `memory_limit`, as 4 bytes each.
    tracy_widom : bool
        Also the Tracy-Widom test of each component, `GenotypePCA.tracy_widom`.
    scan : bool
        Also how much each variant stands out along the components, `GenotypePCA.scan`.
    **filters
        Filters by PLINK's names, `keep`, `remove`, `extract`, `exclude`, `extract_range`, `exclude_range`,
        `exclude_long_range`, `mind`, `geno`, `hwe`, `hwe_midp`, `maf`, `unrelated`, `indep_pairwise` and `indep_order`:
        see `Selection`.

    Returns
    -------
    GenotypePCA
        Components, eigenvalues, and counts of what was removed.

    Raises
    ------
    ValueError, OSError
        If the files cannot be read or do not fit together, or there are fewer than two samples, or no variants of
        which samples have both alleles; the message begins with a name.
    ImportError
        Without the package bed-reader.

    See Also
    --------
    genetics.GenotypePCA : What is returned.
    genetics.unrelated : Whom to learn from.

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
    cohort = selected(Fileset.of(listed(bed), None, memory_limit), selection, resources)
    matrix, rng = Patterson.of(cohort.training.operator(resources, stream)), generator(rng)
    _check_rank(cohort, matrix, k)
    F = svd(matrix.A, k, shift=matrix.mean, scale=matrix.scale, solver=solver, rng=rng, tol=tol, **vars(resources))
    kept, S, U = cohort.kept, F.S.astype(np.float64), F.U.astype(np.float64)
    used, p, V = _placed(kept, matrix.both, False), _placed(kept, matrix.mean / 2, 0.0), _placed(kept, F.Vh.T, 0.0)
    V[~used] = 0
    if not kept.all():
        p[~kept] = _other_frequencies(cohort, resources)
    n_used, n_left_out = int(used.sum()), cohort.removed.get("chromosomes", 0)
    return GenotypePCA(
        S**2 / n_used,
        _all_eigenvectors(cohort, matrix, F, resources, stream),
        V,
        S**2 / matrix.total if matrix.total > 0 else np.zeros(k),
        p,
        cohort.files.samples,
        cohort.whole.variants,
        used,
        F.info,
        n_left_out,
        int(np.count_nonzero(~kept)) - n_left_out,
        cohort.learned,
        cohort.removed,
        matrix.tested(U, S, rng, resources) if tracy_widom else None,
        _scanned(cohort, matrix, U, resources) if scan else None,
    )


def _check_rank(cohort: Cohort, matrix: Patterson, k: Any) -> None:
    name, (m, n), n_used = cohort.whole.name, matrix.A.shape, int(np.count_nonzero(matrix.both))
    if m < 2:
        raise ValueError(f"{name} must have at least 2 samples, got {m}; `GenotypePCA.project` takes single ones")
    if not n_used:
        others = f"{cohort.removed.get('chromosomes', 0)} not on autosomes, which "
        raise Refused(
            f"{name} must have variants of which its samples have both alleles, got {n} that are monomorphic and ",
            *(others, Setting("chromosomes", "all"), " would keep"),
        )
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise refuse("k", "be a number of components, an integer", k)
    most = min(m - 1, n_used)
    if not 1 <= k <= most:
        counts = f"{m} samples x {n_used} variants that take part"
        raise refuse("k", f"be in 1..{most} for {counts}", k).after(f"{name}: ")


def _all_eigenvectors(
    cohort: Cohort, matrix: Patterson, F: SVDResult, resources: Resources, stream: bool | None
) -> Panel:
    # Samples that components were not learned on are projected, with the means of the others in place of missing
    # genotypes: one read where there are any.
    U, S, learned = F.U.astype(np.float64), F.S.astype(np.float64), cohort.learned
    if learned is None or learned.all():
        return U
    Z = matrix.scaled(cohort.files.filled(matrix.mean).of_samples(~learned).operator(resources, stream))
    lengths = np.where(S > np.finfo(np.float32).eps * S[0], S, np.inf)
    out = np.empty((len(learned), len(S)))
    out[learned], out[~learned] = U, Z.matmat(np.asarray(F.Vh.T)).astype(np.float64) / lengths
    return out


def _scanned(cohort: Cohort, matrix: Patterson, U: Panel, resources: Resources) -> SelectionScan:
    z, statistics, inflation, p = selection_scan(cohort.training.some(matrix.both), U, resources)
    used = _placed(cohort.kept, matrix.both, False)
    return SelectionScan(
        _placed(used, z, np.nan), _placed(used, statistics, np.nan), inflation, _placed(used, p, np.nan)
    )


def _placed(kept: Mask, values: npt.NDArray[Any], rest: bool | float) -> npt.NDArray[Any]:
    out = np.full((len(kept), *values.shape[1:]), rest)
    out[kept] = values
    return out


def _other_frequencies(cohort: Cohort, resources: Resources) -> Vector:
    training = cohort.rows.copy()
    if cohort.learned is not None:
        training[cohort.rows] = cohort.learned
    others = cohort.whole.some(~cohort.kept).of_samples(training).operator(resources, stream=True)
    frequencies: Vector = np.clip(others.moments().mean / 2, 0, 1)
    return frequencies
