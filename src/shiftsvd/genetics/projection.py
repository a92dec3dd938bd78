"""Project new samples onto fitted components: least squares, OADP, and standard errors."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from shiftsvd.extend.files import Places
from shiftsvd.extend.operators import Panel, Vector
from shiftsvd.extend.running import Refused, Setting, limit_of, plural
from shiftsvd.genetics.extension import MatchName, ProjectName
from shiftsvd.genetics.files import Fileset
from shiftsvd.genetics.matching import Match, matched
from shiftsvd.genetics.variants import Mask, Samples, Variants, canonical

# A Gram matrix of loadings is singular if its smallest eigenvalue is below this share of the largest: the variants of
# the sample do not determine all components.
_SINGULAR = 1e-10


class LeastSquares(NamedTuple):
    """Least-squares scores of m samples on k components, with the terms of their standard errors."""

    scores: Panel  # NaN for samples with too few genotypes to determine k scores
    inverse: Panel  # of the Gram matrices of loadings, (m, k, k)
    gram: Panel
    residual: Vector  # sums of squares
    determined: Mask  # samples with scores


def least_squares(gram: Panel, products: Panel, squares: Vector, n_present: Vector, n: int) -> LeastSquares:
    # Of n variants. Scores from k of more variants would have no standard errors, and are NaN.
    k = products.shape[1]
    values, vectors = np.linalg.eigh(gram)
    regular = values[:, 0] > _SINGULAR * np.maximum(values[:, -1], np.finfo(float).tiny)
    determined = regular & ((n_present > k) | (n_present == n))
    values[~determined] = 1
    inverse = (vectors / values[:, None, :]) @ vectors.swapaxes(1, 2)
    scores = np.einsum("mij,mj->mi", inverse, products)
    residual = np.maximum(squares - np.einsum("mk,mk->m", scores, products), 0)
    scores[~determined] = np.nan
    return LeastSquares(scores, inverse, gram, residual, determined)


def noise_covariance(found: LeastSquares, spread: Panel, n_present: Vector) -> Panel:
    k = spread.shape[1]
    freedom = np.maximum(1 - k / np.maximum(n_present, 1), np.finfo(float).eps)
    spread = spread / freedom[:, None, None]
    excess = found.inverse - np.eye(k)
    there = np.clip(np.einsum("mii->mi", found.gram), np.finfo(float).tiny, 1)
    share = np.sqrt((1 - there) / there)
    covariance = excess @ spread @ excess + share[:, :, None] * spread * share[:, None, :]
    covariance[~found.determined] = np.nan
    return np.asarray(covariance)


def pair_products(V: Panel) -> Panel:
    first, second = np.triu_indices(V.shape[1])
    return np.asarray(V[:, first] * V[:, second])


def as_symmetric(sums: Panel, k: int) -> Panel:
    first, second = np.triu_indices(k)
    out = np.empty((len(sums), k, k))
    out[:, first, second] = out[:, second, first] = sums
    return out


N_SEGMENTS: Final = 50  # segments: about 60 Mb each in the human genome, longer than LD and most segments of relatives
_FURTHEST: Final = 2**62  # base pairs: larger positions are clipped
_NO_SEGMENT: Final = -1


def segments(variants: Variants, used: Mask) -> Places:
    out = np.full(len(used), _NO_SEGMENT)
    here = np.flatnonzero(used)
    _, chromosome = np.unique(canonical(variants.chromosomes[here])[0], return_inverse=True)
    position = np.array(
        [min(int(text), _FURTHEST) if text.isdecimal() else 0 for text in variants.positions[here].tolist()]
    )
    order = np.lexsort((position, chromosome))
    size = max(1, -(-len(here) // N_SEGMENTS))
    counts = np.bincount(chromosome)
    if len(counts) > N_SEGMENTS:  # an assembly of contigs: a segment has several
        out[here[order]] = np.arange(len(here)) // size
        return out
    within = np.arange(len(here)) - np.repeat(np.cumsum(counts) - counts, counts)
    parts = -(-counts // size)
    share = within * np.repeat(parts, counts) // np.repeat(counts, counts)
    out[here[order]] = np.repeat(np.cumsum(parts) - parts, counts) + share
    return out


class SegmentSums:
    """Sums of ``v_j e_j`` and numbers of genotypes in each segment of the genome, for m samples."""

    def __init__(self, segment: Places, m: int, k: int) -> None:
        self.segment, count = segment, int(segment.max(initial=0)) + 1
        self.sizes = np.bincount(segment[segment != _NO_SEGMENT], minlength=count).astype(np.float64)
        self.residuals, self.present = np.zeros((count, m, k)), np.zeros((count, m))

    def add(self, places: Places, residual: Panel, V: Panel) -> None:
        own = self.segment[places]
        there = ~np.isnan(residual)
        filled = np.where(there, residual, 0)
        for c in np.unique(own):
            self.residuals[c] += filled[:, own == c] @ V[own == c]
            self.present[c] += there[:, own == c].sum(axis=1)

    def _freedom(self) -> Vector:
        total, squares = self.present.sum(axis=0), (self.present**2).sum(axis=0)
        several = total**2 > squares * (1 + 1e-9)  # a single segment gives no estimate
        return np.asarray(np.divide(total**2, total**2 - squares, out=np.zeros_like(total), where=several))

    def covariance(self, found: LeastSquares, spread: Panel) -> Panel:
        k = spread.shape[1]
        X = np.einsum("cmi,cmj->mij", self.residuals, self.residuals, optimize=True)
        X = X * self._freedom()[:, None, None] - spread
        absent = self.sizes[:, None] - self.present
        both = (self.present * (self.present - 1)).sum(axis=0)
        one, none = (self.present * absent).sum(axis=0), (absent * (absent - 1)).sum(axis=0)
        some = found.determined & (both > 0)
        share = np.divide([one, none], both, out=np.zeros((2, len(both))), where=some)[:, :, None, None]
        W = np.where(some[:, None, None], found.inverse - np.eye(k), 0)
        added = W @ X @ W - share[0] * (W @ X + X @ W) + share[1] * X
        values, vectors = np.linalg.eigh(np.where(some[:, None, None], added, 0))
        return np.asarray((vectors * np.maximum(values, 0)[:, None, :]) @ vectors.swapaxes(1, 2))


_STEP = 1e-4  # step of finite differences, as a share of the norm of the genotypes of the sample


def oadp_scores(B: Panel, squares: Vector, lengths: Vector) -> Panel:
    # OADP (Zhang, Dey & Lee 2020): add each new sample alone to the training samples, given its coordinates B along the
    # loadings, its sum of squares over all variants, and the singular values of the training samples. The training
    # samples and the new sample are diag(U, 1) [[D, 0], [b^T, h]] in an orthonormal basis of k + 1 columns, with h^2 =
    # squares - b^T b. Their scores along the k new components are diag(U, 1) W L^(1/2), with the eigenvalues L and
    # eigenvectors W of the square of the inner matrix. Procrustes maps the scores of the training samples, U W_1
    # L^(1/2), back onto U D by a rotation R and a factor rho. Apply the same map to the new sample.
    m, k = B.shape
    inner = np.zeros((m, k + 1, k + 1))
    inner[:, np.arange(k), np.arange(k)] = lengths**2
    inner[:, k, :k] = inner[:, :k, k] = lengths * B
    inner[:, k, k] = squares
    values, vectors = np.linalg.eigh(inner)
    scores = (vectors * np.sqrt(np.maximum(values, 0))[:, None, :])[:, :, :0:-1]  # the k largest
    training, new = scores[:, :k], scores[:, k]
    left, overlaps, right = np.linalg.svd(lengths[:, None] * training)
    rotated = np.einsum("mi,mai,mja->mj", new, right, left, optimize=True)
    factor = overlaps.sum(axis=1) / np.einsum("mij,mij->m", training, training)
    return np.asarray(factor[:, None] * rotated)


def oadp_derivatives(B: Panel, squares: Vector, lengths: Vector) -> Panel:
    rest = squares - np.einsum("mk,mk->m", B, B)
    step = _STEP * np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    out = np.empty((*B.shape, B.shape[1]))
    for j in range(B.shape[1]):
        moved = [B + sign * step[:, None] * (np.arange(B.shape[1]) == j) for sign in (1, -1)]
        ahead, behind = (oadp_scores(C, rest + np.einsum("mk,mk->m", C, C), lengths) for C in moved)
        out[:, :, j] = (ahead - behind) / (2 * step[:, None])
    return out


_BLOCK_GENOTYPES: Final = 2**22  # genotypes in a block
_BLOCK_COPIES: Final = 6  # arrays of the size of a block, 8 bytes per genotype
_DEFAULT_BYTES: Final = 2**30  # bytes to use if the available memory is unknown
_SAMPLE_MATRICES: Final = 10  # k x k matrices per sample
# Singular values below this share of the first are rounding errors: genotypes are multiplied in single precision.
_ROUNDING: Final = float(np.finfo(np.float32).eps)


class Projection(NamedTuple):
    """New samples projected onto fitted components.

    Parameters
    ----------
    eigenvectors : array of shape (n_samples, k)
        Scores in the units of `GenotypePCA.eigenvectors`; NaN for samples with too few genotypes to determine k scores.
    samples : Samples
        The new samples, in the order of the file.
    n_used, n_flipped : int
        Number of variants of the model that were used, and number of these whose alleles are swapped in the new file.
    n_absent, n_mismatched : int
        Number of variants of the model that are absent from the new file, and that have different alleles there.
    n_complemented : int
        Number of used variants that have the alleles of the other strand.
    n_ambiguous, n_unclear : int
        Number of removed variants: with alleles A and T or C and G, whose strand is ambiguous; and with several records
        in the new file, or with a name and a position that point to different variants.
    n_by_name : int
        Number of used variants that were matched by name.
    standard_errors : array of shape (n_samples, k), or None
        Standard errors of `eigenvectors` due to absent variants and missing genotypes; 0 if nothing is missing, and
        None for ``project="mean"``.
    n_present : array of shape (n_samples,)
        Number of variants with a genotype in each sample.

    See Also
    --------
    genetics.GenotypePCA : Project samples with its method ``project``.

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


class Basis(NamedTuple):
    """Components of ``(g - mean) / scale``, where g counts the first allele of each variant."""

    variants: Variants
    used: Mask  # variants with nonzero loadings
    mean: Vector
    scale: Vector
    loadings: Panel  # with norm 1
    lengths: Vector  # singular values

    @property
    def nonzero(self) -> Mask:
        return np.asarray(self.lengths > _ROUNDING * self.lengths.max(initial=0))


class Scores(NamedTuple):
    """Scores ``V^T x`` of a group of samples that starts at index `first`, and standard errors if computed."""

    first: int
    scores: Panel
    errors: Panel | None
    n_present: Vector


@dataclass(frozen=True, eq=False)
class Target:
    """New samples, with their variants matched to those of the components."""

    basis: Basis
    files: Fileset
    match: Match

    @classmethod
    def of(cls, basis: Basis, files: Fileset, match: MatchName = "auto", trust_ambiguous: bool = False) -> "Target":
        found = matched(basis.variants, basis.used, files.variants, files.name, match, trust_ambiguous)
        if not len(found.here):
            known = (basis.variants, files.variants)
            numbers = any(each.first.size and np.isin(each.first, _NUMBERS).all() for each in known)
            raise _no_common_variants(files.name, int(np.count_nonzero(basis.used)), found.counts, numbers)
        return cls(basis, files, found)

    @classmethod
    def of_fit(cls, basis: Basis, files: Fileset) -> "Target":
        # `files` has the variants of the basis, in the same order, and counts the same alleles.
        here = np.flatnonzero(basis.used)
        same = np.zeros(len(here), bool)
        return cls(basis, files, Match(here, here, same, same, {"matched": len(here)}))

    @cached_property
    def segment(self) -> Places:
        return segments(self.basis.variants, self.basis.used)

    def scores(
        self, method: ProjectName, memory_limit: int | str | None = None, errors: bool = True
    ) -> Iterator[Scores]:
        m, k = self.files.shape[0], len(self.basis.lengths)
        half = (limit_of(memory_limit) or _DEFAULT_BYTES) // 2  # bytes: half for sums over samples, half for genotypes
        step = max(1, half // (8 * (_SAMPLE_MATRICES * k * k + (2 * N_SEGMENTS + 4) * (k + 1))))
        for lo in range(0, m, step):
            yield _scores(
                self, slice(lo, min(lo + step, m)), min(_BLOCK_GENOTYPES, half // (8 * _BLOCK_COPIES)), method, errors
            )

    def projection(self, method: ProjectName, memory_limit: int | str | None) -> Projection:
        groups = list(self.scores(method, memory_limit))
        units = np.where(self.basis.nonzero, self.basis.lengths, 1)
        errors = [group.errors for group in groups if group.errors is not None]
        counts = {f"n_{name}": count for name, count in self.match.counts.items()}
        return Projection(
            eigenvectors=np.concatenate([group.scores for group in groups]) / units,
            samples=self.files.samples,
            n_used=counts.pop("n_matched"),
            **counts,
            standard_errors=np.concatenate(errors) / units if errors else None,
            n_present=np.concatenate([group.n_present for group in groups]),
        )

    def blocks(self, rows: slice, most: int) -> Iterator[tuple[Panel, Panel, Places]]:
        """Yield blocks of at most `most` scaled genotypes (NaN if missing), with loadings and indices of variants."""
        basis, samples, first = self.basis, np.arange(rows.start, rows.stop), 0
        step = max(1, most // (len(samples) + pair_products(basis.loadings[:1]).shape[1]))
        for source in self.files.parts:
            begin, end = np.searchsorted(self.match.there, [first, first + source.shape[0]])
            for lo in range(begin, end, step):
                part = self.match.part(lo, min(lo + step, end))
                G = source.at(part.there - first, samples).dosages().T.astype(np.float64)
                G = np.where(part.swapped, 2 - G, G)
                X = (G - basis.mean[part.here]) / basis.scale[part.here]
                yield X, basis.loadings[part.here][:, basis.nonzero], part.here
            first += source.shape[0]


def scores_of_projected(basis: Basis, files: Fileset, memory_limit: int | str | None) -> Panel:
    # Scores of the samples of the fit that are not training samples, as `project` computes them by default.
    groups = Target.of_fit(basis, files).scores("lsq", memory_limit, errors=False)
    scores = np.concatenate([group.scores for group in groups])
    warn_of_undetermined(files.name, int(np.isnan(scores).any(axis=1).sum()))
    return scores


def warn_of_undetermined(file: str, count: int) -> None:
    if count:
        without = f"{plural(count, 'sample')} with too few variants of the model"
        warnings.warn(f"{file}: the scores of {without} are NaN. Remove these samples.", stacklevel=3)


def _scores(target: Target, rows: slice, most: int, method: ProjectName, with_errors: bool) -> Scores:
    basis, m = target.basis, rows.stop - rows.start
    k, n = int(np.count_nonzero(basis.nonzero)), int(np.count_nonzero(basis.used))
    products, squares, n_present = np.zeros((m, k)), np.zeros(m), np.zeros(m)
    gram, missing_gram = np.zeros((1, k * (k + 1) // 2)), np.zeros((m, k * (k + 1) // 2))
    for X, V, _ in target.blocks(rows, most):
        missing = np.isnan(X)
        np.copyto(X, 0, where=missing)
        products += X @ V
        squares += np.einsum("ij,ij->i", X, X)
        n_present += X.shape[1] - missing.sum(axis=1)
        gram += pair_products(V).sum(axis=0)
        gaps = missing.any(axis=1)
        missing_gram[gaps] += missing[gaps].astype(np.float64) @ pair_products(V)

    def whole(values: Panel) -> Panel:
        out = np.zeros((m, len(basis.lengths)))
        out[:, basis.nonzero] = values
        return out

    if method == "mean" or not k:
        known = with_errors and method != "mean"
        return Scores(rows.start, whole(products), whole(products) if known else None, n_present)
    found = least_squares(as_symmetric(gram - missing_gram, k), products, squares, n_present, n)
    scores, covariance = found.scores, np.zeros((m, k, k))
    if with_errors and (some := n_present < n).any():
        covariance[some] = _covariance(target, rows, most, found, n_present)[some]
    if method == "oadp":
        share = np.maximum(n - k, 0) / np.maximum(n_present[found.determined] - k, 1)
        scores, covariance = _by_oadp(found, covariance, share, basis.lengths[basis.nonzero])
    errors = np.sqrt(np.maximum(np.einsum("mii->mi", covariance), 0))
    return Scores(rows.start, whole(scores), whole(errors) if with_errors else None, n_present)


def _covariance(target: Target, rows: slice, most: int, found: LeastSquares, n_present: Vector) -> Panel:
    m, k = found.scores.shape
    spread, sums = np.zeros((m, k * (k + 1) // 2)), SegmentSums(target.segment, m, k)
    for X, V, places in target.blocks(rows, most):
        residual = X - np.where(found.determined[:, None], found.scores, 0) @ V.T
        spread += np.nan_to_num(residual) ** 2 @ pair_products(V)
        sums.add(places, residual, V)
    squares = as_symmetric(spread, k)
    return noise_covariance(found, squares, n_present) + sums.covariance(found, squares)


def _by_oadp(found: LeastSquares, covariance: Panel, share: Vector, lengths: Vector) -> tuple[Panel, Panel]:
    determined = found.determined
    B = found.scores[determined]
    squares = np.einsum("mk,mk->m", B, B) + found.residual[determined] * share
    scores, moved = np.full_like(found.scores, np.nan), np.full_like(covariance, np.nan)
    scores[determined] = oadp_scores(B, squares, lengths)
    J = oadp_derivatives(B, squares, lengths)
    moved[determined] = J @ covariance[determined] @ J.swapaxes(1, 2)
    return scores, moved


_NUMBERS: Final = ("0", "1", "2", "3", "4", ".")  # alleles that are coded as numbers, or unknown


def _no_common_variants(file: str, n: int, counts: dict[str, int], are_numbers: bool) -> Refused:
    remedy = (
        "write A, C, G and T in place of numbers with plink --update-alleles"
        if are_numbers
        else "use the same reference with plink2 --ref-from-fa"
    )
    return Refused(
        f"{file} has no usable variants of the {n:,} in the model. Absent by position and name: "
        f"{counts['absent']:,} (if the genome builds differ, lift one of the files over, or use the same rsIDs; if the "
        "files have other names of chromosomes, rename them, or use ",
        *(Setting("match", "name"), "). "),
        f"With different alleles: {counts['mismatched']:,} ({remedy}). "
        f"Ambiguous, with alleles A/T or C/G: {counts['ambiguous']:,} (if both files use the same strand, pass ",
        *(Setting("trust_ambiguous", True), "). "),
        f"With duplicate records or conflicting name and position: {counts['unclear']:,}.",
    )
