"""Options for genotypes: PLINK's filters, tests and scans in `fit`, matching and projection in `transform`."""

from typing import Any, Final, get_args

import click

from shiftsvd.extend import under
from shiftsvd.genetics.extension import Chromosomes, MatchName, ProjectName

_FILE: Final = click.Path(exists=True, dir_okay=False)
_SHARE: Final = click.FloatRange(0, 1)
NAMES: Final = (
    *("keep", "remove", "extract", "exclude", "extract_range", "exclude_range", "exclude_long_range"),
    *("mind", "geno", "hwe", "hwe_midp", "maf", "unrelated", "indep_pairwise", "indep_order"),
)


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


OF_FIT: Final = (
    under(
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
        click.option(
            "--extract-range", type=_FILE, help="Variants to keep: chromosome, first and last position on each line."
        ),
        click.option(
            "--exclude-range", type=_FILE, help="Variants to remove: chromosome, first and last position on each line."
        ),
        click.option(
            "--exclude-long-range",
            type=click.Choice(["hg19", "hg38"]),
            help="Remove variants in human regions of long-range linkage; give the build of the positions.",
        ),
        click.option(
            "--keep", type=_FILE, help="Samples to keep: a file with FID and IID, or IID alone, on each line."
        ),
        click.option(
            "--remove", type=_FILE, help="Samples to remove: a file with FID and IID, or IID alone, on each line."
        ),
        click.option(
            "--mind",
            type=_SHARE,
            callback=_number,
            metavar="SHARE",
            help="Remove samples with a larger share of missing genotypes.",
        ),
        click.option(
            "--geno",
            type=_SHARE,
            callback=_number,
            metavar="SHARE",
            help="Remove variants with a larger share of missing genotypes.",
        ),
        click.option(
            "--hwe",
            type=_SHARE,
            callback=_number,
            metavar="P",
            help="Remove variants whose test of Hardy-Weinberg proportions has a smaller p.",
        ),
        click.option("--hwe-midp", is_flag=True, help="For --hwe: the mid-p, PLINK's midp."),
        click.option(
            "--maf",
            type=click.FloatRange(0, 0.5),
            callback=_number,
            metavar="FREQUENCY",
            help="Remove variants with a smaller minor allele frequency (MAF).",
        ),
        click.option(
            "--unrelated",
            type=click.FloatRange(0, 0.5),
            callback=_number,
            metavar="KINSHIP",
            help="Learn components on samples of which no two have a larger kinship (KING-robust), such as 0.0884, and "
            "project the others.",
        ),
        click.option(
            "--indep-pairwise",
            type=(str, int, float),
            callback=_windows,
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
    under(
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
