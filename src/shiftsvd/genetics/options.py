"""Options for genotypes: PLINK's filters, tests and scans in `fit`, matching and projection in `transform`."""

from typing import Any, Final, get_args

import click

from shiftsvd.extend import under
from shiftsvd.genetics.extension import SHARES, Chromosomes, MatchName, ProjectName

_FILE: Final = {"type": click.Path(exists=True, dir_okay=False)}
_LIST: Final = "a file with FID and IID, or IID alone, on each line."
_RANGES: Final = "chromosome, first and last position on each line."


def _windows(ctx: click.Context, parameter: click.Parameter, value: tuple[str, int, float] | None) -> Any:
    if value is not None:
        from shiftsvd.genetics.selection import windows_of

        try:
            windows_of(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and value != value:
        raise click.BadParameter("nan is no number")
    return value


def _choice(choices: Any) -> dict[str, Any]:
    return {"type": click.Choice(choices)}


def _limit(name: str, metavar: str) -> dict[str, Any]:
    return {"type": click.FloatRange(0, SHARES[name]), "callback": _number, "metavar": metavar}


def _under_genotypes(*options: tuple[str, dict[str, Any], *tuple[str, ...]]) -> tuple[Any]:
    return (under("Genotypes", *(click.option(name, help="".join(text), **kind) for name, kind, *text in options)),)


_FLAG: Final = {"is_flag": True}
_WINDOWS: Final = {"type": (str, int, float), "callback": _windows, "metavar": "WINDOW STEP R2"}
OF_FIT: Final = _under_genotypes(
    (
        *("--chromosomes", _choice(get_args(Chromosomes))),
        "Leave out X, Y, XY, MT and 23 to 26 (autosomes), or nothing, as for other species.  [default: autosomes]",
    ),
    ("--autosome", _FLAG, "The same as --chromosomes autosomes, which is the default."),
    ("--extract", _FILE, "Variants to keep: a file with their names."),
    ("--exclude", _FILE, "Variants to remove: a file with their names."),
    ("--extract-range", _FILE, f"Variants to keep: {_RANGES}"),
    ("--exclude-range", _FILE, f"Variants to remove: {_RANGES}"),
    (
        *("--exclude-long-range", _choice(["hg19", "hg38"])),
        "Remove variants in human regions of long-range linkage; give the build of the positions.",
    ),
    ("--keep", _FILE, f"Samples to keep: {_LIST}"),
    ("--remove", _FILE, f"Samples to remove: {_LIST}"),
    ("--mind", _limit("mind", "SHARE"), "Remove samples with a larger share of missing genotypes."),
    ("--geno", _limit("geno", "SHARE"), "Remove variants with a larger share of missing genotypes."),
    ("--hwe", _limit("hwe", "P"), "Remove variants whose test of Hardy-Weinberg proportions has a smaller p."),
    ("--hwe-midp", _FLAG, "For --hwe: the mid-p, PLINK's midp."),
    ("--maf", _limit("maf", "FREQUENCY"), "Remove variants with a smaller minor allele frequency (MAF)."),
    (
        *("--unrelated", _limit("unrelated", "KINSHIP")),
        "Learn components on samples of which no two have a larger kinship (KING-robust), such as 0.0884, and ",
        "project the others.",
    ),
    (
        *("--indep-pairwise", _WINDOWS),
        "Prune by linkage, as plink2 does: a window of variants, or such as 200kb, its step, the largest r^2.",
    ),
    (
        *("--indep-order", _choice(["1", "2"])),
        "For --indep-pairwise: in the order of PLINK 1.9, or of plink2 since November 2023.  [default: 1]",
    ),
    ("--tracy-widom", _FLAG, "Test which components are more than noise."),
    ("--scan", _FLAG, "Write scan.csv: how much each variant differs along the components."),
)
OF_TRANSFORM: Final = _under_genotypes(
    (
        *("--project", _choice(get_args(ProjectName))),
        "Scores by least squares on the genotypes that are there (lsq); by OADP, without the shrinkage of many ",
        "variants; with means in place of missing genotypes, which shrinks scores.  [default: lsq]",
    ),
    (
        *("--match", _choice(get_args(MatchName))),
        "Match variants by position, by name, or by position and by name where positions are unknown or of another ",
        "build (auto).  [default: auto]",
    ),
    (
        *("--trust-ambiguous", _FLAG),
        "Keep variants A/T and C/G, whose letters cannot tell the strand: it must be that of MODEL.",
    ),
    ("--trust-order", _FLAG, "For a MODEL without alleles: the file has its variants and counts the same alleles."),
)
