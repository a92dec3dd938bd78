"""Read samples and variants from the tables of genotype files (.fam, .bim, .psam, .pvar)."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import dropwhile, islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import Labels, Places, bounded, bounded_lines, labels, open_bytes, optional, reading
from shiftsvd.extend.running import Refused, Setting, few

Alleles = npt.NDArray[np.object_]  # objects, because fixed-width strings would be padded to the longest insertion
Mask = npt.NDArray[np.bool_]


class Samples(NamedTuple):
    """Names of the samples of a file.

    Parameters
    ----------
    families : array of str, of shape (n_samples,)
        FID of each sample.
    names : array of str, of shape (n_samples,)
        IID of each sample.

    See Also
    --------
    genetics.Variants : Names, positions and alleles of the variants.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Samples
    >>> Samples(families=np.array(["f1", "f1"]), names=np.array(["ann", "bob"])).names[1].item()
    'bob'
    """

    families: Labels
    names: Labels


class Variants(NamedTuple):
    """Names, positions and alleles of the variants of a file; genotypes count the first allele.

    Parameters
    ----------
    chromosomes : array of str, of shape (n_variants,)
        Chromosome of each variant, as written in the file.
    names : array of str, of shape (n_variants,)
        Name of each variant, such as "rs123".
    positions : array of str, of shape (n_variants,)
        Position on the chromosome in base pairs, as written in the file.
    first : array of str, of shape (n_variants,)
        Counted allele: A1 of PLINK 1, ALT of PLINK 2.
    second : array of str, of shape (n_variants,)
        Other allele: A2 of PLINK 1, REF of PLINK 2.

    See Also
    --------
    genetics.Samples : Names of the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Variants
    >>> alleles = np.array(["A", "C"], object), np.array(["G", "T"], object)
    >>> variants = Variants(
    ...     np.array(["1", "X"]), np.array(["rs1", "rs2"]), np.array(["100", "200"]), *alleles
    ... )
    >>> variants.at(np.array([1])).names.tolist()
    ['rs2']
    """

    chromosomes: Labels
    names: Labels
    positions: Labels
    first: Alleles
    second: Alleles

    def at(self, places: Places | Mask) -> "Variants":
        """Return a subset of the variants.

        Parameters
        ----------
        places : array of int or bool
            Indices or mask of the variants.

        Returns
        -------
        Variants
            The selected variants, in the order of `places`.
        """
        return Variants._make(each[places] for each in self)


# Columns of tables without a header, by PLINK 2's names, and the first words of the headers of the other tables.
_COLUMNS: Final = {
    ".fam": ["FID", "IID", "PAT", "MAT", "SEX", "PHENO1"],
    ".bim": ["CHROM", "ID", "CM", "POS", "ALT", "REF"],
}
_FIRST: Final = {".pvar": ("#CHROM",), ".psam": ("#FID", "#IID")}
_NEEDED: Final = {".pvar": ("CHROM", "POS", "ID", "REF", "ALT"), ".psam": ("IID",)}
_NOBODY: Final = ("0", "0")  # the parents of a founder
_BATCH: Final = 2**13  # lines
_SHORT: Final = 2  # letters of alleles that many variants share


def is_pgen(genotypes: Path) -> bool:
    return genotypes.suffix.lower() == ".pgen"


def tables(genotypes: Path) -> tuple[Path, Path]:
    if not is_pgen(genotypes):
        return genotypes.with_suffix(".bim"), genotypes.with_suffix(".fam")
    unpacked, packed = genotypes.with_suffix(".pvar"), genotypes.with_suffix(".pvar.zst")
    return packed if packed.exists() and not unpacked.exists() else unpacked, genotypes.with_suffix(".psam")


def columns(path: Path, wanted: Iterable[str], memory_limit: int | str | None = None) -> dict[str, Any]:
    # Arrays of text, converted a batch of lines at a time: a str takes several times the bytes.
    kind = ".pvar" if path.suffix == ".zst" else path.suffix
    with reading(path), _open(path) as stream:
        rows = _rows(path, stream, memory_limit)
        header = _COLUMNS.get(kind) or _header(path, kind, rows)
        found: dict[str, list[Any]] = {name: [_as_array(path, name, (), None)] for name in wanted if name in header}
        places = [(name, header.index(name)) for name in found]
        lines = _full_lines(path, kind, header, rows)
        while batch := list(islice(lines, _BATCH)):
            for name, place in places:
                found[name].append(_as_array(path, name, [row[place] for row in batch], memory_limit))
    arrays = {name: np.concatenate(parts) for name, parts in found.items()}
    bounded(path, sum(array.nbytes for array in arrays.values()), memory_limit)
    return arrays


def _full_lines(path: Path, kind: str, header: list[str], rows: Iterator[tuple[int, list[str]]]) -> Iterator[list[str]]:
    for number, row in dropwhile(lambda row: kind == ".fam" and row[1][0].startswith("#"), rows):
        if kind == ".bim" and len(row) == len(header) - 1:
            row.insert(header.index("CM"), "0")  # optional in PLINK 1.9
        if len(row) < len(header):
            raise ValueError(
                f"{path}, line {number:,}: must have {len(header):,} fields, got {len(row):,}. Correct this line."
            )
        yield row


def _as_array(path: Path, name: str, texts: Iterable[str], memory_limit: int | str | None) -> Labels | Alleles:
    if name not in ("ALT", "REF"):
        return labels(path, texts, memory_limit)
    return np.array([sys.intern(text) if len(text) <= _SHORT else text for text in texts], object)


def _header(path: Path, kind: str, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    header = next((row for _, row in rows if not row[0].startswith("##")), [""])
    if header[0] not in _FIRST[kind]:
        raise ValueError(
            f"{path} must have a header that starts with {' or '.join(_FIRST[kind])}, got {' '.join(header[:2])!r}. "
            "Write the file with plink2 --make-pgen."
        )
    header = [header[0].removeprefix("#"), *header[1:]]
    if absent := [name for name in _NEEDED[kind] if name not in header]:
        raise ValueError(
            f"{path} must have the columns {few(_NEEDED[kind], 5)}, got a header without {few(absent, 5)}. Write the "
            "file with plink2 --make-pgen."
        )
    return header


def _rows(path: Path, stream: IO[bytes], memory_limit: int | str | None) -> Iterator[tuple[int, list[str]]]:
    empty = 0
    for number, line in enumerate(bounded_lines(path, stream, memory_limit), 1):
        words = line.decode("utf-8-sig").split()
        if words and empty:
            raise ValueError(f"{path}, line {empty}: must not be empty. Remove the line.")
        if words:
            yield number, words
        else:
            empty = empty or number


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix != ".zst":
        with open_bytes(path) as stream:
            yield stream
        return
    zstandard = optional("zstandard", "pgen")
    try:
        with path.open("rb") as packed:
            unpacked = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            yield cast("IO[bytes]", BufferedReader(unpacked))
    except zstandard.ZstdError as error:
        raise ValueError(f"{path} is damaged: {error}. Copy it again.") from error


def read_samples(genotypes: Path) -> Samples:
    found = columns(tables(genotypes)[1], ("FID", "IID"))
    return Samples(found.get("FID", np.full(len(found["IID"]), "0")), found["IID"])


def read_sample_column(genotypes: Path, name: str) -> Labels:
    path = tables(genotypes)[1]
    found = columns(path, (name,))
    if name not in found:
        with reading(path), _open(path) as stream:
            there = _COLUMNS.get(path.suffix) or _header(path, path.suffix, _rows(path, stream, None))
        raise Refused(
            *(f"{path} has no column {name!r}. Its columns are {few(there, 10)}. Pass another table as "),
            *(Setting("labels"), "."),
        )
    return np.asarray(found[name])


def read_founders(genotypes: Path) -> Mask:
    # All samples are founders if the .psam has no columns PAT and MAT.
    found = columns(tables(genotypes)[1], ("IID", "PAT", "MAT"))
    nobody = ["0"] * len(found["IID"])
    parents = zip(found.get("PAT", nobody), found.get("MAT", nobody), strict=True)
    return np.array([both == _NOBODY for both in parents], bool)


def read_variants(genotypes: Path) -> Variants:
    names = "CHROM", "ID", "POS", "ALT", "REF"
    found = columns(tables(genotypes)[0], names)
    return Variants(*(found[name] for name in names))


def positions_of(variants: Variants) -> npt.NDArray[np.int64]:
    try:
        return variants.positions.astype(np.int64)
    except (ValueError, OverflowError):
        texts = variants.positions.tolist()
        at = next(i for i, text in enumerate(texts) if re.fullmatch(r"[+-]?\d{1,18}", text) is None)
        raise ValueError(
            f"positions of variants must be integers of at most 18 digits, got {texts[at]!r} for variant "
            f"{variants.names[at]}. Correct the .bim or .pvar file."
        ) from None


_LAST_HUMAN: Final = 26  # PLINK's largest number of a human chromosome; larger numbers show another species
# PLINK 2 splits PLINK 1's XY, the pseudoautosomal regions, into PAR1 and PAR2.
_CODES: Final = {"X": "23", "Y": "24", "XY": "25", "PAR1": "25", "PAR2": "25", "M": "26", "MT": "26"}


def short_name(chromosome: str) -> str:
    return chromosome.upper().removeprefix("CHR").lstrip("0")


def _are_human(names: Iterable[str]) -> bool:
    return max((int(name) for name in names if name.isdecimal()), default=0) <= _LAST_HUMAN


def autosomal(chromosomes: Labels) -> Mask:
    # In other species every numbered chromosome is an autosome. Unknown names, such as "0" and contigs, count as
    # autosomes.
    listed: list[str] = chromosomes.tolist()
    short = {name: short_name(name) for name in set(listed)}
    sexed = {*_CODES, *(_CODES.values() if _are_human(short.values()) else ())}
    return np.array([short[name] not in sexed for name in listed], bool)


def canonical(*files: Labels) -> list[list[str]]:
    listed: list[list[str]] = [chromosomes.tolist() for chromosomes in files]
    short = {name: short_name(name) for name in set().union(*listed)}
    codes = _CODES if _are_human(short.values()) else {}
    names = {name: codes.get(each, each) for name, each in short.items()}
    return [[names[name] for name in own] for own in listed]
