"""`shiftsvd.genetics.pca`: principal components of genotypes in PLINK files, and the fitted components."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Unpack, get_args

import numpy as np
import numpy.typing as npt

from shiftsvd import Info, SVDResult, svd
from shiftsvd.extend.fits import integer, on_places
from shiftsvd.extend.operators import Panel, Vector, generator
from shiftsvd.extend.running import Outputs, Refused, Resources, Setting, SolverName, plural, refuse
from shiftsvd.genetics import files as plink
from shiftsvd.genetics.components import Patterson, SelectionScan, TracyWidom, patterson_scale, selection_scan
from shiftsvd.genetics.extension import Chromosomes, MatchName, ProjectName, ScoresScale
from shiftsvd.genetics.projection import Basis, Projection, Target, scores_of_projected
from shiftsvd.genetics.selection import Cohort, Filters, Selection, selected
from shiftsvd.genetics.variants import Mask, Samples, Variants
from shiftsvd.solvers import Solver


class Projects(ABC):
    """Base class of models of genotypes, which project new samples."""

    def project(
        self,
        bed: plink.Beds,
        *,
        project: ProjectName = "lsq",
        match: MatchName = "auto",
        trust_ambiguous: bool = False,
        memory_limit: int | str | None = None,
    ) -> Projection:
        """Project new samples onto the components, with the allele frequencies of the training samples.

        Parameters
        ----------
        bed : path, or a list of paths
            One file, or one file per chromosome with the same samples. Variants are matched by chromosome, position and
            alleles, in any order. Genotypes of variants with swapped alleles or of the other strand are recoded to
            count the allele that the model counts.
        project : "lsq", "oadp" or "mean"
            "lsq": least squares on the genotypes that are not missing, as EIGENSOFT's lsqproject. "oadp": online
            augmentation, decomposition and Procrustes, which corrects the shrinkage of scores that occurs with more
            variants than training samples. "mean": replace absent and missing genotypes by the mean of the training
            samples, which shrinks scores by the share of these genotypes.
        match : "auto", "position" or "name"
            "position" and "name": match variants by position or by name alone. "auto": match by position, and by name
            where a position is unknown (0) or where the files use different genome builds.
        trust_ambiguous : bool
            Keep variants with alleles A and T, or C and G. Both files must then use the same strand.
        memory_limit : int (bytes) or str such as "2GB", optional
            If the samples do not fit in this limit, they are projected in groups, and the files are read again for each
            group. Default: half of the available memory.

        Returns
        -------
        Projection
            Scores of the new samples, and how many variants were matched.

        Raises
        ------
        ValueError
            If the files have no variant in common, or if names and positions point to different variants and the
            alleles do not show which are right.

        Notes
        -----
        Scores are 0 on components with eigenvalue 0, along which the training samples do not differ.

        Projection reads the variants in common once. If variants are absent or genotypes are missing, a second read
        computes standard errors, which assume that genotypes are missing at random. To account for linkage, these
        errors are estimated from sums over 50 segments of the genome with equal numbers of variants.

        With many more variants than training samples, scores of new samples are nearer to 0 than those of training
        samples of the same population (Lee, Zou & Wright 2010). "oadp" corrects this.

        References
        ----------
        Patterson, Price & Reich (2006), Population structure and eigenanalysis (EIGENSOFT); Zhang, Dey & Lee (2020),
        Fast and robust ancestry prediction using principal component analysis; Privé, Luu, Blum, McGrath &
        Vilhjálmsson (2020), Efficient toolkit implementing best practices for principal component analysis of
        population genetic data.
        """
        for name, value, choices in (("project", project, ProjectName), ("match", match, MatchName)):
            if value not in get_args(choices):
                raise refuse(name, f"be one of {', '.join(get_args(choices))}", value)
        target = Target.of(self.basis, plink.Fileset.of(plink.listed(bed)), match, trust_ambiguous)
        return target.projection(project, memory_limit)

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """Loadings, means, scales and singular values, as `Projection` needs them."""


@dataclass(frozen=True, eq=False)
class GenotypePCA(Projects):
    """Principal components of genotypes, with the names of samples and variants.

    `shiftsvd.save_model` writes them to a file.

    Parameters
    ----------
    eigenvalues : array of shape (k,)
        Eigenvalues of the relationship matrix ``Z Z^T / n_used``, where Z holds ``(g - 2p) / sqrt(2 p (1 - p))``.
    eigenvectors : array of shape (n_samples, k)
        Eigenvectors, with norm 1 over the training samples; NaN for projected samples with too few genotypes.
    loadings : array of shape (n_variants, k)
        Loadings, with norm 1; 0 for unused variants.
    explained_variance_ratio : array of shape (k,)
        Share of the total variance of each component; 0 if all samples are identical.
    frequencies : array of shape (n_variants,)
        Frequency p of the first allele of the .bim among the training samples.
    samples : Samples
        Arrays `families` and `names`.
    variants : Variants
        Arrays `chromosomes`, `names`, `positions`, `first` and `second` (alleles).
    used : array of bool, of shape (n_variants,)
        Mask of the variants used: on the chosen `chromosomes`, not removed by a filter, and not monomorphic.
    info : Info
        Solver, passes, and error bounds of the singular values.
    n_left_out : int
        Number of variants that are not on the chosen `chromosomes`.
    n_filtered : int
        Number of variants that other filters removed.
    learned : array of bool, of shape (n_samples,), or None
        Mask of the training samples; the other samples were projected. None if all samples are training samples.
    removed : dict
        Number of variants or samples that each filter removed, in the order of the filters; not saved in model files.
    tracy_widom : TracyWidom, or None
        Test of each component, if ``pca`` got ``tracy_widom=True``; not saved in model files.
    scan : SelectionScan, or None
        Selection scan of all variants, if ``pca`` got ``scan=True``; not saved in model files.
    filters : dict
        Settings of the filters, such as ``{"chromosomes": "autosomes", "maf": 0.01}``.
    lists : dict
        Functions that write the lists of samples for `save`, by the suffix of the file; not saved in model files.

    See Also
    --------
    genetics.pca : Compute the components.
    genetics.Projection : New samples projected onto the components.

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
    filters: Mapping[str, str | float] = field(default_factory=dict)
    lists: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)

    @property
    def n_used(self) -> int:
        """Number of variants used."""
        return int(np.count_nonzero(self.used))

    @property
    def n_monomorphic(self) -> int:
        """Number of variants that the filters keep but that are monomorphic in the training samples."""
        return len(self.used) - self.n_used - self.n_left_out - self.n_filtered

    def __repr__(self) -> str:
        m, k = self.eigenvectors.shape
        removed = f"removed: {self.n_monomorphic} monomorphic, {self.n_left_out} not on autosomes"
        removed += f", {self.n_filtered} by filters" * (self.n_filtered > 0)
        return f"<{k} components of {m} samples x {self.n_used} variants ({removed})>"

    @property
    def basis(self) -> Basis:
        p = self.frequencies
        scale = np.where(self.used, np.sqrt(2 * p * (1 - p)), 1)
        lengths = np.sqrt(self.eigenvalues * self.n_used)
        return Basis(self.variants, self.used, 2 * p, scale, self.loadings, lengths)

    def save(self, prefix: str | PathLike[str], *, scores_scale: ScoresScale = "unit", force: bool = False) -> None:
        """Write PREFIX.eigenvec (with a header), PREFIX.eigenval and PREFIX.eigenvec.allele, as plink2 --pca does.

        With the filter `unrelated`, also write PREFIX.projected, the list of the samples that were projected, and
        PREFIX.kin0, the pairs with a larger kinship (one read of the genotypes); with `mind`, PREFIX.mindrem.id, the
        list of the removed samples. A model file keeps the first of these lists only.

        Parameters
        ----------
        prefix : path
            Path of the files without ``.eigenvec`` and ``.eigenval``.
        scores_scale : "unit", "sqrt" or "eigen"
            Scale of PREFIX.eigenvec: eigenvectors with norm 1 over the training samples, as plink2 and smartpca write
            them; eigenvectors times the square root of their eigenvalue; or times their eigenvalue.
        force : bool
            Overwrite existing files.

        Raises
        ------
        OSError
            If a file exists and `force` is false.
        """
        if scores_scale not in get_args(ScoresScale):
            raise refuse("scores_scale", f"be one of {', '.join(get_args(ScoresScale))}", scores_scale)
        vectors, values, weights = paths = [Path(f"{prefix}.{kind}") for kind in plink.RESULTS]
        lists = dict(self.lists)
        if self.learned is not None:
            lists["projected"] = partial(plink.sample_list, samples=self.samples, rows=~self.learned)
        lengths = np.sqrt(self.eigenvalues * self.n_used)
        scores = self.eigenvectors * np.where(lengths > 0, lengths, 1)
        beside = {Path(f"{prefix}.{kind}"): write_list for kind, write_list in lists.items()}
        with Outputs([*paths, *beside], force) as outputs:
            with (
                outputs.part(vectors).open("wb") as file,
                plink.eigenvec(file, plink.component_names(len(lengths)), self.samples) as write,
            ):
                write(0, scores * plink.score_factors(scores_scale, lengths, self.n_used))
            for path, write_list in beside.items():
                write_list(outputs.part(path))
            plink.eigenval(outputs.part(values), self.eigenvalues)
            plink.eigenvec_allele(outputs.part(weights), self.variants.at(self.used), self.loadings[self.used])


def basis_of(pca: Any) -> Basis:
    components = pca.components_.astype(np.float64).T
    used = patterson_scale(pca.mean_)[1] if pca.shift is not None else np.any(components != 0, axis=1)
    scale = np.ones(len(used)) if pca.scale_ is None else pca.scale_
    return Basis(pca.variants_, used, pca.mean_, scale, components, pca.singular_values_.astype(np.float64))


def rows_of_fit(pca: Any, files: plink.Fileset) -> tuple[Any, Cohort]:
    # The training samples and the variants of the model, in the order of the files, and the model with the alleles and
    # the order of the files. Missing genotypes are filled as in the fit.
    target = Target.of(pca.basis, files, trust_ambiguous=True)
    (here, there, swapped, *_), n = target.match, int(np.count_nonzero(target.basis.used))
    if len(here) < n:
        raise ValueError(
            f"{files.name} has {len(here):,} of the {n:,} variants of the model, but all of them are needed. Pass the "
            "genotypes of the fit."
        )
    if pca.shift is None and swapped.any():
        raise ValueError(
            f"{files.name} counts the other allele of {plural(int(swapped.sum()), 'variant')}, and the model has no "
            "mean. Pass the genotypes of the fit."
        )
    rows, variants = np.ones(files.shape[0], bool), np.zeros(files.shape[1], bool)
    for mask in (getattr(pca, name, None) for name in ("kept", "learned")):
        if mask is not None and len(mask) == np.count_nonzero(rows):
            rows[rows] = mask
    variants[there] = True
    moved: Any = on_places(pca, here).set_params(missing="error", unobserved=False)
    moved.components_ = np.where(swapped, -1, 1).astype(pca.components_.dtype) * moved.components_
    moved.mean_ = np.where(swapped, 2 - moved.mean_, moved.mean_)
    own = files.of_samples(rows).of_variants(variants)
    # Without a mean, the fit filled the genotypes by the means of the training samples, as an operator of them does.
    own = own if pca.shift is None else own.filled(moved.mean_)
    return moved, Cohort(files, own, variants, rows)


def pca(
    bed: plink.Beds,
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
    bed : path, or a list of paths
        A .bed with its .bim and .fam in the same folder, or a .pgen with its .pvar and .psam. The suffix .bed is
        optional. Several files must have the same samples and different variants, such as one file per chromosome.
    k : int
        Number of components: less than the number of samples, and at most the number of variants used.
    chromosomes : "autosomes" or "all"
        "autosomes" removes variants on X, Y, XY, MT, M, PAR1, PAR2 and 23 to 26 (with or without "chr", in any case).
        If a chromosome number above 26 occurs, the species is not human, and all numbered chromosomes are kept. "all"
        keeps every variant.
    solver : str or Solver
        As in `shiftsvd.svd`.
    tol : float
        Relative accuracy of the singular values.
    rng : int, Generator or None
        Seed of the solver; the same seed gives identical results. None draws a new seed.
    n_threads, memory_limit : optional
        As in `shiftsvd.PCA`.
    stream : bool, optional
        Whether to read the genotypes from the file in every pass. Default: True if they would need more than half of
        `memory_limit` at 4 bytes per genotype.
    tracy_widom : bool
        Compute the Tracy-Widom test of each component, `GenotypePCA.tracy_widom`.
    scan : bool
        Compute a selection scan of the variants along the components, `GenotypePCA.scan`.
    **filters
        Filters with PLINK's names, `keep`, `remove`, `extract`, `exclude`, `extract_range`, `exclude_range`,
        `exclude_long_range`, `mind`, `geno`, `hwe`, `hwe_midp`, `maf`, `unrelated`, `indep_pairwise` and `indep_order`;
        see `Selection`.

    Returns
    -------
    GenotypePCA
        Components, eigenvalues, and the number of samples and variants that each filter removed.

    Raises
    ------
    ValueError, OSError
        If the files cannot be read or do not fit together, if there are fewer than two samples, or if all variants are
        monomorphic. The message starts with the name of the file.
    ImportError
        If the package pgenlib, for a .pgen, is not installed.

    See Also
    --------
    genetics.GenotypePCA : The returned components.
    genetics.unrelated : Find a set of unrelated samples to fit components on.

    Notes
    -----
    A missing genotype of a training sample is replaced by the mean of its variant; p is the allele frequency among
    genotypes that are not missing. Other samples are projected as by default in `GenotypePCA.project`. Monomorphic
    variants are removed. Variants in LD are not pruned by default; pass `indep_pairwise` to prune them.

    Passes: one for the frequencies, those of the solver (`Info.n_passes`), and one for the loadings. Removed variants
    are read once, for their frequencies.

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
    <2 components of 20 samples x 50 variants (removed: 0 monomorphic, 0 not on autosomes)>
    """
    selection, resources = Selection(chromosomes, **filters), Resources(memory_limit, n_threads)
    cohort = selected(plink.Fileset.of(plink.listed(bed), None, memory_limit), selection, resources)
    cohort.require_two_samples()
    matrix, rng = Patterson.of(cohort.training.operator(resources, stream)), generator(rng)
    _check_rank(cohort, matrix, k)
    F = svd(matrix.A, k, shift=matrix.mean, scale=matrix.scale, solver=solver, rng=rng, tol=tol, **vars(resources))
    kept, S, U = cohort.kept, F.S.astype(np.float64), F.U.astype(np.float64)
    parts = matrix.polymorphic, matrix.mean / 2, F.Vh.T.astype(np.float64)
    used, p, V = (_expand(kept, each, 0) for each in parts)
    V[~used] = 0
    if not kept.all():
        p[~kept] = _other_frequencies(cohort, resources)
    n_used, n_left_out = int(used.sum()), cohort.removed.get("chromosomes", 0)
    return GenotypePCA(
        S**2 / n_used,
        _all_eigenvectors(cohort, matrix, U, F, resources),
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
        matrix.tracy_widom(U, S, rng, resources) if tracy_widom else None,
        _selection_scan(cohort, matrix, U, resources) if scan else None,
        selection.given,
        cohort.lists,
    )


def _check_rank(cohort: Cohort, matrix: Patterson, k: Any) -> None:
    name, (m, n), n_used = cohort.whole.name, matrix.A.shape, int(np.count_nonzero(matrix.polymorphic))
    if not n_used:
        n_removed = cohort.removed.get("chromosomes", 0)
        removed = f" {plural(n_removed, 'variant')} not on autosomes {'was' if n_removed == 1 else 'were'} removed."
        remedy = (f"{removed} To keep all, use ", Setting("chromosomes", "all"), ".")
        raise Refused(
            f"{name} has no variant with both alleles among its samples: {plural(n, 'variant')} "
            f"{'is' if n == 1 else 'are'} monomorphic.",
            *(remedy if n_removed else (" Pass more samples.",)),
        )
    integer("k", k, 1, min(m - 1, n_used), f" for {m:,} samples x {n_used:,} variants in use of {name}")


def _all_eigenvectors(cohort: Cohort, matrix: Patterson, U: Panel, F: SVDResult, resources: Resources) -> Panel:
    # Project the samples that are not training samples: one read if there are such samples, and none otherwise.
    S, learned = F.S.astype(np.float64), cohort.learned
    if learned is None or learned.all():
        return U
    V, variants = np.asarray(F.Vh.T, np.float64), cohort.files.variants
    basis = Basis(variants, matrix.polymorphic, matrix.mean, matrix.scale, V, S)
    scores = scores_of_projected(basis, cohort.files.of_samples(~learned), resources.memory_limit)
    out = np.empty((len(learned), len(S)))
    out[learned], out[~learned] = U, scores / np.where(basis.nonzero, S, 1)
    return out


def _selection_scan(cohort: Cohort, matrix: Patterson, U: Panel, resources: Resources) -> SelectionScan:
    found = selection_scan(cohort.training.of_variants(matrix.polymorphic), U, resources)
    used = _expand(cohort.kept, matrix.polymorphic, 0)
    z, statistics, p = (_expand(used, each, np.nan) for each in (found.z_scores, found.statistics, found.p_values))
    return SelectionScan(z, statistics, found.inflation, p)


def _expand(kept: Mask, values: npt.NDArray[Any], rest: float) -> npt.NDArray[Any]:
    out = np.full((len(kept), *values.shape[1:]), rest, values.dtype)
    out[kept] = values
    return out


def _other_frequencies(cohort: Cohort, resources: Resources) -> Vector:
    training = cohort.rows.copy()
    if cohort.learned is not None:
        training[cohort.rows] = cohort.learned
    others = cohort.whole.of_variants(~cohort.kept).of_samples(training).operator(resources, stream=True)
    return np.asarray(np.clip(others.moments().mean / 2, 0, 1))
