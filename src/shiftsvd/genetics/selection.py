"""PLINK's filters of samples and variants, in PLINK's order; unrelated samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import several
from shiftsvd.extend.running import Resources
from shiftsvd.genetics.extension import Chromosomes
from shiftsvd.genetics.files import (
    Beds,
    CallCounts,
    Parts,
    beds,
    call_counts,
    founders_of,
    missing_by_sample,
    of_samples,
    parts_of,
    samples_of,
    some_of,
    variants_of,
)
from shiftsvd.genetics.kinship import kinship_matrix, unrelated_mask
from shiftsvd.genetics.linkage import BACKWARDS, FORWARDS, Windows, pruned
from shiftsvd.genetics.lists import (
    BUILDS,
    LONG_RANGE,
    Build,
    Listed,
    inside,
    listed_regions,
    listed_samples,
    listed_variants,
)
from shiftsvd.genetics.variants import CHOICES, Mask, Samples, Variants, autosomal, chosen

Counts = npt.NDArray[np.int64]

_TIED: Final = 1 + 1e-9  # relative: tables as likely as the observed one, but for rounding
_NEGLIGIBLE: Final = 1e-20  # of a sum: terms that fall from here on do not change it


def exact_p(first: Counts, both: Counts, second: Counts, mid_p: bool = False) -> npt.NDArray[np.float64]:
    """P values of heterozygote counts given the allele counts: of all tables that are not likelier than the observed.

    With `mid_p`, half of what is as likely as the observed is left out (Graffelman & Moreno 2013).

    Notes
    -----
    Wigginton, Cutler & Abecasis (2005), "A note on exact tests of Hardy-Weinberg equilibrium", AJHG 76, 887-893: from
    the observed table the likelihoods of those beside it follow by ratios, downwards and upwards in heterozygotes.
    """
    sums = np.zeros((3, len(both)))  # likelihoods over the observed: below it, as likely, above it
    sums[1] = 1
    with np.errstate(over="ignore"):
        for step in (2, -2):
            _walk(sums, first.astype(np.float64), both.astype(np.float64), second.astype(np.float64), step)
    below, tied, above = sums
    taken: npt.NDArray[np.float64] = (below + (tied / 2 if mid_p else tied)) / (below + tied + above)
    return taken


def _walk(sums: Any, first: Any, both: Any, second: Any, step: int) -> None:
    active, term = np.arange(len(both)), np.ones(len(both))
    first, both, second = first.copy(), both.copy(), second.copy()
    while len(active):
        if step > 0:
            ratio = 4 * first * second / ((both + 2) * (both + 1))
        else:
            ratio = both * (both - 1) / (4 * (first + 1) * (second + 1))
        term = term * ratio
        kind = np.where(term * _TIED < 1, 0, np.where(term > _TIED, 2, 1))
        sums[kind, active] += term
        first, both, second = first - step / 2, both + step, second - step / 2
        # Ratios fall from table to table: where they are below 1 and the term is nothing, so is all that follows.
        going = (term > 0) & ~((ratio < 1) & (term < _NEGLIGIBLE)) & np.isfinite(sums[2, active])
        active, term, first, both, second = (part[going] for part in (active, term, first, both, second))


_EPSILON: Final = 2.0**-44  # PLINK's: shares that differ by less are the same, and exact ties stay
_SHARES: Final = {"mind": 1.0, "geno": 1.0, "hwe": 1.0, "maf": 0.5, "unrelated": 0.5}  # and the most that each may be
_FOUNDERS: Final = 2  # that correlations and tests are of, at least


class Filters(TypedDict, total=False):
    """The settings of `Selection`, as keywords of `pca` and `unrelated`."""

    keep: Listed | None
    remove: Listed | None
    extract: Listed | None
    exclude: Listed | None
    extract_range: str | Path | None
    exclude_range: str | Path | None
    exclude_long_range: Build | None
    mind: float | None
    geno: float | None
    hwe: float | None
    hwe_midp: bool
    maf: float | None
    unrelated: float | None
    indep_pairwise: Sequence[Any] | None
    indep_order: Literal[1, 2]


@dataclass(frozen=True)
class Selection:
    """Which samples and variants take part; what is None removes nothing.

    Filters are applied in this order, which is plink2's: variants by chromosome, by name and by place; samples by name;
    then `mind`, `geno`, `hwe`, `maf`, `unrelated`, and `indep_pairwise` last. Exact ties stay.

    Parameters
    ----------
    chromosomes : "autosomes" or "all"
        Whether variants on sex chromosomes and mitochondria are left out, as in `pca`.
    keep, remove : path, or list of names, or of pairs of a family and a name
        Samples that are to stay, and to go: a file with FID and IID in each line, or IID alone, with or without a head.
    extract, exclude : path, or list of names
        Variants that are to stay, and to go: names in a file, with spaces or lines between them.
    extract_range, exclude_range : path
        The same by place: chromosome, first and last position in each line, counted from 1, both inside ("range" of
        PLINK 1, "bed1" of PLINK 2).
    exclude_long_range : "hg19" or "hg38"
        The build of the positions: 24 regions of long-range linkage in humans go (Price et al. 2008; Weale 2010). On
        hg38 the ends of the nine that span a centromere are estimates.
    mind, geno : float
        The largest share of missing genotypes of a sample, and of a variant.
    hwe : float
        The smallest p value of the exact test of Hardy-Weinberg proportions, among founders, of variants on autosomes.
    hwe_midp : bool
        Whether that is the mid-p value (PLINK's "midp").
    maf : float
        The smallest frequency of the rarer allele, among founders.
    unrelated : float
        The largest kinship (KING-robust; 0.0884 is between the second and the third degree): components are learned on
        samples of which no two have more, and the others are projected.
    indep_pairwise : (window, step, r2)
        Pruning by linkage, as `plink2 --indep-pairwise` does: a window of variants (50), or kilobases ("200kb", with a
        step of 1), how many variants it moves on, and the largest r^2 of two in it; among founders.
    indep_order : 1 or 2
        The order of comparisons: 1 is that of PLINK 1.9 and of plink2 until November 2023, 2 that of plink2 since then.

    See Also
    --------
    genetics.pca : Takes the same names as arguments.

    Examples
    --------
    >>> from shiftsvd.genetics import Selection
    >>> Selection(maf=0.01, hwe=1e-6).maf
    0.01
    >>> Selection(maf=5)
    Traceback (most recent call last):
    ...
    ValueError: maf must be a number in 0..0.5, got 5
    """

    chromosomes: Chromosomes = "autosomes"
    keep: Listed | None = None
    remove: Listed | None = None
    extract: Listed | None = None
    exclude: Listed | None = None
    extract_range: str | Path | None = None
    exclude_range: str | Path | None = None
    exclude_long_range: Build | None = None
    mind: float | None = None
    geno: float | None = None
    hwe: float | None = None
    hwe_midp: bool = False
    maf: float | None = None
    unrelated: float | None = None
    indep_pairwise: Sequence[Any] | None = None
    indep_order: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        if self.chromosomes not in CHOICES:
            raise ValueError(f'chromosomes must be "autosomes" or "all", got {self.chromosomes!r}')
        if self.exclude_long_range not in (None, *BUILDS):
            raise ValueError(f'exclude_long_range must be "hg19" or "hg38", got {self.exclude_long_range!r}')
        for name, most in _SHARES.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not 0 <= value <= most):
                raise ValueError(f"{name} must be a number in 0..{most:g}, got {value!r}")
        if self.hwe_midp and self.hwe is None:
            raise ValueError("hwe_midp is for hwe, which is not set; give hwe, such as 1e-6")
        if self.indep_order not in (FORWARDS, BACKWARDS):
            raise ValueError(f"indep_order must be 1 or 2, got {self.indep_order!r}")
        if self.indep_pairwise is not None:
            windows_of(self.indep_pairwise)


def windows_of(given: Sequence[Any]) -> Windows:
    rule = f'indep_pairwise must be a window of at least 2 ("200kb", or variants), a step and an r^2, got {given!r}'
    try:
        window, step, r2 = given
        text = str(window).lower().replace(" ", "")
        size, whole, share = float(text.removesuffix("kb")), int(step), float(r2)
    except (TypeError, ValueError):
        raise ValueError(rule) from None
    by_position = text.endswith("kb")
    if not (0 <= share < 1 and whole >= 1 and whole == float(step) and size < float("inf")):
        raise ValueError(f"{rule}; the step is at least 1, and the r^2 in 0..1")
    if by_position and whole != 1:
        raise ValueError(f"indep_pairwise needs a step of 1 for a window in kilobases, got {whole}")
    if not by_position and (size < max(2, whole) or not size.is_integer()):
        raise ValueError(f"{rule}; a window of variants is a whole number, and not shorter than the step")
    if by_position and size <= 0:
        raise ValueError(rule)
    return Windows(round(1000 * size) if by_position else int(size), whole, share, by_position)


@dataclass(eq=False)
class Cohort:
    """The samples and variants of files that take part.

    Attributes
    ----------
    paths : list of Path
    parts : files, each with its variants and samples that take part
    samples : Samples
        Those that take part.
    variants : Variants
        All of the files; `kept` says which take part.
    kept, rows : arrays of bool
        Variants and samples of the files that take part.
    learned : array of bool, or None
        Which of the samples that take part components are learned on; None: all of them.
    removed : dict
        How many variants or samples each filter removed, in the order of the filters.
    absent : dict
        How many names of a file are none of the data.
    """

    paths: list[Path]
    parts: Parts
    samples: Samples
    variants: Variants
    kept: Mask
    rows: Mask
    learned: Mask | None = None
    removed: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)

    @property
    def training(self) -> Parts:
        return self.parts if self.learned is None else of_samples(self.parts, self.learned)

    def drop_variants(self, name: str, out: Mask) -> None:
        self._count(name, out, "variants")
        if out.any():
            self.kept[np.flatnonzero(self.kept)[out]] = False
            self.parts = some_of(self.parts, ~out)

    def drop_samples(self, name: str, out: Mask) -> None:
        self._count(name, out, "samples")
        if out.any():
            self.rows[np.flatnonzero(self.rows)[out]] = False
            self.samples = Samples(*(each[~out] for each in self.samples))
            self.parts = of_samples(self.parts, ~out)

    def _count(self, name: str, out: Mask, what: str) -> None:
        self.removed[name] = int(np.count_nonzero(out))
        if out.all():
            raise ValueError(f"{several(self.paths)} has no {what} left after {name}, which removed {len(out):,}")

    @property
    def left(self) -> Variants:
        return self.variants.at(self.kept)


def selected(paths: list[Path], parts: Parts, selection: Selection, resources: Resources) -> Cohort:
    """What the filters leave of files.

    Notes
    -----
    At most four reads: one each for `mind`, for the counts behind `geno`, `hwe` and `maf`, for kinship and for pruning.
    """
    samples, variants = samples_of(paths), variants_of(paths)
    everybody = np.ones(len(samples.names), bool)
    cohort = Cohort(paths, parts, samples, variants, np.ones(len(variants.names), bool), everybody)
    out = ~chosen(variants.chromosomes, selection.chromosomes, Path(several(paths)))
    if out.any():
        cohort.drop_variants("chromosomes", out)
    for stage in (_by_variant, _by_sample, _by_counts, _by_kinship, _by_linkage):
        stage(cohort, selection, resources)
    return cohort


def _by_variant(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    for name, given in (("extract", selection.extract), ("exclude", selection.exclude)):
        if given is not None:
            there, cohort.absent[name] = listed_variants(given, cohort.left.names)
            cohort.drop_variants(name, ~there if name == "extract" else there)
    if selection.extract_range is not None:
        cohort.drop_variants("extract_range", ~inside(cohort.left, listed_regions(selection.extract_range)))
    if selection.exclude_range is not None:
        cohort.drop_variants("exclude_range", inside(cohort.left, listed_regions(selection.exclude_range)))
    if selection.exclude_long_range is not None:
        cohort.drop_variants("exclude_long_range", inside(cohort.left, LONG_RANGE[selection.exclude_long_range]))


def _by_sample(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    for name, given in (("keep", selection.keep), ("remove", selection.remove)):
        if given is not None:
            there, cohort.absent[name] = listed_samples(given, cohort.samples)
            cohort.drop_samples(name, ~there if name == "keep" else there)
    if selection.mind is not None:
        n = int(np.count_nonzero(cohort.kept))
        share = missing_by_sample(cohort.parts, resources) / n
        cohort.drop_samples("mind", share > selection.mind * (1 + _EPSILON))


def _by_counts(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    if all(getattr(selection, name) is None for name in _TESTS):
        return
    counts = call_counts(cohort.parts, _founders(cohort, selection), resources)
    for name, failing in _TESTS.items():
        limit = getattr(selection, name)
        if limit is not None:
            out = failing(counts, limit, cohort, selection)
            cohort.drop_variants(name, out)
            counts = CallCounts(*(each[~out] for each in counts))


def _incomplete(counts: CallCounts, limit: float, cohort: Cohort, selection: Selection) -> Mask:
    return counts.missing > limit * len(cohort.samples.names) * (1 + _EPSILON)


def _far_from_hardy(counts: CallCounts, limit: float, cohort: Cohort, selection: Selection) -> Mask:
    p = exact_p(counts.none, counts.one, counts.two, selection.hwe_midp)
    far: Mask = (p < limit) & autosomal(cohort.variants.chromosomes)[cohort.kept]
    return far


def _rare(counts: CallCounts, limit: float, cohort: Cohort, selection: Selection) -> Mask:
    p = counts.frequencies
    return np.minimum(p, 1 - p) < limit * (1 - _EPSILON)


# In PLINK's order.
_TESTS: Final[dict[str, Callable[[CallCounts, float, Cohort, Selection], Mask]]] = {
    "geno": _incomplete,
    "hwe": _far_from_hardy,
    "maf": _rare,
}


def _by_kinship(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    if selection.unrelated is not None:
        kinship = kinship_matrix(on_autosomes(cohort), resources)
        cohort.learned = unrelated_mask(kinship, selection.unrelated)
        cohort.removed["unrelated"] = int(np.count_nonzero(~cohort.learned))


def on_autosomes(cohort: Cohort) -> Parts:
    return some_of(cohort.parts, autosomal(cohort.variants.chromosomes)[cohort.kept])


def _by_linkage(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    if selection.indep_pairwise is not None:
        founders = _founders(cohort, selection)
        windows = windows_of(selection.indep_pairwise)._replace(order=selection.indep_order)
        founders = founders if cohort.learned is None else founders[cohort.learned]
        kept = pruned(cohort.training, cohort.left, founders, windows, resources)
        cohort.drop_variants("indep_pairwise", ~kept)


def _founders(cohort: Cohort, selection: Selection) -> Mask:
    founders = founders_of(cohort.paths[0])[cohort.rows]
    counting = any(limit is not None for limit in (selection.hwe, selection.maf, selection.indep_pairwise))
    if counting and np.count_nonzero(founders) < _FOUNDERS:
        raise ValueError(
            f"{cohort.paths[0]} must have at least {_FOUNDERS} founders, samples whose parents are 0, for hwe, maf and "
            f"indep_pairwise, got {np.count_nonzero(founders)}; set the parents in the .fam to 0"
        )
    return founders


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
