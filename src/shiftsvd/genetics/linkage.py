"""Prune variants in LD, in windows that slide along each chromosome, as `plink --indep-pairwise` does."""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import Places
from shiftsvd.extend.running import Refused, Resources, Setting, default_threads, ordered
from shiftsvd.genetics.files import Calls, Fileset, block_size
from shiftsvd.genetics.variants import Mask, Variants, positions_of, short_name

Single = npt.NDArray[np.float32]
Majors = npt.NDArray[np.float64]  # how frequent major alleles are

FORWARDS, BACKWARDS = 1, 2  # plink2's --indep-order
_EPSILON: Final = 2.0**-44  # PLINK's relative tolerance of equal frequencies and correlations
_UNPLACED: Final = ("", "0")  # short names of chromosomes for variants with unknown position
_MONOMORPHIC: Final = 2.0  # marks monomorphic variants, in place of the frequency of the major allele
_BYTES: Final = 4  # of a genotype in single precision; blocks are smaller by this factor
_LEAST, _MOST = 32, 256  # variants that one matrix product compares with the variants of their windows


class Windows(NamedTuple):
    """Size of a window in variants or base pairs, its step in variants, and the largest r^2 of a pair to keep."""

    size: int
    step: int
    r2: float
    by_position: bool = False  # size is in base pairs, and the window moves until its end does
    order: int = FORWARDS  # of comparisons in a window


class _LinkedPairs(NamedTuple):
    """Pairs of variants with an r^2 above the limit, and the frequencies of the major alleles of a block."""

    later: Places
    earlier: Places
    major: Majors


def pruned(files: Fileset, founders: Mask, windows: Windows, resources: Resources) -> Mask:
    # plink --indep-pairwise: return a mask of the variants to keep, in one read (overlaps of blocks are read twice).
    # Of a pair above the r^2, remove the variant with the more frequent major allele (ties: the later variant). Order 1
    # (PLINK 1.9, and plink2 until November 2023) compares each variant of a window with the following variants, from
    # the start, until no pair is left. Order 2 (plink2 since then) compares once, from the end backwards. Correlations
    # are those of allele counts, among founders with both genotypes. Monomorphic variants and variants on chromosome 0,
    # which have no position, are removed.
    variants = files.variants
    kept, starts = np.ones(len(variants.names), bool), np.arange(len(variants.names))
    ends: list[int] = []  # of windows
    for name, lo, hi in _runs(variants):
        if short_name(name) in _UNPLACED:
            kept[lo:hi] = False
            ends.append(hi)
            continue
        for start, first, end in _windows(positions_of(variants)[lo:hi], windows):
            starts[lo + first : lo + end] = lo + start
            ends.append(lo + end)
    found = _linked_pairs(files, starts, founders, windows.r2, resources)
    _prune(found, ends, kept, windows.order)
    return kept


def _runs(variants: Variants) -> Iterator[tuple[str, int, int]]:
    names, positions = variants.chromosomes, positions_of(variants)
    cuts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    seen: set[str] = set()
    for lo, hi in pairwise(cuts):
        name = str(names[lo])
        if name in seen or (np.diff(positions[lo:hi]) < 0).any():
            raise Refused(
                *(Setting("indep_pairwise"), " requires variants sorted by position, but those of chromosome "),
                f"{name} are not. Sort the file with plink2 --sort-vars.",
            )
        seen.add(name)
        yield name, lo, hi


def is_sorted(variants: Variants) -> bool:
    try:
        return not {short_name(name) for name, _, _ in _runs(variants)} <= {*_UNPLACED}
    except ValueError:  # unsorted, or positions that are not integers
        return False


def _windows(positions: npt.NDArray[np.int64], windows: Windows) -> Iterator[tuple[int, int, int]]:
    n, start, first = len(positions), 0, 0
    while first < n:
        if windows.by_position:
            # Move the window to the first start at which it includes the next variant.
            start = max(start, int(np.searchsorted(positions, positions[first] - windows.size)))
            end = int(np.searchsorted(positions, positions[start] + windows.size, "right"))
        else:
            end = min(start + windows.size, n)
        yield start, first, end
        start, first = start + (1 if windows.by_position else windows.step), end


def _linked_pairs(
    files: Fileset, starts: Places, founders: Mask, r2: float, resources: Resources
) -> Iterator[tuple[int, _LinkedPairs]]:
    n, size = len(starts), max(1, block_size(resources) // (_BYTES * len(founders)))

    def of_block(lo: int) -> tuple[int, _LinkedPairs]:
        base = int(starts[lo])
        G = files.calls(base, min(lo + size, n))
        return lo, _pairs(G if founders.all() else G[:, founders], base, lo, starts, r2)

    return ordered(of_block, range(0, n, size), resources.n_threads or default_threads())


def _pairs(G: Calls, base: int, lo: int, starts: Places, r2: float) -> _LinkedPairs:
    hi, counts = base + len(G), _Counts.of(G)
    later, earlier = [], []
    step = int(np.clip(lo - base, _LEAST, _MOST))
    for a in range(lo, hi, step):
        b, first = min(a + step, hi), int(starts[a])
        above = _exceeds_r2(counts.part(a - base, b - base), counts.part(first - base, b - base), r2)
        i, j = np.arange(first, b), np.arange(a, b)[:, None]
        rows, columns = np.nonzero(above & (i < j) & (i >= starts[a:b, None]))
        later.append(rows + a)
        earlier.append(columns + first)
    return _LinkedPairs(np.concatenate(later), np.concatenate(earlier), _major(G[lo - base :]))


class _Counts(NamedTuple):
    """Allele counts minus 1 and their squares, 0 where missing, and the mask of known genotypes."""

    X: Single
    squares: Single
    known: Single | None  # None if no genotype is missing

    @classmethod
    def of(cls, G: Calls) -> Self:
        X, known = np.subtract(G, 1, dtype=np.float32), None
        if G.min(initial=0) < 0:
            known = (G >= 0).astype(np.float32)
            X *= known
        return cls(X, np.abs(X), known)

    def part(self, lo: int, hi: int) -> Self:
        known = None if self.known is None else self.known[lo:hi]
        return type(self)(self.X[lo:hi], self.squares[lo:hi], known)


def _exceeds_r2(G: _Counts, H: _Counts, r2: float) -> Mask:
    dot = _products(G.X, H.X)
    if G.known is None or H.known is None:
        known: Any = float(G.X.shape[1])
        x, y, xx, yy = (part.sum(axis=1, dtype=np.float64) for part in (G.X, H.X, G.squares, H.squares))
        x, xx = x[:, None], xx[:, None]
    else:
        known, x, y = _products(G.known, H.known), _products(G.X, H.known), _products(G.known, H.X)
        xx, yy = _products(G.squares, H.known), _products(G.known, H.squares)
    covariance = dot * known - x * y
    both = (xx * known - x * x) * (yy * known - y * y)
    return np.asarray(covariance * covariance > r2 * (1 + _EPSILON) * both)


def _products(X: Single, Y: Single) -> npt.NDArray[np.float64]:
    return (X @ Y.T).astype(np.float64)


def _major(G: Calls) -> Majors:
    ones, twos = np.count_nonzero(G == 1, axis=1), np.count_nonzero(G == 2, axis=1)
    known = np.count_nonzero(G >= 0, axis=1)
    share = (ones + 2 * twos) / np.maximum(2 * known, 1)
    monomorphic = (ones == known) | (twos == known) | (ones + twos == 0)
    return np.where(monomorphic, _MONOMORPHIC, np.maximum(share, 1 - share))


def _prune(found: Iterator[tuple[int, _LinkedPairs]], ends: list[int], kept: Mask, order: int) -> None:
    major, pending = np.full(len(kept), _MONOMORPHIC), deque[tuple[int, int]]()
    left, compare = deque(ends), _forwards if order == FORWARDS else _backwards
    for lo, block in found:
        hi = lo + len(block.major)
        major[lo:hi] = block.major
        kept[lo:hi] &= block.major < _MONOMORPHIC
        pending.extend(zip(block.later.tolist(), block.earlier.tolist(), strict=True))
        while left and left[0] <= hi:
            end, pairs = left.popleft(), []
            while pending and pending[0][0] < end:
                pairs.append(pending.popleft())
            compare(pairs, kept, major)


def _forwards(pairs: list[tuple[int, int]], kept: Mask, major: Majors) -> None:
    partners: dict[int, list[int]] = {}
    for later, earlier in pairs:
        partners.setdefault(earlier, []).append(later)
    ahead = {i: iter(partners[i]) for i in sorted(partners)}
    while ahead:
        for i in list(ahead):
            j = next((j for j in ahead[i] if kept[j]), None) if kept[i] else None
            if j is None:
                del ahead[i]
            else:
                kept[i if major[i] > major[j] * (1 + _EPSILON) else j] = False


def _backwards(pairs: list[tuple[int, int]], kept: Mask, major: Majors) -> None:
    decided = -1
    for j, i in reversed(pairs):
        if j == decided or not kept[i]:
            continue
        if major[i] <= major[j] * (1 + _EPSILON):
            kept[j], decided = False, j
        else:
            kept[i] = False
