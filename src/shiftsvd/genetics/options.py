"""Options for genotypes: PLINK's filters, tests and scans in `fit`, matching and projection in `transform`."""

from typing import Any, Final, get_args

import click

from shiftsvd.extend import checked_by, group_options
from shiftsvd.genetics.extension import SHARES, Build, Chromosomes, MatchName, ProjectName

_FILE: Final = click.Path(exists=True, dir_okay=False)
_LIST: Final = "a file with FID and IID, or IID alone, on each line."
_RANGES: Final = "chromosome, first and last position on each line."


def _number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and value != value:
        raise click.BadParameter("nan is no number")
    return value


def _limit(name: str, metavar: str, text: str) -> Any:
    kind = click.FloatRange(0, SHARES[name])
    return click.option(f"--{name}", type=kind, callback=_number, metavar=metavar, help=text)


OF_FIT: Final = (
    group_options(
        "Genotypes",
        click.option(
            "--chromosomes",
            type=click.Choice(get_args(Chromosomes)),
            help="Leave out X, Y, XY, MT and 23 to 26 (autosomes), or nothing, as for other species.  "
            "[default: autosomes]",
        ),
        click.option("--autosome", is_flag=True, help="The same as --chromosomes autosomes, which is the default."),
        click.option("--extract", type=_FILE, help="Variants to keep: a file with their names."),
        click.option("--exclude", type=_FILE, help="Variants to remove: a file with their names."),
        click.option("--extract-range", type=_FILE, help=f"Variants to keep: {_RANGES}"),
        click.option("--exclude-range", type=_FILE, help=f"Variants to remove: {_RANGES}"),
        click.option(
            "--exclude-long-range",
            type=click.Choice(get_args(Build)),
            help="Remove variants in human regions of long-range linkage; give the build of the positions.",
        ),
        click.option("--keep", type=_FILE, help=f"Samples to keep: {_LIST}"),
        click.option("--remove", type=_FILE, help=f"Samples to remove: {_LIST}"),
        _limit("mind", "SHARE", "Remove samples with a larger share of missing genotypes."),
        _limit("geno", "SHARE", "Remove variants with a larger share of missing genotypes."),
        _limit("hwe", "P", "Remove variants whose test of Hardy-Weinberg proportions has a smaller p."),
        click.option("--hwe-midp", is_flag=True, help="For --hwe: the mid-p, PLINK's midp."),
        _limit("maf", "FREQUENCY", "Remove variants with a smaller minor allele frequency (MAF)."),
        _limit(
            "unrelated",
            "KINSHIP",
            "Learn components on samples of which no two have a larger kinship (KING-robust), such as 0.0884, and "
            "project the others.",
        ),
        click.option(
            "--indep-pairwise",
            type=(str, int, float),
            callback=checked_by("shiftsvd.genetics.selection:windows_of"),
            metavar="WINDOW STEP R2",
            help="Prune by linkage, as plink2 does: a window of variants, or such as 200kb, its step, the largest r^2.",
        ),
        click.option(
            "--indep-order",
            type=click.Choice(["1", "2"]),
            help="For --indep-pairwise: in the order of PLINK 1.9, or of plink2 since November 2023.  [default: 1]",
        ),
        click.option("--tracy-widom", is_flag=True, help="Test which components are more than noise."),
        click.option(
            "--scan", is_flag=True, help="Write scan.csv: how much each variant differs along the components."
        ),
    ),
)
OF_TRANSFORM: Final = (
    group_options(
        "Genotypes",
        click.option(
            "--project",
            type=click.Choice(get_args(ProjectName)),
            help="Scores by least squares on the genotypes that are there (lsq); by OADP, without the shrinkage of "
            "many variants; with means in place of missing genotypes, which shrinks scores.  [default: lsq]",
        ),
        click.option(
            "--match",
            type=click.Choice(get_args(MatchName)),
            help="Match variants by position, by name, or by position and by name where positions are unknown or of "
            "another build (auto).  [default: auto]",
        ),
        click.option(
            "--trust-ambiguous",
            is_flag=True,
            help="Keep variants A/T and C/G, whose letters cannot tell the strand: it must be that of MODEL.",
        ),
        click.option(
            "--trust-order",
            is_flag=True,
            help="For a MODEL without alleles: the file has its variants and counts the same alleles.",
        ),
    ),
)
