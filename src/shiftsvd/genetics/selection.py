"""Filter samples and variants as PLINK does, in PLINK's order, and find unrelated samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.operators import Vector
from shiftsvd.extend.running import Refused, Resources, Setting, few, plural, refuse
from shiftsvd.genetics import lists
from shiftsvd.genetics.extension import ASSEMBLIES, LARGEST, Build, Chromosomes
from shiftsvd.genetics.files import Beds, CallCounts, Fileset, call_counts, listed, missing_by_sample, sample_list
from shiftsvd.genetics.kinship import Kinship, kin0, kinship_matrix, related_pairs, unrelated_mask
from shiftsvd.genetics.linkage import BACKWARDS, FORWARDS, Windows, pruned
from shiftsvd.genetics.matching import build_of
from shiftsvd.genetics.variants import Mask, autosomal, read_founders

Counts = npt.NDArray[np.int64]

_TIE: Final = 1 + 1e-9  # largest ratio of two likelihoods that are equal except for rounding
_NEGLIGIBLE: Final = 1e-20  # likelihood over that of the observed table, below which falling terms do not change a sum


def exact_p(first: Counts, both: Counts, second: Counts, mid_p: bool = False) -> Vector:
    # Wigginton, Cutler & Abecasis (2005), "A note on exact tests of Hardy-Weinberg equilibrium", AJHG 76, 887-893: sum
    # the likelihoods of the tables that are at most as likely as the observed table, by ratios of neighbouring tables,
    # with more and with fewer heterozygotes. `mid_p` halves the tables as likely as the observed one (Graffelman &
    # Moreno 2013).
    sums = np.zeros((3, len(both)))  # likelihoods over the observed: below it, as likely, above it
    sums[1] = 1
    with np.errstate(over="ignore"):
        for step in (2, -2):
            _add_tables(sums, first.astype(np.float64), both.astype(np.float64), second.astype(np.float64), step)
    below, tied, above = sums
    return np.asarray((below + (tied / 2 if mid_p else tied)) / (below + tied + above))


def _add_tables(sums: Vector, first: Vector, both: Vector, second: Vector, step: int) -> None:
    active, term = np.arange(len(both)), np.ones(len(both))
    while len(active):
        if step > 0:
            ratio = 4 * first * second / ((both + 2) * (both + 1))
        else:
            ratio = both * (both - 1) / (4 * (first + 1) * (second + 1))
        term = term * ratio
        kind = np.where(term * _TIE < 1, 0, np.where(term > _TIE, 2, 1))
        sums[kind, active] += term
        first, both, second = first - step / 2, both + step, second - step / 2
        # Ratios fall from table to table: if the ratio is below 1 and the term is negligible, so are all later terms.
        active_still = (term > 0) & ~((ratio < 1) & (term < _NEGLIGIBLE)) & np.isfinite(sums[2, active])
        active, term, first, both, second = (part[active_still] for part in (active, term, first, both, second))


_EPSILON: Final = 2.0**-44  # PLINK's relative tolerance: samples and variants exactly at a limit are kept
_FOUNDERS: Final = 2  # least number of founders for frequencies and correlations
_FEWEST: Final = 2  # training samples
OF_SAMPLES: Final = ("keep", "remove", "mind")  # filters of samples; all others filter variants


class Filters(TypedDict, total=False):
    """Settings of `Selection`, as keywords of `pca` and `unrelated`."""

    keep: lists.Listed | None
    remove: lists.Listed | None
    extract: lists.Listed | None
    exclude: lists.Listed | None
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
    """Filters of samples and variants; a filter that is None removes nothing.

    Filters are applied in plink2's order: variants by chromosome, by name and by position; samples by name; then
    `mind`, `geno`, `hwe`, `maf`, `unrelated` and `indep_pairwise`. Samples and variants exactly at a limit are kept.

    Parameters
    ----------
    chromosomes : "autosomes" or "all"
        Whether to remove variants on sex chromosomes and mitochondria, as in `pca`.
    keep, remove : path, list of names, or list of (family, name)
        Samples to keep, and samples to remove. A file has FID and IID, or IID only, on each line; a header is optional.
    extract, exclude : path, or list of names
        Variants to keep, and variants to remove. A file has variant names, separated by spaces or line breaks.
    extract_range, exclude_range : path
        File with ranges of variants to keep, and to remove: chromosome, first and last position on each line, counted
        from 1, both included ("range" of PLINK 1, "bed1" of PLINK 2).
    exclude_long_range : "hg19" or "hg38"
        Remove 24 human regions of long-range LD (Price et al. 2008; Weale 2010) in this genome build. On hg38 the ends
        of the nine regions that span a centromere are estimates.
    mind, geno : float
        Largest share of missing genotypes of a sample, and of a variant.
    hwe : float
        Smallest p value of the exact test of Hardy-Weinberg proportions among founders, for variants on autosomes.
    hwe_midp : bool
        Use the mid-p value in `hwe` (PLINK's "midp").
    maf : float
        Smallest minor allele frequency (MAF) among founders.
    unrelated : float
        Largest KING-robust kinship of two training samples. Other samples are projected. 0.0884 lies between the
        second and the third degree.
    indep_pairwise : (window, step, r2)
        Prune variants in LD, as PLINK does: size of a window in variants (50) or kilobases ("200kb"), step in variants
        (1 for kilobases), and largest r^2 of two variants in a window, among founders.
    indep_order : 1 or 2
        Order of comparisons in `indep_pairwise`: 1 as in PLINK 1.9 and in plink2 until November 2023, 2 as in plink2
        since then.

    See Also
    --------
    genetics.pca : Accepts these filters as keywords.

    Examples
    --------
    >>> from shiftsvd.genetics import Selection
    >>> Selection(maf=0.01, hwe=1e-6).maf
    0.01
    >>> Selection(maf=5)
    Traceback (most recent call last):
    ...
    shiftsvd.errors.Refused: maf must be a number in 0..0.5, got 5
    """

    chromosomes: Chromosomes = "autosomes"
    keep: lists.Listed | None = None
    remove: lists.Listed | None = None
    extract: lists.Listed | None = None
    exclude: lists.Listed | None = None
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
        for name, choices in (("chromosomes", get_args(Chromosomes)), ("exclude_long_range", (*get_args(Build), None))):
            if getattr(self, name) not in choices:
                raise refuse(name, f'be "{choices[0]}" or "{choices[1]}"', getattr(self, name))
        for name, most in LARGEST.items():
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not (number and 0 <= value <= most):
                raise refuse(name, f"be a number in 0..{most:g}", value)
        if self.hwe_midp and self.hwe is None:
            raise Refused(Setting("hwe_midp"), " requires ", Setting("hwe"), ". Pass ", Setting("hwe", 1e-6), ".")
        if self.indep_order not in (FORWARDS, BACKWARDS):
            raise refuse("indep_order", "be 1 or 2", self.indep_order)
        if self.indep_pairwise is not None:
            windows_of(self.indep_pairwise)

    @property
    def given(self) -> dict[str, str | float]:
        """The filters that are set, for model files; a list of names as its length."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        off = {each.name: each.default for each in fields(self)} | {"chromosomes": None}
        return {name: _stored(name, value) for name, value in found.items() if value != off[name]}


def _stored(name: str, value: Any) -> str | float:
    if isinstance(value, Real):
        return value if isinstance(value, float | int) else float(value)
    if isinstance(value, str | PathLike):
        return str(value)
    return " ".join(map(str, value)) if name == "indep_pairwise" else plural(len(value), "name")


def windows_of(given: Sequence[Any]) -> Windows:
    name, shown = "indep_pairwise", '(50, 5, 0.2) for 50 variants or ("200kb", 1, 0.2)'
    rule = f"be a window, a step and a largest r^2, such as {shown}"
    try:
        window, step, r2 = given
        text = str(window).lower().replace(" ", "")
        size, whole, share = float(text.removesuffix("kb")), int(step), float(r2)
    except (TypeError, ValueError):
        raise refuse(name, rule, given) from None
    by_position = text.endswith("kb")
    if not (0 <= share < 1 and whole >= 1 and whole == float(step) and 0 < size < float("inf")):
        limits = "the window must be positive, the step an integer of at least 1, and r^2 in [0, 1)"
        raise refuse(name, rule, given, limits)
    if by_position and whole != 1:
        raise Refused(Setting(name), f" must have a step of 1 if the window is in kilobases, got {whole}.")
    if not by_position and (size < max(2, whole) or not size.is_integer()):
        limits = "the window must be an integer of at least 2, and at least as large as the step"
        raise refuse(name, rule, given, limits)
    return Windows(round(1000 * size) if by_position else int(size), whole, share, by_position)


@dataclass(eq=False)
class Cohort:
    """Samples and variants of files that the filters keep."""

    whole: Fileset
    files: Fileset  # only kept samples and variants
    kept: Mask  # variants of `whole` to keep
    rows: Mask  # samples of `whole` to keep
    learned: Mask | None = None  # training samples among those of `files`; None: all of them
    lists: dict[str, Callable[[Path], None]] = field(default_factory=dict)  # write files of samples, by their suffix
    removed: dict[str, int] = field(default_factory=dict)  # number removed by each filter, in order
    absent: dict[str, int] = field(default_factory=dict)  # number of names in a list that are not in the files

    @property
    def training(self) -> Fileset:
        return self.files if self.learned is None else self.files.of_samples(self.learned)

    @property
    def autosomes(self) -> Mask:
        return autosomal(self.whole.variants.chromosomes)[self.kept]

    @property
    def on_autosomes(self) -> Fileset:
        if not self.autosomes.any():
            raise ValueError(
                f"kinship is computed from variants on autosomes, but {self.whole.name} has none left. Pass genotypes "
                "of autosomes."
            )
        return self.files.of_variants(self.autosomes)

    def require_two_samples(self) -> None:
        m, of = self.training.shape[0], len(self.rows)
        if m >= _FEWEST:
            return
        got = f"{self.whole.name} must have at least {_FEWEST} samples, got {m}"
        if m < of:
            raise ValueError(f"{got} of {of:,} after the filters. Relax the filters of samples.")
        raise ValueError(
            f"{got}. To project single samples onto fitted components, use `GenotypePCA.project` or `shiftsvd "
            "transform`."
        )

    def drop(self, name: str, out: Mask) -> None:
        of_samples, self.removed[name] = name in OF_SAMPLES, int(np.count_nonzero(out))
        if out.all():
            what = "samples" if of_samples else "variants"
            raise Refused(
                *(f"{self.whole.name} has no {what} left: ", Setting(name), f" removed the last {len(out):,}. "),
                "Relax this filter.",
            )
        if out.any():
            left = self.rows if of_samples else self.kept
            left[np.flatnonzero(left)[out]] = False
            self.files = self.files.of_samples(~out) if of_samples else self.files.of_variants(~out)


def selected(files: Fileset, selection: Selection, resources: Resources) -> Cohort:
    # At most four reads: for `mind`, for the counts of `geno`, `hwe` and `maf`, for kinship, and for pruning.
    m, n = files.shape
    cohort = Cohort(files, files, np.ones(n, bool), np.ones(m, bool))
    others = ~cohort.autosomes if selection.chromosomes == "autosomes" else np.zeros(n, bool)
    if others.all():
        got = f"got variants on {few(sorted(set(files.variants.chromosomes.tolist())))}"
        rule = f"{files.name} must have variants on autosomes, {got}. To keep all chromosomes, use "
        raise Refused(rule, Setting("chromosomes", "all"), ".")
    if others.any():
        cohort.drop("chromosomes", others)
    _by_lists(cohort, selection, resources)
    _by_counts(cohort, selection, resources)
    if selection.unrelated is not None:
        on_autosomes = cohort.on_autosomes
        kinship = kinship_matrix(on_autosomes, resources)
        pairs = related_pairs(kinship, selection.unrelated)
        cohort.learned = unrelated_mask(kinship, selection.unrelated)
        cohort.lists["kin0"] = partial(kin0, files=on_autosomes, pairs=pairs, resources=resources)
        cohort.lists["projected"] = partial(sample_list, samples=cohort.files.samples, rows=~cohort.learned)
        del kinship
        cohort.removed["unrelated"] = int(np.count_nonzero(~cohort.learned))
    if selection.indep_pairwise is not None:
        founders = _founders(cohort, selection)
        windows = windows_of(selection.indep_pairwise)._replace(order=selection.indep_order)
        cohort.drop("indep_pairwise", ~pruned(cohort.training, founders, windows, resources))
    return cohort


def _by_lists(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    whole = cohort.whole
    for name in ("extract", "exclude", "extract_range", "exclude_range", "exclude_long_range", "keep", "remove"):
        given = getattr(selection, name)
        if given is None:
            continue
        if name in OF_SAMPLES:
            there, cohort.absent[name] = lists.listed_samples(name, given, whole.samples, whole.name)
            there = there[cohort.rows]
        elif name in ("extract", "exclude"):
            there, cohort.absent[name] = lists.listed_variants(name, given, whole.variants.names, whole.name)
            there = there[cohort.kept]
        else:
            regions = _long_range(cohort, given) if name == "exclude_long_range" else lists.listed_regions(given)
            there = lists.inside(cohort.files.variants, regions)
        cohort.drop(name, ~there if name.startswith(("extract", "keep")) else there)
    if selection.mind is not None:
        share = missing_by_sample(cohort.files, resources) / cohort.files.shape[1]
        out = share > selection.mind * (1 + _EPSILON)
        cohort.lists["mindrem.id"] = partial(sample_list, samples=cohort.files.samples, rows=out)
        cohort.drop("mind", out)


def _long_range(cohort: Cohort, build: Build) -> list[lists.Region]:
    there = build_of(cohort.whole.variants)
    if there not in (None, ASSEMBLIES[build]):
        raise Refused(
            *(f"{cohort.whole.name} has positions of {there}, but ", Setting("exclude_long_range", build)),
            f" removes regions of {ASSEMBLIES[build]}. Name the build of the file, or lift the file over.",
        )
    return lists.LONG_RANGE[build]


def _by_counts(cohort: Cohort, selection: Selection, resources: Resources) -> None:
    limits = {name: getattr(selection, name) for name in ("geno", "hwe", "maf")}
    if all(limit is None for limit in limits.values()):
        return
    counts = call_counts(cohort.files, _founders(cohort, selection), resources)
    for name, limit in limits.items():
        if limit is None:
            continue
        if name == "geno":
            out = counts.missing > limit * cohort.files.shape[0] * (1 + _EPSILON)
        elif name == "hwe":
            out = (exact_p(*counts[:3], mid_p=selection.hwe_midp) < limit * (1 - _EPSILON)) & cohort.autosomes
        else:
            out = np.minimum(counts.frequencies, 1 - counts.frequencies) < limit * (1 - _EPSILON)
        cohort.drop(name, out)
        counts = CallCounts(*(each[~out] for each in counts))


def _founders(cohort: Cohort, selection: Selection) -> Mask:
    # Among the training samples, as far as filters have chosen them.
    path, founders = cohort.whole.paths[0], read_founders(cohort.whole.paths[0])[cohort.rows]
    founders = founders if cohort.learned is None else founders[cohort.learned]
    counting = any(limit is not None for limit in (selection.hwe, selection.maf, selection.indep_pairwise))
    if counting and np.count_nonzero(founders) < _FOUNDERS:
        raise Refused(
            *(f"{path} must have at least {_FOUNDERS} founders (samples with parents 0) left for ", Setting("hwe")),
            *(", ", Setting("maf"), " and ", Setting("indep_pairwise"), f", got {np.count_nonzero(founders)}. "),
            "If the samples are unrelated, set their parents to 0 in the .fam or .psam.",
        )
    return founders


def unrelated(
    bed: Beds,
    cutoff: float = 0.0884,
    *,
    chromosomes: Chromosomes = "autosomes",
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    **filters: Unpack[Filters],
) -> Kinship:
    """Compute the kinship of all pairs of samples in PLINK files, and select unrelated samples.

    Parameters
    ----------
    bed : path, or a list of paths
        As in `pca`.
    cutoff : float in 0..0.5
        Largest kinship of two selected samples. 0.177, 0.0884 and 0.0442 remove relatives up to the first, second and
        third degree.
    chromosomes : "autosomes" or "all"
        As in `pca`. Kinship is always computed from variants on autosomes.
    n_threads, memory_limit : optional
        As in `shiftsvd.PCA`.
    **filters
        As in `pca`, except `unrelated`. Do not prune by LD: the authors of KING advise against pruning.

    Returns
    -------
    Kinship
        Kinship of all pairs, and a mask of the selected samples.

    Raises
    ------
    ValueError, OSError
        If the files cannot be read, or if there are more than 20 000 samples or more than fit in the memory limit.

    See Also
    --------
    genetics.pca : Fit on unrelated samples only, with ``unrelated=``.

    Notes
    -----
    Kinship is the KING-robust estimate between families: Manichaikul et al. (2010), Robust relationship inference in
    genome-wide association studies, equation 11. The selection is greedy, so the set need not be the largest possible.
    Kinship takes one read in addition to those of the filters, ``6 n^2`` operations per variant, and ``16 n^2`` bytes
    for n samples.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> rng = np.random.default_rng(0)
    >>> G = rng.binomial(2, rng.uniform(0.1, 0.9, 2000), (20, 2000)).astype(np.float32)
    >>> G[7] = G[3]  # twins
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     found = shiftsvd.genetics.unrelated(f"{folder}/a.bed")
    >>> float(found.kinship[3, 7]), int(found.unrelated.sum())
    (0.5, 19)
    """
    if filters.get("unrelated") is not None:
        raise Refused(
            *("genetics.unrelated has no argument ", Setting("unrelated"), ". Pass the largest kinship of unrelated "),
            *("samples as ", Setting("cutoff", filters["unrelated"]), "."),
        )
    Selection(unrelated=cutoff)  # validates the cutoff
    resources = Resources(memory_limit, n_threads)
    cohort = selected(Fileset.of(listed(bed), None, memory_limit), Selection(chromosomes, **filters), resources)
    kinship = kinship_matrix(cohort.on_autosomes, resources)
    return Kinship(cohort.files.samples, kinship, unrelated_mask(kinship, cutoff))
