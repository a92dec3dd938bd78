"""New samples on the components of others: variants matched, genotypes read in blocks, scores with standard errors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, get_args

import numpy as np

from shiftsvd.genetics import oadp
from shiftsvd.genetics.alleles import Samples, Variants
from shiftsvd.genetics.least_squares import Solved, covariances, packed, solved, unpacked
from shiftsvd.genetics.matching import Match, matched
from shiftsvd.genetics.several import Parts, samples_of, variants_of
from shiftsvd.genetics.strands import Mask
from shiftsvd.genetics.stretches import COUNT, Places, Sums, stretches
from shiftsvd.io.base import optional, reading
from shiftsvd.io.stacking import several
from shiftsvd.names import MatchName, ProjectName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import limit_of

METHODS: Final = get_args(ProjectName)
MATCHES: Final = get_args(MatchName)
_BLOCK: Final = 2**22  # genotypes in memory at a time, in single copies
_COPIES: Final = 6  # of a block of genotypes
_ROOM: Final = 2**30  # bytes that are taken where the system tells no limit
_MATRICES: Final = 10  # of k x k for each sample
# Singular values below this share of the first are rounding: genotypes are multiplied in single precision.
_NOTHING: Final = float(np.finfo(np.float32).eps)


class Projection(NamedTuple):
    """New samples on the components of others.

    Parameters
    ----------
    eigenvectors : array of shape (n_samples, k)
        In the units of `GenotypePCA.eigenvectors`; NaN for samples with too few genotypes for so many components.
    samples : Samples
        The new samples, in the order of their file.
    n_used, n_flipped, n_absent, n_mismatched : int
        Variants of the components that were used (of which so many with their alleles swapped), that the new file does
        not have, and that have other alleles there.
    n_complemented, n_ambiguous, n_unclear, n_by_name : int
        Of those used, how many have the letters of the other strand there, and how many were found by name. Left out:
        variants with alleles A and T, or C and G, of which letters cannot tell the strand; and variants that are there
        several times, or whose name and position point to different variants.
    standard_errors : array of shape (n_samples, k), or None
        How far scores of all variants may be from `eigenvectors`: standard deviations of what absent variants and
        missing genotypes leave undetermined. 0 where nothing is missing; None for ``project="mean"``.
    n_present : array of shape (n_samples,)
        How many of the variants each sample has genotypes of.

    See Also
    --------
    genetics.GenotypePCA : ``project`` gives one.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a", "b"):
    ...         to_bed(f"{folder}/{name}.bed", rng.integers(0, 3, (20, 50)).astype(np.float32))
    ...     found = shiftsvd.genetics.pca(f"{folder}/a.bed", 2).project(f"{folder}/b.bed")
    >>> found.eigenvectors.shape, found.n_used
    ((20, 2), 50)
    """

    eigenvectors: Panel
    samples: Samples
    n_used: int
    n_flipped: int
    n_absent: int
    n_mismatched: int
    n_complemented: int
    n_ambiguous: int
    n_unclear: int
    n_by_name: int
    standard_errors: Panel | None
    n_present: Vector


@dataclass(frozen=True, eq=False)
class Basis:
    """Components as projections take them.

    Attributes
    ----------
    variants : Variants
    used : array of bool, of shape (n,)
        The variants that take part.
    mean, scale : array of shape (n,)
        What is subtracted from the counts of the first allele, and what they are divided by then.
    loadings : array of shape (n, k)
        Of length 1.
    lengths : array of shape (k,)
        Singular values.
    """

    variants: Variants
    used: Mask
    mean: Vector
    scale: Vector
    loadings: Panel
    lengths: Vector

    @property
    def alive(self) -> Mask:
        return np.asarray(self.lengths > _NOTHING * self.lengths.max(initial=0))


class Scores(NamedTuple):
    """Scores of some samples, ``V^T x``: of the samples from the first one on; errors are None where there are none."""

    first: int
    scores: Panel
    errors: Panel | None
    n_present: Vector


@dataclass(frozen=True, eq=False)
class Target:
    """New samples in files of which the variants are matched with those of components."""

    basis: Basis
    parts: Parts
    match: Match

    @classmethod
    def of(cls, basis: Basis, parts: Parts, match: MatchName = "auto", trust_ambiguous: bool = False) -> "Target":
        paths = [path for path, _ in parts]
        found = matched(basis.variants, basis.used, variants_of(paths), several(paths), match, trust_ambiguous)
        if not len(found.here):
            raise ValueError(_nothing_in_common(several(paths), int(np.count_nonzero(basis.used)), found))
        return cls(basis, parts, found)

    @cached_property
    def stretch(self) -> Places:
        return stretches(self.basis.variants, self.basis.used)

    @property
    def samples(self) -> Samples:
        return samples_of([path for path, _ in self.parts])

    def scores(self, method: ProjectName, memory_limit: int | str | None = None) -> Iterator[Scores]:
        m, k = self.parts[0][1].matrix.shape[1], len(self.basis.lengths)
        half = (limit_of(memory_limit) or _ROOM) // 2  # for samples; the other one is for genotypes
        step = max(1, half // (8 * (_MATRICES * k * k + (2 * COUNT + 4) * (k + 1))))
        for lo in range(0, m, step):
            group = _Group(self, slice(lo, min(lo + step, m)), min(_BLOCK, half // (8 * _COPIES)))
            yield group.means() if method == "mean" else group.estimated(method)

    def blocks(self, rows: slice, most: int) -> Iterator[tuple[Panel, Panel, Places]]:
        """Genotypes of some samples in units of the scale, NaN where they are missing; loadings; which variants.

        At most so many genotypes at a time, or one variant.
        """
        open_bed = optional("bed_reader", "genetics").open_bed
        basis, first = self.basis, 0
        step = max(1, most // (rows.stop - rows.start + packed(basis.loadings[:1]).shape[1]))
        for path, opened in self.parts:
            n, m = opened.matrix.shape
            begin, end = np.searchsorted(self.match.there, [first, first + n])
            with reading(path):
                file = open_bed(path, iid_count=m, sid_count=n)
                for lo in range(begin, end, step):
                    part = self.match.part(lo, min(lo + step, end))
                    G = file.read(np.s_[rows, part.there - first], dtype="float64")
                    G = np.where(part.swapped, 2 - G, G)
                    X = (G - basis.mean[part.here]) / basis.scale[part.here]
                    yield X, basis.loadings[part.here][:, basis.alive], part.here
            first += n


class _Group:
    """Some of the new samples, and what is summed over their genotypes."""

    def __init__(self, target: Target, rows: slice, most: int) -> None:
        self._target, self._rows, self._most = target, rows, most
        self._alive = target.basis.alive
        self._m, self._k = rows.stop - rows.start, int(np.count_nonzero(self._alive))
        self._n_variants = int(np.count_nonzero(target.basis.used))
        self._products, self._gram = np.zeros((self._m, self._k)), np.zeros((1, self._k * (self._k + 1) // 2))
        self._squares, self._n_present = np.zeros(self._m), np.zeros(self._m)
        self._lacking = np.zeros((self._m, self._gram.shape[1]))
        for X, V, _ in target.blocks(rows, most):
            self._add(X, V)

    def _add(self, X: Panel, V: Panel) -> None:
        missing = np.isnan(X)
        np.copyto(X, 0, where=missing)
        self._products += X @ V
        self._squares += np.einsum("ij,ij->i", X, X)
        self._n_present += X.shape[1] - missing.sum(axis=1)
        self._gram += packed(V).sum(axis=0)
        gaps = missing.any(axis=1)
        self._lacking[gaps] += missing[gaps].astype(np.float64) @ packed(V)

    def means(self) -> Scores:
        return Scores(self._rows.start, self._whole(self._products), None, self._n_present)

    def estimated(self, method: ProjectName) -> Scores:
        if not self._k:
            return self.means()._replace(errors=self._whole(self._products))
        gram = unpacked(self._gram - self._lacking, self._k)
        found = solved(gram, self._products, self._squares, self._n_present)
        covariance = self._covariance(found)
        scores = found.scores
        if method == "oadp":
            scores, covariance = self._beside_training(found, covariance)
        errors = np.sqrt(np.maximum(np.einsum("mii->mi", covariance), 0))
        return Scores(self._rows.start, self._whole(scores), self._whole(errors), self._n_present)

    def _covariance(self, found: Solved) -> Panel:
        some = self._n_present < self._n_variants
        out = np.zeros((self._m, self._k, self._k))
        if some.any():
            spread, sums = np.zeros_like(self._lacking), Sums(self._target.stretch)
            sums.begin(self._m, self._k)
            for X, V, places in self._target.blocks(self._rows, self._most):
                residual = X - np.where(found.told[:, None], found.scores, 0) @ V.T
                spread += np.nan_to_num(residual) ** 2 @ packed(V)
                sums.add(places, residual, V)
            squares = unpacked(spread, self._k)
            alone, together = covariances(found, squares, self._n_present), sums.covariance(found, squares)
            out[some] = (alone + together)[some]
        return out

    def _beside_training(self, found: Solved, covariance: Panel) -> tuple[Panel, Panel]:
        told, lengths = found.told, self._target.basis.lengths[self._alive]
        B = found.scores[told]
        share = np.maximum(self._n_variants - self._k, 0) / (self._n_present[told] - self._k)
        squares = np.einsum("mk,mk->m", B, B) + found.residual[told] * share
        scores, moved = np.full_like(found.scores, np.nan), np.full_like(covariance, np.nan)
        scores[told] = oadp.augmented(B, squares, lengths)
        J = oadp.derivatives(B, squares, lengths)
        moved[told] = J @ covariance[told] @ J.swapaxes(1, 2)
        return scores, moved

    def _whole(self, values: Panel) -> Panel:
        out = np.zeros((len(values), len(self._alive)))
        out[:, self._alive] = values
        return out


def projected(
    basis: Basis,
    parts: Parts,
    project: ProjectName,
    match: MatchName,
    trust_ambiguous: bool,
    memory_limit: int | str | None,
) -> Projection:
    for name, value, choices in (("project", project, METHODS), ("match", match, MATCHES)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    target = Target.of(basis, parts, match, trust_ambiguous)
    groups = list(target.scores(project, memory_limit))
    found, alive = target.match, basis.alive

    def in_units(panels: Sequence[Panel]) -> Panel:
        return np.concatenate(panels) / np.where(alive, basis.lengths, 1)

    errors = [group.errors for group in groups if group.errors is not None]
    counts = found.counts
    return Projection(
        eigenvectors=in_units([group.scores for group in groups]),
        samples=target.samples,
        n_used=counts["matched"],
        **{f"n_{name}": count for name, count in counts.items() if name != "matched"},
        standard_errors=in_units(errors) if errors else None,
        n_present=np.concatenate([group.n_present for group in groups]),
    )


def _nothing_in_common(file: str, n: int, found: Match) -> str:
    return (
        f"{file} has none of the {n} variants of the components: {found.n_absent} are not there by chromosome and "
        "position, nor by name (bring both files to one build of the genome, or name variants alike: plink2 "
        f"--set-all-var-ids), {found.n_mismatched} have other alleles there (bring both to one reference: plink2 "
        f"--ref-from-fa), {found.n_ambiguous} have alleles A and T or C and G (if both files are of one strand, give "
        f"trust_ambiguous=True), {found.n_unclear} cannot be told from others"
    )
