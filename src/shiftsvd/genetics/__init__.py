"""Principal components of genotypes, scaled as Patterson, Price & Reich (2006) do it, from PLINK 1 files.

The genotypes stay in the file, 2 bits for each, unless there is room for them; centring, scaling and the means in place
of what is missing are applied block by block.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.front import svd
from shiftsvd.genetics.alleles import Samples, Variants
from shiftsvd.genetics.chromosomes import CHOICES, chosen
from shiftsvd.genetics.projection import Basis, Projection, projected
from shiftsvd.genetics.several import joined, parts_of, samples_of, some_of, variants_of
from shiftsvd.io.opening import operator_of
from shiftsvd.io.stacking import several
from shiftsvd.names import Chromosomes, MatchName, ProjectName, SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.result import Info
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.outputs import Outputs
from shiftsvd.solvers import Solver

__all__ = ["GenotypePCA", "Projection", "Samples", "Variants", "pca"]

Beds = str | PathLike[str] | Sequence[str | PathLike[str]]  # one file, or one for each chromosome


@dataclass(frozen=True, eq=False)
class GenotypePCA:
    """Components of genotypes, with the names of samples and variants; `shiftsvd.save_model` keeps all of it.

    Attributes
    ----------
    eigenvalues : array of shape (k,)
        Of the relationship matrix ``Z Z^T / n_used``, where Z holds ``(g - 2p) / sqrt(2 p (1 - p))``.
    eigenvectors : array of shape (n_samples, k)
        Of length 1.
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

    @property
    def n_used(self) -> int:
        """How many variants take part."""
        return int(np.count_nonzero(self.used))

    @property
    def n_monomorphic(self) -> int:
        """How many variants on the chromosomes asked for have one allele only."""
        return len(self.used) - self.n_used - self.n_left_out

    def __repr__(self) -> str:
        m, k = self.eigenvectors.shape
        dropped = f"{self.n_monomorphic} monomorphic and {self.n_left_out} not on autosomes dropped"
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
        """New samples on these components, by the frequencies of the training samples.

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

        Raises
        ------
        ValueError
            If no variant is in common, or names and positions point to different variants and alleles do not tell which
            are right.

        Notes
        -----
        New samples are 0 on components along which the training samples do not differ (their eigenvalue is 0).

        One read of the variants in common, and where any are absent or missing another one, for the standard errors,
        which take missing genotypes to be missing whatever they are, and residuals of variants to be independent: they
        are too small where long stretches of linked variants are absent.

        With many more variants than training samples, new samples come out nearer to 0 than the training samples among
        which they belong (Lee, Zou & Wright 2010), but with "oadp".

        References
        ----------
        Patterson, Price & Reich (2006), Population structure and eigenanalysis (EIGENSOFT); Zhang, Dey & Lee (2020),
        Fast and robust ancestry prediction using principal component analysis; Privé, Luu, Blum, McGrath &
        Vilhjálmsson (2020), Efficient toolkit implementing best practices for principal component analysis of
        population genetic data.
        """
        parts = parts_of(_beds(bed), None, None)
        return projected(self._basis, parts, project, match, trust_ambiguous, memory_limit)

    @property
    def _basis(self) -> Basis:
        """What projections take of these components."""
        p = self.frequencies
        scale = np.where(self.used, np.sqrt(2 * p * (1 - p)), 1)
        lengths = np.sqrt(self.eigenvalues * self.n_used)
        return Basis(self.variants, self.used, 2 * p, scale, self.loadings, lengths)

    def save(self, prefix: str | PathLike[str], *, force: bool = False) -> None:
        """Write PREFIX.eigenvec (with a header) and PREFIX.eigenval, as plink2 --pca does.

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
        vectors, values = Path(f"{prefix}.eigenvec"), Path(f"{prefix}.eigenval")
        with Outputs([vectors, values], force) as outputs:
            with eigenvec(outputs.part(vectors), self.samples, self.eigenvectors.shape[1]) as write:
                write(0, self.eigenvectors)
            eigenval(outputs.part(values), self.eigenvalues)


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
    variants are dropped. Nothing is thinned out: variants in strong linkage should have been pruned before.

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
    if chromosomes not in CHOICES:
        raise ValueError(f'chromosomes must be "autosomes" or "all", got {chromosomes!r}')
    paths = _beds(bed)
    name, parts = Path(several(paths)), parts_of(paths, None, memory_limit)
    samples, variants = samples_of(paths), variants_of(paths)
    kept = chosen(variants.chromosomes, chromosomes, name)
    resources = Resources(memory_limit, n_threads)
    A, _ = operator_of(paths, joined(some_of(parts, kept)), resources, stream)
    moments = A.moments()
    assert moments.M2 is not None
    scale, both = patterson(moments.mean)
    n_left_out = int(np.count_nonzero(~kept))
    _check_rank(name, k, A.shape, int(np.count_nonzero(both)), n_left_out)
    # A monomorphic variant is a constant: minus it, it is 0 and takes no part.
    mean = np.where(both, moments.mean, np.round(moments.mean))
    F = svd(A, k, shift=mean, scale=scale, solver=solver, rng=rng, tol=tol, **vars(resources))
    used, p, V = _placed(kept, both, False), _placed(kept, mean / 2, 0.0), _placed(kept, F.Vh.T, 0.0)
    V[~used] = 0
    if n_left_out:
        others, _ = operator_of(paths, joined(some_of(parts, ~kept)), resources, stream=True)
        p[~kept] = np.clip(others.moments().mean / 2, 0, 1)
    S2, U = F.S.astype(np.float64) ** 2, F.U.astype(np.float64)
    total = float((moments.M2[both] / scale[both] ** 2).sum())
    ratio = S2 / total if total > 0 else np.zeros(k)
    return GenotypePCA(S2 / np.count_nonzero(used), U, V, ratio, p, samples, variants, used, F.info, n_left_out)


def _beds(bed: Beds) -> list[Path]:
    """The .bed of each prefix."""
    given = [bed] if isinstance(bed, str | PathLike) else list(bed)
    if not given:
        raise ValueError("bed must name at least one file, got an empty list")
    return [Path(path) if Path(path).suffix.lower() == ".bed" else Path(f"{path}.bed") for path in given]


def _check_rank(path: Path, k: Any, shape: tuple[int, int], n_used: int, n_left_out: int) -> None:
    """Refuse files without components, and more components than there are: centring takes one from the samples."""
    m, n = shape
    if m < 2:
        raise ValueError(f"{path} must have at least 2 samples, got {m}; `GenotypePCA.project` takes single ones")
    if not n_used:
        raise ValueError(
            f"{path} must have variants of which its samples have both alleles, got {n} that are monomorphic "
            f'and {n_left_out} not on autosomes, which chromosomes "all" would keep'
        )
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise ValueError(f"k must be a number of components, an integer, got {k!r}")
    most = min(m - 1, n_used)
    if not 1 <= k <= most:
        counts = f"{m} samples x {n_used} variants that take part"
        raise ValueError(f"{path}: k must be in 1..{most} for {counts}, got {k}")


def _placed(kept: npt.NDArray[np.bool_], values: npt.NDArray[Any], rest: bool | float) -> npt.NDArray[Any]:
    """Values of the variants that are kept, and something for the others; in double precision if they are numbers."""
    out = np.full((len(kept), *values.shape[1:]), rest)
    out[kept] = values
    return out


def patterson(mean: Vector) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """``sqrt(2 p (1 - p))`` of variants with these means 2p, 1 for monomorphic ones; and which are not."""
    p = mean / 2
    # A frequency that is not 0 or 1 is at least one allele among all samples away from it.
    used = (p > 1e-12) & (p < 1 - 1e-12)
    return np.sqrt(2 * p * (1 - p), out=np.ones_like(p), where=used), used


@contextmanager
def eigenvec(path: Path, samples: Samples, k: int) -> Iterator[Callable[[int, Panel], None]]:
    """PLINK's file of k eigenvectors: a header, and a line for each sample, which come in blocks."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(["#FID", "IID", *(f"PC{j}" for j in range(1, k + 1))]) + "\n")

        def write(first: int, U: Panel) -> None:
            part = slice(first, first + len(U))
            for family, name, row in zip(samples.families[part], samples.names[part], U, strict=True):
                file.write("\t".join([family, name, *(f"{value:.9g}" for value in row)]) + "\n")

        yield write


def eigenval(path: Path, eigenvalues: Iterable[float]) -> None:
    """PLINK's file of eigenvalues, one a line."""
    path.write_text("".join(f"{value:.9g}\n" for value in eigenvalues), encoding="utf-8", newline="\n")
