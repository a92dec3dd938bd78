"""Options for genotypes: PLINK's filters, tests and scans in `fit`, matching and projection in `transform`."""

from typing import Any, Final, get_args

import click

from shiftsvd.extend import Local, checked_by, group_options
from shiftsvd.genetics.extension import LARGEST, Build, Chromosomes, MatchName, ProjectName, ScoresScale

_FILE: Final = Local(exists=True, dir_okay=False)
_SAMPLES: Final = "a file with FID and IID, or IID only, on each line."
_VARIANTS: Final = "a file with variant names."
_RANGES: Final = "a file with chromosome, first and last position on each line."


def _number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and value != value:
        raise click.BadParameter("must be a number, got nan")
    return value


def _limit(name: str, metavar: str, text: str) -> Any:
    kind = click.FloatRange(0, LARGEST[name])
    return click.option(f"--{name}", type=kind, callback=_number, metavar=metavar, help=text)


def _windows(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value is None:
        return None
    window, step, r2 = value
    try:
        given = window, int(step), float(r2)
    except ValueError:
        raise click.BadParameter(
            f"needs three values, WINDOW STEP R2, such as 50 5 0.2 or 200kb 1 0.2, got {' '.join(value)}."
        ) from None
    return checked_by("shiftsvd.genetics.selection:windows_of")(ctx, parameter, given)


def _list(name: str, text: str) -> Any:
    return click.option(f"--{name}", type=_FILE, help=text)


def _labels(more: str) -> Any:
    table = "A table with a header, with IID or FID and IID, and labels of the samples, such as populations"
    return _list("labels", table + more)


_SCORES_SCALE: Final = click.option(
    "--scores-scale",
    type=click.Choice(get_args(ScoresScale)),
    help="Scale of scores and of .eigenvec: eigenvectors of norm 1 (unit; plink2's and smartpca's), times the square "
    "root of their eigenvalue (sqrt), or times their eigenvalue (eigen).  [default: unit in .eigenvec; eigenvectors "
    "times singular values in other tables]",
)
OF_FIT: Final = (
    group_options(
        "Genotypes",
        _labels(". --label-column names their column, if there are several."),
        _SCORES_SCALE,
        click.option(
            "--chromosomes",
            type=click.Choice(get_args(Chromosomes)),
            help="Keep only autosomes (remove X, Y, XY, MT and 23 to 26), or keep all chromosomes.  "
            "[default: autosomes]",
        ),
        click.option("--autosome", is_flag=True, help="Same as --chromosomes autosomes, the default."),
        _list("extract", f"Variants to keep: {_VARIANTS}"),
        _list("exclude", f"Variants to remove: {_VARIANTS}"),
        _list("extract-range", f"Variants to keep: {_RANGES}"),
        _list("exclude-range", f"Variants to remove: {_RANGES}"),
        click.option(
            "--exclude-long-range",
            type=click.Choice(get_args(Build)),
            help="Remove 24 human regions of long-range LD. Pass the genome build of the positions; lift files of "
            "other builds over first.",
        ),
        _list("keep", f"Samples to keep: {_SAMPLES}"),
        _list("remove", f"Samples to remove: {_SAMPLES}"),
        _limit(
            "mind",
            "SHARE",
            "Remove samples with a share of missing genotypes (0 to 1) above SHARE. Write OUT.mindrem.id.",
        ),
        _limit("geno", "SHARE", "Remove variants with a share of missing genotypes (0 to 1) above SHARE."),
        _limit("hwe", "P", "Remove variants with a Hardy-Weinberg exact test p value below P, such as 1e-6."),
        click.option("--hwe-midp", is_flag=True, help="Use the mid-p value for --hwe (PLINK's midp)."),
        _limit("maf", "FREQUENCY", "Remove variants with a minor allele frequency (MAF) below this, such as 0.01."),
        _limit(
            "unrelated",
            "KINSHIP",
            "Fit on a set of samples in which no pair has a KING-robust kinship above KINSHIP, and project the others. "
            "0.0884 removes relatives up to the second degree. Write OUT.kin0 and OUT.projected.",
        ),
        click.option(
            "--indep-pairwise",
            type=(str, str, str),
            callback=_windows,
            metavar="WINDOW STEP R2",
            help="Prune variants in LD, as PLINK does: window size in variants or kilobases (200kb), step in variants "
            "(1 for kilobases), and largest r^2, such as 50 5 0.2.",
        ),
        click.option(
            "--indep-order",
            type=click.Choice(["1", "2"]),
            help="Compare pairs for --indep-pairwise in the order of PLINK 1.9 and of plink2 until November 2023 (1), "
            "or of plink2 since then (2).  [default: 1]",
        ),
        click.option("--tracy-widom", is_flag=True, help="Test each component for significance (Tracy-Widom)."),
        click.option(
            "--scan", is_flag=True, help="Write scan.csv: a selection scan of the variants (pcadapt's statistic)."
        ),
    ),
)
OF_INFLUENCE: Final = (group_options("Genotypes", _labels(", for --leave-out.")),)
OF_TRANSFORM: Final = (
    group_options(
        "Genotypes",
        _SCORES_SCALE,
        click.option(
            "--project",
            type=click.Choice(get_args(ProjectName)),
            help="Project by least squares on the genotypes that are not missing (lsq); by OADP, which corrects the "
            "shrinkage of scores (oadp); or with missing genotypes replaced by means, which shrinks scores (mean).  "
            "[default: lsq]",
        ),
        click.option(
            "--match",
            type=click.Choice(get_args(MatchName)),
            help="Match variants by position, by name, or by position with names as a fallback if positions are "
            "unknown or of another genome build (auto).  [default: auto]",
        ),
        click.option(
            "--trust-ambiguous",
            is_flag=True,
            help="Keep A/T and C/G variants, whose strand is ambiguous. FILE must use the strand of MODEL.",
        ),
        click.option(
            "--trust-order",
            is_flag=True,
            help="Accept a MODEL without alleles. FILE must have the variants of MODEL in the same order and count the "
            "same alleles.",
        ),
    ),
)
